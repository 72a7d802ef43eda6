/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_map.c - each test runs with every feature of the kernel and again without CONTINUE's write protection.
 */
#include "fixture.h"
#include "mmu/uapi.h"

#define RUN 16U

static uint8_t source[RUN * PAGE_BYTES];

static void fill_source(uint64_t first)
{
    for (uint64_t i = 0; i < RUN; i++)
        page_fill(source + i * PAGE_BYTES, first + i);
}

static bool run_is_filled(struct fixture *fixture, uint64_t first)
{
    for (uint64_t i = first; i < first + RUN; i++)
        if (!page_is_filled(page_bytes(fixture, i), i))
            return false;
    return true;
}

static int open_all(void **state)
{
    static struct fixture fixture;
    struct mmu_switches none = {0};

    fixture_open(&fixture, &none);
    ok(mmu_register(fixture.mmu, page_of(PRIVATE_FIRST), EXTENT_PAGES));
    *state = &fixture;
    return 0;
}

static int open_without_continue_wp(void **state)
{
    static struct fixture fixture;
    struct mmu_switches switches = {.no_continue_wp = true};

    fixture_open(&fixture, &switches);
    ok(mmu_register(fixture.mmu, page_of(PRIVATE_FIRST), EXTENT_PAGES));
    *state = &fixture;
    return 0;
}

static int close_fixture(void **state)
{
    fixture_close(*state);
    return 0;
}

static void test_copy_fills_a_run(void **state)
{
    struct fixture *fixture = *state;
    uint64_t firsts[] = {32, PRIVATE_FIRST + 32};

    for (size_t i = 0; i < ARRAY_COUNT(firsts); i++) {
        fill_source(firsts[i]);
        ok(mmu_copy(fixture->mmu, page_of(firsts[i]), RUN, source, true));
        assert_true(run_is_filled(fixture, firsts[i]));
        assert_false(store_faults(fixture, firsts[i] + 3, 1));
    }
}

static void test_protected_copy_faults_once_on_a_store(void **state)
{
    struct fixture *fixture = *state;
    uint64_t firsts[] = {32, PRIVATE_FIRST + 32};

    for (size_t i = 0; i < ARRAY_COUNT(firsts); i++) {
        fill_source(firsts[i]);
        ok(mmu_copy(fixture->mmu, page_of(firsts[i]), RUN, source, false));
        assert_true(run_is_filled(fixture, firsts[i]));
        assert_true(store_faults(fixture, firsts[i] + 3, 1));
        assert_false(store_faults(fixture, firsts[i] + 3, 2));
        assert_true(store_faults(fixture, firsts[i] + 4, 1));
    }
}

static void test_pages_that_are_there_keep_their_bytes(void **state)
{
    struct fixture *fixture = *state;
    uint64_t firsts[] = {32, PRIVATE_FIRST + 32};

    for (size_t i = 0; i < ARRAY_COUNT(firsts); i++) {
        uint64_t first = firsts[i];

        ok(mmu_zero(fixture->mmu, page_of(first), 1, true));
        ok(mmu_zero(fixture->mmu, page_of(first + 7), 2, true));
        ok(mmu_zero(fixture->mmu, page_of(first + RUN - 1), 1, true));
        *page_bytes(fixture, first + 7) = 99;
        fill_source(first);
        ok(mmu_copy(fixture->mmu, page_of(first), RUN, source, true));
        for (uint64_t page = first; page < first + RUN; page++) {
            bool was_there = page == first || page == first + 7 || page == first + 8 || page == first + RUN - 1;

            assert_int_equal(page_is_filled(page_bytes(fixture, page), page), !was_there);
        }
        assert_int_equal(*page_bytes(fixture, first + 7), 99);
    }
}

static void test_thread_at_a_page_that_is_there_is_woken(void **state)
{
    struct fixture *fixture = *state;
    struct toucher toucher;

    toucher_start(&toucher, page_bytes(fixture, 40), false, 0);
    assert_int_equal(fault_wait(fixture).page.index, 40);
    /* The memfd gets the page meanwhile: the kernel then refuses the copy and wakes nobody. */
    ok(mmu_shared_write(&fixture->window, page_of(40), 0, "\7", 1));
    fill_source(40);
    ok(mmu_copy(fixture->mmu, page_of(40), RUN, source, true));
    assert_int_equal(toucher_join(&toucher), 0);
    assert_true(run_is_filled(fixture, 40));
}

/* The page came without a wake (a copy that races with the thread's fault): who finds it there wakes. */
static void test_whoever_finds_a_page_there_wakes_its_thread(void **state)
{
    struct fixture *fixture = *state;
    uint64_t pages[] = {40, PRIVATE_FIRST + 40};

    for (size_t i = 0; i < ARRAY_COUNT(pages); i++) {
        struct uffdio_copy copy = {.dst = (uint64_t)(uintptr_t)page_bytes(fixture, pages[i]),
                                   .src = (uint64_t)(uintptr_t)source,
                                   .len = PAGE_BYTES,
                                   .mode = UFFDIO_COPY_MODE_DONTWAKE};
        struct toucher toucher;

        fill_source(pages[i]);
        toucher_start(&toucher, page_bytes(fixture, pages[i]), false, 0);
        assert_int_equal(fault_wait(fixture).page.index, pages[i]);
        assert_int_equal(ioctl(mmu_descriptor(fixture->mmu), UFFDIO_COPY, &copy), 0);
        usleep(2000);
        assert_false(atomic_load(&toucher.is_done));
        if (i == 0)
            ok(mmu_continue(fixture->mmu, page_of(pages[i]), 1, true));
        else
            ok(mmu_copy(fixture->mmu, page_of(pages[i]), 1, source, true));
        assert_int_equal(toucher_join(&toucher), 0);
    }
}

static void test_copy_replaces_old_bytes_of_unmapped_pages(void **state)
{
    struct fixture *fixture = *state;

    for (unsigned writable = 0; writable < 2; writable++) {
        uint64_t first = 64 + writable * RUN;

        ok(mmu_zero(fixture->mmu, page_of(first), RUN, true));
        ok(mmu_zap(fixture->mmu, page_of(first + 2), 5));
        fill_source(first);
        ok(mmu_copy(fixture->mmu, page_of(first), RUN, source, writable));
        for (uint64_t page = first; page < first + RUN; page++)
            assert_int_equal(page_is_filled(page_bytes(fixture, page), page), page >= first + 2 && page < first + 7);
        assert_int_equal(store_faults(fixture, first + 3, 1), !writable);
    }
}

static void test_zero_gives_real_pages(void **state)
{
    struct fixture *fixture = *state;
    static const uint8_t zeroes[PAGE_BYTES];
    uint64_t firsts[] = {0, PRIVATE_FIRST};

    for (size_t i = 0; i < ARRAY_COUNT(firsts); i++) {
        for (unsigned writable = 0; writable < 2; writable++) {
            uint64_t first = firsts[i] + 200 * writable;

            ok(mmu_zero(fixture->mmu, page_of(first), 150, writable));
            for (uint64_t page = first; page < first + 150; page++)
                assert_memory_equal(page_bytes(fixture, page), zeroes, PAGE_BYTES);
            assert_int_equal(store_faults(fixture, first + 149, 1), !writable);
            assert_int_equal(*page_bytes(fixture, first + 149), 1);
        }
    }
}

static void test_continue_maps_what_the_memfd_has(void **state)
{
    struct fixture *fixture = *state;

    for (unsigned writable = 0; writable < 2; writable++) {
        uint64_t first = 100 + RUN * writable;

        fill_source(first);
        ok(mmu_shared_write(&fixture->window, page_of(first), 0, source, sizeof(source)));
        ok(mmu_continue(fixture->mmu, page_of(first + 4), 2, true)); /* two are mapped already */
        ok(mmu_continue(fixture->mmu, page_of(first), RUN, writable));
        assert_true(run_is_filled(fixture, first));
        assert_int_equal(store_faults(fixture, first, 1), !writable);
        assert_false(store_faults(fixture, first + 4, 1));
        assert_int_equal(store_faults(fixture, first + RUN - 1, 1), !writable);
    }
}

static void test_continue_of_an_absent_page_fails(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(mmu_continue(fixture->mmu, page_of(300), 1, true), -EFAULT);
    assert_non_null(strstr(error_text(), "map page 0x12c"));
}

static void test_protect_and_unprotect_a_run(void **state)
{
    struct fixture *fixture = *state;
    uint64_t firsts[] = {32, PRIVATE_FIRST + 32};

    for (size_t i = 0; i < ARRAY_COUNT(firsts); i++) {
        ok(mmu_zero(fixture->mmu, page_of(firsts[i]), RUN, true));
        ok(mmu_protect(fixture->mmu, page_of(firsts[i]), RUN, false));
        assert_true(store_faults(fixture, firsts[i] + 1, 1));
        ok(mmu_protect(fixture->mmu, page_of(firsts[i]), RUN, true));
        assert_false(store_faults(fixture, firsts[i] + 2, 1));
    }
}

static void test_protection_does_not_survive_zap(void **state)
{
    struct fixture *fixture = *state;
    struct toucher toucher;

    fill_source(32);
    ok(mmu_copy(fixture->mmu, page_of(32), RUN, source, false));
    ok(mmu_zap(fixture->mmu, page_of(32), RUN));
    /* The mark left behind does not turn the fault into a WP fault. */
    toucher_start(&toucher, page_bytes(fixture, 32), true, 1);
    assert_int_equal(fault_wait(fixture).kind, MMU_FAULT_MINOR);
    ok(mmu_continue(fixture->mmu, page_of(32), RUN, true));
    assert_int_equal(toucher_join(&toucher), 0);
    for (uint64_t page = 32; page < 32 + RUN; page++)
        assert_false(store_faults(fixture, page, 1));
}

static void test_protection_does_not_survive_free(void **state)
{
    struct fixture *fixture = *state;
    struct toucher toucher;

    fill_source(32);
    ok(mmu_copy(fixture->mmu, page_of(32), RUN, source, false));
    ok(mmu_free(fixture->mmu, page_of(32), RUN));
    toucher_start(&toucher, page_bytes(fixture, 32), true, 1);
    assert_int_equal(fault_wait(fixture).kind, MMU_FAULT_MISSING);
    ok(mmu_copy(fixture->mmu, page_of(32), RUN, source, true));
    assert_int_equal(toucher_join(&toucher), 0);
    for (uint64_t page = 32; page < 32 + RUN; page++)
        assert_false(store_faults(fixture, page, 1));
}

static void test_freed_pages_leave_the_memfd(void **state)
{
    struct fixture *fixture = *state;
    uint8_t byte = 1;

    fill_source(32);
    ok(mmu_copy(fixture->mmu, page_of(32), RUN, source, true));
    assert_int_equal(lseek(fixture->window.memfd, 0, SEEK_DATA), 32 * PAGE_BYTES);
    ok(mmu_zap(fixture->mmu, page_of(32), RUN / 2)); /* mapped and unmapped pages alike */
    ok(mmu_free(fixture->mmu, page_of(32), RUN));
    assert_int_equal(lseek(fixture->window.memfd, 0, SEEK_DATA), -1);
    ok(mmu_shared_read(&fixture->window, page_of(33), 0, &byte, 1));
    assert_int_equal(byte, 0);
}

static void test_dropped_page_is_missing(void **state)
{
    struct fixture *fixture = *state;
    struct toucher toucher;
    uint64_t first = PRIVATE_FIRST + 32;

    fill_source(first);
    ok(mmu_copy(fixture->mmu, page_of(first), RUN, source, false));
    ok(mmu_drop(fixture->mmu, page_of(first), RUN));
    toucher_start(&toucher, page_bytes(fixture, first + 1), true, 1);
    assert_int_equal(fault_wait(fixture).kind, MMU_FAULT_MISSING);
    ok(mmu_copy(fixture->mmu, page_of(first), RUN, source, true));
    assert_int_equal(toucher_join(&toucher), 0);
    assert_false(store_faults(fixture, first + 2, 1));
}

/* ---- threads -------------------------------------------------------------------------------------------------------
 */

#define WRITERS      3U
#define DISTURBANCES 400U

struct writer {
    pthread_t thread;
    struct fixture *fixture;
    uint64_t first;
    unsigned index;
    uint64_t rounds; /* valid once joined */
    _Atomic(bool) *stop;
};

/* Each writer counts in its own word of every page of a run: a store that is lost leaves the count behind. */
static _Atomic(uint64_t) *writer_word(const struct writer *writer, uint64_t page)
{
    uint8_t *bytes = page_bytes(writer->fixture, writer->first + page);

    return (_Atomic(uint64_t) *)(void *)(bytes + 64 * writer->index);
}

static void *count_up(void *argument)
{
    struct writer *writer = argument;

    while (!atomic_load(writer->stop)) {
        uint64_t round = ++writer->rounds;

        for (uint64_t page = 0; page < RUN; page++) {
            _Atomic(uint64_t) *word = writer_word(writer, page);

            ASSERT(atomic_load_explicit(word, memory_order_relaxed) == round - 1);
            atomic_store_explicit(word, round, memory_order_relaxed);
        }
    }
    return NULL;
}

static void answer_zeroes(struct fixture *fixture, const struct mmu_fault *fault)
{
    if (fault->kind == MMU_FAULT_MISSING)
        ok(mmu_zero(fixture->mmu, fault->page, 1, fault->is_write));
    else
        answer_plainly(fixture, fault);
}

/* Runs writers over the run while `disturb` takes pages away and gives them back. */
static void check_no_store_is_lost(struct fixture *fixture, uint64_t first, void (*disturb)(struct fixture *, uint64_t))
{
    struct writer writers[WRITERS];
    _Atomic(bool) stop = false;

    handler_start(fixture, answer_zeroes);
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.fixture = fixture, .first = first, .index = i, .stop = &stop};
        ok(os_thread_start(&writers[i].thread, "writer", count_up, &writers[i]));
    }
    for (unsigned step = 0; step < DISTURBANCES; step++) {
        pthread_mutex_lock(&fixture->lock);
        disturb(fixture, first);
        pthread_mutex_unlock(&fixture->lock);
        usleep(step % 4 * 50);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(writers[i].thread, NULL);
    for (unsigned i = 0; i < WRITERS; i++)
        for (uint64_t page = 0; page < RUN; page++)
            assert_int_equal(atomic_load(writer_word(&writers[i], page)), writers[i].rounds);
    handler_stop(fixture);
}

static void zap_and_check_stillness(struct fixture *fixture, uint64_t first)
{
    uint8_t before[PAGE_BYTES], after[PAGE_BYTES];
    static unsigned turn;
    uint64_t page = first + turn++ % RUN;

    /* Unmapped means that nobody stores: the bytes in the memfd stand still until a fault is answered. */
    ok(mmu_zap(fixture->mmu, page_of(page), 1));
    ok(mmu_shared_read(&fixture->window, page_of(page), 0, before, PAGE_BYTES));
    sched_yield();
    ok(mmu_shared_read(&fixture->window, page_of(page), 0, after, PAGE_BYTES));
    ASSERT(memcmp(before, after, PAGE_BYTES) == 0);
}

static void test_zap_loses_no_store(void **state)
{
    struct fixture *fixture = *state;

    ok(mmu_zero(fixture->mmu, page_of(32), RUN, true));
    check_no_store_is_lost(fixture, 32, zap_and_check_stillness);
    assert_true(atomic_load(&fixture->faults[MMU_FAULT_MINOR]) > 0);
}

/* Copy out, free, copy in write-protected: what an invalidation and a new read copy are to one page. */
static void free_and_bring_back(struct fixture *fixture, uint64_t first)
{
    uint8_t bytes[PAGE_BYTES];
    static unsigned turn;
    uint64_t page = first + turn++ % RUN;

    ok(mmu_zap(fixture->mmu, page_of(page), 1));
    ok(mmu_shared_read(&fixture->window, page_of(page), 0, bytes, PAGE_BYTES));
    ok(mmu_free(fixture->mmu, page_of(page), 1));
    ok(mmu_copy(fixture->mmu, page_of(page), 1, bytes, false));
}

static void test_free_and_protected_copy_lose_no_store(void **state)
{
    struct fixture *fixture = *state;

    ok(mmu_zero(fixture->mmu, page_of(32), RUN, true));
    check_no_store_is_lost(fixture, 32, free_and_bring_back);
    assert_true(atomic_load(&fixture->faults[MMU_FAULT_WP]) > 0);
}

static void zap_and_map_protected(struct fixture *fixture, uint64_t first)
{
    static unsigned turn;
    uint64_t page = first + turn++ % RUN;

    ok(mmu_zap(fixture->mmu, page_of(page), 1));
    ok(mmu_continue(fixture->mmu, page_of(page), 1, false));
}

static void test_protected_continue_loses_no_store(void **state)
{
    struct fixture *fixture = *state;

    ok(mmu_zero(fixture->mmu, page_of(32), RUN, true));
    check_no_store_is_lost(fixture, 32, zap_and_map_protected);
    assert_true(atomic_load(&fixture->faults[MMU_FAULT_WP]) > 0);
}

/* While a page is protected its bytes do not change, on both halves. */
static void protect_and_check_stillness(struct fixture *fixture, uint64_t first)
{
    uint8_t before[PAGE_BYTES], after[PAGE_BYTES];
    static unsigned turn;
    uint64_t page = first + turn++ % RUN;

    ok(mmu_protect(fixture->mmu, page_of(page), 1, false));
    page_copy(before, page_bytes(fixture, page));
    sched_yield();
    page_copy(after, page_bytes(fixture, page));
    ASSERT(memcmp(before, after, PAGE_BYTES) == 0);
}

static void test_protected_pages_stand_still(void **state)
{
    struct fixture *fixture = *state;

    ok(mmu_zero(fixture->mmu, page_of(PRIVATE_FIRST + 32), RUN, true));
    check_no_store_is_lost(fixture, PRIVATE_FIRST + 32, protect_and_check_stillness);
    assert_true(atomic_load(&fixture->faults[MMU_FAULT_WP]) > 0);
}

struct reader {
    pthread_t thread;
    struct fixture *fixture;
    unsigned seed;
};

static void *read_all(void *argument)
{
    struct reader *reader = argument;

    for (uint64_t i = 0; i < EXTENT_PAGES; i++) {
        uint64_t page = (i * 7 + reader->seed * 101) % EXTENT_PAGES;

        ASSERT(page_is_filled(page_bytes(reader->fixture, page), page));
        ASSERT(page_is_filled(page_bytes(reader->fixture, PRIVATE_FIRST + page), PRIVATE_FIRST + page));
    }
    return NULL;
}

/* Four threads fault the same pages in other orders, and a prefetch runs into them. */
static void test_many_threads_and_a_prefetch_fault_the_same_pages(void **state)
{
    enum { READERS = 4 };
    struct fixture *fixture = *state;
    struct reader readers[READERS];

    handler_start(fixture, answer_plainly);
    for (unsigned i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.fixture = fixture, .seed = i};
        ok(os_thread_start(&readers[i].thread, "reader", read_all, &readers[i]));
    }
    for (uint64_t first = 0; first < EXTENT_PAGES; first += RUN) {
        pthread_mutex_lock(&fixture->lock);
        fill_source(first);
        ok(mmu_copy(fixture->mmu, page_of(first), RUN, source, true));
        pthread_mutex_unlock(&fixture->lock);
        usleep(200);
    }
    for (unsigned i = 0; i < READERS; i++)
        pthread_join(readers[i].thread, NULL);
    assert_true(faults_seen(fixture) > 0);
}

/* The other way gives the page a new frame, so a second mapping of the memfd loses the old one. */
static void test_switched_off_continue_is_avoided(void **state)
{
    struct fixture *fixture = *state;
    uint8_t *second = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, fixture->window.memfd, 32 * PAGE_BYTES);
    struct mmu_window window = {.base = (uint64_t)(uintptr_t)second, .private_bytes = PAGE_BYTES,
                                .pagemap_fd = fixture->window.pagemap_fd};
    bool present;

    assert_true(second != MAP_FAILED);
    fill_source(32);
    ok(mmu_shared_write(&fixture->window, page_of(32), 0, source, PAGE_BYTES));
    assert_true(page_is_filled(second, 32));
    ok(mmu_present(&window, page_of(0), 1, &present));
    assert_true(present);
    ok(mmu_continue(fixture->mmu, page_of(32), 1, false));
    ok(mmu_present(&window, page_of(0), 1, &present));
    assert_int_equal(present, fixture->features.has_continue_wp);
    assert_true(page_is_filled(second, 32));
    munmap(second, PAGE_BYTES);
}

#define TESTS(open)                                                                                                    \
    cmocka_unit_test_setup_teardown(test_copy_fills_a_run, open, close_fixture),                                       \
        cmocka_unit_test_setup_teardown(test_protected_copy_faults_once_on_a_store, open, close_fixture),              \
        cmocka_unit_test_setup_teardown(test_pages_that_are_there_keep_their_bytes, open, close_fixture),              \
        cmocka_unit_test_setup_teardown(test_thread_at_a_page_that_is_there_is_woken, open, close_fixture),            \
        cmocka_unit_test_setup_teardown(test_whoever_finds_a_page_there_wakes_its_thread, open, close_fixture),        \
        cmocka_unit_test_setup_teardown(test_copy_replaces_old_bytes_of_unmapped_pages, open, close_fixture),          \
        cmocka_unit_test_setup_teardown(test_zero_gives_real_pages, open, close_fixture),                              \
        cmocka_unit_test_setup_teardown(test_continue_maps_what_the_memfd_has, open, close_fixture),                   \
        cmocka_unit_test_setup_teardown(test_continue_of_an_absent_page_fails, open, close_fixture),                   \
        cmocka_unit_test_setup_teardown(test_switched_off_continue_is_avoided, open, close_fixture),                   \
        cmocka_unit_test_setup_teardown(test_protect_and_unprotect_a_run, open, close_fixture),                        \
        cmocka_unit_test_setup_teardown(test_protection_does_not_survive_zap, open, close_fixture),                    \
        cmocka_unit_test_setup_teardown(test_protection_does_not_survive_free, open, close_fixture),                   \
        cmocka_unit_test_setup_teardown(test_freed_pages_leave_the_memfd, open, close_fixture),                        \
        cmocka_unit_test_setup_teardown(test_dropped_page_is_missing, open, close_fixture),                            \
        cmocka_unit_test_setup_teardown(test_zap_loses_no_store, open, close_fixture),                                 \
        cmocka_unit_test_setup_teardown(test_free_and_protected_copy_lose_no_store, open, close_fixture),              \
        cmocka_unit_test_setup_teardown(test_protected_continue_loses_no_store, open, close_fixture),                  \
        cmocka_unit_test_setup_teardown(test_protected_pages_stand_still, open, close_fixture),                        \
        cmocka_unit_test_setup_teardown(test_many_threads_and_a_prefetch_fault_the_same_pages, open, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {TESTS(open_all), TESTS(open_without_continue_wp)};

    require_userfaultfd();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
