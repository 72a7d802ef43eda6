/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_fixture.h - a pager with its tiers over private memory, without protocols: the main thread plays the shard,
 * other threads touch.
 */
#ifndef TIERMESH_TESTS_PAGER_FIXTURE_H
#define TIERMESH_TESTS_PAGER_FIXTURE_H

#include "base/random.h"
#include "runtime/loop.h"
#include "runtime/pager.h"
#include "tests/unit/mmu/fixture.h"

#include <sys/epoll.h>

#define PAGER_SHARED_BYTES  EXTENT_BYTES
#define PAGER_PRIVATE_BYTES ((uint64_t)64 << 20)
#define PAGER_FIRST         (PAGER_SHARED_BYTES >> PAGE_SHIFT)
#define MIB                 ((uint64_t)1 << 20)

struct pager_fixture {
    struct mmu_window window;
    struct mmu_features features;
    struct mmu *mmu;
    struct loop *loop;
    struct loop_watch watch;
    struct table *pages;
    struct tier *tiers[TIERS];
    struct pager *pager;
};

static inline void pager_faults_ready(struct loop_watch *watch, uint32_t events)
{
    struct pager_fixture *fixture = watch->context;
    struct mmu_fault faults[16];
    int count;

    (void)events;
    do {
        count = mmu_faults_read(fixture->mmu, faults, 16);
        for (int i = 0; i < count; i++) {
            struct page_entry *entry = table_touch(fixture->pages, faults[i].page);

            page_set_rights(entry, ACCESS_WRITE);
            pager_fault(fixture->pager, faults[i].page, faults[i].is_write || faults[i].kind == MMU_FAULT_WP, 1,
                        os_now_ns());
        }
    } while (count == 16);
}

/* Shared pages are this node's alone. */
static inline bool pager_fixture_has_no_copy(void *context, struct page_id page)
{
    (void)context;
    (void)page;
    return false;
}

/* Sizes in bytes; 0: no such tier. nvme lies in the current directory; zmem is that part of DDR which config says. */
static inline void pager_fixture_open_config(struct pager_fixture *fixture, struct pager_config config,
                                             uint64_t cxl_bytes, uint64_t nvme_bytes)
{
    struct mmu_switches switches = {0};

    memset(fixture, 0, sizeof(*fixture));
    ok(mmu_features_probe(&switches, &fixture->features));
    ok(mmu_window_reserve(TEST_BASE, PAGER_SHARED_BYTES, PAGER_PRIVATE_BYTES, &fixture->window));
    ok(mmu_open(&fixture->window, &fixture->features, &fixture->mmu));
    ok(loop_create("auto", &fixture->loop));
    ok(table_create((PAGER_SHARED_BYTES + PAGER_PRIVATE_BYTES) >> PAGE_SHIFT, sizeof(struct page_entry),
                    &fixture->pages));
    if (cxl_bytes > 0)
        ok(tier_cxl_emulated_open(cxl_bytes, &fixture->tiers[TIER_CXL]));
    if (config.zmem_percent > 0)
        ok(tier_zmem_open(config.ddr_bytes / 100 * config.zmem_percent, "lz4", &fixture->tiers[TIER_ZMEM]));
    if (nvme_bytes > 0)
        ok(tier_nvme_open(fixture->loop, ".", nvme_bytes, &fixture->tiers[TIER_NVME]));
    config.loop = fixture->loop;
    config.mmu = fixture->mmu;
    config.window = &fixture->window;
    config.pages = fixture->pages;
    memcpy(config.tiers, fixture->tiers, sizeof(config.tiers));
    ok(pager_create(&config, &fixture->pager));
    fixture->watch =
        (struct loop_watch){.fd = mmu_descriptor(fixture->mmu), .ready = pager_faults_ready, .context = fixture};
    ok(loop_watch(fixture->loop, &fixture->watch, EPOLLIN | EPOLLET));
    ok(pager_private_take(fixture->pager, page_of(PAGER_FIRST), PAGER_PRIVATE_BYTES >> PAGE_SHIFT));
}

/* policy NULL: the default. */
static inline void pager_fixture_open_with(struct pager_fixture *fixture, uint64_t ddr_bytes, uint64_t ddr_max_bytes,
                                           uint64_t cxl_bytes, uint64_t nvme_bytes,
                                           const struct placement_ops *policy, const struct pager_user *user)
{
    const struct pager_config config = {
        .ddr_bytes = ddr_bytes,
        .ddr_max_bytes = ddr_max_bytes,
        .prefetch_pages = 32,
        .fault_around_pages = 1,
        .cost = {.read_ns = {300, 900, 2000, 80000}, .write_ns = {300, 900, 3000, 5000}, .remote_read_ns = 30000},
        .policy = policy,
        .user = *user,
    };

    pager_fixture_open_config(fixture, config, cxl_bytes, nvme_bytes);
}

static inline void pager_fixture_open(struct pager_fixture *fixture, uint64_t ddr_bytes, uint64_t ddr_max_bytes,
                                      uint64_t cxl_bytes, uint64_t nvme_bytes)
{
    const struct pager_user nobody = {
        .has_other_copy = pager_fixture_has_no_copy, .give_back = pager_fixture_has_no_copy};

    pager_fixture_open_with(fixture, ddr_bytes, ddr_max_bytes, cxl_bytes, nvme_bytes, NULL, &nobody);
}

/* One turn of the shard's loop, 10 ms at most. */
static inline void pager_fixture_turn(struct pager_fixture *fixture)
{
    uint64_t limit_ns = os_now_ns() + 10000000;
    uint64_t deadline_ns;

    pager_balance(fixture->pager);
    deadline_ns = pager_deadline_ns(fixture->pager);
    loop_run_once(fixture->loop, deadline_ns < limit_ns ? deadline_ns : limit_ns);
}

/* A page of the private half, counted from its first. */
static inline uint8_t *pager_fixture_page(const struct pager_fixture *fixture, size_t page)
{
    return mmu_page_address(&fixture->window, page_of(PAGER_FIRST + page));
}

/* Runs in a thread of its own, which says at its end that it is done; this one plays the shard meanwhile. */
static inline void pager_fixture_run(struct pager_fixture *fixture, void *(*run)(void *), void *argument,
                                     _Atomic(bool) *is_done)
{
    pthread_t thread;

    ASSERT(pthread_create(&thread, NULL, run, argument) == 0);
    while (!atomic_load(is_done))
        pager_fixture_turn(fixture);
    pthread_join(thread, NULL);
}

static inline void pager_fixture_close(struct pager_fixture *fixture)
{
    while (pager_is_transferring(fixture->pager))
        loop_run_once(fixture->loop, UINT64_MAX);
    loop_unwatch(fixture->loop, &fixture->watch);
    mmu_close(fixture->mmu);
    pager_destroy(fixture->pager);
    for (int i = 0; i < TIERS; i++)
        tier_close(fixture->tiers[i]);
    table_destroy(fixture->pages);
    loop_destroy(fixture->loop);
    mmu_window_release(&fixture->window);
}

/* Pages of the private half that are in memory: mapped, as the kernel counts, or in limbo. */
static inline uint64_t pager_fixture_resident(const struct pager_fixture *fixture)
{
    static unsigned char present[PAGER_PRIVATE_BYTES >> PAGE_SHIFT];
    uint64_t count = 0;

    ASSERT(mincore(mmu_page_address(&fixture->window, page_of(PAGER_FIRST)), PAGER_PRIVATE_BYTES, present) == 0);
    for (size_t i = 0; i < PAGER_PRIVATE_BYTES >> PAGE_SHIFT; i++)
        count += (present[i] & 1) ||
                 page_where(table_touch(fixture->pages, page_of(PAGER_FIRST + i))) == WHERE_LIMBO;
    return count;
}

#endif
