/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk.h - copying runs of pages from their home without taking rights: what dsm_read() uses for remote runs.
 *
 * The home makes the run current and keeps it in memory (coherence_read, pins) while the bytes are copied: on one host
 * by the reading thread from the home's file, else by the home into memory that it lends, from where the reader takes
 * them by RDMA (bulk_pull.h), or where that is not the way over a connection of its own (bulk_stream.h).
 */
#ifndef TIERMESH_RUNTIME_BULK_H
#define TIERMESH_RUNTIME_BULK_H

#include "runtime/request.h"
#include "runtime/wire.h"

#define BULK_SERVED_MAX 64 /* runs kept in memory for readers at a time; further ones wait */

struct bulk;

/* Who is not a member is answered by nobody, and no member waits for who is none. */
static inline bool bulk_home_answers(const struct view *view, struct node_id self, struct node_id home)
{
    return view_has(view, self) && view_has(view, home);
}

int bulk_create(struct node *node, struct bulk **ret_bulk) MUST_USE;
void bulk_destroy(struct bulk *bulk);

/*
 * An application thread: copy `size_bytes` at `offset_bytes` of the run's first page into `buffer`. The run lies in one
 * extent whose home is `home`, not this node. 0, -EIO, -EHOSTDOWN, -EFAULT (buffer).
 */
int bulk_read(struct node *node, struct node_id home, struct page_id first, size_t offset_bytes, size_t size_bytes,
              void *buffer) MUST_USE;

/*
 * The shard, for a thread of this node that will send a run to `reader`: `opener` is finished with the run's number
 * when the run is current, pinned and may be read from this node's file, until bulk_serve_close().
 */
void bulk_serve_open(struct node *node, struct node_id reader, struct page_id first, unsigned pages_count,
                     struct request *opener);
void bulk_serve_close(struct node *node, struct node_id reader, uint64_t id);

/* The shard. */
void bulk_current(struct node *node, struct request *request, int result);
void bulk_receive(struct node *node, struct node_id from, const struct wire *wire);
void bulk_view(struct node *node, const struct view *view); /* the dead read no more, and send no more */
void bulk_retry(struct node *node);                         /* runs that waited for the disk, or are being copied */
bool bulk_is_waiting(const struct node *node);
bool bulk_is_copying(const struct node *node); /* the loop must not block */

#endif
