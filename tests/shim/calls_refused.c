/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls_refused.c - a fork that the runtime refuses fails like one that the kernel refuses: an error, no child, nothing
 * left to wait for, and no handler of the program is missed. What shares memory goes on to work.
 */
#include "tests/shim/trap.h"

#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/syscall.h>

extern char **environ;

static int prepared, finished;

static void on_prepare(void)
{
    prepared++;
}

static void on_parent(void)
{
    finished++;
}

static void on_child(void)
{
    fprintf(stderr, "code of the program ran in the child\n");
    _exit(1);
}

static int never(void *unused)
{
    (void)unused;
    on_child();
    return 1;
}

int main(void)
{
    char *const arguments[] = {(char *)"sh", (char *)"-c", (char *)"exit 5", NULL};
    char *memory = map_filled(MIB, 1), *stack = map(MIB, RW);
    struct clone_args bare = {.exit_signal = SIGCHLD};
    sigset_t before, after;
    pid_t child;

    CHECK(pthread_atfork(on_prepare, on_parent, on_child) == 0);
    CHECK(sigprocmask(SIG_SETMASK, NULL, &before) == 0);
    for (int i = 1; i <= 3; i++) {
        CHECK_ERROR(fork(), ENOMEM);
        CHECK(prepared == i && finished == i);
        CHECK_ERROR(_Fork(), ENOMEM);
        CHECK_ERROR(syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL), ENOMEM);
        CHECK_ERROR(syscall(SYS_clone, SIGCHLD | CLONE_PARENT_SETTID, NULL, memory, NULL, NULL), ENOMEM);
        CHECK_ERROR(syscall(SYS_clone3, &bare, sizeof(bare)), ENOMEM);
        CHECK_ERROR(clone(never, stack + MIB, SIGCHLD, NULL), ENOMEM);
        CHECK_ERROR(waitpid(-1, NULL, 0), ECHILD);
    }
    CHECK_ERROR(daemon(1, 1), ENOMEM);
    CHECK(sigprocmask(SIG_SETMASK, NULL, &after) == 0 && memcmp(&before, &after, sizeof(before)) == 0);
    CHECK(posix_spawnp(&child, "sh", NULL, NULL, arguments, environ) == 0 && child_end(child) == 5);
    CHECK(WEXITSTATUS(system("exit 6")) == 6);
    child = vfork();
    if (child == 0)
        _exit(7);
    CHECK(child_end(child) == 7);
    CHECK(filled(memory, MIB, 1));
    return 0;
}
