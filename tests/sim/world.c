/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.c - the clock, the events and the life of a simulated world.
 *
 * Events are ordered by (time, sequence), so a seed decides everything. Env calls never call the protocol back: what
 * they cause is an event. While exploring there is no time: events form a sorted set and the explorer picks any.
 */
#include "world.h"

#include "base/assert.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COHERENCE_ALIGN 64U

static bool event_before(const struct event *a, const struct event *b)
{
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->sequence < b->sequence;
}

static void heap_push(struct world *world, struct event event)
{
    uint32_t at = world->events_count++;

    while (at > 0 && event_before(&event, &world->events[(at - 1) / 2])) {
        world->events[at] = world->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    world->events[at] = event;
}

static struct event heap_pop(struct world *world)
{
    struct event top = world->events[0];
    struct event last = world->events[--world->events_count];
    uint32_t at = 0, child;

    while ((child = 2 * at + 1) < world->events_count) {
        if (child + 1 < world->events_count && event_before(&world->events[child + 1], &world->events[child]))
            child++;
        if (event_before(&last, &world->events[child]))
            break;
        world->events[at] = world->events[child];
        at = child;
    }
    world->events[at] = last;
    return top;
}

/* The explorer's form: sorted by what happens, so that equal worlds have equal bytes. */
static void sorted_insert(struct world *world, struct event event)
{
    uint32_t key = (uint32_t)(event.kind << 24 | event.node << 16 | event.index);
    uint32_t at = world->events_count++;

    for (; at > 0; at--) {
        const struct event *other = &world->events[at - 1];

        if ((uint32_t)(other->kind << 24 | other->node << 16 | other->index) <= key)
            break;
        world->events[at] = *other;
    }
    world->events[at] = event;
}

void world_schedule(struct world *world, uint64_t delay_ns, enum event_kind kind, unsigned node, unsigned index)
{
    struct event event = {
        .time_ns = world->now_ns + delay_ns,
        .sequence = world->event_sequence++,
        .kind = (uint8_t)kind,
        .node = (uint8_t)node,
        .index = (uint16_t)index,
    };

    ASSERT(world->events_count < WORLD_EVENTS_MAX);
    if (!world->is_exploring) {
        heap_push(world, event);
        return;
    }
    event.time_ns = 0;
    event.sequence = 0;
    sorted_insert(world, event);
}

uint64_t world_now(const struct world *world, unsigned node)
{
    return world->is_exploring ? world->nodes[node].clock_ns : world->now_ns;
}

uint32_t world_draw(struct world *world, uint32_t bound)
{
    return world->is_exploring || bound == 0 ? 0 : random_below(&world->workload, bound);
}

uint32_t world_fault_draw(struct world *world, uint32_t bound)
{
    return world->is_exploring || bound == 0 ? 0 : random_below(&world->faults, bound);
}

bool world_fault_chance(struct world *world, uint32_t permille)
{
    return !world->is_exploring && random_below(&world->faults, 1000) < permille;
}

void world_fail(struct world *world, const char *checker, const char *format, ...)
{
    va_list arguments;

    if (world->is_failed || (world->is_evil && strcmp(checker, "assert") != 0))
        return;
    world->is_failed = true;
    world->checker = checker;
    va_start(arguments, format);
    vsnprintf(world->failure, sizeof(world->failure), format, arguments);
    va_end(arguments);
}

unsigned world_pages_count(const struct world *world)
{
    return (unsigned)world->settings.extents_count * world->settings.extent_pages;
}

/* Page numbers are as the real space has them: pages of one extent are consecutive, extents are 512 apart. */
struct page_id world_page_id(const struct world *world, unsigned page)
{
    unsigned extent = page / world->settings.extent_pages;

    return page_of((uint64_t)extent * EXTENT_PAGES + page % world->settings.extent_pages);
}

bool world_page_find(const struct world *world, struct page_id id, unsigned *ret_page)
{
    uint64_t extent = id.index / EXTENT_PAGES;
    uint64_t within = id.index % EXTENT_PAGES;

    if (extent >= world->settings.extents_count || within >= world->settings.extent_pages)
        return false;
    *ret_page = (unsigned)(extent * world->settings.extent_pages + within);
    return true;
}

unsigned world_page_home(const struct world *world, unsigned page)
{
    return world->home_nodes[page / world->settings.extent_pages];
}

static void world_locks_draw(struct world *world)
{
    const struct settings *settings = &world->settings;

    for (unsigned i = 0; i < WORLD_LOCKS; i++) {
        struct lock_range *range = &world->locks[i];
        unsigned extent = world_draw(world, settings->extents_count);
        unsigned within = world_draw(world, settings->extent_pages);
        unsigned page = extent * settings->extent_pages + within;

        range->page = (uint16_t)page;
        range->space = i % 4 == 3 ? LOCK_WORDS : LOCK_PAGES;
        if (range->space == LOCK_WORDS) {
            range->first = world_page_id(world, page).index << (PAGE_SHIFT - 3) | (i & 7);
            range->count = 1;
        } else {
            range->first = world_page_id(world, page).index;
            range->count = (uint8_t)(1 + world_draw(world, settings->extent_pages - within));
        }
    }
}

static void world_nodes_init(struct world *world)
{
    const struct settings *settings = &world->settings;
    struct view view = {.epoch = {1}, .members = (UINT64_C(1) << settings->nodes_count) - 1};

    world->view = view;
    for (unsigned i = 0; i < settings->nodes_count; i++) {
        struct sim_node *node = &world->nodes[i];

        node->world = world;
        node->index = (uint16_t)i;
        node->is_alive = true;
        node->clock_ns = 1000;
        node->coherence = (struct coherence *)(void *)((uint8_t *)world + sizeof(*world) + i * world->coherence_bytes);
        memory_env(node);
        coherence_init(node->coherence, &settings->limits, &node->env, node_of(i), world->seed * 31 + i);
    }
    for (unsigned i = 0; i < settings->nodes_count; i++) {
        world->nodes[i].view = view;
        coherence_set_view(world->nodes[i].coherence, &view, world_now(world, i));
    }
}

struct world *world_create(const struct settings *settings, uint64_t seed)
{
    size_t block = (coherence_size(&settings->limits) + COHERENCE_ALIGN - 1) / COHERENCE_ALIGN * COHERENCE_ALIGN;
    size_t size = sizeof(struct world) + block * settings->nodes_count;
    struct world *world = NULL;

    BUILD_ASSERT(sizeof(struct world) % COHERENCE_ALIGN == 0);
    size = (size + COHERENCE_ALIGN - 1) / COHERENCE_ALIGN * COHERENCE_ALIGN;
    world = aligned_alloc(COHERENCE_ALIGN, size);
    ASSERT(world != NULL);
    memset(world, 0, size);
    world->settings = *settings;
    world->seed = seed;
    world->coherence_bytes = block;
    world->size_bytes = size;
    world->workload.state = seed;
    world->faults.state = ~seed * 0x2545f4914f6cdd1dU;
    world->now_ns = 1000;
    net_init(world);
    for (unsigned i = 0; i < settings->extents_count; i++)
        world->home_nodes[i] = (uint16_t)(i < settings->nodes_count ? i : world_draw(world, settings->nodes_count));
    world_locks_draw(world);
    return world;
}

/* Starts the protocol and the processors. Apart from world_create(), so that the caller may change the world first. */
void world_start(struct world *world)
{
    world_nodes_init(world);
    processor_start(world);
    if (!world->is_exploring && world->settings.chaos_ns > 0)
        world_schedule(world, world->settings.chaos_ns, EVENT_CHAOS, 0, 0);
}

void world_destroy(struct world *world)
{
    free(world);
}

/* The node whose timer is due first, or nodes_count. */
static unsigned timer_first(const struct world *world, uint64_t *ret_deadline_ns)
{
    unsigned first = world->settings.nodes_count;

    *ret_deadline_ns = UINT64_MAX;
    for (unsigned i = 0; i < world->settings.nodes_count; i++) {
        uint64_t deadline_ns;

        if (!world->nodes[i].is_alive)
            continue;
        deadline_ns = coherence_deadline_ns(world->nodes[i].coherence);
        if (deadline_ns < *ret_deadline_ns) {
            *ret_deadline_ns = deadline_ns;
            first = i;
        }
    }
    return first;
}

/* Takes what happens next. False: nothing will ever happen again. */
bool world_next(struct world *world, struct event *ret_event)
{
    uint64_t deadline_ns;
    unsigned node = timer_first(world, &deadline_ns);

    if (world->events_count > 0 && world->events[0].time_ns <= deadline_ns) {
        *ret_event = heap_pop(world);
    } else if (node < world->settings.nodes_count) {
        *ret_event = (struct event){.time_ns = deadline_ns, .kind = EVENT_TICK, .node = (uint8_t)node};
    } else {
        return false;
    }
    if (ret_event->time_ns > world->now_ns)
        world->now_ns = ret_event->time_ns;
    return true;
}

static void event_trace(struct world *world, const struct event *event)
{
    static const char *const names[] = {
        "deliver",
        "thread runs",
        "slow page is read",
        "pins are gone",
        "atomic can go on",
        "long pin ends",
        "lock request is given up",
        "disk error",
        "new view",
        "faults are drawn",
        "timer",
    };

    bool is_about_page = event->kind == EVENT_PROTECTED || event->kind == EVENT_ATOMIC_READY ||
                         event->kind == EVENT_UNPIN || event->kind == EVENT_LOST;

    if (event->kind == EVENT_DELIVER || event->kind == EVENT_CHAOS)
        return;
    trace_note(world, TRACE_EVENT, event->node, is_about_page ? event->index : UINT16_MAX, event->index, 0,
               names[event->kind]);
}

static void event_dispatch(struct world *world, const struct event *event)
{
    struct sim_node *node = &world->nodes[event->node];
    uint64_t now_ns = world_now(world, event->node);

    switch ((enum event_kind)event->kind) {
    case EVENT_DELIVER:
        net_deliver(world, event->index);
        break;
    case EVENT_THREAD:
        processor_run(world, event->index);
        break;
    case EVENT_SEND:
        memory_send_ready(world, event->index);
        break;
    case EVENT_PROTECTED:
        coherence_protected(node->coherence, world_page_id(world, event->index), now_ns);
        break;
    case EVENT_ATOMIC_READY:
        node->frames[event->index].is_slow = false;
        coherence_atomic_ready(node->coherence, world_page_id(world, event->index), now_ns);
        break;
    case EVENT_UNPIN:
        memory_unpin(world, event->node, event->index);
        break;
    case EVENT_TIMEOUT:
        locking_timeout(world, event->index);
        break;
    case EVENT_LOST:
        memory_lost(world, event->node, event->index);
        break;
    case EVENT_VIEW:
        faults_view(world, event->node);
        break;
    case EVENT_CHAOS:
        faults_chaos(world);
        break;
    case EVENT_TICK:
        coherence_tick(node->coherence, now_ns);
        break;
    }
}

void world_execute(struct world *world, const struct event *event)
{
    bool for_node = event->kind != EVENT_DELIVER && event->kind != EVENT_CHAOS && event->kind != EVENT_TIMEOUT;

    world->step++;
    if (for_node && !world->nodes[event->node].is_alive)
        return;
    event_trace(world, event);
    event_dispatch(world, event);
}

bool world_step(struct world *world)
{
    struct event event;

    if (!world_next(world, &event))
        return false;
    world_execute(world, &event);
    check_writers_all(world);
    if (world->is_healed && world->step % 256 == 0)
        check_progress_waiting(world);
    return true;
}

/*
 * Phase 1: `steps_max` steps under faults, safety only. Phase 2: no new faults, everything must end. Then nothing
 * happens any more, and the cluster's state must agree with itself.
 */
void world_run(struct world *world, uint32_t steps_max)
{
    world->steps_max = steps_max;
    while (!world->is_failed && world->step < steps_max)
        if (!world_step(world))
            break;
    if (world->is_failed || world->is_evil)
        return;
    faults_heal(world);
    while (!world->is_failed && world_step(world))
        ;
    check_progress_end(world);
    processor_end(world);
    while (!world->is_failed && world_step(world))
        ;
    check_progress_end(world);
    for (unsigned page = 0; page < world_pages_count(world) && world->mutant == WORLD_MUTANT_LOSE_SHARER; page++)
        world->homes[page].sharers = 0;
    check_directory(world);
    check_leaks(world);
    check_atomics_all(world);
}
