/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_stream.c - frames from a peer that is half honest: what the parser and the session let through is always a
 * whole message, inside the buffer, and the next one in order. Input bytes choose what the peer does.
 */
#include "base/assert.h"
#include "base/bytes.h"
#include "fabric/session.h"
#include "fabric/stream.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct stream stream;

/* False when the connection would be closed. */
static bool deliver(struct session *session)
{
    struct frame frame;
    const uint8_t *bytes;
    bool is_duplicate;
    int result;

    while ((result = stream_next(&stream, &frame, &bytes)) > 0) {
        uint64_t before = session->received;

        ASSERT(((uintptr_t)bytes & 7) == 0 && frame.size_bytes <= FABRIC_MESSAGE_MAX);
        ASSERT(bytes >= stream.memory && bytes + frame.size_bytes <= stream.memory + stream.end);
        result = session_receive(session, &frame, &is_duplicate);
        ASSERT(session->acked <= session->sent && session->received - before == (result == 1));
        if (result < 0)
            return false;
    }
    return result == 0;
}

/* In pieces, as a network would. */
static bool feed(struct session *session, const uint8_t *bytes, size_t size, size_t piece)
{
    while (size > 0) {
        uint8_t *room;
        size_t room_size;
        size_t count = size < piece ? size : piece;
        int result = stream_room(&stream, &room, &room_size);

        ASSERT(result == 0 && room_size > 0);
        if (count > room_size)
            count = room_size;
        memcpy(room, bytes, count);
        stream_filled(&stream, count);
        bytes += count;
        size -= count;
        if (!deliver(session))
            return false;
    }
    return true;
}

static bool feed_frame(struct session *session, struct bytes_reader *reader, bool is_honest)
{
    static uint8_t bytes[FRAME_BYTES_MAX];
    struct frame frame = {.tag = session->tag, .type = FRAME_MESSAGE, .sequence = session->received + 1};
    uint32_t size = bytes_take_u32(reader);

    frame.size_bytes = 1 + ((size & 7) == 0 ? size : size & 0xff) % FABRIC_MESSAGE_MAX;
    frame.ack = session->acked;
    frame_encode(&frame, bytes);
    if (!is_honest) {
        size_t offset = bytes_take_u8(reader) % FRAME_HEADER_BYTES;

        bytes[offset] ^= bytes_take_u8(reader);
    }
    return feed(session, bytes, frame_bytes(&frame), 1 + (size_t)bytes_take_u16(reader) * 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes_reader reader = {data, size, false};
    struct iovec part = {(void *)(uintptr_t) "message", 7};
    struct session session;
    bool is_open = true;
    uint64_t resends;

    stream_reset(&stream);
    session_init(&session, 7, FABRIC_MESSAGE_MAX);
    while (is_open && !reader.failed) {
        uint8_t operation = bytes_take_u8(&reader);
        size_t count = operation / 8 < reader.left ? operation / 8 : reader.left;
        int result = 0;

        switch (operation % 8) {
        case 0:
            is_open = feed(&session, reader.next, count, 5);
            reader.next += count;
            reader.left -= count;
            break;
        case 1:
            result = session_append(&session, &part, 1);
            ASSERT(result == 0 || result == -ENOBUFS);
            session_wrote(&session, fifo_used(&session.retained) - session.written_bytes);
            break;
        case 2:
            result = session_resume(&session, bytes_take_u8(&reader), &resends);
            is_open = result == 0;
            stream_reset(&stream);
            break;
        case 3:
            is_open = feed_frame(&session, &reader, false);
            break;
        default:
            is_open = feed_frame(&session, &reader, true);
            break;
        }
    }
    session_fini(&session);
    return 0;
}
