/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - the closing table: where the pages of each node lie and what served its faults.
 */
#include "demo/report.h"

#include <stdio.h>

typedef unsigned long long count; /* what printf takes */

static void table_head(const char *what, unsigned nodes_count)
{
    printf("\n%-28s", what);
    for (unsigned node = 0; node < nodes_count; node++)
        printf("  %20s %u", "node", node);
    printf("\n");
}

static void table_row(const char *what, const struct graph *graph, unsigned nodes_count,
                      uint64_t (*value)(const struct dsm_stats *stats))
{
    printf("%-28s", what);
    for (unsigned node = 0; node < nodes_count; node++)
        printf("  %22llu", (count)value(&graph->parts[node].stats));
    printf("\n");
}

static void table_pages(const struct graph *graph, unsigned nodes_count)
{
    table_head("pages now / budget", nodes_count);
    for (int tier = 0; tier < DSM_TIERS; tier++) {
        printf("%-28s", dsm_tier_name((enum dsm_tier)tier));
        for (unsigned node = 0; node < nodes_count; node++) {
            const struct dsm_stats *stats = &graph->parts[node].stats;

            printf("  %10llu / %9llu", (count)stats->tier_pages[tier], (count)stats->tier_budget_pages[tier]);
        }
        printf("\n");
    }
}

static void table_faults(const struct graph *graph, unsigned nodes_count)
{
    table_head("faults: count, p50/p99 us", nodes_count);
    for (int source = 0; source < DSM_SOURCES; source++) {
        printf("from %-23s", dsm_source_name((enum dsm_source)source));
        for (unsigned node = 0; node < nodes_count; node++) {
            const struct dsm_latency *faults = &graph->parts[node].stats.faults[source];

            printf("  %8llu %6.1f/%6.1f", (count)faults->count, (double)faults->p50_ns / 1000,
                   (double)faults->p99_ns / 1000);
        }
        printf("\n");
    }
}

static void table_moves(const struct graph *graph, unsigned nodes_count)
{
    table_head("pages moved", nodes_count);
    for (int from = 0; from < DSM_TIERS; from++) {
        for (int to = 0; to < DSM_TIERS; to++) {
            char what[64];

            if (from == to)
                continue;
            snprintf(what, sizeof(what), "%s to %s", dsm_tier_name((enum dsm_tier)from),
                     dsm_tier_name((enum dsm_tier)to));
            printf("%-28s", what);
            for (unsigned node = 0; node < nodes_count; node++)
                printf("  %22llu", (count)graph->parts[node].stats.moves[from][to]);
            printf("\n");
        }
    }
}

static uint64_t dropped(const struct dsm_stats *stats)
{
    return stats->dropped_pages;
}

static uint64_t invalidated(const struct dsm_stats *stats)
{
    return stats->invalidations;
}

static uint64_t prefetched(const struct dsm_stats *stats)
{
    return stats->prefetched_pages;
}

static uint64_t prefetch_hits(const struct dsm_stats *stats)
{
    return stats->prefetch_hits;
}

static uint64_t messages(const struct dsm_stats *stats)
{
    return stats->messages_sent;
}

static uint64_t kibibytes(const struct dsm_stats *stats)
{
    return stats->bytes_sent / 1024;
}

static uint64_t locks(const struct dsm_stats *stats)
{
    return stats->locks_taken;
}

static uint64_t metadata_kibibytes(const struct dsm_stats *stats)
{
    return stats->metadata_bytes / 1024;
}

static void table_rest(const struct graph *graph, unsigned nodes_count)
{
    table_head("more", nodes_count);
    table_row("clean copies dropped", graph, nodes_count, dropped);
    table_row("pages taken by others", graph, nodes_count, invalidated);
    table_row("pages read ahead", graph, nodes_count, prefetched);
    table_row("  of these used", graph, nodes_count, prefetch_hits);
    table_row("messages sent", graph, nodes_count, messages);
    table_row("KiB sent", graph, nodes_count, kibibytes);
    table_row("locks taken", graph, nodes_count, locks);
    table_row("metadata, KiB", graph, nodes_count, metadata_kibibytes);
    printf("%-28s", "pages the program touched");
    for (unsigned node = 0; node < nodes_count; node++)
        printf("  %22llu", (count)graph->parts[node].touched_bytes / DSM_PAGE_BYTES);
    printf("\n%-28s", "DDR budget, % of these");
    for (unsigned node = 0; node < nodes_count; node++) {
        const struct part *part = &graph->parts[node];
        double budget_bytes = (double)part->stats.tier_budget_pages[DSM_TIER_DDR] * DSM_PAGE_BYTES;

        printf("  %22.1f", 100 * budget_bytes / (double)(part->touched_bytes + 1));
    }
    printf("\n");
}

static uint64_t faults_of_all(const struct graph *graph, unsigned nodes_count, enum dsm_source source)
{
    uint64_t total = 0;

    for (unsigned node = 0; node < nodes_count; node++)
        total += graph->parts[node].stats.faults[source].count;
    return total;
}

bool report_tiers(const struct graph *graph, unsigned nodes_count)
{
    static const enum dsm_source of_tier[DSM_TIERS] = {DSM_FROM_DDR, DSM_FROM_CXL, DSM_FROM_ZMEM, DSM_FROM_NVME};
    bool is_shown = true;

    table_pages(graph, nodes_count);
    table_faults(graph, nodes_count);
    table_moves(graph, nodes_count);
    table_rest(graph, nodes_count);
    for (int tier = DSM_TIER_CXL; tier < DSM_TIERS; tier++) {
        if (graph->parts[0].stats.tier_budget_pages[tier] == 0 || faults_of_all(graph, nodes_count, of_tier[tier]) > 0)
            continue;
        printf("no fault was served from %s\n", dsm_tier_name((enum dsm_tier)tier));
        is_shown = false;
    }
    if (nodes_count > 1 && faults_of_all(graph, nodes_count, DSM_FROM_REMOTE) == 0) {
        printf("no fault was served from another node\n");
        is_shown = false;
    }
    return is_shown;
}
