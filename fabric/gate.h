/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.h - a listening socket and the connections that have not said who they are.
 *
 * Their number and time are bounded (F6): a full gate closes its oldest stranger, since an honest peer greets at
 * once; nobody stays longer than GATE_TIMEOUT_NS. Runs on the loop's thread.
 */
#ifndef TIERMESH_FABRIC_GATE_H
#define TIERMESH_FABRIC_GATE_H

#include "fabric/greeting.h"

#define GATE_SLOTS_COUNT 128
#define GATE_TIMEOUT_NS  ((uint64_t)5000000000U)

struct gate_slot {
    struct gate *gate;
    int fd; /* -1: free */
    struct loop_watch watch;
    uint64_t accepted_ns;
    uint8_t greeting[GREETING_BYTES];
    size_t filled_bytes;
};

struct gate {
    struct loop *loop;
    int fd;
    struct loop_watch watch;
    bool is_paused;          /* out of descriptors: not watching for a moment */
    struct loop_timer timer; /* ends a pause and the oldest stranger's time */
    bool timer_runs;
    /* A stranger said something: read it, then gate_take() or gate_refuse() when that is settled. */
    void (*greeted)(struct gate *gate, struct gate_slot *slot);
    void *context;
    struct gate_slot slots[GATE_SLOTS_COUNT];
};

/* Watches `fd`, a non-blocking listening socket that then belongs to the gate (on failure not). 0 or -errno. */
int gate_open(struct gate *gate, struct loop *loop, int fd, void (*greeted)(struct gate *, struct gate_slot *),
              void *context) MUST_USE;
void gate_close(struct gate *gate);

/* The connection leaves the gate and belongs to the caller. */
int gate_take(struct gate_slot *slot);
void gate_refuse(struct gate_slot *slot);

#endif
