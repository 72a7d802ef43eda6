/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - one trace, replayed through one policy after the other.
 */
#ifndef TIERMESH_BENCH_REPLAY_RUN_H
#define TIERMESH_BENCH_REPLAY_RUN_H

#include "bench/replay/cache.h"
#include "bench/replay/options.h"

#define RUN_FUTURE_MAX ((uint64_t)1 << 28) /* records that Belady's policy is computed for: 1 GiB */

struct run;

struct run_result {
    const char *name;
    uint32_t frames;
    struct cache_counts counts;
    double ns_per_touch;
    double ns_per_event; /* an event: a touch that the policy sees, misses included */
};

/* 0, or -ESRCH with a sentence: a name in the list (commas) is no policy. */
int MUST_USE run_names_check(const char *names);
/* Reads the trace once, and once more for Belady. Errors as trace.h. */
int MUST_USE run_open(const struct options *options, struct run **ret_run);
void run_close(struct run *run);
/* -ESRCH: no such policy; -EINVAL: too few frames for it, or the trace changed. */
int MUST_USE run_policy(struct run *run, const char *name, const struct options *options,
                        struct run_result *ret_result);

uint64_t run_touches(const struct run *run);
uint64_t run_footprint(const struct run *run);
uint64_t run_belady_misses(const struct run *run, uint32_t frames); /* 0: was left out */

#endif
