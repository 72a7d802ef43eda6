/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - what the files of the pool transport share.
 *
 * pool_memory.c: flushes. pool_line.c: checksums. pool_ring.c: messages of a pair. pool_map.c: the file and who writes
 * what in it. pool_meet.c: sessions of pairs. pool.c: the fabric, sending, receiving, when to look. All runs on the
 * loop's thread.
 */
#ifndef TIERMESH_FABRIC_POOL_H
#define TIERMESH_FABRIC_POOL_H

#include "fabric/fifo.h"
#include "fabric/inbox.h"
#include "fabric/pool_ring.h"

/* A partition is one step of lines, and one of rings for each node. Devices are mapped by such steps. */
#define POOL_STEP_BYTES    ((size_t)2 << 20)
#define POOL_CONTROL_BYTES ((size_t)512 << 10)
#define POOL_DATA_BYTES    (POOL_STEP_BYTES - POOL_CONTROL_BYTES)
#define POOL_BEAT_NS_MAX   UINT64_C(100000000) /* between two signs of life */

/* What one node tells another, in its own partition. */
struct pool_side {
    struct pool_line greeting;
    struct pool_line tail[PLANES]; /* of the rings to the other */
    struct pool_line head[PLANES]; /* of the rings from the other */
};

struct pool_partition {
    struct pool_line header;
    struct pool_side sides[NODES_MAX];
};

/* What a partition's header says. Its node writes it anew as a sign of life. */
struct pool_header {
    uint64_t shape; /* version, nodes and own number: pool_shape() */
    uint64_t size_bytes;
    uint64_t job;
    uint64_t incarnation; /* 0: its node has left */
    uint64_t beat;
};

enum pool_word {
    POOL_NOTHING = 0,
    POOL_HELLO = 1,
    POOL_WELCOME = 2, /* or a refusal: see status */
    POOL_LEAVE = 3,
};

struct pool_greeting {
    enum pool_word word;
    uint16_t status;  /* enum greeting_status */
    uint64_t session; /* random, chosen by the connecting side */
    uint64_t job;
    uint64_t from_incarnation, to_incarnation;
};

enum pool_state {
    POOL_DOWN = 0,
    POOL_GREETING = 1, /* connecting side: HELLO is written */
    POOL_UP = 2,
};

struct pool_peer {
    struct pool *pool;
    struct node_id id;
    enum pool_state state;
    uint64_t session;       /* 0: none */
    uint64_t session_ended; /* or refused; the last one, whose words mean nothing any more */
    uint64_t incarnation;
    uint64_t generation; /* grows when a session ends */
    uint64_t begun_ns;
    uint64_t beat, beat_seen_ns;
    bool is_other_node; /* the address was another's */
    bool is_broken;     /* found in send(), reported by the next poll */
    struct pool_ring out[PLANES], in[PLANES];
    struct fifo waiting[PLANES]; /* what found its ring full */
};

struct pool {
    struct fabric base;
    struct fabric_config config;
    int fd;
    uint8_t *memory;
    uint64_t size_bytes;
    uint64_t mapped_bytes; /* whole steps of the device */
    uint8_t *message;      /* FABRIC_MESSAGE_MAX: what was received last */
    struct inbox inbox;
    struct loop_poller poller;
    struct loop_timer timer;
    uint64_t nap_ns;     /* between two looks while nothing comes */
    uint64_t beat_at_ns; /* the next sign of life */
    uint64_t beat;
    bool is_taken; /* another process writes our partition: nothing is written there any more */
    struct pool_peer peers[NODES_MAX];
};

static inline bool pool_connects(const struct pool_peer *peer)
{
    return peer->id.index < peer->pool->config.self.index;
}

/* pool_map.c */
int pool_map(struct pool *pool) MUST_USE;
void pool_unmap(struct pool *pool);
uint64_t pool_shape(const struct pool *pool, struct node_id node);
void pool_header_write(struct pool *pool, uint64_t incarnation);
bool pool_header_read(const struct pool *pool, struct node_id node, struct pool_header *ret_header);
bool pool_is_taken(const struct pool *pool); /* another process writes our header now */
int pool_others_check(
    const struct pool *pool) MUST_USE; /* -EBUSY: another job, or a process of our number, lives here */
void pool_greeting_write(struct pool_peer *peer, const struct pool_greeting *greeting);
bool pool_greeting_read(const struct pool_peer *peer, struct pool_greeting *ret_greeting);
void pool_rings_init(struct pool_peer *peer);
void pool_partition_clear(struct pool *pool); /* whatever an earlier job left in our part */

/* pool_meet.c */
void pool_peer_init(struct pool_peer *peer, struct pool *pool, struct node_id id);
void pool_peer_connect(struct pool_peer *peer, uint64_t incarnation, bool is_other_node);
void pool_peer_end(struct pool_peer *peer);                     /* silently; tells the peer */
void pool_peer_fail(struct pool_peer *peer, const char *cause); /* peer_down() */
void pool_peer_look(struct pool_peer *peer);                    /* greetings; may call back */
void pool_peer_watch(struct pool_peer *peer, uint64_t now_ns);  /* signs of life and time-outs; may call back */

/* pool.c */
int pool_peer_receive(struct pool_peer *peer); /* messages handed out, may call back and end the session */

#endif
