/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guard.h - an end to a UFFDIO_MOVE that does not return. Not for other folders.
 *
 * To move one page of a huge page the kernel splits the huge page, which it cannot while another of its pages is
 * pinned. Linux up to 6.12 at least then tries again and again inside the call (move_pages() in mm/userfaultfd.c goes
 * on at -EAGAIN), until the pin ends or the process is killed. Nothing tells an unprivileged process which pages are
 * part of a huge page, or pinned. But each try looks at the destination first, and ends the call with EEXIST when there
 * is a page: so a second thread puts one there when a call lasts.
 */
#ifndef TIERMESH_MMU_GUARD_H
#define TIERMESH_MMU_GUARD_H

#include "base/types.h"

#include <pthread.h>
#include <stdatomic.h>

/* The shard's thread's, except what is atomic. Zeroes to begin with. */
struct guard {
    /* Of the call under way; the watcher reads them when it has made the phase GUARD_ENDING. */
    int descriptor;
    uint64_t destination;
    unsigned pages_count;

    _Atomic(uint32_t) call;      /* number of the call times four, and its phase */
    _Atomic(uint32_t) is_asleep; /* the watcher: until the next call */
    _Atomic(bool) is_closing;
    bool is_watched; /* the thread is there; of who starts and closes */
    pthread_t thread;
};

/* The watcher. A call without one is not ended. 0 or -EAGAIN. Any thread, once. */
int guard_start(struct guard *guard) MUST_USE;

/* Around each UFFDIO_MOVE to `pages_count` absent pages at `destination`. */
void guard_enter(struct guard *guard, int descriptor, uint64_t destination, unsigned pages_count);
/* True: the call was ended. Pages of the destination that were not moved may be zero pages. */
bool guard_leave(struct guard *guard) MUST_USE;

/* In a forked child, which has no watcher. */
void guard_forget(struct guard *guard);
void guard_close(struct guard *guard);

#endif
