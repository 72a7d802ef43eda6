/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch_run.h - what `tiermesh-replay --prefetch` does.
 */
#ifndef TIERMESH_BENCH_REPLAY_PREFETCH_RUN_H
#define TIERMESH_BENCH_REPLAY_PREFETCH_RUN_H

#include "bench/replay/options.h"

/* Replays the trace through the predictors that the options name and prints a row for each. 0, or a negative errno with
 * a sentence; -ESRCH: no such predictor. */
int MUST_USE prefetch_run(const struct options *options);

#endif
