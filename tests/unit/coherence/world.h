/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.h - a few nodes and the messages between them, delivered by hand: one test of one rule at a time.
 *
 * Pages hold one word. Each node has its own tables, store and rights; what env is asked to do is checked against what
 * it may do. Extent e (2 MiB) has its home at node e modulo the number of nodes; two pages an extent are used.
 */
#ifndef TIERMESH_TESTS_UNIT_COHERENCE_WORLD_H
#define TIERMESH_TESTS_UNIT_COHERENCE_WORLD_H

#include "coherence/coherence.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NODES       4
#define PAGES       2 /* an extent */
#define QUEUE_MAX   256
#define REQUESTS    4
#define LOCKS       4
#define RESULTS_MAX 64
#define NONE        12345

struct queued {
    struct message message;
    uint64_t word;
    bool has_word;
    uint16_t to;
};

struct tables {
    struct coherence_page pages[NODES][PAGES];
    struct coherence_home homes[PAGES];
    uint64_t words[NODES][PAGES];
    enum access rights[NODES][PAGES];
    bool is_poisoned[NODES][PAGES];
    bool is_pinned[NODES][PAGES];
};

struct node {
    struct world *world;
    struct coherence *coherence;
    struct coherence_env env;
    struct tables tables;
    int results[RESULTS_MAX]; /* of a token; NONE: not done */
    uint64_t values[RESULTS_MAX];
    unsigned dones[RESULTS_MAX];
    unsigned atomics, wanted;
    bool is_lock_in_use, is_atomic_slow, is_store_broken;
    uint32_t lock_wanted;
};

struct world {
    struct node nodes[NODES];
    struct queued queue[QUEUE_MAX];
    unsigned count;
    uint64_t now_ns;
    uint32_t epoch;
    uint64_t members;
    unsigned delivered;
    bool is_freed; /* no page belongs to an extent now */
};

static inline struct page_id page_at(unsigned home, unsigned page)
{
    return page_of(home * EXTENT_PAGES + page);
}

static bool locate(struct page_id id, unsigned *ret_home, unsigned *ret_page)
{
    if (id.index >= NODES * EXTENT_PAGES || id.index % EXTENT_PAGES >= PAGES)
        return false;
    *ret_home = (unsigned)(id.index / EXTENT_PAGES);
    *ret_page = (unsigned)(id.index % EXTENT_PAGES);
    return true;
}

static bool is_allocated(const struct node *node, struct page_id id, unsigned *ret_home, unsigned *ret_page)
{
    return !node->world->is_freed && locate(id, ret_home, ret_page);
}

static struct coherence_page *env_page(void *context, struct page_id id)
{
    struct node *node = context;
    unsigned home = 0, page = 0;

    return is_allocated(node, id, &home, &page) ? &node->tables.pages[home][page] : NULL;
}

static struct coherence_home *env_home(void *context, struct page_id id)
{
    struct node *node = context;
    unsigned home = 0, page = 0;

    return is_allocated(node, id, &home, &page) && &node->world->nodes[home] == node ? &node->tables.homes[page] : NULL;
}

static struct node_id env_home_of(void *context, struct page_id id)
{
    unsigned home = 0, page = 0;

    return is_allocated(context, id, &home, &page) ? node_of(home) : NODE_NONE;
}

static void queue_message(struct node *node, struct node_id to, const struct message *message, bool with_page)
{
    struct world *world = node->world;
    struct queued *queued = &world->queue[world->count];
    unsigned home = 0, page = 0;

    assert_true(world->count++ < QUEUE_MAX);
    *queued = (struct queued){.message = *message, .to = to.index};
    if (with_page && node->is_store_broken) {
        queued->message.flags |= MESSAGE_POISONED;
    } else if (with_page && locate(message->page, &home, &page)) {
        queued->has_word = true;
        queued->word = node->tables.words[home][page];
    }
}

static void env_send(void *context, struct node_id to, const struct message *message)
{
    queue_message(context, to, message, false);
}

static void env_send_page(void *context, struct node_id to, const struct message *message)
{
    queue_message(context, to, message, true);
}

static int env_protect(void *context, struct page_id id, enum access access)
{
    struct node *node = context;
    unsigned home = 0, page = 0;

    assert_true(locate(id, &home, &page));
    if (node->tables.is_pinned[home][page])
        return -EINPROGRESS;
    if (node->tables.rights[home][page] > access)
        node->tables.rights[home][page] = access;
    return 0;
}

static void env_install(void *context, struct page_id id, enum access access, const void *bytes)
{
    struct node *node = context;
    unsigned home = 0, page = 0;

    assert_true(locate(id, &home, &page));
    if (bytes != NULL)
        memcpy(&node->tables.words[home][page], bytes, sizeof(uint64_t));
    node->tables.rights[home][page] = access;
}

static void env_store(void *context, struct page_id id, const void *bytes)
{
    struct node *node = context;
    unsigned home = 0, page = 0;

    assert_true(locate(id, &home, &page));
    assert_true(node->tables.rights[home][page] < ACCESS_WRITE);
    node->tables.words[home][page] = 0;
    if (bytes != NULL)
        memcpy(&node->tables.words[home][page], bytes, sizeof(uint64_t));
}

static void env_drop(void *context, struct page_id id)
{
    struct node *node = context;
    unsigned home = 0, page = 0;

    assert_true(locate(id, &home, &page));
    assert_int_equal(node->tables.rights[home][page], ACCESS_NONE);
    node->tables.words[home][page] = 0xdead;
}

static void env_poison(void *context, struct page_id id, const char *why)
{
    struct node *node = context;
    unsigned home = 0, page = 0;

    assert_non_null(why);
    assert_true(locate(id, &home, &page));
    node->tables.is_poisoned[home][page] = true;
    node->tables.rights[home][page] = ACCESS_NONE;
}

static int env_atomic(void *context, struct page_id id, const struct message *operation, uint64_t *ret_old)
{
    struct node *node = context;
    unsigned home = 0, page = 0;

    assert_true(locate(id, &home, &page));
    assert_ptr_equal(node, &node->world->nodes[home]);
    if (node->is_atomic_slow)
        return -EINPROGRESS;
    if (node->is_store_broken)
        return -EIO;
    assert_int_equal(atomic_operation_of(operation), ATOMIC_ADD);
    node->atomics++;
    *ret_old = node->tables.words[home][page];
    node->tables.words[home][page] += operation->a;
    return 0;
}

static void env_done(void *context, uint64_t token, int result, uint64_t value)
{
    struct node *node = context;

    assert_true(token < RESULTS_MAX);
    node->dones[token]++;
    node->results[token] = result;
    node->values[token] = value;
}

static bool env_lock_wanted(void *context, uint32_t lock)
{
    struct node *node = context;

    node->wanted++;
    node->lock_wanted = lock;
    return node->is_lock_in_use;
}

static const struct coherence_env env_template = {
    .page = env_page,
    .home = env_home,
    .home_of = env_home_of,
    .send = env_send,
    .send_page = env_send_page,
    .protect = env_protect,
    .install = env_install,
    .store = env_store,
    .drop = env_drop,
    .poison = env_poison,
    .atomic = env_atomic,
    .done = env_done,
    .lock_wanted = env_lock_wanted,
};

static inline struct coherence *at(struct world *world, unsigned node)
{
    return world->nodes[node].coherence;
}

static inline void world_view(struct world *world, unsigned node)
{
    struct view view = {.epoch = {world->epoch}, .members = world->members};

    coherence_set_view(at(world, node), &view, world->now_ns);
}

static inline struct world *world_start_holding(uint32_t hold_ns)
{
    struct world *world = calloc(1, sizeof(*world));
    struct coherence_limits limits = {.nodes_count = NODES,
                                      .requests_max = REQUESTS,
                                      .locks_max = LOCKS,
                                      .home_locks_max = 8,
                                      .hold_ns = hold_ns,
                                      .hold_ns_max = hold_ns * 8};

    assert_non_null(world);
    world->now_ns = 1000;
    world->epoch = 1;
    world->members = (1u << NODES) - 1;
    for (unsigned i = 0; i < NODES; i++) {
        struct node *node = &world->nodes[i];

        node->world = world;
        node->env = env_template;
        node->env.context = node;
        node->coherence = malloc(coherence_size(&limits));
        assert_non_null(node->coherence);
        coherence_init(node->coherence, &limits, &node->env, node_of(i), i);
        world_view(world, i);
        for (unsigned token = 0; token < RESULTS_MAX; token++)
            node->results[token] = NONE;
    }
    return world;
}

static inline struct world *world_start(void)
{
    return world_start_holding(0);
}

static inline void world_end(struct world *world)
{
    for (unsigned i = 0; i < NODES; i++)
        free(world->nodes[i].coherence);
    free(world);
}

/* Hands a message to its receiver, through the encoder and decoder. */
static inline void world_hand_over(struct world *world, const struct queued *queued)
{
    static uint8_t bytes[MESSAGE_HEADER_BYTES + PAGE_BYTES];
    struct message message = queued->message;
    struct node *node = &world->nodes[queued->to];

    if ((world->members >> queued->to & 1) == 0)
        return;
    message.payload_bytes = queued->has_word ? PAGE_BYTES : 0;
    message_encode(&message, bytes);
    memcpy(bytes + MESSAGE_HEADER_BYTES, &queued->word, sizeof(queued->word));
    assert_int_equal(message_decode(bytes, MESSAGE_HEADER_BYTES + message.payload_bytes, &message), 0);
    world->delivered++;
    coherence_receive(node->coherence, message.from, &message, world->now_ns);
}

/* Takes message number `index` out of the queue. */
static inline struct queued world_pick(struct world *world, unsigned index)
{
    struct queued queued;

    assert_true(index < world->count);
    queued = world->queue[index];
    world->count--;
    memmove(&world->queue[index], &world->queue[index + 1], (world->count - index) * sizeof(queued));
    return queued;
}

static inline void world_deliver(struct world *world, unsigned index)
{
    struct queued queued = world_pick(world, index);

    world_hand_over(world, &queued);
}

static inline void world_run(struct world *world)
{
    for (unsigned steps = 0; world->count > 0; steps++) {
        assert_true(steps < 10000);
        world_deliver(world, 0);
    }
}

/* The place in the queue of the first message of a type, which must be there. */
static inline unsigned world_find(const struct world *world, uint8_t type)
{
    for (unsigned i = 0; i < world->count; i++) {
        if (world->queue[i].message.type == type)
            return i;
    }
    fail_msg("no %s among %u messages", message_name(type), world->count);
    return 0;
}

static inline unsigned world_count(const struct world *world, uint8_t type)
{
    unsigned count = 0;

    for (unsigned i = 0; i < world->count; i++)
        count += world->queue[i].message.type == type ? 1 : 0;
    return count;
}

static inline void world_deliver_type(struct world *world, uint8_t type)
{
    world_deliver(world, world_find(world, type));
}

/* A node dies: what it sent is lost, the others get a new view. */
static inline void world_kill(struct world *world, unsigned node)
{
    for (unsigned i = world->count; i-- > 0;) {
        if (world->queue[i].message.from.index == node)
            (void)world_pick(world, i);
    }
    world->epoch++;
    world->members &= ~(UINT64_C(1) << node);
    for (unsigned i = 0; i < NODES; i++) {
        if ((world->members >> i & 1) != 0)
            world_view(world, i);
    }
}

static inline void fault(struct world *world, unsigned node, struct page_id page, enum access access, uint64_t token)
{
    world->nodes[node].results[token] = NONE;
    assert_int_equal(coherence_fault(at(world, node), page, access, token, token, false, world->now_ns), 0);
}

/* A fault, to its end. */
static inline void touch(struct world *world, unsigned node, struct page_id page, enum access access)
{
    fault(world, node, page, access, 63);
    world_run(world);
    assert_int_equal(world->nodes[node].results[63], 0);
}

static inline uint64_t *word(struct world *world, unsigned node, struct page_id id)
{
    unsigned home = 0, page = 0;

    assert_true(locate(id, &home, &page));
    return &world->nodes[node].tables.words[home][page];
}

static inline enum access rights(struct world *world, unsigned node, struct page_id id)
{
    unsigned home = 0, page = 0;

    assert_true(locate(id, &home, &page));
    return world->nodes[node].tables.rights[home][page];
}

static inline bool is_poisoned(struct world *world, unsigned node, struct page_id id)
{
    unsigned home = 0, page = 0;

    assert_true(locate(id, &home, &page));
    return world->nodes[node].tables.is_poisoned[home][page];
}

static inline struct coherence_home *directory(struct world *world, struct page_id id)
{
    unsigned home = 0, page = 0;

    assert_true(locate(id, &home, &page));
    return &world->nodes[home].tables.homes[page];
}

/* Writes as a thread would. */
static inline void put(struct world *world, unsigned node, struct page_id page, uint64_t value)
{
    touch(world, node, page, ACCESS_WRITE);
    *word(world, node, page) = value;
}

static inline uint64_t get(struct world *world, unsigned node, struct page_id page)
{
    touch(world, node, page, ACCESS_READ);
    return *word(world, node, page);
}

static inline void pin(struct world *world, unsigned node, struct page_id id, bool is_pinned)
{
    unsigned home = 0, page = 0;

    assert_true(locate(id, &home, &page));
    world->nodes[node].tables.is_pinned[home][page] = is_pinned;
}

static inline void unpin(struct world *world, unsigned node, struct page_id id, enum access left)
{
    pin(world, node, id, false);
    assert_int_equal(env_protect(&world->nodes[node], id, left), 0);
    coherence_protected(at(world, node), id, world->now_ns);
}

static inline uint64_t counter_stale(struct world *world, unsigned node)
{
    struct coherence_counters counters;

    coherence_counters_get(at(world, node), &counters);
    return counters.messages_stale;
}

static inline uint64_t counter_bad(struct world *world, unsigned node)
{
    struct coherence_counters counters;

    coherence_counters_get(at(world, node), &counters);
    return counters.messages_bad;
}

#endif
