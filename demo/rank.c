/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank.c - PageRank by pulling over incoming edges: one step over a range of pages of ids.
 *
 * Used on shared memory by every node and on malloc memory by the plain computation.
 */
#include "demo/rank.h"

#include <math.h>

size_t rank_blocks(size_t ids_count)
{
    return (ids_count + RANK_BLOCK - 1) / RANK_BLOCK;
}

static void rank_store(const struct rank_range *range, size_t i, double value, double *rank, double *contribution,
                       struct block_sum *sum)
{
    size_t id = range->first + i;

    sum->change += fabs(value - rank[id]);
    rank[id] = value;
    if (range->out_degree[i] == 0) {
        sum->dangling += value;
        contribution[id] = 0;
    } else {
        contribution[id] = value / range->out_degree[i];
    }
}

void rank_first(const struct rank_range *range, size_t ids_count, double *rank, double *contribution,
                struct block_sum *sums)
{
    for (size_t block = 0; block < rank_blocks(range->count); block++) {
        struct block_sum sum = {0, 0};

        for (size_t i = block * RANK_BLOCK; i < range->count && i < (block + 1) * RANK_BLOCK; i++) {
            rank[range->first + i] = 0;
            rank_store(range, i, 1.0 / (double)ids_count, rank, contribution, &sum);
        }
        sums[block] = sum;
    }
}

void rank_step(const struct rank_range *range, size_t ids_count, double dangling, const double *contribution,
               double *rank, double *ret_contribution, struct block_sum *sums)
{
    double n = (double)ids_count;

    for (size_t block = 0; block < rank_blocks(range->count); block++) {
        struct block_sum sum = {0, 0};

        for (size_t i = block * RANK_BLOCK; i < range->count && i < (block + 1) * RANK_BLOCK; i++) {
            double pulled = dangling / n;

            for (uint64_t edge = range->in_start[i]; edge < range->in_start[i + 1]; edge++)
                pulled += contribution[range->in_sources[edge]];
            rank_store(range, i, (1 - RANK_DAMPING) / n + RANK_DAMPING * pulled, rank, ret_contribution, &sum);
        }
        sums[block] = sum;
    }
}
