/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_shared.c - calls that change mappings, made by two who share all memory, thread-local storage too, and by a
 * signal handler that interrupts such a call (T32, T33, T37).
 */
#include "tests/shim/trap.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define SIZE (64 * PAGE)

/* Not through libc's errno, which both would write: what is checked is the memory. */
static bool map_and_check(uint64_t seed)
{
    char *memory = mmap(NULL, SIZE, RW, ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return false;
    fill(memory, SIZE, seed);
    return mprotect(memory, PAGE, PROT_READ) == 0 && madvise(memory + PAGE, PAGE, MADV_DONTNEED) == 0 &&
           filled(memory, PAGE, seed) && zeroed(memory + PAGE, PAGE) &&
           filled_at(memory + 2 * PAGE, SIZE - 2 * PAGE, seed, 2 * PAGE) && munmap(memory, SIZE) == 0;
}

/* ---- a process on our memory, without thread-local storage of its own ---------------------------------------------
 */

static _Atomic(int) child_state; /* 0 starts, 1 works, 2 did all, 3 found something wrong */
static _Atomic(bool) parent_is_done;

static int sharing_child(void *unused)
{
    bool right = true;

    (void)unused;
    atomic_store(&child_state, 1);
    for (uint64_t i = 0; right && !atomic_load(&parent_is_done); i++)
        right = map_and_check(1000 + i);
    atomic_store(&child_state, right ? 2 : 3);
    return 0;
}

#define NEEDY (24 * MIB)

/* Needs so much memory that management begins, if it has not before, and ends. */
static int needy_child(void *result)
{
    char **memory = result;

    *memory = mmap(NULL, NEEDY, RW, ANONYMOUS, -1, 0);
    if (*memory == MAP_FAILED)
        return 1;
    fill(*memory, NEEDY, 4);
    return 0;
}

/* With a budget between NEEDY and twice that, nothing is managed before. */
static void begun_by_one_that_ends(void)
{
    static char stack[SIZE];
    char *memory = NULL;
    pid_t child = clone(needy_child, stack + SIZE, CLONE_VM | SIGCHLD, &memory);

    CHECK(child > 0 && child_end(child) == 0);
    for (uint64_t i = 0; i < 20; i++)
        CHECK(map_and_check(i));
    CHECK(filled(memory, NEEDY, 4) && munmap(memory, NEEDY) == 0);
}

static pid_t start_sharing(char *stack)
{
    pid_t child;

    atomic_store(&child_state, 0);
    atomic_store(&parent_is_done, false);
    child = clone(sharing_child, stack + SIZE, CLONE_VM | SIGCHLD, NULL);
    CHECK(child > 0);
    while (atomic_load(&child_state) == 0)
        sched_yield();
    return child;
}

static void by_two_at_once(void)
{
    char *stack = map(SIZE, RW), *memory = map_filled(4 * MIB, 1);
    pid_t child;

    push_out(memory, 4 * MIB);
    child = start_sharing(stack);
    for (uint64_t i = 0; i < 1500; i++)
        CHECK(map_and_check(i));
    atomic_store(&parent_is_done, true);
    CHECK(child_end(child) == 0 && atomic_load(&child_state) == 2);
    CHECK(filled(memory, 4 * MIB, 1));
    CHECK(munmap(stack, SIZE) == 0 && munmap(memory, 4 * MIB) == 0);
}

/* Killed in the middle of such calls: the kernel would finish or not begin them. The parent goes on. */
static void killed_at_it(void)
{
    char *stack = map(SIZE, RW), *memory = map_filled(4 * MIB, 2);

    push_out(memory, 4 * MIB);
    for (int i = 0; i < 60; i++) {
        pid_t child = start_sharing(stack);

        usleep((useconds_t)(i * 97));
        CHECK(kill(child, SIGKILL) == 0 && child_end(child) == 1000 + SIGKILL);
        for (uint64_t round = 0; round < 20; round++)
            CHECK(map_and_check(round));
    }
    CHECK(filled(memory, 4 * MIB, 2) && munmap(memory, 4 * MIB) == 0 && munmap(stack, SIZE) == 0);
}

/* ---- a handler that maps memory ------------------------------------------------------------------------------------
 */

static volatile sig_atomic_t handled;

static void mapping_handler(int number)
{
    int before = errno;

    (void)number;
    if (!map_and_check(5000 + (uint64_t)handled))
        _exit(1);
    handled++;
    errno = before;
}

static void in_handlers(void)
{
    struct sigaction action = {.sa_handler = mapping_handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
    char *memory = map_filled(4 * MIB, 3);
    double begin = seconds();

    push_out(memory, 4 * MIB);
    handled = 0;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (uint64_t i = 0; seconds() - begin < 4; i++)
        CHECK(map_and_check(i));
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && handled > 100);
    signal(SIGALRM, SIG_DFL);
    CHECK(filled(memory, 4 * MIB, 3) && munmap(memory, 4 * MIB) == 0);
}

TRAP_MAIN({"begun_by_one_that_ends", begun_by_one_that_ends}, {"by_two_at_once", by_two_at_once},
          {"killed_at_it", killed_at_it}, {"in_handlers", in_handlers})
