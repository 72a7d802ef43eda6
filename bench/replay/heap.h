/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heap.h - resident pages by a key that changes, the largest on top: for Belady's policy and LRU-2.
 */
#ifndef TIERMESH_BENCH_REPLAY_HEAP_H
#define TIERMESH_BENCH_REPLAY_HEAP_H

#include <stdbool.h>
#include <stdint.h>

struct heap {
    uint32_t count;
    uint32_t *pages;  /* in heap order */
    uint32_t *places; /* by page; UINT32_MAX: not in the heap */
    uint64_t *keys;   /* by page; kept when the page leaves */
};

bool heap_create(struct heap *heap, uint32_t frames, uint32_t pages_count);
void heap_destroy(struct heap *heap);
static inline bool heap_has(const struct heap *heap, uint32_t page)
{
    return heap->places[page] != UINT32_MAX;
}
void heap_put(struct heap *heap, uint32_t page, uint64_t key); /* a page that is in gets the key */
uint32_t heap_take(struct heap *heap);                         /* the page with the largest key */

#endif
