/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space.h - carves extents of 2 MiB into allocations: the bookkeeping behind dsm_malloc(), outside the memory itself.
 *
 * One space a kind and placement. Small sizes come in classes, each extent cut into blocks of one class; larger ones
 * are runs of whole extents or of pages inside an extent. Never touches the memory it hands out. Thread-safe.
 */
#ifndef TIERMESH_RUNTIME_SPACE_H
#define TIERMESH_RUNTIME_SPACE_H

#include "base/types.h"

struct space;

struct space_config {
    uint64_t base;          /* address of extent 0 */
    uint64_t extents_count; /* of the whole window */
    void *context;
    /* May block; called by the allocating thread with the space locked. 0 and a consecutive run, or -errno. */
    int (*extents_take)(void *context, uint64_t extents_count, uint64_t *ret_first);
    /* Gives a run back that extents_take returned. */
    void (*extents_give)(void *context, uint64_t first_extent, uint64_t extents_count);
};

int space_create(const struct space_config *config, struct space **ret_space) MUST_USE;
void space_destroy(struct space *space);

/*
 * space_take - a block of at least size_bytes, aligned to alignment_bytes (a power of two up to 2 MiB) and to 16 bytes,
 * or to 4 KiB when that large. ret_was_used: it was handed out before, so it may not read as zeroes.
 * 0 or the error of extents_take.
 */
int space_take(struct space *space, size_t size_bytes, size_t alignment_bytes, uint64_t *ret_address,
               bool *ret_was_used) MUST_USE;

/* 0, -EFAULT (not in an extent of this space), -EINVAL (not the start of a block, or free already). */
int space_put(struct space *space, uint64_t address) MUST_USE;
int space_usable_size(struct space *space, uint64_t address, size_t *ret_size_bytes) MUST_USE;
bool space_owns(struct space *space, uint64_t address);

uint64_t space_metadata_bytes(struct space *space);

#endif
