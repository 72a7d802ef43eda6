/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - the state of the protocol: fixed pools in one block of memory, linked by references.
 *
 * A reference is index + 1 of a pool's item, 0 for none, so that zeroed memory is a valid beginning and a world can be
 * copied with memcpy. Free items are linked through `next`.
 *
 *   request      something this node asked for (request.c; its home may be this node)
 *   errand       a page's unfinished business on this node: its requests, a recall it cannot keep yet, or both
 *   transaction  a request at its home (home.c); reads have one for themselves and helpers for recalls
 *   served       the last request of each slot of each node, so that a repeat is recognised
 *   hold         which pages were granted lately, to whom
 *   lock         a lock or a condition wait of this node (lock.c, cond.c)
 *   claim        the same at its home (lock_home.c, cond.c), in a treap ordered by (space, first unit)
 */
#ifndef TIERMESH_COHERENCE_INTERNAL_H
#define TIERMESH_COHERENCE_INTERNAL_H

#include "base/assert.h"
#include "base/random.h"
#include "coherence/coherence.h"

#include <errno.h>
#include <string.h>

#ifndef TIERMESH_MUTANT
#define TIERMESH_MUTANT 0
#endif
#define MUTANT(n)         (TIERMESH_MUTANT == (n)) /* planted bugs: docs/PROTOCOL.md */

#define READ_AHEAD        8  /* recalls a read has in flight */
#define HELPERS_COUNT     64 /* transactions reserved for recalls of reads */
#define HOLD_WAYS         4
#define ERRANDS_EXTRA_MAX 1024

#define PAGE_ASKED        1u /* a recall could not be remembered: say `again` when the pin ends */

typedef uint16_t ref16;

enum request_kind {
    REQUEST_FREE = 0,
    REQUEST_FAULT,
    REQUEST_PUT,
    REQUEST_ATOMIC,
    REQUEST_READ,
    REQUEST_READING, /* a read that is ready and not ended */
};

struct request {
    struct page_id page;
    uint64_t token, thread, serial, argument, expected;
    ref16 next;
    struct node_id home;
    uint16_t count; /* pages of a read; operation and offset of an atomic */
    uint8_t kind;   /* enum request_kind */
    uint8_t access; /* enum access */
    bool is_prefetch;
};

struct recall {
    uint64_t c; /* the requester's */
    uint32_t sequence, request;
    struct node_id home, requester;
    uint8_t type; /* MESSAGE_NONE: none */
};

struct errand {
    struct page_id page;
    uint64_t serial; /* of the message in flight; 0: none */
    uint64_t until_ns;
    struct recall recall;
    ref16 first, last;          /* requests, in order of arrival; the first is the one in the message */
    ref16 next, previous;       /* free list; list of held recalls */
    uint8_t access;             /* highest that a request wants */
    bool is_timed, is_lowering; /* waits for until_ns; waits for coherence_protected() */
    bool is_extra;              /* taken for a recall */
};

enum goal {
    GOAL_SHARED = 0,
    GOAL_EXCLUSIVE,
    GOAL_PUT,
    GOAL_ATOMIC,
    GOAL_READ,   /* a read of a range; never at the head of a page */
    GOAL_HELPER, /* makes one page of a read current */
};

enum phase {
    PHASE_QUEUED = 0,
    PHASE_READERS,
    PHASE_COLLECT,
    PHASE_CONFIRM,
    PHASE_ATOMIC,
    PHASE_DONE,
    PHASE_READ_RUNNING,
    PHASE_READ_READY,
};

struct transaction {
    struct page_id page;
    uint64_t awaited; /* nodes whose ack or report is missing */
    uint64_t source;  /* when direct: the owner, whose data may still be under way */
    uint64_t c, a, b;
    uint32_t sequence, request;
    struct node_id requester;
    ref16 next;                    /* in the page's queue; free list */
    ref16 first, last;             /* while at the head: the queue behind it */
    ref16 parent;                  /* of a helper: the read */
    ref16 newer, older;            /* of a read: list of reads at this home */
    uint16_t count, cursor, ahead; /* of a read: pages; the next to take; the next to look at */
    uint16_t helping;              /* of a read: bit i: a helper works on page cursor + i */
    uint8_t goal, phase, flags, recall;
    bool is_confirm_awaited;
    bool is_direct; /* the bytes go from owner to requester */
    bool is_requester_dead;
    bool is_doubtful; /* the owner died; does the requester have the bytes? */
    bool has_granted;
    bool was_waiting;
    bool is_used;
    bool is_running; /* home_run() or read_run() is at work on it further up the stack */
    bool is_stalled; /* a read: no helper was free */
    uint8_t pool;    /* enum pool */
};

/* Who pays for a transaction. This node's own requests always find one, so they are never refused. */
enum pool {
    POOL_SELF = 0,
    POOL_PEERS,
    POOL_HELPERS,
    POOLS,
};

struct served {
    uint64_t serial, value;
    uint32_t error;
    ref16 transaction; /* in service */
    bool is_atomic;
};

struct hold {
    struct page_id page;
    uint64_t thread, until_ns, lost_ns;
    uint8_t level;
    bool is_used;
};

enum lock_state {
    LOCK_FREE = 0,
    LOCK_WAITING,
    LOCK_HELD,
    LOCK_ZOMBIE, /* cancelled; the home has not answered */
    COND_ASKED,
    COND_REGISTERED,
    COND_CANCELLING,
    COND_WAKING,
};

struct lock {
    uint64_t first, count, token, serial;
    uint64_t next_c, next_first; /* of the promised waiter */
    uint32_t next_request, next_count;
    uint32_t next;
    struct node_id home, next_node;
    uint8_t state, space;
    bool is_exclusive, is_try, is_wanted;
    bool is_owner_dead; /* nobody heard the home say so */
};

#define SPACE_CONDS 2

enum claim_state {
    CLAIM_FREE = 0,
    CLAIM_WAITING,
    CLAIM_HELD,
    CLAIM_ORPHAN, /* its holder died; the next who gets it hears so */
    CLAIM_DEAD,   /* a waiter that died, until the view change is through */
};

struct claim {
    uint64_t first, count, serial, arrival;
    uint64_t end_max; /* largest end in this subtree */
    uint64_t priority;
    uint32_t left, right, next;
    uint32_t request;
    uint32_t promised;    /* of a holder: the waiter it was told to grant to */
    uint32_t promised_by; /* of a waiter */
    struct node_id node;
    uint64_t passed_by; /* bit of the node whose grant may still be under way */
    uint8_t space, state;
    bool is_exclusive, is_try, is_asked, is_released_early, is_owner_dead;
};

struct coherence {
    const struct coherence_env *env;
    struct coherence_limits limits;
    struct node_id self;
    struct view view;
    uint32_t since[NODES_MAX]; /* epoch in which the node last joined */
    struct random random;
    uint64_t serial, arrival;
    struct coherence_counters counters;
    uint32_t requests_offset, errands_offset, transactions_offset, served_offset, holds_offset, locks_offset;
    uint32_t claims_offset, lock_serials_offset;
    uint16_t transactions_count, errands_count, errands_extra, errands_extra_max;
    ref16 request_free, errand_free, transaction_free;
    uint16_t pool_free[POOLS];
    bool are_reads_stalled;
    ref16 timed_first;
    ref16 reads_first;
    uint32_t lock_free, claim_free, claim_root[3];
    uint32_t hold_mask;
    uint64_t deadline_ns;
};

static inline void *pool_at(const struct coherence *c, uint32_t offset, size_t size, uint32_t ref)
{
    return (char *)(uintptr_t)c + offset + size * (ref - 1);
}

static inline struct request *request_at(const struct coherence *c, uint32_t ref)
{
    return pool_at(c, c->requests_offset, sizeof(struct request), ref);
}

static inline struct errand *errand_at(const struct coherence *c, uint32_t ref)
{
    return pool_at(c, c->errands_offset, sizeof(struct errand), ref);
}

static inline struct transaction *transaction_at(const struct coherence *c, uint32_t ref)
{
    return pool_at(c, c->transactions_offset, sizeof(struct transaction), ref);
}

static inline ref16 transaction_ref(const struct coherence *c, const struct transaction *t)
{
    return (ref16)(t - transaction_at(c, 1) + 1);
}

static inline struct served *served_at(const struct coherence *c, struct node_id node, uint32_t request)
{
    return pool_at(c, c->served_offset, sizeof(struct served),
                   node.index * (uint32_t)c->limits.requests_max + request + 1);
}

static inline struct hold *hold_at(const struct coherence *c, uint32_t index)
{
    return pool_at(c, c->holds_offset, sizeof(struct hold), index + 1);
}

static inline struct lock *lock_at(const struct coherence *c, uint32_t ref)
{
    return pool_at(c, c->locks_offset, sizeof(struct lock), ref);
}

static inline struct claim *claim_at(const struct coherence *c, uint32_t ref)
{
    return pool_at(c, c->claims_offset, sizeof(struct claim), ref);
}

/* The last serial of each lock slot of each node, so that a repeated request is recognised (L7). */
static inline uint64_t *lock_serial_at(const struct coherence *c, struct node_id node, uint32_t request)
{
    return pool_at(c, c->lock_serials_offset, sizeof(uint64_t), node.index * c->limits.locks_max + request + 1);
}

static inline struct coherence_page *page_entry(const struct coherence *c, struct page_id page)
{
    return c->env->page(c->env->context, page);
}

static inline struct node_id page_home(const struct coherence *c, struct page_id page)
{
    return c->env->home_of(c->env->context, page);
}

/* The directory entry, or NULL when this node is not the home. */
static inline struct coherence_home *home_entry(const struct coherence *c, struct page_id page)
{
    return node_is(page_home(c, page), c->self) ? c->env->home(c->env->context, page) : NULL;
}

static inline uint64_t node_bit(struct node_id node)
{
    return node.index < NODES_MAX ? UINT64_C(1) << node.index : 0;
}

static inline bool node_is_member(const struct coherence *c, struct node_id node)
{
    return view_has(&c->view, node);
}

static inline uint64_t message_serial(const struct message *message)
{
    return message->c >> MESSAGE_SERIAL_SHIFT;
}

static inline void done(struct coherence *c, uint64_t token, int result, uint64_t value)
{
    c->env->done(c->env->context, token, result, value);
}

static inline void bad(struct coherence *c)
{
    c->counters.messages_bad++;
}

static inline void stale(struct coherence *c)
{
    c->counters.messages_stale++;
}

/* coherence.c: fills in from and epoch; message_send_page attaches the store's bytes of message->page. */
void message_send(struct coherence *c, struct node_id to, struct message *message);
void message_send_page(struct coherence *c, struct node_id to, struct message *message);
void page_poison(struct coherence *c, struct page_id page, struct coherence_page *entry, const char *why);

/* request.c */
void requests_init(struct coherence *c);
ref16 request_take(struct coherence *c);
void request_put(struct coherence *c, ref16 ref);
void request_granted(struct coherence *c, const struct message *message, uint64_t now_ns);
void request_refused(struct coherence *c, const struct message *message, uint64_t now_ns);
void request_finished(struct coherence *c, const struct message *message, enum request_kind kind, uint64_t now_ns);
void requests_home_died(struct coherence *c);
void requests_forget(struct coherence *c, struct page_id first, unsigned pages_count);

/* holder.c */
void errands_init(struct coherence *c);
ref16 errand_take(struct coherence *c, struct page_id page, struct coherence_page *entry, bool is_extra);
void errand_put_if_idle(struct coherence *c, ref16 ref, struct coherence_page *entry);
void holder_receive(struct coherence *c, const struct message *message, uint64_t now_ns);
int holder_take(struct coherence *c, struct page_id page, const struct recall *recall, uint64_t now_ns) MUST_USE;
void holder_protected(struct coherence *c, struct page_id page, uint64_t now_ns);
void holder_tick(struct coherence *c, uint64_t now_ns);
void holder_homes_died(struct coherence *c);
void holder_forget(struct coherence *c, struct coherence_page *entry);

/* hold.c */
void hold_begin(struct coherence *c, struct page_id page, uint64_t thread, uint64_t now_ns);
uint64_t hold_until_ns(const struct coherence *c, struct page_id page);
void hold_end(struct coherence *c, struct page_id page, uint64_t now_ns);

/* admit.c */
void home_request(struct coherence *c, const struct message *message, uint64_t now_ns);
void home_answer(struct coherence *c, const struct message *message, uint64_t now_ns);

/* home.c */
void home_init(struct coherence *c);
void home_yielded(struct coherence *c, struct page_id page, enum access left, uint64_t now_ns);
void home_run(struct coherence *c, struct transaction *t, const void *bytes, uint64_t now_ns);
void home_enqueue(struct coherence *c, struct coherence_home *home, struct transaction *t, uint64_t now_ns);
struct transaction *transaction_take(struct coherence *c, enum pool pool);
void transaction_put(struct coherence *c, struct transaction *t);
void home_lost(struct coherence *c, struct coherence_home *home, struct page_id page, const char *why);
struct transaction *home_transaction(const struct coherence *c, struct page_id page, struct coherence_home **ret_home);
void transaction_answer(struct coherence *c, const struct transaction *t, uint8_t type, uint64_t a, uint64_t b,
                        uint64_t now_ns);
void home_ask_again(struct coherence *c, struct transaction *t, struct node_id holder, uint64_t now_ns);

void served_release(struct coherence *c, const struct transaction *t);
void home_grant_poisoned(struct coherence *c, struct transaction *t);
void home_grant(struct coherence *c, struct transaction *t, struct coherence_home *home, const void *bytes,
                uint64_t now_ns);
void home_fetch(struct coherence *c, struct transaction *t, struct coherence_home *home, uint64_t now_ns);

/* view.c */
void home_members_died(struct coherence *c, uint64_t died, uint64_t now_ns);

/* atomic.c */
bool atomic_run(struct coherence *c, struct transaction *t, struct coherence_home *home, uint64_t now_ns);

/* read.c */
void read_begin(struct coherence *c, struct transaction *t, uint64_t now_ns);
void read_run(struct coherence *c, struct transaction *t, uint64_t now_ns);
void read_helped(struct coherence *c, ref16 parent, struct page_id page, int error, uint64_t now_ns);
void read_end(struct coherence *c, struct node_id reader, uint32_t request, uint64_t serial, uint64_t now_ns);
void read_forget(struct coherence *c, struct transaction *t, uint64_t now_ns);

/* lock.c, cond.c: the node's half */
void locks_init(struct coherence *c);
uint32_t lock_take(struct coherence *c);
void lock_put(struct coherence *c, uint32_t ref);
struct lock *lock_match(struct coherence *c, const struct message *message);
uint32_t lock_by_token(const struct coherence *c, uint64_t token, bool is_cond);
void lock_receive(struct coherence *c, const struct message *message);
void locks_view_changed(struct coherence *c);
void cond_receive(struct coherence *c, const struct message *message);

/* lock_home.c, claims.c, cond.c: the home's half */
void lock_home_receive(struct coherence *c, const struct message *message);
bool lock_serial_is_new(struct coherence *c, const struct message *message);
void lock_home_view_changed(struct coherence *c);
void cond_home_receive(struct coherence *c, const struct message *message);
void claims_init(struct coherence *c);
uint32_t claim_take(struct coherence *c);
void claim_insert(struct coherence *c, uint32_t ref);
void claim_remove(struct coherence *c, uint32_t ref);
/* The first claim of `space` after `after` (0: the first) in the order of the tree that overlaps the range. */
uint32_t claim_overlapping(const struct coherence *c, uint8_t space, uint64_t first, uint64_t count, uint32_t after);
uint32_t claim_find(const struct coherence *c, uint8_t space, uint64_t first, uint64_t count, struct node_id node,
                    uint32_t request, uint64_t serial);

#endif
