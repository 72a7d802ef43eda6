/* SPDX-License-Identifier: Apache-2.0 */
/*
 * barrier.c - the lowest member's side of the barrier: who has arrived in this view. PURE.
 *
 * Not replicated: a view change ends every waiting barrier at its own node (requests.c).
 */
#include "cluster/state.h"

void barrier_arrive(struct cluster *cluster, struct node_id from, uint64_t sequence)
{
    struct cluster_keeper *keeper = &cluster->keeper;

    keeper->arrived |= (uint64_t)1 << from.index;
    keeper->arrivals[from.index] = sequence;
    if ((keeper->arrived & cluster->view.members) != cluster->view.members)
        return;
    keeper->arrived = 0;
    for (unsigned i = 0; i < cluster->limits.nodes_count; i++) {
        struct cluster_message message = {.type = CLUSTER_RELEASE, .sequence = keeper->arrivals[i]};

        if (view_has(&cluster->view, node_of(i)))
            cluster_send(cluster, node_of(i), &message);
    }
}

/* Too late when the release is on its way already: then that is the answer. */
void barrier_withdraw(struct cluster *cluster, struct node_id from, uint64_t sequence)
{
    struct cluster_keeper *keeper = &cluster->keeper;
    struct cluster_message message = {.type = CLUSTER_WITHDRAWN, .sequence = sequence};

    if ((keeper->arrived >> from.index & 1) == 0 || keeper->arrivals[from.index] != sequence)
        return;
    keeper->arrived &= ~((uint64_t)1 << from.index);
    cluster_send(cluster, from, &message);
}
