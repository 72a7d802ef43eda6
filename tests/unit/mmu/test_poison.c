/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

static struct fixture *open_with(struct mmu_switches switches)
{
    static struct fixture fixture;

    fixture_open(&fixture, &switches);
    ok(mmu_register(fixture.mmu, page_of(PRIVATE_FIRST), EXTENT_PAGES));
    return &fixture;
}

static int open_with_poison(void **state)
{
    *state = open_with((struct mmu_switches){0});
    return 0;
}

static int open_without_poison(void **state)
{
    *state = open_with((struct mmu_switches){.no_poison = true});
    return 0;
}

static int close_fixture(void **state)
{
    fixture_close(*state);
    return 0;
}

static int touch_result(struct fixture *fixture, uint64_t page, bool is_write)
{
    struct toucher toucher;

    toucher_start(&toucher, page_bytes(fixture, page) + 8, is_write, 1);
    return toucher_join(&toucher);
}

static void check_poisoned(struct fixture *fixture, uint64_t page)
{
    int pipes[2];

    assert_int_equal(pipe(pipes), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(touch_result(fixture, page, false), SIGBUS);
        assert_int_equal(touch_result(fixture, page, true), SIGBUS);
    }
    assert_int_equal(write(pipes[1], page_bytes(fixture, page), 1), -1);
    assert_int_equal(errno, EFAULT);
    assert_false(has_fault(fixture));
    close(pipes[0]);
    close(pipes[1]);
}

/* A page can be lost in any state; its neighbours do not notice. */
static void test_page_in_any_state_can_be_poisoned(void **state)
{
    struct fixture *fixture = *state;
    uint64_t firsts[] = {10, PRIVATE_FIRST + 10};
    uint8_t bytes[PAGE_BYTES];

    for (size_t i = 0; i < ARRAY_COUNT(firsts); i++) {
        uint64_t first = firsts[i];

        ok(mmu_poison(fixture->mmu, page_of(first))); /* absent */
        ok(mmu_zero(fixture->mmu, page_of(first + 1), 1, true));
        ok(mmu_zero(fixture->mmu, page_of(first + 2), 1, false));
        page_fill(bytes, first + 3);
        ok(mmu_copy(fixture->mmu, page_of(first + 3), 1, bytes, true));
        ok(mmu_poison(fixture->mmu, page_of(first + 1))); /* mapped */
        ok(mmu_poison(fixture->mmu, page_of(first + 2))); /* protected */
        for (uint64_t page = first; page < first + 3; page++)
            check_poisoned(fixture, page);
        ok(mmu_poison(fixture->mmu, page_of(first))); /* again */
        check_poisoned(fixture, first);
        assert_true(page_is_filled(page_bytes(fixture, first + 3), first + 3));
    }
}

static void test_zapped_page_can_be_poisoned(void **state)
{
    struct fixture *fixture = *state;

    for (unsigned writable = 0; writable < 2; writable++) {
        ok(mmu_zero(fixture->mmu, page_of(20 + writable), 1, writable));
        ok(mmu_zap(fixture->mmu, page_of(20 + writable), 1));
        ok(mmu_poison(fixture->mmu, page_of(20 + writable)));
        check_poisoned(fixture, 20 + writable);
    }
}

static void test_threads_that_wait_get_sigbus(void **state)
{
    struct fixture *fixture = *state;
    uint64_t pages[] = {30, PRIVATE_FIRST + 30};

    for (size_t i = 0; i < ARRAY_COUNT(pages); i++) {
        struct toucher touchers[3];

        for (unsigned t = 0; t < 3; t++)
            toucher_start(&touchers[t], page_bytes(fixture, pages[i]), t == 1, 1);
        for (unsigned t = 0; t < 3; t++)
            assert_int_equal(fault_wait(fixture).page.index, pages[i]);
        ok(mmu_poison(fixture->mmu, page_of(pages[i])));
        for (unsigned t = 0; t < 3; t++)
            assert_int_equal(toucher_join(&touchers[t]), SIGBUS);
    }
}

static void test_freed_page_is_ordinary_again(void **state)
{
    struct fixture *fixture = *state;
    uint8_t bytes[PAGE_BYTES];

    for (unsigned round = 0; round < 2; round++) {
        struct toucher toucher;

        for (uint64_t page = 50; page < 60; page += 2) {
            ok(mmu_poison(fixture->mmu, page_of(page)));
            ok(mmu_poison(fixture->mmu, page_of(PRIVATE_FIRST + page)));
        }
        ok(mmu_free(fixture->mmu, page_of(48), 8));
        ok(mmu_drop(fixture->mmu, page_of(PRIVATE_FIRST + 48), 8));
        check_poisoned(fixture, 56);
        check_poisoned(fixture, PRIVATE_FIRST + 58);
        toucher_start(&toucher, page_bytes(fixture, 50), false, 0);
        assert_int_equal(fault_wait(fixture).kind, MMU_FAULT_MISSING);
        page_fill(bytes, 50);
        ok(mmu_copy(fixture->mmu, page_of(50), 1, bytes, false));
        assert_int_equal(toucher_join(&toucher), 0);
        assert_true(page_is_filled(page_bytes(fixture, 50), 50));
        assert_true(store_faults(fixture, 50, 3));
        ok(mmu_zap(fixture->mmu, page_of(50), 1));
        toucher_start(&toucher, page_bytes(fixture, 50), false, 0);
        assert_int_equal(fault_wait(fixture).kind, MMU_FAULT_MINOR);
        ok(mmu_continue(fixture->mmu, page_of(50), 1, true));
        assert_int_equal(toucher_join(&toucher), 0);
        assert_int_equal(toucher.value, 3);
        toucher_start(&toucher, page_bytes(fixture, PRIVATE_FIRST + 52), true, 4);
        assert_int_equal(fault_wait(fixture).kind, MMU_FAULT_MISSING);
        ok(mmu_zero(fixture->mmu, page_of(PRIVATE_FIRST + 52), 1, true));
        assert_int_equal(toucher_join(&toucher), 0);
        ok(mmu_free(fixture->mmu, page_of(48), 16));
        ok(mmu_drop(fixture->mmu, page_of(PRIVATE_FIRST + 48), 16));
    }
}

static void test_unregistering_lifts_poison(void **state)
{
    struct fixture *fixture = *state;

    ok(mmu_poison(fixture->mmu, page_of(PRIVATE_FIRST + 5)));
    check_poisoned(fixture, PRIVATE_FIRST + 5);
    ok(mmu_drop(fixture->mmu, page_of(PRIVATE_FIRST), EXTENT_PAGES));
    ok(mmu_unregister(fixture->mmu, page_of(PRIVATE_FIRST), EXTENT_PAGES));
    assert_int_equal(touch_result(fixture, PRIVATE_FIRST + 5, true), 0);
    ok(mmu_register(fixture->mmu, page_of(PRIVATE_FIRST), EXTENT_PAGES));
}

static void test_many_poisoned_pages(void **state)
{
    struct fixture *fixture = *state;

    for (uint64_t page = 100; page < 400; page++)
        ok(mmu_poison(fixture->mmu, page_of(page)));
    check_poisoned(fixture, 100);
    check_poisoned(fixture, 399);
    ok(mmu_free(fixture->mmu, page_of(100), 300));
    ok(mmu_zero(fixture->mmu, page_of(100), 300, true));
    assert_int_equal(touch_result(fixture, 399, true), 0);
}

#define TESTS(open)                                                                                                    \
    cmocka_unit_test_setup_teardown(test_page_in_any_state_can_be_poisoned, open, close_fixture),                      \
        cmocka_unit_test_setup_teardown(test_zapped_page_can_be_poisoned, open, close_fixture),                        \
        cmocka_unit_test_setup_teardown(test_threads_that_wait_get_sigbus, open, close_fixture),                       \
        cmocka_unit_test_setup_teardown(test_freed_page_is_ordinary_again, open, close_fixture),                       \
        cmocka_unit_test_setup_teardown(test_unregistering_lifts_poison, open, close_fixture),                         \
        cmocka_unit_test_setup_teardown(test_many_poisoned_pages, open, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {TESTS(open_with_poison), TESTS(open_without_poison)};

    require_userfaultfd();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
