/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.c - mmap, munmap and mprotect of the program.
 *
 * Anonymous private memory above the threshold is managed; everything else is the kernel's, who never places it inside
 * our range by itself. A fixed mapping goes where the program says: inside the range it is managed, or handed to the
 * kernel as foreign. An interval that crosses an edge of the range is done in parts.
 */
#include "shim/calls.h"

#include <pthread.h>
#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#ifndef PROT_SEM
#define PROT_SEM 8
#endif

#define EXTENT_BYTES ((size_t)2 << 20)
#define CAGE_BYTES   ((size_t)4 << 30) /* engines with compressed pointers want their reservations so aligned */
#define LOW_BYTES    ((uintptr_t)4 << 30)

/* What hooks.h knows; the kernel ignores other bits of mmap(2) too. */
#define PROTECTION_BITS (PROT_READ | PROT_WRITE | PROT_EXEC)

/* Two threads that each found the same addresses free must not both place something there. */
static pthread_mutex_t noreplace_lock = PTHREAD_MUTEX_INITIALIZER;

static bool flags_are_ours(int flags)
{
    const int kernels = MAP_HUGETLB | MAP_STACK | MAP_GROWSDOWN | MAP_32BIT;

    return (flags & MAP_TYPE) == MAP_PRIVATE && (flags & MAP_ANONYMOUS) != 0 && (flags & kernels) == 0;
}

/* A hint below 4 GiB for memory that is used at once comes from a program that keeps pointers in 32 bits. */
static bool hint_is_needed(uintptr_t hint, size_t size, int protection, int flags)
{
    return hint != 0 && hint + size <= LOW_BYTES && protection != PROT_NONE && (flags & MAP_NORESERVE) == 0;
}

static size_t alignment_of(size_t size, int protection)
{
    if (protection == PROT_NONE && size >= (size_t)1 << 30 && (size & (size - 1)) == 0)
        return size < CAGE_BYTES ? size : CAGE_BYTES;
    return size >= EXTENT_BYTES ? EXTENT_BYTES : 0;
}

/* What the flags ask beyond a mapping. An error undoes it. */
static long finish_map(char *at, size_t size, int protection, int flags)
{
    if (flags & MAP_LOCKED) {
        if (call_mlock(SYS_mlock, at, size, 0) < 0) {
            hooks_unmap(at, size);
            return -EAGAIN; /* what mmap(2) says when not so much may be locked */
        }
    }
    /* As far as it goes: mmap(2) does not fail for it either. */
    if ((flags & (MAP_POPULATE | MAP_NONBLOCK)) == MAP_POPULATE && protection != PROT_NONE)
        raw_call(SYS_madvise, at, size, (protection & PROT_WRITE) ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
    return (long)at;
}

static long map_anywhere(uintptr_t hint, size_t size, int protection, int flags)
{
    void *at = (void *)page_up(hint);
    int error = -EEXIST;

    if (hooks_owns(at) && size <= hooks_base + hooks_size_bytes - (uintptr_t)at)
        error = hooks_map_at(at, size, protection & PROTECTION_BITS, false);
    if (error == -EEXIST)
        error = hooks_map(size, alignment_of(size, protection), protection & PROTECTION_BITS, &at);
    return error != 0 ? error : finish_map(at, size, protection, flags);
}

static bool interval_is_free(uintptr_t begin, size_t size)
{
    struct stretch stretch = {.next = begin, .end = begin + size};

    while (stretch_part(&stretch))
        if (stretch.kind != HOOKS_FREE)
            return false;
    return true;
}

/* The addresses become the kernel's. */
static int open_foreign(char *at, size_t size, bool replace)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    int error = -EEXIST;

    if (replace)
        return hooks_map_foreign(at, size, PROT_NONE, flags, -1, 0);
    pthread_mutex_lock(&noreplace_lock);
    if (interval_is_free((uintptr_t)at, size))
        error = hooks_map_foreign(at, size, PROT_NONE, flags, -1, 0);
    pthread_mutex_unlock(&noreplace_lock);
    return error;
}

/*
 * Mapped elsewhere first, by this thread, whose descriptors may be others than the shard's; then moved. What the kernel
 * refuses it refuses there, and what lies at the fixed place stays.
 */
static long map_foreign(char *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    long aside = raw_call(SYS_mmap, NULL, size, protection, flags & ~(MAP_FIXED | MAP_FIXED_NOREPLACE), fd, offset);
    long moved;
    int error;

    if (aside < 0 && aside >= -4095)
        return aside;
    error = open_foreign(at, size, (flags & MAP_FIXED) != 0);
    if (error != 0) {
        raw_call(SYS_munmap, aside, size);
        return error;
    }
    moved = raw_call(SYS_mremap, aside, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at);
    if (moved == (long)at)
        return moved;
    raw_call(SYS_munmap, aside, size);
    hooks_unmap(at, size);
    return moved;
}

static long map_fixed_inside(char *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    int error;

    if (!flags_are_ours(flags))
        return map_foreign(at, size, protection, flags, fd, offset);
    error = hooks_map_at(at, size, protection & PROTECTION_BITS, (flags & MAP_FIXED) != 0);
    return error != 0 ? error : finish_map(at, size, protection, flags);
}

static long map_fixed(uintptr_t begin, size_t size, int protection, int flags, int fd, off_t offset)
{
    struct interval interval = {.next = begin, .end = begin + size};

    while (interval_part(&interval)) {
        off_t part_offset = offset + (off_t)((uintptr_t)interval.at - begin);
        long result;

        if (flags & MAP_ANONYMOUS)
            part_offset = 0;
        if (interval.ours)
            result = map_fixed_inside(interval.at, interval.size, protection, flags, fd, part_offset);
        else
            result = raw_call(SYS_mmap, interval.at, interval.size, protection, flags, fd, part_offset);
        if (result < 0 && result >= -4095)
            return result;
    }
    return (long)begin;
}

long call_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    uintptr_t begin = (uintptr_t)address;
    size_t whole = page_up(size);
    long result = -ENOSPC;

    if (whole == 0 || whole < size || offset % (off_t)CALL_PAGE_BYTES != 0 || !calls_managed())
        goto kernel;
    if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) {
        if (begin % CALL_PAGE_BYTES == 0 && interval_is_ours(begin, whole))
            return map_fixed(begin, whole, protection, flags, fd, offset);
        goto kernel;
    }
    if (flags_are_ours(flags) && whole >= hooks_mmap_threshold_bytes &&
        !hint_is_needed(begin, whole, protection, flags))
        result = map_anywhere(begin, whole, protection, flags);
    if (result != -ENOSPC)
        return result;
kernel:
    return raw_call(SYS_mmap, address, size, protection, flags, fd, offset);
}

long call_munmap(void *address, size_t size)
{
    struct interval interval = {.next = (uintptr_t)address, .end = page_up((uintptr_t)address + size)};

    if (interval.next % CALL_PAGE_BYTES != 0 || !interval_is_ours(interval.next, size) || !calls_managed())
        return raw_call(SYS_munmap, address, size);
    while (interval_part(&interval)) {
        long error =
            interval.ours ? hooks_unmap(interval.at, interval.size) : raw_call(SYS_munmap, interval.at, interval.size);

        if (error != 0)
            return error;
    }
    return 0;
}

/* A key is an attribute of the mapping, which stays as it is while pages come and go. */
static long protect_ours(char *at, size_t size, int protection, int key)
{
    long error = hooks_protect(at, size, protection & PROTECTION_BITS);

    if (error == 0 && key != -1)
        error = raw_call(SYS_pkey_mprotect, at, size, protection, key);
    return error;
}

static long protect_kernels(char *at, size_t size, int protection, int key)
{
    return key == -1 ? raw_call(SYS_mprotect, at, size, protection)
                     : raw_call(SYS_pkey_mprotect, at, size, protection, key);
}

long call_mprotect(void *address, size_t size, int protection, int key)
{
    struct interval interval = {.next = (uintptr_t)address, .end = page_up((uintptr_t)address + size)};

    if (interval.next % CALL_PAGE_BYTES != 0 || !interval_is_ours(interval.next, size) || !calls_managed())
        return protect_kernels(address, size, protection, key);
    /* Nothing of ours grows downwards. */
    if ((protection & ~(PROTECTION_BITS | PROT_SEM)) != 0)
        return -EINVAL;
    while (interval_part(&interval)) {
        long error = interval.ours ? protect_ours(interval.at, interval.size, protection, key)
                                   : protect_kernels(interval.at, interval.size, protection, key);

        if (error != 0)
            return error;
    }
    return 0;
}

/* ---- the program's side ----------------------------------------------------------------------------------------- */

SHIM_EXPORT void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    return (void *)raw_result(call_mmap(address, size, protection, flags, fd, offset));
}

SHIM_EXPORT void *mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    return (void *)raw_result(call_mmap(address, size, protection, flags, fd, offset));
}

SHIM_EXPORT int munmap(void *address, size_t size)
{
    return (int)raw_result(call_munmap(address, size));
}

SHIM_EXPORT int mprotect(void *address, size_t size, int protection)
{
    return (int)raw_result(call_mprotect(address, size, protection, -1));
}

SHIM_EXPORT int pkey_mprotect(void *address, size_t size, int protection, int key)
{
    return (int)raw_result(call_mprotect(address, size, protection, key));
}
