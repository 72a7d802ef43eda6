/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch.h - what will be touched next. PURE.
 *
 * The pager reports each fault and the fate of each prefetched page; the answer is a list of runs of pages worth
 * bringing now. Predictors propose pages (one file each); a filter learns from what became of earlier proposals how
 * likely each one is, and only what is likely enough is brought (docs/PREFETCH.md has sources and figures).
 */
#ifndef TIERMESH_PREFETCH_PREFETCH_H
#define TIERMESH_PREFETCH_PREFETCH_H

#include "base/types.h"

#define PREFETCH_RUN_MAX  128
#define PREFETCH_RUNS_MAX 32

/*
 * Pages worth bringing: first, first + stride, ... in the order they are expected; stride is 1, -1 or a small number.
 * Pages that are here or on the way already, and pages outside the region, are the caller's to skip.
 * trigger: the page whose first touch must be seen, so that the next run can be asked for before this one is used up:
 * leave it unmapped when the others are mapped at once. Under fault-around it is PAGE_NONE.
 * is_watched: the first touch of every page must be seen: leave them all unmapped (a soft fault each).
 */
struct prefetch_run {
    struct page_id first;
    struct page_id trigger;
    uint32_t count;
    int32_t stride;
    bool is_watched;
};

/* In the order in which they should be asked for. */
struct prefetch_plan {
    uint32_t runs_count;
    struct prefetch_run runs[PREFETCH_RUNS_MAX];
};

/* Bits of prefetch_config.predictors. */
enum prefetch_predictor {
    PREFETCH_STREAMS = 0,   /* forward, backward, strides */
    PREFETCH_TEMPORAL = 1,  /* what followed this page the last time; walks seen before */
    PREFETCH_SIGNATURE = 2, /* deltas inside 1 MiB that followed such deltas before */
    PREFETCH_HINTS = 3,     /* what the application said */
    PREFETCH_AROUND = 4,    /* the aligned block around a fault that nothing else explains */
    PREFETCH_PREDICTORS = 5,
};
#define PREFETCH_ALL ((1u << PREFETCH_PREDICTORS) - 1)

struct prefetch_config {
    uint32_t depth_max;       /* pages ahead of a stream; 0 switches prefetch off, fault-around included */
    uint32_t ahead_min;       /* pages ahead that cost little when asked for together, as in one request; 0: 8 */
    uint32_t fault_around;    /* pages of the aligned block fetched at an unpredicted fault; 0, 1: only the page */
    uint32_t predictors;      /* 1 << enum prefetch_predictor each; 0 stands for all */
    uint32_t history_entries; /* events remembered: a walk that is to be replayed must fit; 0: 4096; a power of two */
    uint32_t queue_max;       /* pages waiting for the link above which nothing is proposed; 0: 128 */
};

struct prefetch; /* prefetch_bytes() of caller memory, no pointer inside */

/* 10 bytes for each entry of the history and 177 KiB. */
size_t prefetch_bytes(const struct prefetch_config *config);
void prefetch_init(struct prefetch *prefetch, const struct prefetch_config *config);

/*
 * What the pager knows at this moment. is_absent: the page exists, and is neither in memory nor on the way: it could
 * be fetched. NULL: all pages are. queue: pages asked for and not here yet, those of demand included.
 */
struct prefetch_view {
    bool (*is_absent)(const void *context, struct page_id page);
    const void *context;
    uint32_t queue;
};

/*
 * A demand fault (hard: bytes came from elsewhere, or are on the way), or the first touch of a prefetched page
 * (`was_prefetched`). Touches of resident pages in limbo are not reported here. `thread` is any number that tells
 * threads apart.
 */
void prefetch_fault(struct prefetch *prefetch, struct page_id page, uint32_t thread, bool was_prefetched,
                    const struct prefetch_view *view, struct prefetch_plan *ret_plan);

/* Only the first `count` pages of this run were brought, for want of room: the rest may be asked for again. */
void prefetch_cut(struct prefetch *prefetch, const struct prefetch_run *run, uint32_t count);

/*
 * A prefetched page was used, or left DDR unused. Say either only of pages whose touch can be seen: of a run that was
 * mapped at once that is its trigger, which then speaks for the run. is_late: it was still on the way. Before
 * prefetch_fault() for the same touch.
 */
void prefetch_used(struct prefetch *prefetch, struct page_id page, bool is_late);
void prefetch_wasted(struct prefetch *prefetch, struct page_id page);

/*
 * A page that had been asked for left DDR while `unused` frames held prefetched pages that nobody has touched yet. A
 * fault on it soon after is the price of those frames; where that exceeds the gain, prefetch goes off for a while.
 */
void prefetch_evicted(struct prefetch *prefetch, struct page_id page, uint32_t unused);

/* ---- what the application says (hints.c) ----------------------------------------------------------------------- */

enum prefetch_advice {
    PREFETCH_NORMAL = 0,
    PREFETCH_SEQUENTIAL = 1, /* a fault here starts a stream at once, at full depth */
    PREFETCH_RANDOM = 2,     /* nothing is predicted here */
};
#define PREFETCH_REGIONS_MAX 64u
#define PREFETCH_ORDER_MAX   64u
/* The newest advice on a page holds. Returns 0, or -ENOSPC: PREFETCH_REGIONS_MAX are known already. */
int MUST_USE prefetch_advise(struct prefetch *prefetch, struct page_id first, uint64_t pages_count,
                             enum prefetch_advice advice);
/* One more range of pages that will be walked after those named before; the walk may be repeated. -ENOSPC as above. */
int MUST_USE prefetch_order(struct prefetch *prefetch, struct page_id first, uint64_t pages_count, int32_t stride);
/* The pages were freed, or will be walked in another order: advice and walks. Of a walk with steps all is forgotten. */
void prefetch_forget(struct prefetch *prefetch, struct page_id first, uint64_t pages_count);

/* ---- what it did ----------------------------------------------------------------------------------------------- */

struct prefetch_counters {
    uint64_t issued; /* pages in runs */
    uint64_t used, late, wasted;
    uint64_t throttled; /* events at which a predictor was held back, because too few of its pages had been used */
    uint64_t polluted;  /* faults that would not have been, had prefetched pages taken no frames (sampled, scaled) */
    uint64_t off;       /* events at which all was off for that reason */
    uint64_t issued_by[PREFETCH_PREDICTORS], used_by[PREFETCH_PREDICTORS], wasted_by[PREFETCH_PREDICTORS];
};
void prefetch_counters_get(const struct prefetch *prefetch, struct prefetch_counters *ret_counters);

#endif
