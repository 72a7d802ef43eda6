/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain.c - the same result by one process in malloc memory.
 *
 * It shares the parser and the arithmetic of a step with the parallel program, and nothing of how the graph is built:
 * names are looked up by their bytes in sorted arrays, edges are sorted as pairs.
 */
#include "demo/plain.h"
#include "demo/rank.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct span name;
    uint32_t id;
};

struct edge {
    uint32_t source, target;
};

/* An array that grows by itself. */
struct vector {
    void *items;
    size_t count, room;
};

struct build {
    struct vector packages; /* struct package, every stanza, then every name once */
    struct vector names;    /* struct entry, by name */
    struct vector provided; /* struct entry, by (name, id) */
    struct vector edges;    /* struct edge */
};

static int vector_add(struct vector *vector, const void *item, size_t item_bytes)
{
    if (vector->count == vector->room) {
        size_t room = vector->room * 2 + 1024;
        void *items = reallocarray(vector->items, room, item_bytes);

        if (items == NULL)
            return -ENOMEM;
        vector->items = items;
        vector->room = room;
    }
    memcpy((char *)vector->items + vector->count++ * item_bytes, item, item_bytes);
    return 0;
}

static int span_compare(struct span a, struct span b)
{
    int order = memcmp(a.start, b.start, a.bytes < b.bytes ? a.bytes : b.bytes);

    return order != 0 ? order : a.bytes < b.bytes ? -1 : a.bytes > b.bytes;
}

static int entry_compare(const void *a, const void *b)
{
    const struct entry *x = a;
    const struct entry *y = b;
    int order = span_compare(x->name, y->name);

    return order != 0 ? order : x->id < y->id ? -1 : x->id > y->id;
}

static int edge_compare(const void *a, const void *b)
{
    const struct edge *x = a;
    const struct edge *y = b;

    if (x->target != y->target)
        return x->target < y->target ? -1 : 1;
    return x->source < y->source ? -1 : x->source > y->source;
}

/* The first entry of that name, or the array's end. */
static const struct entry *entry_find(const struct vector *entries, struct span name)
{
    const struct entry *all = entries->items;
    size_t low = 0, high = entries->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (span_compare(all[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return all + low;
}

static bool entry_is(const struct vector *entries, const struct entry *entry, struct span name)
{
    return entry != (const struct entry *)entries->items + entries->count && span_is_equal(entry->name, name);
}

static int text_read(const struct inputs *inputs, struct plain *plain)
{
    struct input_stream stream;
    size_t room = 0;
    ssize_t count;

    input_open(&stream, inputs);
    do {
        if (plain->text_bytes == room) {
            char *text = realloc(plain->text, room * 2 + 65536);

            if (text == NULL) {
                input_close(&stream);
                return -ENOMEM;
            }
            plain->text = text;
            room = room * 2 + 65536;
        }
        count = input_read(&stream, plain->text + plain->text_bytes, room - plain->text_bytes);
        plain->text_bytes += count > 0 ? (size_t)count : 0;
    } while (count > 0);
    input_close(&stream);
    return (int)count;
}

/* Leaves the first stanza of every name, in text order, and the names' entries with their ids. */
static int names_number(struct build *build)
{
    struct package *packages = build->packages.items;
    struct entry *names = build->names.items;
    uint32_t *id_above = calloc(build->names.count, sizeof(*id_above)); /* id + 1 by stanza; 0: not the first */
    size_t kept = 0;

    if (id_above == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < build->names.count; i++)
        if (i == 0 || !span_is_equal(names[i - 1].name, names[i].name))
            id_above[names[i].id] = 1;
    for (size_t i = 0; i < build->packages.count; i++) {
        if (id_above[i] == 0)
            continue;
        packages[kept++] = packages[i];
        id_above[i] = (uint32_t)kept;
    }
    build->packages.count = kept;
    kept = 0;
    for (size_t i = 0; i < build->names.count; i++)
        if (id_above[names[i].id] != 0)
            names[kept++] = (struct entry){names[i].name, id_above[names[i].id] - 1};
    build->names.count = kept;
    free(id_above);
    return 0;
}

static int names_collect(struct build *build, const struct plain *plain)
{
    const char *at = plain->text;
    struct package package;
    int result = 0;

    while (result == 0 && package_parse(&at, plain->text + plain->text_bytes, &package)) {
        struct entry entry = {package.name, (uint32_t)build->packages.count};

        result = vector_add(&build->names, &entry, sizeof(entry));
        if (result == 0)
            result = vector_add(&build->packages, &package, sizeof(package));
    }
    if (result != 0 || build->packages.count == 0)
        return result != 0 ? result : -ENODATA;
    qsort(build->names.items, build->names.count, sizeof(struct entry), entry_compare);
    return names_number(build);
}

static int provided_collect(struct build *build)
{
    const struct package *packages = build->packages.items;
    int result = 0;

    for (size_t id = 0; id < build->packages.count; id++) {
        struct span field = packages[id].provides;
        struct span item, name;

        while (result == 0 && item_next(&field, &item)) {
            struct entry entry = {.id = (uint32_t)id};

            if (!alternative_next(&item, &name))
                continue;
            entry.name = name;
            result = vector_add(&build->provided, &entry, sizeof(entry));
        }
    }
    if (result == 0 && build->provided.count > 0)
        qsort(build->provided.items, build->provided.count, sizeof(struct entry), entry_compare);
    return result;
}

static int edges_of_item(struct build *build, struct span item, uint32_t source)
{
    struct span name;

    while (alternative_next(&item, &name)) {
        const struct entry *entry = entry_find(&build->names, name);
        const struct vector *entries = &build->names;

        if (!entry_is(entries, entry, name)) {
            entries = &build->provided;
            entry = entry_find(entries, name);
        }
        if (!entry_is(entries, entry, name))
            continue;
        for (; entry_is(entries, entry, name); entry++) {
            struct edge edge = {source, entry->id};
            int result = edge.source != edge.target ? vector_add(&build->edges, &edge, sizeof(edge)) : 0;

            if (result != 0)
                return result;
        }
        break;
    }
    return 0;
}

static int edges_collect(struct build *build)
{
    const struct package *packages = build->packages.items;
    struct edge *edges;
    size_t kept = 0;
    int result = 0;

    for (size_t id = 0; id < build->packages.count; id++) {
        for (int relation = 0; relation < RELATIONS; relation++) {
            struct span field = packages[id].relations[relation];
            struct span item;

            while (result == 0 && item_next(&field, &item))
                result = edges_of_item(build, item, (uint32_t)id);
        }
    }
    if (result != 0 || build->edges.count == 0)
        return result;
    edges = build->edges.items;
    qsort(edges, build->edges.count, sizeof(*edges), edge_compare);
    for (size_t i = 0; i < build->edges.count; i++)
        if (i == 0 || edge_compare(&edges[i - 1], &edges[i]) != 0)
            edges[kept++] = edges[i];
    build->edges.count = kept;
    return 0;
}

struct arrays {
    uint64_t *in_start;
    uint32_t *in_sources, *out_degree;
    double *contribution[2];
    struct block_sum *sums;
};

static void arrays_fill(struct arrays *arrays, const struct build *build)
{
    const struct edge *edges = build->edges.items;

    for (size_t i = 0; i < build->edges.count; i++) {
        arrays->in_start[edges[i].target + 1]++;
        arrays->in_sources[i] = edges[i].source;
        arrays->out_degree[edges[i].source]++;
    }
    for (size_t id = 0; id < build->packages.count; id++)
        arrays->in_start[id + 1] += arrays->in_start[id];
}

static void rank_until_still(struct arrays *arrays, struct plain *plain)
{
    struct rank_range range = {0, plain->ids_count, arrays->in_start, arrays->in_sources, arrays->out_degree};
    unsigned parity = 0;

    rank_first(&range, plain->ids_count, plain->rank, arrays->contribution[0], arrays->sums);
    for (;;) {
        struct block_sum total = {0, 0};

        for (size_t block = 0; block < rank_blocks(plain->ids_count); block++) {
            total.dangling += arrays->sums[block].dangling;
            total.change += arrays->sums[block].change;
        }
        if (total.change < RANK_CHANGE_MAX || plain->steps == RANK_STEPS_MAX)
            return;
        rank_step(&range, plain->ids_count, total.dangling, arrays->contribution[parity], plain->rank,
                  arrays->contribution[1 - parity], arrays->sums);
        parity = 1 - parity;
        plain->steps++;
    }
}

static int plain_rank(const struct build *build, struct plain *plain)
{
    size_t ids_count = plain->ids_count;
    struct arrays arrays = {
        .in_start = calloc(ids_count + 1, sizeof(*arrays.in_start)),
        .in_sources = calloc(plain->edges_count + 1, sizeof(*arrays.in_sources)),
        .out_degree = calloc(ids_count, sizeof(*arrays.out_degree)),
        .contribution = {calloc(ids_count, sizeof(double)), calloc(ids_count, sizeof(double))},
        .sums = calloc(rank_blocks(ids_count), sizeof(*arrays.sums)),
    };
    int result = -ENOMEM;

    plain->rank = calloc(ids_count, sizeof(*plain->rank));
    if (plain->rank && arrays.in_start && arrays.in_sources && arrays.out_degree && arrays.contribution[0] &&
        arrays.contribution[1] && arrays.sums) {
        arrays_fill(&arrays, build);
        rank_until_still(&arrays, plain);
        result = 0;
    }
    free(arrays.in_start);
    free(arrays.in_sources);
    free(arrays.out_degree);
    free(arrays.contribution[0]);
    free(arrays.contribution[1]);
    free(arrays.sums);
    return result;
}

int plain_run(const struct inputs *inputs, struct plain *ret_plain)
{
    struct build build = {.packages = {NULL, 0, 0}};
    int result;

    *ret_plain = (struct plain){.text = NULL};
    result = text_read(inputs, ret_plain);
    if (result == 0)
        result = names_collect(&build, ret_plain);
    if (result == 0)
        result = provided_collect(&build);
    if (result == 0)
        result = edges_collect(&build);
    ret_plain->packages = build.packages.items;
    ret_plain->ids_count = build.packages.count;
    ret_plain->provided_count = build.provided.count;
    ret_plain->edges_count = build.edges.count;
    if (result == 0)
        result = plain_rank(&build, ret_plain);
    free(build.names.items);
    free(build.provided.items);
    free(build.edges.items);
    return result;
}

void plain_fini(struct plain *plain)
{
    free(plain->text);
    free(plain->packages);
    free(plain->rank);
    *plain = (struct plain){.text = NULL};
}
