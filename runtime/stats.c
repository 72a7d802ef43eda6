/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.c - log-linear histograms: exact below 8 ns, then four buckets an octave.
 */
#include "runtime/stats.h"

static unsigned bucket_of(uint64_t value_ns)
{
    unsigned octave;
    unsigned bucket;

    if (value_ns < 8)
        return (unsigned)value_ns;
    octave = 63 - (unsigned)__builtin_clzll(value_ns);
    bucket = octave * 4 + (unsigned)(value_ns >> (octave - 2) & 3) - 4;
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

static uint64_t bucket_edge_ns(unsigned bucket)
{
    unsigned octave = (bucket + 4) / 4;
    unsigned quarter = bucket % 4;

    if (bucket < 8)
        return bucket;
    return ((uint64_t)1 << octave) + ((uint64_t)(quarter + 1) << (octave - 2)) - 1;
}

void histogram_add(struct histogram *histogram, uint64_t value_ns)
{
    histogram->counts[bucket_of(value_ns)]++;
    histogram->count++;
    histogram->sum_ns += value_ns;
    if (value_ns > histogram->max_ns)
        histogram->max_ns = value_ns;
}

uint64_t histogram_permille(const struct histogram *histogram, unsigned permille)
{
    uint64_t wanted = (histogram->count * permille + 999) / 1000;
    uint64_t seen = 0;

    for (unsigned i = 0; i < HISTOGRAM_BUCKETS && wanted > 0; i++) {
        seen += histogram->counts[i];
        if (seen >= wanted)
            return bucket_edge_ns(i) < histogram->max_ns ? bucket_edge_ns(i) : histogram->max_ns;
    }
    return histogram->max_ns;
}

struct dsm_latency histogram_summary(const struct histogram *histogram)
{
    return (struct dsm_latency){
        .count = histogram->count,
        .p50_ns = histogram_permille(histogram, 500),
        .p99_ns = histogram_permille(histogram, 990),
        .max_ns = histogram->max_ns,
    };
}

uint64_t stats_hard_faults(const struct stats *stats)
{
    const enum dsm_source sources[] = {DSM_FROM_CXL, DSM_FROM_ZMEM, DSM_FROM_NVME, DSM_FROM_REMOTE};
    uint64_t count = 0;

    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
        count += stats->faults[sources[i]].count;
    return count;
}
