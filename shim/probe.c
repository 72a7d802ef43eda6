/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.c - calls by which programs ask whether memory is mapped at all: mincore and msync (unwinders do).
 *
 * What is not mapped inside the range is a reservation of ours, which the kernel would call mapped.
 */
#include "shim/calls.h"

#include <sys/mman.h>

static bool has_holes(uintptr_t begin, size_t size)
{
    struct interval part = {.next = page_down(begin), .end = page_up(begin + size)};

    if (!interval_is_ours(begin, size) || !calls_managed())
        return false;
    while (interval_part(&part)) {
        struct stretch stretch = {.next = (uintptr_t)part.at, .end = (uintptr_t)part.at + part.size};

        while (part.ours && stretch_part(&stretch))
            if (stretch.kind == HOOKS_FREE)
                return true;
    }
    return false;
}

long call_mincore(void *address, size_t size, unsigned char *pages)
{
    long error = raw_call(SYS_mincore, address, size, pages);

    return error == 0 && has_holes((uintptr_t)address, size) ? -ENOMEM : error;
}

long call_msync(void *address, size_t size, int flags)
{
    long error = raw_call(SYS_msync, address, size, flags);

    return error == 0 && has_holes((uintptr_t)address, size) ? -ENOMEM : error;
}

/* ---- the program's side ----------------------------------------------------------------------------------------- */

SHIM_EXPORT int mincore(void *address, size_t size, unsigned char *pages)
{
    return (int)raw_result(call_mincore(address, size, pages));
}

/* Through libc: a thread may be cancelled in it. */
SHIM_EXPORT int msync(void *address, size_t size, int flags)
{
    static int (*libc)(void *, size_t, int);
    int result;

    if (libc == NULL)
        libc = shim_libc_symbol("msync");
    result = libc(address, size, flags);
    return result == 0 && has_holes((uintptr_t)address, size) ? (int)raw_result(-ENOMEM) : result;
}
