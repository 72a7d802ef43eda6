/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inbox.h - what waits in this process to be handed to the user by the loop.
 *
 * Messages to oneself on every transport (F7), and everything on loopback. Emptied by a poller of the loop, so a
 * send costs no system call. One thread.
 */
#ifndef TIERMESH_FABRIC_INBOX_H
#define TIERMESH_FABRIC_INBOX_H

#include "fabric/fabric.h"
#include "fabric/fifo.h"

#define INBOX_MESSAGE 0 /* the kind of entry that counts in the window */

struct inbox_entry {
    uint32_t kind; /* INBOX_MESSAGE, or a notice of the owner's */
    uint16_t from;
    uint16_t plane;
    uint64_t session; /* the owner's */
    uint64_t size_bytes;
};

struct inbox {
    struct loop *loop;
    struct loop_poller poller;
    void (*handle)(void *context, const struct inbox_entry *entry, const uint8_t *bytes);
    void *context;
    size_t window_bytes_max;
    size_t queued_bytes[NODES_MAX][PLANES];
    struct fifo filling;
    struct fifo draining; /* another one, because handle() may push while its bytes are in use */
};

void inbox_init(struct inbox *inbox, const struct fabric_config *config,
                void (*handle)(void *context, const struct inbox_entry *entry, const uint8_t *bytes), void *context);
void inbox_fini(struct inbox *inbox);

/* Queue an entry; its size becomes that of the parts. 0 or -ENOBUFS. Never calls handle(). */
int inbox_push(struct inbox *inbox, struct inbox_entry entry, const struct iovec *parts, int parts_count) MUST_USE;

#endif
