/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.h - every message between nodes: one shape, one table, encode beside decode.
 *
 * A message is a fixed header of MESSAGE_HEADER_BYTES and, for types that carry one, a payload. The decoder checks
 * everything a peer can get wrong and returns -EBADMSG; nothing a peer sends is ever asserted on.
 */
#ifndef TIERMESH_COHERENCE_MESSAGE_H
#define TIERMESH_COHERENCE_MESSAGE_H

#include "base/types.h"

#define MESSAGE_VERSION 1
#define MESSAGE_HEADER_BYTES 64

/* Classes have reserved credits: a reply is always accepted, a forward is bounded by the requests in service. */
enum message_class {
    CLASS_REQUEST,
    CLASS_FORWARD,
    CLASS_REPLY,
};

#define MESSAGE_POISONED 1u /* the page is lost; there are no bytes */
#define MESSAGE_ZERO 2u     /* the page is all zeroes; there are no bytes */
#define MESSAGE_PREFETCH 4u /* nobody waits: the home may refuse */

struct message {
    uint8_t type; /* enum message_type */
    uint8_t flags;
    struct node_id from;
    struct node_id requester; /* whom the transaction serves */
    struct epoch epoch;
    struct page_id page;
    uint32_t sequence; /* the home's sequence number of the page */
    uint32_t request;  /* the requester's request index, returned in replies */
    uint32_t credit;   /* see the type's comment in message_types.h */
    uint64_t a, b, c;  /* arguments; see the type's comment in message_types.h */
    const void *payload;
    uint32_t payload_bytes;
};

/* Types and their table are in message_types.h (X-macro), names and classes in message.c. It needs struct message. */
#include "coherence/message_types.h"

/* Encodes the header (not the payload) into MESSAGE_HEADER_BYTES. */
void message_encode(const struct message *message, uint8_t header[MESSAGE_HEADER_BYTES]);

/*
 * Decodes `size_bytes` as received; the payload points into `bytes`.
 * 0, or -EBADMSG: truncated, unknown type or version, node out of range, payload size not allowed for the type.
 */
int message_decode(const void *bytes, size_t size_bytes, struct message *ret_message) MUST_USE;

const char *message_name(uint8_t type);
enum message_class message_class_of(uint8_t type);

#endif
