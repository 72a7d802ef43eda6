/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - the command line of tiermesh-replay.
 */
#ifndef TIERMESH_BENCH_REPLAY_OPTIONS_H
#define TIERMESH_BENCH_REPLAY_OPTIONS_H

#include "base/types.h"

struct options {
    const char *trace;
    uint64_t frames;     /* 0: frames_share of the footprint */
    double frames_share; /* 0 to 1 */
    const char *policy;
    const char *prefetch; /* NULL: not asked for */
    double limbo_share;   /* of the frames; 1: every touch is seen */
    double fetch_us;
    bool is_json;
};

/* True: run. False: *ret_exit is the exit status, and what there is to say was said. */
bool options_parse(int argc, char **argv, struct options *ret_options, int *ret_exit) MUST_USE;

/* Frames of a footprint: at least 1. */
uint32_t options_frames(const struct options *options, uint64_t footprint_pages);

#endif
