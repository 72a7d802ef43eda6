/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remap.c - mremap of the program.
 *
 * The kernel moves page tables, and with them what it knows; what is on other tiers it does not know. So managed memory
 * is moved by copying what has bytes, in pieces: a piece that was copied is given up at the old place, so that the two
 * together never need much more than the one. Foreign memory is moved by the kernel.
 */
#include "shim/calls.h"

#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define PIECE_BYTES ((size_t)2 << 20)

/* One call, after its arguments were found good. Sizes are whole pages. */
struct remap {
    char *from;
    size_t from_size, to_size;
    char *target; /* NULL: anywhere */
    int flags;
    int protection;  /* of the old place */
    unsigned traits; /* of the old place; they go along */
    bool locked;     /* mlock(2) was there */
};

static bool is_error(long result)
{
    return result < 0 && result >= -4095;
}

/* The whole must be one mapping, as far as mremap(2) is concerned: of one kind, alike in protection and traits. */
static long look(struct remap *remap, enum hooks_kind *ret_kind)
{
    size_t size = remap->from_size > 0 ? remap->from_size : CALL_PAGE_BYTES;
    struct stretch part = {.next = (uintptr_t)remap->from, .end = (uintptr_t)remap->from + size};
    enum hooks_kind kind = HOOKS_FREE;

    if (part.end < part.next || !hooks_owns((char *)part.end - 1))
        return -EFAULT;
    for (bool first = true; stretch_part(&part); first = false) {
        if (part.kind == HOOKS_KEPT) {
            remap->locked |= raw_call(SYS_madvise, part.at, part.size, MADV_COLD) == -EINVAL;
            part.kind = HOOKS_MANAGED;
        }
        if (first) {
            kind = part.kind;
            remap->protection = part.protection;
            remap->traits = part.traits;
        }
        if (part.kind == HOOKS_FREE || part.kind != kind || part.traits != remap->traits ||
            (kind == HOOKS_MANAGED && part.protection != remap->protection))
            return -EFAULT;
    }
    *ret_kind = kind;
    return 0;
}

/* ---- the new place ---------------------------------------------------------------------------------------------- */

/* Writable memory for the bytes to come, exactly there; inside the range it is managed. */
static long place_fixed(char *at, size_t size)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;

    return call_mmap(at, size, PROT_READ | PROT_WRITE, flags, -1, 0);
}

static long place_anywhere(size_t size)
{
    void *at;
    int error = hooks_map(size, size >= PIECE_BYTES ? PIECE_BYTES : 0, PROT_READ | PROT_WRITE, &at);

    if (error == -ENOSPC)
        return raw_call(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return error != 0 ? error : (long)at;
}

/* Before there is a byte: no fork may find bytes there that are not for it. */
static long mark_again(char *at, size_t size, unsigned traits)
{
    static const struct {
        unsigned trait;
        int advice;
    } advised[] = {{HOOKS_WIPED, MADV_WIPEONFORK},
                   {HOOKS_LEFT, MADV_DONTFORK},
                   {HOOKS_UNDUMPED, MADV_DONTDUMP},
                   {HOOKS_HUGE, MADV_HUGEPAGE},
                   {HOOKS_SMALL, MADV_NOHUGEPAGE}};
    long error = 0;

    for (size_t i = 0; error == 0 && i < sizeof(advised) / sizeof(advised[0]); i++)
        if (traits & advised[i].trait)
            error = call_madvise(at, size, advised[i].advice);
    return error;
}

/* Locked memory stays locked when it moves or grows. */
static void lock_again(char *at, size_t size)
{
    if (hooks_owns(at))
        hooks_keep(at, size);
    raw_call(SYS_mlock, at, size);
}

/* ---- copying ---------------------------------------------------------------------------------------------------- */

static void copy_piece(char *to, const char *from, size_t size)
{
    for (size_t at = 0; at < size; at += CALL_PAGE_BYTES)
        if (hooks_may_have_bytes(from + at))
            memcpy(to + at, from + at, CALL_PAGE_BYTES);
}

static long move_bytes(const struct remap *remap, char *to)
{
    size_t size = remap->from_size < remap->to_size ? remap->from_size : remap->to_size;
    bool readable = (remap->protection & PROT_READ) != 0;
    long error = readable ? 0 : hooks_protect(remap->from, size, PROT_READ);

    if (error != 0)
        return error;
    for (size_t at = 0; at < size; at += PIECE_BYTES) {
        size_t piece = size - at < PIECE_BYTES ? size - at : PIECE_BYTES;

        copy_piece(to + at, remap->from + at, piece);
        hooks_discard(remap->from + at, piece);
    }
    if (!readable && (remap->flags & MREMAP_DONTUNMAP))
        hooks_protect(remap->from, size, remap->protection);
    return 0;
}

/* ---- the ways of a managed mapping ------------------------------------------------------------------------------ */

static long move_ours(const struct remap *remap)
{
    long to = remap->target != NULL ? place_fixed(remap->target, remap->to_size) : place_anywhere(remap->to_size);
    long error;

    if (is_error(to))
        return to;
    error = mark_again((char *)to, remap->to_size, remap->traits);
    if (error == 0)
        error = move_bytes(remap, (char *)to);
    if (error == 0 && remap->protection != (PROT_READ | PROT_WRITE))
        error = call_mprotect((char *)to, remap->to_size, remap->protection, -1);
    if (error != 0) {
        call_munmap((char *)to, remap->to_size);
        return error;
    }
    if (remap->locked)
        lock_again((char *)to, remap->to_size);
    if ((remap->flags & MREMAP_DONTUNMAP) == 0)
        hooks_unmap(remap->from, remap->from_size);
    return to;
}

static long grow_in_place(const struct remap *remap)
{
    char *end = remap->from + remap->from_size;
    size_t more = remap->to_size - remap->from_size;

    if (more > hooks_base + hooks_size_bytes - (uintptr_t)end)
        return -ENOMEM;
    if (hooks_map_at(end, more, remap->protection, false) != 0)
        return -ENOMEM;
    if (mark_again(end, more, remap->traits) != 0) {
        hooks_unmap(end, more);
        return -ENOMEM;
    }
    if (remap->locked)
        lock_again(end, more);
    return (long)remap->from;
}

static long remap_ours(const struct remap *remap)
{
    long result;

    if (remap->from_size == 0) /* a second mapping of the same pages: not of private memory */
        return -EINVAL;
    if ((remap->flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0)
        return move_ours(remap);
    result = grow_in_place(remap);
    return is_error(result) && (remap->flags & MREMAP_MAYMOVE) ? move_ours(remap) : result;
}

/* ---- foreign mappings: moved by the kernel ---------------------------------------------------------------------- */

/* Parts of the target inside the range become the kernel's, who then moves something there. */
static long open_target(const struct remap *remap)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    struct interval part = {.next = (uintptr_t)remap->target, .end = (uintptr_t)remap->target + remap->to_size};

    while (interval_part(&part)) {
        long error = part.ours ? hooks_map_foreign(part.at, part.size, PROT_NONE, flags, -1, 0) : 0;

        if (error != 0)
            return error;
    }
    return 0;
}

/*
 * Moves the same number of pages from inside the range. They stay mapped at the old place, without their contents,
 * until hooks_unmap(): into a hole there the kernel might put something before it is ours again.
 */
static long leave(const struct remap *remap, char *to, size_t size)
{
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    long result = raw_call(SYS_mremap, remap->from, size, size, flags, to);

    if (!is_error(result) && (remap->flags & MREMAP_DONTUNMAP) == 0)
        hooks_unmap(remap->from, remap->from_size);
    return result;
}

/* Free addresses of the range are inaccessible memory to the kernel: taken first, then given to it to grow into. */
static long grow_foreign_in_place(const struct remap *remap)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *end = remap->from + remap->from_size;
    size_t more = remap->to_size - remap->from_size;
    long result = -ENOMEM;

    if (more > hooks_base + hooks_size_bytes - (uintptr_t)end || hooks_map_at(end, more, PROT_NONE, false) != 0)
        return -ENOMEM;
    if (hooks_map_foreign(end, more, PROT_NONE, flags, -1, 0) == 0 && raw_call(SYS_munmap, end, more) == 0)
        result = raw_call(SYS_mremap, remap->from, remap->from_size, remap->to_size, 0);
    if (is_error(result))
        hooks_unmap(end, more);
    else if (remap->traits & HOOKS_LEFT)
        call_madvise(end, more, MADV_DONTFORK);
    return result;
}

/* To a place where there is room to grow. */
static long grow_foreign(const struct remap *remap)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    long to = raw_call(SYS_mmap, NULL, remap->to_size, PROT_NONE, flags, -1, 0);
    long result;

    if (is_error(to))
        return to;
    result = leave(remap, (char *)to, remap->from_size);
    if (is_error(result)) {
        raw_call(SYS_munmap, to, remap->to_size);
        return result;
    }
    raw_call(SYS_munmap, to + (long)remap->from_size, remap->to_size - remap->from_size);
    return raw_call(SYS_mremap, to, remap->from_size, remap->to_size, MREMAP_MAYMOVE);
}

static long move_foreign(const struct remap *remap)
{
    size_t size = remap->from_size < remap->to_size ? remap->from_size : remap->to_size;
    long result = open_target(remap);

    if (result == 0)
        result = leave(remap, remap->target, size);
    if (is_error(result)) {
        call_munmap(remap->target, remap->to_size);
        return result;
    }
    if (remap->to_size > size) {
        raw_call(SYS_munmap, remap->target + size, remap->to_size - size);
        result = raw_call(SYS_mremap, remap->target, size, remap->to_size, 0);
    }
    if (!is_error(result) && (remap->traits & HOOKS_LEFT)) /* the kernel knows; the ranges do not yet */
        call_madvise(remap->target, remap->to_size, MADV_DONTFORK);
    return result;
}

static long remap_foreign(const struct remap *remap)
{
    long result;

    if (remap->flags & MREMAP_FIXED)
        return move_foreign(remap);
    if (remap->from_size == 0 || (remap->flags & MREMAP_DONTUNMAP)) /* the old place stays as it is */
        return raw_call(SYS_mremap, remap->from, remap->from_size, remap->to_size, remap->flags);
    result = grow_foreign_in_place(remap);
    return is_error(result) && (remap->flags & MREMAP_MAYMOVE) ? grow_foreign(remap) : result;
}

/* From outside into the range: the kernel's mapping, whatever it is, and it stays the kernel's. */
static long move_in(const struct remap *remap)
{
    long result = open_target(remap);

    if (result == 0)
        result = raw_call(SYS_mremap, remap->from, remap->from_size, remap->to_size, remap->flags, remap->target);
    if (is_error(result))
        call_munmap(remap->target, remap->to_size);
    return result;
}

/* What lies behind the first page need not be of one kind, or there at all: it only goes. */
static long shrink(const struct remap *remap)
{
    struct hooks_run run;
    long error;

    hooks_describe(remap->from, &run);
    if (run.kind == HOOKS_FREE)
        return -EFAULT;
    error = remap->to_size == remap->from_size
                ? 0
                : call_munmap(remap->from + remap->to_size, remap->from_size - remap->to_size);
    return error != 0 ? error : (long)remap->from;
}

/* The errors that are told before anything is done. */
static long check(const struct remap *remap, int flags)
{
    uintptr_t from = (uintptr_t)remap->from;
    uintptr_t target = (uintptr_t)remap->target;
    bool moves = (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0;

    if ((flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0 || (moves && !(flags & MREMAP_MAYMOVE)) ||
        ((flags & MREMAP_DONTUNMAP) && remap->from_size != remap->to_size) || from % CALL_PAGE_BYTES != 0 ||
        remap->to_size == 0)
        return -EINVAL;
    if ((flags & MREMAP_FIXED) == 0)
        return 0;
    if (target % CALL_PAGE_BYTES != 0 || target + remap->to_size < target ||
        (from + remap->from_size > target && target + remap->to_size > from))
        return -EINVAL;
    return 0;
}

long call_mremap(void *address, size_t old_size, size_t new_size, int flags, void *target)
{
    struct remap remap = {
        .from = address, .from_size = page_up(old_size), .to_size = page_up(new_size), .flags = flags};
    enum hooks_kind kind;
    bool comes_in;
    long error;

    remap.target = (flags & MREMAP_FIXED) ? target : NULL;
    comes_in = remap.target != NULL && interval_is_ours((uintptr_t)remap.target, remap.to_size);
    if ((!comes_in && !hooks_owns(address)) || !calls_managed())
        return raw_call(SYS_mremap, address, old_size, new_size, flags, target);
    error = check(&remap, flags);
    if (error != 0)
        return error;
    if (!hooks_owns(address))
        return interval_is_ours((uintptr_t)address, remap.from_size) ? -EFAULT : move_in(&remap);
    if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) == 0 && remap.to_size <= remap.from_size)
        return shrink(&remap);
    error = look(&remap, &kind);
    if (error != 0)
        return error;
    if (kind == HOOKS_MANAGED)
        return remap_ours(&remap);
    return remap_foreign(&remap);
}

/* ---- the program's side ----------------------------------------------------------------------------------------- */

SHIM_EXPORT void *mremap(void *address, size_t old_size, size_t new_size, int flags, ...)
{
    va_list arguments;
    void *target;

    va_start(arguments, flags);
    target = va_arg(arguments, void *);
    va_end(arguments);
    return (void *)raw_result(call_mremap(address, old_size, new_size, flags, target));
}
