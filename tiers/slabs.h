/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slabs.h - memory for objects of many sizes below a page: slabs of 32 KiB, each cut into objects of one size class.
 * Private to tiers/. Used by the shard's thread only.
 *
 * The budget bounds slabs, so it is in physical bytes, slack included. An object can move: whoever took it is told
 * (slabs_moved) and keeps the only reference. So gaps never cost more than a quarter for long, and never room: a take
 * fails only when the objects would not fit even if they lay close together.
 */
#ifndef TIERMESH_TIERS_SLABS_H
#define TIERMESH_TIERS_SLABS_H

#include "base/types.h"

#define SLAB_BYTES          32768u
#define SLAB_CLASSES_MAX    64u
#define SLAB_GROUPS         4u
#define SLABS_OBJECT_MAX    2972u /* eleven fit a slab, with their headers */
#define SLABS_FULL          UINT64_MAX
#define SLABS_COUNT_MAX     ((uint32_t)1 << 31)
#define SLABS_CLASS_LOOK_UP (SLABS_OBJECT_MAX / 16 + 2)

struct slab; /* what is kept of each: 16 bytes */

struct slab_class {
    uint32_t object_bytes, objects_count; /* of one, of a slab */
    uint32_t slabs_count, live_count;     /* slabs of this class, objects in them */
    uint32_t partial[SLAB_GROUPS];        /* lists of slabs with free objects, by how full they are */
};

/*
 * The object of this owner that lay at `from` has been copied to `to`: remember that. false: nothing of this owner lies
 * at `from` (a header was overwritten): the object stays where it is.
 */
typedef bool slabs_moved(void *context, uint32_t owner, uint64_t from, uint64_t to);

struct slabs {
    char *memory;
    struct slab *table;
    uint32_t reserved_count;   /* slabs of address space */
    uint32_t accessible_count; /* of these may be touched */
    uint32_t touched_count;    /* of these were ever used */
    uint32_t budget_count;
    uint32_t used_count;
    uint32_t needed_count;     /* what the objects would take without gaps */
    uint32_t kept, kept_count; /* free slabs that still have their memory */
    uint32_t given;            /* free slabs whose memory was given back */
    unsigned classes_count;
    struct slab_class classes[SLAB_CLASSES_MAX];
    uint8_t class_of[SLABS_CLASS_LOOK_UP]; /* by size in steps of 16 bytes */
    slabs_moved *moved;
    void *context;
};

/* budget_count <= reserved_count <= SLABS_COUNT_MAX. 0 or -ENOMEM. */
int slabs_init(struct slabs *slabs, uint32_t budget_count, uint32_t reserved_count, slabs_moved *moved,
               void *context) MUST_USE;
void slabs_fini(struct slabs *slabs);

/* A place for size_bytes (1 .. SLABS_OBJECT_MAX). SLABS_FULL: the budget is used up. Others may be moved. */
uint64_t slabs_take(struct slabs *slabs, uint32_t owner, size_t size_bytes);
void slabs_put(struct slabs *slabs, uint64_t place);       /* others may be moved */
void *slabs_at(const struct slabs *slabs, uint64_t place); /* valid until the next take or put */

/*
 * Another budget; at once when it is larger. When it is smaller, objects stay: nothing is taken until enough was put.
 * 0, -ENOMEM (beyond what was reserved, or the kernel refuses).
 */
int slabs_resize(struct slabs *slabs, uint32_t budget_count) MUST_USE;

uint64_t slabs_physical_bytes(const struct slabs *slabs); /* charged to this process now */
uint64_t slabs_needed_bytes(const struct slabs *slabs);   /* without gaps; may be above a budget that was lowered */
uint64_t slabs_metadata_bytes(const struct slabs *slabs);

/* For tests: ends the process when something does not fit together. */
void slabs_check(const struct slabs *slabs);

#endif
