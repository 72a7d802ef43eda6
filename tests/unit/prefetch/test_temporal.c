/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_temporal.c - what followed the last time is expected again; what is too long ago is forgotten.
 */
#include "tests/unit/prefetch/check.h"

#define ENTRIES 4096u

static struct temporal *temporal_new(uint32_t entries)
{
    struct temporal *temporal = malloc(temporal_bytes(entries));

    assert_non_null(temporal);
    temporal_init(temporal, entries);
    return temporal;
}

static struct replay *event(struct temporal *temporal, uint64_t page, const struct tag *tag)
{
    const struct prefetch_event event = {.page = page_of(page), .thread = 1};

    return temporal_event(temporal, &event, tag);
}

/* No order that a stream would see. */
static uint64_t page_at(uint32_t step)
{
    return 100000 + (uint64_t)step * 7919 % 65521;
}

static void a_walk_seen_once_is_replayed(void **state)
{
    struct temporal *temporal = temporal_new(ENTRIES);
    struct proposal proposal;
    struct replay *replay;

    (void)state;
    for (uint32_t i = 0; i < 1000; i++)
        assert_null(event(temporal, page_at(i), NULL));
    replay = event(temporal, page_at(10), NULL);
    assert_non_null(replay);
    assert_int_equal(replay->length, 1);
    for (uint32_t i = 0; i < replay->depth; i++) {
        assert_true(temporal_next(temporal, replay, &proposal));
        assert_int_equal(proposal.page.index, page_at(11 + i));
        assert_int_equal(proposal.distance, i);
    }
    assert_false(temporal_next(temporal, replay, &proposal)); /* not deeper than this */
    temporal_deepen(replay, 8);
    assert_true(temporal_next(temporal, replay, &proposal));
    free(temporal);
}

/* A B and C B: what comes after B depends on what came before it. */
static void the_longest_common_past_is_taken(void **state)
{
    struct temporal *temporal = temporal_new(ENTRIES);
    struct proposal proposal;
    struct replay *replay;
    static const uint64_t seen[] = {1, 50, 100, 7, 8, 9, 2, 50, 200, 7, 8, 9, 1};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(seen); i++)
        event(temporal, seen[i], NULL);
    replay = event(temporal, 50, NULL);
    assert_non_null(replay);
    assert_true(temporal_next(temporal, replay, &proposal));
    assert_int_equal(proposal.page.index, 100); /* not 200, which came last */
    free(temporal);
}

static void a_tag_goes_on_with_its_replay(void **state)
{
    struct temporal *temporal = temporal_new(ENTRIES);
    struct tag tag = {.predictor = PREFETCH_TEMPORAL, .is_used = true};
    struct replay *replay;

    (void)state;
    for (uint32_t i = 0; i < 200; i++)
        event(temporal, page_at(i), NULL);
    replay = event(temporal, page_at(0), NULL);
    for (uint32_t i = 1; i < 100; i++) {
        tag.stream = (uint8_t)(replay - temporal->replays);
        tag.position = replay->at;
        assert_ptr_equal(event(temporal, page_at(i), &tag), replay);
        assert_int_equal(replay->length, 1 + i);
    }
    free(temporal);
}

static void what_is_too_long_ago_is_forgotten(void **state)
{
    struct temporal *temporal = temporal_new(ENTRIES);

    (void)state;
    event(temporal, 5, NULL);
    for (uint32_t i = 0; i < ENTRIES - 1; i++)
        event(temporal, 1000 + i, NULL);
    assert_non_null(event(temporal, 5, NULL)); /* the oldest that is remembered */
    temporal_init(temporal, ENTRIES);
    event(temporal, 5, NULL);
    for (uint32_t i = 0; i < ENTRIES; i++)
        event(temporal, 1000 + i, NULL);
    assert_null(event(temporal, 5, NULL));
    free(temporal);
}

/* The count of events passes 2^32. */
static void positions_may_wrap(void **state)
{
    struct temporal *temporal = temporal_new(ENTRIES);
    struct proposal proposal;
    struct replay *replay = NULL;

    (void)state;
    temporal->count = UINT32_MAX - 50;
    for (uint32_t i = 0; i < 200; i++)
        event(temporal, page_at(i), NULL);
    replay = event(temporal, page_at(100), NULL);
    assert_non_null(replay);
    assert_true(temporal_next(temporal, replay, &proposal));
    assert_int_equal(proposal.page.index, page_at(101));
    free(temporal);
}

/* Any events: what is proposed was there before, and steps are bounded. */
static void random_events_give_known_pages(void **state)
{
    struct temporal *temporal = temporal_new(ENTRIES);
    struct random random = {3};

    (void)state;
    for (uint32_t i = 0; i < 200000; i++) {
        uint64_t page = random_below(&random, 3) == 0 ? random_below(&random, 700) : i % 700;
        struct replay *replay = event(temporal, page, NULL);
        struct proposal proposal;
        uint32_t steps = 0;

        while (replay != NULL && temporal_next(temporal, replay, &proposal)) {
            assert_true(proposal.page.index < 700);
            assert_true(++steps <= 64);
        }
        if (replay != NULL)
            temporal_deepen(replay, 64);
    }
    free(temporal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_walk_seen_once_is_replayed),
        cmocka_unit_test(the_longest_common_past_is_taken),
        cmocka_unit_test(a_tag_goes_on_with_its_replay),
        cmocka_unit_test(what_is_too_long_ago_is_forgotten),
        cmocka_unit_test(positions_may_wrap),
        cmocka_unit_test(random_events_give_known_pages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
