/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_share.c - which way the border between DDR and zmem moves, and how far.
 */
#include "tests/unit/tiers/check.h"
#include "tiers/share.h"

/* Both parts are worth the same: 10 reads of 100 late pages at 60 us saved, two pages a frame; 40 touches of 100. */
static struct share_view balanced(void)
{
    return (struct share_view){
        .late_pages = 100,
        .late_hits = 10,
        .cold_pages = 100,
        .cold_hits = 40,
        .stored_pages = 2000,
        .stored_frames = 1000,
        .near_ns = 30000,
        .far_ns = 90000,
    };
}

static void test_equal_worth_moves_nothing(void **state)
{
    struct share_view view = balanced();

    (void)state;
    assert_int_equal(share_steps(&view), 0);
    view.late_hits = 12;
    assert_int_equal(share_steps(&view), 0);
    view.late_hits = 9;
    assert_int_equal(share_steps(&view), 0);
}

static void test_the_part_that_is_worth_more_grows(void **state)
{
    struct share_view view = balanced();

    (void)state;
    view.late_hits = 15;
    assert_int_equal(share_steps(&view), 1);
    view.late_hits = 30;
    assert_int_equal(share_steps(&view), 2);
    view.late_hits = 7;
    assert_int_equal(share_steps(&view), -1);
    view.late_hits = 3;
    assert_int_equal(share_steps(&view), -2);
}

static void test_better_compression_is_worth_more(void **state)
{
    struct share_view view = balanced();

    (void)state;
    view.stored_pages = 5000;
    assert_int_equal(share_steps(&view), 2);
    view.stored_pages = 1000;
    assert_int_equal(share_steps(&view), -1);
}

/* A disk as fast as zmem: nothing is to be had from it, whatever is read. */
static void test_a_fast_tier_below_leaves_no_use_for_zmem(void **state)
{
    struct share_view view = balanced();

    (void)state;
    view.far_ns = 20000;
    view.late_hits = 1000;
    assert_int_equal(share_steps(&view), -2);
}

static void test_nothing_seen_moves_nothing(void **state)
{
    struct share_view view = {.near_ns = 30000, .far_ns = 90000};

    (void)state;
    assert_int_equal(share_steps(&view), 0);
}

/* Before zmem held anything it is tried as if two pages went into one. */
static void test_unknown_compression_is_taken_for_two(void **state)
{
    struct share_view view = balanced();

    (void)state;
    view.stored_pages = view.stored_frames = 0;
    assert_int_equal(share_steps(&view), 0);
    view.late_hits = 30;
    assert_int_equal(share_steps(&view), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_worth_moves_nothing),
        cmocka_unit_test(test_the_part_that_is_worth_more_grows),
        cmocka_unit_test(test_better_compression_is_worth_more),
        cmocka_unit_test(test_a_fast_tier_below_leaves_no_use_for_zmem),
        cmocka_unit_test(test_nothing_seen_moves_nothing),
        cmocka_unit_test(test_unknown_compression_is_taken_for_two),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
