/* SPDX-License-Identifier: Apache-2.0 */
/*
 * os.h - clock, threads and memory from the operating system.
 *
 * Not for the pure folders (coherence, cluster, prefetch, tiers/placement): a lint test refuses that.
 */
#ifndef TIERMESH_BASE_OS_H
#define TIERMESH_BASE_OS_H

#include "base/types.h"

#include <pthread.h>
#include <stdatomic.h>

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t os_now_ns(void);

/* CLOCK_BOOTTIME in nanoseconds: counts suspended time too, so leases are measured with it. */
uint64_t os_boot_now_ns(void);

/* 64 random bits from the kernel (getrandom). */
uint64_t os_random(void);

/*
 * os_thread_start - start a thread that runs with every signal blocked, named `name` (15 bytes at most).
 * Returns 0, or -EAGAIN when the system refuses another thread.
 */
int os_thread_start(pthread_t *ret_thread, const char *name, void *(*run)(void *), void *argument) MUST_USE;
/* The same with a small stack, for one that calls little: limits on address space count stacks. */
int os_thread_start_small(pthread_t *ret_thread, const char *name, void *(*run)(void *), void *argument) MUST_USE;

/*
 * os_futex_wait - sleep while *word == expected, at most timeout_ns (UINT64_MAX: for ever).
 * Returns 0 after a wake or when *word differed, -ETIMEDOUT, or -EINTR.
 * `shared` is true when the word lies in memory that other processes map.
 */
int os_futex_wait(_Atomic(uint32_t) *word, uint32_t expected, uint64_t timeout_ns, bool shared);
void os_futex_wake(_Atomic(uint32_t) *word, int count, bool shared);

/*
 * os_pages_map - zeroed, page-aligned anonymous memory that is reserved but not charged until touched.
 * Returns 0 or -ENOMEM.  os_pages_unmap gives it back; NULL is allowed there.
 */
int os_pages_map(size_t size_bytes, void **ret_memory) MUST_USE;
void os_pages_unmap(void *memory, size_t size_bytes);

/*
 * Descriptors of our own, kept out of the way of an unchanged program: it closes descriptors by number, all from 3 on,
 * or those it thinks it has. os_descriptor_own moves `fd` to OS_DESCRIPTOR_LOWEST or above, close-on-exec, and
 * remembers it; where the limit on descriptors forbids that, it stays where it is. Returns the descriptor to use.
 * os_descriptor_close closes and forgets. os_descriptor_next: the lowest of them >= fd, -1: none. Any thread; next is
 * async-signal-safe.
 */
#define OS_DESCRIPTOR_LOWEST 100
int os_descriptor_own(int fd);
void os_descriptor_disown(int fd); /* forgets it; somebody else closes it */
void os_descriptor_close(int fd);
int os_descriptor_next(int fd);

/*
 * Room for descriptors of our own where the program has used up its limit on them: _raise lifts it to the hard one,
 * until _restore. 0: nothing was changed.
 */
uint64_t os_descriptors_raise(void);
void os_descriptors_restore(uint64_t before);

#endif
