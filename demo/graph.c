/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.c - the steps that build the graph in shared memory: load, scan, intern, number, provide.
 *
 * The text is loaded by all nodes in turns of a block, and scanned in one slice a node, so most of what a node scans
 * was read by another. Names are interned without locks: the node to which a name's hash falls decides who has it.
 */
#include "demo/graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_STANZAS 256

/* Blocks of other nodes are read past; those of this node go from the kernel into shared memory at once. */
static int load_blocks(struct job *job, struct input_stream *stream, char *scratch)
{
    struct graph *graph = job->graph;
    size_t bytes = 0;

    for (size_t block = 0;; block++) {
        int is_ours = block % job->nodes_count == job->node;
        ssize_t count;

        if (bytes > TEXT_MAX - TEXT_BLOCK)
            return -EFBIG;
        count = input_read(stream, is_ours ? graph->text + bytes : scratch, TEXT_BLOCK);
        if (count < 0)
            return (int)count;
        bytes += (size_t)count;
        if ((size_t)count < TEXT_BLOCK)
            break;
    }
    job_part(job)->text_bytes = bytes;
    return 0;
}

int graph_load(struct job *job, const struct inputs *inputs)
{
    struct input_stream stream;
    char *scratch = malloc(TEXT_BLOCK);
    int result;

    job->doing = "load the package lists";
    if (scratch == NULL)
        return -ENOMEM;
    input_open(&stream, inputs);
    result = load_blocks(job, &stream, scratch);
    input_close(&stream);
    free(scratch);
    if (result == 0)
        result = dsm_barrier();
    for (unsigned node = 0; node < job->nodes_count && result == 0; node++)
        if (job->graph->parts[node].text_bytes != job_part(job)->text_bytes)
            result = -EAGAIN; /* the lists changed between two nodes' reading */
    return result;
}

/* The first stanza of a node's slice; that of the node behind the last is the end. */
static const char *slice_start(const struct job *job, unsigned node)
{
    const struct graph *graph = job->graph;
    size_t bytes = job_part(job)->text_bytes;

    return stanza_find(graph->text, graph->text + bytes * node / job->nodes_count, graph->text + bytes);
}

int graph_scan(struct job *job)
{
    struct part *part = job_part(job);
    const char *at = slice_start(job, job->node);
    const char *stop = slice_start(job, job->node + 1);
    const char *end = job->graph->text + part->text_bytes;
    size_t stanzas_max = (size_t)(stop - at) / strlen("Package:x\n\n") + 1;
    int result;

    job->doing = "scan the stanzas";
    result = dsm_malloc(stanzas_max * sizeof(*part->packages), (void **)&part->packages);
    if (result == 0)
        result = dsm_malloc(stanzas_max * sizeof(*part->hashes), (void **)&part->hashes);
    while (result == 0 && at < stop && package_parse(&at, end, &part->packages[part->packages_count])) {
        part->hashes[part->packages_count] = part->packages[part->packages_count].hash;
        part->packages_count++;
        if (part->packages_count % PROGRESS_STANZAS == 0)
            result = dsm_atomic_fetch_add(&job->graph->progress, PROGRESS_STANZAS, NULL);
    }
    if (result == 0)
        result = dsm_atomic_fetch_add(&job->graph->progress, part->packages_count % PROGRESS_STANZAS, NULL);
    return result != 0 ? result : dsm_barrier();
}

static struct name_slot *slot_find(const struct part *owner, uint64_t hash)
{
    size_t i = (size_t)(hash >> 7) & owner->names_mask;

    while (owner->names[i].part != 0 && owner->names[i].hash != hash)
        i = (i + 1) & owner->names_mask;
    return &owner->names[i];
}

/* Two names of one hash would be taken for one package: found here, where every name is seen once. */
static int slot_check(const struct graph *graph, const struct name_slot *slot, struct span name)
{
    const struct package *known = &graph->parts[slot->part - 1].packages[slot->index];

    return span_is_equal(known->name, name) ? 0 : -ENOTUNIQ;
}

/* In text order, so that the first stanza of a name wins. */
static int intern_part(const struct job *job, unsigned node)
{
    const struct graph *graph = job->graph;
    const struct part *from = &graph->parts[node];
    int result = 0;

    for (size_t i = 0; i < from->packages_count && result == 0; i++) {
        struct name_slot *slot;

        if (from->hashes[i] % job->nodes_count != job->node)
            continue;
        slot = slot_find(job_part(job), from->hashes[i]);
        if (slot->part == 0)
            *slot = (struct name_slot){.hash = from->hashes[i], .index = (uint32_t)i, .part = node + 1};
        else
            result = slot_check(graph, slot, from->packages[i].name);
    }
    return result;
}

int graph_intern(struct job *job)
{
    struct part *part = job_part(job);
    size_t total = 0;
    size_t slots = 64;
    int result;

    job->doing = "intern the names";
    for (unsigned node = 0; node < job->nodes_count; node++)
        total += job->graph->parts[node].packages_count;
    while (slots < 3 * total / job->nodes_count)
        slots *= 2;
    part->names_mask = slots - 1;
    result = dsm_calloc(slots, sizeof(*part->names), (void **)&part->names);
    for (unsigned node = 0; node < job->nodes_count && result == 0; node++)
        result = intern_part(job, node);
    return result != 0 ? result : dsm_barrier();
}

const struct name_slot *name_find(const struct job *job, uint64_t hash)
{
    const struct name_slot *slot = slot_find(&job->graph->parts[hash % job->nodes_count], hash);

    return slot->part != 0 ? slot : NULL;
}

/* Node 0 makes the arrays by id, once it is known how many there are. */
static int arrays_create(struct graph *graph, size_t ids_count)
{
    const struct dsm_attributes spread = {.placement = DSM_PLACE_INTERLEAVE};
    size_t bytes = ids_count * sizeof(double);
    int result;

    if (ids_count == 0)
        return -ENODATA;
    graph->ids_count = ids_count;
    result = dsm_malloc_with(ids_count * sizeof(*graph->packages), &spread, (void **)&graph->packages);
    if (result == 0)
        result = dsm_malloc_with(bytes, &spread, (void **)&graph->rank);
    for (int i = 0; i < 2 && result == 0; i++)
        result = dsm_malloc_with(bytes, &spread, (void **)&graph->contribution[i]);
    return result;
}

int graph_number(struct job *job)
{
    struct graph *graph = job->graph;
    struct part *part = job_part(job);
    size_t first = 0, total = 0;
    int result;

    job->doing = "number the packages";
    result = dsm_malloc(part->packages_count * sizeof(*part->ids) + 1, (void **)&part->ids);
    if (result != 0)
        return result;
    for (size_t i = 0; i < part->packages_count; i++) {
        const struct name_slot *slot = name_find(job, part->hashes[i]);
        int is_first = slot->part == job->node + 1 && slot->index == i;

        part->ids[i] = is_first ? (uint32_t)part->unique_count++ : ID_NONE;
    }
    result = dsm_barrier();
    for (unsigned node = 0; node < job->nodes_count; node++) {
        first += node < job->node ? graph->parts[node].unique_count : 0;
        total += graph->parts[node].unique_count;
    }
    if (result == 0 && job->node == 0)
        result = arrays_create(graph, total);
    if (result == 0)
        result = dsm_barrier();
    for (size_t i = 0; i < part->packages_count && result == 0; i++) {
        if (part->ids[i] == ID_NONE)
            continue;
        part->ids[i] += (uint32_t)first;
        graph->packages[part->ids[i]] = &part->packages[i];
    }
    return result != 0 ? result : dsm_barrier();
}

/* Counts what this node's packages provide, and stores it when there is an array to store to. */
static size_t provided_walk(const struct part *part, struct provide *provided)
{
    size_t count = 0;

    for (size_t i = 0; i < part->packages_count; i++) {
        struct span field = part->packages[i].provides;
        struct span item, name;

        if (part->ids[i] == ID_NONE)
            continue;
        while (item_next(&field, &item)) {
            if (!alternative_next(&item, &name))
                continue;
            if (provided != NULL)
                provided[count] = (struct provide){.hash = span_hash(name), .id = part->ids[i]};
            count++;
        }
    }
    return count;
}

static int provide_compare(const void *a, const void *b)
{
    const struct provide *x = a;
    const struct provide *y = b;

    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The same for the provided names whose hash falls to this node. */
static size_t provides_gather(const struct job *job, struct provide *provides)
{
    size_t count = 0;

    for (unsigned node = 0; node < job->nodes_count; node++) {
        const struct part *from = &job->graph->parts[node];

        for (size_t i = 0; i < from->provided_count; i++) {
            if (from->provided[i].hash % job->nodes_count != job->node)
                continue;
            if (provides != NULL)
                provides[count] = from->provided[i];
            count++;
        }
    }
    return count;
}

int graph_provide(struct job *job)
{
    struct part *part = job_part(job);
    int result;

    job->doing = "collect what packages provide";
    part->provided_count = provided_walk(part, NULL);
    result = dsm_malloc((part->provided_count + 1) * sizeof(*part->provided), (void **)&part->provided);
    if (result == 0) {
        provided_walk(part, part->provided);
        result = dsm_barrier();
    }
    if (result != 0)
        return result;
    part->provides_count = provides_gather(job, NULL);
    result = dsm_malloc((part->provides_count + 1) * sizeof(*part->provides), (void **)&part->provides);
    if (result != 0)
        return result;
    provides_gather(job, part->provides);
    qsort(part->provides, part->provides_count, sizeof(*part->provides), provide_compare);
    return dsm_barrier();
}

/* A block that this node loads and scans is touched once. */
static size_t text_touched(const struct job *job)
{
    const char *text = job->graph->text;
    const char *first = slice_start(job, job->node);
    const char *stop = slice_start(job, job->node + 1);
    size_t bytes = job_part(job)->text_bytes;
    size_t touched = (size_t)(stop - first);

    for (size_t at = job->node * TEXT_BLOCK; at < bytes; at += job->nodes_count * TEXT_BLOCK) {
        const char *block = text + at;
        const char *end = text + (bytes - at < TEXT_BLOCK ? bytes : at + TEXT_BLOCK);
        const char *shared_first = block > first ? block : first;
        const char *shared_stop = end < stop ? end : stop;

        touched += (size_t)(end - block);
        touched -= shared_first < shared_stop ? (size_t)(shared_stop - shared_first) : 0;
    }
    return touched;
}

size_t graph_touched(const struct job *job)
{
    const struct graph *graph = job->graph;
    const struct part *ours = job_part(job);
    size_t bytes = text_touched(job);

    bytes += ours->packages_count * (sizeof(*ours->packages) + sizeof(*ours->ids));
    bytes += ours->provided_count * sizeof(*ours->provided);
    bytes += (ours->blocks_count + 1) * RANK_BLOCK * (sizeof(*graph->rank) + sizeof(uint64_t) + sizeof(uint32_t));
    bytes += graph->edges_count / job->nodes_count * sizeof(uint32_t); /* incoming */
    bytes += graph->ids_count * sizeof(double) * 2;                    /* contributions */
    bytes += graph->ids_count / job->nodes_count * sizeof(*graph->packages);
    for (unsigned node = 0; node < job->nodes_count; node++) {
        const struct part *part = &graph->parts[node];

        bytes += part->packages_count * (sizeof(*part->hashes) + sizeof(*part->ids) * (node != job->node));
        bytes += (part->names_mask + 1) * sizeof(*part->names);
        bytes += part->provided_count * sizeof(*part->provided) * (node != job->node);
        bytes += part->provides_count * sizeof(*part->provides);
        bytes += (part->unique_count + 1) * sizeof(*part->out_start);
        bytes += part->out_start[part->unique_count] * sizeof(*part->out_targets);
    }
    return bytes;
}
