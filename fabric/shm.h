/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm.h - what the files of the shm transport share.
 *
 * shm.c: the fabric, sending, receiving, sleeping. shm_meet.c: the rendezvous of two nodes and its end.
 * shm_segment.c: the memory of a pair. All runs on the loop's thread.
 */
#ifndef TIERMESH_FABRIC_SHM_H
#define TIERMESH_FABRIC_SHM_H

#include "fabric/fifo.h"
#include "fabric/gate.h"
#include "fabric/inbox.h"
#include "fabric/ring.h"

#include <sys/un.h>

/* Two rings (control, data) a direction. A ring holds the largest message, so control needs more than 256 KiB. */
#define SHM_CONTROL_BYTES ((size_t)512 * 1024)
#define SHM_DATA_BYTES    ((size_t)2 * 1024 * 1024)

/* Direction 0 is from the connecting side to the accepting one. */
#define SHM_DIRECTIONS 2

struct shm_segment {
    uint8_t *memory; /* NULL: none */
    struct ring_shared (*rings)[PLANES];
    uint8_t *bytes[SHM_DIRECTIONS][PLANES];
};

enum shm_state {
    SHM_DOWN = 0,     /* no socket; a connecting side's timer starts the next attempt while a session is open */
    SHM_GREETING = 1, /* connecting side: HELLO is sent */
    SHM_UP = 2,
};

struct shm_peer {
    struct shm *shm;
    struct node_id id;
    enum shm_state state;
    uint64_t session;       /* 0: none; else the segment is mapped */
    uint64_t session_ended; /* the last one, which no late HELLO may revive */
    uint64_t incarnation;
    uint64_t generation;        /* grows when a session ends */
    struct sockaddr_un address; /* connecting side */
    uint32_t attempt;
    int trouble;             /* the last errno of an attempt */
    struct loop_timer timer; /* connecting side: the next attempt, or the end of this one's time */
    uint64_t backoff_ns;
    uint64_t begun_ns;
    int fd; /* rendezvous, valid unless SHM_DOWN: its end is the peer's end */
    struct loop_watch watch;
    int segment_fd; /* connecting side, until the peer has it; else -1 */
    int bell;       /* the peer's eventfd, or -1 */
    int file;       /* the peer's shared_file, or -1 */
    bool is_broken; /* found in send(), reported by the next poll */
    bool is_delivering;
    struct shm_segment segment;
    struct shm_segment garbage; /* ended while one of its messages was delivered */
    struct ring out[PLANES], in[PLANES];
    struct fifo waiting[PLANES]; /* what found its ring full */
};

struct shm {
    struct fabric base;
    struct fabric_config config;
    struct gate gate;
    struct inbox inbox; /* messages to oneself */
    struct loop_poller poller;
    struct loop_watch bell_watch;
    int bell;          /* all peers ring here */
    uint64_t sessions; /* bit i: peers[i].session != 0 */
    struct sockaddr_un address;
    struct shm_peer peers[NODES_MAX];
};

static inline bool shm_connects(const struct shm_peer *peer)
{
    return peer->id.index < peer->shm->config.self.index;
}

/* shm.c */
void shm_peer_ring_bell(const struct shm_peer *peer);
int shm_peer_receive(struct shm_peer *peer); /* messages handed out; may call back and end the session */
void shm_peer_pump(struct shm_peer *peer);   /* moves what waits into the rings; never calls back */

/* shm_meet.c */
int shm_peer_connect(struct shm_peer *peer) MUST_USE;         /* peer->address is set; 0 or -errno */
void shm_peer_end(struct shm_peer *peer);                     /* silently */
void shm_peer_fail(struct shm_peer *peer, const char *cause); /* peer_down() */
void shm_peer_goodbye(struct shm_peer *peer);
void shm_peer_init(struct shm_peer *peer, struct shm *shm, struct node_id id);
void shm_greeted(struct gate *gate, struct gate_slot *slot);

/* shm_segment.c */
int shm_segment_create(int *ret_fd) MUST_USE;
int shm_segment_map(int fd, struct shm_segment *ret_segment) MUST_USE; /* -EBADMSG: not what a node of ours creates */
void shm_segment_unmap(struct shm_segment *segment);

#endif
