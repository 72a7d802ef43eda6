/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapped.c - a slot store over mapped memory: transfers are copies and end at once. Run by the shard's thread.
 *
 * Freed slots are given back to the source in batches, because giving back one page costs 5 us and one of many 0.4.
 * A slot that was taken again in the meantime is left out.
 */
#include "tiers/mapped.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FREED_MAX 128 /* slots waiting to be given back: half a MiB at most is kept */

struct mapped {
    struct tier tier;
    struct mapped_source *source;
    struct tier_slot freed[FREED_MAX];
    unsigned freed_count;
};

static struct mapped *mapped_of(struct tier *tier)
{
    return CONTAINER_OF(tier, struct mapped, tier);
}

void *mapped_address(struct tier *tier, struct tier_slot slot)
{
    return mapped_of(tier)->source->memory + slot.index * PAGE_BYTES;
}

int mapped_move_now(struct tier *tier, struct tier_slot first, unsigned pages_count, void *memory, bool is_write)
{
    void *slots = mapped_address(tier, first);

    if (is_write)
        memcpy(slots, memory, pages_count * PAGE_BYTES);
    else
        memcpy(memory, slots, pages_count * PAGE_BYTES);
    return 0;
}

void mapped_transfer(struct tier *tier, struct tier_transfer *transfer)
{
    (void)mapped_move_now(tier, transfer->first, transfer->pages_count, transfer->memory, transfer->is_write);
    tier_transfer_finish(transfer, 0);
}

/* ---- giving back ---------------------------------------------------------------------------------------------- */

static int slot_compare(const void *a, const void *b)
{
    uint32_t left = ((const struct tier_slot *)a)->index;
    uint32_t right = ((const struct tier_slot *)b)->index;

    return (left > right) - (left < right);
}

static void freed_give_back(struct mapped *mapped)
{
    struct tier_slot firsts[FREED_MAX];
    unsigned counts[FREED_MAX];
    unsigned runs = 0;

    qsort(mapped->freed, mapped->freed_count, sizeof(mapped->freed[0]), slot_compare);
    for (unsigned i = 0; i < mapped->freed_count; i++) {
        uint32_t slot = mapped->freed[i].index;

        if (slots_are_used(&mapped->tier.slots, slot, 1) || (i > 0 && mapped->freed[i - 1].index == slot))
            continue;
        if (runs > 0 && firsts[runs - 1].index + counts[runs - 1] == slot) {
            counts[runs - 1]++;
            continue;
        }
        firsts[runs].index = slot;
        counts[runs++] = 1;
    }
    mapped->freed_count = 0;
    if (runs > 0 && mapped->source->give_back != NULL)
        mapped->source->give_back(mapped->source, firsts, counts, runs);
}

void mapped_freed(struct tier *tier, struct tier_slot slot)
{
    struct mapped *mapped = mapped_of(tier);

    if (mapped->source->give_back == NULL)
        return;
    mapped->freed[mapped->freed_count++] = slot;
    if (mapped->freed_count == FREED_MAX)
        freed_give_back(mapped);
}

/* ---- life ----------------------------------------------------------------------------------------------------- */

int mapped_resize(struct tier *tier, uint64_t slots_count)
{
    struct mapped *mapped = mapped_of(tier);

    freed_give_back(mapped);
    return mapped->source->resize(mapped->source, slots_count * PAGE_BYTES);
}

void mapped_close(struct tier *tier)
{
    struct mapped *mapped = mapped_of(tier);

    mapped->source->close(mapped->source);
    tier_fini(tier);
    os_pages_unmap(mapped, sizeof(*mapped));
}

int mapped_open(const char *where, const struct tier_ops *ops, struct mapped_source *source, struct tier **ret_tier)
{
    struct mapped *mapped;
    void *memory;
    int result;

    if (os_pages_map(sizeof(*mapped), &memory) < 0)
        return error_set(-ENOMEM, "tier %s: out of memory", ops->name);
    mapped = memory;
    result = tier_init(&mapped->tier, ops, (uint32_t)(source->size_bytes / PAGE_BYTES), where);
    if (result < 0) {
        os_pages_unmap(memory, sizeof(*mapped));
        return result;
    }
    mapped->source = source;
    *ret_tier = &mapped->tier;
    return 0;
}
