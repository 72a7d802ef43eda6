/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.c - every message of the cluster family, encode beside decode. PURE.
 *
 * What decodes is in range by itself (counts, names, node numbers below NODES_MAX); whether it fits the tables and the
 * moment is the receiver's to check.
 */
#include "cluster/message.h"
#include "base/assert.h"
#include "base/bytes.h"

#include <errno.h>

#define ERRNO_MAX 4095

enum body {
    BODY_NONE,
    BODY_CHANGE,
    BODY_INDEX,
    BODY_SEQUENCE,
    BODY_REPLY,
};

static const uint8_t bodies[CLUSTER_TYPES] = {
    [CLUSTER_HEARTBEAT] = BODY_NONE,    [CLUSTER_COLLECT] = BODY_NONE,     [CLUSTER_REPORT] = BODY_CHANGE,
    [CLUSTER_REQUEST] = BODY_CHANGE,    [CLUSTER_REPLY] = BODY_REPLY,      [CLUSTER_UPDATE] = BODY_CHANGE,
    [CLUSTER_ACK] = BODY_INDEX,         [CLUSTER_COMMIT] = BODY_INDEX,     [CLUSTER_ARRIVE] = BODY_SEQUENCE,
    [CLUSTER_WITHDRAW] = BODY_SEQUENCE, [CLUSTER_RELEASE] = BODY_SEQUENCE, [CLUSTER_WITHDRAWN] = BODY_SEQUENCE,
};

static void change_encode(struct bytes_writer *writer, const struct cluster_change *change)
{
    size_t name_bytes = cluster_name_bytes(change->name, CLUSTER_NAME_MAX);

    bytes_put_u64(writer, change->index);
    bytes_put_u64(writer, change->sequence);
    bytes_put_u16(writer, change->requester.index);
    bytes_put_u8(writer, change->kind);
    bytes_put_u8(writer, change->placement);
    bytes_put_u16(writer, change->node.index);
    bytes_put_u64(writer, change->members);
    bytes_put_u64(writer, change->first_extent);
    bytes_put_u64(writer, change->extents_count);
    bytes_put_u64(writer, change->value);
    bytes_put_u8(writer, (uint8_t)name_bytes);
    bytes_put(writer, change->name, name_bytes);
}

static void change_take(struct bytes_reader *reader, struct cluster_change *change)
{
    size_t name_bytes;

    change->index = bytes_take_u64(reader);
    change->sequence = bytes_take_u64(reader);
    change->requester.index = bytes_take_u16(reader);
    change->kind = bytes_take_u8(reader);
    change->placement = bytes_take_u8(reader);
    change->node.index = bytes_take_u16(reader);
    change->members = bytes_take_u64(reader);
    change->first_extent = bytes_take_u64(reader);
    change->extents_count = bytes_take_u64(reader);
    change->value = bytes_take_u64(reader);
    name_bytes = bytes_take_u8(reader);
    memset(change->name, 0, sizeof(change->name));
    if (name_bytes > CLUSTER_NAME_MAX) {
        reader->failed = true;
        return;
    }
    bytes_take(reader, change->name, name_bytes);
    if (cluster_name_bytes(change->name, CLUSTER_NAME_MAX) != name_bytes)
        reader->failed = true;
}

static bool change_is_in_range(const struct cluster_change *change)
{
    if (change->requester.index >= NODES_MAX)
        return false;
    switch ((enum cluster_change_kind)change->kind) {
    case CHANGE_NONE:
        return change->index == 0;
    case CHANGE_TAKE:
        return change->extents_count > 0 && change->first_extent <= UINT64_MAX - change->extents_count &&
               change->placement <= CLUSTER_PLACE_INTERLEAVE &&
               (change->placement != CLUSTER_PLACE_NODE || change->node.index < NODES_MAX);
    case CHANGE_GIVE:
        return change->extents_count > 0 && change->first_extent <= UINT64_MAX - change->extents_count;
    case CHANGE_NAME:
        return change->name[0] != '\0';
    case CHANGE_KINDS:
        break;
    }
    return false;
}

size_t cluster_message_encode(const struct cluster_message *message, uint8_t bytes[CLUSTER_MESSAGE_MAX])
{
    struct bytes_writer writer = {.next = bytes, .left = CLUSTER_MESSAGE_MAX};

    ASSERT(message->type > 0 && message->type < CLUSTER_TYPES);
    bytes_put_u8(&writer, MESSAGE_FAMILY_CLUSTER);
    bytes_put_u8(&writer, CLUSTER_MESSAGE_VERSION);
    bytes_put_u8(&writer, message->type);
    bytes_put_u8(&writer, 0);
    bytes_put_u32(&writer, message->epoch.number);
    switch ((enum body)bodies[message->type]) {
    case BODY_NONE:
        break;
    case BODY_CHANGE:
        change_encode(&writer, &message->change);
        break;
    case BODY_INDEX:
        bytes_put_u64(&writer, message->index);
        break;
    case BODY_REPLY:
        bytes_put_u64(&writer, message->sequence);
        bytes_put_u16(&writer, (uint16_t)-message->result);
        break;
    case BODY_SEQUENCE:
        bytes_put_u64(&writer, message->sequence);
        break;
    }
    ASSERT(!writer.failed);
    return CLUSTER_MESSAGE_MAX - writer.left;
}

static void body_take(struct bytes_reader *reader, struct cluster_message *message)
{
    switch ((enum body)bodies[message->type]) {
    case BODY_NONE:
        break;
    case BODY_CHANGE:
        change_take(reader, &message->change);
        if (!change_is_in_range(&message->change) ||
            (message->change.kind == CHANGE_NONE && message->type != CLUSTER_REPORT))
            reader->failed = true;
        break;
    case BODY_INDEX:
        message->index = bytes_take_u64(reader);
        break;
    case BODY_REPLY:
        message->sequence = bytes_take_u64(reader);
        message->result = -(int)bytes_take_u16(reader);
        if (message->result == 0 || message->result < -ERRNO_MAX)
            reader->failed = true;
        break;
    case BODY_SEQUENCE:
        message->sequence = bytes_take_u64(reader);
        break;
    }
}

int cluster_message_decode(const void *bytes, size_t size_bytes, struct cluster_message *ret_message)
{
    struct bytes_reader reader = {.next = bytes, .left = size_bytes};
    struct cluster_message message = {.type = 0};
    uint8_t family = bytes_take_u8(&reader);
    uint8_t version = bytes_take_u8(&reader);

    message.type = bytes_take_u8(&reader);
    if (family != MESSAGE_FAMILY_CLUSTER || version != CLUSTER_MESSAGE_VERSION || bytes_take_u8(&reader) != 0 ||
        message.type == 0 || message.type >= CLUSTER_TYPES)
        return -EBADMSG;
    message.epoch.number = bytes_take_u32(&reader);
    body_take(&reader, &message);
    if (reader.failed || reader.left != 0)
        return -EBADMSG;
    *ret_message = message;
    return 0;
}
