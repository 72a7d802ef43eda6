/* SPDX-License-Identifier: Apache-2.0 */
/*
 * malloc_aligned.c - aligned blocks, copies of strings, and the rest of the malloc family.
 */
#include "shim/heap.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#define CALLER        __builtin_return_address(0)
#define ALIGNMENT_MAX (SIZE_MAX / 2 + 1)

size_t heap_usable(void *memory)
{
    static size_t (*_Atomic libc_usable)(void *);
    size_t (*usable)(void *) = atomic_load_explicit(&libc_usable, memory_order_relaxed);

    /* Another's block may lie in memory of ours that he mapped. */
    if (hooks_owns(memory) && heap_is_first()) {
        size_t large_size = heap_maybe_large(memory) ? heap_large_size(memory) : 0;

        return large_size != 0 ? large_size : je_malloc_usable_size(memory);
    }
    if (usable == NULL) {
        usable = shim_libc_symbol("malloc_usable_size");
        if (usable == NULL)
            return 0;
        atomic_store_explicit(&libc_usable, usable, memory_order_relaxed);
    }
    return usable(memory);
}

void *heap_allocate_aligned(size_t alignment, size_t size, const void *caller)
{
    void *memory;

    if (alignment <= 16)
        return heap_allocate(size, caller);
    if (!heap_wants(size, caller))
        return __libc_memalign(alignment, size);
    if (size < HEAP_LARGE_BYTES)
        return je_memalign(alignment, heap_at_least(size));
    memory = heap_large_allocate(alignment, size);
    if (memory == NULL)
        errno = ENOMEM;
    return memory;
}

/* libc takes the next power of two when it is not one. */
static void *align_any(size_t alignment, size_t size, const void *caller)
{
    size_t power = 16;

    if (alignment > ALIGNMENT_MAX) {
        errno = EINVAL;
        return NULL;
    }
    while (power < alignment)
        power <<= 1;
    return heap_allocate_aligned(power, size, caller);
}

SHIM_EXPORT void *memalign(size_t alignment, size_t size)
{
    return align_any(alignment, size, CALLER);
}

SHIM_EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    return align_any(alignment, size, CALLER);
}

SHIM_EXPORT int posix_memalign(void **ret_memory, size_t alignment, size_t size)
{
    int before = errno;
    void *memory;

    if (alignment == 0 || alignment % sizeof(void *) != 0 || (alignment & (alignment - 1)) != 0)
        return EINVAL;
    memory = heap_allocate_aligned(alignment, size, CALLER);
    errno = before;
    if (memory == NULL)
        return ENOMEM;
    *ret_memory = memory;
    return 0;
}

SHIM_EXPORT void *valloc(size_t size)
{
    return heap_allocate_aligned((size_t)sysconf(_SC_PAGESIZE), size, CALLER);
}

SHIM_EXPORT void *pvalloc(size_t size)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);

    if (size > SIZE_MAX - page_bytes) {
        errno = ENOMEM;
        return NULL;
    }
    return heap_allocate_aligned(page_bytes, (size + page_bytes - 1) & ~(page_bytes - 1), CALLER);
}

/* ---- strings ---------------------------------------------------------------------------------------------------- */

/* Defined here because a copy that libc made would look like libc's own. */
static char *copy_text(const char *text, size_t length, const void *caller)
{
    char *copy = heap_allocate(length + 1, caller);

    if (copy != NULL) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

char *__strdup(const char *text);
char *__strndup(const char *text, size_t limit);

SHIM_EXPORT char *strdup(const char *text)
{
    return copy_text(text, strlen(text), CALLER);
}

SHIM_EXPORT char *__strdup(const char *text)
{
    return copy_text(text, strlen(text), CALLER);
}

SHIM_EXPORT char *strndup(const char *text, size_t limit)
{
    return copy_text(text, strnlen(text, limit), CALLER);
}

SHIM_EXPORT char *__strndup(const char *text, size_t limit)
{
    return copy_text(text, strnlen(text, limit), CALLER);
}

SHIM_EXPORT wchar_t *wcsdup(const wchar_t *text)
{
    size_t size = (wcslen(text) + 1) * sizeof(*text);
    wchar_t *copy = heap_allocate(size, CALLER);

    return copy != NULL ? memcpy(copy, text, size) : NULL;
}

/* ---- giving back ------------------------------------------------------------------------------------------------ */

/* mallopt() and mallinfo() are libc's and speak of libc's heap. */
SHIM_EXPORT int malloc_trim(size_t pad)
{
    int (*libc_trim)(size_t) = shim_libc_symbol("malloc_trim");
    int trimmed = libc_trim != NULL ? libc_trim(pad) : 0;

    if (shim_active() && je_mallctl("arena.4096.purge", NULL, NULL, NULL, 0) == 0)
        trimmed = 1;
    return trimmed;
}
