/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ghosts.h - pages that were evicted, and when they were touched last. PURE.
 *
 * A table of lines that a page's hash chooses; a full line loses its oldest ghost. Pages are known by 32 bits of their
 * hash: one in a billion strangers is taken for a ghost, which costs a wrong guess and nothing else. 12.8 bytes a
 * ghost.
 */
#ifndef TIERMESH_TIERS_GHOSTS_H
#define TIERMESH_TIERS_GHOSTS_H

#include "base/random.h"
#include "base/types.h"

struct ghosts; /* ghosts_bytes() of zeroed memory, aligned to 64, no pointer inside */

struct ghost {
    uint32_t touched; /* the caller's clock, which may wrap: old ghosts are swept in time */
    uint32_t evicted; /* another clock of the caller's; 0: does not count */
};

size_t ghosts_bytes(uint64_t ghosts_max);
void ghosts_init(struct ghosts *ghosts, uint64_t ghosts_max);
/* Another number, not above what ghosts_bytes() was asked for. Most of the ghosts are not found any more. */
void ghosts_resize(struct ghosts *ghosts, uint64_t ghosts_max);
void ghosts_put(struct ghosts *ghosts, uint64_t hash, struct ghost ghost);
/* Takes the page's ghost out. False: there is none. */
bool ghosts_take(struct ghosts *ghosts, uint64_t hash, struct ghost *ret_ghost);
/* Looks at the next line and drops what was touched more than `age_max` before `now`. */
void ghosts_sweep(struct ghosts *ghosts, uint32_t now, uint32_t age_max);

/* A page's hash: a bijection, so that samples and ghosts may stand for pages. */
static inline uint64_t page_hash(struct page_id page)
{
    return random_mix(page.index + RANDOM_STEP);
}

#endif
