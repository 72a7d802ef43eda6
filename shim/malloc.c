/* SPDX-License-Identifier: Apache-2.0 */
/*
 * malloc.c - the malloc family as the program sees it: libc's meaning in every corner (malloc(0) is a block, realloc to
 * 0 frees, errno changes on failure only), whichever of the two heaps serves the call. Compiled without builtins.
 */
#include "shim/heap.h"
#include "shim/libc.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define CALLER __builtin_return_address(0)

/* The function below by a name that nobody can put himself in front of. */
__asm__(".globl heap_free_here\n.hidden heap_free_here\n.set heap_free_here, free");
extern void heap_free_here(void *memory) __attribute__((visibility("hidden")));

/*
 * The program, or a library before ours, may have a malloc of its own; then these here are called by nobody, but
 * strdup() and reallocarray() are, and must use that one.
 */
bool heap_is_first(void)
{
    enum { UNKNOWN, FIRST, NOT_FIRST };
    static _Atomic(int) answer; /* whoever asks first looks; all find the same */

    if (SHIM_UNLIKELY(atomic_load_explicit(&answer, memory_order_relaxed) == UNKNOWN))
        atomic_store_explicit(&answer, libc_first_symbol("free") == (void *)heap_free_here ? FIRST : NOT_FIRST,
                              memory_order_relaxed);
    return atomic_load_explicit(&answer, memory_order_relaxed) == FIRST;
}

static void *plain_malloc(size_t size)
{
    return heap_is_first() ? __libc_malloc(size) : malloc(size);
}

static void *or_no_memory(void *memory)
{
    if (SHIM_UNLIKELY(memory == NULL))
        errno = ENOMEM;
    return memory;
}

void *heap_allocate(size_t size, const void *caller)
{
    if (heap_thread == HEAP_THREAD_OTHER)
        return plain_malloc(size);
    if (heap_serves(size, caller))
        return je_malloc(heap_at_least(size));
    if (!heap_wants(size, caller))
        return plain_malloc(size);
    if (size >= HEAP_LARGE_BYTES)
        return or_no_memory(heap_large_allocate(0, size));
    return je_malloc(heap_at_least(size));
}

SHIM_EXPORT void *malloc(size_t size)
{
    const void *caller = CALLER;

    if (heap_serves(size, caller))
        return je_malloc(heap_at_least(size));
    return heap_allocate(size, caller);
}

SHIM_EXPORT void *calloc(size_t count, size_t size)
{
    const void *caller = CALLER;
    size_t total;

    if (__builtin_mul_overflow(count, size, &total))
        return or_no_memory(NULL);
    if (heap_serves(total, caller))
        return je_calloc(1, heap_at_least(total));
    if (!heap_wants(total, caller))
        return __libc_calloc(1, total);
    if (total >= HEAP_LARGE_BYTES)
        return or_no_memory(heap_large_allocate(0, total));
    return je_calloc(1, heap_at_least(total));
}

SHIM_EXPORT void free(void *memory)
{
    if (!SHIM_LIKELY(hooks_owns(memory)))
        __libc_free(memory);
    else if (!heap_maybe_large(memory) || !heap_large_free(memory))
        je_free(memory);
}

/* Into a block of another allocator. */
static void *carry_over(void *memory, size_t old_size, void *block, size_t size)
{
    if (or_no_memory(block) == NULL)
        return NULL;
    memcpy(block, memory, old_size < size ? old_size : size);
    free(memory);
    return block;
}

static void *resize_large(void *memory, size_t old_size, size_t size)
{
    if (size >= HEAP_BLOCK_BYTES)
        return or_no_memory(heap_large_resize(memory, size));
    return carry_over(memory, old_size, je_mallocx(heap_at_least(size), heap.spare_flags), size);
}

/* A block of the managed heap, to another size that is not 0. */
static void *resize(void *memory, size_t size)
{
    size_t large_size = heap_maybe_large(memory) ? heap_large_size(memory) : 0;

    if (large_size != 0)
        return resize_large(memory, large_size, size);
    if (size >= HEAP_LARGE_BYTES)
        return carry_over(memory, je_malloc_usable_size(memory), heap_large_allocate(0, size), size);
    if (SHIM_LIKELY(heap_thread == HEAP_THREAD_READY))
        return je_realloc(memory, heap_at_least(size));
    return or_no_memory(je_rallocx(memory, heap_at_least(size), heap.spare_flags));
}

/* A block that libc allocated (getline, asprintf, before we started) becomes the program's when the program resizes it.
 */
static void *adopt(void *memory, size_t size, const void *caller)
{
    return carry_over(memory, heap_usable(memory), heap_allocate(size, caller), size);
}

static void *reallocate(void *memory, size_t size, const void *caller)
{
    if (memory == NULL)
        return heap_allocate(size, caller);
    if (hooks_owns(memory)) {
        if (size != 0)
            return resize(memory, size);
        free(memory);
        return NULL;
    }
    if (size != 0 && heap_wants(size, caller))
        return adopt(memory, size, caller);
    return __libc_realloc(memory, size);
}

SHIM_EXPORT void *realloc(void *memory, size_t size)
{
    return reallocate(memory, size, CALLER);
}

SHIM_EXPORT void *reallocarray(void *memory, size_t count, size_t size)
{
    size_t total;

    if (__builtin_mul_overflow(count, size, &total))
        return or_no_memory(NULL);
    return heap_is_first() ? reallocate(memory, total, CALLER) : realloc(memory, total);
}

SHIM_EXPORT size_t malloc_usable_size(void *memory)
{
    return memory != NULL ? heap_usable(memory) : 0;
}

/* ---- other names of free ---------------------------------------------------------------------------------------- */

void cfree(void *memory);
void free_sized(void *memory, size_t size);
void free_aligned_sized(void *memory, size_t alignment, size_t size);

SHIM_EXPORT void cfree(void *memory)
{
    free(memory);
}

SHIM_EXPORT void free_sized(void *memory, size_t size)
{
    (void)size;
    free(memory);
}

SHIM_EXPORT void free_aligned_sized(void *memory, size_t alignment, size_t size)
{
    (void)alignment;
    (void)size;
    free(memory);
}
