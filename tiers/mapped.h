/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapped.h - a slot store over memory that loads can reach, apart from where that memory comes from. Private to tiers/.
 */
#ifndef TIERMESH_TIERS_MAPPED_H
#define TIERMESH_TIERS_MAPPED_H

#include "tiers/backend.h"

/* Where the memory comes from: anonymous memory (cxl.c), or a mapped device. */
struct mapped_source {
    char *memory; /* slot i lies at memory + i * PAGE_BYTES and never moves */
    uint64_t size_bytes;
    /* More or less of the memory usable; 0 or -errno with a sentence. */
    int (*resize)(struct mapped_source *source, uint64_t size_bytes);
    /* These pages hold nothing any more; NULL when there is nobody to give them back to. Sorted, not adjacent. */
    void (*give_back)(struct mapped_source *source, const struct tier_slot *firsts, const unsigned *counts,
                      unsigned runs);
    void (*close)(struct mapped_source *source);
};

/* The source must stay until its close() is called, by tier_close(). 0 or -ENOMEM (source untouched). */
int mapped_open(const char *where, const struct tier_ops *ops, struct mapped_source *source,
                struct tier **ret_tier) MUST_USE;

/* The calls that every mapped tier's ops table names. */
void mapped_transfer(struct tier *tier, struct tier_transfer *transfer);
void *mapped_address(struct tier *tier, struct tier_slot slot);
int mapped_move_now(struct tier *tier, struct tier_slot first, unsigned pages_count, void *memory, bool is_write);
void mapped_freed(struct tier *tier, struct tier_slot slot);
int mapped_resize(struct tier *tier, uint64_t slots_count);
void mapped_close(struct tier *tier);

#endif
