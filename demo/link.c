/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c - the last step of the graph: relations become edges.
 *
 * Each node resolves the relations of its own packages and lays their edges out side by side in shared memory.
 */
#include "demo/graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Edges while their number is unknown, in ordinary memory. */
struct edge_list {
    uint32_t *targets;
    size_t count, room;
};

static int edge_add(struct edge_list *edges, uint32_t target)
{
    if (edges->count == edges->room) {
        size_t room = edges->room * 2 + 1024;
        uint32_t *targets = reallocarray(edges->targets, room, sizeof(*targets));

        if (targets == NULL)
            return -ENOMEM;
        edges->targets = targets;
        edges->room = room;
    }
    edges->targets[edges->count++] = target;
    return 0;
}

static size_t provides_find(const struct part *owner, uint64_t hash)
{
    size_t low = 0, high = owner->provides_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (owner->provides[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Adds an edge to each package that satisfies `name`; *ret_is_known says whether there is one. */
static int link_name(const struct job *job, struct span name, struct edge_list *edges, bool *ret_is_known)
{
    uint64_t hash = span_hash(name);
    const struct name_slot *slot = name_find(job, hash);
    const struct part *owner = &job->graph->parts[hash % job->nodes_count];
    size_t i = provides_find(owner, hash);
    int result = 0;

    if (slot != NULL) {
        *ret_is_known = true;
        return edge_add(edges, job->graph->parts[slot->part - 1].ids[slot->index]);
    }
    *ret_is_known = i < owner->provides_count && owner->provides[i].hash == hash;
    for (; result == 0 && i < owner->provides_count && owner->provides[i].hash == hash; i++)
        result = edge_add(edges, owner->provides[i].id);
    return result;
}

static int id_compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* Sorts the edges behind `first`; drops repeated ones and the one to `self`. */
static void edges_tidy(struct edge_list *edges, size_t first, uint32_t self)
{
    size_t kept = first;

    if (edges->count > first)
        qsort(edges->targets + first, edges->count - first, sizeof(*edges->targets), id_compare);
    for (size_t i = first; i < edges->count; i++) {
        uint32_t target = edges->targets[i];

        if (target != self && (kept == first || edges->targets[kept - 1] != target))
            edges->targets[kept++] = target;
    }
    edges->count = kept;
}

static int link_package(const struct job *job, const struct package *package, uint32_t self, struct edge_list *edges)
{
    size_t first = edges->count;
    int result = 0;

    for (int relation = 0; relation < RELATIONS; relation++) {
        struct span field = package->relations[relation];
        struct span item, name;

        while (result == 0 && item_next(&field, &item)) {
            bool is_known = false;

            while (result == 0 && !is_known && alternative_next(&item, &name))
                result = link_name(job, name, edges, &is_known);
        }
    }
    edges_tidy(edges, first, self);
    return result;
}

static int edges_publish(struct part *part, const struct edge_list *edges)
{
    int result = dsm_malloc((edges->count + 1) * sizeof(*part->out_targets), (void **)&part->out_targets);

    if (result == 0 && edges->count > 0)
        memcpy(part->out_targets, edges->targets, edges->count * sizeof(*edges->targets));
    return result;
}

int graph_link(struct job *job)
{
    struct part *part = job_part(job);
    struct edge_list edges = {.targets = NULL};
    size_t index = 0;
    int result;

    job->doing = "resolve the relations";
    result = dsm_malloc((part->unique_count + 1) * sizeof(*part->out_start), (void **)&part->out_start);
    for (size_t i = 0; i < part->packages_count && result == 0; i++) {
        if (part->ids[i] == ID_NONE)
            continue;
        part->out_start[index++] = edges.count;
        result = link_package(job, &part->packages[i], part->ids[i], &edges);
    }
    if (result == 0) {
        part->out_start[index] = edges.count;
        result = edges_publish(part, &edges);
    }
    free(edges.targets);
    return result != 0 ? result : dsm_barrier();
}
