/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_memory.c - write-back and drop of memory that hosts share. Any thread.
 *
 * clflush writes a line back and drops it, and exists on every x86-64 processor; clwb and clflushopt would save some
 * time and no rule. Some processors order it by mfence alone, and with earlier loads only so.
 */
#include "fabric/pool_memory.h"

#if defined(__x86_64__)

#include <emmintrin.h>

bool pool_memory_is_supported(void)
{
    return true;
}

static void lines_flush(const void *memory, size_t size_bytes)
{
    uintptr_t at = (uintptr_t)memory & ~(uintptr_t)(POOL_LINE_BYTES - 1);

    for (; at < (uintptr_t)memory + size_bytes; at += POOL_LINE_BYTES)
        _mm_clflush((const void *)at);
}

void pool_write_back(const void *memory, size_t size_bytes)
{
    lines_flush(memory, size_bytes);
    _mm_mfence();
}

void pool_drop(const void *memory, size_t size_bytes)
{
    _mm_mfence(); /* not before what was loaded to find out that these bytes are there */
    lines_flush(memory, size_bytes);
    _mm_mfence();
}

#else

bool pool_memory_is_supported(void)
{
    return false;
}

void pool_write_back(const void *memory, size_t size_bytes)
{
    (void)memory;
    (void)size_bytes;
}

void pool_drop(const void *memory, size_t size_bytes)
{
    (void)memory;
    (void)size_bytes;
}

#endif
