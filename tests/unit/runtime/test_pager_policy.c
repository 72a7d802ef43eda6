/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pager_policy.c - what the pager tells the policy: pages that leave may come back, pages that are freed do not.
 */
#include "tests/unit/runtime/pager_fixture.h"

#define BUDGET_PAGES 128u

static unsigned evicted_count, forgotten_count;

static void evicted(struct placement *placement, const struct frames *frames, struct frame_id frame)
{
    (void)placement;
    ASSERT(frames_page(frames, frame).index < EXTENT_PAGES); /* the frame still holds its page */
    evicted_count++;
}

static void forgotten(struct placement *placement, const struct frames *frames, struct frame_id frame)
{
    (void)placement;
    ASSERT(frames_page(frames, frame).index < EXTENT_PAGES);
    forgotten_count++;
}

static bool yes(void *context, struct page_id page)
{
    (void)context;
    (void)page;
    return true;
}

/* As the protocol does it. */
static bool drop(void *context, struct page_id page)
{
    pager_drop(*(struct pager **)context, page);
    return true;
}

/* Copies of what other nodes have too. There is no tier below: they are dropped when memory gets short. */
static void copies_leave(bool (*forget)(void *context, struct page_id page))
{
    static const char bytes[PAGE_BYTES];
    struct placement_ops spy = placement_segmented_fifo;
    struct pager_fixture fixture;
    const struct pager_user user = {.context = &fixture.pager, .forget_copy = forget, .has_other_copy = yes};
    unsigned resident;

    evicted_count = forgotten_count = 0;
    spy.evicted = evicted;
    spy.forgotten = forgotten;
    pager_fixture_open_with(&fixture, BUDGET_PAGES * PAGE_BYTES, 0, 0, 0, &spy, &user);
    for (uint64_t page = 0; page < EXTENT_PAGES; page++) {
        pager_install(fixture.pager, page_of(page), ACCESS_READ, bytes);
        pager_balance(fixture.pager);
    }
    resident = (unsigned)EXTENT_PAGES - evicted_count;
    assert_true(resident <= BUDGET_PAGES);
    assert_int_equal(pager_stats(fixture.pager)->dropped_pages, evicted_count);
    assert_int_equal(forgotten_count, 0);
    for (uint64_t page = 0; page < EXTENT_PAGES; page++)
        pager_drop(fixture.pager, page_of(page));
    assert_int_equal(forgotten_count, resident);
    pager_fixture_close(&fixture);
}

static void copies_that_are_dropped_have_been_evicted(void **state)
{
    (void)state;
    copies_leave(yes);
    copies_leave(drop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_that_are_dropped_have_been_evicted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
