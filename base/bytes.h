/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bytes.h - bounds-checked reading and writing of message bytes, little-endian.
 *
 * A cursor that ran out stays failed and yields zeroes, so a decoder reads all its fields and checks once.
 */
#ifndef TIERMESH_BASE_BYTES_H
#define TIERMESH_BASE_BYTES_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes_reader {
    const uint8_t *next;
    size_t left;
    bool failed;
};

struct bytes_writer {
    uint8_t *next;
    size_t left;
    bool failed;
};

static inline void bytes_take(struct bytes_reader *reader, void *value, size_t size)
{
    if (reader->failed || reader->left < size) {
        reader->failed = true;
        memset(value, 0, size);
        return;
    }
    memcpy(value, reader->next, size);
    reader->next += size;
    reader->left -= size;
}

static inline void bytes_put(struct bytes_writer *writer, const void *value, size_t size)
{
    if (writer->failed || writer->left < size) {
        writer->failed = true;
        return;
    }
    memcpy(writer->next, value, size);
    writer->next += size;
    writer->left -= size;
}

#define BYTES_DEFINE(type, bits)                                              \
    static inline type bytes_take_u##bits(struct bytes_reader *reader)        \
    {                                                                         \
        type value;                                                           \
                                                                              \
        bytes_take(reader, &value, sizeof(value));                            \
        return le##bits##toh(value);                                          \
    }                                                                         \
    static inline void bytes_put_u##bits(struct bytes_writer *writer, type v) \
    {                                                                         \
        type value = htole##bits(v);                                          \
                                                                              \
        bytes_put(writer, &value, sizeof(value));                             \
    }

BYTES_DEFINE(uint16_t, 16)
BYTES_DEFINE(uint32_t, 32)
BYTES_DEFINE(uint64_t, 64)

static inline uint8_t bytes_take_u8(struct bytes_reader *reader)
{
    uint8_t value;

    bytes_take(reader, &value, sizeof(value));
    return value;
}

static inline void bytes_put_u8(struct bytes_writer *writer, uint8_t value)
{
    bytes_put(writer, &value, sizeof(value));
}

#endif
