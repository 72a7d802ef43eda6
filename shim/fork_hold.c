/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork_hold.c - what stands still while a process forks.
 *
 * The order of taking: the list of FILEs, the heap, the shard. A thread in fflush(NULL) has the list and may be waiting
 * for an absent page, so the list comes before the shard stops; a thread in malloc may be waiting for the shard, so the
 * heap comes before it too. libc takes the same list after our handler; its lock may be taken again by its owner.
 */
#include "shim/calls.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

/* Exported by libc for its own parts. */
extern void _IO_list_lock(void);
extern void _IO_list_unlock(void);
extern void _IO_list_resetlock(void);

#define EXIT_LOST        71
#define SIGNAL_SET_BYTES 8 /* the kernel's */

/* What libc's fork() and ours need below this frame, on a stack that may be managed. */
#define STACK_BYTES ((size_t)16 << 10)

static _Thread_local int fork_error;        /* of the last hold; -EAGAIN... */
static _Thread_local bool fork_held;        /* locks are taken */
static _Thread_local uint64_t fork_signals; /* blocked before */

int shim_fork_error(void)
{
    return fork_error;
}

/* While the shard stands still this thread may not touch an absent page: no handler of a signal may run. */
static void signals_block(void)
{
    uint64_t all = UINT64_MAX;

    raw_call(SYS_rt_sigprocmask, SIG_SETMASK, &all, &fork_signals, SIGNAL_SET_BYTES);
}

static void signals_restore(void)
{
    raw_call(SYS_rt_sigprocmask, SIG_SETMASK, &fork_signals, NULL, SIGNAL_SET_BYTES);
}

int shim_fork_hold(void)
{
    fork_error = 0;
    fork_held = atomic_load_explicit(&shim.state, memory_order_acquire) == SHIM_ACTIVE;
    if (!fork_held)
        return 0;
    fork_error = keep_stack(STACK_BYTES);
    signals_block();
    _IO_list_lock();
    heap_fork_prepare();
    if (fork_error == 0)
        fork_error = hooks_fork_prepare();
    return fork_error;
}

void shim_fork_parent(void)
{
    if (!fork_held)
        return;
    if (fork_error == 0)
        hooks_fork_parent();
    heap_fork_parent();
    _IO_list_unlock();
    fork_held = false;
    signals_restore();
}

/* The child of a fork that should not have been: its absent pages would read as zeroes. */
static void child_end(void)
{
    shim_say("a forked process is ended, its memory could not be taken along", strerrordesc_np(-fork_error));
    raw_call(SYS_exit_group, EXIT_LOST);
}

void shim_fork_child(void)
{
    if (!fork_held)
        return;
    if (fork_error != 0)
        child_end();
    hooks_fork_child_memory();
    heap_fork_child();
    /* libc resets it itself if it believes in more than one thread. The child has one. */
    _IO_list_resetlock();
    hooks_fork_child_thread();
    fork_held = false;
    signals_restore();
}

static void handler_prepare(void)
{
    (void)shim_fork_hold();
}

/* First of all constructors (-z initfirst): handlers registered now are the last to run before a fork. */
__attribute__((constructor)) static void handlers_register(void)
{
    pthread_atfork(handler_prepare, shim_fork_parent, shim_fork_child);
}
