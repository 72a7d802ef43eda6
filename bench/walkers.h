/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walkers.h - threads that touch pages for as long as bench_rivals asks them to.
 */
#ifndef TIERMESH_BENCH_WALKERS_H
#define TIERMESH_BENCH_WALKERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WALKERS_MAX 64

/* Touches pages until *stop; returns how many. walker: 0 .. count-1. In a thread of its own. */
typedef uint64_t walker_run(unsigned walker, const _Atomic(bool) *stop);

/*
 * Says "ready". Then, for each line of the input that names a number of seconds: runs count (1 .. WALKERS_MAX) threads
 * for so long, and says how many pages a second they touched. Returns at the end of the input.
 */
void walkers_answer(unsigned count, walker_run *run);

#endif
