/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cxl.c - joins discovery, option cxl and the pager's far memory. Run by the shard's thread at its start.
 */
#include "runtime/cxl.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "runtime/machine.h"

#include <errno.h>
#include <string.h>

/* Where pages go that come near: the DDR next to the far node, else any. -1: there is no DDR. */
static int near_of(const struct topology *topology, const struct topology_node *far)
{
    int near = -1;

    for (unsigned i = 0; i < topology->nodes_count; i++) {
        const struct topology_node *node = &topology->nodes[i];

        if (node->kind != MEMORY_DDR)
            continue;
        if (near < 0 || (int)node->number == far->near_node)
            near = (int)node->number;
    }
    return near;
}

void cxl_far_of(const struct topology *topology, struct pager_far *ret_far, uint64_t *ret_there_bytes)
{
    struct pager_far far = {.bytes = 0};
    uint64_t there_bytes = 0;

    for (unsigned i = 0; i < topology->nodes_count && far.nodes_count < PAGER_FAR_NODES_MAX; i++) {
        const struct topology_node *node = &topology->nodes[i];
        int near = near_of(topology, node);

        if ((node->kind != MEMORY_CXL && node->kind != MEMORY_PMEM) || near < 0 || node->memory_bytes == 0)
            continue;
        far.nodes[far.nodes_count].number = node->number;
        far.nodes[far.nodes_count++].near = (unsigned)near;
        there_bytes += node->memory_bytes;
    }
    *ret_far = far;
    *ret_there_bytes = there_bytes;
}

/* 0 also when the machine has no such node: nodes_count says so. */
static int far_find(const struct dsm_config *config, uint64_t size_bytes, struct pager_far *ret_far)
{
    struct topology *topology;
    uint64_t there_bytes = 0;
    void *memory;
    int error = os_pages_map(sizeof(*topology), &memory);

    if (error != 0)
        return error_set(error, "no memory to look at this machine's");
    topology = memory;
    error = machine_look("", config->nodes, topology);
    if (error == 0)
        cxl_far_of(topology, ret_far, &there_bytes);
    os_pages_unmap(memory, sizeof(*topology));
    if (error == 0 && ret_far->nodes_count > 0 && there_bytes < size_bytes)
        return error_set(-ENOMEM,
                         "option cxl asks for %lu MiB, and this machine's CXL nodes have %lu MiB; lower it "
                         "(dsmctl topology shows them)",
                         size_bytes >> 20, there_bytes >> 20);
    return error;
}

bool cxl_is_emulated(const struct tier *tier)
{
    return tier != NULL && strstr(tier_name(tier), "emulated") != NULL;
}

int cxl_open(const struct dsm_config *config, uint64_t size_bytes, cxl_device_open *device_open, struct tier **ret_tier,
             struct pager_far *ret_far)
{
    const char *source = config->cxl_source;
    int error;

    *ret_far = (struct pager_far){.bytes = 0};
    if (strcmp(source, "emulated") == 0)
        return tier_cxl_emulated_open(size_bytes, ret_tier);
    if (source[0] == '/' && device_open == NULL)
        return error_set(-EOPNOTSUPP,
                         "option cxl names the device %s, which an unmodified program cannot use: what it "
                         "forks would write into the same memory; give the memory to the kernel as a NUMA node",
                         source);
    if (source[0] == '/')
        return device_open(source, config->cxl_bytes, ret_tier);
    error = far_find(config, size_bytes, ret_far);
    if (error != 0)
        return error;
    if (ret_far->nodes_count > 0) {
        ret_far->bytes = size_bytes - size_bytes % PAGE_BYTES;
        log_info("CXL memory in place: %lu MiB on %u nodes from node %u on", size_bytes >> 20, ret_far->nodes_count,
                 ret_far->nodes[0].number);
        return 0;
    }
    if (strcmp(source, "node") == 0)
        return error_set(-ENODEV, "option cxl asks for a NUMA node of CXL memory, and this machine has none online; "
                                  "dsmctl topology shows what it has, option nodes can name one");
    return tier_cxl_emulated_open(size_bytes, ret_tier);
}
