/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_placement_arms.c - the policy that chooses among LRU, S3-FIFO and LIRS: what always holds, and that it learns.
 *
 * A small model of the pager drives it and looks at every answer: only frames in limbo leave, none twice.
 */
#include "base/assert.h"
#include "tests/unit/tiers/check.h"
#include "tiers/placement.h"

#define PAGES_MAX  8192u
#define FRAMES_MAX 4096u

struct fixture {
    struct frames *frames;
    struct placement *placement;
    uint32_t budget, table;
    uint32_t batch; /* frames that are made free at a time */
    bool sees_all;
    uint32_t frame_of[PAGES_MAX];
    uint64_t misses, soft_faults;
};

static const struct placement_cost cost_none = {.remote_read_ns = 0};

static struct fixture *fixture_new_of(uint32_t frames, uint32_t table, bool sees_all)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    size_t bytes = (placement_bytes(&placement_arms, table) + 63) / 64 * 64;

    assert_non_null(fixture);
    fixture->frames = malloc(frames_bytes(table));
    fixture->placement = aligned_alloc(64, bytes);
    assert_non_null(fixture->frames);
    assert_non_null(fixture->placement);
    memset(fixture->placement, 0, bytes);
    memset(fixture->frame_of, 0xff, sizeof(fixture->frame_of));
    fixture->budget = frames;
    fixture->table = table;
    fixture->batch = 1;
    fixture->sees_all = sees_all;
    frames_init(fixture->frames, table);
    placement_init(fixture->placement, &placement_arms, table, frames, &cost_none);
    return fixture;
}

static struct fixture *fixture_new(uint32_t frames, bool sees_all)
{
    return fixture_new_of(frames, FRAMES_MAX, sees_all);
}

static void fixture_free(struct fixture *fixture)
{
    free(fixture->frames);
    free(fixture->placement);
    free(fixture);
}

static uint32_t used(const struct fixture *fixture)
{
    return fixture->table - frames_count(fixture->frames, FRAME_FREE);
}

/* Each answer is a frame that may be unmapped, and none comes twice. */
static unsigned unmap(struct fixture *fixture, unsigned wanted)
{
    struct frame_id out[64];
    unsigned count = placement_unmap(fixture->placement, fixture->frames, out, wanted < 64 ? wanted : 64);

    for (unsigned i = 0; i < count; i++) {
        enum frame_list list = frames_list(fixture->frames, out[i]);

        assert_true(list == FRAME_MAPPED || list == FRAME_TRIAL || list == FRAME_COLD);
        frames_push_tail(fixture->frames, out[i], FRAME_LIMBO);
    }
    return count;
}

static unsigned evict(struct fixture *fixture, unsigned wanted)
{
    struct frame_id out[64];
    unsigned count = placement_evict(fixture->placement, fixture->frames, out, wanted < 64 ? wanted : 64);

    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(frames_list(fixture->frames, out[i]), FRAME_LIMBO);
        fixture->frame_of[frames_page(fixture->frames, out[i]).index] = UINT32_MAX;
        placement_evicted(fixture->placement, fixture->frames, out[i]);
        frames_put(fixture->frames, out[i]);
    }
    return count;
}

static void room_make(struct fixture *fixture)
{
    while (used(fixture) >= fixture->budget) {
        uint32_t limbo = frames_count(fixture->frames, FRAME_LIMBO);

        if (limbo < fixture->batch)
            assert_true(unmap(fixture, fixture->batch - limbo) > 0);
        assert_int_equal(evict(fixture, fixture->batch), fixture->batch);
    }
}

static void page_in(struct fixture *fixture, uint32_t page, bool prefetched)
{
    struct frame_id frame;

    room_make(fixture);
    frame = frames_take(fixture->frames, page_of(page));
    fixture->frame_of[page] = frame.index;
    placement_inserted(fixture->placement, fixture->frames, frame, prefetched);
}

static void touch(struct fixture *fixture, uint32_t page)
{
    struct frame_id frame = {fixture->frame_of[page]};

    if (frame.index == UINT32_MAX) {
        fixture->misses++;
        page_in(fixture, page, false);
    } else if (frames_list(fixture->frames, frame) == FRAME_LIMBO ||
               frames_list(fixture->frames, frame) == FRAME_COLD) {
        fixture->soft_faults++;
        placement_soft_hit(fixture->placement, fixture->frames, frame);
    }
    if (fixture->sees_all)
        while (unmap(fixture, 64) > 0)
            ;
    else
        unmap(fixture, placement_unmap_wanted(fixture->placement, fixture->frames));
}

static void loop(struct fixture *fixture, uint32_t pages, unsigned rounds)
{
    for (unsigned round = 0; round < rounds; round++)
        for (uint32_t page = 0; page < pages; page++)
            touch(fixture, page);
}

/* ---- it learns ----------------------------------------------------------------------------------------------------
 */

/* LRU would miss every touch; the best policy keeps 900 of 1200 pages. */
static void a_loop_larger_than_memory_is_kept_in_part(void **state)
{
    struct fixture *fixture = fixture_new(900, true);

    (void)state;
    loop(fixture, 1200, 20);
    fixture->misses = 0;
    loop(fixture, 1200, 10);
    assert_true(fixture->misses < 10 * 1200 / 2);
    fixture_free(fixture);
}

/* As the pager sees it. */
static void the_same_where_few_touches_are_seen(void **state)
{
    struct fixture *fixture = fixture_new(900, false);

    (void)state;
    loop(fixture, 1200, 20);
    fixture->misses = fixture->soft_faults = 0;
    loop(fixture, 1200, 10);
    assert_true(fixture->misses < 10 * 1200 * 2 / 3);
    fixture_free(fixture);
}

/* As many frames as above are in use between batches; a pager keeps more free, and other memory is in the budget. */
static void the_same_where_pages_leave_in_batches(void **state)
{
    struct fixture *fixture = fixture_new(1100, false);

    (void)state;
    fixture->budget = 900 + 64; /* the policy is not told */
    fixture->batch = 64;
    loop(fixture, 1200, 20);
    fixture->misses = fixture->soft_faults = 0;
    loop(fixture, 1200, 10);
    assert_true(fixture->misses < 10 * 1200 * 2 / 3);
    fixture_free(fixture);
}

/* A working set moves on slowly: what was touched lately is touched again. LIRS alone would hold on to old pages. */
static void a_moving_working_set_is_followed(void **state)
{
    struct fixture *fixture = fixture_new(512, true);
    struct random random = {7};
    uint64_t touches = 0;

    (void)state;
    for (uint32_t base = 0; base + 480 < PAGES_MAX; base++)
        for (unsigned i = 0; i < 8; i++, touches++)
            touch(fixture, base + random_below(&random, 480));
    assert_true(fixture->misses < touches / 5); /* each page is new once: an eighth */
    fixture_free(fixture);
}

static void a_scan_does_not_push_out_what_is_used(void **state)
{
    struct fixture *fixture = fixture_new(1000, true);
    struct random random = {8};
    uint64_t misses = 0;

    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        for (unsigned i = 0; i < 800; i++)
            touch(fixture, random_below(&random, 600));
        fixture->misses = 0;
        for (unsigned i = 0; i < 500; i++)
            touch(fixture, 1000 + (round * 500 + i) % 7000);
        misses = fixture->misses;
    }
    fixture->misses = 0;
    for (unsigned i = 0; i < 800; i++)
        touch(fixture, random_below(&random, 600));
    assert_int_equal(misses, 500);
    assert_true(fixture->misses < 40);
    fixture_free(fixture);
}

/* ---- what always holds --------------------------------------------------------------------------------------------
 */

static void soft_faults_are_bounded_by_misses(void **state)
{
    struct fixture *fixture = fixture_new(1000, false);
    struct random random = {9};

    (void)state;
    for (unsigned i = 0; i < 200000; i++) /* hot pages in plenty, and misses all the time */
        touch(fixture, random_below(&random, 16) > 0 ? random_below(&random, 900) : random_below(&random, PAGES_MAX));
    assert_true(fixture->soft_faults > 0);
    assert_true(fixture->soft_faults <= fixture->misses + 1000);
    fixture_free(fixture);
}

/* Where pages are brought ahead and then touched in limbo, that does not buy further soft faults of other pages. */
static void touches_of_prefetched_pages_are_no_misses(void **state)
{
    struct fixture *fixture = fixture_new(1000, false);
    struct random random = {13};
    uint64_t brought = 0;

    (void)state;
    loop(fixture, 700, 2);
    fixture->soft_faults = 0;
    for (unsigned i = 0; i < 100000; i++) {
        uint32_t page = 1000 + i / 16 % 7000;

        if (i % 16 == 0 && fixture->frame_of[page] == UINT32_MAX) {
            page_in(fixture, page, true);
            brought++;
            touch(fixture, page);
        }
        touch(fixture, random_below(&random, 700));
    }
    assert_true(fixture->soft_faults <= 2 * brought + 1000); /* the page's own, and one for the frame it took */
    fixture_free(fixture);
}

static void prefetched_pages_leave_before_others(void **state)
{
    struct fixture *fixture = fixture_new(1024, true);

    (void)state;
    loop(fixture, 800, 3);
    fixture->misses = 0;
    for (uint32_t page = 2000; page < 6000; page++) {
        page_in(fixture, page, true);
        unmap(fixture, placement_unmap_wanted(fixture->placement, fixture->frames));
    }
    loop(fixture, 800, 1);
    assert_true(fixture->misses <= 32);
    fixture_free(fixture);
}

static void a_touched_prefetched_page_is_like_any_other(void **state)
{
    struct fixture *fixture = fixture_new(64, false);

    (void)state;
    page_in(fixture, 5, true);
    assert_int_equal(frames_count(fixture->frames, FRAME_COLD), 1);
    touch(fixture, 5);
    assert_int_equal(fixture->misses, 0);
    assert_int_equal(frames_count(fixture->frames, FRAME_COLD), 0);
    fixture_free(fixture);
}

static void one_page_and_the_smallest_memory(void **state)
{
    struct fixture *fixture = fixture_new(PLACEMENT_FRAMES_MIN, false);

    (void)state;
    for (unsigned i = 0; i < 1000; i++)
        touch(fixture, 3);
    assert_int_equal(fixture->misses, 1);
    loop(fixture, 100, 100);
    assert_true(fixture->misses > 100 && fixture->misses <= 1 + 100 * 100);
    assert_true(used(fixture) <= PLACEMENT_FRAMES_MIN);
    fixture_free(fixture);
}

static void memory_may_grow_and_shrink(void **state)
{
    struct fixture *fixture = fixture_new(2000, false);
    struct random random = {10};

    (void)state;
    for (unsigned round = 0; round < 40; round++) {
        fixture->budget = PLACEMENT_FRAMES_MIN + random_below(&random, FRAMES_MAX - PLACEMENT_FRAMES_MIN);
        placement_resize(fixture->placement, fixture->budget);
        for (unsigned i = 0; i < 5000; i++)
            touch(fixture, random_below(&random, PAGES_MAX));
        room_make(fixture);
        assert_true(used(fixture) < fixture->budget);
    }
    fixture_free(fixture);
}

/* Skewed use of more pages than ghosts could be remembered of, and scans. */
static void skewed_use(struct fixture *fixture)
{
    struct random random = {12};

    for (unsigned i = 0; i < 100000; i++) {
        uint32_t low = random_below(&random, 6000), high = random_below(&random, 6000);

        touch(fixture, i % 1000 < 900 ? (low * high / 6000) : 6000 + i % 2000);
    }
}

/* What is remembered goes by the budget, whatever the machine could give, and also after a change. */
static void the_size_of_the_table_changes_nothing(void **state)
{
    struct fixture *tight = fixture_new_of(500, 500, false), *roomy = fixture_new_of(500, FRAMES_MAX, false);
    struct fixture *shrunk = fixture_new_of(FRAMES_MAX, FRAMES_MAX, false);

    (void)state;
    shrunk->budget = 500;
    placement_resize(shrunk->placement, 500);
    skewed_use(tight);
    skewed_use(roomy);
    skewed_use(shrunk);
    assert_int_equal(tight->misses, roomy->misses);
    assert_int_equal(tight->soft_faults, roomy->soft_faults);
    assert_int_equal(tight->misses, shrunk->misses);
    fixture_free(tight);
    fixture_free(roomy);
    fixture_free(shrunk);
}

/* Everything a pager may do, in any order; frames that were chosen may stay. */
static void random_use_keeps_the_lists_whole(void **state)
{
    struct fixture *fixture = fixture_new(700, false);
    struct random random = {11};
    struct frame_id out[16];

    (void)state;
    for (unsigned i = 0; i < 300000; i++) {
        uint32_t page = random_below(&random, 1500);
        uint32_t index = fixture->frame_of[page];

        if (index == UINT32_MAX && random_below(&random, 4) == 0) {
            page_in(fixture, page, true);
        } else if (index != UINT32_MAX && random_below(&random, 64) == 0) {
            placement_forgotten(fixture->placement, fixture->frames, (struct frame_id){index});
            frames_put(fixture->frames, (struct frame_id){index});
            fixture->frame_of[page] = UINT32_MAX;
        } else {
            touch(fixture, page);
        }
        if (index != UINT32_MAX && frames_list(fixture->frames, (struct frame_id){index}) == FRAME_LIMBO &&
            random_below(&random, 16) == 0)
            placement_chilled(fixture->placement, fixture->frames, (struct frame_id){index});
        if (random_below(&random, 8) > 0)
            continue;
        unsigned count = placement_evict(fixture->placement, fixture->frames, out, random_below(&random, 16));
        for (unsigned k = 0; k < count; k++) {
            for (unsigned earlier = 0; earlier < k; earlier++)
                assert_int_not_equal(out[k].index, out[earlier].index);
            frames_push_tail(fixture->frames, out[k], random_below(&random, 2) ? FRAME_LIMBO : FRAME_MAPPED);
        }
    }
    assert_true(used(fixture) <= 700);
    fixture_free(fixture);
}

/* Not the page that came first, nor the one that was touched last. */
static void a_cold_page_leaves_next(void **state)
{
    struct fixture *fixture = fixture_new(700, false);
    uint32_t cold;

    (void)state;
    for (uint32_t page = 0; page < 300; page++)
        page_in(fixture, page, page % 8 == 0);
    while (frames_count(fixture->frames, FRAME_LIMBO) < 250)
        unmap(fixture, 64);
    for (cold = 40; frames_list(fixture->frames, (struct frame_id){fixture->frame_of[cold]}) != FRAME_LIMBO; cold++)
        ;
    placement_chilled(fixture->placement, fixture->frames, (struct frame_id){fixture->frame_of[cold]});
    assert_int_equal(evict(fixture, 1), 1);
    assert_int_equal(fixture->frame_of[cold], UINT32_MAX);
    assert_int_equal(evict(fixture, 64), 64); /* the lists are whole */
    assert_string_equal(placement_policy(fixture->placement), "arms");
    assert_true(strlen(placement_choice(fixture->placement)) > 0);
    fixture_free(fixture);
}

/* ---- bugs of a pager that are caught --------------------------------------------------------------------------------
 */

static void insert_twice(void *argument)
{
    struct fixture *fixture = argument;

    page_in(fixture, 1, false);
    placement_inserted(fixture->placement, fixture->frames, (struct frame_id){fixture->frame_of[1]}, false);
}

static void evict_unknown(void *argument)
{
    struct fixture *fixture = argument;
    struct frame_id frame = frames_take(fixture->frames, page_of(2));

    placement_evicted(fixture->placement, fixture->frames, frame);
}

static void put_without_telling(void *argument)
{
    struct fixture *fixture = argument;

    page_in(fixture, 1, false);
    frames_put(fixture->frames, (struct frame_id){fixture->frame_of[1]});
    page_in(fixture, 1, false);
}

static void bugs_of_the_pager_are_caught(void **state)
{
    struct fixture *fixture = fixture_new(64, false);

    (void)state;
    check_aborts(insert_twice, fixture);
    check_aborts(evict_unknown, fixture);
    check_aborts(put_without_telling, fixture);
    fixture_free(fixture);
}

static void metadata_is_bounded(void **state)
{
    const uint32_t frames = 1u << 26;
    uint64_t bytes = placement_bytes(&placement_arms, frames) - placement_bytes(&placement_arms, 1);

    (void)state;
    assert_true(bytes / frames <= 24 + 2 * 13);
    assert_true(placement_bytes(&placement_arms, PLACEMENT_FRAMES_MIN) < 640 * 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_larger_than_memory_is_kept_in_part),
        cmocka_unit_test(the_same_where_few_touches_are_seen),
        cmocka_unit_test(the_same_where_pages_leave_in_batches),
        cmocka_unit_test(a_moving_working_set_is_followed),
        cmocka_unit_test(a_scan_does_not_push_out_what_is_used),
        cmocka_unit_test(soft_faults_are_bounded_by_misses),
        cmocka_unit_test(touches_of_prefetched_pages_are_no_misses),
        cmocka_unit_test(prefetched_pages_leave_before_others),
        cmocka_unit_test(a_touched_prefetched_page_is_like_any_other),
        cmocka_unit_test(a_cold_page_leaves_next),
        cmocka_unit_test(one_page_and_the_smallest_memory),
        cmocka_unit_test(memory_may_grow_and_shrink),
        cmocka_unit_test(the_size_of_the_table_changes_nothing),
        cmocka_unit_test(random_use_keeps_the_lists_whole),
        cmocka_unit_test(bugs_of_the_pager_are_caught),
        cmocka_unit_test(metadata_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
