/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_directory.c - when nothing happens any more: the directory agrees with the holders, and nothing leaked.
 *
 * A sharer may have forgotten its copy without a word, so the directory's sharers are a superset (P13); an owner is
 * exact (P3). No request and no transaction outlives its end (P14, P15, V7).
 */
#include "world.h"

static void check_rights_match(struct world *world, unsigned node, unsigned page)
{
    const struct frame *frame = &world->nodes[node].frames[page];
    unsigned state = world->nodes[node].pages[page].state;
    bool matches = state == PAGE_POISONED || state == PAGE_INVALID ? frame->rights == ACCESS_NONE
                   : state == PAGE_SHARED                          ? frame->rights <= ACCESS_READ
                                                                   : true;

    if (!matches)
        world_fail(world, "directory", "node %u: page %u is in state %u with rights %u", node, page, state,
                   frame->rights);
}

static void check_holder(struct world *world, unsigned node, unsigned page)
{
    const struct coherence_home *home = &world->homes[page];
    unsigned state = world->nodes[node].pages[page].state;
    bool is_home = world_page_home(world, page) == node;

    if (state == PAGE_EXCLUSIVE && home->owner != node + 1 && !(is_home && home->owner == 0))
        world_fail(world, "directory", "node %u owns page %u, its home says node %d", node, page, home->owner - 1);
    if (state == PAGE_SHARED && (home->owner != 0 || (home->sharers >> node & 1) == 0) && !is_home)
        world_fail(world, "directory", "node %u shares page %u, its home says owner %d, sharers 0x%llx", node, page,
                   home->owner - 1, (unsigned long long)home->sharers);
    if (home->owner == node + 1 && state != PAGE_EXCLUSIVE)
        world_fail(world, "directory", "the home says that node %u owns page %u, whose state there is %u", node, page,
                   state);
}

void check_directory(struct world *world)
{
    for (unsigned page = 0; page < world_pages_count(world); page++) {
        bool home_lives = world->nodes[world_page_home(world, page)].is_alive;

        for (unsigned node = 0; node < world->settings.nodes_count; node++) {
            if (!world->nodes[node].is_alive)
                continue;
            check_rights_match(world, node, page);
            if (home_lives && world->nodes[node].pages[page].state != PAGE_POISONED &&
                (world->homes[page].flags & HOME_POISONED) == 0)
                check_holder(world, node, page);
        }
    }
}

static void check_tokens(struct world *world)
{
    for (unsigned i = 0; i < WORLD_TOKENS_MAX; i++)
        if (world->tokens[i].kind != TOKEN_FREE)
            world_fail(world, "leaks", "node %u never answers token %u (kind %u, page %u, thread %u)",
                       world->tokens[i].node, i, world->tokens[i].kind, world->tokens[i].page, world->tokens[i].thread);
}

void check_leaks(struct world *world)
{
    check_tokens(world);
    for (unsigned page = 0; page < world_pages_count(world); page++) {
        unsigned home = world_page_home(world, page);

        if (world->nodes[home].is_alive && world->homes[page].busy != 0)
            world_fail(world, "leaks", "page %u is busy at its home %u, and nothing happens", page, home);
        for (unsigned node = 0; node < world->settings.nodes_count; node++)
            if (world->nodes[node].is_alive && world->nodes[node].pages[page].pending != 0)
                world_fail(world, "leaks", "page %u has an errand at node %u, and nothing happens", page, node);
    }
}
