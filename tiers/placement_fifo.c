/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement_fifo.c - segmented FIFO (Turner, Levy: SIGMETRICS 1981). PURE. Run by the shard's thread.
 *
 *   FRAME_MAPPED  demand pages and pages that were touched in limbo, in the order of that
 *   FRAME_COLD    prefetched pages not seen touched, in the order of arrival; an eighth of the frames, at least 64
 *   FRAME_LIMBO   unmapped pages of both, the next to leave at the head
 *
 * Prefetched pages have their own queue with a bound, so that wrong guesses cannot push out pages that were asked for.
 */
#include "base/assert.h"
#include "tiers/placement.h"

#define COLD_MIN   64u
#define COLD_SHARE 8u

static void fifo_inserted(struct placement *placement, struct frames *frames, struct frame_id frame, bool prefetched)
{
    (void)placement;
    frames_push_tail(frames, frame, prefetched ? FRAME_COLD : FRAME_MAPPED);
}

static void fifo_soft_hit(struct placement *placement, struct frames *frames, struct frame_id frame)
{
    (void)placement;
    frames_push_tail(frames, frame, FRAME_MAPPED);
}

static void fifo_chilled(struct placement *placement, struct frames *frames, struct frame_id frame)
{
    (void)placement;
    frames_push_head(frames, frame, FRAME_LIMBO);
}

static unsigned cold_excess(const struct placement *placement, const struct frames *frames)
{
    uint32_t share = placement_frames_max(placement) / COLD_SHARE;
    uint32_t allowed = share > COLD_MIN ? share : COLD_MIN;
    uint32_t count = frames_count(frames, FRAME_COLD);

    return count > allowed ? count - allowed : 0;
}

/* Prefetched pages over their share first, then the oldest demand pages, then any prefetched ones. */
static unsigned fifo_unmap(struct placement *placement, struct frames *frames, struct frame_id *frames_out,
                           unsigned wanted)
{
    unsigned excess = cold_excess(placement, frames);
    unsigned cold = frames_heads(frames, FRAME_COLD, frames_out, excess < wanted ? excess : wanted);
    unsigned mapped = frames_heads(frames, FRAME_MAPPED, frames_out + cold, wanted - cold);

    if (cold + mapped == wanted)
        return wanted;
    /* The mapped ones are all there are: put them behind the cold ones, which are listed again from the head. */
    cold = frames_heads(frames, FRAME_COLD, frames_out, wanted - mapped);
    return cold + frames_heads(frames, FRAME_MAPPED, frames_out + cold, mapped);
}

static uint32_t fifo_unmap_wanted(const struct placement *placement, const struct frames *frames)
{
    uint32_t target = placement_marks_of(placement_frames_max(placement)).limbo_target;
    uint32_t count = frames_count(frames, FRAME_LIMBO);

    return count < target ? target - count : 0;
}

static unsigned fifo_evict(struct placement *placement, struct frames *frames, struct frame_id *frames_out,
                           unsigned wanted)
{
    (void)placement;
    return frames_heads(frames, FRAME_LIMBO, frames_out, wanted);
}

const struct placement_ops placement_segmented_fifo = {
    .name = "segmented-fifo",
    .inserted = fifo_inserted,
    .soft_hit = fifo_soft_hit,
    .chilled = fifo_chilled,
    .unmap_wanted = fifo_unmap_wanted,
    .unmap = fifo_unmap,
    .evict = fifo_evict,
};
