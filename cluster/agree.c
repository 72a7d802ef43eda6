/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.c - decides the views of a job. PURE. Runs in dsmrun's agent.
 *
 * Always holds: once started, bit i of view.members is set exactly when status[i] is AGREE_MEMBER, and the epoch is one
 * more than the number of nodes that went. A node that is out never comes back.
 */
#include "cluster/agree.h"

void agree_init(struct agree *agree, unsigned nodes_count)
{
    *agree = (struct agree){.nodes_count = (uint16_t)(nodes_count < NODES_MAX ? nodes_count : NODES_MAX)};
}

static bool node_has_status(const struct agree *agree, struct node_id node, enum agree_status status)
{
    return node.index < agree->nodes_count && agree->status[node.index] == (uint8_t)status;
}

bool agree_join(struct agree *agree, struct node_id node)
{
    if (!node_has_status(agree, node, AGREE_ABSENT))
        return false;
    agree->status[node.index] = AGREE_JOINED;
    for (unsigned i = 0; i < agree->nodes_count; i++) {
        if (agree->status[i] != AGREE_JOINED)
            return false;
    }
    for (unsigned i = 0; i < agree->nodes_count; i++) {
        agree->status[i] = AGREE_MEMBER;
        agree->view.members |= (uint64_t)1 << i;
    }
    agree->view.epoch.number = 1;
    agree->is_started = true;
    return true;
}

static bool agree_remove(struct agree *agree, struct node_id node, enum agree_status status)
{
    bool was_member = node_has_status(agree, node, AGREE_MEMBER);

    if (!was_member && !node_has_status(agree, node, AGREE_ABSENT) && !node_has_status(agree, node, AGREE_JOINED))
        return false;
    agree->status[node.index] = (uint8_t)status;
    if (!was_member)
        return false;
    agree->view.members &= ~((uint64_t)1 << node.index);
    agree->view.epoch.number++;
    return true;
}

bool agree_leave(struct agree *agree, struct node_id node)
{
    return agree_remove(agree, node, AGREE_LEFT);
}

bool agree_exited(struct agree *agree, struct node_id node)
{
    return agree_remove(agree, node, AGREE_DEAD);
}

bool agree_suspect(struct agree *agree, struct node_id by, struct node_id suspect)
{
    if (!node_has_status(agree, by, AGREE_MEMBER) || !node_has_status(agree, suspect, AGREE_MEMBER) ||
        node_is(by, suspect))
        return false;
    return agree_remove(agree, suspect, AGREE_DEAD);
}
