/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk_stream.h - bulk reads between hosts: connections of their own, threads at both ends, no copy in between.
 *
 * The reading thread sends one request and receives into its buffer; at the home a thread for each connection asks the
 * shard to keep the run, and gives it to the socket straight from the file of shared pages (sendfile). So a megabyte
 * neither passes a shard nor stands in the way of a page or a lock message.
 */
#ifndef TIERMESH_RUNTIME_BULK_STREAM_H
#define TIERMESH_RUNTIME_BULK_STREAM_H

#include "runtime/request.h"

struct bulk_stream;

/* Listens on the node's bind address. 0 or -errno with a sentence. */
int bulk_stream_open(struct node *node, struct bulk_stream **ret_stream) MUST_USE;

/* The address for peers ("HOST PORT"); returns its size. */
size_t bulk_stream_address(const struct bulk_stream *stream, char *text, size_t size);

/* How to reach a peer. -EINVAL: not an address. */
int bulk_stream_peer(struct bulk_stream *stream, struct node_id peer, const char *text, size_t size) MUST_USE;

/* An application thread; as bulk_read(). */
int bulk_stream_read(struct bulk_stream *stream, struct node_id home, struct page_id first, size_t offset_bytes,
                     size_t size_bytes, void *buffer) MUST_USE;

/* Ends all connections and threads; the shard must still run. */
void bulk_stream_close(struct bulk_stream *stream);

#endif
