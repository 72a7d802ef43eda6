/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cxl.c - the emulated CXL tier: a slot store that loads can reach, and the dispatcher's checks over it.
 */
#include "base/error.h"
#include "tests/unit/tiers/check.h"
#include "tiers/tier.h"

#include <errno.h>
#include <sys/mman.h>

struct outcome {
    unsigned calls;
    int result;
};

static void outcome_note(struct tier_transfer *transfer, int result)
{
    struct outcome *outcome = transfer->context;

    outcome->calls++;
    outcome->result = result;
}

/* Runs a transfer to its end, which for an addressable tier is inside the start. */
static int transfer_run(struct tier *tier, struct tier_transfer *transfer, struct tier_slot first, unsigned pages_count,
                        void *memory, bool is_write)
{
    struct outcome outcome = {0, 1};

    *transfer = (struct tier_transfer){
        .first = first,
        .pages_count = pages_count,
        .memory = memory,
        .is_write = is_write,
        .done = outcome_note,
        .context = &outcome,
    };
    tier_transfer_start(tier, transfer);
    assert_int_equal(outcome.calls, 1);
    return outcome.result;
}

static struct tier *tier_new(unsigned slots_count)
{
    struct tier *tier;

    assert_int_equal(tier_cxl_emulated_open(slots_count * PAGE_BYTES, &tier), 0);
    return tier;
}

/* `count` slots in a row that hold pages number .. number+count-1. */
static struct tier_slot pages_store(struct tier *tier, unsigned count, uint64_t number)
{
    void *memory = pages_new(count);
    struct tier_transfer transfer;
    struct tier_slot first;

    assert_int_equal(tier_take(tier, count, &first), count);
    for (unsigned i = 0; i < count; i++)
        page_fill((char *)memory + i * PAGE_BYTES, number + i);
    assert_int_equal(transfer_run(tier, &transfer, first, count, memory, true), 0);
    free(memory);
    return first;
}

static void name_says_emulated(void **state)
{
    struct tier *tier = tier_new(16);

    (void)state;
    assert_string_equal(tier_name(tier), "cxl (emulated)");
    assert_int_equal(tier_capabilities(tier), TIER_CAP_ADDRESSABLE);
    tier_close(tier);
}

static void pages_come_back(void **state)
{
    struct tier *tier = tier_new(64);
    struct tier_slot first = pages_store(tier, 20, 100);
    void *memory = pages_new(20);
    struct tier_transfer transfer;
    struct tier_counters counters;

    (void)state;
    assert_int_equal(transfer_run(tier, &transfer, first, 20, memory, false), 0);
    for (unsigned i = 0; i < 20; i++) {
        page_check((char *)memory + i * PAGE_BYTES, 100 + i);
        page_check(tier_view(tier, (struct tier_slot){first.index + i}, NULL), 100 + i);
    }
    tier_counters_get(tier, &counters);
    assert_int_equal(counters.pages_written, 20);
    assert_int_equal(counters.pages_read, 40);
    assert_int_equal(counters.errors, 0);
    free(memory);
    tier_close(tier);
}

static void sealed_pages_are_as_good_as_written_ones(void **state)
{
    struct tier *tier = tier_new(64);
    struct tier_slot first;

    (void)state;
    assert_int_equal(tier_take(tier, 3, &first), 3);
    assert_ptr_equal((char *)tier_address(tier, first) + PAGE_BYTES,
                     tier_address(tier, (struct tier_slot){first.index + 1}));
    for (unsigned i = 0; i < 3; i++)
        page_fill((char *)tier_address(tier, first) + i * PAGE_BYTES, 7 + i);
    tier_seal(tier, first, 3);
    for (unsigned i = 0; i < 3; i++)
        page_check(tier_view(tier, (struct tier_slot){first.index + i}, NULL), 7 + i);
    tier_close(tier);
}

static void changed_bytes_are_refused(void **state)
{
    struct tier *tier = tier_new(64);
    struct tier_slot first = pages_store(tier, 8, 1);
    struct tier_slot changed = {first.index + 5};
    void *memory = pages_new(8);
    struct tier_transfer transfer;
    struct tier_counters counters;

    (void)state;
    ((char *)tier_address(tier, changed))[PAGE_BYTES - 1] ^= 1;
    assert_null(tier_view(tier, changed, NULL));
    assert_int_equal(transfer_run(tier, &transfer, first, 8, memory, false), -EIO);
    assert_int_equal(transfer.failed_page, 5);
    for (unsigned i = 0; i < 5; i++)
        page_check((char *)memory + i * PAGE_BYTES, 1 + i);
    assert_int_equal(transfer_run(tier, &transfer, (struct tier_slot){changed.index + 1}, 2, memory, false), 0);
    tier_counters_get(tier, &counters);
    assert_int_equal(counters.errors, 2);
    free(memory);
    tier_close(tier);
}

static void freed_memory_is_given_back(void **state)
{
    struct tier *tier = tier_new(1024);
    struct tier_slot first = pages_store(tier, 256, 1);
    const char *memory = tier_view(tier, first, NULL);
    unsigned char resident[256];
    unsigned left = 0;

    (void)state;
    for (unsigned i = 0; i < 256; i += 2) /* every other one: runs of one page */
        tier_put(tier, (struct tier_slot){first.index + i});
    assert_int_equal(mincore((void *)(uintptr_t)memory, 256 * PAGE_BYTES, resident), 0);
    for (unsigned i = 0; i < 256; i += 2)
        left += resident[i] & 1;
    assert_int_equal(left, 0);
    for (unsigned i = 1; i < 256; i += 2)
        page_check(tier_view(tier, (struct tier_slot){first.index + i}, NULL), 1 + i);
    tier_close(tier);
}

static void slots_taken_again_keep_their_bytes(void **state)
{
    struct tier *tier = tier_new(256);
    struct tier_slot first = pages_store(tier, 256, 1);
    struct tier_slot again;

    (void)state;
    for (unsigned i = 0; i < 64; i++) /* too few to be given back yet */
        tier_put(tier, (struct tier_slot){first.index + i});
    again = pages_store(tier, 64, 1000);
    for (unsigned i = 64; i < 256; i++) /* now they are, those in use left out */
        tier_put(tier, (struct tier_slot){first.index + i});
    for (unsigned i = 0; i < 64; i++)
        page_check(tier_view(tier, (struct tier_slot){again.index + i}, NULL), 1000 + i);
    tier_close(tier);
}

static void oldest_pages_are_named(void **state)
{
    struct page_id pages[TIER_RUN_MAX];
    struct tier *tier = tier_new(4096);
    struct tier_slot first;

    (void)state;
    for (unsigned batch = 0; batch < 64; batch++) {
        struct tier_slot slot = pages_store(tier, 64, batch * 64);

        for (unsigned i = 0; i < 64; i++)
            tier_owner_set(tier, (struct tier_slot){slot.index + i}, page_of(5000 + batch * 64 + i));
    }
    for (unsigned next = 0; next < 640; next += 32) {
        assert_int_equal(tier_oldest(tier, 32, &first, pages), 32);
        for (unsigned i = 0; i < 32; i++) {
            assert_int_equal(pages[i].index, 5000 + next + i);
            page_check(tier_view(tier, (struct tier_slot){first.index + i}, NULL), next + i);
            tier_put(tier, (struct tier_slot){first.index + i});
        }
    }
    assert_int_equal(tier_take(tier, 1, &first), 1);
    for (unsigned pass = 0; pass < 4096; pass++) { /* the new slot has no owner until one is set */
        struct tier_slot slot;

        assert_int_equal(tier_oldest(tier, 1, &slot, pages), 1);
        if (slot.index == first.index)
            break;
    }
    assert_true(page_is(pages[0], PAGE_NONE));
    tier_close(tier);
}

static void grows_and_shrinks(void **state)
{
    struct tier *tier = tier_new(64);
    struct tier_slot first = pages_store(tier, 64, 1);
    const void *before = tier_view(tier, first, NULL);
    struct tier_slot more;

    (void)state;
    assert_int_equal(tier_take(tier, 1, &more), 0);
    assert_int_equal(tier_resize(tier, 256 * PAGE_BYTES), 0);
    assert_int_equal(tier_slots_free(tier), 192);
    more = pages_store(tier, 192, 500);
    assert_ptr_equal(tier_view(tier, first, NULL), before);
    page_check(before, 1);
    page_check(tier_view(tier, (struct tier_slot){more.index + 191}, NULL), 691);
    assert_int_equal(tier_resize(tier, 64 * PAGE_BYTES), -EBUSY);
    assert_non_null(strstr(error_text(), "in use"));
    assert_int_equal(tier_resize(tier, 257 * PAGE_BYTES), -ENOMEM);
    assert_int_equal(tier_resize(tier, 100), -EINVAL);
    for (unsigned i = 0; i < 192; i++)
        tier_put(tier, (struct tier_slot){more.index + i});
    assert_int_equal(tier_resize(tier, 64 * PAGE_BYTES), 0);
    assert_int_equal(tier_slots_free(tier), 0);
    page_check(tier_view(tier, (struct tier_slot){63}, NULL), 64);
    tier_close(tier);
}

static void untouched_slots_cost_nothing(void **state)
{
    struct tier_counters counters;
    struct tier *tier;

    (void)state;
    assert_int_equal(tier_cxl_emulated_open((uint64_t)1 << 38, &tier), 0);
    (void)pages_store(tier, 200, 1);
    tier_counters_get(tier, &counters);
    assert_int_equal(counters.slots_used, 200);
    assert_true(counters.metadata_bytes < 300000);
    tier_close(tier);
}

/* Random stores, loads and puts of runs; the model is the number of the page in each slot. */
static void random_operations_match_the_model(void **state)
{
    static uint64_t model[600]; /* 0: free */
    struct random random = {77};
    struct tier *tier = tier_new(600);
    uint64_t number = 1;

    (void)state;
    for (unsigned round = 0; round < 6000; round++) {
        uint32_t slot = random_below(&random, 600);
        uint32_t count = 1 + random_below(&random, 8);

        if (model[slot] != 0)
            page_check(tier_view(tier, (struct tier_slot){slot}, NULL), model[slot]);
        if (model[slot] != 0 && random_below(&random, 2) == 0) {
            tier_put(tier, (struct tier_slot){slot});
            model[slot] = 0;
        }
        if (random_below(&random, 5) == 0 && tier_slots_free(tier) > 0) {
            struct tier_slot first;
            unsigned taken = tier_take(tier, count, &first);

            for (unsigned i = 0; i < taken; i++) {
                assert_int_equal(model[first.index + i], 0);
                page_fill(tier_address(tier, (struct tier_slot){first.index + i}), model[first.index + i] = number++);
            }
            tier_seal(tier, first, taken);
        }
    }
    tier_close(tier);
}

static void read_unwritten(void *tier)
{
    struct tier_slot slot;

    if (tier_take(tier, 1, &slot) == 1)
        (void)tier_view(tier, slot, NULL);
}

/* A slot of the last owner's bytes: not this one's. */
static void read_stale(void *tier)
{
    struct tier_slot slot = pages_store(tier, 16, 1);

    for (unsigned i = 0; i < 16; i++)
        tier_put(tier, (struct tier_slot){slot.index + i});
    if (tier_take(tier, 16, &slot) == 16)
        (void)tier_view(tier, slot, NULL);
}

static void read_free(void *tier)
{
    (void)tier_view(tier, (struct tier_slot){3}, NULL);
}

static void move_odd_memory(void *tier)
{
    static char memory[3 * PAGE_BYTES];
    struct tier_transfer transfer = {.pages_count = 1, .memory = memory + 1, .is_write = true, .done = outcome_note};

    transfer.memory = (char *)(((uintptr_t)memory + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES) + 8;
    if (tier_take(tier, 1, &transfer.first) == 1)
        tier_transfer_start(tier, &transfer);
}

static void broken_contracts_are_bugs(void **state)
{
    struct tier *tier = tier_new(16);

    (void)state;
    check_aborts(read_unwritten, tier);
    check_aborts(read_stale, tier);
    check_aborts(read_free, tier);
    check_aborts(move_odd_memory, tier);
    tier_close(tier);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(name_says_emulated),
        cmocka_unit_test(pages_come_back),
        cmocka_unit_test(sealed_pages_are_as_good_as_written_ones),
        cmocka_unit_test(changed_bytes_are_refused),
        cmocka_unit_test(freed_memory_is_given_back),
        cmocka_unit_test(slots_taken_again_keep_their_bytes),
        cmocka_unit_test(oldest_pages_are_named),
        cmocka_unit_test(grows_and_shrinks),
        cmocka_unit_test(untouched_slots_cost_nothing),
        cmocka_unit_test(random_operations_match_the_model),
        cmocka_unit_test(broken_contracts_are_bugs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
