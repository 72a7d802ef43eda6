/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pager_private_limbo.c - private pages out of sight: a touch brings them back from memory, not from the disk, and
 * nothing is lost on either way out of limbo.
 */
#include "tests/unit/runtime/pager_fixture.h"

#define DDR_BYTES (8 * MIB)
#define PAGES     ((size_t)12 << 8) /* 12 MiB */

struct touch {
    struct pager_fixture *fixture;
    size_t first, count;
    bool is_write;
    _Atomic(bool) is_done;
};

static struct page_entry *entry_at(struct pager_fixture *fixture, size_t page)
{
    return table_touch(fixture->pages, page_of(PAGER_FIRST + page));
}

__attribute__((no_sanitize("thread"))) static void *touch_run(void *argument)
{
    struct touch *touch = argument;

    for (size_t page = touch->first; page < touch->first + touch->count; page++) {
        if (touch->is_write)
            page_fill(pager_fixture_page(touch->fixture, page), page);
        else
            ASSERT(page_is_filled(pager_fixture_page(touch->fixture, page), page));
    }
    atomic_store(&touch->is_done, true);
    return NULL;
}

static void touch_all(struct pager_fixture *fixture, size_t first, size_t count, bool is_write)
{
    struct touch touch = {.fixture = fixture, .first = first, .count = count, .is_write = is_write};

    pager_fixture_run(fixture, touch_run, &touch, &touch.is_done);
}

/* A page in limbo with (or without) a clean copy on NVMe. */
static size_t find(struct pager_fixture *fixture, bool is_clean)
{
    for (size_t page = 0; page < PAGES; page++)
        if (page_where(entry_at(fixture, page)) == WHERE_LIMBO &&
            page_has(entry_at(fixture, page), WORD_CLEAN) == is_clean)
            return page;
    fail_msg("no page is in limbo");
    return 0;
}

/* Written once, more than fits: the oldest have left, those behind them are in limbo. */
static int open_filled(void **state)
{
    static struct pager_fixture fixture;

    pager_fixture_open(&fixture, DDR_BYTES, 0, 0, 64 * MIB);
    *state = &fixture;
    if (!fixture.features.has_move)
        return 0;
    touch_all(&fixture, 0, PAGES, true);
    return 0;
}

static int close_filled(void **state)
{
    pager_fixture_close(*state);
    return 0;
}

static struct pager_fixture *need_move(void **state)
{
    struct pager_fixture *fixture = *state;

    if (!fixture->features.has_move)
        skip();
    return fixture;
}

static uint64_t reads(struct pager_fixture *fixture)
{
    return pager_stats(fixture->pager)->moves[DSM_TIER_NVME][DSM_TIER_DDR];
}

static void test_touch_in_limbo_reads_nothing(void **state)
{
    struct pager_fixture *fixture = need_move(state);

    for (int i = 0; i < 50; i++) {
        size_t page = find(fixture, false);
        uint64_t before = reads(fixture);

        touch_all(fixture, page, 1, i % 2 == 0);
        assert_int_equal(reads(fixture), before);
        assert_int_equal(page_where(entry_at(fixture, page)), WHERE_MAPPED);
        assert_true(page_has(entry_at(fixture, page), WORD_WRITABLE));
    }
    assert_true(histogram_summary(&pager_stats(fixture->pager)->faults[DSM_FROM_DDR]).count >= 50);
    touch_all(fixture, 0, PAGES, false);
}

/* A page that was only read keeps its slot on NVMe; one that is written loses it. */
static void test_clean_pages_stay_clean_until_written(void **state)
{
    struct pager_fixture *fixture = need_move(state);
    size_t page;

    touch_all(fixture, 0, PAGES, false);
    page = find(fixture, true);
    touch_all(fixture, page, 1, false);
    assert_int_equal(page_where(entry_at(fixture, page)), WHERE_MAPPED);
    assert_true(page_has(entry_at(fixture, page), WORD_CLEAN));
    assert_false(page_has(entry_at(fixture, page), WORD_WRITABLE));

    page = find(fixture, true);
    touch_all(fixture, page, 1, true);
    assert_false(page_has(entry_at(fixture, page), WORD_CLEAN));
    touch_all(fixture, page + 1 < PAGES ? page + 1 : 0, 1, true); /* mapped clean, or elsewhere: whatever it is */
    touch_all(fixture, 0, PAGES, false);
}

/* Pages that the program gives up in limbo read as zeroes, and their places are used again. */
static void test_pages_given_up_in_limbo_are_gone(void **state)
{
    struct pager_fixture *fixture = need_move(state);

    for (int i = 0; i < 20; i++) {
        size_t page = find(fixture, false);
        struct page_id id = page_of(PAGER_FIRST + page);

        pager_private_forget(fixture->pager, id, 1);
        ok(mmu_drop(fixture->mmu, id, 1));
        assert_int_equal(page_where(entry_at(fixture, page)), WHERE_NOWHERE);
        touch_all(fixture, page, 1, true);
    }
    for (int round = 0; round < 4; round++) {
        touch_all(fixture, 0, PAGES, round % 2 == 0);
        touch_all(fixture, PAGES / 2, 400, false);
    }
    touch_all(fixture, 0, PAGES, false);
    assert_int_equal(pager_stats(fixture->pager)->poisoned_pages, 0);
}

/* Kept pages (mlock) leave limbo too. */
static void test_pages_kept_in_limbo_are_mapped(void **state)
{
    struct pager_fixture *fixture = need_move(state);
    size_t page = find(fixture, false);
    int error;

    while ((error = pager_private_keep(fixture->pager, page_of(PAGER_FIRST + page), 1)) == -EAGAIN)
        pager_fixture_turn(fixture);
    assert_int_equal(error, 0);
    assert_true(page_is_filled(pager_fixture_page(fixture, page), page)); /* by the shard itself: it must not fault */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_touch_in_limbo_reads_nothing, open_filled, close_filled),
        cmocka_unit_test_setup_teardown(test_clean_pages_stay_clean_until_written, open_filled, close_filled),
        cmocka_unit_test_setup_teardown(test_pages_given_up_in_limbo_are_gone, open_filled, close_filled),
        cmocka_unit_test_setup_teardown(test_pages_kept_in_limbo_are_mapped, open_filled, close_filled),
    };

    require_userfaultfd();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
