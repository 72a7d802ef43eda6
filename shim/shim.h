/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shim.h - what the parts of the preload library know of each other.
 *
 * The library is in front of every process of a job. It starts itself at the first call that matters (shim_active), not
 * in a constructor: other libraries allocate before theirs and ours run. Until then, and for ever in a process that is
 * not to be managed, every interposer does what libc would do. shim/raw.h has the system calls.
 */
#ifndef TIERMESH_SHIM_SHIM_H
#define TIERMESH_SHIM_SHIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An interposer: the names are listed in shim/libtiermesh-preload.map. */
#define SHIM_EXPORT              __attribute__((visibility("default")))
#define SHIM_LIKELY(condition)   __builtin_expect(!!(condition), 1)
#define SHIM_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* ---- start (start.c) -------------------------------------------------------------------------------------------- */

enum shim_state {
    SHIM_FRESH = 0, /* nothing decided */
    SHIM_STARTING,  /* one thread is at it; the others do without us meanwhile */
    SHIM_INERT,     /* this process is not managed */
    SHIM_ACTIVE,
};

struct shim_text {
    uintptr_t begin;
    uintptr_t size_bytes;
};

/* Written by shim_start(); read by everyone afterwards. */
struct shim {
    _Atomic(int) state;
    struct shim_text libc; /* code of libc.so and of the dynamic linker: who allocates for itself */
    struct shim_text linker;
};

extern struct shim shim;

/* Decides once. True if this process is managed. Keeps errno. */
bool shim_start(void);

static inline bool shim_active(void)
{
    return SHIM_LIKELY(atomic_load_explicit(&shim.state, memory_order_acquire) == SHIM_ACTIVE) || shim_start();
}

/* Is a return address inside libc or the dynamic linker? */
static inline bool shim_caller_is_libc(const void *caller)
{
    return (uintptr_t)caller - shim.libc.begin < shim.libc.size_bytes ||
           (uintptr_t)caller - shim.linker.begin < shim.linker.size_bytes;
}

/* The address of a function of libc.so itself, whoever else defines that name; NULL: it has none. Any time, no locks.
 */
void *shim_libc_symbol(const char *name);

/* A sentence on standard error: "tiermesh: TEXT: MORE". */
void shim_say(const char *text, const char *more);

/* ---- threads (raw.c) -------------------------------------------------------------------------------------------- */

/* True on threads that the runtime started: they never own managed memory, and no interposer manages for them. */
bool shim_own_thread(void);

/* ---- fork (fork_hold.c) ----------------------------------------------------------------------------------------- */

/*
 * The handlers of pthread_atfork. Registered before anyone's, so that prepare runs last and the others first.
 * shim_fork_hold() takes: the lock of the list of FILEs, the heap's locks, the shard. It cannot refuse a fork from
 * inside libc's fork(): then shim_fork_error() is a negative errno in the parent until the next fork of that thread,
 * and the child has ended itself (exit code 71) before any of its code ran. Those who fork without libc's fork() call
 * the three themselves.
 */
int shim_fork_hold(void);
void shim_fork_parent(void);
void shim_fork_child(void);
int shim_fork_error(void);

/* ---- heap (heap.c) ---------------------------------------------------------------------------------------------- */

/* Called by shim_start() when the range is there. 0 or -errno. */
int heap_start(void);

/* Around fork: locks of the heap. */
void heap_fork_prepare(void);
void heap_fork_parent(void);
void heap_fork_child(void);

#endif
