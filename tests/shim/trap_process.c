/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_process.c - processes that share memory, other programs, descriptors, filters (T30, T32, T34, T35).
 */
#include "tests/shim/trap.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define SIZE (2 * MIB)

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif

extern char **environ;

/* The child runs on our memory until it is another program. */
static void borrowed_memory(void)
{
    char *memory = map_filled(SIZE, 1);
    char **arguments = (char **)(void *)(memory + 8 * PAGE);
    volatile int seen = 0;

    for (int i = 0; i < 20; i++) {
        pid_t child;

        strcpy(memory, "/bin/sh");
        strcpy(memory + 16 * PAGE, "-c");
        strcpy(memory + 24 * PAGE, "exit 23");
        arguments[0] = memory;
        arguments[1] = memory + 16 * PAGE;
        arguments[2] = memory + 24 * PAGE;
        arguments[3] = NULL;
        push_out(memory, SIZE);
        child = vfork();
        if (child == 0) {
            seen = seen + 1;
            execve(arguments[0], arguments, environ);
            _exit(1);
        }
        CHECK(child_end(child) == 23 && seen == i + 1);
        CHECK(filled_at(memory + 32 * PAGE, SIZE - 32 * PAGE, 1, 32 * PAGE));
    }
    CHECK(munmap(memory, SIZE) == 0);
}

static void spawned(void)
{
    char *memory = map_filled(SIZE, 2);
    char *const arguments[] = {(char *)"sh", (char *)"-c", (char *)"read x; echo $x; exit 24", NULL};
    posix_spawn_file_actions_t actions;
    int to[2], from[2];
    pid_t child;
    char answer[16] = "";
    FILE *pipe_file;

    CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, to[0], 0) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, from[1], 1) == 0);
    push_out(memory, SIZE);
    CHECK(posix_spawnp(&child, "sh", &actions, NULL, arguments, environ) == 0);
    CHECK(write(to[1], "hello\n", 6) == 6 && read(from[0], answer, sizeof(answer)) == 6);
    CHECK(strcmp(answer, "hello\n") == 0 && child_end(child) == 24);
    for (int i = 0; i < 2; i++) {
        close(to[i]);
        close(from[i]);
    }
    push_out(memory, SIZE);
    CHECK(WEXITSTATUS(system("exit 25")) == 25);
    pipe_file = popen("echo popped", "r");
    CHECK(pipe_file != NULL && fgets(answer, sizeof(answer), pipe_file) != NULL && pclose(pipe_file) == 0);
    CHECK(strcmp(answer, "popped\n") == 0);
    posix_spawn_file_actions_destroy(&actions);
    CHECK(filled(memory, SIZE, 2) && munmap(memory, SIZE) == 0);
}

/* After an execve that fails everything is as it was, in the process itself and in a child. */
static void failed_exec(void)
{
    char *memory = map_filled(SIZE, 3);
    char *const arguments[] = {(char *)"nothing", NULL};

    for (int i = 0; i < 5; i++) {
        pid_t child;

        push_out(memory, SIZE);
        CHECK(execve("/nonexistent/program", arguments, environ) == -1 && errno == ENOENT);
        child = fork();
        if (child == 0) {
            CHECK(execve("/etc/passwd", arguments, environ) == -1 && errno == EACCES);
            fill(memory, PAGE, 4);
            pressure();
            CHECK(filled(memory, PAGE, 4));
            _exit(filled_at(memory + PAGE, SIZE - PAGE, 3, PAGE) ? 14 : 1);
        }
        CHECK(child_end(child) == 14 && filled(memory, SIZE, 3));
    }
    CHECK(munmap(memory, SIZE) == 0);
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

static int open_descriptors(void)
{
    int count = 0;

    for (int fd = 0; fd < 100; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

static void closed_ranges(void)
{
    char *memory = map_filled(SIZE, 5);
    pid_t child;

    push_out(memory, SIZE);
    child = fork();
    if (child == 0) {
        for (int way = 0; way < 5; way++) {
            int fd = dup(2);

            CHECK(fd > 2);
            push_out(memory, SIZE);
            if (way == 0)
                CHECK(close_range(3, ~0U, 0) == 0);
            else if (way == 1)
                closefrom(3);
            else if (way == 2)
                CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
            else
                for (int i = 3; i < 5000; i++)
                    way == 3 ? close(i) : dup2(2, i);
            CHECK(way == 4 || open_descriptors() <= 3);
            CHECK(filled(memory, SIZE, 5)); /* what serves memory is still there */
            fill(memory, SIZE, 5);
        }
        CHECK(close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0 && close_range(3, ~0U, 0) == 0);
        CHECK_ERROR(close(3000), EBADF);
        CHECK_ERROR(close_range(5, 3, 0), EINVAL);
        push_out(memory, SIZE);
        _exit(filled(memory, SIZE, 5) ? 15 : 1);
    }
    CHECK(child_end(child) == 15);
    CHECK(filled(memory, SIZE, 5) && munmap(memory, SIZE) == 0);
}

static void duplicates(void)
{
    int fd = dup2(2, 50);

    CHECK(fd == 50 && dup2(50, 50) == 50 && dup3(50, 51, O_CLOEXEC) == 51);
    CHECK(fcntl(51, F_GETFD) == FD_CLOEXEC);
    CHECK_ERROR(dup3(50, 50, 0), EINVAL);
    CHECK_ERROR(dup2(60, 60), EBADF);
    CHECK_ERROR(dup2(60, 61), EBADF);
    CHECK(close(50) == 0 && close(51) == 0);
    CHECK_ERROR(close(50), EBADF);
    CHECK_ERROR(close(-1), EBADF);
}

static void daemons(void)
{
    char *memory = map_filled(SIZE, 6);
    int pipes[2];
    char answer = 0;
    pid_t child;

    CHECK(pipe(pipes) == 0);
    push_out(memory, SIZE);
    child = fork();
    if (child == 0) {
        CHECK(daemon(0, 0) == 0);
        answer = filled(memory, SIZE, 6) && access("bin", F_OK) == 0 && getsid(0) != getppid() ? 'y' : 'n';
        _exit(write(pipes[1], &answer, 1) == 1 ? 0 : 1);
    }
    CHECK(child_end(child) == 0);
    CHECK(read(pipes[0], &answer, 1) == 1 && answer == 'y');
    close(pipes[0]);
    close(pipes[1]);
    CHECK(munmap(memory, SIZE) == 0);
}

/* ---- filters ------------------------------------------------------------------------------------------------------
 */

/* Kills whoever makes a thread, a ring, a socket or a userfaultfd. */
static long install_filter(bool by_prctl)
{
#define DENY(number)                                                                                                   \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        DENY(SYS_clone),
        DENY(SYS_clone3),
        DENY(SYS_io_uring_setup),
        DENY(SYS_socket),
        DENY(SYS_userfaultfd),
        DENY(SYS_openat),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (by_prctl)
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

/* With memory that had been pushed out before, and with none. */
static void filtered(void)
{
    for (int way = 0; way < 4; way++) {
        pid_t child = fork();

        if (child == 0) {
            char *memory = way < 2 ? map_filled(SIZE, 7) : NULL;

            if (memory != NULL)
                push_out(memory, SIZE);
            CHECK(install_filter(way % 2 == 0) == 0);
            CHECK(memory == NULL || filled(memory, SIZE, 7));
            memory = map_filled(4 * SIZE, 8);
            pressure();
            CHECK(filled(memory, 4 * SIZE, 8));
            free(malloc(5 * MIB));
            _exit(16);
        }
        CHECK(child_end(child) == 16);
    }
}

/* ---- processors ------------------------------------------------------------------------------------------------- */

static int processors(void)
{
    cpu_set_t set;

    CHECK(sched_getaffinity(0, sizeof(set), &set) == 0);
    return CPU_COUNT(&set);
}

static void *processors_of_thread(void *argument)
{
    *(int *)argument = processors();
    return NULL;
}

/* Of what a child of each kind inherits, asked without a door that could put it right. */
static int processors_inherited(int way)
{
    int found = 0;
    pthread_t thread;
    FILE *pipe;
    pid_t child;

    if (way == 0) {
        CHECK(pthread_create(&thread, NULL, processors_of_thread, &found) == 0 && pthread_join(thread, NULL) == 0);
        return found;
    }
    if (way == 1) {
        pipe = popen("nproc", "r");
        CHECK(pipe != NULL && fscanf(pipe, "%d", &found) == 1 && pclose(pipe) == 0);
        return found;
    }
    child = way == 2 ? fork() : vfork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "exit $(nproc)", (char *)NULL);
        _exit(127);
    }
    return child_end(child);
}

/* A thread that faults all the time may be kept on one processor: nothing must show it. */
static void processors_stay(void)
{
    size_t size = 4 * trap_number("TRAP_PRESSURE", 4) * MIB;
    char *memory = map_filled(size, 30);
    int before = processors();

    for (int round = 0; round < 12; round++) {
        for (size_t i = 0, at = 0; i < size / PAGE; i++, at = (at + 7919 * PAGE) % size) /* no order to foresee */
            CHECK(*(uint64_t *)(void *)(memory + at) == word_of(30, at / sizeof(uint64_t)));
        CHECK((round % 2 == 0 ? processors() : processors_inherited(round / 2 % 4)) == before);
    }
    CHECK(munmap(memory, size) == 0);
}

/* Programs count on low numbers, and close them. */
static void low_descriptors(void)
{
    char *memory = map_filled(SIZE, 10);
    char path[64], target[64];
    ssize_t size;

    push_out(memory, SIZE);
    for (int fd = 3; fd < 100; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        size = readlink(path, target, sizeof(target));
        CHECK(size <= 0 || strncmp(target, "anon_inode:", 11) != 0);
    }
    CHECK(filled(memory, SIZE, 10) && munmap(memory, SIZE) == 0);
}

/* What a core dump would have of this process, without the pages that are not there taking room in it. */
static size_t dumped_bytes(void)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    bool is_private = false;
    size_t bytes = 0, size = 0;
    unsigned long begin, end;
    char line[512];
    char rights[8];

    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "%lx-%lx %7s", &begin, &end, rights) == 3) {
            is_private = rights[1] == 'w' && rights[3] == 'p';
            size = end - begin;
        } else if (strncmp(line, "VmFlags:", 8) == 0 && is_private && strstr(line, " dd ") == NULL) {
            bytes += size;
        }
    }
    fclose(file);
    return bytes;
}

/* It is sent whole to a program that takes it by a pipe. */
static void small_dumps(void)
{
    char *memory = map_filled(SIZE, 9);

    push_out(memory, SIZE);
    CHECK(dumped_bytes() < 1024 * MIB);
    CHECK(filled(memory, SIZE, 9) && munmap(memory, SIZE) == 0);
}

TRAP_MAIN({"processors_stay", processors_stay}, {"borrowed_memory", borrowed_memory}, {"spawned", spawned},
          {"failed_exec", failed_exec}, {"closed_ranges", closed_ranges}, {"duplicates", duplicates},
          {"daemons", daemons}, {"small_dumps", small_dumps}, {"low_descriptors", low_descriptors},
          {"filtered", filtered})
