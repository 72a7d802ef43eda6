/* SPDX-License-Identifier: Apache-2.0 */
/*
 * advise.h - what the application says of its memory (dsm_advise), on its way to the shard.
 */
#ifndef TIERMESH_RUNTIME_ADVISE_H
#define TIERMESH_RUNTIME_ADVISE_H

#include "runtime/request.h"

/* Application threads. The range is memory of the job. 0, -ENOSPC. */
int advise_range(struct node *node, const void *address, size_t size_bytes, enum dsm_advice advice);

/* The block is about to be freed: what was said of it is forgotten. Whatever `memory` is. */
void advise_freed(struct node *node, const void *memory);

#endif
