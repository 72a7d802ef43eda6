/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranges.h - what lies where in a range of addresses: runs of pages that are alike, sorted, free ones left out.
 *
 * A plain data structure, as large as the number of mappings; the kernel has as many (vm.max_map_count bounds both).
 * Neighbours that are alike are one run. The caller serialises.
 */
#ifndef TIERMESH_RUNTIME_RANGES_H
#define TIERMESH_RUNTIME_RANGES_H

#include "base/types.h"

struct range_state {
    uint8_t kind;       /* enum hooks_kind; HOOKS_FREE: nothing */
    uint8_t protection; /* PROT_* */
    uint8_t traits;     /* enum hooks_trait, or-ed */
};

struct range {
    uint64_t first, end; /* pages: first .. end-1 */
    struct range_state state;
};

struct ranges;

int ranges_create(uint64_t pages_count, struct ranges **ret_ranges) MUST_USE; /* 0 or -ENOMEM */
void ranges_destroy(struct ranges *ranges);

/* The run around a page, which may be a free one. */
struct range ranges_at(const struct ranges *ranges, uint64_t page);

/* All pages of [first, end) get this state. 0, or -ENOMEM: too many runs; nothing was changed. */
int ranges_set(struct ranges *ranges, uint64_t first, uint64_t end, struct range_state state) MUST_USE;

/*
 * The lowest free run of pages_count pages aligned to alignment_pages (a power of two). Low, so that what is used lies
 * close together. 0 or -ENOMEM.
 */
int ranges_find_free(const struct ranges *ranges, uint64_t pages_count, uint64_t alignment_pages,
                     uint64_t *ret_first) MUST_USE;

/* The first run with end > page, free ones skipped; false: there is none. For walking: page = ret_range->end. */
bool ranges_next(const struct ranges *ranges, uint64_t page, struct range *ret_range);

/* Fewer pages from now on: those cut off are free. */
void ranges_limit(struct ranges *ranges, uint64_t pages_count);

uint64_t ranges_count(const struct ranges *ranges);

#endif
