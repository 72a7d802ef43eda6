/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machines.h - pictures of machines' sysfs, for tests of discovery: nodes, the kernel's tiers, dax devices. What is
 * called after a QEMU guest was taken from one.
 */
#ifndef TIERMESH_TESTS_UNIT_TIERS_MACHINES_H
#define TIERMESH_TESTS_UNIT_TIERS_MACHINES_H

#include "base/types.h"
#include "tests/support/fake_root.h"

static inline void fake_nodes(const struct fake_root *root, const char *online, const char *has_cpu)
{
    fake_file(root, "/sys/devices/system/node/online", online);
    fake_file(root, "/sys/devices/system/node/has_cpu", has_cpu);
}

static inline void fake_node(const struct fake_root *root, unsigned number, unsigned memory_mib)
{
    char name[128], text[256];

    snprintf(name, sizeof(name), "/sys/devices/system/node/node%u/meminfo", number);
    snprintf(text, sizeof(text), "Node %u MemTotal:       %8u kB\nNode %u MemFree:        %8u kB\n", number,
             memory_mib << 10, number, memory_mib << 9);
    fake_file(root, name, text);
}

static inline void fake_firmware(const struct fake_root *root, unsigned number, unsigned latency_ns,
                                 unsigned bandwidth_mbs)
{
    char name[160], text[32];

    snprintf(name, sizeof(name), "/sys/devices/system/node/node%u/access0/initiators/read_latency", number);
    snprintf(text, sizeof(text), "%u\n", latency_ns);
    fake_file(root, name, text);
    snprintf(name, sizeof(name), "/sys/devices/system/node/node%u/access0/initiators/read_bandwidth", number);
    snprintf(text, sizeof(text), "%u\n", bandwidth_mbs);
    fake_file(root, name, text);
}

static inline void fake_tier(const struct fake_root *root, unsigned tier, const char *nodes)
{
    char name[128];

    snprintf(name, sizeof(name), "/sys/devices/virtual/memory_tiering/memory_tier%u/nodelist", tier);
    fake_file(root, name, nodes);
}

#define CXL_LINK  "../../../devices/platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/"
#define PMEM_LINK "../../../devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0012:00/ndbus0/region0/dax0.0/"
#define HMEM_LINK "../../../devices/platform/hmem.0/"

/* driver: "kmem", "device_dax", or NULL. The link leads to a folder that need not be there, so files lie beside it. */
static inline void fake_dax(const struct fake_root *root, const char *name, const char *link, const char *size,
                            const char *target_node, const char *driver)
{
    char path[512], target[256], folder[64];

    snprintf(folder, sizeof(folder), "/sys/bus/dax/devices/%s", name);
    snprintf(target, sizeof(target), "%s%s", link, name);
    fake_link(root, folder, target);
    snprintf(path, sizeof(path), "/sys%s/size", target + strlen("../../.."));
    fake_file(root, path, size);
    snprintf(path, sizeof(path), "/sys%s/align", target + strlen("../../.."));
    fake_file(root, path, "2097152\n");
    snprintf(path, sizeof(path), "/sys%s/target_node", target + strlen("../../.."));
    fake_file(root, path, target_node);
    if (driver == NULL)
        return;
    snprintf(path, sizeof(path), "/sys%s/driver", target + strlen("../../.."));
    snprintf(target, sizeof(target), "../../../../../../../../bus/dax/drivers/%s", driver);
    fake_link(root, path, target);
}

/* A QEMU guest with a CXL type 3 device as a node. */
static inline void fake_cxl_guest(const struct fake_root *root, const char *driver, bool is_online)
{
    fake_nodes(root, is_online ? "0-1\n" : "0\n", "0\n");
    fake_node(root, 0, 967);
    if (is_online)
        fake_node(root, 1, 512);
    fake_tier(root, 4, "0\n");
    if (is_online)
        fake_tier(root, 22, "1\n");
    fake_dax(root, "dax0.0", CXL_LINK, "536870912\n", "1\n", driver);
    fake_file(root, "/sys/devices/system/memory/auto_online_blocks", is_online ? "online_movable\n" : "offline\n");
}

/* Two sockets in four clusters, each with its HBM as a node, and CXL memory behind each socket. */
static inline void fake_large(const struct fake_root *root)
{
    fake_nodes(root, "0-9\n", "0-3\n");
    for (unsigned i = 0; i < 4; i++) {
        fake_node(root, i, 128u << 10);
        fake_firmware(root, i, 110, 76800);
        fake_node(root, 4 + i, 16u << 10);
        fake_firmware(root, 4 + i, 125, 204800);
    }
    fake_node(root, 8, 256u << 10);
    fake_node(root, 9, 256u << 10);
    fake_firmware(root, 8, 250, 32000);
    fake_firmware(root, 9, 250, 32000);
    fake_tier(root, 4, "0-3\n");
    fake_tier(root, 2, "4-7\n");
    fake_tier(root, 22, "8,9\n");
    fake_dax(root, "dax1.0", CXL_LINK, "0x4000000000\n", "8\n", "kmem");
    fake_dax(root, "dax2.0", HMEM_LINK, "274877906944\n", "9\n", "kmem");
}

#endif
