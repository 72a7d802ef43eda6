/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.h - which page leaves DDR, and to which tier: the pure policy behind one ops table. PURE.
 *
 * The pager tells the policy what it sees; the policy answers which frames to unmap (limbo) and which to evict. A later
 * policy changes this folder only. First policy: segmented FIFO ("VMS": Turner, Levy: Segmented FIFO page replacement,
 * SIGMETRICS 1981): new pages enter a FIFO of mapped frames; its head is unmapped into limbo; a touch in limbo puts the
 * page back at the tail; the head of limbo is evicted.
 */
#ifndef TIERMESH_TIERS_PLACEMENT_H
#define TIERMESH_TIERS_PLACEMENT_H

#include "base/types.h"
#include "tiers/frames.h"
#include "tiers/tier.h"

/* Measured at start, not taken from names. Index: tier; `remote` is another node's memory. 0 bandwidth: absent. */
struct placement_cost {
    uint64_t read_ns[TIERS];   /* one page, latency included */
    uint64_t write_ns[TIERS];  /* one page inside a batch */
    uint64_t remote_read_ns;
};

struct placement; /* placement_bytes() of caller memory */

struct placement_ops {
    const char *name;
    void (*inserted)(struct placement *placement, struct frames *frames, struct frame_id frame, bool prefetched);
    void (*soft_hit)(struct placement *placement, struct frames *frames, struct frame_id frame);
    /* Up to `wanted` frames to unmap into limbo; the pager puts them on FRAME_LIMBO. Returns how many. */
    unsigned (*unmap)(struct placement *placement, struct frames *frames, struct frame_id *frames_out, unsigned wanted);
    /* Up to `wanted` frames of limbo to evict. */
    unsigned (*evict)(struct placement *placement, struct frames *frames, struct frame_id *frames_out, unsigned wanted);
};

extern const struct placement_ops placement_segmented_fifo;

size_t placement_bytes(uint32_t frames_max);
void placement_init(struct placement *placement, const struct placement_ops *ops, uint32_t frames_max,
                    const struct placement_cost *cost);

void placement_inserted(struct placement *placement, struct frames *frames, struct frame_id frame, bool prefetched);
void placement_soft_hit(struct placement *placement, struct frames *frames, struct frame_id frame);
unsigned placement_unmap(struct placement *placement, struct frames *frames, struct frame_id *frames_out,
                         unsigned wanted);
unsigned placement_evict(struct placement *placement, struct frames *frames, struct frame_id *frames_out,
                         unsigned wanted);

/*
 * Water marks of DDR in frames. Below `low` free frames the pager starts to evict, until `high` are free; `reserve`
 * frames are only for replies and write-backs, which must always find room. limbo_target: frames kept in limbo.
 */
struct placement_marks {
    uint32_t low, high, reserve, limbo_target;
};
struct placement_marks placement_marks_of(uint32_t frames_max);

/* Where an evicted page should go. */
struct placement_question {
    bool is_clean_copy;   /* another place (the home, a lower slot) has the same bytes */
    bool copy_is_remote;
    uint64_t slots_free[TIERS];
};
enum placement_answer {
    PLACE_DROP = -1, /* the other copy will do */
    PLACE_NOWHERE = -2, /* every tier is full */
    /* else an enum tier_kind */
};
int placement_target(const struct placement *placement, const struct placement_question *question);

#endif
