/* SPDX-License-Identifier: Apache-2.0 */
/*
 * private.c - taking private pages out of the application's sight, into staging memory of the shard.
 *
 * By UFFDIO_MOVE the page itself changes its address: atomic against every store, and the kernel refuses pages that
 * are pinned or shared by fork (EBUSY). The destination of a MOVE must be registered with the same descriptor, so
 * staging is, and only pages that were moved there may be touched.
 *
 * Without MOVE: protect, copy, drop. A store between is held as a WP fault; it finds the page absent when it is woken.
 * A transfer by a device into a pinned page raises no fault, so it is lost there, and nothing tells an unprivileged
 * process whether a page is pinned: without MOVE the caller must keep pinned pages out of the run.
 */
#include "base/error.h"
#include "mmu/uapi.h"
#include "mmu/uffd.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

static int refuse_out(struct page_id page, int error)
{
    switch (error) {
    case EBUSY:
        return error_set(-EBUSY, "page 0x%llx is pinned or shared by fork", (unsigned long long)page.index);
    case ENOENT:
        return error_set(-ENOENT, "page 0x%llx is not there", (unsigned long long)page.index);
    default:
        return error_set(-error, "take out page 0x%llx: %s", (unsigned long long)page.index, strerror(error));
    }
}

static int take_out_by_move(struct mmu *mmu, struct page_id first, unsigned pages_count, void *staging,
                            unsigned *ret_moved)
{
    uint64_t source = run_address(mmu, first);
    uint64_t size = run_bytes(pages_count);
    uint64_t done = 0;
    int error = 0;

    while (done < size && error == 0) {
        struct uffdio_move move = {
            .dst = (uint64_t)(uintptr_t)staging + done,
            .src = source + done,
            .len = size - done,
            .mode = UFFDIO_MOVE_MODE_DONTWAKE,
        };

        if (ioctl(mmu->fd, UFFDIO_MOVE, &move) != 0 && errno != EAGAIN)
            error = errno;
        else if (move.move > 0)
            done += (uint64_t)move.move;
        else
            sched_yield();
    }
    *ret_moved = (unsigned)(done >> PAGE_SHIFT);
    return error == 0 ? 0 : refuse_out(page_of(first.index + *ret_moved), error);
}

/* Pages from the start of the run that can be read without a fault: the shard cannot answer its own. */
static int count_present(struct mmu *mmu, struct page_id first, unsigned pages_count, unsigned *ret_count)
{
    unsigned count = 0;
    bool present[EXTENT_PAGES];
    int error;

    if (pages_count > EXTENT_PAGES)
        pages_count = EXTENT_PAGES;
    error = mmu_present(&mmu->window, first, pages_count, present);
    if (error != 0)
        return error;
    while (count < pages_count && present[count])
        count++;
    *ret_count = count;
    return 0;
}

/*
 * The page table orders this copy against the application's stores: the pages are protected. A race detector cannot
 * know that, so the loads are made invisible to it.
 */
__attribute__((noinline, no_sanitize("thread"))) static void copy_protected(void *to, const void *from,
                                                                            size_t size_bytes)
{
    const volatile uint64_t *source = from;
    uint64_t *target = to;

    for (size_t i = 0; i < size_bytes / sizeof(*target); i++)
        target[i] = source[i];
}

static int take_out_piece(struct mmu *mmu, struct page_id first, unsigned pages_count, void *staging)
{
    int error = mmu_protect(mmu, first, pages_count, false);

    if (error != 0)
        return error;
    copy_protected(staging, mmu_page_address(&mmu->window, first), run_bytes(pages_count));
    return mmu_drop(mmu, first, pages_count);
}

static int take_out_by_copy(struct mmu *mmu, struct page_id first, unsigned pages_count, void *staging,
                            unsigned *ret_moved)
{
    unsigned done = 0;
    int error = 0;

    while (done < pages_count && error == 0) {
        struct page_id next = page_of(first.index + done);
        unsigned count;

        error = count_present(mmu, next, pages_count - done, &count);
        if (error == 0 && count == 0)
            error = refuse_out(next, ENOENT);
        if (error == 0)
            error = take_out_piece(mmu, next, count, (uint8_t *)staging + run_bytes(done));
        if (error == 0)
            done += count;
    }
    *ret_moved = done;
    return error;
}

int mmu_take_out(struct mmu *mmu, struct page_id first, unsigned pages_count, void *staging, unsigned *ret_moved)
{
    ASSERT(!run_is_shared(mmu, first, pages_count));
    if (mmu->features.has_move)
        return take_out_by_move(mmu, first, pages_count, staging, ret_moved);
    return take_out_by_copy(mmu, first, pages_count, staging, ret_moved);
}

/* ---- staging -------------------------------------------------------------------------------------------------------
 */

/* Aligned to an extent, so that a huge page can be moved whole: one end of the surplus is given back. */
static void *map_aligned(size_t size_bytes)
{
    uint8_t *memory = mmap(NULL, size_bytes + EXTENT_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before;

    if (memory == MAP_FAILED)
        return NULL;
    before = (EXTENT_BYTES - ((uintptr_t)memory & (EXTENT_BYTES - 1))) & (EXTENT_BYTES - 1);
    if (before > 0)
        munmap(memory, before);
    if (before < EXTENT_BYTES)
        munmap(memory + before + size_bytes, EXTENT_BYTES - before);
    return memory + before;
}

int mmu_staging_create(struct mmu *mmu, unsigned pages_count, void **ret_staging)
{
    size_t size = run_bytes(pages_count);
    void *memory;
    int error = 0;

    ASSERT(pages_count > 0 && mmu->stagings_count < STAGINGS_MAX);
    memory = map_aligned(size);
    if (memory == NULL)
        return error_set(-ENOMEM, "map %u pages of staging: %s", pages_count, strerror(errno));
    madvise(memory, size, MADV_DONTDUMP);
    if (mmu->features.has_move)
        error = uffd_register_private(mmu, (uint64_t)(uintptr_t)memory, size);
    else if (madvise(memory, size, MADV_DONTFORK) != 0)
        error = error_set(-errno, "keep staging from children: %s", strerror(errno));
    if (error != 0) {
        munmap(memory, size);
        return error;
    }
    mmu->stagings[mmu->stagings_count++] = (struct staging){memory, size};
    *ret_staging = memory;
    return 0;
}

void mmu_staging_clear(struct mmu *mmu, void *staging, unsigned first, unsigned pages_count)
{
    int result = 0;

    if (mmu->features.has_move && pages_count > 0)
        result = madvise((uint8_t *)staging + run_bytes(first), run_bytes(pages_count), MADV_DONTNEED);
    ASSERT(result == 0); /* else the next move there would find it occupied */
}
