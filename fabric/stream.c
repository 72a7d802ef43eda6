/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.c - frames on a byte stream, and the buffer in which they arrive.
 *
 * Always: start <= end <= STREAM_BYTES, and a frame's first byte is at a multiple of 8. Everything read here was
 * written by a peer.
 */
#include "fabric/stream.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/os.h"

#include <errno.h>

void frame_encode(const struct frame *frame, uint8_t header[FRAME_HEADER_BYTES])
{
    struct bytes_writer writer = {header, FRAME_HEADER_BYTES, false};

    bytes_put_u32(&writer, frame->tag);
    bytes_put_u16(&writer, frame->type);
    bytes_put_u16(&writer, 0);
    bytes_put_u32(&writer, frame->size_bytes);
    bytes_put_u32(&writer, 0);
    bytes_put_u64(&writer, frame->sequence);
    bytes_put_u64(&writer, frame->ack);
    ASSERT(!writer.failed && writer.left == 0);
}

int frame_decode(const uint8_t header[FRAME_HEADER_BYTES], struct frame *ret_frame)
{
    struct bytes_reader reader = {header, FRAME_HEADER_BYTES, false};
    struct frame frame;
    uint32_t zeroes;

    frame.tag = bytes_take_u32(&reader);
    frame.type = bytes_take_u16(&reader);
    zeroes = bytes_take_u16(&reader);
    frame.size_bytes = bytes_take_u32(&reader);
    zeroes |= bytes_take_u32(&reader);
    frame.sequence = bytes_take_u64(&reader);
    frame.ack = bytes_take_u64(&reader);
    if (zeroes != 0 || frame.type < FRAME_MESSAGE || frame.type > FRAME_GOODBYE)
        return -EBADMSG;
    if (frame.size_bytes > FABRIC_MESSAGE_MAX || (frame.type == FRAME_MESSAGE) != (frame.size_bytes > 0))
        return -EBADMSG;
    *ret_frame = frame;
    return 0;
}

void stream_reset(struct stream *stream)
{
    stream->start = stream->end = 0;
}

void stream_fini(struct stream *stream)
{
    os_pages_unmap(stream->memory, STREAM_BYTES);
    *stream = (struct stream){0};
}

int stream_room(struct stream *stream, uint8_t **ret_room, size_t *ret_size_bytes)
{
    size_t used = stream->end - stream->start;
    void *memory;

    BUILD_ASSERT(STREAM_BYTES > FRAME_BYTES_MAX);
    if (stream->memory == NULL) {
        if (os_pages_map(STREAM_BYTES, &memory) != 0)
            return -ENOMEM;
        stream->memory = memory;
    }
    if (stream->start > 0 && (used == 0 || stream->end > STREAM_BYTES / 2)) {
        memmove(stream->memory, stream->memory + stream->start, used);
        stream->start = 0;
        stream->end = used;
    }
    ASSERT(stream->end < STREAM_BYTES);
    *ret_room = stream->memory + stream->end;
    *ret_size_bytes = STREAM_BYTES - stream->end;
    return 0;
}

void stream_filled(struct stream *stream, size_t size_bytes)
{
    ASSERT(size_bytes <= STREAM_BYTES - stream->end);
    stream->end += size_bytes;
}

int stream_next(struct stream *stream, struct frame *ret_frame, const uint8_t **ret_bytes)
{
    size_t used = stream->end - stream->start;
    struct frame frame;
    int result;

    if (used < FRAME_HEADER_BYTES)
        return 0;
    result = frame_decode(stream->memory + stream->start, &frame);
    if (result != 0)
        return result;
    if (used < frame_bytes(&frame))
        return 0;
    *ret_frame = frame;
    *ret_bytes = stream->memory + stream->start + FRAME_HEADER_BYTES;
    stream->start += frame_bytes(&frame);
    return 1;
}
