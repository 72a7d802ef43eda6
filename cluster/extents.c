/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extents.c - the replicated table of extents: which runs are allocated, by whom, and where their pages have homes.
 * PURE.
 *
 * Always holds: no extent below lowest_free is free, none from high_water on is allocated; so nothing beyond high_water
 * is ever read or written, and a large table costs only what is used of it.
 */
#include "cluster/state.h"

static bool extent_is_allocated(const struct cluster_extent *extent)
{
    return (extent->flags & EXTENT_ALLOCATED) != 0;
}

static uint16_t run_position(uint64_t distance)
{
    return distance < UINT16_MAX ? (uint16_t)distance : UINT16_MAX;
}

/* First fit. */
int extents_find(struct cluster *cluster, uint64_t extents_count, uint64_t *ret_first_extent)
{
    const struct cluster_extent *extents = cluster_extents(cluster);
    uint64_t first = cluster->lowest_free;

    for (uint64_t i = first; i < cluster->high_water && i - first < extents_count; i++) {
        if (extent_is_allocated(&extents[i]))
            first = i + 1;
    }
    if (extents_count > cluster->limits.extents_count || first > cluster->limits.extents_count - extents_count)
        return -ENOMEM;
    *ret_first_extent = first;
    return 0;
}

static bool range_is_inside(const struct cluster *cluster, const struct cluster_change *change)
{
    return change->extents_count <= cluster->limits.extents_count &&
           change->first_extent <= cluster->limits.extents_count - change->extents_count;
}

static int check_take(struct cluster *cluster, const struct cluster_change *change)
{
    const struct cluster_extent *extents = cluster_extents(cluster);
    uint64_t end = change->first_extent + change->extents_count;

    uint64_t strangers = cluster->limits.nodes_count == NODES_MAX ? 0 : ~(uint64_t)0 << cluster->limits.nodes_count;

    if (change->placement == CLUSTER_PLACE_INTERLEAVE && (change->members == 0 || (change->members & strangers) != 0))
        return -EINVAL;
    if (change->placement == CLUSTER_PLACE_NODE && change->node.index >= cluster->limits.nodes_count)
        return -EINVAL;
    for (uint64_t i = change->first_extent; i < end && i < cluster->high_water; i++) {
        if (extent_is_allocated(&extents[i]))
            return -EINVAL;
    }
    return 0;
}

/* Exactly one run, of the node that asks. */
static int check_give(struct cluster *cluster, const struct cluster_change *change)
{
    const struct cluster_extent *extents = cluster_extents(cluster);
    uint64_t end = change->first_extent + change->extents_count;

    if (end > cluster->high_water)
        return -EINVAL;
    for (uint64_t i = change->first_extent; i < end; i++) {
        if (!extent_is_allocated(&extents[i]) || extents[i].allocator != change->requester.index + 1 ||
            extents[i].run_position != run_position(i - change->first_extent))
            return -EINVAL;
    }
    if (end < cluster->high_water && extent_is_allocated(&extents[end]) && extents[end].run_position != 0)
        return -EINVAL;
    return 0;
}

int extents_check(struct cluster *cluster, const struct cluster_change *change)
{
    if (!range_is_inside(cluster, change))
        return -EINVAL;
    return change->kind == CHANGE_TAKE ? check_take(cluster, change) : check_give(cluster, change);
}

static void apply_take(struct cluster *cluster, const struct cluster_change *change)
{
    struct cluster_extent *extents = cluster_extents(cluster) + change->first_extent;
    uint64_t end = change->first_extent + change->extents_count;
    uint64_t left = change->members;

    for (uint64_t i = 0; i < change->extents_count; i++) {
        uint16_t home = change->node.index;

        if (change->placement == CLUSTER_PLACE_INTERLEAVE) {
            if (left == 0)
                left = change->members;
            home = (uint16_t)__builtin_ctzll(left);
            left &= left - 1;
        }
        extents[i] = (struct cluster_extent){.home = (uint16_t)(home + 1),
                                             .allocator = (uint16_t)(change->requester.index + 1),
                                             .flags = EXTENT_ALLOCATED,
                                             .run_position = run_position(i)};
    }
    if (cluster->high_water < end)
        cluster->high_water = end;
    if (cluster->lowest_free == change->first_extent)
        cluster->lowest_free = end;
    cluster->env.extents_taken(cluster->env.context, change->first_extent, change->extents_count);
}

static void apply_give(struct cluster *cluster, const struct cluster_change *change)
{
    struct cluster_extent *extents = cluster_extents(cluster);

    cluster->env.extents_freed(cluster->env.context, change->first_extent, change->extents_count);
    for (uint64_t i = 0; i < change->extents_count; i++)
        extents[change->first_extent + i] = (struct cluster_extent){.home = 0};
    if (cluster->lowest_free > change->first_extent)
        cluster->lowest_free = change->first_extent;
    while (cluster->high_water > 0 && !extent_is_allocated(&extents[cluster->high_water - 1]))
        cluster->high_water--;
}

void extents_apply(struct cluster *cluster, const struct cluster_change *change)
{
    if (change->kind == CHANGE_TAKE)
        apply_take(cluster, change);
    else
        apply_give(cluster, change);
}
