/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_ring.c - a ring of messages in memory that two hosts share. Each side runs on its own shard's thread.
 *
 * Always, on each side: limit is within capacity of position, because it was checked when it was read.
 */
#include "fabric/pool_ring.h"
#include "base/assert.h"
#include "fabric/transport.h"

#include <errno.h>

#define TRIES_MAX 3 /* of a record whose bytes are not what its checksum says: stale lines may have come back */

struct record {
    uint64_t size_bytes;
    uint64_t position;
    uint64_t check;
};

_Static_assert(sizeof(struct record) == POOL_RECORD_BYTES, "the header of a record is three words");

/* Up to two pieces: a stretch of the ring may pass its end. */
struct stretch {
    uint8_t *memory[2];
    size_t size_bytes[2];
};

static struct stretch stretch_of(const struct pool_ring *ring, uint64_t position, size_t size_bytes)
{
    size_t at = (size_t)(position % ring->capacity_bytes);
    size_t first = ring->capacity_bytes - at < size_bytes ? ring->capacity_bytes - at : size_bytes;

    return (struct stretch){{ring->bytes + at, ring->bytes}, {first, size_bytes - first}};
}

static void stretch_write(const struct pool_ring *ring, uint64_t position, const void *bytes, size_t size_bytes)
{
    struct stretch to = stretch_of(ring, position, size_bytes);

    if (size_bytes == 0)
        return;
    memcpy(to.memory[0], bytes, to.size_bytes[0]);
    memcpy(to.memory[1], (const uint8_t *)bytes + to.size_bytes[0], to.size_bytes[1]);
}

static void stretch_read(const struct pool_ring *ring, uint64_t position, void *bytes, size_t size_bytes)
{
    struct stretch from = stretch_of(ring, position, size_bytes);

    for (int i = 0; i < 2; i++)
        if (from.size_bytes[i] > 0)
            pool_drop(from.memory[i], from.size_bytes[i]);
    memcpy(bytes, from.memory[0], from.size_bytes[0]);
    memcpy((uint8_t *)bytes + from.size_bytes[0], from.memory[1], from.size_bytes[1]);
}

static uint64_t record_seed(const struct pool_ring *ring, const struct record *record)
{
    return ring->session ^ record->position ^ record->size_bytes << 40;
}

static uint64_t line_position(const struct pool_ring *ring, uint64_t otherwise)
{
    uint64_t words[POOL_LINE_WORDS];

    return pool_line_read(ring->other, words) && words[0] == ring->session ? words[1] : otherwise;
}

void pool_ring_commit(struct pool_ring *ring)
{
    const uint64_t words[POOL_LINE_WORDS] = {ring->session, ring->position};

    pool_line_write(ring->own, words);
}

void pool_ring_init(struct pool_ring *ring)
{
    ASSERT(ring->session != 0 && ring->capacity_bytes % POOL_LINE_BYTES == 0);
    ASSERT(ring->capacity_bytes >= POOL_RECORD_BYTES + FABRIC_MESSAGE_MAX);
    ring->position = ring->limit = 0;
    pool_ring_commit(ring);
}

/* ---- producer ---- */

static int room(struct pool_ring *ring, uint64_t bytes)
{
    if (ring->position + bytes - ring->limit > ring->capacity_bytes) {
        uint64_t head = line_position(ring, ring->limit);

        if (ring->position - head > ring->capacity_bytes)
            return -EBADMSG;
        ring->limit = head;
    }
    return ring->position + bytes - ring->limit <= ring->capacity_bytes ? 0 : -EAGAIN;
}

/* Of what was just stored, in place: its padded size is whole words, and so is the ring. */
static uint64_t stored_hash(const struct pool_ring *ring, uint64_t seed, uint64_t position, size_t size_bytes)
{
    struct stretch at = stretch_of(ring, position, size_bytes);
    uint64_t hash = pool_hash(seed, at.memory[0], at.size_bytes[0]);

    pool_write_back(at.memory[0], at.size_bytes[0]);
    if (at.size_bytes[1] == 0)
        return hash;
    pool_write_back(at.memory[1], at.size_bytes[1]);
    return pool_hash(hash, at.memory[1], at.size_bytes[1]);
}

int pool_ring_put(struct pool_ring *ring, const struct iovec *parts, int parts_count)
{
    static const uint8_t zeroes[8];
    size_t size = fabric_parts_size(parts, parts_count);
    size_t padded = fabric_round8(size);
    struct record record = {.size_bytes = size, .position = ring->position};
    uint64_t at = ring->position + POOL_RECORD_BYTES;
    int result = room(ring, POOL_RECORD_BYTES + padded);

    if (result != 0)
        return result;
    for (int i = 0; i < parts_count; at += parts[i].iov_len, i++)
        stretch_write(ring, at, parts[i].iov_base, parts[i].iov_len);
    stretch_write(ring, at, zeroes, padded - size);
    record.check = stored_hash(ring, record_seed(ring, &record), ring->position + POOL_RECORD_BYTES, padded);
    stretch_write(ring, ring->position, &record, sizeof(record));
    (void)stored_hash(ring, 0, ring->position, sizeof(record));
    ring->position += POOL_RECORD_BYTES + padded;
    return 0;
}

/* ---- consumer ---- */

/* 0 or -EBADMSG. The same pieces as the producer's, so that the checksum is built in the same way. */
static int record_read(const struct pool_ring *ring, uint64_t ready, struct record *ret_record, uint8_t *message)
{
    struct stretch pieces;
    size_t padded;
    uint64_t hash;

    stretch_read(ring, ring->position, ret_record, sizeof(*ret_record));
    if (ret_record->size_bytes == 0 || ret_record->size_bytes > FABRIC_MESSAGE_MAX ||
        ret_record->position != ring->position)
        return -EBADMSG;
    padded = fabric_round8((size_t)ret_record->size_bytes);
    if (POOL_RECORD_BYTES + padded > ready)
        return -EBADMSG;
    stretch_read(ring, ring->position + POOL_RECORD_BYTES, message, padded);
    pieces = stretch_of(ring, ring->position + POOL_RECORD_BYTES, padded);
    hash = pool_hash(record_seed(ring, ret_record), message, pieces.size_bytes[0]);
    if (pieces.size_bytes[1] > 0)
        hash = pool_hash(hash, message + pieces.size_bytes[0], pieces.size_bytes[1]);
    return hash == ret_record->check ? 0 : -EBADMSG;
}

int pool_ring_take(struct pool_ring *ring, uint8_t *message)
{
    uint64_t ready = ring->limit - ring->position;
    struct record record;
    int result = -EBADMSG;

    if (ready == 0) {
        ready = line_position(ring, ring->limit) - ring->position;
        if (ready == 0)
            return 0;
        if (ready > ring->capacity_bytes || ready % 8 != 0 || ready < POOL_RECORD_BYTES)
            return -EBADMSG;
        ring->limit = ring->position + ready;
    }
    for (int tries = 0; result != 0 && tries < TRIES_MAX; tries++)
        result = record_read(ring, ready, &record, message);
    if (result != 0)
        return result;
    ring->position += POOL_RECORD_BYTES + fabric_round8((size_t)record.size_bytes);
    return (int)record.size_bytes;
}
