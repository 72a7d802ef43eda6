/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_new.c - private pages that nobody has touched yet, behind others that were touched in order: they come several
 * at a time, for what a fault costs is the way to the shard and back.
 */
#include "runtime/pager_internal.h"

#include <errno.h>

#define NEW_MAX 32u /* no more than that is brought in vain at the end of what a program writes */

/* Pages in memory right before this one, in its extent: NEW_MAX at most. */
static unsigned run_before(struct pager *pager, struct page_id page)
{
    unsigned limit = (unsigned)(page.index % EXTENT_PAGES);
    unsigned count = 0;

    limit = limit < NEW_MAX ? limit : NEW_MAX;
    while (count < limit) {
        const struct page_entry *entry = table_find(pager->pages, page_of(page.index - count - 1));

        if (entry == NULL || !page_is_in_memory(entry))
            break;
        count++;
    }
    return count;
}

/* New pages from this one on, in its extent: `limit` at most. */
static unsigned run_behind(struct pager *pager, struct page_id page, unsigned limit)
{
    unsigned left = (unsigned)(EXTENT_PAGES - page.index % EXTENT_PAGES);
    unsigned count = 1;

    limit = limit < left ? limit : left;
    while (count < limit) {
        const struct page_entry *entry = table_find(pager->pages, page_of(page.index + count));

        if (entry == NULL || page_where(entry) != WHERE_NOWHERE || page_has(entry, WORD_POISONED))
            break;
        count++;
    }
    return count;
}

/* How much of the run is managed as the user knows; the page itself is. */
static unsigned managed_part(struct pager *pager, struct page_id page, unsigned count)
{
    struct page_run runs[PAGER_EXTENT_RUNS_MAX];
    struct page_id extent = page_of(page.index - page.index % EXTENT_PAGES);
    int runs_count;

    if (pager->config.user.managed_runs == NULL)
        return count;
    runs_count = pager->config.user.managed_runs(pager->config.user.context, extent, runs);
    for (int i = 0; i < runs_count; i++) {
        uint64_t end = runs[i].first.index + runs[i].pages_count;

        if (page.index >= runs[i].first.index && page.index < end)
            return end - page.index < count ? (unsigned)(end - page.index) : count;
    }
    return 1;
}

/* How many pages to bring for this one: as many as were touched before it, while there is room. */
unsigned pager_new_run(struct pager *pager, struct page_id page)
{
    unsigned wanted = run_before(pager, page);
    unsigned room = pager_prefetch_room(pager);
    unsigned count = run_behind(pager, page, wanted < room ? wanted : room);

    return count > 1 ? managed_part(pager, page, count) : 1;
}

/* 0, or -errno and nothing has changed that a single page's filling would not find. */
int pager_new_pages(struct pager *pager, struct page_id first, unsigned count)
{
    struct frame_id frames[NEW_MAX];
    unsigned taken = 0;
    int error;

    while (taken < count && pager_frame_take(pager, page_of(first.index + taken), &frames[taken]))
        taken++;
    error = taken > 0 ? mmu_zero(pager->mmu, first, taken, true) : -ENOMEM;
    for (unsigned i = 0; i < taken; i++) {
        struct page_entry *entry = pager_entry(pager, page_of(first.index + i));

        if (error != 0) {
            frames_put(pager->frames, frames[i]);
            continue;
        }
        page_set_rights(entry, ACCESS_WRITE);
        page_word_change(entry, 0, WORD_WRITABLE);
        pager_frame_attach(pager, entry, frames[i], WHERE_MAPPED, false);
    }
    return error;
}
