/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shipped.c - the policies that are shipped (tiers/placement.h), in a small model of the pager: a page is mapped and
 * its touches are not seen, or it is in limbo, where the next touch is a soft fault.
 */
#include "base/assert.h"
#include "bench/replay/cache.h"
#include "tiers/placement.h"

#include <stdlib.h>
#include <string.h>

struct shipped {
    struct frames *frames;
    struct placement *placement;
    uint32_t *frame_of; /* by page; UINT32_MAX: not resident */
    uint32_t *page_in;  /* by frame */
    const struct pages *pages;
    uint32_t limbo_target;
};

static void shipped_destroy(void *cache)
{
    struct shipped *shipped = cache;

    free(shipped->frames);
    free(shipped->placement);
    free(shipped->frame_of);
    free(shipped->page_in);
    free(shipped);
}

static void *shipped_create(const struct cache_config *config, const struct placement_ops *ops)
{
    const struct placement_cost cost = {.remote_read_ns = 0};
    struct shipped *shipped = calloc(1, sizeof(*shipped));

    if (shipped == NULL)
        return NULL;
    shipped->pages = config->pages;
    shipped->limbo_target = (uint32_t)(config->limbo_share * config->frames);
    shipped->frames = malloc(frames_bytes(config->frames));
    shipped->placement = malloc(placement_bytes(config->frames));
    shipped->frame_of = malloc((size_t)config->pages_count * sizeof(uint32_t));
    shipped->page_in = malloc((size_t)config->frames * sizeof(uint32_t));
    if (shipped->frames == NULL || shipped->placement == NULL || shipped->frame_of == NULL ||
        shipped->page_in == NULL) {
        shipped_destroy(shipped);
        return NULL;
    }
    memset(shipped->frame_of, 0xff, (size_t)config->pages_count * sizeof(uint32_t));
    frames_init(shipped->frames, config->frames);
    placement_init(shipped->placement, ops, config->frames, &cost);
    return shipped;
}

static void *segmented_fifo_create(const struct cache_config *config)
{
    return shipped_create(config, &placement_segmented_fifo);
}

static void limbo_fill(struct shipped *shipped)
{
    struct frame_id frame;

    while (frames_count(shipped->frames, FRAME_LIMBO) < shipped->limbo_target &&
           placement_unmap(shipped->placement, shipped->frames, &frame, 1) == 1)
        frames_push_tail(shipped->frames, frame, FRAME_LIMBO);
}

/* The policy's choice leaves. */
static void page_evict(struct shipped *shipped)
{
    struct frame_id frame;
    unsigned count;

    if (frames_count(shipped->frames, FRAME_LIMBO) == 0) {
        count = placement_unmap(shipped->placement, shipped->frames, &frame, 1);
        ASSERT(count == 1);
        frames_push_tail(shipped->frames, frame, FRAME_LIMBO);
    }
    count = placement_evict(shipped->placement, shipped->frames, &frame, 1);
    ASSERT(count == 1 && frames_list(shipped->frames, frame) == FRAME_LIMBO);
    shipped->frame_of[shipped->page_in[frame.index]] = UINT32_MAX;
    frames_put(shipped->frames, frame);
}

static void shipped_touch(void *cache, uint32_t page, uint32_t next, struct cache_counts *counts)
{
    struct shipped *shipped = cache;
    struct frame_id frame = {shipped->frame_of[page]};

    (void)next;
    if (frame.index == FRAME_NONE.index) {
        counts->misses++;
        if (frames_count(shipped->frames, FRAME_FREE) == 0)
            page_evict(shipped);
        frame = frames_take(shipped->frames, pages_page(shipped->pages, page));
        shipped->frame_of[page] = frame.index;
        shipped->page_in[frame.index] = page;
        placement_inserted(shipped->placement, shipped->frames, frame, false);
    } else if (frames_list(shipped->frames, frame) == FRAME_LIMBO) {
        counts->soft_faults++;
        placement_soft_hit(shipped->placement, shipped->frames, frame);
    } else {
        return; /* mapped: nobody sees it */
    }
    limbo_fill(shipped);
}

const struct cache_ops cache_segmented_fifo = {"segmented-fifo",      PLACEMENT_FRAMES_MIN, false,
                                               segmented_fifo_create, shipped_touch,        shipped_destroy};
