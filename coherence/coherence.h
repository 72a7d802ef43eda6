/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coherence.h - who may hold which page, and who holds which lock. PURE.
 *
 * One `struct coherence` a shard, driven by one thread: events in, effects out through struct coherence_env. It makes
 * no system call, reads no clock (`now_ns` comes with the event), rolls no dice but its seeded generator, and allocates
 * nothing after coherence_init(): `memory` of coherence_size() bytes is the caller's and holds no pointer into itself,
 * so that a simulator copies a world with memcpy.
 *
 * docs/PROTOCOL.md has the numbered rules; code and tests cite them.
 */
#ifndef TIERMESH_COHERENCE_COHERENCE_H
#define TIERMESH_COHERENCE_COHERENCE_H

#include "base/types.h"
#include "coherence/env.h"
#include "coherence/message.h"

/* What this node's threads may do with a page, as the protocol sees it. */
enum page_state {
    PAGE_INVALID = 0,
    PAGE_SHARED = 1,    /* may read */
    PAGE_EXCLUSIVE = 2, /* may write; no other node has it */
    PAGE_POISONED = 3,
};

struct coherence;

struct coherence_limits {
    uint16_t nodes_count;    /* members at most; NODES_MAX at most */
    uint16_t requests_max;   /* page requests, atomics and reads this node has in flight, over all homes */
    uint16_t locks_max;      /* locks this node holds or caches or waits for */
    uint32_t home_locks_max; /* locks and condition waits known to this node as a home, waiting requests included */
    uint32_t hold_ns;        /* shortest time a granted page is kept; randomised, doubling on refault (P12) */
    uint32_t hold_ns_max;
    uint32_t lock_lease_ns;  /* unused until leases; kept in the wire format */
};

size_t coherence_size(const struct coherence_limits *limits);
void coherence_init(struct coherence *coherence, const struct coherence_limits *limits, const struct coherence_env *env,
                    struct node_id self, uint64_t seed);

/* The env pointer is the only pointer inside; a copied world sets its own. */
void coherence_set_env(struct coherence *coherence, const struct coherence_env *env);

/* ---- requests of this node. Each ends with env->done(token) exactly once; tokens are the caller's. -------------- */

/*
 * coherence_fault - a thread needs `access` to a page whose rights are lower. `thread` (any id) is used for the hold
 * rule. Ends when rights were installed (0) or the page is lost (-EIO, -EHOSTDOWN; env->poison was called).
 * Faults on a page already being requested join that request. `prefetch`: nobody waits; may end with -EAGAIN.
 * done() may come before the call returns (the page's home is here and nobody else has the page).
 * 0, or -EAGAIN: requests_max are in flight; call again after the next done() or coherence_read_end(); -EFAULT:
 * outside every extent.
 */
int coherence_fault(struct coherence *coherence, struct page_id page, enum access access, uint64_t thread,
                    uint64_t token, bool prefetch, uint64_t now_ns) MUST_USE;

/* One 64-bit atomic at the page's home: see MESSAGE_ATOMIC for operation codes. done() carries the old value. */
int coherence_atomic(struct coherence *coherence, struct page_id page, unsigned offset_bytes, unsigned operation,
                     uint64_t argument, uint64_t expected, uint64_t token, uint64_t now_ns) MUST_USE;

/*
 * coherence_read - make the home keep `pages_count` (1 .. READ_PAGES_MAX) consecutive pages of one extent current and
 * in place in its store, so that their bytes can be copied from there without taking rights. done(0) when they are;
 * then the home does not give them away until coherence_read_end() with the same token.
 */
#define READ_PAGES_MAX 512
int coherence_read(struct coherence *coherence, struct page_id first, unsigned pages_count, uint64_t token,
                   uint64_t now_ns) MUST_USE;
void coherence_read_end(struct coherence *coherence, uint64_t token, uint64_t now_ns);

/*
 * Voluntary eviction. A clean shared page: forgotten at once. An exclusive page: written back to the home; done(0), or
 * done(-EHOSTDOWN): the home is gone, the page stays. 0, or -EAGAIN (as coherence_fault), -EBUSY: the page is pinned,
 * or a request or recall of it is in progress.
 */
int coherence_evict(struct coherence *coherence, struct page_id page, uint64_t token, uint64_t now_ns) MUST_USE;

/* ---- locks: a range of units in a space; the node takes and caches them, threads share them in runtime/ --------- */

enum lock_space {
    LOCK_PAGES = 0, /* units are global page numbers; the home is the home of the first page */
    LOCK_WORDS = 1, /* units are words: page index * 512 + word in the page; the home is the home of the page */
};

/*
 * coherence_lock - have this node own [first, first + count) exclusively or shared. done(0 or -EOWNERDEAD) with the
 * lock's number as value: owned from then on, across any number of thread-level uses, until coherence_lock_release().
 * done(-EHOSTDOWN), done(-ENOSPC: home_locks_max). wait false: done(-EBUSY) instead of queueing.
 * coherence_lock_cancel gives up waiting: done(-ECANCELED) follows unless it was granted already.
 */
int coherence_lock(struct coherence *coherence, enum lock_space space, uint64_t first, uint64_t count, bool exclusive,
                   bool wait, uint64_t token, uint64_t now_ns) MUST_USE;
void coherence_lock_cancel(struct coherence *coherence, uint64_t token, uint64_t now_ns);
void coherence_lock_release(struct coherence *coherence, uint32_t lock, uint64_t now_ns);

/* Conditions: wait registers this node (done(0, value 1) when registered, done again with 0 when signalled). */
int coherence_cond_wait(struct coherence *coherence, uint64_t word, uint64_t token, uint64_t now_ns) MUST_USE;
void coherence_cond_cancel(struct coherence *coherence, uint64_t token, uint64_t now_ns);
int coherence_cond_wake(struct coherence *coherence, uint64_t word, bool all, uint64_t token, uint64_t now_ns) MUST_USE;

/* ---- events ----------------------------------------------------------------------------------------------------- */

/* A decoded message from `from` (the transport's word; message->from must equal it). Bad ones are counted, ignored. */
void coherence_receive(struct coherence *coherence, struct node_id from, const struct message *message,
                       uint64_t now_ns);

/* env->protect() that was in progress is complete. */
void coherence_protected(struct coherence *coherence, struct page_id page, uint64_t now_ns);

/* env->atomic() that was in progress can be asked again. */
void coherence_atomic_ready(struct coherence *coherence, struct page_id page, uint64_t now_ns);

/* The store of this node lost the page's bytes (disk error, wrong checksum). */
void coherence_lost(struct coherence *coherence, struct page_id page, const char *why, uint64_t now_ns);

/* A new view. Dead owners' pages are poisoned, dead holders' locks pass on, requests to dead homes end -EHOSTDOWN. */
void coherence_set_view(struct coherence *coherence, const struct view *view, uint64_t now_ns);

/*
 * Pages are being freed, everywhere (V8). The extent table has them for the last time. Requests on them end -EFAULT.
 */
void coherence_forget(struct coherence *coherence, struct page_id first, unsigned pages_count);

/* Timers: call coherence_tick() at or after this time (UINT64_MAX: no timer). */
uint64_t coherence_deadline_ns(const struct coherence *coherence);
void coherence_tick(struct coherence *coherence, uint64_t now_ns);

struct coherence_counters {
    uint64_t messages_bad;   /* refused: malformed for the state, stale epoch, wrong sender */
    uint64_t messages_stale; /* late or repeated, ignored by rule */
    uint64_t recalls_held;   /* recalls that waited for the hold time */
    uint64_t requests_queued_max;
};
void coherence_counters_get(const struct coherence *coherence, struct coherence_counters *ret_counters);

#endif
