/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_fault.c - what does a fault cost whose page lies in the other node's memory? Runs under dsmrun -n 2.
 *
 * Rank 1 is the home of all pages. Rank 0 reads four times its DDR budget over and over in a random order; after the
 * first time round the home's copies are clean, and rank 0 drops its own to make room. The references are a bare local
 * fault and a raw round trip over the same kind of transport.
 *
 * The bars: over shared memory twice a bare fault, over tcp 1.5 round trips beyond a bare fault. To wake a blocked
 * thread on another processor takes longer than a bare fault, so the first is only within reach of shards that spin
 * (--spin), each with a processor to itself; without that the figure is told and not judged. Beside both stands the sum
 * of one bare fault and one (blocking) round trip.
 */
#include "bench/bare.h"
#include "bench/raw.h"
#include "bench/report.h"
#include "bench/setup.h"
#include "bench/touch.h"

#include <stdio.h>
#include <string.h>

struct plan {
    uint32_t pages_count;
    uint32_t faults_count; /* a round */
    unsigned trips_count;
    unsigned rounds_count;
    bool by_tcp;
    bool is_spinning;
};

static uint64_t faults_from_remote(void)
{
    struct dsm_stats stats;

    DSM(dsm_stats(&stats, sizeof(stats)));
    return stats.faults[DSM_FROM_REMOTE].count;
}

static void measure(const struct plan *plan, void *area, struct raw *raw, struct figure *figure, struct figure *sum)
{
    struct bare *bare = bare_open(false, plan->pages_count);
    struct touch bare_touch;
    struct touch touch;
    uint64_t faults;

    touch_init(&touch, area, plan->pages_count);
    touch_init(&bare_touch, bare_memory(bare), plan->pages_count);
    touch_some(&touch, plan->pages_count, false);
    faults = faults_from_remote();
    for (unsigned round = 0; round < plan->rounds_count; round++) {
        double trip_us = raw_round_trip(raw, plan->by_tcp, plan->trips_count, 0);
        double bare_us;
        double us;

        bare_empty(bare);
        bare_us = touch_some(&bare_touch, plan->faults_count, false);
        us = touch_some(&touch, plan->faults_count, false);
        if (plan->by_tcp)
            figure_add(figure, us, 1.5 * trip_us + bare_us, (us - bare_us) / trip_us);
        else
            figure_add(figure, us, bare_us, us / bare_us);
        figure_add(sum, us, trip_us + bare_us, us / (trip_us + bare_us));
    }
    faults = faults_from_remote() - faults;
    if (plan->by_tcp || plan->is_spinning)
        figure_judge(figure, BAR_AT_MOST, plan->by_tcp ? 1.5 : 2);
    else
        figure_tell(figure);
    figure_tell(sum);
    if (faults < (uint64_t)plan->faults_count * plan->rounds_count * 9 / 10)
        report_note("only %lu of %u touches faulted: the figure is too good", faults,
                    plan->faults_count * plan->rounds_count);
    touch_fini(&touch);
    touch_fini(&bare_touch);
    bare_close(bare);
}

static struct figure figure_named(const struct plan *plan, const char *suffix, char name[64])
{
    const char *way = plan->by_tcp == plan->is_spinning ? (plan->by_tcp ? "-spinning" : "-blocking") : "";

    snprintf(name, 64, "remote-fault-%s%s%s", plan->by_tcp ? "tcp" : "shm", way, suffix);
    return (struct figure){.name = name, .unit = "us"};
}

int main(int argc, char **argv)
{
    struct options options = options_parse(argc, argv);
    struct plan plan = {.pages_count = options.is_quick ? 4096 : 16384,
                        .faults_count = options.is_quick ? 200 : 500,
                        .trips_count = options.is_quick ? 200 : 500,
                        .rounds_count = options.is_quick ? 2 : 33,
                        .by_tcp = strcmp(options.transport, "tcp") == 0,
                        .is_spinning = strcmp(options.spin_us, "0") != 0};
    char names[2][64];
    struct figure figure = figure_named(&plan, "", names[0]);
    struct figure sum = figure_named(&plan, "-to-sum", names[1]);
    int rank = rank_of_two();
    char spin[64];
    struct raw *raw;
    void *area;

    snprintf(spin, sizeof(spin), "spin_us=%s", options.spin_us);
    node_start(rank, rank == 1 ? "ddr=256M" : options.is_quick ? "ddr=4M" : "ddr=16M", spin, NULL);
    area = area_of_rank_1(rank, (size_t)plan.pages_count * DSM_PAGE_BYTES);
    raw = raw_open(rank);
    if (rank == 0) {
        report_open(options.json_path);
        measure(&plan, area, raw, &figure, &sum);
    }
    DSM(dsm_barrier());
    raw_close(raw);
    DSM(dsm_finalize());
    return 0;
}
