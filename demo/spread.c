/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spread.c - PageRank by all nodes over the shared graph.
 *
 * Each node ranks a range of whole blocks, so every page of ranks has one writer; in a step it reads the contributions
 * of all ids, most of which other nodes wrote. The arrays are doubled: one barrier a step is enough.
 */
#include "demo/graph.h"

#include <string.h>

static int range_of(const struct job *job, struct rank_range *ret_range)
{
    size_t ids_count = job->graph->ids_count;
    size_t blocks = rank_blocks(ids_count);
    size_t first = blocks * job->node / job->nodes_count * RANK_BLOCK;
    size_t stop = blocks * (job->node + 1) / job->nodes_count * RANK_BLOCK;
    uint64_t *in_start;
    uint32_t *out_degree;
    int result;

    if (stop > ids_count)
        stop = ids_count;
    if (first > stop)
        first = stop;
    result = dsm_calloc(stop - first + 1, sizeof(*in_start), (void **)&in_start);
    if (result == 0)
        result = dsm_calloc(stop - first + 1, sizeof(*out_degree), (void **)&out_degree);
    if (result == 0)
        *ret_range =
            (struct rank_range){.first = first, .count = stop - first, .in_start = in_start, .out_degree = out_degree};
    return result;
}

/*
 * Walks all edges in order of their sources. Without `in_sources` it counts them by target, one place behind, and
 * notes the degrees; with it, it stores each source at its target's place and moves that on.
 */
static void edges_walk(const struct job *job, const struct rank_range *range, uint64_t *in_start, uint32_t *in_sources,
                       uint32_t *out_degree)
{
    uint32_t source = 0;

    for (unsigned node = 0; node < job->nodes_count; node++) {
        const struct part *part = &job->graph->parts[node];

        for (size_t i = 0; i < part->unique_count; i++, source++) {
            if (in_sources == NULL && source - range->first < range->count)
                out_degree[source - range->first] = (uint32_t)(part->out_start[i + 1] - part->out_start[i]);
            for (uint64_t edge = part->out_start[i]; edge < part->out_start[i + 1]; edge++) {
                size_t target = part->out_targets[edge] - range->first;

                if (target >= range->count)
                    continue;
                if (in_sources == NULL)
                    in_start[target + 1]++;
                else
                    in_sources[in_start[target]++] = source;
            }
        }
    }
}

/* The incoming edges of this node's range, in shared memory that no other node touches. */
static int range_fill(const struct job *job, struct rank_range *range)
{
    uint64_t *in_start = (uint64_t *)range->in_start;
    uint32_t *out_degree = (uint32_t *)range->out_degree;
    uint32_t *in_sources;
    int result;

    edges_walk(job, range, in_start, NULL, out_degree);
    for (size_t i = 0; i < range->count; i++)
        in_start[i + 1] += in_start[i];
    result = dsm_malloc((in_start[range->count] + 1) * sizeof(*in_sources), (void **)&in_sources);
    if (result != 0)
        return result;
    edges_walk(job, range, in_start, in_sources, out_degree);
    /* Each start now stands where the next one's was. */
    memmove(in_start + 1, in_start, range->count * sizeof(*in_start));
    in_start[0] = 0;
    range->in_sources = in_sources;
    return 0;
}

static struct block_sum sums_total(const struct job *job, unsigned parity)
{
    struct block_sum total = {0, 0};

    for (unsigned node = 0; node < job->nodes_count; node++) {
        const struct part *part = &job->graph->parts[node];

        for (size_t block = 0; block < part->blocks_count; block++) {
            total.dangling += part->sums[parity][block].dangling;
            total.change += part->sums[parity][block].change;
        }
    }
    return total;
}

static int sums_create(struct part *part, size_t ids_count)
{
    int result = 0;

    part->blocks_count = rank_blocks(ids_count);
    for (int i = 0; i < 2 && result == 0; i++)
        result = dsm_malloc((part->blocks_count + 1) * sizeof(struct block_sum), (void **)&part->sums[i]);
    return result;
}

static void edges_count(struct graph *graph, unsigned nodes_count)
{
    for (unsigned node = 0; node < nodes_count; node++)
        graph->edges_count += graph->parts[node].out_start[graph->parts[node].unique_count];
}

static int rank_until_still(struct job *job, const struct rank_range *range, void (*tell)(uint64_t step, double change))
{
    struct graph *graph = job->graph;
    struct part *part = job_part(job);
    struct block_sum total;
    unsigned parity = 0;
    uint64_t step = 0;
    int result;

    rank_first(range, graph->ids_count, graph->rank, graph->contribution[0], part->sums[0]);
    result = dsm_barrier();
    while (result == 0) {
        total = sums_total(job, parity);
        if (tell != NULL && job->node == 0)
            tell(step, total.change);
        if (total.change < RANK_CHANGE_MAX || step == RANK_STEPS_MAX)
            break;
        rank_step(range, graph->ids_count, total.dangling, graph->contribution[parity], graph->rank,
                  graph->contribution[1 - parity], part->sums[1 - parity]);
        parity = 1 - parity;
        step++;
        result = dsm_barrier();
    }
    if (job->node == 0)
        graph->steps = step;
    return result;
}

int graph_rank(struct job *job, void (*tell)(uint64_t step, double change))
{
    struct rank_range range;
    int result;

    job->doing = "rank the packages";
    if (job->node == 0)
        edges_count(job->graph, job->nodes_count);
    result = range_of(job, &range);
    if (result == 0)
        result = range_fill(job, &range);
    if (result == 0)
        result = sums_create(job_part(job), range.count);
    if (result == 0)
        result = rank_until_still(job, &range, tell);
    return result != 0 ? result : dsm_barrier();
}
