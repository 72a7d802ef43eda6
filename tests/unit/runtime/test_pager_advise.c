/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pager_advise.c - what the application says of its pages is followed.
 */
#include "tests/unit/runtime/pager_fixture.h"

#define PAGES ((size_t)24 << 8) /* 24 MiB, three times what fits */

struct range {
    struct pager_fixture *fixture;
    size_t first, count;
    bool is_write;
    _Atomic(bool) is_done;
};

__attribute__((no_sanitize("thread"))) static void *range_run(void *argument)
{
    struct range *range = argument;

    for (size_t page = range->first; page < range->first + range->count; page++) {
        uint8_t *bytes = pager_fixture_page(range->fixture, page);

        if (range->is_write)
            page_fill(bytes, page);
        else
            ASSERT(page_is_filled(bytes, page));
    }
    atomic_store(&range->is_done, true);
    return NULL;
}

static void walk(struct pager_fixture *fixture, size_t first, size_t count, bool is_write)
{
    struct range range = {.fixture = fixture, .first = first, .count = count, .is_write = is_write};

    pager_fixture_run(fixture, range_run, &range, &range.is_done);
}

static int advise_open(void **state)
{
    static struct pager_fixture fixture;

    pager_fixture_open(&fixture, 8 * MIB, 0, 0, 96 * MIB);
    walk(&fixture, 0, PAGES, true);
    *state = &fixture;
    return 0;
}

static int advise_close(void **state)
{
    struct pager_fixture *fixture = *state;

    walk(fixture, 0, PAGES, false); /* nothing was lost */
    assert_int_equal(pager_stats(fixture->pager)->poisoned_pages, 0);
    pager_fixture_close(fixture);
    return 0;
}

static void advise(struct pager_fixture *fixture, size_t first, size_t count, enum dsm_advice advice)
{
    assert_int_equal(pager_advise(fixture->pager, page_of(PAGER_FIRST + first), count, advice), 0);
}

static size_t in_memory(const struct pager_fixture *fixture, size_t first, size_t count)
{
    size_t result = 0;

    for (size_t i = first; i < first + count; i++)
        result += page_is_in_memory(table_touch(fixture->pages, page_of(PAGER_FIRST + i)));
    return result;
}

/* The first of 16 pages that are not in memory. */
static size_t absent_from(const struct pager_fixture *fixture, size_t page)
{
    while (in_memory(fixture, page, 16) > 0)
        page++;
    return page;
}

static uint64_t ahead_of(struct pager_fixture *fixture, size_t first, size_t count)
{
    uint64_t before = pager_stats(fixture->pager)->prefetched_pages;

    walk(fixture, first, count, false);
    return pager_stats(fixture->pager)->prefetched_pages - before;
}

static void settle(struct pager_fixture *fixture)
{
    for (int i = 0; i < 20 || pager_is_transferring(fixture->pager); i++)
        pager_fixture_turn(fixture);
}

static void test_random_memory_is_not_read_ahead(void **state)
{
    advise(*state, 0, PAGES, DSM_ADVISE_RANDOM);
    assert_int_equal(ahead_of(*state, 0, 256), 0);
    advise(*state, 256, 256, DSM_ADVISE_NORMAL);
    assert_true(ahead_of(*state, 256, 256) > 100);
}

static void test_needed_pages_come(void **state)
{
    struct pager_fixture *fixture = *state;

    assert_in_range(in_memory(fixture, 0, 200), 0, 200);
    advise(fixture, 0, 200, DSM_ADVISE_WILL_NEED);
    for (int i = 0; i < 300 && in_memory(fixture, 0, 200) < 200; i++)
        pager_fixture_turn(fixture);
    assert_int_equal(in_memory(fixture, 0, 200), 200);
}

/* No more than an eighth of what fits, however much is asked for. */
static void test_needs_are_bounded(void **state)
{
    struct pager_fixture *fixture = *state;
    uint64_t before = pager_stats(fixture->pager)->prefetched_pages;

    advise(fixture, 0, PAGES, DSM_ADVISE_WILL_NEED);
    settle(fixture);
    assert_in_range(pager_stats(fixture->pager)->prefetched_pages - before, 128, 256);
}

static void test_cold_pages_leave_first(void **state)
{
    struct pager_fixture *fixture = *state;
    size_t older;

    walk(fixture, 0, 1024, false);
    settle(fixture);
    older = in_memory(fixture, 0, 900);
    assert_true(older > 200 && in_memory(fixture, 900, 64) == 64);
    advise(fixture, 900, 64, DSM_ADVISE_COLD);
    assert_int_equal(in_memory(fixture, 900, 64), 64); /* until their room is wanted */
    for (size_t page = 2000; in_memory(fixture, 900, 64) > 0; page += 16)
        walk(fixture, page, 16, false);
    assert_true(in_memory(fixture, 0, 900) + 2 * PAGER_BATCH >= older);
}

/* The second range lies far behind the first; nothing but the order leads there. */
static void test_walks_are_followed(void **state)
{
    struct pager_fixture *fixture = *state;

    size_t first = absent_from(fixture, 0);
    size_t second = absent_from(fixture, first + 1000);

    advise(fixture, first, 8, DSM_ADVISE_WALK);
    advise(fixture, second, 8, DSM_ADVISE_WALK);
    settle(fixture);
    walk(fixture, first, 1, false);
    settle(fixture);
    assert_true(in_memory(fixture, second, 8) >= 7); /* one may wait in a buffer for its touch */
    assert_int_equal(in_memory(fixture, second + 8, 8), 0);
    pager_advice_forget(fixture->pager, page_of(PAGER_FIRST), PAGES);
}

static void test_freed_pages_are_forgotten(void **state)
{
    struct pager_fixture *fixture = *state;

    advise(fixture, 0, PAGES, DSM_ADVISE_RANDOM);
    pager_advice_forget(fixture->pager, page_of(PAGER_FIRST), 1024);
    assert_true(ahead_of(fixture, 0, 256) > 100);
    assert_int_equal(ahead_of(fixture, 2000, 256), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_memory_is_not_read_ahead, advise_open, advise_close),
        cmocka_unit_test_setup_teardown(test_needed_pages_come, advise_open, advise_close),
        cmocka_unit_test_setup_teardown(test_needs_are_bounded, advise_open, advise_close),
        cmocka_unit_test_setup_teardown(test_cold_pages_leave_first, advise_open, advise_close),
        cmocka_unit_test_setup_teardown(test_walks_are_followed, advise_open, advise_close),
        cmocka_unit_test_setup_teardown(test_freed_pages_are_forgotten, advise_open, advise_close),
    };

    require_userfaultfd();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
