/* SPDX-License-Identifier: Apache-2.0 */
/*
 * temporal.c - what followed this page the last time will follow it again. PURE. Run by the shard's thread.
 *
 * A ring of the last events, with the older ones of the same page chained as in LZ77. An event that no replay expects
 * is looked for: of its last occurrences the one with the longest common past is taken, and what came after it is
 * replayed. Several replays go on at a time. After Wenisch et al.: Temporal streaming of shared memory, ISCA 2005, and
 * Practical off-chip meta-data for temporal memory streaming (STMS), HPCA 2009; a longer common past instead of the
 * last occurrence alone: Bakhshalipour et al.: Domino temporal data prefetcher, HPCA 2018.
 */
#include "prefetch/predictor.h"

#include <string.h>

#define CHAIN_MAX  8u
#define PAST_MAX   8u
#define DEPTH_MIN  2u
#define RESYNC_MAX 16u /* positions that a replay may leave out */

/* ---- the tables behind the struct ------------------------------------------------------------------------------ */

/* An event: the low 40 bits of the page, and in 24 how far back the older one of the same hash is, 0: none, too far. */
#define PAGE_BITS 40
#define BACK_MAX  ((1U << 24) - 1)

static uint64_t *events_of(const struct temporal *temporal)
{
    return (uint64_t *)(void *)((char *)(uintptr_t)temporal + sizeof(*temporal));
}

static uint32_t *heads_of(const struct temporal *temporal)
{
    return (uint32_t *)(void *)(events_of(temporal) + temporal->entries);
}

size_t temporal_bytes(uint32_t entries)
{
    return sizeof(struct temporal) + (size_t)entries * sizeof(uint64_t) + (size_t)entries / 2 * sizeof(uint32_t);
}

/* Position 0 stands for none. Events are reached through the heads only. */
void temporal_init(struct temporal *temporal, uint32_t entries)
{
    *temporal = (struct temporal){.count = 1, .entries = entries};
    memset(heads_of(temporal), 0, entries / 2 * sizeof(uint32_t));
}

static uint64_t event_at(const struct temporal *temporal, uint32_t position)
{
    return events_of(temporal)[position & (temporal->entries - 1)];
}

static uint64_t page_of_event(uint64_t event)
{
    return event & (((uint64_t)1 << PAGE_BITS) - 1);
}

static uint64_t page_at(const struct temporal *temporal, uint32_t position)
{
    return page_of_event(event_at(temporal, position));
}

static uint32_t older_of(const struct temporal *temporal, uint32_t position)
{
    uint32_t back = (uint32_t)(event_at(temporal, position) >> PAGE_BITS);

    return back == 0 ? 0 : position - back;
}

static uint32_t *head_of(const struct temporal *temporal, struct page_id page)
{
    return &heads_of(temporal)[page_hash(page) & (temporal->entries / 2 - 1)];
}

static bool is_remembered(const struct temporal *temporal, uint32_t position)
{
    uint32_t age = temporal->count - position;

    return position != 0 && age > 0 && age <= temporal->entries;
}

/* How many events before these two positions are the same, one skip on either side allowed per event. */
static uint32_t common_past(const struct temporal *temporal, uint32_t a, uint32_t b)
{
    uint32_t length = 1;

    while (length < PAST_MAX && is_remembered(temporal, a - length) && is_remembered(temporal, b - length) &&
           page_at(temporal, a - length) == page_at(temporal, b - length))
        length++;
    return length;
}

void temporal_touch(const struct temporal *temporal, struct page_id page)
{
    __builtin_prefetch(head_of(temporal, page));
}

static void event_touch(const struct temporal *temporal, uint32_t position)
{
    __builtin_prefetch(&events_of(temporal)[position & (temporal->entries - 1)]);
}

void temporal_touch_event(const struct temporal *temporal, struct page_id page)
{
    event_touch(temporal, *head_of(temporal, page));
}

/* ---- occurrences ----------------------------------------------------------------------------------------------- */

struct match {
    uint32_t position; /* 0: none */
    uint32_t older;    /* the next older occurrence, 0: none */
    uint32_t length;
};

static struct match match_find(const struct temporal *temporal, struct page_id page)
{
    uint32_t position = *head_of(temporal, page);
    struct match match = {0};

    for (unsigned i = 0; i < CHAIN_MAX && is_remembered(temporal, position); i++) {
        uint32_t older = older_of(temporal, position);

        event_touch(temporal, older);
        if (page_at(temporal, position) == page.index) {
            uint32_t length = common_past(temporal, temporal->count, position);

            if (length > match.length)
                match = (struct match){.position = position, .length = length};
            else if (match.older == 0)
                match.older = position;
        }
        position = older;
    }
    return match;
}

static void record(struct temporal *temporal, struct page_id page)
{
    uint32_t *head = head_of(temporal, page);
    uint32_t back = *head == 0 ? 0 : temporal->count - *head;

    events_of(temporal)[temporal->count & (temporal->entries - 1)] =
        page_of_event(page.index) | (uint64_t)(back > BACK_MAX ? 0 : back) << PAGE_BITS;
    *head = temporal->count;
    if (++temporal->count == 0)
        temporal->count = 1;
}

/* ---- replays --------------------------------------------------------------------------------------------------- */

/* The replay that is at this position already, or expects it soon; else the one used longest ago. */
static struct replay *replay_for(struct temporal *temporal, uint32_t position)
{
    uint32_t oldest = 0;
    uint32_t age_most = 0;

    for (uint32_t i = 0; i < REPLAYS_MAX; i++) {
        const struct replay *replay = &temporal->replays[i];
        uint32_t age = temporal->count - replay->used_at;

        if (position - replay->at < RESYNC_MAX && replay->is_used)
            return &temporal->replays[i];
        oldest = age > age_most ? i : oldest;
        age_most = age > age_most ? age : age_most;
    }
    temporal->replays[oldest] = (struct replay){.depth = DEPTH_MIN};
    return &temporal->replays[oldest];
}

static void replay_move(struct temporal *temporal, struct replay *replay, uint32_t at)
{
    if (!replay->is_used || (int32_t)(replay->frontier - at) < 0)
        replay->frontier = at;
    replay->is_used = true;
    replay->at = at;
    replay->used_at = temporal->count;
}

struct replay *temporal_event(struct temporal *temporal, const struct prefetch_event *event, const struct tag *tag)
{
    struct replay *replay = NULL;

    if (tag != NULL && tag->predictor == PREFETCH_TEMPORAL) {
        struct replay *known = &temporal->replays[tag->stream];

        if (known->is_used && tag->position - known->at < 2 * PREFETCH_RUN_MAX) {
            replay = known;
            replay->length++;
            replay_move(temporal, replay, tag->position + 1);
        }
    }
    if (replay == NULL) {
        struct match match = match_find(temporal, event->page);

        if (match.position != 0) {
            replay = replay_for(temporal, match.position);
            replay_move(temporal, replay, match.position + 1);
            replay->length = replay->length + 1 > match.length ? replay->length + 1 : match.length;
            replay->other = match.older == 0 ? 0 : match.position - match.older;
        }
    }
    record(temporal, event->page);
    return replay;
}

bool temporal_next(struct temporal *temporal, struct replay *replay, struct proposal *proposal)
{
    uint32_t position = replay->frontier;
    uint32_t other = position - replay->other;

    if (position - replay->at >= replay->depth || !is_remembered(temporal, position))
        return false;
    proposal->page = page_of(page_at(temporal, position));
    proposal->distance = position - replay->at;
    proposal->length = replay->length;
    proposal->support = 0;
    if (replay->other != 0 && is_remembered(temporal, other))
        proposal->support = page_at(temporal, other) == proposal->page.index ? 2 : 1;
    replay->frontier++;
    return true;
}

void temporal_deepen(struct replay *replay, uint32_t depth_max)
{
    replay->depth = replay->depth * 2 < depth_max ? replay->depth * 2 : depth_max;
}

void temporal_cut(struct temporal *temporal, const struct tag *tag)
{
    struct replay *replay = &temporal->replays[tag->stream];

    if (replay->is_used && tag->position - replay->at < replay->frontier - replay->at)
        replay->frontier = tag->position;
}
