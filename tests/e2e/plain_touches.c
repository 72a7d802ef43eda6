/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain_touches.c - an ordinary program that touches pages: `plain_touches MIB ROUNDS END`. Fills a block of so many
 * MiB and goes through its pages so often, in an order that hops; then ends by exit, by _exit, by SIGKILL ("kill") or,
 * as "fork", has a child do the rounds once more, which ends by _exit, and exits.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES 4096
#define STEP       40503u /* a prime larger than half of the pages */

static unsigned char *block;
static size_t pages_count;

static void rounds_do(int rounds)
{
    for (size_t i = 0; i < pages_count * (size_t)rounds; i++) {
        size_t page = i * STEP % pages_count;

        if (block[page * PAGE_BYTES] != (unsigned char)page)
            abort();
        if (page % 4 == 0)
            block[page * PAGE_BYTES + 1]++;
    }
}

static void wait_a_while(void)
{
    struct timespec time = {.tv_nsec = 400000000};

    nanosleep(&time, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    pages_count = strtoul(argv[1], NULL, 10) * 256 - 1;
    block = malloc(pages_count * PAGE_BYTES);
    if (block == NULL)
        return 3;
    for (size_t i = 0; i < pages_count; i++)
        memset(block + i * PAGE_BYTES, (int)i, PAGE_BYTES);
    rounds_do(atoi(argv[2]));
    if (strcmp(argv[3], "fork") == 0) {
        int status = -1;

        if (fork() == 0) {
            rounds_do(atoi(argv[2]));
            wait_a_while();
            _exit(0);
        }
        return wait(&status) > 0 && status == 0 ? 0 : 4;
    }
    if (strcmp(argv[3], "exit") != 0)
        wait_a_while();
    if (strcmp(argv[3], "_exit") == 0)
        _exit(0);
    if (strcmp(argv[3], "kill") == 0)
        raise(SIGKILL);
    return 0;
}
