/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk.h - copying runs of pages from their home without taking rights: what dsm_read() uses for remote runs.
 *
 * The home makes the run current and keeps it in memory (coherence_read, pins), then either lets the reader copy from
 * its file (nodes of one host: one copy, by the reading thread) or sends the bytes in chunks. One round trip.
 */
#ifndef TIERMESH_RUNTIME_BULK_H
#define TIERMESH_RUNTIME_BULK_H

#include "runtime/request.h"
#include "runtime/wire.h"

#define BULK_SERVED_MAX 64 /* runs kept in memory for readers at a time; further ones wait */
#define BULK_CHUNK_BYTES (64 * 1024)

struct bulk;

int bulk_create(struct node *node, struct bulk **ret_bulk) MUST_USE;
void bulk_destroy(struct bulk *bulk);

/*
 * An application thread: copy `size_bytes` at `offset_bytes` of the run's first page into `buffer`. The run lies in one
 * extent whose home is `home`, not this node. 0, -EIO, -EHOSTDOWN, -EFAULT (buffer).
 */
int bulk_read(struct node *node, struct node_id home, struct page_id first, size_t offset_bytes, size_t size_bytes,
              void *buffer) MUST_USE;

/* The shard. */
void bulk_current(struct node *node, struct request *request, int result);
void bulk_receive(struct node *node, struct node_id from, const struct wire *wire);
void bulk_view(struct node *node, const struct view *view); /* the dead read no more, and send no more */
void bulk_retry(struct node *node);                         /* runs that waited for the disk */
bool bulk_is_waiting(const struct node *node);

#endif
