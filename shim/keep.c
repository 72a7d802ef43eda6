/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep.c - memory that the kernel uses where it cannot wait for a page: mlock, stacks of threads, futexes of mutexes
 * that inherit priority or outlive their owner, thread ids that the kernel clears. It is kept in memory for good, page
 * by page.
 */
#include "shim/calls.h"

#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif

/* Above the thread's first frame lie its control block and its thread-local variables; what the kernel writes is there.
 */
#define STACK_TOP_BYTES ((size_t)64 << 10)

int keep_bytes(const void *address, size_t size)
{
    struct interval part = {.next = page_down((uintptr_t)address), .end = page_up((uintptr_t)address + size)};

    if (!interval_is_ours((uintptr_t)address, size) || !calls_managed())
        return 0;
    while (interval_part(&part)) {
        struct stretch stretch = {.next = (uintptr_t)part.at, .end = (uintptr_t)part.at + part.size};

        while (part.ours && stretch_part(&stretch)) {
            int error = stretch.kind == HOOKS_MANAGED ? hooks_keep(stretch.at, stretch.size) : 0;

            if (error != 0)
                return error;
        }
    }
    return 0;
}

int keep_stack(size_t size)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);

    return hooks_owns((void *)here) ? keep_bytes((void *)(here - size), size) : 0;
}

/* ---- mlock ------------------------------------------------------------------------------------------------------ */

static _Atomic(bool) any_locks;

bool keep_locks(void)
{
    return atomic_load_explicit(&any_locks, memory_order_relaxed);
}

/* Pages that were kept stay so after munlock(2): whether somebody else has a reason is not known. */
long call_mlock(int number, const void *address, size_t size, int flags)
{
    int error = keep_bytes(address, size);

    if (interval_is_ours((uintptr_t)address, size))
        atomic_store_explicit(&any_locks, true, memory_order_relaxed);
    return error != 0 ? error : raw_call(number, address, size, flags);
}

/*
 * All of the memory, now and to come, is what a budget is there to prevent: locked mappings cannot be given back or
 * moved. Programs that ask (memcached -k) go on without.
 */
long call_mlockall(int flags)
{
    if (!calls_managed())
        return raw_call(SYS_mlockall, flags);
    hooks_warn("mlockall is refused: memory that is to move between tiers cannot all be locked");
    return -ENOMEM;
}

SHIM_EXPORT int mlock(const void *address, size_t size)
{
    return (int)raw_result(call_mlock(SYS_mlock, address, size, 0));
}

SHIM_EXPORT int mlock2(const void *address, size_t size, unsigned flags)
{
    return (int)raw_result(call_mlock(SYS_mlock2, address, size, (int)flags));
}

SHIM_EXPORT int mlockall(int flags)
{
    return (int)raw_result(call_mlockall(flags));
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

static int add_local_variables(struct dl_phdr_info *info, size_t size, void *sum)
{
    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS)
            *(size_t *)sum += info->dlpi_phdr[i].p_memsz + info->dlpi_phdr[i].p_align;
    return 0;
}

/* A user's stack, `top` being its highest address. 0, or an error number. */
static int keep_thread_stack(void *top, size_t size)
{
    size_t kept = STACK_TOP_BYTES;
    int error;

    if (!hooks_owns((char *)top - 1))
        return 0;
    dl_iterate_phdr(add_local_variables, &kept);
    kept = kept < size ? kept : size;
    error = keep_bytes((char *)top - kept, kept);
    if (error != 0)
        hooks_warn("a thread's stack in managed memory is refused: the budget does not allow to keep it there");
    return -error;
}

SHIM_EXPORT int pthread_attr_setstack(pthread_attr_t *attributes, void *stack, size_t size)
{
    static int (*libc)(pthread_attr_t *, void *, size_t);
    int error;

    if (libc == NULL)
        libc = shim_libc_symbol("pthread_attr_setstack");
    error = libc(attributes, stack, size);
    return error != 0 ? error : keep_thread_stack((char *)stack + size, size);
}

SHIM_EXPORT int pthread_attr_setstackaddr(pthread_attr_t *attributes, void *top)
{
    static int (*libc)(pthread_attr_t *, void *);
    int error;

    if (libc == NULL)
        libc = shim_libc_symbol("pthread_attr_setstackaddr");
    error = libc(attributes, top);
    return error != 0 ? error : keep_thread_stack(top, SIZE_MAX);
}

/* ---- futexes ---------------------------------------------------------------------------------------------------- */

/* The kernel takes these over, or walks them at a thread's death, where an absent page is EFAULT or silence. */
SHIM_EXPORT int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    static int (*libc)(pthread_mutex_t *, const pthread_mutexattr_t *);
    int protocol = PTHREAD_PRIO_NONE;
    int robust = PTHREAD_MUTEX_STALLED;

    if (libc == NULL)
        libc = shim_libc_symbol("pthread_mutex_init");
    if (attributes != NULL && hooks_owns(mutex)) {
        pthread_mutexattr_getprotocol(attributes, &protocol);
        pthread_mutexattr_getrobust(attributes, &robust);
        if ((protocol == PTHREAD_PRIO_INHERIT || robust == PTHREAD_MUTEX_ROBUST) &&
            keep_bytes(mutex, sizeof(*mutex)) != 0)
            return ENOMEM;
    }
    return libc(mutex, attributes);
}

/* Arguments as of futex(2). Most operations wait for a page like any other access. */
long call_futex(const long arguments[6])
{
    int error = 0;

    switch (arguments[1] & FUTEX_CMD_MASK) {
    case FUTEX_LOCK_PI:
    case FUTEX_LOCK_PI2:
    case FUTEX_TRYLOCK_PI:
    case FUTEX_UNLOCK_PI:
        error = keep_bytes((void *)arguments[0], sizeof(int));
        break;
    case FUTEX_WAKE_OP:
    case FUTEX_WAIT_REQUEUE_PI:
    case FUTEX_CMP_REQUEUE_PI:
        error = keep_bytes((void *)arguments[0], sizeof(int));
        if (error == 0)
            error = keep_bytes((void *)arguments[4], sizeof(int));
        break;
    default:
        break;
    }
    if (error != 0)
        return -ENOMEM;
    return raw_call(SYS_futex, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
