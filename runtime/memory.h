/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - the dsm_malloc() family: allocators over extents, and frees that belong to another node.
 */
#ifndef TIERMESH_RUNTIME_MEMORY_H
#define TIERMESH_RUNTIME_MEMORY_H

#include "runtime/request.h"
#include "runtime/wire.h"
#include "tiermesh/dsm.h"

int memory_create(struct node *node, struct memory **ret_memory) MUST_USE;
void memory_stop(struct memory *memory); /* before the shard stops */
void memory_destroy(struct memory *memory);

/* Application threads. Errors as dsm.h says. */
int memory_allocate(struct node *node, size_t size_bytes, const struct dsm_attributes *attributes,
                    void **ret_memory) MUST_USE;
int memory_free(struct node *node, void *memory) MUST_USE;
int memory_usable_size(struct node *node, const void *memory, size_t *ret_size_bytes) MUST_USE;

/* Any thread: the home of a shared page; NODE_NONE outside every allocation. */
struct node_id memory_home_of(const struct node *node, struct page_id page);

/* Any thread: every page of the range belongs to an allocated extent of the kinds allowed. */
bool memory_is_ours(const struct node *node, const void *address, size_t size_bytes, bool shared_only);

uint64_t memory_metadata_bytes(const struct memory *memory);

/* The shard. */
void memory_receive(struct node *node, struct node_id from, const struct wire *wire);
void memory_view(struct node *node, const struct view *view);
void memory_extents_freed(struct node *node, uint64_t first_extent, uint64_t extents_count);

#endif
