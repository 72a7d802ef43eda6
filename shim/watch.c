/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c - memory that the program watches with a userfaultfd of its own becomes the kernel's: two cannot fill one
 * page.
 */
#include "shim/calls.h"

#include <linux/userfaultfd.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

static bool has_bytes(const char *at, size_t size)
{
    for (size_t offset = 0; offset < size; offset += CALL_PAGE_BYTES)
        if (hooks_may_have_bytes(at + offset))
            return true;
    return false;
}

static void copy_bytes(char *to, const char *from, size_t size)
{
    for (size_t offset = 0; offset < size; offset += CALL_PAGE_BYTES)
        if (hooks_may_have_bytes(from + offset))
            memcpy(to + offset, from + offset, CALL_PAGE_BYTES);
}

/* Managed memory becomes an ordinary mapping of the kernel's, with the same contents. */
static long hand_over(char *at, size_t size, int protection)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    long aside;
    long error;

    if (!has_bytes(at, size))
        return hooks_map_foreign(at, size, protection, flags | MAP_FIXED, -1, 0);
    aside = raw_call(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (aside < 0 && aside >= -4095)
        return aside;
    error = (protection & PROT_READ) ? 0 : hooks_protect(at, size, PROT_READ);
    if (error == 0) {
        copy_bytes((char *)aside, at, size);
        error = hooks_map_foreign(at, size, PROT_NONE, flags | MAP_FIXED, -1, 0);
    }
    if (error == 0 && protection != (PROT_READ | PROT_WRITE))
        error = raw_call(SYS_mprotect, aside, size, protection);
    if (error == 0) {
        /* The pages themselves change places: untouched ones stay untouched, which a watcher counts on. */
        long moved = raw_call(SYS_mremap, aside, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at);

        return moved < 0 && moved >= -4095 ? moved : 0;
    }
    raw_call(SYS_munmap, aside, size);
    return error;
}

long call_ioctl(int fd, unsigned long request, void *argument)
{
    const struct uffdio_register *watch = argument;
    struct interval part;

    if (request != UFFDIO_REGISTER || watch == NULL || !calls_managed() ||
        !interval_is_ours(watch->range.start, watch->range.len) || watch->range.start % CALL_PAGE_BYTES != 0)
        return raw_call(SYS_ioctl, fd, request, argument);
    part = (struct interval){.next = watch->range.start, .end = watch->range.start + watch->range.len};
    while (interval_part(&part)) {
        struct stretch stretch = {.next = (uintptr_t)part.at, .end = (uintptr_t)part.at + part.size};

        while (part.ours && stretch_part(&stretch)) {
            long error = 0;

            if (stretch.kind == HOOKS_FREE)
                return -EINVAL;
            if (stretch.kind != HOOKS_FOREIGN)
                error = hand_over(stretch.at, stretch.size, stretch.protection);
            if (error != 0)
                return error;
        }
    }
    return raw_call(SYS_ioctl, fd, request, argument);
}

SHIM_EXPORT int ioctl(int fd, unsigned long request, ...)
{
    va_list arguments;
    void *argument;

    va_start(arguments, request);
    argument = va_arg(arguments, void *);
    va_end(arguments);
    return (int)raw_result(call_ioctl(fd, request, argument));
}
