/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SMALL_STACK_BYTES 262144U

static uint64_t clock_read_ns(clockid_t id)
{
    struct timespec now;

    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

uint64_t os_now_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC);
}

uint64_t os_boot_now_ns(void)
{
    return clock_read_ns(CLOCK_BOOTTIME);
}

uint64_t os_random(void)
{
    uint64_t value = 0;

    while (getrandom(&value, sizeof(value), 0) != (ssize_t)sizeof(value))
        ;
    return value;
}

static int thread_start(pthread_t *ret_thread, const pthread_attr_t *attributes, const char *name, void *(*run)(void *),
                        void *argument)
{
    sigset_t all;
    sigset_t before;
    pthread_t thread;
    int error;

    /* The thread inherits the mask: a signal must never run a handler on a runtime thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return -error;
    pthread_setname_np(thread, name);
    *ret_thread = thread;
    return 0;
}

int os_thread_start(pthread_t *ret_thread, const char *name, void *(*run)(void *), void *argument)
{
    return thread_start(ret_thread, NULL, name, run, argument);
}

/* Thread-local storage lies in the stack too: where the program has more of it than the stack, an ordinary one. */
int os_thread_start_small(pthread_t *ret_thread, const char *name, void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    int error;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, SMALL_STACK_BYTES);
    error = thread_start(ret_thread, &attributes, name, run, argument);
    pthread_attr_destroy(&attributes);
    return error == -EINVAL ? os_thread_start(ret_thread, name, run, argument) : error;
}

int os_futex_wait(_Atomic(uint32_t) *word, uint32_t expected, uint64_t timeout_ns, bool shared)
{
    struct timespec limit = {(time_t)(timeout_ns / 1000000000U), (long)(timeout_ns % 1000000000U)};
    int op = shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE;

    if (syscall(SYS_futex, word, op, expected, timeout_ns == UINT64_MAX ? NULL : &limit, NULL, 0) == 0)
        return 0;
    return errno == EAGAIN ? 0 : -errno;
}

void os_futex_wake(_Atomic(uint32_t) *word, int count, bool shared)
{
    syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

int os_pages_map(size_t size_bytes, void **ret_memory)
{
    void *memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        return -ENOMEM;
    *ret_memory = memory;
    return 0;
}

void os_pages_unmap(void *memory, size_t size_bytes)
{
    if (memory != NULL)
        munmap(memory, size_bytes);
}

/* ---- descriptors of our own ------------------------------------------------------------------------------------ */

#define OWNED_MAX 1024 /* the highest that is remembered */

static _Atomic(uint64_t) owned[OWNED_MAX / 64]; /* the one context of this part: a bit a descriptor */

static void owned_set(int fd, bool is_owned)
{
    uint64_t bit = (uint64_t)1 << fd % 64;

    if (fd < 0 || fd >= OWNED_MAX)
        return;
    if (is_owned)
        atomic_fetch_or(&owned[fd / 64], bit);
    else
        atomic_fetch_and(&owned[fd / 64], ~bit);
}

int os_descriptor_own(int fd)
{
    bool is_placed = fd >= OS_DESCRIPTOR_LOWEST && fd < OWNED_MAX;
    int high = is_placed ? fd : fcntl(fd, F_DUPFD_CLOEXEC, OS_DESCRIPTOR_LOWEST);

    if (high < 0)
        high = fd;
    else if (high != fd)
        close(fd);
    owned_set(high, true);
    return high;
}

void os_descriptor_disown(int fd)
{
    owned_set(fd, false);
}

void os_descriptor_close(int fd)
{
    owned_set(fd, false);
    close(fd);
}

uint64_t os_descriptors_raise(void)
{
    struct rlimit limit;
    uint64_t before;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max)
        return 0;
    before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? before : 0;
}

void os_descriptors_restore(uint64_t before)
{
    struct rlimit limit;

    if (before == 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = before;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

int os_descriptor_next(int fd)
{
    for (int at = fd < 0 ? 0 : fd; at < OWNED_MAX; at = (at / 64 + 1) * 64) {
        uint64_t bits = atomic_load_explicit(&owned[at / 64], memory_order_relaxed) >> at % 64;

        if (bits != 0)
            return at + __builtin_ctzll(bits);
    }
    return -1;
}
