/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_agree.c - who decides that a node is in or out, and when.
 */
#include "cluster/agree.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct agree started(unsigned nodes_count)
{
    struct agree agree;

    agree_init(&agree, nodes_count);
    for (unsigned i = 0; i < nodes_count; i++)
        assert_int_equal(agree_join(&agree, node_of(i)), i + 1 == nodes_count);
    return agree;
}

static void test_the_job_starts_when_all_joined(void **state)
{
    struct agree agree = started(3);

    (void)state;
    assert_true(agree.is_started);
    assert_int_equal(agree.view.epoch.number, 1);
    assert_int_equal(agree.view.members, 7);
    agree = started(NODES_MAX);
    assert_true(agree.view.members == UINT64_MAX);
}

static void test_joining_twice_or_from_outside_is_nothing(void **state)
{
    struct agree agree;

    (void)state;
    agree_init(&agree, 2);
    assert_false(agree_join(&agree, node_of(0)));
    assert_false(agree_join(&agree, node_of(0)));
    assert_false(agree_join(&agree, node_of(2)));
    assert_false(agree_join(&agree, NODE_NONE));
    assert_false(agree.is_started);
    assert_true(agree_join(&agree, node_of(1)));
    assert_false(agree_join(&agree, node_of(1)));
    assert_int_equal(agree.view.epoch.number, 1);
}

static void test_an_end_before_the_start_means_no_start(void **state)
{
    struct agree agree;

    (void)state;
    agree_init(&agree, 2);
    assert_false(agree_join(&agree, node_of(0)));
    assert_false(agree_exited(&agree, node_of(0)));
    assert_false(agree_join(&agree, node_of(0)));
    assert_false(agree_join(&agree, node_of(1)));
    assert_false(agree.is_started);
}

static void test_each_node_leaves_once(void **state)
{
    struct agree agree = started(4);

    (void)state;
    assert_true(agree_leave(&agree, node_of(2)));
    assert_int_equal(agree.status[2], AGREE_LEFT);
    assert_false(agree_exited(&agree, node_of(2)));
    assert_int_equal(agree.status[2], AGREE_LEFT);
    assert_true(agree_exited(&agree, node_of(0)));
    assert_false(agree_leave(&agree, node_of(0)));
    assert_int_equal(agree.status[0], AGREE_DEAD);
    assert_int_equal(agree.view.epoch.number, 3);
    assert_int_equal(agree.view.members, 0xa);
    assert_false(agree_exited(&agree, node_of(9)));
    assert_false(agree_join(&agree, node_of(0))); /* never back */
    assert_true(agree_exited(&agree, node_of(1)));
    assert_true(agree_exited(&agree, node_of(3)));
    assert_int_equal(agree.view.members, 0);
}

static void test_only_members_suspect_others(void **state)
{
    struct agree agree = started(4);

    (void)state;
    assert_false(agree_suspect(&agree, node_of(1), node_of(1)));
    assert_false(agree_suspect(&agree, node_of(1), node_of(4)));
    assert_false(agree_suspect(&agree, node_of(4), node_of(1)));
    assert_true(agree_suspect(&agree, node_of(1), node_of(3)));
    assert_int_equal(agree.view.members, 7);
    assert_false(agree_suspect(&agree, node_of(2), node_of(3)));
    assert_false(agree_suspect(&agree, node_of(3), node_of(1))); /* it is out itself: the first word counts */
    assert_true(agree_leave(&agree, node_of(0)));
    assert_false(agree_suspect(&agree, node_of(0), node_of(1)));
    assert_int_equal(agree.view.epoch.number, 3);
}

static void test_nobody_is_suspected_before_the_start(void **state)
{
    struct agree agree;

    (void)state;
    agree_init(&agree, 2);
    assert_false(agree_join(&agree, node_of(0)));
    assert_false(agree_suspect(&agree, node_of(0), node_of(1)));
    assert_true(agree_join(&agree, node_of(1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_job_starts_when_all_joined),
        cmocka_unit_test(test_joining_twice_or_from_outside_is_nothing),
        cmocka_unit_test(test_an_end_before_the_start_means_no_start),
        cmocka_unit_test(test_each_node_leaves_once),
        cmocka_unit_test(test_only_members_suspect_others),
        cmocka_unit_test(test_nobody_is_suspected_before_the_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
