/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch.c - asks the predictors in turn, under their throttles. PURE. Run by the shard's thread.
 *
 * Fault-around is the last predictor: it proposes the aligned block around a fault that no stream explains.
 */
#include "prefetch/prefetch.h"
#include "base/assert.h"
#include "prefetch/predictor.h"

enum predictor {
    PREDICTOR_SEQUENTIAL = 0,
    PREDICTOR_AROUND = 1,
    PREDICTORS = 2,
};

struct prefetch {
    struct prefetch_config config;
    struct prefetch_counters counters;
    struct throttle throttles[PREDICTORS];
    struct sequential sequential;
};

static bool around_fault(void *state, const struct prefetch_event *event, uint32_t depth, struct prefetch_run *run)
{
    (void)state;
    if (event->was_prefetched)
        return false;
    if (depth > 1) {
        run->first = page_of(event->page.index - event->page.index % depth);
        run->count = depth;
    }
    return true;
}

static const struct predictor_ops predictors[PREDICTORS] = {
    [PREDICTOR_SEQUENTIAL] = {"sequential", offsetof(struct prefetch, sequential), sequential_fault,
                              sequential_covered, sequential_cut},
    [PREDICTOR_AROUND] = {"fault-around", 0, around_fault, NULL, NULL},
};

size_t prefetch_bytes(void)
{
    return sizeof(struct prefetch);
}

void prefetch_init(struct prefetch *prefetch, const struct prefetch_config *config)
{
    *prefetch = (struct prefetch){.config = *config};
    if (prefetch->config.fault_around > PREFETCH_RUN_MAX)
        prefetch->config.fault_around = PREFETCH_RUN_MAX;
    for (unsigned i = 0; i < PREDICTORS; i++)
        throttle_init(&prefetch->throttles[i]);
    sequential_init(&prefetch->sequential);
}

static void *state_of(struct prefetch *prefetch, enum predictor predictor)
{
    return (char *)prefetch + predictors[predictor].state_offset;
}

static uint32_t depth_of(const struct prefetch *prefetch, enum predictor predictor)
{
    return predictor == PREDICTOR_AROUND ? prefetch->config.fault_around : prefetch->config.depth_max;
}

/* The run of this predictor goes out; the others hear of it. */
static void run_take(struct prefetch *prefetch, enum predictor taken, const struct prefetch_event *event,
                     struct prefetch_run *run)
{
    run->predictor = (uint8_t)taken;
    prefetch->counters.issued += run->count;
    for (enum predictor i = 0; i < PREDICTORS && run->count > 0; i++) {
        if (i != taken && predictors[i].covered != NULL)
            predictors[i].covered(state_of(prefetch, i), event, run);
    }
}

void prefetch_fault(struct prefetch *prefetch, struct page_id page, uint32_t thread, bool was_prefetched,
                    struct prefetch_run *ret_run)
{
    const struct prefetch_event event = {page, thread, was_prefetched};

    *ret_run = (struct prefetch_run){.first = page, .trigger = PAGE_NONE, .stride = 1};
    if (prefetch->config.depth_max == 0)
        return;
    for (enum predictor i = 0; i < PREDICTORS; i++) {
        uint32_t wanted = depth_of(prefetch, i);
        uint32_t allowed = throttle_depth(&prefetch->throttles[i], wanted);

        if (!predictors[i].fault(state_of(prefetch, i), &event, allowed, ret_run))
            continue;
        throttle_issued(&prefetch->throttles[i], ret_run->count);
        prefetch->counters.throttled += allowed < wanted;
        if (allowed > 0) {
            run_take(prefetch, i, &event, ret_run);
            return;
        }
    }
}

void prefetch_cut(struct prefetch *prefetch, const struct prefetch_run *run, uint32_t count)
{
    ASSERT(run->predictor < PREDICTORS && count <= run->count);
    if (predictors[run->predictor].cut != NULL && count < run->count)
        predictors[run->predictor].cut(state_of(prefetch, run->predictor), run, count);
}

void prefetch_used(struct prefetch *prefetch, uint8_t predictor)
{
    ASSERT(predictor < PREDICTORS);
    prefetch->counters.used++;
    throttle_judge(&prefetch->throttles[predictor], true);
}

void prefetch_wasted(struct prefetch *prefetch, uint8_t predictor)
{
    ASSERT(predictor < PREDICTORS);
    prefetch->counters.wasted++;
    throttle_judge(&prefetch->throttles[predictor], false);
}

void prefetch_counters_get(const struct prefetch *prefetch, struct prefetch_counters *ret_counters)
{
    *ret_counters = prefetch->counters;
}
