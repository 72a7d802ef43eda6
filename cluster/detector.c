/* SPDX-License-Identifier: Apache-2.0 */
/*
 * detector.c - heartbeats to silent connections, and suspicion of silent peers. PURE.
 *
 * A suspicion is told once a view. A node that was itself stopped for long (a debugger, a loaded machine) cannot judge
 * others by the time that passed: it gives all of them a fresh start.
 */
#include "cluster/state.h"

static bool peer_is_watched(const struct cluster *cluster, unsigned i)
{
    return view_has(&cluster->view, node_of(i)) && i != cluster->self.index;
}

static void forgive_all(struct cluster *cluster)
{
    for (unsigned i = 0; i < cluster->limits.nodes_count; i++)
        cluster->peers[i].heard_ns = cluster->now_ns;
}

/* The first view: nobody could be heard before. */
void detector_enter_view(struct cluster *cluster)
{
    forgive_all(cluster);
    for (unsigned i = 0; i < cluster->limits.nodes_count; i++)
        cluster->peers[i].sent_ns = cluster->now_ns;
    cluster->looked_ns = cluster->now_ns;
}

void detector_suspect(struct cluster *cluster, struct node_id peer)
{
    uint64_t bit = (uint64_t)1 << peer.index;

    if ((cluster->suspected & bit) != 0 || node_is(peer, cluster->self))
        return;
    cluster->suspected |= bit;
    cluster->env.suspect(cluster->env.context, peer);
}

void detector_tick(struct cluster *cluster)
{
    struct cluster_message message = {.type = CLUSTER_HEARTBEAT};
    struct epoch epoch = cluster->view.epoch;

    if (cluster->now_ns - cluster->looked_ns > cluster->limits.suspect_ns / 2)
        forgive_all(cluster);
    cluster->looked_ns = cluster->now_ns;
    for (unsigned i = 0; i < cluster->limits.nodes_count && epoch.number == cluster->view.epoch.number; i++) {
        if (!peer_is_watched(cluster, i))
            continue;
        if (cluster->now_ns - cluster->peers[i].sent_ns >= cluster->limits.heartbeat_ns)
            cluster_send(cluster, node_of(i), &message);
        if (cluster->now_ns - cluster->peers[i].heard_ns >= cluster->limits.suspect_ns)
            detector_suspect(cluster, node_of(i));
    }
}

uint64_t detector_deadline_ns(const struct cluster *cluster)
{
    uint64_t deadline_ns = UINT64_MAX;

    for (unsigned i = 0; i < cluster->limits.nodes_count; i++) {
        const struct cluster_peer *peer = &cluster->peers[i];

        if (!peer_is_watched(cluster, i))
            continue;
        if (peer->sent_ns + cluster->limits.heartbeat_ns < deadline_ns)
            deadline_ns = peer->sent_ns + cluster->limits.heartbeat_ns;
        if ((cluster->suspected >> i & 1) == 0 && peer->heard_ns + cluster->limits.suspect_ns < deadline_ns)
            deadline_ns = peer->heard_ns + cluster->limits.suspect_ns;
    }
    return deadline_ns;
}
