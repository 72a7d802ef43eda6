/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - the state of one node's cluster and what its files do for each other. Private to cluster/. PURE.
 *
 * How a change of the tables (extents, names) is made, always in this order:
 *   C1  Only the keeper (lowest member) orders changes, one at a time: index n+1 is sent out when every member of the
 *       view has applied n. So two replicas never differ by more than their last change.
 *   C2  Messages are tagged with the epoch; a message of another epoch than the receiver's is dropped. Nobody is lost
 *       by that: a keeper that enters a view says so to all (COLLECT), members answer when they have entered it too
 *       (REPORT) and ask again for what was not ordered. A COLLECT that comes early is remembered.
 *   C3  A new view's keeper first brings all members to the most advanced report, then orders anew.
 *   C4  A request's done() is called when its change is applied everywhere (COMMIT), or when the keeper answered that
 * it fails (REPLY). A request that was ordered is never sent again; the keeper knows the one that may be in doubt, its
 * last change, and drops the repetition. C5  A name is read from the own replica, but never while the replica's last
 * change may be missing elsewhere.
 */
#ifndef TIERMESH_CLUSTER_STATE_H
#define TIERMESH_CLUSTER_STATE_H

#include "base/assert.h"
#include "cluster/message.h"

#include <errno.h>

enum request_kind {
    REQUEST_CHANGE,
    REQUEST_GET,
    REQUEST_BARRIER,
};

enum request_state {
    REQUEST_FREE = 0,
    REQUEST_WAITING,     /* the keeper does not know of it in this view */
    REQUEST_SENT,        /* it does */
    REQUEST_ORDERED,     /* applied here as change `change.index`; not known to be applied everywhere */
    REQUEST_WITHDRAWING, /* a barrier that is cancelled */
};

struct cluster_request {
    uint8_t state;
    uint8_t kind;
    bool waits;         /* GET: until the name exists */
    struct epoch epoch; /* BARRIER: it began in this view */
    uint64_t token;
    uint64_t sequence;
    uint64_t value;               /* for done(), once ordered */
    struct cluster_change change; /* CHANGE: what is asked; GET: the name */
};

struct cluster_name {
    uint64_t value; /* 0: the slot is free */
    char name[CLUSTER_NAME_MAX + 1];
};

struct cluster_peer {
    uint64_t heard_ns, sent_ns;
    struct epoch collect; /* of the last COLLECT from there */
};

/* Used by the lowest member only; emptied with each view. */
struct cluster_keeper {
    uint64_t reported, acked, pending, arrived; /* bits of members */
    bool is_collected;
    bool is_busy;                   /* `current` is not acknowledged by all */
    bool is_report_missing_current; /* while collecting: some replica has not applied `current` */
    unsigned turn;                  /* whose request is looked at first */
    struct cluster_change current;
    struct cluster_change requests[NODES_MAX]; /* of those in `pending` */
    uint64_t arrivals[NODES_MAX];              /* barrier sequences of those in `arrived` */
};

struct cluster {
    struct cluster_limits limits;
    struct cluster_env env;
    struct node_id self;
    struct view view;
    bool is_keeper_ready; /* the view's keeper has said COLLECT */
    uint64_t now_ns;
    uint64_t looked_ns; /* last tick */
    uint64_t suspected; /* bits: told to the agent in this view */
    uint64_t sequence_last;
    uint64_t committed;
    struct cluster_change last; /* the last change applied here */
    uint64_t lowest_free;       /* no extent below is free */
    uint64_t high_water;        /* no extent from here on is allocated */
    uint32_t names_used;        /* no name lies from here on */
    struct cluster_keeper keeper;
    struct cluster_peer peers[NODES_MAX];
    /* Followed by requests, names and extents, see cluster.c. */
};

/* cluster.c */
struct cluster_request *cluster_requests(struct cluster *cluster);
struct cluster_name *cluster_names(struct cluster *cluster);
struct cluster_extent *cluster_extents(struct cluster *cluster);
bool cluster_is_member(const struct cluster *cluster);
bool cluster_is_keeper(const struct cluster *cluster);
void cluster_send(struct cluster *cluster, struct node_id to, struct cluster_message *message);
void cluster_send_all(struct cluster *cluster, struct cluster_message *message); /* this node included */

/* extents.c: 0 or a negative errno; apply only what was checked */
int extents_find(struct cluster *cluster, uint64_t extents_count, uint64_t *ret_first_extent) MUST_USE;
int extents_check(struct cluster *cluster, const struct cluster_change *change) MUST_USE;
void extents_apply(struct cluster *cluster, const struct cluster_change *change);

/* names.c */
int names_check(struct cluster *cluster, const struct cluster_change *change) MUST_USE;
void names_apply(struct cluster *cluster, const struct cluster_change *change);
uint64_t names_find(struct cluster *cluster, const char name[CLUSTER_NAME_MAX + 1]); /* 0: no such name */

/* replica.c: the member's side of a change */
int replica_check(struct cluster *cluster, const struct cluster_change *change) MUST_USE;
void replica_collect(struct cluster *cluster, struct node_id from, struct epoch epoch);
void replica_enter_view(struct cluster *cluster);
void replica_update(struct cluster *cluster, struct node_id from, const struct cluster_change *change);
void replica_commit(struct cluster *cluster, uint64_t index);

/* requests.c: what this node asked for */
void requests_enter_view(struct cluster *cluster);
void requests_submit(struct cluster *cluster);
void requests_ordered(struct cluster *cluster, const struct cluster_change *change);
void requests_settle(struct cluster *cluster);
void requests_reply(struct cluster *cluster, uint64_t sequence, int result);
void requests_barrier_end(struct cluster *cluster, uint64_t sequence, int result);

/* keeper.c: the lowest member's side */
void keeper_enter_view(struct cluster *cluster);
void keeper_report(struct cluster *cluster, struct node_id from, const struct cluster_change *change);
void keeper_request(struct cluster *cluster, struct node_id from, const struct cluster_change *change);
void keeper_ack(struct cluster *cluster, struct node_id from, uint64_t index);

/* barrier.c: the lowest member's side */
void barrier_arrive(struct cluster *cluster, struct node_id from, uint64_t sequence);
void barrier_withdraw(struct cluster *cluster, struct node_id from, uint64_t sequence);

/* detector.c */
void detector_enter_view(struct cluster *cluster);
void detector_tick(struct cluster *cluster);
uint64_t detector_deadline_ns(const struct cluster *cluster);
void detector_suspect(struct cluster *cluster, struct node_id peer);

#endif
