/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiermesh/dsm.h - distributed shared memory with tiers: the public interface.
 *
 * A job is a set of nodes (processes), numbered from 0. Memory from dsm_malloc() is one address space: a pointer
 * is valid on every node, and plain loads and stores work. Behind it a page of 4 KiB lies in DDR, in CXL memory,
 * on NVMe or on another node, and moves as it is used. docs/MEMORY-MODEL.md says what a program may rely on.
 *
 * Conventions
 *   - Functions that can fail return 0 or a negative errno; dsm_errmsg() has the sentence. Results go through a
 *     last argument ret_x, written only on success.
 *   - Sizes are bytes, times are nanoseconds. DSM_FOREVER waits without limit.
 *   - Any thread may call any function, except where it says otherwise; none may be called from a signal handler.
 *   - A page that cannot be served (its node died, its disk failed, its checksum is wrong) raises SIGBUS at the
 *     thread that touches it, with a log line that names page and cause; explicit calls return -EIO instead.
 *
 * Errors that any function may return: -EINVAL (an argument is wrong), -ENOTCONN (dsm_init() was not called),
 * -EHOSTDOWN (a node that is needed left the job, or this node is no longer a member).
 */
#ifndef TIERMESH_DSM_H
#define TIERMESH_DSM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DSM_VERSION_MAJOR 0
#define DSM_VERSION_MINOR 1

#define DSM_PAGE_BYTES 4096
#define DSM_FOREVER UINT64_MAX
#define DSM_NODES_MAX 64
#define DSM_NAME_MAX 63 /* longest name for dsm_root_set(), bytes */

/* ---- configuration, start and end ---------------------------------------------------------------------------- */

struct dsm_config; /* opaque; made by dsm_config_create() */

/*
 * dsm_config_create - a configuration with the defaults, overridden by the environment (what dsmrun was told).
 * Precedence: dsm_config_set() > environment DSM_* > default.  docs/CONFIG.md lists every key.
 * Returns 0, -ENOMEM, or -EINVAL when an environment value is wrong (the sentence names the variable).
 */
int dsm_config_create(struct dsm_config **ret_config);

/*
 * dsm_config_set - set one option by name, e.g. ("ddr", "256M"), ("cxl", "1G"), ("nvme", "4G:/scratch"),
 * ("transport", "tcp"), ("loop", "epoll"), ("uffd.move", "off"), ("log", "info").
 * Sizes take the suffixes K, M, G, T (powers of 1024).
 * Returns 0, -ENOENT (no such option; the sentence suggests one), -EINVAL (bad value).
 */
int dsm_config_set(struct dsm_config *config, const char *name, const char *value);

void dsm_config_destroy(struct dsm_config *config); /* NULL is allowed */

/*
 * dsm_init - become a node of the job that dsmrun started, or a job of one node when there is none.
 * @config may be NULL: defaults and environment. It is copied.
 * Returns when every node of the job has joined.
 * Returns 0, or
 *   -EALREADY   this process is a node already
 *   -EPERM      userfaultfd is refused; the sentence says which sysctl, device or capability would help
 *   -ENOMEM     a budget is larger than the machine, or memory cannot be reserved
 *   -EADDRINUSE the window of addresses is taken in this process
 *   -ENOSPC     the NVMe path has too little room;  -EROFS, -ENOENT, -EACCES, -EOPNOTSUPP: it cannot be used
 *   -ETIMEDOUT  the other nodes did not join in time
 * One thread calls it, once; the functions below may be called by all threads afterwards.
 */
int dsm_init(const struct dsm_config *config);

/*
 * dsm_finalize - leave the job. Waits for the other nodes to come here too, so that no page is taken from a node
 * that still needs it. Managed memory must not be touched afterwards (SIGBUS).
 * Returns 0, or -EHOSTDOWN when a node died meanwhile (this node has left all the same).
 */
int dsm_finalize(void);

int dsm_node_id(void);    /* 0 .. dsm_node_count()-1, or -ENOTCONN */
int dsm_node_count(void); /* nodes the job was started with, or -ENOTCONN */

/* The sentence for the calling thread's last error; "" when none. Valid until its next call into this library. */
const char *dsm_errmsg(void);

/* ---- memory ------------------------------------------------------------------------------------------------- */

enum dsm_kind {
    DSM_SHARED = 0,  /* coherent between nodes, sequentially consistent. The default. */
    DSM_PRIVATE = 1, /* this process only: tiered, never sent to another node */
};

enum dsm_placement {
    DSM_PLACE_LOCAL = 0,      /* homes on the allocating node */
    DSM_PLACE_INTERLEAVE = 1, /* homes by turns of 2 MiB over all nodes */
    DSM_PLACE_NODE = 2,       /* homes on attributes.node */
};

struct dsm_attributes {
    enum dsm_kind kind;
    enum dsm_placement placement;
    int node;                 /* for DSM_PLACE_NODE */
    size_t alignment_bytes;   /* 0 or a power of two up to 2 MiB */
};

/*
 * dsm_malloc - `size_bytes` of zeroed shared memory with homes on this node, aligned to 16 bytes, or to 4 KiB
 * when at least that large. dsm_malloc_with takes attributes (NULL: the defaults).
 * dsm_calloc checks count * size for overflow. dsm_realloc keeps the contents up to the smaller size and the kind
 * of the old memory; on failure the old memory stays.
 * Returns 0, or -EINVAL (size 0, unknown attribute), -EOVERFLOW (the size cannot be a size), -ENOMEM (the window
 * is full).  Memory is taken from the tiers only when touched.
 */
int dsm_malloc(size_t size_bytes, void **ret_memory);
int dsm_malloc_with(size_t size_bytes, const struct dsm_attributes *attributes, void **ret_memory);
int dsm_calloc(size_t count, size_t size_bytes, void **ret_memory);
int dsm_realloc(void *memory, size_t size_bytes, void **ret_memory);

/*
 * dsm_free - give memory back; any node may free what any node allocated. NULL is allowed.
 * Returns 0, -EFAULT (not memory of this job), -EINVAL (not the start of an allocation, or freed already).
 */
int dsm_free(void *memory);

/* Bytes usable at `memory`, at least what was asked for. Returns 0, -EFAULT, -EINVAL as dsm_free(). */
int dsm_usable_size(const void *memory, size_t *ret_size_bytes);

/* ---- explicit reads and writes: never fault ----------------------------------------------------------------- */

#define DSM_NOWAIT 1u /* start only; wait with dsm_wait() */

/* A transfer in flight. The caller keeps it, zeroed before first use, until the wait or a true test. */
struct dsm_transfer {
    uint64_t internal[8];
};

/*
 * dsm_read / dsm_write - copy between shared memory at `address` and ordinary (or managed) memory at `buffer`.
 * Any alignment and size; each aligned 8-byte word is read or written whole, larger pieces are not atomic.
 * @flags     0, or DSM_NOWAIT with a `transfer` (otherwise NULL)
 * Returns 0 (done, or started under DSM_NOWAIT), -EFAULT (the range is not memory of this job),
 * -EIO (a page is lost). The buffer is read or written as by memcpy(): it must be valid, and stay untouched until a
 * started transfer was waited for.
 */
int dsm_read(void *buffer, const void *address, size_t size_bytes, unsigned flags, struct dsm_transfer *transfer);
int dsm_write(void *address, const void *buffer, size_t size_bytes, unsigned flags, struct dsm_transfer *transfer);

/* Result of a transfer: 0 or its error. dsm_wait also returns -ETIMEDOUT, dsm_test -EAGAIN: still in flight. */
int dsm_wait(struct dsm_transfer *transfer, uint64_t timeout_ns);
int dsm_test(struct dsm_transfer *transfer);

/* ---- locks -------------------------------------------------------------------------------------------------- */

enum dsm_lock_mode {
    DSM_LOCK_SHARED = 0,
    DSM_LOCK_EXCLUSIVE = 1,
};

/*
 * dsm_lock - lock the 4 KiB pages that [address, address + size_bytes) touches.
 * @timeout_ns  longest wait; 0 tries once, DSM_FOREVER never gives up
 * Locks belong to the calling thread, are granted in order of arrival, and do not nest; a thread may hold several
 * that do not overlap. A lock is advisory: it does not stop loads and stores.
 * Returns 0, or
 *   -EFAULT     the range is not shared memory of this job
 *   -EDEADLK    this thread holds a lock that overlaps
 *   -ETIMEDOUT  not granted in time (-EBUSY when timeout_ns is 0)
 *   -EOWNERDEAD granted, but its last holder's node died: what it guards may be half written
 *
 * dsm_unlock takes the same range. Returns 0, or -EPERM when this thread does not hold exactly it.
 */
int dsm_lock(const void *address, size_t size_bytes, enum dsm_lock_mode mode, uint64_t timeout_ns);
int dsm_unlock(const void *address, size_t size_bytes);

/*
 * Mutexes and conditions that live in shared memory and work between threads of all nodes.
 * Zeroed memory is a valid, unlocked one. Not recursive. dsm_mutex_lock returns 0, -EDEADLK (held by this
 * thread), -EFAULT (not shared memory), -EOWNERDEAD (held now; the last holder's node died).
 * dsm_mutex_trylock adds -EBUSY. dsm_mutex_unlock: 0 or -EPERM (not the holder).
 */
typedef struct dsm_mutex {
    uint64_t internal[2];
} dsm_mutex;

typedef struct dsm_cond {
    uint64_t internal[2];
} dsm_cond;

int dsm_mutex_lock(dsm_mutex *mutex);
int dsm_mutex_trylock(dsm_mutex *mutex);
int dsm_mutex_unlock(dsm_mutex *mutex);

/*
 * dsm_cond_wait releases `mutex`, sleeps until woken or `timeout_ns` passed, and takes `mutex` again.
 * Returns 0, -ETIMEDOUT, -EPERM (mutex not held), or an error of dsm_mutex_lock(). Spurious wakes are possible.
 * dsm_cond_signal wakes one waiter, dsm_cond_broadcast all; 0 or -EFAULT.
 */
int dsm_cond_wait(dsm_cond *cond, dsm_mutex *mutex, uint64_t timeout_ns);
int dsm_cond_signal(dsm_cond *cond);
int dsm_cond_broadcast(dsm_cond *cond);

/*
 * dsm_barrier - wait until one thread of every member node is here.
 * Returns 0, or -EHOSTDOWN when a node left the job while waiting (all others get that too).
 * One thread of a node at a time (-EBUSY otherwise).
 */
int dsm_barrier(void);

/* ---- 64-bit atomics ----------------------------------------------------------------------------------------- */

/*
 * Atomic with each other and with aligned 64-bit atomic operations of any node on the same word. `address` is
 * 8-byte aligned shared memory (-EINVAL, -EFAULT). The old value goes to ret_old (may be NULL).
 * Sequentially consistent. compare_swap stores `desired` when the word equals `expected`; succeeded when
 * *ret_old == expected.
 */
int dsm_atomic_load(const uint64_t *address, uint64_t *ret_value);
int dsm_atomic_store(uint64_t *address, uint64_t value);
int dsm_atomic_fetch_add(uint64_t *address, uint64_t value, uint64_t *ret_old);
int dsm_atomic_exchange(uint64_t *address, uint64_t value, uint64_t *ret_old);
int dsm_atomic_compare_swap(uint64_t *address, uint64_t expected, uint64_t desired, uint64_t *ret_old);

/* ---- hints and pins ----------------------------------------------------------------------------------------- */

/* Bring the pages of a range near, without waiting. A hint: 0, or -EFAULT for foreign memory. */
int dsm_prefetch(const void *address, size_t size_bytes);

enum dsm_advice {
    DSM_ADVISE_NORMAL = 0,     /* nothing is known: takes back what was said, walks included */
    DSM_ADVISE_SEQUENTIAL = 1, /* read in order from wherever it is touched: read ahead at once, as far as allowed */
    DSM_ADVISE_RANDOM = 2,     /* in no order: nothing is read ahead */
    DSM_ADVISE_WILL_NEED = 3,  /* soon: bring it now, as far as there is room; at most an eighth of the DDR budget */
    DSM_ADVISE_COLD = 4,       /* not soon: its pages in DDR leave first. Their bytes stay */
    DSM_ADVISE_WALK = 5,       /* will be walked page by page, after the ranges told so before; then from the first */
};

/*
 * dsm_advise - what this node's threads will do with [address, address + size_bytes), shared or private; other nodes
 * learn nothing of it. Whole pages: of a page that is partly in the range all is meant. Never waits for bytes, never
 * changes contents. The last advice on a page holds, beside its place in a walk, until dsm_free() or NORMAL.
 * Returns 0, -EFAULT (not memory of this job), -EINVAL (no such advice), -ENOSPC (SEQUENTIAL, RANDOM and WALK are kept
 * for 64 ranges at a time; neighbours that were told the same count once; parts of a walk always count).
 */
int dsm_advise(void *address, size_t size_bytes, enum dsm_advice advice);

/*
 * dsm_pin - keep the pages of a range in DDR, with write access for this node when `writable`, until dsm_unpin().
 * Needed around transfers by devices and by io_uring or O_DIRECT on shared memory: without it the result is
 * undefined. A pin ends by itself after `timeout_ns` (at most 60 s; 0 means 10 s), with a log line, so that a
 * forgotten pin cannot stop the other nodes for ever; pins show in dsm_stats().
 * Returns 0, -EFAULT, -EIO (a page is lost), -ENOMEM (more than half of the DDR budget would be pinned).
 * dsm_unpin: 0, -EINVAL (not pinned), -ETIMEDOUT (the pin had ended: the transfer may have been lost).
 */
int dsm_pin(void *address, size_t size_bytes, int writable, uint64_t timeout_ns);
int dsm_unpin(void *address, size_t size_bytes);

/* ---- names -------------------------------------------------------------------------------------------------- */

/*
 * dsm_root_set publishes a pointer under a name for all nodes (an existing name is replaced; NULL removes it).
 * dsm_root_get waits up to timeout_ns until the name exists.
 * Returns 0, -EINVAL (empty or longer than DSM_NAME_MAX), -EFAULT (not shared memory), -ENOSPC (over 1024 names),
 * -ETIMEDOUT (-ENOENT when timeout_ns is 0).
 */
int dsm_root_set(const char *name, void *memory);
int dsm_root_get(const char *name, uint64_t timeout_ns, void **ret_memory);

/* ---- figures ------------------------------------------------------------------------------------------------ */

enum dsm_tier {
    DSM_TIER_DDR = 0,
    DSM_TIER_CXL = 1,
    DSM_TIER_ZMEM = 2, /* compressed memory: the budget counts compressed bytes, so more pages lie there than it has */
    DSM_TIER_NVME = 3,
    DSM_TIERS = 4,
};

/* Where the bytes for a fault came from. */
enum dsm_source {
    DSM_FROM_ZERO = 0,    /* first touch: zeroes */
    DSM_FROM_DDR = 1,     /* the page was here, unmapped or write-protected */
    DSM_FROM_CXL = 2,
    DSM_FROM_ZMEM = 3,
    DSM_FROM_NVME = 4,
    DSM_FROM_REMOTE = 5,  /* another node's memory */
    DSM_FROM_UPGRADE = 6, /* bytes were here; write access came from the home */
    DSM_SOURCES = 7,
};

struct dsm_latency {
    uint64_t count;
    uint64_t p50_ns; /* from the handler's receipt of the fault to the wake, upper edge of the histogram bucket */
    uint64_t p99_ns;
    uint64_t max_ns;
};

/* What says which pages are brought before they are asked for (option prefetch.predictors). */
enum dsm_predictor {
    DSM_PREDICTOR_STREAMS = 0,
    DSM_PREDICTOR_TEMPORAL = 1,
    DSM_PREDICTOR_SIGNATURE = 2,
    DSM_PREDICTOR_HINTS = 3,
    DSM_PREDICTOR_AROUND = 4,
    DSM_PREDICTORS = 5,
};

/* Pages. Of runs that are mapped at once only one page is seen to be used or wasted, and speaks for the others. */
struct dsm_prediction {
    uint64_t proposed; /* to be brought; fewer were, if there was no room */
    uint64_t used;     /* touched, as far as that is seen */
    uint64_t wasted;   /* left DDR untouched, as far as that is seen */
};

#define DSM_POLICY_BYTES 16

/* All counters since dsm_init(), of this node. Grows at the end in later versions: pass sizeof(struct dsm_stats). */
struct dsm_stats {
    uint64_t tier_pages[DSM_TIERS];        /* pages that lie in each tier now */
    uint64_t tier_budget_pages[DSM_TIERS]; /* 0: the tier is not configured */
    int tier_is_emulated[DSM_TIERS];       /* 1: stands for a device this machine does not have */
    struct dsm_latency faults[DSM_SOURCES];
    uint64_t moves[DSM_TIERS][DSM_TIERS];  /* pages moved [from][to] */
    uint64_t dropped_pages;                /* clean copies dropped instead of moved */
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received;
    uint64_t invalidations;                /* pages taken from this node by others */
    uint64_t prefetched_pages, prefetch_hits, prefetch_unused; /* hits and unused: as far as it is known */
    uint64_t locks_taken, locks_cached;    /* cached: without a message */
    uint64_t poisoned_pages;
    uint64_t pinned_pages;
    uint64_t metadata_bytes;               /* all of the runtime's tables */
    uint64_t touched_pages;                /* pages with a table entry */
    uint64_t epoch;                        /* number of the current view */
    uint64_t members;                      /* bit i: node i is a member */
    uint64_t zmem_bytes;                   /* memory in use for what zmem holds, slack included */
    uint64_t zmem_filled_pages;            /* of its pages: one word over and over, which takes no such memory */
    uint64_t zmem_refused_pages;           /* so far: did not compress */
    uint64_t soft_faults;                  /* the page was in DDR, unmapped to see whether it is used */
    uint64_t hard_faults;                  /* bytes had to come from a lower tier or another node */
    uint64_t prefetch_late;                /* of prefetch_hits: was still on its way */
    uint64_t prefetch_price;               /* faults that would not have been without prefetch; estimated */
    struct dsm_prediction predictions[DSM_PREDICTORS];
    char policy[DSM_POLICY_BYTES];         /* who says which pages leave DDR (option policy) */
    char policy_choice[DSM_POLICY_BYTES];  /* of several, which it follows now; "" when it has no choice */
    uint64_t one_sided_bytes;              /* of dsm_read(): taken by RDMA, without the other node's processor */
};

/* Returns 0 or -EINVAL (size 0 or larger than this version knows). */
int dsm_stats(struct dsm_stats *ret_stats, size_t size_bytes);

/* Names for printing, e.g. "ddr", "cxl (emulated)", "zmem", "nvme"; "remote". Static strings; "?" when out of range. */
const char *dsm_tier_name(enum dsm_tier tier);
const char *dsm_source_name(enum dsm_source source);
const char *dsm_predictor_name(enum dsm_predictor predictor); /* as option prefetch.predictors has it */

#ifdef __cplusplus
}
#endif

#endif
