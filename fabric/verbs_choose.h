/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_choose.h - which RDMA device, port and GID serve an address of this host. Pure: the list is given.
 *
 * rdma_cm is asked first which device the address belongs to; what it said is judged here against what the devices say.
 */
#ifndef TIERMESH_FABRIC_VERBS_CHOOSE_H
#define TIERMESH_FABRIC_VERBS_CHOOSE_H

#include "base/types.h"

#define VERBS_CANDIDATES_MAX 16
#define VERBS_PORTS_MAX      4
#define VERBS_GIDS_MAX       64
#define VERBS_NAME_BYTES     64

struct verbs_gid {
    uint8_t raw[16];
    uint16_t index;  /* in the port's table, which may have gaps */
    uint8_t version; /* of RoCE: 1 or 2; 0: InfiniBand */
};

struct verbs_port {
    uint8_t number; /* counted from 1 */
    bool is_active;
    bool is_ethernet; /* RoCE; else InfiniBand, where an address belongs to a port by IPoIB and is no GID */
    uint32_t mtu_bytes;
    unsigned gids_count;
    struct verbs_gid gids[VERBS_GIDS_MAX];
};

struct verbs_candidate {
    char name[VERBS_NAME_BYTES];
    int open_error; /* 0, or the errno with which it refused to be opened */
    unsigned ports_count;
    struct verbs_port ports[VERBS_PORTS_MAX];
};

struct verbs_choice {
    unsigned candidate;
    uint8_t port;
    uint16_t gid_index;
    uint8_t roce_version;
    uint32_t mtu_bytes;
};

/*
 * verbs_choose - `address` is the text of what is bound, `gid` its 16 bytes (IPv4 mapped into IPv6); `bound` is the
 * device that rdma_cm found for it, "" for none. 0, or -ENODEV or the device's own error, with error_set().
 */
int verbs_choose(const struct verbs_candidate *candidates, unsigned count, const char *address, const uint8_t gid[16],
                 const char *bound, struct verbs_choice *ret_choice) MUST_USE;

#endif
