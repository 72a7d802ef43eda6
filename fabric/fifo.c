/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fifo.c - a queue of bytes that stays contiguous in memory and grows up to a bound.
 *
 * Always: head <= tail <= capacity, and an empty queue starts at 0 again, so that light traffic stays in the same
 * cache lines. Capacity is kept at twice what is queued or more, so that each byte is moved about once at most.
 */
#include "fabric/fifo.h"

#include "base/assert.h"
#include "base/os.h"

#include <string.h>

#define FIFO_BYTES_MIN ((size_t)64 * 1024)

void fifo_init(struct fifo *fifo, size_t used_bytes_max)
{
    *fifo = (struct fifo){.used_bytes_max = used_bytes_max};
}

void fifo_fini(struct fifo *fifo)
{
    os_pages_unmap(fifo->memory, fifo->capacity_bytes);
    fifo_init(fifo, fifo->used_bytes_max);
}

static bool fifo_grow(struct fifo *fifo, size_t needed_bytes)
{
    size_t capacity = fifo->capacity_bytes == 0 ? FIFO_BYTES_MIN : fifo->capacity_bytes;
    size_t used = fifo_used(fifo);
    void *memory;

    while (capacity < 2 * needed_bytes)
        capacity *= 2;
    if (os_pages_map(capacity, &memory) != 0)
        return false;
    if (used > 0)
        memcpy(memory, fifo_front(fifo), used);
    os_pages_unmap(fifo->memory, fifo->capacity_bytes);
    fifo->memory = memory;
    fifo->capacity_bytes = capacity;
    fifo->head = 0;
    fifo->tail = used;
    return true;
}

uint8_t *fifo_reserve(struct fifo *fifo, size_t size_bytes)
{
    size_t used = fifo_used(fifo);

    if (size_bytes > fifo->used_bytes_max || used > fifo->used_bytes_max - size_bytes)
        return NULL;
    if (size_bytes <= fifo->capacity_bytes - fifo->tail)
        return fifo->memory + fifo->tail;
    if (2 * (used + size_bytes) > fifo->capacity_bytes)
        return fifo_grow(fifo, used + size_bytes) ? fifo->memory + fifo->tail : NULL;
    if (used > 0)
        memmove(fifo->memory, fifo_front(fifo), used);
    fifo->head = 0;
    fifo->tail = used;
    return fifo->memory + used;
}

void fifo_commit(struct fifo *fifo, size_t size_bytes)
{
    ASSERT(size_bytes <= fifo->capacity_bytes - fifo->tail);
    fifo->tail += size_bytes;
}

void fifo_drop(struct fifo *fifo, size_t size_bytes)
{
    ASSERT(size_bytes <= fifo_used(fifo));
    fifo->head += size_bytes;
    if (fifo->head == fifo->tail)
        fifo->head = fifo->tail = 0;
}
