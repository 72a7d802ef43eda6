/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devdax_pages.c - a node whose memory is four times its DDR: pages go to CXL memory and come back. Run by
 * guest/tiers_device.sh, with a dax device as the store. Prints counts; 1: contents are wrong, or no page went through
 * the store, or it is emulated.
 */
#include <tiermesh/dsm.h>

#include <stdio.h>

#define PAGES 8192u

int main(void)
{
    struct dsm_stats stats;
    unsigned wrong = 0;
    uint64_t *memory;
    void *bytes;

    if (dsm_init(NULL) != 0 || dsm_malloc((size_t)PAGES * DSM_PAGE_BYTES, &bytes) != 0)
        return fprintf(stderr, "%s\n", dsm_errmsg()), 1;
    memory = bytes;
    for (unsigned i = 0; i < PAGES; i++)
        memory[(size_t)i * DSM_PAGE_BYTES / sizeof(*memory)] = i + 1;
    for (unsigned i = 0; i < PAGES; i++)
        wrong += memory[(size_t)i * DSM_PAGE_BYTES / sizeof(*memory)] != i + 1;
    if (dsm_stats(&stats, sizeof(stats)) != 0)
        return 1;
    printf("%s: %lu pages now, %lu went there, %lu came back, %u wrong\n", dsm_tier_name(DSM_TIER_CXL),
           stats.tier_pages[DSM_TIER_CXL], stats.moves[DSM_TIER_DDR][DSM_TIER_CXL],
           stats.moves[DSM_TIER_CXL][DSM_TIER_DDR], wrong);
    if (dsm_finalize() != 0)
        return 1;
    return wrong > 0 || stats.moves[DSM_TIER_CXL][DSM_TIER_DDR] == 0 || stats.tier_is_emulated[DSM_TIER_CXL] != 0;
}
