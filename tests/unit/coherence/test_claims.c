/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_claims.c - the interval trees of a home's locks, against a plain list. L1
 */
#include "coherence/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define CLAIMS 40

static struct coherence *started(void)
{
    static const struct coherence_env env = {.context = NULL};
    struct coherence_limits limits = {
        .nodes_count = 1, .requests_max = 1, .locks_max = 1, .home_locks_max = CLAIMS, .hold_ns = 0};
    struct coherence *c = malloc(coherence_size(&limits));

    assert_non_null(c);
    coherence_init(c, &limits, &env, node_of(0), 1);
    return c;
}

static bool overlaps(const struct claim *claim, uint8_t space, uint64_t first, uint64_t count)
{
    return claim->state != CLAIM_FREE && claim->space == space && claim->first < first + count &&
           first < claim->first + claim->count;
}

/* What the tree finds in a range is what a look at every claim finds, each once, in order of first unit. */
static void check_range(const struct coherence *c, uint8_t space, uint64_t first, uint64_t count)
{
    uint32_t ref = claim_overlapping(c, space, first, count, 0), before = 0;
    unsigned found = 0, expected = 0;

    for (uint32_t i = 1; i <= CLAIMS; i++)
        expected += overlaps(claim_at(c, i), space, first, count) ? 1 : 0;
    for (; ref != 0; ref = claim_overlapping(c, space, first, count, ref)) {
        assert_true(overlaps(claim_at(c, ref), space, first, count));
        assert_true(before == 0 || claim_at(c, before)->first <= claim_at(c, ref)->first);
        before = ref;
        assert_true(++found <= CLAIMS);
    }
    assert_int_equal(found, expected);
}

static void test_tree_finds_what_a_list_finds(void **state)
{
    struct coherence *c = started();
    struct random random = {.state = 7};

    (void)state;
    for (unsigned step = 0; step < 4000; step++) {
        uint32_t ref = 1 + random_below(&random, CLAIMS);
        struct claim *claim = claim_at(c, ref);

        if (claim->state != CLAIM_FREE) {
            claim_remove(c, ref);
        } else {
            ref = claim_take(c);
            assert_int_not_equal(ref, 0);
            claim = claim_at(c, ref);
            claim->space = (uint8_t)random_below(&random, 3);
            claim->first = random_below(&random, 50);
            claim->count = 1 + random_below(&random, 9);
            claim->state = CLAIM_WAITING;
            claim->request = step;
            claim_insert(c, ref);
            assert_int_equal(claim_find(c, claim->space, claim->first, claim->count, claim->node, step, 0), ref);
            assert_int_equal(claim_find(c, claim->space, claim->first, claim->count, claim->node, step + 1, 0), 0);
        }
        for (uint8_t space = 0; space < 3; space++)
            check_range(c, space, random_below(&random, 50), 1 + random_below(&random, 12));
    }
    free(c);
}

static void test_pool_runs_out_and_comes_back(void **state)
{
    struct coherence *c = started();

    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < CLAIMS; i++) {
            uint32_t ref = claim_take(c);

            assert_int_not_equal(ref, 0);
            claim_at(c, ref)->first = i;
            claim_at(c, ref)->count = UINT64_MAX - i; /* the longest there can be */
            claim_at(c, ref)->state = CLAIM_HELD;
            claim_insert(c, ref);
        }
        assert_int_equal(claim_take(c), 0);
        for (uint32_t ref = 1; ref <= CLAIMS; ref++)
            claim_remove(c, ref);
        assert_int_equal(claim_overlapping(c, 0, 0, UINT64_MAX, 0), 0);
    }
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree_finds_what_a_list_finds),
        cmocka_unit_test(test_pool_runs_out_and_comes_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
