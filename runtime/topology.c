/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.c - by which way this node reaches the others, and why so. Runs on the shard's thread.
 */
#include "runtime/topology.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "runtime/node.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void text_peer(struct text *text, const struct node *node, unsigned index)
{
    struct node_id peer = node_of(index);
    struct fabric *fabric = node->via[index];
    const char *control, *data;

    text_add(text, "  node %u: ", index);
    if (fabric == NULL) {
        text_add(text, "left the job\n");
        return;
    }
    control = fabric_path(fabric, peer, PLANE_CONTROL);
    data = fabric_path(fabric, peer, PLANE_DATA);
    if (control[0] == '\0' && data[0] == '\0')
        text_add(text, "%s, not connected yet", fabric_name(fabric));
    else if (strcmp(control, data) == 0)
        text_add(text, "%s", data);
    else
        text_add(text, "data by %s; control by %s", data, control);
    text_add(text, " (%s", node->via_why[index]);
    if (fabric == node->tcp && node->rdma_refused[0] != '\0')
        text_add(text, "; %s", node->rdma_refused);
    text_add(text, ")\n");
}

void topology_tell(struct node *node)
{
    struct text text = {.size_bytes = TOPOLOGY_BYTES_MAX};
    char host[64] = "";
    void *memory;

    if (node->nodes_count < 2 || os_pages_map(text.size_bytes, &memory) != 0)
        return;
    text.bytes = memory;
    gethostname(host, sizeof(host) - 1);
    text_add(&text, "node %u of %u: process %d on %s, transport %s\n", node->self.index, node->nodes_count, getpid(),
             host, node->config.transport);
    for (unsigned i = 0; i < node->nodes_count; i++)
        if (i != node->self.index && (node->via[i] != NULL || node->via_why[i] != NULL))
            text_peer(&text, node, i);
    if (topology_file_write(text.bytes, text.used) != 0)
        log_info("dsmctl topology will not know this node: %s", error_text());
    os_pages_unmap(memory, text.size_bytes);
}

void topology_forget(void)
{
    topology_file_remove(getpid());
}
