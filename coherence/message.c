/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.c - encode and decode of every message, one beside the other, from the table in message_types.h.
 *
 * Header, little-endian: family, version, type, flags (8 bits each), from, requester (16), epoch (32), sequence (32),
 * page (64) at byte 16, request, credit (32), a, b, c (64), payload size, zero (32). 64 bytes, no more fields to come
 * without a new version.
 */
#include "coherence/message.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <errno.h>

#define MESSAGE_FAMILY 1
#define FLAGS_KNOWN    (MESSAGE_POISONED | MESSAGE_ZERO | MESSAGE_PREFETCH)

struct type_info {
    const char *name;
    enum message_class class;
    enum message_payload payload;
};

#define TYPE_INFO(name_, text_, class_, payload_) [name_] = {.name = text_, .class = class_, .payload = payload_},
static const struct type_info types[MESSAGE_TYPES_COUNT] = {MESSAGE_TYPES(TYPE_INFO)};

static bool type_is_known(uint8_t type)
{
    return type > MESSAGE_NONE && type < MESSAGE_TYPES_COUNT;
}

const char *message_name(uint8_t type)
{
    return type_is_known(type) ? types[type].name : "?";
}

enum message_class message_class_of(uint8_t type)
{
    return type_is_known(type) ? types[type].class : CLASS_REQUEST;
}

void message_encode(const struct message *message, uint8_t header[MESSAGE_HEADER_BYTES])
{
    struct bytes_writer writer = {.next = header, .left = MESSAGE_HEADER_BYTES};

    bytes_put_u8(&writer, MESSAGE_FAMILY);
    bytes_put_u8(&writer, MESSAGE_VERSION);
    bytes_put_u8(&writer, message->type);
    bytes_put_u8(&writer, message->flags);
    bytes_put_u16(&writer, message->from.index);
    bytes_put_u16(&writer, message->requester.index);
    bytes_put_u32(&writer, message->epoch.number);
    bytes_put_u32(&writer, message->sequence);
    bytes_put_u64(&writer, message->page.index);
    bytes_put_u32(&writer, message->request);
    bytes_put_u32(&writer, message->credit);
    bytes_put_u64(&writer, message->a);
    bytes_put_u64(&writer, message->b);
    bytes_put_u64(&writer, message->c);
    bytes_put_u32(&writer, message->payload_bytes);
    bytes_put_u32(&writer, 0);
    ASSERT(!writer.failed && writer.left == 0);
}

/* Everything that does not depend on who has what: the states check the rest. */
static bool fields_are_valid(const struct message *message, size_t size_left)
{
    bool has_page = message->payload_bytes == PAGE_BYTES;

    if (!type_is_known(message->type) || (message->flags & ~FLAGS_KNOWN) != 0)
        return false;
    if (message->from.index >= NODES_MAX ||
        (message->requester.index >= NODES_MAX && !node_is_none(message->requester)))
        return false;
    if (message->payload_bytes != size_left || (message->payload_bytes != 0 && !has_page))
        return false;
    if (types[message->type].payload == PAYLOAD_NONE)
        return !has_page;
    return !has_page || (message->flags & (MESSAGE_POISONED | MESSAGE_ZERO)) == 0;
}

int message_decode(const void *bytes, size_t size_bytes, struct message *ret_message)
{
    struct bytes_reader reader = {.next = bytes, .left = size_bytes};
    struct message message = {0};
    uint8_t family = bytes_take_u8(&reader);
    uint8_t version = bytes_take_u8(&reader);
    uint32_t zero;

    message.type = bytes_take_u8(&reader);
    message.flags = bytes_take_u8(&reader);
    message.from.index = bytes_take_u16(&reader);
    message.requester.index = bytes_take_u16(&reader);
    message.epoch.number = bytes_take_u32(&reader);
    message.sequence = bytes_take_u32(&reader);
    message.page.index = bytes_take_u64(&reader);
    message.request = bytes_take_u32(&reader);
    message.credit = bytes_take_u32(&reader);
    message.a = bytes_take_u64(&reader);
    message.b = bytes_take_u64(&reader);
    message.c = bytes_take_u64(&reader);
    message.payload_bytes = bytes_take_u32(&reader);
    zero = bytes_take_u32(&reader);
    if (reader.failed || family != MESSAGE_FAMILY || version != MESSAGE_VERSION || zero != 0 ||
        !fields_are_valid(&message, reader.left))
        return -EBADMSG;
    message.payload = message.payload_bytes == 0 ? NULL : reader.next;
    *ret_message = message;
    return 0;
}
