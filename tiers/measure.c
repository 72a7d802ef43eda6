/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.c - what one page of a tier costs, by blocking transfers on free slots. Run at start, before the loop.
 *
 * The first batch is written unmeasured: the first write of reserved blocks is slower than all later ones.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "tiers/backend.h"

#include <errno.h>
#include <string.h>

#define BATCH_PAGES 64u
#define SPAN_NS     8000000u /* of the writes, and of the reads */

/* The tier's slots, or for an in-place tier plain memory that plays them. */
struct probe {
    struct tier *tier;
    char *memory; /* a batch to move, and behind it a batch that plays the slots */
    struct tier_slot first;
    unsigned pages_count;
};

static int probe_move(struct probe *probe, unsigned page, unsigned pages_count, bool is_write)
{
    struct tier *tier = probe->tier;
    char *memory = probe->memory + page * PAGE_BYTES;
    char *played = memory + BATCH_PAGES * PAGE_BYTES;

    if (tier->ops->move_now != NULL)
        return tier->ops->move_now(tier, (struct tier_slot){probe->first.index + page}, pages_count, memory, is_write);
    memcpy(is_write ? played : memory, is_write ? memory : played, pages_count * PAGE_BYTES);
    return 0;
}

static int writes_measure(struct probe *probe, uint64_t *ret_ns)
{
    uint64_t start;
    uint64_t span;
    uint64_t pages = 0;
    int result = probe_move(probe, 0, probe->pages_count, true);

    start = os_now_ns();
    do {
        if (result == 0)
            result = probe_move(probe, 0, probe->pages_count, true);
        if (result < 0)
            return result;
        pages += probe->pages_count;
        span = os_now_ns() - start;
    } while (span < SPAN_NS);
    *ret_ns = span / pages > 0 ? span / pages : 1;
    return 0;
}

static int reads_measure(struct probe *probe, uint64_t *ret_ns)
{
    uint64_t start = os_now_ns();
    uint64_t span;
    uint64_t pages = 0;

    do {
        int result = probe_move(probe, (unsigned)(pages * 29 % probe->pages_count), 1, false); /* out of order */

        if (result < 0)
            return result;
        pages++;
        span = os_now_ns() - start;
    } while (span < SPAN_NS);
    *ret_ns = span / pages > 0 ? span / pages : 1;
    return 0;
}

static int probe_run(struct probe *probe, struct tier_cost *ret_cost)
{
    struct tier_cost cost;
    int result = writes_measure(probe, &cost.write_ns);

    if (result == 0)
        result = reads_measure(probe, &cost.read_ns);
    if (result < 0) {
        errno = -result;
        log_error("measure tier %s (%s): %m", tier_name(probe->tier), probe->tier->where);
        return error_set(-EIO, "measure tier %s (%s): %m", tier_name(probe->tier), probe->tier->where);
    }
    *ret_cost = cost;
    return 0;
}

int tier_measure(struct tier *tier, struct tier_cost *ret_cost)
{
    struct probe probe = {.tier = tier};
    void *memory;
    int result;

    if (os_pages_map(2 * BATCH_PAGES * PAGE_BYTES, &memory) < 0)
        return error_set(-ENOMEM, "measure tier %s: out of memory", tier_name(tier));
    memset(memory, 0x5a, 2 * BATCH_PAGES * PAGE_BYTES);
    probe.memory = memory;
    probe.pages_count = tier_take(tier, BATCH_PAGES, &probe.first);
    if (probe.pages_count == 0) {
        os_pages_unmap(memory, 2 * BATCH_PAGES * PAGE_BYTES);
        return error_set(-ENOSPC, "measure tier %s: no slot is free", tier_name(tier));
    }
    result = probe_run(&probe, ret_cost);
    for (unsigned i = 0; i < probe.pages_count; i++)
        tier_put(tier, (struct tier_slot){probe.first.index + i});
    os_pages_unmap(memory, 2 * BATCH_PAGES * PAGE_BYTES);
    return result;
}
