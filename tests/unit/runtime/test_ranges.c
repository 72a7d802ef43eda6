/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of pages against a model that keeps one state a page.
 */
#include "base/random.h"
#include "runtime/hooks.h"
#include "runtime/ranges.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define PAGES 200

static const struct range_state states[] = {
    {HOOKS_FREE, 0, 0},    {HOOKS_MANAGED, 3, 0}, {HOOKS_MANAGED, 1, 0},          {HOOKS_MANAGED, 3, HOOKS_WIPED},
    {HOOKS_FOREIGN, 1, 0}, {HOOKS_KEPT, 3, 0},    {HOOKS_MANAGED, 3, HOOKS_LEFT},
};

static unsigned state_number(struct range_state state)
{
    for (unsigned i = 0; i < ARRAY_COUNT(states); i++)
        if (states[i].kind == state.kind && states[i].protection == state.protection &&
            states[i].traits == state.traits)
            return i;
    fail_msg("a state that was never set");
    return 0;
}

static void compare(const struct ranges *ranges, const unsigned char *model)
{
    struct range run;
    uint64_t runs = 0;
    uint64_t at = 0;

    for (uint64_t page = 0; page < PAGES; page++) {
        run = ranges_at(ranges, page);
        assert_true(run.first <= page && page < run.end);
        assert_int_equal(state_number(run.state), model[page]);
        assert_true(run.first == 0 || model[run.first - 1] != model[page]);
        assert_true(run.end == PAGES || model[run.end] != model[page]);
    }
    for (; ranges_next(ranges, at, &run); at = run.end, runs++)
        assert_true(run.first >= at && run.state.kind != HOOKS_FREE);
    assert_int_equal(runs, ranges_count(ranges));
}

static bool model_is_free(const unsigned char *model, uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++)
        if (i >= PAGES || model[i] != 0)
            return false;
    return true;
}

static void test_random_sets_agree_with_the_model(void **context)
{
    struct random random = {.state = 7};
    unsigned char model[PAGES] = {0};
    struct ranges *ranges;

    (void)context;
    assert_int_equal(ranges_create(PAGES, &ranges), 0);
    for (int i = 0; i < 20000; i++) {
        uint64_t first = random_next(&random) % PAGES;
        uint64_t end = first + 1 + random_next(&random) % (i % 2 == 0 ? 8 : PAGES - first);
        unsigned number = (unsigned)(random_next(&random) % ARRAY_COUNT(states));

        end = end > PAGES ? PAGES : end;
        assert_int_equal(ranges_set(ranges, first, end, states[number]), 0);
        memset(&model[first], (int)number, end - first);
        compare(ranges, model);
    }
    ranges_destroy(ranges);
}

static void test_the_lowest_free_run_is_found(void **context)
{
    struct random random = {.state = 11};
    unsigned char model[PAGES] = {0};
    struct ranges *ranges;

    (void)context;
    assert_int_equal(ranges_create(PAGES, &ranges), 0);
    for (int i = 0; i < 5000; i++) {
        uint64_t count = 1 + random_next(&random) % 20;
        uint64_t alignment = (uint64_t)1 << random_next(&random) % 5;
        uint64_t expected = 0;
        uint64_t found;
        int error = ranges_find_free(ranges, count, alignment, &found);

        while (expected < PAGES && !model_is_free(model, expected, count))
            expected += alignment;
        assert_int_equal(error, expected < PAGES ? 0 : -ENOMEM);
        if (error == 0) {
            assert_int_equal(found, expected);
            assert_int_equal(ranges_set(ranges, found, found + count, states[1]), 0);
            memset(&model[found], 1, count);
        }
        if (i % 3 != 0 || error != 0) {
            uint64_t first = random_next(&random) % (PAGES - 10);

            assert_int_equal(ranges_set(ranges, first, first + 10, states[0]), 0);
            memset(&model[first], 0, 10);
        }
    }
    ranges_destroy(ranges);
}

static void test_what_is_cut_off_is_neither_found_nor_described(void **context)
{
    struct ranges *ranges;
    uint64_t found;

    (void)context;
    assert_int_equal(ranges_create(PAGES, &ranges), 0);
    assert_int_equal(ranges_set(ranges, 0, 10, states[1]), 0);
    ranges_limit(ranges, 20);
    assert_int_equal(ranges_find_free(ranges, 11, 1, &found), -ENOMEM);
    assert_int_equal(ranges_find_free(ranges, 10, 1, &found), 0);
    assert_int_equal(found, 10);
    assert_int_equal(ranges_at(ranges, 15).end, 20);
    ranges_destroy(ranges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_sets_agree_with_the_model),
        cmocka_unit_test(test_the_lowest_free_run_is_found),
        cmocka_unit_test(test_what_is_cut_off_is_neither_found_nor_described),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
