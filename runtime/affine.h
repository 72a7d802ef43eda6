/* SPDX-License-Identifier: Apache-2.0 */
/*
 * affine.h - a shard beside the thread that it serves, on one processor.
 *
 * A fault that the shard serves costs two wakes. Between processors a wake is an interrupt, and when the other one
 * sleeps, the host of a virtual machine must bring it back first: 20 to 30 us each. On one processor it is a switch of
 * 1 to 2 us. While one thread raises nearly all faults and waits for each, two processors gain nothing. The scheduler
 * wakes a thread on an idle processor all the same, so both are kept on one (sched_setaffinity(2)) as long as the
 * faults go on. The thread's own mask comes back when they pause, and before the thread can look at it, change it or
 * hand it on (affine_settle()).
 *
 * Whether it pays is not guessed: the time from fault to fault is compared, by turns.
 * All by the shard's thread, but for affine_settle().
 */
#ifndef TIERMESH_RUNTIME_AFFINE_H
#define TIERMESH_RUNTIME_AFFINE_H

#include "base/types.h"

#include <sched.h>

struct affine {
    bool is_on;
    int processor;              /* of the shard; AFFINE_FREE: any */
    uint32_t thread;            /* that faults */
    uint32_t faults, by_thread; /* of this epoch */
    uint64_t epoch_ns, last_ns; /* when it began; the last fault */
    bool is_trial;
    bool is_preferred;       /* being beside the thread, as far as is known */
    uint64_t cost_ns[2];     /* from fault to fault: free, beside */
    uint32_t left, patience; /* epochs until the other way is tried, and from then on */
    cpu_set_t all;           /* the shard's processors */
    cpu_set_t mask;          /* of the thread that is held; not written while one is */
    _Atomic(uint32_t) held;  /* the thread whose mask is not its own; 0: none */
};

#define AFFINE_FREE (-1)

/* By the shard's thread, before it serves anything. Stays off where there is one processor only. */
void affine_init(struct affine *affine, bool is_on);

/* A fault of this thread was read, which waits. Decides where both run. */
void affine_fault(struct affine *affine, uint32_t thread, uint64_t now_ns);

/* When affine_tick() wants to be called (os_now_ns() clock); UINT64_MAX: not at all. It lets go when faults pause. */
uint64_t affine_deadline_ns(const struct affine *affine);
void affine_tick(struct affine *affine, uint64_t now_ns);

/* By any thread: every thread's mask is its own when this returns, until it has faulted many times. Keeps errno. */
void affine_settle(struct affine *affine);

#endif
