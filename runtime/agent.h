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

#define AGENT_BLOB_MAX 1024 /* a node's addresses, all transports: opaque to the agent */
#define AGENT_HOST_MAX 64

/* ---- server (dsmrun) ------------------------------------------------------------------------------------------- */

struct agent;

/*
 * agent_create - listen. address: "unix:/path" (0700 directory) or "tcp:HOST:PORT" (port 0: any).
 * ret_address (>= 256 bytes) is what goes into the environment as DSM_AGENT. 0 or -errno with a sentence.
 */
int agent_create(const char *address, unsigned nodes_count, const uint8_t key[32], char *ret_address, size_t size,
                 struct agent **ret_agent) MUST_USE;
/* For the caller's poll(2): fill up to `count` descriptors; returns how many. Then agent_serve() handles what is ready. */
struct pollfd;
int agent_poll(struct agent *agent, struct pollfd *descriptors, int count);
void agent_serve(struct agent *agent);
/* The launcher's knowledge: this rank's process is gone. clean: after it had left (dsm_finalize). */
void agent_exited(struct agent *agent, unsigned rank);
void agent_destroy(struct agent *agent);

/* ---- client (a node) ------------------------------------------------------------------------------------------- */

/* What dsmrun told this process: DSM_AGENT, DSM_RANK, DSM_SIZE, DSM_KEY_FD or DSM_KEY. None set: a job of one. */
struct agent_place {
    bool is_alone;
    unsigned rank, nodes_count;
    char address[256];
    uint8_t key[32];
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
 * get the agreed base. Then agent_meet: give this node's blob, wait for everybody's. 0, -ETIMEDOUT, -EACCES, -EPROTO.
 */
int agent_connect(const struct agent_place *place, uint64_t bases_free, uint64_t timeout_ns,
                  struct agent_link **ret_link, uint64_t *ret_window_base) MUST_USE;
int agent_meet(struct agent_link *link, const struct agent_peer *self, uint64_t timeout_ns,
               struct agent_welcome *ret_welcome) MUST_USE;
uint64_t agent_window_base(unsigned candidate); /* 0: no more candidates */

int agent_link_descriptor(const struct agent_link *link);
/* Non-blocking: 1: a new view; 0: nothing more; -EPIPE: the agent is gone. */
int agent_link_read(struct agent_link *link, struct view *ret_view);
void agent_link_suspect(struct agent_link *link, struct node_id peer);
void agent_link_leave(struct agent_link *link);
void agent_link_close(struct agent_link *link);

#endif
