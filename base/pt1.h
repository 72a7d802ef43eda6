/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pt1.h - the format of page traces, for who writes them and who reads them.
 *
 * PT1, little endian: "PT1\0", u64 records, u64 accesses, u32 instructions, u32 filter pages; then columns, each with
 * one item a record: page (varint of the zigzag of the difference to the page before, which is 0 at first), gap (one
 * byte: accesses, or nanoseconds, since the record before), store (one bit, the lowest first), instruction (varint).
 * A trace that is still being written, or was cut off, is several such parts, one behind the other.
 */
#ifndef TIERMESH_BASE_PT1_H
#define TIERMESH_BASE_PT1_H

#include "base/bytes.h"

#define PT1_MAGIC       "PT1" /* with its 0 */
#define PT1_MAGIC_BYTES 4u
#define PT1_HEAD_BYTES  28u
#define PT1_VARINT_MAX  10u

static inline uint64_t pt1_zigzag(uint64_t page, uint64_t before)
{
    int64_t delta = (int64_t)(page - before);

    return (uint64_t)delta << 1 ^ (uint64_t)(delta >> 63);
}

static inline uint64_t pt1_page(uint64_t zigzag, uint64_t before)
{
    return before + (zigzag >> 1 ^ -(zigzag & 1));
}

/* Writes PT1_VARINT_MAX bytes at most. Returns how many. */
static inline size_t pt1_varint_put(uint8_t *bytes, uint64_t value)
{
    size_t count = 0;

    for (; value >= 0x80; value >>= 7)
        bytes[count++] = (uint8_t)(value | 0x80);
    bytes[count++] = (uint8_t)value;
    return count;
}

/* A whole column of pages, at most PT1_VARINT_MAX bytes each. Returns its bytes. */
static inline size_t pt1_pages_put(uint8_t *bytes, const uint64_t *pages, size_t pages_count)
{
    uint64_t before = 0;
    size_t used = 0;

    for (size_t i = 0; i < pages_count; i++) {
        used += pt1_varint_put(bytes + used, pt1_zigzag(pages[i], before));
        before = pages[i];
    }
    return used;
}

/* Values below 32 stand for themselves, others for 16 to 31 times a power of two; too large ones for the largest. */
static inline uint8_t pt1_gap_of(uint64_t value)
{
    unsigned shift = 0;

    if (value < 32)
        return (uint8_t)value;
    while (value >> shift >= 32)
        shift++;
    return shift > 14 ? UINT8_MAX : (uint8_t)(16 * (shift + 1) + (value >> shift) % 16);
}

static inline uint32_t pt1_gap_value(uint8_t gap)
{
    return gap < 32 ? gap : (uint32_t)(16 + gap % 16) << (gap / 16 - 1);
}

static inline void pt1_head_put(uint8_t head[PT1_HEAD_BYTES], uint64_t records, uint64_t accesses,
                                uint32_t instructions, uint32_t filter_pages)
{
    struct bytes_writer writer = {.next = head, .left = PT1_HEAD_BYTES};

    bytes_put(&writer, PT1_MAGIC, PT1_MAGIC_BYTES);
    bytes_put_u64(&writer, records);
    bytes_put_u64(&writer, accesses);
    bytes_put_u32(&writer, instructions);
    bytes_put_u32(&writer, filter_pages);
}

#endif
