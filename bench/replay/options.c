/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c - the command line of tiermesh-replay: what was given is checked before the trace is opened.
 */
#include "bench/replay/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#define FRAMES_MAX ((uint64_t)1 << 26)

static const char usage[] =
    "usage: tiermesh-replay TRACE --frames N|P% [--policy P] [--prefetch F] [--limbo P%] [--fetch-us T] [--json]\n"
    "\n"
    "Replays a trace of page touches (PT1, plain or zstd) through the policies of Tiermesh.\n"
    "\n"
    "--frames N|P%   frames of memory, or percent of the pages that the trace touches\n"
    "--policy P      arms (default) or segmented-fifo: what is shipped; or to compare: fifo lru clock lru-2 arc lirs\n"
    "                s3-fifo belady; several with commas\n"
    "--limbo P%      share of the frames that are unmapped, where touches are seen; 100% (default): all are seen\n"
    "--prefetch F    what predictors are worth instead of policies: names with commas, or none\n"
    "--fetch-us T    how long one page takes to come, for --prefetch; default 5\n"
    "--json          one line of JSON for each row\n";

static bool complain(int *ret_exit, const char *what, const char *value)
{
    fprintf(stderr, "tiermesh-replay: %s%s%s\n", what, value != NULL ? ": " : "", value != NULL ? value : "");
    *ret_exit = EX_USAGE;
    return false;
}

/* A number in 0 .. most, all of the text but for a last `%`. */
static bool number_parse(const char *text, double most, double *ret_number, bool *ret_percent)
{
    char *end;
    double number = strtod(text, &end);

    *ret_percent = *end == '%';
    if (end == text || end[*ret_percent] != '\0' || !(number >= 0 && number <= most))
        return false;
    *ret_number = number;
    return true;
}

static bool frames_parse(const char *text, struct options *options, int *ret_exit)
{
    double number;
    bool is_percent;

    if (!number_parse(text, (double)FRAMES_MAX, &number, &is_percent))
        return complain(ret_exit, "--frames takes a number up to 67108864, or percent of the footprint, not", text);
    if (number <= 0)
        return complain(ret_exit, "--frames: without a frame no page can be touched; give at least 1, not", text);
    if (is_percent && number > 1000)
        return complain(ret_exit, "--frames: more than 1000% of the footprint makes no sense", text);
    if (!is_percent && number < 1)
        return complain(ret_exit, "--frames takes whole frames, at least 1, not", text);
    options->frames = is_percent ? 0 : (uint64_t)number;
    options->frames_share = is_percent ? number / 100 : 0;
    return true;
}

static bool limbo_parse(const char *text, struct options *options, int *ret_exit)
{
    double number;
    bool is_percent;

    if (!number_parse(text, 100, &number, &is_percent) || !is_percent)
        return complain(ret_exit, "--limbo takes percent of the frames, from 0% to 100%, not", text);
    options->limbo_share = number / 100;
    return true;
}

static bool fetch_parse(const char *text, struct options *options, int *ret_exit)
{
    bool is_percent;

    if (!number_parse(text, 1e6, &options->fetch_us, &is_percent) || is_percent || options->fetch_us <= 0)
        return complain(ret_exit, "--fetch-us takes microseconds above 0 and up to 1000000, not", text);
    return true;
}

static bool option_take(int option, struct options *options, int *ret_exit)
{
    switch (option) {
    case 'f':
        return frames_parse(optarg, options, ret_exit);
    case 'p':
        options->policy = optarg;
        return true;
    case 'r':
        options->prefetch = optarg;
        return true;
    case 'l':
        return limbo_parse(optarg, options, ret_exit);
    case 't':
        return fetch_parse(optarg, options, ret_exit);
    case 'j':
        options->is_json = true;
        return true;
    case 'h':
        fputs(usage, stdout);
        *ret_exit = 0;
        return false;
    default:
        *ret_exit = EX_USAGE; /* getopt has said what is wrong */
        return false;
    }
}

bool options_parse(int argc, char **argv, struct options *ret_options, int *ret_exit)
{
    static const struct option longs[] = {
        {"frames", required_argument, NULL, 'f'},   {"policy", required_argument, NULL, 'p'},
        {"prefetch", required_argument, NULL, 'r'}, {"limbo", required_argument, NULL, 'l'},
        {"fetch-us", required_argument, NULL, 't'}, {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
    };
    struct options options = {.policy = "arms", .limbo_share = 1, .fetch_us = 5};
    int option;

    while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1)
        if (!option_take(option, &options, ret_exit))
            return false;
    if (argc - optind != 1)
        return complain(ret_exit, argc == optind ? "names no trace; see --help" : "takes one trace; see --help", NULL);
    if (options.frames == 0 && options.frames_share <= 0)
        return complain(ret_exit, "needs --frames N or --frames P%; see --help", NULL);
    options.trace = argv[optind];
    *ret_options = options;
    return true;
}

uint32_t options_frames(const struct options *options, uint64_t footprint_pages)
{
    double frames = options->frames > 0 ? (double)options->frames : options->frames_share * (double)footprint_pages;

    if (frames > (double)FRAMES_MAX)
        return (uint32_t)FRAMES_MAX;
    return frames < 1 ? 1 : (uint32_t)frames;
}
