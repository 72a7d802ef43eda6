/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager.c - the pager's set-up, and what the protocol asks of it: rights up, rights down, bytes in, bytes out.
 *
 * Runs on the shard's thread. Always holds: a page whose `where` is in memory owns exactly one frame; WORD_CLEAN
 * implies that the frame's note names an NVMe slot and that the mapping, if any, is read-only.
 */
#include "runtime/pager_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HISTORY_MIN 4096u
#define HISTORY_MAX (1u << 22)
#define AHEAD_PAGES 32 /* of a stream, read in one transfer */

struct page_entry *pager_entry(struct pager *pager, struct page_id page)
{
    return table_touch(pager->pages, page);
}

bool pager_is_shared(const struct pager *pager, struct page_id page)
{
    return mmu_page_is_shared(pager->window, page);
}

struct frame_note *pager_note(struct pager *pager, const struct page_entry *entry)
{
    ASSERT(page_is_in_memory(entry));
    return &pager->notes[entry->place];
}

void pager_fail(struct pager *pager, struct page_id page, const char *why)
{
    if (pager_is_shared(pager, page))
        pager->config.user.lost(pager->config.user.context, page, why);
    pager_poison(pager, page, why);
}

/* Stores are allowed when the node has the right and no clean slot would be left behind. */
bool pager_want_writable(struct pager *pager, const struct page_entry *entry, bool is_write)
{
    (void)pager;
    if (page_rights(entry) != ACCESS_WRITE)
        return false;
    return is_write || !page_has(entry, WORD_CLEAN);
}

const struct placement_ops *pager_policy_of(const char *name)
{
    return strcmp(name, "arms") == 0 ? &placement_arms : &placement_segmented_fifo;
}

static void frame_put(struct pager *pager, struct page_entry *entry)
{
    if (pager_note(pager, entry)->limbo != 0) {
        pager_limbo_clear(pager, frames_page(pager->frames, (struct frame_id){entry->place}), 1);
        pager_limbo_flush(pager);
    }
    *pager_note(pager, entry) = (struct frame_note){.clean_slot = UINT32_MAX};
    pager_spread_forgotten(pager, (struct frame_id){entry->place});
    frames_put(pager->frames, (struct frame_id){entry->place});
    pager->left_count++;
}

void pager_frame_put(struct pager *pager, struct page_entry *entry)
{
    pager_ahead_forgotten(pager, (struct frame_id){entry->place});
    placement_forgotten(pager->placement, pager->frames, (struct frame_id){entry->place});
    frame_put(pager, entry);
}

void pager_frame_left(struct pager *pager, struct page_entry *entry)
{
    pager_ahead_left(pager, (struct frame_id){entry->place});
    placement_evicted(pager->placement, pager->frames, (struct frame_id){entry->place});
    frame_put(pager, entry);
}

static void memory_drop(struct pager *pager, struct page_id page, struct page_entry *entry)
{
    int error;

    pager_forget_clean_slot(pager, entry);
    error = pager_is_shared(pager, page) ? mmu_free(pager->mmu, page, 1) : mmu_drop(pager->mmu, page, 1);
    if (error != 0)
        log_error("give memory of page %lu back: %s", page.index, strerror(-error));
}

/* Whatever this node holds of the page's bytes is not needed any more. */
void pager_release_bytes(struct pager *pager, struct page_id page, struct page_entry *entry)
{
    if (pager->shared_is_shut && pager_is_shared(pager, page))
        return;
    switch (page_where(entry)) {
    case WHERE_NOWHERE:
        return;
    case WHERE_MAPPED:
    case WHERE_LIMBO:
    case WHERE_LEAVING: /* the eviction sees in the frame's note that its page is gone */
        memory_drop(pager, page, entry);
        if (page_is(page, pager->leaving_copy))
            pager_frame_left(pager, entry);
        else
            pager_frame_put(pager, entry);
        break;
    case WHERE_FILLING: {
        struct fill *fill = &pager->fills[entry->place];

        fill->cancelled[page.index - fill->first.index] = true; /* it puts the slot when the read is over */
        if (fill->is_parked)
            pager_unpark(pager, fill, NULL);
        mmu_wake(pager->mmu, page, 1);
        break;
    }
    case WHERE_CXL:
    case WHERE_ZMEM:
    case WHERE_NVME:
        pager_slot_put(pager, pager_tier_of(page_where(entry)), entry->place);
        break;
    }
    page_set_where(entry, WHERE_NOWHERE, 0);
    page_word_change(entry, WORD_WRITABLE | WORD_CLEAN, 0);
}

/* ---- rights down ----------------------------------------------------------------------------------------------- */

static void rights_lower(struct pager *pager, struct page_id page, struct page_entry *entry, enum access access)
{
    enum page_where where = page_where(entry);
    bool was_writable = page_has(entry, WORD_WRITABLE);
    int error = 0;

    page_set_rights(entry, access);
    if (pager->shared_is_shut)
        return;
    if (where != WHERE_MAPPED) {
        /* Threads whose fault waits for the disk or for a frame must ask the protocol anew. */
        if (where == WHERE_FILLING || pager->stalls_count > 0)
            mmu_wake(pager->mmu, page, 1);
        return;
    }
    if (access == ACCESS_NONE) {
        error = mmu_zap(pager->mmu, page, 1);
        page_set_where(entry, WHERE_LIMBO, entry->place);
        page_word_change(entry, WORD_WRITABLE, 0);
        frames_push_tail(pager->frames, (struct frame_id){entry->place}, FRAME_LIMBO);
    } else if (was_writable) {
        error = mmu_protect(pager->mmu, page, 1, false);
        page_word_change(entry, WORD_WRITABLE, 0);
    }
    /* A right that cannot be taken away would let this node write what another one owns. */
    ASSERT(error == 0);
}

int pager_protect(struct pager *pager, struct page_id page, enum access access)
{
    struct page_entry *entry = pager_entry(pager, page);
    uint32_t before;

    if (entry == NULL || page_rights(entry) <= access)
        return 0;
    pager->stats.invalidations += access == ACCESS_NONE;
    before = page_word_change(entry, 0, WORD_REVOKING);
    if ((before & WORD_PINS) != 0) {
        ASSERT(pager->revokes_count < PAGER_REVOKES_MAX);
        pager->revokes[pager->revokes_count++] = (struct revoke){page, access};
        return -EINPROGRESS;
    }
    rights_lower(pager, page, entry, access);
    page_word_change(entry, WORD_REVOKING, 0);
    return 0;
}

void pager_unpinned(struct pager *pager)
{
    unsigned kept = 0;
    unsigned count = pager->revokes_count;

    for (unsigned i = 0; i < count; i++) {
        struct revoke revoke = pager->revokes[i];
        struct page_entry *entry = pager_entry(pager, revoke.page);

        if (page_has(entry, WORD_PINS)) {
            pager->revokes[kept++] = revoke;
            continue;
        }
        rights_lower(pager, revoke.page, entry, revoke.access);
        page_word_change(entry, WORD_REVOKING, 0);
        pager->config.user.protected(pager->config.user.context, revoke.page);
    }
    /* What was added behind while we called out stays. */
    memmove(&pager->revokes[kept], &pager->revokes[count],
            (pager->revokes_count - count) * sizeof(pager->revokes[0]));
    pager->revokes_count -= count - kept;
}

/* ---- bytes in -------------------------------------------------------------------------------------------------- */

static void map_bytes(struct pager *pager, struct page_id page, struct page_entry *entry, const void *bytes)
{
    bool writable = pager_want_writable(pager, entry, true);
    struct frame_id frame;
    int error;

    if (!pager_frame_take(pager, page, &frame)) {
        pager_fail(pager, page, "no frame is left for a reply; raise option ddr");
        return;
    }
    error = mmu_copy(pager->mmu, page, 1, bytes, writable);
    if (error != 0) {
        frames_put(pager->frames, frame);
        pager_fail(pager, page, "the kernel refused to map it");
        return;
    }
    pager_frame_attach(pager, entry, frame, WHERE_MAPPED, false);
    page_word_change(entry, WORD_WRITABLE, writable ? WORD_WRITABLE : 0);
}

void pager_install(struct pager *pager, struct page_id page, enum access access, const void *bytes)
{
    struct page_entry *entry = pager_entry(pager, page);

    if (entry == NULL || page_has(entry, WORD_POISONED) || pager->shared_is_shut)
        return;
    page_set_rights(entry, access);
    if (bytes != NULL) {
        pager_release_bytes(pager, page, entry);
        map_bytes(pager, page, entry, bytes);
        return;
    }
    if (access == ACCESS_WRITE)
        pager_forget_clean_slot(pager, entry);
    /* The store's own bytes: map them for whoever waits. */
    pager_fault(pager, page, access == ACCESS_WRITE, 0, os_now_ns());
}

void pager_store(struct pager *pager, struct page_id page, const void *bytes)
{
    struct page_entry *entry = pager_entry(pager, page);
    struct frame_id frame;

    if (entry == NULL || pager->shared_is_shut)
        return;
    pager_release_bytes(pager, page, entry);
    if (bytes == NULL)
        return;
    if (!pager_frame_take(pager, page, &frame)) {
        pager_fail(pager, page, "no frame is left for a write-back; raise option ddr");
        return;
    }
    if (mmu_shared_write(pager->window, page, 0, bytes, PAGE_BYTES) != 0) {
        frames_put(pager->frames, frame);
        pager_fail(pager, page, "no memory for a write-back");
        return;
    }
    pager_frame_attach(pager, entry, frame, WHERE_LIMBO, false);
}

/* Messages that wait for the page's bytes keep the fill alive; the slot goes when it is over. */
void pager_drop(struct pager *pager, struct page_id page)
{
    struct page_entry *entry = pager_entry(pager, page);

    if (entry != NULL)
        pager_release_bytes(pager, page, entry);
}

void pager_poison(struct pager *pager, struct page_id page, const char *why)
{
    struct page_entry *entry = pager_entry(pager, page);
    uint64_t address = pager->window->base + (page.index << PAGE_SHIFT);
    int error;

    if (entry == NULL || (page_word_change(entry, 0, WORD_POISONED) & WORD_POISONED) != 0 ||
        (pager->shared_is_shut && pager_is_shared(pager, page)))
        return;
    log_error("page at 0x%lx is lost: %s; touching it raises SIGBUS", address, why);
    pager->stats.poisoned_pages++;
    pager_release_bytes(pager, page, entry);
    error = mmu_poison(pager->mmu, page);
    if (error != 0)
        log_error("poison page at 0x%lx: %s", address, strerror(-error));
}

void pager_shut_shared(struct pager *pager)
{
    int error = pager->shared_is_shut ? 0 : mmu_shut_shared(pager->mmu);

    ASSERT(error == 0); /* else this node would go on with pages that are others' now */
    pager->shared_is_shut = true;
}

static void poison_lift(struct pager *pager, struct page_id page)
{
    int error = pager_is_shared(pager, page) ? mmu_free(pager->mmu, page, 1) : mmu_drop(pager->mmu, page, 1);

    if (error != 0)
        log_error("make page %lu usable again: %s", page.index, strerror(-error));
}

void pager_forget(struct pager *pager, struct page_id first)
{
    ASSERT(first.index % EXTENT_PAGES == 0);
    pager_advice_forget(pager, first, EXTENT_PAGES);
    if (table_find(pager->pages, first) == NULL)
        return; /* never touched here */
    for (uint64_t i = 0; i < EXTENT_PAGES; i++) {
        struct page_id page = page_of(first.index + i);
        struct page_entry *entry = table_find(pager->pages, page);

        pager_release_bytes(pager, page, entry);
        if ((page_word_change(entry, WORD_RIGHTS | WORD_POISONED, 0) & WORD_POISONED) != 0)
            poison_lift(pager, page);
    }
}

/* ---- bytes out ------------------------------------------------------------------------------------------------- */

static void send_later(struct pager *pager, struct node_id to, const struct message *message)
{
    for (unsigned i = 0; i < PAGER_SENDS_MAX; i++) {
        struct pending_send *send = &pager->sends[i];

        if (send->is_used)
            continue;
        *send = (struct pending_send){.message = *message, .to = to, .is_used = true};
        pager->sends_count++;
        return;
    }
    NEVER("more replies wait for a disk than peers may ask for");
}

static void send_flagged(struct pager *pager, struct node_id to, const struct message *message, uint8_t flag)
{
    struct message flagged = *message;

    flagged.flags |= flag;
    pager->config.user.send_bytes(pager->config.user.context, to, &flagged, NULL);
}

static void send_from_memory(struct pager *pager, struct node_id to, const struct message *message)
{
    _Alignas(64) uint8_t bytes[PAGE_BYTES];

    if (mmu_shared_read(pager->window, message->page, 0, bytes, PAGE_BYTES) != 0)
        send_flagged(pager, to, message, MESSAGE_POISONED);
    else
        pager->config.user.send_bytes(pager->config.user.context, to, message, bytes);
}

static void send_from_near(struct pager *pager, struct node_id to, const struct message *message, enum tier_kind tier,
                           uint32_t slot)
{
    _Alignas(64) uint8_t bounce[PAGE_BYTES];
    const void *bytes = tier_view(pager->config.tiers[tier], (struct tier_slot){slot}, bounce);

    if (bytes == NULL) {
        send_flagged(pager, to, message, MESSAGE_POISONED);
        pager_fail(pager, message->page, pager_damage_text(tier));
    } else {
        pager->config.user.send_bytes(pager->config.user.context, to, message, bytes);
    }
}

void pager_send(struct pager *pager, struct node_id to, const struct message *message)
{
    struct page_entry *entry = pager_entry(pager, message->page);

    if (entry == NULL || page_has(entry, WORD_POISONED)) {
        send_flagged(pager, to, message, MESSAGE_POISONED);
        return;
    }
    switch (page_where(entry)) {
    case WHERE_NOWHERE:
        send_flagged(pager, to, message, MESSAGE_ZERO);
        return;
    case WHERE_MAPPED:
    case WHERE_LIMBO:
    case WHERE_LEAVING:
        send_from_memory(pager, to, message);
        return;
    case WHERE_CXL:
    case WHERE_ZMEM:
        send_from_near(pager, to, message, pager_tier_of(page_where(entry)), entry->place);
        return;
    case WHERE_NVME:
        send_later(pager, to, message);
        pager_fill_start(pager, message->page, NULL);
        return;
    case WHERE_FILLING:
        if (!pager->fills[entry->place].is_parked) {
            send_later(pager, to, message);
            return;
        }
        pager_unpark(pager, &pager->fills[entry->place], NULL);
        pager_send(pager, to, message);
        return;
    }
}

/* ---- atomics at the home --------------------------------------------------------------------------------------- */

static uint64_t atomic_result(const struct message *operation, uint64_t old)
{
    switch (atomic_operation_of(operation)) {
    case ATOMIC_STORE:
    case ATOMIC_EXCHANGE:
        return operation->a;
    case ATOMIC_ADD:
        return old + operation->a;
    case ATOMIC_COMPARE_SWAP:
        return old == operation->b ? operation->a : old;
    default:
        return old;
    }
}

/*
 * The page is mapped for stores: threads of this node may work on the word at this moment, so it takes a real atomic.
 * Nobody but this thread unmaps it, so the access cannot fault on the shard itself.
 */
static uint64_t atomic_in_place(_Atomic(uint64_t) *word, const struct message *operation)
{
    uint64_t old = atomic_load(word);

    while (!atomic_compare_exchange_weak(word, &old, atomic_result(operation, old)))
        ;
    return old;
}

/* The page is not mapped for stores: only this thread changes it. */
static int atomic_through_file(struct pager *pager, struct page_id page, size_t offset, const struct message *operation,
                               uint64_t *ret_old)
{
    uint64_t old;
    uint64_t new;

    if (mmu_shared_read(pager->window, page, offset, &old, sizeof(old)) != 0)
        return -EIO;
    new = atomic_result(operation, old);
    if (new != old && mmu_shared_write(pager->window, page, offset, &new, sizeof(new)) != 0)
        return -EIO;
    *ret_old = old;
    return 0;
}

int pager_atomic(struct pager *pager, struct page_id page, const struct message *operation, uint64_t *ret_old)
{
    struct page_entry *entry = pager_entry(pager, page);
    size_t offset = atomic_offset_of(operation);

    if (entry == NULL || page_has(entry, WORD_POISONED) || offset >= PAGE_BYTES)
        return -EIO;
    if (!page_is_in_memory(entry) && !pager_bring(pager, page, NULL)) {
        if (page_has(entry, WORD_POISONED))
            return -EIO;
        ASSERT(pager->atomics_count < PAGER_ATOMICS_MAX);
        pager->atomics[pager->atomics_count++] = page;
        return -EINPROGRESS;
    }
    pager_rescue(pager, entry);
    pager_forget_clean_slot(pager, entry);
    if (page_where(entry) == WHERE_MAPPED && page_has(entry, WORD_WRITABLE)) {
        char *address = mmu_page_address(pager->window, page);

        *ret_old = atomic_in_place((_Atomic(uint64_t) *)(void *)(address + offset), operation);
        return 0;
    }
    return atomic_through_file(pager, page, offset, operation, ret_old);
}

/* ---- pins ------------------------------------------------------------------------------------------------------ */

bool pager_pin(struct pager *pager, struct page_id page, enum access access)
{
    struct page_entry *entry = pager_entry(pager, page);
    struct stalled_fault fault = {.page = page, .start_ns = os_now_ns(), .is_write = access == ACCESS_WRITE};

    if (entry == NULL || page_rights(entry) < access)
        return false;
    if (access == ACCESS_WRITE)
        pager_forget_clean_slot(pager, entry);
    if (page_pin(entry, access))
        return true;
    if (page_is_in_memory(entry) && page_where(entry) != WHERE_LEAVING)
        return false; /* being revoked, or pinned too often */
    return pager_bring(pager, page, &fault) && page_pin(entry, access);
}

/* A shared page on its way to NVMe stays: its copy in flight will be put. */
void pager_rescue(struct pager *pager, struct page_entry *entry)
{
    if (page_where(entry) != WHERE_LEAVING)
        return;
    page_set_where(entry, WHERE_LIMBO, entry->place);
    pager->notes[entry->place].eviction = 0;
    frames_push_tail(pager->frames, (struct frame_id){entry->place}, FRAME_LIMBO);
}

bool pager_hold(struct pager *pager, struct page_id page)
{
    struct page_entry *entry = pager_entry(pager, page);

    pager_rescue(pager, entry);
    if (!page_is_in_memory(entry) && page_where(entry) != WHERE_NOWHERE)
        return false;
    atomic_fetch_add_explicit(&entry->word, WORD_PIN, memory_order_acq_rel);
    return true;
}

bool pager_is_crowded(const struct pager *pager)
{
    return pager_frames_used(pager) > pager->budget_frames + PAGER_OVERFLOW_FRAMES / 2;
}

bool pager_gather(struct pager *pager, struct page_id first, unsigned pages_count)
{
    bool all = true;

    for (unsigned i = 0; i < pages_count; i++) {
        struct page_id page = page_of(first.index + i);
        struct page_entry *entry = pager_entry(pager, page);
        enum page_where where = entry == NULL ? WHERE_NOWHERE : page_where(entry);

        if (pager_where_is_near(where) || where == WHERE_NVME || where == WHERE_FILLING)
            all = pager_bring(pager, page, NULL) && all;
    }
    return all;
}

/* ---- set-up ---------------------------------------------------------------------------------------------------- */

static int frames_create(struct pager *pager)
{
    size_t notes_bytes = (size_t)pager->table_frames * sizeof(struct frame_note);
    void *memory;
    int error;

    error = os_pages_map(frames_bytes(pager->table_frames), &memory);
    if (error != 0)
        return error;
    pager->frames = memory;
    frames_init(pager->frames, pager->table_frames);
    error = os_pages_map(placement_bytes(pager->config.policy, pager->table_frames), &memory);
    if (error != 0)
        return error;
    pager->placement = memory;
    placement_init(pager->placement, pager->config.policy, pager->table_frames, pager->budget_frames,
                   &pager->config.cost);
    error = os_pages_map(notes_bytes, &memory);
    if (error != 0)
        return error;
    pager->notes = memory;
    return 0;
}

/* A walk over four times what fits can be replayed. */
static uint32_t history_entries(const struct pager *pager)
{
    uint32_t entries = HISTORY_MIN;

    while (entries < HISTORY_MAX && entries / 4 < pager->config.ddr_bytes / PAGE_BYTES)
        entries *= 2;
    return entries;
}

/* Temporal and signature predictors want each of their pages' first touch seen: it takes limbo. */
static struct prefetch_config prefetch_config_of(const struct pager *pager)
{
    const uint32_t watching = 1u << PREFETCH_TEMPORAL | 1u << PREFETCH_SIGNATURE;
    uint64_t wanted = pager->config.prefetch_predictors != 0 ? pager->config.prefetch_predictors : PREFETCH_ALL;
    uint32_t predictors = (uint32_t)wanted & (mmu_features(pager->mmu)->has_move ? PREFETCH_ALL : ~watching);

    return (struct prefetch_config){
        .depth_max = predictors != 0 ? (uint32_t)pager->config.prefetch_pages : 0,
        .ahead_min = AHEAD_PAGES,
        .fault_around = (uint32_t)pager->config.fault_around_pages,
        .predictors = predictors,
        .history_entries = (predictors >> PREFETCH_TEMPORAL & 1) != 0 ? history_entries(pager) : 0,
    };
}

static int prefetch_create(struct pager *pager)
{
    void *memory;
    int error;

    pager->prefetching = prefetch_config_of(pager);
    error = os_pages_map(prefetch_bytes(&pager->prefetching), &memory);
    if (error != 0)
        return error;
    pager->prefetch = memory;
    prefetch_init(pager->prefetch, &pager->prefetching);
    return 0;
}

int pager_create(const struct pager_config *config, struct pager **ret_pager)
{
    struct pager *pager;
    void *memory;
    int error = os_pages_map(sizeof(*pager), &memory);

    if (error != 0)
        return error;
    pager = memory;
    pager->config = *config;
    pager->leaving_copy = PAGE_NONE;
    if (config->policy == NULL)
        pager->config.policy = &placement_segmented_fifo;
    pager->mmu = config->mmu;
    pager->window = config->window;
    pager->pages = config->pages;
    pager_budget_init(pager);
    error = frames_create(pager);
    pager_tier_low_set(pager, TIER_CXL);
    pager_tier_low_set(pager, TIER_ZMEM);
    if (error == 0)
        error = prefetch_create(pager);
    if (error == 0)
        error = tier_buffers_create(config->loop, 2048, &pager->buffers);
    if (error == 0)
        error = os_pages_map(PAGER_FRESH_MAX * sizeof(*pager->fresh), &memory);
    if (error == 0)
        pager->fresh = memory;
    if (error == 0)
        error = mmu_staging_create(pager->mmu, PAGER_BATCH, &pager->staging);
    if (error == 0)
        error = pager_limbo_create(pager);
    if (error == 0)
        error = pager_spread_create(pager);
    if (error == 0)
        pager_share_apply(pager);
    if (error != 0) {
        pager_destroy(pager);
        return error;
    }
    *ret_pager = pager;
    return 0;
}

void pager_destroy(struct pager *pager)
{
    for (unsigned i = 0; i < PAGER_FILLS_MAX; i++)
        if (pager->fills[i].pages_count != 0)
            tier_buffers_put(pager->buffers, pager->fills[i].transfer.memory, 1);
    if (pager->buffers != NULL)
        tier_buffers_destroy(pager->buffers);
    pager_limbo_destroy(pager);
    pager_spread_destroy(pager);
    os_pages_unmap(pager->fresh, PAGER_FRESH_MAX * sizeof(*pager->fresh));
    os_pages_unmap(pager->prefetch, prefetch_bytes(&pager->prefetching));
    os_pages_unmap(pager->notes, (size_t)pager->table_frames * sizeof(struct frame_note));
    os_pages_unmap(pager->placement, placement_bytes(pager->config.policy, pager->table_frames));
    os_pages_unmap(pager->frames, frames_bytes(pager->table_frames));
    os_pages_unmap(pager, sizeof(*pager));
}

void pager_loop(struct pager *pager, struct loop *loop)
{
    pager->config.loop = loop;
    tier_buffers_loop(pager->buffers, loop);
}

struct stats *pager_stats(struct pager *pager)
{
    return &pager->stats;
}

void pager_prefetch_counters(struct pager *pager, struct prefetch_counters *ret_counters)
{
    prefetch_counters_get(pager->prefetch, ret_counters);
}

void pager_policy(const struct pager *pager, char policy[DSM_POLICY_BYTES], char choice[DSM_POLICY_BYTES])
{
    snprintf(policy, DSM_POLICY_BYTES, "%s", placement_policy(pager->placement));
    snprintf(choice, DSM_POLICY_BYTES, "%s", placement_choice(pager->placement));
}

/* Tables are reserved whole and charged as touched: frames in use, and slots in use. */
uint64_t pager_metadata_bytes(const struct pager *pager)
{
    uint64_t bytes = sizeof(*pager) + prefetch_bytes(&pager->prefetching) + table_bytes(pager->pages);

    bytes += pager_frames_used(pager) * (frames_bytes(1024) / 1024 + sizeof(struct frame_note));
    for (int i = 0; i < TIERS; i++) {
        struct tier_counters counters;

        if (pager->config.tiers[i] == NULL)
            continue;
        tier_counters_get(pager->config.tiers[i], &counters);
        bytes += counters.metadata_bytes;
    }
    return bytes;
}
