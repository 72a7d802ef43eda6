/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.h - the job's agent: where nodes meet, learn each other's addresses, and hear of views.
 *
 * The server half runs inside dsmrun (tools/) on its own poll loop; the client half in every node (runtime/node.c).
 * Over a unix socket on one machine, over TCP for remote nodes (hostfile); both carry a 32-byte job key first.
 * One line protocol, length-prefixed records, encode beside decode; a peer's bytes are checked and refused.
 */
#ifndef TIERMESH_RUNTIME_AGENT_H
#define TIERMESH_RUNTIME_AGENT_H

#include "base/types.h"

#define AGENT_BLOB_MAX    1024 /* a node's addresses, all transports: opaque to the agent */
#define AGENT_HOST_MAX    64
#define AGENT_KEY_BYTES   32
#define AGENT_ADDRESS_MAX 256

/* ---- server (dsmrun) ------------------------------------------------------------------------------------------- */

struct agent;

#define AGENT_CLIENTS_PER_NODE 4 /* connections served at a time, for each node of the job */
#define AGENT_POLL_MAX         (1 + AGENT_CLIENTS_PER_NODE * NODES_MAX)

/*
 * agent_create - listen. address: "unix:/path" (in a 0700 directory), "tcp:HOST:PORT" (numeric host; port 0: any), or
 * NULL: a unix socket in a fresh 0700 directory under $XDG_RUNTIME_DIR or /tmp, which agent_destroy() removes.
 * ret_address (AGENT_ADDRESS_MAX bytes) is what goes into the environment as DSM_AGENT. 0 or -errno with a sentence.
 */
int agent_create(const char *address, unsigned nodes_count, const uint8_t key[AGENT_KEY_BYTES], char *ret_address,
                 size_t size, struct agent **ret_agent) MUST_USE;
/*
 * For the caller's poll(2): fill up to `count` descriptors (AGENT_POLL_MAX is enough); returns how many. Then
 * agent_serve() handles what is ready, and what is due at agent_deadline_ns() (UINT64_MAX: nothing; os_now_ns() clock).
 */
struct pollfd;
int agent_poll(const struct agent *agent, struct pollfd *descriptors, int count);
uint64_t agent_deadline_ns(const struct agent *agent);
void agent_serve(struct agent *agent);
/* The launcher's knowledge: this rank's process is gone. What it still said (that it leaves) counts first. */
void agent_exited(struct agent *agent, unsigned rank);
/* The private directory of agent_create(NULL), or NULL. */
const char *agent_directory(const struct agent *agent);
void agent_destroy(struct agent *agent); /* NULL is allowed */

/* ---- client (a node) ------------------------------------------------------------------------------------------- */

/*
 * What the launcher told this process. dsmrun: DSM_AGENT, DSM_RANK, DSM_SIZE and DSM_KEY_FD, a file whose first 32
 * bytes are the job's key. None of them set: a job of one. 0, or -EINVAL with a sentence when they contradict each
 * other.
 */
struct agent_place {
    bool is_alone;
    unsigned rank, nodes_count;
    char address[AGENT_ADDRESS_MAX];
    char directory[AGENT_ADDRESS_MAX]; /* private to the job on this machine, removed with what is in it; "": none */
    uint8_t key[AGENT_KEY_BYTES];
};
int agent_place_find(struct agent_place *ret_place) MUST_USE;

struct agent_peer {
    char host[AGENT_HOST_MAX]; /* to tell pairs on one machine: the boot id of its kernel */
    uint8_t blob[AGENT_BLOB_MAX];
    uint32_t blob_bytes;
};

struct agent_welcome {
    uint64_t job;         /* random number of the job */
    uint64_t window_base; /* agreed; 0: none is free on all nodes */
    struct view view;
    struct agent_peer peers[NODES_MAX];
};

struct agent_link; /* the connection; its descriptor is watched by the shard */

/*
 * Blocking: connect, prove the key, say which window bases are free here (bit i: candidate i of agent_window_base()),
 * get the agreed base (0: none is free on all nodes). Then agent_meet: give this node's blob, wait for everybody's.
 * 0, or with a sentence: -ETIMEDOUT, -EACCES (wrong key), -EPROTO (not an agent, or another version), -EALREADY (the
 * rank is taken), -EHOSTDOWN (a node ended before all had met), -EPIPE (the agent is gone).
 */
int agent_connect(const struct agent_place *place, uint64_t bases_free, uint64_t timeout_ns,
                  struct agent_link **ret_link, uint64_t *ret_window_base) MUST_USE;
int agent_meet(struct agent_link *link, const struct agent_peer *self, uint64_t timeout_ns,
               struct agent_welcome *ret_welcome) MUST_USE;
uint64_t agent_window_base(unsigned candidate); /* 0: no more candidates */

/* Numeric address of this machine on the way to the agent: where peers can reach it. "127.0.0.1" over a unix socket. */
void agent_link_host(const struct agent_link *link, char ret_host[AGENT_HOST_MAX]);

/* Readable (level-triggered) exactly when agent_link_read() has something to say. */
int agent_link_descriptor(const struct agent_link *link);
/* Non-blocking: 1: a new view (maybe without this node: it was suspected); 0: nothing more; -EPIPE: the agent is gone.
 */
int agent_link_read(struct agent_link *link, struct view *ret_view) MUST_USE;
void agent_link_suspect(struct agent_link *link, struct node_id peer);
void agent_link_leave(struct agent_link *link);
void agent_link_close(struct agent_link *link); /* NULL is allowed */

#endif
