/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pager_zmem.c - compressed memory inside the DDR budget: what it holds counts there, what it refuses goes on.
 */
#include "tests/unit/runtime/pager_fixture.h"

#define PAGES ((size_t)40 << 8) /* 40 MiB */

struct job {
    struct pager_fixture *fixture;
    bool is_noise; /* bytes that do not compress */
    bool is_check;
    _Atomic(bool) is_done;
};

static void bytes_make(uint8_t *bytes, size_t page, bool is_noise)
{
    struct random random = {.state = page + 1};

    page_fill(bytes, page);
    for (size_t i = 0; is_noise && i < PAGE_BYTES; i += sizeof(uint64_t)) {
        uint64_t word = random_next(&random);

        memcpy(bytes + i, &word, sizeof(word));
    }
}

__attribute__((no_sanitize("thread"))) static void *job_run(void *argument)
{
    struct job *job = argument;
    uint8_t expected[PAGE_BYTES];

    for (size_t page = 0; page < PAGES; page++) {
        uint8_t *bytes = pager_fixture_page(job->fixture, page);

        bytes_make(expected, page, job->is_noise);
        if (job->is_check)
            ASSERT(memcmp(bytes, expected, PAGE_BYTES) == 0);
        else
            memcpy(bytes, expected, PAGE_BYTES);
    }
    atomic_store(&job->is_done, true);
    return NULL;
}

static void job_do(struct pager_fixture *fixture, bool is_noise, bool is_check)
{
    struct job job = {.fixture = fixture, .is_noise = is_noise, .is_check = is_check};

    pager_fixture_run(fixture, job_run, &job, &job.is_done);
}

static void zmem_open(struct pager_fixture *fixture, uint64_t ddr_bytes, uint32_t percent)
{
    const struct pager_config config = {
        .ddr_bytes = ddr_bytes,
        .zmem_percent = percent,
        .prefetch_pages = 32,
        .fault_around_pages = 1,
        .cost = {.read_ns = {300, 900, 2000, 80000}, .write_ns = {300, 900, 3000, 5000}},
        .user = {.has_other_copy = pager_fixture_has_no_copy, .give_back = pager_fixture_has_no_copy},
    };

    pager_fixture_open_config(fixture, config, 0, 64 * MIB);
}

static uint64_t compressed_bytes(struct pager_fixture *fixture)
{
    struct tier_counters counters;

    tier_counters_get(fixture->tiers[TIER_ZMEM], &counters);
    return counters.physical_bytes;
}

/* Pages as they are, and what others compress to. */
static uint64_t memory_bytes(struct pager_fixture *fixture)
{
    return (pager_fixture_resident(fixture) << PAGE_SHIFT) + compressed_bytes(fixture);
}

/* Until all of it takes no more than that, and zmem no more than half. */
static void turns_until(struct pager_fixture *fixture, uint64_t bytes)
{
    uint64_t end_ns = os_now_ns() + UINT64_C(10000000000);

    while (memory_bytes(fixture) > bytes || compressed_bytes(fixture) > bytes / 2) {
        assert_true(os_now_ns() < end_ns);
        pager_fixture_turn(fixture);
    }
}

static void test_compressed_pages_count_inside_ddr(void **state)
{
    struct pager_fixture fixture;

    (void)state;
    zmem_open(&fixture, 16 * MIB, 50);
    job_do(&fixture, false, false);
    turns_until(&fixture, 16 * MIB);
    assert_true(compressed_bytes(&fixture) > MIB);
    job_do(&fixture, false, true);
    pager_fixture_close(&fixture);
}

/* A smaller budget of DDR is one of zmem too: both give way, nothing is lost, and nobody stalls. */
static void test_zmem_follows_the_budget_of_ddr(void **state)
{
    struct pager_fixture fixture;

    (void)state;
    zmem_open(&fixture, 32 * MIB, 50);
    job_do(&fixture, false, false);
    assert_true(compressed_bytes(&fixture) > MIB);
    ok(pager_limit(fixture.pager, TIER_DDR, 8 * MIB));
    turns_until(&fixture, 8 * MIB);
    job_do(&fixture, false, true);
    turns_until(&fixture, 8 * MIB);
    assert_int_equal(pager_stats(fixture.pager)->poisoned_pages, 0);
    ok(pager_limit(fixture.pager, TIER_DDR, 32 * MIB));
    job_do(&fixture, false, true);
    assert_true(memory_bytes(&fixture) > 8 * MIB);
    pager_fixture_close(&fixture);
}

/* They are not taken out of memory while the disk is busy with others: that would be for nothing, each time. */
static void test_refused_pages_wait_for_the_disk_where_they_are(void **state)
{
    struct pager_fixture fixture;
    uint64_t written;

    (void)state;
    zmem_open(&fixture, 8 * MIB, 50);
    job_do(&fixture, true, false);
    written = pager_stats(fixture.pager)->moves[DSM_TIER_DDR][DSM_TIER_NVME];
    assert_true(written > PAGES / 2);
    assert_true(pager_stats(fixture.pager)->returned_pages < written / 16);
    job_do(&fixture, true, true);
    pager_fixture_close(&fixture);
}

/* ---- how much of DDR it gets ------------------------------------------------------------------------------------- */

#define TOUCHES 60000

struct walk {
    struct pager_fixture *fixture;
    size_t pages_count; /* the first ones, in no order */
    _Atomic(bool) is_done;
};

__attribute__((no_sanitize("thread"))) static void *walk_run(void *argument)
{
    struct walk *walk = argument;
    struct random random = {.state = 1};

    for (int i = 0; i < TOUCHES; i++) {
        size_t page = random_next(&random) % walk->pages_count;
        uint8_t *bytes = pager_fixture_page(walk->fixture, page);
        uint8_t expected[PAGE_BYTES];

        bytes_make(expected, page, false);
        ASSERT(memcmp(bytes, expected, PAGE_BYTES) == 0);
        bytes[0] = expected[0];
    }
    atomic_store(&walk->is_done, true);
    return NULL;
}

static uint64_t share_pages(struct pager_fixture *fixture)
{
    uint64_t pages[TIERS];

    pager_budget_pages(fixture->pager, pages);
    return pages[TIER_ZMEM];
}

/* Fills all pages, then touches the first ones at random. Returns zmem's share before and after. */
static void share_after_walk(size_t pages_count, uint64_t *ret_before, uint64_t *ret_after)
{
    struct pager_fixture fixture;
    struct walk walk = {.fixture = &fixture, .pages_count = pages_count};

    zmem_open(&fixture, 8 * MIB, 70);
    *ret_before = share_pages(&fixture);
    if (!fixture.features.has_move) {
        pager_fixture_close(&fixture);
        skip();
    }
    job_do(&fixture, false, false);
    pager_fixture_run(&fixture, walk_run, &walk, &walk.is_done);
    *ret_after = share_pages(&fixture);
    job_do(&fixture, false, true);
    pager_fixture_close(&fixture);
}

/* All pages are touched, most of them lie on the disk: the more of them are in zmem, the better. */
static void test_zmem_grows_where_pages_come_back(void **state)
{
    uint64_t before;
    uint64_t after;

    (void)state;
    share_after_walk(PAGES, &before, &after);
    assert_true(after > before + before / 2);
}

/* What is touched fits into DDR if zmem leaves it alone. */
static void test_zmem_gives_way_to_pages_in_use(void **state)
{
    uint64_t before;
    uint64_t after;

    (void)state;
    share_after_walk((7 * MIB) >> PAGE_SHIFT, &before, &after);
    assert_true(after < before - before / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compressed_pages_count_inside_ddr),
        cmocka_unit_test(test_zmem_follows_the_budget_of_ddr),
        cmocka_unit_test(test_refused_pages_wait_for_the_disk_where_they_are),
        cmocka_unit_test(test_zmem_grows_where_pages_come_back),
        cmocka_unit_test(test_zmem_gives_way_to_pages_in_use),
    };

    require_userfaultfd();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
