/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch.h - what will be touched next. PURE.
 *
 * The pager reports each fault and the fate of each prefetched page; the answer is a run of pages worth bringing now.
 * Predictors are one file each behind predictor_ops; the throttle watches accuracy and turns a predictor off where it
 * does not pay. First predictor: sequential streams, forward and backward, per thread (window doubles on success).
 */
#ifndef TIERMESH_PREFETCH_PREFETCH_H
#define TIERMESH_PREFETCH_PREFETCH_H

#include "base/types.h"

#define PREFETCH_RUN_MAX 128

/*
 * Pages worth bringing: first, first + stride, ... in the order they are expected; stride is 1, -1 or a small number.
 * count 0: nothing. Pages that are here or on the way already, and pages outside the region, are the caller's to skip.
 * trigger: the page whose first touch must be seen, so that the next run can be asked for before this one is used up:
 * leave it unmapped when the others are mapped at once. Under fault-around it is PAGE_NONE.
 */
struct prefetch_run {
    struct page_id first;
    struct page_id trigger;
    uint32_t count;
    int32_t stride;
    uint8_t predictor; /* for prefetch_used() and prefetch_wasted() */
};

struct prefetch_config {
    uint32_t depth_max;    /* pages ahead of a stream; 0 switches prefetch off, fault-around included */
    uint32_t fault_around; /* pages of the aligned block fetched at an unpredicted fault; 0, 1: only the page */
};

struct prefetch; /* prefetch_bytes() of caller memory, no pointer inside */

size_t prefetch_bytes(void);
void prefetch_init(struct prefetch *prefetch, const struct prefetch_config *config);

/*
 * A demand fault (hard: bytes came from elsewhere, or are on the way), or the first touch of a prefetched page
 * (`was_prefetched`). Touches of resident pages in limbo are not reported here. `thread` is any number that tells
 * threads apart.
 */
void prefetch_fault(struct prefetch *prefetch, struct page_id page, uint32_t thread, bool was_prefetched,
                    struct prefetch_run *ret_run);

/* Only the first `count` pages of this run were brought, for want of room: the rest may be asked for again. */
void prefetch_cut(struct prefetch *prefetch, const struct prefetch_run *run, uint32_t count);

/*
 * A prefetched page was used, or left DDR unused. Say either only of pages whose touch can be seen: of a run that was
 * mapped at once that is its trigger, which then speaks for the run.
 */
void prefetch_used(struct prefetch *prefetch, uint8_t predictor);
void prefetch_wasted(struct prefetch *prefetch, uint8_t predictor);

struct prefetch_counters {
    uint64_t issued; /* pages in runs */
    uint64_t used, wasted;
    uint64_t throttled; /* events at which a predictor was held back, because too few of its pages had been used */
};
void prefetch_counters_get(const struct prefetch *prefetch, struct prefetch_counters *ret_counters);

#endif
