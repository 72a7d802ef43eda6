/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ghosts.c - pages that were evicted: the newest are known, as many as was asked for.
 */
#include "tests/unit/tiers/check.h"
#include "tiers/ghosts.h"

#define GHOSTS_MAX 5000u

static struct ghosts *ghosts_new(uint64_t ghosts_max)
{
    size_t bytes = (ghosts_bytes(GHOSTS_MAX) + 63) / 64 * 64;
    struct ghosts *ghosts = aligned_alloc(64, bytes);

    assert_non_null(ghosts);
    memset(ghosts, 0, bytes);
    ghosts_init(ghosts, ghosts_max);
    return ghosts;
}

static uint64_t hash_of(uint32_t page)
{
    return page_hash(page_of(page));
}

static void put(struct ghosts *ghosts, uint32_t first, uint32_t count)
{
    for (uint32_t page = first; page < first + count; page++)
        ghosts_put(ghosts, hash_of(page), (struct ghost){.touched = page, .evicted = page + 1});
}

/* Takes them out. */
static uint32_t known(struct ghosts *ghosts, uint32_t first, uint32_t count)
{
    uint32_t found = 0;

    for (uint32_t page = first; page < first + count; page++) {
        struct ghost ghost;

        if (!ghosts_take(ghosts, hash_of(page), &ghost))
            continue;
        assert_int_equal(ghost.touched, page);
        assert_int_equal(ghost.evicted, page + 1);
        found++;
    }
    return found;
}

static void a_ghost_is_taken_once(void **state)
{
    struct ghosts *ghosts = ghosts_new(100);

    (void)state;
    assert_int_equal(known(ghosts, 0, 10), 0);
    put(ghosts, 0, 10);
    assert_int_equal(known(ghosts, 0, 10), 10);
    assert_int_equal(known(ghosts, 0, 10), 0);
    free(ghosts);
}

static void the_newest_stay(void **state)
{
    struct ghosts *ghosts = ghosts_new(1000);
    uint32_t newest;

    (void)state;
    put(ghosts, 0, 10000);
    newest = known(ghosts, 9500, 500);
    assert_in_range(newest, 400, 500);
    assert_in_range(newest + known(ghosts, 0, 9500), 900, 1005);
    free(ghosts);
}

static void another_size_holds_as_many(void **state)
{
    struct ghosts *ghosts = ghosts_new(1000);

    (void)state;
    put(ghosts, 0, 3000);
    ghosts_resize(ghosts, GHOSTS_MAX);
    put(ghosts, 10000, 20000);
    assert_in_range(known(ghosts, 0, 30000), 4500, GHOSTS_MAX + 5);
    ghosts_resize(ghosts, 200);
    put(ghosts, 30000, 3000);
    assert_in_range(known(ghosts, 30000, 3000), 170, 205);
    free(ghosts);
}

static void old_ones_are_swept(void **state)
{
    struct ghosts *ghosts = ghosts_new(1000);

    (void)state;
    put(ghosts, 0, 200);
    for (unsigned i = 0; i < 1000; i++)
        ghosts_sweep(ghosts, 200, 100);
    assert_int_equal(known(ghosts, 0, 100), 0);
    assert_int_equal(known(ghosts, 100, 100), 100);
    free(ghosts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ghost_is_taken_once),
        cmocka_unit_test(the_newest_stay),
        cmocka_unit_test(another_size_holds_as_many),
        cmocka_unit_test(old_ones_are_swept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
