/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.h - decides the views of a job. PURE. Lives in dsmrun's agent (and alone in a job of one node).
 *
 * The log of views has one writer here ("single"): the agent that started the processes, which knows of their deaths
 * first. A consensus library can take its place: the calls say only what happened and what was decided.
 * Life of a job: each node joins with its address blob and proposes a window base; when all have joined, the first view
 * (epoch 1) and all blobs go to everyone. A node that exits, leaves or is suspected (by any member that is not itself
 * suspected) is out of the next view, for good.
 */
#ifndef TIERMESH_CLUSTER_AGREE_H
#define TIERMESH_CLUSTER_AGREE_H

#include "base/types.h"

enum agree_status {
    AGREE_ABSENT = 0,
    AGREE_JOINED,
    AGREE_MEMBER,
    AGREE_LEFT, /* by dsm_finalize */
    AGREE_DEAD, /* exited without leaving, or suspected */
};

struct agree {
    struct view view;
    uint16_t nodes_count;
    uint8_t status[NODES_MAX];
    bool is_started;
};

void agree_init(struct agree *agree, unsigned nodes_count);

/* Each returns true when a new view was decided (agree->view): the caller tells every member. */
bool agree_join(struct agree *agree, struct node_id node); /* true: all joined, the job starts */
bool agree_leave(struct agree *agree, struct node_id node);
bool agree_exited(struct agree *agree, struct node_id node);
bool agree_suspect(struct agree *agree, struct node_id by, struct node_id suspect);

#endif
