/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_private.c - private extents: fresh ones that the kernel fills, and those under management.
 *
 * Runs on the shard's thread. A fresh extent is charged whole, since the kernel may fill it without asking; when DDR
 * gets short it is registered, what is there is adopted page by page, and the rest faults from then on.
 */
#include "runtime/pager_internal.h"

#include <errno.h>
#include <string.h>

static void present_adopt(struct pager *pager, struct page_id page)
{
    struct page_entry *entry = pager_entry(pager, page);
    struct frame_id frame;

    if (entry == NULL || !pager_frame_take(pager, page, &frame)) {
        log_error("private memory was filled faster than it could be counted; raise option ddr");
        NEVER("frames for private memory");
    }
    page_word_change(entry, WORD_RIGHTS, ACCESS_WRITE | WORD_WRITABLE);
    pager_frame_attach(pager, entry, frame, WHERE_MAPPED, false);
}

/* An extent comes under management: what the kernel filled is adopted page by page, the rest faults from now on. */
static int extent_register(struct pager *pager, struct page_id first)
{
    bool present[EXTENT_PAGES];
    int error = mmu_register(pager->mmu, first, EXTENT_PAGES);

    if (error != 0)
        return error;
    error = mmu_present(pager->window, first, EXTENT_PAGES, present);
    for (unsigned i = 0; error == 0 && i < EXTENT_PAGES; i++) {
        if (present[i])
            present_adopt(pager, page_of(first.index + i));
    }
    return error;
}

int pager_private_register_some(struct pager *pager)
{
    struct page_id first = pager->fresh[pager->fresh_first];
    int error;

    pager->fresh_first = (pager->fresh_first + 1) % PAGER_FRESH_MAX;
    pager->fresh_count--;
    pager->fresh_pages -= EXTENT_PAGES;
    error = extent_register(pager, first);
    if (error != 0)
        log_error("manage private memory at page %lu: %s; it stays in DDR", first.index, strerror(-error));
    return error;
}

int pager_private_take(struct pager *pager, struct page_id first, uint64_t pages_count)
{
    for (uint64_t at = 0; at < pages_count; at += EXTENT_PAGES) {
        struct page_id extent = page_of(first.index + at);

        if (pager->fresh_count == PAGER_FRESH_MAX ||
            pager_frames_used(pager) + EXTENT_PAGES + pager->marks.low > pager->budget_frames) {
            int error = extent_register(pager, extent);

            if (error != 0)
                return error;
            continue;
        }
        pager->fresh[(pager->fresh_first + pager->fresh_count++) % PAGER_FRESH_MAX] = extent;
        pager->fresh_pages += EXTENT_PAGES;
    }
    return 0;
}

int pager_private_manage(struct pager *pager, struct page_id page)
{
    uint64_t first = page.index - page.index % EXTENT_PAGES;

    for (unsigned i = 0; i < pager->fresh_count; i++) {
        struct page_id *fresh = &pager->fresh[(pager->fresh_first + i) % PAGER_FRESH_MAX];

        if (fresh->index != first)
            continue;
        *fresh = pager->fresh[pager->fresh_first]; /* the order of fresh extents does not matter */
        pager->fresh[pager->fresh_first] = page_of(first);
        return pager_private_register_some(pager);
    }
    return 0;
}

/* A fresh extent that was never managed: the kernel has its memory, we only stop counting it. */
static bool fresh_remove(struct pager *pager, struct page_id first)
{
    for (unsigned i = 0; i < pager->fresh_count; i++) {
        unsigned at = (pager->fresh_first + i) % PAGER_FRESH_MAX;

        if (!page_is(pager->fresh[at], first))
            continue;
        pager->fresh[at] = pager->fresh[pager->fresh_first];
        pager->fresh_first = (pager->fresh_first + 1) % PAGER_FRESH_MAX;
        pager->fresh_count--;
        pager->fresh_pages -= EXTENT_PAGES;
        return true;
    }
    return false;
}

void pager_private_give(struct pager *pager, struct page_id first, uint64_t pages_count)
{
    for (uint64_t at = 0; at < pages_count; at += EXTENT_PAGES) {
        struct page_id extent = page_of(first.index + at);

        if (!fresh_remove(pager, extent)) {
            pager_forget(pager, extent);
            if (mmu_unregister(pager->mmu, extent, EXTENT_PAGES) != 0)
                NEVER("what was registered can be unregistered");
        }
        if (mmu_drop(pager->mmu, extent, EXTENT_PAGES) != 0)
            log_error("give private memory at page %lu back: the kernel refused", extent.index);
    }
}
