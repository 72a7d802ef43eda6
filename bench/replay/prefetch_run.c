/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch_run.c - predictors on a trace.
 *
 * Each predictor is tried three times, and no predictor as often: with all touched pages far away at the start; with
 * new pages that cost nothing, as those of fresh memory; and seeing no more than the pager does, which maps runs at
 * once but for their triggers.
 */
#include "bench/replay/prefetch_run.h"
#include "base/error.h"
#include "bench/replay/pages.h"
#include "bench/replay/prefetch_list.h"
#include "bench/replay/trace.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NAMES_MAX      16u
#define PAGE_NS        328.0 /* 4 KiB at 100 Gb/s */
#define ACCESS_NS      1.0
#define NAME_BYTES_MAX 32u

static const struct prefetcher_ops *const prefetchers[] = {
    &prefetcher_ours,  &prefetcher_streams, &prefetcher_temporal, &prefetcher_signature,
    &prefetcher_next8, &prefetcher_vma,     &prefetcher_file,     &prefetcher_leap,
};

enum way { FAR = 0, FRESH = 1, PAGER = 2, WAYS = 3 };

struct trial {
    char name[NAME_BYTES_MAX];
    const struct prefetcher_ops *prefetcher; /* NULL: none */
    struct sim_result results[WAYS];
};

/* The first trial is none: the others are measured against it. */
struct trials {
    uint32_t count;
    struct trial trials[NAMES_MAX + 1];
    uint64_t footprint_pages;
    uint32_t frames;
};

/* ---- names ----------------------------------------------------------------------------------------------------- */

const struct prefetcher_ops *prefetcher_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(prefetchers); i++)
        if (strcmp(prefetchers[i]->name, name) == 0)
            return prefetchers[i];
    return NULL;
}

static int trial_add(struct trials *trials, const char *name)
{
    struct trial *trial = &trials->trials[trials->count];

    if (trials->count > NAMES_MAX)
        return error_set(-ESRCH, "more than %u predictors at a time", NAMES_MAX);
    trial->prefetcher = prefetcher_find(name);
    if (trial->prefetcher == NULL && strcmp(name, "none") != 0)
        return error_set(-ESRCH,
                         "there is no predictor %s; there are none, ours, streams, temporal, signature, next-8, "
                         "vma-ra, file-ra, leap, and all",
                         name);
    snprintf(trial->name, sizeof(trial->name), "%s", name);
    if (trial->prefetcher != NULL || trials->count == 0)
        trials->count++;
    return 0;
}

static int names_parse(struct trials *trials, const char *names)
{
    int error = trial_add(trials, "none");

    if (strcmp(names, "all") == 0) {
        for (size_t i = 0; i < ARRAY_COUNT(prefetchers) && error == 0; i++)
            error = trial_add(trials, prefetchers[i]->name);
        return error;
    }
    while (error == 0 && *names != '\0') {
        size_t length = strcspn(names, ",");
        char name[NAME_BYTES_MAX];

        snprintf(name, sizeof(name), "%.*s", (int)(length < NAME_BYTES_MAX ? length : NAME_BYTES_MAX - 1), names);
        error = trial_add(trials, name);
        names += length + (names[length] == ',');
    }
    return error;
}

/* ---- the trace, again and again --------------------------------------------------------------------------------- */

static int footprint_count(const char *path, uint64_t *ret_pages)
{
    struct trace_record record;
    struct pages *pages;
    struct trace *trace;
    int error = trace_open(path, false, &trace);

    if (error != 0)
        return error;
    pages = pages_create();
    error = pages == NULL ? -ENOMEM : 1;
    while (error == 1 && (error = trace_next(trace, &record)) == 1)
        if (pages_number(pages, record.page) == UINT32_MAX)
            error = -ENOMEM;
    if (error == -ENOMEM)
        error = error_set(-ENOMEM, "%s: no memory for its pages", path);
    *ret_pages = pages != NULL ? pages_count(pages) : 0;
    if (pages != NULL)
        pages_destroy(pages);
    trace_close(trace);
    return error;
}

static int sim_replay(struct prefetch_sim *sim, const char *path)
{
    struct trace_record record;
    struct trace *trace;
    int error = trace_open(path, true, &trace);

    if (error != 0)
        return error;
    while ((error = trace_next(trace, &record)) == 1) {
        if (prefetch_sim_touch(sim, record.page, record.gap_accesses * ACCESS_NS) != 0) {
            error = error_set(-ENOMEM, "%s: no memory for its pages", path);
            break;
        }
    }
    trace_close(trace);
    return error;
}

/* One after the other: side by side they would push each other's tables out of the processor's cache. */
static int trial_run(struct trial *trial, enum way way, const struct options *options, uint32_t frames)
{
    const struct sim_config config = {.frames = frames,
                                      .fetch_us = options->fetch_us,
                                      .page_ns = PAGE_NS,
                                      .new_pages_free = way == FRESH,
                                      .sees_triggers = way == PAGER};
    struct prefetch_sim *sim = prefetch_sim_create(&config, trial->prefetcher);
    int error = sim == NULL ? error_set(-ENOMEM, "no memory for a simulation of %u frames", frames)
                            : sim_replay(sim, options->trace);

    if (error == 0)
        prefetch_sim_result(sim, &trial->results[way]);
    prefetch_sim_destroy(sim);
    return error;
}

static int trials_run(struct trials *trials, const struct options *options)
{
    int error = 0;

    for (uint32_t i = 0; i < trials->count; i++)
        for (enum way way = FAR; way < WAYS && error == 0; way++)
            error = trial_run(&trials->trials[i], way, options, trials->frames);
    return error;
}

/* ---- what came out --------------------------------------------------------------------------------------------- */

static double percent_of(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

struct figures {
    double coverage, accuracy, timely, stall[WAYS], misses, served, decision_ns;
};

/* Coverage: of the touches that found nothing asked for by the program itself, those that prefetch had asked for. */
static struct figures figures_of(const struct trials *trials, const struct trial *trial)
{
    const struct sim_result *result = &trial->results[FAR];
    double used = (double)(result->timely + result->late);
    double judged = (double)(result->issued - result->left_over);
    struct figures figures = {
        .coverage = percent_of(used, used + (double)result->misses),
        .accuracy = percent_of(used, judged),
        .timely = percent_of((double)result->timely, used),
        .misses = percent_of((double)result->misses, (double)trials->trials[0].results[FAR].misses),
        .served = percent_of((double)(result->touches - result->misses), (double)result->touches),
        .decision_ns = result->decision_ns,
    };

    for (enum way way = FAR; way < WAYS; way++)
        figures.stall[way] = percent_of(trial->results[way].stall_ns, trials->trials[0].results[way].stall_ns);
    return figures;
}

static void row_print(const struct options *options, const struct trials *trials, const struct trial *trial)
{
    const struct figures figures = figures_of(trials, trial);

    if (!options->is_json) {
        printf("%-10s %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %9.3f %9.0f\n", trial->name, figures.coverage,
               figures.accuracy, figures.timely, figures.stall[FAR], figures.stall[FRESH], figures.stall[PAGER],
               figures.misses, figures.served, figures.decision_ns);
        return;
    }
    printf("{\"trace\": \"%s\", \"prefetch\": \"%s\", \"frames\": %u, \"footprint\": %lu, \"fetch_us\": %g, "
           "\"coverage\": %.3f, \"accuracy\": %.3f, \"timely\": %.3f, \"stall\": %.3f, \"stall_new_pages_free\": %.3f, "
           "\"stall_pager\": %.3f, \"misses\": %.3f, \"served\": %.4f, \"decision_ns\": %.0f}\n",
           options->trace, trial->name, trials->frames, trials->footprint_pages, options->fetch_us, figures.coverage,
           figures.accuracy, figures.timely, figures.stall[FAR], figures.stall[FRESH], figures.stall[PAGER],
           figures.misses, figures.served, figures.decision_ns);
}

static void head_print(const struct options *options, const struct trials *trials)
{
    const struct sim_result *none = &trials->trials[0].results[FAR];

    if (options->is_json)
        return;
    printf("%s: %lu page touches of %lu pages; %u frames (%.1f %%), LRU, a page takes %g us\n", options->trace,
           none->touches, trials->footprint_pages, trials->frames,
           percent_of(trials->frames, (double)trials->footprint_pages), options->fetch_us);
    printf("Percent; stalls and misses of those without prefetch. fresh: new pages cost nothing. pager: as it sees.\n");
    printf("%-10s %9s %9s %9s %9s %9s %9s %9s %9s %9s\n", "prefetch", "coverage", "accuracy", "timely", "stall",
           "fresh", "pager", "misses", "served", "ns/event");
}

int prefetch_run(const struct options *options)
{
    struct trials trials = {0};
    int error = names_parse(&trials, options->prefetch);

    if (error == 0)
        error = footprint_count(options->trace, &trials.footprint_pages);
    if (error != 0)
        return error;
    trials.frames = options_frames(options, trials.footprint_pages);
    error = trials_run(&trials, options);
    if (error == 0)
        head_print(options, &trials);
    for (uint32_t i = 0; i < trials.count && error == 0; i++)
        row_print(options, &trials, &trials.trials[i]);
    return error;
}
