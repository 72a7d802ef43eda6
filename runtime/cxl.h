/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cxl.h - what option cxl is on this machine: memory in place, a mapped device, or emulated. Run at the shard's start.
 */
#ifndef TIERMESH_RUNTIME_CXL_H
#define TIERMESH_RUNTIME_CXL_H

#include "runtime/config.h"
#include "runtime/pager.h"
#include "tiers/topology.h"

/* Opens a device as a store: tier_dax_open(). */
typedef int cxl_device_open(const char *path, uint64_t size_bytes, struct tier **ret_tier);

/*
 * cxl_open - CXL memory of size_bytes as config->cxl_source says; "": nodes of this machine in place, and emulated
 * where it has none; a path: by device_open (NULL: not in this process, -EOPNOTSUPP). Either *ret_tier is a store, or
 * *ret_far is memory in place (bytes 0: it is not). Blocks, as machine_look() does. 0 or -errno with a sentence:
 * -ENODEV (no such node), -ENOMEM (its nodes have less), and as machine_look() and tier_*_open().
 */
int cxl_open(const struct dsm_config *config, uint64_t size_bytes, cxl_device_open *device_open, struct tier **ret_tier,
             struct pager_far *ret_far) MUST_USE;

/* The far memory that these nodes are: those that count as CXL, or persistent memory. No nodes: nodes_count is 0. */
void cxl_far_of(const struct topology *topology, struct pager_far *ret_far, uint64_t *ret_there_bytes);

/* A store that stands for a device which this machine does not have. NULL is none. */
bool cxl_is_emulated(const struct tier *tier);

#endif
