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

/* A run of consecutive pages to bring; count 0: nothing. `trigger`: report the first touch of this page as `reached`. */
struct prefetch_run {
    struct page_id first;
    uint32_t count;
    uint8_t predictor;
};

struct prefetch_config {
    uint32_t depth_max;   /* pages ahead, 0 switches prefetch off */
    uint32_t fault_around; /* pages fetched around an unpredicted fault, 1: only the page */
};

struct prefetch; /* prefetch_bytes() of caller memory, no pointer inside */

size_t prefetch_bytes(void);
void prefetch_init(struct prefetch *prefetch, const struct prefetch_config *config);

/* A demand fault (hard: bytes came from elsewhere), or the first touch of a prefetched page (`was_prefetched`). */
void prefetch_fault(struct prefetch *prefetch, struct page_id page, uint32_t thread, bool was_prefetched,
                    struct prefetch_run *ret_run);

/* A prefetched page was used, or left DDR unused. */
void prefetch_used(struct prefetch *prefetch, uint8_t predictor);
void prefetch_wasted(struct prefetch *prefetch, uint8_t predictor);

struct prefetch_counters {
    uint64_t issued, used, wasted, throttled;
};
void prefetch_counters_get(const struct prefetch *prefetch, struct prefetch_counters *ret_counters);

#endif
