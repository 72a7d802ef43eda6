/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.c - the dispatcher: slots, checksums, owners and contract checks for all tiers. Run by the shard's thread.
 *
 * Always holds: the checksum of a free slot is 0 and its owner unset; a transfer touches taken slots only.
 */
#define XXH_INLINE_ALL /* one page a call: the call would be a tenth of it */
#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "tiers/backend.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#define ERRORS_LOGGED 32 /* after these only errors number 64, 128, 256, ...: a dead disk must not flood the log */

static bool tier_is_in_place(const struct tier *tier)
{
    return (tier->ops->capabilities & TIER_CAP_IN_PLACE) != 0;
}

static bool tier_is_addressable(const struct tier *tier)
{
    return (tier->ops->capabilities & TIER_CAP_ADDRESSABLE) != 0;
}

static bool slots_are_taken(const struct tier *tier, struct tier_slot first, unsigned count)
{
    return tier->shared != NULL ? shared_slots_are_held(tier->shared, first.index, count)
                                : slots_are_used(&tier->slots, first.index, count);
}

static bool tier_is_by_page(const struct tier *tier)
{
    return (tier->ops->capabilities & TIER_CAP_BY_PAGE) != 0;
}

/* ---- checksums ------------------------------------------------------------------------------------------------ */

static uint64_t checksum_of(const void *page)
{
    uint64_t sum = XXH3_64bits(page, PAGE_BYTES);

    return sum == 0 ? 1 : sum; /* 0 means not written */
}

static bool error_is_logged(struct tier *tier)
{
    uint64_t count = ++tier->counters.errors;

    return count <= ERRORS_LOGGED || (count & (count - 1)) == 0;
}

/* page NULL: the bytes do not even look like a page. */
static bool slot_is_right(struct tier *tier, uint32_t slot, const void *page)
{
    if (page != NULL && checksum_of(page) == tier->checksums[slot])
        return true;
    if (error_is_logged(tier))
        log_error("read slot %u of tier %s (%s): the bytes differ from those written, the checksum is wrong", slot,
                  tier->ops->name, tier->where);
    return false;
}

void tier_seal(struct tier *tier, struct tier_slot first, unsigned pages_count)
{
    ASSERT(tier_is_addressable(tier));
    ASSERT(slots_are_taken(tier, first, pages_count));
    for (unsigned i = 0; i < pages_count; i++)
        tier->checksums[first.index + i] = checksum_of(tier->ops->address(tier, (struct tier_slot){first.index + i}));
    tier->counters.pages_written += pages_count;
}

/* ---- slots ---------------------------------------------------------------------------------------------------- */

static uint32_t slots_allowed(const struct tier *tier)
{
    return tier->slots.count < tier->limit_count ? tier->slots.count : tier->limit_count;
}

unsigned tier_take(struct tier *tier, unsigned wanted, struct tier_slot *ret_first)
{
    struct slots *slots = &tier->slots;

    ASSERT(wanted > 0 && !tier_is_by_page(tier));
    if (tier_is_in_place(tier)) {
        uint32_t free_count = slots->count > slots->used_count ? slots->count - slots->used_count : 0;
        unsigned taken = wanted < free_count ? wanted : free_count;

        slots->used_count += taken;
        *ret_first = (struct tier_slot){0};
        return taken;
    }
    if (wanted > TIER_RUN_MAX)
        wanted = TIER_RUN_MAX;
    if (tier->shared != NULL)
        return shared_slots_take(tier->shared, wanted, &ret_first->index);
    if (wanted > tier_slots_free(tier))
        wanted = (unsigned)tier_slots_free(tier);
    return wanted > 0 ? slots_take(slots, wanted, 1, &ret_first->index) : 0;
}

void tier_put(struct tier *tier, struct tier_slot slot)
{
    if (tier_is_in_place(tier)) {
        ASSERT(tier->slots.used_count > 0);
        tier->slots.used_count--;
        return;
    }
    if (tier->shared != NULL)
        shared_slots_put(tier->shared, slot.index);
    else
        slots_put(&tier->slots, slot.index);
    tier->checksums[slot.index] = 0;
    if (tier->owners != NULL)
        tier->owners[slot.index] = 0;
    if (tier->ops->freed != NULL)
        tier->ops->freed(tier, slot);
}

/* A DDR budget may have been lowered below what is in use: then none is free until enough was put. */
uint64_t tier_slots_free(const struct tier *tier)
{
    struct tier_counters counters;

    if (tier->shared != NULL)
        return shared_slots_free(tier->shared);
    if (tier->ops->usage != NULL) {
        tier_counters_get(tier, &counters);
        return counters.slots_max > counters.slots_used ? counters.slots_max - counters.slots_used : 0;
    }
    return slots_allowed(tier) > tier->slots.used_count ? slots_allowed(tier) - tier->slots.used_count : 0;
}

int tier_store(struct tier *tier, struct page_id owner, const void *page, struct tier_slot *ret_slot)
{
    struct tier_slot slot;
    int result;

    ASSERT(tier_is_by_page(tier));
    if (slots_take(&tier->slots, 1, 1, &slot.index) == 0)
        return -ENOSPC;
    result = tier->ops->store(tier, slot, page);
    if (result < 0) {
        slots_put(&tier->slots, slot.index);
        return result;
    }
    tier->checksums[slot.index] = checksum_of(page);
    tier->owners[slot.index] = owner.index + 1;
    tier->counters.pages_written++;
    *ret_slot = slot;
    return 0;
}

void tier_owner_set(struct tier *tier, struct tier_slot slot, struct page_id page)
{
    ASSERT(tier->owners != NULL);
    ASSERT(slots_are_taken(tier, slot, 1));
    tier->owners[slot.index] = page.index + 1;
}

unsigned tier_oldest(struct tier *tier, unsigned wanted, struct tier_slot *ret_first, struct page_id *pages_out)
{
    unsigned count;

    ASSERT(tier->owners != NULL && wanted > 0);
    count = slots_oldest(&tier->slots, wanted < TIER_RUN_MAX ? wanted : TIER_RUN_MAX, &ret_first->index);
    for (unsigned i = 0; i < count; i++)
        pages_out[i] = page_of(tier->owners[ret_first->index + i] - 1);
    return count;
}

/* ---- transfers ------------------------------------------------------------------------------------------------ */

static void transfer_check(const struct tier *tier, const struct tier_transfer *transfer)
{
    ASSERT(!tier_is_in_place(tier) && !tier_is_by_page(tier));
    ASSERT(transfer->done != NULL);
    ASSERT(transfer->pages_count > 0 && transfer->pages_count <= TIER_RUN_MAX);
    ASSERT(transfer->memory != NULL && (uintptr_t)transfer->memory % PAGE_BYTES == 0);
    ASSERT(slots_are_taken(tier, transfer->first, transfer->pages_count));
    for (unsigned i = 0; !transfer->is_write && i < transfer->pages_count; i++)
        ASSERT(tier->checksums[transfer->first.index + i] != 0);
}

void tier_transfer_start(struct tier *tier, struct tier_transfer *transfer)
{
    transfer_check(tier, transfer);
    transfer->tier = tier;
    transfer->failed_page = 0;
    transfer->pages_moved = 0;
    transfer->retries = 0;
    transfer->is_single = false;
    transfer->is_doomed = tier->errors_due > 0;
    if (transfer->is_doomed)
        tier->errors_due--;
    for (unsigned i = 0; transfer->is_write && i < transfer->pages_count; i++)
        tier->checksums[transfer->first.index + i] = checksum_of((char *)transfer->memory + i * PAGE_BYTES);
    tier->inflight++;
    tier->ops->transfer(tier, transfer);
}

static int transfer_verify(struct tier *tier, struct tier_transfer *transfer)
{
    for (unsigned i = 0; i < transfer->pages_count; i++) {
        if (!slot_is_right(tier, transfer->first.index + i, (char *)transfer->memory + i * PAGE_BYTES)) {
            transfer->failed_page = i;
            return -EIO;
        }
    }
    return 0;
}

static int transfer_fail(struct tier *tier, const struct tier_transfer *transfer, int result)
{
    if (error_is_logged(tier)) {
        errno = -result;
        log_error("%s slot %u of tier %s (%s): %m", transfer->is_write ? "write" : "read",
                  transfer->first.index + transfer->failed_page, tier->ops->name, tier->where);
    }
    return -EIO;
}

void tier_transfer_finish(struct tier_transfer *transfer, int result)
{
    struct tier *tier = transfer->tier;

    ASSERT(tier->inflight > 0);
    tier->inflight--;
    if (result == 0 && transfer->is_doomed)
        result = -EIO;
    if (result < 0)
        result = transfer_fail(tier, transfer, result);
    else if (transfer->is_write)
        tier->counters.pages_written += transfer->pages_count;
    else
        result = transfer_verify(tier, transfer);
    if (result == 0 && !transfer->is_write)
        tier->counters.pages_read += transfer->pages_count;
    transfer->done(transfer, result);
}

/* The slot's bytes as they are, perhaps wrong; NULL: they cannot be made into a page. */
static const void *slot_bytes(struct tier *tier, struct tier_slot slot, void *bounce)
{
    if (!tier_is_by_page(tier))
        return tier_address(tier, slot);
    ASSERT(slots_are_used(&tier->slots, slot.index, 1));
    if (tier->errors_due > 0) {
        tier->errors_due--;
        return NULL;
    }
    return tier->ops->load(tier, slot, bounce) ? bounce : NULL;
}

const void *tier_view(struct tier *tier, struct tier_slot slot, void *bounce)
{
    const void *page = slot_bytes(tier, slot, bounce);

    ASSERT(tier->checksums[slot.index] != 0);
    if (!slot_is_right(tier, slot.index, page))
        return NULL;
    tier->counters.pages_read++;
    return page;
}

void *tier_address(struct tier *tier, struct tier_slot slot)
{
    ASSERT(tier_is_addressable(tier));
    ASSERT(slots_are_taken(tier, slot, 1));
    return tier->ops->address(tier, slot);
}

void tier_inject_errors(struct tier *tier, unsigned count)
{
    tier->errors_due = count;
}

/* ---- life ----------------------------------------------------------------------------------------------------- */

int tier_slots_of(const char *name, uint64_t size_bytes, uint32_t *ret_slots)
{
    uint64_t slots_count = size_bytes / PAGE_BYTES;

    if (slots_count == 0 || slots_count > SLOTS_MAX)
        return error_set(-EINVAL, "tier %s of %llu bytes: the size must be at least 4096 bytes and below 16 TiB", name,
                         (unsigned long long)size_bytes);
    *ret_slots = (uint32_t)slots_count;
    return 0;
}

/* A table of 8 bytes a slot. Small pages, so that an untouched stretch costs nothing. */
static int table_map(uint32_t slots_count, uint64_t **ret_table)
{
    void *memory;

    if (os_pages_map(slots_count * sizeof(uint64_t), &memory) < 0)
        return -ENOMEM;
    (void)madvise(memory, slots_count * sizeof(uint64_t), MADV_NOHUGEPAGE); /* not built into every kernel */
    *ret_table = memory;
    return 0;
}

static void table_unmap(uint64_t *table, uint32_t slots_count)
{
    os_pages_unmap(table, slots_count * sizeof(uint64_t));
}

int tier_init(struct tier *tier, const struct tier_ops *ops, uint32_t slots_count, const char *where)
{
    *tier = (struct tier){.ops = ops, .limit_count = UINT32_MAX};
    strncpy(tier->where, where, sizeof(tier->where) - 1);
    if (tier_is_in_place(tier)) {
        tier->slots.count = slots_count;
        return 0;
    }
    if (slots_init(&tier->slots, slots_count) < 0)
        goto refuse;
    if (table_map(slots_count, &tier->checksums) < 0)
        goto fini_slots;
    if ((tier_is_addressable(tier) || tier_is_by_page(tier)) && table_map(slots_count, &tier->owners) < 0)
        goto unmap_checksums;
    return 0;

unmap_checksums:
    table_unmap(tier->checksums, slots_count);
fini_slots:
    slots_fini(&tier->slots);
refuse:
    return error_set(-ENOMEM, "tier %s of %u slots: no address space for its tables", ops->name, slots_count);
}

int tier_init_shared(struct tier *tier, const struct tier_ops *ops, struct shared_slots *shared, const char *where)
{
    uint32_t capacity = shared->table->capacity;

    *tier = (struct tier){.ops = ops, .shared = shared, .limit_count = UINT32_MAX};
    strncpy(tier->where, where, sizeof(tier->where) - 1);
    tier->slots.count = capacity;
    return table_map(capacity, &tier->checksums) == 0
               ? 0
               : error_set(-ENOMEM, "tier %s of %u slots: no address space for its tables", ops->name, capacity);
}

void tier_fini(struct tier *tier)
{
    table_unmap(tier->owners, tier->slots.count);
    table_unmap(tier->checksums, tier->slots.count);
    slots_fini(&tier->slots);
}

/* New tables with the old contents; the old ones stay when memory is short. */
static int tables_resize(struct tier *tier, uint32_t slots_count)
{
    uint32_t before = tier->slots.count;
    size_t kept_bytes = (tier->slots.window < slots_count ? tier->slots.window : slots_count) * sizeof(uint64_t);
    uint64_t *checksums;
    uint64_t *owners = NULL;
    int result;

    if (table_map(slots_count, &checksums) < 0)
        return -ENOMEM;
    result = tier->owners == NULL ? 0 : table_map(slots_count, &owners);
    if (result == 0)
        result = slots_resize(&tier->slots, slots_count);
    if (result < 0) {
        table_unmap(owners, slots_count);
        table_unmap(checksums, slots_count);
        return result;
    }
    memcpy(checksums, tier->checksums, kept_bytes);
    table_unmap(tier->checksums, before);
    tier->checksums = checksums;
    if (owners != NULL) {
        memcpy(owners, tier->owners, kept_bytes);
        table_unmap(tier->owners, before);
        tier->owners = owners;
    }
    return 0;
}

int tier_resize(struct tier *tier, uint64_t size_bytes)
{
    uint32_t before = tier->slots.count;
    uint32_t slots_count = 0;
    int result = tier_slots_of(tier->ops->name, size_bytes, &slots_count);

    if (result < 0)
        return result;
    if (tier->shared != NULL)
        return error_set(-EOPNOTSUPP, "tier %s is the whole job's: only its broker can resize it", tier->ops->name);
    if (tier_is_in_place(tier)) {
        tier->slots.count = slots_count;
        return 0;
    }
    if (tier_is_by_page(tier)) /* slots are entries: there are enough for any size it can have */
        return tier->ops->resize(tier, slots_count);
    if (slots_count > before) /* room first, then the slots that need it; the other way round when shrinking */
        result = tier->ops->resize(tier, slots_count);
    if (result < 0)
        return result;
    result = tables_resize(tier, slots_count);
    if (result < 0)
        error_set(result, "tier %s to %u slots: %s", tier->ops->name, slots_count,
                  result == -EBUSY ? "slots above that are in use" : "no address space for its tables");
    if (slots_count < before && result == 0)
        result = tier->ops->resize(tier, slots_count);
    else if (slots_count > before && result < 0)
        (void)tier->ops->resize(tier, before);
    return result;
}

int tier_limit(struct tier *tier, uint64_t size_bytes)
{
    uint64_t slots_count = size_bytes / PAGE_BYTES;
    int result;

    ASSERT(tier->shared == NULL && !tier_is_in_place(tier));
    if (tier_is_by_page(tier))
        return tier_resize(tier, size_bytes);
    if (slots_count > tier->slots.count) {
        result = tier_resize(tier, size_bytes);
        if (result < 0)
            return result;
    }
    tier->limit_count = (uint32_t)slots_count;
    return 0;
}

void tier_counters_get(const struct tier *tier, struct tier_counters *ret_counters)
{
    *ret_counters = tier->counters;
    ret_counters->slots_used = tier->slots.used_count;
    ret_counters->slots_max = slots_allowed(tier);
    ret_counters->metadata_bytes = 0;
    if (tier_is_in_place(tier))
        return;
    if (tier->shared != NULL) {
        ret_counters->slots_used = shared_slots_held(tier->shared);
        ret_counters->slots_max = shared_slots_max(tier->shared);
        ret_counters->metadata_bytes = shared_slots_reach(tier->shared) * sizeof(uint64_t);
        return;
    }
    ret_counters->metadata_bytes = slots_bytes(&tier->slots) + tier->slots.window * sizeof(uint64_t);
    if (tier->owners != NULL)
        ret_counters->metadata_bytes += tier->slots.window * sizeof(uint64_t);
    if (tier->ops->usage != NULL)
        tier->ops->usage(tier, ret_counters);
}

const char *tier_name(const struct tier *tier)
{
    return tier->ops->name;
}

unsigned tier_capabilities(const struct tier *tier)
{
    return tier->ops->capabilities;
}

void tier_close(struct tier *tier)
{
    if (tier == NULL)
        return;
    ASSERT(tier->inflight == 0);
    tier->ops->close(tier);
}
