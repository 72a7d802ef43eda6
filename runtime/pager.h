/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager.h - where the bytes of each page lie on this node, and how they get into memory and out of it.
 *
 * Joins mmu (mappings) and tiers (frames, slots) for one shard. Knows rights only as the coherence protocol granted
 * them (page_entry.word); decides alone which tier a page is in. Runs on the shard's thread; docs/ARCHITECTURE.md
 * follows one fault through it.
 *
 *   NOWHERE --first touch--> MAPPED --unmap--> LIMBO --evict--> CXL, or LEAVING --written--> NVME
 *                              ^                 |                |                            |
 *                              +-----------------+----------------+----- FILLING <-------------+
 */
#ifndef TIERMESH_RUNTIME_PAGER_H
#define TIERMESH_RUNTIME_PAGER_H

#include "coherence/message.h"
#include "base/numa.h"
#include "mmu/mmu.h"
#include "mmu/table.h"
#include "prefetch/prefetch.h"
#include "runtime/page.h"
#include "runtime/stats.h"
#include "tiers/frames.h"
#include "tiers/placement.h"
#include "tiers/tier.h"

#define PAGER_RUN_MAX 128       /* pages of one read or write of NVMe */
#define PAGER_FILLS_MAX 64
#define PAGER_EVICTIONS_MAX 8
#define PAGER_BATCH 64          /* pages unmapped or evicted at a time */
#define PAGER_SENDS_MAX 1024
#define PAGER_STALLS_MAX 1024
#define PAGER_REVOKES_MAX 1024
#define PAGER_OVERFLOW_FRAMES 4096 /* room for replies and write-backs beyond the budget */

#define PAGER_EXTENT_RUNS_MAX (EXTENT_PAGES / 2) /* parts of an extent that are managed, with others between */

struct page_run {
    struct page_id first;
    unsigned pages_count;
};

/* What the pager needs from the rest of the runtime. */
struct pager_user {
    void *context;
    /* Send the message with these bytes; NULL: the flags say why there are none. */
    void (*send_bytes)(void *context, struct node_id to, const struct message *message, const void *bytes);
    /* A shared page that another node has too left memory: the protocol forgets this copy. false: keep it. */
    bool (*forget_copy)(void *context, struct page_id page);
    /* A shared page whose home is elsewhere finds no room in any tier here: give it back to its home. */
    bool (*give_back)(void *context, struct page_id page);
    bool (*has_other_copy)(void *context, struct page_id page); /* this node holds a shared copy, home elsewhere */
    void (*protected)(void *context, struct page_id page);   /* pager_protect() that was in progress is done */
    void (*atomic_ready)(void *context, struct page_id page); /* pager_atomic() can be asked again */
    void (*lost)(void *context, struct page_id page, const char *why);
    /*
     * A private extent comes under management: which parts. Returns how many, or -EAGAIN: not at this moment.
     * NULL: always the whole extent.
     */
    int (*managed_runs)(void *context, struct page_id first, struct page_run runs[PAGER_EXTENT_RUNS_MAX]);
};

/*
 * Memory that is mapped and used in place as DDR is, but slower: CXL memory as NUMA nodes (docs/CXL.md). What it has
 * comes in addition to ddr_bytes; pager_spread.c decides which pages lie there.
 */
#define PAGER_FAR_NODES_MAX 8
struct pager_far {
    uint64_t bytes; /* 0: there is none */
    struct {
        unsigned number, near; /* the kernel's number, and that of the DDR next to it */
    } nodes[PAGER_FAR_NODES_MAX];
    unsigned nodes_count;
    const struct numa_ops *numa; /* NULL: the kernel's */
};

struct pager_config {
    uint64_t ddr_bytes;
    uint64_t ddr_max_bytes; /* what pager_limit() may ask for later; less than ddr_bytes: no more than that */
    struct pager_far far;
    uint32_t zmem_percent;  /* of the DDR budget: what zmem takes of it at most; 0: it has a budget of its own */
    uint64_t prefetch_pages, fault_around_pages;
    uint64_t prefetch_predictors; /* 1 << enum prefetch_predictor each; 0: all */
    struct loop *loop;
    struct mmu *mmu;
    const struct mmu_window *window;
    struct table *pages;
    struct tier *tiers[TIERS];
    struct placement_cost cost;
    const struct placement_ops *policy; /* NULL: segmented FIFO */
    struct pager_user user;
};

struct pager;
struct record;

/* By the name that option policy has. */
const struct placement_ops *pager_policy_of(const char *name);

int pager_create(const struct pager_config *config, struct pager **ret_pager) MUST_USE;
/* No transfer may be in flight (pager_is_transferring); the loop may still run until then. */
void pager_destroy(struct pager *pager);
bool pager_is_transferring(const struct pager *pager);
struct stats *pager_stats(struct pager *pager);
void pager_prefetch_counters(struct pager *pager, struct prefetch_counters *ret_counters);
/* Who says which pages leave, and what it chose; each fits into DSM_POLICY_BYTES. */
void pager_policy(const struct pager *pager, char policy[DSM_POLICY_BYTES], char choice[DSM_POLICY_BYTES]);
void pager_tier_pages(struct pager *pager, uint64_t pages[TIERS]);
uint64_t pager_metadata_bytes(const struct pager *pager);

/* Each fault that is counted in the figures goes there too, from now on; NULL: not any more. The caller's to close. */
void pager_record(struct pager *pager, struct record *record);

/* ---- faults ---------------------------------------------------------------------------------------------------- */

/* A thread waits for a page to which it has the rights. The thread runs again soon, or gets SIGBUS. */
void pager_fault(struct pager *pager, struct page_id page, bool is_write, uint32_t thread, uint64_t start_ns);

/* A thread's fault was served, from here or from another node: it is counted. */
void pager_touched(struct pager *pager, enum dsm_source source, struct page_id page, bool is_write, uint64_t start_ns);

/* What the predictors expect after a fault on a page whose bytes are on another node. */
void pager_predict(struct pager *pager, struct page_id page, uint32_t thread, struct prefetch_plan *ret_plan);

/* ---- what the application says --------------------------------------------------------------------------------- */

/* As dsm_advise(), of pages that are managed; others are passed over, but advice on them is kept. 0, -ENOSPC. */
int pager_advise(struct pager *pager, struct page_id first, uint64_t pages_count, enum dsm_advice advice);
/* The pages were freed. */
void pager_advice_forget(struct pager *pager, struct page_id first, uint64_t pages_count);
/* How many pages DSM_ADVISE_WILL_NEED brings of so many. */
uint64_t pager_need_limit(const struct pager *pager, uint64_t pages_count);

/* ---- what the protocol asks (coherence/env.h) ------------------------------------------------------------------ */

int pager_protect(struct pager *pager, struct page_id page, enum access access);
void pager_install(struct pager *pager, struct page_id page, enum access access, const void *bytes);
void pager_store(struct pager *pager, struct page_id page, const void *bytes);
void pager_drop(struct pager *pager, struct page_id page);
void pager_send(struct pager *pager, struct node_id to, const struct message *message);
void pager_poison(struct pager *pager, struct page_id page, const char *why);
int pager_atomic(struct pager *pager, struct page_id page, const struct message *operation, uint64_t *ret_old);

/* This node is out: shared memory raises SIGBUS, and nothing is done to it any more. */
void pager_shut_shared(struct pager *pager);

/* ---- pins and ranges ------------------------------------------------------------------------------------------- */

/* true: the page is in memory with these rights and will stay (a pin was taken). false: being fetched; ask again. */
bool pager_pin(struct pager *pager, struct page_id page, enum access access);
/* A pin ended whose page is being revoked (page_unpin() said so). */
void pager_unpinned(struct pager *pager);
/*
 * A page whose bytes shall stay in memory for a reader: a pin was taken (a page never written needs no memory).
 * false: its bytes are in a lower tier; pager_gather() brings them.
 */
bool pager_hold(struct pager *pager, struct page_id page);
/* More is in memory than the budget and half of what replies may take beyond it. */
bool pager_is_crowded(const struct pager *pager);
/* All bytes of a shared run into memory (mapped or not); true when they are. */
bool pager_gather(struct pager *pager, struct page_id first, unsigned pages_count);
/* The extent's pages are freed, or given out anew: forget their bytes, rights and poison. */
void pager_forget(struct pager *pager, struct page_id first);

/* ---- private memory -------------------------------------------------------------------------------------------- */

/* Fresh extents for private memory: the kernel fills them until DDR gets short (then they are registered). */
int pager_private_take(struct pager *pager, struct page_id first, uint64_t pages_count) MUST_USE;
/* Pages given back: their memory and slots are free again. */
void pager_private_give(struct pager *pager, struct page_id first, uint64_t pages_count);
/* The page's extent is managed from now on, if it was not. */
int pager_private_manage(struct pager *pager, struct page_id page) MUST_USE;

/* Extents that may still be left to the kernel; one more is charged, or not any more (false: it is managed). */
uint64_t pager_private_room(const struct pager *pager);
/* A limit on address space: what is reserved beyond the present budget is given back. */
void pager_addresses_limit(struct pager *pager);
void pager_private_charge(struct pager *pager, struct page_id first);
bool pager_private_uncharge(struct pager *pager, struct page_id first);
uint64_t pager_private_fresh_pages(const struct pager *pager);

/* Any run of managed pages: forget their bytes, rights and poison. Their memory is the caller's to drop. */
void pager_private_forget(struct pager *pager, struct page_id first, uint64_t pages_count);
/*
 * The run stays in memory and is not managed any more. -EAGAIN: some of it is on its way into memory; ask again.
 * kept_set: how many pages in all are kept so; they count as used.
 */
int pager_private_keep(struct pager *pager, struct page_id first, uint64_t pages_count) MUST_USE;
void pager_private_kept_set(struct pager *pager, uint64_t pages_count);

/* In a forked child, after mmu_reopen() and all registrations, before the loop runs. */
void pager_private_enter_child(struct pager *pager);
/* The child's own loop. The tiers have theirs already. */
void pager_loop(struct pager *pager, struct loop *loop);

/* ---- budgets, changed while running ---------------------------------------------------------------------------- */

/*
 * pager_limit - another budget for a tier of memory. More takes effect at once. Less: what is too much leaves in the
 * background, and nothing is lost; pages that find no room below stay.
 * 0, or with a sentence: -EINVAL (too little, more than ddr_max_bytes, or not a tier that can be told), -ENOENT (no
 * such tier), -EBUSY (there is no room below for what would have to leave; nothing has changed), -ENOMEM.
 */
int pager_limit(struct pager *pager, enum tier_kind tier, uint64_t bytes) MUST_USE;
void pager_budget_pages(const struct pager *pager, uint64_t pages[TIERS]); /* now; 0: no such tier */
/* Memory of this machine that each tier holds now; 0 for tiers that are none. */
void pager_memory_bytes(const struct pager *pager, uint64_t bytes[TIERS]);

/* ---- the shard loop -------------------------------------------------------------------------------------------- */

/* Evict what should leave, answer stalled faults. Called before the loop blocks. */
void pager_balance(struct pager *pager);
/* When to call it again although nothing happens; UINT64_MAX: no need. */
uint64_t pager_deadline_ns(const struct pager *pager);

#endif
