/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranges.c - the sorted array behind ranges.h.
 *
 * Always holds: runs do not overlap, are in order, none is free or empty, and no two neighbours could be one.
 */
#include "runtime/ranges.h"
#include "base/assert.h"
#include "base/os.h"
#include "runtime/hooks.h"

#include <errno.h>
#include <string.h>

#define RANGES_MAX 262144u /* four times the kernel's default for mappings */

struct ranges {
    uint64_t pages_count;
    uint64_t count;
    struct range runs[];
};

static size_t ranges_bytes(void)
{
    return sizeof(struct ranges) + RANGES_MAX * sizeof(struct range);
}

int ranges_create(uint64_t pages_count, struct ranges **ret_ranges)
{
    struct ranges *ranges;
    void *memory;
    int error = os_pages_map(ranges_bytes(), &memory);

    if (error != 0)
        return error;
    ranges = memory;
    ranges->pages_count = pages_count;
    *ret_ranges = ranges;
    return 0;
}

void ranges_destroy(struct ranges *ranges)
{
    os_pages_unmap(ranges, ranges_bytes());
}

uint64_t ranges_count(const struct ranges *ranges)
{
    return ranges->count;
}

void ranges_limit(struct ranges *ranges, uint64_t pages_count)
{
    ASSERT(pages_count <= ranges->pages_count);
    ASSERT(ranges->count == 0 || ranges->runs[ranges->count - 1].end <= pages_count);
    ranges->pages_count = pages_count;
}

/* Index of the first run that ends behind the page. */
static uint64_t index_of(const struct ranges *ranges, uint64_t page)
{
    uint64_t low = 0;
    uint64_t high = ranges->count;

    while (low < high) {
        uint64_t middle = (low + high) / 2;

        if (ranges->runs[middle].end <= page)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct range ranges_at(const struct ranges *ranges, uint64_t page)
{
    uint64_t i = index_of(ranges, page);
    struct range gap = {.first = i > 0 ? ranges->runs[i - 1].end : 0, .end = ranges->pages_count};

    ASSERT(page < ranges->pages_count);
    if (i == ranges->count)
        return gap;
    if (ranges->runs[i].first <= page)
        return ranges->runs[i];
    gap.end = ranges->runs[i].first;
    return gap;
}

bool ranges_next(const struct ranges *ranges, uint64_t page, struct range *ret_range)
{
    uint64_t i = index_of(ranges, page);

    if (i == ranges->count)
        return false;
    *ret_range = ranges->runs[i];
    return true;
}

int ranges_find_free(const struct ranges *ranges, uint64_t pages_count, uint64_t alignment_pages, uint64_t *ret_first)
{
    uint64_t mask = alignment_pages - 1;
    uint64_t at = 0;

    ASSERT(pages_count > 0 && (alignment_pages & mask) == 0);
    for (uint64_t i = 0; i <= ranges->count; i++) {
        uint64_t limit = i < ranges->count ? ranges->runs[i].first : ranges->pages_count;
        uint64_t first = (at + mask) & ~mask;

        if (first <= limit && limit - first >= pages_count) {
            *ret_first = first;
            return 0;
        }
        if (i < ranges->count)
            at = ranges->runs[i].end;
    }
    return -ENOMEM;
}

static bool is_alike(struct range_state a, struct range_state b)
{
    return a.kind == b.kind && a.protection == b.protection && a.traits == b.traits;
}

/* What replaces the runs that [first, end) touches: their rests and the new run, joined where alike. At most three. */
static unsigned pieces_make(const struct range *left, const struct range *right, struct range new, struct range *pieces)
{
    unsigned count = 0;

    if (left != NULL && left->first < new.first)
        pieces[count++] = (struct range){left->first, left->end < new.first ? left->end : new.first, left->state};
    if (count == 1 && pieces[0].end == new.first && is_alike(pieces[0].state, new.state))
        pieces[0].end = new.end;
    else if (new.state.kind != HOOKS_FREE)
        pieces[count++] = new;
    if (right == NULL || right->end <= new.end)
        return count;
    if (count > 0 && new.state.kind != HOOKS_FREE && is_alike(right->state, new.state) && right->first <= new.end) {
        pieces[count - 1].end = right->end;
        return count;
    }
    pieces[count++] = (struct range){right->first > new.end ? right->first : new.end, right->end, right->state};
    return count;
}

int ranges_set(struct ranges *ranges, uint64_t first, uint64_t end, struct range_state state)
{
    /* Neighbours that only meet the run are taken in too: they may be joined. */
    uint64_t from = index_of(ranges, first > 0 ? first - 1 : 0);
    uint64_t to = index_of(ranges, end);
    struct range pieces[3];
    const struct range *left = from < ranges->count && ranges->runs[from].first < first ? &ranges->runs[from] : NULL;
    const struct range *right = NULL;
    unsigned count;

    ASSERT(first < end && end <= ranges->pages_count);
    if (to < ranges->count && ranges->runs[to].first <= end)
        right = &ranges->runs[to++];
    count = pieces_make(left, right, (struct range){first, end, state}, pieces);
    if (ranges->count - (to - from) + count > RANGES_MAX)
        return -ENOMEM;
    memmove(&ranges->runs[from + count], &ranges->runs[to], (ranges->count - to) * sizeof(struct range));
    memcpy(&ranges->runs[from], pieces, count * sizeof(struct range));
    ranges->count = ranges->count - (to - from) + count;
    return 0;
}
