/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - what the demo prints: ranks, sections, the check against the plain computation, and the table of tiers.
 */
#ifndef TIERMESH_DEMO_REPORT_H
#define TIERMESH_DEMO_REPORT_H

#include "demo/graph.h"
#include "demo/plain.h"

/* Adds this node's packages to the shared sums by section, under a mutex of all nodes. 0 or -errno. */
int sections_add(struct job *job);

void report_top(const struct graph *graph, size_t count);
void report_sections(const struct graph *graph, size_t count);

/* Compares names, edges and ranks. True when they agree; says what differs. */
bool report_check(const struct graph *graph, const struct plain *plain);

/*
 * Pages by tier, faults by source, moves, messages, for each node. False, after saying which, when a tier that is
 * configured or another node has served no fault: then the run has shown nothing.
 */
bool report_tiers(const struct graph *graph, unsigned nodes_count);

#endif
