/* SPDX-License-Identifier: Apache-2.0 */
/*
 * advise.c - madvise and its relatives.
 *
 * Advice that changes contents (DONTNEED, FREE, WIPEONFORK) goes through the runtime, which would bring old bytes back
 * otherwise, and so does what holds as long as the memory is mapped (DONTFORK, DONTDUMP, HUGEPAGE): it has to go with
 * memory that moves. Advice about paging is ours to follow.
 * The rest is passed on where the kernel may follow it without harm.
 * What madvise(2) promises is kept: holes are ENOMEM after the rest was done, other errors end it at once.
 */
#include "shim/calls.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define ADVICE_GUARD_INSTALL 102
#define ADVICE_GUARD_REMOVE  103

/* The kernel refuses this advice, which does no harm, on memory that is locked. */
static bool is_locked(const struct stretch *part)
{
    return part->kind == HOOKS_KEPT && raw_call(SYS_madvise, part->at, part->size, MADV_COLD) == -EINVAL;
}

/* A stretch of our memory, no hole and not foreign. */
static long advise_ours(const struct stretch *part, int advice)
{
    switch (advice) {
    case MADV_DONTNEED:
    case MADV_FREE:
        return is_locked(part) ? -EINVAL : hooks_discard(part->at, part->size);
    case MADV_DONTNEED_LOCKED:
        return hooks_discard(part->at, part->size);
    case MADV_COLD:
    case MADV_PAGEOUT: /* the kernel's swap must not take what the shard counts */
        return is_locked(part) ? -EINVAL : hooks_advise(part->at, part->size, DSM_ADVISE_COLD);
    case MADV_WILLNEED:
        return hooks_advise(part->at, part->size, DSM_ADVISE_WILL_NEED);
    case MADV_NORMAL:
        return hooks_advise(part->at, part->size, DSM_ADVISE_NORMAL);
    case MADV_RANDOM:
        return hooks_advise(part->at, part->size, DSM_ADVISE_RANDOM);
    case MADV_SEQUENTIAL:
        return hooks_advise(part->at, part->size, DSM_ADVISE_SEQUENTIAL);
    case MADV_WIPEONFORK:
    case MADV_KEEPONFORK:
    case MADV_DONTFORK:
    case MADV_DOFORK:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case MADV_DODUMP:
    case MADV_DONTDUMP:
        return hooks_mark(part->at, part->size, advice);
    case MADV_MERGEABLE: /* a merged page could not be moved */
    case MADV_UNMERGEABLE:
        return 0;
    case ADVICE_GUARD_INSTALL: /* marks in the page table that are neither a page nor absent; programs have a way
                                  without */
    case ADVICE_GUARD_REMOVE:
    case MADV_REMOVE: /* not for anonymous memory */
        return -EINVAL;
    case MADV_COLLAPSE:
    case MADV_POPULATE_READ:
    case MADV_POPULATE_WRITE:
    default:
        return raw_call(SYS_madvise, part->at, part->size, advice);
    }
}

static long advise_inside(char *at, size_t size, int advice)
{
    struct stretch part = {.next = (uintptr_t)at, .end = (uintptr_t)at + size};
    bool holes = false;

    /* What allocators ask often: one call, holes and all. */
    if ((advice == MADV_DONTNEED || advice == MADV_FREE) && !keep_locks())
        return hooks_discard(at, size);
    while (stretch_part(&part)) {
        bool is_ours = part.kind != HOOKS_FOREIGN || advice == MADV_DONTFORK || advice == MADV_DOFORK;
        long error = part.kind == HOOKS_FREE ? -ENOMEM
                     : is_ours               ? advise_ours(&part, advice)
                                             : raw_call(SYS_madvise, part.at, part.size, advice);

        holes |= error == -ENOMEM;
        if (error != 0 && error != -ENOMEM)
            return error;
    }
    return holes ? -ENOMEM : 0;
}

long call_madvise(void *address, size_t size, int advice)
{
    struct interval part = {.next = (uintptr_t)address, .end = page_up((uintptr_t)address + size)};
    bool holes = false;

    if (part.next % CALL_PAGE_BYTES != 0 || !interval_is_ours(part.next, size) || !calls_managed())
        return raw_call(SYS_madvise, address, size, advice);
    while (interval_part(&part)) {
        long error =
            part.ours ? advise_inside(part.at, part.size, advice) : raw_call(SYS_madvise, part.at, part.size, advice);

        holes |= error == -ENOMEM;
        if (error != 0 && error != -ENOMEM)
            return error;
    }
    return holes ? -ENOMEM : 0;
}

/* ---- advice by a process descriptor ----------------------------------------------------------------------------- */

/* "Pid:" in /proc/self/fdinfo/FD, which is there for a process descriptor only. */
static bool is_this_process(int process)
{
    char path[] = "/proc/self/fdinfo/0000000000";
    char text[512];
    const char *at;
    long size;
    long fd;
    long pid = 0;

    for (int i = 0, rest = process; i < 10; i++, rest /= 10)
        path[sizeof(path) - 2 - (size_t)i] = (char)('0' + rest % 10);
    at = path + sizeof("/proc/self/fdinfo/") - 1;
    while (at[0] == '0' && at[1] != '\0')
        at++;
    memmove(path + sizeof("/proc/self/fdinfo/") - 1, at, strlen(at) + 1);
    fd = raw_call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size = raw_call(SYS_read, fd, text, sizeof(text) - 1);
    raw_call(SYS_close, fd);
    text[size > 0 ? size : 0] = '\0';
    at = strstr(text, "\nPid:\t");
    if (at == NULL)
        return false;
    for (at += 6; *at >= '0' && *at <= '9'; at++)
        pid = pid * 10 + (*at - '0');
    return pid == raw_call(SYS_getpid);
}

/* Advice to oneself that changes contents is carried out here; all other is harmless and the kernel's. */
long call_process_madvise(int process, const struct iovec *parts, size_t count, int advice, unsigned flags)
{
    long done = 0;

    if ((advice != MADV_DONTNEED && advice != MADV_FREE && advice != MADV_PAGEOUT) || flags != 0 || process < 0 ||
        count > 1024 || !calls_managed() || !is_this_process(process))
        return raw_call(SYS_process_madvise, process, parts, count, advice, flags);
    for (size_t i = 0; i < count; i++) {
        long error = call_madvise(parts[i].iov_base, parts[i].iov_len, advice);

        if (error != 0)
            return done > 0 ? done : error;
        done += (long)parts[i].iov_len;
    }
    return done;
}

/* A sealed mapping could not be given back by us either. Like a kernel that does not know the call. */
long call_mseal(void *address, size_t size, unsigned long flags)
{
    if (interval_is_ours((uintptr_t)address, size) && calls_managed())
        return -ENOSYS;
    return raw_call(462, address, size, flags);
}

/* ---- the program's side ----------------------------------------------------------------------------------------- */

SHIM_EXPORT int madvise(void *address, size_t size, int advice)
{
    return (int)raw_result(call_madvise(address, size, advice));
}

/* Returns the error. libc does nothing for POSIX_MADV_DONTNEED, which must not lose bytes. */
SHIM_EXPORT int posix_madvise(void *address, size_t size, int advice)
{
    return advice == POSIX_MADV_DONTNEED ? 0 : (int)-call_madvise(address, size, advice);
}

SHIM_EXPORT ssize_t process_madvise(int process, const struct iovec *parts, size_t count, int advice, unsigned flags)
{
    return raw_result(call_process_madvise(process, parts, count, advice, flags));
}
