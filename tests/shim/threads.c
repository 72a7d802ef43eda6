/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads.c - threads that allocate, check, resize and free each other's blocks through one table; threads that come
 * and go; a destructor that allocates after the heap took leave of the thread. threads [seconds [threads]].
 */
#include "tests/shim/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define SLOTS 4096

struct block {
    size_t size;
    unsigned char fill;
    unsigned char bytes[];
};

static _Atomic(struct block *) slots[SLOTS];
static atomic_bool stop;
static atomic_ulong done;
static pthread_key_t key;

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static size_t random_size(uint64_t *state)
{
    uint64_t draw = next_random(state);

    if (draw % 5000 == 0)
        return (size_t)33 << 20;
    if (draw % 200 == 0)
        return next_random(state) % 500000;
    return next_random(state) % 1000;
}

static bool holds(const struct block *block)
{
    /* The ends and a few in between; a large block is not read whole. */
    for (size_t i = 0; i < block->size; i += 1 + block->size / 64)
        if (block->bytes[i] != block->fill)
            return false;
    return block->size == 0 || block->bytes[block->size - 1] == block->fill;
}

static struct block *block_new(uint64_t *state)
{
    size_t size = random_size(state);
    bool zeroed = next_random(state) % 2;
    struct block *block = zeroed ? calloc(1, sizeof(*block) + size) : malloc(sizeof(*block) + size);

    CHECK(block != NULL);
    if (zeroed)
        for (size_t i = 0; i < size; i += 1 + size / 64)
            CHECK(block->bytes[i] == 0);
    block->size = size;
    block->fill = (unsigned char)next_random(state);
    memset(block->bytes, block->fill, size);
    return block;
}

static struct block *block_resize(struct block *block, uint64_t *state)
{
    size_t size = random_size(state);
    size_t before = block->size;

    block = realloc(block, sizeof(*block) + size);
    CHECK(block != NULL);
    block->size = size < before ? size : before;
    CHECK(holds(block));
    block->size = size;
    memset(block->bytes, block->fill, size);
    return block;
}

static void *work(void *argument)
{
    uint64_t state = (uintptr_t)argument * 0x9e3779b97f4a7c15U + 1;
    unsigned long count = 0;

    CHECK(pthread_setspecific(key, malloc(10)) == 0);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        size_t slot = next_random(&state) % SLOTS;
        struct block *block = block_new(&state);

        if (count % 8 == 0)
            block = block_resize(block, &state);
        block = atomic_exchange(&slots[slot], block);
        if (block != NULL) {
            CHECK(holds(block));
            free(block);
        }
        if (++count % 20000 == 0)
            break; /* another thread goes on */
    }
    atomic_fetch_add(&done, count);
    return NULL;
}

/* Comes again in each round of destructors, so that it runs after those of the heap. */
static void destroy(void *memory)
{
    static _Thread_local int rounds;
    char *more = malloc(100);

    memset(more, 1, 100);
    more = realloc(more, 100000);
    free(more);
    free(memory);
    if (++rounds < 3)
        pthread_setspecific(key, malloc(20));
}

int main(int count, char **arguments)
{
    int seconds = count > 1 ? atoi(arguments[1]) : 3;
    int thread_count = count > 2 ? atoi(arguments[2]) : 8;
    pthread_t threads[64];
    time_t end = time(NULL) + seconds;
    size_t absent = 0;

    CHECK(thread_count <= 64);
    CHECK(pthread_key_create(&key, destroy) == 0);
    for (uintptr_t generation = 1; time(NULL) < end; generation++) {
        for (int i = 0; i < thread_count; i++)
            CHECK(pthread_create(&threads[i], NULL, work, (void *)(generation * 100 + (uintptr_t)i)) == 0);
        for (int i = 0; i < thread_count; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
    }
    for (size_t i = 0; i < SLOTS; i++)
        if (slots[i] != NULL)
            absent += absent_pages(slots[i], slots[i]->size);
    for (size_t i = 0; i < SLOTS; i++) {
        if (slots[i] != NULL)
            CHECK(holds(slots[i]));
        free(slots[i]);
    }
    CHECK(!expect_evictions() || absent > 0);
    printf("%lu blocks\n", atomic_load(&done));
    return atomic_load(&done) > 0 ? 0 : 1;
}
