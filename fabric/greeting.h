/* SPDX-License-Identifier: Apache-2.0 */
/*
 * greeting.h - the first words of two nodes on a connection, the same on every transport.
 *
 * The connecting side (the higher id) says HELLO, the other side answers WELCOME, with a status that may refuse.
 * The first eight bytes keep their meaning in every version, so that different versions can refuse each other.
 */
#ifndef TIERMESH_FABRIC_GREETING_H
#define TIERMESH_FABRIC_GREETING_H

#include "fabric/fabric.h"

#define GREETING_BYTES  64
#define FABRIC_PROTOCOL 1 /* grows with each change of greetings, frames or rings */

enum greeting_kind {
    GREETING_HELLO = 1,
    GREETING_WELCOME = 2,
};

enum greeting_status {
    GREETING_OK = 0,
    REFUSED_VERSION = 1,
    REFUSED_JOB = 2,
    REFUSED_NODE = 3,    /* not the node that was meant, or not one that may connect */
    REFUSED_PROCESS = 4, /* the process that was meant is gone */
    REFUSED_SESSION = 5, /* the session has ended, or what it is said to have received is impossible */
    REFUSED_SYSTEM = 6,  /* no memory or no descriptors */
};

struct greeting {
    uint16_t version;
    uint16_t kind;
    uint16_t status;
    uint16_t plane;
    uint16_t from, to;
    uint32_t attempt; /* counts the connections of a session and plane: an older one never replaces a newer one */
    uint64_t job;
    uint64_t from_incarnation;
    uint64_t to_incarnation; /* 0: the sender does not know it yet, so the session may be a new one */
    uint64_t session;        /* random, chosen by the connecting side */
    uint64_t received;       /* last sequence received on this plane */
};

void greeting_encode(const struct greeting *greeting, uint8_t bytes[GREETING_BYTES]);

/* 0, or -EBADMSG when it is no greeting at all. Values are not judged. */
int greeting_decode(const uint8_t bytes[GREETING_BYTES], struct greeting *ret_greeting) MUST_USE;

/* What a node with this configuration says to a HELLO, as far as the session does not matter. */
enum greeting_status greeting_judge(const struct greeting *hello, const struct fabric_config *config);

/* The answer to a HELLO. */
struct greeting greeting_answer(const struct greeting *hello, const struct fabric_config *config,
                                enum greeting_status status);

/* Whether `welcome` answers `hello`; its status may still refuse. */
bool greeting_fits(const struct greeting *welcome, const struct greeting *hello);

/* "it belongs to another job" and so on; for any value. */
const char *greeting_status_text(unsigned status);

#endif
