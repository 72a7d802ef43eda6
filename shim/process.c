/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.c - how the program makes processes, and how it forbids system calls.
 *
 * A process with memory of its own needs a shard of its own before it touches managed memory: whoever makes one goes
 * through shim_fork_hold() and its counterparts. Processes and threads that share memory (vfork, posix_spawn, CLONE_VM)
 * are served by the shard that is there.
 */
#include "shim/calls.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLONE_ARGUMENTS_MIN 64 /* bytes of the first version of clone3(2) */
#define TIDS_MAX            32 /* set_tid of clone3(2): levels of namespaces */
#define STACK_TOP_BYTES     ((size_t)64 << 10)

/* ---- fork ------------------------------------------------------------------------------------------------------- */

/* What fork(2) may say. */
static int refusal(int error)
{
    return error == -ENOMEM ? -ENOMEM : -EAGAIN;
}

SHIM_EXPORT pid_t fork(void)
{
    static pid_t (*libc)(void);
    pid_t child;

    if (libc == NULL)
        libc = shim_libc_symbol("fork");
    hooks_settle_affinity();
    if (calls_managed() && hooks_fork_check() != 0) {
        errno = EAGAIN;
        return -1;
    }
    child = libc();
    if (child <= 0 || shim_fork_error() == 0)
        return child;
    /* The runtime could not take the memory along; the child has ended itself. */
    while (raw_call(SYS_wait4, child, NULL, __WALL, NULL) == -EINTR)
        ;
    errno = -refusal(shim_fork_error());
    return -1;
}

/* fork without anybody's handlers. */
long call_fork(void)
{
    static pid_t (*libc)(void);
    int before = errno;
    int error;
    long child;

    if (libc == NULL)
        libc = shim_libc_symbol("_Fork");
    hooks_settle_affinity();
    error = shim_fork_hold();
    if (error != 0) {
        shim_fork_parent();
        return refusal(error);
    }
    child = libc != NULL ? libc() : raw_result(raw_call(SYS_clone, SIGCHLD));
    if (child == 0) {
        shim_fork_child();
        return 0;
    }
    error = -errno;
    shim_fork_parent();
    errno = before;
    return child > 0 ? child : error;
}

SHIM_EXPORT pid_t _Fork(void)
{
    return (pid_t)raw_result(call_fork());
}

/* As in libc, whose own does not come by here. */
SHIM_EXPORT int daemon(int keep_directory, int keep_files)
{
    struct stat status;
    pid_t child = fork();
    int fd;

    if (child != 0) {
        if (child > 0)
            _exit(0);
        return -1;
    }
    if (setsid() == -1)
        return -1;
    if (!keep_directory)
        (void)!chdir("/");
    if (keep_files)
        return 0;
    fd = open("/dev/null", O_RDWR);
    if (fd < 0 || fstat(fd, &status) != 0 || !S_ISCHR(status.st_mode) || status.st_rdev != makedev(1, 3)) {
        if (fd >= 0)
            close(fd);
        errno = ENODEV;
        return -1;
    }
    for (int i = 0; i <= 2; i++)
        raw_call(SYS_dup3, fd, i, 0);
    if (fd > 2)
        close(fd);
    return 0;
}

/* ---- clone ------------------------------------------------------------------------------------------------------ */

/* Written by the one thread that holds the shard. */
static struct {
    int (*run)(void *argument);
    void *argument;
} cloned;

static int cloned_run(void *unused)
{
    (void)unused;
    shim_fork_child();
    return cloned.run(cloned.argument);
}

/*
 * A process with its own memory that shares the table of descriptors would close those of its parent's shard; one for
 * which its parent waits would have the parent's shard stand still for that time.
 */
static long clone_refused(unsigned long flags)
{
    if ((flags & (CLONE_FILES | CLONE_VFORK)) == 0 || !calls_managed() || !hooks_is_running())
        return 0;
    hooks_warn("clone is refused: a child with memory of its own may not share descriptors or suspend its parent");
    return -ENOSYS;
}

/* What the kernel writes while the shard stands still. */
static long keep_for_kernel(const void *first, const void *second, const void *third)
{
    int error = first != NULL ? keep_bytes(first, sizeof(int)) : 0;

    if (error == 0 && second != NULL)
        error = keep_bytes(second, sizeof(int));
    if (error == 0 && third != NULL)
        error = keep_bytes(third, sizeof(int));
    return error;
}

static long clone_begin(unsigned long flags, const void *first, const void *second, const void *third)
{
    long error = clone_refused(flags);

    if (error == 0)
        error = keep_for_kernel(first, second, third);
    if (error != 0)
        return error;
    error = shim_fork_hold();
    if (error == 0)
        return 0;
    shim_fork_parent();
    return refusal((int)error);
}

static long clone_end(long child)
{
    if (child == 0)
        shim_fork_child();
    else
        shim_fork_parent();
    return child;
}

/* Without CLONE_VM. The program's own stack is not for this door: the child would return onto it. */
long call_clone(unsigned long flags, void *stack, int *parent_tid, int *child_tid, void *tls)
{
    long error;

    if (flags == SIGCHLD && stack == NULL)
        return call_fork();
    if (stack != NULL)
        return -ENOSYS;
    error = clone_begin(flags, (flags & (CLONE_PARENT_SETTID | CLONE_PIDFD)) ? parent_tid : NULL,
                        (flags & (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID)) ? child_tid : NULL, NULL);
    if (error != 0)
        return error;
#if defined(__x86_64__)
    return clone_end(raw_call(SYS_clone, flags, NULL, parent_tid, child_tid, tls));
#else
    return clone_end(raw_call(SYS_clone, flags, NULL, parent_tid, tls, child_tid));
#endif
}

/* Without CLONE_VM. The kernel reads the arguments while the shard stands still: from copies on our stack. */
long call_clone3(void *arguments, size_t size)
{
    struct clone_args copy = {0};
    uint32_t tids[TIDS_MAX];
    long error;

    if (arguments == NULL || size < CLONE_ARGUMENTS_MIN || size > sizeof(copy))
        return raw_call(SYS_clone3, arguments, size);
    memcpy(&copy, arguments, size);
    if (copy.stack != 0)
        return -ENOSYS;
    if (copy.set_tid != 0 && copy.set_tid_size <= TIDS_MAX) {
        memcpy(tids, (void *)(uintptr_t)copy.set_tid, copy.set_tid_size * sizeof(tids[0]));
        copy.set_tid = (uintptr_t)tids;
    }
    error = clone_begin(copy.flags, (copy.flags & CLONE_PARENT_SETTID) ? (void *)(uintptr_t)copy.parent_tid : NULL,
                        (copy.flags & (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID)) ? (void *)(uintptr_t)copy.child_tid
                                                                                   : NULL,
                        (copy.flags & CLONE_PIDFD) ? (void *)(uintptr_t)copy.pidfd : NULL);
    return error != 0 ? error : clone_end(raw_call(SYS_clone3, &copy, size));
}

extern int __clone(int (*run)(void *), void *stack, int flags, void *argument, ...);

SHIM_EXPORT int clone(int (*run)(void *), void *stack, int flags, void *argument, ...)
{
    va_list more;
    int *parent_tid;
    void *tls;
    int *child_tid;
    int child;
    long error;

    va_start(more, argument);
    parent_tid = va_arg(more, int *);
    tls = va_arg(more, void *);
    child_tid = va_arg(more, int *);
    va_end(more);
    hooks_settle_affinity();
    if ((flags & CLONE_VM) || run == NULL || stack == NULL) {
        if (flags & CLONE_CHILD_CLEARTID) /* written at the thread's end, when nobody waits for a page */
            keep_bytes(child_tid, sizeof(*child_tid));
        return __clone(run, stack, flags, argument, parent_tid, tls, child_tid);
    }
    error = keep_bytes((char *)stack - STACK_TOP_BYTES, STACK_TOP_BYTES);
    if (error == 0)
        error = clone_begin((unsigned)flags, (flags & (CLONE_PARENT_SETTID | CLONE_PIDFD)) ? parent_tid : NULL,
                            (flags & (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID)) ? child_tid : NULL, NULL);
    if (error != 0)
        return (int)raw_result(error);
    cloned.run = run;
    cloned.argument = argument;
    child = __clone(cloned_run, stack, flags, NULL, parent_tid, tls, child_tid);
    error = errno;
    clone_end(child);
    errno = (int)error;
    return child;
}

/* ---- filters of system calls ------------------------------------------------------------------------------------ */

/*
 * Nothing may be started behind a filter. A filter for all threads would hit the shard, which the program knows nothing
 * of; the answer is that of a kernel without that flag.
 */
static long seccomp_begin(unsigned flags)
{
    if (!calls_managed())
        return 0;
    hooks_freeze();
    if ((flags & SECCOMP_FILTER_FLAG_TSYNC) == 0 || !hooks_is_running())
        return 0;
    hooks_warn("a seccomp filter for all threads is refused: it would stop the thread that serves managed memory");
    return -EINVAL;
}

long call_seccomp(unsigned operation, unsigned flags, void *argument)
{
    if (operation == SECCOMP_SET_MODE_STRICT || (operation == SECCOMP_SET_MODE_FILTER && argument != NULL)) {
        long error = seccomp_begin(operation == SECCOMP_SET_MODE_FILTER ? flags : 0);

        if (error != 0)
            return error;
    }
    return raw_call(SYS_seccomp, operation, flags, argument);
}

long call_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
    if (option == PR_SET_SECCOMP)
        seccomp_begin(0);
    return raw_call(SYS_prctl, option, a, b, c, d);
}

SHIM_EXPORT int prctl(int option, ...)
{
    unsigned long values[4];
    va_list arguments;

    va_start(arguments, option);
    for (int i = 0; i < 4; i++)
        values[i] = va_arg(arguments, unsigned long);
    va_end(arguments);
    return (int)raw_result(call_prctl(option, values[0], values[1], values[2], values[3]));
}
