/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.h - counters and latency histograms of one shard. Written by the shard's thread alone; read through it.
 */
#ifndef TIERMESH_RUNTIME_STATS_H
#define TIERMESH_RUNTIME_STATS_H

#include "tiermesh/dsm.h"

/* Four buckets an octave: an edge is at most 19 % above the value. */
#define HISTOGRAM_BUCKETS 160

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t count;
    uint64_t sum_ns;
    uint64_t max_ns;
};

void histogram_add(struct histogram *histogram, uint64_t value_ns);
/* Upper edge of the bucket that holds the given share (0 .. 1000 permille) of the values; 0 when empty. */
uint64_t histogram_permille(const struct histogram *histogram, unsigned permille);
struct dsm_latency histogram_summary(const struct histogram *histogram);

struct stats {
    struct histogram faults[DSM_SOURCES];
    uint64_t moves[DSM_TIERS][DSM_TIERS];
    uint64_t dropped_pages;
    uint64_t invalidations;
    uint64_t prefetched_pages, prefetch_hits, prefetch_unused;
    uint64_t soft_faults; /* the page was here, in limbo */
    uint64_t poisoned_pages;
    uint64_t pinned_pages;
    uint64_t returned_pages; /* taken out of memory and put back: zmem refused them, and nothing else took them */
    uint64_t stalled_faults;
    uint64_t stalled_ns; /* these waited so long for room, which is part of what their sources count */
};

/* Faults whose bytes had to come from elsewhere. */
uint64_t stats_hard_faults(const struct stats *stats);

#endif
