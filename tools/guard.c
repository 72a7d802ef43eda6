/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guard.c - the process above each node's program: starts it, passes signals on, and leaves nothing behind.
 *
 * One thread, every signal blocked. It is the child subreaper, so whatever the program starts, in whatever session or
 * process group, becomes a child of the guard at the latest when its own parent ends. The program itself also gets
 * SIGKILL from the kernel should the guard be killed; what it started then falls to dsmrun, a subreaper too.
 */
#include "tools/guard.h"
#include "base/error.h"
#include "tools/launch.h"
#include "tools/program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#define KEY_BYTES     32
#define KEY_FD_LOWEST 100

struct guard {
    int control;
    int signals; /* signalfd: SIGCHLD, SIGTERM */
    const char *directory;
    pid_t program;
    bool is_program_ended;
    int status; /* of the program */
};

/* Children end at once, and theirs become ours meanwhile: so again until none is left. */
static void kill_children(void)
{
    FILE *file = fopen("/proc/thread-self/children", "re");
    int pid;

    while (file != NULL && fscanf(file, "%d", &pid) == 1)
        (void)kill(pid, SIGKILL);
    if (file != NULL)
        fclose(file);
}

void guard_end_descendants(void (*ended)(void *context, int pid, int status), void *context)
{
    for (;;) {
        int status;
        pid_t pid;

        kill_children();
        pid = waitpid(-1, &status, 0);
        if (pid > 0)
            ended(context, pid, status);
        else if (errno != EINTR)
            return;
    }
}

void guard_remove_directory(const char *path)
{
    DIR *directory = opendir(path);
    struct dirent *entry;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
    }
    if (directory != NULL)
        closedir(directory);
    (void)rmdir(path);
}

static void child_ended(void *context, int pid, int status)
{
    struct guard *guard = context;

    if (pid == guard->program) {
        guard->is_program_ended = true;
        guard->status = status;
    }
}

/* The key, from the control into a file that the program inherits. 0, or an exit status with a sentence. */
static int key_take(int control)
{
    uint8_t key[KEY_BYTES];
    size_t have = 0;
    char number[16];
    int fd;

    while (have < sizeof(key)) {
        ssize_t got = read(control, key + have, sizeof(key) - have);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return error_set(EX_PROTOCOL, "dsmrun ended before it handed over the job's key");
        have += (size_t)got;
    }
    /* High, where a program that knows nothing of us does not count on a number. */
    fd = memfd_create("tiermesh-key", 0);
    if (fd >= 0 && fd < KEY_FD_LOWEST) {
        int high = fcntl(fd, F_DUPFD, KEY_FD_LOWEST);

        if (high >= 0)
            close(fd);
        fd = high >= 0 ? high : fd;
    }
    if (fd < 0 || write(fd, key, sizeof(key)) != (ssize_t)sizeof(key))
        return error_set(EX_OSERR, "a file in memory for the job's key: %s", strerror(errno));
    explicit_bzero(key, sizeof(key));
    snprintf(number, sizeof(number), "%d", fd);
    if (setenv("DSM_KEY_FD", number, 1) < 0)
        return error_set(EX_OSERR, "no memory for the environment");
    return 0;
}

/* The preload library is the program's alone. */
static void preload_set(void)
{
    const char *libraries = getenv(LAUNCH_PRELOAD_VARIABLE);

    if (libraries != NULL)
        (void)setenv("LD_PRELOAD", libraries, 1);
    (void)unsetenv(LAUNCH_PRELOAD_VARIABLE);
    (void)unsetenv(LAUNCH_UNMANAGED_VARIABLE);
}

/* In the child. Becomes the program, or says why not. */
static _Noreturn void program_run(const char *path, char **words, pid_t guard)
{
    sigset_t none;

    sigemptyset(&none);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guard)
        _exit(128 + SIGKILL); /* it died before the line above could see it */
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    preload_set();
    execvp(path, words);
    fprintf(stderr, "dsmrun: cannot run %s: %s\n", path, strerror(errno));
    _exit(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

static int program_start(struct guard *guard, char **words)
{
    char path[PATH_MAX];
    pid_t self = getpid();
    int status = program_find(words[0], path, sizeof(path));

    if (status == EX_NOPERM && getenv(LAUNCH_UNMANAGED_VARIABLE) != NULL)
        status = 0;
    if (status != 0)
        return status;
    guard->program = fork();
    if (guard->program < 0)
        return error_set(EX_OSERR, "start %s: %s", words[0], strerror(errno));
    if (guard->program == 0)
        program_run(path, words, self);
    (void)setpgid(guard->program, guard->program); /* whichever of the two comes first */
    return 0;
}

static void end_all(struct guard *guard)
{
    if (!guard->is_program_ended)
        (void)kill(-guard->program, SIGKILL);
    guard_end_descendants(child_ended, guard);
}

/* What dsmrun says. Its end is noticed here, too. */
static void control_read(struct guard *guard)
{
    uint8_t bytes[64];
    ssize_t got = read(guard->control, bytes, sizeof(bytes));

    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got <= 0) {
        end_all(guard);
        if (strcmp(guard->directory, "-") != 0)
            guard_remove_directory(guard->directory);
        return;
    }
    for (ssize_t i = 0; i < got; i++) {
        if (bytes[i] == SIGKILL)
            end_all(guard);
        else if (bytes[i] < NSIG && !guard->is_program_ended)
            (void)kill(-guard->program, bytes[i]);
    }
}

static void signals_read(struct guard *guard)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;

    while (read(guard->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGTERM)
            end_all(guard);
    }
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        child_ended(guard, pid, status);
}

/* Until the program has ended, by itself or not; then everything that it left behind ends. */
static void watch(struct guard *guard)
{
    while (!guard->is_program_ended) {
        struct pollfd both[] = {{.fd = guard->signals, .events = POLLIN}, {.fd = guard->control, .events = POLLIN}};

        if (poll(both, 2, -1) < 0)
            continue;
        if (both[0].revents != 0)
            signals_read(guard);
        if (both[1].revents != 0 && !guard->is_program_ended)
            control_read(guard);
    }
    end_all(guard);
}

static int signals_open(int *ret_fd)
{
    sigset_t all, wanted;
    int fd;

    sigfillset(&all);
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    sigaddset(&wanted, SIGTERM);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return error_set(EX_OSERR, "a descriptor for signals: %s", strerror(errno));
    *ret_fd = fd;
    return 0;
}

/* Over a launcher the control is standard input; the program then reads from nowhere. */
static int control_open(const char *text, int *ret_control)
{
    int control = atoi(text);
    int null;

    if (control == STDIN_FILENO) {
        control = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
        null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (control < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0)
            return error_set(EX_OSERR, "/dev/null as standard input: %s", strerror(errno));
        close(null);
    } else if (fcntl(control, F_SETFD, FD_CLOEXEC) < 0) {
        return error_set(EX_USAGE, "%s is for dsmrun's own use", GUARD_WORD);
    }
    *ret_control = control;
    return 0;
}

int guard_main(int argc, char **argv)
{
    struct guard guard = {.control = -1};
    int status;

    if (argc < 5) {
        fprintf(stderr, "dsmrun: %s is for dsmrun's own use\n", GUARD_WORD);
        return EX_USAGE;
    }
    guard.directory = argv[3];
    status = control_open(argv[2], &guard.control);
    /* Away from the terminal's signals: dsmrun passes on what the program shall get. */
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* A launcher that became this process passed it on; but a guard outlives dsmrun until all below it has ended. */
    (void)prctl(PR_SET_PDEATHSIG, 0);
    if (status == 0)
        status = signals_open(&guard.signals);
    if (status == 0)
        status = key_take(guard.control);
    if (status == 0)
        status = program_start(&guard, argv + 4);
    if (status != 0) {
        fprintf(stderr, "dsmrun: %s\n", error_text());
        return status;
    }
    watch(&guard);
    return WIFSIGNALED(guard.status) ? 128 + WTERMSIG(guard.status) : WEXITSTATUS(guard.status);
}
