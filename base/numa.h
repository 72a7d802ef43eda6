/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numa.h - memory policy and page migration by system calls alone: libnuma's headers are for one library too many where
 * a program is preloaded. Any thread; errno is kept. Sources: mbind(2), move_pages(2).
 */
#ifndef TIERMESH_BASE_NUMA_H
#define TIERMESH_BASE_NUMA_H

#include "base/types.h"

/* New pages of the range come from that node while it has room. 0 or -errno (-EINVAL: no such node). */
int numa_prefer(void *memory, size_t size_bytes, unsigned number) MUST_USE;

/* On which node each page lies; negative errno of a page: -ENOENT, nothing is there. 0, or -errno of the call. */
int numa_where(void *const *pages, unsigned count, int *nodes_out) MUST_USE;

/*
 * Moves pages of this process to nodes_in[i]. results_out[i]: where the page is now, or a negative errno: -EBUSY
 * (pinned, or in use by the kernel), -ENOENT, -EACCES (other processes map it too), -ENOMEM (no room there).
 * 0 when each page has its result; -ENODEV: a node is not there any more, and nothing is known of the pages.
 */
int numa_move(void *const *pages, const int *nodes_in, unsigned count, int *results_out) MUST_USE;

/* The last two, for who wants to be tested where there is one node. */
struct numa_ops {
    int (*where)(void *const *pages, unsigned count, int *nodes_out);
    int (*move)(void *const *pages, const int *nodes_in, unsigned count, int *results_out);
};
extern const struct numa_ops numa_kernel;

#endif
