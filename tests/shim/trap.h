/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap.h - what the trap programs share. A trap program is an ordinary program that does what has broken memory
 * managers before, checks every byte, and knows nothing of us: it passes natively, and must pass under the preload
 * library.
 *
 * TRAP_PRESSURE (MiB) is how much a program touches to push its other memory out. With TRAP_EVICTS set it insists that
 * pages did leave, or the test would show nothing.
 */
#ifndef TIERMESH_TESTS_SHIM_TRAP_H
#define TIERMESH_TESTS_SHIM_TRAP_H

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE      ((size_t)4096)
#define MIB       ((size_t)1 << 20)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)
#define RW        (PROT_READ | PROT_WRITE)

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s (errno: %s)\n", __FILE__, __LINE__, #condition, strerror(errno));               \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

#define CHECK_ERROR(call, code) CHECK((errno = 0, (long)(call) == -1 && errno == (code)))

/* ---- patterns --------------------------------------------------------------------------------------------------- */

static inline uint64_t word_of(uint64_t seed, size_t index)
{
    uint64_t z = (seed << 32) + index * 0x9e3779b97f4a7c15U;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    return z ^ z >> 31;
}

static inline void fill(void *memory, size_t size, uint64_t seed)
{
    uint64_t *words = memory;

    for (size_t i = 0; i < size / sizeof(*words); i++)
        words[i] = word_of(seed, i);
}

/* Bytes of fill(seed) that began `offset` bytes earlier. */
static inline bool filled_at(const void *memory, size_t size, uint64_t seed, size_t offset)
{
    const uint64_t *words = memory;

    for (size_t i = 0; i < size / sizeof(*words); i++)
        if (words[i] != word_of(seed, i + offset / sizeof(*words))) {
            fprintf(stderr, "byte %zu of %zu of pattern %lu is wrong: %lx\n", i * 8, size, seed, words[i]);
            return false;
        }
    return true;
}

static inline bool filled(const void *memory, size_t size, uint64_t seed)
{
    return filled_at(memory, size, seed, 0);
}

static inline bool zeroed(const void *memory, size_t size)
{
    const uint64_t *words = memory;

    for (size_t i = 0; i < size / sizeof(*words); i++)
        if (words[i] != 0) {
            fprintf(stderr, "byte %zu of %zu is not zero: %lx\n", i * 8, size, words[i]);
            return false;
        }
    return true;
}

static inline char *map(size_t size, int protection)
{
    void *memory = mmap(NULL, size, protection, ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED);
    return memory;
}

static inline char *map_filled(size_t size, uint64_t seed)
{
    char *memory = map(size, RW);

    fill(memory, size, seed);
    return memory;
}

/* ---- pushing out ------------------------------------------------------------------------------------------------ */

static inline size_t trap_number(const char *name, size_t fallback)
{
    const char *text = getenv(name);

    return text != NULL ? strtoul(text, NULL, 0) : fallback;
}

static inline size_t absent_pages(const void *memory, size_t size)
{
    unsigned char present[1024];
    size_t absent = 0;

    for (size_t at = 0; at < size; at += sizeof(present) * PAGE) {
        size_t part = size - at < sizeof(present) * PAGE ? size - at : sizeof(present) * PAGE;

        CHECK(mincore((char *)(uintptr_t)memory + at, part, present) == 0);
        for (size_t i = 0; i < part / PAGE; i++)
            absent += (present[i] & 1) == 0;
    }
    return absent;
}

/* Touches other memory until what was there before has been pushed out. */
static inline void pressure(void)
{
    size_t size = trap_number("TRAP_PRESSURE", 4) * MIB;
    char *memory = map(size, RW);

    for (int round = 0; round < 2; round++) {
        fill(memory, size, 1000 + (uint64_t)round);
        CHECK(filled(memory, size, 1000 + (uint64_t)round));
    }
    CHECK(munmap(memory, size) == 0);
}

/* Pushes out, and insists that these pages went. */
static inline void push_out(const void *memory, size_t size)
{
    pressure();
    if (getenv("TRAP_EVICTS") == NULL)
        return;
    for (int i = 0; i < 20 && absent_pages(memory, size) == 0; i++)
        pressure();
    if (absent_pages(memory, size) == 0) {
        fprintf(stderr, "nothing was pushed out: this shows nothing\n");
        _exit(1);
    }
}

/* ---- faults ----------------------------------------------------------------------------------------------------- */

static sigjmp_buf fault_jump;
static void *volatile fault_address;

static inline void fault_handler(int number, siginfo_t *info, void *context)
{
    (void)context;
    fault_address = info->si_addr;
    siglongjmp(fault_jump, number);
}

/* The signal that a touch raises; 0: none. */
static inline int fault_of(volatile char *address, bool write)
{
    struct sigaction action = {.sa_sigaction = fault_handler, .sa_flags = SA_SIGINFO}, before[2];
    int number;

    sigaction(SIGSEGV, &action, &before[0]);
    sigaction(SIGBUS, &action, &before[1]);
    number = sigsetjmp(fault_jump, 1);
    if (number == 0) {
        char byte = *address;

        if (write)
            *address = byte;
    } else {
        CHECK(fault_address == (void *)(uintptr_t)address);
    }
    sigaction(SIGSEGV, &before[0], NULL);
    sigaction(SIGBUS, &before[1], NULL);
    return number;
}

/* A write without a read before it. */
static inline int fault_of_store(volatile char *address)
{
    struct sigaction action = {.sa_sigaction = fault_handler, .sa_flags = SA_SIGINFO}, before;
    int number;

    sigaction(SIGSEGV, &action, &before);
    number = sigsetjmp(fault_jump, 1);
    if (number == 0)
        *address = 1;
    sigaction(SIGSEGV, &before, NULL);
    return number;
}

/* ---- children and cases ----------------------------------------------------------------------------------------- */

/* The exit code of a child, or 1000 + signal. */
static inline int child_end(pid_t child)
{
    int status;
    pid_t got;

    do
        got = waitpid(child, &status, 0);
    while (got == -1 && errno == EINTR);
    CHECK(got == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static inline double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct trap_case {
    const char *name;
    void (*run)(void);
};

/* Runs all cases, or the one that is named. */
static inline int trap_main(int argc, char **argv, const struct trap_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name) != 0)
            continue;
        printf("%s\n", cases[i].name);
        fflush(stdout);
        cases[i].run();
    }
    return 0;
}

#define TRAP_MAIN(...)                                                                                                 \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        const struct trap_case cases[] = {__VA_ARGS__};                                                                \
                                                                                                                       \
        return trap_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));                                         \
    }

#endif
