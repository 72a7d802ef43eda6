/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.h - where the bytes of pages lie on this node: one ops table for every tier.
 *
 * A tier below DDR is a store of 4 KiB slots. A page that leaves memory gets a slot; its checksum (XXH3, 64 bits) is
 * kept beside the slot and verified when the bytes come back: wrong bytes are -EIO, never handed on. Used by the
 * shard's thread only.
 */
#ifndef TIERMESH_TIERS_TIER_H
#define TIERMESH_TIERS_TIER_H

#include "base/loop.h"
#include "base/types.h"

enum tier_kind {
    TIER_DDR = 0,
    TIER_CXL = 1,
    TIER_NVME = 2,
    TIERS = 3,
};

/* What a tier can do. */
#define TIER_CAP_IN_PLACE 1u    /* pages are mapped where they lie: slots only count (ddr) */
#define TIER_CAP_ADDRESSABLE 2u /* slots can be loaded from: tier_address() works, transfers complete at once (cxl) */
#define TIER_CAP_PERSISTENT 4u

struct tier;

struct tier_slot {
    uint32_t index;
};
#define TIER_SLOT_NONE ((struct tier_slot){UINT32_MAX})
#define TIER_RUN_MAX 256 /* pages of one transfer at most */

/*
 * One transfer of a run of consecutive slots. The caller keeps it until `done`, which runs on the loop's thread and never
 * inside the start call, except for addressable tiers, where it runs inside.
 * memory: pages_count * PAGE_BYTES; for NVMe inside tier_buffers() memory it needs no pinning; page-aligned always.
 * Write: checksums are computed by the tier before it returns. Read: they are verified before done.
 * result: 0, -EIO (device error, or a checksum is wrong: failed_page says which page of the run, log line written).
 */
struct tier_transfer {
    struct tier_slot first;
    unsigned pages_count;
    void *memory;
    bool is_write;
    void (*done)(struct tier_transfer *transfer, int result);
    void *context;
    unsigned failed_page;
    struct loop_io io; /* the tier's */
    struct tier *tier; /* the tier's */
};

struct tier_ops {
    const char *name; /* as printed; an emulated device says so: "cxl (emulated)" */
    unsigned capabilities;
    void (*transfer)(struct tier *tier, struct tier_transfer *transfer);
    void *(*address)(struct tier *tier, struct tier_slot slot);
    int (*resize)(struct tier *tier, uint64_t slots_count);
    void (*close)(struct tier *tier);
};

struct tier_counters {
    uint64_t slots_used, slots_max;
    uint64_t pages_read, pages_written, errors;
    uint64_t metadata_bytes;
};

/* DDR: in place; slots are the budget only (tier_take/tier_put count). */
int tier_ddr_open(uint64_t budget_bytes, struct tier **ret_tier) MUST_USE;

/* CXL, emulated by anonymous DDR memory on machines without a device: a slot store that loads can reach. */
int tier_cxl_emulated_open(uint64_t size_bytes, struct tier **ret_tier) MUST_USE;

/*
 * NVMe: an unlinked file in `directory` (or a block device), O_DIRECT through the loop.
 * 0 or a negative errno with a sentence: -ENOSPC (less room than size_bytes), -EROFS, -ENOENT, -EACCES,
 * -EOPNOTSUPP (the file system refuses O_DIRECT, e.g. tmpfs before 6.6; or it is tmpfs, which would be DDR in disguise).
 */
int tier_nvme_open(struct loop *loop, const char *directory, uint64_t size_bytes, struct tier **ret_tier) MUST_USE;

/* The dispatcher (tier.c): slots, checksums and contract checks for all tiers. */
const char *tier_name(const struct tier *tier);
unsigned tier_capabilities(const struct tier *tier);

/* Take up to `wanted` consecutive slots; returns how many (0: full). Runs are preferred so that one transfer moves many. */
unsigned tier_take(struct tier *tier, unsigned wanted, struct tier_slot *ret_first);
void tier_put(struct tier *tier, struct tier_slot slot);
uint64_t tier_slots_free(const struct tier *tier);

void tier_transfer_start(struct tier *tier, struct tier_transfer *transfer);

/*
 * Addressable tiers: the slot's bytes, verified against the checksum; NULL when wrong (log line written).
 * Valid until tier_put().
 */
const void *tier_view(struct tier *tier, struct tier_slot slot);

int tier_resize(struct tier *tier, uint64_t size_bytes) MUST_USE; /* -EBUSY: slots above it are in use */
void tier_counters_get(const struct tier *tier, struct tier_counters *ret_counters);
void tier_close(struct tier *tier);

/* Test hook: the next `count` transfers of an NVMe tier fail with -EIO (config option "test.disk_errors"). */
void tier_inject_errors(struct tier *tier, unsigned count);

/* ---- buffers.c: a pool of page-aligned bounce buffers, registered with the loop -------------------------------------- */

struct tier_buffers;
int tier_buffers_create(struct loop *loop, unsigned pages_count, struct tier_buffers **ret_buffers) MUST_USE;
void tier_buffers_destroy(struct tier_buffers *buffers);
/* A run of consecutive buffer pages, NULL when there is none so long now. */
void *tier_buffers_take(struct tier_buffers *buffers, unsigned pages_count);
void tier_buffers_put(struct tier_buffers *buffers, void *memory, unsigned pages_count);

#endif
