/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk_read.c - dsm_read of 1 MiB from the other node's memory. Runs under dsmrun -n 2.
 *
 * Over tcp against a plain socket copy (a small request, 1 MiB into the reader's buffer), over shared memory against
 * memcpy. All sides walk through 64 MiB in 4 KiB pages, so that the source is as cold for one as for the other.
 */
#include "bench/raw.h"
#include "bench/report.h"
#include "bench/setup.h"

#include <string.h>

#define AREA_BYTES (64 * MIB)
#define READ_BYTES MIB

struct plan {
    unsigned reads_count; /* a round */
    unsigned rounds_count;
    bool by_tcp;
};

enum side {
    SIDE_PRODUCT,
    SIDE_RAW,
};

static void read_once(const struct plan *plan, enum side side, struct raw *raw, const char *source, void *buffer)
{
    if (side == SIDE_PRODUCT)
        DSM(dsm_read(buffer, source, READ_BYTES, 0, NULL));
    else if (plan->by_tcp)
        raw_tcp_copy(raw, buffer, READ_BYTES);
    else
        memcpy(buffer, source, READ_BYTES);
}

/* Median of one read's time, us. */
static double read_round(const struct plan *plan, enum side side, struct raw *raw, const char *area, void *buffer)
{
    static size_t at;
    double times_us[RAW_TIMES_MAX];

    for (unsigned i = 0; i < plan->reads_count; i++) {
        uint64_t start_ns = now_ns();

        read_once(plan, side, raw, area + at, buffer);
        times_us[i] = (double)(now_ns() - start_ns) / 1000;
        at = (at + READ_BYTES) % AREA_BYTES;
    }
    return quantile(times_us, plan->reads_count, 0.5);
}

/* What was read is what rank 1 stored: page i starts with the word i. */
static void check(const char *area, char *buffer)
{
    DSM(dsm_read(buffer, area + AREA_BYTES / 2, READ_BYTES, 0, NULL));
    for (uint64_t i = 0; i < READ_BYTES / DSM_PAGE_BYTES; i++) {
        uint64_t word;

        memcpy(&word, buffer + i * DSM_PAGE_BYTES, sizeof(word));
        if (word != AREA_BYTES / 2 / DSM_PAGE_BYTES + i)
            die("page %lu was read as %lu", AREA_BYTES / 2 / DSM_PAGE_BYTES + i, word);
    }
}

static void measure(const struct plan *plan, const char *area, struct raw *raw, struct figure *figure)
{
    char *buffer = memory_map(READ_BYTES, false);
    char *source = memory_map(AREA_BYTES, false);

    check(area, buffer);
    for (unsigned round = 0; round < plan->rounds_count; round++) {
        double raw_us = read_round(plan, SIDE_RAW, raw, source, buffer);
        double us = read_round(plan, SIDE_PRODUCT, raw, area, buffer);

        figure_add(figure, 1e6 / us, 1e6 / raw_us, raw_us / us);
    }
    figure_judge(figure, BAR_AT_LEAST, plan->by_tcp ? 0.8 : 0.5);
}

int main(int argc, char **argv)
{
    struct options options = options_parse(argc, argv);
    struct plan plan = {.reads_count = options.is_quick ? 20 : 50,
                        .rounds_count = options.is_quick ? 2 : 33,
                        .by_tcp = strcmp(options.transport, "tcp") == 0};
    struct figure figure = {.name = plan.by_tcp ? "bulk-read-tcp" : "bulk-read-shm", .unit = "MiB/s"};
    int rank = rank_of_two();
    struct raw *raw;
    void *area;

    node_start(rank, "ddr=256M", NULL);
    area = area_of_rank_1(rank, AREA_BYTES);
    raw = raw_open(rank);
    if (rank == 0) {
        report_open(options.json_path);
        measure(&plan, area, raw, &figure);
    }
    DSM(dsm_barrier());
    raw_close(raw);
    DSM(dsm_finalize());
    return 0;
}
