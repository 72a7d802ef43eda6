/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h - the memory of this machine as a node of a job uses it: found, named and said in words. Any thread.
 */
#ifndef TIERMESH_RUNTIME_MACHINE_H
#define TIERMESH_RUNTIME_MACHINE_H

#include "tiers/topology.h"

#define MACHINE_TEXT_MAX 65536

/*
 * machine_look - finds nodes and dax devices, measures nodes where that tells something, and says which is which.
 * Blocks: up to 15 ms a node. `nodes` is the option of that name. With a root other than "" nothing is measured: those
 * nodes are not this machine's. 0, or -EINVAL with a sentence when `nodes` cannot be understood or names a node that is
 * not there.
 */
int machine_look(const char *root, const char *nodes, struct topology *ret_topology) MUST_USE;

/* What was found and why, in lines. Returns the length; what has no room is cut off. */
size_t machine_describe(const struct topology *topology, char *text, size_t size_bytes);

#endif
