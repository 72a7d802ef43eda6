/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared_slots.h - the slots of a store that several processes share: counts in memory that all of them map.
 *
 * The *table* has a word for each slot: how many accounts hold it, and a tag. The *account* of a process has a bit for
 * each slot: it holds it. A process changes its own account only (and, before a fork, the account of the child that
 * does not run yet); whoever outlives the process (the broker) gives back what a finished process's account holds.
 *
 * What always holds, also when a process is killed between any two instructions:
 *   S1. A word without a tag counts exactly the accounts whose bit is set. A slot is free when its word is 0.
 *   S2. An account's bit changes only while the slot's word carries the account's tag. The tag says whether the account
 *       is being added to the count or taken out of it; the count beside it is still the old one.
 *   S3. An account's tags lie within the range that the account names as busy before the first of them is set.
 * So a killed process leaves nothing in doubt: what carries its tag is settled as "does not hold it" (the count
 * decreases if the tag says that it was being taken out), every other bit of its account is one of the count.
 * A tag keeps other processes from this slot's word for a few instructions; nobody waits for one without a bound.
 */
#ifndef TIERMESH_TIERS_SHARED_SLOTS_H
#define TIERMESH_TIERS_SHARED_SLOTS_H

#include "base/types.h"

#include <stdatomic.h>

#define SLOT_HOLDERS_MAX    0xffffu /* accounts that hold one slot */
#define SLOT_ACCOUNT_ID_MAX 0x3fffu /* ids count from 1 */
#define SLOT_CHUNK          4096u   /* slots that a process takes from, one after the other */
#define SLOTS_DEFERRED_MAX  64u

struct slot_table {
    uint64_t magic;
    uint32_t capacity;        /* words there are */
    _Atomic(uint32_t) count;  /* slots that can be taken: those below; changed by the broker */
    _Atomic(uint32_t) cursor; /* chunks given out so far */
    _Atomic(uint32_t) window; /* chunks in play, so that memory for words follows use */
    _Atomic(uint32_t) used;   /* slots in use; off by what killed processes were about, until the next recount */
    _Atomic(uint32_t) freed;  /* grows with each slot that becomes free */
    _Alignas(64) _Atomic(uint32_t) words[];
};

struct slot_account {
    uint32_t id;
    uint32_t capacity;
    _Atomic(uint32_t) is_busy;
    _Atomic(uint32_t) busy_first, busy_end;
    _Atomic(uint32_t) high; /* bits at or above were never set; in units of 64 */
    _Atomic(uint32_t) held_count;
    _Alignas(64) _Atomic(uint64_t) held[];
};

size_t slot_table_bytes(uint32_t capacity);
size_t slot_account_bytes(uint32_t capacity);
/* In zeroed memory. */
void slot_table_init(struct slot_table *table, uint32_t capacity, uint32_t count);
void slot_account_init(struct slot_account *account, uint32_t capacity, uint32_t id);
/* What another process says is a table or account of this size: 0 or -EPROTO. */
int slot_table_check(const struct slot_table *table, size_t size_bytes) MUST_USE;
int slot_account_check(const struct slot_account *account, const struct slot_table *table, size_t size_bytes) MUST_USE;

/* ---- a process ----------------------------------------------------------------------------------------------------
 */

/* The process's own side: run by one thread. */
struct shared_slots {
    struct slot_table *table;
    struct slot_account *account;
    uint32_t chunk;
    uint32_t at, end;    /* what is left of the chunk */
    uint32_t freed_seen; /* nothing was free when `freed` was this */
    bool is_full;
    uint32_t deferred_count;
    uint32_t deferred[SLOTS_DEFERRED_MAX]; /* to be put when another process is done with their words */
};

void shared_slots_open(struct shared_slots *slots, struct slot_table *table, struct slot_account *account);
/* After a fork, in the child: go on with its own account. */
void shared_slots_change(struct shared_slots *slots, struct slot_account *account);
/* Up to `wanted` consecutive slots; how many, 0: none is free. */
uint32_t shared_slots_take(struct shared_slots *slots, uint32_t wanted, uint32_t *ret_first);
void shared_slots_put(struct shared_slots *slots, uint32_t slot);
bool shared_slots_are_held(const struct shared_slots *slots, uint32_t first, uint32_t count); /* all of them */
uint32_t shared_slots_free(const struct shared_slots *slots);                                 /* of the store, about */
uint32_t shared_slots_max(const struct shared_slots *slots);                                  /* of the store */
uint32_t shared_slots_held(const struct shared_slots *slots);                                 /* by this process */
uint32_t shared_slots_reach(const struct shared_slots *slots); /* one more than the highest ever held, about */

/*
 * `to`, a fresh account that nobody uses yet, holds what `from` holds. -EAGAIN: a slot is held by too many, or another
 * process does not come to an end with one: slot_account_release(to) then undoes it.
 */
int slot_account_clone(struct slot_table *table, const struct slot_account *from, struct slot_account *to) MUST_USE;

/* ---- the broker: believes nothing that it reads there --------------------------------------------------------------
 */

/*
 * The process of this account is gone: give back what it holds. Returns how many slots it held.
 * *ret_is_certain false: it was in the middle of something, so that slot_table_recount() is due.
 */
uint32_t slot_account_release(struct slot_table *table, struct slot_account *account, uint32_t capacity, uint32_t id,
                              bool *ret_is_certain);
uint32_t slot_account_count(const struct slot_account *account, uint32_t capacity);
/* Another number of slots; those above that are held stay so. slot_table_high() says when none is. */
void slot_table_resize(struct slot_table *table, uint32_t count);
/* Sets `used` right again, up to what others do meanwhile. Returns it. */
uint32_t slot_table_recount(struct slot_table *table, uint32_t capacity);
/* One more than the highest slot in use, or that is being taken. */
uint32_t slot_table_high(const struct slot_table *table, uint32_t capacity);

#endif
