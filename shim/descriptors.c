/* SPDX-License-Identifier: Apache-2.0 */
/*
 * descriptors.c - the program cannot close what the shard works with: to the program our descriptors are closed
 * already. Daemons close everything they find; without the userfaultfd absent pages would read as zeroes.
 */
#include "shim/calls.h"

#include <limits.h>
#include <linux/close_range.h>
#include <sys/resource.h>
#include <unistd.h>

static bool is_ours(int fd)
{
    return hooks_size_bytes != 0 && fd >= 0 && hooks_descriptor_next(fd) == fd;
}

long call_close(int fd)
{
    return is_ours(fd) ? -EBADF : raw_call(SYS_close, fd);
}

long call_dup3(int from, int to, int flags)
{
    return is_ours(from) || is_ours(to) ? -EBADF : raw_call(SYS_dup3, from, to, flags);
}

/* Unlike dup3(2) it does nothing if both are the same. */
long call_dup2(int from, int to)
{
    if (from != to)
        return call_dup3(from, to, 0);
    if (is_ours(from))
        return -EBADF;
    return raw_call(SYS_fcntl, from, 1 /* F_GETFD */) < 0 ? -EBADF : to;
}

/* The pieces between ours. To set them close-on-exec does no harm: they are. */
long call_close_range(unsigned first, unsigned last, unsigned flags)
{
    if (hooks_size_bytes == 0 || first > last || first > INT_MAX || (flags & CLOSE_RANGE_CLOEXEC) != 0)
        return raw_call(SYS_close_range, first, last, flags);
    for (unsigned next = first; next <= last;) {
        int ours = hooks_descriptor_next((int)next);
        long error = 0;

        if (ours < 0 || (unsigned)ours > last)
            return raw_call(SYS_close_range, next, last, flags);
        if ((unsigned)ours > next)
            error = raw_call(SYS_close_range, next, ours - 1, flags);
        if (error != 0)
            return error;
        next = (unsigned)ours + 1;
    }
    return 0;
}

/* ---- the program's side ----------------------------------------------------------------------------------------- */

extern int __close(int fd);

/* Through libc: a thread may be cancelled in it. */
SHIM_EXPORT int close(int fd)
{
    return is_ours(fd) ? (int)raw_result(-EBADF) : __close(fd);
}

SHIM_EXPORT int dup2(int from, int to)
{
    return (int)raw_result(call_dup2(from, to));
}

SHIM_EXPORT int dup3(int from, int to, int flags)
{
    return (int)raw_result(call_dup3(from, to, flags));
}

SHIM_EXPORT int close_range(unsigned first, unsigned last, int flags)
{
    return (int)raw_result(call_close_range(first, last, (unsigned)flags));
}

SHIM_EXPORT void closefrom(int first)
{
    struct rlimit limit;

    first = first < 0 ? 0 : first;
    if (call_close_range((unsigned)first, UINT_MAX, 0) == 0)
        return;
    /* Linux before 5.9. */
    if (raw_call(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit) != 0)
        return;
    for (int fd = first; (rlim_t)fd < limit.rlim_cur; fd++)
        call_close(fd);
}
