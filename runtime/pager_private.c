/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_private.c - private extents: fresh ones that the kernel fills, and those under management.
 *
 * Runs on the shard's thread. A fresh extent is charged whole, since the kernel may fill it without asking; when DDR
 * gets short it is registered, what is there is adopted page by page, and the rest faults from then on. Of an unchanged
 * program's extent only the parts that are ours are registered (pager_user.managed_runs).
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

static int run_register(struct pager *pager, struct page_run run)
{
    bool present[EXTENT_PAGES];
    bool may_look = pager->window->pagemap_fd >= 0;
    int error = may_look ? 0 : mmu_populate(pager->window, run.first, run.pages_count);

    if (error == 0)
        error = mmu_register(pager->mmu, run.first, run.pages_count);
    memset(present, true, sizeof(present));
    if (error == 0 && may_look)
        error = mmu_present(pager->window, run.first, run.pages_count, present);
    for (unsigned i = 0; error == 0 && i < run.pages_count; i++)
        if (present[i])
            present_adopt(pager, page_of(run.first.index + i));
    return error;
}

/* An extent comes under management. -EAGAIN: not at this moment. */
static int extent_register(struct pager *pager, struct page_id first)
{
    struct page_run runs[PAGER_EXTENT_RUNS_MAX] = {{first, EXTENT_PAGES}};
    int count = 1;
    int error = 0;

    if (pager->config.user.managed_runs != NULL)
        count = pager->config.user.managed_runs(pager->config.user.context, first, runs);
    if (count < 0)
        return count;
    for (int i = 0; error == 0 && i < count; i++)
        error = run_register(pager, runs[i]);
    return error;
}

/* ---- fresh extents --------------------------------------------------------------------------------------------- */

static struct page_id *fresh_at(struct pager *pager, unsigned i)
{
    return &pager->fresh[(pager->fresh_first + i) % PAGER_FRESH_MAX];
}

static void fresh_drop_first(struct pager *pager)
{
    pager->fresh_first = (pager->fresh_first + 1) % PAGER_FRESH_MAX;
    pager->fresh_count--;
    pager->fresh_pages -= EXTENT_PAGES;
}

static int fresh_find(struct pager *pager, struct page_id first)
{
    for (unsigned i = 0; i < pager->fresh_count; i++)
        if (page_is(*fresh_at(pager, i), first))
            return (int)i;
    return -1;
}

/* The order of fresh extents does not matter much: the oldest takes the other's place. */
static bool fresh_to_front(struct pager *pager, struct page_id first)
{
    int i = fresh_find(pager, first);

    if (i < 0)
        return false;
    *fresh_at(pager, (unsigned)i) = *fresh_at(pager, 0);
    *fresh_at(pager, 0) = first;
    return true;
}

int pager_private_register_some(struct pager *pager)
{
    struct page_id first = *fresh_at(pager, 0);
    int error;

    fresh_drop_first(pager);
    error = extent_register(pager, first);
    if (error == -EAGAIN)
        pager_private_charge(pager, first);
    else if (error != 0)
        log_error("manage private memory at page %lu: %s; it stays in DDR", first.index, strerror(-error));
    return error;
}

void pager_private_charge(struct pager *pager, struct page_id first)
{
    ASSERT(pager->fresh_count < PAGER_FRESH_MAX);
    *fresh_at(pager, pager->fresh_count) = first;
    pager->fresh_count++;
    pager->fresh_pages += EXTENT_PAGES;
}

bool pager_private_uncharge(struct pager *pager, struct page_id first)
{
    if (!fresh_to_front(pager, first))
        return false;
    fresh_drop_first(pager);
    return true;
}

uint64_t pager_private_room(const struct pager *pager)
{
    uint32_t used = pager_frames_used(pager) + pager->marks.low;

    if (used >= pager->budget_frames || pager->fresh_count == PAGER_FRESH_MAX)
        return 0;
    return (pager->budget_frames - used) / EXTENT_PAGES;
}

uint64_t pager_private_fresh_pages(const struct pager *pager)
{
    return pager->fresh_pages;
}

/* ---- whole extents: dsm_malloc of private memory ---------------------------------------------------------------- */

int pager_private_take(struct pager *pager, struct page_id first, uint64_t pages_count)
{
    for (uint64_t at = 0; at < pages_count; at += EXTENT_PAGES) {
        struct page_id extent = page_of(first.index + at);
        int error = 0;

        if (pager_private_room(pager) > 0)
            pager_private_charge(pager, extent);
        else
            error = extent_register(pager, extent);
        if (error != 0)
            return error;
    }
    return 0;
}

int pager_private_manage(struct pager *pager, struct page_id page)
{
    struct page_id first = page_of(page.index - page.index % EXTENT_PAGES);

    return fresh_to_front(pager, first) ? pager_private_register_some(pager) : 0;
}

void pager_private_give(struct pager *pager, struct page_id first, uint64_t pages_count)
{
    for (uint64_t at = 0; at < pages_count; at += EXTENT_PAGES) {
        struct page_id extent = page_of(first.index + at);

        pager_advice_forget(pager, extent, EXTENT_PAGES);
        if (!pager_private_uncharge(pager, extent)) {
            pager_forget(pager, extent);
            if (mmu_unregister(pager->mmu, extent, EXTENT_PAGES) != 0)
                NEVER("what was registered can be unregistered");
        }
        if (mmu_drop(pager->mmu, extent, EXTENT_PAGES) != 0)
            log_error("give private memory at page %lu back: the kernel refused", extent.index);
    }
}

/* ---- parts of extents: an unchanged program's mappings ---------------------------------------------------------- */

/* The page's memory is the caller's to drop, or to keep: what the pager knows of it goes. */
static void page_let_go(struct pager *pager, struct page_id page, struct page_entry *entry)
{
    if (page_is_in_memory(entry)) {
        pager_forget_clean_slot(pager, entry);
        pager_frame_put(pager, entry);
        page_set_where(entry, WHERE_NOWHERE, 0);
        page_word_change(entry, WORD_WRITABLE, 0);
    } else {
        pager_release_bytes(pager, page, entry);
    }
}

static void poison_forget(struct pager *pager, struct page_id page)
{
    int error = mmu_drop(pager->mmu, page, 1);

    if (error != 0)
        log_error("make page %lu usable again: %s", page.index, strerror(-error));
}

void pager_private_forget(struct pager *pager, struct page_id first, uint64_t pages_count)
{
    uint64_t end = first.index + pages_count;

    for (uint64_t at = first.index; at < end;) {
        uint64_t limit = (at / EXTENT_PAGES + 1) * EXTENT_PAGES;

        limit = limit < end ? limit : end;
        if (table_find(pager->pages, page_of(at)) == NULL)
            at = limit;
        for (; at < limit; at++) {
            struct page_entry *entry = table_find(pager->pages, page_of(at));

            page_let_go(pager, page_of(at), entry);
            if ((page_word_change(entry, WORD_RIGHTS | WORD_POISONED, 0) & WORD_POISONED) != 0)
                poison_forget(pager, page_of(at));
        }
    }
}

/* Absent pages are asked for; -EAGAIN while some are on their way. */
static int keep_gather(struct pager *pager, struct page_id first, uint64_t pages_count)
{
    int result = 0;

    for (uint64_t i = 0; i < pages_count; i++) {
        struct page_id page = page_of(first.index + i);
        struct page_entry *entry = table_find(pager->pages, page);

        if (entry == NULL || page_has(entry, WORD_POISONED) || page_where(entry) == WHERE_NOWHERE ||
            page_where(entry) == WHERE_MAPPED)
            continue;
        if (page_is_in_memory(entry))
            pager_fault(pager, page, true, 0, 0);
        else
            pager_bring(pager, page, NULL);
        if (page_where(entry) != WHERE_MAPPED)
            result = -EAGAIN;
    }
    return result;
}

int pager_private_keep(struct pager *pager, struct page_id first, uint64_t pages_count)
{
    int error = keep_gather(pager, first, pages_count);

    if (error != 0)
        return error;
    error = mmu_unregister(pager->mmu, first, pages_count);
    if (error != 0)
        return error;
    pager_private_forget(pager, first, pages_count);
    return 0;
}

void pager_private_kept_set(struct pager *pager, uint64_t pages_count)
{
    pager->kept_pages = pages_count;
}

/* ---- fork ------------------------------------------------------------------------------------------------------ */

/*
 * The child of a fork: protection by userfaultfd is gone from its mappings, so clean slots would go stale unseen; the
 * threads whose faults were kept do not exist here.
 */
void pager_private_enter_child(struct pager *pager)
{
    for (uint32_t i = 0; i < pager->table_frames; i++) {
        struct page_id page = frames_page(pager->frames, (struct frame_id){i});
        struct page_entry *entry;

        if (frames_is_past(pager->frames, (struct frame_id){i}))
            break;
        if (page_is(page, PAGE_NONE))
            continue;
        entry = pager_entry(pager, page);
        if (!page_is_in_memory(entry))
            continue;
        pager_forget_clean_slot(pager, entry);
        page_word_change(entry, WORD_PINS, page_where(entry) == WHERE_MAPPED ? WORD_WRITABLE : 0);
    }
    for (unsigned i = 0; i < PAGER_FILLS_MAX; i++)
        pager->fills[i].demanded = PAGE_NONE;
    pager->stalls_count = 0;
    memset(&pager->stats, 0, sizeof(pager->stats));
}
