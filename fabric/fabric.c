/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fabric.c - the dispatcher: every call of the user and every callback of a transport passes here.
 *
 * Runs on the shard's thread. What it asserts are promises of this process to itself; what peers say never
 * reaches an assertion.
 */
#include "fabric/fabric.h"

#include "base/assert.h"
#include "base/error.h"
#include "fabric/transport.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int fabric_config_check(const struct fabric_config *config)
{
    ASSERT(config->loop != NULL);
    ASSERT(config->user.message != NULL && config->user.peer_up != NULL && config->user.peer_down != NULL);
    if (config->nodes_count == 0 || config->nodes_count > NODES_MAX || config->self.index >= config->nodes_count)
        return error_set(-EINVAL, "fabric: node %u of %u nodes is out of range (at most %d nodes)", config->self.index,
                         config->nodes_count, NODES_MAX);
    if (config->window_bytes_max < FABRIC_MESSAGE_MAX)
        return error_set(-EINVAL, "fabric: a window of %zu bytes cannot hold a message of %d bytes",
                         config->window_bytes_max, FABRIC_MESSAGE_MAX);
    if (config->session_timeout_ns == 0 || config->incarnation == 0)
        return error_set(-EINVAL, "fabric: the session timeout and the incarnation must not be 0");
    return 0;
}

void fabric_init(struct fabric *fabric, const struct fabric_ops *ops, const struct fabric_config *config)
{
    *fabric = (struct fabric){
        .ops = ops,
        .user = config->user,
        .self = config->self,
        .nodes_count = config->nodes_count,
    };
}

/* The user's calls. */

size_t fabric_address(struct fabric *fabric, uint8_t blob[FABRIC_ADDRESS_MAX])
{
    size_t size = fabric->ops->address(fabric, blob);

    ASSERT(size <= FABRIC_ADDRESS_MAX);
    return size;
}

int fabric_connect(struct fabric *fabric, struct node_id peer, const uint8_t *blob, size_t size_bytes)
{
    int result;

    ASSERT(peer.index < fabric->nodes_count && peer.index < fabric->self.index);
    fabric_disconnect(fabric, peer);
    result = fabric->ops->connect(fabric, peer, blob, size_bytes);
    if (result == 0)
        fabric->peers_open |= fabric_bit(peer);
    return result;
}

int fabric_send(struct fabric *fabric, struct node_id peer, enum fabric_plane plane, const struct iovec *parts,
                int parts_count)
{
    size_t size;
    int result;

    ASSERT(peer.index < fabric->nodes_count && (unsigned)plane < PLANES);
    ASSERT(parts_count > 0 && parts_count <= FABRIC_PARTS_MAX && !fabric->is_sending);
    size = fabric_parts_size(parts, parts_count);
    ASSERT(size >= 1 && size <= FABRIC_MESSAGE_MAX);
    fabric->is_sending = true;
    result = fabric->ops->send(fabric, peer, plane, parts, parts_count);
    fabric->is_sending = false;
    if (result == 0) {
        fabric->counters.messages_sent++;
        fabric->counters.bytes_sent += size;
    }
    return result;
}

void fabric_disconnect(struct fabric *fabric, struct node_id peer)
{
    ASSERT(peer.index < fabric->nodes_count && !fabric->is_sending);
    if (!fabric_is_open(fabric, peer))
        return;
    fabric->peers_open &= ~fabric_bit(peer);
    fabric->peers_up &= ~fabric_bit(peer);
    fabric->ops->disconnect(fabric, peer);
}

int fabric_peer_file(struct fabric *fabric, struct node_id peer)
{
    ASSERT(peer.index < fabric->nodes_count);
    return fabric->ops->peer_file(fabric, peer);
}

unsigned fabric_capabilities(const struct fabric *fabric)
{
    return fabric->ops->capabilities;
}

const char *fabric_path(const struct fabric *fabric, struct node_id peer, enum fabric_plane plane)
{
    ASSERT(peer.index < fabric->nodes_count && (unsigned)plane < PLANES);
    while (fabric->below != NULL)
        fabric = fabric->below;
    return fabric->paths[peer.index][plane];
}

const char *fabric_name(const struct fabric *fabric)
{
    return fabric->ops->name;
}

void *fabric_lent(struct fabric *fabric)
{
    return fabric->pages == NULL ? NULL : fabric->pages->lent(fabric);
}

void *fabric_landing(struct fabric *fabric)
{
    return fabric->pages == NULL ? NULL : fabric->pages->landing(fabric);
}

uint64_t fabric_peer_lends(struct fabric *fabric, struct node_id peer)
{
    ASSERT(peer.index < fabric->nodes_count);
    return fabric->pages == NULL ? 0 : fabric->pages->peer_lends(fabric, peer);
}

int fabric_operate(struct fabric *fabric, struct fabric_operation *operation)
{
    int result;

    ASSERT(operation->peer.index < fabric->nodes_count && operation->done != NULL && !fabric->is_sending);
    if (fabric->pages == NULL)
        return -EOPNOTSUPP;
    fabric->is_sending = true;
    result = fabric->pages->operate(fabric, operation);
    fabric->is_sending = false;
    return result;
}

void fabric_close(struct fabric *fabric)
{
    if (fabric == NULL)
        return;
    ASSERT(fabric->callbacks_running == 0 && !fabric->is_sending);
    fabric->ops->close(fabric);
}

int fabric_cut(struct fabric *fabric, struct node_id peer)
{
    ASSERT(peer.index < fabric->nodes_count);
    if (fabric->ops->cut == NULL)
        return -EOPNOTSUPP;
    fabric->ops->cut(fabric, peer);
    return 0;
}

void fabric_counters_get(const struct fabric *fabric, struct fabric_counters *ret_counters)
{
    if (fabric->ops->counters != NULL)
        fabric->ops->counters(fabric, ret_counters);
    else
        *ret_counters = fabric->counters;
}

/* The transports' callbacks. */

void fabric_path_set(struct fabric *fabric, struct node_id peer, enum fabric_plane plane, const char *format, ...)
{
    char *path = fabric->paths[peer.index][plane];
    char text[FABRIC_PATH_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (strcmp(text, path) == 0)
        return;
    memcpy(path, text, sizeof(text));
    if (fabric->user.path_changed != NULL)
        fabric->user.path_changed(fabric->user.context, peer);
}

void fabric_deliver(struct fabric *fabric, struct node_id from, enum fabric_plane plane, const void *bytes,
                    size_t size_bytes)
{
    ASSERT(!fabric->is_sending && (node_is(from, fabric->self) || fabric_is_up(fabric, from)));
    ASSERT(size_bytes >= 1 && size_bytes <= FABRIC_MESSAGE_MAX && ((uintptr_t)bytes & 7) == 0);
    fabric->counters.messages_received++;
    fabric->counters.bytes_received += size_bytes;
    fabric->callbacks_running++;
    fabric->user.message(fabric->user.context, from, plane, bytes, size_bytes);
    fabric->callbacks_running--;
}

void fabric_report_done(struct fabric *fabric, struct fabric_operation *operation, int result, const void *bytes)
{
    ASSERT(!fabric->is_sending && ((uintptr_t)bytes & 7) == 0 && (result == 0) == (bytes != NULL));
    fabric->callbacks_running++;
    operation->done(operation, result, bytes);
    fabric->callbacks_running--;
}

void fabric_report_up(struct fabric *fabric, struct node_id peer)
{
    bool has_path = false; /* of its own; a plane whose connection follows says nothing yet */

    ASSERT(!fabric->is_sending && !fabric_is_up(fabric, peer) && !node_is(peer, fabric->self));
    for (unsigned plane = 0; plane < PLANES; plane++)
        has_path |= fabric->paths[peer.index][plane][0] != '\0';
    for (unsigned plane = 0; plane < PLANES && !has_path; plane++)
        fabric_path_set(fabric, peer, (enum fabric_plane)plane, "%s", fabric->ops->name);
    fabric->peers_open |= fabric_bit(peer);
    fabric->peers_up |= fabric_bit(peer);
    fabric->callbacks_running++;
    fabric->user.peer_up(fabric->user.context, peer);
    fabric->callbacks_running--;
}

void fabric_report_down(struct fabric *fabric, struct node_id peer, const char *cause)
{
    ASSERT(!fabric->is_sending);
    if (!fabric_is_open(fabric, peer))
        return;
    fabric->peers_open &= ~fabric_bit(peer);
    fabric->peers_up &= ~fabric_bit(peer);
    fabric->callbacks_running++;
    fabric->user.peer_down(fabric->user.context, peer, cause);
    fabric->callbacks_running--;
}
