/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.h - every message of the cluster family, encode beside decode. Private to cluster/. PURE.
 *
 * Eight bytes of header (family, version, type, zero, epoch), then what the type carries:
 *
 *   type       from -> to         carries    meaning
 *   HEARTBEAT  any -> any         -          "I live"
 *   COLLECT    keeper -> members  -          the keeper is in this view: report, then ask again
 *   REPORT     member -> keeper   change     the last change of the sender's replica (index 0: none yet)
 *   REQUEST    member -> keeper   change     asks for a change; index 0, sequence is the requester's
 *   REPLY      keeper -> member   sequence, result   the request fails and changed nothing
 *   UPDATE     keeper -> members  change     apply it
 *   ACK        member -> keeper   index      it is applied
 *   COMMIT     keeper -> members  index      it is applied everywhere
 *   ARRIVE     member -> keeper   sequence   is at the barrier;  WITHDRAW: is not any more
 *   RELEASE    keeper -> member   sequence   all are at the barrier;  WITHDRAWN: answers WITHDRAW
 */
#ifndef TIERMESH_CLUSTER_MESSAGE_H
#define TIERMESH_CLUSTER_MESSAGE_H

#include "cluster/cluster.h"

#define CLUSTER_MESSAGE_VERSION 1
#define CLUSTER_MESSAGE_MAX     160

enum cluster_type {
    CLUSTER_HEARTBEAT = 1,
    CLUSTER_COLLECT,
    CLUSTER_REPORT,
    CLUSTER_REQUEST,
    CLUSTER_REPLY,
    CLUSTER_UPDATE,
    CLUSTER_ACK,
    CLUSTER_COMMIT,
    CLUSTER_ARRIVE,
    CLUSTER_WITHDRAW,
    CLUSTER_RELEASE,
    CLUSTER_WITHDRAWN,
    CLUSTER_TYPES,
};

enum cluster_change_kind {
    CHANGE_NONE = 0, /* only in a REPORT with index 0 */
    CHANGE_TAKE,     /* first_extent, extents_count, placement, node, members */
    CHANGE_GIVE,     /* first_extent, extents_count */
    CHANGE_NAME,     /* name, value */
    CHANGE_KINDS,
};

/* Length of a name, at most `limit`; it need not end before that. */
static inline size_t cluster_name_bytes(const char *name, size_t limit)
{
    size_t length = 0;

    while (length < limit && name[length] != '\0')
        length++;
    return length;
}

/* One change of the replicated tables. Complete: applying it needs nothing but the table. */
struct cluster_change {
    uint64_t index;    /* its place in the order of all changes, from 1; 0: not ordered yet */
    uint64_t sequence; /* of the request, unique at its requester */
    struct node_id requester;
    uint8_t kind;
    uint8_t placement;
    struct node_id node;
    uint64_t members; /* over which an interleaved run is spread */
    uint64_t first_extent, extents_count;
    uint64_t value;
    char name[CLUSTER_NAME_MAX + 1]; /* zeroes behind its end: compared as a whole */
};

struct cluster_message {
    uint8_t type;
    struct epoch epoch;
    uint64_t sequence;
    uint64_t index;
    int result; /* 0 or a negative errno */
    struct cluster_change change;
};

/* Returns the size, at most CLUSTER_MESSAGE_MAX. */
size_t cluster_message_encode(const struct cluster_message *message, uint8_t bytes[CLUSTER_MESSAGE_MAX]);

/* 0, or -EBADMSG: truncated, too long, unknown version, type or kind, or a field out of its range. */
int cluster_message_decode(const void *bytes, size_t size_bytes, struct cluster_message *ret_message) MUST_USE;

#endif
