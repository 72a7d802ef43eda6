/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.h - what this node keeps of a page: 16 bytes, in the page table.
 *
 * `word` is shared with application threads, which pin pages through it; everything else is the shard's. The shard
 * changes bits of the word with atomic and/or, so that a pin taken meanwhile is never lost.
 */
#ifndef TIERMESH_RUNTIME_PAGE_H
#define TIERMESH_RUNTIME_PAGE_H

#include "base/assert.h"
#include "coherence/env.h"

#include <stdatomic.h>

/* Where the bytes lie on this node. */
enum page_where {
    WHERE_NOWHERE = 0, /* never written here, or given away: reads as zeroes once rights are granted */
    WHERE_MAPPED = 1,  /* in memory and mapped; place is the frame */
    WHERE_LIMBO = 2,   /* in memory, not mapped; place is the frame */
    WHERE_LEAVING = 3, /* being written to a lower tier, still whole in memory; place is the frame */
    WHERE_FILLING = 4, /* being read from NVMe; place is the fill */
    WHERE_CXL = 5,     /* place is the slot */
    WHERE_NVME = 6,    /* place is the slot */
    WHERE_ZMEM = 7,    /* place is the slot */
};

struct page_entry {
    /*
     * Pins are taken by compare-and-swap with acquire (page_pin) and released with release (page_unpin); the shard's
     * page_word_change() is acquire-release, so bytes copied under a pin are whole before the page is taken away.
     */
    _Atomic(uint32_t) word;
    uint32_t place;
    struct coherence_page coherence;
};
BUILD_ASSERT(sizeof(struct page_entry) == 16);

#define WORD_RIGHTS 0x3u     /* enum access granted by the protocol */
#define WORD_WHERE 0x1cu     /* enum page_where */
#define WORD_WHERE_SHIFT 2
#define WORD_POISONED 0x20u
#define WORD_CLEAN 0x40u     /* in memory, and a slot on NVMe still has the same bytes: mapped read-only */
#define WORD_REVOKING 0x80u  /* the protocol waits for the pins to end: no new ones */
#define WORD_LATE 0x100u     /* among the latest that zmem had no room for (pager_share.c) */
#define WORD_WRITABLE 0x200u /* the mapping allows stores */
#define WORD_CLAIMED 0x400u  /* being evicted at this moment: no new pins */
#define WORD_PIN 0x10000u
#define WORD_PINS 0xffff0000u

static inline uint32_t page_word(const struct page_entry *entry)
{
    return atomic_load_explicit(&entry->word, memory_order_acquire);
}

static inline enum page_where word_where(uint32_t word)
{
    return (enum page_where)((word & WORD_WHERE) >> WORD_WHERE_SHIFT);
}

static inline enum page_where page_where(const struct page_entry *entry)
{
    return word_where(page_word(entry));
}

static inline enum access page_rights(const struct page_entry *entry)
{
    return (enum access)(page_word(entry) & WORD_RIGHTS);
}

static inline bool page_has(const struct page_entry *entry, uint32_t bits)
{
    return (page_word(entry) & bits) != 0;
}

static inline bool page_is_in_memory(const struct page_entry *entry)
{
    enum page_where where = page_where(entry);

    return where == WHERE_MAPPED || where == WHERE_LIMBO || where == WHERE_LEAVING;
}

/* The shard: clear some bits, set others, keep the pins. Returns the word before. */
static inline uint32_t page_word_change(struct page_entry *entry, uint32_t clear, uint32_t set)
{
    uint32_t before = atomic_load_explicit(&entry->word, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(&entry->word, &before, (before & ~clear) | set, memory_order_acq_rel,
                                                  memory_order_relaxed))
        ;
    return before;
}

static inline void page_set_where(struct page_entry *entry, enum page_where where, uint32_t place)
{
    entry->place = place;
    page_word_change(entry, WORD_WHERE | WORD_CLAIMED, (uint32_t)where << WORD_WHERE_SHIFT);
}

static inline void page_set_rights(struct page_entry *entry, enum access access)
{
    page_word_change(entry, WORD_RIGHTS, (uint32_t)access);
}

/*
 * Any thread: keep the page in memory with at least `access`, for a copy. false: it is not so now; ask the shard.
 * A page with a clean slot is not pinned for writing: the shard must forget the slot first.
 */
static inline bool page_pin(struct page_entry *entry, enum access access)
{
    uint32_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

    do {
        enum page_where where = word_where(word);

        if ((where != WHERE_MAPPED && where != WHERE_LIMBO) || (word & WORD_RIGHTS) < (uint32_t)access ||
            (word & (WORD_POISONED | WORD_REVOKING | WORD_CLAIMED)) != 0 || (word & WORD_PINS) == WORD_PINS ||
            (access == ACCESS_WRITE && (word & WORD_CLEAN) != 0))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&entry->word, &word, word + WORD_PIN, memory_order_acquire,
                                                    memory_order_relaxed));
    return true;
}

/* The shard: nobody has pinned the page and from now on nobody can, until page_set_where() or page_unclaim(). */
static inline bool page_claim(struct page_entry *entry, enum page_where where)
{
    uint32_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

    do {
        if ((word & (WORD_PINS | WORD_REVOKING)) != 0 || word_where(word) != where)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&entry->word, &word, word | WORD_CLAIMED, memory_order_acq_rel,
                                                    memory_order_relaxed));
    return true;
}

static inline void page_unclaim(struct page_entry *entry)
{
    page_word_change(entry, WORD_CLAIMED, 0);
}

/* true: that was the last pin and the shard waits for it: tell it (pager_unpinned). */
static inline bool page_unpin(struct page_entry *entry)
{
    uint32_t before = atomic_fetch_sub_explicit(&entry->word, WORD_PIN, memory_order_release);

    return (before & WORD_REVOKING) != 0 && (before & WORD_PINS) == WORD_PIN;
}

#endif
