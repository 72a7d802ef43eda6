/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"
#include "mmu/table.h"

struct entry {
    _Atomic(uint64_t) words[2];
};

static void test_untouched_and_outside_pages_have_no_entry(void **state)
{
    struct table *table;

    (void)state;
    ok(table_create(10 * EXTENT_PAGES, sizeof(struct entry), &table));
    assert_null(table_find(table, page_of(0)));
    assert_null(table_find(table, page_of(10 * EXTENT_PAGES)));
    assert_null(table_touch(table, page_of(10 * EXTENT_PAGES)));
    assert_null(table_find(table, PAGE_NONE));
    assert_int_equal(table_extents(table), 0);
    table_destroy(table);
    table_destroy(NULL);
}

static void test_touch_brings_one_extent_of_zeroes(void **state)
{
    struct table *table;
    struct entry *entry;
    uint64_t empty;

    (void)state;
    ok(table_create(10 * EXTENT_PAGES, sizeof(struct entry), &table));
    empty = table_bytes(table);
    entry = table_touch(table, page_of(EXTENT_PAGES + 3));
    assert_non_null(entry);
    assert_int_equal(entry->words[0], 0);
    entry->words[0] = 42;
    assert_ptr_equal(table_find(table, page_of(EXTENT_PAGES + 3)), entry);
    assert_ptr_equal(table_touch(table, page_of(EXTENT_PAGES + 4)), entry + 1);
    assert_non_null(table_find(table, page_of(2 * EXTENT_PAGES - 1)));
    assert_null(table_find(table, page_of(EXTENT_PAGES - 1)));
    assert_null(table_find(table, page_of(2 * EXTENT_PAGES)));
    assert_int_equal(table_extents(table), 1);
    /* 16 bytes a page of 4096, and hardly more. */
    assert_in_range(table_bytes(table) - empty, 16 * EXTENT_PAGES, 16 * EXTENT_PAGES + 64);
    table_destroy(table);
}

static void test_forgotten_extent_comes_back_as_zeroes(void **state)
{
    struct table *table;
    struct entry *entry, *other;

    (void)state;
    ok(table_create(10 * EXTENT_PAGES, sizeof(struct entry), &table));
    entry = table_touch(table, page_of(0));
    other = table_touch(table, page_of(EXTENT_PAGES));
    entry->words[1] = 1;
    other->words[1] = 2;
    table_forget(table, page_of(EXTENT_PAGES - 1));
    table_forget(table, page_of(5 * EXTENT_PAGES)); /* untouched: nothing happens */
    assert_null(table_find(table, page_of(0)));
    assert_int_equal(entry->words[1], 0); /* a late reader finds zeroes, not a crash */
    assert_int_equal(other->words[1], 2);
    assert_int_equal(table_extents(table), 1);
    entry = table_touch(table, page_of(0));
    assert_int_equal(entry->words[1], 0);
    table_destroy(table);
}

static void test_odd_sizes_do_not_overlap(void **state)
{
    static const size_t sizes[] = {1, 4, 24, 100};

    (void)state;
    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
        struct table *table;

        ok(table_create(3 * EXTENT_PAGES - 5, sizes[s], &table));
        for (uint64_t i = 0; i < 3 * EXTENT_PAGES - 5; i++)
            memset(table_touch(table, page_of(i)), (int)(i % 251), sizes[s]);
        for (uint64_t i = 0; i < 3 * EXTENT_PAGES - 5; i++) {
            const uint8_t *entry = table_find(table, page_of(i));

            assert_int_equal(entry[0], i % 251);
            assert_int_equal(entry[sizes[s] - 1], i % 251);
        }
        assert_int_equal(table_extents(table), 3);
        table_destroy(table);
    }
}

struct visits {
    uint64_t firsts[8];
    unsigned count;
};

static void record_visit(void *context, struct page_id first, void *entries)
{
    struct visits *visits = context;
    struct entry *entry = entries;

    ASSERT(visits->count < ARRAY_COUNT(visits->firsts) && entry[1].words[0] == first.index + 1);
    visits->firsts[visits->count++] = first.index;
}

static void test_visit_sees_touched_extents_in_order(void **state)
{
    static const uint64_t extents[] = {900, 3, 77};
    struct visits visits = {0};
    struct table *table;

    (void)state;
    ok(table_create(1000 * EXTENT_PAGES, sizeof(struct entry), &table));
    for (size_t i = 0; i < ARRAY_COUNT(extents); i++) {
        struct page_id page = page_of(extents[i] * EXTENT_PAGES + 1);
        struct entry *entry = table_touch(table, page);

        entry->words[0] = page.index;
    }
    table_visit(table, record_visit, &visits);
    assert_int_equal(visits.count, 3);
    assert_int_equal(visits.firsts[0], 3 * EXTENT_PAGES);
    assert_int_equal(visits.firsts[1], 77 * EXTENT_PAGES);
    assert_int_equal(visits.firsts[2], 900 * EXTENT_PAGES);
    table_destroy(table);
}

static void test_table_of_a_huge_window_is_only_reserved(void **state)
{
    struct table *table;

    (void)state;
    ok(table_create((uint64_t)1 << 32, 16, &table)); /* 16 TiB of pages */
    assert_non_null(table_touch(table, page_of(((uint64_t)1 << 32) - 1)));
    assert_in_range(table_bytes(table), 16 * EXTENT_PAGES, 16 * EXTENT_PAGES + 4096);
    table_destroy(table);
}

struct searcher {
    pthread_t thread;
    struct table *table;
    _Atomic(bool) *stop;
    uint64_t found;
};

/* Whatever the shard does, an entry reads as zero or as its own page's number. */
static void *search(void *argument)
{
    struct searcher *searcher = argument;

    for (uint64_t i = 0; !atomic_load(searcher->stop); i = (i + 17) % (4 * EXTENT_PAGES)) {
        struct entry *entry = table_find(searcher->table, page_of(i));
        uint64_t word = entry == NULL ? 0 : atomic_load(&entry->words[0]);

        ASSERT(word == 0 || word == i + 1);
        searcher->found += word != 0;
    }
    return NULL;
}

static void test_find_runs_beside_touch_and_forget(void **state)
{
    struct searcher searchers[2];
    _Atomic(bool) stop = false;
    struct table *table;

    (void)state;
    ok(table_create(4 * EXTENT_PAGES, sizeof(struct entry), &table));
    for (unsigned i = 0; i < 2; i++) {
        searchers[i] = (struct searcher){.table = table, .stop = &stop};
        ok(os_thread_start(&searchers[i].thread, "search", search, &searchers[i]));
    }
    for (unsigned round = 0; round < 200; round++) {
        for (uint64_t i = 0; i < 4 * EXTENT_PAGES; i++) {
            struct entry *entry = table_touch(table, page_of(i));

            atomic_store(&entry->words[0], i + 1);
        }
        if (round < 199)
            table_forget(table, page_of(round % 4 * EXTENT_PAGES));
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(searchers[i].thread, NULL);
    assert_int_equal(table_extents(table), 4);
    table_destroy(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_untouched_and_outside_pages_have_no_entry),
        cmocka_unit_test(test_touch_brings_one_extent_of_zeroes),
        cmocka_unit_test(test_forgotten_extent_comes_back_as_zeroes),
        cmocka_unit_test(test_odd_sizes_do_not_overlap),
        cmocka_unit_test(test_visit_sees_touched_extents_in_order),
        cmocka_unit_test(test_table_of_a_huge_window_is_only_reserved),
        cmocka_unit_test(test_find_runs_beside_touch_and_forget),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
