/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain_forks.c - an unchanged program: more memory than its budget, and processes that come and go around it.
 *
 * `plain_forks MIB CASE`: fills memory with numbers that tell place and version apart, does what the case says, and
 * checks every word in every process. Exit status 0: all was right.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_STEP 512 /* one number a page, and one in the middle */

static uint64_t *memory;
static size_t words;

static void check(int condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "plain_forks: process %d: %s\n", (int)getpid(), what);
    _exit(1);
}

static void fill(uint64_t version)
{
    for (size_t i = 0; i < words; i += WORDS_STEP / 2)
        memory[i] = i * 31 + version;
}

static void verify(uint64_t version)
{
    for (size_t i = 0; i < words; i += WORDS_STEP / 2)
        check(memory[i] == i * 31 + version, "memory has changed");
}

static int wait_for(pid_t pid)
{
    int status;

    check(waitpid(pid, &status, 0) == pid, "waitpid");
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static pid_t start(void)
{
    pid_t pid = fork();

    check(pid >= 0, "fork");
    return pid;
}

/* Children that read, write, fork on, and end in every way; the parent's memory stays as it was. */
static void branch(unsigned depth, uint64_t version)
{
    static const int ends[] = {0, 0, 128 + SIGKILL, 0};

    for (int i = 0; i < 4; i++) {
        pid_t pid = start();

        if (pid == 0) {
            verify(version);
            fill(version + 7 + (uint64_t)i);
            if (depth > 0)
                branch(depth - 1, version + 7 + (uint64_t)i);
            verify(version + 7 + (uint64_t)i);
            if (i == 2)
                raise(SIGKILL);
            if (i == 3)
                execl("/bin/true", "true", (char *)NULL);
            _exit(0);
        }
        verify(version);
        check(wait_for(pid) == ends[i], "a child ended in another way than it should");
    }
    verify(version);
}

/* The parent ends first, and somebody killed in between: the others go on. */
static void orphans(void)
{
    int ends[2];
    pid_t pid;
    char byte;

    check(pipe(ends) == 0, "pipe");
    pid = start();
    if (pid == 0) {
        pid_t child = start();

        if (child > 0)
            raise(SIGKILL);
        usleep(200000);
        verify(1);
        fill(2);
        verify(2);
        check(write(ends[1], "y", 1) == 1, "pipe");
        _exit(0);
    }
    close(ends[1]);
    fill(3);
    check(wait_for(pid) == 128 + SIGKILL, "the child should have been killed");
    verify(3);
    check(read(ends[0], &byte, 1) == 1 && byte == 'y', "the grandchild found something wrong");
}

static void daemon_like(void)
{
    for (int fd = 3; fd < 1000; fd++)
        close(fd);
    (void)close_range(3, ~0u, 0);
    verify(1);
    fill(2);
    verify(2);
    usleep(300000);
    fill(3);
    verify(3);
}

static void failed_exec(void)
{
    for (int i = 0; i < 50; i++)
        check(execl("/no/such/program", "none", (char *)NULL) == -1 && errno == ENOENT, "exec");
    for (uint64_t version = 1; version < 5; version++) {
        verify(version);
        fill(version + 1);
    }
    usleep(200000);
    verify(5);
}

/* In a directory of its own, without /proc and /dev; what it has been managed with was opened before. */
static void jailed(uint64_t version)
{
    check(chroot(".") == 0 && chdir("/") == 0, "only root can do this");
    check(access("/proc/self/maps", F_OK) != 0, "the directory should be empty");
    fill(version);
    verify(version);
    branch(1, version);
    verify(version);
}

/* Another user by the time that memory is short. */
static void other_user(void)
{
    check(setgid(65534) == 0 && setuid(65534) == 0, "only root can do this");
    fill(1);
    verify(1);
    if (start() == 0) {
        verify(1);
        fill(9);
        verify(9);
        _exit(0);
    }
    check(wait(NULL) > 0, "wait");
    verify(1);
}

static void killed(void)
{
    fill(2);
    verify(2);
    usleep(300000); /* figures are published ten times a second */
    fill(3);
    raise(SIGKILL);
}

int main(int argc, char **argv)
{
    const char *name = argc == 3 ? argv[2] : "";

    check(argc == 3, "usage: plain_forks MIB CASE");
    words = strtoul(argv[1], NULL, 10) * 1024 * 1024 / sizeof(*memory);
    memory = malloc(words * sizeof(*memory));
    check(memory != NULL, "malloc");
    if (strcmp(name, "user") == 0) {
        other_user();
        return 0;
    }
    if (strcmp(name, "jail_early") == 0) {
        jailed(1);
        return 0;
    }
    fill(1);
    verify(1);
    if (strcmp(name, "jail") == 0)
        jailed(2);
    else if (strcmp(name, "tree") == 0)
        branch(1, 1);
    else if (strcmp(name, "orphans") == 0)
        orphans();
    else if (strcmp(name, "daemon") == 0)
        daemon_like();
    else if (strcmp(name, "exec") == 0)
        failed_exec();
    else if (strcmp(name, "killed") == 0)
        killed();
    return 0;
}
