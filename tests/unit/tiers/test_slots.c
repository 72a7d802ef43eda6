/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_slots.c - the slot bitmap against a plain array of flags.
 */
#include "tests/unit/tiers/check.h"
#include "tiers/slots.h"

#include <errno.h>

static void fresh_slots_come_in_order(void **state)
{
    struct slots slots;
    uint32_t first;

    (void)state;
    assert_int_equal(slots_init(&slots, 100000), 0);
    for (uint32_t at = 0; at < 90000; at += 100) {
        assert_int_equal(slots_take(&slots, 100, 1, &first), 100);
        assert_int_equal(first, at);
    }
    slots_fini(&slots);
}

static void full_store_gives_none_and_last_slot_is_found(void **state)
{
    struct slots slots;
    uint32_t first;

    (void)state;
    assert_int_equal(slots_init(&slots, 1000), 0);
    for (uint32_t taken = 0; taken < 1000;)
        taken += slots_take(&slots, 64, 1, &first);
    assert_int_equal(slots.used_count, 1000);
    assert_int_equal(slots_take(&slots, 1, 1, &first), 0);
    for (uint32_t slot = 0; slot < 1000; slot += 37) {
        slots_put(&slots, slot);
        assert_int_equal(slots_take(&slots, 64, 1, &first), 1);
        assert_int_equal(first, slot);
    }
    slots_fini(&slots);
}

static void exact_runs_are_found_or_refused(void **state)
{
    struct slots slots;
    uint32_t first;

    (void)state;
    assert_int_equal(slots_init(&slots, 256), 0);
    assert_int_equal(slots_take(&slots, 256, 256, &first), 256);
    for (uint32_t slot = 0; slot < 256; slot += 2)
        slots_put(&slots, slot);
    assert_int_equal(slots_take(&slots, 2, 2, &first), 0);
    slots_put(&slots, 131);
    assert_int_equal(slots_take(&slots, 3, 3, &first), 3);
    assert_int_equal(first, 130);
    slots_fini(&slots);
}

static void longest_run_near_the_cursor_is_preferred(void **state)
{
    struct slots slots;
    uint32_t first;

    (void)state;
    assert_int_equal(slots_init(&slots, 4096), 0);
    assert_int_equal(slots_take(&slots, 4096, 4096, &first), 4096);
    for (uint32_t slot = 10; slot < 13; slot++)
        slots_put(&slots, slot);
    for (uint32_t slot = 700; slot < 720; slot++)
        slots_put(&slots, slot);
    assert_int_equal(slots_take(&slots, 64, 1, &first), 20);
    assert_int_equal(first, 700);
    assert_int_equal(slots_take(&slots, 64, 1, &first), 3);
    assert_int_equal(first, 10);
    slots_fini(&slots);
}

static void tables_follow_use_not_size(void **state)
{
    struct slots slots;
    uint32_t first;

    (void)state;
    assert_int_equal(slots_init(&slots, SLOTS_MAX), 0);
    for (unsigned round = 0; round < 3000; round++) { /* 300,000 slots pass, 100 are in use at once */
        assert_int_equal(slots_take(&slots, 100, 1, &first), 100);
        for (uint32_t slot = first; slot < first + 100; slot++)
            slots_put(&slots, slot);
    }
    assert_int_equal(slots.window, SLOTS_WINDOW);
    assert_true(slots_bytes(&slots) <= SLOTS_WINDOW / 8 + SLOTS_WINDOW / 256);
    slots_fini(&slots);
}

static void oldest_slots_come_first(void **state)
{
    struct slots slots;
    uint32_t first;
    uint32_t expected = 0;
    uint32_t count;

    (void)state;
    assert_int_equal(slots_init(&slots, 20000), 0);
    for (uint32_t taken = 0; taken < 20000;) /* fills the store, the cursor is at its start again */
        taken += slots_take(&slots, 250, 1, &first);
    while (expected < 5000) {
        assert_int_equal(count = slots_oldest(&slots, 100, &first), 100);
        assert_int_equal(first, expected);
        for (uint32_t slot = first; slot < first + count; slot++)
            slots_put(&slots, slot);
        expected += count;
    }
    /* The room is filled again: those slots are the youngest now, the oldest are still behind them. */
    for (uint32_t taken = 0; taken < 5000;)
        taken += slots_take(&slots, 250, 1, &first);
    assert_int_equal(slots_oldest(&slots, 100, &first), 100);
    assert_int_equal(first, 5000);
    /* The hand goes round and passes everything before it comes to the same again. */
    for (uint32_t seen = 100; seen < 20000; seen += count)
        assert_true((count = slots_oldest(&slots, 100, &first)) > 0);
    assert_int_equal(slots_oldest(&slots, 100, &first), 100);
    assert_int_equal(first, 5000);
    slots_fini(&slots);
}

/* Slots freed and taken again in front of the hand are the youngest: it must not name them as the oldest. */
static void the_hand_is_not_overtaken(void **state)
{
    struct slots slots;
    uint32_t first;

    (void)state;
    assert_int_equal(slots_init(&slots, 1000), 0);
    assert_int_equal(slots_take(&slots, 1000, 1000, &first), 1000);
    for (uint32_t slot = 0; slot < 300; slot++)
        slots_put(&slots, slot);
    assert_int_equal(slots_take(&slots, 300, 300, &first), 300);
    assert_int_equal(slots_oldest(&slots, 10, &first), 10);
    assert_int_equal(first, 300);
    slots_fini(&slots);
}

static void resize_keeps_what_is_taken(void **state)
{
    struct slots slots;
    uint32_t first;

    (void)state;
    assert_int_equal(slots_init(&slots, 1000), 0);
    assert_int_equal(slots_take(&slots, 500, 500, &first), 500);
    assert_int_equal(slots_resize(&slots, 499), -EBUSY);
    assert_int_equal(slots_resize(&slots, 500), 0);
    assert_int_equal(slots_take(&slots, 1, 1, &first), 0);
    assert_int_equal(slots_resize(&slots, 40000), 0);
    assert_true(slots_are_used(&slots, 0, 500));
    for (uint32_t taken = 0; taken < 39500;)
        taken += slots_take(&slots, 39500 - taken, 1, &first);
    assert_int_equal(slots_take(&slots, 1, 1, &first), 0);
    slots_fini(&slots);
}

#define MODEL_SLOTS 3001u

static void model_check(const struct slots *slots, const bool *taken)
{
    uint32_t count = 0;

    for (uint32_t slot = 0; slot < MODEL_SLOTS; slot++) {
        assert_int_equal(slots_are_used(slots, slot, 1), taken[slot]);
        count += taken[slot];
    }
    assert_int_equal(slots->used_count, count);
}

static void model_take(struct slots *slots, bool *taken, struct random *random)
{
    uint32_t wanted = 1 + random_below(random, 300);
    uint32_t at_least = random_below(random, 4) == 0 ? wanted : 1;
    uint32_t free_count = MODEL_SLOTS - slots->used_count;
    uint32_t first;
    uint32_t count = slots_take(slots, wanted, at_least, &first);

    assert_true(count <= wanted);
    assert_true(count == 0 || count >= at_least);
    assert_true(count > 0 || at_least > 1 || free_count == 0);
    for (uint32_t slot = first; count > 0 && slot < first + count; slot++) {
        assert_true(slot < MODEL_SLOTS);
        assert_false(taken[slot]); /* never handed out twice */
        taken[slot] = true;
    }
}

static void random_operations_match_the_model(void **state)
{
    static bool taken[MODEL_SLOTS];
    struct random random = {20261202};
    struct slots slots;

    (void)state;
    assert_int_equal(slots_init(&slots, MODEL_SLOTS), 0);
    for (unsigned round = 0; round < 40000; round++) {
        uint32_t slot = random_below(&random, MODEL_SLOTS);
        uint32_t first;

        if (random_below(&random, 64) == 0)
            model_take(&slots, taken, &random);
        if (taken[slot])
            slots_put(&slots, slot);
        taken[slot] = false;
        if (random_below(&random, 16) == 0) {
            uint32_t count = slots_oldest(&slots, 50, &first);

            for (uint32_t i = 0; i < count; i++)
                assert_true(taken[first + i]);
            assert_int_equal(count == 0, slots.used_count == 0);
        }
        if (round % 500 == 0)
            model_check(&slots, taken);
    }
    model_check(&slots, taken);
    slots_fini(&slots);
}

static void put_free(void *argument)
{
    slots_put(argument, 7);
}

static void double_put_is_a_bug(void **state)
{
    struct slots slots;
    uint32_t first;

    (void)state;
    assert_int_equal(slots_init(&slots, 100), 0);
    assert_int_equal(slots_take(&slots, 10, 10, &first), 10);
    slots_put(&slots, 7);
    check_aborts(put_free, &slots);
    slots_fini(&slots);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fresh_slots_come_in_order),
        cmocka_unit_test(full_store_gives_none_and_last_slot_is_found),
        cmocka_unit_test(exact_runs_are_found_or_refused),
        cmocka_unit_test(longest_run_near_the_cursor_is_preferred),
        cmocka_unit_test(tables_follow_use_not_size),
        cmocka_unit_test(oldest_slots_come_first),
        cmocka_unit_test(the_hand_is_not_overtaken),
        cmocka_unit_test(resize_keeps_what_is_taken),
        cmocka_unit_test(random_operations_match_the_model),
        cmocka_unit_test(double_put_is_a_bug),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
