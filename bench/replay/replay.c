/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - tiermesh-replay: a trace through policies and predictors.
 *
 * The trace is read once to number its pages, and once more for each policy, in pieces: memory grows with the pages,
 * not with the records. Only Belady's policy must know the future and keeps four bytes a record.
 */
#include "base/error.h"
#include "bench/replay/options.h"
#include "bench/replay/prefetch_run.h"
#include "bench/replay/run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#define NAMES_MAX 1024

static void row_print(const struct options *options, const struct run *run, const struct run_result *result)
{
    double touches = (double)run_touches(run), misses = (double)result->counts.misses;
    double percent = 100.0 * result->frames / (double)run_footprint(run);
    double belady = (double)run_belady_misses(run, result->frames);
    double soft = misses > 0 ? (double)result->counts.soft_faults / misses : 0;

    if (options->is_json) {
        printf("{\"trace\": \"%s\", \"policy\": \"%s\", \"frames\": %u, \"footprint_percent\": %.2f, \"limbo\": %.2f, "
               "\"touches\": %.0f, \"misses\": %.0f, \"miss_percent\": %.4f, \"to_belady\": ",
               options->trace, result->name, result->frames, percent, options->limbo_share, touches, misses,
               100 * misses / touches);
        if (belady > 0)
            printf("%.4f", misses / belady);
        else
            printf("null");
        printf(", \"soft_per_miss\": %.3f, \"ns_per_touch\": %.1f, \"ns_per_event\": %.1f}\n", soft,
               result->ns_per_touch, result->ns_per_event);
        return;
    }
    printf("%-15s %9.0f %9.4f ", result->name, misses, 100 * misses / touches);
    if (belady > 0)
        printf("%9.4f ", misses / belady);
    else
        printf("%9s ", "-");
    printf("%9.3f %9.1f %9.1f\n", soft, result->ns_per_touch, result->ns_per_event);
}

static void head_print(const struct options *options, const struct run *run)
{
    uint32_t frames = options_frames(options, run_footprint(run));

    if (options->is_json)
        return;
    printf("%s: %lu page touches of %lu pages; %u frames (%.1f %% of them), limbo %.0f %%\n", options->trace,
           run_touches(run), run_footprint(run), frames, 100.0 * frames / (double)run_footprint(run),
           100 * options->limbo_share);
    if (run_belady_misses(run, frames) == 0)
        printf("Belady is left out: the trace has more than %lu records\n", (uint64_t)RUN_FUTURE_MAX);
    printf("%-15s %9s %9s %9s %9s %9s %9s\n", "policy", "misses", "miss %", "/Belady", "soft/hard", "ns/touch",
           "ns/event");
}

static int policies_replay(const struct options *options, struct run *run)
{
    struct run_result result;
    char names[NAMES_MAX], *rest = NULL;
    int error;

    snprintf(names, sizeof(names), "%s", options->policy);
    for (char *name = strtok_r(names, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        error = run_policy(run, name, options, &result);
        if (error != 0)
            return error;
        row_print(options, run, &result);
        fflush(stdout);
    }
    return 0;
}

static int policies_main(const struct options *options)
{
    struct run *run;
    int error = run_names_check(options->policy);

    if (error == 0)
        error = run_open(options, &run);
    if (error != 0)
        return error;
    head_print(options, run);
    error = policies_replay(options, run);
    run_close(run);
    return error;
}

int main(int argc, char **argv)
{
    struct options options;
    int status, error;

    if (!options_parse(argc, argv, &options, &status))
        return status;
    error = options.prefetch != NULL ? prefetch_run(&options) : policies_main(&options);
    if (error == 0)
        return 0;
    fprintf(stderr, "tiermesh-replay: %s\n", error_text());
    return error == -EINVAL ? EX_DATAERR : error == -ENOMEM ? EX_OSERR : error == -ESRCH ? EX_USAGE : EX_NOINPUT;
}
