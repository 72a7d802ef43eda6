/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heap.c - a binary heap, and on it Belady's policy and LRU-2.
 *
 * Belady: A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 1966. LRU-2: O'Neil,
 * O'Neil, Weikum, SIGMOD 1993; the time of the touch before the last decides, history is kept for all pages.
 */
#include "bench/replay/heap.h"
#include "bench/replay/cache.h"

#include <stdlib.h>
#include <string.h>

bool heap_create(struct heap *heap, uint32_t frames, uint32_t pages_count)
{
    heap->count = 0;
    heap->pages = malloc(((size_t)frames + 1) * sizeof(*heap->pages));
    heap->places = malloc(((size_t)pages_count + 1) * sizeof(*heap->places));
    heap->keys = calloc((size_t)pages_count + 1, sizeof(*heap->keys));
    if (heap->pages == NULL || heap->places == NULL || heap->keys == NULL)
        return false;
    memset(heap->places, 0xff, (size_t)pages_count * sizeof(*heap->places));
    return true;
}

void heap_destroy(struct heap *heap)
{
    free(heap->pages);
    free(heap->places);
    free(heap->keys);
}

static void place_set(struct heap *heap, uint32_t place, uint32_t page)
{
    heap->pages[place] = page;
    heap->places[page] = place;
}

static void sift_up(struct heap *heap, uint32_t place, uint32_t page)
{
    while (place > 0 && heap->keys[heap->pages[(place - 1) / 2]] < heap->keys[page]) {
        place_set(heap, place, heap->pages[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    place_set(heap, place, page);
}

static void sift_down(struct heap *heap, uint32_t place, uint32_t page)
{
    for (;;) {
        uint32_t child = 2 * place + 1;

        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && heap->keys[heap->pages[child + 1]] > heap->keys[heap->pages[child]])
            child++;
        if (heap->keys[heap->pages[child]] <= heap->keys[page])
            break;
        place_set(heap, place, heap->pages[child]);
        place = child;
    }
    place_set(heap, place, page);
}

void heap_put(struct heap *heap, uint32_t page, uint64_t key)
{
    uint64_t before = heap->keys[page];

    heap->keys[page] = key;
    if (!heap_has(heap, page))
        sift_up(heap, heap->count++, page);
    else if (key > before)
        sift_up(heap, heap->places[page], page);
    else
        sift_down(heap, heap->places[page], page);
}

uint32_t heap_take(struct heap *heap)
{
    uint32_t page = heap->pages[0];
    uint32_t last = heap->pages[--heap->count];

    heap->places[page] = UINT32_MAX;
    if (heap->count > 0)
        sift_down(heap, 0, last);
    return page;
}

/* ---- the policies ----------------------------------------------------------------------------------------------- */

struct ordered {
    struct heap heap;
    uint32_t frames;
    uint64_t now;
    uint64_t *touched; /* when, by page; 0: never */
};

static void ordered_destroy(void *cache)
{
    struct ordered *ordered = cache;

    heap_destroy(&ordered->heap);
    free(ordered->touched);
    free(ordered);
}

static void *ordered_create(const struct cache_config *config)
{
    struct ordered *ordered = calloc(1, sizeof(*ordered));

    if (ordered == NULL)
        return NULL;
    ordered->frames = config->frames;
    ordered->touched = calloc(config->pages_count, sizeof(*ordered->touched));
    if (heap_create(&ordered->heap, config->frames, config->pages_count) && ordered->touched != NULL)
        return ordered;
    ordered_destroy(ordered);
    return NULL;
}

static void ordered_touch(struct ordered *ordered, uint32_t page, uint64_t key, struct cache_counts *counts)
{
    if (heap_has(&ordered->heap, page)) {
        counts->soft_faults++;
    } else {
        counts->misses++;
        if (ordered->heap.count == ordered->frames)
            heap_take(&ordered->heap);
    }
    heap_put(&ordered->heap, page, key);
}

/* The page whose next touch is farthest leaves. */
static void belady_touch(void *cache, uint32_t page, uint32_t next, struct cache_counts *counts)
{
    ordered_touch(cache, page, next, counts);
}

/* The touch before the last, the older the sooner out; pages touched once come first, by their touch. */
static void lru_2_touch(void *cache, uint32_t page, uint32_t next, struct cache_counts *counts)
{
    struct ordered *ordered = cache;
    uint64_t before = ordered->touched[page];

    (void)next;
    ordered->touched[page] = ++ordered->now;
    ordered_touch(ordered, page, before != 0 ? UINT64_MAX / 2 - before : UINT64_MAX - ordered->now, counts);
}

const struct cache_ops cache_belady = {"belady", 1, true, ordered_create, belady_touch, ordered_destroy};
const struct cache_ops cache_lru_2 = {"lru-2", 1, false, ordered_create, lru_2_touch, ordered_destroy};
