/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fifo.h - a queue of bytes that stays contiguous in memory and grows up to a bound.
 *
 * Nothing is allocated before the first reserve. A reserve may move what is queued: keep offsets from the front,
 * not pointers. Reservations in multiples of 8 keep every record on 8 bytes.
 */
#ifndef TIERMESH_FABRIC_FIFO_H
#define TIERMESH_FABRIC_FIFO_H

#include "base/types.h"

struct fifo {
    uint8_t *memory;
    size_t capacity_bytes;
    size_t used_bytes_max;
    size_t head, tail; /* offsets of the first byte queued and of the first one free */
};

void fifo_init(struct fifo *fifo, size_t used_bytes_max);
void fifo_fini(struct fifo *fifo); /* usable again, and empty */

/* Room for `size_bytes` at the end, not yet queued; NULL when the bound would be exceeded or memory is short. */
uint8_t *fifo_reserve(struct fifo *fifo, size_t size_bytes);
void fifo_commit(struct fifo *fifo, size_t size_bytes);
void fifo_drop(struct fifo *fifo, size_t size_bytes);

static inline size_t fifo_used(const struct fifo *fifo)
{
    return fifo->tail - fifo->head;
}

/* Not of an empty queue. */
static inline uint8_t *fifo_front(const struct fifo *fifo)
{
    return fifo->memory + fifo->head;
}

#endif
