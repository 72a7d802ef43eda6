/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.h - the dependency graph of a distribution in shared memory, built by all nodes together.
 *
 * Ids number the distinct package names in order of their first appearance in the text. An edge leads from a package
 * to each package that satisfies the first satisfiable alternative of one of its Depends, Pre-Depends or Recommends:
 * the one of that name or, where there is none, all that provide it.
 *
 * Every array has one node that writes it; the others read it after the next barrier.
 */
#ifndef TIERMESH_DEMO_GRAPH_H
#define TIERMESH_DEMO_GRAPH_H

#include "demo/input.h"
#include "demo/parse.h"
#include "demo/rank.h"

#include <stdalign.h>
#include <tiermesh/dsm.h>

#define ID_NONE    UINT32_MAX
#define TEXT_MAX   ((size_t)1 << 30)
#define TEXT_BLOCK ((size_t)1 << 20)

/* A name known to the job: the package of that name. Names are told apart by their hashes (graph_intern). */
struct name_slot {
    uint64_t hash;
    uint32_t index; /* into the part's packages */
    uint32_t part;  /* node + 1; 0: empty */
};

struct provide {
    uint64_t hash;
    uint32_t id; /* of the package that provides the name */
};

/* What one node contributes. */
struct part {
    alignas(DSM_PAGE_BYTES) size_t text_bytes; /* as this node read it */
    struct package *packages;                  /* stanzas of its slice */
    uint64_t *hashes;                          /* of their names, side by side for those who look for one */
    uint32_t *ids;                             /* ID_NONE: an earlier stanza has that name */
    size_t packages_count, unique_count;

    struct name_slot *names; /* the names whose hash falls to this node */
    size_t names_mask;
    struct provide *provided; /* by its packages, ascending by id */
    size_t provided_count;
    struct provide *provides; /* the provided names whose hash falls to this node, by (hash, id) */
    size_t provides_count;

    uint64_t *out_start; /* [unique_count + 1] */
    uint32_t *out_targets;

    size_t blocks_count; /* of the ids it ranks */
    struct block_sum *sums[2];
    size_t touched_bytes; /* of shared memory, by this node, counted by the program itself */
    struct dsm_stats stats;
};

#define SECTIONS_MAX  256
#define SECTION_BYTES 40

struct section {
    char name[SECTION_BYTES];
    double rank;
    uint64_t packages;
};

struct graph {
    uint64_t progress; /* stanzas parsed so far; dsm_atomic_* */
    char *text;
    size_t ids_count, edges_count;
    const struct package **packages; /* by id */
    double *rank;
    double *contribution[2];
    uint64_t steps;
    int is_failed; /* node 0's verdict, for the others' exit codes */

    alignas(DSM_PAGE_BYTES) dsm_mutex sections_mutex;
    size_t sections_count;
    struct section sections[SECTIONS_MAX];

    struct part parts[DSM_NODES_MAX];
};

struct job {
    unsigned node, nodes_count;
    struct graph *graph;
    const char *doing; /* for the message when it fails */
};

static inline struct part *job_part(const struct job *job)
{
    return &job->graph->parts[job->node];
}

/* The steps in order, with a barrier behind each. Called by one thread of every node. 0 or -errno. */
int graph_load(struct job *job, const struct inputs *inputs);
int graph_scan(struct job *job);
int graph_intern(struct job *job);
int graph_number(struct job *job);
int graph_provide(struct job *job);
int graph_link(struct job *job);

/* How many different bytes of shared memory this node has touched in the steps above and in graph_rank(). */
size_t graph_touched(const struct job *job);

/* The package of that name, after graph_intern(); NULL when there is none. */
const struct name_slot *name_find(const struct job *job, uint64_t hash);

/*
 * PageRank over the graph until a step changes it by less than RANK_CHANGE_MAX in all. `tell` hears of each step on
 * node 0; it may be NULL.
 */
int graph_rank(struct job *job, void (*tell)(uint64_t step, double change));

#endif
