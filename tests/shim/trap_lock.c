/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_lock.c - memory that the kernel uses where it cannot wait: locked pages, mutexes that inherit priority or
 * outlive their owner, stacks and words of threads (T23, T26, T29).
 */
#include "tests/shim/trap.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define SIZE (64 * PAGE)

static void locked_pages(void)
{
    char *memory = map_filled(SIZE, 1);

    push_out(memory, SIZE);
    CHECK(mlock(memory + PAGE + 100, 8 * PAGE) == 0); /* touches nine pages */
    CHECK(absent_pages(memory + PAGE, 9 * PAGE) == 0);
    for (int i = 0; i < 3; i++)
        pressure();
    CHECK(absent_pages(memory + PAGE, 9 * PAGE) == 0);
    CHECK(filled(memory, SIZE, 1));
    CHECK(munlock(memory, SIZE) == 0);
    CHECK(mlock2(memory, PAGE, MLOCK_ONFAULT) == 0 && munlock(memory, PAGE) == 0);
    CHECK(mlock(memory, 0) == 0);
    CHECK(munmap(memory, SIZE) == 0);
    memory = mmap(NULL, SIZE, RW, ANONYMOUS | MAP_LOCKED, -1, 0);
    CHECK(memory != MAP_FAILED);
    pressure();
    CHECK(absent_pages(memory, SIZE) == 0 && munmap(memory, SIZE) == 0);
}

/* Either all of it, or a clear no and no harm. */
static void everything(void)
{
    char *memory = map_filled(SIZE, 2);

    if (mlockall(MCL_CURRENT) == 0)
        CHECK(absent_pages(memory, SIZE) == 0);
    else
        CHECK(errno == ENOMEM || errno == EPERM || errno == EAGAIN);
    CHECK(munlockall() == 0);
    pressure();
    CHECK(filled(memory, SIZE, 2) && munmap(memory, SIZE) == 0);
}

/* ---- mutexes ---------------------------------------------------------------------------------------------------- */

struct shared {
    pthread_mutex_t mutex;
    long count;
    char rest[PAGE - sizeof(pthread_mutex_t) - sizeof(long)];
};

static void *count_up(void *argument)
{
    struct shared *shared = argument;

    for (int i = 0; i < 3000; i++) {
        CHECK(pthread_mutex_lock(&shared->mutex) == 0);
        shared->count++;
        if (i % 64 == 0)
            sched_yield(); /* so that the other one waits in the kernel */
        CHECK(pthread_mutex_unlock(&shared->mutex) == 0);
    }
    return NULL;
}

static void inherited_priority(void)
{
    struct shared *shared = (struct shared *)(void *)map_filled(SIZE, 3);
    pthread_mutexattr_t attributes;
    pthread_t threads[4];

    shared += 5;
    pthread_mutexattr_init(&attributes);
    CHECK(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0);
    CHECK(pthread_mutex_init(&shared->mutex, &attributes) == 0);
    shared->count = 0;
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, count_up, shared) == 0);
    for (int i = 0; i < 3; i++)
        pressure();
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(shared->count == 4 * 3000);
    CHECK(pthread_mutex_destroy(&shared->mutex) == 0);
    CHECK(munmap(shared - 5, SIZE) == 0);
}

static void *die_with_lock(void *argument)
{
    struct shared *shared = argument;

    CHECK(pthread_mutex_lock(&shared->mutex) == 0);
    pressure();
    return NULL;
}

static void owner_died(void)
{
    struct shared *shared = (struct shared *)(void *)map_filled(SIZE, 4);
    pthread_mutexattr_t attributes;
    pthread_t thread;

    pthread_mutexattr_init(&attributes);
    CHECK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_mutex_init(&shared[i].mutex, &attributes) == 0);
        CHECK(pthread_create(&thread, NULL, die_with_lock, &shared[i]) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        pressure();
        CHECK(pthread_mutex_lock(&shared[i].mutex) == EOWNERDEAD);
        CHECK(pthread_mutex_consistent(&shared[i].mutex) == 0);
        CHECK(pthread_mutex_unlock(&shared[i].mutex) == 0);
    }
    CHECK(munmap(shared, SIZE) == 0);
}

/* Without libc: a word that nobody announced. */
static void raw_futexes(void)
{
    char *memory = map_filled(SIZE, 5);
    _Atomic(uint32_t) *word = (_Atomic(uint32_t) *)(void *)(memory + 9 * PAGE);
    _Atomic(uint32_t) *other = (_Atomic(uint32_t) *)(void *)(memory + 20 * PAGE);

    atomic_store(word, 0);
    atomic_store(other, 7);
    push_out(memory + 9 * PAGE, PAGE);
    CHECK(syscall(SYS_futex, word, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0);
    CHECK((atomic_load(word) & FUTEX_TID_MASK) == (uint32_t)gettid());
    pressure();
    CHECK(syscall(SYS_futex, word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0 && atomic_load(word) == 0);
    push_out(memory + 20 * PAGE, PAGE);
    CHECK(syscall(SYS_futex, word, FUTEX_WAKE_OP, 1, 1L, other, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 7)) == 0);
    CHECK(atomic_load(other) == 10);
    push_out(memory + 30 * PAGE, PAGE);
    CHECK_ERROR(syscall(SYS_futex, memory + 30 * PAGE, FUTEX_WAIT, 1, NULL, NULL, 0), EAGAIN);
    CHECK(munmap(memory, SIZE) == 0);
}

/* ---- threads on memory of the program ---------------------------------------------------------------------------- */

static _Thread_local char local[2000];

static void *on_own_stack(void *argument)
{
    char frame[3 * 4096];

    fill(frame, sizeof(frame), 6);
    fill(local, sizeof(local), 7);
    for (int i = 0; i < 3; i++)
        pressure();
    CHECK(filled(frame, sizeof(frame), 6) && filled(local, sizeof(local), 7));
    return argument;
}

static void own_stacks(void)
{
    char *memory = map_filled(16 * 64 * PAGE, 8);
    pthread_attr_t attributes;
    pthread_t threads[4];
    void *result;

    for (size_t i = 0; i < 4; i++) {
        pthread_attr_init(&attributes);
        CHECK(pthread_attr_setstack(&attributes, memory + 4 * i * 64 * PAGE, 128 * PAGE) == 0);
        CHECK(pthread_create(&threads[i], &attributes, on_own_stack, memory + i) == 0);
    }
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], &result) == 0 && result == memory + i);
    CHECK(pthread_attr_setstack(&attributes, memory, 16) == EINVAL);
    CHECK(munmap(memory, 16 * 64 * PAGE) == 0);
}

static int on_cloned_stack(void *argument)
{
    _Atomic(int) *word = argument;

    atomic_fetch_add(word, 41);
    return 0;
}

/* A thread made by hand; the kernel clears a word and wakes when it has gone. */
static void cleared_word(void)
{
    const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                      CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID;
    char *memory = map_filled(SIZE, 9);
    _Atomic(int) *word = (_Atomic(int) *)(void *)memory;
    _Atomic(int) *tid = (_Atomic(int) *)(void *)(memory + 4 * PAGE);
    int value;

    atomic_store(word, 1);
    push_out(memory, SIZE);
    CHECK(clone(on_cloned_stack, memory + SIZE, flags, word, tid, NULL, tid) > 0);
    while ((value = atomic_load(tid)) != 0)
        syscall(SYS_futex, tid, FUTEX_WAIT, value, NULL, NULL, 0);
    CHECK(atomic_load(word) == 42);
    CHECK(munmap(memory, SIZE) == 0);
}

TRAP_MAIN({"locked_pages", locked_pages}, {"everything", everything}, {"inherited_priority", inherited_priority},
          {"owner_died", owner_died}, {"raw_futexes", raw_futexes}, {"own_stacks", own_stacks},
          {"cleared_word", cleared_word})
