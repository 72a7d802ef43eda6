/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - one fixed-size entry a page, allocated by extent at first touch; nothing for untouched extents.
 *
 * Entries start as zeroes and keep their address until the extent is forgotten. table_touch and table_forget are the
 * shard's; table_find may be called by any thread (an extent's pointer is published with release, read with acquire).
 */
#ifndef TIERMESH_MMU_TABLE_H
#define TIERMESH_MMU_TABLE_H

#include "base/types.h"

struct table;

int table_create(uint64_t pages_count, size_t entry_bytes, struct table **ret_table) MUST_USE;
void table_destroy(struct table *table);

void *table_find(const struct table *table, struct page_id page); /* NULL: extent untouched or page outside */
void *table_touch(struct table *table, struct page_id page);      /* NULL: page outside, or no memory */
void table_forget(struct table *table, struct page_id any_page_of_extent);

/* Fewer pages from now on, whole extents; those cut off are forgotten. The shard's thread. */
void table_limit(struct table *table, uint64_t pages_count);

uint64_t table_bytes(const struct table *table); /* memory in use */
uint64_t table_extents(const struct table *table);

/* Calls visit for each touched extent's entries in order; the shard's thread. */
void table_visit(const struct table *table, void (*visit)(void *context, struct page_id first, void *entries),
                 void *context);

#endif
