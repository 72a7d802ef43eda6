/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types.h - the words that every folder shares.
 *
 * Identifiers are one-member structs, so that passing one for another does not compile.
 */
#ifndef TIERMESH_BASE_TYPES_H
#define TIERMESH_BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE_SHIFT 12
#define PAGE_BYTES ((size_t)1 << PAGE_SHIFT)
#define EXTENT_SHIFT 21
#define EXTENT_BYTES ((size_t)1 << EXTENT_SHIFT)
#define EXTENT_PAGES (EXTENT_BYTES / PAGE_BYTES)

/* For thread storage in the preload library: reached without a call of the dynamic linker, which may take locks. */
#define TLS_STATIC __attribute__((tls_model("initial-exec")))

/* Members of a job. Sharers of a page are kept as one bit a node, exact up to this many. */
#define NODES_MAX 64

/* A page of the global address space: (address - window base) >> 12, the same on every node. */
struct page_id {
    uint64_t index;
};

/* A member of the job, 0 .. NODES_MAX-1; NODE_NONE is nobody. */
struct node_id {
    uint16_t index;
};

/* The number of a view (an agreed set of members). Grows by one with each change; 0 is "no view yet". */
struct epoch {
    uint32_t number;
};

#define NODE_NONE ((struct node_id){UINT16_MAX})
#define PAGE_NONE ((struct page_id){UINT64_MAX})

static inline struct node_id node_of(unsigned index)
{
    return (struct node_id){(uint16_t)index};
}

static inline bool node_is(struct node_id a, struct node_id b)
{
    return a.index == b.index;
}

static inline bool node_is_none(struct node_id a)
{
    return a.index == UINT16_MAX;
}

static inline struct page_id page_of(uint64_t index)
{
    return (struct page_id){index};
}

static inline bool page_is(struct page_id a, struct page_id b)
{
    return a.index == b.index;
}

/* What an application thread of a node may do with a page. Ordered: each includes the one before. */
enum access {
    ACCESS_NONE = 0,
    ACCESS_READ = 1,
    ACCESS_WRITE = 2,
};

/* A view: who is in. Plain data, copied freely. */
struct view {
    struct epoch epoch;
    uint64_t members; /* bit i: node i is in */
};

static inline bool view_has(const struct view *view, struct node_id node)
{
    return node.index < NODES_MAX && (view->members >> node.index & 1) != 0;
}

static inline unsigned view_count(const struct view *view)
{
    return (unsigned)__builtin_popcountll(view->members);
}

/* The lowest member: it keeps the tables that one node must keep (extents, barriers, names). */
static inline struct node_id view_lowest(const struct view *view)
{
    return view->members == 0 ? NODE_NONE : node_of((unsigned)__builtin_ctzll(view->members));
}

#define ARRAY_COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))
#define MUST_USE __attribute__((warn_unused_result))

#endif
