/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults.c - what a seed may do to a world (the swarm), and when.
 *
 * Only faults that the contracts allow: delay, cuts that resume, one-sided partitions that heal, death of a node
 * followed by a new view, slow tiers, disk errors. Never loss inside a live connection.
 */
#include "world.h"

/* A bound drawn so that small and large values are both common. */
static uint32_t magnitude_draw(struct random *random, uint32_t min, uint32_t max)
{
    uint32_t top = max >> random_below(random, 6);

    return min + random_below(random, (top > min ? top - min : 0) + 1);
}

/* Each kind of fault may be off. */
static uint32_t maybe(struct random *random, uint32_t value)
{
    return random_below(random, 2) == 0 ? 0 : value;
}

static void workload_settings_draw(struct settings *settings, struct random *random)
{
    unsigned pages = settings->extents_count * (unsigned)settings->extent_pages;

    for (unsigned i = 0; i < OPERATIONS; i++)
        settings->weights[i] = (uint16_t)(random_below(random, 3) == 0 ? 0 : 1 + random_below(random, 20));
    settings->weights[OPERATION_LOAD] = (uint16_t)(settings->weights[OPERATION_LOAD] + 4);
    settings->weights[OPERATION_STORE] = (uint16_t)(settings->weights[OPERATION_STORE] + 4);
    settings->hot_pages = random_below(random, 2) == 0 ? pages : 1 + random_below(random, pages);
    settings->think_ns_max = magnitude_draw(random, 1, 100 * NS_PER_US);
    settings->wake_ns_max = magnitude_draw(random, 1, 40 * NS_PER_US);
    settings->timeout_permille = maybe(random, 200);
    settings->keep_lock_permille = random_below(random, 1001);
}

static void fault_settings_draw(struct settings *settings, struct random *random)
{
    settings->delay_ns_min = magnitude_draw(random, 500, 20 * NS_PER_US);
    settings->delay_ns_max = settings->delay_ns_min + magnitude_draw(random, 0, 200 * NS_PER_US);
    settings->spike_permille = maybe(random, random_below(random, 50));
    settings->spike_ns_max = magnitude_draw(random, 1, NS_PER_MS);
    settings->repeat_permille = random_below(random, 4) == 0 ? random_below(random, 100) : 0;
    settings->stall_permille = maybe(random, random_below(random, 500));
    settings->stall_ns_max = magnitude_draw(random, 1, 10 * NS_PER_MS);
    settings->crashes_max = (uint16_t)maybe(random, random_below(random, settings->nodes_count - 1U));
    settings->crash_permille = 20;
    settings->lost_permille = random_below(random, 4) == 0 ? 50 : 0;
    settings->slow_permille = maybe(random, random_below(random, 1000));
    settings->slow_ns_max = magnitude_draw(random, 1, 500 * NS_PER_US);
    settings->pin_ns_max = magnitude_draw(random, 1, 500 * NS_PER_US);
    settings->chaos_ns = magnitude_draw(random, 20 * NS_PER_US, NS_PER_MS);
}

void world_settings_draw(struct settings *settings, uint64_t seed)
{
    struct random random = {seed * 0x9e3779b97f4a7c15U + 1};

    *settings = (struct settings){0};
    settings->nodes_count = (uint16_t)(2 + random_below(&random, random_below(&random, 3) == 0 ? 7 : 3));
    settings->extents_count = (uint16_t)(1 + random_below(&random, WORLD_EXTENTS_MAX));
    settings->extent_pages = (uint16_t)(1 + random_below(&random, WORLD_EXTENT_PAGES));
    settings->threads_count = (uint16_t)(settings->nodes_count * (1 + random_below(&random, 3)));
    workload_settings_draw(settings, &random);
    fault_settings_draw(settings, &random);
    if (settings->repeat_permille > 0) /* the transport repeats nothing (F1), and conditions rely on that */
        settings->weights[OPERATION_PRODUCE] = settings->weights[OPERATION_CONSUME] = 0;
    settings->limits = (struct coherence_limits){
        .nodes_count = settings->nodes_count,
        .requests_max = (uint16_t)(random_below(&random, 2) == 0 ? 64 : 2 + random_below(&random, 6)),
        .locks_max = (uint16_t)(WORLD_HELD_MAX - 8),
        .home_locks_max = 256,
        .hold_ns = 50 * NS_PER_US,
        .hold_ns_max = NS_PER_MS,
        .lock_lease_ns = 0,
    };
}

static unsigned alive_count(const struct world *world)
{
    unsigned count = 0;

    for (unsigned i = 0; i < world->settings.nodes_count; i++)
        count += world->nodes[i].is_alive;
    return count;
}

void faults_chaos(struct world *world)
{
    const struct settings *settings = &world->settings;
    unsigned node = world_fault_draw(world, settings->nodes_count);
    unsigned page = world_fault_draw(world, world_pages_count(world));

    if (world->is_healed)
        return;
    if (world_fault_chance(world, settings->stall_permille))
        net_stall(world);
    if (world_fault_chance(world, settings->slow_permille) && world->nodes[node].frames[page].is_present)
        world->nodes[node].frames[page].is_slow = true;
    if (world_fault_chance(world, settings->lost_permille) && world->nodes[node].is_alive)
        memory_lose(world, node, page);
    if (world_fault_chance(world, settings->crash_permille) && world->crashes < settings->crashes_max &&
        alive_count(world) > 2 && world->nodes[node].is_alive)
        faults_crash(world, node);
    world_schedule(world, 1 + world_fault_draw(world, 2 * settings->chaos_ns), EVENT_CHAOS, 0, 0);
}

static bool channels_carry(struct world *world, unsigned dead, unsigned page)
{
    for (unsigned i = 0; i < WORLD_NODES_MAX * WORLD_NODES_MAX * PLANES_COUNT; i++) {
        unsigned to = i / PLANES_COUNT % WORLD_NODES_MAX, from = i / PLANES_COUNT / WORLD_NODES_MAX;
        struct message message;

        if (to != dead && from != dead)
            continue;
        for (uint16_t slot = net_channel(world, i)->first; slot != 0; slot = world->messages[slot - 1].next) {
            unsigned named = 0;

            net_peek(world, slot, &message);
            if (world_page_find(world, message.page, &named) && named == page)
                return true;
        }
    }
    return false;
}

/*
 * The last version of a page may die with a node only when the node is its home, could write it, or was part of a
 * transaction on it.
 */
static void ghosts_mark(struct world *world, unsigned dead)
{
    for (unsigned page = 0; page < world_pages_count(world); page++) {
        const struct coherence_home *home = &world->homes[page];
        const struct coherence_page *own = &world->nodes[dead].pages[page];

        if (world_page_home(world, page) == dead || home->owner == dead + 1 || own->state == PAGE_EXCLUSIVE ||
            home->busy != 0 || own->pending != 0 || channels_carry(world, dead, page))
            world->ghosts[page].may_be_lost = true;
    }
}

void faults_crash(struct world *world, unsigned node)
{
    trace_note(world, TRACE_FAULT, node, UINT16_MAX, 0, 0, "dies");
    ghosts_mark(world, node);
    world->crashes++;
    world->nodes[node].is_alive = false;
    for (unsigned i = 0; i < WORLD_SENDS_MAX; i++) {
        struct deferred_send *send = &world->sends[i];

        if (send->used && send->from == node)
            send->used = 0;
    }
    processor_crash(world, node);
    locking_crash(world, node);
    net_cut_dead(world, node);
    world->view.epoch.number++;
    world->view.members &= ~(UINT64_C(1) << node);
    for (unsigned i = 0; i < world->settings.nodes_count; i++)
        if (world->nodes[i].is_alive)
            world_schedule(world, NS_PER_MS / 2 + world_fault_draw(world, 4 * NS_PER_MS), EVENT_VIEW, i, 0);
}

/* Nodes hear of a view at different times, and may miss one that was overtaken. */
void faults_view(struct world *world, unsigned index)
{
    struct sim_node *node = &world->nodes[index];

    if (node->view.epoch.number == world->view.epoch.number)
        return;
    node->view = world->view;
    for (unsigned i = 0; i < world->settings.nodes_count; i++)
        if (!view_has(&node->view, node_of(i)))
            net_forget_dead(world, index, i);
    coherence_set_view(node->coherence, &node->view, world_now(world, index));
}

/* Phase 2 begins. Each thread still has a number of operations to do, under contention. */
void faults_heal(struct world *world)
{
    trace_note(world, TRACE_FAULT, 0, UINT16_MAX, 0, 0, "and all others are healed: phase 2");
    world->is_healed = true;
    world->healed_ns = world->now_ns;
    net_heal(world);
    for (unsigned i = 0; i < world->settings.threads_count; i++)
        world->threads[i].left = world->threads[i].left == 0 ? 0 : 20;
}
