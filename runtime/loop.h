/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h - making and running an event loop; base/loop.h is what its users see.
 *
 * A loop may be created, given watches, timers, pollers and transfers by one thread, and then handed to the thread
 * that runs it (thread start is hand-over enough). The thread of the first loop_run_once() owns it from then on.
 */
#ifndef TIERMESH_RUNTIME_LOOP_H
#define TIERMESH_RUNTIME_LOOP_H

#include "base/loop.h"

/*
 * loop_create - kind is "auto", "io_uring" or "epoll". "auto" takes io_uring and, where that is refused, epoll with
 * one log line that says why.
 * Returns 0, -EINVAL (unknown kind), -EPERM or -ENOSYS (io_uring is refused; the sentence says by what), -ENOMEM,
 * -EMFILE.
 */
int loop_create(const char *kind, struct loop **ret_loop) MUST_USE;

/* By the owner, or by any thread once the owner has ended. No transfer may be in flight. NULL is allowed. */
void loop_destroy(struct loop *loop);

/* In a forked child: the parent's loop goes, which the parent does not see. No transfer was in flight at the fork. */
void loop_forget(struct loop *loop);

const char *loop_kind(const struct loop *loop); /* "io_uring" or "epoll" */

/*
 * Longest spin before blocking, 0 (the default) for none: one look at everything and one sched_yield come before
 * each block anyway. The spin adapts: it is full after a block that it would have spared, halved after a longer one,
 * and ends at once when a yield shows that another thread wants this CPU.
 */
void loop_spin_set(struct loop *loop, uint64_t spin_ns_max);

/*
 * loop_run_once - handle what is there; when there is nothing, block until something is or until limit_ns
 * (os_now_ns() clock; 0: do not block, UINT64_MAX: no limit). Returns how many callbacks ran (0: the limit passed, or
 * another thread rang for nothing).
 */
int loop_run_once(struct loop *loop, uint64_t limit_ns);

/* Transfers that were started since the last look go to the kernel now, for an owner who has work to do meanwhile. */
void loop_submit(struct loop *loop);

/* Run until a callback has set *is_done. */
void loop_run_until(struct loop *loop, const bool *is_done);

#endif
