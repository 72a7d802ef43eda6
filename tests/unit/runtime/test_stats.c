/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_stats.c - histograms: edges, shares, and the promised width of buckets.
 */
#include "base/random.h"
#include "base/types.h"
#include "runtime/stats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_empty_is_zero(void **state)
{
    struct histogram histogram = {.count = 0};
    struct dsm_latency latency = histogram_summary(&histogram);

    (void)state;
    assert_int_equal(latency.count, 0);
    assert_int_equal(latency.p50_ns, 0);
    assert_int_equal(latency.p99_ns, 0);
}

static void test_edge_is_close_above_the_value(void **state)
{
    (void)state;
    for (uint64_t value = 0; value < 1000000000000; value = value < 100 ? value + 1 : value + value / 7) {
        struct histogram histogram = {.count = 0};
        uint64_t edge;

        histogram_add(&histogram, value);
        histogram_add(&histogram, value * 2 + 100); /* so that the edge is not the maximum */
        edge = histogram_permille(&histogram, 500);
        assert_true(edge >= value);
        assert_true(edge <= value + value / 4 + 1);
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void test_shares_match_sorted_values(void **state)
{
    struct histogram histogram = {.count = 0};
    struct random random = {7};
    static uint64_t values[10000];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
        values[i] = 1000 + random_below(&random, 1u << random_below(&random, 24));
        histogram_add(&histogram, values[i]);
    }
    qsort(values, ARRAY_COUNT(values), sizeof(values[0]), compare);
    for (unsigned permille = 10; permille <= 1000; permille += 10) {
        uint64_t exact = values[ARRAY_COUNT(values) * permille / 1000 - 1];
        uint64_t edge = histogram_permille(&histogram, permille);

        assert_true(edge >= exact && edge <= exact + exact / 4);
    }
    assert_int_equal(histogram_permille(&histogram, 1000), values[ARRAY_COUNT(values) - 1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_is_zero),
        cmocka_unit_test(test_edge_is_close_above_the_value),
        cmocka_unit_test(test_shares_match_sorted_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
