/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heap.h - the two heaps behind malloc, and which of them serves a call.
 *
 * The managed heap is jemalloc over the range of runtime/hooks.h: what the program allocates. Everything else is libc's
 * own malloc, exactly as if we were not there: what libc and the dynamic linker allocate for themselves (told by the
 * return address), blocks below the threshold, a process that is not managed, threads before they are known and after
 * their end. A block goes back to the heap it came from, told by its address; there is no third kind.
 */
#ifndef TIERMESH_SHIM_HEAP_H
#define TIERMESH_SHIM_HEAP_H

#include "runtime/hooks.h"
#include "shim/shim.h"

#define JEMALLOC_NO_RENAME
#include <jemalloc/jemalloc.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *memory);

enum heap_thread {
    HEAP_THREAD_NEW = 0, /* has not allocated yet */
    HEAP_THREAD_READY,   /* has an arena of the managed heap */
    HEAP_THREAD_OTHER,   /* is served by libc: a runtime thread, a process not managed, a thread that is ending */
};

#define HEAP_BLOCK_BYTES ((size_t)2 << 20) /* a huge page */
#define HEAP_LARGE_BYTES                                                                                               \
    ((size_t)32 << 20) /* blocks from here on are heap_large.c's; libc maps them one by one too                        \
                        */

/* Written once by heap_start(). */
struct heap {
    size_t threshold_bytes;
    size_t span_bytes; /* sizes from the threshold to below HEAP_LARGE_BYTES */
    int spare_flags;   /* of mallocx: an arena for threads that have none */
};

extern struct heap heap;
extern _Thread_local int heap_thread __attribute__((tls_model("initial-exec")));

/* The common case, in few instructions: a block of usual size from the thread's own arena. */
static inline bool heap_serves(size_t size, const void *caller)
{
    return SHIM_LIKELY(heap_thread == HEAP_THREAD_READY && size - heap.threshold_bytes < heap.span_bytes &&
                       !shim_caller_is_libc(caller));
}

/* The same question for any size and any thread; makes the thread ready if it is new. */
bool heap_wants(size_t size, const void *caller);

/* jemalloc has a class of 8 bytes, aligned to 8; libc promises 16. */
static inline size_t heap_at_least(size_t size)
{
    return size > 8 ? size : 16;
}

/* Is our malloc the program's? */
bool heap_is_first(void);

/* By whichever heap is right. Alignment: a power of two. NULL with errno ENOMEM. */
void *heap_allocate(size_t size, const void *caller);
void *heap_allocate_aligned(size_t alignment, size_t size, const void *caller);

/* Usable bytes of a block of either heap. */
size_t heap_usable(void *memory);

/* ---- blocks of HEAP_LARGE_BYTES and more (heap_large.c) --------------------------------------------------------- */

/* May a managed block be a large one? Most are told by their address alone. */
static inline bool heap_maybe_large(const void *memory)
{
    return SHIM_UNLIKELY(((uintptr_t)memory & (HEAP_BLOCK_BYTES - 1)) == 0);
}

/* Zeroed. NULL: no memory; errno is left alone by all of them. */
void *heap_large_allocate(size_t alignment, size_t size);
void *heap_large_resize(void *memory, size_t size);
bool heap_large_free(void *memory);         /* false: it is no large block */
size_t heap_large_size(const void *memory); /* 0: it is no large block */
void heap_large_lock(void);
void heap_large_unlock(void);

#endif
