/* SPDX-License-Identifier: Apache-2.0 */
/*
 * managed.h - the inside of runtime/hooks.h: what is handed out to an unchanged program, and the shard that manages it.
 * Seen by managed*.c and private_shard.c only.
 *
 *   managed.c        opening, orders, and what needs no shard
 *   managed_map.c    what an order does to mappings
 *   managed_limit.c  the range of addresses, and limits on address space
 *   managed_advise.c what the program said of its memory before the shard ran
 *   managed_fork.c   the way through a fork
 *   private_shard.c  the shard's thread: faults, eviction, orders
 *
 * `mutex` guards ranges, extents and the counts beside them. Before the shard runs, threads carry their orders out
 * themselves under it. Afterwards the shard carries out all of them; it never waits for the mutex, since a thread that
 * has it may be waiting for an absent page of its stack.
 */
#ifndef TIERMESH_RUNTIME_MANAGED_H
#define TIERMESH_RUNTIME_MANAGED_H

#include "base/loop.h"
#include "runtime/affine.h"
#include "runtime/broker.h"
#include "runtime/config.h"
#include "runtime/hooks.h"
#include "runtime/limits.h"
#include "runtime/pager.h"
#include "runtime/ranges.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum managed_state {
    MANAGED_IDLE = 0,    /* nothing is managed yet */
    MANAGED_RUNNING = 1, /* the shard runs */
    MANAGED_OFF = 2,     /* the shard could not be started, or may not be: memory stays the kernel's */
};

/*
 * What holds of an extent. UNUSED: nothing but free and inaccessible pages. FRESH: the kernel fills it; charged whole.
 * REGISTERED: each of its pages that is ours (HOOKS_MANAGED) is registered.
 */
enum extent_state {
    EXTENT_UNUSED = 0,
    EXTENT_FRESH = 1,
    EXTENT_REGISTERED = 2,
};

struct managed;

/*
 * One change, asked for by a thread. What the shard sees lies in an order slot, not on the thread's stack, which may be
 * managed memory: the shard must not fault on it.
 */
struct order {
    struct loop_call call;
    int (*run)(struct managed *managed, struct order *order); /* with the mutex. -EINPROGRESS: finished later */
    _Atomic(uint32_t) done;
    int result;
    uint64_t first, end; /* pages */
    uint64_t alignment_pages;
    int protection, flags, descriptor;
    unsigned traits;
    int64_t offset_bytes;
    bool is_set; /* run's own */
};

#define DEFERRED_MAX 256

/* Of whoever forks. */
#define FORK_SPARES 3
struct fork_room {
    int spares[FORK_SPARES]; /* descriptors that only hold their place */
    unsigned count;
    uint64_t limit_before; /* on descriptors; 0: it was not raised */
};

/* Fields of the shard's thread, but for the hand-overs at start and fork. */
struct private_shard {
    pthread_t thread;
    struct loop *loop;
    struct mmu_features features;
    struct mmu *mmu;
    struct table *pages;
    struct pager *pager;
    struct tier *tiers[TIERS];
    struct broker *broker, *child_broker; /* child's: between fork_prepare and the fork */
    struct limits *limits;
    struct affine affine;
    struct record *record; /* NULL: no trace is written */
    struct loop_watch faults_watch, broker_watch;
    struct mmu_fault deferred[DEFERRED_MAX]; /* faults that could not be judged: the mutex was taken */
    unsigned deferred_count;
    uint64_t publish_ns; /* when figures are due */
    uint64_t start_ns;
    uint64_t limit_changes;
    bool broker_is_gone;
    struct order park_order; /* of whoever forks: it has the mutex */
    struct fork_room room;
    struct order *parking;   /* a fork waits for the transfers to end; no faults are read, nothing is evicted */
    _Atomic(uint32_t) parked;
    _Atomic(uint32_t) started; /* 0, 1: running, 2: failed */
    int start_error;
    char start_text[512];
};

/* Of pages that the kernel still fills. */
struct early_advice {
    uint64_t first, end;
    enum dsm_advice advice;
};
#define EARLY_ADVICE_MAX 64

struct managed {
    struct dsm_config config;
    uint64_t budget_bytes[TIERS]; /* at start: what the machine leaves of what was asked for */
    struct mmu_window window;
    _Atomic(int) state;
    bool is_frozen;
    bool is_bare; /* free addresses of the range are not mapped: a limit on address space counts them */
    pid_t pid;    /* of this process: others may share its memory (vfork, CLONE_VM) */

    _Atomic(uint32_t) mutex; /* 0, 1: held, 2: held and waited for */
    bool is_lent;            /* a thread has the mutex and waits for the shard, which may act as its holder */
    struct ranges *ranges;
    uint8_t *extents;                   /* enum extent_state */
    uint64_t charged_extents;           /* FRESH ones, before the shard runs */
    uint64_t managed_pages, kept_pages; /* handed out and accessible, in ranges of these kinds */

    struct early_advice advice[EARLY_ADVICE_MAX]; /* before the shard runs */
    unsigned advice_count;

    struct private_shard shard;
};

/* The one context of the preload library's runtime. */
extern struct managed managed_context;

/* False for a task that only shares this memory (vfork, CLONE_VM). */
static inline bool managed_is_own(void)
{
    return getpid() == managed_context.pid;
}

static inline bool managed_is_running(void)
{
    return atomic_load_explicit(&managed_context.state, memory_order_acquire) == MANAGED_RUNNING;
}

/*
 * managed.c. The mutex is not a pthread_mutex_t: libc leaves the atomics out of that while it knows of one thread only,
 * and it knows nothing of tasks that the program makes by clone() on the same memory.
 */
void managed_lock(struct managed *managed);
/* Carry an order out, here or on the shard; all signals are blocked meanwhile. `order` may lie anywhere. */
int managed_call(struct order *order);
int managed_wait(struct order *order); /* until it is finished; its result */
void managed_slots_reset(void);        /* in a forked child: nobody else is there */
void order_finish(struct order *order, int result);
/* The shard: the mutex, without waiting. */
bool managed_try_lock(struct managed *managed);
void managed_unlock(struct managed *managed); /* of the shard, or its holder */
void managed_say(const char *what, const char *why);

/* managed_map.c; each with the mutex, before the shard runs or on it */
int run_map(struct managed *managed, struct order *order);
int run_map_at(struct managed *managed, struct order *order);
int run_map_foreign(struct managed *managed, struct order *order);
int run_unmap(struct managed *managed, struct order *order);
int run_protect(struct managed *managed, struct order *order);
int run_discard(struct managed *managed, struct order *order);
int run_keep(struct managed *managed, struct order *order);
int run_advise(struct managed *managed, struct order *order);
int run_mark(struct managed *managed, struct order *order);
/* Starts the shard when what is handed out, and what is about to be, is near the budget. With the mutex. */
void managed_start_if_near(struct managed *managed, uint64_t more_pages);
/* pager_user.managed_runs */
int managed_runs(void *context, struct page_id first, struct page_run runs[PAGER_EXTENT_RUNS_MAX]);
/* All that is registered here is registered with the child's descriptor; what is wiped on fork is forgotten. */
int managed_enter_child(struct managed *managed) MUST_USE;

/* managed_limit.c */
int managed_window_open(struct managed *managed) MUST_USE;
/* With the mutex: pages become free, or stop being so; 0 or -errno (-EEXIST: somebody else is there). */
int managed_free_map(struct managed *managed, uint64_t first, uint64_t end) MUST_USE;
int managed_free_open(struct managed *managed, uint64_t first, uint64_t end, int protection) MUST_USE;
int run_limit(struct managed *managed, struct order *order);

/* managed_advise.c; with the mutex, before the shard runs */
void managed_advice_keep(struct managed *managed, uint64_t first, uint64_t end, enum dsm_advice advice);
void managed_advice_forget(struct managed *managed, uint64_t first, uint64_t end);
void managed_advice_hand_over(struct managed *managed); /* to the pager, which is there now */

/* private_shard.c */
int private_shard_start(struct managed *managed) MUST_USE; /* with the mutex */
void private_shard_post(struct managed *managed, struct order *order);
int private_shard_resume(struct managed *managed) MUST_USE; /* in a forked child: a new loop, a new thread */
int run_park(struct managed *managed, struct order *order);
void private_shard_release(struct managed *managed); /* a parked shard goes on */

#endif
