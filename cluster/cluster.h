/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cluster.h - which nodes are in, and the few tables that all of them must agree on. PURE.
 *
 * Two halves:
 *   agree (agree.h, in dsmrun's agent) decides views: a log of views with a `single` writer on one machine. A later
 *     consensus library takes its place behind the same calls.
 *   cluster (here, in every node) follows the views, watches its peers by heartbeats and reports suspicions, and
 *     keeps the replicated extent table, the names and the barrier. The lowest member ("the keeper") puts changes in
 *     order; when it dies the next lowest goes on from its own replica. How: rules C1 to C5 in cluster/state.h.
 *
 * Messages between nodes travel on PLANE_CONTROL with family byte MESSAGE_FAMILY_CLUSTER; encode and decode in
 * cluster/message.c. A peer's bytes are checked and refused, never asserted on.
 */
#ifndef TIERMESH_CLUSTER_CLUSTER_H
#define TIERMESH_CLUSTER_CLUSTER_H

#include "base/types.h"

/* First byte of every message between nodes; the second is the version. Coherence uses 1 (coherence/message.c). */
#define MESSAGE_FAMILY_CLUSTER 2

#define CLUSTER_NAME_MAX       63 /* longest name, bytes */

/* Attributes of an extent (2 MiB of the shared half of the window). Zeroes: not allocated. */
struct cluster_extent {
    uint16_t home;         /* index + 1 of the node that is home of its pages; 0: not allocated */
    uint16_t allocator;    /* index + 1 of the node whose allocator carved it up */
    uint16_t flags;        /* EXTENT_* */
    uint16_t run_position; /* 0: first extent of its allocation; else saturating distance to it */
};

#define EXTENT_ALLOCATED 1u

enum cluster_placement {
    CLUSTER_PLACE_NODE = 0,       /* all extents at `node` */
    CLUSTER_PLACE_INTERLEAVE = 1, /* extent i of the run at member i modulo members */
};

struct cluster_env {
    void *context;
    /* Queue bytes to a member; to this node itself too (arrives later). */
    void (*send)(void *context, struct node_id to, const void *bytes, size_t size_bytes);
    /* A request made here is finished; value depends on the request. */
    void (*done)(void *context, uint64_t token, int result, uint64_t value);
    /* Extents were given out and the table says so now. Called on every member. */
    void (*extents_taken)(void *context, uint64_t first_extent, uint64_t extents_count);
    /* Extents are freed: forget their pages. The table has them for the last time. Called on every member. */
    void (*extents_freed)(void *context, uint64_t first_extent, uint64_t extents_count);
    /* This node has not heard from `peer` for too long: tell the agent. */
    void (*suspect)(void *context, struct node_id peer);
};

/*
 * cluster_bytes() of the caller's memory, zeroed, 8-byte aligned; what is not used of it is never touched. No pointer
 * into itself: a copy of the bytes is a snapshot.
 */
struct cluster;

struct cluster_limits {
    uint16_t nodes_count;
    uint64_t extents_count; /* of the shared half */
    uint32_t requests_max;  /* requests of this node in flight */
    uint32_t names_max;
    uint64_t heartbeat_ns; /* a heartbeat is sent when nothing else was sent for this long */
    uint64_t suspect_ns;   /* silence after which a peer is suspected; at least three times heartbeat_ns */
};

size_t cluster_bytes(const struct cluster_limits *limits);
void cluster_init(struct cluster *cluster, const struct cluster_limits *limits, const struct cluster_env *env,
                  struct node_id self);
void cluster_set_env(struct cluster *cluster, const struct cluster_env *env);

/*
 * Events. The first view comes when all members can be reached; cluster_tick() is due at cluster_deadline_ns(). A view
 * without this node ends all its requests with -EHOSTDOWN.
 */
void cluster_receive(struct cluster *cluster, struct node_id from, const void *bytes, size_t size_bytes,
                     uint64_t now_ns);
void cluster_heard(struct cluster *cluster, struct node_id peer, uint64_t now_ns); /* any message, of any family */
void cluster_set_view(struct cluster *cluster, const struct view *view, uint64_t now_ns);
uint64_t cluster_deadline_ns(const struct cluster *cluster);
void cluster_tick(struct cluster *cluster, uint64_t now_ns);

/* The replica, read without messages. NULL: index outside. */
const struct cluster_extent *cluster_extent_at(const struct cluster *cluster, uint64_t extent);
const struct view *cluster_view(const struct cluster *cluster);

/*
 * Requests: each ends with env->done(token) once, perhaps before the call returns; asked before the first view they
 * wait for it. Or the call fails and there is no done(): -EAGAIN (requests_max are in flight), -EHOSTDOWN (this node
 * is out of the view).
 * extents_take: done(0, first extent): every member's table has them before done is called. done(-ENOMEM): no run of
 * that length; done(-EHOSTDOWN): `node` is not a member. Members that die meanwhile are not waited for.
 * extents_give: frees a run that extents_take returned; done(0) when every member has forgotten it. Only the allocator
 * node asks (it has made sure that nobody uses the pages); done(-EINVAL): not one run of this node.
 */
int cluster_extents_take(struct cluster *cluster, uint64_t extents_count, enum cluster_placement placement,
                         struct node_id node, uint64_t token, uint64_t now_ns) MUST_USE;
int cluster_extents_give(struct cluster *cluster, uint64_t first_extent, uint64_t extents_count, uint64_t token,
                         uint64_t now_ns) MUST_USE;

/*
 * Ends when every member of the view has arrived; -EHOSTDOWN for all waiting when the view changes meanwhile. One at a
 * time: fails with -EBUSY while another one waits.
 */
int cluster_barrier(struct cluster *cluster, uint64_t token, uint64_t now_ns) MUST_USE;

/*
 * Names (1 .. 63 bytes). set: value 0 removes; done(-ENOSPC): names_max exist. get: wait true ends when the name
 * exists; false: done(-ENOENT).
 * cluster_cancel ends a waiting get (or barrier) with -ECANCELED, unless it is done already. For a barrier that may
 * take a round trip: when all have arrived meanwhile, it is done(0).
 */
int cluster_name_set(struct cluster *cluster, const char *name, uint64_t value, uint64_t token,
                     uint64_t now_ns) MUST_USE;
int cluster_name_get(struct cluster *cluster, const char *name, bool wait, uint64_t token, uint64_t now_ns) MUST_USE;
void cluster_cancel(struct cluster *cluster, uint64_t token, uint64_t now_ns);

#endif
