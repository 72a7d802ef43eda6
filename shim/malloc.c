/* SPDX-License-Identifier: Apache-2.0 */
/*
 * malloc.c - the malloc family as the program sees it: libc's meaning in every corner (malloc(0) is a block, realloc to
 * 0 frees, errno changes on failure only), whichever of the two heaps serves the call. Compiled without builtins.
 */
#include "shim/heap.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define CALLER __builtin_return_address(0)

static void *or_no_memory(void *memory)
{
    if (SHIM_UNLIKELY(memory == NULL))
        errno = ENOMEM;
    return memory;
}

void *heap_allocate(size_t size, const void *caller)
{
    if (heap_serves(size, caller))
        return je_malloc(heap_at_least(size));
    if (!heap_wants(size, caller))
        return __libc_malloc(size);
    if (size >= HEAP_LARGE_BYTES)
        return or_no_memory(je_mallocx(size, heap.large_flags));
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
        return or_no_memory(je_mallocx(total, heap.large_flags | MALLOCX_ZERO));
    return je_calloc(1, heap_at_least(total));
}

SHIM_EXPORT void free(void *memory)
{
    if (SHIM_LIKELY(hooks_owns(memory)))
        je_free(memory);
    else
        __libc_free(memory);
}

/* A block of the managed heap, to another size that is not 0. */
static void *resize(void *memory, size_t size)
{
    if (size >= HEAP_LARGE_BYTES)
        return or_no_memory(je_rallocx(memory, size, heap.large_flags));
    if (SHIM_LIKELY(heap_thread == HEAP_THREAD_READY))
        return je_realloc(memory, heap_at_least(size));
    return or_no_memory(je_rallocx(memory, heap_at_least(size), heap.plain_flags));
}

/* A block that libc allocated (getline, asprintf, before we started) becomes the program's when the program resizes it.
 */
static void *adopt(void *memory, size_t size, const void *caller)
{
    size_t old_size = heap_usable(memory);
    void *block = heap_allocate(size, caller);

    if (block == NULL)
        return NULL;
    memcpy(block, memory, old_size < size ? old_size : size);
    __libc_free(memory);
    return block;
}

static void *reallocate(void *memory, size_t size, const void *caller)
{
    if (memory == NULL)
        return heap_allocate(size, caller);
    if (hooks_owns(memory)) {
        if (size != 0)
            return resize(memory, size);
        je_free(memory);
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
    return reallocate(memory, total, CALLER);
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
