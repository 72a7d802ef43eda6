/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - messages between runtimes, beside those of the protocols: frees for other nodes, and bulk reads.
 *
 * One shape of 32 bytes, little-endian, encode beside decode.
 */
#ifndef TIERMESH_RUNTIME_WIRE_H
#define TIERMESH_RUNTIME_WIRE_H

#include "base/types.h"

#define MESSAGE_FAMILY_RUNTIME 3
#define WIRE_VERSION 1
#define WIRE_HEADER_BYTES 32

enum wire_type {
    WIRE_FREE = 1,    /* a: address offset in the window; b: 1 free, 0 only ask for the size */
    WIRE_FREED,       /* result; a: usable size */
    WIRE_BULK_OPEN,   /* a: first page; b: pages */
    WIRE_BULK_READY,  /* result; 0: the pages may be read from the home's file until closed; a: 1: it has holes */
    WIRE_BULK_CLOSE,
    WIRE_BULK_LEND,   /* a: first page; b: pages, LEND_PAGES_MAX at most: answered by a PART for each slice of them */
    WIRE_BULK_PART,   /* result; 0: slice b of the run lies at offset a of what the home lends, until closed */
    WIRE_TYPES,
};

struct wire {
    uint8_t type;
    int32_t result;
    uint64_t id; /* the asking node's; returned in answers */
    uint64_t a, b;
};

void wire_encode(const struct wire *wire, uint8_t header[WIRE_HEADER_BYTES]);

/* 0 or -EBADMSG: wrong size, unknown type or version. */
int wire_decode(const void *bytes, size_t size_bytes, struct wire *ret_wire) MUST_USE;

#endif
