/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch_ours.c - the shipped predictors on trial, all or one alone.
 */
#include "bench/replay/prefetch_list.h"

#define HISTORY_FRAMES 4u /* entries of the history for each frame */
#ifndef HISTORY_ENTRIES
#define HISTORY_ENTRIES (1u << 18) /* at least */
#endif

static struct prefetch_config config_of(uint32_t frames, uint32_t predictors)
{
    struct prefetch_config config = {
        .depth_max = 64, .fault_around = 1, .predictors = predictors, .history_entries = HISTORY_ENTRIES};

    while (config.history_entries < frames * HISTORY_FRAMES)
        config.history_entries *= 2;
    return config;
}

static size_t ours_bytes(uint32_t frames)
{
    const struct prefetch_config config = config_of(frames, 0);

    return prefetch_bytes(&config);
}

static void ours_init(void *state, uint32_t frames)
{
    const struct prefetch_config config = config_of(frames, 0);

    prefetch_init(state, &config);
}

#define ALONE(predictor, bit)                                                                                          \
    static void predictor##_init(void *state, uint32_t frames)                                                         \
    {                                                                                                                  \
        const struct prefetch_config config = config_of(frames, 1u << (bit));                                          \
        prefetch_init(state, &config);                                                                                 \
    }

ALONE(streams, PREFETCH_STREAMS)
ALONE(temporal, PREFETCH_TEMPORAL)
ALONE(signature, PREFETCH_SIGNATURE)

static void ours_event(void *state, struct page_id page, bool was_prefetched, const struct prefetch_view *view,
                       struct sim_pages *ret_pages)
{
    struct prefetch_plan plan;

    prefetch_fault(state, page, 1, was_prefetched, view, &plan);
    for (uint32_t i = 0; i < plan.runs_count; i++) {
        const struct prefetch_run *run = &plan.runs[i];

        for (uint32_t k = 0; k < run->count && ret_pages->count < SIM_PAGES_MAX; k++) {
            struct page_id at = page_of(run->first.index + (uint64_t)((int64_t)k * run->stride));

            ret_pages->is_seen[ret_pages->count] = run->is_watched || page_is(at, run->trigger);
            ret_pages->pages[ret_pages->count++] = at;
        }
    }
}

static void ours_used(void *state, struct page_id page, bool is_late)
{
    prefetch_used(state, page, is_late);
}

static void ours_wasted(void *state, struct page_id page)
{
    prefetch_wasted(state, page);
}

static void ours_evicted(void *state, struct page_id page, uint32_t unused)
{
    prefetch_evicted(state, page, unused);
}

#define OURS(word, init)                                                                                               \
    {                                                                                                                  \
        word, ours_bytes, init, ours_event, ours_used, ours_wasted, ours_evicted                                       \
    }
const struct prefetcher_ops prefetcher_ours = OURS("ours", ours_init);
const struct prefetcher_ops prefetcher_streams = OURS("streams", streams_init);
const struct prefetcher_ops prefetcher_temporal = OURS("temporal", temporal_init);
const struct prefetcher_ops prefetcher_signature = OURS("signature", signature_init);
