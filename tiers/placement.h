/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.h - which page leaves DDR, and to which tier: the pure policy behind one ops table. PURE.
 *
 * The pager tells the policy what it sees; the policy answers which frames to unmap (limbo) and which to evict.
 * Policies:
 *
 * - placement_segmented_fifo: new pages enter a FIFO of mapped frames; its head is unmapped into limbo; a touch in
 *   limbo puts the page back at the tail; the head of limbo is evicted ("VMS": Turner, Levy: Segmented FIFO page
 *   replacement, SIGMETRICS 1981).
 * - placement_arms: LRU, S3-FIFO or LIRS with one of several shares on trial, chosen by miniature simulations of all of
 *   them; ghosts of evicted pages.
 */
#ifndef TIERMESH_TIERS_PLACEMENT_H
#define TIERMESH_TIERS_PLACEMENT_H

#include "base/types.h"
#include "tiers/frames.h"
#include "tiers/tier.h"

/*
 * Measured at start (tier_measure()), not taken from names. Index: tier; `remote` is another node's memory, 0 while
 * nothing is known of it. The figures of an absent tier are not looked at: it has no free slots.
 */
struct placement_cost {
    uint64_t read_ns[TIERS];  /* one page, latency included */
    uint64_t write_ns[TIERS]; /* one page inside a batch */
    uint64_t remote_read_ns;
};

struct placement; /* placement_bytes() of caller memory */

/*
 * A frame that the pager cannot unmap or evict now (pinned, held, in a transfer) goes to the tail of its list by
 * frames_push_tail(), else it is offered again at once.
 */
struct placement_ops {
    const char *name;
    /* The policy's own memory for a table of so many frames, and its start in it; NULL: it has none. */
    size_t (*bytes)(uint32_t frames_table);
    void (*init)(struct placement *placement, uint32_t frames_table);
    void (*resized)(struct placement *placement); /* NULL: does not matter */
    /* A frame now holds a page; prefetched: nobody asked for it yet. Puts it on a list. */
    void (*inserted)(struct placement *placement, struct frames *frames, struct frame_id frame, bool prefetched);
    /* A touch was seen: of a page in limbo, or the first one of a prefetched page. Puts it on a list. */
    void (*soft_hit)(struct placement *placement, struct frames *frames, struct frame_id frame);
    /* The application gave the page up for now; it is on FRAME_LIMBO and should be the next to leave. */
    void (*chilled)(struct placement *placement, struct frames *frames, struct frame_id frame);
    /* The page leaves its frame, to come back or for good; NULL: does not matter. */
    void (*evicted)(struct placement *placement, const struct frames *frames, struct frame_id frame);
    void (*forgotten)(struct placement *placement, const struct frames *frames, struct frame_id frame);
    /* Of several ways, the one that is followed now; NULL: there is one. */
    const char *(*choice)(const struct placement *placement);
    uint32_t (*unmap_wanted)(const struct placement *placement, const struct frames *frames);
    /* Up to `wanted` frames to unmap; the pager puts them on FRAME_LIMBO. Returns how many. */
    unsigned (*unmap)(struct placement *placement, struct frames *frames, struct frame_id *frames_out, unsigned wanted);
    /* Up to `wanted` frames of limbo to evict; the pager puts them on FRAME_BUSY. Returns how many. */
    unsigned (*evict)(struct placement *placement, struct frames *frames, struct frame_id *frames_out, unsigned wanted);
};

extern const struct placement_ops placement_segmented_fifo, placement_arms;

/* frames_table: the most frames there will ever be, as frames_init() has it. Zeroed memory, aligned to 64. */
size_t placement_bytes(const struct placement_ops *ops, uint32_t frames_table);
/* frames_max: the budget now, at most frames_table. */
void placement_init(struct placement *placement, const struct placement_ops *ops, uint32_t frames_table,
                    uint32_t frames_max, const struct placement_cost *cost);
/* Another budget: at most frames_table. Frames beyond it are still on the lists. */
void placement_resize(struct placement *placement, uint32_t frames_max);
/* Static strings; choice "": the policy has none. */
const char *placement_policy(const struct placement *placement);
const char *placement_choice(const struct placement *placement);
/* For policies. */
uint32_t placement_frames_max(const struct placement *placement);
void *placement_memory(struct placement *placement);
const void *placement_memory_const(const struct placement *placement);

/*
 * What the pager tells, in this order for each page: inserted; any number of soft hits, and in limbo of chills; then
 * evicted (its bytes are elsewhere and it may come back) or forgotten (freed, or another node's now), while the frame
 * still holds the page: before frames_put(). Between placement_evict() and evicted, a page that is touched again is a
 * soft hit; one that does not leave after all is put on a list by frames_push_tail(), and nothing need be told.
 */
void placement_inserted(struct placement *placement, struct frames *frames, struct frame_id frame, bool prefetched);
void placement_soft_hit(struct placement *placement, struct frames *frames, struct frame_id frame);
void placement_chilled(struct placement *placement, struct frames *frames, struct frame_id frame);
void placement_evicted(struct placement *placement, const struct frames *frames, struct frame_id frame);
void placement_forgotten(struct placement *placement, const struct frames *frames, struct frame_id frame);
unsigned placement_unmap(struct placement *placement, struct frames *frames, struct frame_id *frames_out,
                         unsigned wanted);
unsigned placement_evict(struct placement *placement, struct frames *frames, struct frame_id *frames_out,
                         unsigned wanted);
/*
 * How many frames the pager should unmap now, whatever it needs to evict. Segmented FIFO keeps an eighth of the frames
 * in limbo. `arms` wants three tenths there, but no more than two frames for each page that was inserted: one leaves
 * for each, and the rest bounds the soft faults to one a miss, however hot the pages are.
 */
uint32_t placement_unmap_wanted(const struct placement *placement, const struct frames *frames);

/*
 * Water marks of DDR in frames. Below `low` free frames the pager starts to evict, until `high` are free; `reserve`
 * frames are only for replies and write-backs, which must always find room. limbo_target: frames kept in limbo.
 */
struct placement_marks {
    uint32_t low, high, reserve, limbo_target;
};
#define PLACEMENT_FRAMES_MIN 16u /* a smaller DDR budget cannot work */
/* Always reserve < low < high <= 4096, and high at most a quarter. Also for the slots of a CXL tier. */
struct placement_marks placement_marks_of(uint32_t frames_max);

/* Where an evicted page should go. */
struct placement_question {
    bool is_clean_copy; /* another place (the home, a lower slot) has the same bytes */
    bool copy_is_remote;
    enum tier_kind copy_tier; /* of a clean copy that is not remote */
    uint64_t slots_free[TIERS];
    uint64_t slots_max[TIERS];
};
enum placement_answer {
    PLACE_DROP = -1,    /* the other copy will do */
    PLACE_NOWHERE = -2, /* every tier is full */
    /* else an enum tier_kind */
};
/*
 * The cheapest tier with room. A clean copy is dropped when fetching it again costs no more than moving it now and
 * reading it back. A clean page with a copy in a lower tier of this node goes up only while a quarter of the higher
 * tier is free. A tier with others below counts as full when only placement_kept_of() its slots are left, unless
 * nothing else has room.
 */
int placement_target(const struct placement *placement, const struct placement_question *question);

/* Slots of a tier that are left to what is on its way there: its last sixteenth, 256 at most. */
uint64_t placement_kept_of(uint64_t slots_max);

/*
 * Where the oldest pages of a tier move on to: the cheapest with room of those below it, or PLACE_NOWHERE. The pager
 * asks when a tier has fewer than placement_kept_of() and the low mark (placement_marks_of(its slots)) of free slots;
 * tier_oldest() names the pages.
 */
int placement_demotion(const struct placement *placement, const struct placement_question *question,
                       enum tier_kind from);

#endif
