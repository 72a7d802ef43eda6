/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.h - what every tier starts with, and what backends and the dispatcher owe each other. Private to tiers/.
 *
 * A backend embeds struct tier as its first member and moves bytes; the dispatcher (tier.c) keeps slots, checksums,
 * owners and counters, and checks the contract before it calls.
 */
#ifndef TIERMESH_TIERS_BACKEND_H
#define TIERMESH_TIERS_BACKEND_H

#include "tiers/shared_slots.h"
#include "tiers/slots.h"
#include "tiers/tier.h"

struct tier {
    const struct tier_ops *ops;
    struct slots slots;  /* in-place tiers: only the two counts; shared stores: only the count, of the tables below */
    struct shared_slots *shared; /* NULL: the store is this process's own */
    uint64_t *checksums; /* of each slot; 0: not written since it was taken. NULL for in-place tiers */
    uint64_t *owners;    /* page + 1 of each slot; 0: not set. Addressable and by-page tiers only */
    struct tier_counters counters;
    uint32_t limit_count; /* slots in use at most, of those there are */
    unsigned inflight;
    unsigned errors_due; /* transfers that shall fail: tier_inject_errors() */
    char where[128];     /* for log lines: "the unlinked file in /scratch" */
};

/* 0, or -EINVAL (no page, or over 16 TiB) with a sentence. */
int tier_slots_of(const char *name, uint64_t size_bytes, uint32_t *ret_slots) MUST_USE;

/* The common part. 0 or -ENOMEM with a sentence; tier_fini undoes it. */
int tier_init(struct tier *tier, const struct tier_ops *ops, uint32_t slots_count, const char *where) MUST_USE;
/* The same over slots that other processes use too. */
int tier_init_shared(struct tier *tier, const struct tier_ops *ops, struct shared_slots *shared,
                     const char *where) MUST_USE;
void tier_fini(struct tier *tier);

/* A backend is done with a transfer: 0, or a negative errno and the page in failed_page. Calls transfer->done. */
void tier_transfer_finish(struct tier_transfer *transfer, int result);

#endif
