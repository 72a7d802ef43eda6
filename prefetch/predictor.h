/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predictor.h - what a predictor is, and the throttle that judges it. Private to prefetch/. PURE.
 */
#ifndef TIERMESH_PREFETCH_PREDICTOR_H
#define TIERMESH_PREFETCH_PREDICTOR_H

#include "prefetch/prefetch.h"

struct prefetch_event {
    struct page_id page;
    uint32_t thread;
    bool was_prefetched;
};

/* A predictor's state lies inside struct prefetch; predictors are asked in order, the first run is taken. */
struct predictor_ops {
    const char *name;
    size_t state_offset;
    /*
     * Learn from the event, and propose at most `depth` pages (0: only learn). The proposal will be issued as it is, so
     * the state may count on it until it is told of a cut. Writes first, trigger, count and stride; count stays 0 for
     * nothing.
     * True: this predictor explains the event, and no other one is asked.
     */
    bool (*fault)(void *state, const struct prefetch_event *event, uint32_t depth, struct prefetch_run *run);
    /* Another predictor's run was taken for the event. NULL: does not matter. */
    void (*covered)(void *state, const struct prefetch_event *event, const struct prefetch_run *run);
    /* Of its run only the first `count` pages were brought. NULL: does not matter. */
    void (*cut)(void *state, const struct prefetch_run *run, uint32_t count);
};

/* ---- sequential.c: streams ------------------------------------------------------------------------------------ */

#define STREAMS_MAX    16u
#define STRIDE_MAX     16 /* pages; a larger step is not a stream */
#define CANDIDATES_MAX 8u /* streams not confirmed may replace confirmed ones up to this many */

struct stream {
    uint64_t last;      /* page touched last */
    uint64_t frontier;  /* confirmed: the first page of the stream not asked for yet */
    uint64_t low, high; /* candidate: `last`, or the block around `last` that fault-around brought */
    uint32_t thread;
    uint32_t window;  /* pages that are wanted ahead of last */
    uint32_t used_at; /* of the last event, for replacement */
    int32_t stride;   /* confirmed: the step; candidate: the last step seen, 0 for none */
    bool is_used;
    bool is_confirmed;
};

struct sequential {
    struct stream streams[STREAMS_MAX];
    uint32_t events;
};

void sequential_init(struct sequential *sequential);
bool sequential_fault(void *state, const struct prefetch_event *event, uint32_t depth, struct prefetch_run *run);
void sequential_covered(void *state, const struct prefetch_event *event, const struct prefetch_run *run);
void sequential_cut(void *state, const struct prefetch_run *run, uint32_t count);

/* ---- throttle.c: is a predictor worth its pages? --------------------------------------------------------------- */

#define ACCURACY_ONE 65536u

struct throttle {
    uint32_t accuracy; /* moving average of used (1) and wasted (0), in 1/65536 */
    uint32_t skipped;  /* events explained without a run since the last one */
    bool is_off;
};

void throttle_init(struct throttle *throttle);
void throttle_judge(struct throttle *throttle, bool was_used);
/* Pages that may be proposed now out of `depth`; 0: none. */
uint32_t throttle_depth(const struct throttle *throttle, uint32_t depth);
/* An event of this predictor was answered with `count` pages: tells the throttle when to probe. */
void throttle_issued(struct throttle *throttle, uint32_t count);

#endif
