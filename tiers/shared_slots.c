/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared_slots.c - slots shared by processes. Rules S1 to S3: shared_slots.h.
 *
 * A word: bits 0-15 count, 16-17 tag, 18-31 id of the account that the tag belongs to.
 */
#include "tiers/shared_slots.h"
#include "base/assert.h"
#include "base/log.h"

#include <errno.h>
#include <sched.h>

/* Tests end the process at each of these in turn. */
#ifndef SLOT_POINT
#define SLOT_POINT() ((void)0)
#endif

#define TABLE_MAGIC  0x736c6f7473746d31u
#define TAG_ADDING   0x10000u
#define TAG_TAKING   0x20000u
#define TAG_MASK     0x30000u
#define ID_SHIFT     18u
#define WORD_BITS    64u
#define DECENT_RUN   16u  /* a shorter run is taken only after a look into the next chunk */
#define CHUNKS_LEAST 4u   /* smallest window */
#define TURNS_MAX    2000 /* sched_yield()s for a word that another process has tagged */

static uint32_t count_of(uint32_t word)
{
    return word & SLOT_HOLDERS_MAX;
}

static bool is_tagged(uint32_t word)
{
    return (word & ~SLOT_HOLDERS_MAX) != 0;
}

static bool is_tagged_by(uint32_t word, uint32_t id)
{
    return is_tagged(word) && word >> ID_SHIFT == id;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- tables --------------------------------------------------------------------------------------------------- */

size_t slot_table_bytes(uint32_t capacity)
{
    size_t size = sizeof(struct slot_table) + (size_t)capacity * sizeof(uint32_t);

    return (size + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

size_t slot_account_bytes(uint32_t capacity)
{
    size_t size = sizeof(struct slot_account) + ((size_t)capacity + WORD_BITS - 1) / WORD_BITS * sizeof(uint64_t);

    return (size + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

void slot_table_init(struct slot_table *table, uint32_t capacity, uint32_t count)
{
    ASSERT(count > 0 && count <= capacity);
    table->magic = TABLE_MAGIC;
    table->capacity = capacity;
    atomic_store(&table->count, count);
}

void slot_account_init(struct slot_account *account, uint32_t capacity, uint32_t id)
{
    ASSERT(id > 0 && id <= SLOT_ACCOUNT_ID_MAX);
    account->id = id;
    account->capacity = capacity;
}

int slot_table_check(const struct slot_table *table, size_t size_bytes)
{
    if (size_bytes < sizeof(*table) || table->magic != TABLE_MAGIC || slot_table_bytes(table->capacity) > size_bytes ||
        atomic_load(&table->count) > table->capacity)
        return -EPROTO;
    return 0;
}

int slot_account_check(const struct slot_account *account, const struct slot_table *table, size_t size_bytes)
{
    if (size_bytes < sizeof(*account) || account->id == 0 || account->id > SLOT_ACCOUNT_ID_MAX ||
        account->capacity != table->capacity || slot_account_bytes(account->capacity) > size_bytes)
        return -EPROTO;
    return 0;
}

/* ---- bits of an account: one writer, so load and store do ------------------------------------------------------ */

static bool bit_get(const struct slot_account *account, uint32_t slot)
{
    return (atomic_load_explicit(&account->held[slot / WORD_BITS], memory_order_relaxed) >> slot % WORD_BITS & 1) != 0;
}

static void bit_put(struct slot_account *account, uint32_t slot, bool is_held)
{
    _Atomic(uint64_t) *word = &account->held[slot / WORD_BITS];
    uint64_t bit = (uint64_t)1 << slot % WORD_BITS;
    uint64_t before = atomic_load_explicit(word, memory_order_relaxed);

    if (is_held && slot / WORD_BITS >= atomic_load_explicit(&account->high, memory_order_relaxed))
        atomic_store_explicit(&account->high, slot / WORD_BITS + 1, memory_order_release);
    SLOT_POINT();
    atomic_store_explicit(word, is_held ? before | bit : before & ~bit, memory_order_release);
    SLOT_POINT();
}

static void held_count_add(struct slot_account *account, uint32_t change)
{
    atomic_store_explicit(&account->held_count,
                          atomic_load_explicit(&account->held_count, memory_order_relaxed) + change,
                          memory_order_relaxed);
}

/* S3: said before the first tag, taken back after the last. */
static void busy_begin(struct slot_account *account, uint32_t first, uint32_t end)
{
    atomic_store_explicit(&account->busy_first, first, memory_order_relaxed);
    atomic_store_explicit(&account->busy_end, end, memory_order_relaxed);
    atomic_store(&account->is_busy, 1);
    SLOT_POINT();
}

static void busy_end(struct slot_account *account)
{
    SLOT_POINT();
    atomic_store_explicit(&account->is_busy, 0, memory_order_release);
    SLOT_POINT();
}

/* ---- words ---------------------------------------------------------------------------------------------------- */

static void slot_freed(struct slot_table *table)
{
    SLOT_POINT();
    atomic_fetch_sub(&table->used, 1);
    atomic_fetch_add(&table->freed, 1);
}

/* The tag goes, the count changes. Only the broker may have changed the count meanwhile. */
static void tag_settle(struct slot_table *table, uint32_t slot, int change)
{
    _Atomic(uint32_t) *word = &table->words[slot];
    uint32_t before = atomic_load(word);

    while (!atomic_compare_exchange_weak(word, &before, (uint32_t)((int)count_of(before) + change)))
        ;
    if (change < 0 && count_of(before) == 1)
        slot_freed(table);
}

/* ---- taking --------------------------------------------------------------------------------------------------- */

struct run {
    uint32_t first, count;
};

static struct run longest_free(const struct slot_table *table, uint32_t from, uint32_t end, uint32_t wanted)
{
    struct run best = {from, 0};
    uint32_t first = from;

    for (uint32_t slot = from; slot < end && best.count < wanted; slot++) {
        if (atomic_load_explicit(&table->words[slot], memory_order_relaxed) != 0)
            first = slot + 1;
        else if (slot + 1 - first > best.count)
            best = (struct run){first, slot + 1 - first};
    }
    return best;
}

static uint32_t chunks_of(uint32_t slots_count)
{
    return slots_count / SLOT_CHUNK + (slots_count % SLOT_CHUNK != 0);
}

/* About twice what is in use: runs are still found, and what lies above was never touched. */
static uint32_t window_grow(struct slot_table *table, uint32_t count)
{
    uint32_t window = atomic_load(&table->window);
    uint64_t wanted = 2 * (uint64_t)atomic_load(&table->used) / SLOT_CHUNK + CHUNKS_LEAST;
    uint32_t needed = wanted < chunks_of(count) ? (uint32_t)wanted : chunks_of(count);

    while (window < needed && !atomic_compare_exchange_weak(&table->window, &window, needed))
        ;
    return least(window < needed ? needed : window, chunks_of(count));
}

/* Processes go round the store, each in chunks of its own; one that finds its chunk full looks at those behind it. */
static void chunk_next(struct shared_slots *slots, bool is_search)
{
    struct slot_table *table = slots->table;
    uint32_t count = least(atomic_load(&table->count), table->capacity);
    uint32_t window = window_grow(table, count);
    uint32_t chunk = is_search ? slots->chunk + 1 : atomic_fetch_add(&table->cursor, 1);

    slots->chunk = chunk % window;
    slots->at = slots->chunk * SLOT_CHUNK;
    slots->end = least(slots->at + SLOT_CHUNK, count);
}

/* Claims the run from its begin as far as nobody else was faster. */
static uint32_t run_claim(struct shared_slots *slots, struct run run)
{
    struct slot_account *account = slots->account;
    uint32_t tag = TAG_ADDING | account->id << ID_SHIFT;
    uint32_t taken = 0, count;

    busy_begin(account, run.first, run.first + run.count);
    for (; taken < run.count; taken++) {
        uint32_t expected = 0;

        if (!atomic_compare_exchange_strong(&slots->table->words[run.first + taken], &expected, tag))
            break;
        SLOT_POINT();
    }
    /* Either we see here that the store has shrunk, or who shrank it sees our tags. */
    count = atomic_load(&slots->table->count);
    while (taken > 0 && run.first + taken > count)
        tag_settle(slots->table, run.first + --taken, 0);
    for (uint32_t i = 0; i < taken; i++)
        bit_put(account, run.first + i, true);
    atomic_fetch_add(&slots->table->used, taken);
    for (uint32_t i = 0; i < taken; i++)
        tag_settle(slots->table, run.first + i, 1);
    busy_end(account);
    held_count_add(account, taken);
    return taken;
}

static void deferred_retry(struct shared_slots *slots);

uint32_t shared_slots_take(struct shared_slots *slots, uint32_t wanted, uint32_t *ret_first)
{
    uint32_t freed = atomic_load(&slots->table->freed);
    uint32_t chunks = chunks_of(atomic_load(&slots->table->count)) + 2; /* a round, begun and ended inside a chunk */
    struct run best = {0, 0};
    uint32_t taken;

    ASSERT(wanted > 0);
    deferred_retry(slots);
    if (slots->is_full && freed == slots->freed_seen)
        return 0;
    slots->is_full = false;
    for (uint32_t looked = 0; looked <= chunks; looked++) {
        struct run run;

        if (slots->at >= slots->end || looked > 0)
            chunk_next(slots, looked > 1);
        run = longest_free(slots->table, slots->at, slots->end, wanted);
        if (run.count > best.count)
            best = run;
        if (best.count == 0 || (best.count < least(wanted, DECENT_RUN) && looked == 0))
            continue;
        taken = run_claim(slots, best);
        if (best.first >= slots->at && best.first < slots->end)
            slots->at = best.first + best.count;
        if (taken > 0) {
            *ret_first = best.first;
            return taken;
        }
        best = (struct run){0, 0};
    }
    slots->is_full = true;
    slots->freed_seen = freed;
    return 0;
}

/* ---- putting -------------------------------------------------------------------------------------------------- */

/* False: another process is at this word just now. */
static bool slot_put(struct slot_table *table, struct slot_account *account, uint32_t slot)
{
    _Atomic(uint32_t) *word = &table->words[slot];
    uint32_t tag = TAG_TAKING | account->id << ID_SHIFT;
    uint32_t before = atomic_load(word);

    busy_begin(account, slot, slot + 1);
    do {
        if (is_tagged(before)) {
            busy_end(account);
            return false;
        }
        ASSERT(before > 0);
    } while (!atomic_compare_exchange_weak(word, &before, before | tag));
    SLOT_POINT();
    bit_put(account, slot, false);
    tag_settle(table, slot, -1);
    busy_end(account);
    held_count_add(account, UINT32_MAX);
    return true;
}

static void deferred_retry(struct shared_slots *slots)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < slots->deferred_count; i++) {
        if (!slot_put(slots->table, slots->account, slots->deferred[i]))
            slots->deferred[kept++] = slots->deferred[i];
    }
    slots->deferred_count = kept;
}

/*
 * A tag of another process goes within a few instructions, unless that process is stopped or killed there: then waiting
 * could last. Each process has at most one tag on a slot that others hold too, so the list seldom has two entries; what
 * does not fit stays held until this process ends.
 */
void shared_slots_put(struct shared_slots *slots, uint32_t slot)
{
    ASSERT(shared_slots_are_held(slots, slot, 1));
    if (slots->deferred_count > 0)
        deferred_retry(slots);
    if (!slot_put(slots->table, slots->account, slot) && slots->deferred_count < SLOTS_DEFERRED_MAX)
        slots->deferred[slots->deferred_count++] = slot;
}

bool shared_slots_are_held(const struct shared_slots *slots, uint32_t first, uint32_t count)
{
    uint32_t capacity = slots->table->capacity;

    if (count == 0 || first >= capacity || count > capacity - first)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (!bit_get(slots->account, first + i))
            return false;
    }
    return true;
}

uint32_t shared_slots_free(const struct shared_slots *slots)
{
    uint32_t count = atomic_load(&slots->table->count);
    uint32_t used = atomic_load(&slots->table->used);

    return count > used ? count - used : 0;
}

uint32_t shared_slots_max(const struct shared_slots *slots)
{
    return atomic_load(&slots->table->count);
}

uint32_t shared_slots_held(const struct shared_slots *slots)
{
    return atomic_load(&slots->account->held_count);
}

uint32_t shared_slots_reach(const struct shared_slots *slots)
{
    return atomic_load(&slots->account->high) * WORD_BITS;
}

void shared_slots_open(struct shared_slots *slots, struct slot_table *table, struct slot_account *account)
{
    *slots = (struct shared_slots){.table = table, .account = account};
}

/* What was deferred is held by the child too, so it is the child's to put as well. */
void shared_slots_change(struct shared_slots *slots, struct slot_account *account)
{
    slots->account = account;
    slots->at = slots->end = 0;
    slots->is_full = false;
}

/* ---- before a fork -------------------------------------------------------------------------------------------- */

static int slot_share(struct slot_table *table, struct slot_account *to, uint32_t slot)
{
    _Atomic(uint32_t) *word = &table->words[slot];
    uint32_t tag = TAG_ADDING | to->id << ID_SHIFT;
    uint32_t before = atomic_load(word);
    unsigned turns = 0;

    for (;;) {
        if (!is_tagged(before) && count_of(before) == SLOT_HOLDERS_MAX)
            return -EAGAIN;
        if (!is_tagged(before) && atomic_compare_exchange_weak(word, &before, before | tag))
            break;
        if (is_tagged(before)) {
            if (++turns > TURNS_MAX)
                return -EAGAIN;
            (void)sched_yield();
            before = atomic_load(word);
        }
    }
    SLOT_POINT();
    bit_put(to, slot, true);
    tag_settle(table, slot, 1);
    SLOT_POINT();
    return 0;
}

int slot_account_clone(struct slot_table *table, const struct slot_account *from, struct slot_account *to)
{
    uint32_t high = atomic_load(&from->high);

    busy_begin(to, 0, least(high * WORD_BITS, table->capacity));
    for (uint32_t i = 0; i < high; i++) {
        for (uint64_t left = atomic_load(&from->held[i]); left != 0; left &= left - 1) {
            int error = slot_share(table, to, i * WORD_BITS + (uint32_t)__builtin_ctzll(left));

            if (error != 0)
                return error; /* still busy: the release looks at all of it */
        }
    }
    busy_end(to);
    atomic_store(&to->held_count, atomic_load(&from->held_count));
    return 0;
}

/* ---- the broker ----------------------------------------------------------------------------------------------- */

/* True: the slot is settled, and the account does not hold it. */
static bool tag_repair(struct slot_table *table, struct slot_account *account, uint32_t slot, uint32_t id)
{
    _Atomic(uint32_t) *word = &table->words[slot];
    uint32_t before = atomic_load(word);
    uint32_t after;

    do {
        if (!is_tagged_by(before, id))
            return false;
        after = count_of(before);
        if ((before & TAG_MASK) == TAG_TAKING && after > 0)
            after--;
    } while (!atomic_compare_exchange_weak(word, &before, after));
    bit_put(account, slot, false);
    if (after == 0)
        atomic_fetch_add(&table->freed, 1);
    return true;
}

/*
 * One holder less. A tag of another account stays; that account, when it is being taken out, is still in the count.
 * False: the count does not know of the holder; the slot then stays as it is, since somebody may be using it.
 */
static bool holder_remove(struct slot_table *table, uint32_t slot)
{
    _Atomic(uint32_t) *word = &table->words[slot];
    uint32_t before = atomic_load(word);

    do {
        uint32_t others = (before & TAG_MASK) == TAG_TAKING ? 1 : 0;

        if (count_of(before) <= others)
            return false;
    } while (!atomic_compare_exchange_weak(word, &before, before - 1));
    if (before == 1)
        slot_freed(table);
    return true;
}

static uint32_t words_high(const struct slot_account *account, uint32_t capacity)
{
    return least(atomic_load(&account->high), (capacity + WORD_BITS - 1) / WORD_BITS);
}

uint32_t slot_account_release(struct slot_table *table, struct slot_account *account, uint32_t capacity, uint32_t id,
                              bool *ret_is_certain)
{
    uint32_t high = words_high(account, capacity);
    uint32_t released = 0, unknown = 0;

    *ret_is_certain = true;
    if (atomic_load(&account->is_busy) != 0) {
        uint32_t end = least(atomic_load(&account->busy_end), capacity);

        *ret_is_certain = false;
        for (uint32_t slot = atomic_load(&account->busy_first); slot < end; slot++)
            (void)tag_repair(table, account, slot, id);
        atomic_store(&account->is_busy, 0);
    }
    for (uint32_t i = 0; i < high; i++) {
        for (uint64_t left = atomic_exchange(&account->held[i], 0); left != 0; left &= left - 1) {
            uint32_t slot = i * WORD_BITS + (uint32_t)__builtin_ctzll(left);

            if (slot >= capacity)
                break;
            if (holder_remove(table, slot))
                released++;
            else
                unknown++;
        }
    }
    if (unknown > 0)
        log_error("account %u of the job's store names %u slots whose counts do not know of it", id, unknown);
    return released;
}

uint32_t slot_account_count(const struct slot_account *account, uint32_t capacity)
{
    uint32_t high = words_high(account, capacity);
    uint32_t count = 0;

    for (uint32_t i = 0; i < high; i++)
        count += (uint32_t)__builtin_popcountll(atomic_load_explicit(&account->held[i], memory_order_relaxed));
    return count;
}

static uint32_t slots_in_play(const struct slot_table *table, uint32_t capacity)
{
    uint64_t slots = (uint64_t)atomic_load(&table->window) * SLOT_CHUNK;

    return slots < capacity ? (uint32_t)slots : capacity;
}

void slot_table_resize(struct slot_table *table, uint32_t count)
{
    ASSERT(count > 0 && count <= table->capacity);
    atomic_store(&table->count, count);
    atomic_fetch_add(&table->freed, 1); /* whoever found the store full looks again */
}

uint32_t slot_table_recount(struct slot_table *table, uint32_t capacity)
{
    uint32_t before = atomic_load(&table->used);
    uint32_t end = slots_in_play(table, capacity);
    uint32_t used = 0;

    for (uint32_t slot = 0; slot < end; slot++)
        used += atomic_load_explicit(&table->words[slot], memory_order_relaxed) != 0;
    atomic_fetch_add(&table->used, used - before);
    return used;
}

uint32_t slot_table_high(const struct slot_table *table, uint32_t capacity)
{
    uint32_t slot = slots_in_play(table, capacity);

    while (slot > 0 && atomic_load(&table->words[slot - 1]) == 0)
        slot--;
    return slot;
}
