/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.c - joins discovery and classification, and puts them into words. Any thread.
 */
#include "runtime/machine.h"
#include "base/error.h"
#include "base/text.h"
#include "tiers/classify.h"
#include "tiers/node_measure.h"

#include <errno.h>
#include <stdio.h>

int machine_look(const char *root, const char *nodes, struct topology *ret_topology)
{
    struct classify_wish wish;

    if (!classify_parse(nodes, &wish))
        return error_set(-EINVAL,
                         "option nodes cannot be '%s': it takes NODE=KIND such as 2=cxl,3=hbm,4=none, where "
                         "KIND is ddr, hbm, cxl or none",
                         nodes);
    topology_read(root, ret_topology);
    for (unsigned i = 0; i < wish.count; i++)
        if (topology_node(ret_topology, wish.overrides[i].number) == NULL)
            return error_set(-EINVAL,
                             "option nodes names node %u, which this machine does not have; dsmctl topology "
                             "shows those it has",
                             wish.overrides[i].number);
    if (root[0] == '\0')
        node_measure(ret_topology);
    classify(ret_topology, &wish);
    return 0;
}

/* ---- in words -------------------------------------------------------------------------------------------------- */

static void say_speed(struct text *text, const char *who, struct memory_speed speed)
{
    if (speed.latency_ns == 0 && speed.bandwidth_mbs == 0)
        return;
    text_add(text, ", %s", who);
    if (speed.latency_ns != 0)
        text_add(text, " %lu ns", speed.latency_ns);
    if (speed.bandwidth_mbs != 0)
        text_add(text, " %lu MB/s", speed.bandwidth_mbs);
}

static void say_node(struct text *text, const struct topology_node *node)
{
    text_add(text, "node %u: %s, %lu MiB%s", node->number, memory_kind_name(node->kind), node->memory_bytes >> 20,
             node->has_processors ? ", processors" : "");
    if (node->kernel_tier != TOPOLOGY_TIER_UNKNOWN)
        text_add(text, ", kernel tier %d", node->kernel_tier);
    say_speed(text, "firmware", node->firmware);
    say_speed(text, "measured", node->measured);
    text_add(text, "\n    why: %s\n", node->reason);
    if (node->doubt[0] != '\0')
        text_add(text, "    but: %s\n", node->doubt);
}

static void say_dax_state(struct text *text, const struct topology_dax *dax)
{
    switch (dax->state) {
    case DAX_NODE:
        text_add(text, "is memory of node %d (kmem): used in place there, not as a device", dax->target_node);
        break;
    case DAX_DEVICE:
        if (dax->may_open)
            text_add(text, "is a device: --cxl SIZE:/dev/%s uses it as a store", dax->name);
        else if (dax->has_file)
            text_add(text, "is a device, but this user may not read and write /dev/%s", dax->name);
        else
            text_add(text, "is a device, but there is no /dev/%s here", dax->name);
        break;
    case DAX_FREE:
        text_add(text, "has no driver: daxctl reconfigure-device -m system-ram %s (or -m devdax) gives it one",
                 dax->name);
        break;
    }
}

static void say_dax(struct text *text, const struct topology_dax *dax)
{
    text_add(text, "%s: %s, %lu MiB", dax->name, dax_origin_name(dax->origin), dax->size_bytes >> 20);
    if (dax->align_bytes != 0)
        text_add(text, ", in steps of %lu KiB", dax->align_bytes >> 10);
    text_add(text, "\n    ");
    say_dax_state(text, dax);
    text_add(text, "\n");
}

size_t machine_describe(const struct topology *topology, char *text, size_t size_bytes)
{
    struct text page = {text, size_bytes, 0};

    for (unsigned i = 0; i < topology->nodes_count; i++)
        say_node(&page, &topology->nodes[i]);
    for (unsigned i = 0; i < topology->dax_count; i++)
        say_dax(&page, &topology->dax[i]);
    if (topology->dax_count == 0)
        text_add(&page, "no dax device\n");
    if (topology->kernel_tiers == 0)
        text_add(&page, "the kernel tells of no memory tiers\n");
    else if (topology->kernel_tiers == 1 && topology->nodes_count > 1)
        text_add(&page, "the kernel has all nodes in one memory tier, which tells nothing\n");
    if (topology->malformed_count > 0)
        text_add(&page, "%u files could not be understood, the first is %s\n", topology->malformed_count,
                 topology->malformed);
    if (topology->left_out > 0)
        text_add(&page, "%u more nodes or devices are left out\n", topology->left_out);
    return page.used;
}
