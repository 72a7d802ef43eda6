/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.h - which slots of a store are taken: one bit a slot, runs preferred. Private to tiers/.
 *
 * A cursor goes round, so that slots taken one after the other lie one after the other. It stays below `window`, about
 * twice the slots ever in use at once: what lies above was never touched and costs no memory.
 */
#ifndef TIERMESH_TIERS_SLOTS_H
#define TIERMESH_TIERS_SLOTS_H

#include "base/types.h"

#define SLOTS_MAX    (UINT32_MAX - 8192u)
#define SLOTS_WINDOW 16384u /* smallest window */

struct slots {
    uint64_t *used; /* a bit a slot: taken */
    uint64_t *full; /* a bit a word of `used`: all 64 are taken */
    uint32_t count; /* slots there are */
    uint32_t used_count;
    uint32_t window; /* slots in play: those below it */
    uint32_t cursor; /* where the next search starts, < window or 0 */
    uint32_t hand;   /* where slots_oldest() goes on: from the cursor round to the cursor */
};

int slots_init(struct slots *slots, uint32_t count) MUST_USE; /* 0 or -ENOMEM */
void slots_fini(struct slots *slots);
/* -EBUSY: a slot above the new count is taken. -ENOMEM. */
int slots_resize(struct slots *slots, uint32_t count) MUST_USE;

/* A run of at_least .. wanted slots; 0: there is none. */
uint32_t slots_take(struct slots *slots, uint32_t wanted, uint32_t at_least, uint32_t *ret_first);
void slots_put(struct slots *slots, uint32_t slot);
bool slots_are_used(const struct slots *slots, uint32_t first, uint32_t count); /* all of them */

/* The next run of up to `wanted` taken slots in the order they were taken (the oldest first); 0: none is taken. */
uint32_t slots_oldest(struct slots *slots, uint32_t wanted, uint32_t *ret_first);

uint64_t slots_bytes(const struct slots *slots); /* of tables in play */

#endif
