/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.c - one plane of a session with a peer. Runs on the shard's thread; knows no sockets.
 *
 * Always: acked <= sent, told <= received, written_bytes <= fifo_used(retained), and retained starts at a frame.
 */
#include "fabric/session.h"

#include "base/assert.h"
#include "fabric/transport.h"

#include <errno.h>

/* Acknowledgements and a good-bye find room even when the window is full. */
#define CONTROL_SLACK_BYTES ((size_t)64 * FRAME_HEADER_BYTES)

/* A full window still takes the header and padding of the largest message. */
#define WINDOW_SLACK_BYTES ((size_t)FRAME_HEADER_BYTES + 8)

void session_init(struct session *session, uint32_t tag, size_t window_bytes_max)
{
    *session = (struct session){.tag = tag, .window_bytes_max = window_bytes_max + WINDOW_SLACK_BYTES};
    fifo_init(&session->retained, session->window_bytes_max + CONTROL_SLACK_BYTES);
}

void session_fini(struct session *session)
{
    fifo_fini(&session->retained);
}

static void session_frame_put(struct session *session, struct frame *frame, uint8_t *memory)
{
    frame->tag = session->tag;
    frame->ack = session->received;
    session->told = session->received;
    session->received_bytes = 0;
    frame_encode(frame, memory);
    fifo_commit(&session->retained, frame_bytes(frame));
}

int session_append(struct session *session, const struct iovec *parts, int parts_count)
{
    size_t size = fabric_parts_size(parts, parts_count);
    struct frame frame = {.type = FRAME_MESSAGE, .size_bytes = (uint32_t)size, .sequence = session->sent + 1};
    size_t bytes = frame_bytes(&frame);
    uint8_t *memory;
    uint8_t *end;

    if (fifo_used(&session->retained) + bytes > session->window_bytes_max)
        return -ENOBUFS;
    memory = fifo_reserve(&session->retained, bytes);
    if (memory == NULL)
        return -ENOBUFS;
    end = fabric_parts_copy(memory + FRAME_HEADER_BYTES, parts, parts_count);
    memset(end, 0, bytes - FRAME_HEADER_BYTES - size);
    session->sent++;
    session_frame_put(session, &frame, memory);
    return 0;
}

int session_append_control(struct session *session, enum frame_type type)
{
    struct frame frame = {.type = (uint16_t)type, .sequence = session->sent};
    uint8_t *memory = fifo_reserve(&session->retained, FRAME_HEADER_BYTES);

    ASSERT(type != FRAME_MESSAGE);
    if (memory == NULL)
        return -ENOBUFS;
    session_frame_put(session, &frame, memory);
    return 0;
}

static struct frame session_frame_at(const struct session *session, size_t offset)
{
    struct frame frame;
    int result = frame_decode(fifo_front(&session->retained) + offset, &frame);

    ASSERT(result == 0); /* we encoded it */
    return frame;
}

/* Forget the frames at the front that nobody needs any more, of the first `limit_bytes`. Returns their size. */
static size_t session_trim(struct session *session, size_t limit_bytes)
{
    size_t dropped = 0;

    while (dropped < limit_bytes) {
        struct frame frame = session_frame_at(session, 0);

        if (frame_bytes(&frame) > limit_bytes - dropped)
            break;
        if (frame.type == FRAME_MESSAGE && frame.sequence > session->acked)
            break;
        fifo_drop(&session->retained, frame_bytes(&frame));
        dropped += frame_bytes(&frame);
    }
    return dropped;
}

void session_wrote(struct session *session, size_t size_bytes)
{
    session->written_bytes += size_bytes;
    ASSERT(session->written_bytes <= fifo_used(&session->retained));
    session->written_bytes -= session_trim(session, session->written_bytes);
}

int session_receive(struct session *session, const struct frame *frame, bool *ret_is_duplicate)
{
    *ret_is_duplicate = false;
    if (frame->tag != session->tag || frame->ack > session->sent)
        return -EBADMSG;
    if (frame->type == FRAME_MESSAGE ? frame->sequence > session->received + 1 || frame->sequence == 0
                                     : frame->sequence > session->received)
        return -EBADMSG;
    if (frame->ack > session->acked) {
        session->acked = frame->ack;
        session->written_bytes -= session_trim(session, session->written_bytes);
    }
    if (frame->type != FRAME_MESSAGE)
        return 0;
    if (frame->sequence <= session->received) {
        *ret_is_duplicate = true;
        return 0;
    }
    session->received++;
    session->received_bytes += frame_bytes(frame);
    return 1;
}

int session_resume(struct session *session, uint64_t peer_received, uint64_t *ret_resends)
{
    size_t written;
    size_t trimmed;
    uint64_t resends = 0;

    if (peer_received < session->acked || peer_received > session->sent)
        return -EBADMSG;
    session->acked = peer_received;
    /* Whatever was under way on the old connection starts again at a frame's first byte. */
    written = session->written_bytes;
    session->written_bytes = 0;
    trimmed = session_trim(session, fifo_used(&session->retained));
    written = written > trimmed ? written - trimmed : 0;
    for (size_t offset = 0; offset < written;) {
        struct frame frame = session_frame_at(session, offset);

        resends += frame.type == FRAME_MESSAGE;
        offset += frame_bytes(&frame);
    }
    *ret_resends = resends;
    return 0;
}
