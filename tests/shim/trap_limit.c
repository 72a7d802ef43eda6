/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_limit.c - limits on address space count what the program maps, whenever they come (T39).
 */
#include "tests/shim/trap.h"

#include <sys/resource.h>
#include <sys/syscall.h>

#define GIB ((size_t)1 << 30)

static char **arguments;

static void limit_set(rlim_t soft)
{
    struct rlimit limit = {soft, RLIM_INFINITY};

    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* What the limit allows works, with bytes that leave and come back, and what it forbids does not. */
static void limited(size_t allowed, size_t forbidden)
{
    char *memory = map_filled(32 * MIB, 1);
    char *large;

    if (forbidden > 0)
        CHECK_ERROR(mmap(NULL, forbidden, RW, ANONYMOUS | MAP_NORESERVE, -1, 0), ENOMEM);
    for (int round = 0; round < 4; round++) {
        large = map(allowed, RW);
        fill(large + allowed - 2 * MIB, MIB, 2);
        push_out(large + allowed - 2 * MIB, MIB);
        CHECK(filled(large + allowed - 2 * MIB, MIB, 2) && zeroed(large + allowed - MIB, MIB));
        CHECK(munmap(large, allowed) == 0 && fault_of(large, false) == SIGSEGV);
    }
    if (forbidden > 0)
        CHECK_ERROR(mmap(NULL, forbidden, PROT_NONE, ANONYMOUS, -1, 0), ENOMEM);
    memory = mremap(memory, 32 * MIB, 64 * MIB, MREMAP_MAYMOVE);
    CHECK(memory != MAP_FAILED && filled(memory, 32 * MIB, 1) && zeroed(memory + 32 * MIB, 32 * MIB));
    CHECK(munmap(memory + 8 * MIB, 8 * MIB) == 0 && fault_of(memory + 8 * MIB, false) == SIGSEGV);
    CHECK(mmap(memory + 8 * MIB, MIB, RW, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == memory + 8 * MIB);
    CHECK(zeroed(memory + 8 * MIB, MIB) && filled(memory, 8 * MIB, 1));
    CHECK(mmap(memory + 4 * MIB, MIB, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory + 4 * MIB);
    fill(memory + 4 * MIB, MIB, 3);
    pressure();
    CHECK(filled(memory, 4 * MIB, 1) && filled(memory + 4 * MIB, MIB, 3));
    CHECK(munmap(memory, 64 * MIB) == 0);
}

static void exec_self(void)
{
    struct rlimit limit;

    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    execl("/proc/self/exe", arguments[0], "limited", limit.rlim_cur != RLIM_INFINITY ? "addresses" : NULL, NULL);
}

/* In a child, or the cases after it would be limited too. */
static void in_child(void (*run)(void))
{
    pid_t child = fork();

    if (child == 0) {
        run();
        _exit(0);
    }
    CHECK(child_end(child) == 0);
}

static void set_first(void)
{
    limit_set(4 * GIB);
    limited(GIB, 8 * GIB);
}

static void at_start(void)
{
    in_child(set_first);
}

static void set_late(void)
{
    char *memory = map_filled(MIB, 4);

    push_out(memory, MIB);
    limit_set(64 * GIB);
    CHECK(filled(memory, MIB, 4));
    limited(16 * GIB, 128 * GIB);
    CHECK(filled(memory, MIB, 4));
    in_child(set_first); /* a child of one that has a limit has a smaller one */
}

static void while_running(void)
{
    in_child(set_late);
}

static void set_otherwise(void)
{
    struct rlimit limit = {4 * GIB, RLIM_INFINITY}, before;

    CHECK(syscall(SYS_prlimit64, 0, RLIMIT_AS, &limit, &before) == 0 && before.rlim_cur == RLIM_INFINITY);
    CHECK_ERROR(mmap(NULL, 8 * GIB, PROT_NONE, ANONYMOUS, -1, 0), ENOMEM);
    limited(GIB / 2, 8 * GIB);
    CHECK(prlimit(getpid(), RLIMIT_AS, &before, NULL) == 0);
    CHECK(munmap(map(16 * GIB, PROT_NONE), 16 * GIB) == 0);
    CHECK(prlimit(0, RLIMIT_AS, &limit, NULL) == 0);
    limited(GIB / 2, 8 * GIB);
    CHECK_ERROR(prlimit(0, 1234, &limit, NULL), EINVAL);
}

static void other_ways(void)
{
    in_child(set_otherwise);
}

/* A limit on data counts what may be written. */
static void data_first(void)
{
    struct rlimit limit = {4 * GIB, RLIM_INFINITY};
    char *memory = map_filled(8 * MIB, 5);

    push_out(memory, 8 * MIB);
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
    CHECK_ERROR(mmap(NULL, 8 * GIB, RW, ANONYMOUS | MAP_NORESERVE, -1, 0), ENOMEM);
    CHECK(munmap(map(64 * GIB, PROT_NONE), 64 * GIB) == 0);
    limited(GIB, 0);
    CHECK(filled(memory, 8 * MIB, 5));
    in_child(exec_self);
}

static void of_data(void)
{
    in_child(data_first);
}

static void exec_limited(void)
{
    limit_set(4 * GIB);
    exec_self();
}

static void inherited(void)
{
    in_child(exec_limited);
}

int main(int argc, char **argv)
{
    const struct trap_case cases[] = {{"at_start", at_start},
                                      {"while_running", while_running},
                                      {"other_ways", other_ways},
                                      {"inherited", inherited},
                                      {"of_data", of_data}};

    arguments = argv;
    if (argc > 1 && strcmp(argv[1], "limited") == 0) {
        limited(GIB, argc > 2 ? 8 * GIB : 0);
        return 0;
    }
    return trap_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
