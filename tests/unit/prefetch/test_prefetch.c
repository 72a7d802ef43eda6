/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_prefetch.c - a small pager around the predictors: what is brought, what is hit, what is wasted.
 */
#include "tests/unit/prefetch/check.h"

#define PAGES      65536u
#define FAULTS_MAX 6 /* of a scan, the first ever: nothing is believed before it was seen */

/* A pager with all the room it wants. It maps runs at once but for the trigger, whose touch it reports. */
struct pager {
    struct prefetch *prefetch;
    bool resident[PAGES];
    bool is_new[PAGES]; /* brought, and its first touch will be seen */
    uint64_t hard, brought, outside;
    uint64_t ahead_max; /* of the page touched, over all runs */
};

static struct pager *pager_new(uint32_t depth_max, uint32_t fault_around)
{
    const struct prefetch_config config = {
        .depth_max = depth_max, .ahead_min = depth_max, .fault_around = fault_around};
    struct pager *pager = calloc(1, sizeof(*pager));

    assert_non_null(pager);
    pager->prefetch = malloc(prefetch_bytes(&config));
    assert_non_null(pager->prefetch);
    prefetch_init(pager->prefetch, &config);
    return pager;
}

static void pager_free(struct pager *pager)
{
    free(pager->prefetch);
    free(pager);
}

static void run_bring(struct pager *pager, uint64_t page, const struct prefetch_run *run)
{
    assert_true(run->count <= PREFETCH_RUN_MAX);
    for (uint32_t i = 0; i < run->count; i++) {
        uint64_t at = run->first.index + (uint64_t)((int64_t)run->stride * i);
        uint64_t ahead = at > page ? at - page : page - at;

        if (at >= PAGES) {
            pager->outside++;
            continue;
        }
        if (ahead > pager->ahead_max)
            pager->ahead_max = ahead;
        if (pager->resident[at])
            continue;
        pager->resident[at] = true;
        pager->is_new[at] = run->is_watched || at == run->trigger.index;
        pager->brought++;
    }
}

static bool page_is_absent(const void *context, struct page_id page)
{
    const struct pager *pager = context;

    return page.index < PAGES && !pager->resident[page.index];
}

static struct prefetch_plan touch(struct pager *pager, uint64_t page, uint32_t thread)
{
    const struct prefetch_view view = {page_is_absent, pager, 0};
    struct prefetch_plan plan = {.runs_count = 0};
    bool was_prefetched = pager->is_new[page];

    assert_true(page < PAGES);
    if (pager->resident[page] && !was_prefetched)
        return plan; /* mapped: not seen */
    if (was_prefetched)
        prefetch_used(pager->prefetch, page_of(page), false);
    pager->is_new[page] = false;
    pager->resident[page] = true;
    pager->hard += !was_prefetched;
    prefetch_fault(pager->prefetch, page_of(page), thread, was_prefetched, &view, &plan);
    assert_true(plan.runs_count <= PREFETCH_RUNS_MAX);
    for (uint32_t i = 0; i < plan.runs_count; i++)
        run_bring(pager, page, &plan.runs[i]);
    return plan;
}

static void forward_scan_faults_twice(void **state)
{
    struct pager *pager = pager_new(64, 1);

    (void)state;
    for (uint64_t page = 1000; page < 9000; page++)
        (void)touch(pager, page, 1);
    assert_in_range(pager->hard, 2, FAULTS_MAX);
    assert_true(pager->brought < 8000 + 64);
    assert_true(pager->ahead_max <= 64);
    assert_true(pager->ahead_max >= 60);
    pager_free(pager);
}

static void backward_scan_stops_at_page_0(void **state)
{
    struct pager *pager = pager_new(64, 1);

    (void)state;
    for (uint64_t page = 5000; page-- > 0;)
        (void)touch(pager, page, 1);
    assert_in_range(pager->hard, 2, FAULTS_MAX);
    assert_int_equal(pager->outside, 0);
    pager_free(pager);
}

static void strides_are_followed_both_ways(void **state)
{
    (void)state;
    for (int stride = 2; stride <= STRIDE_MAX; stride++) {
        struct pager *pager = pager_new(32, 1);

        for (unsigned i = 0; i < 400; i++)
            (void)touch(pager, 100 + i * (unsigned)stride, 1);
        assert_int_equal(pager->hard, 3);
        assert_true(pager->brought < 400 + 32); /* and nothing in between */
        for (unsigned i = 0; i < 400; i++)
            (void)touch(pager, 40000 - i * (unsigned)stride, 1);
        assert_int_equal(pager->hard, 6);
        pager_free(pager);
    }
}

static void the_window_doubles(void **state)
{
    struct pager *pager = pager_new(128, 1);
    uint32_t largest = 0;
    uint32_t first = 0;

    (void)state;
    for (uint64_t page = 0; page < 2000; page++) {
        struct prefetch_plan plan = touch(pager, page, 1);

        if (plan.runs_count > 0 && first == 0)
            first = plan.runs[0].count;
        if (plan.runs_count > 0 && plan.runs[0].count > largest)
            largest = plan.runs[0].count;
    }
    assert_in_range(first, 1, 4);
    assert_in_range(largest, 64, 128); /* as deep as allowed: half a window each time, more after a fault */
    pager_free(pager);
}

static void the_next_run_is_asked_for_early(void **state)
{
    struct pager *pager = pager_new(64, 1);

    (void)state;
    for (uint64_t page = 0; page < 1000; page++) {
        (void)touch(pager, page, 1);
        if (page > 200) /* a third of the window at least is always ahead */
            assert_true(pager->resident[page + 21]);
    }
    pager_free(pager);
}

static void tiny_depths_work(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth <= 5; depth++) {
        struct pager *pager = pager_new(depth, 1);

        for (uint64_t page = 0; page < 500; page++)
            (void)touch(pager, page, 1);
        assert_in_range(pager->hard, 2, FAULTS_MAX);
        assert_true(pager->ahead_max <= depth);
        pager_free(pager);
    }
}

static void huge_depths_are_cut_to_runs(void **state)
{
    struct pager *pager = pager_new(1000000, 1);

    (void)state;
    for (uint64_t page = 0; page < 20000; page++)
        (void)touch(pager, page, 1);
    assert_in_range(pager->hard, 2, FAULTS_MAX);
    pager_free(pager);
}

static void scans_of_many_threads_do_not_mix(void **state)
{
    struct pager *pager = pager_new(32, 1);

    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        for (uint32_t thread = 0; thread < 8; thread++)
            (void)touch(pager, thread * 8000 + i, thread);
    }
    assert_int_equal(pager->hard, 16);
    pager_free(pager);
}

static void one_thread_may_have_several_scans(void **state)
{
    struct pager *pager = pager_new(32, 1);

    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        (void)touch(pager, i, 1);
        (void)touch(pager, 20000 + i, 1);
        (void)touch(pager, 50000 - i, 1);
    }
    assert_int_equal(pager->hard, 6);
    pager_free(pager);
}

static void random_touches_beside_a_scan_do_not_stop_it(void **state)
{
    struct pager *pager = pager_new(64, 1);
    struct random random = {1};
    uint64_t scanned;

    (void)state;
    for (uint64_t i = 0; i < 4000; i++) {
        uint64_t before = pager->hard;

        (void)touch(pager, i, 1);
        scanned = pager->hard - before;
        assert_true(i < 10 || scanned == 0);
        for (unsigned k = 0; k < 2; k++)
            (void)touch(pager, 10000 + random_below(&random, 50000), 1);
    }
    pager_free(pager);
}

static void random_touches_are_not_taken_for_scans(void **state)
{
    struct pager *pager = pager_new(64, 1);
    struct random random = {2};

    (void)state;
    for (unsigned i = 0; i < 3000; i++)
        (void)touch(pager, random_below(&random, PAGES), random_below(&random, 4));
    assert_true(pager->brought < pager->hard / 20);
    pager_free(pager);
}

static void a_wasteful_predictor_is_held_back(void **state)
{
    struct pager *pager = pager_new(64, 8);
    struct prefetch_counters counters;
    struct random random = {3};
    uint64_t before = 0;

    (void)state;
    for (unsigned i = 0; i < 4000; i++) {
        uint64_t page = random_below(&random, PAGES / 8) * 8;
        struct prefetch_plan plan = touch(pager, page, 1);

        for (uint32_t k = 1; plan.runs_count > 0 && k < plan.runs[0].count; k++) /* the rest of the block: not used */
            prefetch_wasted(pager->prefetch, page_of(plan.runs[0].first.index + k));
        if (i == 1000)
            before = pager->brought;
    }
    prefetch_counters_get(pager->prefetch, &counters);
    assert_true(counters.throttled > 1000);
    assert_true(counters.wasted > 0 && counters.issued >= counters.wasted);
    assert_true(pager->brought - before < 3000 / 4); /* only probes: of 8 pages each it would be 21,000 */
    pager_free(pager);
}

static void faults_bring_their_block(void **state)
{
    struct pager *pager = pager_new(64, 8);
    struct prefetch_run run = touch(pager, 1003, 1).runs[0];

    (void)state;
    assert_int_equal(run.first.index, 1000);
    assert_int_equal(run.count, 8);
    assert_true(page_is(run.trigger, PAGE_NONE));
    /* The next fault of a scan is at the end of the block: a stream at once. */
    (void)touch(pager, 1008, 1);
    for (uint64_t page = 1009; page < 3000; page++)
        (void)touch(pager, page, 1);
    assert_in_range(pager->hard, 2, FAULTS_MAX);
    run = touch(pager, 50001, 2).runs[0];
    assert_int_equal(run.first.index, 50000);
    run = touch(pager, 49999, 2).runs[0]; /* and at its other end when it goes down */
    assert_int_equal(run.stride, -1);
    pager_free(pager);
}

static void depth_0_is_off(void **state)
{
    struct pager *pager = pager_new(0, 8);

    (void)state;
    for (uint64_t page = 0; page < 100; page++)
        assert_int_equal(touch(pager, page, 1).runs_count, 0);
    assert_int_equal(pager->hard, 100);
    pager_free(pager);
}

static void evicted_pages_of_a_stream_are_asked_for_again(void **state)
{
    struct pager *pager = pager_new(32, 1);

    (void)state;
    for (uint64_t page = 0; page < 1000; page++)
        (void)touch(pager, page, 1);
    memset(pager->resident, 0, sizeof(pager->resident)); /* what was ahead is gone, the trigger too */
    memset(pager->is_new, 0, sizeof(pager->is_new));
    pager->hard = 0;
    for (uint64_t page = 1000; page < 2000; page++)
        (void)touch(pager, page, 1);
    assert_true(pager->hard < 60);
    pager_free(pager);
}

/* Only a few pages of each run find room: the stream asks for the rest again, instead of faulting on each. */
static void runs_that_were_cut_are_asked_for_again(void **state)
{
    (void)state;
    for (int stride = -2; stride <= 2; stride++) {
        struct pager *pager = pager_new(64, 1);
        uint64_t page = 30000;

        for (unsigned i = 0; stride != 0 && i < 3000; i++, page += (uint64_t)(int64_t)stride) {
            struct prefetch_plan plan;

            if (pager->resident[page])
                continue;
            pager->hard++;
            prefetch_fault(pager->prefetch, page_of(page), 1, false, NULL, &plan);
            for (uint32_t r = 0; r < plan.runs_count; r++) {
                const struct prefetch_run *run = &plan.runs[r];
                uint32_t count = r > 0 ? 0 : run->count < 10 ? run->count : 10;

                prefetch_cut(pager->prefetch, run, count);
                for (uint32_t k = 0; k < count; k++)
                    pager->resident[run->first.index + (uint64_t)((int64_t)run->stride * k)] = true;
            }
        }
        assert_true(pager->hard < 3000 / 10);
        pager_free(pager);
    }
}

static void plans_are_the_same(const struct prefetch_plan *a, const struct prefetch_plan *b)
{
    assert_int_equal(a->runs_count, b->runs_count);
    for (uint32_t i = 0; i < a->runs_count; i++) {
        assert_true(page_is(a->runs[i].first, b->runs[i].first) && page_is(a->runs[i].trigger, b->runs[i].trigger));
        assert_true(a->runs[i].count == b->runs[i].count && a->runs[i].stride == b->runs[i].stride);
    }
}

static void copies_behave_alike(void **state)
{
    const struct prefetch_config config = {.depth_max = 64, .ahead_min = 64, .fault_around = 4};
    struct pager *pager = pager_new(64, 4);
    struct random random = {9};
    struct prefetch *copy = malloc(prefetch_bytes(&config));

    (void)state;
    assert_non_null(copy);
    for (unsigned i = 0; i < 500; i++)
        (void)touch(pager, random_below(&random, 300), 1);
    memcpy(copy, pager->prefetch, prefetch_bytes(&config)); /* no pointer inside */
    for (unsigned i = 0; i < 500; i++) {
        struct page_id page = page_of(random_below(&random, 300));
        bool was_prefetched = random_below(&random, 2) == 0;
        struct prefetch_plan a;
        struct prefetch_plan b;

        prefetch_fault(pager->prefetch, page, 1, was_prefetched, NULL, &a);
        prefetch_fault(copy, page, 1, was_prefetched, NULL, &b);
        plans_are_the_same(&a, &b);
    }
    free(copy);
    pager_free(pager);
}

static void run_is_sound(struct prefetch *prefetch, const struct prefetch_run *run, bool was_used)
{
    assert_in_range(run->count, 1, PREFETCH_RUN_MAX);
    for (uint32_t k = 0; k < run->count; k++) {
        struct page_id page = page_of(run->first.index + (uint64_t)((int64_t)run->stride * k));

        assert_true(page.index < 1000 + 64 * STRIDE_MAX);
        if (was_used)
            prefetch_used(prefetch, page, false);
        else
            prefetch_wasted(prefetch, page);
    }
}

/* Any sequence of events: runs stay small, near, and above page 0. */
static void random_events_give_sound_runs(void **state)
{
    const struct prefetch_config config = {.depth_max = 64, .ahead_min = 64, .fault_around = 8};
    struct prefetch *prefetch = malloc(prefetch_bytes(&config));
    struct random random = {4};
    uint64_t page = 20;

    (void)state;
    assert_non_null(prefetch);
    prefetch_init(prefetch, &config);
    for (unsigned i = 0; i < 200000; i++) {
        struct prefetch_plan plan;

        page = random_below(&random, 8) == 0 ? random_below(&random, 500) : page + random_below(&random, 5) - 2;
        if (page > 1000)
            page = 0;
        prefetch_fault(prefetch, page_of(page), random_below(&random, 3), random_below(&random, 2) == 0, NULL, &plan);
        for (uint32_t r = 0; r < plan.runs_count; r++)
            run_is_sound(prefetch, &plan.runs[r], random_below(&random, 2) == 0);
    }
    free(prefetch);
}

/* A walk without any order, again and again, through a memory that holds less than all of it. */
static void walks_seen_before_are_replayed(void **state)
{
    struct pager *pager = pager_new(32, 1);
    uint64_t hard = 0;

    (void)state;
    for (unsigned pass = 0; pass < 4; pass++) {
        memset(pager->resident, 0, sizeof(pager->resident));
        memset(pager->is_new, 0, sizeof(pager->is_new));
        hard = pager->hard;
        for (unsigned i = 0; i < 3000; i++)
            (void)touch(pager, (uint64_t)i * 7919 % 65521, 1);
    }
    assert_true(pager->hard - hard < 3000 / 20);
    pager_free(pager);
}

static void a_long_queue_stops_all(void **state)
{
    struct pager *pager = pager_new(64, 1);
    struct prefetch_view view = {page_is_absent, pager, 0};
    struct prefetch_plan plan;

    (void)state;
    for (uint64_t page = 0; page < 100; page++)
        (void)touch(pager, page, 1);
    view.queue = 128;
    for (uint64_t page = 20000; page < 20100; page++) {
        prefetch_fault(pager->prefetch, page_of(page), 1, false, &view, &plan);
        assert_int_equal(plan.runs_count, 0);
    }
    pager_free(pager);
}

/* What a predictor is right about half the time is not brought for ever, and what is brought is mostly used. */
static void waste_raises_the_bar(void **state)
{
    struct pager *pager = pager_new(32, 1);
    struct prefetch_counters counters;
    struct random random = {11};

    (void)state;
    for (unsigned i = 0; i < 40000; i++) {
        uint64_t page = (uint64_t)random_below(&random, 4000) * 16;
        struct prefetch_plan plan = touch(pager, page, 1);

        (void)touch(pager, random_below(&random, 10) < 3 ? page + 3 : page + 7, 1); /* never two times in three */
        for (uint32_t r = 0; r < plan.runs_count; r++) {
            for (uint32_t k = 0; k < plan.runs[r].count; k++) {
                uint64_t at = plan.runs[r].first.index + (uint64_t)((int64_t)plan.runs[r].stride * k);

                if (at < PAGES && pager->is_new[at])
                    prefetch_wasted(pager->prefetch, page_of(at));
            }
        }
        memset(pager->resident, 0, sizeof(pager->resident));
        memset(pager->is_new, 0, sizeof(pager->is_new));
    }
    prefetch_counters_get(pager->prefetch, &counters);
    assert_true(counters.used * 2 > counters.wasted);
    pager_free(pager);
}

/* The pager says that each page pushed out for a prefetched one was wanted again. */
static void harm_switches_prefetch_off(void **state)
{
    struct pager *pager = pager_new(64, 1);
    struct prefetch_counters counters;
    uint64_t brought;

    (void)state;
    for (uint64_t page = 0; page < 2000; page++) {
        prefetch_evicted(pager->prefetch, page_of(60000), 100);
        (void)touch(pager, page, 1);
        pager->resident[60000] = false;
        (void)touch(pager, 60000, 1);
    }
    prefetch_counters_get(pager->prefetch, &counters);
    assert_true(counters.polluted > 500 && counters.off > 0);
    brought = pager->brought;
    for (uint64_t page = 30000; page < 30100; page++)
        (void)touch(pager, page, 1);
    assert_int_equal(pager->brought, brought);
    pager_free(pager);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_scan_faults_twice),
        cmocka_unit_test(backward_scan_stops_at_page_0),
        cmocka_unit_test(strides_are_followed_both_ways),
        cmocka_unit_test(the_window_doubles),
        cmocka_unit_test(the_next_run_is_asked_for_early),
        cmocka_unit_test(tiny_depths_work),
        cmocka_unit_test(huge_depths_are_cut_to_runs),
        cmocka_unit_test(scans_of_many_threads_do_not_mix),
        cmocka_unit_test(one_thread_may_have_several_scans),
        cmocka_unit_test(random_touches_beside_a_scan_do_not_stop_it),
        cmocka_unit_test(random_touches_are_not_taken_for_scans),
        cmocka_unit_test(a_wasteful_predictor_is_held_back),
        cmocka_unit_test(faults_bring_their_block),
        cmocka_unit_test(depth_0_is_off),
        cmocka_unit_test(evicted_pages_of_a_stream_are_asked_for_again),
        cmocka_unit_test(runs_that_were_cut_are_asked_for_again),
        cmocka_unit_test(copies_behave_alike),
        cmocka_unit_test(random_events_give_sound_runs),
        cmocka_unit_test(walks_seen_before_are_replayed),
        cmocka_unit_test(a_long_queue_stops_all),
        cmocka_unit_test(waste_raises_the_bar),
        cmocka_unit_test(harm_switches_prefetch_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
