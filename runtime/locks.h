/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locks.h - locks of threads, over the node-level locks of the coherence protocol.
 *
 * The node takes a lock from its home once and keeps it while nobody else wants it; threads of the node take turns on
 * the cached lock without a message. When another node wants it, the present holder's unlock gives it away, even if
 * threads of this node wait: they ask again, behind the other node.
 */
#ifndef TIERMESH_RUNTIME_LOCKS_H
#define TIERMESH_RUNTIME_LOCKS_H

#include "runtime/request.h"

#define LOCKS_MAX 4096        /* cached, held or asked for by this node */
#define LOCKS_HELD_MAX 64     /* by one thread */

struct lock_entry;

struct lock_key {
    enum lock_space space;
    bool is_exclusive;
    uint64_t first, count;
};

int locks_create(struct node *node, struct lock_table **ret_table) MUST_USE;
void locks_destroy(struct lock_table *table);

/* Application threads. timeout_ns 0 tries once. 0, -EDEADLK, -EBUSY, -ETIMEDOUT, -EOWNERDEAD, -EHOSTDOWN, -ENOLCK. */
int locks_take(struct node *node, const struct lock_key *key, uint64_t timeout_ns) MUST_USE;
int locks_put(struct node *node, enum lock_space space, uint64_t first, uint64_t count) MUST_USE;
bool locks_is_held(enum lock_space space, uint64_t first, uint64_t count);

/* Conditions; `word` is an address in the window divided by 8. */
int locks_cond_wait(struct node *node, uint64_t word, const struct lock_key *mutex, uint64_t timeout_ns) MUST_USE;
int locks_cond_wake(struct node *node, uint64_t word, bool all) MUST_USE;

/* The shard: the protocol's answers. */
void locks_granted(struct node *node, struct lock_entry *entry, int result, uint32_t number);
/* Another node wants the lock. true: it is in use and will be released; false: it was idle and is forgotten now. */
bool locks_wanted(struct node *node, uint32_t number);
void locks_cond_event(struct request *request, int result, uint64_t value);

void locks_counters(const struct lock_table *table, uint64_t *ret_taken, uint64_t *ret_cached);

#endif
