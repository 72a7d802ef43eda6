/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locks.c - taking, handing on and giving back cached locks.
 *
 * Application threads and the shard meet under a bucket's mutex; nothing is called out to while it is held. The
 * protocol is never called from its own callbacks: what they cause is posted to the loop (struct lock_entry.call).
 *
 *   FREE --first thread--> ASKED --granted--> OWNED --wanted, unheld--> RELEASING --> FREE, or ASKED when threads wait
 */
#include "runtime/locks.h"
#include "base/error.h"
#include "base/os.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define BUCKETS 256

enum entry_state {
    ENTRY_FREE = 0,
    ENTRY_ASKED,
    ENTRY_OWNED,
    ENTRY_RELEASING,
};

/* A thread that sleeps; on its stack. */
struct lock_waiter {
    struct lock_waiter *next;
    _Atomic(uint32_t) done; /* stored with release after result, loaded with acquire by the sleeper */
    int result;
    bool waits; /* false: a try */
};

struct lock_entry {
    struct loop_call call; /* ask or release on the shard; at most one is posted, by the state's change */
    struct loop_call cancel_call;
    struct node *node;
    struct lock_key key;
    enum entry_state state;
    uint32_t number;      /* the protocol's; while OWNED or RELEASING */
    uint32_t holders;
    bool is_wanted;       /* another node waits */
    _Atomic(bool) cancel_is_posted; /* survives the entry's reuse: a late cancel only has a request asked again */
    bool waits_never;      /* only tries wait: the protocol must not queue it */
    bool owner_died;      /* told to the next holder */
    struct lock_waiter *waiters, **waiters_end;
    struct lock_entry *next; /* in its bucket, or on the free list */
};

/* Lock order: bucket, then free_mutex. */
struct lock_bucket {
    pthread_mutex_t mutex;
    struct lock_entry *first;
    uint64_t taken, cached;
};

struct lock_table {
    struct lock_bucket buckets[BUCKETS];
    pthread_mutex_t free_mutex;
    struct lock_entry *free;                 /* free_mutex */
    struct lock_entry *by_number[LOCKS_MAX]; /* the shard's */
    struct lock_entry entries[LOCKS_MAX];
};

/* What the calling thread holds: one for each piece of a lock that crosses extents. */
struct held_lock {
    struct lock_key key;
    uint64_t whole_first, whole_count; /* as the caller named it */
    struct lock_entry *entry;
};

static _Thread_local struct {
    unsigned count;
    struct held_lock locks[LOCKS_HELD_MAX];
} held;

/* ---- the calling thread's own locks ---------------------------------------------------------------------------- */

static bool held_overlaps(const struct lock_key *key)
{
    for (unsigned i = 0; i < held.count; i++) {
        const struct lock_key *other = &held.locks[i].key;

        if (other->space == key->space && key->first < other->first + other->count &&
            other->first < key->first + key->count)
            return true;
    }
    return false;
}

static struct held_lock *held_find(enum lock_space space, uint64_t first, uint64_t count)
{
    for (unsigned i = 0; i < held.count; i++) {
        struct held_lock *lock = &held.locks[i];

        if (lock->key.space == space && lock->whole_first == first && lock->whole_count == count)
            return lock;
    }
    return NULL;
}

bool locks_is_held(enum lock_space space, uint64_t first, uint64_t count)
{
    return held_find(space, first, count) != NULL;
}

/* ---- entries --------------------------------------------------------------------------------------------------- */

static struct lock_bucket *bucket_of(struct lock_table *table, const struct lock_key *key)
{
    uint64_t hash = (key->first ^ key->count << 40 ^ (uint64_t)key->space << 60) * 0x9e3779b97f4a7c15U;

    return &table->buckets[hash >> 56];
}

static bool key_is(const struct lock_key *a, const struct lock_key *b)
{
    return a->first == b->first && a->count == b->count && a->space == b->space && a->is_exclusive == b->is_exclusive;
}

static struct lock_entry *entry_find(struct lock_bucket *bucket, const struct lock_key *key)
{
    struct lock_entry *entry = bucket->first;

    while (entry != NULL && !key_is(&entry->key, key))
        entry = entry->next;
    return entry;
}

static struct lock_entry *entry_take(struct lock_table *table, struct lock_bucket *bucket, const struct lock_key *key)
{
    struct lock_entry *entry;

    pthread_mutex_lock(&table->free_mutex);
    entry = table->free;
    if (entry != NULL)
        table->free = entry->next;
    pthread_mutex_unlock(&table->free_mutex);
    if (entry == NULL)
        return NULL;
    entry->key = *key;
    entry->state = ENTRY_ASKED;
    entry->holders = 0;
    entry->is_wanted = entry->waits_never = entry->owner_died = false;
    entry->waiters = NULL;
    entry->waiters_end = &entry->waiters;
    entry->next = bucket->first;
    bucket->first = entry;
    return entry;
}

static void entry_put(struct lock_table *table, struct lock_bucket *bucket, struct lock_entry *entry)
{
    struct lock_entry **at = &bucket->first;

    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    entry->state = ENTRY_FREE;
    pthread_mutex_lock(&table->free_mutex);
    entry->next = table->free;
    table->free = entry;
    pthread_mutex_unlock(&table->free_mutex);
}

static void waiter_wake(struct lock_waiter *waiter, int result)
{
    waiter->result = result;
    atomic_store_explicit(&waiter->done, 1, memory_order_release);
    os_futex_wake(&waiter->done, 1, false);
}

/* Fails those that wait; when `tries_only`, those that were willing to wait stay. */
static void waiters_fail(struct lock_entry *entry, int result, bool tries_only)
{
    struct lock_waiter **at = &entry->waiters;

    while (*at != NULL) {
        struct lock_waiter *waiter = *at;

        if (tries_only && waiter->waits) {
            at = &waiter->next;
            continue;
        }
        *at = waiter->next;
        waiter_wake(waiter, result);
    }
    entry->waiters_end = at;
}

/* Hands the owned, free lock to whoever waits first; all that wait when it is shared. */
static void entry_hand_on(struct lock_entry *entry)
{
    while (entry->waiters != NULL && (entry->holders == 0 || !entry->key.is_exclusive)) {
        struct lock_waiter *waiter = entry->waiters;
        int result = entry->owner_died ? -EOWNERDEAD : 0;

        entry->waiters = waiter->next;
        if (entry->waiters == NULL)
            entry->waiters_end = &entry->waiters;
        entry->owner_died = false;
        entry->holders++;
        waiter_wake(waiter, result);
    }
}

/* ---- on the shard, posted -------------------------------------------------------------------------------------- */

static void entry_ask(struct lock_entry *entry)
{
    struct node *node = entry->node;
    struct lock_key *key = &entry->key;
    int error = coherence_lock(node->coherence, key->space, key->first, key->count, key->is_exclusive,
                               !entry->waits_never, (uint64_t)(uintptr_t)entry | TOKEN_LOCK, os_now_ns());

    if (error != 0)
        locks_granted(node, entry, error, 0);
}

static void call_ask(struct loop_call *call)
{
    entry_ask(CONTAINER_OF(call, struct lock_entry, call));
}

static void call_cancel(struct loop_call *call)
{
    struct lock_entry *entry = CONTAINER_OF(call, struct lock_entry, cancel_call);

    atomic_store(&entry->cancel_is_posted, false);
    coherence_lock_cancel(entry->node->coherence, (uint64_t)(uintptr_t)entry | TOKEN_LOCK, os_now_ns());
}

/* Given back to the home; threads that wait here ask anew. */
static void call_release(struct loop_call *call)
{
    struct lock_entry *entry = CONTAINER_OF(call, struct lock_entry, call);
    struct lock_table *table = entry->node->locks;
    struct lock_bucket *bucket = bucket_of(table, &entry->key);
    bool asks_again;

    table->by_number[entry->number] = NULL;
    coherence_lock_release(entry->node->coherence, entry->number, os_now_ns());
    pthread_mutex_lock(&bucket->mutex);
    asks_again = entry->waiters != NULL;
    entry->is_wanted = false;
    if (asks_again)
        entry->state = ENTRY_ASKED;
    else
        entry_put(table, bucket, entry);
    pthread_mutex_unlock(&bucket->mutex);
    if (asks_again)
        entry_ask(entry);
}

static void entry_post(struct lock_entry *entry, void (*run)(struct loop_call *))
{
    entry->call.run = run;
    loop_post(entry->node->loop, &entry->call);
}

/* ---- the protocol's answers ------------------------------------------------------------------------------------ */

void locks_granted(struct node *node, struct lock_entry *entry, int result, uint32_t number)
{
    struct lock_table *table = node->locks;
    struct lock_bucket *bucket = bucket_of(table, &entry->key);

    pthread_mutex_lock(&bucket->mutex);
    ASSERT(entry->state == ENTRY_ASKED);
    if (result == 0 || result == -EOWNERDEAD) {
        entry->state = ENTRY_OWNED;
        entry->number = number;
        entry->owner_died = result == -EOWNERDEAD;
        table->by_number[number] = entry;
        entry_hand_on(entry);
    } else {
        waiters_fail(entry, result, result == -EBUSY || result == -ECANCELED);
        entry->waits_never = false;
        if (entry->waiters != NULL)
            entry_post(entry, call_ask); /* somebody came who is willing to wait */
        else
            entry_put(table, bucket, entry);
    }
    pthread_mutex_unlock(&bucket->mutex);
}

bool locks_wanted(struct node *node, uint32_t number)
{
    struct lock_table *table = node->locks;
    struct lock_entry *entry = number < LOCKS_MAX ? table->by_number[number] : NULL;
    struct lock_bucket *bucket;
    bool is_used = true;

    if (entry == NULL)
        return false;
    bucket = bucket_of(table, &entry->key);
    pthread_mutex_lock(&bucket->mutex);
    entry->is_wanted = true;
    if (entry->state == ENTRY_OWNED && entry->holders == 0) {
        is_used = false;
        table->by_number[number] = NULL;
        entry_put(table, bucket, entry);
    }
    pthread_mutex_unlock(&bucket->mutex);
    return is_used;
}

/* ---- application threads --------------------------------------------------------------------------------------- */

static void waiter_enqueue(struct lock_entry *entry, struct lock_waiter *waiter)
{
    waiter->next = NULL;
    *entry->waiters_end = waiter;
    entry->waiters_end = &waiter->next;
}

static void waiter_remove(struct lock_entry *entry, struct lock_waiter *waiter)
{
    struct lock_waiter **at = &entry->waiters;

    while (*at != waiter)
        at = &(*at)->next;
    *at = waiter->next;
    if (waiter->next == NULL)
        entry->waiters_end = at;
}

/* Waits until granted, failed or out of time. A waiter out of time is taken off, unless it was served meanwhile. */
static int waiter_sleep(struct lock_bucket *bucket, struct lock_entry *entry, struct lock_waiter *waiter,
                        uint64_t timeout_ns)
{
    uint64_t start_ns = timeout_ns == UINT64_MAX ? 0 : os_now_ns();
    uint64_t deadline_ns = timeout_ns > UINT64_MAX - start_ns ? UINT64_MAX : start_ns + timeout_ns;
    bool out_of_time = false;

    while (!out_of_time && atomic_load_explicit(&waiter->done, memory_order_acquire) == 0) {
        uint64_t now_ns = deadline_ns == UINT64_MAX ? 0 : os_now_ns();

        out_of_time = now_ns >= deadline_ns;
        if (!out_of_time)
            os_futex_wait(&waiter->done, 0, deadline_ns == UINT64_MAX ? UINT64_MAX : deadline_ns - now_ns, false);
    }
    if (!out_of_time)
        return waiter->result;
    pthread_mutex_lock(&bucket->mutex);
    if (atomic_load_explicit(&waiter->done, memory_order_acquire) == 0) {
        waiter_remove(entry, waiter);
        waiter->result = -ETIMEDOUT;
        if (entry->state == ENTRY_ASKED && entry->waiters == NULL &&
            !atomic_exchange(&entry->cancel_is_posted, true)) {
            entry->cancel_call.run = call_cancel;
            loop_post(entry->node->loop, &entry->cancel_call);
        }
    }
    pthread_mutex_unlock(&bucket->mutex);
    return waiter->result;
}

/* An idle cached lock is given back, so that its entry can serve another. false: all are in use. */
static bool idle_release(struct lock_table *table)
{
    for (unsigned i = 0; i < BUCKETS; i++) {
        struct lock_bucket *bucket = &table->buckets[i];
        struct lock_entry *entry;

        pthread_mutex_lock(&bucket->mutex);
        for (entry = bucket->first; entry != NULL; entry = entry->next)
            if (entry->state == ENTRY_OWNED && entry->holders == 0 && entry->waiters == NULL)
                break;
        if (entry != NULL) {
            entry->state = ENTRY_RELEASING;
            entry_post(entry, call_release);
        }
        pthread_mutex_unlock(&bucket->mutex);
        if (entry != NULL)
            return true;
    }
    return false;
}

/* Under the bucket's mutex. true: held now. false: *ret_entry has the waiter queued, or is NULL: no entry is free. */
static bool entry_enter(struct lock_table *table, struct lock_bucket *bucket, const struct lock_key *key,
                        struct lock_waiter *waiter, struct lock_entry **ret_entry)
{
    struct lock_entry *entry = entry_find(bucket, key);

    *ret_entry = entry;
    bucket->taken++;
    if (entry != NULL && entry->state == ENTRY_OWNED && !entry->is_wanted && entry->waiters == NULL &&
        (entry->holders == 0 || !key->is_exclusive)) {
        entry->holders++;
        waiter->result = entry->owner_died ? -EOWNERDEAD : 0;
        entry->owner_died = false;
        bucket->cached++;
        return true;
    }
    if (entry != NULL && !waiter->waits) {
        waiter->result = -EBUSY;
        return true;
    }
    if (entry == NULL) {
        entry = entry_take(table, bucket, key);
        *ret_entry = entry;
        if (entry == NULL)
            return false;
        entry->waits_never = !waiter->waits;
        waiter_enqueue(entry, waiter);
        entry_post(entry, call_ask);
        return false;
    }
    waiter_enqueue(entry, waiter);
    return false;
}

static int piece_take(struct node *node, const struct lock_key *key, uint64_t timeout_ns, struct lock_entry **ret_entry)
{
    struct lock_table *table = node->locks;
    struct lock_bucket *bucket = bucket_of(table, key);
    struct lock_waiter waiter = {.result = 0, .waits = timeout_ns != 0};
    struct lock_entry *entry;
    bool finished;

    do {
        pthread_mutex_lock(&bucket->mutex);
        finished = entry_enter(table, bucket, key, &waiter, &entry);
        pthread_mutex_unlock(&bucket->mutex);
        if (!finished && entry == NULL && !idle_release(table))
            return error_set(-ENOLCK, "this node holds %d locks; unlock some", LOCKS_MAX);
    } while (!finished && entry == NULL);
    if (!finished)
        waiter_sleep(bucket, entry, &waiter, timeout_ns == 0 ? UINT64_MAX : timeout_ns);
    *ret_entry = entry;
    return waiter.result;
}

static void piece_put(struct node *node, struct held_lock *lock)
{
    struct lock_entry *entry = lock->entry;
    struct lock_bucket *bucket = bucket_of(node->locks, &lock->key);

    *lock = held.locks[--held.count];
    pthread_mutex_lock(&bucket->mutex);
    entry->holders--;
    if (entry->holders == 0 && entry->is_wanted) {
        entry->state = ENTRY_RELEASING;
        entry_post(entry, call_release);
    } else if (!entry->is_wanted) {
        entry_hand_on(entry);
    }
    pthread_mutex_unlock(&bucket->mutex);
}

/* The part of a lock that one home keeps: a range of pages is cut at extents, since each may have another home. */
static struct lock_key piece_of(const struct lock_key *whole, uint64_t first)
{
    uint64_t end = whole->first + whole->count;
    uint64_t extent_end = (first / EXTENT_PAGES + 1) * EXTENT_PAGES;
    struct lock_key piece = *whole;

    if (whole->space == LOCK_PAGES && extent_end < end)
        end = extent_end;
    piece.first = first;
    piece.count = end - first;
    return piece;
}

static int take_checked(const struct lock_key *key)
{
    uint64_t pieces = key->space == LOCK_PAGES
                          ? (key->first + key->count - 1) / EXTENT_PAGES - key->first / EXTENT_PAGES + 1
                          : 1;

    if (held_overlaps(key))
        return error_set(-EDEADLK, "this thread holds a lock that overlaps; unlock it first");
    if (held.count + pieces > LOCKS_HELD_MAX)
        return error_set(-ENOLCK, "a thread holds %d locks at most, one for each 2 MiB of a range; unlock some",
                         LOCKS_HELD_MAX);
    return 0;
}

/* Pieces are taken in ascending order by everybody, so threads with overlapping ranges cannot wait in a circle. */
int locks_take(struct node *node, const struct lock_key *key, uint64_t timeout_ns)
{
    uint64_t start_ns = timeout_ns == UINT64_MAX || timeout_ns == 0 ? 0 : os_now_ns();
    uint64_t end = key->first + key->count;
    int result = take_checked(key);

    if (result != 0)
        return result;
    for (uint64_t first = key->first; first < end;) {
        struct lock_key piece = piece_of(key, first);
        uint64_t spent_ns = start_ns == 0 ? 0 : os_now_ns() - start_ns;
        struct lock_entry *entry = NULL;
        int error = spent_ns > timeout_ns ? -ETIMEDOUT : piece_take(node, &piece, timeout_ns - spent_ns, &entry);

        if (error != 0 && error != -EOWNERDEAD) {
            while (held_find(key->space, key->first, key->count) != NULL)
                piece_put(node, held_find(key->space, key->first, key->count));
            return error;
        }
        held.locks[held.count++] = (struct held_lock){piece, key->first, key->count, entry};
        result = error != 0 ? error : result;
        first += piece.count;
    }
    return result;
}

int locks_put(struct node *node, enum lock_space space, uint64_t first, uint64_t count)
{
    struct held_lock *lock = held_find(space, first, count);

    if (lock == NULL)
        return error_set(-EPERM, "this thread does not hold that lock");
    for (; lock != NULL; lock = held_find(space, first, count))
        piece_put(node, lock);
    return 0;
}

/* ---- conditions ------------------------------------------------------------------------------------------------ */

void locks_cond_event(struct request *request, int result, uint64_t value)
{
    if (result == 0 && value == 1) {
        atomic_store_explicit(&request->done, 2, memory_order_release);
        os_futex_wake(&request->done, 1, false);
        return;
    }
    request_finish(request, result, value);
}

static void run_cond_wait(struct request *request)
{
    struct node *node = request->node;
    uint64_t token = (uint64_t)(uintptr_t)request | TOKEN_COND;
    int error = coherence_cond_wait(node->coherence, request->a, token, os_now_ns());

    if (error != 0)
        request_finish(request, error, 0);
}

static void run_cond_cancel(struct request *request)
{
    uint64_t token = (uint64_t)(uintptr_t)request->pointer | TOKEN_COND;

    coherence_cond_cancel(request->node->coherence, token, os_now_ns());
    request_finish(request, 0, 0);
}

static void run_cond_wake(struct request *request)
{
    struct node *node = request->node;
    int error =
        coherence_cond_wake(node->coherence, request->a, request->b != 0, request_token(request), os_now_ns());

    if (error != 0)
        request_finish(request, error, 0);
}

static uint32_t cond_registered(struct request *request)
{
    uint32_t state;

    while ((state = atomic_load_explicit(&request->done, memory_order_acquire)) == 0)
        os_futex_wait(&request->done, 0, UINT64_MAX, false);
    return state;
}

int locks_cond_wait(struct node *node, uint64_t word, const struct lock_key *mutex, uint64_t timeout_ns)
{
    struct request wait = REQUEST(node, run_cond_wait, .a = word);
    int result;
    int error;

    request_post(&wait);
    if (cond_registered(&wait) == 1 && wait.result != 0)
        return wait.result;
    error = locks_put(node, mutex->space, mutex->first, mutex->count);
    ASSERT(error == 0);
    result = request_wait(&wait, timeout_ns);
    if (result == -ETIMEDOUT) {
        struct request cancel = REQUEST(node, run_cond_cancel, .pointer = &wait);

        request_call(&cancel);
        result = request_wait(&wait, UINT64_MAX);
    }
    error = locks_take(node, mutex, UINT64_MAX);
    if (error != 0)
        return error;
    return result == -ECANCELED ? -ETIMEDOUT : result;
}

int locks_cond_wake(struct node *node, uint64_t word, bool all)
{
    struct request wake = REQUEST(node, run_cond_wake, .a = word, .b = all);

    return request_call(&wake);
}

/* ---- set-up ---------------------------------------------------------------------------------------------------- */

int locks_create(struct node *node, struct lock_table **ret_table)
{
    struct lock_table *table;
    void *memory;
    int error = os_pages_map(sizeof(*table), &memory);

    if (error != 0)
        return error;
    table = memory;
    pthread_mutex_init(&table->free_mutex, NULL);
    for (unsigned i = 0; i < BUCKETS; i++)
        pthread_mutex_init(&table->buckets[i].mutex, NULL);
    for (unsigned i = LOCKS_MAX; i-- > 0;) {
        table->entries[i].node = node;
        table->entries[i].next = table->free;
        table->free = &table->entries[i];
    }
    *ret_table = table;
    return 0;
}

void locks_destroy(struct lock_table *table)
{
    os_pages_unmap(table, sizeof(*table));
}

void locks_counters(const struct lock_table *table, uint64_t *ret_taken, uint64_t *ret_cached)
{
    *ret_taken = *ret_cached = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        *ret_taken += table->buckets[i].taken;
        *ret_cached += table->buckets[i].cached;
    }
}
