/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_signature.c - steps inside a region, learned in one and foretold in another.
 */
#include "tests/unit/prefetch/check.h"

static const int steps[] = {3, 1, 5}; /* again and again */

static bool event(struct signature *signature, uint64_t page, struct signature_walk *walk)
{
    const struct prefetch_event event = {.page = page_of(page), .thread = 1};

    return signature_event(signature, &event, walk);
}

/* Returns the page after the last event. */
static uint64_t pattern(struct signature *signature, uint64_t page, unsigned events, struct signature_walk *walk)
{
    for (unsigned i = 0; i < events; i++) {
        event(signature, page, walk);
        page += (uint64_t)steps[i % 3];
    }
    return page;
}

static void a_pattern_learned_in_one_region_is_known_in_another(void **state)
{
    struct signature signature;
    struct signature_walk walk;
    struct proposal proposal;
    uint64_t next;

    (void)state;
    signature_init(&signature);
    for (uint64_t region = 0; region < 8; region++)
        pattern(&signature, region << 8, 60, &walk);
    next = pattern(&signature, (uint64_t)500 << 8, 6, &walk);
    for (unsigned i = 6; i < 10; i++) {
        assert_true(signature_next(&signature, &walk, &proposal));
        assert_int_equal(proposal.page.index, next);
        assert_int_equal(proposal.distance, i - 5);
        next += (uint64_t)steps[i % 3];
    }
}

static void paths_end_with_the_region(void **state)
{
    struct signature signature;
    struct signature_walk walk;
    struct proposal proposal;

    (void)state;
    signature_init(&signature);
    for (uint64_t region = 0; region < 20; region++)
        for (uint64_t page = 0; page < 256; page++)
            event(&signature, (region << 8) + page, &walk);
    for (uint64_t page = 0; page < 250; page++)
        event(&signature, ((uint64_t)77 << 8) + page, &walk);
    while (signature_next(&signature, &walk, &proposal))
        assert_int_equal(proposal.page.index >> 8, 77);
}

static void chance_gives_no_paths(void **state)
{
    struct signature signature;
    struct signature_walk walk;
    struct proposal proposal;
    struct random random = {5};
    unsigned proposed = 0;

    (void)state;
    signature_init(&signature);
    for (unsigned i = 0; i < 20000; i++)
        if (event(&signature, random_below(&random, 1u << 15), &walk) && signature_next(&signature, &walk, &proposal))
            proposed++;
    assert_true(proposed < 20000 / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pattern_learned_in_one_region_is_known_in_another),
        cmocka_unit_test(paths_end_with_the_region),
        cmocka_unit_test(chance_gives_no_paths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
