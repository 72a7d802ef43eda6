/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.h - one plane of a session with a peer: nothing lost, nothing repeated, over any number of connections.
 *
 * Messages are numbered from 1. What was sent is kept as encoded frames until the other side acknowledged it; after a
 * cut both sides say what they received last, and sending goes on behind that. Acknowledgements ride on messages; when
 * little flows back, the owner sends explicit ones. Knows no sockets, clocks or threads.
 *
 * retained:  | written, not acknowledged | unsent |       (fifo; the owner writes "unsent" to the connection)
 */
#ifndef TIERMESH_FABRIC_SESSION_H
#define TIERMESH_FABRIC_SESSION_H

#include "fabric/fifo.h"
#include "fabric/stream.h"

/* An explicit acknowledgement is due at once after so many bytes without one. */
#define SESSION_ACK_BYTES ((size_t)64 * 1024)

struct session {
    uint32_t tag;
    uint64_t sent;         /* sequence of the newest message ever appended */
    uint64_t acked;        /* the other side has all up to here */
    uint64_t received;     /* we have all up to here */
    uint64_t told;         /* the newest acknowledgement in any frame of ours */
    size_t received_bytes; /* since told */
    size_t window_bytes_max;
    size_t written_bytes; /* of what is retained, given to the current connection */
    struct fifo retained;
};

void session_init(struct session *session, uint32_t tag, size_t window_bytes_max);
void session_fini(struct session *session);

/* Number, encode and retain a message. 0 or -ENOBUFS. */
int session_append(struct session *session, const struct iovec *parts, int parts_count) MUST_USE;

/* Append an acknowledgement or a good-bye. 0 or -ENOBUFS. */
int session_append_control(struct session *session, enum frame_type type) MUST_USE;

/* What the connection should be given next; its size may be 0. Valid until the next append. */
static inline size_t session_unsent(const struct session *session, const uint8_t **ret_bytes)
{
    size_t size = fifo_used(&session->retained) - session->written_bytes;

    *ret_bytes = size == 0 ? NULL : fifo_front(&session->retained) + session->written_bytes;
    return size;
}

void session_wrote(struct session *session, size_t size_bytes);

/*
 * Judge a frame that arrived. 1: a new message, to be delivered; 0: nothing to deliver (an acknowledgement, or a
 * message that we have: *ret_is_duplicate); -EBADMSG: no sender of ours writes this.
 */
int session_receive(struct session *session, const struct frame *frame, bool *ret_is_duplicate) MUST_USE;

/*
 * A new connection: the other side received all up to `peer_received`. What it lacks is unsent again; ret_resends is
 * the number of messages of it that had been written before. 0 or -EBADMSG (it cannot have received that).
 */
int session_resume(struct session *session, uint64_t peer_received, uint64_t *ret_resends) MUST_USE;

static inline bool session_owes_ack(const struct session *session)
{
    return session->received != session->told;
}

#endif
