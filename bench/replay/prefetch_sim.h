/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch_sim.h - what a predictor is worth on a trace: a cache, a link that takes time, and a clock.
 *
 * Every page that is not in the cache comes over one link: it waits its turn there (page_ns each), then takes fetch_ns.
 * A demand miss stops the program until its page is here; so does the touch of a prefetched page that is still under
 * way, for what is left of it. The predictor sees misses and first touches of prefetched pages, nothing else.
 * Prefetched pages that nobody touched have a queue of their own, an eighth of the frames.
 */
#ifndef TIERMESH_BENCH_REPLAY_PREFETCH_SIM_H
#define TIERMESH_BENCH_REPLAY_PREFETCH_SIM_H

#include "prefetch/prefetch.h"

struct prefetch_sim;

/* A predictor on trial. `view` and `ret_pages` as in prefetch.h; all are called from the simulation only. */
#define SIM_PAGES_MAX 4096u
struct sim_pages {
    uint32_t count;
    struct page_id pages[SIM_PAGES_MAX];
    bool is_seen[SIM_PAGES_MAX]; /* its first touch is seen, in the pager's way of seeing */
};
struct prefetcher_ops {
    const char *name;
    size_t (*bytes)(uint32_t frames);
    void (*init)(void *state, uint32_t frames);
    void (*event)(void *state, struct page_id page, bool was_prefetched, const struct prefetch_view *view,
                  struct sim_pages *ret_pages);
    void (*used)(void *state, struct page_id page, bool is_late); /* NULL: does not matter, as the two below */
    void (*wasted)(void *state, struct page_id page);
    void (*evicted)(void *state, struct page_id page, uint32_t unused);
};
struct sim_config {
    uint32_t frames;
    double fetch_us;     /* of one page, the link's share not counted */
    double page_ns;      /* of the link for a page; 328 at 100 Gb/s */
    bool new_pages_free; /* the first touch of a page costs nothing and tells nothing */
    bool sees_triggers;  /* as the pager sees: runs are mapped at once, but for their triggers */
};

struct sim_result {
    uint64_t touches, misses, new_pages;
    uint64_t issued, timely, late, wasted;
    uint64_t left_over; /* issued, and neither touched nor evicted at the end */
    double stall_ns;
    /* Of a call to event(), the median and the mean, with its questions about pages. */
    double decision_ns, decision_mean_ns;
};

/* NULL: no memory. prefetcher NULL: none. */
struct prefetch_sim *prefetch_sim_create(const struct sim_config *config, const struct prefetcher_ops *prefetcher);
/* The next touch of the trace, `gap_ns` after the one before. Returns 0, or -ENOMEM. */
int MUST_USE prefetch_sim_touch(struct prefetch_sim *sim, struct page_id page, double gap_ns);
void prefetch_sim_result(struct prefetch_sim *sim, struct sim_result *ret_result);
void prefetch_sim_destroy(struct prefetch_sim *sim);

#endif
