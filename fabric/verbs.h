/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.h - what the files of the verbs carrier share.
 *
 * verbs.c: open, poll, close. verbs_device.c: the device, its memory and queues. verbs_qp.c: one queue pair.
 * verbs_meet.c: connections by rdma_cm. All runs on the loop's thread.
 *
 * Who may call back: verbs_poll() and the events of rdma_cm, by way of tcp. Whatever else takes completions from a
 * queue (flush, end, close) only puts the receives aside, into `arrivals`.
 */
#ifndef TIERMESH_FABRIC_VERBS_H
#define TIERMESH_FABRIC_VERBS_H

#include "fabric/tcp.h"
#include "fabric/verbs_choose.h"
#include "fabric/verbs_greet.h"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define VERBS_QPS_MAX         (2 * NODES_MAX * PLANES)
#define VERBS_BLOCKS_MAX      (NODES_MAX + 4)
#define VERBS_BUCKETS         256
#define VERBS_INLINE_MAX      256
#define VERBS_REASON_MAX      160
#define VERBS_SPARE           4           /* receives beyond the credits: empty sends that return credits */
#define VERBS_COUNT_MASK      0x7fffffffU /* of chunks, in immediate data */
#define VERBS_RETRIES         6           /* of a lost packet. soft-RoCE takes 7 for no end */
#define VERBS_READS_MAX       32          /* one-sided operations under way, of a fabric */
#define VERBS_NOTE            0x80000000U /* in immediate data: the bytes are a word to the carrier */
#define VERBS_GENERATION_MASK 0x7fffU
#define VERBS_BROKEN_WAIT     ((uint64_t)10000000000U) /* after a failed attempt: sockets for so long */

enum verbs_state {
    VERBS_FREE = 0,
    VERBS_MEETING = 1,
    VERBS_UP = 2,
    VERBS_LINGERING = 3, /* its link is gone; what was sent still gets there */
};

/* What the peer of a connection lends, as it says. */
struct verbs_lent {
    uint64_t address;
    uint64_t size_bytes; /* 0: nothing */
    uint32_t key;
    bool has_atomics;
};

struct verbs_qp {
    struct verbs *verbs;
    struct tcp_link *link; /* NULL: free or lingering */
    enum verbs_state state;
    enum fabric_plane plane;
    uint16_t index;
    uint16_t generation; /* grows when it ends: what comes late is nobody's */
    struct rdma_cm_id *id;
    struct ibv_qp *qp;
    struct verbs_qp *next; /* of the same bucket */
    unsigned block;        /* of the plane's send slots */
    uint32_t inline_bytes_max;
    uint64_t received; /* accepting side: what the HELLO said, until it is up */

    /* Places in the send queue, counted for ever: completed <= signalled <= posted <= completed + depth. */
    uint32_t posted, signalled, completed;
    uint32_t ticked; /* `posted` at the last tick: nothing since means idle */
    uint32_t mtu_bytes;

    /* Chunks, counted for ever: credited <= sent <= credited + credits. */
    uint32_t chunks_sent, chunks_credited;
    uint32_t chunks_taken, chunks_told;
    size_t frame_left_bytes; /* of a frame whose first chunks were sent */
    bool is_blocked;         /* wants to send and has no place or no credit */
    int trouble;             /* what ended it, told from the poll. EBADMSG: a breach by the peer */
    const char *trouble_text;
    uint64_t until_ns; /* meeting or lingering: not longer */

    /* Of the data plane: see verbs_pages.c. */
    struct ibv_mw *window;
    struct ibv_mr *lent_mr;
    struct verbs_lent peer_lends;
    unsigned operations_count;
};

struct verbs_arrival {
    uint16_t qp;
    uint16_t generation;
    uint32_t slot;
    uint32_t size_bytes;
    bool is_note; /* to the carrier, not of the session */
};

/* A one-sided operation, from its post until its user was told. */
struct verbs_slot {
    struct fabric_operation *operation; /* NULL: free */
    uint16_t qp;
    uint16_t generation;
    uint32_t number; /* its place in the send queue */
    int result;      /* -EINPROGRESS until it is over */
};

/* What all queue pairs of a plane share. */
struct verbs_plane {
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    bool is_armed;
    uint32_t chunk_bytes;
    uint32_t credits;
    uint32_t depth; /* of a send queue */
    uint32_t receives_count;
    uint32_t blocks_count;
    bool block_is_used[VERBS_BLOCKS_MAX];
    uint8_t *receive_slots;
    uint8_t *send_slots;
    struct verbs_arrival *arrivals; /* a ring of receives_count */
    uint32_t arrivals_first, arrivals_count;
};

struct verbs_peer {
    uint64_t sockets_until_ns; /* an attempt failed: not before */
    char reason[VERBS_REASON_MAX];
};

struct verbs {
    struct carrier base;
    struct fabric_config config;
    struct sockaddr_storage bind; /* with port 0 */
    struct verbs_candidate device;
    struct verbs_choice choice;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_device_attr attributes;
    uint8_t *memory; /* slots of both planes, registered once */
    size_t memory_bytes;
    struct ibv_mr *mr;
    uint8_t *read_slots; /* in `memory` */
    struct verbs_slot slots[VERBS_READS_MAX];
    unsigned slots_over_count;
    void *lent; /* lent_bytes of it; NULL: none */
    struct ibv_mr *lent_mr;
    void *landing; /* landing_bytes of it; NULL: none */
    struct ibv_mr *landing_mr;
    struct verbs_arrival *arrivals;
    size_t arrivals_bytes;
    struct verbs_plane planes[PLANES];
    struct rdma_event_channel *events;
    struct rdma_cm_id *listener;
    uint16_t port;
    struct loop_watch events_watch, channel_watch, async_watch;
    struct loop_poller poller;
    struct loop_timer tick;
    uint8_t ack_timeout; /* of queue pairs, as verbs count it */
    unsigned blocked_count, lingering_count, troubles_count;
    struct verbs_qp *buckets[VERBS_BUCKETS];
    struct verbs_peer peers[NODES_MAX];
    struct verbs_qp qps[VERBS_QPS_MAX];
};

static inline struct verbs *verbs_of(struct carrier *carrier)
{
    return CONTAINER_OF(carrier, struct verbs, base);
}

static inline struct verbs *verbs_of_link(const struct tcp_link *link)
{
    return verbs_of(link->peer->tcp->carrier);
}

/* verbs_device.c */
int verbs_device_open(struct verbs *verbs) MUST_USE; /* with error_set() */
void verbs_device_close(struct verbs *verbs);
int verbs_receive_post(struct verbs *verbs, enum fabric_plane plane, uint32_t slot);

/* verbs_qp.c */
struct verbs_qp *verbs_qp_take(struct verbs *verbs, struct tcp_link *link); /* NULL: all are in use */
int verbs_qp_create(struct verbs_qp *qp) MUST_USE;                          /* its queue pair, in INIT; 0 or -errno */
int verbs_qp_ready(struct verbs_qp *qp) MUST_USE;                           /* to RTS; 0 or -errno */
void verbs_qp_up(struct verbs_qp *qp); /* accepting side: the peer is ready. May call back */
void verbs_qp_flush(struct verbs_qp *qp);
bool verbs_qp_is_flushed(struct verbs_qp *qp);
void verbs_qp_resume(struct verbs_qp *qp);       /* it was blocked */
bool verbs_qp_is_due(const struct verbs_qp *qp); /* there is something to do for it that no completion will tell of */
void verbs_qp_told(struct verbs_qp *qp);         /* returns credits when half are owed */
void verbs_qp_touch(struct verbs_qp *qp);        /* idle: an empty write finds out whether the peer is there */
void verbs_qp_linger(struct verbs_qp *qp);
void verbs_qp_end(struct verbs_qp *qp);
void verbs_qp_block(struct verbs_qp *qp, bool is_blocked);
void verbs_drain(struct verbs *verbs, enum fabric_plane plane);

bool verbs_qp_has_place(const struct verbs_qp *qp);
int verbs_qp_post(struct verbs_qp *qp, struct ibv_send_wr *wr, bool is_signalled) MUST_USE; /* it has a place */
int verbs_qp_note(struct verbs_qp *qp, const uint8_t *bytes, size_t size) MUST_USE;
void verbs_qp_trouble(struct verbs_qp *qp, int error, const char *what); /* told from the poll */

/* verbs_pages.c */
void verbs_lend(struct verbs *verbs);
void verbs_lend_end(struct verbs *verbs);
unsigned verbs_pages_access(const struct verbs_qp *qp);
int verbs_pages_grant(struct verbs_qp *qp) MUST_USE; /* it is ready: the first thing it sends. 0 or -errno */
void verbs_pages_revoke(struct verbs_qp *qp);
int verbs_pages_noted(struct verbs_qp *qp, const uint8_t *bytes, size_t size) MUST_USE; /* -EBADMSG */
void verbs_pages_completed(struct verbs_qp *qp, uint32_t number);
void verbs_pages_failed(struct verbs_qp *qp, uint32_t number, enum ibv_wc_status status);
void verbs_pages_abort(struct verbs_qp *qp);
int verbs_pages_deliver(struct verbs *verbs); /* calls back */
void verbs_pages_offer(struct verbs *verbs);

/* verbs_meet.c */
int verbs_listen(struct verbs *verbs) MUST_USE; /* with error_set() */
bool verbs_try(struct tcp_link *link);
void verbs_events_ready(struct loop_watch *watch, uint32_t events);

/* verbs.c */
uint64_t verbs_attempt_ns(const struct verbs *verbs);

/* Sockets are used for a while, by the connecting side; the cause is kept and told. */
void verbs_give_up(struct verbs *verbs, struct node_id peer, const char *cause);
int verbs_deliver(struct verbs *verbs, enum fabric_plane plane, int count_max); /* may call back */
void verbs_path_note(struct tcp_link *link);

#endif
