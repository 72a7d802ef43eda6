/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.h - several clusters in one process: first-in first-out queues between pairs, delivered in an order drawn from
 * a seed; views decided by the shipped agree.c and heard by each node at its own time; nodes that crash or are thrown
 * out.
 *
 * Checked at every done(): the token was asked and did not end before; a taken run is in every replica of the view, a
 * given one in none; a name is in every replica; a barrier was reached by all.
 */
#ifndef TIERMESH_TESTS_CLUSTER_WORLD_H
#define TIERMESH_TESTS_CLUSTER_WORLD_H

#include "base/random.h"
#include "cluster/agree.h"
#include "cluster/cluster.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORLD_NODES   6
#define WORLD_QUEUE   512
#define WORLD_TOKENS  512
#define WORLD_VIEWS   16
#define WORLD_EXTENTS 64
#define WORLD_BYTES   192

struct world_packet {
    size_t size_bytes;
    uint8_t bytes[WORLD_BYTES];
};

struct world_queue {
    unsigned first, count;
    struct world_packet packets[WORLD_QUEUE];
};

enum ask {
    ASK_TAKE = 1,
    ASK_GIVE,
    ASK_SET,
    ASK_GET,
    ASK_BARRIER,
};

struct world_token {
    enum ask ask;
    unsigned node;
    uint64_t first, count, value; /* GIVE: value is the token of the take, plus 1 */
    char name[16];
    uint32_t epoch;
    unsigned round; /* BARRIER: how many this node had asked in this epoch */
    bool is_done;
    int result;
};

struct world_node {
    struct world *world;
    struct cluster *cluster;
    unsigned index;
    bool is_dead;
    unsigned views_heard;
    uint64_t suspects;
    unsigned suspicions;
    unsigned barriers[WORLD_VIEWS + 1]; /* asked, by epoch */
    unsigned freed[WORLD_EXTENTS];      /* how often extents_freed() named it */
    bool is_rogue;                      /* what it sends is thrown away */
};

struct world {
    struct random random;
    unsigned nodes_count;
    uint64_t now_ns;
    struct agree agree;
    struct view views[WORLD_VIEWS];
    unsigned views_count;
    struct world_node nodes[WORLD_NODES];
    struct world_queue queues[WORLD_NODES][WORLD_NODES];
    struct world_token tokens[WORLD_TOKENS];
    unsigned tokens_count;
    unsigned steps;
    bool is_lawless; /* a rogue is at work: only "ends once" is checked */
};

static inline void world_send(void *context, struct node_id to, const void *bytes, size_t size_bytes)
{
    struct world_node *node = context;
    struct world_queue *queue = &node->world->queues[node->index][to.index];
    struct world_packet *packet = &queue->packets[(queue->first + queue->count) % WORLD_QUEUE];

    assert_true(to.index < node->world->nodes_count && size_bytes <= WORLD_BYTES);
    if (node->is_dead || node->is_rogue || node->world->nodes[to.index].is_dead)
        return;
    assert_true(queue->count < WORLD_QUEUE);
    memcpy(packet->bytes, bytes, size_bytes);
    packet->size_bytes = size_bytes;
    queue->count++;
}

/* Nodes of the asking node's view that live and have not been thrown out. */
static inline bool world_counts(const struct world_node *asker, unsigned i)
{
    const struct world *world = asker->world;

    return view_has(cluster_view(asker->cluster), node_of(i)) && !world->nodes[i].is_dead &&
           view_has(&world->agree.view, node_of(i));
}

static inline void check_taken(struct world_node *node, struct world_token *token, uint64_t first)
{
    token->first = first;
    for (unsigned i = 0; i < node->world->nodes_count; i++) {
        for (uint64_t extent = 0; world_counts(node, i) && extent < token->count; extent++) {
            const struct cluster_extent *at = cluster_extent_at(node->world->nodes[i].cluster, first + extent);

            assert_non_null(at);
            assert_int_equal(at->allocator, token->node + 1);
            assert_int_equal(at->run_position, extent);
            assert_true((at->flags & EXTENT_ALLOCATED) != 0 && at->home >= 1);
        }
    }
}

static inline void check_given(struct world_node *node, const struct world_token *token)
{
    for (unsigned i = 0; i < node->world->nodes_count; i++) {
        for (uint64_t extent = 0; world_counts(node, i) && extent < token->count; extent++)
            assert_true(node->world->nodes[i].freed[token->first + extent] > 0);
    }
}

static inline void check_barrier(struct world_node *node, const struct world_token *token)
{
    uint32_t epoch = cluster_view(node->cluster)->epoch.number;

    for (unsigned i = 0; i < node->world->nodes_count; i++) {
        if (view_has(cluster_view(node->cluster), node_of(i)))
            assert_true(node->world->nodes[i].barriers[epoch] >= token->round);
    }
}

static inline void world_done(void *context, uint64_t number, int result, uint64_t value)
{
    struct world_node *node = context;
    struct world_token *token = &node->world->tokens[number];

    assert_true(number < node->world->tokens_count);
    assert_int_equal(token->node, node->index);
    assert_false(token->is_done);
    token->is_done = true;
    token->result = result;
    if (token->ask == ASK_GET)
        token->value = value;
    if (result != 0 || node->world->is_lawless)
        return;
    if (token->ask == ASK_TAKE)
        check_taken(node, token, value);
    else if (token->ask == ASK_GIVE)
        check_given(node, token);
    else if (token->ask == ASK_BARRIER)
        check_barrier(node, token);
}

static inline void world_taken(void *context, uint64_t first_extent, uint64_t extents_count)
{
    struct world_node *node = context;

    /* Called when the replica has them, on every member. */
    for (uint64_t i = 0; i < extents_count; i++)
        assert_int_not_equal(cluster_extent_at(node->cluster, first_extent + i)->home, 0);
}

static inline void world_freed(void *context, uint64_t first_extent, uint64_t extents_count)
{
    struct world_node *node = context;

    for (uint64_t i = 0; i < extents_count; i++) {
        assert_true(first_extent + i < WORLD_EXTENTS);
        node->freed[first_extent + i]++;
    }
}

static inline void world_suspect(void *context, struct node_id peer)
{
    struct world_node *node = context;

    node->suspects |= (uint64_t)1 << peer.index;
    node->suspicions++;
}

static inline struct world *world_open(unsigned nodes_count, uint64_t seed)
{
    const struct cluster_limits limits = {.nodes_count = (uint16_t)nodes_count,
                                          .extents_count = WORLD_EXTENTS,
                                          .requests_max = 8,
                                          .names_max = 4,
                                          .heartbeat_ns = 100,
                                          .suspect_ns = 1000};
    struct world *world = calloc(1, sizeof(*world));

    assert_non_null(world);
    world->nodes_count = nodes_count;
    world->random.state = seed;
    agree_init(&world->agree, nodes_count);
    for (unsigned i = 0; i < nodes_count; i++) {
        struct world_node *node = &world->nodes[i];
        struct cluster_env env = {node, world_send, world_done, world_taken, world_freed, world_suspect};

        node->world = world;
        node->index = i;
        node->cluster = calloc(1, cluster_bytes(&limits));
        assert_non_null(node->cluster);
        cluster_init(node->cluster, &limits, &env, node_of(i));
        if (agree_join(&world->agree, node_of(i)))
            world->views[world->views_count++] = world->agree.view;
    }
    return world;
}

static inline void world_close(struct world *world)
{
    for (unsigned i = 0; i < world->nodes_count; i++)
        free(world->nodes[i].cluster);
    free(world);
}

/* ---- what can happen -------------------------------------------------------------------------------------------- */

static inline bool world_deliver(struct world *world, unsigned from, unsigned to)
{
    struct world_queue *queue = &world->queues[from][to];
    struct world_packet packet;

    if (queue->count == 0 || world->nodes[to].is_dead)
        return false;
    packet = queue->packets[queue->first];
    queue->first = (queue->first + 1) % WORLD_QUEUE;
    queue->count--;
    cluster_receive(world->nodes[to].cluster, node_of(from), packet.bytes, packet.size_bytes, world->now_ns);
    return true;
}

static inline bool world_hear(struct world *world, unsigned node)
{
    struct world_node *hearing = &world->nodes[node];

    if (hearing->is_dead || hearing->views_heard == world->views_count)
        return false;
    cluster_set_view(hearing->cluster, &world->views[hearing->views_heard++], world->now_ns);
    return true;
}

/* One delivery: a message or a view, drawn from all that could come next. False: nothing is left. */
static inline bool world_step(struct world *world)
{
    unsigned n = world->nodes_count;
    unsigned choices = n * n + n;
    unsigned start = random_below(&world->random, choices);

    world->steps++;
    for (unsigned i = 0; i < choices; i++) {
        unsigned choice = (start + i) % choices;

        if (choice < n * n ? world_deliver(world, choice / n, choice % n) : world_hear(world, choice - n * n))
            return true;
    }
    return false;
}

static inline void world_drain(struct world *world)
{
    for (unsigned steps = 0; world_step(world); steps++)
        assert_true(steps < 100000);
}

static inline void world_agreed(struct world *world, bool is_new_view)
{
    if (is_new_view) {
        assert_true(world->views_count < WORLD_VIEWS);
        world->views[world->views_count++] = world->agree.view;
    }
}

/* The process ends: of what it sent, a beginning of each queue still arrives. */
static inline void world_crash(struct world *world, unsigned node)
{
    world->nodes[node].is_dead = true;
    for (unsigned i = 0; i < world->nodes_count; i++) {
        struct world_queue *queue = &world->queues[node][i];

        queue->count = random_below(&world->random, queue->count + 1);
        world->queues[i][node].count = 0;
    }
    world_agreed(world, agree_exited(&world->agree, node_of(node)));
}

/* Suspected wrongly: it runs on until it hears that it is out. */
static inline void world_expel(struct world *world, unsigned node)
{
    for (unsigned by = 0; by < world->nodes_count; by++)
        world_agreed(world, agree_suspect(&world->agree, node_of(by), node_of(node)));
}

/* Whether a run was asked back by its node, or was given back. */
static inline bool world_is_given(const struct world *world, unsigned take, bool is_done)
{
    for (unsigned i = take + 1; i < world->tokens_count; i++) {
        const struct world_token *token = &world->tokens[i];

        if (token->ask == ASK_GIVE && token->value == take + 1 && (!is_done || (token->is_done && token->result == 0)))
            return true;
    }
    return false;
}

/* The take that a give undoes, plus 1; 0: it undoes none. */
static inline uint64_t world_take_of(const struct world *world, unsigned node, const struct world_token *give)
{
    for (unsigned i = 0; i < world->tokens_count; i++) {
        const struct world_token *token = &world->tokens[i];

        if (token->ask == ASK_TAKE && token->node == node && token->is_done && token->result == 0 &&
            token->first == give->first && token->count == give->count && !world_is_given(world, i, true))
            return i + 1;
    }
    return 0;
}

/* Asks for one thing at a node. Returns the token, or a negative errno when it was refused at once. */
static inline int world_ask(struct world *world, unsigned node, struct world_token ask)
{
    struct world_node *asker = &world->nodes[node];
    struct cluster *cluster = asker->cluster;
    unsigned number = world->tokens_count++;
    struct world_token *token = &world->tokens[number];
    int result = -EINVAL;

    assert_true(number < WORLD_TOKENS);
    *token = ask;
    token->node = node;
    token->epoch = cluster_view(cluster)->epoch.number;
    switch (ask.ask) {
    case ASK_TAKE:
        result = ask.value == 0
                     ? cluster_extents_take(cluster, ask.count, CLUSTER_PLACE_INTERLEAVE, NODE_NONE, number, 0)
                     : cluster_extents_take(cluster, ask.count, CLUSTER_PLACE_NODE, node_of((unsigned)ask.value - 1),
                                            number, 0);
        break;
    case ASK_GIVE:
        token->value = world_take_of(world, node, &ask);
        result = cluster_extents_give(cluster, ask.first, ask.count, number, 0);
        break;
    case ASK_SET:
        result = cluster_name_set(cluster, ask.name, ask.value, number, 0);
        break;
    case ASK_GET:
        result = cluster_name_get(cluster, ask.name, ask.first != 0, number, 0);
        break;
    case ASK_BARRIER:
        token->epoch += token->epoch == 0; /* it waits for the first view and counts there */
        token->round = ++asker->barriers[token->epoch];
        result = cluster_barrier(cluster, number, 0);
        if (result < 0)
            asker->barriers[token->epoch]--;
        break;
    }
    if (result == 0)
        return (int)number;
    assert_false(token->is_done);
    world->tokens_count--;
    return result;
}

/* ---- what must hold when nothing is left to happen --------------------------------------------------------------- */

static inline bool world_is_in(const struct world *world, unsigned node)
{
    return !world->nodes[node].is_dead && view_has(&world->agree.view, node_of(node));
}

/* The run that was taken, not given back, and covers the extent; -1: none. */
static inline int world_owner_token(const struct world *world, uint64_t extent)
{
    int owner = -1;

    for (unsigned i = 0; i < world->tokens_count; i++) {
        const struct world_token *token = &world->tokens[i];

        if (token->ask == ASK_TAKE && token->is_done && token->result == 0 && extent >= token->first &&
            extent < token->first + token->count && world_is_in(world, token->node) &&
            !world_is_given(world, i, true)) {
            assert_int_equal(owner, -1); /* two runs never overlap */
            owner = (int)i;
        }
    }
    return owner;
}

static inline void world_check_end(const struct world *world)
{
    unsigned first = view_lowest(&world->agree.view).index;

    for (unsigned i = 0; i < world->tokens_count; i++) {
        const struct world_token *token = &world->tokens[i];

        /* A waiting get may wait on, and so may a barrier that not everybody calls. */
        if (!world->nodes[token->node].is_dead && token->ask != ASK_GET && token->ask != ASK_BARRIER)
            assert_true(token->is_done);
    }
    for (uint64_t extent = 0; extent < WORLD_EXTENTS && view_count(&world->agree.view) > 0; extent++) {
        const struct cluster_extent *at = cluster_extent_at(world->nodes[first].cluster, extent);
        int owner = world_owner_token(world, extent);

        for (unsigned i = first + 1; i < world->nodes_count; i++) {
            if (world_is_in(world, i))
                assert_memory_equal(at, cluster_extent_at(world->nodes[i].cluster, extent), sizeof(*at));
        }
        /* What is allocated to a survivor is what it was told, no less and no more. */
        if (owner >= 0)
            assert_int_equal(at->allocator, world->tokens[owner].node + 1);
        if (at->allocator != 0 && world_is_in(world, at->allocator - 1u)) {
            assert_true(owner >= 0);
            assert_int_equal(world->tokens[owner].node + 1, at->allocator);
        }
    }
}

#endif
