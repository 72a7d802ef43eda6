/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank.h - PageRank by pulling over incoming edges: one step over a range of pages of ids.
 *
 * Ids are taken in blocks of RANK_BLOCK, a page of doubles, and sums over all ids are sums of block sums in order of
 * ids. So the result does not depend on how many nodes share the blocks: it equals the plain computation's bit for bit.
 */
#ifndef TIERMESH_DEMO_RANK_H
#define TIERMESH_DEMO_RANK_H

#include <stddef.h>
#include <stdint.h>

#define RANK_BLOCK      512
#define RANK_DAMPING    0.85
#define RANK_CHANGE_MAX 1e-12 /* sum of all changes in a step that ends it */
#define RANK_STEPS_MAX  500

struct block_sum {
    double dangling; /* rank of packages that depend on nothing */
    double change;
};

/* Ids [first, first + count); count may end inside a block only at the last id. */
struct rank_range {
    size_t first, count;
    const uint64_t *in_start;   /* [count + 1] into in_sources */
    const uint32_t *in_sources; /* ascending for each id */
    const uint32_t *out_degree; /* [count] */
};

size_t rank_blocks(size_t ids_count);

/* The arrays below are indexed by id, `sums` by block from the range's first. */
void rank_first(const struct rank_range *range, size_t ids_count, double *rank, double *contribution,
                struct block_sum *sums);
void rank_step(const struct rank_range *range, size_t ids_count, double dangling, const double *contribution,
               double *rank, double *ret_contribution, struct block_sum *sums);

#endif
