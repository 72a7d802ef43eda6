/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch_list.h - the predictors that can be put on trial.
 */
#ifndef TIERMESH_BENCH_REPLAY_PREFETCH_LIST_H
#define TIERMESH_BENCH_REPLAY_PREFETCH_LIST_H

#include "bench/replay/prefetch_sim.h"

/* prefetch_run.c. NULL: there is none of this name. */
const struct prefetcher_ops *prefetcher_find(const char *name);

/* prefetch_ours.c */
extern const struct prefetcher_ops prefetcher_ours;
extern const struct prefetcher_ops prefetcher_streams;
extern const struct prefetcher_ops prefetcher_temporal;
extern const struct prefetcher_ops prefetcher_signature;

/* prefetch_rivals.c */
extern const struct prefetcher_ops prefetcher_next8;
extern const struct prefetcher_ops prefetcher_vma;
extern const struct prefetcher_ops prefetcher_file;
extern const struct prefetcher_ops prefetcher_leap;

#endif
