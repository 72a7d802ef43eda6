/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.c - what the demo prints at its end. Runs on node 0, except sections_add().
 */
#include "demo/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOP_MAX        64
#define DIFFERENCE_MAX 1e-12

static struct section *section_find(struct section *sections, size_t *count, struct span name)
{
    size_t bytes = name.bytes < SECTION_BYTES ? name.bytes : SECTION_BYTES - 1;

    for (size_t i = 0; i < *count; i++)
        if (strlen(sections[i].name) == bytes && memcmp(sections[i].name, name.start, bytes) == 0)
            return &sections[i];
    if (*count == SECTIONS_MAX)
        return NULL;
    memcpy(sections[*count].name, name.start, bytes);
    return &sections[(*count)++];
}

/* Ours were summed up without the mutex: it is held for a moment only. */
static int sections_merge(struct graph *graph, const struct section *ours, size_t count)
{
    int result = dsm_mutex_lock(&graph->sections_mutex);

    if (result != 0)
        return result;
    for (size_t i = 0; i < count && result == 0; i++) {
        struct span name = {ours[i].name, strlen(ours[i].name)};
        struct section *section = section_find(graph->sections, &graph->sections_count, name);

        if (section == NULL) {
            result = -ENOSPC;
            break;
        }
        section->rank += ours[i].rank;
        section->packages += ours[i].packages;
    }
    dsm_mutex_unlock(&graph->sections_mutex);
    return result;
}

int sections_add(struct job *job)
{
    const struct part *part = job_part(job);
    struct section *ours = calloc(SECTIONS_MAX, sizeof(*ours));
    size_t count = 0;
    int result = 0;

    job->doing = "sum up by section";
    if (ours == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < part->packages_count && result == 0; i++) {
        struct span name = part->packages[i].section;
        struct section *section;

        if (part->ids[i] == ID_NONE)
            continue;
        section = section_find(ours, &count, name.bytes > 0 ? name : (struct span){"(none)", 6});
        if (section == NULL) {
            result = -ENOSPC;
            break;
        }
        section->rank += job->graph->rank[part->ids[i]];
        section->packages++;
    }
    if (result == 0)
        result = sections_merge(job->graph, ours, count);
    free(ours);
    return result != 0 ? result : dsm_barrier();
}

static int shown(struct span span, size_t bytes_max)
{
    return (int)(span.bytes < bytes_max ? span.bytes : bytes_max);
}

void report_top(const struct graph *graph, size_t count)
{
    uint32_t top[TOP_MAX];
    size_t have = 0;

    for (uint32_t id = 0; id < graph->ids_count; id++) {
        size_t at = have;

        while (at > 0 && graph->rank[top[at - 1]] < graph->rank[id])
            at--;
        if (at == count)
            continue;
        have += have < count;
        memmove(&top[at + 1], &top[at], (have - at - 1) * sizeof(top[0]));
        top[at] = id;
    }
    printf("\n  #  rank       package                   version                 section      what it is\n");
    for (size_t i = 0; i < have; i++) {
        const struct package *package = graph->packages[top[i]];

        printf(" %2zu  %.3e  %-24.*s  %-22.*s  %-11.*s  %.*s\n", i + 1, graph->rank[top[i]], shown(package->name, 24),
               package->name.start, shown(package->version, 22), package->version.start, shown(package->section, 11),
               package->section.start, shown(package->description, 44), package->description.start);
    }
}

static int section_compare(const void *a, const void *b)
{
    const struct section *x = a;
    const struct section *y = b;

    return x->rank > y->rank ? -1 : x->rank < y->rank;
}

void report_sections(const struct graph *graph, size_t count)
{
    struct section sorted[SECTIONS_MAX];

    memcpy(sorted, graph->sections, graph->sections_count * sizeof(sorted[0]));
    qsort(sorted, graph->sections_count, sizeof(sorted[0]), section_compare);
    printf("\nrank by section:");
    for (size_t i = 0; i < count && i < graph->sections_count; i++)
        printf("%s %s %.1f %% of %llu packages", i > 0 ? "," : "", sorted[i].name, 100 * sorted[i].rank,
               (unsigned long long)sorted[i].packages);
    printf("\n");
}

static double difference_max(const struct graph *graph, const struct plain *plain)
{
    double largest = 0;

    for (size_t id = 0; id < plain->ids_count; id++) {
        double difference = fabs(graph->rank[id] - plain->rank[id]);

        if (!(difference <= largest))
            largest = difference;
    }
    return largest;
}

bool report_check(const struct graph *graph, const struct plain *plain)
{
    double difference, sum = 0;

    if (graph->ids_count != plain->ids_count || graph->edges_count != plain->edges_count) {
        printf("check: %zu packages and %zu edges, but %zu and %zu in the plain computation\n", graph->ids_count,
               graph->edges_count, plain->ids_count, plain->edges_count);
        return false;
    }
    for (size_t id = 0; id < plain->ids_count; id++) {
        const struct package *package = graph->packages[id];

        sum += graph->rank[id];
        if (!span_is_equal(package->name, plain->packages[id].name) ||
            !span_is_equal(package->version, plain->packages[id].version)) {
            printf("check: package %zu is %.*s, but %.*s in the plain computation\n", id, shown(package->name, 60),
                   package->name.start, shown(plain->packages[id].name, 60), plain->packages[id].name.start);
            return false;
        }
    }
    difference = difference_max(graph, plain);
    printf("\ncheck: names, versions and edges are equal; largest difference of a rank %.2e; ranks add up to %.12f\n",
           difference, sum);
    return difference <= DIFFERENCE_MAX && fabs(sum - 1) <= 1e-9 && graph->steps == plain->steps;
}
