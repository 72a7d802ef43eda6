/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pager_watched.c - pages that come ahead stay unmapped until they are touched, so that the predictors learn which
 * were right: a walk in no order is read ahead from its second time on.
 */
#include "tests/unit/runtime/pager_fixture.h"

#define PAGES_MAX 2048

static struct {
    struct pager_fixture fixture;
    size_t first, count; /* pages of the window */
    size_t order[PAGES_MAX];
    _Atomic(bool) is_done;
    bool is_write;
} walk;

/* Pages that are only read keep their copies below. */
__attribute__((no_sanitize("thread"))) static void *walk_run(void *argument)
{
    (void)argument;
    for (size_t i = 0; i < walk.count; i++) {
        uint8_t *bytes = mmu_page_address(&walk.fixture.window, page_of(walk.first + walk.order[i]));

        if (walk.is_write)
            page_fill(bytes, walk.order[i]);
        else
            ASSERT(page_is_filled(bytes, walk.order[i]));
    }
    atomic_store(&walk.is_done, true);
    return NULL;
}

/* Once along the walk. Returns how many pages came from below while a thread waited. */
static uint64_t round_of(bool is_write)
{
    uint64_t before = pager_stats(walk.fixture.pager)->faults[DSM_FROM_NVME].count;

    walk.is_write = is_write;
    atomic_store(&walk.is_done, false);
    pager_fixture_run(&walk.fixture, walk_run, NULL, &walk.is_done);
    return pager_stats(walk.fixture.pager)->faults[DSM_FROM_NVME].count - before;
}

static void walk_open(uint64_t ddr_bytes, size_t first, size_t count)
{
    struct random random = {.state = 3};

    memset(&walk, 0, sizeof(walk));
    pager_fixture_open(&walk.fixture, ddr_bytes, 0, 0, 96 * MIB);
    walk.first = first;
    walk.count = count;
    for (size_t i = 0; i < count; i++)
        walk.order[i] = i;
    for (size_t i = count; i-- > 1;) {
        size_t other = random_below(&random, (uint32_t)i + 1);
        size_t kept = walk.order[i];

        walk.order[i] = walk.order[other];
        walk.order[other] = kept;
    }
}

static void walk_close(void)
{
    assert_int_equal(pager_stats(walk.fixture.pager)->poisoned_pages, 0);
    pager_fixture_close(&walk.fixture);
}

static void walk_is_learned(bool is_write)
{
    const struct stats *stats = pager_stats(walk.fixture.pager);
    struct prefetch_counters counters;
    uint64_t first, soft, last = 0;

    round_of(true);
    first = round_of(is_write);
    soft = stats->soft_faults;
    for (int i = 0; i < 4; i++)
        last = round_of(is_write);
    pager_prefetch_counters(walk.fixture.pager, &counters);
    assert_true(first > walk.count / 2);
    assert_true(last < first / 2);
    assert_true(stats->soft_faults - soft > walk.count);
    assert_true(counters.used_by[PREFETCH_TEMPORAL] > walk.count);
    assert_true(stats->prefetch_hits >= counters.used);
    assert_true(stats->prefetch_unused >= counters.wasted);
}

static void test_a_private_walk_is_replayed(void **state)
{
    (void)state;
    if (!mmu_features(walk.fixture.mmu)->has_move)
        skip();
    walk_is_learned(false);
}

static void test_a_private_walk_that_writes_is_replayed(void **state)
{
    (void)state;
    if (!mmu_features(walk.fixture.mmu)->has_move)
        skip();
    walk_is_learned(true);
}

static void test_a_shared_walk_is_replayed(void **state)
{
    (void)state;
    if (!mmu_features(walk.fixture.mmu)->has_move)
        skip();
    walk_is_learned(false);
    round_of(true);
    round_of(false);
}

/* The walk ends, and pages that nearly fit are touched at random: what comes ahead takes the frame of one of them. */
static void test_the_price_is_counted(void **state)
{
    struct prefetch_counters counters;
    struct random random = {.state = 9};

    (void)state;
    if (!mmu_features(walk.fixture.mmu)->has_move)
        skip();
    for (int i = 0; i < 5; i++)
        round_of(i == 0);
    for (size_t i = 0; i < walk.count; i++)
        walk.order[i] = random_below(&random, 800);
    for (int i = 0; i < 5; i++)
        round_of(false);
    pager_prefetch_counters(walk.fixture.pager, &counters);
    assert_true(counters.used > 0);
    assert_true(counters.polluted > 0);
}

static int private_open(void **state)
{
    (void)state;
    walk_open(3 * MIB, PAGER_FIRST, 1800);
    return 0;
}

static int shared_open(void **state)
{
    (void)state;
    walk_open(MIB + MIB / 4, 0, PAGER_SHARED_BYTES >> PAGE_SHIFT);
    return 0;
}

static int any_close(void **state)
{
    (void)state;
    walk_close();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_private_walk_is_replayed, private_open, any_close),
        cmocka_unit_test_setup_teardown(test_a_private_walk_that_writes_is_replayed, private_open, any_close),
        cmocka_unit_test_setup_teardown(test_a_shared_walk_is_replayed, shared_open, any_close),
        cmocka_unit_test_setup_teardown(test_the_price_is_counted, private_open, any_close),
    };

    require_userfaultfd();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
