/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_caches.c - the policies that ours are compared with: none beats Belady's, none misses more than every touch, and
 * each is good at what it was made for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "bench/replay/cache.h"

#define TOUCHES 60000u
#define PAGES   600u

static const char *const names[] = {"fifo", "lru",     "clock",          "lru-2", "arc",
                                    "lirs", "s3-fifo", "segmented-fifo", "arms"};

static uint32_t pages_touched[TOUCHES], next_touch[TOUCHES];

static void futures_fill(void)
{
    uint32_t last[PAGES];

    for (uint32_t page = 0; page < PAGES; page++)
        last[page] = NEVER_AGAIN;
    for (uint32_t i = TOUCHES; i > 0; i--) {
        next_touch[i - 1] = last[pages_touched[i - 1]];
        last[pages_touched[i - 1]] = i - 1;
    }
}

static uint64_t misses_of(const char *name, uint32_t frames)
{
    const struct cache_ops *ops = cache_find(name);
    struct pages *pages = pages_create();
    struct cache_config config = {.frames = frames, .pages_count = PAGES, .limbo_share = 1, .pages = pages};
    struct cache_counts counts = {0};
    void *cache;

    assert_non_null(ops);
    for (uint64_t page = 0; page < PAGES; page++)
        assert_int_equal(pages_number(pages, page_of(page * 7)), page);
    cache = ops->create(&config);
    assert_non_null(cache);
    for (uint32_t i = 0; i < TOUCHES; i++)
        ops->touch(cache, pages_touched[i], next_touch[i], &counts);
    ops->destroy(cache);
    pages_destroy(pages);
    assert_int_equal(counts.misses + counts.soft_faults, TOUCHES);
    return counts.misses;
}

static void mix_fill(uint64_t seed)
{
    struct random random = {seed};

    for (uint32_t i = 0; i < TOUCHES; i++)
        pages_touched[i] = i / 1000 % 3 == 0 ? i % PAGES : random_below(&random, 1 + random_below(&random, PAGES));
    futures_fill();
}

static void nothing_beats_the_future(void **state)
{
    static const uint32_t sizes[] = {16, 17, 60, 150, 400, 599, 600, 5000};

    (void)state;
    mix_fill(1);
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        uint64_t best = misses_of("belady", sizes[i]);

        for (size_t k = 0; k < ARRAY_COUNT(names); k++) {
            uint64_t misses = misses_of(names[k], sizes[i]);

            assert_true(misses >= best && misses < TOUCHES);
            if (sizes[i] >= PAGES)
                assert_int_equal(misses, PAGES);
        }
    }
}

/* A loop of 600 pages in 400 frames: LRU misses all, Belady's policy a good third. */
static void loops_are_for_lirs(void **state)
{
    uint64_t best;

    (void)state;
    for (uint32_t i = 0; i < TOUCHES; i++)
        pages_touched[i] = i % PAGES;
    futures_fill();
    best = misses_of("belady", 400);
    assert_true(best < TOUCHES * 35 / 100);
    assert_int_equal(misses_of("lru", 400), TOUCHES);
    assert_int_equal(misses_of("fifo", 400), TOUCHES);
    assert_int_equal(misses_of("segmented-fifo", 400), TOUCHES);
    assert_true(misses_of("lirs", 400) < best * 105 / 100);
    assert_true(misses_of("arms", 400) < best * 120 / 100);
}

/* Where all touches are seen, segmented FIFO is LRU. */
static void segmented_fifo_is_lru_where_all_is_seen(void **state)
{
    (void)state;
    mix_fill(2);
    assert_int_equal(misses_of("segmented-fifo", 100), misses_of("lru", 100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_beats_the_future),
        cmocka_unit_test(loops_are_for_lirs),
        cmocka_unit_test(segmented_fifo_is_lru_where_all_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
