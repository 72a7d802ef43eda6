/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pager_ahead.c - pages that come before they are asked for: new ones behind those that were touched in order, and
 * pages from NVMe mapped so that a program which writes what it walks over does not fault on each of them.
 */
#include "tests/unit/runtime/pager_fixture.h"

#define PAGES ((size_t)24 << 8) /* 24 MiB, three times what fits */

struct walk {
    struct pager_fixture *fixture;
    size_t stride;
    bool is_write;
    _Atomic(bool) is_done;
};

/* Reads before it writes. */
__attribute__((no_sanitize("thread"))) static void *walk_run(void *argument)
{
    struct walk *walk = argument;

    for (size_t page = 0; page < PAGES; page += walk->stride) {
        uint8_t *bytes = pager_fixture_page(walk->fixture, page);

        ASSERT(bytes[0] == 0 || page_is_filled(bytes, page));
        if (walk->is_write)
            page_fill(bytes, page);
    }
    atomic_store(&walk->is_done, true);
    return NULL;
}

/* Returns how many faults it took. */
static uint64_t walk(struct pager_fixture *fixture, enum dsm_source source, size_t stride, bool is_write)
{
    struct walk walk = {.fixture = fixture, .stride = stride, .is_write = is_write};
    uint64_t before = pager_stats(fixture->pager)->faults[source].count;

    pager_fixture_run(fixture, walk_run, &walk, &walk.is_done);
    return pager_stats(fixture->pager)->faults[source].count - before;
}

static int ahead_open(void **state)
{
    static struct pager_fixture fixture;

    pager_fixture_open(&fixture, 8 * MIB, 0, 0, 96 * MIB);
    *state = &fixture;
    return 0;
}

static int ahead_close(void **state)
{
    assert_int_equal(pager_stats(((struct pager_fixture *)*state)->pager)->poisoned_pages, 0);
    pager_fixture_close(*state);
    return 0;
}

static void test_new_pages_in_order_come_together(void **state)
{
    assert_in_range(walk(*state, DSM_FROM_ZERO, 1, true), 1, PAGES / 8);
}

/* Nobody touches what lies between. */
static void test_scattered_new_pages_come_alone(void **state)
{
    struct pager_fixture *fixture = *state;

    walk(fixture, DSM_FROM_ZERO, 4, true);
    for (size_t page = 0; page < PAGES; page++)
        if (page % 4 != 0)
            assert_int_equal(page_where(table_touch(fixture->pages, page_of(PAGER_FIRST + page))), WHERE_NOWHERE);
}

static void test_walks_that_write_fault_seldom(void **state)
{
    walk(*state, DSM_FROM_DDR, 1, true);
    walk(*state, DSM_FROM_DDR, 1, true); /* it learns */
    assert_in_range(walk(*state, DSM_FROM_DDR, 1, true), 0, PAGES / 4);
}

/* What is only read is not written again. */
static void test_walks_that_read_keep_slots(void **state)
{
    struct pager_fixture *fixture = *state;
    uint64_t *written = &pager_stats(fixture->pager)->moves[DSM_TIER_DDR][DSM_TIER_NVME];
    uint64_t before;

    walk(fixture, DSM_FROM_DDR, 1, true);
    for (int i = 0; i < 3; i++)
        walk(fixture, DSM_FROM_DDR, 1, false);
    before = *written;
    walk(fixture, DSM_FROM_DDR, 1, false);
    assert_in_range(*written - before, 0, PAGES / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_new_pages_in_order_come_together, ahead_open, ahead_close),
        cmocka_unit_test_setup_teardown(test_scattered_new_pages_come_alone, ahead_open, ahead_close),
        cmocka_unit_test_setup_teardown(test_walks_that_write_fault_seldom, ahead_open, ahead_close),
        cmocka_unit_test_setup_teardown(test_walks_that_read_keep_slots, ahead_open, ahead_close),
    };

    require_userfaultfd();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
