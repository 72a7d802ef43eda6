/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.h - what fabric.c offers to the transports: the way of every callback to the user.
 *
 * All callbacks go through these functions, so that one place checks the contract: no callback inside send(),
 * peer_up() before messages, peer_down() once and nothing after it (F3, F5, F7).
 */
#ifndef TIERMESH_FABRIC_TRANSPORT_H
#define TIERMESH_FABRIC_TRANSPORT_H

#include "fabric/fabric.h"

#include <string.h>

/* -EINVAL with a sentence when the configuration cannot work. Every constructor calls it first. */
int fabric_config_check(const struct fabric_config *config) MUST_USE;

void fabric_init(struct fabric *fabric, const struct fabric_ops *ops, const struct fabric_config *config);

void fabric_deliver(struct fabric *fabric, struct node_id from, enum fabric_plane plane, const void *bytes,
                    size_t size_bytes);
void fabric_report_up(struct fabric *fabric, struct node_id peer);

void fabric_report_done(struct fabric *fabric, struct fabric_operation *operation, int result, const void *bytes);

/* May call back. */
void fabric_path_set(struct fabric *fabric, struct node_id peer, enum fabric_plane plane, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Does nothing when the session is not open any more. */
void fabric_report_down(struct fabric *fabric, struct node_id peer, const char *cause);

static inline uint64_t fabric_bit(struct node_id node)
{
    return (uint64_t)1 << node.index;
}

static inline bool fabric_is_up(const struct fabric *fabric, struct node_id peer)
{
    return (fabric->peers_up & fabric_bit(peer)) != 0;
}

static inline bool fabric_is_open(const struct fabric *fabric, struct node_id peer)
{
    return (fabric->peers_open & fabric_bit(peer)) != 0;
}

static inline size_t fabric_parts_size(const struct iovec *parts, int parts_count)
{
    size_t size = 0;

    for (int i = 0; i < parts_count; i++)
        size += parts[i].iov_len;
    return size;
}

static inline uint8_t *fabric_parts_copy(uint8_t *to, const struct iovec *parts, int parts_count)
{
    for (int i = 0; i < parts_count; i++) {
        if (parts[i].iov_len > 0)
            memcpy(to, parts[i].iov_base, parts[i].iov_len);
        to += parts[i].iov_len;
    }
    return to;
}

static inline size_t fabric_round8(size_t size)
{
    return (size + 7) & ~(size_t)7;
}

#endif
