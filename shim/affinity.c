/* SPDX-License-Identifier: Apache-2.0 */
/*
 * affinity.c - calls that look at a thread's processors, change them, or make a thread or process that inherits them.
 *
 * The runtime may keep a thread that faults on one processor (runtime/affine.h). It is let go before each of these.
 */
#include "shim/calls.h"

#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>
#include <unistd.h>

/* A function of libc with its masks settled first. */
#define SETTLED(type, name, parameters, arguments)                                                                     \
    SHIM_EXPORT type name parameters                                                                                   \
    {                                                                                                                  \
        static type(*libc) parameters;                                                                                 \
                                                                                                                       \
        if (libc == NULL)                                                                                              \
            libc = shim_libc_symbol(#name);                                                                            \
        hooks_settle_affinity();                                                                                       \
        return libc arguments;                                                                                         \
    }

SETTLED(int, sched_getaffinity, (pid_t pid, size_t size, cpu_set_t *set), (pid, size, set))
SETTLED(int, sched_setaffinity, (pid_t pid, size_t size, const cpu_set_t *set), (pid, size, set))
SETTLED(int, pthread_getaffinity_np, (pthread_t thread, size_t size, cpu_set_t *set), (thread, size, set))
SETTLED(int, pthread_setaffinity_np, (pthread_t thread, size_t size, const cpu_set_t *set), (thread, size, set))

SETTLED(int, pthread_create,
        (pthread_t *restrict thread, const pthread_attr_t *restrict attributes, void *(*run)(void *),
         void *restrict argument),
        (thread, attributes, run, argument))
SETTLED(int, thrd_create, (thrd_t *thread, thrd_start_t run, void *argument), (thread, run, argument))

SETTLED(int, posix_spawn,
        (pid_t *restrict pid, const char *restrict path, const posix_spawn_file_actions_t *actions,
         const posix_spawnattr_t *restrict attributes, char *const arguments[restrict],
         char *const environment[restrict]),
        (pid, path, actions, attributes, arguments, environment))
SETTLED(int, posix_spawnp,
        (pid_t *restrict pid, const char *restrict file, const posix_spawn_file_actions_t *actions,
         const posix_spawnattr_t *restrict attributes, char *const arguments[restrict],
         char *const environment[restrict]),
        (pid, file, actions, attributes, arguments, environment))
SETTLED(int, system, (const char *command), (command))
SETTLED(FILE *, popen, (const char *command, const char *mode), (command, mode))

SETTLED(int, execve, (const char *path, char *const arguments[], char *const environment[]),
        (path, arguments, environment))
SETTLED(int, execv, (const char *path, char *const arguments[]), (path, arguments))
SETTLED(int, execvp, (const char *file, char *const arguments[]), (file, arguments))
SETTLED(int, execvpe, (const char *file, char *const arguments[], char *const environment[]),
        (file, arguments, environment))
SETTLED(int, fexecve, (int fd, char *const arguments[], char *const environment[]), (fd, arguments, environment))
SETTLED(int, execveat,
        (int directory, const char *path, char *const arguments[], char *const environment[], int flags),
        (directory, path, arguments, environment, flags))

/* ---- arguments as a list ---------------------------------------------------------------------------------------- */

/* Counts the list, which ends with NULL, and takes it into an array on the stack. */
#define LIST_TAKE(first, last, ret_array, list)                                                                        \
    do {                                                                                                               \
        size_t count = 1;                                                                                              \
                                                                                                                       \
        va_start(list, last);                                                                                          \
        while (va_arg(list, char *) != NULL)                                                                           \
            count++;                                                                                                   \
        va_end(list);                                                                                                  \
        (ret_array) = __builtin_alloca((count + 1) * sizeof(char *));                                                  \
        (ret_array)[0] = (char *)(uintptr_t)(first);                                                                   \
        va_start(list, last);                                                                                          \
        for (size_t i = 1; i <= count; i++)                                                                            \
            (ret_array)[i] = va_arg(list, char *);                                                                     \
    } while (0)

/* `name` with its arguments as a list is `call` with an array. */
#define LISTED(name, call)                                                                                             \
    SHIM_EXPORT int name(const char *program, const char *argument, ...)                                               \
    {                                                                                                                  \
        char **arguments;                                                                                              \
        va_list list;                                                                                                  \
                                                                                                                       \
        LIST_TAKE(argument, argument, arguments, list);                                                                \
        va_end(list);                                                                                                  \
        return call(program, arguments);                                                                               \
    }

LISTED(execl, execv)
LISTED(execlp, execvp)

SHIM_EXPORT int execle(const char *path, const char *argument, ...)
{
    char **arguments;
    char **environment;
    va_list list;

    LIST_TAKE(argument, argument, arguments, list);
    environment = va_arg(list, char **);
    va_end(list);
    return execve(path, arguments, environment);
}

/* ---- vfork ------------------------------------------------------------------------------------------------------ */

/* It returns twice on one stack, so libc's own must find the stack as the caller left it. */
#if defined(__x86_64__)
void *shim_vfork_begin(void);

__attribute__((used, visibility("hidden"))) void *shim_vfork_begin(void)
{
    hooks_settle_affinity();
    return shim_libc_symbol("vfork");
}

__asm__(".text\n"
        ".p2align 4\n"
        ".globl vfork\n"
        ".type vfork, @function\n"
        "vfork:\n"
        ".cfi_startproc\n"
        "    subq $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "    call shim_vfork_begin\n"
        "    addq $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "    jmp *%rax\n"
        ".cfi_endproc\n"
        ".size vfork, .-vfork\n");
#endif
