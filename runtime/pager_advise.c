/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_advise.c - what the application says of its pages.
 *
 * Runs on the shard's thread. Advice is kept by prefetch/. What is needed soon is brought as transfers and room become
 * free, some of it now and the rest before the loop blocks; what is cold is unmapped and leaves before all others.
 */
#include "runtime/pager_internal.h"

#include <errno.h>

#define NEED_SHARE 8u /* of the frames, as pages have that nobody has touched yet: more would push each other out */

uint64_t pager_need_limit(const struct pager *pager, uint64_t pages_count)
{
    uint64_t most = pager->wanted_frames / NEED_SHARE;

    return pages_count < most ? pages_count : most;
}

/* ---- needed soon ------------------------------------------------------------------------------------------------- */

/* One transfer's worth. false: nothing more can be asked for now. */
static bool need_advance(struct pager *pager, struct need *need)
{
    uint64_t left = need->end - need->next;
    const struct prefetch_run run = {.first = page_of(need->next),
                                     .trigger = PAGE_NONE,
                                     .count = left < PAGER_RUN_MAX ? (uint32_t)left : PAGER_RUN_MAX,
                                     .stride = 1};
    uint32_t brought = pager_run_start(pager, &run);

    need->next += brought;
    return brought == run.count;
}

void pager_needs_follow(struct pager *pager)
{
    while (pager->needs_count > 0) {
        struct need *need = &pager->needs[pager->needs_first];

        while (need->next < need->end)
            if (!need_advance(pager, need))
                return;
        pager->needs_first = (pager->needs_first + 1) % PAGER_NEEDS_MAX;
        pager->needs_count--;
    }
}

/* The oldest wish that is not fulfilled yet makes room for a new one. */
static void need_add(struct pager *pager, struct page_id first, uint64_t pages_count)
{
    unsigned at = (pager->needs_first + pager->needs_count) % PAGER_NEEDS_MAX;

    if (pager->needs_count == PAGER_NEEDS_MAX)
        pager->needs_first = (pager->needs_first + 1) % PAGER_NEEDS_MAX;
    else
        pager->needs_count++;
    pager->needs[at] = (struct need){first.index, first.index + pager_need_limit(pager, pages_count)};
    pager_needs_follow(pager);
}

static void needs_forget(struct pager *pager, uint64_t first, uint64_t end)
{
    for (unsigned i = 0; i < pager->needs_count; i++) {
        struct need *need = &pager->needs[(pager->needs_first + i) % PAGER_NEEDS_MAX];

        if (need->next < end && first < need->end)
            need->next = need->end;
    }
}

/* ---- cold -------------------------------------------------------------------------------------------------------- */

static bool may_chill(struct pager *pager, struct page_id page, struct frame_id *ret_frame)
{
    struct page_entry *entry = table_find(pager->pages, page);
    enum page_where where = entry == NULL ? WHERE_NOWHERE : page_where(entry);

    if ((where != WHERE_MAPPED && where != WHERE_LIMBO) || page_has(entry, WORD_CLAIMED))
        return false;
    *ret_frame = (struct frame_id){entry->place};
    return true;
}

/* Up to a batch of consecutive pages in memory. Returns how many. */
static unsigned cold_run(struct pager *pager, uint64_t first, uint64_t end)
{
    struct frame_id frames[PAGER_BATCH];
    unsigned count = 0;

    while (count < PAGER_BATCH && first + count < end && may_chill(pager, page_of(first + count), &frames[count]))
        count++;
    for (unsigned i = 0; i < count;)
        i += pager_unmap_run(pager, &frames[i], count - i);
    for (unsigned i = count; i-- > 0;) /* those at the front first */
        if (frames_list(pager->frames, frames[i]) == FRAME_LIMBO)
            placement_chilled(pager->placement, pager->frames, frames[i]);
    return count;
}

static void cold(struct pager *pager, uint64_t first, uint64_t end)
{
    for (uint64_t at = first; at < end;) {
        unsigned count;

        if (table_find(pager->pages, page_of(at)) == NULL) { /* nothing of the extent is known here */
            at = (at / EXTENT_PAGES + 1) * EXTENT_PAGES;
            continue;
        }
        count = cold_run(pager, at, end);
        at += count > 0 ? count : 1;
    }
}

/* ---- all kinds --------------------------------------------------------------------------------------------------- */

int pager_advise(struct pager *pager, struct page_id first, uint64_t pages_count, enum dsm_advice advice)
{
    switch (advice) {
    case DSM_ADVISE_NORMAL:
        pager_advice_forget(pager, first, pages_count);
        return 0;
    case DSM_ADVISE_SEQUENTIAL:
        return prefetch_advise(pager->prefetch, first, pages_count, PREFETCH_SEQUENTIAL);
    case DSM_ADVISE_RANDOM:
        return prefetch_advise(pager->prefetch, first, pages_count, PREFETCH_RANDOM);
    case DSM_ADVISE_WILL_NEED:
        need_add(pager, first, pages_count);
        return 0;
    case DSM_ADVISE_COLD:
        needs_forget(pager, first.index, first.index + pages_count);
        cold(pager, first.index, first.index + pages_count);
        return 0;
    case DSM_ADVISE_WALK:
        return prefetch_order(pager->prefetch, first, pages_count, 1);
    }
    return -EINVAL;
}

void pager_advice_forget(struct pager *pager, struct page_id first, uint64_t pages_count)
{
    needs_forget(pager, first.index, first.index + pages_count);
    prefetch_forget(pager->prefetch, first, pages_count);
}
