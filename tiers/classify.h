/* SPDX-License-Identifier: Apache-2.0 */
/*
 * classify.h - which node is which: what the user says, then what the kernel and firmware say, then what was measured.
 * PURE. docs/CXL.md has the order and the reasons.
 */
#ifndef TIERMESH_TIERS_CLASSIFY_H
#define TIERMESH_TIERS_CLASSIFY_H

#include "tiers/topology.h"

struct classify_override {
    unsigned number;
    enum memory_kind kind; /* ddr, hbm, cxl or none */
};

struct classify_wish {
    struct classify_override overrides[TOPOLOGY_NODES_MAX];
    unsigned count;
};

/*
 * "2=cxl,3=hbm,4=none"; "" wishes nothing. false: it cannot be understood (ret_wish is untouched).
 */
bool classify_parse(const char *text, struct classify_wish *ret_wish);

/*
 * Sets kind, reason and doubt of every node. A wish for a node that is not there is passed over. Call it again after
 * measuring: only nodes that nothing else describes change.
 */
void classify(struct topology *topology, const struct classify_wish *wish);

#endif
