/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hints.c - what the application said of its pages. PURE. Run by the shard's thread.
 *
 * A walk is a list of ranges in the order in which they will be touched, for instance the weights of a model layer by
 * layer (a tape, after Branner et al.: 3PO, 2022, there recorded from a run). It is taken to be repeated.
 */
#include "prefetch/predictor.h"

#include <errno.h>

void hints_init(struct hints *hints)
{
    *hints = (struct hints){0};
}

static bool region_has(const struct region *region, struct page_id page)
{
    return page.index - region->first < region->count;
}

enum prefetch_advice hints_advice(const struct hints *hints, struct page_id page)
{
    for (uint32_t i = hints->regions_count; i-- > 0;)
        if (!hints->regions[i].is_order && region_has(&hints->regions[i], page))
            return (enum prefetch_advice)hints->regions[i].advice;
    return PREFETCH_NORMAL;
}

/* ---- walks ----------------------------------------------------------------------------------------------------- */

static uint64_t steps_of(const struct region *region)
{
    uint64_t size = (uint64_t)(region->stride < 0 ? -(int64_t)region->stride : region->stride);

    return (region->count + size - 1) / size;
}

static uint64_t page_of_step(const struct region *region, uint64_t step)
{
    uint64_t start = region->stride > 0 ? region->first : region->first + region->count - 1;

    return start + (uint64_t)((int64_t)step * region->stride);
}

static uint64_t step_of_page(const struct region *region, struct page_id page)
{
    uint64_t size = (uint64_t)(region->stride < 0 ? -(int64_t)region->stride : region->stride);

    return (region->stride > 0 ? page.index - region->first : region->first + region->count - 1 - page.index) / size;
}

static uint32_t order_next(const struct hints *hints, uint32_t from)
{
    do
        from = (from + 1) % hints->regions_count;
    while (!hints->regions[from].is_order);
    return from;
}

static int order_find(const struct hints *hints, struct page_id page)
{
    for (uint32_t i = 0; i < hints->regions_count; i++)
        if (hints->regions[i].is_order && region_has(&hints->regions[i], page))
            return (int)i;
    return -1;
}

/* Once around at most: `step` is the first one asked for of region `from`, and those before it come last. */
static void walk_ask(const struct hints *hints, uint32_t from, uint64_t step, uint32_t depth,
                     struct prefetch_plan *plan)
{
    uint64_t left = steps_of(&hints->regions[from]) - step;
    uint32_t at = from;

    for (bool is_around = false; plan->runs_count < PREFETCH_RUNS_MAX;) {
        const struct region *region = &hints->regions[at];
        uint64_t start = at == from && !is_around ? step : 0;
        uint32_t count = left < depth ? (uint32_t)left : depth;

        if (count > 0)
            plan->runs[plan->runs_count++] = (struct prefetch_run){
                .first = page_of(page_of_step(region, start)),
                .trigger = page_of(page_of_step(region, start + count / 2)),
                .count = count,
                .stride = region->stride,
            };
        depth -= count;
        if (depth == 0 || is_around)
            return;
        at = order_next(hints, at);
        is_around = at == from;
        left = is_around ? step - 1 : steps_of(&hints->regions[at]);
    }
}

bool hints_walk(const struct hints *hints, struct page_id page, uint32_t depth, struct prefetch_plan *plan)
{
    int at = order_find(hints, page);

    if (at < 0)
        return false;
    walk_ask(hints, (uint32_t)at, step_of_page(&hints->regions[at], page) + 1, depth, plan);
    return true;
}

/* ---- the application speaks ------------------------------------------------------------------------------------ */

static void region_remove(struct hints *hints, uint32_t at)
{
    hints->regions_count--;
    for (uint32_t i = at; i < hints->regions_count; i++)
        hints->regions[i] = hints->regions[i + 1];
}

/* Before region `at`. false: there is no room. */
static bool region_insert(struct hints *hints, uint32_t at, const struct region *region)
{
    if (hints->regions_count == PREFETCH_REGIONS_MAX)
        return false;
    for (uint32_t i = hints->regions_count++; i > at; i--)
        hints->regions[i] = hints->regions[i - 1];
    hints->regions[at] = *region;
    return true;
}

static int region_add(struct hints *hints, const struct region *region)
{
    return region_insert(hints, hints->regions_count, region) ? 0 : -ENOSPC;
}

/* What is left of region `at` without [first, end): nothing, one end of it, or both. A strided walk goes whole. */
static void region_cut(struct hints *hints, uint32_t at, uint64_t first, uint64_t end)
{
    struct region *region = &hints->regions[at];
    struct region behind = *region;
    uint64_t region_end = region->first + region->count;

    if (region->is_order && region->stride != 1 && region->stride != -1) {
        region_remove(hints, at);
        return;
    }
    behind.first = end;
    behind.count = region_end > end ? region_end - end : 0;
    region->count = first > region->first ? first - region->first : 0;
    if (region->count == 0 && behind.count == 0) {
        region_remove(hints, at);
    } else if (region->count == 0) {
        *region = behind;
    } else if (behind.count > 0 && !region_insert(hints, region->stride < 0 ? at : at + 1, &behind)) {
        if (behind.count > region->count) /* no room for both ends */
            *region = behind;
    }
}

static void regions_cut(struct hints *hints, uint64_t first, uint64_t end, bool is_order)
{
    for (uint32_t i = hints->regions_count; i-- > 0;) {
        const struct region *old = &hints->regions[i];

        if (old->is_order == is_order && old->first < end && first < old->first + old->count)
            region_cut(hints, i, first, end);
    }
}

/* Programs advise what they map piece by piece: neighbours that were told the same are one. */
static bool region_join(struct hints *hints, const struct region *region)
{
    for (uint32_t i = 0; i < hints->regions_count; i++) {
        struct region *old = &hints->regions[i];

        if (old->is_order || old->advice != region->advice ||
            (old->first + old->count != region->first && region->first + region->count != old->first))
            continue;
        old->first = old->first < region->first ? old->first : region->first;
        old->count += region->count;
        return true;
    }
    return false;
}

/* Regions of advice do not overlap: what was said before of these pages is cut out. */
int hints_advise(struct hints *hints, struct page_id first, uint64_t pages_count, enum prefetch_advice advice)
{
    const struct region region = {.first = first.index, .count = pages_count, .advice = (uint8_t)advice};

    regions_cut(hints, first.index, first.index + pages_count, false);
    return advice == PREFETCH_NORMAL || region_join(hints, &region) ? 0 : region_add(hints, &region);
}

int hints_order(struct hints *hints, struct page_id first, uint64_t pages_count, int32_t stride)
{
    return region_add(hints, &(struct region){first.index, pages_count, stride, PREFETCH_NORMAL, true});
}

void hints_forget(struct hints *hints, struct page_id first, uint64_t pages_count)
{
    regions_cut(hints, first.index, first.index + pages_count, false);
    regions_cut(hints, first.index, first.index + pages_count, true);
}
