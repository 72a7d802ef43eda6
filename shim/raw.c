/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw.c - what our own code gets when it calls libc: the linker binds every reference to NAME from inside the preload
 * library to __wrap_NAME here (cmake/shim.cmake has the list).
 *
 * System calls go to the kernel, so that the runtime meets neither our interposers nor those of another preload
 * library, which may allocate. Memory comes from libc's own malloc, which the program's blocks never come from: it has
 * no lock that a fork holds while the shard has to come to rest. errno is set as libc does.
 */
#include "shim/raw.h"
#include "shim/shim.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Declares and begins a function that the linker calls by this name. */
#define WRAP(type, name, ...)                                                                                          \
    type __wrap_##name(__VA_ARGS__);                                                                                   \
    type __wrap_##name(__VA_ARGS__)

/* A function that is one system call. */
#define WRAP_CALL(type, name, parameters, ...)                                                                         \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        return (type)raw_result(raw_call(__VA_ARGS__));                                                                \
    }

#define SIGNAL_SET_BYTES 8 /* the kernel's */

/* ---- memory ----------------------------------------------------------------------------------------------------- */

WRAP(void *, mmap, void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    return (void *)raw_result(raw_call(SYS_mmap, address, size, protection, flags, fd, offset));
}

WRAP(void *, mmap64, void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    return (void *)raw_result(raw_call(SYS_mmap, address, size, protection, flags, fd, offset));
}

WRAP(void *, mremap, void *address, size_t old_size, size_t new_size, int flags, ...)
{
    void *target = NULL;
    va_list arguments;

    if (flags & MREMAP_FIXED) {
        va_start(arguments, flags);
        target = va_arg(arguments, void *);
        va_end(arguments);
    }
    return (void *)raw_result(raw_call(SYS_mremap, address, old_size, new_size, flags, target));
}

WRAP_CALL(int, munmap, (void *address, size_t size), SYS_munmap, address, size)
WRAP_CALL(int, mprotect, (void *address, size_t size, int protection), SYS_mprotect, address, size, protection)
WRAP_CALL(int, madvise, (void *address, size_t size, int advice), SYS_madvise, address, size, advice)
WRAP_CALL(int, mlock, (const void *address, size_t size), SYS_mlock, address, size)
WRAP_CALL(int, munlock, (const void *address, size_t size), SYS_munlock, address, size)
WRAP_CALL(int, mincore, (void *address, size_t size, unsigned char *pages), SYS_mincore, address, size, pages)
WRAP_CALL(ssize_t, process_madvise, (int pid, const struct iovec *v, size_t n, int advice, unsigned flags),
          SYS_process_madvise, pid, v, n, advice, flags)
WRAP_CALL(ssize_t, process_vm_readv,
          (pid_t pid, const struct iovec *to, unsigned long n, const struct iovec *from, unsigned long m,
           unsigned long flags),
          SYS_process_vm_readv, pid, to, n, from, m, flags)

/* The allocator's arena of ordinary memory must not move the break, which the program's libc counts on. */
WRAP(void *, sbrk, intptr_t increment)
{
    (void)increment;
    errno = ENOMEM;
    return (void *)-1;
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static mode_t mode_argument(int flags, va_list arguments)
{
    return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

WRAP(int, open, const char *path, int flags, ...)
{
    va_list arguments;
    mode_t mode;

    va_start(arguments, flags);
    mode = mode_argument(flags, arguments);
    va_end(arguments);
    return (int)raw_result(raw_call(SYS_openat, AT_FDCWD, path, flags, mode));
}

WRAP(int, openat, int directory, const char *path, int flags, ...)
{
    va_list arguments;
    mode_t mode;

    va_start(arguments, flags);
    mode = mode_argument(flags, arguments);
    va_end(arguments);
    return (int)raw_result(raw_call(SYS_openat, directory, path, flags, mode));
}

WRAP(int, fcntl, int fd, int command, ...)
{
    va_list arguments;
    long argument;

    va_start(arguments, command);
    argument = va_arg(arguments, long);
    va_end(arguments);
    return (int)raw_result(raw_call(SYS_fcntl, fd, command, argument));
}

WRAP(int, ioctl, int fd, unsigned long request, ...)
{
    va_list arguments;
    long argument;

    va_start(arguments, request);
    argument = va_arg(arguments, long);
    va_end(arguments);
    return (int)raw_result(raw_call(SYS_ioctl, fd, request, argument));
}

WRAP_CALL(int, close, (int fd), SYS_close, fd)
WRAP_CALL(int, dup, (int fd), SYS_dup, fd)
WRAP_CALL(int, dup3, (int from, int to, int flags), SYS_dup3, from, to, flags)
WRAP_CALL(ssize_t, read, (int fd, void *to, size_t size), SYS_read, fd, to, size)
WRAP_CALL(ssize_t, write, (int fd, const void *from, size_t size), SYS_write, fd, from, size)
WRAP_CALL(ssize_t, writev, (int fd, const struct iovec *v, int n), SYS_writev, fd, v, n)
WRAP_CALL(ssize_t, pread, (int fd, void *to, size_t size, off_t at), SYS_pread64, fd, to, size, at)
WRAP_CALL(ssize_t, pwrite, (int fd, const void *from, size_t size, off_t at), SYS_pwrite64, fd, from, size, at)
WRAP_CALL(off_t, lseek, (int fd, off_t offset, int whence), SYS_lseek, fd, offset, whence)
WRAP_CALL(int, fsync, (int fd), SYS_fsync, fd)
WRAP_CALL(int, ftruncate, (int fd, off_t size), SYS_ftruncate, fd, size)
WRAP_CALL(int, fallocate, (int fd, int mode, off_t at, off_t size), SYS_fallocate, fd, mode, at, size)
WRAP_CALL(int, fstat, (int fd, struct stat *status), SYS_fstat, fd, status)
WRAP_CALL(int, statfs, (const char *path, struct statfs *status), SYS_statfs, path, status)
WRAP_CALL(int, stat, (const char *path, struct stat *status), SYS_newfstatat, AT_FDCWD, path, status, 0)
WRAP_CALL(int, lstat, (const char *path, struct stat *status), SYS_newfstatat, AT_FDCWD, path, status,
          AT_SYMLINK_NOFOLLOW)
WRAP_CALL(int, mkdir, (const char *path, mode_t mode), SYS_mkdirat, AT_FDCWD, path, mode)
WRAP_CALL(int, rmdir, (const char *path), SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR)
WRAP_CALL(int, unlink, (const char *path), SYS_unlinkat, AT_FDCWD, path, 0)
WRAP_CALL(int, rename, (const char *from, const char *to), SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0)
WRAP_CALL(ssize_t, sendfile, (int to, int from, off_t *offset, size_t size), SYS_sendfile, to, from, offset, size)
WRAP_CALL(int, memfd_create, (const char *name, unsigned flags), SYS_memfd_create, name, flags)

/* ---- sockets ---------------------------------------------------------------------------------------------------- */

WRAP_CALL(int, socket, (int family, int type, int protocol), SYS_socket, family, type, protocol)
WRAP_CALL(int, socketpair, (int family, int type, int protocol, int pair[2]), SYS_socketpair, family, type, protocol,
          pair)
WRAP_CALL(int, bind, (int fd, const struct sockaddr *name, socklen_t size), SYS_bind, fd, name, size)
WRAP_CALL(int, listen, (int fd, int backlog), SYS_listen, fd, backlog)
WRAP_CALL(int, accept4, (int fd, struct sockaddr *name, socklen_t *size, int flags), SYS_accept4, fd, name, size, flags)
WRAP_CALL(int, connect, (int fd, const struct sockaddr *name, socklen_t size), SYS_connect, fd, name, size)
WRAP_CALL(int, shutdown, (int fd, int how), SYS_shutdown, fd, how)
WRAP_CALL(int, getsockname, (int fd, struct sockaddr *name, socklen_t *size), SYS_getsockname, fd, name, size)
WRAP_CALL(int, getsockopt, (int fd, int level, int option, void *value, socklen_t *size), SYS_getsockopt, fd, level,
          option, value, size)
WRAP_CALL(int, setsockopt, (int fd, int level, int option, const void *value, socklen_t size), SYS_setsockopt, fd,
          level, option, value, size)
WRAP_CALL(ssize_t, send, (int fd, const void *from, size_t size, int flags), SYS_sendto, fd, from, size, flags)
WRAP_CALL(ssize_t, recv, (int fd, void *to, size_t size, int flags), SYS_recvfrom, fd, to, size, flags)
WRAP_CALL(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), SYS_sendmsg, fd, message, flags)
WRAP_CALL(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), SYS_recvmsg, fd, message, flags)

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

WRAP(int, poll, struct pollfd *fds, nfds_t count, int timeout_ms)
{
    struct timespec limit = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};

    return (int)raw_result(raw_call(SYS_ppoll, fds, count, timeout_ms < 0 ? NULL : &limit, NULL, SIGNAL_SET_BYTES));
}

WRAP_CALL(int, epoll_create1, (int flags), SYS_epoll_create1, flags)
WRAP_CALL(int, epoll_ctl, (int epoll, int what, int fd, struct epoll_event *event), SYS_epoll_ctl, epoll, what, fd,
          event)
WRAP_CALL(int, epoll_wait, (int epoll, struct epoll_event *events, int count, int timeout_ms), SYS_epoll_pwait, epoll,
          events, count, timeout_ms, NULL, SIGNAL_SET_BYTES)
WRAP_CALL(int, epoll_pwait2,
          (int epoll, struct epoll_event *events, int count, const struct timespec *limit, const sigset_t *mask),
          SYS_epoll_pwait2, epoll, events, count, limit, mask, SIGNAL_SET_BYTES)
WRAP_CALL(int, eventfd, (unsigned value, int flags), SYS_eventfd2, value, flags)
WRAP_CALL(int, timerfd_create, (int clock, int flags), SYS_timerfd_create, clock, flags)
WRAP_CALL(int, timerfd_settime, (int fd, int flags, const struct itimerspec *to, struct itimerspec *was),
          SYS_timerfd_settime, fd, flags, to, was)
WRAP_CALL(int, nanosleep, (const struct timespec *time, struct timespec *rest), SYS_nanosleep, time, rest)

/* ---- process ---------------------------------------------------------------------------------------------------- */

WRAP(long, syscall, long number, ...)
{
    long values[6];
    va_list arguments;

    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        values[i] = va_arg(arguments, long);
    va_end(arguments);
    return raw_result(raw_call(number, values[0], values[1], values[2], values[3], values[4], values[5]));
}

/* Untranslated: libc's takes the lock that setlocale() holds, and that may wait for the shard to serve its malloc(). */
WRAP(char *, strerror, int error)
{
    const char *words = strerrordesc_np(error);

    return (char *)(uintptr_t)(words != NULL ? words : "unknown error");
}

WRAP(char *, strerror_r, int error, char *text, size_t size)
{
    (void)text;
    (void)size;
    return __wrap_strerror(error);
}

WRAP_CALL(pid_t, setsid, (void), SYS_setsid)
WRAP_CALL(int, chdir, (const char *path), SYS_chdir, path)
WRAP_CALL(pid_t, getpid, (void), SYS_getpid)
WRAP_CALL(uid_t, geteuid, (void), SYS_geteuid)
WRAP_CALL(ssize_t, getrandom, (void *to, size_t size, unsigned flags), SYS_getrandom, to, size, flags)
WRAP_CALL(int, getrlimit, (int which, struct rlimit *limit), SYS_prlimit64, 0, which, NULL, limit)
WRAP_CALL(int, setrlimit, (int which, const struct rlimit *limit), SYS_prlimit64, 0, which, limit, NULL)
WRAP_CALL(int, sched_yield, (void), SYS_sched_yield)
/* The kernel says how many bytes it has, and leaves the rest as it was. */
WRAP(int, sched_getaffinity, pid_t pid, size_t size, cpu_set_t *cpus)
{
    long got = raw_call(SYS_sched_getaffinity, pid, size, cpus);

    if (got >= 0)
        memset((char *)cpus + got, 0, size - (size_t)got);
    return got < 0 ? (int)raw_result(got) : 0;
}
WRAP_CALL(int, sched_setaffinity, (pid_t pid, size_t size, const cpu_set_t *cpus), SYS_sched_setaffinity, pid, size,
          cpus)

/* ---- threads of the runtime ---------------------------------------------------------------------------------------
 */

static _Thread_local bool own_thread;

struct own_start {
    void *(*run)(void *);
    void *argument;
};

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *memory);

bool shim_own_thread(void)
{
    return own_thread;
}

static void *own_run(void *argument)
{
    struct own_start start = *(struct own_start *)argument;

    __libc_free(argument);
    own_thread = true;
    return start.run(start.argument);
}

WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = shim_libc_symbol("pthread_create");
    struct own_start *start = __libc_malloc(sizeof(*start));
    int error;

    if (start == NULL || create == NULL) {
        __libc_free(start);
        return EAGAIN;
    }
    *start = (struct own_start){run, argument};
    error = create(thread, attributes, own_run, start);
    if (error != 0)
        __libc_free(start);
    return error;
}

/* ---- memory of the runtime: libc's malloc --------------------------------------------------------------------------
 */

WRAP(void *, malloc, size_t size)
{
    return __libc_malloc(size);
}

WRAP(void *, calloc, size_t count, size_t size)
{
    return __libc_calloc(count, size);
}

WRAP(void *, realloc, void *memory, size_t size)
{
    return __libc_realloc(memory, size);
}

WRAP(void, free, void *memory)
{
    __libc_free(memory);
}

WRAP(void *, memalign, size_t alignment, size_t size)
{
    return __libc_memalign(alignment, size);
}

WRAP(void *, aligned_alloc, size_t alignment, size_t size)
{
    return __libc_memalign(alignment, size);
}

WRAP(int, posix_memalign, void **ret_memory, size_t alignment, size_t size)
{
    int before = errno;
    void *memory = __libc_memalign(alignment, size);

    errno = before;
    if (memory == NULL)
        return ENOMEM;
    *ret_memory = memory;
    return 0;
}

WRAP(char *, strndup, const char *text, size_t limit)
{
    size_t length = strnlen(text, limit);
    char *copy = __libc_malloc(length + 1);

    if (copy != NULL) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

WRAP(char *, strdup, const char *text)
{
    return __wrap_strndup(text, strlen(text));
}
