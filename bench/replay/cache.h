/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.h - what a trace is replayed through: the shipped policies in a small model of the pager, and the policies
 * that they are compared with.
 */
#ifndef TIERMESH_BENCH_REPLAY_CACHE_H
#define TIERMESH_BENCH_REPLAY_CACHE_H

#include "bench/replay/pages.h"

#define NEVER_AGAIN UINT32_MAX

struct cache_config {
    uint32_t frames;      /* at least 1 */
    uint32_t pages_count; /* numbers are below */
    double limbo_share;   /* shipped policies only */
    const struct pages *pages;
};

struct cache_counts {
    uint64_t misses;
    uint64_t soft_faults; /* touches that were seen, of pages that were there */
};

struct cache_ops {
    const char *name;
    uint32_t frames_min;
    bool needs_future;
    /* NULL: no memory. */
    void *(*create)(const struct cache_config *config);
    /* next: the record of the page's next touch, or NEVER_AGAIN; only where needs_future. */
    void (*touch)(void *cache, uint32_t page, uint32_t next, struct cache_counts *counts);
    void (*destroy)(void *cache);
};

const struct cache_ops *cache_find(const char *name); /* NULL: no such name */

/* list.c has the table of these. */
extern const struct cache_ops cache_arms, cache_segmented_fifo;                /* shipped.c */
extern const struct cache_ops cache_fifo, cache_lru, cache_clock, cache_lru_2; /* simple.c */
extern const struct cache_ops cache_arc, cache_lirs, cache_s3_fifo, cache_belady;

#endif
