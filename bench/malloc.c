/* SPDX-License-Identifier: Apache-2.0 */
/*
 * malloc.c - does malloc under the preload library keep up with libc's? malloc [options] WORKER COMMAND...
 *
 * WORKER (alloc_heavy) runs alone and as the last words of COMMAND (dsmrun --ddr 1G --, say), by turns, with one thread
 * and with four; all of its memory fits. The figures are nanoseconds a block, as it says them itself.
 */
#include "bench/report.h"
#include "bench/setup.h"

#include <errno.h>
#include <getopt.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_MAX 64

extern char **environ;

/* The number that a command prints; the process ends if the command fails. */
static double run(char *const *words)
{
    posix_spawn_file_actions_t actions;
    char text[64] = "";
    int pipes[2];
    int status;
    pid_t pid;
    ssize_t size;

    if (pipe(pipes) != 0)
        die("pipe: %s", strerror(errno));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, pipes[0]);
    posix_spawn_file_actions_addclose(&actions, pipes[1]);
    if (posix_spawnp(&pid, words[0], &actions, NULL, words, environ) != 0)
        die("%s cannot be started", words[0]);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[1]);
    size = read(pipes[0], text, sizeof(text) - 1);
    close(pipes[0]);
    if (waitpid(pid, &status, 0) != pid)
        die("waitpid: %s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED)
        exit(EXIT_SKIPPED);
    if (size <= 0 || status != 0)
        die("%s ended with status %#x", words[0], (unsigned)status);
    return strtod(text, NULL);
}

static void compare(const char *name, char *const *command, char *worker, char *threads, bool is_quick)
{
    struct figure figure = {.name = name, .unit = "ns"};
    char *turns = is_quick ? "1" : "20";
    char *alone[] = {worker, threads, turns, NULL};
    char *words[WORDS_MAX];
    unsigned count = 0;

    while (command[count] != NULL && count < WORDS_MAX - 4) {
        words[count] = command[count];
        count++;
    }
    memcpy(words + count, alone, sizeof(alone));
    for (unsigned round = 0; round < (is_quick ? 1U : 9U); round++) {
        /* Who goes first alternates. */
        double first = run(round % 2 ? words : alone);
        double second = run(round % 2 ? alone : words);
        double product = round % 2 ? first : second;
        double reference = round % 2 ? second : first;

        figure_add(&figure, product, reference, product / reference);
    }
    figure_judge(&figure, BAR_AT_MOST, 1.10);
}

int main(int argc, char **argv)
{
    struct options options = options_parse(argc, argv);

    if (argc - optind < 2)
        die("usage: malloc [--quick] [--json FILE] WORKER COMMAND...");
    report_open(options.json_path);
    compare("malloc-1-thread", argv + optind + 1, argv[optind], "1", options.is_quick);
    compare("malloc-4-threads", argv + optind + 1, argv[optind], "4", options.is_quick);
    return EXIT_SUCCESS;
}
