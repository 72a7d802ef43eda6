/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch_sim.c - the cache, the link and the clock behind prefetch_sim.h.
 */
#include "bench/replay/prefetch_sim.h"
#include "base/assert.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NONE       UINT32_MAX
#define TIME_EVERY 61u /* events; not a power of two, which programs like */
#define TIMES      4096u

enum state { ABSENT = 0, UNUSED = 1, DEMANDED = 2 };

struct node {
    uint64_t page;
    double arrives_ns;
    uint64_t since; /* touches before it was brought or touched last */
    uint32_t previous, next, slot;
    uint8_t state;
    bool is_seen;
};

/* node NONE: free. is_here: asked for at least; so that a look at one line tells. */
struct slot {
    uint64_t page;
    uint32_t node;
    bool is_here;
};

struct list {
    uint32_t head, tail, count; /* oldest first */
};

struct prefetch_sim {
    struct sim_config config;
    const struct prefetcher_ops *prefetcher;
    void *state;
    struct sim_result result;
    struct node *nodes;
    uint32_t nodes_count, nodes_room;
    struct slot *slots; /* by hash of the page, at most half of them used */
    uint32_t slots_count;
    struct list lists[3]; /* by state */
    double now_ns, link_ns;
    uint64_t timed, timed_ns, events;
    uint32_t times[TIMES]; /* decisions by how many ns they took, the last one: or more */
    struct sim_pages pages;
};

/* ---- pages by number ------------------------------------------------------------------------------------------- */

/* The slot of the page, or the free one where it belongs. */
static struct slot *slot_find(const struct prefetch_sim *sim, struct page_id page)
{
    uint32_t at = (uint32_t)(page.index * 0x9e3779b97f4a7c15U >> 32) & (sim->slots_count - 1);

    while (sim->slots[at].node != NONE && sim->slots[at].page != page.index)
        at = (at + 1) & (sim->slots_count - 1);
    return &sim->slots[at];
}

static int nodes_grow(struct prefetch_sim *sim)
{
    uint32_t room = sim->nodes_room * 2;
    struct node *nodes = realloc(sim->nodes, room * sizeof(*nodes));
    struct slot *slots = nodes == NULL ? NULL : realloc(sim->slots, 2 * (size_t)room * sizeof(*slots));

    sim->nodes = nodes != NULL ? nodes : sim->nodes;
    if (slots == NULL)
        return -ENOMEM;
    sim->slots = slots;
    sim->nodes_room = room;
    sim->slots_count = 2 * room;
    memset(slots, 0xff, sim->slots_count * sizeof(*slots));
    for (uint32_t i = 0; i < sim->nodes_count; i++) {
        struct slot *slot = slot_find(sim, page_of(nodes[i].page));

        *slot = (struct slot){nodes[i].page, i, nodes[i].state != ABSENT};
        nodes[i].slot = (uint32_t)(slot - slots);
    }
    return 0;
}

/* The page's node, made when there is none. NONE: no memory. */
static uint32_t node_get(struct prefetch_sim *sim, struct page_id page)
{
    struct slot *slot = slot_find(sim, page);

    if (slot->node != NONE)
        return slot->node;
    if (sim->nodes_count == sim->nodes_room) {
        if (nodes_grow(sim) != 0)
            return NONE;
        slot = slot_find(sim, page);
    }
    *slot = (struct slot){page.index, sim->nodes_count, false};
    sim->nodes[sim->nodes_count] = (struct node){.page = page.index, .slot = (uint32_t)(slot - sim->slots)};
    return sim->nodes_count++;
}

/* ---- lists ----------------------------------------------------------------------------------------------------- */

static void node_leave(struct prefetch_sim *sim, uint32_t at)
{
    struct node *node = &sim->nodes[at];
    struct list *list = &sim->lists[node->state];

    if (node->state == ABSENT)
        return;
    *(node->previous != NONE ? &sim->nodes[node->previous].next : &list->head) = node->next;
    *(node->next != NONE ? &sim->nodes[node->next].previous : &list->tail) = node->previous;
    list->count--;
    node->state = ABSENT;
    sim->slots[node->slot].is_here = false;
}

static void node_enter(struct prefetch_sim *sim, uint32_t at, enum state state)
{
    struct node *node = &sim->nodes[at];
    struct list *list = &sim->lists[state];

    node_leave(sim, at);
    node->state = (uint8_t)state;
    sim->slots[node->slot].is_here = true;
    node->previous = list->tail;
    node->next = NONE;
    *(list->tail != NONE ? &sim->nodes[list->tail].next : &list->head) = at;
    list->tail = at;
    list->count++;
    node->since = sim->result.touches;
}

/* ---- frames ---------------------------------------------------------------------------------------------------- */

static void evict_unused(struct prefetch_sim *sim)
{
    uint32_t at = sim->lists[UNUSED].head;

    node_leave(sim, at);
    sim->result.wasted++;
    if (sim->prefetcher->wasted != NULL && sim->nodes[at].is_seen)
        sim->prefetcher->wasted(sim->state, page_of(sim->nodes[at].page));
}

static void evict_demanded(struct prefetch_sim *sim)
{
    uint32_t at = sim->lists[DEMANDED].head;

    node_leave(sim, at);
    if (sim->prefetcher != NULL && sim->prefetcher->evicted != NULL)
        sim->prefetcher->evicted(sim->state, page_of(sim->nodes[at].page), sim->lists[UNUSED].count);
}

/* Of the oldest prefetched page and the one touched longest ago, the older one. */
static void make_room(struct prefetch_sim *sim)
{
    const struct list *unused = &sim->lists[UNUSED];
    const struct list *demanded = &sim->lists[DEMANDED];

    if (unused->count + demanded->count < sim->config.frames)
        return;
    if (demanded->count == 0 || (unused->count > 0 && sim->nodes[unused->head].arrives_ns <= sim->now_ns &&
                                 sim->nodes[unused->head].since < sim->nodes[demanded->head].since))
        evict_unused(sim);
    else
        evict_demanded(sim);
}

static uint32_t unused_max(const struct prefetch_sim *sim)
{
    return sim->config.frames / 8 > 0 ? sim->config.frames / 8 : 1;
}

static double link_take(struct prefetch_sim *sim)
{
    sim->link_ns = (sim->link_ns > sim->now_ns ? sim->link_ns : sim->now_ns) + sim->config.page_ns;
    return sim->link_ns + sim->config.fetch_us * 1000;
}

static int bring_ahead(struct prefetch_sim *sim, struct page_id page, bool is_seen)
{
    uint32_t at = node_get(sim, page);

    if (at == NONE)
        return -ENOMEM;
    if (sim->nodes[at].state != ABSENT || (sim->config.new_pages_free && sim->nodes[at].since == 0))
        return 0;
    if (sim->lists[UNUSED].count >= unused_max(sim)) {
        if (sim->nodes[sim->lists[UNUSED].head].arrives_ns > sim->now_ns)
            return 0; /* it is under way */
        evict_unused(sim);
    } else {
        make_room(sim);
    }
    sim->nodes[at].arrives_ns = link_take(sim);
    sim->nodes[at].is_seen = is_seen || !sim->config.sees_triggers;
    node_enter(sim, at, UNUSED);
    sim->result.issued++;
    return 0;
}

/* ---- events ---------------------------------------------------------------------------------------------------- */

static uint64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static bool view_is_absent(const void *context, struct page_id page)
{
    const struct prefetch_sim *sim = context;
    const struct slot *slot = slot_find(sim, page);

    return slot->node == NONE ? !sim->config.new_pages_free : !slot->is_here;
}

/* One decision in so many is timed; what it takes to read the clock is taken off, as measured just before. */
static void event_ask(struct prefetch_sim *sim, struct page_id page, bool was_prefetched,
                      const struct prefetch_view *view)
{
    uint64_t before_ns, start_ns, taken_ns;

    if (sim->events++ % TIME_EVERY != 0) {
        sim->prefetcher->event(sim->state, page, was_prefetched, view, &sim->pages);
        return;
    }
    before_ns = clock_ns();
    start_ns = clock_ns();
    sim->prefetcher->event(sim->state, page, was_prefetched, view, &sim->pages);
    taken_ns = clock_ns() - start_ns;
    taken_ns = taken_ns > start_ns - before_ns ? taken_ns - (start_ns - before_ns) : 0;
    sim->timed_ns += taken_ns;
    sim->times[taken_ns < TIMES ? taken_ns : TIMES - 1]++;
    sim->timed++;
}

static int event(struct prefetch_sim *sim, struct page_id page, bool was_prefetched)
{
    double waiting_ns = sim->link_ns - sim->now_ns;
    struct prefetch_view view = {view_is_absent, sim, 0};
    int error = 0;

    if (sim->prefetcher == NULL)
        return 0;
    view.queue = waiting_ns > 0 ? (uint32_t)(waiting_ns / sim->config.page_ns) : 0;
    sim->pages.count = 0;
    event_ask(sim, page, was_prefetched, &view);
    for (uint32_t i = 0; i < sim->pages.count && error == 0; i++)
        error = bring_ahead(sim, sim->pages.pages[i], sim->pages.is_seen[i]);
    return error;
}

static void wait_for(struct prefetch_sim *sim, double arrives_ns)
{
    if (arrives_ns <= sim->now_ns)
        return;
    sim->result.stall_ns += arrives_ns - sim->now_ns;
    sim->now_ns = arrives_ns;
}

static int miss(struct prefetch_sim *sim, uint32_t at)
{
    struct page_id page = page_of(sim->nodes[at].page);
    double arrives_ns;
    int error;

    make_room(sim);
    node_enter(sim, at, DEMANDED);
    if (sim->config.new_pages_free && sim->nodes[at].arrives_ns == 0) {
        sim->nodes[at].arrives_ns = sim->now_ns;
        return 0;
    }
    sim->result.misses++;
    arrives_ns = link_take(sim);
    error = event(sim, page, false);
    sim->nodes[at].arrives_ns = arrives_ns;
    wait_for(sim, arrives_ns);
    return error;
}

static int first_touch(struct prefetch_sim *sim, uint32_t at)
{
    struct page_id page = page_of(sim->nodes[at].page);
    double arrives_ns = sim->nodes[at].arrives_ns;
    bool is_late = arrives_ns > sim->now_ns;
    int error = 0;

    *(is_late ? &sim->result.late : &sim->result.timely) += 1;
    node_enter(sim, at, DEMANDED);
    if (sim->nodes[at].is_seen || is_late) {
        if (sim->prefetcher->used != NULL)
            sim->prefetcher->used(sim->state, page, is_late);
        error = event(sim, page, true);
    }
    wait_for(sim, arrives_ns);
    return error;
}

int prefetch_sim_touch(struct prefetch_sim *sim, struct page_id page, double gap_ns)
{
    uint32_t at = node_get(sim, page);

    if (at == NONE)
        return -ENOMEM;
    sim->now_ns += gap_ns;
    sim->result.touches++;
    if (sim->nodes[at].state == UNUSED)
        return first_touch(sim, at);
    if (sim->nodes[at].state == ABSENT)
        return miss(sim, at);
    node_enter(sim, at, DEMANDED);
    return 0;
}

/* ---- start and end --------------------------------------------------------------------------------------------- */

struct prefetch_sim *prefetch_sim_create(const struct sim_config *config, const struct prefetcher_ops *prefetcher)
{
    struct prefetch_sim *sim = calloc(1, sizeof(*sim));

    if (sim == NULL)
        return NULL;
    sim->config = *config;
    sim->prefetcher = prefetcher;
    sim->nodes_room = 1024;
    for (int i = 0; i < 3; i++)
        sim->lists[i] = (struct list){NONE, NONE, 0};
    if (prefetcher != NULL) {
        sim->state = calloc(1, prefetcher->bytes(config->frames));
        if (sim->state != NULL)
            prefetcher->init(sim->state, config->frames);
    }
    if ((prefetcher != NULL && sim->state == NULL) || nodes_grow(sim) != 0) {
        prefetch_sim_destroy(sim);
        return NULL;
    }
    return sim;
}

static double median_ns(const struct prefetch_sim *sim)
{
    uint64_t below = 0;
    uint32_t at = 0;

    while (at < TIMES - 1 && (below += sim->times[at]) * 2 < sim->timed)
        at++;
    return at;
}

void prefetch_sim_result(struct prefetch_sim *sim, struct sim_result *ret_result)
{
    *ret_result = sim->result;
    ret_result->left_over = sim->lists[UNUSED].count;
    ret_result->decision_ns = median_ns(sim);
    ret_result->decision_mean_ns = sim->timed > 0 ? (double)sim->timed_ns / (double)sim->timed : 0;
}

void prefetch_sim_destroy(struct prefetch_sim *sim)
{
    if (sim == NULL)
        return;
    free(sim->state);
    free(sim->nodes);
    free(sim->slots);
    free(sim);
}
