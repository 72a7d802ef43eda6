/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

static const struct mmu_switches NO_SWITCH = {0};

static void test_descriptor_is_high_and_closes_on_exec(void **state)
{
    struct fixture fixture;
    int fd;

    (void)state;
    fixture_open(&fixture, &NO_SWITCH);
    fd = mmu_descriptor(fixture.mmu);
    assert_true(fd >= 100);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_false(has_fault(&fixture));
    assert_ptr_equal(mmu_features(fixture.mmu)->source, fixture.features.source);
    fixture_close(&fixture);
}

static void test_faults_tell_page_kind_access_and_thread(void **state)
{
    struct fixture fixture;
    struct toucher toucher;
    struct mmu_fault fault;

    (void)state;
    fixture_open(&fixture, &NO_SWITCH);
    toucher_start(&toucher, page_bytes(&fixture, 9) + 77, false, 0);
    fault = fault_wait(&fixture);
    assert_int_equal(fault.page.index, 9);
    assert_int_equal(fault.kind, MMU_FAULT_MISSING);
    assert_false(fault.is_write);
    if (fixture.features.has_thread_id)
        assert_int_equal(fault.thread, atomic_load(&toucher.thread_id));
    ok(mmu_zero(fixture.mmu, fault.page, 1, false));
    assert_int_equal(toucher_join(&toucher), 0);

    toucher_start(&toucher, page_bytes(&fixture, 9) + 77, true, 5);
    fault = fault_wait(&fixture);
    assert_int_equal(fault.kind, MMU_FAULT_WP);
    assert_true(fault.is_write);
    ok(mmu_protect(fixture.mmu, fault.page, 1, true));
    assert_int_equal(toucher_join(&toucher), 0);

    ok(mmu_zap(fixture.mmu, page_of(9), 1));
    toucher_start(&toucher, page_bytes(&fixture, 9) + 77, false, 0);
    fault = fault_wait(&fixture);
    assert_int_equal(fault.kind, MMU_FAULT_MINOR);
    ok(mmu_continue(fixture.mmu, fault.page, 1, true));
    assert_int_equal(toucher_join(&toucher), 0);
    assert_int_equal(toucher.value, 5);
    fixture_close(&fixture);
}

static void test_one_read_returns_all_waiting_faults(void **state)
{
    enum { THREADS = 6 };
    struct fixture fixture;
    struct toucher touchers[THREADS];
    struct mmu_fault faults[THREADS];
    uint64_t seen = 0;

    (void)state;
    fixture_open(&fixture, &NO_SWITCH);
    for (unsigned i = 0; i < THREADS; i++)
        toucher_start(&touchers[i], page_bytes(&fixture, 10 + i), true, (uint8_t)i);
    for (unsigned i = 0; i < THREADS; i++)
        while (atomic_load(&touchers[i].thread_id) == 0)
            sched_yield();
    usleep(50000); /* let them stop in their faults; fewer at once would only make the loop below longer */
    for (int have = 0; have < THREADS;) {
        int count = mmu_faults_read(fixture.mmu, faults, THREADS);

        for (int i = 0; i < count; i++)
            seen |= UINT64_C(1) << faults[i].page.index;
        have += count;
    }
    assert_int_equal(seen, UINT64_C(0x3f) << 10);
    assert_int_equal(mmu_faults_read(fixture.mmu, faults, THREADS), 0);
    ok(mmu_zero(fixture.mmu, page_of(10), THREADS, true));
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(toucher_join(&touchers[i]), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(*page_bytes(&fixture, 10 + i), i);
    fixture_close(&fixture);
}

static void test_wake_lets_a_thread_fault_again(void **state)
{
    struct fixture fixture;
    struct toucher toucher;

    (void)state;
    fixture_open(&fixture, &NO_SWITCH);
    toucher_start(&toucher, page_bytes(&fixture, 0), false, 0);
    assert_int_equal(fault_wait(&fixture).page.index, 0);
    assert_false(has_fault(&fixture));
    mmu_wake(fixture.mmu, page_of(0), 1);
    assert_int_equal(fault_wait(&fixture).page.index, 0);
    ok(mmu_zero(fixture.mmu, page_of(0), 1, true));
    assert_int_equal(toucher_join(&toucher), 0);
    fixture_close(&fixture);
}

static void test_registered_private_pages_fault_and_fresh_ones_do_not(void **state)
{
    struct fixture fixture;
    struct toucher toucher;
    uint64_t first = PRIVATE_FIRST;

    (void)state;
    fixture_open(&fixture, &NO_SWITCH);
    *page_bytes(&fixture, first) = 1;
    ok(mmu_register(fixture.mmu, page_of(first), EXTENT_PAGES));
    assert_int_equal(*page_bytes(&fixture, first), 1);
    toucher_start(&toucher, page_bytes(&fixture, first + 1), false, 0);
    assert_int_equal(fault_wait(&fixture).page.index, first + 1);
    ok(mmu_zero(fixture.mmu, page_of(first + 1), 1, true));
    assert_int_equal(toucher_join(&toucher), 0);
    *page_bytes(&fixture, first + EXTENT_PAGES) = 2; /* the next extent is still fresh */
    ok(mmu_unregister(fixture.mmu, page_of(first), EXTENT_PAGES));
    assert_int_equal(*page_bytes(&fixture, first + 2), 0);
    assert_int_equal(*page_bytes(&fixture, first), 1);
    assert_false(has_fault(&fixture));
    fixture_close(&fixture);
}

static unsigned count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned count = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL)
        count += strtoull(line, NULL, 16) >= TEST_BASE &&
                 strtoull(line, NULL, 16) < TEST_BASE + SHARED_BYTES + PRIVATE_BYTES;
    fclose(maps);
    return count;
}

static void test_neighbouring_registrations_are_one_mapping(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture, &NO_SWITCH);
    assert_int_equal(count_mappings(), 2);
    ok(mmu_register(fixture.mmu, page_of(PRIVATE_FIRST), EXTENT_PAGES));
    assert_int_equal(count_mappings(), 3);
    ok(mmu_register(fixture.mmu, page_of(PRIVATE_FIRST + EXTENT_PAGES), EXTENT_PAGES));
    assert_int_equal(count_mappings(), 3);
    fixture_close(&fixture);
}

static int touch_in_child(void *address)
{
    uint8_t value = 0;

    signals_catch();
    return touch(address, false, &value) != 0 ? 200 : value;
}

static void test_child_never_reads_zeroes_for_managed_pages(void **state)
{
    struct fixture fixture;
    uint8_t bytes[PAGE_BYTES];

    (void)state;
    memset(bytes, 7, sizeof(bytes));
    fixture_open(&fixture, &NO_SWITCH);
    *page_bytes(&fixture, PRIVATE_FIRST) = 9;
    ok(mmu_copy(fixture.mmu, page_of(0), 1, bytes, true));
    assert_int_equal(in_child(touch_in_child, page_bytes(&fixture, PRIVATE_FIRST)), 9); /* fresh: inherited whole */
    assert_int_equal(in_child(touch_in_child, page_bytes(&fixture, 0)), 200);
    assert_int_equal(in_child(touch_in_child, page_bytes(&fixture, 1)), 200);
    ok(mmu_register(fixture.mmu, page_of(PRIVATE_FIRST), EXTENT_PAGES));
    assert_int_equal(in_child(touch_in_child, page_bytes(&fixture, PRIVATE_FIRST)), 200);
    assert_int_equal(in_child(touch_in_child, page_bytes(&fixture, PRIVATE_FIRST + 1)), 200);
    ok(mmu_unregister(fixture.mmu, page_of(PRIVATE_FIRST), EXTENT_PAGES));
    assert_int_equal(in_child(touch_in_child, page_bytes(&fixture, PRIVATE_FIRST)), 9);
    fixture_close(&fixture);
}

/* ---- closing: nothing may read zeroes ------------------------------------------------------------------------------
 */

static void test_threads_that_wait_get_sigbus_at_close(void **state)
{
    struct fixture fixture;
    struct toucher touchers[4];
    uint64_t pages[4] = {0, 1, PRIVATE_FIRST, 2};
    uint8_t bytes[PAGE_BYTES] = {1};
    int held;

    (void)state;
    fixture_open(&fixture, &NO_SWITCH);
    ok(mmu_register(fixture.mmu, page_of(PRIVATE_FIRST), EXTENT_PAGES));
    ok(mmu_copy(fixture.mmu, page_of(1), 1, bytes, true));
    ok(mmu_zap(fixture.mmu, page_of(1), 1));                /* will wait as MINOR */
    ok(mmu_copy(fixture.mmu, page_of(2), 1, bytes, false)); /* will wait as WP */
    for (unsigned i = 0; i < 4; i++)
        toucher_start(&touchers[i], page_bytes(&fixture, pages[i]), i == 3, 9);
    for (unsigned i = 0; i < 4; i++)
        fault_wait(&fixture);
    /* An event loop's ring may still hold the descriptor: closing ours then wakes nobody by itself. */
    held = dup(mmu_descriptor(fixture.mmu));
    mmu_close(fixture.mmu);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(toucher_join(&touchers[i]), SIGBUS);
    close(held);
    mmu_window_release(&fixture.window);
}

static void test_touch_after_close_is_sigbus_everywhere(void **state)
{
    struct fixture fixture;
    uint64_t pages[] = {0, 1, PRIVATE_FIRST, PRIVATE_FIRST + EXTENT_PAGES};
    int pipes[2];

    (void)state;
    fixture_open(&fixture, &NO_SWITCH);
    ok(mmu_register(fixture.mmu, page_of(PRIVATE_FIRST), EXTENT_PAGES));
    ok(mmu_zero(fixture.mmu, page_of(1), 1, true));
    *page_bytes(&fixture, PRIVATE_FIRST + EXTENT_PAGES) = 3;
    mmu_close(fixture.mmu);
    assert_int_equal(pipe(pipes), 0);
    for (size_t i = 0; i < ARRAY_COUNT(pages); i++) {
        struct toucher toucher;

        for (int is_write = 0; is_write < 2; is_write++) {
            toucher_start(&toucher, page_bytes(&fixture, pages[i]), is_write, 1);
            assert_int_equal(toucher_join(&toucher), SIGBUS);
        }
        assert_int_equal(write(pipes[1], page_bytes(&fixture, pages[i]), 1), -1);
        assert_int_equal(errno, EFAULT);
    }
    close(pipes[0]);
    close(pipes[1]);
    mmu_window_release(&fixture.window);
}

/* Threads that fault all the time, while it closes: each ends with SIGBUS, none reads a zero. */
static void *fault_until_sigbus(void *argument)
{
    struct fixture *fixture = argument;

    for (uint64_t i = 0;; i = (i + 1) % PRIVATE_FIRST) {
        uint8_t *bytes = page_bytes(fixture, i);
        uint8_t value = 0;

        if (touch(bytes + 7, false, &value) == SIGBUS)
            return NULL;
        ASSERT(value != 0);
    }
}

static void test_close_races_with_faults(void **state)
{
    (void)state;
    signals_catch();
    for (unsigned round = 0; round < 10; round++) {
        struct fixture fixture;
        pthread_t threads[3];

        fixture_open(&fixture, &NO_SWITCH);
        handler_start(&fixture, answer_plainly);
        for (unsigned i = 0; i < 3; i++)
            ASSERT(pthread_create(&threads[i], NULL, fault_until_sigbus, &fixture) == 0);
        while (faults_seen(&fixture) < 50 * (round + 1))
            usleep(100);
        handler_stop(&fixture);
        mmu_close(fixture.mmu);
        for (unsigned i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
        mmu_window_release(&fixture.window);
    }
}

static void test_window_can_be_opened_again(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct fixture fixture;

        fixture_open(&fixture, &NO_SWITCH);
        ok(mmu_zero(fixture.mmu, page_of(0), 1, true));
        *page_bytes(&fixture, 0) = 1;
        fixture_close(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptor_is_high_and_closes_on_exec),
        cmocka_unit_test(test_faults_tell_page_kind_access_and_thread),
        cmocka_unit_test(test_one_read_returns_all_waiting_faults),
        cmocka_unit_test(test_wake_lets_a_thread_fault_again),
        cmocka_unit_test(test_registered_private_pages_fault_and_fresh_ones_do_not),
        cmocka_unit_test(test_neighbouring_registrations_are_one_mapping),
        cmocka_unit_test(test_child_never_reads_zeroes_for_managed_pages),
        cmocka_unit_test(test_threads_that_wait_get_sigbus_at_close),
        cmocka_unit_test(test_touch_after_close_is_sigbus_everywhere),
        cmocka_unit_test(test_close_races_with_faults),
        cmocka_unit_test(test_window_can_be_opened_again),
    };

    require_userfaultfd();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
