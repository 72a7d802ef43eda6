/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.h - a cluster in one process: the shipped coherence/ code over a simulated fabric, clock, memory and
 * processors.
 *
 * Everything comes from one seed through two generators (workload, faults), so that changing one does not reshuffle
 * the other. The world is one flat block of memory with indexes instead of pointers; the few pointers in it (env
 * tables) point into the block itself, so the explorer saves a world by memcpy and restores it to the same address.
 *
 * What is simulated stays inside the contracts: fabric/fabric.h (F1 .. F7) and coherence/env.h. `check` functions look
 * at the world from outside, after every step, and know the truth (`ghost`) that no node knows.
 */
#ifndef TIERMESH_TESTS_SIM_WORLD_H
#define TIERMESH_TESTS_SIM_WORLD_H

#include "base/random.h"
#include "base/types.h"
#include "coherence/coherence.h"

/* The explorer is built with smaller worlds. */
#ifndef WORLD_NODES_MAX
#define WORLD_NODES_MAX    10
#define WORLD_EXTENTS_MAX  6
#define WORLD_EXTENT_PAGES 4
#define WORLD_THREADS_MAX  40
#define WORLD_MESSAGES_MAX 8192
#define WORLD_EVENTS_MAX   16384
#define WORLD_TOKENS_MAX   1024
#define WORLD_SENDS_MAX    512
#define WORLD_HELD_MAX     32
#define WORLD_DEATHS_MAX   64
#endif

#define WORLD_PAGES_MAX (WORLD_EXTENTS_MAX * WORLD_EXTENT_PAGES)
#define WORLD_LOCKS     8 /* lock ranges that the threads use */
#define WORLD_WORDS     2 /* condition words */
#define CONTENT_WORDS   8 /* word 0 is for stores, the others for atomics */
#define CONTENT_BYTES   (CONTENT_WORDS * 8)
#define TRACE_MAX       256
#define PLANES_COUNT    2
#define NS_PER_US       1000U
#define NS_PER_MS       1000000U

/* The bytes of a page that mean something; on the wire the page is filled with copies of them. */
struct content {
    uint64_t words[CONTENT_WORDS];
};

/* ---- the fabric -------------------------------------------------------------------------------------------------- */

struct message_slot {
    uint8_t header[MESSAGE_HEADER_BYTES];
    struct content content;
    uint16_t has_bytes;
    uint16_t next; /* index + 1 in the channel's queue or in the free list */
};

/* One direction between two nodes on one plane: a queue (F2). */
struct channel {
    uint64_t last_ns;    /* when the youngest message arrives: the next one does not arrive before */
    uint64_t stalled_ns; /* a cut: nothing arrives before this time, nothing is lost (F4) */
    uint16_t first, last;
    uint16_t count;
};

/* A send_page() that waits for a slow tier. */
struct deferred_send {
    uint8_t header[MESSAGE_HEADER_BYTES];
    struct content content; /* as it was when send_page() was called */
    uint16_t page;
    uint16_t from, to;
    uint16_t used;
};

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* A node's copy of a page, and what its threads may do with it. */
struct frame {
    struct content content;
    uint8_t rights; /* enum access */
    bool is_present;
    bool is_lost;      /* the tier cannot read it any more */
    bool is_reporting; /* ... and the protocol does not know it yet */
    bool is_slow;      /* in a slow tier: reading it takes time */
    bool is_poisoned;
    bool is_protecting; /* a protect() waits for pins */
    uint8_t protect_access;
    bool drop_wanted;
    uint16_t pins;
    uint16_t sends; /* deferred sends of this page */
};

/* A lock this node owns. */
struct held_lock {
    uint32_t number;
    uint8_t used;
    uint8_t lock; /* index into world->locks */
    uint8_t is_exclusive;
    uint8_t is_wanted;
    uint8_t users;
    uint8_t user_exclusive;
    uint16_t padding;
};

struct sim_node {
    struct world *world;
    struct coherence *coherence;
    struct coherence_env env;
    uint64_t clock_ns;
    uint16_t index;
    bool is_alive;
    struct view view;
    struct coherence_page pages[WORLD_PAGES_MAX];
    struct frame frames[WORLD_PAGES_MAX];
    struct held_lock held[WORLD_HELD_MAX];
};

/* ---- processors -------------------------------------------------------------------------------------------------- */

enum operation {
    OPERATION_LOAD,
    OPERATION_STORE,
    OPERATION_LOAD_TWO,
    OPERATION_STORE_TWO,
    OPERATION_MOVE, /* loads one page, stores to another, in one instruction */
    OPERATION_COPY, /* a copy into or out of several pages, each under a pin */
    OPERATION_READ, /* coherence_read() of several pages */
    OPERATION_ATOMIC,
    OPERATION_LOCK,
    OPERATION_PRODUCE,
    OPERATION_CONSUME,
    OPERATION_EVICT,
    OPERATION_PREFETCH,
    OPERATION_PIN,
    OPERATIONS,
};

enum thread_state {
    THREAD_DONE,
    THREAD_RUNNABLE, /* an EVENT_THREAD is scheduled */
    THREAD_FAULTING, /* until rights of `wait_page` rise or it is poisoned, or the request fails */
    THREAD_RETRYING, /* the protocol had no room: until the node's next done() */
    THREAD_WAITING,  /* for done() of `token` */
    THREAD_LOCAL,    /* for a lock that another thread of this node uses */
    THREAD_DEAD,
};

struct thread {
    uint8_t node;
    uint8_t state;
    uint8_t operation;
    uint8_t stage;
    uint8_t is_store;
    uint8_t is_exclusive;
    uint8_t lock;
    uint8_t held; /* index + 1 of the held lock in use */
    uint16_t pages[2];
    uint16_t pages_count;
    uint16_t wait_page;
    uint16_t token; /* index + 1 */
    uint16_t audit; /* next page of the final audit, + 1 */
    int32_t result;
    uint64_t value;
    uint64_t started_ns;
    uint32_t left;   /* operations until done */
    uint32_t faults; /* of this operation */
};

enum token_kind {
    TOKEN_FREE = 0,
    TOKEN_FAULT,
    TOKEN_PREFETCH,
    TOKEN_THREAD, /* the thread waits in THREAD_WAITING */
    TOKEN_COND,   /* a condition wait that is not signalled yet */
};

struct token {
    uint8_t kind;
    uint8_t is_finished; /* done() came; the owner has not looked yet */
    uint8_t is_registered;
    uint8_t is_timed;
    uint16_t node;
    uint16_t thread;
    uint16_t page;
    uint16_t generation;
    int32_t result;
    uint64_t value;
};

struct lock_range {
    uint8_t space;
    uint8_t count;
    uint16_t page; /* a page of the range's extent */
    uint64_t first;
};

/* A lock that a node owned when it died: its next exclusive owner must hear -EOWNERDEAD. */
struct ghost_death {
    uint16_t node;
    uint8_t lock;
    uint8_t used;
};

/* ---- what is true, whatever the nodes think -----------------------------------------------------------------------
 */

struct ghost_page {
    struct content content;           /* the page's last write */
    bool may_be_lost;                 /* a crash or a disk error may have taken its last version */
    uint64_t started[CONTENT_WORDS];  /* additions asked for */
    uint64_t applied[CONTENT_WORDS];  /* additions made at the home */
    uint64_t finished[CONTENT_WORDS]; /* additions reported */
    uint64_t old_sum[CONTENT_WORDS];  /* of the old values reported */
};

/* ---- time and chance ----------------------------------------------------------------------------------------------
 */

enum event_kind {
    EVENT_DELIVER,      /* the first message of channel `index` */
    EVENT_THREAD,       /* thread `index` runs */
    EVENT_SEND,         /* deferred send `index` has its bytes */
    EVENT_PROTECTED,    /* page `index` */
    EVENT_ATOMIC_READY, /* page `index` */
    EVENT_UNPIN,        /* page `index` */
    EVENT_TIMEOUT,      /* token `index` */
    EVENT_LOST,         /* page `index` */
    EVENT_VIEW,
    EVENT_CHAOS,
    EVENT_TICK, /* not in the heap: a node's deadline */
};

struct event {
    uint64_t time_ns;
    uint32_t sequence;
    uint8_t kind;
    uint8_t node;
    uint16_t index;
};

/* What a seed decides about a world: the swarm. Any fault kind may be off. */
struct settings {
    uint16_t nodes_count, extents_count, extent_pages, threads_count;
    uint16_t crashes_max;
    uint32_t delay_ns_min, delay_ns_max;
    uint32_t spike_permille, spike_ns_max; /* single messages held back */
    uint32_t repeat_permille;              /* messages that arrive again later (P15) */
    uint32_t stall_permille, stall_ns_max; /* cuts and one-sided partitions, by chaos event */
    uint32_t crash_permille;
    uint32_t lost_permille;
    uint32_t slow_permille, slow_ns_max;
    uint32_t pin_ns_max;
    uint32_t timeout_permille; /* lock requests given up */
    uint32_t chaos_ns;
    uint32_t think_ns_max;
    uint32_t wake_ns_max; /* from install() to the thread's next instruction */
    uint32_t hot_pages;   /* operations choose among this many pages */
    uint32_t keep_lock_permille;
    uint16_t weights[OPERATIONS];
    struct coherence_limits limits;
};

enum trace_kind {
    TRACE_EVENT,
    TRACE_SEND,
    TRACE_RECEIVE,
    TRACE_INSTALL,
    TRACE_PROTECT,
    TRACE_STORE,
    TRACE_DROP,
    TRACE_POISON,
    TRACE_ATOMIC,
    TRACE_DONE,
    TRACE_WANTED,
    TRACE_CALL,
    TRACE_FAULT, /* of the world: crash, stall, loss */
};

struct trace {
    uint64_t time_ns;
    uint32_t step;
    uint8_t kind, node, peer, type;
    uint16_t page;
    uint16_t flags;
    int16_t requester;
    uint32_t sequence, request, epoch, credit;
    int64_t a;
    uint64_t b;
    const char *text;
};

/* Bugs of the environment planted by option, for checkers that no bug of coherence/ can trip. */
enum world_mutant {
    WORLD_MUTANT_NONE = 0,
    WORLD_MUTANT_STALE_BYTES = 1,  /* send_page() sends the version before the last */
    WORLD_MUTANT_LATE_PROTECT = 2, /* protect() reports done, rights stay */
    WORLD_MUTANT_LOSE_MESSAGE = 3, /* one message is lost inside a live connection */
    WORLD_MUTANT_ATOMIC_TWICE = 4, /* an atomic is applied twice */
    WORLD_MUTANT_DROP_EARLY = 5,   /* drop() takes effect before the sends in flight */
    WORLD_MUTANT_KEEP_LOCK = 6,    /* a thread keeps using a lock it gave back */
    WORLD_MUTANT_LOSE_DONE = 7,    /* the answer to a prefetch, for which nobody waits, is lost */
    WORLD_MUTANT_LOSE_SHARER = 8,  /* at the end the directory forgets who shares a page */
    WORLD_MUTANTS,
};

struct world {
    /* What the explorer compares. Channels and messages are compared in queue order, not as they lie. */
    struct settings settings;
    struct sim_node nodes[WORLD_NODES_MAX];
    struct coherence_home homes[WORLD_PAGES_MAX];
    uint16_t home_nodes[WORLD_EXTENTS_MAX];
    struct thread threads[WORLD_THREADS_MAX];
    struct token tokens[WORLD_TOKENS_MAX];
    struct deferred_send sends[WORLD_SENDS_MAX];
    struct ghost_page ghosts[WORLD_PAGES_MAX];
    struct ghost_death deaths[WORLD_DEATHS_MAX];
    uint64_t asked[WORLD_NODES_MAX]; /* bit l: the node asked for lock l once */
    struct lock_range locks[WORLD_LOCKS];
    int64_t items[WORLD_WORDS]; /* produced, not consumed */
    uint64_t stamps[WORLD_THREADS_MAX];
    struct view view;
    uint16_t crashes;
    bool is_exploring;
    bool keeps_dead; /* exploring: all that a dying node sent still arrives; else none of it */
    bool is_healed;  /* phase 2: no more faults, every operation must end */
    bool is_ending;  /* nobody will signal a condition any more */

    struct channel channels[WORLD_NODES_MAX][WORLD_NODES_MAX][PLANES_COUNT];
    struct message_slot messages[WORLD_MESSAGES_MAX];
    uint16_t messages_free; /* index + 1 */
    struct event events[WORLD_EVENTS_MAX];
    uint32_t events_count;

    /* What the explorer does not compare. */
    uint64_t seed;
    struct random workload, faults;
    uint64_t now_ns;
    uint64_t healed_ns;
    uint64_t operation_ns_max; /* longest operation in phase 2 */
    uint32_t step, steps_max;
    uint32_t event_sequence;
    uint32_t mutant;
    void (*next_operation)(struct world *world, struct thread *thread); /* while exploring, instead of drawing */
    uint64_t operations_done[OPERATIONS];
    uint64_t messages_sent;
    bool is_evil; /* nodes also send messages that make no sense; then nobody promises anything but to live */
    bool is_failed;
    bool is_verbose;
    const char *checker;
    char failure[256];
    size_t coherence_bytes; /* of each of the coherence blocks that follow the world */
    size_t size_bytes;      /* of all */

    /* What the explorer does not even save. */
    uint32_t traces_count;
    struct trace traces[TRACE_MAX];
    _Alignas(64) uint8_t end;
};

#define OPERATION_NS_BOUND 1000000000U /* an operation of phase 2 must end within this virtual time */

/* world.c */
void world_settings_draw(struct settings *settings, uint64_t seed);
struct world *world_create(const struct settings *settings, uint64_t seed);
void world_start(struct world *world);
void world_destroy(struct world *world);
void world_schedule(struct world *world, uint64_t delay_ns, enum event_kind kind, unsigned node, unsigned index);
bool world_next(struct world *world, struct event *ret_event);
void world_execute(struct world *world, const struct event *event);
bool world_step(struct world *world);
void world_run(struct world *world, uint32_t steps_max);
uint64_t world_now(const struct world *world, unsigned node);
uint32_t world_draw(struct world *world, uint32_t bound);       /* workload */
uint32_t world_fault_draw(struct world *world, uint32_t bound); /* faults; 0 while exploring */
bool world_fault_chance(struct world *world, uint32_t permille);
void world_fail(struct world *world, const char *checker, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

unsigned world_pages_count(const struct world *world);
struct page_id world_page_id(const struct world *world, unsigned page);
bool world_page_find(const struct world *world, struct page_id id, unsigned *ret_page);
unsigned world_page_home(const struct world *world, unsigned page);

/* trace.c */
void trace_add(struct world *world, const struct trace *trace);
void trace_note(struct world *world, enum trace_kind kind, unsigned node, unsigned page, int64_t a, uint64_t b,
                const char *text);
void trace_message(struct world *world, enum trace_kind kind, unsigned node, unsigned peer,
                   const struct message *message);
void trace_print(const struct world *world, unsigned last);

/* net.c */
void net_init(struct world *world);
void net_send(struct world *world, unsigned from, unsigned to, unsigned plane, const uint8_t *header,
              const struct content *content);
void net_peek(const struct world *world, unsigned slot, struct message *ret_message);
void net_deliver(struct world *world, unsigned channel);
struct channel *net_channel(struct world *world, unsigned index);
void net_stall(struct world *world);
void net_heal(struct world *world);
void net_cut_dead(struct world *world, unsigned dead);
void net_forget_dead(struct world *world, unsigned node, unsigned dead);

/* memory.c */
void memory_env(struct sim_node *node);
void memory_send_ready(struct world *world, unsigned send);
void memory_pin(struct world *world, unsigned node, unsigned page);
void memory_unpin(struct world *world, unsigned node, unsigned page);
void memory_lose(struct world *world, unsigned node, unsigned page);
void memory_lost(struct world *world, unsigned node, unsigned page);
int memory_atomic(struct world *world, unsigned node, unsigned page, const struct message *operation,
                  uint64_t *ret_old);

/* tokens.c */
struct token *token_new(struct world *world, enum token_kind kind, unsigned thread, unsigned page);
uint64_t token_value(const struct world *world, const struct token *token);
void token_free(struct token *token);
void token_done(struct world *world, unsigned node, uint64_t value, int result, uint64_t answer);

/* processor.c */
void processor_start(struct world *world);
void processor_run(struct world *world, unsigned thread);
void processor_wake(struct world *world, unsigned thread, uint32_t delay_ns_max);
void processor_wake_page(struct world *world, unsigned node, unsigned page);
void processor_wake_retrying(struct world *world, unsigned node);
void processor_finish(struct world *world, unsigned thread);
bool processor_need(struct world *world, unsigned thread, unsigned page, enum access access);
void processor_load(struct world *world, unsigned thread, unsigned page);
void processor_store(struct world *world, unsigned thread, unsigned page);
void processor_end(struct world *world);
void processor_crash(struct world *world, unsigned node);

/* calls.c: operations that call the protocol explicitly */
void call_copy(struct world *world, unsigned thread);
void call_read(struct world *world, unsigned thread);
void call_atomic(struct world *world, unsigned thread);
void call_produce(struct world *world, unsigned thread);
void call_consume(struct world *world, unsigned thread);
void call_evict(struct world *world, unsigned thread);
void call_prefetch(struct world *world, unsigned thread);
void call_pin(struct world *world, unsigned thread);

/* locking.c */
void locking_run(struct world *world, unsigned thread);
void locking_granted(struct world *world, unsigned thread, int result, uint32_t number);
bool locking_wanted(struct world *world, unsigned node, uint32_t number);
void locking_timeout(struct world *world, unsigned token);
void locking_crash(struct world *world, unsigned node);

/* faults.c */
void faults_chaos(struct world *world);
void faults_crash(struct world *world, unsigned node);
void faults_view(struct world *world, unsigned node);
void faults_heal(struct world *world);

/* check_*.c: one promise each */
void check_writers(struct world *world, unsigned node, unsigned page);
void check_writers_atomic(struct world *world, unsigned node, unsigned page);
void check_writers_all(struct world *world);
void check_reads(struct world *world, unsigned node, unsigned page, const struct content *content);
void check_lost_poison(struct world *world, unsigned node, unsigned page, const char *why);
void check_locks_grant(struct world *world, unsigned node, unsigned held, int result);
void check_locks_use(struct world *world, unsigned node, unsigned held);
void check_atomics_applied(struct world *world, unsigned page, unsigned word);
void check_atomics_finished(struct world *world, unsigned page, unsigned word, uint64_t old);
void check_atomics_all(struct world *world);
void check_directory(struct world *world);
void check_leaks(struct world *world);
void check_progress_operation(struct world *world, unsigned thread);
void check_progress_waiting(struct world *world);
void check_progress_end(struct world *world);

#endif
