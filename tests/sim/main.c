/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - dsm_sim: runs simulated clusters from seeds.
 *
 *   dsm_sim --seed=N [--seeds=COUNT] [--steps=M] [--nodes=K] [--file=seeds.txt] [--seconds=S] [--mutant=E] [--evil]
 * [--verbose]
 *
 * A failure prints the seed, the step, the checker, the last events and the one command that replays it; exit code 1.
 * With --evil nodes also send nonsense to each other, and all that is checked is that no ASSERT fails.
 * With --expect=CHECKER[,CHECKER] the roles turn: a failure by that checker is success (a planted bug was caught).
 */
#include "world.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct options {
    uint64_t seed, seeds_count;
    uint32_t steps;
    unsigned nodes;
    unsigned seconds;
    uint32_t mutant;
    bool is_verbose, is_evil;
    const char *file;
    const char *expect;
    const char *program;
};

/* The world that runs, for the handler of a failed ASSERT. */
static struct {
    struct world *world;
    const struct options *options;
} running;

static void report(const struct world *world, const struct options *options)
{
    printf("last events:\n");
    trace_print(world, 40);
    printf("seed %llu failed at step %u, %llu us: checker %s: %s\n", (unsigned long long)world->seed, world->step,
           (unsigned long long)(world->now_ns / NS_PER_US), world->checker, world->failure);
    printf("replay: %s --seed=%llu --steps=%u", options->program, (unsigned long long)world->seed, options->steps);
    if (options->nodes != 0)
        printf(" --nodes=%u", options->nodes);
    if (options->mutant != 0)
        printf(" --mutant=%u", options->mutant);
    if (options->is_evil)
        printf(" --evil");
    printf("\n");
    fflush(stdout);
}

static bool is_expected(const struct options *options, const char *checker)
{
    const char *found = options->expect == NULL ? NULL : strstr(options->expect, checker);

    return found != NULL;
}

/* The protocol found a bug of its own. We are single-threaded and inside abort(): printing is safe enough here. */
static void aborted(int signal_number)
{
    if (running.world == NULL)
        _exit(134);
    world_fail(running.world, "assert", signal_number == SIGABRT ? "an assertion failed, see above" : "memory fault");
    report(running.world, running.options);
    if (is_expected(running.options, "assert")) {
        printf("caught by assert\n");
        fflush(stdout);
        _exit(0);
    }
    _exit(1);
}

/* On a stack of its own: endless recursion is a failure that must be told too. */
static void aborts_catch(void)
{
    static uint8_t stack[256 * 1024];
    stack_t place = {.ss_sp = stack, .ss_size = sizeof(stack)};
    struct sigaction action = {.sa_handler = aborted, .sa_flags = SA_ONSTACK};

    sigaltstack(&place, NULL);
    sigaction(SIGABRT, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
}

struct totals {
    uint64_t worlds, steps, messages, virtual_us, crashes;
    uint64_t operation_us_max;
    uint64_t operations[OPERATIONS];
};

/* True: the world kept all its promises. */
static bool run_seed(const struct options *options, uint64_t seed, struct totals *totals, char *ret_checker)
{
    struct settings settings;
    struct world *world;
    bool is_good;

    world_settings_draw(&settings, seed);
    if (options->nodes != 0) {
        settings.threads_count = (uint16_t)(settings.threads_count / settings.nodes_count * options->nodes);
        settings.nodes_count = (uint16_t)options->nodes;
        settings.limits.nodes_count = settings.nodes_count;
    }
    world = world_create(&settings, seed);
    world->is_verbose = options->is_verbose;
    world->mutant = options->mutant;
    world->is_evil = options->is_evil;
    running.world = world;
    running.options = options;
    world_start(world);
    world_run(world, options->steps);
    is_good = !world->is_failed;
    if (!is_good) {
        report(world, options);
        strcpy(ret_checker, world->checker);
    }
    totals->worlds++;
    totals->steps += world->step;
    totals->messages += world->messages_sent;
    totals->virtual_us += world->now_ns / NS_PER_US;
    totals->crashes += world->crashes;
    if (world->operation_ns_max / NS_PER_US > totals->operation_us_max)
        totals->operation_us_max = world->operation_ns_max / NS_PER_US;
    for (unsigned i = 0; i < OPERATIONS; i++)
        totals->operations[i] += world->operations_done[i];
    running.world = NULL;
    world_destroy(world);
    return is_good;
}

static void totals_print(const struct totals *totals)
{
    printf("%llu worlds, %llu steps, %llu messages, %llu crashes, %.1f virtual seconds, longest operation %llu us\n",
           (unsigned long long)totals->worlds, (unsigned long long)totals->steps, (unsigned long long)totals->messages,
           (unsigned long long)totals->crashes, (double)totals->virtual_us / 1e6,
           (unsigned long long)totals->operation_us_max);
    printf("operations:");
    for (unsigned i = 0; i < OPERATIONS; i++)
        printf(" %llu", (unsigned long long)totals->operations[i]);
    printf("\n");
}

/* Lines of seeds.txt: a seed, steps, and why it is there. Lines that begin with '#' are words. */
static bool run_file(const struct options *options, struct totals *totals, char *ret_checker)
{
    FILE *file = fopen(options->file, "r");
    char line[256];
    bool is_good = true;

    if (file == NULL) {
        printf("dsm_sim: open %s: no such file\n", options->file);
        return false;
    }
    while (is_good && fgets(line, sizeof(line), file) != NULL) {
        struct options one = *options;
        char *end = line;

        if (line[0] == '#' || line[0] == '\n')
            continue;
        one.seed = strtoull(line, &end, 10);
        one.steps = (uint32_t)strtoul(end, NULL, 10);
        is_good = run_seed(&one, one.seed, totals, ret_checker);
    }
    fclose(file);
    return is_good;
}

static bool run_range(const struct options *options, struct totals *totals, char *ret_checker)
{
    time_t start = time(NULL);

    for (uint64_t i = 0; i < options->seeds_count; i++) {
        if (options->seconds != 0 && time(NULL) - start >= (time_t)options->seconds)
            break;
        if (!run_seed(options, options->seed + i, totals, ret_checker))
            return false;
    }
    return true;
}

static int usage(void)
{
    fprintf(stderr, "usage: dsm_sim [--seed=N] [--seeds=COUNT] [--steps=M] [--nodes=K] [--file=PATH] [--seconds=S] "
                    "[--mutant=E] [--expect=CHECKERS] [--evil] [--verbose]\n");
    return 64;
}

static bool options_parse(int argc, char **argv, struct options *options)
{
    static const struct option longs[] = {
        {"seed", required_argument, NULL, 's'},
        {"seeds", required_argument, NULL, 'c'},
        {"steps", required_argument, NULL, 'm'},
        {"nodes", required_argument, NULL, 'n'},
        {"file", required_argument, NULL, 'f'},
        {"seconds", required_argument, NULL, 't'},
        {"mutant", required_argument, NULL, 'e'},
        {"expect", required_argument, NULL, 'x'},
        {"verbose", no_argument, NULL, 'v'},
        {"evil", no_argument, NULL, 'b'},
        {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (option) {
        case 's':
            options->seed = strtoull(optarg, NULL, 10);
            break;
        case 'c':
            options->seeds_count = strtoull(optarg, NULL, 10);
            break;
        case 'm':
            options->steps = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'n':
            options->nodes = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'f':
            options->file = optarg;
            break;
        case 't':
            options->seconds = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'e':
            options->mutant = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'x':
            options->expect = optarg;
            break;
        case 'b':
            options->is_evil = true;
            break;
        case 'v':
            options->is_verbose = true;
            break;
        default:
            return false;
        }
    }
    return optind == argc && options->nodes <= WORLD_NODES_MAX && options->nodes != 1;
}

int main(int argc, char **argv)
{
    struct options options = {.seed = 1, .seeds_count = 1, .steps = 3000, .program = argv[0]};
    struct totals totals = {0};
    char checker[32] = "";
    bool is_good;

    if (!options_parse(argc, argv, &options))
        return usage();
    aborts_catch();
    is_good = options.file == NULL || run_file(&options, &totals, checker);
    if (is_good)
        is_good = run_range(&options, &totals, checker);
    totals_print(&totals);
    if (options.expect == NULL)
        return is_good ? 0 : 1;
    if (!is_good && is_expected(&options, checker)) {
        printf("caught by %s\n", checker);
        return 0;
    }
    printf("the planted bug was %s\n", is_good ? "not caught" : "caught by another checker than expected");
    return 1;
}
