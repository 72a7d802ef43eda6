/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_limit.c - budgets that change while the node runs.
 *
 * Runs on the shard's thread. A smaller DDR budget is not enforced at once: evictions go by what is wanted, while the
 * budget that faults go by follows what is in use down, so that no fault waits until all that is too much has left.
 * When nothing can leave, since all is full below, it stays above what is in use: a page that comes back from below
 * must find a frame, else its thread would wait for ever. It never rises above what was allowed before.
 * Always holds: wanted_frames <= budget_frames <= ceiling_frames; the first two are equal unless is_shrinking.
 */
#include "base/error.h"
#include "runtime/config.h"
#include "runtime/pager_internal.h"

#include <errno.h>
#include <string.h>

#define FOLLOW_MIN_FRAMES 32       /* the budget falls by so much at least each time, whatever faults bring */
#define PLACED_SHARE      64       /* of the budget: the policy is told of larger changes only */
#define SHRINK_RETRY_NS   50000000 /* when nothing could leave just now */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void pager_budget_init(struct pager *pager)
{
    uint64_t max_bytes = pager->config.ddr_max_bytes;

    if (max_bytes < pager->config.ddr_bytes)
        max_bytes = pager->config.ddr_bytes;
    pager->far_max_frames = (uint32_t)(pager->config.far.bytes / PAGE_BYTES);
    pager->far_wish_frames = pager->far_max_frames;
    pager->far_frames = pager->far_max_frames;
    max_bytes += pager->config.far.bytes;
    pager->table_frames = (uint32_t)(max_bytes / PAGE_BYTES) + PAGER_OVERFLOW_FRAMES;
    pager->wanted_frames = (uint32_t)(pager->config.ddr_bytes / PAGE_BYTES) + pager->far_frames;
    pager->placed_frames = pager->wanted_frames;
    pager->budget_frames = pager->wanted_frames;
    pager->ceiling_frames = pager->wanted_frames;
    pager->marks = placement_marks_of(pager->wanted_frames);
}

/* ---- zmem inside the DDR budget ---------------------------------------------------------------------------------- */

static bool is_inside_ddr(const struct pager *pager, enum tier_kind tier)
{
    return tier == TIER_ZMEM && pager->config.zmem_percent > 0;
}

uint32_t pager_compressed_frames(const struct pager *pager)
{
    struct tier_counters counters;

    if (!is_inside_ddr(pager, TIER_ZMEM))
        return 0;
    tier_counters_get(pager->config.tiers[TIER_ZMEM], &counters);
    return (uint32_t)(counters.physical_bytes / PAGE_BYTES);
}

/* What is left for pages that can be used in place; the policy divides it. */
static uint32_t frames_to_place(const struct pager *pager)
{
    uint32_t taken = pager_compressed_frames(pager);
    uint32_t left = pager->wanted_frames > taken ? pager->wanted_frames - taken : 0;

    return left > PLACEMENT_FRAMES_MIN ? left : PLACEMENT_FRAMES_MIN;
}

static void placed_set(struct pager *pager, uint32_t frames)
{
    pager->placed_frames = frames;
    placement_resize(pager->placement, frames);
}

void pager_compressed_follow(struct pager *pager)
{
    uint32_t next = frames_to_place(pager);
    uint32_t change = next > pager->placed_frames ? next - pager->placed_frames : pager->placed_frames - next;

    if (change > pager->wanted_frames / PLACED_SHARE)
        placed_set(pager, next);
}

/* DDR is too full, and nothing more can be unmapped there: pinned pages, for example, need what zmem holds. */
bool pager_compressed_must_leave(const struct pager *pager)
{
    return is_inside_ddr(pager, TIER_ZMEM) && !pager->has_evicted &&
           pager_frames_used(pager) + pager->marks.low > pager->wanted_frames;
}

static int store_resize(struct pager *pager, enum tier_kind tier, uint64_t bytes)
{
    int error = tier_limit(pager->config.tiers[tier], bytes);

    if (error == 0)
        pager_tier_low_set(pager, tier);
    return error;
}

void pager_share_apply(struct pager *pager)
{
    pager->share.applied_frames = pager_share_frames(pager);
    if (is_inside_ddr(pager, TIER_ZMEM) &&
        store_resize(pager, TIER_ZMEM, (uint64_t)pager->share.applied_frames * PAGE_BYTES) != 0)
        log_warn("zmem inside the DDR budget stays as large as it was: %s", error_text());
}

/* Can zmem have its part of such a budget? It must: one that stays larger leaves no room for pages in place. */
static int share_fits(struct pager *pager, uint64_t bytes)
{
    return store_resize(pager, TIER_ZMEM, bytes / 100 * pager->config.zmem_percent);
}

/* ---- DDR ------------------------------------------------------------------------------------------------------- */

bool pager_is_moving(const struct pager *pager)
{
    bool result = pager->has_evicted;

    for (int i = 0; !result && i < TIERS; i++)
        result = pager->demotions[i].pages_count > 0;
    for (unsigned i = 0; !result && i < PAGER_EVICTIONS_MAX; i++)
        result = pager->evictions[i].pages_count > 0;
    return result;
}

void pager_budget_follow(struct pager *pager)
{
    uint32_t next = pager_frames_used(pager) + pager->marks.low; /* faults have as much room as otherwise */

    pager->is_shrinking = next > pager->wanted_frames;
    if (pager_is_moving(pager) && pager->budget_frames > FOLLOW_MIN_FRAMES)
        next = least(next, pager->budget_frames - FOLLOW_MIN_FRAMES);
    next = least(next, pager->ceiling_frames);
    pager->budget_frames = next > pager->wanted_frames ? next : pager->wanted_frames;
}

/* Writes that end wake the loop anyway; what leaves without one must be called for. */
uint64_t pager_shrink_deadline_ns(const struct pager *pager)
{
    if (!pager->is_shrinking)
        return UINT64_MAX;
    return pager->has_evicted ? 0 : os_now_ns() + SHRINK_RETRY_NS;
}

static void wanted_set(struct pager *pager, uint32_t frames)
{
    pager->wanted_frames = frames;
    pager->marks = placement_marks_of(pager->wanted_frames);
    placed_set(pager, frames_to_place(pager));
    pager->ceiling_frames = pager->budget_frames > pager->wanted_frames ? pager->budget_frames : pager->wanted_frames;
    pager->has_evicted = true; /* look at once */
    pager_budget_follow(pager);
}

static int ddr_limit(struct pager *pager, uint64_t bytes)
{
    uint64_t max_bytes = (uint64_t)(pager->table_frames - PAGER_OVERFLOW_FRAMES - pager->far_max_frames) * PAGE_BYTES;
    int error = 0;

    if (bytes < PLACEMENT_FRAMES_MIN * PAGE_BYTES)
        return error_set(-EINVAL, "a DDR budget of %lu bytes is too small; it takes %lu at least", bytes,
                         PLACEMENT_FRAMES_MIN * PAGE_BYTES);
    if (bytes > max_bytes)
        return error_set(-EINVAL, "a DDR budget of %lu MiB is too large; this process can have %lu MiB", bytes >> 20,
                         max_bytes >> 20);
    if (is_inside_ddr(pager, TIER_ZMEM))
        error = share_fits(pager, bytes);
    /* Its tables were reserved at the start: beyond what they hold DDR grows alone. */
    if (error == -ENOMEM && bytes / PAGE_BYTES + pager->far_frames > pager->wanted_frames)
        error = 0;
    if (error != 0)
        return error_set(error, "zmem inside a DDR budget of %lu MiB: %s", bytes >> 20, strerror(-error));
    wanted_set(pager, (uint32_t)(bytes / PAGE_BYTES) + pager->far_frames);
    pager_share_apply(pager);
    return 0;
}

/* ---- far memory: in place as DDR is ---------------------------------------------------------------------------- */

void pager_far_set(struct pager *pager, uint32_t frames)
{
    uint32_t near = pager->wanted_frames - pager->far_frames;

    pager->far_frames = frames;
    wanted_set(pager, near + frames);
}

static int far_limit(struct pager *pager, uint64_t bytes)
{
    uint64_t most_bytes = (uint64_t)pager->far_max_frames * PAGE_BYTES;

    if (bytes > most_bytes)
        return error_set(-EINVAL, "CXL memory in place was opened with %lu MiB and cannot have more", most_bytes >> 20);
    pager->far_wish_frames = (uint32_t)(bytes / PAGE_BYTES);
    pager_far_set(pager, pager->far_wish_frames);
    return 0;
}

/* ---- tiers below ----------------------------------------------------------------------------------------------- */

static uint64_t room_below(const struct pager *pager, enum tier_kind tier)
{
    uint64_t room = 0;

    for (int i = (int)tier + 1; i < TIERS; i++)
        if (pager->config.tiers[i] != NULL)
            room += tier_slots_free(pager->config.tiers[i]);
    return room;
}

static int store_limit(struct pager *pager, enum tier_kind tier, uint64_t bytes)
{
    struct tier *store = pager->config.tiers[tier];
    uint64_t room = room_below(pager, tier);
    uint64_t bytes_of_percent = (uint64_t)pager->wanted_frames * PAGE_BYTES / 100;
    struct tier_counters counters;
    int error;

    if (is_inside_ddr(pager, tier) && bytes > CONFIG_ZMEM_PERCENT_MAX * bytes_of_percent)
        return error_set(-EINVAL, "zmem is inside the DDR budget of %lu MiB and can have %u %% of it",
                         (uint64_t)pager->wanted_frames >> (20 - PAGE_SHIFT), CONFIG_ZMEM_PERCENT_MAX);
    tier_counters_get(store, &counters);
    if (counters.slots_used > bytes / PAGE_BYTES + room)
        return error_set(-EBUSY, "tier %s to %lu MiB: %lu MiB are in use, and below it there is room for %lu MiB",
                         tier_name(store), bytes >> 20, counters.slots_used >> (20 - PAGE_SHIFT),
                         room >> (20 - PAGE_SHIFT));
    error = store_resize(pager, tier, bytes);
    if (error == 0 && is_inside_ddr(pager, tier)) {
        pager->config.zmem_percent = (uint32_t)((bytes + bytes_of_percent - 1) / bytes_of_percent);
        pager_share_apply(pager);
    }
    return error;
}

int pager_limit(struct pager *pager, enum tier_kind tier, uint64_t bytes)
{
    struct tier *store = tier > TIER_DDR && tier < TIERS ? pager->config.tiers[tier] : NULL;

    if (tier == TIER_DDR)
        return ddr_limit(pager, bytes);
    if (tier == TIER_CXL && pager->spread != NULL)
        return far_limit(pager, bytes);
    if (store == NULL)
        return error_set(-ENOENT, "this process has no such tier");
    if (tier != TIER_NVME)
        return store_limit(pager, tier, bytes);
    return error_set(-EINVAL, "the size of tier %s cannot be changed in this process", tier_name(store));
}

/* ---- seeing it ------------------------------------------------------------------------------------------------- */

void pager_budget_pages(const struct pager *pager, uint64_t pages[TIERS])
{
    pages[TIER_DDR] = pager->wanted_frames - pager->far_frames;
    for (int i = TIER_DDR + 1; i < TIERS; i++) {
        struct tier_counters counters = {.slots_max = 0};

        if (pager->config.tiers[i] != NULL)
            tier_counters_get(pager->config.tiers[i], &counters);
        pages[i] = counters.slots_max;
    }
    pages[TIER_CXL] += pager->far_frames;
}

void pager_memory_bytes(const struct pager *pager, uint64_t bytes[TIERS])
{
    bytes[TIER_DDR] =
        (uint64_t)(pager_frames_used(pager) - pager_far_used(pager)) * PAGE_BYTES; /* with zmem, if that is inside */
    for (int i = TIER_DDR + 1; i < TIERS; i++) {
        struct tier_counters counters = {.slots_used = 0};

        if (pager->config.tiers[i] != NULL && i != TIER_NVME)
            tier_counters_get(pager->config.tiers[i], &counters);
        bytes[i] = i == TIER_ZMEM ? counters.physical_bytes : counters.slots_used * PAGE_BYTES;
        if (is_inside_ddr(pager, (enum tier_kind)i))
            bytes[i] = 0;
    }
    bytes[TIER_CXL] += (uint64_t)pager_far_used(pager) * PAGE_BYTES;
}
