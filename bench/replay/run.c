/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - passes over one trace. Pieces are decoded first and then replayed by the clock, so that what the trace costs
 * is not counted.
 */
#include "bench/replay/run.h"
#include "base/error.h"
#include "bench/replay/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PIECE 65536u

struct run {
    const char *path;
    struct pages *pages;
    uint64_t touches;
    uint32_t *next; /* by record; NULL: Belady is left out */
    uint64_t next_capacity;
    uint64_t belady_misses;
    uint32_t belady_frames;
    uint32_t piece[PIECE];
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int run_names_check(const char *names)
{
    char copy[1024], *rest = NULL;

    snprintf(copy, sizeof(copy), "%s", names);
    for (char *name = strtok_r(copy, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest))
        if (cache_find(name) == NULL)
            return error_set(-ESRCH, "there is no policy \"%s\"; see --help for their names", name);
    return 0;
}

/* Up to PIECE records as numbers of pages. Returns how many, 0 at the end, or an error. */
static int piece_read(struct run *run, struct trace *trace)
{
    struct trace_record record;
    int count = 0, error = 1;

    while (count < (int)PIECE && error == 1) {
        error = trace_next(trace, &record);
        if (error != 1)
            break;
        run->piece[count] = pages_number(run->pages, record.page);
        if (run->piece[count++] == UINT32_MAX)
            return error_set(-ENOMEM, "%s: no memory for the names of its pages", run->path);
    }
    return error < 0 ? error : count;
}

/* ---- the first pass ---------------------------------------------------------------------------------------------- */

/* Belady is left out from here on. */
static void futures_drop(struct run *run)
{
    free(run->next);
    run->next = NULL;
}

/* Room for `count` more, where there is memory. */
static void futures_room(struct run *run, int count)
{
    uint64_t capacity = run->next_capacity != 0 ? 2 * run->next_capacity : PIECE;
    uint32_t *grown;

    if (run->touches + (uint64_t)count <= run->next_capacity)
        return;
    grown = realloc(run->next, capacity * sizeof(*run->next));
    if (grown == NULL)
        futures_drop(run);
    run->next = grown;
    run->next_capacity = capacity;
}

/* last[page]: the record of its last touch. */
static int futures_note(struct run *run, uint32_t **last, uint32_t *capacity, int count)
{
    uint32_t pages = pages_count(run->pages);

    if (pages > *capacity) {
        uint32_t *grown = realloc(*last, (size_t)pages * 2 * sizeof(**last));

        if (grown == NULL)
            return error_set(-ENOMEM, "%s: no memory for the future of its pages", run->path);
        memset(grown + *capacity, 0xff, ((size_t)pages * 2 - *capacity) * sizeof(*grown));
        *last = grown;
        *capacity = pages * 2;
    }
    for (int i = 0; i < count; i++) {
        uint32_t record = (uint32_t)run->touches + (uint32_t)i;
        uint32_t before = (*last)[run->piece[i]];

        run->next[record] = NEVER_AGAIN;
        if (before != NEVER_AGAIN)
            run->next[before] = record;
        (*last)[run->piece[i]] = record;
    }
    return 0;
}

static int first_pass(struct run *run, struct trace *trace)
{
    uint32_t *last = NULL, capacity = 0;
    int count;

    while ((count = piece_read(run, trace)) > 0) {
        int error = 0;

        if (trace_records(trace) > RUN_FUTURE_MAX)
            futures_drop(run);
        else if (run->touches == 0 || run->next != NULL)
            futures_room(run, count);
        if (run->next != NULL)
            error = futures_note(run, &last, &capacity, count);
        if (error != 0) {
            count = error;
            break;
        }
        run->touches += (uint64_t)count;
    }
    free(last);
    return count;
}

static int belady_count(struct run *run, const struct options *options)
{
    struct run_result result;
    int error = run->next != NULL ? run_policy(run, "belady", options, &result) : 0;

    if (error == 0 && run->next != NULL) {
        run->belady_misses = result.counts.misses;
        run->belady_frames = result.frames;
    }
    return error;
}

static int run_fill(struct run *run, const struct options *options)
{
    struct trace *trace;
    int error = trace_open(options->trace, false, &trace);

    if (error != 0)
        return error;
    error = first_pass(run, trace);
    trace_close(trace);
    return error != 0 ? error : belady_count(run, options);
}

int run_open(const struct options *options, struct run **ret_run)
{
    struct run *run = calloc(1, sizeof(*run));
    int error;

    if (run == NULL || (run->pages = pages_create()) == NULL) {
        free(run);
        return error_set(-ENOMEM, "%s: no memory to replay it", options->trace);
    }
    run->path = options->trace;
    error = run_fill(run, options);
    if (error == 0)
        *ret_run = run;
    else
        run_close(run);
    return error;
}

void run_close(struct run *run)
{
    pages_destroy(run->pages);
    free(run->next);
    free(run);
}

/* ---- a policy's pass ----------------------------------------------------------------------------------------------
 */

static uint64_t piece_replay(const struct run *run, const struct cache_ops *ops, void *cache, uint64_t first, int count,
                             struct cache_counts *counts)
{
    uint64_t start_ns = now_ns();

    if (run->next != NULL)
        for (int i = 0; i < count; i++)
            ops->touch(cache, run->piece[i], run->next[first + (uint64_t)i], counts);
    else
        for (int i = 0; i < count; i++)
            ops->touch(cache, run->piece[i], NEVER_AGAIN, counts);
    return now_ns() - start_ns;
}

static int pass(struct run *run, const struct cache_ops *ops, void *cache, struct run_result *result)
{
    uint64_t record = 0, spent_ns = 0;
    struct trace *trace;
    int count, error = trace_open(run->path, false, &trace);

    if (error != 0)
        return error;
    while ((count = piece_read(run, trace)) > 0 && record + (uint64_t)count <= run->touches) {
        spent_ns += piece_replay(run, ops, cache, record, count, &result->counts);
        record += (uint64_t)count;
    }
    trace_close(trace);
    if (count == 0 && record != run->touches)
        count = 1;
    if (count > 0)
        return error_set(-EINVAL, "%s: the trace changed while it was replayed", run->path);
    if (count < 0)
        return count;
    uint64_t events = result->counts.misses + result->counts.soft_faults;
    result->ns_per_touch = (double)spent_ns / (double)run->touches;
    result->ns_per_event = (double)spent_ns / (double)events;
    return 0;
}

int run_policy(struct run *run, const char *name, const struct options *options, struct run_result *ret_result)
{
    const struct cache_ops *ops = cache_find(name);
    struct run_result result = {.name = name, .frames = options_frames(options, pages_count(run->pages))};
    struct cache_config config = {.frames = result.frames,
                                  .pages_count = pages_count(run->pages),
                                  .limbo_share = options->limbo_share,
                                  .pages = run->pages};
    void *cache;
    int error;

    if (ops->needs_future && run->next == NULL)
        return error_set(-EINVAL, "%s: has more than %lu records, too many to know the future of", run->path,
                         (uint64_t)RUN_FUTURE_MAX);
    if (result.frames < ops->frames_min)
        return error_set(-EINVAL, "policy %s needs %u frames, not %u: give more by --frames", name, ops->frames_min,
                         result.frames);
    cache = ops->create(&config);
    if (cache == NULL)
        return error_set(-ENOMEM, "%s: no memory for %u frames", run->path, result.frames);
    error = pass(run, ops, cache, &result);
    ops->destroy(cache);
    if (error == 0)
        *ret_result = result;
    return error;
}

uint64_t run_touches(const struct run *run)
{
    return run->touches;
}

uint64_t run_footprint(const struct run *run)
{
    return pages_count(run->pages);
}

uint64_t run_belady_misses(const struct run *run, uint32_t frames)
{
    return frames == run->belady_frames ? run->belady_misses : 0;
}
