/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_writers.c - single writer: no node may write a page while another node may write or read it
 * (P1, P5, P6).
 *
 * "May" is what the simulated page tables allow, not what the protocol believes.
 */
#include "world.h"

void check_writers(struct world *world, unsigned node, unsigned page)
{
    enum access access = world->nodes[node].frames[page].rights;

    for (unsigned i = 0; i < world->settings.nodes_count; i++) {
        enum access other = world->nodes[i].frames[page].rights;

        if (i == node || !world->nodes[i].is_alive || !world->nodes[node].is_alive)
            continue;
        if ((access == ACCESS_WRITE && other >= ACCESS_READ) || (access >= ACCESS_READ && other == ACCESS_WRITE))
            world_fail(world, "writers", "page %u: node %u has rights %u while node %u has rights %u", page, node,
                       access, i, other);
    }
}

/* An atomic is a write by the home: nobody else may have the page. */
void check_writers_atomic(struct world *world, unsigned node, unsigned page)
{
    for (unsigned i = 0; i < world->settings.nodes_count; i++)
        if (i != node && world->nodes[i].is_alive && world->nodes[i].frames[page].rights != ACCESS_NONE)
            world_fail(world, "writers", "page %u: an atomic runs at node %u while node %u has rights %u", page, node,
                       i, world->nodes[i].frames[page].rights);
}

void check_writers_all(struct world *world)
{
    for (unsigned page = 0; page < world_pages_count(world); page++)
        for (unsigned node = 0; node < world->settings.nodes_count; node++)
            if (world->nodes[node].frames[page].rights == ACCESS_WRITE)
                check_writers(world, node, page);
}
