/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_share.c - how much of the DDR budget zmem may take, when it lies inside (option zmem=N%): what to watch for
 * tiers/share.h, and what follows from its answer.
 *
 * Runs on the shard's thread. Pages that zmem gave up for want of room carry a mark while they are among the latest; a
 * fault that reads such a page from the disk counts for zmem. A touch of a page in the older half of limbo counts for
 * DDR. Without limbo there is nothing to see, and zmem may take all that it was allowed.
 */
#include "runtime/pager_internal.h"

#include <string.h>

#define SHARE_FIRST   3u  /* of the most that zmem may have: its first share is one in so many */
#define LEAST_SHARE   64u /* of that: the least */
#define STEP_SHARE    64u /* of the DDR budget */
#define LATE_SHARE    8u  /* of the pages in memory: so many of those that left last are remembered */
#define HITS_ENOUGH   128u /* to decide */
#define DISK_ROOM     1024u /* slots that the disk must have left */
#define FULL_SHARE    8u   /* of its room that zmem may have left and still wants more */
#define FAULT_NS      10000u /* of a fault, before the shard knows of it and until the thread runs again */

static uint32_t share_most(const struct pager *pager)
{
    return (uint32_t)((uint64_t)(pager->wanted_frames - pager->far_frames) * pager->config.zmem_percent / 100);
}

static uint32_t share_least(const struct pager *pager)
{
    uint32_t least = share_most(pager) / LEAST_SHARE;

    return least > PAGER_SHARE_MIN_FRAMES ? least : PAGER_SHARE_MIN_FRAMES;
}

/* Where the disk takes no more, zmem must hold what DDR cannot, whether that pays or not. */
static bool disk_has_room(const struct pager *pager)
{
    const struct tier *nvme = pager->config.tiers[TIER_NVME];

    return nvme != NULL && tier_slots_free(nvme) > DISK_ROOM;
}

static bool is_found_out(const struct pager *pager)
{
    return pager->config.zmem_percent > 0 && pager->limbo != NULL && disk_has_room(pager);
}

uint32_t pager_share_frames(const struct pager *pager)
{
    uint32_t most = share_most(pager);
    uint32_t frames = pager->share.frames;

    if (!is_found_out(pager))
        return most;
    if (frames == 0)
        frames = most / SHARE_FIRST;
    if (frames < share_least(pager))
        frames = share_least(pager);
    return frames < most ? frames : most;
}

/* At its least zmem is passed by: pages would only go through it on their way to the disk. */
bool pager_share_is_open(const struct pager *pager)
{
    return is_found_out(pager) && pager_share_frames(pager) > share_least(pager);
}

bool pager_share_passes_by(const struct pager *pager)
{
    return is_found_out(pager) && !pager_share_is_open(pager);
}

/* ---- what is seen ----------------------------------------------------------------------------------------------- */

static void late_forget_oldest(struct pager *pager)
{
    struct share *share = &pager->share;
    struct page_entry *entry = table_find(pager->pages, share->late[share->late_first]);

    if (entry != NULL)
        page_word_change(entry, WORD_LATE, 0);
    share->late_first = (share->late_first + 1) % PAGER_LATE_MAX;
    share->late_count--;
}

void pager_share_left(struct pager *pager, struct page_id page, struct page_entry *entry)
{
    struct share *share = &pager->share;
    uint64_t most = (pager->tier_pages[TIER_ZMEM] + pager->wanted_frames) / LATE_SHARE;

    if (!is_found_out(pager))
        return;
    most = most < PAGER_LATE_MAX ? most : PAGER_LATE_MAX;
    while (share->late_count >= most)
        late_forget_oldest(pager);
    share->late[(share->late_first + share->late_count++) % PAGER_LATE_MAX] = page;
    page_word_change(entry, 0, WORD_LATE);
}

void pager_share_read(struct pager *pager, struct page_entry *entry)
{
    if ((page_word_change(entry, WORD_LATE, 0) & WORD_LATE) != 0)
        pager->share.late_hits++;
}

void pager_share_entered(struct pager *pager, struct frame_id frame)
{
    pager->notes[frame.index].entered = ++pager->share.entered;
}

void pager_share_touched(struct pager *pager, struct frame_id frame)
{
    uint32_t age = pager->share.entered - pager->notes[frame.index].entered;

    if (age >= frames_count(pager->frames, FRAME_LIMBO) / 2)
        pager->share.cold_hits++;
}

/* ---- what follows ----------------------------------------------------------------------------------------------- */

/* The mean of what was served since the last time; that one when nothing was. */
static uint64_t source_mean_ns(struct pager *pager, enum dsm_source source)
{
    const struct histogram *histogram = &pager->stats.faults[source];
    struct share_mean *mean = &pager->share.means[source == DSM_FROM_ZMEM ? 0 : 1];

    if (histogram->count > mean->count)
        mean->mean_ns = (histogram->sum_ns - mean->sum_ns) / (histogram->count - mean->count);
    mean->count = histogram->count;
    mean->sum_ns = histogram->sum_ns;
    return mean->mean_ns;
}

/* How well pages compress is remembered while there are none. */
static void stored_look(struct pager *pager)
{
    uint32_t frames = pager_compressed_frames(pager);

    if (frames < PAGER_SHARE_MIN_FRAMES / 2 || pager->tier_pages[TIER_ZMEM] < frames)
        return;
    pager->share.stored_pages = pager->tier_pages[TIER_ZMEM];
    pager->share.stored_frames = frames;
}

static void view_make(struct pager *pager, struct share_view *view)
{
    struct share *share = &pager->share;
    uint64_t evict_ns = share->evicted_pages > 0 ? share->evict_ns / share->evicted_pages : 0;

    stored_look(pager);
    *view = (struct share_view){
        .late_pages = share->late_count,
        .late_hits = share->late_hits,
        .cold_pages = frames_count(pager->frames, FRAME_LIMBO) / 2,
        .cold_hits = share->cold_hits,
        .stored_pages = share->stored_pages,
        .stored_frames = share->stored_frames,
        .near_ns = source_mean_ns(pager, DSM_FROM_ZMEM) + FAULT_NS + evict_ns,
        .far_ns = source_mean_ns(pager, DSM_FROM_NVME) + FAULT_NS + evict_ns,
    };
    share->late_hits = share->cold_hits = share->evict_ns = share->evicted_pages = 0;
}

static void share_move(struct pager *pager, int steps)
{
    uint32_t step = pager->wanted_frames / STEP_SHARE + 1;
    uint32_t frames = pager_share_frames(pager);

    if (steps < 0)
        pager->share.frames = frames > (uint32_t)-steps * step ? frames - (uint32_t)-steps * step : 1;
    else
        pager->share.frames = frames + (uint32_t)steps * step;
    pager->share.frames = pager_share_frames(pager); /* within its bounds */
}

/* What it may have also changes when the disk fills, or has room again. */
static void share_hold(struct pager *pager)
{
    uint32_t frames = pager_share_frames(pager);

    if (pager->config.zmem_percent > 0 && frames != pager->share.applied_frames)
        pager_share_apply(pager);
}

static void share_decide(struct pager *pager)
{
    struct share *share = &pager->share;
    uint32_t frames = pager_share_frames(pager);
    struct share_view view;
    int steps;

    if (!is_found_out(pager) || share->late_hits + share->cold_hits < HITS_ENOUGH)
        return;
    view_make(pager, &view);
    steps = share_steps(&view);
    if (steps > 0 && pager_share_is_open(pager) && pager_compressed_frames(pager) < frames - frames / FULL_SHARE)
        return; /* it has room that it does not use */
    if (steps != 0)
        share_move(pager, steps);
}

void pager_share_follow(struct pager *pager)
{
    share_decide(pager);
    share_hold(pager);
}
