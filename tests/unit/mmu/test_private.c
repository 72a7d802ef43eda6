/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#define RUN   16U
#define FIRST PRIVATE_FIRST

static struct fixture *open_with(struct mmu_switches switches)
{
    static struct fixture fixture;

    fixture_open(&fixture, &switches);
    return &fixture;
}

static int open_with_move(void **state)
{
    *state = open_with((struct mmu_switches){0});
    return 0;
}

static int open_without_move(void **state)
{
    *state = open_with((struct mmu_switches){.no_move = true});
    return 0;
}

static int close_fixture(void **state)
{
    fixture_close(*state);
    return 0;
}

/* Fresh pages that carry their names, then registered. */
static void prepare(struct fixture *fixture, uint64_t pages_count)
{
    for (uint64_t page = FIRST; page < FIRST + pages_count; page++)
        page_fill(page_bytes(fixture, page), page);
    ok(mmu_register(fixture->mmu, page_of(FIRST), 2 * EXTENT_PAGES));
}

static void test_taken_pages_are_in_staging_and_absent(void **state)
{
    struct fixture *fixture = *state;
    struct toucher toucher;
    void *staging;
    unsigned moved = 0;
    bool present[RUN];

    prepare(fixture, RUN);
    ok(mmu_staging_create(fixture->mmu, RUN, &staging));
    for (unsigned round = 0; round < 3; round++) {
        ok(mmu_take_out(fixture->mmu, page_of(FIRST), RUN, staging, &moved));
        assert_int_equal(moved, RUN);
        ok(mmu_present(&fixture->window, page_of(FIRST), RUN, present));
        for (unsigned i = 0; i < RUN; i++) {
            assert_true(page_is_filled((uint8_t *)staging + i * PAGE_BYTES, FIRST + i));
            assert_false(present[i]);
        }
        toucher_start(&toucher, page_bytes(fixture, FIRST + 3), false, 0);
        assert_int_equal(fault_wait(fixture).kind, MMU_FAULT_MISSING);
        ok(mmu_copy(fixture->mmu, page_of(FIRST), RUN, staging, true));
        assert_int_equal(toucher_join(&toucher), 0);
        mmu_staging_clear(fixture->mmu, staging, 0, RUN);
    }
    for (unsigned i = 0; i < RUN; i++) {
        assert_true(page_is_filled(page_bytes(fixture, FIRST + i), FIRST + i));
        assert_false(store_faults(fixture, FIRST + i, 1));
    }
}

static void test_protected_pages_can_be_taken_out(void **state)
{
    struct fixture *fixture = *state;
    void *staging;
    unsigned moved = 0;

    prepare(fixture, RUN);
    ok(mmu_protect(fixture->mmu, page_of(FIRST), RUN, false));
    ok(mmu_staging_create(fixture->mmu, RUN, &staging));
    ok(mmu_take_out(fixture->mmu, page_of(FIRST), RUN, staging, &moved));
    assert_int_equal(moved, RUN);
    assert_true(page_is_filled(staging, FIRST));
}

static void test_hole_ends_the_run(void **state)
{
    struct fixture *fixture = *state;
    void *staging;
    unsigned moved = 0;

    prepare(fixture, 5);
    ok(mmu_staging_create(fixture->mmu, RUN, &staging));
    assert_int_equal(mmu_take_out(fixture->mmu, page_of(FIRST), RUN, staging, &moved), -ENOENT);
    assert_int_equal(moved, 5);
    for (unsigned i = 0; i < 5; i++)
        assert_true(page_is_filled((uint8_t *)staging + i * PAGE_BYTES, FIRST + i));
    assert_int_equal(mmu_take_out(fixture->mmu, page_of(FIRST + 5), 1, (uint8_t *)staging + 5 * PAGE_BYTES, &moved),
                     -ENOENT);
    assert_int_equal(moved, 0);
}

/* A thread that stopped at a store to a protected page, which is taken out before the fault is answered. */
static void test_held_store_lands_after_the_page_is_back(void **state)
{
    struct fixture *fixture = *state;
    struct toucher toucher;
    void *staging;
    unsigned moved;

    prepare(fixture, RUN);
    ok(mmu_staging_create(fixture->mmu, RUN, &staging));
    ok(mmu_protect(fixture->mmu, page_of(FIRST), RUN, false));
    toucher_start(&toucher, page_bytes(fixture, FIRST), true, 0xee);
    assert_int_equal(fault_wait(fixture).kind, MMU_FAULT_WP);
    ok(mmu_take_out(fixture->mmu, page_of(FIRST), RUN, staging, &moved));
    assert_true(page_is_filled(staging, FIRST));
    assert_false(atomic_load(&toucher.is_done));
    mmu_wake(fixture->mmu, page_of(FIRST), 1);
    assert_int_equal(fault_wait(fixture).kind, MMU_FAULT_MISSING);
    ok(mmu_copy(fixture->mmu, page_of(FIRST), 1, staging, true));
    assert_int_equal(toucher_join(&toucher), 0);
    assert_int_equal(*page_bytes(fixture, FIRST), 0xee);
}

static void test_staging_of_many_pages(void **state)
{
    struct fixture *fixture = *state;
    void *staging;
    unsigned moved;

    prepare(fixture, 2 * EXTENT_PAGES);
    ok(mmu_staging_create(fixture->mmu, 2 * EXTENT_PAGES, &staging));
    assert_int_equal((uintptr_t)staging % EXTENT_BYTES, 0);
    ok(mmu_take_out(fixture->mmu, page_of(FIRST), 2 * EXTENT_PAGES, staging, &moved));
    assert_int_equal(moved, 2 * EXTENT_PAGES);
    for (unsigned i = 0; i < 2 * EXTENT_PAGES; i++)
        assert_true(page_is_filled((uint8_t *)staging + i * PAGE_BYTES, FIRST + i));
    mmu_staging_clear(fixture->mmu, staging, 100, 300);
    ok(mmu_copy(fixture->mmu, page_of(FIRST), 100, staging, true));
    assert_true(page_is_filled(page_bytes(fixture, FIRST + 99), FIRST + 99));
}

/* Fresh memory may be huge pages: whole ones and pieces of them can be taken out. */
static void test_huge_pages_come_out_whole_and_in_pieces(void **state)
{
    struct fixture *fixture = *state;
    void *staging;
    unsigned moved;

    madvise(page_bytes(fixture, FIRST), 2 * EXTENT_BYTES, MADV_HUGEPAGE);
    prepare(fixture, 2 * EXTENT_PAGES);
    ok(mmu_staging_create(fixture->mmu, 2 * EXTENT_PAGES, &staging));
    ok(mmu_take_out(fixture->mmu, page_of(FIRST), EXTENT_PAGES, staging, &moved));
    assert_int_equal(moved, EXTENT_PAGES);
    ok(mmu_take_out(fixture->mmu, page_of(FIRST + EXTENT_PAGES + 10), RUN,
                    (uint8_t *)staging + (EXTENT_PAGES + 10) * PAGE_BYTES, &moved));
    assert_int_equal(moved, RUN);
    for (unsigned i = 0; i < EXTENT_PAGES; i++)
        assert_true(page_is_filled((uint8_t *)staging + i * PAGE_BYTES, FIRST + i));
    for (unsigned i = EXTENT_PAGES; i < 2 * EXTENT_PAGES; i++) {
        bool is_out = i >= EXTENT_PAGES + 10 && i < EXTENT_PAGES + 10 + RUN;
        const uint8_t *bytes = is_out ? (uint8_t *)staging + i * PAGE_BYTES : page_bytes(fixture, FIRST + i);

        assert_true(page_is_filled(bytes, FIRST + i));
    }
}

/* ---- pages that must not be taken ----------------------------------------------------------------------------------
 */

static void test_pinned_page_is_refused(void **state)
{
    struct fixture *fixture = *state;
    void *staging;
    unsigned moved = 0;
    int ring;

    if (!fixture->features.has_move)
        skip();
    prepare(fixture, RUN);
    ring = memory_pin(page_bytes(fixture, FIRST + 6), PAGE_BYTES);
    if (ring < 0)
        skip(); /* io_uring is refused here */
    ok(mmu_staging_create(fixture->mmu, RUN, &staging));
    assert_int_equal(mmu_take_out(fixture->mmu, page_of(FIRST), RUN, staging, &moved), -EBUSY);
    assert_int_equal(moved, 6);
    assert_true(page_is_filled(page_bytes(fixture, FIRST + 6), FIRST + 6));
    ok(mmu_take_out(fixture->mmu, page_of(FIRST + 7), RUN - 7, (uint8_t *)staging + 7 * PAGE_BYTES, &moved));
    assert_int_equal(moved, RUN - 7);
    assert_true(page_is_filled((uint8_t *)staging + 7 * PAGE_BYTES, FIRST + 7));
    close(ring);
}

/* Whole, or split by the program before; either way the kernel cannot split it for MOVE, which must come to an end. */
static void check_pinned_huge_page(struct fixture *fixture, bool is_split)
{
    void *staging;
    unsigned moved = 0;
    uint64_t started_ns;
    int ring;
    int result;

    madvise(page_bytes(fixture, FIRST), 2 * EXTENT_BYTES, MADV_HUGEPAGE);
    prepare(fixture, EXTENT_PAGES);
    if (is_split)
        assert_int_equal(mprotect(page_bytes(fixture, FIRST + 300), PAGE_BYTES, PROT_READ), 0);
    ring = memory_pin(page_bytes(fixture, FIRST + 100), PAGE_BYTES);
    if (ring < 0)
        skip(); /* io_uring is refused here */
    ok(mmu_staging_create(fixture->mmu, RUN, &staging));
    started_ns = os_now_ns();
    for (unsigned i = 0; i < 20; i++) { /* twice or so it tries in earnest */
        result = mmu_take_out(fixture->mmu, page_of(FIRST + 96), RUN, staging, &moved);
        assert_int_equal(result, -EBUSY);
        assert_true(moved == 0 || moved == 4); /* 4: small pages, where huge ones are switched off */
        if (moved > 0)
            ok(mmu_copy(fixture->mmu, page_of(FIRST + 96), moved, staging, true));
        mmu_staging_clear(fixture->mmu, staging, 0, moved);
    }
    assert_true(os_now_ns() - started_ns < 2000000000U);
    for (unsigned i = 0; i < EXTENT_PAGES; i++)
        assert_true(page_is_filled(page_bytes(fixture, FIRST + i), FIRST + i));
    close(ring);
    for (unsigned i = 0; i < 100 && result != 0; i++) { /* the ring is ended by a worker of the kernel */
        usleep(20000);
        result = mmu_take_out(fixture->mmu, page_of(FIRST + 96), RUN, staging, &moved);
    }
    assert_int_equal(result, 0);
    assert_int_equal(moved, RUN);
    for (unsigned i = 0; i < RUN; i++)
        assert_true(page_is_filled((uint8_t *)staging + i * PAGE_BYTES, FIRST + 96 + i));
}

static void test_pages_of_a_pinned_huge_page_stay(void **state)
{
    check_pinned_huge_page(*state, false);
}

static void test_pages_of_a_split_pinned_huge_page_stay(void **state)
{
    check_pinned_huge_page(*state, true);
}

struct sharing_child {
    int to_child[2], to_parent[2];
    pid_t pid;
};

static void fork_sharing(struct sharing_child *child, const uint8_t *bytes)
{
    char byte = 0;

    assert_int_equal(pipe(child->to_child), 0);
    assert_int_equal(pipe(child->to_parent), 0);
    child->pid = fork();
    assert_true(child->pid >= 0);
    if (child->pid == 0) {
        ssize_t got = write(child->to_parent[1], &byte, 1);

        got += read(child->to_child[0], &byte, 1);
        _exit(got == 2 && page_is_filled(bytes, FIRST) ? 0 : 1);
    }
    assert_int_equal(read(child->to_parent[0], &byte, 1), 1);
}

static int join_sharing(struct sharing_child *child)
{
    int status;

    assert_int_equal(write(child->to_child[1], "", 1), 1);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    for (unsigned i = 0; i < 2; i++) {
        close(child->to_child[i]);
        close(child->to_parent[i]);
    }
    return status;
}

/* By copying; the child's copy is whole. */
static void test_page_shared_by_fork_is_copied(void **state)
{
    struct fixture *fixture = *state;
    struct sharing_child child;
    void *staging;
    unsigned moved = 9;
    int result;

    for (unsigned i = 0; i < RUN; i++)
        page_fill(page_bytes(fixture, FIRST + i), FIRST + i);
    fork_sharing(&child, page_bytes(fixture, FIRST));
    ok(mmu_register(fixture->mmu, page_of(FIRST), EXTENT_PAGES));
    ok(mmu_staging_create(fixture->mmu, RUN, &staging));
    result = mmu_take_out(fixture->mmu, page_of(FIRST), RUN, staging, &moved);
    assert_int_equal(join_sharing(&child), 0);
    assert_int_equal(result, 0);
    assert_int_equal(moved, RUN);
    for (unsigned i = 0; i < RUN; i++)
        assert_true(page_is_filled((uint8_t *)staging + i * PAGE_BYTES, FIRST + i));
}

/* Mapped once again, the page can be moved: it is this process's own after a write fault. */
static void test_page_that_was_shared_by_fork_is_moved(void **state)
{
    struct fixture *fixture = *state;
    struct sharing_child child;
    void *staging;
    unsigned moved;

    page_fill(page_bytes(fixture, FIRST), FIRST);
    fork_sharing(&child, page_bytes(fixture, FIRST));
    assert_int_equal(join_sharing(&child), 0);
    ok(mmu_register(fixture->mmu, page_of(FIRST), EXTENT_PAGES));
    ok(mmu_staging_create(fixture->mmu, RUN, &staging));
    ok(mmu_take_out(fixture->mmu, page_of(FIRST), 1, staging, &moved));
    assert_true(page_is_filled(staging, FIRST));
}

/* Such pages that are protected since before the fork: nobody could make them this process's own. */
static void test_protected_page_that_was_shared_by_fork_comes_out(void **state)
{
    struct fixture *fixture = *state;
    struct sharing_child child;
    void *staging;
    unsigned moved;

    for (unsigned i = 0; i < RUN; i++)
        page_fill(page_bytes(fixture, FIRST + i), FIRST + i);
    ok(mmu_register(fixture->mmu, page_of(FIRST), EXTENT_PAGES));
    assert_int_equal(madvise(page_bytes(fixture, FIRST), RUN * PAGE_BYTES, MADV_DOFORK), 0);
    ok(mmu_protect(fixture->mmu, page_of(FIRST), RUN, false));
    fork_sharing(&child, page_bytes(fixture, FIRST));
    assert_int_equal(join_sharing(&child), 0);
    ok(mmu_staging_create(fixture->mmu, RUN, &staging));
    ok(mmu_take_out(fixture->mmu, page_of(FIRST), RUN, staging, &moved));
    assert_int_equal(moved, RUN);
    for (unsigned i = 0; i < RUN; i++)
        assert_true(page_is_filled((uint8_t *)staging + i * PAGE_BYTES, FIRST + i));
}

/* What the program may only read, or not even that, comes out by copying and keeps its protection. */
static void test_protected_pages_are_copied(void **state)
{
    struct fixture *fixture = *state;
    void *staging;
    unsigned moved;

    prepare(fixture, RUN);
    ok(mmu_staging_create(fixture->mmu, RUN, &staging));
    assert_int_equal(mprotect(page_bytes(fixture, FIRST + 2), PAGE_BYTES, PROT_READ), 0);
    assert_int_equal(mprotect(page_bytes(fixture, FIRST + 3), PAGE_BYTES, PROT_NONE), 0);
    ok(mmu_take_out(fixture->mmu, page_of(FIRST), RUN, staging, &moved));
    assert_int_equal(moved, RUN);
    for (unsigned i = 0; i < RUN; i++)
        assert_true(page_is_filled((uint8_t *)staging + i * PAGE_BYTES, FIRST + i));
    ok(mmu_copy(fixture->mmu, page_of(FIRST + 2), 1, (uint8_t *)staging + 2 * PAGE_BYTES, true));
    assert_true(page_is_filled(page_bytes(fixture, FIRST + 2), FIRST + 2));
}

static void test_pages_go_back_from_staging(void **state)
{
    struct fixture *fixture = *state;
    struct toucher toucher;
    void *staging;
    unsigned moved;

    if (!fixture->features.has_move)
        skip();
    prepare(fixture, RUN);
    ok(mmu_staging_create(fixture->mmu, RUN, &staging));
    ok(mmu_take_out(fixture->mmu, page_of(FIRST), RUN, staging, &moved));
    toucher_start(&toucher, page_bytes(fixture, FIRST), true, 0xee);
    assert_int_equal(fault_wait(fixture).kind, MMU_FAULT_MISSING);
    ok(mmu_put_back(fixture->mmu, page_of(FIRST), staging));
    assert_int_equal(toucher_join(&toucher), 0);
    assert_int_equal(*page_bytes(fixture, FIRST), 0xee);
    assert_int_equal(mprotect(page_bytes(fixture, FIRST + 1), PAGE_BYTES, PROT_READ), 0);
    ok(mmu_put_back(fixture->mmu, page_of(FIRST + 1), (uint8_t *)staging + PAGE_BYTES));
    assert_true(page_is_filled(page_bytes(fixture, FIRST + 1), FIRST + 1));
    ok(mmu_take_out(fixture->mmu, page_of(FIRST), 2, staging, &moved)); /* the places are ready again */
    assert_int_equal(moved, 2);
}

/* A locked page stays, writable. */
static void test_locked_page_stays(void **state)
{
    struct fixture *fixture = *state;
    void *staging;
    unsigned moved;

    if (!fixture->features.has_move)
        skip(); /* the pages before it in one run would stay too */
    prepare(fixture, RUN);
    ok(mmu_staging_create(fixture->mmu, RUN, &staging));
    if (syscall(SYS_mlock, page_bytes(fixture, FIRST + 1), PAGE_BYTES) != 0) /* sanitizers make mlock() do nothing */
        skip();
    assert_int_equal(mmu_take_out(fixture->mmu, page_of(FIRST), RUN, staging, &moved), -EBUSY);
    assert_int_equal(moved, 1);
    page_fill(page_bytes(fixture, FIRST + 1), 77);
    assert_true(page_is_filled(page_bytes(fixture, FIRST + 1), 77));
}

/* ---- threads -------------------------------------------------------------------------------------------------------
 */

#define WRITERS      3U
#define DISTURBANCES 400U

struct writer {
    pthread_t thread;
    struct fixture *fixture;
    unsigned index;
    uint64_t rounds; /* valid once joined */
    _Atomic(bool) *stop;
};

static _Atomic(uint64_t) *writer_word(const struct writer *writer, uint64_t page)
{
    return (_Atomic(uint64_t) *)(void *)(page_bytes(writer->fixture, FIRST + page) + 64 * writer->index);
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

/* Where the bytes of absent pages lie: one slot a page, as a tier would keep them. */
static uint8_t slots[RUN * PAGE_BYTES];
static bool slot_is_used[RUN];

/* By the state of the page, not by the kind of the fault: see mmu_faults_read(). */
static void answer_from_slots(struct fixture *fixture, const struct mmu_fault *fault)
{
    uint64_t slot = fault->page.index - FIRST;

    ASSERT(slot < RUN);
    if (slot_is_used[slot]) {
        ok(mmu_copy(fixture->mmu, fault->page, 1, slots + slot * PAGE_BYTES, true));
        slot_is_used[slot] = false;
    } else if (fault->kind == MMU_FAULT_WP) {
        ok(mmu_protect(fixture->mmu, fault->page, 1, true));
    } else {
        mmu_wake(fixture->mmu, fault->page, 1);
    }
}

static void evict_some(struct fixture *fixture, void *staging, unsigned first)
{
    unsigned count = 0;
    unsigned moved;

    while (first + count < RUN && count < 5 && !slot_is_used[first + count])
        count++;
    if (count == 0)
        return;
    ok(mmu_take_out(fixture->mmu, page_of(FIRST + first), count, staging, &moved));
    ASSERT(moved == count);
    memcpy(slots + first * PAGE_BYTES, staging, count * PAGE_BYTES);
    for (unsigned i = 0; i < count; i++)
        slot_is_used[first + i] = true;
    mmu_staging_clear(fixture->mmu, staging, 0, count);
}

static void test_eviction_loses_no_store(void **state)
{
    struct fixture *fixture = *state;
    struct writer writers[WRITERS];
    _Atomic(bool) stop = false;
    void *staging;

    memset(slot_is_used, 0, sizeof(slot_is_used));
    ok(mmu_register(fixture->mmu, page_of(FIRST), EXTENT_PAGES));
    ok(mmu_zero(fixture->mmu, page_of(FIRST), RUN, true));
    ok(mmu_staging_create(fixture->mmu, RUN, &staging));
    handler_start(fixture, answer_from_slots);
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.fixture = fixture, .index = i, .stop = &stop};
        ok(os_thread_start(&writers[i].thread, "writer", count_up, &writers[i]));
    }
    for (unsigned step = 0; step < DISTURBANCES; step++) {
        pthread_mutex_lock(&fixture->lock);
        evict_some(fixture, staging, step % RUN);
        pthread_mutex_unlock(&fixture->lock);
        usleep(step % 4 * 50);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(writers[i].thread, NULL);
    for (unsigned i = 0; i < WRITERS; i++)
        for (uint64_t page = 0; page < RUN; page++)
            assert_int_equal(atomic_load(writer_word(&writers[i], page)), writers[i].rounds);
    assert_true(atomic_load(&fixture->faults[MMU_FAULT_MISSING]) > 0);
}

#define TESTS(open)                                                                                                    \
    cmocka_unit_test_setup_teardown(test_taken_pages_are_in_staging_and_absent, open, close_fixture),                  \
        cmocka_unit_test_setup_teardown(test_protected_pages_can_be_taken_out, open, close_fixture),                   \
        cmocka_unit_test_setup_teardown(test_hole_ends_the_run, open, close_fixture),                                  \
        cmocka_unit_test_setup_teardown(test_held_store_lands_after_the_page_is_back, open, close_fixture),            \
        cmocka_unit_test_setup_teardown(test_staging_of_many_pages, open, close_fixture),                              \
        cmocka_unit_test_setup_teardown(test_huge_pages_come_out_whole_and_in_pieces, open, close_fixture),            \
        cmocka_unit_test_setup_teardown(test_page_shared_by_fork_is_copied, open, close_fixture),                      \
        cmocka_unit_test_setup_teardown(test_page_that_was_shared_by_fork_is_moved, open, close_fixture),              \
        cmocka_unit_test_setup_teardown(test_protected_page_that_was_shared_by_fork_comes_out, open, close_fixture),   \
        cmocka_unit_test_setup_teardown(test_protected_pages_are_copied, open, close_fixture),                         \
        cmocka_unit_test_setup_teardown(test_locked_page_stays, open, close_fixture),                                  \
        cmocka_unit_test_setup_teardown(test_pages_go_back_from_staging, open, close_fixture),                         \
        cmocka_unit_test_setup_teardown(test_eviction_loses_no_store, open, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TESTS(open_with_move),
        TESTS(open_without_move),
        cmocka_unit_test_setup_teardown(test_pinned_page_is_refused, open_with_move, close_fixture),
        cmocka_unit_test_setup_teardown(test_pages_of_a_pinned_huge_page_stay, open_with_move, close_fixture),
        cmocka_unit_test_setup_teardown(test_pages_of_a_split_pinned_huge_page_stay, open_with_move, close_fixture),
    };

    require_userfaultfd();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
