/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cluster.c - one node's half of the cluster: its memory, its events and which file handles each message. PURE.
 *
 * Runs on one shard. The struct is followed by requests, names and extents; memory beyond what is used stays untouched,
 * and there is no pointer into itself, so a struct copy of all the bytes is a snapshot.
 */
#include "cluster/state.h"

BUILD_ASSERT(sizeof(struct cluster) % 8 == 0);
BUILD_ASSERT(sizeof(struct cluster_request) % 8 == 0);
BUILD_ASSERT(sizeof(struct cluster_name) % 8 == 0);

static size_t names_offset(const struct cluster_limits *limits)
{
    return sizeof(struct cluster) + limits->requests_max * sizeof(struct cluster_request);
}

static size_t extents_offset(const struct cluster_limits *limits)
{
    return names_offset(limits) + limits->names_max * sizeof(struct cluster_name);
}

size_t cluster_bytes(const struct cluster_limits *limits)
{
    return extents_offset(limits) + limits->extents_count * sizeof(struct cluster_extent);
}

struct cluster_request *cluster_requests(struct cluster *cluster)
{
    return (struct cluster_request *)(void *)((char *)cluster + sizeof(*cluster));
}

struct cluster_name *cluster_names(struct cluster *cluster)
{
    return (struct cluster_name *)(void *)((char *)cluster + names_offset(&cluster->limits));
}

struct cluster_extent *cluster_extents(struct cluster *cluster)
{
    return (struct cluster_extent *)(void *)((char *)cluster + extents_offset(&cluster->limits));
}

void cluster_init(struct cluster *cluster, const struct cluster_limits *limits, const struct cluster_env *env,
                  struct node_id self)
{
    ASSERT(limits->nodes_count >= 1 && limits->nodes_count <= NODES_MAX);
    ASSERT(self.index < limits->nodes_count);
    ASSERT(limits->heartbeat_ns > 0);
    ASSERT(limits->suspect_ns / 3 >= limits->heartbeat_ns);
    *cluster = (struct cluster){.limits = *limits, .env = *env, .self = self};
}

void cluster_set_env(struct cluster *cluster, const struct cluster_env *env)
{
    cluster->env = *env;
}

bool cluster_is_member(const struct cluster *cluster)
{
    return view_has(&cluster->view, cluster->self);
}

bool cluster_is_keeper(const struct cluster *cluster)
{
    return node_is(view_lowest(&cluster->view), cluster->self);
}

void cluster_send(struct cluster *cluster, struct node_id to, struct cluster_message *message)
{
    uint8_t bytes[CLUSTER_MESSAGE_MAX];

    message->epoch = cluster->view.epoch;
    cluster->peers[to.index].sent_ns = cluster->now_ns;
    cluster->env.send(cluster->env.context, to, bytes, cluster_message_encode(message, bytes));
}

void cluster_send_all(struct cluster *cluster, struct cluster_message *message)
{
    for (unsigned i = 0; i < cluster->limits.nodes_count; i++) {
        if (view_has(&cluster->view, node_of(i)))
            cluster_send(cluster, node_of(i), message);
    }
}

/* From the view's keeper. */
static void receive_as_member(struct cluster *cluster, struct node_id from, const struct cluster_message *message)
{
    switch ((enum cluster_type)message->type) {
    case CLUSTER_UPDATE:
        replica_update(cluster, from, &message->change);
        break;
    case CLUSTER_COMMIT:
        replica_commit(cluster, message->index);
        break;
    case CLUSTER_REPLY:
        requests_reply(cluster, message->sequence, message->result);
        break;
    case CLUSTER_RELEASE:
        requests_barrier_end(cluster, message->sequence, 0);
        break;
    case CLUSTER_WITHDRAWN:
        requests_barrier_end(cluster, message->sequence, -ECANCELED);
        break;
    case CLUSTER_HEARTBEAT:
    case CLUSTER_COLLECT:
    case CLUSTER_REPORT:
    case CLUSTER_REQUEST:
    case CLUSTER_ACK:
    case CLUSTER_ARRIVE:
    case CLUSTER_WITHDRAW:
    case CLUSTER_TYPES:
        break;
    }
}

/* This node is the view's keeper. */
static void receive_as_keeper(struct cluster *cluster, struct node_id from, const struct cluster_message *message)
{
    switch ((enum cluster_type)message->type) {
    case CLUSTER_REPORT:
        keeper_report(cluster, from, &message->change);
        break;
    case CLUSTER_REQUEST:
        keeper_request(cluster, from, &message->change);
        break;
    case CLUSTER_ACK:
        keeper_ack(cluster, from, message->index);
        break;
    case CLUSTER_ARRIVE:
        barrier_arrive(cluster, from, message->sequence);
        break;
    case CLUSTER_WITHDRAW:
        barrier_withdraw(cluster, from, message->sequence);
        break;
    case CLUSTER_HEARTBEAT:
    case CLUSTER_COLLECT:
    case CLUSTER_REPLY:
    case CLUSTER_UPDATE:
    case CLUSTER_COMMIT:
    case CLUSTER_RELEASE:
    case CLUSTER_WITHDRAWN:
    case CLUSTER_TYPES:
        break;
    }
}

void cluster_receive(struct cluster *cluster, struct node_id from, const void *bytes, size_t size_bytes,
                     uint64_t now_ns)
{
    struct cluster_message message;

    cluster_heard(cluster, from, now_ns);
    if (from.index >= cluster->limits.nodes_count || cluster_message_decode(bytes, size_bytes, &message) < 0)
        return;
    if (message.type == CLUSTER_COLLECT) {
        replica_collect(cluster, from, message.epoch);
        return;
    }
    /* C2: of another view, or from somebody who is not in ours. */
    if (message.epoch.number != cluster->view.epoch.number || !view_has(&cluster->view, from) ||
        !cluster_is_member(cluster))
        return;
    if (node_is(view_lowest(&cluster->view), from))
        receive_as_member(cluster, from, &message);
    if (cluster_is_keeper(cluster))
        receive_as_keeper(cluster, from, &message);
}

void cluster_heard(struct cluster *cluster, struct node_id peer, uint64_t now_ns)
{
    if (cluster->now_ns < now_ns)
        cluster->now_ns = now_ns;
    if (peer.index < cluster->limits.nodes_count)
        cluster->peers[peer.index].heard_ns = cluster->now_ns;
}

void cluster_set_view(struct cluster *cluster, const struct view *view, uint64_t now_ns)
{
    bool is_first = cluster->view.epoch.number == 0;

    if (view->epoch.number <= cluster->view.epoch.number)
        return;
    if (cluster->now_ns < now_ns)
        cluster->now_ns = now_ns;
    cluster->view = *view;
    cluster->is_keeper_ready = false;
    if (is_first)
        detector_enter_view(cluster);
    cluster->suspected = 0;
    if (cluster_is_member(cluster) && cluster_is_keeper(cluster))
        keeper_enter_view(cluster);
    requests_enter_view(cluster);
    if (cluster_is_member(cluster))
        replica_enter_view(cluster);
}

uint64_t cluster_deadline_ns(const struct cluster *cluster)
{
    return cluster_is_member(cluster) ? detector_deadline_ns(cluster) : UINT64_MAX;
}

void cluster_tick(struct cluster *cluster, uint64_t now_ns)
{
    if (cluster->now_ns < now_ns)
        cluster->now_ns = now_ns;
    if (cluster_is_member(cluster))
        detector_tick(cluster);
}

const struct cluster_extent *cluster_extent_at(const struct cluster *cluster, uint64_t extent)
{
    const char *extents = (const char *)cluster + extents_offset(&cluster->limits);

    if (extent >= cluster->limits.extents_count)
        return NULL;
    return (const struct cluster_extent *)(const void *)extents + extent;
}

const struct view *cluster_view(const struct cluster *cluster)
{
    return &cluster->view;
}
