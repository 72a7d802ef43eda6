/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predictor.h - the parts of prefetch/ and how they speak with each other. Private to prefetch/. PURE.
 *
 * A predictor learns from each event and proposes pages; the filter says how likely each is to be used; a tag
 * remembers what was proposed until its fate is known, and teaches the filter.
 */
#ifndef TIERMESH_PREFETCH_PREDICTOR_H
#define TIERMESH_PREFETCH_PREDICTOR_H

#include "prefetch/prefetch.h"

struct prefetch_event {
    struct page_id page;
    uint32_t thread;
    bool was_prefetched;
};

static inline uint32_t page_hash(struct page_id page)
{
    return (uint32_t)(page.index * 0x9e3779b97f4a7c15U >> 32);
}

/* 0, 1, 2-3, 4-7, ...: how many bits it takes, `max` at most. */
static inline uint32_t bucket_of(uint32_t value, uint32_t max)
{
    uint32_t bits = value == 0 ? 0 : 32 - (uint32_t)__builtin_clz(value);

    return bits < max ? bits : max;
}

/* ---- sequential.c: streams ------------------------------------------------------------------------------------ */

#define STREAMS_MAX    16u
#define STRIDE_MAX     16 /* pages; a larger step is not a stream */
#define CANDIDATES_MAX 8u /* streams not confirmed may replace confirmed ones up to this many */

struct stream {
    uint64_t last;      /* page touched last */
    uint64_t frontier;  /* confirmed: the first page of the stream not asked for yet */
    uint64_t low, high; /* candidate: `last`, or the block around `last` that fault-around brought */
    uint32_t thread;
    uint32_t window;  /* pages that are wanted ahead of last */
    uint32_t used_at; /* of the last event, for replacement */
    uint32_t steps;   /* confirmed: events since */
    int32_t stride;   /* confirmed: the step; candidate: the last step seen, 0 for none */
    bool is_used;
    bool is_confirmed;
};

struct sequential {
    struct stream streams[STREAMS_MAX];
    uint32_t events;
};

void sequential_init(struct sequential *sequential);
/*
 * Learns from the event, and proposes at most `depth` pages (0: only learns). The proposal will be issued as it is, so
 * the state counts on it until it is told of a cut. Writes first, trigger, count and stride; count stays 0 for nothing.
 * Returns how many events the stream of this event has explained, 0: none has.
 */
uint32_t sequential_fault(struct sequential *sequential, const struct prefetch_event *event, uint32_t depth,
                          bool is_told, struct prefetch_run *run);
/* Another predictor's run was taken for the event. */
void sequential_covered(struct sequential *sequential, const struct prefetch_event *event,
                        const struct prefetch_run *run);
/* Of its run only the first `count` pages were brought. */
void sequential_cut(struct sequential *sequential, const struct prefetch_run *run, uint32_t count);

/* ---- throttle.c: is a predictor worth its pages? --------------------------------------------------------------- */

#define ACCURACY_ONE 65536u

struct throttle {
    uint32_t accuracy; /* moving average of used (1) and wasted (0), in 1/65536 */
    uint32_t skipped;  /* events explained without a run since the last one */
    bool is_off;
};

void throttle_init(struct throttle *throttle);
void throttle_judge(struct throttle *throttle, bool was_used);
/* Pages that may be proposed now out of `depth`; 0: none. */
uint32_t throttle_depth(const struct throttle *throttle, uint32_t depth);
/* An event of this predictor was answered with `count` pages: tells the throttle when to probe. */
void throttle_issued(struct throttle *throttle, uint32_t count);

/* ---- filter.c: how likely is a proposal? ----------------------------------------------------------------------- */

#define FEATURES        6
#define FEATURE_WEIGHTS 1024u
#define LIKELY_ONE      1024u /* certainty */

struct filter {
    int16_t weights[FEATURES][FEATURE_WEIGHTS];
};

/* What is known of a proposal: one weight of each feature speaks. */
struct features {
    uint16_t at[FEATURES];
};

/* For features_of(). */
struct proposal {
    struct page_id page, trigger;
    enum prefetch_predictor predictor;
    uint32_t length;   /* events that the predictor's context explains */
    uint32_t distance; /* proposals between the event and this one */
    uint32_t support;  /* more evidence of the predictor's own, 0 .. 3 */
};

void filter_init(struct filter *filter);
struct features features_of(const struct proposal *proposal);
uint32_t filter_likely(const struct filter *filter, const struct features *features);
void filter_learn(struct filter *filter, const struct features *features, bool was_used);

/* ---- tags.c: what was proposed and not judged yet --------------------------------------------------------------- */

#define TAGS_MAX  4096u
#define TAGS_WAYS 4u

struct tag {
    struct page_id page;
    uint32_t position; /* in the history, of temporal proposals */
    uint32_t made_at;  /* event */
    struct features features;
    uint8_t predictor;
    uint8_t stream;
    bool is_used;
    bool is_issued; /* else only thought of: it goes by what would have been */
};

struct tags {
    struct tag tags[TAGS_MAX];
    uint32_t hand;
};

void tags_init(struct tags *tags);
struct tag *tags_find(struct tags *tags, struct page_id page);
void tags_touch(const struct tags *tags, struct page_id page); /* will be asked for: into the processor's cache */
/* Writes what was pushed out, is_used false for nothing. The new one is to be filled in, but for its page. */
struct tag *tags_add(struct tags *tags, struct page_id page, struct tag *ret_pushed_out);
/* One that was only thought of, more than `age` events ago; it is not there any more. */
bool tags_expire(struct tags *tags, uint32_t now, uint32_t age, struct tag *ret_expired);

/* ---- temporal.c: what followed the last time -------------------------------------------------------------------- */

#define REPLAYS_MAX 32u

/* A walk through the history, along which events are expected to come again. */
struct replay {
    uint32_t at;       /* position of what is expected next */
    uint32_t frontier; /* first position not proposed yet */
    uint32_t other;    /* distance back to an older occurrence, 0: none */
    uint32_t length;   /* events explained, those before it was found included */
    uint32_t depth;
    uint32_t used_at;
    bool is_used;
};

struct temporal {
    struct replay replays[REPLAYS_MAX];
    uint32_t count; /* events recorded; position of the next */
    uint32_t entries;
    /* Then its tables. */
};

size_t temporal_bytes(uint32_t entries);
void temporal_init(struct temporal *temporal, uint32_t entries);
/* As tags_touch(): first where the page's last occurrence is, then what it is. */
void temporal_touch(const struct temporal *temporal, struct page_id page);
void temporal_touch_event(const struct temporal *temporal, struct page_id page);
/* The replay that the event begins or goes on with; NULL: none. `tag`: of this page if there was one, else NULL. */
struct replay *temporal_event(struct temporal *temporal, const struct prefetch_event *event, const struct tag *tag);
/* The next page along the replay, up to its depth; false: no more now. */
bool temporal_next(struct temporal *temporal, struct replay *replay, struct proposal *proposal);
/* It came too late, or was right: look further ahead. */
void temporal_deepen(struct replay *replay, uint32_t depth_max);
void temporal_cut(struct temporal *temporal, const struct tag *tag);

/* ---- signature.c: which step follows such steps ------------------------------------------------------------------ */

#define SIGNATURE_REGIONS 128u
#define SIGNATURES        1024u
#define SIGNATURE_STEPS   4u

struct signature_region {
    uint64_t number, last;
    uint16_t sign;
};

struct signature_steps {
    int16_t steps[SIGNATURE_STEPS];
    uint8_t counts[SIGNATURE_STEPS];
    uint8_t total;
};

struct signature {
    struct signature_region regions[SIGNATURE_REGIONS];
    struct signature_steps table[SIGNATURES];
};

struct signature_walk {
    struct page_id at;
    uint32_t likely;   /* all its steps together, of LIKELY_ONE */
    uint32_t distance; /* steps */
    uint16_t sign;
};

void signature_init(struct signature *signature);
/* false: nothing is known of the region yet, and there is no walk. */
bool signature_event(struct signature *signature, const struct prefetch_event *event, struct signature_walk *ret_walk);
/* The next page along the likely path; false: it is not likely any more, or leaves the region. */
bool signature_next(const struct signature *signature, struct signature_walk *walk, struct proposal *proposal);

/* ---- shadow.c: would there be fewer faults without prefetch? ----------------------------------------------------- */

#define SHADOW_PAGES 1024u

struct shadow_page {
    struct page_id page; /* PAGE_NONE: free */
    uint64_t left_at;    /* evictions before it */
};

struct shadow {
    struct shadow_page pages[SHADOW_PAGES];
    uint64_t evictions;
    uint32_t unused;    /* frames that prefetched pages took lately, which nobody has touched */
    uint32_t gained;    /* in this window: touches that would have been faults, */
    uint32_t polluted;  /* faults that would not have been, */
    uint32_t events;    /* and events in all */
    uint32_t off_until; /* windows left in which all is off */
};

void shadow_init(struct shadow *shadow);
void shadow_evicted(struct shadow *shadow, struct page_id page, uint32_t unused);
/* Returns how many faults like this one prefetch has caused: 0, or what the sample stands for. */
uint32_t shadow_event(struct shadow *shadow, const struct prefetch_event *event);
bool shadow_is_off(const struct shadow *shadow);

/* ---- hints.c: what the application said -------------------------------------------------------------------------- */

struct region {
    uint64_t first, count;
    int32_t stride; /* of an order */
    uint8_t advice;
    bool is_order; /* a part of a walk; the next of these in the table comes after it, the first after the last */
};

struct hints {
    struct region regions[PREFETCH_REGIONS_MAX];
    uint32_t regions_count;
};

void hints_init(struct hints *hints);
int MUST_USE hints_advise(struct hints *hints, struct page_id first, uint64_t pages_count, enum prefetch_advice advice);
int MUST_USE hints_order(struct hints *hints, struct page_id first, uint64_t pages_count, int32_t stride);
void hints_forget(struct hints *hints, struct page_id first, uint64_t pages_count);
enum prefetch_advice hints_advice(const struct hints *hints, struct page_id page);
/* The page is part of a walk: the runs of the `depth` pages after it. Returns whether it is. */
bool hints_walk(const struct hints *hints, struct page_id page, uint32_t depth, struct prefetch_plan *plan);

#endif
