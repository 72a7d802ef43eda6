/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames.h - the frame table: which pages occupy DDR on this node, and in what order they should leave. PURE.
 *
 * One entry of 16 bytes a DDR frame. The order is the replacement policy's (struct placement_ops); frames.c keeps the
 * lists that policies are made of. All memory is taken at create time. Used by the shard's thread only.
 */
#ifndef TIERMESH_TIERS_FRAMES_H
#define TIERMESH_TIERS_FRAMES_H

#include "base/assert.h"
#include "base/types.h"

struct frame_id {
    uint32_t index;
};
#define FRAME_NONE ((struct frame_id){UINT32_MAX})

/* Lists a frame can be on. */
enum frame_list {
    FRAME_FREE = 0,
    FRAME_MAPPED = 1, /* mapped: touches are not seen */
    FRAME_LIMBO = 2,  /* resident but unmapped: a touch is a soft fault and counts as a hit */
    FRAME_COLD = 3,   /* policy's second queue */
    FRAME_BUSY = 4,   /* being moved */
    FRAME_TRIAL = 5,  /* mapped pages that a policy means to see sooner than others */
    FRAME_LISTS = 6,
};

struct frames; /* frames_bytes() of caller memory, no pointer inside */

size_t frames_bytes(uint32_t frames_max); /* aligned to 8; need not be zeroed, is written only as frames are used */
void frames_init(struct frames *frames, uint32_t frames_max);

/* A free frame for the page, on no list yet (FRAME_BUSY). FRAME_NONE: all frames_max are in use. */
struct frame_id frames_take(struct frames *frames, struct page_id page);
void frames_put(struct frames *frames, struct frame_id frame); /* from any list; the page is forgotten */

/* From any list to any list, FRAME_FREE excepted: that is what take and put are for. */
void frames_push_tail(struct frames *frames, struct frame_id frame, enum frame_list list);
void frames_push_head(struct frames *frames, struct frame_id frame, enum frame_list list);

/* ---- looks at the table, asked several times at each event ------------------------------------------------------- */

#define FRAME_PAGE_BITS 56
#define FRAME_LIST_BITS 8
#define FRAME_NO_PAGE   (((uint64_t)1 << FRAME_PAGE_BITS) - 1)

/* For the functions below and frames.c only. */
struct frame_entry {
    uint64_t page : FRAME_PAGE_BITS;
    uint64_t list : FRAME_LIST_BITS;
    uint32_t next, previous; /* FRAME_NONE's index at the ends */
};
BUILD_ASSERT(sizeof(struct frame_entry) == 16);

struct frame_ends {
    uint32_t head, tail, count;
};

struct frames {
    uint32_t frames_max;
    uint32_t fresh; /* frames used at least once: 0 .. fresh-1 */
    struct frame_ends lists[FRAME_LISTS];
    struct frame_entry entries[];
};

/* PAGE_NONE: the frame is free */
static inline struct page_id frames_page(const struct frames *frames, struct frame_id frame)
{
    ASSERT(frame.index < frames->frames_max);
    if (frame.index >= frames->fresh || frames->entries[frame.index].page == FRAME_NO_PAGE)
        return PAGE_NONE;
    return page_of(frames->entries[frame.index].page);
}

/* true: this frame and all behind it were never used. For walking the table. */
static inline bool frames_is_past(const struct frames *frames, struct frame_id frame)
{
    return frame.index >= frames->fresh;
}

static inline enum frame_list frames_list(const struct frames *frames, struct frame_id frame)
{
    ASSERT(frame.index < frames->frames_max);
    return frame.index >= frames->fresh ? FRAME_FREE : (enum frame_list)frames->entries[frame.index].list;
}

static inline uint32_t frames_count(const struct frames *frames, enum frame_list list)
{
    ASSERT(list < FRAME_LISTS);
    return frames->lists[list].count + (list == FRAME_FREE ? frames->frames_max - frames->fresh : 0);
}

/* FRAME_NONE: the list is empty, or the frame is its last. FRAME_FREE has no order to walk. */
static inline struct frame_id frames_head(const struct frames *frames, enum frame_list list)
{
    ASSERT(list > FRAME_FREE && list < FRAME_LISTS);
    return (struct frame_id){frames->lists[list].head};
}

static inline struct frame_id frames_next(const struct frames *frames, struct frame_id frame)
{
    ASSERT(frame.index < frames->fresh);
    return (struct frame_id){frames->entries[frame.index].next};
}

/* Up to `wanted` frames of the list, from its head on. Returns how many. */
static inline unsigned frames_heads(const struct frames *frames, enum frame_list list, struct frame_id *frames_out,
                                    unsigned wanted)
{
    struct frame_id frame = frames_head(frames, list);
    unsigned count = 0;

    while (count < wanted && frame.index != FRAME_NONE.index) {
        frames_out[count++] = frame;
        frame = frames_next(frames, frame);
    }
    return count;
}

#endif
