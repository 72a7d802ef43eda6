/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_prefetch_sim.c - the cache, the link and the clock, on figures that were worked out by hand; and what must hold
 * of every predictor on any touches.
 */
#include "tests/unit/prefetch/check.h"

#include "bench/replay/prefetch_list.h"

#define PAGE_NS  300.0
#define FETCH_NS 5000.0

static size_t next_bytes(uint32_t frames)
{
    (void)frames;
    return 1;
}

static void next_init(void *state, uint32_t frames)
{
    (void)state;
    (void)frames;
}

static void next_event(void *state, struct page_id page, bool was_prefetched, const struct prefetch_view *view,
                       struct sim_pages *ret_pages)
{
    (void)state;
    (void)was_prefetched;
    (void)view;
    ret_pages->count = 1;
    ret_pages->pages[0] = page_of(page.index + 1);
    ret_pages->is_seen[0] = true;
}

static const struct prefetcher_ops next_page = {"next", next_bytes, next_init, next_event, NULL, NULL, NULL};

static struct prefetch_sim *sim_new(uint32_t frames, const struct prefetcher_ops *prefetcher, bool new_pages_free)
{
    const struct sim_config config = {
        .frames = frames, .fetch_us = FETCH_NS / 1000, .page_ns = PAGE_NS, .new_pages_free = new_pages_free};
    struct prefetch_sim *sim = prefetch_sim_create(&config, prefetcher);

    assert_non_null(sim);
    return sim;
}

static struct sim_result touches(struct prefetch_sim *sim, const uint64_t *pages, size_t count, double gap_ns)
{
    struct sim_result result;

    for (size_t i = 0; i < count; i++)
        assert_int_equal(prefetch_sim_touch(sim, page_of(pages[i]), gap_ns), 0);
    prefetch_sim_result(sim, &result);
    prefetch_sim_destroy(sim);
    return result;
}

static void misses_of_lru_wait_for_the_link(void **state)
{
    static const uint64_t pages[] = {1, 2, 1, 3, 2, 1};
    struct sim_result result = touches(sim_new(2, NULL, false), pages, ARRAY_COUNT(pages), 10);

    (void)state;
    assert_int_equal(result.touches, 6);
    assert_int_equal(result.misses, 5); /* only the second touch of 1 finds it */
    assert_float_equal(result.stall_ns, 5 * (PAGE_NS + FETCH_NS), 0.1);
    result = touches(sim_new(2, NULL, true), pages, ARRAY_COUNT(pages), 10);
    assert_int_equal(result.misses, 2);
}

static void a_page_asked_for_early_enough_costs_nothing(void **state)
{
    static const uint64_t pages[] = {1, 2, 3, 4};
    struct sim_result result = touches(sim_new(16, &next_page, false), pages, ARRAY_COUNT(pages), 10000);

    (void)state;
    assert_int_equal(result.misses, 1);
    assert_int_equal(result.timely, 3);
    assert_int_equal(result.late, 0);
    assert_int_equal(result.issued, 4);
    assert_int_equal(result.left_over, 1);
    assert_float_equal(result.stall_ns, PAGE_NS + FETCH_NS, 0.1);
}

/* The second page is asked for with the first, and comes one page's turn on the link later. */
static void a_late_page_costs_what_is_left(void **state)
{
    static const uint64_t pages[] = {1, 2};
    struct sim_result result = touches(sim_new(16, &next_page, false), pages, ARRAY_COUNT(pages), 100);

    (void)state;
    assert_int_equal(result.late, 1);
    assert_float_equal(result.stall_ns, PAGE_NS + FETCH_NS + (PAGE_NS - 100), 0.1);
}

static void unused_pages_hold_an_eighth_at_most(void **state)
{
    static uint64_t pages[400];
    struct sim_result result;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(pages); i++)
        pages[i] = i % 40 * 1000; /* fits, if prefetched pages leave room */
    result = touches(sim_new(46, &next_page, false), pages, ARRAY_COUNT(pages), 10000);
    assert_int_equal(result.misses, 40);
    assert_true(result.left_over <= 46 / 8);
    assert_int_equal(result.issued, result.timely + result.late + result.wasted + result.left_over);
}

static uint64_t page_drawn(struct random *random, uint32_t i)
{
    switch (i / 2000 % 4) {
    case 0:
        return i % 700;
    case 1:
        return random_below(random, 700);
    case 2:
        return (uint64_t)i * 7919 % 701;
    default:
        return random_below(random, 4) == 0 ? random_below(random, 5000) : 100 + i % 300;
    }
}

/* Every predictor, any number of frames: the books agree, and ours never cost more than none. */
static void books_agree_for_every_predictor(void **state)
{
    static const struct prefetcher_ops *const all[] = {NULL,
                                                       &prefetcher_ours,
                                                       &prefetcher_streams,
                                                       &prefetcher_temporal,
                                                       &prefetcher_signature,
                                                       &prefetcher_next8,
                                                       &prefetcher_vma,
                                                       &prefetcher_file,
                                                       &prefetcher_leap};
    static const uint32_t frames[] = {1, 2, 3, 16, 100, 5000};

    (void)state;
    for (size_t f = 0; f < ARRAY_COUNT(frames); f++) {
        double none_ns = 0;

        for (size_t p = 0; p < ARRAY_COUNT(all); p++) {
            struct prefetch_sim *sim = sim_new(frames[f], all[p], false);
            struct random random = {1};
            struct sim_result result;

            for (uint32_t i = 0; i < 16000; i++)
                assert_int_equal(prefetch_sim_touch(sim, page_of(page_drawn(&random, i)), 200), 0);
            prefetch_sim_result(sim, &result);
            prefetch_sim_destroy(sim);
            assert_int_equal(result.issued, result.timely + result.late + result.wasted + result.left_over);
            none_ns = p == 0 ? result.stall_ns : none_ns;
            if (all[p] == &prefetcher_ours)
                assert_true(result.stall_ns <= 1.01 * none_ns);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misses_of_lru_wait_for_the_link),
        cmocka_unit_test(a_page_asked_for_early_enough_costs_nothing),
        cmocka_unit_test(a_late_page_costs_what_is_left),
        cmocka_unit_test(unused_pages_hold_an_eighth_at_most),
        cmocka_unit_test(books_agree_for_every_predictor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
