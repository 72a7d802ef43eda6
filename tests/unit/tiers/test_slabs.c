/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_slabs.c - objects of every size keep their bytes while others come, go and move; the budget holds; gaps close.
 */
#include "base/os.h"
#include "tests/unit/tiers/check.h"
#include "tiers/slabs.h"

#include <stdio.h>
#include <sys/mman.h>

#define OWNERS 6000u

/* What is stored, by owner. size 0: nothing. */
struct model {
    struct slabs slabs;
    uint64_t places[OWNERS];
    uint32_t sizes[OWNERS];
    uint32_t seeds[OWNERS];
    uint64_t live_bytes;
    unsigned moves;
    bool is_deaf; /* claims to own nothing */
};

static bool model_moved(void *context, uint32_t owner, uint64_t from, uint64_t to)
{
    struct model *model = context;

    if (model->is_deaf)
        return false;
    assert_true(owner < OWNERS && model->sizes[owner] > 0);
    assert_int_equal(model->places[owner], from);
    model->places[owner] = to;
    model->moves++;
    return true;
}

static struct model *model_new(uint32_t budget_count, uint32_t reserved_count)
{
    struct model *model = calloc(1, sizeof(*model));

    assert_non_null(model);
    assert_int_equal(slabs_init(&model->slabs, budget_count, reserved_count, model_moved, model), 0);
    return model;
}

static void model_delete(struct model *model)
{
    slabs_check(&model->slabs);
    slabs_fini(&model->slabs);
    free(model);
}

static void bytes_fill(uint8_t *bytes, uint32_t size, uint32_t seed)
{
    struct random random = {seed};

    for (uint32_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)random_next(&random);
}

static bool bytes_are(const uint8_t *bytes, uint32_t size, uint32_t seed)
{
    struct random random = {seed};

    for (uint32_t i = 0; i < size; i++)
        if (bytes[i] != (uint8_t)random_next(&random))
            return false;
    return true;
}

static bool model_take(struct model *model, uint32_t owner, uint32_t size, uint32_t seed)
{
    uint64_t place = slabs_take(&model->slabs, owner, size);

    if (place == SLABS_FULL)
        return false;
    model->places[owner] = place;
    model->sizes[owner] = size;
    model->seeds[owner] = seed;
    model->live_bytes += size;
    bytes_fill(slabs_at(&model->slabs, place), size, seed);
    return true;
}

static void model_verify(const struct model *model, uint32_t owner)
{
    assert_true(bytes_are(slabs_at(&model->slabs, model->places[owner]), model->sizes[owner], model->seeds[owner]));
}

static void model_put(struct model *model, uint32_t owner)
{
    uint32_t size = model->sizes[owner];

    model_verify(model, owner);
    model->sizes[owner] = 0;
    model->live_bytes -= size;
    slabs_put(&model->slabs, model->places[owner]);
}

/* ---- sizes ----------------------------------------------------------------------------------------------------- */

static void every_size_has_a_place(void **state)
{
    struct model *model = model_new(512, 512);

    (void)state;
    for (uint32_t size = 1; size <= SLABS_OBJECT_MAX; size++)
        assert_true(model_take(model, size, size, size));
    for (uint32_t size = 1; size <= SLABS_OBJECT_MAX; size++)
        model_verify(model, size);
    slabs_check(&model->slabs);
    for (uint32_t size = SLABS_OBJECT_MAX; size > 0; size--)
        model_put(model, size);
    assert_int_equal(model->slabs.used_count, 0);
    assert_int_equal(slabs_needed_bytes(&model->slabs), 0);
    model_delete(model);
}

/* Slack of a class is bounded: a store of equal objects wastes at most an eighth, above 256 bytes. */
static void slack_is_small(void **state)
{
    (void)state;
    for (uint32_t size = 256; size <= SLABS_OBJECT_MAX; size += 61) {
        struct model *model = model_new(1024, 1024);
        uint32_t count = 0;

        while (count < OWNERS && model_take(model, count, size, 1))
            count++;
        assert_true((uint64_t)count * size * 8 >=
                    ((uint64_t)model->slabs.used_count - 1) * SLAB_BYTES * (size > 1024 ? 7 : 6));
        model_delete(model);
    }
}

/* ---- the budget ------------------------------------------------------------------------------------------------ */

static void the_budget_holds(void **state)
{
    struct model *model = model_new(40, 64);
    uint32_t count = 0;

    (void)state;
    while (model_take(model, count, 2900, count))
        count++;
    assert_int_equal(count, 440);
    assert_int_equal(slabs_needed_bytes(&model->slabs), 40 * SLAB_BYTES);
    assert_int_equal(slabs_physical_bytes(&model->slabs), 40 * SLAB_BYTES);
    assert_false(model_take(model, count, 100, 1)); /* no slab for a small one, and no larger object is free */
    model_put(model, 7);
    assert_true(model_take(model, 7, 100, 1)); /* a larger object serves */
    model_delete(model);
}

static uint64_t resident_bytes(const struct slabs *slabs)
{
    static unsigned char present[1 << 16];
    size_t size_bytes = (size_t)slabs->accessible_count * SLAB_BYTES;
    uint64_t pages = 0;

    assert_true(size_bytes / PAGE_BYTES <= sizeof(present));
    assert_int_equal(mincore(slabs->memory, size_bytes, present), 0);
    for (size_t i = 0; i < size_bytes / PAGE_BYTES; i++)
        pages += present[i] & 1;
    return pages * PAGE_BYTES;
}

static void freed_memory_is_given_back(void **state)
{
    struct model *model = model_new(400, 400);

    (void)state;
    for (uint32_t owner = 0; owner < 4000; owner++)
        assert_true(model_take(model, owner, 2500, owner));
    assert_true(resident_bytes(&model->slabs) > 4000 * 2500);
    for (uint32_t owner = 0; owner < 4000; owner++)
        model_put(model, owner);
    assert_true(resident_bytes(&model->slabs) <= 8 * SLAB_BYTES);
    assert_int_equal(slabs_physical_bytes(&model->slabs), resident_bytes(&model->slabs));
    model_delete(model);
}

/* ---- gaps ------------------------------------------------------------------------------------------------------ */

/* Eleven of twelve objects go, from everywhere: what is left moves together. */
static void gaps_close(void **state)
{
    struct model *model = model_new(500, 500);

    (void)state;
    for (uint32_t owner = 0; owner < OWNERS; owner++)
        assert_true(model_take(model, owner, 2100, owner));
    for (uint32_t owner = 0; owner < OWNERS; owner++)
        if (owner % 12 != 0)
            model_put(model, owner);
    slabs_check(&model->slabs);
    assert_true(model->moves > 0);
    assert_true(slabs_physical_bytes(&model->slabs) < model->live_bytes * 2);
    for (uint32_t owner = 0; owner < OWNERS; owner += 12)
        model_verify(model, owner);
    model_delete(model);
}

/* The worst for size classes: full of large objects, most go, and small ones come, and the other way round. */
static void another_size_finds_the_room(void **state)
{
    struct model *model = model_new(64, 64);
    uint32_t small = 1000;

    (void)state;
    for (uint32_t owner = 0; owner < 64 * 11; owner++)
        assert_true(model_take(model, owner, 2900, owner));
    for (uint32_t owner = 0; owner < 64 * 11; owner++)
        if (owner % 11 != 3)
            model_put(model, owner);
    while (small < OWNERS && model_take(model, small, 700, small))
        small++;
    slabs_check(&model->slabs);
    /* 64 large ones fit six slabs, so 58 are for small ones, 46 of them each; a few fit larger objects. */
    assert_true(small - 1000 >= 58 * 44);
    for (uint32_t owner = 3; owner < 64 * 11; owner += 11)
        model_verify(model, owner);
    for (uint32_t owner = 1000; owner < small; owner++)
        model_verify(model, owner);
    model_delete(model);
}

/* A damaged header: the object stays where it is and can still be put; nothing else suffers. */
static void damaged_headers_stay_put(void **state)
{
    struct model *model = model_new(500, 500);

    (void)state;
    for (uint32_t owner = 0; owner < 4000; owner++)
        assert_true(model_take(model, owner, 2100, owner));
    model->is_deaf = true;
    for (uint32_t owner = 0; owner < 4000; owner++)
        if (owner % 12 != 0)
            model_put(model, owner);
    slabs_check(&model->slabs);
    assert_int_equal(model->moves, 0);
    model->is_deaf = false;
    for (uint32_t owner = 0; owner < 4000; owner += 12)
        model_put(model, owner);
    assert_int_equal(model->slabs.used_count, 0);
    model_delete(model);
}

/* ---- other budgets --------------------------------------------------------------------------------------------- */

static void the_budget_can_change(void **state)
{
    struct model *model = model_new(50, 200);
    uint32_t count = 0;
    uint32_t owner = 0;

    (void)state;
    while (model_take(model, count, 1500, count))
        count++;
    assert_int_equal(slabs_resize(&model->slabs, 201), -12);
    assert_int_equal(slabs_resize(&model->slabs, 200), 0);
    while (count < 4000 && model_take(model, count, 1500, count))
        count++;
    assert_true(model->slabs.used_count > 100);
    assert_int_equal(slabs_resize(&model->slabs, 60), 0); /* less than is in use: nothing is lost */
    assert_true(slabs_needed_bytes(&model->slabs) > 60 * SLAB_BYTES);
    assert_false(model_take(model, count, 1500, count));
    while (model->slabs.used_count > 60)
        model_put(model, owner++);
    assert_true(resident_bytes(&model->slabs) <= 60 * SLAB_BYTES);
    for (uint32_t left = owner; left < count; left++)
        model_verify(model, left);
    model_put(model, owner++);
    assert_true(model_take(model, count, 1500, count));
    model_delete(model);
}

/* ---- anything -------------------------------------------------------------------------------------------------- */

static void random_operations(uint64_t seed, uint32_t budget)
{
    struct random random = {seed};
    struct model *model = model_new(budget, budget * 2);
    uint32_t size_max = SLABS_OBJECT_MAX;

    for (unsigned i = 0; i < 60000; i++) {
        uint32_t owner = random_below(&random, OWNERS);

        if (i % 7000 == 0) /* the sizes drift */
            size_max = 1 + random_below(&random, SLABS_OBJECT_MAX);
        if (i % 9000 == 8999)
            assert_int_equal(slabs_resize(&model->slabs, budget / 2 + random_below(&random, budget)), 0);
        if (model->sizes[owner] > 0)
            model_put(model, owner);
        else
            (void)model_take(model, owner, 1 + random_below(&random, size_max), i);
        if (i % 1000 == 0)
            slabs_check(&model->slabs);
        assert_true(model->slabs.used_count >= model->slabs.needed_count);
    }
    for (uint32_t owner = 0; owner < OWNERS; owner++)
        if (model->sizes[owner] > 0)
            model_put(model, owner);
    assert_int_equal(model->slabs.used_count, 0);
    model_delete(model);
}

static void random_operations_match_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++)
        random_operations(seed, seed % 2 == 0 ? 40 : 300);
}

static void put_twice(void *argument)
{
    struct model *model = argument;

    slabs_put(&model->slabs, model->places[1]);
    slabs_put(&model->slabs, model->places[1]);
    slabs_check(&model->slabs);
}

static void put_inside(void *argument)
{
    struct model *model = argument;

    slabs_put(&model->slabs, model->places[1] + 16);
}

static void broken_contracts_are_bugs(void **state)
{
    struct model *model = model_new(40, 40);

    (void)state;
    assert_true(model_take(model, 1, 500, 1));
    assert_true(model_take(model, 2, 500, 1));
    check_aborts(put_twice, model);
    check_aborts(put_inside, model);
    model_delete(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_has_a_place),
        cmocka_unit_test(slack_is_small),
        cmocka_unit_test(the_budget_holds),
        cmocka_unit_test(freed_memory_is_given_back),
        cmocka_unit_test(gaps_close),
        cmocka_unit_test(another_size_finds_the_room),
        cmocka_unit_test(damaged_headers_stay_put),
        cmocka_unit_test(the_budget_can_change),
        cmocka_unit_test(random_operations_match_the_model),
        cmocka_unit_test(broken_contracts_are_bugs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
