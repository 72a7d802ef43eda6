/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.c - a ring of records between one producer and one consumer. Each side runs on its own shard's thread.
 *
 * Always, on each side: limit is within capacity of position, because it was checked when it was read.
 */
#include "fabric/ring.h"

#include "base/assert.h"
#include "fabric/fabric.h"

#include <errno.h>
#include <string.h>

static uint64_t record_bytes(size_t size_bytes)
{
    return RING_RECORD_BYTES + (((uint64_t)size_bytes + 7) & ~(uint64_t)7);
}

static uint8_t *ring_at(const struct ring *ring, uint64_t position)
{
    return ring->bytes + (position & (ring->capacity_bytes - 1));
}

void ring_init(struct ring *ring, struct ring_shared *shared, uint8_t *bytes, uint64_t capacity_bytes)
{
    ASSERT((capacity_bytes & (capacity_bytes - 1)) == 0 && capacity_bytes >= record_bytes(FABRIC_MESSAGE_MAX));
    *ring = (struct ring){.shared = shared, .bytes = bytes, .capacity_bytes = capacity_bytes};
}

/* 0, -EAGAIN, -EBADMSG. */
static int ring_room(struct ring *ring, uint64_t bytes, memory_order order)
{
    uint64_t head;

    ASSERT(bytes <= ring->capacity_bytes);
    if (ring->position + bytes - ring->limit <= ring->capacity_bytes)
        return 0;
    head = atomic_load_explicit(&ring->shared->head, order);
    if (ring->position - head > ring->capacity_bytes)
        return -EBADMSG;
    ring->limit = head;
    return ring->position + bytes - head <= ring->capacity_bytes ? 0 : -EAGAIN;
}

int ring_reserve(struct ring *ring, size_t size_bytes, uint8_t **ret_message)
{
    int result = ring_room(ring, record_bytes(size_bytes), memory_order_acquire);

    if (result == 0)
        *ret_message = ring_at(ring, ring->position) + RING_RECORD_BYTES;
    return result;
}

bool ring_commit(struct ring *ring, size_t size_bytes)
{
    uint32_t header[2] = {(uint32_t)size_bytes, 0};

    memcpy(ring_at(ring, ring->position), header, sizeof(header));
    ring->position += record_bytes(size_bytes);
    /* Pairs with ring_next() (data) and ring_sleep() (sleep). */
    atomic_store_explicit(&ring->shared->tail, ring->position, memory_order_seq_cst);
    return atomic_load_explicit(&ring->shared->is_sleeping, memory_order_seq_cst) != 0 &&
           atomic_exchange_explicit(&ring->shared->is_sleeping, 0, memory_order_seq_cst) != 0;
}

bool ring_wait_room(struct ring *ring, size_t size_bytes)
{
    /* Pairs with ring_release() (room). */
    atomic_store_explicit(&ring->shared->is_waiting, 1, memory_order_seq_cst);
    return ring_room(ring, record_bytes(size_bytes), memory_order_seq_cst) != -EAGAIN;
}

int ring_next(struct ring *ring, const uint8_t **ret_message, size_t *ret_size_bytes)
{
    uint64_t ready = ring->limit - ring->position;
    const uint8_t *record;
    uint32_t size;

    if (ready == 0) {
        /* Pairs with ring_commit() (data). */
        uint64_t tail = atomic_load_explicit(&ring->shared->tail, memory_order_acquire);

        ready = tail - ring->position;
        if (ready == 0)
            return 0;
        if (ready > ring->capacity_bytes || (ready & 7) != 0)
            return -EBADMSG;
        ring->limit = tail;
    }
    record = ring_at(ring, ring->position);
    /* Read once: the producer could change it after the check. */
    size = *(const volatile uint32_t *)(const void *)record;
    if (size == 0 || size > FABRIC_MESSAGE_MAX || record_bytes(size) > ready)
        return -EBADMSG;
    *ret_message = record + RING_RECORD_BYTES;
    *ret_size_bytes = size;
    ring->position += record_bytes(size);
    return 1;
}

bool ring_release(struct ring *ring)
{
    /* Pairs with ring_reserve() (data) and ring_wait_room() (room). */
    atomic_store_explicit(&ring->shared->head, ring->position, memory_order_seq_cst);
    return atomic_load_explicit(&ring->shared->is_waiting, memory_order_seq_cst) != 0 &&
           atomic_exchange_explicit(&ring->shared->is_waiting, 0, memory_order_seq_cst) != 0;
}

bool ring_sleep(struct ring *ring)
{
    /* Pairs with ring_commit() (sleep). */
    atomic_store_explicit(&ring->shared->is_sleeping, 1, memory_order_seq_cst);
    return atomic_load_explicit(&ring->shared->tail, memory_order_seq_cst) != ring->position;
}

void ring_wake(struct ring *ring)
{
    atomic_store_explicit(&ring->shared->is_sleeping, 0, memory_order_relaxed);
}
