/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hints.c - what the application says: random, sequential, a walk in an order, forgotten again.
 */
#include "tests/unit/prefetch/check.h"

#include <errno.h>

struct fixture {
    struct prefetch *prefetch;
    struct prefetch_plan plan;
};

static int fixture_open(void **state)
{
    const struct prefetch_config config = {.depth_max = 32, .fault_around = 1};
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    fixture->prefetch = malloc(prefetch_bytes(&config));
    assert_non_null(fixture->prefetch);
    prefetch_init(fixture->prefetch, &config);
    *state = fixture;
    return 0;
}

static int fixture_close(void **state)
{
    struct fixture *fixture = *state;

    free(fixture->prefetch);
    free(fixture);
    return 0;
}

static uint32_t fault(struct fixture *fixture, uint64_t page)
{
    uint32_t count = 0;

    prefetch_fault(fixture->prefetch, page_of(page), 1, false, NULL, &fixture->plan);
    for (uint32_t i = 0; i < fixture->plan.runs_count; i++)
        count += fixture->plan.runs[i].count;
    return count;
}

static void random_regions_are_left_alone(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(prefetch_advise(fixture->prefetch, page_of(1000), 500, PREFETCH_RANDOM), 0);
    for (uint64_t page = 1000; page < 1500; page++)
        assert_int_equal(fault(fixture, page), 0);
    assert_int_equal(prefetch_advise(fixture->prefetch, page_of(1000), 500, PREFETCH_NORMAL), 0);
    fault(fixture, 1000);
    assert_true(fault(fixture, 1001) > 0);
}

static void sequential_regions_start_at_once(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(prefetch_advise(fixture->prefetch, page_of(5000), 1000, PREFETCH_SEQUENTIAL), 0);
    assert_int_equal(fault(fixture, 5100), 32);
    assert_int_equal(fixture->plan.runs[0].first.index, 5101);
    assert_int_equal(fault(fixture, 9000), 0); /* outside */
}

/* Three layers in an order of their own, the last one backwards, and again from the first. */
static void a_walk_goes_on_in_the_next_range(void **state)
{
    struct fixture *fixture = *state;
    const struct prefetch_run *runs = fixture->plan.runs;

    assert_int_equal(prefetch_order(fixture->prefetch, page_of(3000), 10, 1), 0);
    assert_int_equal(prefetch_order(fixture->prefetch, page_of(1000), 10, 2), 0);
    assert_int_equal(prefetch_order(fixture->prefetch, page_of(2000), 20, -1), 0);
    assert_int_equal(fault(fixture, 3004), 32);
    assert_int_equal(fixture->plan.runs_count, 4);
    assert_true(runs[0].first.index == 3005 && runs[0].count == 5 && runs[0].stride == 1);
    assert_true(runs[1].first.index == 1000 && runs[1].count == 5 && runs[1].stride == 2);
    assert_true(runs[2].first.index == 2019 && runs[2].count == 20 && runs[2].stride == -1);
    assert_true(runs[3].first.index == 3000 && runs[3].count == 2);
    prefetch_forget(fixture->prefetch, page_of(1000), 5000);
    assert_int_equal(fault(fixture, 3004), 0);
}

static void a_walk_of_one_page_ends(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(prefetch_order(fixture->prefetch, page_of(3000), 1, 1), 0);
    assert_int_equal(fault(fixture, 3000), 0);
    assert_int_equal(prefetch_order(fixture->prefetch, page_of(4000), 1, 1), 0);
    assert_int_equal(fault(fixture, 3000), 1);
}

static void tables_are_bounded(void **state)
{
    struct fixture *fixture = *state;

    for (uint64_t i = 0; i < PREFETCH_REGIONS_MAX; i++)
        assert_int_equal(prefetch_advise(fixture->prefetch, page_of(i * 100), 50, PREFETCH_RANDOM), 0);
    assert_int_equal(prefetch_advise(fixture->prefetch, page_of(1 << 20), 50, PREFETCH_RANDOM), -ENOSPC);
    assert_int_equal(prefetch_order(fixture->prefetch, page_of(1 << 20), 50, 1), -ENOSPC);
    assert_int_equal(prefetch_advise(fixture->prefetch, page_of(0), 1 << 20, PREFETCH_NORMAL), 0); /* hides all */
    assert_int_equal(prefetch_order(fixture->prefetch, page_of(1 << 20), 50, 1), 0);
}

/* A part is freed and given out anew; both ends keep what was said of them. */
static void parts_are_forgotten(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(prefetch_advise(fixture->prefetch, page_of(1000), 900, PREFETCH_SEQUENTIAL), 0);
    prefetch_forget(fixture->prefetch, page_of(1300), 300);
    assert_int_equal(fault(fixture, 1100), 32);
    assert_int_equal(fault(fixture, 1400), 0);
    assert_int_equal(fault(fixture, 1700), 32);
}

static void walks_lose_what_is_freed(void **state)
{
    struct fixture *fixture = *state;
    const struct prefetch_run *runs = fixture->plan.runs;

    assert_int_equal(prefetch_order(fixture->prefetch, page_of(3000), 30, 1), 0);
    assert_int_equal(prefetch_order(fixture->prefetch, page_of(2000), 30, -1), 0);
    prefetch_forget(fixture->prefetch, page_of(3010), 10);
    prefetch_forget(fixture->prefetch, page_of(2010), 10);
    assert_int_equal(fault(fixture, 3000), 32);
    assert_int_equal(fixture->plan.runs_count, 4);
    assert_true(runs[0].first.index == 3001 && runs[0].count == 9);
    assert_true(runs[1].first.index == 3020 && runs[1].count == 10);
    assert_true(runs[2].first.index == 2029 && runs[2].count == 10 && runs[2].stride == -1);
    assert_true(runs[3].first.index == 2009 && runs[3].count == 3 && runs[3].stride == -1);
    assert_int_equal(fault(fixture, 3015), 0);
}

/* Else a program that advises each of its mappings would fill the table. */
static void neighbours_take_one_place(void **state)
{
    struct fixture *fixture = *state;

    for (uint64_t i = 0; i < 2 * PREFETCH_REGIONS_MAX; i++)
        assert_int_equal(prefetch_advise(fixture->prefetch, page_of(1000 + i * 10), 10, PREFETCH_RANDOM), 0);
    for (uint64_t page = 1000; page < 1100; page++)
        assert_int_equal(fault(fixture, page), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(random_regions_are_left_alone, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(sequential_regions_start_at_once, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_walk_goes_on_in_the_next_range, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(a_walk_of_one_page_ends, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(tables_are_bounded, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(parts_are_forgotten, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(walks_lose_what_is_freed, fixture_open, fixture_close),
        cmocka_unit_test_setup_teardown(neighbours_take_one_place, fixture_open, fixture_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
