/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - messages between runtimes, beside those of the protocols: frees for other nodes, and bulk reads.
 *
 * One shape of 40 bytes, little-endian, encode beside decode, then a payload for WIRE_BULK_DATA.
 */
#ifndef TIERMESH_RUNTIME_WIRE_H
#define TIERMESH_RUNTIME_WIRE_H

#include "base/types.h"

#define MESSAGE_FAMILY_RUNTIME 3
#define WIRE_VERSION 1
#define WIRE_HEADER_BYTES 40

enum wire_type {
    WIRE_FREE = 1,    /* a: address offset in the window; b: 1 free, 0 only ask for the size */
    WIRE_FREED,       /* result; a: usable size */
    WIRE_BULK_OPEN,   /* a: first page; b: pages; flags: WIRE_BY_FILE */
    WIRE_BULK_READY,  /* result; by file: the pages may be read from the home's file until WIRE_BULK_CLOSE */
    WIRE_BULK_DATA,   /* a: byte offset in the transfer; payload */
    WIRE_BULK_CLOSE,
    WIRE_TYPES,
};

#define WIRE_BY_FILE 1u

struct wire {
    uint8_t type;
    uint8_t flags;
    int32_t result;
    uint64_t id; /* the asking node's; returned in answers */
    uint64_t a, b;
    const void *payload;
    uint32_t payload_bytes;
};

void wire_encode(const struct wire *wire, uint8_t header[WIRE_HEADER_BYTES]);

/* 0 or -EBADMSG: truncated, unknown type or version, a payload where none belongs. */
int wire_decode(const void *bytes, size_t size_bytes, struct wire *ret_wire) MUST_USE;

#endif
