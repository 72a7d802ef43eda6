/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.c - dsm_stats(): the counters of a node, gathered on its shard.
 */
#include "base/error.h"
#include "runtime/bulk_pull.h"
#include "runtime/cxl.h"
#include "runtime/locks.h"
#include "runtime/memory.h"
#include "tiermesh/dsm.h"

#include <errno.h>
#include <string.h>

#define API __attribute__((visibility("default")))

/* Called a real one only where it is known to be. */
static bool cxl_is_real(void)
{
    const struct node *node = node_current();

    return node != NULL && node->config.cxl_bytes > 0 && !cxl_is_emulated(node->tiers[TIER_CXL]);
}

API const char *dsm_tier_name(enum dsm_tier tier)
{
    static const char *const names[DSM_TIERS] = {"ddr", "cxl (emulated)", "zmem", "nvme"};

    if (tier == DSM_TIER_CXL && cxl_is_real())
        return "cxl";
    return (unsigned)tier < DSM_TIERS ? names[tier] : "?";
}

API const char *dsm_source_name(enum dsm_source source)
{
    static const char *const names[DSM_SOURCES] = {"zero", "ddr",    "cxl (emulated)", "zmem",
                                                   "nvme", "remote", "upgrade"};

    if (source == DSM_FROM_CXL && cxl_is_real())
        return "cxl";
    return (unsigned)source < DSM_SOURCES ? names[source] : "?";
}

_Static_assert((int)DSM_PREDICTORS == (int)PREFETCH_PREDICTORS, "the same in the same order");

API const char *dsm_predictor_name(enum dsm_predictor predictor)
{
    static const char *const names[DSM_PREDICTORS] = {"streams", "temporal", "signature", "hints", "around"};

    return (unsigned)predictor < DSM_PREDICTORS ? names[predictor] : "?";
}

static uint64_t metadata_bytes(struct node *node)
{
    return pager_metadata_bytes(node->pager) + table_bytes(node->homes) + memory_metadata_bytes(node->memory);
}

static void gather_tiers(struct node *node, struct dsm_stats *stats)
{
    pager_tier_pages(node->pager, stats->tier_pages);
    pager_budget_pages(node->pager, stats->tier_budget_pages);
    stats->tier_is_emulated[DSM_TIER_CXL] = cxl_is_emulated(node->tiers[TIER_CXL]);
}

static void gather_zmem(struct node *node, struct dsm_stats *stats)
{
    struct tier_counters counters;

    if (node->tiers[TIER_ZMEM] == NULL)
        return;
    tier_counters_get(node->tiers[TIER_ZMEM], &counters);
    stats->zmem_bytes = counters.physical_bytes;
    stats->zmem_filled_pages = counters.pages_filled;
    stats->zmem_refused_pages = counters.pages_refused;
}

static void gather_pager(struct node *node, struct dsm_stats *stats)
{
    const struct stats *pager = pager_stats(node->pager);
    struct prefetch_counters prefetch;

    for (int i = 0; i < DSM_SOURCES; i++)
        stats->faults[i] = histogram_summary(&pager->faults[i]);
    memcpy(stats->moves, pager->moves, sizeof(stats->moves));
    pager_prefetch_counters(node->pager, &prefetch);
    stats->dropped_pages = pager->dropped_pages;
    stats->invalidations = pager->invalidations;
    stats->prefetched_pages = pager->prefetched_pages;
    stats->prefetch_hits = pager->prefetch_hits;
    stats->prefetch_unused = pager->prefetch_unused;
    stats->poisoned_pages = pager->poisoned_pages;
    stats->pinned_pages = pager->pinned_pages;
    stats->soft_faults = pager->soft_faults;
    stats->hard_faults = stats_hard_faults(pager);
    stats->prefetch_late = prefetch.late;
    stats->prefetch_price = prefetch.polluted;
    for (int i = 0; i < DSM_PREDICTORS; i++)
        stats->predictions[i] =
            (struct dsm_prediction){prefetch.issued_by[i], prefetch.used_by[i], prefetch.wasted_by[i]};
    pager_policy(node->pager, stats->policy, stats->policy_choice);
}

static void run_stats(struct request *request)
{
    struct node *node = request->node;
    struct dsm_stats *stats = request->pointer;

    gather_tiers(node, stats);
    gather_zmem(node, stats);
    gather_pager(node, stats);
    stats->messages_sent = node->messages_sent;
    stats->messages_received = node->messages_received;
    stats->bytes_sent = node->bytes_sent;
    stats->bytes_received = node->bytes_received;
    stats->one_sided_bytes = bulk_pull_bytes(node);
    locks_counters(node->locks, &stats->locks_taken, &stats->locks_cached);
    stats->metadata_bytes = metadata_bytes(node);
    stats->touched_pages = table_extents(node->pages) * EXTENT_PAGES;
    stats->epoch = node->view.epoch.number;
    stats->members = node->view.members;
    request_finish(request, 0, 0);
}

API int dsm_stats(struct dsm_stats *ret_stats, size_t size_bytes)
{
    struct node *node = node_current();
    struct dsm_stats stats;
    struct request request = REQUEST(node, run_stats, .pointer = &stats);

    if (node == NULL)
        return error_set(-ENOTCONN, "this process is not a node; call dsm_init() first");
    if (ret_stats == NULL || size_bytes == 0 || size_bytes > sizeof(stats))
        return error_set(-EINVAL, "size_bytes is sizeof(struct dsm_stats) of the header this library came with");
    memset(&stats, 0, sizeof(stats));
    request_call(&request);
    memcpy(ret_stats, &stats, size_bytes);
    return 0;
}
