/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tight_forks.c LIMIT - forks under a limit that leaves room for nothing, then for a little more each time: fork() says
 * that there is no room, or the child has its memory whole. LIMIT: as, data, or nproc (of a user of its own; as root).
 * Limits on memory come from another process, so that nobody can prepare for them.
 */
#include "tests/shim/trap.h"

#include <fcntl.h>
#include <sys/resource.h>

#define SIZE      (24 * MIB)
#define USER      64321 /* nobody else's */
#define STEPS     64
#define STEP_KIB  4
#define FORKED_IN 20.0 /* s, at most */

struct wish {
    __rlimit_resource_t resource;
    rlim_t limit;
};

static int wishes[2], answers[2];

static void helper_run(pid_t process)
{
    struct wish wish;

    close(wishes[1]);
    while (read(wishes[0], &wish, sizeof(wish)) == (ssize_t)sizeof(wish)) {
        struct rlimit limit = {wish.limit, RLIM_INFINITY};

        CHECK(prlimit(process, wish.resource, &limit, NULL) == 0);
        CHECK(write(answers[1], "d", 1) == 1);
    }
    _exit(0);
}

static void limit_set(__rlimit_resource_t resource, rlim_t value)
{
    struct wish wish = {resource, value};
    struct rlimit own;
    char done;

    if (resource == RLIMIT_NPROC) { /* whose user is another than the helper's */
        CHECK(getrlimit(resource, &own) == 0);
        own.rlim_cur = value < own.rlim_max ? value : own.rlim_max;
        CHECK(setrlimit(resource, &own) == 0);
        return;
    }
    CHECK(write(wishes[1], &wish, sizeof(wish)) == (ssize_t)sizeof(wish) && read(answers[0], &done, 1) == 1);
}

static rlim_t status_number(const char *name)
{
    static char text[8192];
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t got = read(fd, text, sizeof(text) - 1);
    const char *at;

    CHECK(got > 0);
    close(fd);
    text[got] = 0;
    at = strstr(text, name);
    CHECK(at != NULL);
    return strtoul(at + strlen(name), NULL, 10);
}

static rlim_t limit_of(__rlimit_resource_t resource, unsigned step)
{
    if (resource == RLIMIT_NPROC)
        return status_number("\nThreads:") + step;
    return (status_number(resource == RLIMIT_AS ? "VmSize:" : "VmData:") + step * STEP_KIB) << 10;
}

/* True: there was a child. */
static bool fork_once(const char *memory, __rlimit_resource_t resource, unsigned step)
{
    double started = seconds();
    pid_t child;
    int end = 0;

    limit_set(resource, limit_of(resource, step));
    child = fork();
    if (child == 0)
        _exit(filled(memory, SIZE, 1) ? 0 : 1);
    if (child > 0)
        end = child_end(child);
    else
        CHECK(errno == ENOMEM || errno == EAGAIN);
    limit_set(resource, RLIM_INFINITY);
    if (end != 0 || seconds() - started > FORKED_IN) {
        fprintf(stderr, "step %u: the child ended with %d after %.1f s\n", step, end, seconds() - started);
        _exit(1);
    }
    return child > 0;
}

static __rlimit_resource_t resource_of(const char *name)
{
    if (strcmp(name, "as") == 0)
        return RLIMIT_AS;
    return strcmp(name, "data") == 0 ? RLIMIT_DATA : RLIMIT_NPROC;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "as";
    __rlimit_resource_t resource = resource_of(name);
    unsigned steps = resource == RLIMIT_NPROC ? 8 : STEPS, forked = 0;
    pid_t process = getpid(), helper;
    char *memory;

    if (resource == RLIMIT_NPROC && geteuid() != 0) {
        printf("SKIP: root alone can become another user\n");
        return 77;
    }
    CHECK(pipe2(wishes, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0);
    helper = fork();
    if (helper == 0)
        helper_run(process);
    close(wishes[0]);
    if (resource == RLIMIT_NPROC)
        CHECK(setresuid(USER, USER, USER) == 0);
    memory = map_filled(SIZE, 1);
    CHECK(filled(memory, SIZE, 1));
    for (unsigned step = 0; step < steps; step++)
        forked += fork_once(memory, resource, step);
    CHECK(filled(memory, SIZE, 1));
    close(wishes[1]);
    CHECK(child_end(helper) == 0);
    printf("%u of %u forks had room\n", forked, steps);
    CHECK(forked > 0 && (forked < steps || getenv("TRAP_EVICTS") == NULL));
    return 0;
}
