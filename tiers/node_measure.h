/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_measure.h - latency and bandwidth of NUMA nodes, as loads see them. Blocks; run at start.
 */
#ifndef TIERMESH_TIERS_NODE_MEASURE_H
#define TIERMESH_TIERS_NODE_MEASURE_H

#include "tiers/topology.h"

#define NODE_MEASURE_MAX 8 /* nodes at most */

/*
 * Sets `measured` of the nodes that have no processors and of those next to them, at most NODE_MEASURE_MAX in all, each
 * from a processor next to it where this process may run on one. At most 4 MiB and about 15 ms each. Nothing is
 * measured where all memory is next to processors. A node whose memory cannot be had now stays unmeasured.
 */
void node_measure(struct topology *topology);

/* One node, from the processor that runs this. 0, or -ENOMEM: no memory of that node can be had, -ENOSYS: no way to. */
int node_measure_one(unsigned number, struct memory_speed *ret_speed) MUST_USE;

#endif
