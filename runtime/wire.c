/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.c - encode and decode of the runtime's own messages.
 */
#include "runtime/wire.h"
#include "base/assert.h"
#include "base/bytes.h"

#include <errno.h>

void wire_encode(const struct wire *wire, uint8_t header[WIRE_HEADER_BYTES])
{
    struct bytes_writer writer = {header, WIRE_HEADER_BYTES, false};

    bytes_put_u8(&writer, MESSAGE_FAMILY_RUNTIME);
    bytes_put_u8(&writer, WIRE_VERSION);
    bytes_put_u16(&writer, wire->type);
    bytes_put_u32(&writer, (uint32_t)wire->result);
    bytes_put_u64(&writer, wire->id);
    bytes_put_u64(&writer, wire->a);
    bytes_put_u64(&writer, wire->b);
    ASSERT(!writer.failed && writer.left == 0);
}

int wire_decode(const void *bytes, size_t size_bytes, struct wire *ret_wire)
{
    struct bytes_reader reader = {bytes, size_bytes, false};
    uint8_t family = bytes_take_u8(&reader);
    uint8_t version = bytes_take_u8(&reader);
    uint16_t type = bytes_take_u16(&reader);
    struct wire wire = {.result = (int32_t)bytes_take_u32(&reader)};

    wire.id = bytes_take_u64(&reader);
    wire.a = bytes_take_u64(&reader);
    wire.b = bytes_take_u64(&reader);
    if (reader.failed || reader.left != 0 || family != MESSAGE_FAMILY_RUNTIME || version != WIRE_VERSION || type == 0 ||
        type >= WIRE_TYPES)
        return -EBADMSG;
    wire.type = (uint8_t)type;
    *ret_wire = wire;
    return 0;
}
