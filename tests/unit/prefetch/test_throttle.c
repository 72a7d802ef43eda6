/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_throttle.c - a predictor that guesses wrong goes off, probes, and comes back.
 */
#include "tests/unit/prefetch/check.h"

static void judge(struct throttle *throttle, unsigned count, bool was_used)
{
    for (unsigned i = 0; i < count; i++)
        throttle_judge(throttle, was_used);
}

static void good_guesses_keep_the_depth(void **state)
{
    struct throttle throttle;

    (void)state;
    throttle_init(&throttle);
    assert_int_equal(throttle_depth(&throttle, 128), 128);
    judge(&throttle, 1000, true);
    assert_int_equal(throttle_depth(&throttle, 128), 128);
    judge(&throttle, 10, false);
    assert_int_equal(throttle_depth(&throttle, 128), 128);
    assert_int_equal(throttle_depth(&throttle, 0), 0);
}

static void bad_guesses_go_a_quarter_as_deep_then_off(void **state)
{
    struct throttle throttle;

    (void)state;
    throttle_init(&throttle);
    judge(&throttle, 25, false);
    assert_int_equal(throttle_depth(&throttle, 128), 32);
    assert_int_equal(throttle_depth(&throttle, 8), 4);
    assert_int_equal(throttle_depth(&throttle, 2), 2);
    judge(&throttle, 75, false);
    assert_int_equal(throttle_depth(&throttle, 128), 0);
}

static void a_predictor_that_is_off_probes(void **state)
{
    struct throttle throttle;
    unsigned probes = 0;

    (void)state;
    throttle_init(&throttle);
    judge(&throttle, 200, false);
    for (unsigned i = 0; i < 650; i++) {
        uint32_t depth = throttle_depth(&throttle, 128);

        assert_true(depth == 0 || depth == 4);
        probes += depth > 0;
        throttle_issued(&throttle, depth);
    }
    assert_int_equal(probes, 10);
}

static void good_probes_switch_it_on(void **state)
{
    struct throttle throttle;

    (void)state;
    throttle_init(&throttle);
    judge(&throttle, 1000, false);
    judge(&throttle, 12, true); /* over a quarter, but it takes half */
    assert_int_equal(throttle_depth(&throttle, 128), 0);
    judge(&throttle, 30, true);
    assert_int_equal(throttle_depth(&throttle, 128), 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_guesses_keep_the_depth),
        cmocka_unit_test(bad_guesses_go_a_quarter_as_deep_then_off),
        cmocka_unit_test(a_predictor_that_is_off_probes),
        cmocka_unit_test(good_probes_switch_it_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
