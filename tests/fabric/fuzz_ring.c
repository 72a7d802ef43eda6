/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_ring.c - a ring whose other side writes what it likes into the shared memory: what the consumer hands out is
 * always inside the ring, and what the producer may fill is too. Input bytes choose what the other side does.
 */
#include "base/assert.h"
#include "base/bytes.h"
#include "fabric/shm.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RING_BYTES SHM_CONTROL_BYTES

static struct shm_segment segment;

static void segment_prepare(void)
{
    int fd;
    int result;

    if (segment.memory == NULL) {
        result = shm_segment_create(&fd);
        ASSERT(result == 0);
        result = shm_segment_map(fd, &segment);
        ASSERT(result == 0);
        close(fd);
    }
    memset((void *)segment.rings[0], 0, sizeof(segment.rings[0]));
    memset(segment.bytes[0][PLANE_CONTROL], 0, 4096);
}

static void check_inside(const uint8_t *bytes, size_t size)
{
    const uint8_t *first = segment.bytes[0][PLANE_CONTROL];

    ASSERT(bytes >= first + RING_RECORD_BYTES && bytes < first + RING_BYTES + RING_RECORD_BYTES);
    ASSERT(size <= FABRIC_MESSAGE_MAX && bytes + size <= first + 2 * RING_BYTES);
    ASSERT(((uintptr_t)bytes & 7) == 0);
}

/* False when the session would end. */
static bool consume(struct ring *ring)
{
    const uint8_t *bytes;
    size_t size;
    int result;
    int left = 1000;

    while (left-- > 0 && (result = ring_next(ring, &bytes, &size)) > 0)
        check_inside(bytes, size);
    (void)!ring_release(ring);
    (void)!ring_sleep(ring);
    return result >= 0;
}

static bool produce(struct ring *ring, size_t size)
{
    uint8_t *bytes;
    int result = ring_reserve(ring, size, &bytes);

    if (result == -EAGAIN)
        (void)!ring_wait_room(ring, size);
    if (result != 0)
        return result == -EAGAIN;
    check_inside(bytes, size);
    memset(bytes, 1, size < 64 ? size : 64);
    (void)!ring_commit(ring, size);
    return true;
}

static void spoil(struct bytes_reader *reader, _Atomic(uint64_t) *word, const struct ring *ring)
{
    uint64_t value = bytes_take_u64(reader);

    /* Near the truth half of the time: those values get further. */
    atomic_store(word, (value & 1) != 0 ? value >> 1 : ring->position + (value >> 1) % (2 * RING_BYTES));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes_reader reader = {data, size, false};
    struct ring_shared *shared;
    struct ring consumer;
    struct ring producer;
    uint8_t *bytes;
    bool is_open = true;

    segment_prepare();
    shared = &segment.rings[0][PLANE_CONTROL];
    bytes = segment.bytes[0][PLANE_CONTROL];
    ring_init(&consumer, shared, bytes, RING_BYTES);
    ring_init(&producer, shared, bytes, RING_BYTES);
    while (is_open && !reader.failed) {
        switch (bytes_take_u8(&reader) % 8) {
        case 0:
            spoil(&reader, &shared->tail, &consumer);
            break;
        case 1:
            spoil(&reader, &shared->head, &producer);
            break;
        case 2:
            bytes_take(&reader, bytes + bytes_take_u32(&reader) % RING_BYTES / 8 * 8, 8);
            break;
        case 3:
        case 4:
            is_open = consume(&consumer);
            break;
        default:
            is_open = produce(&producer, 1 + bytes_take_u32(&reader) % FABRIC_MESSAGE_MAX);
            break;
        }
    }
    return 0;
}
