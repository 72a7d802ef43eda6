/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_ring.h - a ring of messages from one host to another in a pool (pool_memory.h has the rules).
 *
 * The producer's partition holds the bytes and the line of the tail, the consumer's the line of the head: each host
 * writes its own partition only. A record is a header of three words (size, its position, checksum) and the message,
 * padded to words; it may pass the end of the ring. Both indexes count bytes since the session began; lines of another
 * session count as not there, so nobody has to clear what an earlier one left.
 *
 * The other host may be broken. What it writes is copied out, then checked, and the copy is used.
 */
#ifndef TIERMESH_FABRIC_POOL_RING_H
#define TIERMESH_FABRIC_POOL_RING_H

#include "fabric/fabric.h"
#include "fabric/pool_memory.h"

#define POOL_RECORD_BYTES 24

/* One side's view. */
struct pool_ring {
    uint8_t *bytes;
    uint64_t capacity_bytes; /* whole lines */
    uint64_t session;
    struct pool_line *own, *other; /* producer: tail, head; consumer: head, tail */
    uint64_t position;             /* what this side has told, or will tell at its next commit */
    uint64_t limit;                /* what the other side told last */
};

/* Both indexes at 0, and this side's line says so. */
void pool_ring_init(struct pool_ring *ring);

/* Producer: 0; -EAGAIN, full; -EBADMSG, the head is impossible. The message counts once it was committed. */
int pool_ring_put(struct pool_ring *ring, const struct iovec *parts, int parts_count) MUST_USE;
void pool_ring_commit(struct pool_ring *ring);

/* Consumer: the size of the next message, copied to `message` (FABRIC_MESSAGE_MAX bytes); 0: none; -EBADMSG. */
int pool_ring_take(struct pool_ring *ring, uint8_t *message) MUST_USE;

#endif
