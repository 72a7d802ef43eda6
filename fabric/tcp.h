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

#include "fabric/gate.h"
#include "fabric/inbox.h"
#include "fabric/session.h"

#include <netinet/in.h>

enum link_state {
    LINK_DOWN = 0,       /* no socket; the connecting side's timer starts the next attempt */
    LINK_CONNECTING = 1, /* connecting side: connect() is under way */
    LINK_GREETING = 2,   /* connecting side: HELLO is sent */
    LINK_UP = 3,
};

struct tcp_link {
    struct tcp_peer *peer;
    enum fabric_plane plane;
    enum link_state state;
    int fd; /* valid unless LINK_DOWN */
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
    struct loop_timer deadline; /* when a link is down for too long */
    bool deadline_runs;
    int trouble; /* the last errno of a connection */
    struct tcp_link links[PLANES];
};

struct tcp {
    struct fabric base;
    struct fabric_config config;
    struct gate gate;
    struct inbox inbox; /* messages to oneself */
    struct loop_timer ack_timer;
    bool ack_timer_runs;
    struct tcp_peer peers[NODES_MAX];
};

static inline bool tcp_connects(const struct tcp_peer *peer)
{
    return peer->id.index < peer->tcp->config.self.index;
}

/* tcp.c */
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

/* The greeting is over, `fd` is the link's. May call back. -EBADMSG when `received` is impossible (`fd` untouched). */
int tcp_link_attach(struct tcp_link *link, int fd, uint64_t received) MUST_USE;

/* tcp_greet.c */
void tcp_greeted(struct gate *gate, struct gate_slot *slot);                   /* accepting side */
void tcp_hello_encode(struct tcp_link *link, uint8_t bytes[GREETING_BYTES]);   /* connecting side */
void tcp_welcomed(struct tcp_link *link, const uint8_t bytes[GREETING_BYTES]); /* connecting side; may call back */
void tcp_socket_tune(const struct tcp *tcp, int fd);

#endif
