/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.h - which memory this machine has: NUMA nodes and dax devices, as the kernel describes them in sysfs.
 *
 * Only looks and notes; classify.h says which is which. Reads files by system calls alone and keeps errno. `root`
 * stands in front of every path: "" is the machine, a directory is a test's picture of one. Any thread.
 *
 * Sources: Documentation/ABI/stable/sysfs-devices-node, Documentation/admin-guide/mm/numaperf.rst,
 * Documentation/ABI/testing/{sysfs-kernel-mm-memory-tiers,sysfs-bus-dax}.
 */
#ifndef TIERMESH_TIERS_TOPOLOGY_H
#define TIERMESH_TIERS_TOPOLOGY_H

#include "base/types.h"

#define TOPOLOGY_NODES_MAX    64
#define TOPOLOGY_DAX_MAX      64
#define TOPOLOGY_NAME_MAX     24
#define TOPOLOGY_REASON_MAX   160
#define TOPOLOGY_TIER_UNKNOWN (-1)

/* What a node, or a device, is to us. */
enum memory_kind {
    MEMORY_DDR = 0,
    MEMORY_HBM = 1,
    MEMORY_CXL = 2,
    MEMORY_PMEM = 3,    /* used as cxl */
    MEMORY_OFFLINE = 4, /* a node without memory that can be used now */
    MEMORY_NONE = 5,    /* the user wants it left alone */
    MEMORY_KINDS = 6,
};

/* Where a dax device's memory comes from. */
enum dax_origin {
    DAX_UNKNOWN = 0,
    DAX_CXL = 1,
    DAX_PMEM = 2,
    DAX_HMEM = 3, /* set aside by firmware: HBM, or CXL memory that firmware has set up */
};

/* Who has a dax device. */
enum dax_state {
    DAX_FREE = 0,   /* no driver */
    DAX_DEVICE = 1, /* device_dax: a file below /dev */
    DAX_NODE = 2,   /* kmem: memory of node target_node, online or not */
};

/* Nanoseconds and MB/s, seen from the nearest processors; 0: not known. */
struct memory_speed {
    uint64_t latency_ns;
    uint64_t bandwidth_mbs;
};

struct topology_node {
    unsigned number; /* the kernel's */
    bool has_processors;
    uint64_t memory_bytes;         /* online; 0: none */
    int kernel_tier;               /* lower is faster; TOPOLOGY_TIER_UNKNOWN */
    struct memory_speed firmware;  /* read; HMAT or CDAT */
    struct memory_speed measured;  /* node_measure.h */
    int near_node, near_processor; /* the closest node with processors, and one of them; -1: not known */
    int dax;                       /* of topology.dax: where its memory comes from; -1: from the start */
    enum memory_kind kind;
    char reason[TOPOLOGY_REASON_MAX]; /* a sentence: why this kind */
    char doubt[TOPOLOGY_REASON_MAX];  /* what speaks against it; "": nothing */
};

struct topology_dax {
    char name[TOPOLOGY_NAME_MAX]; /* "dax0.0" */
    enum dax_origin origin;
    enum dax_state state;
    uint64_t size_bytes, align_bytes; /* 0: not known */
    int target_node;                  /* -1: not known */
    bool has_file;                    /* /dev/NAME is there */
    bool may_open;                    /* and this process may read and write it */
};

struct topology {
    struct topology_node nodes[TOPOLOGY_NODES_MAX];
    unsigned nodes_count;
    struct topology_dax dax[TOPOLOGY_DAX_MAX];
    unsigned dax_count;
    unsigned left_out;     /* nodes and devices beyond the tables */
    unsigned kernel_tiers; /* different ones among the nodes; 0: the kernel does not tell */
    char auto_online[24];  /* "offline", "online", "online_movable"; "": not known */
    char malformed[128];   /* the first file that could not be understood; "": none */
    unsigned malformed_count;
};

/* A machine that tells nothing has one node, 0, with processors and its memory. */
void topology_read(const char *root, struct topology *ret_topology);

/* NULL: no such node. */
struct topology_node *topology_node(struct topology *topology, unsigned number);

/* Node numbers of a kind, ascending, `wanted` at most; returns how many. */
unsigned topology_of_kind(const struct topology *topology, enum memory_kind kind, unsigned *numbers_out,
                          unsigned wanted);

const char *memory_kind_name(enum memory_kind kind);
const char *dax_origin_name(enum dax_origin origin);

#endif
