/* SPDX-License-Identifier: Apache-2.0 */
/*
 * poison.c - pages that raise SIGBUS at every touch, because their bytes are lost.
 *
 * By UFFDIO_POISON, a mark in the page table. Without it the page is remapped over a sealed, empty file, where a touch
 * is beyond the end; each costs up to two mappings (vm.max_map_count), and is remembered so that it can be lifted when
 * the page's memory is freed. Runs on the shard's thread.
 */
#include "base/error.h"
#include "mmu/uapi.h"
#include "mmu/uffd.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static int refuse_poison(struct page_id page)
{
    return error_set(-errno, "poison page 0x%llx: %s%s", (unsigned long long)page.index, strerror(errno),
                     errno == ENOMEM ? "; raise vm.max_map_count" : "");
}

/* POISON refuses a place with any entry, also the mark that a protected shared page leaves behind: clear it first. */
static int poison_by_mark(struct mmu *mmu, struct page_id page)
{
    struct uffdio_range range = {run_address(mmu, page), PAGE_BYTES};
    struct uffdio_writeprotect unmark = {.range = range, .mode = UFFDIO_WRITEPROTECT_MODE_DONTWAKE};
    struct uffdio_poison poison = {.range = range};

    mmu->has_marked_poison = true;
    if (ioctl(mmu->fd, UFFDIO_WRITEPROTECT, &unmark) != 0)
        return refuse_poison(page);
    while (ioctl(mmu->fd, UFFDIO_POISON, &poison) != 0) {
        if (errno == EEXIST) {
            mmu_wake(mmu, page, 1); /* nothing else is left there: it is poisoned already */
            return 0;
        }
        if (errno != EAGAIN)
            return refuse_poison(page);
    }
    return 0;
}

static bool is_remapped(const struct mmu *mmu, struct page_id page)
{
    for (size_t i = 0; i < mmu->remapped_count; i++)
        if (mmu->remapped[i] == page.index)
            return true;
    return false;
}

static int poison_by_mapping(struct mmu *mmu, struct page_id page)
{
    void *address = mmu_page_address(&mmu->window, page);

    if (mmu->remapped_count == REMAPPED_MAX)
        return error_set(-ENOMEM, "poison page 0x%llx: %u pages are poisoned already", (unsigned long long)page.index,
                         REMAPPED_MAX);
    if (mmap(address, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, mmu->sigbus_fd, 0) !=
        address)
        return refuse_poison(page);
    mmu->remapped[mmu->remapped_count++] = page.index;
    mmu_wake(mmu, page, 1);
    return 0;
}

int mmu_poison(struct mmu *mmu, struct page_id page)
{
    bool shared = run_is_shared(mmu, page, 1);

    if (is_remapped(mmu, page))
        return 0;
    if (madvise(mmu_page_address(&mmu->window, page), PAGE_BYTES, shared ? MADV_REMOVE : MADV_DONTNEED) != 0)
        return refuse_poison(page);
    return mmu->features.has_poison ? poison_by_mark(mmu, page) : poison_by_mapping(mmu, page);
}

/* PROT_NONE until it is registered: nobody may find zeroes there meanwhile. */
static int restore(struct mmu *mmu, struct page_id page)
{
    void *address = mmu_page_address(&mmu->window, page);
    bool shared = run_is_shared(mmu, page, 1);
    int flags = MAP_FIXED | MAP_NORESERVE | (shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
    off_t offset = shared ? (off_t)(page.index << PAGE_SHIFT) : 0;
    int error;

    if (mmap(address, PAGE_BYTES, PROT_NONE, flags, shared ? mmu->window.memfd : -1, offset) != address)
        return refuse_poison(page);
    if (shared) {
        shared_advise(address, PAGE_BYTES);
        error = uffd_register_shared(mmu, (uint64_t)(uintptr_t)address, PAGE_BYTES);
    } else {
        madvise(address, PAGE_BYTES, MADV_DONTDUMP);
        error = uffd_register_private(mmu, (uint64_t)(uintptr_t)address, PAGE_BYTES);
    }
    if (error == 0 && mprotect(address, PAGE_BYTES, PROT_READ | PROT_WRITE) != 0)
        error = refuse_poison(page);
    return error;
}

int poison_lift(struct mmu *mmu, struct page_id first, uint64_t pages_count)
{
    size_t i = 0;

    while (i < mmu->remapped_count) {
        struct page_id page = page_of(mmu->remapped[i]);
        int error;

        if (page.index - first.index >= pages_count) {
            i++;
            continue;
        }
        error = restore(mmu, page);
        if (error != 0)
            return error;
        mmu->remapped[i] = mmu->remapped[--mmu->remapped_count];
    }
    return 0;
}
