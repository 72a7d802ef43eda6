/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_locks.c - mutual exclusion of overlapping ranges, and -EOWNERDEAD exactly when an owner died (L1 to L7, V6).
 *
 * A node that died with an exclusive lock: the next exclusive owner of the same range must hear of it. -EOWNERDEAD
 * without a dead node that ever asked for an overlapping range is an invention.
 */
#include "world.h"

#include <errno.h>

static bool ranges_overlap(const struct world *world, unsigned a, unsigned b)
{
    const struct lock_range *left = &world->locks[a], *right = &world->locks[b];

    return left->space == right->space && left->first < right->first + right->count &&
           right->first < left->first + left->count;
}

static bool ranges_are_equal(const struct world *world, unsigned a, unsigned b)
{
    const struct lock_range *left = &world->locks[a], *right = &world->locks[b];

    return left->space == right->space && left->first == right->first && left->count == right->count;
}

static void check_exclusion(struct world *world, unsigned node, unsigned index)
{
    const struct held_lock *mine = &world->nodes[node].held[index];

    for (unsigned i = 0; i < world->settings.nodes_count; i++)
        for (unsigned h = 0; h < WORLD_HELD_MAX; h++) {
            const struct held_lock *other = &world->nodes[i].held[h];

            if (!other->used || !world->nodes[i].is_alive || (i == node && h == index))
                continue;
            if ((mine->is_exclusive || other->is_exclusive) && ranges_overlap(world, mine->lock, other->lock))
                world_fail(world, "locks", "node %u owns lock %u (%s) while node %u owns lock %u (%s)", node,
                           mine->lock, mine->is_exclusive ? "exclusive" : "shared", i, other->lock,
                           other->is_exclusive ? "exclusive" : "shared");
        }
}

static bool dead_node_asked(const struct world *world, unsigned lock)
{
    for (unsigned node = 0; node < world->settings.nodes_count; node++)
        for (unsigned other = 0; other < WORLD_LOCKS; other++)
            if (!world->nodes[node].is_alive && (world->asked[node] >> other & 1) != 0 &&
                ranges_overlap(world, lock, other))
                return true;
    return false;
}

void check_locks_grant(struct world *world, unsigned node, unsigned index, int result)
{
    const struct held_lock *held = &world->nodes[node].held[index];

    check_exclusion(world, node, index);
    if (result == -EOWNERDEAD && !dead_node_asked(world, held->lock))
        world_fail(world, "locks", "node %u hears of a dead owner of lock %u, and there is none", node, held->lock);
    for (unsigned d = 0; d < WORLD_DEATHS_MAX; d++) {
        struct ghost_death *death = &world->deaths[d];

        if (!death->used || !ranges_overlap(world, death->lock, held->lock))
            continue;
        if (result != -EOWNERDEAD && held->is_exclusive && ranges_are_equal(world, death->lock, held->lock))
            world_fail(world, "locks", "node %u takes lock %u and does not hear that its owner, node %u, died", node,
                       held->lock, death->node);
        if (result == -EOWNERDEAD)
            death->used = 0;
    }
}

void check_locks_use(struct world *world, unsigned node, unsigned index)
{
    const struct held_lock *held = &world->nodes[node].held[index];

    if (!held->used || held->users == 0 || (held->user_exclusive && held->users > 1))
        world_fail(world, "locks", "node %u: a thread is inside lock %u, which it does not hold", node, held->lock);
    check_exclusion(world, node, index);
}
