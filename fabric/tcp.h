/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.h - what the files of the tcp transport share.
 *
 * tcp.c: the fabric, its peers and when a session ends. tcp_link.c: one connection, from connect() to its cut.
 * tcp_greet.c: who may connect. A peer has one session; each plane of it has one link, which has one socket after
 * another. All runs on the loop's thread.
 *
 * Who may call back: nothing that send() or cut() reach. A link that breaks there only starts timers.
 */
#ifndef TIERMESH_FABRIC_TCP_H
#define TIERMESH_FABRIC_TCP_H

#include "fabric/carrier.h"
#include "fabric/gate.h"
#include "fabric/inbox.h"
#include "fabric/session.h"

#include <netinet/in.h>

enum link_state {
    LINK_DOWN = 0,       /* no socket; the connecting side's timer starts the next attempt */
    LINK_CONNECTING = 1, /* connecting side: connect() is under way */
    LINK_GREETING = 2,   /* connecting side: HELLO is sent; accepting side of a carrier: WELCOME is sent */
    LINK_UP = 3,
};

struct tcp_link {
    struct tcp_peer *peer;
    enum fabric_plane plane;
    enum link_state state;
    int fd;           /* valid unless LINK_DOWN or is_carried */
    bool is_carried;  /* by the carrier, not by a socket; false in LINK_DOWN */
    void *carried;    /* the carrier's */
    struct loop_watch watch;
    bool wants_write;        /* EPOLLOUT is watched */
    uint64_t generation;     /* grows when the socket is closed: what runs for the old one stops */
    struct loop_timer timer; /* connecting side: the next attempt, or the end of this one's time */
    uint64_t backoff_ns;
    uint64_t down_since_ns;
    uint32_t attempt;
    bool has_goodbye; /* the other side ended the session on this plane */
    uint8_t greeting[GREETING_BYTES];
    size_t greeting_bytes;
    struct session session;
    struct stream stream; /* its memory stays until the fabric closes: a message in it may be in use */
};

struct tcp_peer {
    struct tcp *tcp;
    struct node_id id;
    uint64_t session;                /* 0: none */
    uint64_t session_ended;          /* the last one, which no late HELLO may revive */
    uint64_t incarnation;            /* the peer's; 0 unknown */
    struct sockaddr_storage address; /* connecting side */
    socklen_t address_bytes;
    uint32_t carrier_address;        /* connecting side; 0: the peer has none */
    struct loop_timer deadline; /* when a link is down for too long */
    bool deadline_runs;
    int trouble; /* the last errno of a connection */
    struct tcp_link links[PLANES];
};

struct tcp {
    struct fabric base;
    struct fabric_ops ops; /* tcp's, or with the name of the carrier */
    struct fabric_config config;
    struct gate gate;
    struct inbox inbox; /* messages to oneself */
    struct carrier *carrier; /* NULL: sockets only */
    struct loop_timer ack_timer;
    bool ack_timer_runs;
    struct tcp_peer peers[NODES_MAX];
};

static inline bool tcp_connects(const struct tcp_peer *peer)
{
    return peer->id.index < peer->tcp->config.self.index;
}

/* tcp.c */

/* With a carrier, which the fabric then owns (on failure not); `ops` are tcp's own but for the name. */
int tcp_open(const struct fabric_config *config, const char *name, struct carrier *carrier,
             struct fabric **ret_fabric) MUST_USE;
void tcp_peer_begin(struct tcp_peer *peer, uint64_t session);
void tcp_peer_end(struct tcp_peer *peer);                     /* silently */
void tcp_peer_fail(struct tcp_peer *peer, const char *cause); /* peer_down() */
void tcp_peer_watch_time(struct tcp_peer *peer);              /* a link went down, or the peer said good-bye */
void tcp_ack_later(struct tcp *tcp);

/* tcp_link.c */
void tcp_link_init(struct tcp_link *link, struct tcp_peer *peer, enum fabric_plane plane);
void tcp_link_close(struct tcp_link *link);
void tcp_link_cut(struct tcp_link *link, int error); /* the connection is lost; never calls back */
void tcp_link_flush(struct tcp_link *link);          /* never calls back */
void tcp_link_try(struct tcp_link *link);            /* connecting side: start an attempt */

/* A link that is down, or down again, is carried from here on. */
void tcp_link_carry(struct tcp_link *link, void *carried, enum link_state state, uint64_t attempt_ns);

/*
 * Bytes of the session that a carrier received, on 8 bytes; they stay until it returns. May call back. False when the
 * connection is gone then.
 */
bool tcp_link_take(struct tcp_link *link, uint8_t *bytes, size_t size);

/* The greeting is over, `fd` is the link's. May call back. -EBADMSG when `received` is impossible (`fd` untouched). */
int tcp_link_attach(struct tcp_link *link, int fd, uint64_t received) MUST_USE;

/* tcp_greet.c */
void tcp_greeted(struct gate *gate, struct gate_slot *slot);      /* accepting side */
struct greeting tcp_hello_next(struct tcp_link *link);            /* connecting side: of a new attempt */
void tcp_welcomed(struct tcp_link *link, const struct greeting *welcome); /* connecting side; may call back */

/*
 * Accepting side: what becomes of a HELLO, however it came. May call back. With GREETING_OK *ret_link is the link that
 * it is for, or NULL when a newer connection has overtaken it.
 */
enum greeting_status tcp_hello_judge(struct tcp *tcp, const struct greeting *hello, struct tcp_link **ret_link);
void tcp_socket_tune(const struct tcp *tcp, int fd);

#endif
