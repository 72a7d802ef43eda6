/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forks.c - fork from threads that are busy in malloc and in stdio: each child sees the parent's blocks as they were,
 * allocates, forks on, and ends. forks [forks-per-thread [threads]].
 */
#include "tests/shim/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 64

static int forks_each = 50;
static atomic_bool stop;

static void fill(char **blocks, int seed)
{
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = (size_t)(seed * 131 + i * 977) % 20000 + 1;

        free(blocks[i]);
        blocks[i] = malloc(size);
        memset(blocks[i], seed + i, size);
    }
}

static void verify(char **blocks, int seed)
{
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = (size_t)(seed * 131 + i * 977) % 20000 + 1;

        for (size_t at = 0; at < size; at += 97)
            CHECK(blocks[i][at] == (char)(seed + i));
    }
}

static void child(char **blocks, int seed)
{
    char *blocks_of_child[BLOCKS] = {NULL};
    char *line = NULL;
    pid_t pid;
    int status;

    verify(blocks, seed);
    fill(blocks_of_child, seed + 1);
    fill(blocks, seed + 2);
    verify(blocks_of_child, seed + 1);
    verify(blocks, seed + 2);
    fflush(NULL);
    CHECK(asprintf(&line, "%d", seed) > 0);
    free(line);
    if (seed % 10 == 0) {
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            verify(blocks, seed + 2);
            free(malloc(100));
            _exit(7);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    _exit(5);
}

static void *forker(void *argument)
{
    char *blocks[BLOCKS] = {NULL};
    int seed = (int)(intptr_t)argument * 1000;

    for (int i = 0; i < forks_each; i++) {
        pid_t pid;
        int status;

        fill(blocks, seed + i);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            child(blocks, seed + i);
        fill(blocks, seed + i + 3);
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
        verify(blocks, seed + i + 3);
    }
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return NULL;
}

/* Holds the locks of stdio, with buffers of the program's own memory. */
static void *printer(void *argument)
{
    FILE *file = tmpfile();
    char *buffer = malloc(65536);

    (void)argument;
    CHECK(file != NULL && setvbuf(file, buffer, _IOFBF, 65536) == 0);
    while (!atomic_load(&stop)) {
        for (int i = 0; i < 100; i++)
            fprintf(file, "%d %s\n", i, "some words to be written");
        fflush(NULL);
        rewind(file);
    }
    fclose(file);
    free(buffer);
    return NULL;
}

int main(int count, char **arguments)
{
    int thread_count = count > 2 ? atoi(arguments[2]) : 8;
    pthread_t threads[64];
    pthread_t printing;

    forks_each = count > 1 ? atoi(arguments[1]) : forks_each;
    CHECK(thread_count <= 64);
    CHECK(pthread_create(&printing, NULL, printer, NULL) == 0);
    for (int i = 0; i < thread_count; i++)
        CHECK(pthread_create(&threads[i], NULL, forker, (void *)(intptr_t)(i + 1)) == 0);
    for (int i = 0; i < thread_count; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    atomic_store(&stop, true);
    CHECK(pthread_join(printing, NULL) == 0);
    return 0;
}
