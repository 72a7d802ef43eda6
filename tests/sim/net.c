/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net.c - the simulated fabric, within the contract of fabric/fabric.h.
 *
 * Messages between two nodes on one plane arrive in the order sent (F2); nothing holds between planes. A cut or a
 * one-sided partition is a stall: later, everything arrives (F4). Only a node's death loses messages, and a node that
 * has the new view hears nothing of the dead any more (F5). Every message passes message_encode() and
 * message_decode(); page bytes travel as the few words that mean something. Beyond the contract, some worlds repeat
 * messages: the protocol promises to bear that (P15).
 */
#include "world.h"

#include "base/assert.h"

#include <string.h>

#define PLANE_CONTROL 0
#define PLANE_DATA    1

void net_init(struct world *world)
{
    for (unsigned i = 0; i < WORLD_MESSAGES_MAX; i++)
        world->messages[i].next = (uint16_t)(i + 1 < WORLD_MESSAGES_MAX ? i + 2 : 0);
    world->messages_free = 1;
}

struct channel *net_channel(struct world *world, unsigned index)
{
    return &world->channels[0][0][0] + index;
}

static unsigned channel_index(unsigned from, unsigned to, unsigned plane)
{
    return (from * WORLD_NODES_MAX + to) * PLANES_COUNT + plane;
}

static void channel_pop(struct world *world, struct channel *channel)
{
    uint16_t slot = channel->first;
    struct message_slot *message = &world->messages[slot - 1];

    channel->first = message->next;
    if (channel->first == 0)
        channel->last = 0;
    channel->count--;
    message->next = world->messages_free;
    world->messages_free = slot;
}

static uint64_t delay_draw(struct world *world)
{
    const struct settings *settings = &world->settings;
    uint64_t delay_ns =
        settings->delay_ns_min + world_fault_draw(world, settings->delay_ns_max - settings->delay_ns_min + 1);

    if (!world->is_healed && world_fault_chance(world, settings->spike_permille))
        delay_ns += world_fault_draw(world, settings->spike_ns_max);
    return delay_ns;
}

void net_send(struct world *world, unsigned from, unsigned to, unsigned plane, const uint8_t *header,
              const struct content *content)
{
    struct channel *channel = &world->channels[from][to][plane];
    uint16_t slot = world->messages_free;
    struct message_slot *message;
    uint64_t arrival_ns = world->now_ns + delay_draw(world);

    if (to >= world->settings.nodes_count) {
        world_fail(world, "environment", "node %u sends to node %u, which does not exist", from, to);
        return;
    }
    if (!view_has(&world->nodes[from].view, node_of(to)))
        return; /* F5: -EHOSTDOWN */
    if (world->mutant == WORLD_MUTANT_LOSE_MESSAGE && !world->is_healed && world_fault_chance(world, 2))
        return;
    ASSERT(slot != 0);
    message = &world->messages[slot - 1];
    world->messages_free = message->next;
    memcpy(message->header, header, MESSAGE_HEADER_BYTES);
    message->has_bytes = content != NULL;
    message->content = content != NULL ? *content : (struct content){0};
    message->next = 0;
    if (channel->last != 0)
        world->messages[channel->last - 1].next = slot;
    else
        channel->first = slot;
    channel->last = slot;
    channel->count++;
    world->messages_sent++;
    if (world->is_exploring)
        return;
    if (!world->is_healed && world_fault_chance(world, world->settings.repeat_permille))
        net_send(world, from, to, plane, header, content);
    if (arrival_ns < channel->last_ns)
        arrival_ns = channel->last_ns;
    channel->last_ns = arrival_ns;
    world_schedule(world, arrival_ns - world->now_ns, EVENT_DELIVER, to, channel_index(from, to, plane));
}

/* What was taken from the wire must be the content many times over: a torn page would show. */
static void bytes_expand(uint8_t *bytes, const struct content *content)
{
    for (size_t at = 0; at < PAGE_BYTES; at += CONTENT_BYTES)
        memcpy(bytes + at, content, CONTENT_BYTES);
}

static void message_hand_over(struct world *world, unsigned from, unsigned to, const struct message_slot *slot)
{
    static _Alignas(8) uint8_t bytes[MESSAGE_HEADER_BYTES + PAGE_BYTES];
    size_t size_bytes = MESSAGE_HEADER_BYTES;
    struct message message;
    int result;

    memcpy(bytes, slot->header, MESSAGE_HEADER_BYTES);
    if (slot->has_bytes) {
        bytes_expand(bytes + MESSAGE_HEADER_BYTES, &slot->content);
        size_bytes += PAGE_BYTES;
    }
    result = message_decode(bytes, size_bytes, &message);
    if (result != 0) {
        world_fail(world, "environment", "node %u refuses a message of node %u: type %u, %zu bytes, result %d", to,
                   from, slot->header[0], size_bytes, result);
        return;
    }
    trace_message(world, TRACE_RECEIVE, to, from, &message);
    coherence_receive(world->nodes[to].coherence, node_of(from), &message, world_now(world, to));
}

static bool header_read(const struct message_slot *slot, struct message *ret_message)
{
    uint8_t bytes[MESSAGE_HEADER_BYTES + PAGE_BYTES] = {0};

    memcpy(bytes, slot->header, MESSAGE_HEADER_BYTES);
    if (message_decode(bytes, MESSAGE_HEADER_BYTES + (slot->has_bytes ? PAGE_BYTES : 0), ret_message) != 0)
        return false;
    ret_message->payload = NULL;
    return true;
}

/* What lies in a message slot, as far as the header says. */
void net_peek(const struct world *world, unsigned slot, struct message *ret_message)
{
    *ret_message = (struct message){.page = PAGE_NONE};
    (void)header_read(&world->messages[slot - 1], ret_message);
}

static void field_change(struct world *world, struct message *message)
{
    uint64_t value = world_fault_draw(world, 2) == 0 ? world_fault_draw(world, 8) : random_next(&world->faults);

    switch (world_fault_draw(world, 9)) {
    case 0:
        message->type = (uint8_t)(1 + world_fault_draw(world, MESSAGE_TYPES_COUNT - 1));
        break;
    case 1:
        message->flags = (uint8_t)world_fault_draw(world, 8);
        break;
    case 2:
        message->requester = node_of((unsigned)(value % NODES_MAX));
        break;
    case 3:
        message->epoch.number = (uint32_t)value;
        break;
    case 4:
        message->page =
            value % 4 == 0 ? page_of(value) : world_page_id(world, (unsigned)value % world_pages_count(world));
        break;
    case 5:
        message->sequence = value % 2 == 0 ? message->sequence + 1 : (uint32_t)value;
        break;
    case 6:
        message->request = (uint32_t)value;
        message->credit = (uint32_t)(value >> 32);
        break;
    case 7:
        message->a = value;
        break;
    default:
        message->c = value;
        break;
    }
}

/* A broken or hostile node: the message again, with some fields changed. The transport vouches for `from` alone. */
static void message_mutate(struct world *world, struct message_slot *slot, unsigned from)
{
    struct message message = {0};
    bool may_carry;

    if (!header_read(slot, &message))
        return;
    for (unsigned i = world_fault_draw(world, 4) + 1; i > 0; i--)
        field_change(world, &message);
    message.from = node_of(from);
    may_carry = message.type == MESSAGE_DATA || message.type == MESSAGE_GRANT || message.type == MESSAGE_WRITE_BACK;
    slot->has_bytes = slot->has_bytes && may_carry && (message.flags & (MESSAGE_POISONED | MESSAGE_ZERO)) == 0;
    message.payload_bytes = slot->has_bytes ? PAGE_BYTES : 0;
    message_encode(&message, slot->header);
}

void net_deliver(struct world *world, unsigned index)
{
    struct channel *channel = net_channel(world, index);
    unsigned to = index / PLANES_COUNT % WORLD_NODES_MAX;
    unsigned from = index / PLANES_COUNT / WORLD_NODES_MAX;
    struct message_slot slot;

    if (channel->first == 0)
        return; /* lost with its sender */
    if (channel->stalled_ns > world->now_ns) {
        world_schedule(world, channel->stalled_ns - world->now_ns, EVENT_DELIVER, to, index);
        return;
    }
    slot = world->messages[channel->first - 1];
    channel_pop(world, channel);
    if (!world->nodes[to].is_alive || !view_has(&world->nodes[to].view, node_of(from)))
        return;
    message_hand_over(world, from, to, &slot);
    while (world->is_evil && world_fault_chance(world, 300)) {
        message_mutate(world, &slot, from);
        message_hand_over(world, from, to, &slot);
    }
}

/* A cut: one direction or both, one plane or both, between two nodes drawn. */
void net_stall(struct world *world)
{
    unsigned a = world_fault_draw(world, world->settings.nodes_count);
    unsigned b = world_fault_draw(world, world->settings.nodes_count);
    uint64_t until_ns = world->now_ns + world_fault_draw(world, world->settings.stall_ns_max);
    unsigned which = 1 + world_fault_draw(world, 15);

    if (a == b)
        return;
    trace_note(world, TRACE_FAULT, a, UINT16_MAX, b, which, "is cut from node");
    for (unsigned plane = 0; plane < PLANES_COUNT; plane++) {
        if (which >> plane & 1)
            world->channels[a][b][plane].stalled_ns = until_ns;
        if (which >> (2 + plane) & 1)
            world->channels[b][a][plane].stalled_ns = until_ns;
    }
}

void net_heal(struct world *world)
{
    for (unsigned i = 0; i < WORLD_NODES_MAX * WORLD_NODES_MAX * PLANES_COUNT; i++)
        net_channel(world, i)->stalled_ns = 0;
}

/* The node is dead: of what it sent, each connection still delivers a part from the start. */
void net_cut_dead(struct world *world, unsigned dead)
{
    for (unsigned to = 0; to < world->settings.nodes_count; to++) {
        for (unsigned plane = 0; plane < PLANES_COUNT; plane++) {
            struct channel *channel = &world->channels[dead][to][plane];
            unsigned kept = world->keeps_dead ? channel->count : world_fault_draw(world, channel->count + 1U);
            uint16_t *link = &channel->first;
            uint16_t last = 0;

            for (unsigned i = 0; i < kept; i++) {
                last = *link;
                link = &world->messages[last - 1].next;
            }
            while (*link != 0) {
                uint16_t slot = *link;

                *link = world->messages[slot - 1].next;
                world->messages[slot - 1].next = world->messages_free;
                world->messages_free = slot;
                channel->count--;
            }
            channel->last = last;
        }
    }
}

/* `node` has the view without `dead`: its session ended (F5). */
void net_forget_dead(struct world *world, unsigned node, unsigned dead)
{
    for (unsigned plane = 0; plane < PLANES_COUNT; plane++)
        while (world->channels[dead][node][plane].first != 0)
            channel_pop(world, &world->channels[dead][node][plane]);
}
