/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_filter.c - how likely a proposal is: learned from what became of those before it.
 */
#include "tests/unit/prefetch/check.h"

static struct proposal proposal_at(uint64_t page, uint32_t length, uint32_t distance)
{
    return (struct proposal){.page = page_of(page),
                             .trigger = page_of(page * 31),
                             .predictor = PREFETCH_TEMPORAL,
                             .length = length,
                             .distance = distance};
}

static uint32_t likely(const struct filter *filter, const struct proposal *proposal)
{
    struct features features = features_of(proposal);

    return filter_likely(filter, &features);
}

static void nothing_is_believed_at_first_but_streams(void **state)
{
    struct filter filter;
    struct proposal proposal = proposal_at(1000, 3, 2);

    (void)state;
    filter_init(&filter);
    assert_true(likely(&filter, &proposal) < LIKELY_ONE / 2);
    proposal.predictor = PREFETCH_STREAMS;
    assert_true(likely(&filter, &proposal) > LIKELY_ONE / 2);
}

/* Proposals of one kind are right with some chance; the filter comes to say that chance, for pages never seen too. */
static void it_learns_how_often_a_kind_is_right(void **state)
{
    static const uint32_t percents[] = {5, 30, 60, 95};
    struct random random = {7};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(percents); i++) {
        struct filter filter;
        uint64_t sum = 0;

        filter_init(&filter);
        for (unsigned k = 0; k < 20000; k++) {
            struct proposal proposal = proposal_at(random_below(&random, 1u << 20), 3, 2);
            struct features features = features_of(&proposal);

            filter_learn(&filter, &features, random_below(&random, 100) < percents[i]);
        }
        for (unsigned k = 0; k < 1000; k++) {
            struct proposal proposal = proposal_at((1u << 20) + k, 3, 2);

            sum += likely(&filter, &proposal);
        }
        assert_in_range(sum / 1000, percents[i] > 12 ? LIKELY_ONE * (percents[i] - 12) / 100 : 0,
                        LIKELY_ONE * (percents[i] + 12) / 100);
    }
}

static void kinds_are_told_apart(void **state)
{
    struct filter filter;
    struct proposal good = proposal_at(5, 64, 1);
    struct proposal bad = proposal_at(5, 1, 64);

    (void)state;
    filter_init(&filter);
    for (uint64_t k = 0; k < 4000; k++) {
        struct proposal used = proposal_at(k, 64, 1);
        struct proposal wasted = proposal_at(k, 1, 64);
        struct features features = features_of(&used);

        filter_learn(&filter, &features, true);
        features = features_of(&wasted);
        filter_learn(&filter, &features, false);
    }
    assert_true(likely(&filter, &good) > LIKELY_ONE * 3 / 4);
    assert_true(likely(&filter, &bad) < LIKELY_ONE / 4);
}

static void weights_stay_bounded_and_change_back(void **state)
{
    struct filter filter;
    struct proposal proposal = proposal_at(77, 4, 1);
    struct features features = features_of(&proposal);

    (void)state;
    filter_init(&filter);
    for (unsigned i = 0; i < 1000000; i++)
        filter_learn(&filter, &features, true);
    assert_in_range(filter_likely(&filter, &features), LIKELY_ONE * 19 / 20, LIKELY_ONE);
    for (unsigned i = 0; i < 40; i++)
        filter_learn(&filter, &features, false);
    assert_true(filter_likely(&filter, &features) < LIKELY_ONE / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_believed_at_first_but_streams),
        cmocka_unit_test(it_learns_how_often_a_kind_is_right),
        cmocka_unit_test(kinds_are_told_apart),
        cmocka_unit_test(weights_stay_bounded_and_change_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
