/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arms.h - which of several replacement policies would do best here: miniature simulations on a sample of pages. PURE.
 *
 * Every arm is a small cache that sees the touches of the same sample (Waldspurger, Saemundsson, Ahmad, Park: Cache
 * modeling and optimization using miniature simulations, USENIX ATC 2017). What one arm misses and another hits is
 * counted in pairs: first touches, which all of them miss, and what all of them hit, say nothing. The counts fade
 * slowly: a program's phases pass, and a change costs the misses of moving from one set of pages to another. The choice
 * changes to the arm that would have saved the most misses, when that is at least one in a hundred.
 */
#ifndef TIERMESH_TIERS_ARMS_H
#define TIERMESH_TIERS_ARMS_H

#include "base/types.h"

enum arm {
    ARM_LRU,
    ARM_S3_FIFO,
    ARM_LIRS_1, /* LIRS with 1, 10, 30, 60 percent of the frames for pages on trial */
    ARM_LIRS_10,
    ARM_LIRS_30,
    ARM_LIRS_60,
    ARMS,
};

struct arms; /* arms_bytes() of memory, no pointer inside */

size_t arms_bytes(void); /* half a MiB, aligned to 64; of a small memory most is never written */
void arms_init(struct arms *arms, uint32_t frames);
void arms_resize(struct arms *arms, uint32_t frames); /* begins anew; the choice stays */

/* A touch that was seen; hash: page_hash(). True: the choice has changed. */
bool arms_touch(struct arms *arms, uint64_t hash);
enum arm arms_choice(const struct arms *arms);

/* Frames that LIRS leaves to pages on trial; 0 for the other arms. At least 1. */
uint32_t arm_trial_frames(enum arm arm, uint32_t frames);
/* The same for the small queue of S3-FIFO: a tenth. */
uint32_t arm_small_frames(uint32_t frames);

#endif
