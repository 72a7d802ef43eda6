/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure.c - what one page of a tier costs, by blocking transfers on free slots. Run at start, before the loop.
 *
 * Costs are the median of many short samples: on a busy machine this process is not always running, and a mean would
 * make memory look slower than the disk. The first batch is written unmeasured: the first write of reserved blocks is
 * slower than all later ones.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/random.h"
#include "tiers/backend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_PAGES 64u
#define SPAN_NS     8000000u /* of the writes, and of the reads */
#define SAMPLES_MIN 3u
#define SAMPLES_MAX 128u
#define SAMPLE_NS   20000u /* of single pages takes so long at least: one of memory is too short to time */

/* ---- samples --------------------------------------------------------------------------------------------------- */

struct samples {
    uint64_t costs_ns[SAMPLES_MAX]; /* of a page */
    unsigned count;
    uint64_t start_ns;
};

static bool samples_want_more(const struct samples *samples)
{
    return samples->count < SAMPLES_MIN || (samples->count < SAMPLES_MAX && os_now_ns() - samples->start_ns < SPAN_NS);
}

static int cost_compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

static uint64_t samples_median_ns(struct samples *samples)
{
    uint64_t median;

    qsort(samples->costs_ns, samples->count, sizeof(samples->costs_ns[0]), cost_compare);
    median = samples->costs_ns[samples->count / 2];
    return median > 0 ? median : 1;
}

/* Moves some pages; how many, or -errno. */
typedef int measured_step(void *context);

/* Each sample is as many steps as take min_ns. */
static int steps_measure(measured_step *step, void *context, uint64_t min_ns, uint64_t *ret_ns)
{
    struct samples samples = {.start_ns = os_now_ns()};

    while (samples_want_more(&samples)) {
        uint64_t start_ns = os_now_ns();
        uint64_t span_ns;
        uint64_t pages = 0;

        do {
            int moved = step(context);

            if (moved < 0)
                return moved;
            pages += (uint64_t)moved;
            span_ns = os_now_ns() - start_ns;
        } while (span_ns < min_ns);
        samples.costs_ns[samples.count++] = span_ns / pages;
    }
    *ret_ns = samples_median_ns(&samples);
    return 0;
}

/* ---- tiers that move runs of slots ---------------------------------------------------------------------------- */

/* The tier's slots, or for an in-place tier plain memory that plays them. */
struct probe {
    struct tier *tier;
    char *memory; /* a batch to move, and behind it a batch that plays the slots */
    struct tier_slot first;
    unsigned pages_count;
    unsigned reads;
};

static int probe_move(struct probe *probe, unsigned page, unsigned pages_count, bool is_write)
{
    struct tier *tier = probe->tier;
    char *memory = probe->memory + page * PAGE_BYTES;
    char *played = memory + BATCH_PAGES * PAGE_BYTES;
    int result = 0;

    if (tier->ops->move_now != NULL)
        result =
            tier->ops->move_now(tier, (struct tier_slot){probe->first.index + page}, pages_count, memory, is_write);
    else
        memcpy(is_write ? played : memory, is_write ? memory : played, pages_count * PAGE_BYTES);
    return result < 0 ? result : (int)pages_count;
}

static int batch_write(void *context)
{
    struct probe *probe = context;

    return probe_move(probe, 0, probe->pages_count, true);
}

static int page_read(void *context)
{
    struct probe *probe = context;

    return probe_move(probe, probe->reads++ * 29 % probe->pages_count, 1, false); /* out of order */
}

static int runs_measure(struct tier *tier, char *memory, struct tier_cost *ret_cost)
{
    struct probe probe = {.tier = tier, .memory = memory};
    int result;

    probe.pages_count = tier_take(tier, BATCH_PAGES, &probe.first);
    if (probe.pages_count == 0)
        return -ENOSPC;
    result = batch_write(&probe);
    if (result >= 0)
        result = steps_measure(batch_write, &probe, 0, &ret_cost->write_ns);
    if (result == 0)
        result = steps_measure(page_read, &probe, SAMPLE_NS, &ret_cost->read_ns);
    for (unsigned i = 0; i < probe.pages_count; i++)
        tier_put(tier, (struct tier_slot){probe.first.index + i});
    return result;
}

/* ---- tiers that take a page at a time -------------------------------------------------------------------------- */

struct page_probe {
    struct tier *tier;
    char *memory; /* a batch of pages */
    struct tier_slot slots[BATCH_PAGES];
    unsigned next;
};

/* Half of it is chance: compresses to a little more than a half, as many a program's memory does. */
static void half_fill(char *memory)
{
    struct random random = {.state = 1};
    uint64_t *words = (uint64_t *)(void *)memory;

    for (size_t i = 0; i < BATCH_PAGES * PAGE_BYTES / sizeof(*words); i++)
        words[i] = i % 8 < 4 ? random_next(&random) : 0;
}

static int page_store(void *context)
{
    struct page_probe *probe = context;
    unsigned i = probe->next++ % BATCH_PAGES;
    int result;

    if (probe->slots[i].index != TIER_SLOT_NONE.index)
        tier_put(probe->tier, probe->slots[i]);
    probe->slots[i] = TIER_SLOT_NONE;
    result = tier_store(probe->tier, page_of(0), probe->memory + i * PAGE_BYTES, &probe->slots[i]);
    return result < 0 ? result : 1;
}

static int page_view(void *context)
{
    struct page_probe *probe = context;
    struct tier_slot slot = probe->slots[probe->next++ * 29 % BATCH_PAGES];

    return tier_view(probe->tier, slot, probe->memory) != NULL ? 1 : -EIO;
}

static int pages_measure(struct tier *tier, char *memory, struct tier_cost *ret_cost)
{
    const struct tier_counters before = tier->counters;
    struct page_probe probe = {.tier = tier, .memory = memory};
    int result = 0;

    for (unsigned i = 0; i < BATCH_PAGES; i++)
        probe.slots[i] = TIER_SLOT_NONE;
    half_fill(memory);
    for (unsigned i = 0; result >= 0 && i < BATCH_PAGES; i++)
        result = page_store(&probe);
    if (result >= 0)
        result = steps_measure(page_store, &probe, SAMPLE_NS, &ret_cost->write_ns);
    if (result == 0)
        result = steps_measure(page_view, &probe, SAMPLE_NS, &ret_cost->read_ns);
    for (unsigned i = 0; i < BATCH_PAGES; i++)
        if (probe.slots[i].index != TIER_SLOT_NONE.index)
            tier_put(tier, probe.slots[i]);
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
