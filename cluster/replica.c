/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replica.c - a member's side of a change: apply what the keeper ordered, and report after a view change. PURE.
 *
 * Always holds: committed <= last.index, and every change up to last.index - 1 is applied by all members (C1).
 */
#include "cluster/state.h"

int replica_check(struct cluster *cluster, const struct cluster_change *change)
{
    if (change->requester.index >= cluster->limits.nodes_count)
        return -EINVAL;
    return change->kind == CHANGE_NAME ? names_check(cluster, change) : extents_check(cluster, change);
}

static void report(struct cluster *cluster)
{
    struct cluster_message message = {.type = CLUSTER_REPORT, .change = cluster->last};

    cluster->is_keeper_ready = true;
    cluster_send(cluster, view_lowest(&cluster->view), &message);
    requests_submit(cluster);
}

/* C2: an early COLLECT is remembered until this node enters its view. */
void replica_collect(struct cluster *cluster, struct node_id from, struct epoch epoch)
{
    struct cluster_peer *peer = &cluster->peers[from.index];

    if (epoch.number < cluster->view.epoch.number || epoch.number <= peer->collect.number)
        return;
    peer->collect = epoch;
    if (epoch.number == cluster->view.epoch.number && cluster_is_member(cluster) &&
        node_is(view_lowest(&cluster->view), from))
        report(cluster);
}

void replica_enter_view(struct cluster *cluster)
{
    struct node_id keeper = view_lowest(&cluster->view);

    if (!cluster->is_keeper_ready && cluster->peers[keeper.index].collect.number == cluster->view.epoch.number)
        report(cluster);
}

static void apply(struct cluster *cluster, const struct cluster_change *change)
{
    cluster->last = *change;
    if (change->kind == CHANGE_NAME)
        names_apply(cluster, change);
    else
        extents_apply(cluster, change);
    if (node_is(change->requester, cluster->self))
        requests_ordered(cluster, change);
}

static bool change_is(const struct cluster_change *a, const struct cluster_change *b)
{
    return a->index == b->index && a->sequence == b->sequence && node_is(a->requester, b->requester) &&
           a->kind == b->kind;
}

void replica_update(struct cluster *cluster, struct node_id from, const struct cluster_change *change)
{
    struct cluster_message ack = {.type = CLUSTER_ACK, .index = change->index};

    if (change->index == cluster->last.index + 1) {
        if (replica_check(cluster, change) < 0) {
            detector_suspect(cluster, from);
            return;
        }
        apply(cluster, change);
    } else if (!change_is(change, &cluster->last)) {
        detector_suspect(cluster, from);
        return;
    }
    cluster_send(cluster, from, &ack);
}

void replica_commit(struct cluster *cluster, uint64_t index)
{
    if (index > cluster->last.index || index <= cluster->committed)
        return;
    cluster->committed = index;
    requests_settle(cluster);
}
