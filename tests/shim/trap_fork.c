/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_fork.c - both sides of a fork have the memory as it was, whatever was elsewhere, and go on (T31 to T33, T36,
 * B9).
 */
#include "tests/shim/trap.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define SIZE (4 * MIB)

/* A third pushed out, a third just touched, a third never written. */
static char *prepare(uint64_t seed)
{
    char *memory = map(SIZE, RW);

    fill(memory, SIZE / 2, seed);
    push_out(memory, SIZE / 2);
    CHECK(filled(memory, SIZE / 4, seed));
    return memory;
}

static bool as_prepared(const char *memory, uint64_t seed)
{
    return filled(memory, SIZE / 2, seed) && zeroed(memory + SIZE / 2, SIZE / 2);
}

static void snapshot(void)
{
    for (uint64_t i = 0; i < 6; i++) {
        char *memory = prepare(i);
        pid_t child = fork();

        if (child == 0)
            _exit(as_prepared(memory, i) ? 0 : 1);
        if (i % 2 == 1)
            fill(memory, SIZE, 100 + i); /* while the child reads */
        CHECK(child_end(child) == 0);
        CHECK(i % 2 == 1 ? filled(memory, SIZE, 100 + i) : as_prepared(memory, i));
        CHECK(munmap(memory, SIZE) == 0);
    }
}

/* Each writes other pages, pushes out and reads all: in turns, three times. */
static void both_write(void)
{
    char *memory = prepare(7);
    pid_t child = fork();
    uint64_t me = child == 0 ? 8 : 9;

    for (int round = 0; round < 3; round++) {
        for (size_t at = 0; at < SIZE / 2; at += 3 * PAGE)
            fill(memory + at, PAGE, me);
        pressure();
        for (size_t at = 0; at < SIZE / 2; at += PAGE)
            CHECK(at % (3 * PAGE) == 0 ? filled(memory + at, PAGE, me) : filled_at(memory + at, PAGE, 7, at));
        CHECK(zeroed(memory + SIZE / 2, SIZE / 2));
    }
    if (child == 0)
        _exit(0);
    CHECK(child_end(child) == 0);
    CHECK(munmap(memory, SIZE) == 0);
}

static void generation(char *memory, uint64_t depth)
{
    pid_t child;

    CHECK(filled(memory, SIZE / 2, depth));
    if (depth == 14)
        return;
    fill(memory, SIZE / 2, depth + 1);
    push_out(memory, SIZE / 2);
    child = fork();
    if (child == 0) {
        generation(memory, depth + 1);
        _exit(0);
    }
    fill(memory, SIZE / 4, 99);
    CHECK(child_end(child) == 0);
    CHECK(filled(memory, SIZE / 4, 99) && filled_at(memory + SIZE / 4, SIZE / 4, depth + 1, SIZE / 4));
}

static void grandchildren(void)
{
    char *memory = prepare(10);

    generation(memory, 10);
    CHECK(munmap(memory, SIZE) == 0);
}

/* The parent ends first; the child has to do without it. */
static void orphan(void)
{
    char *memory = prepare(15);
    int pipes[2];
    char result = 0;
    pid_t child;

    CHECK(pipe(pipes) == 0);
    child = fork();
    if (child == 0) {
        if (fork() != 0)
            _exit(0);
        usleep(50000);
        fill(memory, PAGE, 16);
        pressure();
        result = filled(memory, PAGE, 16) && filled_at(memory + PAGE, SIZE / 2 - PAGE, 15, PAGE) ? 'y' : 'n';
        CHECK(write(pipes[1], &result, 1) == 1);
        _exit(0);
    }
    CHECK(child_end(child) == 0);
    close(pipes[1]);
    CHECK(read(pipes[0], &result, 1) == 1 && result == 'y');
    close(pipes[0]);
    CHECK(as_prepared(memory, 15) && munmap(memory, SIZE) == 0);
}

/* Children that are killed at any moment take nothing with them. */
static void killed(void)
{
    char *memory = prepare(17);

    for (int i = 0; i < 30; i++) {
        pid_t child = fork();

        if (child == 0)
            for (uint64_t round = 0;; round++) {
                fill(memory, SIZE, round);
                pressure();
            }
        usleep((useconds_t)(i * 1500));
        CHECK(kill(child, SIGKILL) == 0 && child_end(child) == 1000 + SIGKILL);
        if (i % 10 == 0)
            push_out(memory, SIZE / 2);
        CHECK(as_prepared(memory, 17));
    }
    CHECK(munmap(memory, SIZE) == 0);
}

/* Memory of the child is its own: mapping, unmapping, protecting there is not seen here. */
static void own_mappings(void)
{
    char *memory = prepare(18);
    pid_t child = fork();

    if (child == 0) {
        char *more = map_filled(SIZE, 19);

        CHECK(munmap(memory, SIZE / 4) == 0 && mprotect(memory + SIZE / 4, PAGE, PROT_READ) == 0);
        CHECK(fault_of(memory, false) == SIGSEGV && fault_of_store(memory + SIZE / 4) == SIGSEGV);
        push_out(more, SIZE);
        CHECK(filled(more, SIZE, 19) && filled_at(memory + SIZE / 4, SIZE / 4, 18, SIZE / 4));
        CHECK(munmap(more, SIZE) == 0);
        _exit(0);
    }
    CHECK(child_end(child) == 0);
    CHECK(as_prepared(memory, 18) && munmap(memory, SIZE) == 0);
}

/* ---- other ways to make a process ---------------------------------------------------------------------------------
 */

static void child_of_bare_fork(char *memory)
{
    CHECK(as_prepared(memory, 20));
    fill(memory, SIZE, 21);
    pressure();
    _exit(filled(memory, SIZE, 21) ? 11 : 1);
}

static int child_of_clone(void *memory)
{
    child_of_bare_fork(memory);
    return 1;
}

static void bare_forks(void)
{
    char *memory = prepare(20);
    char *stack = map_filled(64 * PAGE, 22);
    struct clone_args arguments = {.exit_signal = SIGCHLD};
    int *tid = (int *)(void *)map_filled(16 * PAGE, 23);

    for (int way = 0; way < 6; way++) {
        pid_t child = -1;

        push_out(memory, SIZE / 2);
        if (way == 0)
            child = _Fork();
        else if (way == 1)
            child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        else if (way == 2)
            child = (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));
        else if (way == 3)
            child = clone(child_of_clone, stack + 64 * PAGE, SIGCHLD, memory);
        else if (way == 4)
            child =
                (pid_t)syscall(SYS_clone, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, NULL, tid, tid + 8, 0L);
#ifdef SYS_fork
        else if (way == 5)
            child = (pid_t)syscall(SYS_fork);
#endif
        else
            continue;
        if (child == 0) {
            CHECK(way != 4 || tid[8] == getpid());
            child_of_bare_fork(memory);
        }
        CHECK(child > 0 && (way != 4 || tid[0] == child));
        CHECK(child_end(child) == 11);
        CHECK(as_prepared(memory, 20));
    }
    CHECK(munmap(memory, SIZE) == 0 && munmap(stack, 64 * PAGE) == 0 && munmap(tid, 16 * PAGE) == 0);
}

/* ---- threads ------------------------------------------------------------------------------------------------------
 */

#define FORKS 2000

static int forks_left;

static void *fork_often(void *number)
{
    uint64_t seed = (uint64_t)(uintptr_t)number + 30;
    char *memory = map_filled(64 * PAGE, seed);

    while (__atomic_fetch_sub(&forks_left, 1, __ATOMIC_RELAXED) > 0) {
        char *block = malloc(100000);
        pid_t child = fork();

        CHECK(child >= 0 && block != NULL);
        if (child == 0) {
            char *inside = malloc(5000);

            _exit(inside != NULL && *(uint64_t *)(void *)(memory + 9 * PAGE) == word_of(seed, 9 * PAGE / 8) ? 12 : 1);
        }
        fill(block, 96000, seed);
        CHECK(child_end(child) == 12 && filled(block, 96000, seed));
        free(block);
        memset(memory + 64 * PAGE - 8, 1, 8);
    }
    CHECK(filled(memory, 63 * PAGE, seed) && munmap(memory, 64 * PAGE) == 0);
    return NULL;
}

static void from_threads(void)
{
    pthread_t threads[8];
    double begin = seconds();

    forks_left = (int)trap_number("TRAP_FORKS", FORKS);
    for (uintptr_t i = 0; i < 8; i++)
        CHECK(pthread_create(&threads[i], NULL, fork_often, (void *)i) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(seconds() - begin < 240);
}

/* Threads that never stop faulting while others fork. */
static volatile int over;

static void *busy(void *memory)
{
    for (uint64_t round = 0; !over; round++)
        for (size_t at = 0; at < SIZE; at += 5 * PAGE)
            *(uint64_t *)(void *)((char *)memory + at) = round;
    return NULL;
}

static void beside_busy_threads(void)
{
    char *memory = prepare(40);
    pthread_t threads[4];
    char *busy_memory[4];

    for (int i = 0; i < 4; i++) {
        busy_memory[i] = map(SIZE, RW);
        CHECK(pthread_create(&threads[i], NULL, busy, busy_memory[i]) == 0);
    }
    for (int i = 0; i < 60; i++) {
        pid_t child = fork();

        if (child == 0)
            _exit(as_prepared(memory, 40) ? 0 : 1);
        CHECK(child_end(child) == 0);
    }
    over = 1;
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0 && munmap(busy_memory[i], SIZE) == 0);
    CHECK(as_prepared(memory, 40) && munmap(memory, SIZE) == 0);
}

/* Handlers of the program use memory that is elsewhere. */
static char *handlers_memory;

static void handler(void)
{
    CHECK(filled(handlers_memory, SIZE / 2, 50));
}

static void with_handlers(void)
{
    handlers_memory = prepare(50);
    CHECK(pthread_atfork(handler, handler, handler) == 0);
    for (int i = 0; i < 10; i++) {
        pid_t child;

        push_out(handlers_memory, SIZE / 2);
        child = fork();
        if (child == 0)
            _exit(13);
        CHECK(child_end(child) == 13);
    }
}

/* ---- no descriptors left ------------------------------------------------------------------------------------------
 */

static int table_fill(void)
{
    int last = -1;

    for (int fd = open("/dev/null", O_RDONLY); fd >= 0; fd = open("/dev/null", O_RDONLY))
        last = fd;
    CHECK(errno == EMFILE);
    return last;
}

static int fork_and_read(const char *memory)
{
    pid_t child = fork();
    struct rlimit limit;

    if (child == -1)
        return -1;
    if (child == 0) {
        CHECK(as_prepared(memory, 20));
        pressure();
        CHECK(as_prepared(memory, 20));
        CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == 200);
        _exit(0);
    }
    return child_end(child);
}

/*
 * With the soft limit reached fork works as ever. With the hard one it may fail, as fork may, when the process has
 * threads of others' in it: then there is no child, and it works again when there is room.
 */
static void full_table_child(void)
{
    struct rlimit limit;
    char *memory = prepare(20);
    int last, end;
    pid_t child;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max > 400);
    limit.rlim_cur = 200;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    last = table_fill();
    for (int i = 0; i < 3; i++)
        CHECK(fork_and_read(memory) == 0);
    limit.rlim_max = 200;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    end = fork_and_read(memory);
    CHECK(end == 0 || (end == -1 && errno == EAGAIN && getenv("TRAP_EVICTS") != NULL));
    CHECK_ERROR(waitpid(-1, NULL, 0), ECHILD);
    for (int i = 0; i < 8; i++)
        CHECK(close(last - i) == 0);
    child = fork();
    if (child == 0)
        _exit(as_prepared(memory, 20) ? 0 : 1);
    CHECK(child > 0 && child_end(child) == 0);
}

static void full_table(void)
{
    pid_t child = fork();

    if (child == 0) {
        full_table_child();
        _exit(0);
    }
    CHECK(child_end(child) == 0);
}

TRAP_MAIN({"snapshot", snapshot}, {"both_write", both_write}, {"grandchildren", grandchildren}, {"orphan", orphan},
          {"killed", killed}, {"own_mappings", own_mappings}, {"bare_forks", bare_forks},
          {"from_threads", from_threads}, {"beside_busy_threads", beside_busy_threads},
          {"with_handlers", with_handlers}, {"full_table", full_table})
