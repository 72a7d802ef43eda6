/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.c - the bitmap of a slot store. Run by the shard's thread.
 *
 * Always holds: a bit of `full` is set exactly when its word of `used` is all ones; slots at or above `window` are
 * free.
 */
#include "tiers/slots.h"
#include "base/assert.h"
#include "base/os.h"

#include <errno.h>
#include <string.h>

#define WORD_BITS 64u
#define LOOK_MAX  4096u /* slots looked at for a longer run when a short one is found */

struct run {
    uint32_t first, count;
};

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static size_t used_bytes(uint32_t count)
{
    return ((size_t)count + WORD_BITS - 1) / WORD_BITS * sizeof(uint64_t);
}

static size_t full_bytes(uint32_t count)
{
    return used_bytes((uint32_t)(used_bytes(count) / sizeof(uint64_t)));
}

/* ---- searching ------------------------------------------------------------------------------------------------ */

/* Past words that are full; `from` itself when its word is not. */
static uint32_t full_skip(const struct slots *slots, uint32_t from, uint32_t limit)
{
    while (from < limit) {
        uint32_t word = from / WORD_BITS;
        uint64_t open = ~slots->full[word / WORD_BITS] >> word % WORD_BITS;

        if ((open & 1) != 0)
            return from;
        if (open != 0)
            return (word + (uint32_t)__builtin_ctzll(open)) * WORD_BITS;
        from = (word | (WORD_BITS - 1)) * WORD_BITS + WORD_BITS;
    }
    return limit;
}

static uint32_t free_find(const struct slots *slots, uint32_t from, uint32_t limit)
{
    for (from = full_skip(slots, from, limit); from < limit; from = full_skip(slots, from, limit)) {
        uint64_t open = ~slots->used[from / WORD_BITS] >> from % WORD_BITS;

        if (open != 0)
            return least(from + (uint32_t)__builtin_ctzll(open), limit);
        from = (from | (WORD_BITS - 1)) + 1;
    }
    return limit;
}

static uint32_t used_find(const struct slots *slots, uint32_t from, uint32_t limit)
{
    while (from < limit) {
        uint64_t taken = slots->used[from / WORD_BITS] >> from % WORD_BITS;

        if (taken != 0)
            return least(from + (uint32_t)__builtin_ctzll(taken), limit);
        from = (from | (WORD_BITS - 1)) + 1;
    }
    return limit;
}

/* The longest run of free slots in from .. limit-1 that a bounded look finds, into `best` when longer than that. */
static void longest_find(const struct slots *slots, uint32_t from, uint32_t limit, uint32_t wanted, uint32_t at_least,
                         struct run *best)
{
    uint32_t at = from;

    while (at < limit && best->count < wanted) {
        uint32_t first = free_find(slots, at, limit);
        uint32_t end = used_find(slots, first, least(limit, first + wanted));

        if (end - first > best->count)
            *best = (struct run){first, end - first};
        if (best->count >= at_least && end - from > LOOK_MAX)
            return;
        at = end;
    }
}

/* ---- taking --------------------------------------------------------------------------------------------------- */

/* The window grows with use, so that runs are still found and memory for tables follows use. */
static void window_grow(struct slots *slots, uint32_t wanted)
{
    uint64_t needed = 2 * ((uint64_t)slots->used_count + wanted);

    if (needed < SLOTS_WINDOW)
        needed = SLOTS_WINDOW;
    if (needed > slots->count)
        needed = slots->count;
    if (needed > slots->window)
        slots->window = (uint32_t)needed;
}

static void run_mark(struct slots *slots, struct run run)
{
    for (uint32_t slot = run.first; slot < run.first + run.count;) {
        uint32_t word = slot / WORD_BITS;
        uint32_t end = least((word + 1) * WORD_BITS, run.first + run.count);
        uint64_t bits = UINT64_MAX >> (WORD_BITS - (end - slot)) << slot % WORD_BITS;

        ASSERT((slots->used[word] & bits) == 0);
        slots->used[word] |= bits;
        if (slots->used[word] == UINT64_MAX)
            slots->full[word / WORD_BITS] |= (uint64_t)1 << word % WORD_BITS;
        slot = end;
    }
    slots->used_count += run.count;
}

/* The hand must not fall behind the cursor: there the youngest slots lie. */
static void cursor_move(struct slots *slots, uint32_t to)
{
    uint32_t from = slots->cursor;
    bool overtaken = from <= to ? slots->hand >= from && slots->hand < to : slots->hand >= from || slots->hand < to;

    slots->cursor = to;
    if (overtaken)
        slots->hand = to;
}

uint32_t slots_take(struct slots *slots, uint32_t wanted, uint32_t at_least, uint32_t *ret_first)
{
    uint32_t free_count = slots->count - slots->used_count;
    struct run best = {0, 0};

    ASSERT(at_least > 0 && at_least <= wanted);
    if (free_count < at_least)
        return 0;
    wanted = least(wanted, free_count);
    window_grow(slots, wanted);
    longest_find(slots, slots->cursor, slots->window, wanted, at_least, &best);
    if (best.count < at_least || (best.count < wanted && slots->window - slots->cursor < LOOK_MAX))
        longest_find(slots, 0, slots->window, wanted, at_least, &best);
    if (best.count < at_least)
        return 0;
    run_mark(slots, best);
    cursor_move(slots, best.first + best.count == slots->window ? 0 : best.first + best.count);
    *ret_first = best.first;
    return best.count;
}

void slots_put(struct slots *slots, uint32_t slot)
{
    uint32_t word = slot / WORD_BITS;
    uint64_t bit = (uint64_t)1 << slot % WORD_BITS;

    ASSERT(slot < slots->window);
    ASSERT((slots->used[word] & bit) != 0);
    slots->used[word] &= ~bit;
    slots->full[word / WORD_BITS] &= ~((uint64_t)1 << word % WORD_BITS);
    slots->used_count--;
}

bool slots_are_used(const struct slots *slots, uint32_t first, uint32_t count)
{
    if (count == 0 || first >= slots->window || count > slots->window - first)
        return false;
    return free_find(slots, first, first + count) == first + count;
}

uint32_t slots_oldest(struct slots *slots, uint32_t wanted, uint32_t *ret_first)
{
    uint32_t first;
    uint32_t end;

    if (slots->used_count == 0)
        return 0;
    first = used_find(slots, slots->hand, slots->window);
    if (first == slots->window)
        first = used_find(slots, 0, slots->window);
    end = free_find(slots, first, least(slots->window, first + wanted));
    slots->hand = end == slots->window ? 0 : end;
    *ret_first = first;
    return end - first;
}

/* ---- life ----------------------------------------------------------------------------------------------------- */

int slots_init(struct slots *slots, uint32_t count)
{
    void *used;
    void *full;

    ASSERT(count > 0 && count <= SLOTS_MAX);
    if (os_pages_map(used_bytes(count), &used) < 0)
        return -ENOMEM;
    if (os_pages_map(full_bytes(count), &full) < 0) {
        os_pages_unmap(used, used_bytes(count));
        return -ENOMEM;
    }
    *slots = (struct slots){.used = used, .full = full, .count = count};
    return 0;
}

void slots_fini(struct slots *slots)
{
    if (slots->used == NULL)
        return;
    os_pages_unmap(slots->used, used_bytes(slots->count));
    os_pages_unmap(slots->full, full_bytes(slots->count));
}

int slots_resize(struct slots *slots, uint32_t count)
{
    struct slots next;
    uint32_t kept = least(slots->window, count);

    if (used_find(slots, kept, slots->window) < slots->window)
        return -EBUSY;
    if (slots_init(&next, count) < 0)
        return -ENOMEM;
    memcpy(next.used, slots->used, used_bytes(kept));
    memcpy(next.full, slots->full, full_bytes(kept));
    next.used_count = slots->used_count;
    next.window = kept;
    next.cursor = slots->cursor < kept ? slots->cursor : 0;
    next.hand = slots->hand < kept ? slots->hand : 0;
    slots_fini(slots);
    *slots = next;
    return 0;
}

uint64_t slots_bytes(const struct slots *slots)
{
    return used_bytes(slots->window) + full_bytes(slots->window);
}
