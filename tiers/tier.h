/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.h - where the bytes of pages lie on this node: one ops table for every tier.
 *
 * A tier below DDR is a store of slots, one a page. A page that leaves memory gets a slot; its checksum (XXH3, 64 bits)
 * is kept beside the slot and verified when the bytes come back: wrong bytes are -EIO, never handed on. Slots are 4 KiB
 * of a device, or, in the compressed tier, as much as the page needs. Used by the shard's thread only.
 */
#ifndef TIERMESH_TIERS_TIER_H
#define TIERMESH_TIERS_TIER_H

#include "base/loop.h"
#include "base/types.h"

enum tier_kind {
    TIER_DDR = 0,
    TIER_CXL = 1,
    TIER_ZMEM = 2,
    TIER_NVME = 3,
    TIERS = 4,
};

/* What a tier can do. */
#define TIER_CAP_IN_PLACE 1u    /* pages are mapped where they lie: slots only count (ddr) */
#define TIER_CAP_ADDRESSABLE 2u /* slots can be loaded from: tier_address() works, transfers complete at once (cxl) */
#define TIER_CAP_PERSISTENT 4u
#define TIER_CAP_BY_PAGE 8u     /* tier_store() is the only way in and tier_view() the only one out, at once (zmem) */

struct tier;
struct tier_counters;

struct tier_slot {
    uint32_t index;
};
#define TIER_SLOT_NONE ((struct tier_slot){UINT32_MAX})
#define TIER_RUN_MAX 256 /* pages of one transfer at most */

/*
 * One transfer of a run of consecutive slots. The caller keeps it until `done`, which runs on the loop's thread and
 * never inside the start call, except for addressable tiers, where it runs inside.
 * memory: pages_count * PAGE_BYTES; for NVMe inside tier_buffers() memory it needs no pinning; page-aligned always.
 * Write: checksums are computed by the tier before it returns. Read: they are verified before done.
 * result: 0, -EIO (device error, or a checksum is wrong: failed_page says which page of the run, log line written).
 * The pages of a run before failed_page are good; those after it are unknown: start them again to get them.
 * A run that the device refuses is repeated page by page, so failed_page is the very page.
 */
struct tier_transfer {
    struct tier_slot first;
    unsigned pages_count;
    void *memory;
    bool is_write;
    void (*done)(struct tier_transfer *transfer, int result);
    void *context;
    unsigned failed_page;
    struct loop_io io; /* the tier's, like all below */
    struct tier *tier;
    unsigned pages_moved;
    unsigned retries;
    bool is_single;
    bool is_doomed;
};

struct tier_ops {
    const char *name; /* as printed; an emulated device says so: "cxl (emulated)" */
    unsigned capabilities;
    void (*transfer)(struct tier *tier, struct tier_transfer *transfer);
    void *(*address)(struct tier *tier, struct tier_slot slot); /* NULL when not addressable */
    /* By-page tiers: a page into a slot just taken, 0 or the errors of tier_store(); and out of it, false: damaged. */
    int (*store)(struct tier *tier, struct tier_slot slot, const void *page);
    bool (*load)(struct tier *tier, struct tier_slot slot, void *page);
    void (*usage)(const struct tier *tier, struct tier_counters *counters); /* where a page is not a slot; or NULL */
    /* Blocking, for measuring before the loop runs; 0 or -errno. NULL for in-place and by-page tiers. */
    int (*move_now)(struct tier *tier, struct tier_slot first, unsigned pages_count, void *memory, bool is_write);
    void (*freed)(struct tier *tier, struct tier_slot slot); /* the slot was put; NULL: nothing to do */
    int (*resize)(struct tier *tier, uint64_t slots_count);  /* backing store only */
    void (*close)(struct tier *tier);
};

/* In a compressed tier slots_max is the budget in pages, and slots_used what the stored pages need of it. */
struct tier_counters {
    uint64_t slots_used, slots_max; /* used may be more than max for a while after tier_limit() */
    uint64_t pages_read, pages_written, errors;
    uint64_t metadata_bytes;
    uint64_t pages_stored, pages_filled, pages_refused; /* compressed: filled pages are one word over and over */
    uint64_t physical_bytes;                            /* compressed: memory in use for what is stored */
};

/* DDR: in place; slots are the budget only (tier_take/tier_put count). */
int tier_ddr_open(uint64_t budget_bytes, struct tier **ret_tier) MUST_USE;

/*
 * CXL, emulated by anonymous DDR memory on machines without a device: a slot store that loads can reach. Consecutive
 * slots are consecutive in memory. Can grow to four times size_bytes. 0, -EINVAL (size), -ENOMEM.
 */
int tier_cxl_emulated_open(uint64_t size_bytes, struct tier **ret_tier) MUST_USE;

/*
 * CXL or persistent memory as a device ("/dev/dax0.0"), or a file on a DAX file system: the same over its memory. This
 * process's alone while it is open; its contents are lost. Cannot grow; children of a fork do not have it. Files and
 * persistent memory take libpmem2.
 * 0 or a negative errno with a sentence: -ENOENT, -EACCES, -EBUSY (another process uses it), -ENOSPC (it is smaller),
 * -EINVAL (size is no multiple of its step, or its own is not; no such kind of file), -ENOMEM, -EOPNOTSUPP (a file
 * without DAX; a build without libpmem2).
 */
int tier_dax_open(const char *path, uint64_t size_bytes, struct tier **ret_tier) MUST_USE;

/*
 * Compressed memory ("lz4" or "zstd"): slots are as large as their pages compress to. size_bytes bounds the memory for
 * them, slack included; tables are extra. Can grow to four times that, and shrink at any time: it is then over its
 * budget until enough was put. 0, -EINVAL (size, codec), -ENOMEM.
 */
int tier_zmem_open(uint64_t size_bytes, const char *codec, struct tier **ret_tier) MUST_USE;

/*
 * NVMe: an unlinked file in `directory` (or a block device, whose contents are lost), O_DIRECT through the loop.
 * All room is reserved here, so that the disk cannot be full later. Blocks: call before the loop runs.
 * 0 or a negative errno with a sentence: -ENOSPC (less room than size_bytes, quota and ulimit -f included), -EROFS,
 * -ENOENT, -ENOTDIR, -EACCES, -EBUSY (the device is mounted), -EINVAL (size), -EIO, -ENOMEM,
 * -EOPNOTSUPP (the file system refuses O_DIRECT or reservations; or it is tmpfs, which would be DDR in disguise).
 */
int tier_nvme_open(struct loop *loop, const char *directory, uint64_t size_bytes, struct tier **ret_tier) MUST_USE;

/*
 * The same over a store that several processes share, opened by somebody else. `store` and what it points to stay as
 * long as the tier; its descriptor is not closed. tier_take() takes slots for the account, and other processes take
 * others; all must write to slots that they have just taken only. tier_resize() is -EOPNOTSUPP.
 * 0, -ENOMEM, -EFBIG (the process may not write so far into a file), with a sentence.
 */
struct slot_table;
struct slot_account;
struct nvme_store {
    int fd;
    bool is_device;
    struct slot_table *table;
    struct slot_account *account;
    char where[128]; /* for log lines */
};
int tier_nvme_attach(struct loop *loop, const struct nvme_store *store, struct tier **ret_tier) MUST_USE;
/* In the child of a fork, whose copy of the tier had nothing in flight: slots are now those of its own account. */
void tier_nvme_account(struct tier *tier, struct slot_account *account);
/* Before the first transfer after that. */
void tier_nvme_loop(struct tier *tier, struct loop *loop);

/* The dispatcher (tier.c): slots, checksums and contract checks for all tiers. */
const char *tier_name(const struct tier *tier);
unsigned tier_capabilities(const struct tier *tier);

/*
 * Take up to `wanted` consecutive slots (at most TIER_RUN_MAX come); returns how many (0: full). Runs are preferred so
 * that one transfer moves many. In-place tiers only count: ret_first is then meaningless, as is the slot of tier_put().
 * Not for by-page tiers.
 */
unsigned tier_take(struct tier *tier, unsigned wanted, struct tier_slot *ret_first);
void tier_put(struct tier *tier, struct tier_slot slot); /* no transfer may be using it */
uint64_t tier_slots_free(const struct tier *tier); /* by-page tiers: pages that fit even if none of them compresses */

/*
 * No more than that is handed out; what is in use stays until it is put. So a store can be made smaller at any time,
 * and its memory follows. It is resized only to grow. 0, or as tier_resize(). Not for a store that processes share.
 */
int tier_limit(struct tier *tier, uint64_t size_bytes) MUST_USE;

/*
 * By-page tiers: a copy of the page, whose owner is remembered. 0; -E2BIG: it does not compress to three quarters;
 * -ENOSPC: the tier is full.
 */
int tier_store(struct tier *tier, struct page_id owner, const void *page, struct tier_slot *ret_slot) MUST_USE;

/*
 * Addressable and by-page tiers remember whose page lies in a slot, so that the pager can push the oldest pages down
 * when the tier fills. Slots are filled in the order of a hand that goes round, so the used slots ahead of it are the
 * oldest.
 * tier_oldest: up to `wanted` consecutive used slots, owners in pages_out (PAGE_NONE: not set since the take). Each
 * call goes on where the last one stopped; slots that the pager leaves alone come again in the next round. 0: none is
 * used.
 */
void tier_owner_set(struct tier *tier, struct tier_slot slot, struct page_id page);
unsigned tier_oldest(struct tier *tier, unsigned wanted, struct tier_slot *ret_first, struct page_id *pages_out);

void tier_transfer_start(struct tier *tier, struct tier_transfer *transfer);

/*
 * The slot's bytes, verified against the checksum; NULL when wrong (log line written). Addressable tiers: where they
 * lie, valid until tier_put(). By-page tiers: in `bounce`, a page of the caller's, which is not used otherwise.
 */
const void *tier_view(struct tier *tier, struct tier_slot slot, void *bounce);

/*
 * Addressable tiers, a write without a copy between: put the bytes where tier_address() says, then tier_seal() them.
 * Until then the slots' bytes are unknown and reading them is a bug.
 */
void *tier_address(struct tier *tier, struct tier_slot slot);
void tier_seal(struct tier *tier, struct tier_slot first, unsigned pages_count);

/*
 * 0, -EBUSY (slots above it are in use; never in a by-page tier), -ENOSPC, -ENOMEM, -EINVAL. Blocks: for NVMe not on a
 * busy shard.
 */
int tier_resize(struct tier *tier, uint64_t size_bytes) MUST_USE;
void tier_counters_get(const struct tier *tier, struct tier_counters *ret_counters);
void tier_close(struct tier *tier); /* no transfer may be in flight; NULL is allowed */

/*
 * Test hook: the next `count` transfers of an NVMe tier fail with -EIO, or views of a by-page tier find wrong bytes
 * (config options "test.disk_errors", "test.zmem_errors").
 */
void tier_inject_errors(struct tier *tier, unsigned count);

/* Test hook: the stored bytes of a compressed page, after all tables have been checked. */
void *tier_zmem_object(struct tier *tier, struct tier_slot slot, size_t *ret_bytes);

/* ---- measure.c: what one page costs, to order the tiers by --------------------------------------------------- */

struct tier_cost {
    uint64_t read_ns;  /* one page alone, latency included */
    uint64_t write_ns; /* one page inside a batch */
};
/*
 * Blocks for about 20 ms (on a slower disk: a few transfers), so before the loop runs; uses free slots and gives them
 * back. 0, -EIO (log line written), -ENOSPC (no free slot), -ENOMEM.
 */
int tier_measure(struct tier *tier, struct tier_cost *ret_cost) MUST_USE;

/* ---- buffers.c: a pool of page-aligned bounce buffers, registered with the loop ---------------------------------- */

struct tier_buffers;
int tier_buffers_create(struct loop *loop, unsigned pages_count, struct tier_buffers **ret_buffers) MUST_USE;
/* In a forked child: the buffers, whole with what is in them, are known to another loop. */
void tier_buffers_loop(struct tier_buffers *buffers, struct loop *loop);
void tier_buffers_destroy(struct tier_buffers *buffers); /* after all are put; NULL is allowed */
/* A run of consecutive buffer pages, NULL when there is none so long now. */
void *tier_buffers_take(struct tier_buffers *buffers, unsigned pages_count);
void tier_buffers_put(struct tier_buffers *buffers, void *memory, unsigned pages_count);

#endif
