/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.h - frames on a byte stream, and the buffer in which they arrive.
 *
 *   offset  bytes
 *        0      4  tag        of the session and plane: a frame in a wrong place is noticed
 *        4      2  type       enum frame_type
 *        6      2  zero
 *        8      4  size       bytes that follow the header, without padding
 *       12      4  zero
 *       16      8  sequence   of this message, counted from 1 on each plane; of the last one in other frames
 *       24      8  ack        sequence of the last message received from the other side, cumulative
 *       32   size  message, then zeroes up to a multiple of 8
 *
 * Little-endian. Messages are handed out where they arrived, so they start on 8 bytes (F8). Knows no sockets.
 */
#ifndef TIERMESH_FABRIC_STREAM_H
#define TIERMESH_FABRIC_STREAM_H

#include "fabric/fabric.h"

#define FRAME_HEADER_BYTES 32
#define FRAME_BYTES_MAX    (FRAME_HEADER_BYTES + FABRIC_MESSAGE_MAX)
#define STREAM_BYTES       ((size_t)2 * FABRIC_MESSAGE_MAX)

enum frame_type {
    FRAME_MESSAGE = 1,
    FRAME_ACK = 2,
    FRAME_GOODBYE = 3, /* the session ends here, by the wish of the sender */
};

struct frame {
    uint32_t tag;
    uint16_t type;
    uint32_t size_bytes;
    uint64_t sequence;
    uint64_t ack;
};

void frame_encode(const struct frame *frame, uint8_t header[FRAME_HEADER_BYTES]);

/* 0, or -EBADMSG for what no sender of ours writes. Does not look at tag, sequence and ack. */
int frame_decode(const uint8_t header[FRAME_HEADER_BYTES], struct frame *ret_frame) MUST_USE;

/* Header, message and padding. */
static inline size_t frame_bytes(const struct frame *frame)
{
    return FRAME_HEADER_BYTES + (((size_t)frame->size_bytes + 7) & ~(size_t)7);
}

struct stream {
    uint8_t *memory; /* STREAM_BYTES, mapped at the first stream_room() */
    size_t start, end;
};

/* Memory is kept by reset (a message in it may be in use), given back by fini. Zeroed is a valid, empty stream. */
void stream_reset(struct stream *stream);
void stream_fini(struct stream *stream);

/* Where to put the next bytes, at least one frame's missing ones. 0 or -ENOMEM. */
int stream_room(struct stream *stream, uint8_t **ret_room, size_t *ret_size_bytes) MUST_USE;
void stream_filled(struct stream *stream, size_t size_bytes);

/*
 * The next whole frame: 1; 0 when more bytes are needed; -EBADMSG. ret_bytes (8-aligned) is valid until the next
 * stream_room().
 */
int stream_next(struct stream *stream, struct frame *ret_frame, const uint8_t **ret_bytes) MUST_USE;

#endif
