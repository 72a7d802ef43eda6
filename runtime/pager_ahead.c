/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_ahead.c - pages before they are asked for: what the predictors are told, and what becomes of their plans.
 *
 * Runs on the shard's thread. Nothing here waits: what finds no room, no transfer or no buffer is cut from the plan.
 */
#include "runtime/pager_internal.h"

/* Frames that prefetch may take now; the rest is for demand and replies. */
unsigned pager_prefetch_room(const struct pager *pager)
{
    uint32_t kept = pager->marks.reserve + (pager->budget_frames / 64 < 64 ? pager->budget_frames / 64 : 64);
    uint32_t used = pager_frames_used(pager) + kept;

    return used < pager->budget_frames ? pager->budget_frames - used : 0;
}

/* How many pages from this one on can be brought now, or need not be; 0: only demand may have what room is left. */
static unsigned prefetch_some(struct pager *pager, const struct prefetch_run *run, struct page_id page, unsigned limit)
{
    struct page_entry *entry = table_find(pager->pages, page);
    enum page_where where = entry == NULL ? WHERE_NOWHERE : page_where(entry);
    unsigned room = pager_prefetch_room(pager);
    unsigned length = 1;

    if (room == 0)
        return 0;
    if (where == WHERE_NVME) {
        length = pager_run_length(pager, page, run->stride == 1 ? limit : 1);
        length = length < PAGER_RUN_MAX ? length : PAGER_RUN_MAX;
        length = length < room ? length : room;
        if (!pager_fill_run(pager, page, length, NULL, run))
            return 0;
        pager->stats.prefetched_pages += length;
    } else if (pager_where_is_near(where) && page_rights(entry) != ACCESS_NONE) {
        bool is_seen = run->is_watched || page_is(page, run->trigger);

        if (pager_near_serve(pager, page, entry, is_seen ? PLACE_SEEN : PLACE_BLIND) != 0)
            return 0;
        pager->stats.prefetched_pages++;
    }
    return length;
}

uint32_t pager_run_start(struct pager *pager, const struct prefetch_run *run)
{
    uint32_t i = 0;
    unsigned length;

    do {
        struct page_id page = page_of(run->first.index + (uint64_t)((int64_t)i * run->stride));

        length = i < run->count ? prefetch_some(pager, run, page, run->count - i) : 0;
        i += length;
    } while (length > 0);
    return i;
}

/* true: all of the run is here or on its way. */
static bool run_start(struct pager *pager, const struct prefetch_run *run)
{
    uint32_t count = pager_run_start(pager, run);

    prefetch_cut(pager->prefetch, run, count);
    return count == run->count;
}

/* Nothing is brought of the runs from this one on. */
void pager_plan_cut(struct pager *pager, const struct prefetch_plan *plan, uint32_t from)
{
    for (uint32_t i = from; i < plan->runs_count; i++)
        prefetch_cut(pager->prefetch, &plan->runs[i], 0);
}

/* Pages that the predictors proposed, wherever they are now. */
void pager_prefetch_start(struct pager *pager, const struct prefetch_plan *plan)
{
    uint32_t i = 0;

    while (i < plan->runs_count && run_start(pager, &plan->runs[i]))
        i++;
    pager_plan_cut(pager, plan, i + 1);
}

/* The page could be fetched: it has bytes, and they are neither in memory nor on their way. */
static bool page_is_absent(const void *context, struct page_id page)
{
    struct pager *pager = (struct pager *)(uintptr_t)context;
    struct page_entry *entry = table_find(pager->pages, page);

    if (entry == NULL || page_rights(entry) == ACCESS_NONE)
        return pager_is_shared(pager, page);
    return page_where(entry) == WHERE_NVME || pager_where_is_near(page_where(entry));
}

static uint32_t pages_under_way(const struct pager *pager)
{
    uint32_t count = 0;

    for (unsigned i = 0; i < PAGER_FILLS_MAX; i++)
        if (!pager->fills[i].is_parked)
            count += pager->fills[i].pages_count;
    return count;
}

static void predict(struct pager *pager, struct page_id page, uint32_t thread, bool was_prefetched,
                    struct prefetch_plan *ret_plan)
{
    const struct prefetch_view view = {page_is_absent, pager, pages_under_way(pager)};

    ret_plan->runs_count = 0;
    if (thread != 0)
        prefetch_fault(pager->prefetch, page, thread, was_prefetched, &view, ret_plan);
}

void pager_predict(struct pager *pager, struct page_id page, uint32_t thread, struct prefetch_plan *ret_plan)
{
    predict(pager, page, thread, false, ret_plan);
}

/* The first touch of a page that was brought ahead. */
void pager_predicted_touch(struct pager *pager, const struct stalled_fault *fault, bool is_late)
{
    struct prefetch_plan plan;

    prefetch_used(pager->prefetch, fault->page, is_late);
    pager->stats.prefetch_hits++;
    predict(pager, fault->page, fault->thread, true, &plan);
    pager_prefetch_start(pager, &plan);
}

/* ---- what becomes of them ---------------------------------------------------------------------------------------- */

void pager_ahead_placed(struct pager *pager, struct frame_id frame, enum ahead ahead)
{
    pager->notes[frame.index].ahead = (uint8_t)ahead;
    pager->unused_frames += ahead == AHEAD_SEEN;
}

bool pager_ahead_is_seen(struct pager *pager, const struct page_entry *entry)
{
    return page_is_in_memory(entry) && pager_note(pager, entry)->ahead == AHEAD_SEEN;
}

void pager_ahead_forgotten(struct pager *pager, struct frame_id frame)
{
    struct frame_note *note = &pager->notes[frame.index];

    pager->unused_frames -= note->ahead == AHEAD_SEEN;
    note->ahead = AHEAD_NONE;
}

void pager_soft_hit(struct pager *pager, struct frame_id frame)
{
    if (pager->notes[frame.index].ahead != AHEAD_SEEN && pager->notes[frame.index].sample == 0)
        pager_share_touched(pager, frame);
    pager_ahead_forgotten(pager, frame);
    pager->stats.soft_faults++;
    if (pager->notes[frame.index].sample != 0)
        pager_spread_touched(pager, frame);
    placement_soft_hit(pager->placement, pager->frames, frame);
}

/* Whether a page that was mapped at once was ever touched is not known: it proves nothing. */
void pager_ahead_left(struct pager *pager, struct frame_id frame)
{
    struct page_id page = frames_page(pager->frames, frame);
    enum ahead ahead = (enum ahead)pager->notes[frame.index].ahead;

    pager_ahead_forgotten(pager, frame);
    if (ahead == AHEAD_SEEN) {
        prefetch_wasted(pager->prefetch, page);
        pager->stats.prefetch_unused++;
    } else if (ahead == AHEAD_NONE) {
        prefetch_evicted(pager->prefetch, page, pager->unused_frames);
    }
}
