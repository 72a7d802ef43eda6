/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pager_limit.c - budgets that change while threads use the memory: what is too much leaves, nothing is lost,
 * nobody waits long.
 */
#include "tests/unit/runtime/pager_fixture.h"

#define PAGES   ((size_t)40 << 8) /* 40 MiB */
#define THREADS 3

struct worker {
    struct pager_fixture *fixture;
    pthread_t thread;
    unsigned number;
    _Atomic(bool) is_done;
    _Atomic(bool) *stop;
    uint64_t longest_ns; /* of one check of a page */
    unsigned checks;
};

__attribute__((no_sanitize("thread"))) static void *fill_all(void *argument)
{
    struct worker *worker = argument;

    for (size_t page = 0; page < PAGES; page++)
        page_fill(pager_fixture_page(worker->fixture, page), page);
    atomic_store(&worker->is_done, true);
    return NULL;
}

__attribute__((no_sanitize("thread"))) static void *check_all(void *argument)
{
    struct worker *worker = argument;

    for (size_t page = 0; page < PAGES; page++)
        ASSERT(page_is_filled(pager_fixture_page(worker->fixture, page), page));
    atomic_store(&worker->is_done, true);
    return NULL;
}

/* At random, until stopped: a page is as it was left, and is written anew. Each thread has its own third. */
__attribute__((no_sanitize("thread"))) static void *work(void *argument)
{
    struct worker *worker = argument;
    struct random random = {.state = worker->number + 1};

    while (!atomic_load(worker->stop)) {
        size_t page = random_below(&random, PAGES / THREADS) * THREADS + worker->number;
        uint64_t start_ns = os_now_ns();
        uint8_t *bytes = pager_fixture_page(worker->fixture, page);

        ASSERT(page_is_filled(bytes, page));
        bytes[0] = (uint8_t)page; /* dirty: the same bytes */
        page_fill(bytes, page);
        if (os_now_ns() - start_ns > worker->longest_ns)
            worker->longest_ns = os_now_ns() - start_ns;
        worker->checks++;
    }
    atomic_store(&worker->is_done, true);
    return NULL;
}

static void worker_start(struct worker *worker, void *(*run)(void *))
{
    ASSERT(pthread_create(&worker->thread, NULL, run, worker) == 0);
}

static void worker_join(struct worker *worker)
{
    while (!atomic_load(&worker->is_done))
        pager_fixture_turn(worker->fixture);
    pthread_join(worker->thread, NULL);
}

static void by_thread(struct pager_fixture *fixture, void *(*run)(void *))
{
    struct worker worker = {.fixture = fixture};

    pager_fixture_run(fixture, run, &worker, &worker.is_done);
}

static uint64_t budget_mib(struct pager_fixture *fixture, enum tier_kind tier)
{
    uint64_t pages[TIERS];

    pager_budget_pages(fixture->pager, pages);
    return pages[tier] >> (20 - PAGE_SHIFT);
}

static uint64_t held_mib(struct pager_fixture *fixture, enum tier_kind tier)
{
    uint64_t pages[TIERS];

    pager_tier_pages(fixture->pager, pages);
    return pages[tier] >> (20 - PAGE_SHIFT);
}

/* Until the kernel counts no more than that, ten seconds at most. Returns the turns it took. */
static unsigned turns_until_resident(struct pager_fixture *fixture, uint64_t mib)
{
    uint64_t end_ns = os_now_ns() + UINT64_C(10000000000);
    unsigned turns = 0;

    while (pager_fixture_resident(fixture) > mib << (20 - PAGE_SHIFT)) {
        assert_true(os_now_ns() < end_ns);
        pager_fixture_turn(fixture);
        turns++;
    }
    return turns;
}

static void shrink_and_grow(uint64_t cxl_bytes, uint64_t nvme_bytes)
{
    struct pager_fixture fixture;
    uint64_t moves;

    pager_fixture_open(&fixture, 48 * MIB, 0, cxl_bytes, nvme_bytes);
    by_thread(&fixture, fill_all);
    assert_int_equal(pager_fixture_resident(&fixture), PAGES);
    ok(pager_limit(fixture.pager, TIER_DDR, 8 * MIB));
    assert_int_equal(budget_mib(&fixture, TIER_DDR), 8);
    turns_until_resident(&fixture, 8); /* nobody touches anything: it leaves by itself */
    by_thread(&fixture, check_all);
    turns_until_resident(&fixture, 8);
    assert_int_equal(pager_stats(fixture.pager)->poisoned_pages, 0);

    ok(pager_limit(fixture.pager, TIER_DDR, 48 * MIB));
    by_thread(&fixture, check_all);
    moves = pager_stats(fixture.pager)->dropped_pages;
    for (int i = DSM_TIER_CXL; i < DSM_TIERS; i++)
        moves += pager_stats(fixture.pager)->moves[DSM_TIER_DDR][i];
    by_thread(&fixture, check_all); /* all of it fits again: nothing leaves any more */
    for (int i = DSM_TIER_CXL; i < DSM_TIERS; i++)
        moves -= pager_stats(fixture.pager)->moves[DSM_TIER_DDR][i];
    assert_int_equal(moves, pager_stats(fixture.pager)->dropped_pages);
    assert_int_equal(pager_fixture_resident(&fixture), PAGES);
    pager_fixture_close(&fixture);
}

static void ddr_shrinks_and_grows_over_cxl(void **state)
{
    (void)state;
    shrink_and_grow(64 * MIB, 0);
}

static void ddr_shrinks_and_grows_over_nvme(void **state)
{
    (void)state;
    shrink_and_grow(0, 64 * MIB);
}

static void ddr_can_become_larger_than_at_start(void **state)
{
    struct pager_fixture fixture;

    (void)state;
    pager_fixture_open(&fixture, 8 * MIB, 48 * MIB, 64 * MIB, 0);
    by_thread(&fixture, fill_all);
    turns_until_resident(&fixture, 8);
    ok(pager_limit(fixture.pager, TIER_DDR, 48 * MIB));
    by_thread(&fixture, check_all);
    assert_int_equal(pager_fixture_resident(&fixture), PAGES);
    assert_int_equal(pager_limit(fixture.pager, TIER_DDR, 48 * MIB + PAGE_BYTES), -EINVAL);
    assert_non_null(strstr(error_text(), "48 MiB"));
    pager_fixture_close(&fixture);
}

/* With threads at work: budgets of every size, one after the other. */
static void budgets_change_under_load(uint64_t cxl_bytes, uint64_t nvme_bytes)
{
    struct random random = {.state = 77};
    uint64_t end_ns = os_now_ns() + 1500000000;
    struct worker workers[THREADS];
    struct pager_fixture fixture;
    _Atomic(bool) stop = false;

    pager_fixture_open(&fixture, 48 * MIB, 0, cxl_bytes, nvme_bytes);
    by_thread(&fixture, fill_all);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.fixture = &fixture, .number = i, .stop = &stop};
        worker_start(&workers[i], work);
    }
    while (os_now_ns() < end_ns) {
        uint64_t next_ns = os_now_ns() + random_below(&random, 40000000);

        ok(pager_limit(fixture.pager, TIER_DDR, MIB + random_below(&random, 47) * MIB));
        while (os_now_ns() < next_ns)
            pager_fixture_turn(&fixture);
    }
    ok(pager_limit(fixture.pager, TIER_DDR, 4 * MIB));
    turns_until_resident(&fixture, 4);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < THREADS; i++) {
        worker_join(&workers[i]);
        assert_true(workers[i].checks > 10);
        assert_true(workers[i].longest_ns < UINT64_C(1500000000)); /* less than what a full node would stall */
    }
    assert_int_equal(pager_stats(fixture.pager)->poisoned_pages, 0);
    by_thread(&fixture, check_all);
    pager_fixture_close(&fixture);
}

static void budgets_change_under_load_over_cxl(void **state)
{
    (void)state;
    budgets_change_under_load(64 * MIB, 0);
}

static void budgets_change_under_load_over_nvme(void **state)
{
    (void)state;
    budgets_change_under_load(16 * MIB, 64 * MIB);
}

static void cxl_shrinks_into_nvme(void **state)
{
    uint64_t end_ns = os_now_ns() + UINT64_C(20000000000);
    struct tier_counters counters;
    struct pager_fixture fixture;

    (void)state;
    pager_fixture_open(&fixture, 8 * MIB, 0, 48 * MIB, 64 * MIB);
    by_thread(&fixture, fill_all);
    assert_true(held_mib(&fixture, TIER_CXL) > 28);
    ok(pager_limit(fixture.pager, TIER_CXL, 8 * MIB));
    assert_int_equal(budget_mib(&fixture, TIER_CXL), 8);
    for (int i = 0; i < 1000 && held_mib(&fixture, TIER_CXL) >= 8; i++)
        pager_fixture_turn(&fixture);
    assert_true(held_mib(&fixture, TIER_CXL) < 8);
    assert_true(held_mib(&fixture, TIER_NVME) > 20);
    by_thread(&fixture, check_all);
    tier_counters_get(fixture.tiers[TIER_CXL], &counters);
    assert_true(counters.slots_used <= counters.slots_max);

    ok(pager_limit(fixture.pager, TIER_CXL, 0)); /* none of it: the tier is emptied */
    do {
        pager_fixture_turn(&fixture);
        tier_counters_get(fixture.tiers[TIER_CXL], &counters);
    } while (counters.slots_used > 0 && os_now_ns() < end_ns);
    assert_int_equal(counters.slots_used, 0);
    by_thread(&fixture, check_all);

    ok(pager_limit(fixture.pager, TIER_CXL, 96 * MIB)); /* twice the size at start */
    assert_int_equal(budget_mib(&fixture, TIER_CXL), 96);
    by_thread(&fixture, check_all);
    assert_int_equal(pager_limit(fixture.pager, TIER_CXL, 1024 * MIB), -ENOMEM);
    assert_int_equal(budget_mib(&fixture, TIER_CXL), 96);
    pager_fixture_close(&fixture);
}

static void cxl_stays_when_nothing_is_below(void **state)
{
    struct pager_fixture fixture;

    (void)state;
    pager_fixture_open(&fixture, 8 * MIB, 0, 64 * MIB, 0);
    by_thread(&fixture, fill_all);
    assert_int_equal(pager_limit(fixture.pager, TIER_CXL, 8 * MIB), -EBUSY);
    assert_non_null(strstr(error_text(), "in use"));
    assert_int_equal(budget_mib(&fixture, TIER_CXL), 64);
    ok(pager_limit(fixture.pager, TIER_CXL, 40 * MIB)); /* enough for what is there */
    by_thread(&fixture, check_all);
    pager_fixture_close(&fixture);
}

/* DDR has nowhere to go: it stays, threads go on, and when room comes it leaves. */
static void ddr_stays_when_all_below_is_full(void **state)
{
    struct pager_fixture fixture;

    (void)state;
    pager_fixture_open(&fixture, 48 * MIB, 0, 8 * MIB, 0);
    by_thread(&fixture, fill_all);
    ok(pager_limit(fixture.pager, TIER_DDR, 8 * MIB));
    for (int i = 0; i < 200; i++)
        pager_fixture_turn(&fixture);
    assert_true(pager_fixture_resident(&fixture) >= 32 << 8);
    by_thread(&fixture, check_all);
    assert_int_equal(pager_stats(fixture.pager)->poisoned_pages, 0);
    ok(pager_limit(fixture.pager, TIER_CXL, 32 * MIB));
    for (int i = 0; i < 200; i++)
        pager_fixture_turn(&fixture);
    assert_true(pager_fixture_resident(&fixture) < 16 << 8);
    by_thread(&fixture, check_all);
    pager_fixture_close(&fixture);
}

static void wrong_wishes_are_refused(void **state)
{
    struct pager_fixture fixture;

    (void)state;
    pager_fixture_open(&fixture, 8 * MIB, 16 * MIB, 0, 8 * MIB);
    assert_int_equal(pager_limit(fixture.pager, TIER_DDR, 15 * PAGE_BYTES), -EINVAL);
    assert_int_equal(pager_limit(fixture.pager, TIER_DDR, UINT64_MAX), -EINVAL);
    assert_int_equal(pager_limit(fixture.pager, TIER_CXL, MIB), -ENOENT);
    assert_int_equal(pager_limit(fixture.pager, TIER_ZMEM, MIB), -ENOENT);
    assert_int_equal(pager_limit(fixture.pager, TIER_NVME, MIB), -EINVAL);
    assert_int_equal(budget_mib(&fixture, TIER_DDR), 8);
    pager_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ddr_shrinks_and_grows_over_cxl),
        cmocka_unit_test(ddr_shrinks_and_grows_over_nvme),
        cmocka_unit_test(ddr_can_become_larger_than_at_start),
        cmocka_unit_test(budgets_change_under_load_over_cxl),
        cmocka_unit_test(budgets_change_under_load_over_nvme),
        cmocka_unit_test(cxl_shrinks_into_nvme),
        cmocka_unit_test(cxl_stays_when_nothing_is_below),
        cmocka_unit_test(ddr_stays_when_all_below_is_full),
        cmocka_unit_test(wrong_wishes_are_refused),
    };

    require_userfaultfd();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
