/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - struct coherence_env over a simulated node: its frames, rights, slow tiers, pins and disk errors.
 *
 * Runs inside calls of the protocol, so it never calls the protocol: what follows later is an event. It checks the
 * protocol's side of env.h's contract (checker "environment").
 */
#include "world.h"

#include "base/assert.h"

#include <errno.h>
#include <string.h>

#define PLANE_CONTROL 0U
#define PLANE_DATA    1U

/* The simulated index of a page the protocol named; it may name no other. */
static bool page_known(struct sim_node *node, struct page_id id, const char *call, unsigned *ret_page)
{
    if (world_page_find(node->world, id, ret_page))
        return true;
    world_fail(node->world, "environment", "node %u: %s() of page %llu, which is outside every extent", node->index,
               call, (unsigned long long)id.index);
    return false;
}

static struct coherence_page *env_page(void *context, struct page_id id)
{
    struct sim_node *node = context;
    unsigned page;

    return world_page_find(node->world, id, &page) ? &node->pages[page] : NULL;
}

static struct coherence_home *env_home(void *context, struct page_id id)
{
    struct sim_node *node = context;
    unsigned page;

    if (!world_page_find(node->world, id, &page))
        return NULL;
    if (world_page_home(node->world, page) != node->index) {
        world_fail(node->world, "environment", "node %u asks for the home entry of page %u, whose home is node %u",
                   node->index, page, world_page_home(node->world, page));
        return NULL;
    }
    return &node->world->homes[page];
}

static struct node_id env_home_of(void *context, struct page_id id)
{
    struct sim_node *node = context;
    unsigned page;

    return world_page_find(node->world, id, &page) ? node_of(world_page_home(node->world, page)) : NODE_NONE;
}

static void env_send(void *context, struct node_id to, const struct message *message)
{
    struct sim_node *node = context;
    uint8_t header[MESSAGE_HEADER_BYTES];

    if (message->payload_bytes != 0) {
        world_fail(node->world, "environment", "node %u: send() of %s with bytes", node->index,
                   message_name(message->type));
        return;
    }
    trace_message(node->world, TRACE_SEND, node->index, to.index, message);
    message_encode(message, header);
    net_send(node->world, node->index, to.index, PLANE_CONTROL, header, NULL);
}

static bool content_is_zero(const struct content *content)
{
    static const struct content zero;

    return memcmp(content, &zero, sizeof(zero)) == 0;
}

/* The frame's bytes leave now. They are what they were when the protocol asked: nobody may change them meanwhile. */
static void send_bytes(struct world *world, unsigned from, unsigned to, unsigned page, struct message *message)
{
    struct frame *frame = &world->nodes[from].frames[page];
    struct content content = frame->is_present ? frame->content : (struct content){0};
    uint8_t header[MESSAGE_HEADER_BYTES];

    if (world->mutant == WORLD_MUTANT_STALE_BYTES && content.words[0] != 0)
        content.words[0]--;
    message->payload = &content;
    message->payload_bytes = PAGE_BYTES;
    if (frame->is_lost)
        message->flags |= MESSAGE_POISONED;
    else if (content_is_zero(&content) && (from + to + page) % 2 == 0)
        message->flags |= MESSAGE_ZERO;
    if ((message->flags & (MESSAGE_POISONED | MESSAGE_ZERO)) != 0) {
        message->payload = NULL;
        message->payload_bytes = 0;
    }
    trace_message(world, TRACE_SEND, from, to, message);
    message_encode(message, header);
    net_send(world, from, to, PLANE_DATA, header, message->payload_bytes != 0 ? &content : NULL);
}

/* The bytes must be read from a slow tier first. */
static void send_later(struct sim_node *node, unsigned to, unsigned page, const struct message *message)
{
    struct world *world = node->world;
    unsigned i = 0;

    while (i < WORLD_SENDS_MAX && world->sends[i].used)
        i++;
    ASSERT(i < WORLD_SENDS_MAX);
    message_encode(message, world->sends[i].header);
    world->sends[i].content = node->frames[page].content;
    world->sends[i].page = (uint16_t)page;
    world->sends[i].from = node->index;
    world->sends[i].to = (uint16_t)to;
    world->sends[i].used = 1;
    node->frames[page].sends++;
    world_schedule(world, 1 + world_fault_draw(world, world->settings.slow_ns_max), EVENT_SEND, node->index, i);
}

static void env_send_page(void *context, struct node_id to, const struct message *message)
{
    struct sim_node *node = context;
    struct message copy = *message;
    unsigned page;

    if (!page_known(node, message->page, "send_page", &page))
        return;
    if (node->frames[page].is_slow && !node->world->is_exploring)
        send_later(node, to.index, page, message);
    else
        send_bytes(node->world, node->index, to.index, page, &copy);
}

static void frame_forget(struct frame *frame)
{
    frame->is_present = false;
    frame->is_lost = false;
    frame->is_slow = false;
    frame->drop_wanted = false;
    frame->content = (struct content){0};
}

void memory_send_ready(struct world *world, unsigned index)
{
    struct deferred_send *send = &world->sends[index];
    unsigned from = send->from;
    struct message message;
    struct frame *frame;

    if (!send->used)
        return; /* its node died */
    if (message_decode(send->header, MESSAGE_HEADER_BYTES, &message) != 0) {
        world_fail(world, "environment", "a header given to send_page() cannot be decoded");
        return;
    }
    frame = &world->nodes[from].frames[send->page];
    if (!frame->is_lost && memcmp(&frame->content, &send->content, sizeof(send->content)) != 0)
        world_fail(world, "environment", "node %u: page %u changed while send_page() was reading it", from, send->page);
    send_bytes(world, from, send->to, send->page, &message);
    send->used = 0;
    frame->sends--;
    if (frame->sends == 0 && frame->drop_wanted && frame->rights == ACCESS_NONE)
        frame_forget(frame);
}

static int env_protect(void *context, struct page_id id, enum access access)
{
    struct sim_node *node = context;
    struct frame *frame;
    unsigned page;

    if (!page_known(node, id, "protect", &page))
        return 0;
    frame = &node->frames[page];
    trace_note(node->world, TRACE_PROTECT, node->index, page, access, frame->pins, NULL);
    if (frame->rights <= access)
        return 0;
    if (node->world->mutant == WORLD_MUTANT_LATE_PROTECT && world_fault_chance(node->world, 50))
        return 0;
    if (frame->pins > 0) {
        if (!frame->is_protecting || frame->protect_access > access)
            frame->protect_access = (uint8_t)access;
        frame->is_protecting = true;
        return -EINPROGRESS;
    }
    frame->rights = (uint8_t)access;
    return 0;
}

static void env_install(void *context, struct page_id id, enum access access, const void *bytes)
{
    struct sim_node *node = context;
    struct world *world = node->world;
    struct frame *frame;
    unsigned page;

    if (!page_known(node, id, "install", &page))
        return;
    frame = &node->frames[page];
    trace_note(world, TRACE_INSTALL, node->index, page, access, bytes != NULL, NULL);
    if (access < frame->rights || (bytes != NULL && frame->rights == ACCESS_WRITE))
        world_fail(world, "environment", "node %u: install() of page %u with rights %u onto rights %u", node->index,
                   page, access, frame->rights);
    if (bytes != NULL && frame->sends > 0)
        world_fail(world, "environment", "node %u: install() of new bytes of page %u under a send", node->index, page);
    if (bytes != NULL) {
        memcpy(&frame->content, bytes, CONTENT_BYTES);
        frame->is_lost = false;
    }
    frame->is_present = true;
    frame->is_poisoned = false;
    frame->drop_wanted = false;
    frame->is_slow = world_fault_chance(world, world->is_healed ? 0 : world->settings.slow_permille);
    frame->rights = (uint8_t)access;
    check_writers(world, node->index, page);
    processor_wake_page(world, node->index, page);
}

static void env_store(void *context, struct page_id id, const void *bytes)
{
    struct sim_node *node = context;
    struct frame *frame;
    unsigned page;

    if (!page_known(node, id, "store", &page))
        return;
    frame = &node->frames[page];
    trace_note(node->world, TRACE_STORE, node->index, page, bytes != NULL, 0, NULL);
    if (frame->rights == ACCESS_WRITE || frame->sends > 0 || world_page_home(node->world, page) != node->index)
        world_fail(node->world, "environment", "node %u: store() of page %u with rights %u and %u sends", node->index,
                   page, frame->rights, frame->sends);
    frame->content = (struct content){0};
    if (bytes != NULL)
        memcpy(&frame->content, bytes, CONTENT_BYTES);
    frame->is_present = true;
    frame->is_lost = false;
    frame->drop_wanted = false;
    frame->is_slow = world_fault_chance(node->world, node->world->is_healed ? 0 : node->world->settings.slow_permille);
}

static void env_drop(void *context, struct page_id id)
{
    struct sim_node *node = context;
    struct frame *frame;
    unsigned page;

    if (!page_known(node, id, "drop", &page))
        return;
    frame = &node->frames[page];
    trace_note(node->world, TRACE_DROP, node->index, page, frame->rights, frame->sends, NULL);
    if (frame->rights != ACCESS_NONE)
        world_fail(node->world, "environment", "node %u: drop() of page %u with rights %u", node->index, page,
                   frame->rights);
    if (frame->sends > 0 && node->world->mutant != WORLD_MUTANT_DROP_EARLY)
        frame->drop_wanted = true;
    else
        frame_forget(frame);
}

static void env_poison(void *context, struct page_id id, const char *why)
{
    struct sim_node *node = context;
    struct frame *frame;
    unsigned page;

    if (!page_known(node, id, "poison", &page))
        return;
    frame = &node->frames[page];
    trace_note(node->world, TRACE_POISON, node->index, page, 0, 0, why);
    check_lost_poison(node->world, node->index, page, why);
    frame->is_poisoned = true;
    frame->rights = ACCESS_NONE;
    processor_wake_page(node->world, node->index, page);
}

static void env_done(void *context, uint64_t token, int result, uint64_t value)
{
    struct sim_node *node = context;

    trace_note(node->world, TRACE_DONE, node->index, UINT16_MAX, result, token, NULL);
    token_done(node->world, node->index, token, result, value);
}

static bool env_lock_wanted(void *context, uint32_t lock)
{
    struct sim_node *node = context;

    trace_note(node->world, TRACE_WANTED, node->index, UINT16_MAX, lock, 0, NULL);
    return locking_wanted(node->world, node->index, lock);
}

static int env_atomic(void *context, struct page_id id, const struct message *operation, uint64_t *ret_old)
{
    struct sim_node *node = context;
    unsigned page;

    if (!page_known(node, id, "atomic", &page))
        return -EIO;
    return memory_atomic(node->world, node->index, page, operation, ret_old);
}

void memory_env(struct sim_node *node)
{
    node->env = (struct coherence_env){
        .context = node,
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
}

void memory_pin(struct world *world, unsigned node, unsigned page)
{
    world->nodes[node].frames[page].pins++;
}

/* The last pin makes a waiting protect() take effect; the protocol hears of it by an event. */
void memory_unpin(struct world *world, unsigned node, unsigned page)
{
    struct frame *frame = &world->nodes[node].frames[page];

    ASSERT(frame->pins > 0);
    frame->pins--;
    if (frame->pins > 0 || !frame->is_protecting)
        return;
    frame->is_protecting = false;
    if (frame->rights > frame->protect_access)
        frame->rights = frame->protect_access;
    world_schedule(world, world_fault_draw(world, 2 * NS_PER_US), EVENT_PROTECTED, node, page);
}

/* A sharer's copy, with nothing in progress: others have the same bytes (P17). */
static bool copy_is_spare(const struct world *world, unsigned node, unsigned page)
{
    const struct coherence_page *state = &world->nodes[node].pages[page];

    return world_page_home(world, page) != node && state->state == PAGE_SHARED && state->pending == 0 &&
           world->homes[page].busy == 0 && world->nodes[node].frames[page].sends == 0;
}

/*
 * A disk error under this node's copy. Only bytes that lie in a slow tier can be hit; then nothing is mapped, whatever
 * the protocol grants, and the threads that touch the page wait until the runtime knows.
 */
void memory_lose(struct world *world, unsigned node, unsigned page)
{
    struct frame *frame = &world->nodes[node].frames[page];

    if (!frame->is_present || !frame->is_slow || frame->pins > 0 || frame->is_lost)
        return;
    trace_note(world, TRACE_FAULT, node, page, 0, 0, "loses its copy by a disk error");
    frame->is_lost = true;
    frame->is_reporting = true;
    frame->rights = ACCESS_NONE;
    if (!copy_is_spare(world, node, page))
        world->ghosts[page].may_be_lost = true;
    world_schedule(world, world_fault_draw(world, 20 * NS_PER_US), EVENT_LOST, node, page);
}

void memory_lost(struct world *world, unsigned node, unsigned page)
{
    world->nodes[node].frames[page].is_reporting = false;
    coherence_lost(world->nodes[node].coherence, world_page_id(world, page), "simulated disk error",
                   world_now(world, node));
    processor_wake_page(world, node, page);
}
