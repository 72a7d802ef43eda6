/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop_core.h - what the two event loops share; seen by loop_*.c only.
 *
 * The core owns timers, pollers, posted calls and the table of watches; a kind (loop_uring.c, loop_epoll.c) owns the
 * kernel's queue. A kind's events name a watch by a key of slot and generation, never by pointer: an event that was
 * queued before loop_unwatch() finds another generation and is dropped, though the watch's memory may be gone.
 */
#ifndef TIERMESH_RUNTIME_LOOP_CORE_H
#define TIERMESH_RUNTIME_LOOP_CORE_H

#include "base/loop.h"
#include "base/os.h"

#define LOOP_WATCHES_MAX (1U << 16)
#define LOOP_TIMERS_MAX  (1U << 20)
#define LOOP_SLOT_NONE   UINT32_MAX

struct loop_slot {
    struct loop_watch *watch; /* NULL: free */
    uint32_t generation;
    uint32_t events;
    uint32_t next;  /* free list; loop_uring.c: list of slots to arm */
    bool is_queued; /* loop_uring.c: on that list */
    bool is_armed;  /* loop_uring.c: the kernel has a poll request with this key */
};

struct loop {
    const struct loop_ops *ops;
    pthread_t owner;
    bool has_owner;
    bool is_armed; /* pollers were armed for the block that goes on */
    int handled;   /* callbacks run, for loop_run_once() */

    struct loop_timer **timers; /* binary heap by deadline, then by order of start */
    uint32_t timers_count;
    uint64_t timers_started;

    struct loop_poller *pollers;
    struct loop_poller *poller_next; /* where the walk over pollers goes on; loop_poller_remove() moves it */

    struct loop_slot *slots;
    uint32_t slots_used;
    uint32_t slot_free;

    uint64_t spin_ns_max, spin_ns;

    int process; /* whose descriptors these are */
    int wake_fd; /* eventfd, watched edge-triggered and never read: each write is an edge */
    struct loop_watch wake_watch;

    /*
     * Posting and sleeping, a store and then a load of the other word on both sides, all sequentially consistent:
     *   loop_post():   exchange `posted`,      then read `is_sleeping`; rings wake_fd when it was set
     *   the loop:      store `is_sleeping` 1,  then read `posted`;      does not block when it is not empty
     * In the single order of these four one side comes second and sees the other: no call waits for ever.
     * Taking the stack (acquire, calls_run()) pairs with the push (release, loop_post()).
     */
    _Atomic(struct loop_call *) posted;
    _Atomic(uint32_t) is_sleeping;
};

int loop_core_init(struct loop *loop, const struct loop_ops *ops) MUST_USE; /* memory zeroed by the caller */
int loop_core_start(struct loop *loop) MUST_USE; /* after the kind is ready: watches wake_fd */
void loop_core_fini(struct loop *loop);

/* The kind has returned from its blocking call and will now run callbacks. Harmless when it did not block. */
void loop_core_woke(struct loop *loop);

int loop_slot_take(struct loop *loop, struct loop_watch *watch, uint32_t events, struct loop_slot **ret_slot) MUST_USE;
void loop_slot_put(struct loop *loop, struct loop_slot *slot);
struct loop_slot *loop_slot_of(struct loop *loop, const struct loop_watch *watch);
struct loop_slot *loop_slot_find(struct loop *loop, uint64_t key);             /* NULL: unwatched since */
uint64_t loop_slot_key(const struct loop *loop, const struct loop_slot *slot); /* below 2^56 */

/* Each kind's constructor: 0 or -errno with a sentence. */
int loop_uring_create(struct loop **ret_loop) MUST_USE;
int loop_epoll_create(struct loop **ret_loop) MUST_USE;

#endif
