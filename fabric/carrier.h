/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carrier.h - what may carry the links of the tcp transport in place of sockets.
 *
 * Sessions, greetings and the ends of sessions are tcp's (fabric/tcp.h); a carrier moves a link's bytes, in order, and
 * says when it cannot any more. A link has one connection at a time, carried or by socket, and the session survives any
 * change between them. All runs on the loop's thread. Nothing here calls back.
 */
#ifndef TIERMESH_FABRIC_CARRIER_H
#define TIERMESH_FABRIC_CARRIER_H

#include "base/types.h"

#define CARRIER_ADDRESS_BYTES 4

struct carrier;
struct tcp;
struct tcp_link;

struct carrier_ops {
    /* How the carrier is reached at the address that tcp listens on; not 0. */
    uint32_t (*address)(struct carrier *carrier);

    /* Connecting side, the link is down: start an attempt, by tcp_link_carry(). False: use a socket this time. */
    bool (*try)(struct tcp_link *link);

    /* Give the connection what the session has not sent. The link is up. */
    void (*flush)(struct tcp_link *link);

    /* Whether all of it has left, so that an end loses nothing. The link is up. */
    bool (*is_flushed)(struct tcp_link *link);

    /* The link's user is leaving: what was flushed still gets there, nothing more is received. end() follows. */
    void (*linger)(struct tcp_link *link);

    /* The connection is over: when this returns, nothing that was under way can reach the link any more. */
    void (*end)(struct tcp_link *link);

    /* Why the peer is reached by a socket. */
    const char *(*reason)(struct carrier *carrier, unsigned peer);

    void (*close)(struct carrier *carrier);
};

struct carrier {
    const struct carrier_ops *ops;
    struct tcp *tcp;
};

#endif
