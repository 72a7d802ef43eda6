/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zmem.c - the compressed tier: pages as objects of varying size in memory. Run by the shard's thread.
 *
 * A slot is only an entry: 8 bytes say where the object lies and how long it is, or, when the page is one word over and
 * over, that word. So there are many more slots than pages of the budget, and the budget bounds the slabs.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/os.h"
#include "tiers/backend.h"
#include "tiers/codec.h"
#include "tiers/slabs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define GROWTH_MAX     4u  /* times the budget at open */
#define SLOTS_PER_PAGE 16u /* of address space: pages may compress so well that all of them are in use */
#define BUDGET_MIN     ((uint64_t)1 << 20) /* a slab for each size class, nearly */
#define LENGTH_BITS    16u
#define WORDS          (PAGE_BYTES / sizeof(uint64_t))

struct zmem {
    struct tier tier;
    struct slabs slabs;
    struct codec codec;
    uint64_t *entries; /* by slot: place << LENGTH_BITS | length of the object, or the word of a filled page */
    uint64_t *filled;  /* a bit a slot */
    uint64_t budget_bytes;
    uint64_t pages_stored, pages_filled, pages_refused;
    char bytes[PAGE_BYTES]; /* a page compressed, before its length is known */
};

static struct zmem *zmem_of(struct tier *tier)
{
    return CONTAINER_OF(tier, struct zmem, tier);
}

/* ---- entries --------------------------------------------------------------------------------------------------- */

static bool slot_is_filled(const struct zmem *zmem, uint32_t slot)
{
    return (zmem->filled[slot / 64] >> slot % 64 & 1) != 0;
}

static void slot_set_filled(struct zmem *zmem, uint32_t slot, bool filled)
{
    uint64_t bit = (uint64_t)1 << slot % 64;

    zmem->filled[slot / 64] = (zmem->filled[slot / 64] & ~bit) | (filled ? bit : 0);
}

static uint64_t entry_place(uint64_t entry)
{
    return entry >> LENGTH_BITS;
}

static size_t entry_length(uint64_t entry)
{
    return entry & ((1u << LENGTH_BITS) - 1);
}

static bool object_moved(void *context, uint32_t owner, uint64_t from, uint64_t to)
{
    struct zmem *zmem = context;

    if (!slots_are_used(&zmem->tier.slots, owner, 1) || slot_is_filled(zmem, owner) ||
        entry_place(zmem->entries[owner]) != from)
        return false;
    zmem->entries[owner] = to << LENGTH_BITS | entry_length(zmem->entries[owner]);
    return true;
}

/* ---- pages in and out ------------------------------------------------------------------------------------------ */

static bool page_is_filled(const void *page)
{
    const uint64_t *words = page;

    return words[0] == words[WORDS - 1] && memcmp(words, words + 1, PAGE_BYTES - sizeof(uint64_t)) == 0;
}

static int zmem_store(struct tier *tier, struct tier_slot slot, const void *page)
{
    struct zmem *zmem = zmem_of(tier);
    bool is_filled = page_is_filled(page);
    uint64_t entry;

    if (is_filled) {
        memcpy(&entry, page, sizeof(entry));
        zmem->pages_filled++;
    } else {
        size_t length = zmem->codec.ops->compress(&zmem->codec, page, zmem->bytes, SLABS_OBJECT_MAX);
        uint64_t place;

        if (length == 0) {
            zmem->pages_refused++;
            return -E2BIG;
        }
        place = slabs_take(&zmem->slabs, slot.index, length);
        if (place == SLABS_FULL)
            return -ENOSPC;
        memcpy(slabs_at(&zmem->slabs, place), zmem->bytes, length);
        entry = place << LENGTH_BITS | length;
    }
    zmem->entries[slot.index] = entry;
    slot_set_filled(zmem, slot.index, is_filled);
    zmem->pages_stored++;
    return 0;
}

static bool zmem_load(struct tier *tier, struct tier_slot slot, void *page)
{
    struct zmem *zmem = zmem_of(tier);
    uint64_t entry = zmem->entries[slot.index];

    if (slot_is_filled(zmem, slot.index)) {
        for (size_t i = 0; i < WORDS; i++)
            memcpy((char *)page + i * sizeof(entry), &entry, sizeof(entry));
        return true;
    }
    return zmem->codec.ops->decompress(&zmem->codec, slabs_at(&zmem->slabs, entry_place(entry)), entry_length(entry),
                                       page);
}

static void zmem_freed(struct tier *tier, struct tier_slot slot)
{
    struct zmem *zmem = zmem_of(tier);

    zmem->pages_stored--;
    if (slot_is_filled(zmem, slot.index))
        zmem->pages_filled--;
    else
        slabs_put(&zmem->slabs, entry_place(zmem->entries[slot.index]));
}

static void zmem_usage(const struct tier *tier, struct tier_counters *counters)
{
    const struct zmem *zmem = CONTAINER_OF(tier, const struct zmem, tier);
    uint64_t slots_free = zmem->tier.slots.count - zmem->tier.slots.used_count;
    uint64_t slots_max = zmem->budget_bytes / PAGE_BYTES;
    uint64_t pages_used = slabs_needed_bytes(&zmem->slabs) / PAGE_BYTES;

    counters->slots_max = slots_max;
    counters->slots_used = slots_free + pages_used < slots_max ? slots_max - slots_free : pages_used;
    counters->pages_stored = zmem->pages_stored;
    counters->pages_filled = zmem->pages_filled;
    counters->pages_refused = zmem->pages_refused;
    counters->physical_bytes = slabs_physical_bytes(&zmem->slabs);
    counters->metadata_bytes +=
        zmem->tier.slots.window * sizeof(uint64_t) + zmem->tier.slots.window / 8 + slabs_metadata_bytes(&zmem->slabs);
}

void *tier_zmem_object(struct tier *tier, struct tier_slot slot, size_t *ret_bytes)
{
    struct zmem *zmem = zmem_of(tier);
    uint64_t entry = zmem->entries[slot.index];

    ASSERT(slots_are_used(&tier->slots, slot.index, 1));
    slabs_check(&zmem->slabs);
    *ret_bytes = slot_is_filled(zmem, slot.index) ? sizeof(entry) : entry_length(entry);
    return slot_is_filled(zmem, slot.index) ? (void *)&zmem->entries[slot.index]
                                            : slabs_at(&zmem->slabs, entry_place(entry));
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

static uint32_t slabs_of(uint64_t size_bytes)
{
    return (uint32_t)(size_bytes / SLAB_BYTES);
}

static int budget_check(uint64_t size_bytes)
{
    if (size_bytes >= BUDGET_MIN && size_bytes / SLAB_BYTES <= SLABS_COUNT_MAX / GROWTH_MAX)
        return 0;
    return error_set(-EINVAL, "tier zmem of %llu bytes: the size must be at least 1 MiB and below 16 TiB",
                     (unsigned long long)size_bytes);
}

static int zmem_resize(struct tier *tier, uint64_t slots_count)
{
    struct zmem *zmem = zmem_of(tier);
    uint64_t size_bytes = slots_count * PAGE_BYTES;
    int result = budget_check(size_bytes);

    if (result < 0)
        return result;
    if (slabs_resize(&zmem->slabs, slabs_of(size_bytes)) < 0)
        return error_set(-ENOMEM, "tier zmem to %llu MiB: it can grow to %llu MiB, four times its first size",
                         (unsigned long long)(size_bytes >> 20),
                         (unsigned long long)zmem->slabs.reserved_count * SLAB_BYTES >> 20);
    zmem->budget_bytes = size_bytes;
    return 0;
}

/* Small pages, so that entries never used cost nothing. */
static int tables_map(struct zmem *zmem, uint32_t slots_count)
{
    size_t size_bytes = slots_count * sizeof(uint64_t) + slots_count / 64 * sizeof(uint64_t);
    void *memory;

    if (os_pages_map(size_bytes, &memory) < 0)
        return -ENOMEM;
    (void)madvise(memory, size_bytes, MADV_NOHUGEPAGE);
    zmem->entries = memory;
    zmem->filled = zmem->entries + slots_count;
    return 0;
}

static void tables_unmap(struct zmem *zmem, uint32_t slots_count)
{
    os_pages_unmap(zmem->entries, slots_count * sizeof(uint64_t) + slots_count / 64 * sizeof(uint64_t));
}

static void zmem_close(struct tier *tier)
{
    struct zmem *zmem = zmem_of(tier);

    tables_unmap(zmem, tier->slots.count);
    slabs_fini(&zmem->slabs);
    codec_close(&zmem->codec);
    tier_fini(tier);
    os_pages_unmap(zmem, sizeof(*zmem));
}

static const struct tier_ops zmem_ops = {
    .name = "zmem",
    .capabilities = TIER_CAP_BY_PAGE,
    .store = zmem_store,
    .load = zmem_load,
    .usage = zmem_usage,
    .freed = zmem_freed,
    .resize = zmem_resize,
    .close = zmem_close,
};

/* Slots in whole words of the bitmap. */
static uint32_t slots_of(uint64_t size_bytes)
{
    uint64_t slots_count = size_bytes / PAGE_BYTES * GROWTH_MAX * SLOTS_PER_PAGE;

    return (uint32_t)(slots_count < SLOTS_MAX ? slots_count : SLOTS_MAX) / 64 * 64;
}

int tier_zmem_open(uint64_t size_bytes, const char *codec, struct tier **ret_tier)
{
    uint32_t slots_count = slots_of(size_bytes);
    char where[64];
    struct zmem *zmem;
    void *memory;
    int result = budget_check(size_bytes);

    if (result < 0)
        return result;
    if (os_pages_map(sizeof(*zmem), &memory) < 0)
        return error_set(-ENOMEM, "tier zmem: out of memory");
    zmem = memory;
    zmem->budget_bytes = size_bytes;
    snprintf(where, sizeof(where), "memory compressed by %s", codec);
    result = codec_open(codec, &zmem->codec);
    if (result < 0)
        goto unmap;
    result = tier_init(&zmem->tier, &zmem_ops, slots_count, where);
    if (result < 0)
        goto close_codec;
    result = tables_map(zmem, slots_count);
    if (result < 0)
        goto fini;
    result = slabs_init(&zmem->slabs, slabs_of(size_bytes), slabs_of(size_bytes) * GROWTH_MAX, object_moved, zmem);
    if (result < 0)
        goto unmap_tables;
    *ret_tier = &zmem->tier;
    return 0;

unmap_tables:
    tables_unmap(zmem, slots_count);
fini:
    tier_fini(&zmem->tier);
    error_set(-ENOMEM, "tier zmem of %llu MiB: no address space for it", (unsigned long long)(size_bytes >> 20));
close_codec:
    codec_close(&zmem->codec);
unmap:
    os_pages_unmap(memory, sizeof(*zmem));
    return result;
}
