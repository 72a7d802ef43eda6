/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_signal.c - signals and stacks that lie in memory that is elsewhere (T28, T37).
 */
#include "tests/shim/trap.h"

#include <pthread.h>
#include <sched.h>
#include <sys/time.h>
#include <ucontext.h>

#define STACK (64 * PAGE)

static char *data; /* that handlers read and write */
static volatile sig_atomic_t handled;

static void touch_handler(int number)
{
    char frame[2 * 4096];

    (void)number;
    memset(frame, 3, sizeof(frame));
    for (size_t at = 0; at < STACK; at += PAGE)
        data[at + 8]++;
    handled++;
    CHECK(frame[5000] == 3);
}

static void on_alternate_stack(void)
{
    char *stack = map_filled(STACK, 1);
    stack_t alternate = {.ss_sp = stack, .ss_size = STACK};
    struct sigaction action = {.sa_handler = touch_handler, .sa_flags = SA_ONSTACK};

    data = map(STACK, RW);
    CHECK(sigaltstack(&alternate, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    for (int i = 1; i <= 5; i++) {
        push_out(stack, STACK);
        CHECK(raise(SIGUSR1) == 0);
        CHECK(data[8] == i && data[STACK - PAGE + 8] == i);
    }
    alternate.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&alternate, NULL) == 0);
    CHECK(munmap(stack, STACK) == 0 && munmap(data, STACK) == 0);
}

/* A stack that overflows into its guard, the handler on a stack that is elsewhere: what Java does. */
static void guard_handler(int number, siginfo_t *info, void *context)
{
    (void)context;
    CHECK(number == SIGSEGV && (char *)info->si_addr == data);
    CHECK(mprotect(data, PAGE, RW) == 0);
}

static void repairing_handler(void)
{
    char *stack = map_filled(STACK, 2);
    stack_t alternate = {.ss_sp = stack, .ss_size = STACK};
    struct sigaction action = {.sa_sigaction = guard_handler, .sa_flags = SA_ONSTACK | SA_SIGINFO};

    data = map_filled(16 * PAGE, 3);
    CHECK(sigaltstack(&alternate, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(mprotect(data, PAGE, PROT_NONE) == 0);
        push_out(stack, STACK);
        *(volatile char *)data = *(volatile char *)(data + 0);
        CHECK(filled(data, 16 * PAGE, 3));
    }
    alternate.ss_flags = SS_DISABLE;
    signal(SIGSEGV, SIG_DFL);
    CHECK(sigaltstack(&alternate, NULL) == 0 && munmap(stack, STACK) == 0 && munmap(data, 16 * PAGE) == 0);
}

/* A timer fires all the time, while pages come, go, are mapped, unmapped and protected. */
static void everywhere(void)
{
    struct sigaction action = {.sa_handler = touch_handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    double begin = seconds();

    data = map(STACK, RW);
    handled = 0;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (uint64_t i = 0; i < 200 || handled < 100; i++) {
        char *memory = map(32 * PAGE, RW);

        CHECK(seconds() - begin < 30);
        fill(memory, 32 * PAGE, i);
        if (i % 50 == 0)
            pressure();
        CHECK(mprotect(memory, 8 * PAGE, PROT_READ) == 0 && filled(memory, 32 * PAGE, i));
        memory = mremap(memory + 8 * PAGE, 24 * PAGE, 48 * PAGE, MREMAP_MAYMOVE);
        CHECK(memory != MAP_FAILED && filled_at(memory, 24 * PAGE, i, 8 * PAGE));
        CHECK(madvise(memory, PAGE, MADV_DONTNEED) == 0 && munmap(memory, 48 * PAGE) == 0);
        free(malloc((size_t)i * 1000));
        if (i % 20 == 0) {
            pid_t child = fork();

            if (child == 0)
                _exit(7);
            CHECK(child_end(child) == 7);
        }
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    signal(SIGALRM, SIG_DFL);
    CHECK(munmap(data, STACK) == 0);
}

/* ---- coroutines -------------------------------------------------------------------------------------------------- */

#define COROUTINES 32

static ucontext_t scheduler, contexts[COROUTINES];
static int rounds[COROUTINES];

static void coroutine(int number)
{
    char frame[3 * 4096];

    fill(frame, sizeof(frame), (uint64_t)number);
    for (int i = 0; i < 4; i++) {
        rounds[number]++;
        swapcontext(&contexts[number], &scheduler);
        CHECK(filled(frame, sizeof(frame), (uint64_t)number));
        if (i == 2) {
            pid_t child = fork(); /* on such a stack */

            if (child == 0)
                _exit(filled(frame, sizeof(frame), (uint64_t)number) ? 9 : 1);
            CHECK(child_end(child) == 9);
        }
    }
}

static void coroutines(void)
{
    char *stacks[COROUTINES];

    for (int i = 0; i < COROUTINES; i++) {
        stacks[i] = malloc(32 * PAGE);
        CHECK(stacks[i] != NULL && getcontext(&contexts[i]) == 0);
        contexts[i].uc_stack = (stack_t){.ss_sp = stacks[i], .ss_size = 32 * PAGE};
        contexts[i].uc_link = &scheduler;
        makecontext(&contexts[i], (void (*)(void))coroutine, 1, i);
    }
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < COROUTINES; i++)
            CHECK(swapcontext(&scheduler, &contexts[i]) == 0);
        pressure();
    }
    for (int i = 0; i < COROUTINES; i++) {
        CHECK(rounds[i] == 4);
        free(stacks[i]);
    }
}

/* ---- threads that are cancelled while they wait for a page --------------------------------------------------------
 */

static void *wander(void *memory)
{
    for (size_t at = 0;; at = (at + 7 * PAGE) % (8 * MIB)) {
        CHECK(*(uint64_t *)(void *)((char *)memory + at) == word_of(4, at / 8));
        pthread_testcancel();
    }
    return NULL;
}

static void *wander_cancelled(void *memory)
{
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    return wander(memory);
}

static void cancelled(void)
{
    char *memory = map_filled(8 * MIB, 4);

    for (int i = 0; i < 40; i++) {
        pthread_t thread;
        void *result;

        if (i % 10 == 0)
            push_out(memory, 8 * MIB);
        CHECK(pthread_create(&thread, NULL, i % 2 ? wander : wander_cancelled, memory) == 0);
        usleep(3000);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    }
    CHECK(filled(memory, 8 * MIB, 4) && munmap(memory, 8 * MIB) == 0);
}

TRAP_MAIN({"on_alternate_stack", on_alternate_stack}, {"repairing_handler", repairing_handler},
          {"everywhere", everywhere}, {"coroutines", coroutines}, {"cancelled", cancelled})
