/* SPDX-License-Identifier: Apache-2.0 */
/*
 * managed_limit.c - the range of addresses, and what a limit on address space (RLIMIT_AS) makes of it.
 *
 * Without a limit the whole range is reserved at start: nobody else gets an address of it. The kernel counts reserved
 * addresses against the limit, and the tables for them against one on data (RLIMIT_DATA), so under either the range is
 * *bare*: as small as the limit lets it be, free addresses are not mapped, and what is handed out is mapped where it
 * must be. The kernel places nothing there by itself; what somebody else put there is left alone.
 */
#include "base/error.h"
#include "runtime/managed.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define WINDOW_BASE      0x300000000000U
#define WINDOW_BYTES     ((uint64_t)16 << 40)
#define WINDOW_BYTES_MIN ((uint64_t)1 << 30)
#define RESERVE_FLAGS    (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

/* Room for all that the limit lets the program map, at alignments and with holes. Tables grow with it. */
#define BARE_SHARE 4

static uint64_t bare_bytes(uint64_t limit_bytes)
{
    uint64_t bytes = limit_bytes < WINDOW_BYTES / BARE_SHARE ? limit_bytes * BARE_SHARE : WINDOW_BYTES;

    bytes = (bytes + EXTENT_BYTES - 1) & ~(EXTENT_BYTES - 1);
    return bytes > WINDOW_BYTES_MIN ? bytes : WINDOW_BYTES_MIN;
}

static bool reserve(uint64_t base, uint64_t size)
{
    void *wanted = (void *)(uintptr_t)base;
    void *got = mmap(wanted, size, PROT_NONE, RESERVE_FLAGS | MAP_FIXED_NOREPLACE, -1, 0);

    if (got != MAP_FAILED && got != wanted)
        munmap(got, size);
    return got == wanted;
}

static rlim_t limit_now(__rlimit_resource_t which)
{
    struct rlimit limit;

    return getrlimit(which, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

int managed_window_open(struct managed *managed)
{
    uint64_t base = managed->config.window_base != 0 ? managed->config.window_base : WINDOW_BASE;
    rlim_t limit = limit_now(RLIMIT_AS), data_limit = limit_now(RLIMIT_DATA);
    uint64_t size = WINDOW_BYTES;

    limit = limit < data_limit ? limit : data_limit;
    managed->is_bare = limit != RLIM_INFINITY;
    if (managed->is_bare)
        size = bare_bytes(limit);
    else
        while (size >= WINDOW_BYTES_MIN && !reserve(base, size))
            size /= 4;
    if (size < WINDOW_BYTES_MIN)
        return error_set(-ENOMEM,
                         "no addresses for managed memory at 0x%lx: something else is there, or "
                         "vm.overcommit_memory is 2",
                         (unsigned long)base);
    managed->window =
        (struct mmu_window){.base = base, .private_bytes = size, .memfd = -1, .pagemap_fd = -1, .is_inherited = true};
    mmu_window_look(&managed->window);
    return 0;
}

static void *address_of(const struct managed *managed, uint64_t page)
{
    return (void *)(uintptr_t)(managed->window.base + (page << PAGE_SHIFT));
}

int managed_free_map(struct managed *managed, uint64_t first, uint64_t end)
{
    void *address = address_of(managed, first);
    size_t size = (size_t)(end - first) << PAGE_SHIFT;

    if (managed->is_bare)
        return munmap(address, size) == 0 ? 0 : -errno;
    return mmap(address, size, PROT_NONE, RESERVE_FLAGS | MAP_FIXED, -1, 0) == address ? 0 : -errno;
}

int managed_free_open(struct managed *managed, uint64_t first, uint64_t end, int protection)
{
    void *address = address_of(managed, first);
    size_t size = (size_t)(end - first) << PAGE_SHIFT;
    void *got;

    if (!managed->is_bare)
        return protection == PROT_NONE || mprotect(address, size, protection) == 0 ? 0 : -errno;
    got = mmap(address, size, protection, RESERVE_FLAGS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != MAP_FAILED && got != address) /* Linux before 4.17 takes it for a hint */
        munmap(got, size);
    return got == address ? 0 : got != MAP_FAILED || errno == EEXIST ? -EEXIST : -ENOMEM;
}

/* What follows the last run, and what lies between two, is given back. */
int run_limit(struct managed *managed, struct order *order)
{
    uint64_t pages = managed->window.private_bytes >> PAGE_SHIFT;
    uint64_t wanted = bare_bytes(order->end << PAGE_SHIFT) >> PAGE_SHIFT;
    uint64_t used = 0;
    struct range run;

    if (managed->is_bare)
        return 0;
    managed->is_bare = true;
    for (; ranges_next(managed->ranges, used, &run); used = run.end)
        if (run.first > used && managed_free_map(managed, used, run.first) != 0)
            return -ENOMEM;
    if (used < pages && managed_free_map(managed, used, pages) != 0)
        return -ENOMEM;
    if (managed_is_running())
        pager_addresses_limit(managed->shard.pager);
    used = (used + EXTENT_PAGES - 1) & ~(uint64_t)(EXTENT_PAGES - 1);
    wanted = wanted > used ? wanted : used;
    if (wanted >= pages)
        return 0;
    ranges_limit(managed->ranges, wanted);
    managed->window.private_bytes = wanted << PAGE_SHIFT;
    atomic_store_explicit(&hooks_size_bytes, managed->window.private_bytes, memory_order_relaxed);
    if (managed_is_running())
        table_limit(managed->shard.pages, wanted);
    return 0;
}

void hooks_limit(uint64_t limit_bytes)
{
    struct order order = {.run = run_limit, .end = limit_bytes >> PAGE_SHIFT};

    if (managed_is_own())
        (void)managed_call(&order);
}
