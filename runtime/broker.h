/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker.h - what the processes of a job under the preload library share: the NVMe store, accounts, figures.
 *
 * The server half runs inside dsmrun on its poll loop. The client half runs in each managed process, from the moment
 * its shard starts; its calls block for at most a time limit and use no malloc. Between them is one socket a process:
 * when it ends, however the process ended, the broker gives back what the process held and keeps its last figures.
 *
 * An *account* is memory that one process and the broker both map: figures and state, written by the process; limits,
 * written by the broker; and one bit for each slot of the store that the process holds (tiers/shared_slots.h). Neither
 * side trusts what the other wrote there.
 */
#ifndef TIERMESH_RUNTIME_BROKER_H
#define TIERMESH_RUNTIME_BROKER_H

#include "base/types.h"
#include "prefetch/prefetch.h"
#include "runtime/stats.h"
#include "tiermesh/dsm.h"

#define BROKER_PATH_VARIABLE "DSM_BROKER"     /* path of the broker's socket */
#define BROKER_KEY_VARIABLE  "DSM_BROKER_KEY" /* hexadecimal; whoever connects must know it */
#define BROKER_KEY_BYTES     16
#define BROKER_PATH_MAX      108
#define BROKER_PROCESSES_MAX 4096

/* ---- accounts ---------------------------------------------------------------------------------------------------- */

enum account_state {
    ACCOUNT_STARTING = 0, /* connected, nothing under management yet */
    ACCOUNT_MANAGING = 1,
    ACCOUNT_FINISHED = 2, /* the process said that these are its last figures */
};

/* The figures of a process since its shard started. Times are nanoseconds of os_now_ns(). */
struct account_stats {
    uint64_t start_ns, written_ns;
    uint64_t managed_bytes; /* handed out to the program and managed, wherever they lie */
    uint64_t kept_bytes;    /* of these, not to be evicted (mlock, stacks) */
    uint64_t fresh_bytes;   /* of these, still filled by the kernel */
    uint64_t tier_pages[DSM_TIERS];
    uint64_t tier_budget_pages[DSM_TIERS]; /* 0: there is no such tier */
    uint64_t metadata_bytes;
    struct prefetch_counters prefetch;
    char policy[DSM_POLICY_BYTES], policy_choice[DSM_POLICY_BYTES];
    uint64_t limit_changes; /* budgets changed while running */
    struct stats pager;
};

/* Budgets that somebody asked for while the process runs (dsmctl limit). */
struct account_limits {
    uint64_t serial; /* 0: nobody asked; grows with each wish */
    uint64_t bytes[DSM_TIERS];
    uint64_t is_set; /* bit i: bytes[i] is a wish */
};

/* ---- client: a managed process ----------------------------------------------------------------------------------- */

struct broker; /* one process's end */
struct loop;
struct tier;

/*
 * broker_connect - as the environment says. Blocks for timeout_ns at most.
 * 0; -ENOENT: no broker is named (the process goes on alone); with a sentence: -ECONNREFUSED, -EACCES (key), -EPROTO
 * (another version), -EAGAIN (too many processes), -ETIMEDOUT, -ENOMEM, -EMFILE.
 */
int broker_connect(uint64_t timeout_ns, struct broker **ret_broker) MUST_USE;

/* Readable when there is something for broker_wishes(); hung up when dsmrun is gone. Close-on-exec, 100 or higher. */
int broker_descriptor(const struct broker *broker);
/* Takes what came, without blocking. 1: limits, to be applied; 0: nothing; -EPIPE: the broker is gone. */
int broker_wishes(struct broker *broker, struct account_limits *ret_limits) MUST_USE;

/* Of /dev/userfaultfd, for USERFAULTFD_IOC_NEW by a process without privileges; -1: the broker has none. */
int broker_device(const struct broker *broker);

/* The job has an NVMe store. */
bool broker_has_store(const struct broker *broker);
/*
 * The NVMe tier over the job's store; its slots_max is the job's, its slots_used this process's. Closed by tier_close()
 * before broker_close(). The loop keeps the broker's socket until its last transfer has ended, so that the store's
 * slots are not given to others while the device still writes. Errors as tier_nvme_open().
 */
int broker_tier_open(struct broker *broker, struct loop *loop, struct tier **ret_tier) MUST_USE;

/* Figures and state for everybody to see. Cheap: once a 100 ms is fine. Async-signal-safe. */
void broker_publish(struct broker *broker, enum account_state state, const struct account_stats *stats);

/*
 * Fork. The parent calls broker_child_prepare() while nothing is under way on the tier (it copies what this process
 * holds: the child holds it too from then on), forks, and calls broker_child_forget() afterwards, whether the fork
 * succeeded or not: if no child has the connection, its end undoes everything. -EAGAIN: too many processes, or a slot
 * that is shared too often; -ETIMEDOUT, -EMFILE, -ENOMEM, -EPIPE: the fork must not happen.
 * The child calls broker_child_enter() (allocates nothing, never fails): what it inherited of the parent's is closed,
 * and its tier, made by the parent, goes on with the child's account; tier may be NULL. The loop comes later, by
 * broker_tier_loop(), before the first transfer.
 */
int broker_child_prepare(struct broker *parent, struct broker **ret_child) MUST_USE;
void broker_child_forget(struct broker *child); /* in the parent; NULL is allowed */
void broker_child_enter(struct broker *parent, struct broker *child, struct tier *tier);
/* 0, or as broker_tier_open(). */
int broker_tier_loop(struct broker *broker, struct tier *tier, struct loop *loop) MUST_USE;

/* The end of the connection: all slots of this process are given back. NULL is allowed. */
void broker_close(struct broker *broker);

/* Can programs of this user have a userfaultfd? 0; -EPERM, -ENOSYS with a sentence that says what would help. */
int broker_userfaultfd_check(void) MUST_USE;

/* ---- server: dsmrun ---------------------------------------------------------------------------------------------- */

struct broker_server;

struct broker_store {
    uint64_t size_bytes; /* 0: none */
    const char *path;
};

/* A process of the job as far as the broker knows it. */
struct broker_process {
    int pid; /* as dsmrun sees it */
    int parent_pid;
    char name[16];
    enum account_state state;
    uint32_t is_ended;
    uint64_t slots_held;
    struct account_stats stats;
    struct account_limits limits;
};

/*
 * broker_server_create - opens the store (blocks while its room is reserved) and listens at `path`, which must not
 * exist, and at an abstract name for processes that cannot reach it. ended() is called for each process whose
 * connection ended, with its last figures. 0 or a negative errno with a sentence.
 */
int broker_server_create(const char *path, const struct broker_store *store,
                         void (*ended)(void *context, const struct broker_process *process), void *context,
                         struct broker_server **ret_server) MUST_USE;
/* The value of BROKER_KEY_VARIABLE. */
const char *broker_server_key(const struct broker_server *server);
/* One descriptor for the caller's poll(2), for POLLIN; then broker_server_serve(), and again at the deadline. */
int broker_server_descriptor(const struct broker_server *server);
uint64_t broker_server_deadline_ns(const struct broker_server *server);
void broker_server_serve(struct broker_server *server);
/* Every process that is connected. */
void broker_server_visit(struct broker_server *server,
                         void (*visit)(void *context, const struct broker_process *process), void *context);
/* Ends all connections (calls ended()), removes the socket. NULL is allowed. */
void broker_server_destroy(struct broker_server *server);

const char *broker_tier_name(enum dsm_tier tier); /* as an option: "ddr" */

/* ---- asking the broker of another process: dsmctl --------------------------------------------------------------- */

struct broker_place {
    char path[BROKER_PATH_MAX];
    char key[2 * BROKER_KEY_BYTES + 1];
};

/*
 * broker_ask_stat - the process's figures (pid 0: of each process of the job, one visit a process).
 * broker_ask_limit - wish another budget for a tier; NVMe: the size of the job's store.
 * 0, or with a sentence: -ESRCH (the broker does not know the process: it has not come near its budget, or is not
 * managed), -ECONNREFUSED, -EACCES, -EPROTO, -ETIMEDOUT; limit also -EINVAL, -ENOSPC, -EOPNOTSUPP (no such tier).
 */
int broker_ask_stat(const struct broker_place *place, int pid,
                    void (*visit)(void *context, const struct broker_process *process), void *context) MUST_USE;
int broker_ask_limit(const struct broker_place *place, int pid, enum dsm_tier tier, uint64_t size_bytes) MUST_USE;

#endif
