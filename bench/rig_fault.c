/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rig_fault.c - a remote fault between two machines: node 0 loads a word of each page of an area whose home is node 1,
 * and prints "remote-fault MICROSECONDS" with the median. It needs one processor, and of the other node no more than
 * dsm.h gives.
 *
 *   dsmrun -H a,b --transport NAME bench_rig_fault [PAGES]
 */
#include "bench/report.h"
#include "bench/setup.h"

#include <stdio.h>
#include <stdlib.h>

#define PAGE_BYTES 4096UL
#define PAGES_MAX  4096UL

/* Each page once, in no order, so that nothing is read ahead. */
static void touch_all(const unsigned char *area, uint32_t pages_count)
{
    static double took_us[PAGES_MAX];
    uint32_t *order = order_make(pages_count);

    for (uint32_t i = 0; i < pages_count; i++) {
        const volatile unsigned char *page = area + order[i] * PAGE_BYTES;
        uint64_t started_ns = now_ns();
        unsigned char value = *page;

        took_us[i] = (double)(now_ns() - started_ns) / 1e3;
        if (value != (unsigned char)(order[i] % 251 + 1))
            die("page %u has another node's bytes: %u", order[i], value);
    }
    free(order);
    printf("remote-fault %.2f\n", quantile(took_us, pages_count, 0.5));
}

int main(int argc, char **argv)
{
    uint32_t pages_count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 256;
    unsigned char *area;
    int rank;

    if (pages_count == 0 || pages_count > PAGES_MAX)
        die("%s: 1 to %lu pages are possible", argv[1], PAGES_MAX);
    DSM(dsm_init(NULL));
    rank = dsm_node_id();
    if (dsm_node_count() != 2)
        die("run it on two nodes");
    area = area_of_rank_1(rank, pages_count * PAGE_BYTES);
    for (uint32_t page = 0; rank == 1 && page < pages_count; page++)
        area[page * PAGE_BYTES] = (unsigned char)(page % 251 + 1);
    DSM(dsm_barrier());
    if (rank == 0)
        touch_all(area, pages_count);
    DSM(dsm_barrier());
    DSM(dsm_finalize());
    return 0;
}
