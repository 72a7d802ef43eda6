/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simple.c - FIFO, LRU and CLOCK (Corbato 1968), to compare with.
 */
#include "bench/replay/cache.h"
#include "bench/replay/queue.h"

#include <string.h>

struct simple {
    uint32_t frames;
    struct links links;
    struct queue queue;
    bool *is_resident;
    bool *is_touched; /* since the hand passed: CLOCK */
};

static void simple_destroy(void *cache)
{
    struct simple *simple = cache;

    links_destroy(&simple->links);
    free(simple->is_resident);
    free(simple->is_touched);
    free(simple);
}

static void *simple_create(const struct cache_config *config)
{
    struct simple *simple = calloc(1, sizeof(*simple));

    if (simple == NULL)
        return NULL;
    simple->frames = config->frames;
    simple->queue = queue_new();
    simple->is_resident = calloc(config->pages_count, sizeof(bool));
    simple->is_touched = calloc(config->pages_count, sizeof(bool));
    if (links_create(&simple->links, config->pages_count) && simple->is_resident != NULL && simple->is_touched != NULL)
        return simple;
    simple_destroy(simple);
    return NULL;
}

/* The page takes the place of the oldest. */
static void simple_insert(struct simple *simple, uint32_t page, struct cache_counts *counts)
{
    counts->misses++;
    if (simple->queue.count == simple->frames)
        simple->is_resident[queue_pop(&simple->queue, &simple->links)] = false;
    simple->is_resident[page] = true;
    queue_push(&simple->queue, &simple->links, page);
}

static void fifo_touch(void *cache, uint32_t page, uint32_t next, struct cache_counts *counts)
{
    struct simple *simple = cache;

    (void)next;
    if (simple->is_resident[page])
        counts->soft_faults++;
    else
        simple_insert(simple, page, counts);
}

static void lru_touch(void *cache, uint32_t page, uint32_t next, struct cache_counts *counts)
{
    struct simple *simple = cache;

    (void)next;
    if (!simple->is_resident[page]) {
        simple_insert(simple, page, counts);
        return;
    }
    counts->soft_faults++;
    queue_remove(&simple->queue, &simple->links, page);
    queue_push(&simple->queue, &simple->links, page);
}

static void clock_touch(void *cache, uint32_t page, uint32_t next, struct cache_counts *counts)
{
    struct simple *simple = cache;

    (void)next;
    if (simple->is_resident[page]) {
        counts->soft_faults++;
        simple->is_touched[page] = true;
        return;
    }
    while (simple->queue.count == simple->frames && simple->is_touched[simple->queue.head]) {
        uint32_t spared = queue_pop(&simple->queue, &simple->links);

        simple->is_touched[spared] = false;
        queue_push(&simple->queue, &simple->links, spared);
    }
    simple_insert(simple, page, counts);
}

const struct cache_ops cache_fifo = {"fifo", 1, false, simple_create, fifo_touch, simple_destroy};
const struct cache_ops cache_lru = {"lru", 1, false, simple_create, lru_touch, simple_destroy};
const struct cache_ops cache_clock = {"clock", 1, false, simple_create, clock_touch, simple_destroy};
