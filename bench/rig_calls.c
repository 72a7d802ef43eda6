/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rig_calls.c - calls of node 0 that need node 1, on two machines: prints lines "NAME FIGURE" with medians.
 *
 *   read         dsm_read of 1 MiB, one at a time, MiB/s
 *   one-sided    the share of these that came by RDMA
 *   atomic       fetch-add on a word of node 1's memory, us
 *   lock-idle    a lock that nobody had before, at its home: a round trip, us
 *   lock-busy    the same while another thread reads 1 MiB at a time, us
 *
 *   dsmrun -H a,b --transport NAME bench_rig_calls [--quick]
 */
#include "bench/report.h"
#include "bench/setup.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define AREA_BYTES (16 * MIB)
#define CALLS_MAX  1024U

struct plan {
    unsigned calls_count, reads_count;
};

/* Reads on and on, until told to stop. */
struct reader {
    pthread_t thread;
    const char *area;
    _Atomic(bool) stops;
    _Atomic(unsigned) reads_count;
};

static double read_ones(const char *area, unsigned count)
{
    static double times_us[CALLS_MAX];
    char *buffer = memory_map(MIB, false);

    for (unsigned i = 0; i < count; i++) {
        const char *from = area + i * MIB % AREA_BYTES;
        uint64_t started_ns = now_ns();
        uint64_t word;

        DSM(dsm_read(buffer, from, MIB, 0, NULL));
        times_us[i] = (double)(now_ns() - started_ns) / 1e3;
        for (size_t at = 0; at < MIB; at += DSM_PAGE_BYTES) {
            memcpy(&word, buffer + at, sizeof(word));
            if (word != (uint64_t)(from - area) + at)
                die("byte %lu of the area was read as %lu", (uint64_t)(from - area) + at, word);
        }
    }
    return 1e6 / quantile(times_us, count, 0.5);
}

static double atomics(uint64_t *word, unsigned count)
{
    static double times_us[CALLS_MAX];

    for (unsigned i = 0; i < count; i++) {
        uint64_t started_ns = now_ns();
        uint64_t old;

        DSM(dsm_atomic_fetch_add(word, 1, &old));
        times_us[i] = (double)(now_ns() - started_ns) / 1e3;
        if (old != i)
            die("the word was %lu after %u fetch-adds", old, i);
    }
    return quantile(times_us, count, 0.5);
}

/* Each page once: a lock that this node had before needs no message. */
static double locks(char *pages, unsigned count)
{
    static double times_us[CALLS_MAX];

    for (unsigned i = 0; i < count; i++) {
        uint64_t started_ns = now_ns();

        DSM(dsm_lock(pages + (size_t)i * DSM_PAGE_BYTES, DSM_PAGE_BYTES, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
        times_us[i] = (double)(now_ns() - started_ns) / 1e3;
        DSM(dsm_unlock(pages + (size_t)i * DSM_PAGE_BYTES, DSM_PAGE_BYTES));
    }
    return quantile(times_us, count, 0.5);
}

static void *reader_main(void *argument)
{
    struct reader *reader = argument;
    char *buffer = memory_map(MIB, false);

    while (!atomic_load(&reader->stops)) {
        DSM(dsm_read(buffer, reader->area, MIB, 0, NULL));
        atomic_fetch_add(&reader->reads_count, 1);
    }
    return NULL;
}

static double locks_beside_reads(char *pages, const char *area, unsigned count)
{
    struct reader reader = {.area = area};
    double us;

    if (pthread_create(&reader.thread, NULL, reader_main, &reader) != 0)
        die("no thread is left");
    while (atomic_load(&reader.reads_count) == 0)
        nap_ns(1000000);
    us = locks(pages, count);
    atomic_store(&reader.stops, true);
    pthread_join(reader.thread, NULL);
    if (atomic_load(&reader.reads_count) < 2)
        die("nothing was read while %u locks were taken", count);
    return us;
}

static void measure(const struct plan *plan, char *area)
{
    char *buffer = memory_map(MIB, false);
    struct dsm_stats stats;

    DSM(dsm_read(buffer, area, MIB, 0, NULL)); /* connections are made */
    printf("read %.3f\n", read_ones(area, plan->reads_count));
    DSM(dsm_stats(&stats, sizeof(stats)));
    printf("one-sided %.3f\n", (double)stats.one_sided_bytes / (double)((plan->reads_count + 1) * MIB));
    printf("atomic %.2f\n", atomics((uint64_t *)(area + AREA_BYTES), plan->calls_count));
    printf("lock-idle %.2f\n", locks(area, plan->calls_count));
    printf("lock-busy %.2f\n", locks_beside_reads(area + AREA_BYTES / 2, area, plan->calls_count));
}

int main(int argc, char **argv)
{
    bool is_quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    struct plan plan = {.calls_count = is_quick ? 20 : 200, .reads_count = is_quick ? 3 : 20};
    char *area;
    int rank;

    DSM(dsm_init(NULL));
    rank = dsm_node_id();
    if (dsm_node_count() != 2)
        die("run it on two nodes");
    area = area_of_rank_1(rank, AREA_BYTES + DSM_PAGE_BYTES);
    if (rank == 1) {
        for (uint64_t at = 0; at < AREA_BYTES; at += DSM_PAGE_BYTES)
            memcpy(area + at, &at, sizeof(at));
        memset(area + AREA_BYTES, 0, DSM_PAGE_BYTES);
    }
    DSM(dsm_barrier());
    if (rank == 0)
        measure(&plan, area);
    DSM(dsm_barrier());
    DSM(dsm_finalize());
    return 0;
}
