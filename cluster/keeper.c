/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper.c - the lowest member's side of a change: collect, order, commit. PURE.
 *
 * Each member has at most one request here, so a keeper's memory is bounded. Rules C1 to C4 are in state.h.
 */
#include "cluster/state.h"

static uint64_t bit_of(struct node_id node)
{
    return (uint64_t)1 << node.index;
}

static void order_next(struct cluster *cluster);

static void keeper_send_update(struct cluster *cluster)
{
    struct cluster_message message = {.type = CLUSTER_UPDATE, .change = cluster->keeper.current};

    cluster->keeper.is_busy = true;
    cluster->keeper.acked = 0;
    cluster_send_all(cluster, &message);
}

/*
 * C4: `current` came from the reports and its requester asked again, not knowing that it was ordered. That request is
 * here by now: it was sent before the requester's acknowledgement.
 */
static void drop_repetition(struct cluster_keeper *keeper)
{
    unsigned i = keeper->current.requester.index;

    if ((keeper->pending >> i & 1) != 0 && keeper->requests[i].sequence == keeper->current.sequence)
        keeper->pending &= ~((uint64_t)1 << i);
}

static void keeper_commit(struct cluster *cluster)
{
    struct cluster_message message = {.type = CLUSTER_COMMIT, .index = cluster->keeper.current.index};

    cluster->keeper.is_busy = false;
    drop_repetition(&cluster->keeper);
    cluster_send_all(cluster, &message);
    order_next(cluster);
}

void keeper_enter_view(struct cluster *cluster)
{
    struct cluster_keeper *keeper = &cluster->keeper;
    struct cluster_message message = {.type = CLUSTER_COLLECT};

    keeper->reported = keeper->acked = keeper->pending = keeper->arrived = 0;
    keeper->is_collected = keeper->is_busy = keeper->is_report_missing_current = false;
    keeper->current = cluster->last;
    cluster_send_all(cluster, &message);
}

/* What a report says about `current`; -EINVAL: no correct replica can be in that state. */
static int report_join(struct cluster *cluster, const struct cluster_change *change)
{
    struct cluster_keeper *keeper = &cluster->keeper;

    if (change->index == keeper->current.index) {
        bool is_same = change->sequence == keeper->current.sequence &&
                       node_is(change->requester, keeper->current.requester) && change->kind == keeper->current.kind;

        return is_same ? 0 : -EINVAL;
    }
    if (change->index < keeper->current.index && keeper->current.index - change->index == 1) {
        keeper->is_report_missing_current = true;
        return 0;
    }
    /* C1: this node lags by one change, and so does everyone who reported before. */
    if (change->index != cluster->last.index + 1 || replica_check(cluster, change) < 0 ||
        keeper->is_report_missing_current)
        return -EINVAL;
    keeper->current = *change;
    keeper->is_report_missing_current = true;
    return 0;
}

void keeper_report(struct cluster *cluster, struct node_id from, const struct cluster_change *change)
{
    struct cluster_keeper *keeper = &cluster->keeper;

    if (keeper->is_collected || (keeper->reported & bit_of(from)) != 0)
        return;
    if (report_join(cluster, change) < 0) {
        detector_suspect(cluster, from);
        return;
    }
    keeper->reported |= bit_of(from);
    if ((keeper->reported & cluster->view.members) != cluster->view.members)
        return;
    keeper->is_collected = true;
    /* C3: the last change may have reached only some. */
    if (keeper->is_report_missing_current)
        keeper_send_update(cluster);
    else
        keeper_commit(cluster);
}

/* Completes a request into a change that can be applied. 0, or why it fails. */
static int change_prepare(struct cluster *cluster, struct cluster_change *change)
{
    if (change->kind == CHANGE_TAKE) {
        int result = extents_find(cluster, change->extents_count, &change->first_extent);

        if (result < 0)
            return result;
        if (change->placement == CLUSTER_PLACE_NODE && !view_has(&cluster->view, change->node))
            return -EHOSTDOWN;
        change->members = cluster->view.members;
    }
    return replica_check(cluster, change);
}

static void order(struct cluster *cluster, struct cluster_change *change)
{
    int result = change_prepare(cluster, change);

    if (result < 0) {
        struct cluster_message reply = {.type = CLUSTER_REPLY, .sequence = change->sequence, .result = result};

        cluster_send(cluster, change->requester, &reply);
        return;
    }
    change->index = cluster->last.index + 1;
    cluster->keeper.current = *change;
    keeper_send_update(cluster);
}

/* By turns, so that no member waits for more than one request of each other. */
static void order_next(struct cluster *cluster)
{
    struct cluster_keeper *keeper = &cluster->keeper;

    while (keeper->is_collected && !keeper->is_busy && keeper->pending != 0) {
        uint64_t later = keeper->pending & ~(((uint64_t)1 << keeper->turn) - 1);
        unsigned chosen = (unsigned)__builtin_ctzll(later != 0 ? later : keeper->pending);
        struct cluster_change change = keeper->requests[chosen];

        keeper->pending &= ~((uint64_t)1 << chosen);
        keeper->turn = (chosen + 1) % NODES_MAX;
        order(cluster, &change);
    }
}

void keeper_request(struct cluster *cluster, struct node_id from, const struct cluster_change *change)
{
    struct cluster_keeper *keeper = &cluster->keeper;

    keeper->requests[from.index] = *change;
    keeper->requests[from.index].requester = from;
    keeper->pending |= bit_of(from);
    order_next(cluster);
}

void keeper_ack(struct cluster *cluster, struct node_id from, uint64_t index)
{
    struct cluster_keeper *keeper = &cluster->keeper;

    if (!keeper->is_busy || index != keeper->current.index)
        return;
    keeper->acked |= bit_of(from);
    if ((keeper->acked & cluster->view.members) == cluster->view.members)
        keeper_commit(cluster);
}
