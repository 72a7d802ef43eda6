/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h - one node: everything that runtime/ joins.
 *
 * The shard's thread owns the loop and all that hangs on it (mmu, pager, coherence, cluster, fabrics); application
 * threads reach them by requests (request.h) and by the shared words of pages and locks. Written once at start, read
 * by all: config, self, window, pages.
 */
#ifndef TIERMESH_RUNTIME_NODE_H
#define TIERMESH_RUNTIME_NODE_H

#include "cluster/cluster.h"
#include "coherence/coherence.h"
#include "fabric/fabric.h"
#include "mmu/mmu.h"
#include "mmu/table.h"
#include "runtime/agent.h"
#include "runtime/config.h"
#include "runtime/loop.h"
#include "runtime/pager.h"

#include <pthread.h>

/* Tokens name who waits for a protocol's done(): a tagged pointer or index. */
#define TOKEN_TAG 7u
#define TOKEN_REQUEST 0u /* struct request */
#define TOKEN_FAULT 1u   /* index of a fault_wait */
#define TOKEN_NOBODY 2u
#define TOKEN_LOCK 3u    /* struct lock_entry */
#define TOKEN_COND 4u    /* struct request, woken by a condition */
#define TOKEN_BULK 5u    /* a run kept for a reader (bulk.c) */

#define FAULT_WAITS_MAX 1024 /* pages for which this node has asked the protocol and threads wait */
#define SELF_QUEUE_MAX 8192
#define LATE_MAX 32

struct fault_wait {
    struct page_id page;
    uint64_t start_ns;
    uint32_t thread;
    uint16_t next; /* index + 1 in its hash chain, or in the free list */
    bool is_used, is_write, is_upgrade;
    bool has_bytes; /* they came from another node */
};

struct bulk;
struct pulls;
struct limits;
struct bulk_stream;
struct lock_table;
struct memory;
struct pins;

struct node {
    struct dsm_config config;
    struct node_id self;
    unsigned nodes_count;
    struct mmu_features features;
    struct mmu_window window;
    struct table *pages; /* struct page_entry */
    struct table *homes; /* struct coherence_home, pages whose home is here */
    struct lock_table *locks;
    struct memory *memory;
    struct bulk *bulk;
    struct pulls *pulls; /* NULL: nothing is read one-sidedly */
    struct bulk_stream *stream; /* NULL without tcp */
    struct pins *pins; /* the shard's */
    struct peer_file {
        _Atomic(int) number; /* descriptor + 1 of a peer's shared pages, on this host; 0: none. Set last */
        const char *bytes;   /* its read-only mapping; NULL: addresses are short */
    } peer_files[NODES_MAX];

    /* The shard. */
    pthread_t thread;
    struct loop *loop;
    struct mmu *mmu;
    struct loop_watch faults_watch;
    struct pager *pager;
    struct record *record; /* NULL: no trace is written */
    struct tier *tiers[TIERS];
    struct limits *limits; /* NULL: the budgets stay as they were asked for */
    struct coherence *coherence;
    struct coherence_env coherence_env;
    struct cluster *cluster;
    struct cluster_env cluster_env;
    struct fabric *shm, *tcp, *pool;
    struct fabric *via[NODES_MAX];    /* the transport to each peer; NULL: not reachable */
    const char *via_why[NODES_MAX];   /* what decided for it */
    char rdma_refused[256];           /* why `tcp` is without RDMA; "": it has it, or was not asked to */
    uint64_t peers_up;             /* bit i */
    struct agent_link *link;       /* NULL: a job of one */
    char directory[AGENT_ADDRESS_MAX]; /* the job's private one on this host; "": there is none */
    struct loop_watch link_watch;
    struct message *self_queue; /* messages to oneself: a ring */
    unsigned self_first, self_count;
    struct late_message {
        struct node_id to;
        struct message message;
    } late[LATE_MAX]; /* confirms, sent when the shard is about to block or has something else to send */
    unsigned late_count;
    struct loop_poller late_poller;
    struct fault_wait waits[FAULT_WAITS_MAX];
    uint16_t waits_hash[FAULT_WAITS_MAX];
    uint16_t waits_free;
    _Atomic(bool) has_advice; /* ever: see advise.c */
    unsigned prefetches; /* remote prefetches in flight */
    uint64_t messages_sent, messages_received, bytes_sent, bytes_received;
    struct loop_call unpin_call;
    _Atomic(uint32_t) unpin_posted;
    bool is_leaving;  /* in dsm_finalize(): peers that go before us are not missed */
    bool is_stopping;

    /* Hand-over between dsm_init() and the shard at start. */
    _Atomic(uint32_t) started; /* 0, 1: running, 2: failed */
    int start_error;
    char start_text[512];
    uint64_t job;
    struct view view;          /* last one the agent sent; the shard's */
    _Atomic(uint32_t) is_out;  /* not a member any more */
};

/* The node of this process; NULL before dsm_init() and after dsm_finalize(). */
struct node *node_current(void);

int node_start(const struct dsm_config *config) MUST_USE;
int node_stop(void) MUST_USE;

/* shard.c */
int shard_start(struct node *node, struct agent_link *link) MUST_USE;
void shard_stop(struct node *node);

/* fault.c: the way of one fault */
void fault_ready(struct loop_watch *watch, uint32_t events);
void fault_done(struct node *node, uint64_t token, int result);
void fault_waits_init(struct node *node);
void fault_bytes_came(struct node *node, struct page_id page);

/* env.c: what the protocols ask of the world */
void env_init(struct node *node);
void env_self_queue_drain(struct node *node);
void env_late_flush(struct node *node);
struct pager_user env_pager_user(struct node *node);
void env_send_message(struct node *node, struct node_id to, const struct message *message, const void *bytes);

/* peers.c: transports, incoming messages, views */
int peers_open(struct node *node) MUST_USE;
int peers_meet(struct node *node) MUST_USE;
void peers_close(struct node *node);
int peers_send(struct node *node, struct node_id to, enum fabric_plane plane, const struct iovec *parts,
               int parts_count);
void peers_view(struct node *node, const struct view *view);

#endif
