/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.c - what one page of a tier costs, by blocking transfers on free slots. Run at start, before the loop.
 *
 * The first batch is written unmeasured: the first write of reserved blocks is slower than all later ones.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/random.h"
#include "tiers/backend.h"

#include <errno.h>
#include <string.h>

#define BATCH_PAGES 64u
#define SPAN_NS     8000000u /* of the writes, and of the reads */

/* ---- tiers that move runs of slots ---------------------------------------------------------------------------- */

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

static int runs_measure(struct tier *tier, char *memory, struct tier_cost *ret_cost)
{
    struct probe probe = {.tier = tier, .memory = memory};
    int result;

    probe.pages_count = tier_take(tier, BATCH_PAGES, &probe.first);
    if (probe.pages_count == 0)
        return -ENOSPC;
    result = writes_measure(&probe, &ret_cost->write_ns);
    if (result == 0)
        result = reads_measure(&probe, &ret_cost->read_ns);
    for (unsigned i = 0; i < probe.pages_count; i++)
        tier_put(tier, (struct tier_slot){probe.first.index + i});
    return result;
}

/* ---- tiers that take a page at a time -------------------------------------------------------------------------- */

/* Half of it is chance: compresses to a little more than a half, as many a program's memory does. */
static void half_fill(char *memory)
{
    struct random random = {.state = 1};
    uint64_t *words = (uint64_t *)(void *)memory;

    for (size_t i = 0; i < BATCH_PAGES * PAGE_BYTES / sizeof(*words); i++)
        words[i] = i % 8 < 4 ? random_next(&random) : 0;
}

static int stores_measure(struct tier *tier, const char *memory, struct tier_slot *slots, uint64_t *ret_ns)
{
    uint64_t start = os_now_ns();
    uint64_t span = 0;
    uint64_t pages = 0;

    for (unsigned i = 0; span < SPAN_NS || pages < BATCH_PAGES; i = (i + 1) % BATCH_PAGES) {
        int result;

        if (pages >= BATCH_PAGES)
            tier_put(tier, slots[i]);
        result = tier_store(tier, page_of(0), memory + i * PAGE_BYTES, &slots[i]);
        if (result < 0) {
            slots[i] = TIER_SLOT_NONE;
            return result;
        }
        pages++;
        span = os_now_ns() - start;
    }
    *ret_ns = span / pages;
    return 0;
}

static int views_measure(struct tier *tier, const struct tier_slot *slots, void *bounce, uint64_t *ret_ns)
{
    uint64_t start = os_now_ns();
    uint64_t span = 0;
    uint64_t pages = 0;

    while (span < SPAN_NS) {
        if (tier_view(tier, slots[pages++ * 29 % BATCH_PAGES], bounce) == NULL) /* out of order */
            return -EIO;
        span = os_now_ns() - start;
    }
    *ret_ns = span / pages;
    return 0;
}

static int pages_measure(struct tier *tier, char *memory, struct tier_cost *ret_cost)
{
    const struct tier_counters before = tier->counters;
    struct tier_slot slots[BATCH_PAGES];
    int result;

    for (unsigned i = 0; i < BATCH_PAGES; i++)
        slots[i] = TIER_SLOT_NONE;
    half_fill(memory);
    result = stores_measure(tier, memory, slots, &ret_cost->write_ns);
    if (result == 0)
        result = views_measure(tier, slots, memory, &ret_cost->read_ns);
    for (unsigned i = 0; i < BATCH_PAGES; i++)
        if (slots[i].index != TIER_SLOT_NONE.index)
            tier_put(tier, slots[i]);
    tier->counters = before;
    return result;
}

/* ---- either ---------------------------------------------------------------------------------------------------- */

static int measure_error(const struct tier *tier, int error)
{
    if (error == -ENOSPC)
        return error_set(-ENOSPC, "measure tier %s: no slot is free", tier_name(tier));
    errno = -error;
    log_error("measure tier %s (%s): %m", tier_name(tier), tier->where);
    return error_set(-EIO, "measure tier %s (%s): %m", tier_name(tier), tier->where);
}

int tier_measure(struct tier *tier, struct tier_cost *ret_cost)
{
    struct tier_cost cost = {0, 0};
    void *memory;
    int result;

    if (os_pages_map(2 * BATCH_PAGES * PAGE_BYTES, &memory) < 0)
        return error_set(-ENOMEM, "measure tier %s: out of memory", tier_name(tier));
    memset(memory, 0x5a, 2 * BATCH_PAGES * PAGE_BYTES);
    result = (tier_capabilities(tier) & TIER_CAP_BY_PAGE) != 0 ? pages_measure(tier, memory, &cost)
                                                               : runs_measure(tier, memory, &cost);
    os_pages_unmap(memory, 2 * BATCH_PAGES * PAGE_BYTES);
    if (result < 0)
        return measure_error(tier, result);
    *ret_cost = cost;
    return 0;
}
