/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_evict.c - bytes out of memory, in batches, off the path of faults.
 *
 * Runs on the shard's thread before it blocks. A shared page is first unmapped (limbo), so that a touch is seen and
 * rescues it; private pages stay mapped until they go. A batch to CXL memory is copied at once; a batch to NVMe is
 * written from a buffer while the pages are LEAVING: a touch meanwhile takes them back, and the written slot is put.
 */
#include "runtime/pager_internal.h"

#include <errno.h>
#include <string.h>

#define STALL_RETRY_NS 1000000U
#define STALL_LIMIT_NS 2000000000U /* a fault that finds no frame for so long is answered by SIGBUS, not by a hang */

/* Frames chosen by the policy, with what is needed of their pages. */
struct batch {
    struct frame_id frames[PAGER_BATCH];
    unsigned count;
};

static struct page_id frame_page(const struct pager *pager, struct frame_id frame)
{
    return frames_page(pager->frames, frame);
}

static struct page_entry *frame_entry(struct pager *pager, struct frame_id frame)
{
    return pager_entry(pager, frame_page(pager, frame));
}

/* A claimed page that does not leave after all. */
static void frame_return(struct pager *pager, struct frame_id frame, enum frame_list list)
{
    page_unclaim(frame_entry(pager, frame));
    frames_push_tail(pager->frames, frame, list);
}

/* ---- unmapping into limbo -------------------------------------------------------------------------------------- */

static void zap_run(struct pager *pager, struct page_id first, unsigned count)
{
    if (count > 0 && mmu_zap(pager->mmu, first, count) != 0)
        NEVER("a mapped page can be unmapped");
}

/* Zaps consecutive pages together: the cost of a call is mostly the flush. */
static void unmap_some(struct pager *pager)
{
    struct frame_id frames[PAGER_BATCH];
    unsigned count = placement_unmap(pager->placement, pager->frames, frames, PAGER_BATCH);
    struct page_id first = PAGE_NONE;
    unsigned run = 0;

    for (unsigned i = 0; i < count; i++) {
        struct page_id page = frame_page(pager, frames[i]);
        struct page_entry *entry = frame_entry(pager, frames[i]);

        if (page_has(entry, WORD_PINS | WORD_REVOKING) || (pager->shared_is_shut && pager_is_shared(pager, page))) {
            frames_push_tail(pager->frames, frames[i], FRAME_MAPPED);
            continue;
        }
        frames_push_tail(pager->frames, frames[i], FRAME_LIMBO);
        if (!pager_is_shared(pager, page) || page_where(entry) != WHERE_MAPPED)
            continue;
        page_set_where(entry, WHERE_LIMBO, frames[i].index);
        page_word_change(entry, WORD_WRITABLE, 0);
        if (run > 0 && page.index == first.index + run) {
            run++;
            continue;
        }
        zap_run(pager, first, run);
        first = page;
        run = 1;
    }
    zap_run(pager, first, run);
}

/* ---- pages that need no copy ----------------------------------------------------------------------------------- */

/*
 * How many of the pages, from the first on, are consecutive: one call of the kernel serves them. Not beyond the extent:
 * private extents may lie in mappings of their own.
 */
static unsigned run_of(const struct page_id *pages, unsigned count)
{
    unsigned left = (unsigned)(EXTENT_PAGES - pages[0].index % EXTENT_PAGES);
    unsigned run = 1;

    if (count > left)
        count = left;
    while (run < count && pages[run].index == pages[0].index + run)
        run++;
    return run;
}

/* Private pages out of their places, into staging. Returns how many; the next one is pinned or shared by fork. */
static unsigned private_take_out(struct pager *pager, struct page_id first, unsigned count)
{
    unsigned moved = 0;
    int error = mmu_take_out(pager->mmu, first, count, pager->staging, &moved);

    if (error != 0 && error != -EBUSY)
        log_warn("take page %lu out of memory: %s", first.index, strerror(-error));
    return moved;
}

/* Drops the memory of a run. Returns how many pages went. */
static unsigned memory_drop_run(struct pager *pager, struct page_id first, unsigned count)
{
    unsigned moved;

    if (pager_is_shared(pager, first))
        return mmu_free(pager->mmu, first, count) == 0 ? count : 0;
    moved = private_take_out(pager, first, count);
    if (moved > 0)
        mmu_staging_clear(pager->mmu, pager->staging, 0, moved);
    return moved;
}

static void clean_left(struct pager *pager, struct page_id page)
{
    struct page_entry *entry = pager_entry(pager, page);
    uint32_t slot = pager_note(pager, entry)->clean_slot;

    pager_frame_put(pager, entry);
    page_set_where(entry, WHERE_NVME, slot);
    page_word_change(entry, WORD_CLEAN | WORD_WRITABLE, 0);
    pager->nvme_pages++;
    pager->stats.dropped_pages++;
}

/* NVMe has the same bytes: only the memory goes. Returns how many pages left. */
static unsigned clean_leave(struct pager *pager, const struct batch *batch)
{
    struct page_id pages[PAGER_BATCH];
    unsigned gone = 0;
    unsigned i = 0;

    for (unsigned k = 0; k < batch->count; k++)
        pages[k] = frame_page(pager, batch->frames[k]);
    while (i < batch->count) {
        unsigned run = run_of(&pages[i], batch->count - i);
        unsigned dropped = memory_drop_run(pager, pages[i], run);

        for (unsigned k = 0; k < dropped; k++)
            clean_left(pager, pages[i + k]);
        gone += dropped;
        i += dropped;
        if (dropped < run)
            frame_return(pager, batch->frames[i++], FRAME_MAPPED);
    }
    return gone;
}

static int target_of(struct pager *pager, struct page_id page)
{
    struct placement_question question = {.is_clean_copy = false};

    if (pager_is_shared(pager, page) &&
        pager->config.user.has_other_copy(pager->config.user.context, page)) {
        question.is_clean_copy = true;
        question.copy_is_remote = true;
    }
    for (int i = TIER_CXL; i < TIERS; i++) {
        struct tier_counters counters;

        if (pager->config.tiers[i] == NULL)
            continue;
        tier_counters_get(pager->config.tiers[i], &counters);
        question.slots_max[i] = counters.slots_max;
        question.slots_free[i] = tier_slots_free(pager->config.tiers[i]);
    }
    return placement_target(pager->placement, &question);
}

static bool evict_copy(struct pager *pager, struct page_id page, struct page_entry *entry)
{
    if (!pager->config.user.forget_copy(pager->config.user.context, page))
        return false;
    page_set_rights(entry, ACCESS_NONE);
    pager_release_bytes(pager, page, entry);
    pager->stats.dropped_pages++;
    return true;
}

/* ---- pages that are copied ------------------------------------------------------------------------------------- */

/* Bytes of a run into `memory`. Returns how many pages; the next one cannot leave now. */
static unsigned run_load(struct pager *pager, struct page_id first, unsigned count, char *memory)
{
    unsigned moved;

    if (pager_is_shared(pager, first))
        return mmu_shared_read(pager->window, first, 0, memory, count * PAGE_BYTES) == 0 ? count : 0;
    moved = private_take_out(pager, first, count);
    if (moved > 0) {
        memcpy(memory, pager->staging, moved * PAGE_BYTES);
        mmu_staging_clear(pager->mmu, pager->staging, 0, moved);
    }
    return moved;
}

/* Loads what can leave into `memory`; what cannot goes back to the policy. Returns how many were loaded. */
static unsigned batch_load(struct pager *pager, const struct batch *batch, unsigned from, unsigned limit,
                           struct eviction *eviction, char *memory, unsigned *ret_next)
{
    struct page_id pages[PAGER_BATCH];
    unsigned loaded = 0;
    unsigned i = from;

    for (unsigned k = 0; k < batch->count; k++)
        pages[k] = frame_page(pager, batch->frames[k]);
    while (i < batch->count && loaded < limit) {
        unsigned most = batch->count - i < limit - loaded ? batch->count - i : limit - loaded;
        unsigned run = run_of(&pages[i], most);
        unsigned done = run_load(pager, pages[i], run, memory + (size_t)loaded * PAGE_BYTES);

        for (unsigned k = 0; k < done; k++, i++) {
            eviction->frames[loaded] = batch->frames[i];
            eviction->pages[loaded++] = pages[i];
        }
        if (done < run)
            frame_return(pager, batch->frames[i++], FRAME_MAPPED);
    }
    *ret_next = i;
    return loaded;
}

static struct eviction *eviction_find_free(struct pager *pager)
{
    for (unsigned i = 0; i < PAGER_EVICTIONS_MAX; i++)
        if (pager->evictions[i].pages_count == 0)
            return &pager->evictions[i];
    return NULL;
}

bool pager_is_transferring(const struct pager *pager)
{
    for (unsigned i = 0; i < PAGER_EVICTIONS_MAX; i++)
        if (pager->evictions[i].pages_count != 0)
            return true;
    for (unsigned i = 0; i < PAGER_FILLS_MAX; i++)
        if (pager->fills[i].pages_count != 0 && !pager->fills[i].is_parked)
            return true;
    return pager->demotion.pages_count != 0;
}

static bool still_leaving(struct pager *pager, const struct eviction *eviction, unsigned i)
{
    struct page_entry *entry = table_find(pager->pages, eviction->pages[i]);
    unsigned number = (unsigned)(eviction - pager->evictions) + 1;

    return entry != NULL && page_where(entry) == WHERE_LEAVING && entry->place == eviction->frames[i].index &&
           pager->notes[entry->place].eviction == number;
}

/* Gives the memory of shared pages back, run by run. (Private pages left theirs when they were loaded.) */
static void pages_free(struct pager *pager, const struct page_id *pages, unsigned count)
{
    for (unsigned i = 0; i < count;) {
        unsigned run = run_of(&pages[i], count - i);

        if (pager_is_shared(pager, pages[i]) && !pager->shared_is_shut && mmu_free(pager->mmu, pages[i], run) != 0)
            log_error("give memory of pages %lu + %u back: the kernel refused", pages[i].index, run);
        i += run;
    }
}

/* The page's bytes are in the slot now, its memory is given back. */
static void page_left(struct pager *pager, struct page_id page, enum page_where where, uint32_t slot)
{
    struct page_entry *entry = pager_entry(pager, page);

    pager_frame_put(pager, entry);
    page_set_where(entry, where, slot);
    page_word_change(entry, WORD_WRITABLE | WORD_CLEAN, 0);
    if (where == WHERE_NVME) {
        pager->nvme_pages++;
        pager->stats.moves[DSM_TIER_DDR][DSM_TIER_NVME]++;
    } else {
        tier_owner_set(pager->config.tiers[TIER_CXL], (struct tier_slot){slot}, page);
        pager->cxl_pages++;
        pager->stats.moves[DSM_TIER_DDR][DSM_TIER_CXL]++;
    }
}

/* A write that failed: the bytes are still whole, in memory (shared) or in the buffer (private). */
static void eviction_undo(struct pager *pager, struct eviction *eviction, unsigned i)
{
    struct page_id page = eviction->pages[i];
    struct page_entry *entry = pager_entry(pager, page);

    tier_put(pager->config.tiers[TIER_NVME], (struct tier_slot){eviction->transfer.first.index + i});
    if (!still_leaving(pager, eviction, i))
        return;
    if (pager_is_shared(pager, page)) {
        page_set_where(entry, WHERE_LIMBO, entry->place);
        pager->notes[entry->place].eviction = 0;
        frames_push_tail(pager->frames, eviction->frames[i], FRAME_LIMBO);
    } else {
        pager_fault(pager, page, true, 0, 0); /* back from the buffer */
    }
}

static void eviction_done(struct tier_transfer *transfer, int result)
{
    struct eviction *eviction = transfer->context;
    struct pager *pager = eviction->pager;
    struct tier *nvme = pager->config.tiers[TIER_NVME];
    struct page_id left[PAGER_BATCH];
    unsigned left_count = 0;

    for (unsigned i = 0; i < eviction->pages_count; i++) {
        uint32_t slot = transfer->first.index + i;

        if (result != 0) {
            eviction_undo(pager, eviction, i);
        } else if (still_leaving(pager, eviction, i)) {
            left[left_count++] = eviction->pages[i];
            page_left(pager, eviction->pages[i], WHERE_NVME, slot);
        } else {
            tier_put(nvme, (struct tier_slot){slot});
        }
    }
    pages_free(pager, left, left_count);
    tier_buffers_put(pager->buffers, transfer->memory, transfer->pages_count);
    eviction->pages_count = 0;
}

/* Addressable memory: the bytes were loaded into the slots; nothing is waited for. */
static void batch_to_cxl(struct pager *pager, struct eviction *eviction, struct tier_slot slot, unsigned loaded)
{
    tier_seal(pager->config.tiers[TIER_CXL], slot, loaded);
    pages_free(pager, eviction->pages, loaded);
    for (unsigned i = 0; i < loaded; i++)
        page_left(pager, eviction->pages[i], WHERE_CXL, slot.index + i);
}

static void batch_to_nvme(struct pager *pager, struct eviction *eviction, unsigned loaded)
{
    unsigned number = (unsigned)(eviction - pager->evictions) + 1;

    eviction->transfer.done = eviction_done;
    eviction->pages_count = loaded;
    for (unsigned i = 0; i < loaded; i++) {
        struct page_entry *entry = pager_entry(pager, eviction->pages[i]);

        page_set_where(entry, WHERE_LEAVING, eviction->frames[i].index);
        page_word_change(entry, WORD_WRITABLE, 0);
        pager->notes[entry->place].eviction = (uint8_t)number;
        frames_push_tail(pager->frames, eviction->frames[i], FRAME_BUSY);
    }
    tier_transfer_start(pager->config.tiers[TIER_NVME], &eviction->transfer);
}

static void batch_return(struct pager *pager, const struct batch *batch, unsigned from)
{
    for (unsigned i = from; i < batch->count; i++)
        frame_return(pager, batch->frames[i], FRAME_LIMBO);
}

static void slots_put(struct tier *tier, struct tier_slot first, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        tier_put(tier, (struct tier_slot){first.index + i});
}

/* One run of slots: filled with the next pages of the batch. Returns how many pages left; 0: no room now. */
static unsigned batch_move_run(struct pager *pager, const struct batch *batch, int target, unsigned *next)
{
    struct tier *tier = pager->config.tiers[target];
    struct eviction *eviction = eviction_find_free(pager);
    struct tier_slot slot;
    unsigned slots = eviction != NULL ? tier_take(tier, batch->count - *next, &slot) : 0;
    unsigned loaded;
    char *memory;

    if (slots == 0)
        return 0;
    memory = target == TIER_CXL ? tier_address(tier, slot) : tier_buffers_take(pager->buffers, slots);
    loaded = memory != NULL ? batch_load(pager, batch, *next, slots, eviction, memory, next) : 0;
    slots_put(tier, slot, loaded, slots);
    if (target == TIER_CXL) {
        if (loaded > 0)
            batch_to_cxl(pager, eviction, slot, loaded);
        return loaded;
    }
    if (memory != NULL && loaded < slots)
        tier_buffers_put(pager->buffers, memory + (size_t)loaded * PAGE_BYTES, slots - loaded);
    if (loaded == 0)
        return 0;
    eviction->pager = pager;
    eviction->transfer = (struct tier_transfer){
        .first = slot, .pages_count = loaded, .memory = memory, .is_write = true, .context = eviction};
    batch_to_nvme(pager, eviction, loaded);
    return loaded;
}

static unsigned batch_move(struct pager *pager, const struct batch *batch, int target)
{
    unsigned moved = 0;
    unsigned next = 0;
    unsigned run;

    while (next < batch->count && (run = batch_move_run(pager, batch, target, &next)) > 0)
        moved += run;
    batch_return(pager, batch, next);
    return moved;
}

/* ---- one round ------------------------------------------------------------------------------------------------- */

static bool claim(struct pager *pager, struct frame_id frame, struct page_entry *entry)
{
    bool is_shared = pager_is_shared(pager, frame_page(pager, frame));

    return !(is_shared && pager->shared_is_shut) && page_claim(entry, is_shared ? WHERE_LIMBO : WHERE_MAPPED);
}

/* Sorts the pages: clean ones, those to be copied to one target, and those whose copy elsewhere will do (gone now). */
static unsigned round_sort(struct pager *pager, const struct frame_id *frames, unsigned count, struct batch *clean,
                           struct batch *batch, int *ret_target)
{
    unsigned gone = 0;

    *ret_target = PLACE_NOWHERE;
    for (unsigned i = 0; i < count; i++) {
        struct page_id page = frame_page(pager, frames[i]);
        struct page_entry *entry = frame_entry(pager, frames[i]);
        int target;

        if (!claim(pager, frames[i], entry)) {
            frames_push_tail(pager->frames, frames[i], FRAME_MAPPED);
            continue;
        }
        ASSERT(entry->place == frames[i].index);
        if (page_has(entry, WORD_CLEAN)) {
            clean->frames[clean->count++] = frames[i];
            continue;
        }
        target = target_of(pager, page);
        if (target == PLACE_DROP && evict_copy(pager, page, entry)) {
            gone++;
            continue;
        }
        if (target >= 0 && (*ret_target < 0 || *ret_target == target)) {
            *ret_target = target;
            batch->frames[batch->count++] = frames[i];
            continue;
        }
        frame_return(pager, frames[i], FRAME_LIMBO);
        if (target == PLACE_NOWHERE && pager_is_shared(pager, page))
            pager->config.user.give_back(pager->config.user.context, page);
    }
    return gone;
}

unsigned pager_evict_some(struct pager *pager, unsigned wanted)
{
    struct frame_id frames[PAGER_BATCH];
    struct batch batch = {.count = 0};
    struct batch clean = {.count = 0};
    unsigned count;
    unsigned gone;
    int target;

    if (wanted > PAGER_BATCH)
        wanted = PAGER_BATCH;
    if (pager->fresh_count > 0)
        pager_private_register_some(pager);
    if (frames_count(pager->frames, FRAME_LIMBO) < pager->marks.limbo_target + wanted)
        unmap_some(pager);
    count = placement_evict(pager->placement, pager->frames, frames, wanted);
    gone = round_sort(pager, frames, count, &clean, &batch, &target);
    gone += clean_leave(pager, &clean);
    if (batch.count > 0)
        gone += batch_move(pager, &batch, target);
    /* Limbo is full of pages that have nowhere to go: behind them may be copies that can be dropped. */
    if (gone == 0 && count > 0)
        unmap_some(pager);
    return gone;
}

/* ---- CXL to NVMe ----------------------------------------------------------------------------------------------- */

static void demotion_done(struct tier_transfer *transfer, int result)
{
    struct demotion *demotion = transfer->context;
    struct pager *pager = demotion->pager;
    unsigned count = demotion->pages_count;

    demotion->pages_count = 0; /* pager_cxl_put() puts again */
    for (unsigned i = 0; i < count; i++) {
        struct tier_slot from = {demotion->from.index + i};
        struct tier_slot to = {transfer->first.index + i};

        if (demotion->cancelled[i])
            tier_put(pager->config.tiers[TIER_CXL], from);
        if (demotion->cancelled[i] || result != 0) {
            tier_put(pager->config.tiers[TIER_NVME], to);
            continue;
        }
        pager_cxl_put(pager, from.index);
        page_set_where(pager_entry(pager, demotion->pages[i]), WHERE_NVME, to.index);
        pager->nvme_pages++;
        pager->stats.moves[DSM_TIER_CXL][DSM_TIER_NVME]++;
    }
}

/* Leading pages of the run whose checksums are right; a wrong one is lost and ends the run. */
static unsigned demotion_verify(struct pager *pager, struct tier_slot from, const struct page_id *pages, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (page_is(pages[i], PAGE_NONE))
            return i;
        if (tier_view(pager->config.tiers[TIER_CXL], (struct tier_slot){from.index + i}, NULL) != NULL)
            continue;
        pager_fail(pager, pages[i], "its checksum in the CXL tier is wrong");
        return i;
    }
    return count;
}

/* The oldest CXL pages move on to NVMe while CXL is nearly full; one transfer at a time. */
static void demote_some(struct pager *pager)
{
    struct demotion *demotion = &pager->demotion;
    struct tier *cxl = pager->config.tiers[TIER_CXL];
    struct tier *nvme = pager->config.tiers[TIER_NVME];
    struct tier_slot to;
    unsigned slots;
    unsigned count;

    if (demotion->pages_count != 0 || nvme == NULL || cxl == NULL || tier_slots_free(cxl) >= pager->cxl_low)
        return;
    count = tier_oldest(cxl, PAGER_BATCH, &demotion->from, demotion->pages);
    count = demotion_verify(pager, demotion->from, demotion->pages, count);
    slots = count > 0 ? tier_take(nvme, count, &to) : 0;
    if (slots == 0)
        return;
    memset(demotion->cancelled, 0, sizeof(demotion->cancelled));
    demotion->pager = pager;
    demotion->pages_count = slots;
    demotion->transfer = (struct tier_transfer){.first = to,
                                                .pages_count = slots,
                                                .memory = tier_address(cxl, demotion->from),
                                                .is_write = true,
                                                .done = demotion_done,
                                                .context = demotion};
    tier_transfer_start(nvme, &demotion->transfer);
}

/* ---- before the loop blocks ------------------------------------------------------------------------------------ */

static void stalls_answer(struct pager *pager)
{
    uint64_t now_ns = os_now_ns();

    for (unsigned left = pager->stalls_count; left > 0; left--) {
        struct stalled_fault fault = pager->stalls[pager->stalls_first];
        bool is_new = page_where(pager_entry(pager, fault.page)) == WHERE_NOWHERE;
        bool has_room = is_new ? pager_frames_used(pager) < pager->budget_frames : !pager_is_crowded(pager);

        if (!has_room && !is_new)
            return; /* it has bytes, which are never given up for want of room */
        if (!has_room && now_ns - fault.start_ns < STALL_LIMIT_NS)
            return;
        pager->stalls_first = (pager->stalls_first + 1) % PAGER_STALLS_MAX;
        pager->stalls_count--;
        pager->stats.stalled_ns += now_ns > fault.stalled_ns ? now_ns - fault.stalled_ns : 0;
        if (has_room)
            pager_fault(pager, fault.page, fault.is_write, fault.thread, fault.start_ns);
        else
            pager_poison(pager, fault.page, "every tier of this node is full; raise option cxl or nvme");
    }
}

/* Messages and atomics whose page could not be asked from the disk yet, or is here now. */
static void waiters_retry(struct pager *pager)
{
    unsigned count = pager->atomics_count;

    pager->is_starved = false;
    for (unsigned i = 0; pager->sends_count > 0 && i < PAGER_SENDS_MAX; i++) {
        struct page_id page = pager->sends[i].message.page;

        if (pager->sends[i].is_used && page_where(pager_entry(pager, page)) == WHERE_NVME)
            pager_fill_start(pager, page, NULL);
    }
    pager->atomics_count = 0; /* those that must wait again come back behind */
    for (unsigned i = 0; i < count; i++) {
        struct page_id page = pager->atomics[i];
        enum page_where where = page_where(pager_entry(pager, page));

        if (where == WHERE_FILLING)
            pager->atomics[pager->atomics_count++] = page;
        else
            pager->config.user.atomic_ready(pager->config.user.context, page);
    }
}

void pager_balance(struct pager *pager)
{
    uint32_t used = pager_frames_used(pager);

    pager->has_evicted = false;
    if (used + pager->marks.low > pager->wanted_frames) {
        for (int round = 0; round < 2 && used + pager->marks.high > pager->wanted_frames; round++) {
            if (pager_evict_some(pager, PAGER_BATCH) == 0)
                break;
            pager->has_evicted = true;
            used = pager_frames_used(pager);
        }
    }
    if (pager->is_shrinking)
        pager_budget_follow(pager);
    demote_some(pager);
    if (pager->is_starved || pager->atomics_count > 0)
        waiters_retry(pager);
    if (pager->stalls_count > 0)
        stalls_answer(pager);
}

uint64_t pager_deadline_ns(const struct pager *pager)
{
    uint64_t shrink_ns = pager_shrink_deadline_ns(pager);
    uint64_t stall_ns = pager->stalls_count > 0 ? os_now_ns() + STALL_RETRY_NS : UINT64_MAX;

    return shrink_ns < stall_ns ? shrink_ns : stall_ns;
}
