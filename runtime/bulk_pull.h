/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk_pull.h - bulk reads by RDMA: the home copies a run into slices of the memory that it lends and says where each
 * lies; the reader takes them one-sidedly into its landing memory, two at a time, and copies them out.
 *
 * Both memories are registered once, when the fabric is opened. docs/VERBS.md says why what is read is whole.
 */
#ifndef TIERMESH_RUNTIME_BULK_PULL_H
#define TIERMESH_RUNTIME_BULK_PULL_H

#include "runtime/node.h"
#include "runtime/wire.h"

#define LEND_SLICE_PAGES 64U
#define LEND_SLICE_BYTES (LEND_SLICE_PAGES * PAGE_BYTES)
#define LEND_SLICES_MAX  4U /* of a run */
#define LEND_PAGES_MAX   (LEND_SLICES_MAX * LEND_SLICE_PAGES)
#define LEND_SLICES      16U
#define LEND_BYTES       ((size_t)LEND_SLICES * LEND_SLICE_BYTES)

#define PULLS_MAX        8U /* of this node at a time */
#define PULL_SLOTS       2U /* slices of a pull that land or are copied out */
#define PULL_BYTES       ((size_t)PULLS_MAX * PULL_SLOTS * LEND_SLICE_BYTES)

struct pulls;

/* The network is open. node->pulls stays NULL where nothing can be read one-sidedly. */
int bulk_pull_create(struct node *node) MUST_USE;
void bulk_pull_destroy(struct pulls *pulls);

/* The memory that this node lends for reads; NULL: it lends none. The shard. */
char *bulk_pull_lent(const struct node *node);

/*
 * An application thread, as bulk_read(). -EAGAIN: it is not the way, or broke on the way; the first *ret_done_bytes of
 * the buffer are read.
 */
int bulk_pull_read(struct node *node, struct node_id home, struct page_id first, size_t offset_bytes, size_t size_bytes,
                   void *buffer, size_t *ret_done_bytes) MUST_USE;

/* The shard. */
void bulk_pull_part(struct node *node, struct node_id from, const struct wire *wire);
void bulk_pull_view(struct node *node, const struct view *view);

/* Bytes that came so far. Any thread. */
uint64_t bulk_pull_bytes(const struct node *node);

#endif
