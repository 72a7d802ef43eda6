/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.h - a ring of records between one producer and one consumer, in memory that both map.
 *
 * A record is 4 bytes of size, 4 zero bytes, and the message padded to 8. The bytes of a ring are mapped twice, one
 * behind the other, so a record that passes the end is contiguous all the same, and any record of up to the capacity
 * fits an empty ring. head and tail count bytes since the beginning and never wrap in practice.
 *
 * The other side may be broken. Each side keeps its own index privately and never reads it back; the other side's
 * index and a record's size are read once, checked, and the copy is used. -EBADMSG says they are impossible.
 *
 * Ordering
 *   data     ring_commit() stores tail (seq_cst, so also release) after the bytes; ring_next() loads tail (acquire)
 *            before it reads them. ring_release() stores head after the last read; ring_reserve() loads head (acquire)
 *            before it overwrites.
 *   sleep    The consumer stores `is_sleeping` 1, then loads tail (ring_sleep()). The producer stores tail, then loads
 *            `is_sleeping` (ring_commit()). All four are seq_cst: in their single order one side comes second, so
 *            either the consumer sees the record and does not sleep, or the producer sees the sleeper and rings.
 *   room     The producer stores `is_waiting` 1, then loads head (ring_wait_room()). The consumer stores head, then
 *            loads `is_waiting` (ring_release()). The same argument: room is never gained unnoticed.
 * Whoever finds a flag set exchanges it for 0 and rings once.
 */
#ifndef TIERMESH_FABRIC_RING_H
#define TIERMESH_FABRIC_RING_H

#include "base/types.h"

#include <stdatomic.h>

#define RING_RECORD_BYTES 8 /* before the message */

/* What both sides map, each word on the cache line of the side that writes it most. */
struct ring_shared {
    _Alignas(64) _Atomic(uint64_t) tail;        /* written by the producer */
    _Alignas(64) _Atomic(uint64_t) head;        /* written by the consumer */
    _Alignas(64) _Atomic(uint32_t) is_sleeping; /* set by the consumer: ring when a record comes */
    _Alignas(64) _Atomic(uint32_t) is_waiting;  /* set by the producer: ring when there is room */
};

/* One side's view. */
struct ring {
    struct ring_shared *shared;
    uint8_t *bytes; /* capacity_bytes, mapped twice */
    uint64_t capacity_bytes;
    uint64_t position; /* producer: tail; consumer: the end of what ring_next() handed out */
    uint64_t limit;    /* producer: the head it saw last; consumer: the tail it saw last */
};

/* Both indexes at 0. `capacity_bytes` is a power of two. */
void ring_init(struct ring *ring, struct ring_shared *shared, uint8_t *bytes, uint64_t capacity_bytes);

/* ---- producer ---- */

/* 0 and where to put the message; -EAGAIN: full; -EBADMSG. */
int ring_reserve(struct ring *ring, size_t size_bytes, uint8_t **ret_message) MUST_USE;

/* Publish what was reserved. True: the consumer sleeps, ring its bell. */
bool ring_commit(struct ring *ring, size_t size_bytes) MUST_USE;

/* Ask for a bell when there is room. True: a record of `size_bytes` fits meanwhile (or the other side is broken). */
bool ring_wait_room(struct ring *ring, size_t size_bytes) MUST_USE;

/* ---- consumer ---- */

/* 1 and the next message, which stays until ring_release(); 0: none; -EBADMSG. */
int ring_next(struct ring *ring, const uint8_t **ret_message, size_t *ret_size_bytes) MUST_USE;

/* Give back what ring_next() handed out. True: the producer waits for room, ring its bell. */
bool ring_release(struct ring *ring) MUST_USE;

/* Ask for a bell when a record comes. True: one is there. */
bool ring_sleep(struct ring *ring) MUST_USE;
void ring_wake(struct ring *ring);

#endif
