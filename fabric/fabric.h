/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fabric.h - messages between this node and its peers: the contract of every transport.
 *
 * One fabric serves one shard and is driven by that shard's thread alone (its loop's callbacks run there too).
 *
 * Contract (tests/fabric/ runs one suite over every transport, plain and under `faulty`)
 *   F1  A message is 1 .. FABRIC_MESSAGE_MAX bytes and arrives whole, once, unchanged.
 *   F2  Messages to one peer on one plane arrive in the order sent. Nothing is promised between planes.
 *   F3  send() never blocks and never calls back. Bytes of the iovecs are copied or sent before it returns.
 *   F4  A cut below is repaired by the session: nothing is lost or repeated while the peer's process lives. The user
 *       sees nothing but delay.
 *   F5  When a peer cannot be reached for `session_timeout_ns`, or its process or session is another one, or it broke
 *       the framing, peer_down() comes once, with a cause, and nothing from that session afterwards. send() then
 *       returns -EHOSTDOWN until connect() is called with a new address.
 *   F6  What a peer sends is checked before use; a broken peer costs its own connections, never this process.
 *   F7  Messages sent to one's own node id arrive too, by the same callback, never inside send().
 *   F8  A received message's bytes are valid during the callback only, and start on 8 bytes. Under shm they lie in
 *       memory that the peer can still write: read each field once, then check what was read.
 */
#ifndef TIERMESH_FABRIC_FABRIC_H
#define TIERMESH_FABRIC_FABRIC_H

#include "base/loop.h"
#include "base/types.h"

#include <sys/uio.h>

#define FABRIC_MESSAGE_MAX (256 * 1024)
#define FABRIC_ADDRESS_MAX 256
#define FABRIC_PARTS_MAX   128 /* iovecs of one send() */
#define FABRIC_PATH_MAX    192
#define FABRIC_READ_MAX    (16 * 1024) /* bytes of one FABRIC_READ without `into` */

enum fabric_plane {
    PLANE_CONTROL = 0, /* small coherence and lock messages: never behind page bytes */
    PLANE_DATA = 1,    /* messages that carry page bytes */
    PLANES = 2,
};

/* What a transport can do beyond messages. */
#define FABRIC_CAP_SHARED_FILES 1u /* peers are on this host: fabric_peer_file() works */
#define FABRIC_CAP_RESUMES      2u /* survives cuts by a session */
#define FABRIC_CAP_PAGES        4u /* peers that lend memory can be read one-sidedly: fabric_operate() */
#define FABRIC_CAP_ATOMICS      8u /* and its words changed atomically */

struct fabric;

/* The user's callbacks. They may call send(), connect() and disconnect(), not close(). */
struct fabric_user {
    void *context;
    void (*message)(void *context, struct node_id from, enum fabric_plane plane, const void *bytes, size_t size_bytes);
    void (*peer_up)(void *context, struct node_id peer);
    void (*peer_down)(void *context, struct node_id peer, const char *cause);
    void (*path_changed)(void *context, struct node_id peer); /* fabric_path() says something else. May be NULL */
};

struct fabric_config {
    struct node_id self;
    unsigned nodes_count;
    struct loop *loop;
    struct fabric_user user;
    uint64_t job;                /* random number of the job: peers of another job are refused */
    uint64_t incarnation;        /* random number of this process */
    uint64_t session_timeout_ns; /* how long a cut may last */
    size_t window_bytes_max;     /* unacknowledged bytes kept for a peer and plane; FABRIC_MESSAGE_MAX at least */
    const char *bind_address;    /* tcp: numeric address to listen on, default 127.0.0.1 */
    const char *shm_directory;   /* shm: where the rendezvous socket lies (0700, the job's) */
    const char *pool_path;       /* pool: the dax device or file that all hosts map */
    int shared_file;             /* shm: descriptor offered to peers by fabric_peer_file(), or -1 */
    size_t lent_bytes;           /* verbs: memory lent to peers, fabric_lent(); 0: none */
    bool lends_words;            /* verbs: they may also change its words, by FABRIC_FETCH_ADD and such */
    size_t landing_bytes;        /* verbs: memory where reads of what peers lend may end, fabric_landing(); 0: none */
};

/*
 * A one-sided operation on memory that a peer lends. The caller keeps it until `done` was called, from the loop; not
 * repeated by the fabric, whatever happens. Results: 0; -EACCES, the peer's device refused it; -ECONNABORTED, the
 * connection ended meanwhile: a read failed, and the fate of an atomic is unknown.
 * Words are atomic among such operations only, not to processors: their owner changes them by FABRIC_* as well.
 */
struct fabric_operation {
    enum fabric_operation_kind {
        FABRIC_READ,
        FABRIC_FETCH_ADD,    /* of `operand` */
        FABRIC_COMPARE_SWAP, /* to `operand` when the word is `expected` */
    } kind;
    struct node_id peer;
    uint64_t offset_bytes; /* in what the peer lends; of words a multiple of 8 */
    uint32_t size_bytes;   /* of a read: 1 .. FABRIC_READ_MAX, or what the landing memory has from `into` on */
    void *into;            /* of a read: on 8 bytes, in fabric_landing(). NULL: its bytes are for `done` alone */
    uint64_t operand, expected;
    /* `bytes`: what was read, or the word as it was before; on 8 bytes, valid during the call, or those at `into`; NULL
     * after a failure: nothing is written to `into` any more. */
    void (*done)(struct fabric_operation *operation, int result, const void *bytes);
    void *context;
};

/* What a transport with FABRIC_CAP_PAGES has besides. */
struct fabric_pages_ops {
    void *(*lent)(struct fabric *fabric);
    void *(*landing)(struct fabric *fabric);
    uint64_t (*peer_lends)(struct fabric *fabric, struct node_id peer);
    int (*operate)(struct fabric *fabric, struct fabric_operation *operation);
};

/* Since open(). Over `faulty`, those of the fabric below. */
struct fabric_counters {
    uint64_t messages_sent, messages_received, bytes_sent, bytes_received;
    uint64_t cuts, resends, duplicates_dropped, peers_refused;
};

/* Another transport may implement it: at most 8 calls. */
struct fabric_ops {
    const char *name; /* "loopback", "shm", "pool", "tcp" */
    unsigned capabilities;

    /* The opaque blob by which peers connect to this node. Returns its size. */
    size_t (*address)(struct fabric *fabric, uint8_t blob[FABRIC_ADDRESS_MAX]);

    /*
     * Start to connect; peer_up() follows on both sides, or peer_down() here. Of two nodes the higher id calls it.
     * A session that still lives is replaced, without peer_down(). Messages may be sent from now on: they wait.
     * 0, -EINVAL (blob), or another errno when the system refuses what a connection needs.
     */
    int (*connect)(struct fabric *fabric, struct node_id peer, const uint8_t *blob, size_t size_bytes);

    /* 0, -EHOSTDOWN, -ENOBUFS (window_bytes_max would be exceeded: the caller broke its own bounds or the peer stalls).
     */
    int (*send)(struct fabric *fabric, struct node_id peer, enum fabric_plane plane, const struct iovec *parts,
                int parts_count);

    /* End the session with a peer now, without peer_down(). Nothing when there is none. */
    void (*disconnect)(struct fabric *fabric, struct node_id peer);

    /* The descriptor that the peer offered, valid from peer_up() to peer_down(), or -EOPNOTSUPP. The fabric owns it. */
    int (*peer_file)(struct fabric *fabric, struct node_id peer);

    /* Break the connection below as a network would. NULL without FABRIC_CAP_RESUMES. */
    void (*cut)(struct fabric *fabric, struct node_id peer);

    /* NULL: struct fabric has them. */
    void (*counters)(const struct fabric *fabric, struct fabric_counters *ret_counters);

    /* Flush what can be sent within 100 ms, end all sessions, free everything. */
    void (*close)(struct fabric *fabric);
};

/*
 * The first member of every transport's own struct. fabric.c keeps it: with it the dispatcher checks both the user's
 * calls and the transports' callbacks (fabric/transport.h).
 */
struct fabric {
    const struct fabric_ops *ops;
    struct fabric_user user;
    struct node_id self;
    unsigned nodes_count;
    uint64_t peers_open; /* bit i: connect() was called or peer_up() came, and the session has not ended */
    uint64_t peers_up;   /* bit i: between peer_up() and the session's end */
    unsigned callbacks_running;
    bool is_sending;
    struct fabric_counters counters;
    const struct fabric_pages_ops *pages; /* NULL without FABRIC_CAP_PAGES */
    const struct fabric *below;                    /* faulty: who knows the paths; else NULL */
    char paths[NODES_MAX][PLANES][FABRIC_PATH_MAX]; /* how each peer was last reached, and why so */
};

/* Constructors: 0 or a negative errno with error_set(). */
int fabric_loopback_open(const struct fabric_config *config, struct fabric **ret_fabric) MUST_USE;
int fabric_tcp_open(const struct fabric_config *config, struct fabric **ret_fabric) MUST_USE;
int fabric_shm_open(const struct fabric_config *config, struct fabric **ret_fabric) MUST_USE;

/* Memory that the nodes' hosts share, coherent or not (docs/CXL.md). All of a job's nodes, by number, share one. */
int fabric_pool_open(const struct fabric_config *config, struct fabric **ret_fabric) MUST_USE;

/* tcp whose connections are RDMA queue pairs where that works. -ENODEV and others: use tcp, the sentence says why. */
int fabric_verbs_open(const struct fabric_config *config, struct fabric **ret_fabric) MUST_USE;

/* Faults within the contract, from a seed, over any fabric (which it then owns and closes). */
struct faulty_config {
    uint64_t seed;
    uint32_t delay_permille; /* messages held back (order within a plane is kept) */
    uint64_t delay_ns_max;
    uint32_t cut_permille; /* sends before which the connection below is cut (needs FABRIC_CAP_RESUMES) */
};
int fabric_faulty_open(struct fabric *below, const struct fabric_config *config, const struct faulty_config *faults,
                       struct fabric **ret_fabric) MUST_USE;

/* The dispatcher (fabric.c): checks the contract around every call, for all transports. */
size_t fabric_address(struct fabric *fabric, uint8_t blob[FABRIC_ADDRESS_MAX]);
int fabric_connect(struct fabric *fabric, struct node_id peer, const uint8_t *blob, size_t size_bytes) MUST_USE;
int fabric_send(struct fabric *fabric, struct node_id peer, enum fabric_plane plane, const struct iovec *parts,
                int parts_count) MUST_USE;
void fabric_disconnect(struct fabric *fabric, struct node_id peer);
int fabric_peer_file(struct fabric *fabric, struct node_id peer);
unsigned fabric_capabilities(const struct fabric *fabric);

/* "verbs: rxe0 port 1, ..." or "tcp: why not verbs": how messages of the plane reach the peer. "" before peer_up(). */
const char *fabric_path(const struct fabric *fabric, struct node_id peer, enum fabric_plane plane);
const char *fabric_name(const struct fabric *fabric);

/*
 * The memory that peers may read, and with lends_words whose words they may change, of lent_bytes. NULL: none is lent.
 * From disconnect() or peer_down() on the peer reads nothing of it any more.
 */
void *fabric_lent(struct fabric *fabric);

/* The memory where reads may end, of landing_bytes. NULL: there is none. */
void *fabric_landing(struct fabric *fabric);

/* Bytes that the peer lends on the connection by which it is reached now; 0: none, operations are not served. */
uint64_t fabric_peer_lends(struct fabric *fabric, struct node_id peer);

/*
 * Start a one-sided operation. Never calls back. 0; -EOPNOTSUPP when the peer is not reached by such a connection now,
 * or lends nothing (use a message); -EINVAL, beyond what it lends; -EAGAIN, too many under way; -EHOSTDOWN.
 */
int fabric_operate(struct fabric *fabric, struct fabric_operation *operation) MUST_USE;
void fabric_close(struct fabric *fabric);

/* Test hook of transports that resume. 0 or -EOPNOTSUPP. */
int fabric_cut(struct fabric *fabric, struct node_id peer);

void fabric_counters_get(const struct fabric *fabric, struct fabric_counters *ret_counters);

#endif
