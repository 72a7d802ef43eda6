/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc_heavy.c - a program that does little but allocate: alloc_heavy THREADS ROUNDS. Prints the nanoseconds a block.
 *
 * Knows nothing of Tiermesh; bench/malloc.c runs it with and without the preload library. Each thread, by turns: keeps
 * a working set in which blocks of mixed sizes replace each other, builds lists and takes them apart, grows arrays, and
 * hands blocks to other threads to be freed there. Small sizes are the usual ones; some blocks have kilobytes, few
 * more.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS_MAX  64
#define SET_BLOCKS   20000
#define SET_TURNS    60000
#define LIST_NODES   50000
#define ARRAYS       64
#define HANDED_TURNS 30000
#define SLOTS        1024

struct node {
    struct node *next;
    uint64_t payload[3];
};

struct worker {
    pthread_t thread;
    uint64_t random;
    unsigned rounds;
    uint64_t blocks;
};

static _Atomic(void *) slots[SLOTS];

static void stop(const char *why)
{
    fprintf(stderr, "alloc_heavy: %s\n", why);
    exit(EXIT_FAILURE);
}

static uint64_t draw(struct worker *worker)
{
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 7;
    worker->random ^= worker->random << 17;
    return worker->random;
}

/* 3 of 4 up to 128 bytes, most others up to 1 KiB, 1 of 64 up to 16 KiB, 1 of 4096 up to 256 KiB. */
static size_t size_draw(struct worker *worker)
{
    uint64_t kind = draw(worker);
    uint64_t value = draw(worker);

    if (kind % 4096 == 0)
        return 1 + value % 262144;
    if (kind % 64 == 0)
        return 1 + value % 16384;
    if (kind % 4 == 0)
        return 1 + value % 1024;
    return 1 + value % 128;
}

/* As a program would: writes what it got, the whole of a small block and the ends of others. */
static void *block_new(struct worker *worker)
{
    size_t size = size_draw(worker);
    char *block = malloc(size);

    if (block == NULL)
        stop("no memory");
    memset(block, 1, size < 256 ? size : 256);
    block[size - 1] = 1;
    worker->blocks++;
    return block;
}

static void keep_a_set(struct worker *worker)
{
    void **set = calloc(SET_BLOCKS, sizeof(*set));

    for (unsigned i = 0; i < SET_TURNS; i++) {
        size_t place = draw(worker) % SET_BLOCKS;

        free(set[place]);
        set[place] = block_new(worker);
    }
    for (unsigned i = 0; i < SET_BLOCKS; i++)
        free(set[i]);
    free(set);
}

static void build_a_list(struct worker *worker)
{
    struct node *first = NULL;

    for (unsigned i = 0; i < LIST_NODES; i++) {
        struct node *node = malloc(sizeof(*node));

        if (node == NULL)
            stop("no memory");
        *node = (struct node){first, {i, i, i}};
        first = node;
    }
    worker->blocks += LIST_NODES;
    while (first != NULL) {
        struct node *next = first->next;

        free(first);
        first = next;
    }
}

static void grow_arrays(struct worker *worker)
{
    for (unsigned i = 0; i < ARRAYS; i++) {
        size_t limit = (size_t)64 << (draw(worker) % 13);
        char *array = NULL;

        for (size_t size = 64; size <= limit; size += size / 2, worker->blocks++) {
            array = realloc(array, size);
            if (array == NULL)
                stop("no memory");
            array[size - 1] = 1;
        }
        free(array);
    }
}

static void hand_over(struct worker *worker)
{
    for (unsigned i = 0; i < HANDED_TURNS; i++)
        free(atomic_exchange(&slots[draw(worker) % SLOTS], block_new(worker)));
}

static void *work(void *argument)
{
    struct worker *worker = argument;

    for (unsigned i = 0; i < worker->rounds; i++) {
        keep_a_set(worker);
        build_a_list(worker);
        grow_arrays(worker);
        hand_over(worker);
    }
    return NULL;
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS_MAX];
    unsigned threads = argc == 3 ? (unsigned)atoi(argv[1]) : 0;
    uint64_t blocks = 0;
    double start_s;

    if (threads == 0 || threads > THREADS_MAX)
        stop("usage: alloc_heavy THREADS ROUNDS");
    start_s = now_s();
    for (unsigned i = 0; i < threads; i++) {
        workers[i].random = 0x9e3779b97f4a7c15U * (i + 1);
        workers[i].rounds = (unsigned)atoi(argv[2]);
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            stop("no thread");
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        blocks += workers[i].blocks;
    }
    printf("%.3f\n", (now_s() - start_s) * 1e9 / (double)blocks);
    return EXIT_SUCCESS;
}
