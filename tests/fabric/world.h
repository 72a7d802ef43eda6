/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.h - up to four nodes in one process on one loop, over any fabric, and traffic that checks itself.
 *
 * The bytes of a message are a function of sender, receiver, plane and number, so a receiver that counts knows what
 * must come: a message that is lost, repeated, out of order or changed fails the test at once (F1, F2).
 */
#ifndef TIERMESH_TESTS_FABRIC_WORLD_H
#define TIERMESH_TESTS_FABRIC_WORLD_H

#include "fabric/fabric.h"

#define WORLD_NODES        3
#define WORLD_POOL_BYTES   ((off_t)32 << 20)
#define WORLD_WINDOW_BYTES ((size_t)1024 * 1024)

struct world_node {
    struct world *world;
    struct fabric *fabric;
    struct fabric_config config;
    uint64_t sent[WORLD_NODES][PLANES];
    uint64_t received[WORLD_NODES][PLANES];
    unsigned ups[WORLD_NODES], downs[WORLD_NODES];
    bool is_up[WORLD_NODES];
    char cause[WORLD_NODES][160];
    /* Called in the message callback, after the checks and before the bytes are looked at once more. */
    void (*hook)(struct world_node *node, struct node_id from);
    bool takes_any; /* do not check the bytes */
};

struct world {
    const char *transport; /* "loopback", "tcp", "shm" */
    bool is_faulty;
    uint32_t cut_permille;
    struct loop *loop;
    bool is_in_send;
    uint32_t size_max; /* largest message of world_send() */
    uint64_t timeout_ns; /* of sessions; verbs run in guests, which are slow when their host is busy */
    char directory[64];
    char pool[96]; /* pool: the memory that the nodes share */
    uint64_t seed;
    struct world_node nodes[WORLD_NODES];
};

void world_open(struct world *world, const char *transport, bool is_faulty, const char *loop_kind);
void world_close(struct world *world);

/* Loops, descriptors and the directory of the parent are not the child's. */
void world_open_in_child(struct world *world, const char *loop_kind);

void world_node_open(struct world *world, unsigned index);
void world_node_close(struct world *world, unsigned index);
void world_connect(struct world *world, unsigned from, unsigned to); /* starts only */
void world_connect_all(struct world *world);                         /* and waits until all are up */
void world_forget(struct world *world, unsigned a, unsigned b);      /* a new session: numbers start again */

/* Send the next message; its size is a function of its number. The result of fabric_send(). */
int world_send(struct world *world, unsigned from, unsigned to, enum fabric_plane plane);
void world_send_sized(struct world *world, unsigned from, unsigned to, enum fabric_plane plane, size_t size);

/* Turn the loop once, at most 5 ms. */
void world_turn(struct world *world);
bool world_all_arrived(struct world *world);
void world_settle(struct world *world); /* until all arrived; fails the test after 20 s */

#define WORLD_UNTIL(world, condition)                                                                                  \
    do {                                                                                                               \
        uint64_t world_end_ns = os_now_ns() + (uint64_t)20000000000U;                                                  \
        while (!(condition)) {                                                                                         \
            assert_true(os_now_ns() < world_end_ns);                                                                   \
            world_turn(world);                                                                                         \
        }                                                                                                              \
    } while (0)

#endif
