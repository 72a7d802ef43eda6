/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requests.c - what this node asked for: each request ends with one call of env->done(). PURE.
 *
 * A slot is freed before done() is called, so a late or repeated message finds nothing to end a second time, and done()
 * may ask for more. One change of this node at a time is with the keeper, the oldest first.
 */
#include "cluster/state.h"

#include <string.h>

static void finish(struct cluster *cluster, struct cluster_request *request, int result, uint64_t value)
{
    uint64_t token = request->token;

    request->state = REQUEST_FREE;
    cluster->env.done(cluster->env.context, token, result, value);
}

/* 0 and a slot with token and sequence, -EAGAIN, or -EHOSTDOWN: this node is out. */
static int request_begin(struct cluster *cluster, enum request_kind kind, uint64_t token, uint64_t now_ns,
                         struct cluster_request **ret_request)
{
    struct cluster_request *requests = cluster_requests(cluster);

    if (cluster->now_ns < now_ns)
        cluster->now_ns = now_ns;
    if (cluster->view.epoch.number != 0 && !cluster_is_member(cluster))
        return -EHOSTDOWN;
    for (uint32_t i = 0; i < cluster->limits.requests_max; i++) {
        if (requests[i].state == REQUEST_FREE) {
            requests[i] = (struct cluster_request){.state = REQUEST_WAITING,
                                                   .kind = (uint8_t)kind,
                                                   .epoch = cluster->view.epoch,
                                                   .token = token,
                                                   .sequence = ++cluster->sequence_last};
            *ret_request = &requests[i];
            return 0;
        }
    }
    return -EAGAIN;
}

/* The oldest change that the keeper does not know of, or NULL: none, or one is with it. */
static struct cluster_request *next_change(struct cluster *cluster)
{
    struct cluster_request *requests = cluster_requests(cluster);
    struct cluster_request *oldest = NULL;

    for (uint32_t i = 0; i < cluster->limits.requests_max; i++) {
        if (requests[i].kind != REQUEST_CHANGE)
            continue;
        if (requests[i].state == REQUEST_SENT)
            return NULL;
        if (requests[i].state == REQUEST_WAITING && (oldest == NULL || requests[i].sequence < oldest->sequence))
            oldest = &requests[i];
    }
    return oldest;
}

static struct cluster_request *barrier_request(struct cluster *cluster)
{
    struct cluster_request *requests = cluster_requests(cluster);

    for (uint32_t i = 0; i < cluster->limits.requests_max; i++) {
        if (requests[i].state != REQUEST_FREE && requests[i].kind == REQUEST_BARRIER)
            return &requests[i];
    }
    return NULL;
}

static void request_send(struct cluster *cluster, struct cluster_request *request)
{
    struct cluster_message message = {.type = request->kind == REQUEST_BARRIER ? CLUSTER_ARRIVE : CLUSTER_REQUEST,
                                      .sequence = request->sequence,
                                      .change = request->change};

    request->state = REQUEST_SENT;
    message.change.sequence = request->sequence;
    message.change.requester = cluster->self;
    cluster_send(cluster, view_lowest(&cluster->view), &message);
}

/* C2: nothing goes to a keeper that may not be in this view yet. */
void requests_submit(struct cluster *cluster)
{
    struct cluster_request *change = next_change(cluster);
    struct cluster_request *barrier = barrier_request(cluster);

    if (!cluster->is_keeper_ready)
        return;
    if (change != NULL)
        request_send(cluster, change);
    if (barrier != NULL && barrier->state == REQUEST_WAITING)
        request_send(cluster, barrier);
}

void requests_enter_view(struct cluster *cluster)
{
    struct cluster_request *requests = cluster_requests(cluster);
    bool is_member = cluster_is_member(cluster);

    for (uint32_t i = 0; i < cluster->limits.requests_max; i++) {
        struct cluster_request *request = &requests[i];
        bool is_barrier = request->kind == REQUEST_BARRIER;

        if (request->state == REQUEST_FREE)
            continue;
        if (is_barrier && request->epoch.number == 0)
            request->epoch = cluster->view.epoch; /* it waited for the first view */
        if (!is_member)
            finish(cluster, request, -EHOSTDOWN, 0);
        else if (is_barrier && request->state == REQUEST_WITHDRAWING)
            finish(cluster, request, -ECANCELED, 0);
        else if (is_barrier && request->epoch.number != cluster->view.epoch.number)
            finish(cluster, request, -EHOSTDOWN, 0);
        else if (request->state == REQUEST_SENT)
            request->state = REQUEST_WAITING;
    }
}

/* C4: this node's own replica has applied it. */
void requests_ordered(struct cluster *cluster, const struct cluster_change *change)
{
    struct cluster_request *requests = cluster_requests(cluster);

    for (uint32_t i = 0; i < cluster->limits.requests_max; i++) {
        struct cluster_request *request = &requests[i];

        if (request->kind == REQUEST_CHANGE && request->sequence == change->sequence &&
            request->change.kind == change->kind &&
            (request->state == REQUEST_SENT || request->state == REQUEST_WAITING)) {
            request->state = REQUEST_ORDERED;
            request->value = change->kind == CHANGE_TAKE ? change->first_extent : 0;
            request->change.index = change->index;
        }
    }
    requests_submit(cluster);
}

/* C5: a name may be told only when the replica's last change is everywhere. */
static bool get_is_ready(struct cluster *cluster, const struct cluster_request *request, uint64_t *ret_value)
{
    if (cluster->committed != cluster->last.index)
        return false;
    *ret_value = names_find(cluster, request->change.name);
    return *ret_value != 0 || !request->waits;
}

void requests_settle(struct cluster *cluster)
{
    struct cluster_request *requests = cluster_requests(cluster);

    for (uint32_t i = 0; i < cluster->limits.requests_max; i++) {
        struct cluster_request *request = &requests[i];
        uint64_t value;

        if (request->state == REQUEST_ORDERED && request->change.index <= cluster->committed)
            finish(cluster, request, 0, request->value);
        else if (request->state == REQUEST_WAITING && request->kind == REQUEST_GET &&
                 get_is_ready(cluster, request, &value))
            finish(cluster, request, value == 0 ? -ENOENT : 0, value);
    }
}

void requests_reply(struct cluster *cluster, uint64_t sequence, int result)
{
    struct cluster_request *requests = cluster_requests(cluster);

    for (uint32_t i = 0; i < cluster->limits.requests_max; i++) {
        if (requests[i].state == REQUEST_SENT && requests[i].kind == REQUEST_CHANGE &&
            requests[i].sequence == sequence) {
            finish(cluster, &requests[i], result, 0);
            requests_submit(cluster);
            return;
        }
    }
}

void requests_barrier_end(struct cluster *cluster, uint64_t sequence, int result)
{
    struct cluster_request *request = barrier_request(cluster);

    if (request == NULL || request->sequence != sequence || request->state == REQUEST_WAITING ||
        (result < 0 && request->state != REQUEST_WITHDRAWING))
        return;
    finish(cluster, request, result, 0);
}

/* ---- the interface ---------------------------------------------------------------------------------------------- */

static int begin_change(struct cluster *cluster, const struct cluster_change *change, uint64_t token, uint64_t now_ns)
{
    struct cluster_request *request;
    int result = request_begin(cluster, REQUEST_CHANGE, token, now_ns, &request);

    if (result < 0)
        return result;
    request->change = *change;
    requests_submit(cluster);
    return 0;
}

int cluster_extents_take(struct cluster *cluster, uint64_t extents_count, enum cluster_placement placement,
                         struct node_id node, uint64_t token, uint64_t now_ns)
{
    struct cluster_change change = {
        .kind = CHANGE_TAKE, .placement = (uint8_t)placement, .node = node, .extents_count = extents_count};

    ASSERT(extents_count > 0);
    ASSERT(placement == CLUSTER_PLACE_INTERLEAVE || node.index < cluster->limits.nodes_count);
    return begin_change(cluster, &change, token, now_ns);
}

int cluster_extents_give(struct cluster *cluster, uint64_t first_extent, uint64_t extents_count, uint64_t token,
                         uint64_t now_ns)
{
    struct cluster_change change = {.kind = CHANGE_GIVE, .first_extent = first_extent, .extents_count = extents_count};

    ASSERT(extents_count > 0);
    ASSERT(first_extent <= UINT64_MAX - extents_count);
    return begin_change(cluster, &change, token, now_ns);
}

int cluster_barrier(struct cluster *cluster, uint64_t token, uint64_t now_ns)
{
    struct cluster_request *request;
    int result;

    if (barrier_request(cluster) != NULL)
        return -EBUSY;
    result = request_begin(cluster, REQUEST_BARRIER, token, now_ns, &request);
    if (result < 0)
        return result;
    requests_submit(cluster);
    return 0;
}

static void name_copy(char to[CLUSTER_NAME_MAX + 1], const char *name)
{
    size_t name_bytes = cluster_name_bytes(name, CLUSTER_NAME_MAX + 1);

    ASSERT(name_bytes >= 1 && name_bytes <= CLUSTER_NAME_MAX);
    memcpy(to, name, name_bytes);
}

int cluster_name_set(struct cluster *cluster, const char *name, uint64_t value, uint64_t token, uint64_t now_ns)
{
    struct cluster_change change = {.kind = CHANGE_NAME, .value = value};

    name_copy(change.name, name);
    return begin_change(cluster, &change, token, now_ns);
}

int cluster_name_get(struct cluster *cluster, const char *name, bool wait, uint64_t token, uint64_t now_ns)
{
    struct cluster_request *request;
    uint64_t value;
    int result = request_begin(cluster, REQUEST_GET, token, now_ns, &request);

    if (result < 0)
        return result;
    request->waits = wait;
    name_copy(request->change.name, name);
    if (get_is_ready(cluster, request, &value))
        finish(cluster, request, value == 0 ? -ENOENT : 0, value);
    return 0;
}

static void barrier_cancel(struct cluster *cluster, struct cluster_request *request)
{
    struct cluster_message message = {.type = CLUSTER_WITHDRAW, .sequence = request->sequence};

    if (request->state == REQUEST_WAITING) {
        finish(cluster, request, -ECANCELED, 0);
    } else if (request->state == REQUEST_SENT) {
        request->state = REQUEST_WITHDRAWING;
        cluster_send(cluster, view_lowest(&cluster->view), &message);
    }
}

void cluster_cancel(struct cluster *cluster, uint64_t token, uint64_t now_ns)
{
    struct cluster_request *requests = cluster_requests(cluster);

    if (cluster->now_ns < now_ns)
        cluster->now_ns = now_ns;
    for (uint32_t i = 0; i < cluster->limits.requests_max; i++) {
        struct cluster_request *request = &requests[i];

        if (request->state == REQUEST_FREE || request->token != token)
            continue;
        if (request->kind == REQUEST_BARRIER)
            barrier_cancel(cluster, request);
        else if (request->kind == REQUEST_GET)
            finish(cluster, request, -ECANCELED, 0);
        return;
    }
}
