/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_evict.c - bytes out of memory, in batches, off the path of faults.
 *
 * Runs on the shard's thread before it blocks. A page is first unmapped (limbo; a private one by moving it, see
 * pager_limbo.c), so that a touch is seen and rescues it. A batch to CXL memory is copied at once, one to zmem
 * compressed page by page, and what does not compress goes on to NVMe. A batch to NVMe is written from a buffer while
 * the pages are LEAVING: a touch meanwhile takes them back, and the written slot is put.
 */
#include "runtime/pager_internal.h"

#include <errno.h>
#include <string.h>

#define COMPRESS_MIN   16u /* pages compressed at a time, more when most are refused, which is quick: faults wait */
#define REFUSED_MOST    128u /* of 256 */
#define FRESH_AT_A_TIME 64

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

/* Pages that a thread has pinned, or that are not this node's any more, stay. */
static bool can_unmap(struct pager *pager, struct frame_id frame)
{
    if (page_has(frame_entry(pager, frame), WORD_PINS | WORD_REVOKING))
        return false;
    return !(pager->shared_is_shut && pager_is_shared(pager, frame_page(pager, frame)));
}

static void shared_unmap(struct pager *pager, const struct frame_id *frames, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct page_entry *entry = frame_entry(pager, frames[i]);

        page_set_where(entry, WHERE_LIMBO, frames[i].index);
        page_word_change(entry, WORD_WRITABLE, 0);
        pager_share_entered(pager, frames[i]);
        frames_push_tail(pager->frames, frames[i], FRAME_LIMBO);
    }
    if (mmu_zap(pager->mmu, frame_page(pager, frames[0]), count) != 0)
        NEVER("a mapped page can be unmapped");
}

/* How many mapped pages, from the first on, are consecutive and in one extent. */
static unsigned mapped_run(struct pager *pager, const struct frame_id *frames, unsigned count)
{
    struct page_id first = frame_page(pager, frames[0]);
    unsigned left = (unsigned)(EXTENT_PAGES - first.index % EXTENT_PAGES);
    unsigned run = 1;

    while (run < count && run < left && page_is(frame_page(pager, frames[run]), page_of(first.index + run)) &&
           can_unmap(pager, frames[run]) && page_where(frame_entry(pager, frames[run])) == WHERE_MAPPED)
        run++;
    return run;
}

/* Consecutive pages together: the cost of a call is mostly the flush. Returns how many were dealt with. */
unsigned pager_unmap_run(struct pager *pager, const struct frame_id *frames, unsigned count)
{
    bool is_mapped = page_where(frame_entry(pager, frames[0])) == WHERE_MAPPED;
    unsigned run;

    if (!can_unmap(pager, frames[0]) || !is_mapped) {
        frames_push_tail(pager->frames, frames[0], is_mapped ? FRAME_MAPPED : FRAME_LIMBO);
        return 1;
    }
    run = mapped_run(pager, frames, count);
    if (!pager_is_shared(pager, frame_page(pager, frames[0])))
        return pager_limbo_enter(pager, frames, run);
    shared_unmap(pager, frames, run);
    return run;
}

/*
 * The newest mapped pages stay: a thread must get to the page that it faulted on before that is unmapped again, or it
 * faults for ever. Not while somebody waits for room, who may need one of them to go. Returns how many are left.
 */
static unsigned newest_keep(const struct pager *pager, struct frame_id *frames, unsigned count)
{
    uint32_t mapped = frames_count(pager->frames, FRAME_MAPPED) + frames_count(pager->frames, FRAME_TRIAL);
    uint32_t kept = pager->stalls_count == 0 ? pager->marks.low : 0;
    uint32_t spare = mapped > kept ? mapped - kept : 0;
    unsigned left = 0;

    for (unsigned i = 0; i < count; i++) {
        bool is_cold = frames_list(pager->frames, frames[i]) == FRAME_COLD;

        if (!is_cold && spare == 0)
            continue;
        spare -= !is_cold;
        frames[left++] = frames[i];
    }
    return left;
}

static void unmap_some(struct pager *pager, unsigned wanted)
{
    struct frame_id frames[PAGER_BATCH];
    unsigned count =
        placement_unmap(pager->placement, pager->frames, frames, wanted < PAGER_BATCH ? wanted : PAGER_BATCH);

    count = newest_keep(pager, frames, count);
    for (unsigned i = 0; i < count;)
        i += pager_unmap_run(pager, &frames[i], count - i);
}

/* ---- pages that need no copy ----------------------------------------------------------------------------------- */

/*
 * How many of the pages, from the first on, are consecutive: one call of the kernel serves them. Not beyond the extent:
 * private extents may lie in mappings of their own.
 */
static unsigned run_of(struct pager *pager, const struct page_id *pages, unsigned count)
{
    unsigned left = (unsigned)(EXTENT_PAGES - pages[0].index % EXTENT_PAGES);
    uint32_t place = pager_limbo_place(pager, pages[0]);
    unsigned run = 1;

    if (count > left)
        count = left;
    while (run < count && pages[run].index == pages[0].index + run &&
           pager_limbo_place(pager, pages[run]) == (place == PAGER_LIMBO_NONE ? place : place + run))
        run++;
    return run;
}

unsigned pager_take_out(struct pager *pager, struct page_id first, unsigned count, void *staging)
{
    unsigned moved = 0;
    int error = mmu_take_out(pager->mmu, first, count, staging, &moved);

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
    if (pager_limbo_place(pager, first) != PAGER_LIMBO_NONE) {
        pager_limbo_clear(pager, first, count);
        return count;
    }
    moved = pager_take_out(pager, first, count, pager->staging);
    if (moved > 0)
        mmu_staging_clear(pager->mmu, pager->staging, 0, moved);
    return moved;
}

static void clean_left(struct pager *pager, struct page_id page)
{
    struct page_entry *entry = pager_entry(pager, page);
    uint32_t slot = pager_note(pager, entry)->clean_slot;

    pager_frame_left(pager, entry);
    pager_slot_set(pager, entry, TIER_NVME, slot);
    page_word_change(entry, WORD_CLEAN | WORD_WRITABLE, 0);
    pager_share_left(pager, page, entry);
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
        unsigned run = run_of(pager, &pages[i], batch->count - i);
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

static int target_of(struct pager *pager, struct page_id page, const struct placement_question *room)
{
    struct placement_question question = *room;

    if (pager_is_shared(pager, page) &&
        pager->config.user.has_other_copy(pager->config.user.context, page)) {
        question.is_clean_copy = true;
        question.copy_is_remote = true;
    }
    return placement_target(pager->placement, &question);
}

static bool evict_copy(struct pager *pager, struct page_id page, struct page_entry *entry)
{
    bool is_forgotten;

    pager->leaving_copy = page;
    is_forgotten = pager->config.user.forget_copy(pager->config.user.context, page);
    if (is_forgotten) {
        page_set_rights(entry, ACCESS_NONE);
        pager_release_bytes(pager, page, entry);
        pager->stats.dropped_pages++;
    }
    pager->leaving_copy = PAGE_NONE;
    return is_forgotten;
}

/* ---- pages that are copied ------------------------------------------------------------------------------------- */

/* Bytes of a run into `memory`. Returns how many pages; the next one cannot leave now. */
static unsigned run_load(struct pager *pager, struct page_id first, unsigned count, char *memory)
{
    unsigned moved;

    if (pager_is_shared(pager, first))
        return mmu_shared_read(pager->window, first, 0, memory, count * PAGE_BYTES) == 0 ? count : 0;
    if (pager_limbo_place(pager, first) != PAGER_LIMBO_NONE) {
        memcpy(memory, pager_limbo_address(pager, pager_limbo_place(pager, first)), count * PAGE_BYTES);
        pager_limbo_clear(pager, first, count);
        return count;
    }
    moved = pager_take_out(pager, first, count, pager->staging);
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
        unsigned run = run_of(pager, &pages[i], most);
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
    return pager->demotions[TIER_CXL].pages_count != 0 || pager->demotions[TIER_ZMEM].pages_count != 0;
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
        unsigned run = run_of(pager, &pages[i], count - i);

        if (pager_is_shared(pager, pages[i]) && !pager->shared_is_shut && mmu_free(pager->mmu, pages[i], run) != 0)
            log_error("give memory of pages %lu + %u back: the kernel refused", pages[i].index, run);
        i += run;
    }
}

/* The page's bytes are in the slot now, its memory is given back. */
static void page_left(struct pager *pager, struct page_id page, enum tier_kind tier, uint32_t slot)
{
    struct page_entry *entry = pager_entry(pager, page);

    pager_forget_clean_slot(pager, entry);
    pager_frame_left(pager, entry);
    pager_slot_set(pager, entry, tier, slot);
    page_word_change(entry, WORD_WRITABLE, 0);
    pager->stats.moves[DSM_TIER_DDR][tier]++;
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

    pager->is_write_failing = result != 0;
    for (unsigned i = 0; i < eviction->pages_count; i++) {
        uint32_t slot = transfer->first.index + i;

        if (result != 0) {
            eviction_undo(pager, eviction, i);
        } else if (still_leaving(pager, eviction, i)) {
            left[left_count++] = eviction->pages[i];
            page_left(pager, eviction->pages[i], TIER_NVME, slot);
            pager_share_left(pager, eviction->pages[i], pager_entry(pager, eviction->pages[i]));
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
    struct tier *cxl = pager->config.tiers[TIER_CXL];

    tier_seal(cxl, slot, loaded);
    pages_free(pager, eviction->pages, loaded);
    for (unsigned i = 0; i < loaded; i++) {
        tier_owner_set(cxl, (struct tier_slot){slot.index + i}, eviction->pages[i]);
        page_left(pager, eviction->pages[i], TIER_CXL, slot.index + i);
    }
}

/* The pages of the eviction are loaded into the buffer. */
static void eviction_start(struct pager *pager, struct eviction *eviction, struct tier_slot slot, char *memory,
                           unsigned loaded)
{
    unsigned number = (unsigned)(eviction - pager->evictions) + 1;

    eviction->pager = pager;
    eviction->pages_count = loaded;
    eviction->transfer = (struct tier_transfer){.first = slot,
                                                .pages_count = loaded,
                                                .memory = memory,
                                                .is_write = true,
                                                .done = eviction_done,
                                                .context = eviction};
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
    eviction_start(pager, eviction, slot, memory, loaded);
    return loaded;
}

/* ---- pages that are compressed --------------------------------------------------------------------------------- */

/* Each page by itself. What is refused moves to the front of the buffer; returns how many pages that are. */
static unsigned loaded_compress(struct pager *pager, struct eviction *loaded, char *memory, unsigned count)
{
    struct page_id stored[PAGER_BATCH] = {PAGE_NONE};
    unsigned stored_count = 0;
    unsigned kept = 0;

    for (unsigned i = 0; i < count; i++) {
        char *bytes = memory + (size_t)i * PAGE_BYTES;
        struct tier_slot slot;
        int result = tier_store(pager->config.tiers[TIER_ZMEM], loaded->pages[i], bytes, &slot);

        pager->refused_share += (result != 0 ? 16u : 0u) - pager->refused_share / 16;
        if (result == 0) {
            page_left(pager, loaded->pages[i], TIER_ZMEM, slot.index);
            stored[stored_count++] = loaded->pages[i];
            continue;
        }
        if (page_has(pager_entry(pager, loaded->pages[i]), WORD_CLEAN)) { /* NVMe has it still */
            clean_left(pager, loaded->pages[i]);
            stored[stored_count++] = loaded->pages[i];
            continue;
        }
        if (kept < i)
            memcpy(memory + (size_t)kept * PAGE_BYTES, bytes, PAGE_BYTES);
        loaded->frames[kept] = loaded->frames[i];
        loaded->pages[kept++] = loaded->pages[i];
    }
    pages_free(pager, stored, stored_count);
    return kept;
}

/* Loaded pages from `from` on to NVMe. Returns how many; 0: there is no room now, or no such tier. */
static unsigned loaded_write(struct pager *pager, const struct eviction *loaded, char *memory, unsigned from,
                             unsigned count)
{
    struct tier *nvme = pager->config.tiers[TIER_NVME];
    struct eviction *eviction = nvme != NULL ? eviction_find_free(pager) : NULL;
    struct tier_slot slot;
    unsigned slots = eviction != NULL ? tier_take(nvme, count - from, &slot) : 0;

    if (slots == 0)
        return 0;
    memcpy(eviction->frames, &loaded->frames[from], slots * sizeof(loaded->frames[0]));
    memcpy(eviction->pages, &loaded->pages[from], slots * sizeof(loaded->pages[0]));
    eviction_start(pager, eviction, slot, memory + (size_t)from * PAGE_BYTES, slots);
    return slots;
}

/* A loaded page stays after all: a private one gets its bytes back. Offered again after all others. */
static void loaded_return(struct pager *pager, struct frame_id frame, struct page_id page, const char *bytes)
{
    struct page_entry *entry = pager_entry(pager, page);
    int error = 0;

    if (!pager_is_shared(pager, page)) {
        bool writable = pager_want_writable(pager, entry, false);

        page_set_where(entry, WHERE_MAPPED, frame.index);
        page_word_change(entry, 0, writable ? WORD_WRITABLE : 0);
        error = mmu_copy(pager->mmu, page, 1, bytes, writable);
        pager->stats.returned_pages++;
    }
    frame_return(pager, frame, FRAME_MAPPED);
    if (error != 0)
        pager_fail(pager, page, strerror(-error));
}

/*
 * Pages that zmem refuses go on to NVMe. When most are refused and the disk takes no more now, they would be taken out
 * of the program's sight and copied back, round after round.
 */
static bool refused_can_go_on(struct pager *pager)
{
    return pager->refused_share < REFUSED_MOST || pager->config.tiers[TIER_NVME] == NULL ||
           eviction_find_free(pager) != NULL;
}

static unsigned batch_compress(struct pager *pager, const struct batch *batch)
{
    char *memory = refused_can_go_on(pager) ? tier_buffers_take(pager->buffers, batch->count) : NULL;
    struct eviction loaded;
    unsigned count;
    unsigned kept;
    unsigned done = 0;
    unsigned run;
    unsigned next;

    if (memory == NULL) {
        batch_return(pager, batch, 0);
        return 0;
    }
    count = batch_load(pager, batch, 0, batch->count, &loaded, memory, &next);
    kept = loaded_compress(pager, &loaded, memory, count);
    while (done < kept && (run = loaded_write(pager, &loaded, memory, done, kept)) > 0)
        done += run;
    for (unsigned i = done; i < kept; i++)
        loaded_return(pager, loaded.frames[i], loaded.pages[i], memory + (size_t)i * PAGE_BYTES);
    if (done < batch->count) /* what is written has its part of the buffer until then */
        tier_buffers_put(pager->buffers, memory + (size_t)done * PAGE_BYTES, batch->count - done);
    return count - kept + done;
}

static unsigned batch_move(struct pager *pager, const struct batch *batch, int target)
{
    unsigned moved = 0;
    unsigned next = 0;
    unsigned run;

    if (target == TIER_ZMEM)
        return batch_compress(pager, batch);
    while (next < batch->count && (run = batch_move_run(pager, batch, target, &next)) > 0)
        moved += run;
    batch_return(pager, batch, next);
    return moved;
}

/* ---- one round ------------------------------------------------------------------------------------------------- */

static bool claim(struct pager *pager, struct frame_id frame, struct page_entry *entry)
{
    bool is_shared = pager_is_shared(pager, frame_page(pager, frame));
    bool is_in_limbo = is_shared || page_where(entry) == WHERE_LIMBO;

    return !(is_shared && pager->shared_is_shut) && page_claim(entry, is_in_limbo ? WHERE_LIMBO : WHERE_MAPPED);
}

/* A page that was read from NVMe and not written since: used later than those in zmem, if it compresses. */
static bool clean_goes_up(const struct pager *pager, const struct placement_question *room)
{
    return pager_share_is_open(pager) && pager->refused_share < REFUSED_MOST &&
           placement_target(pager->placement, room) == TIER_ZMEM;
}

/* Sorts the pages: clean ones, those to be copied to one target, and those whose copy elsewhere will do (gone now). */
static unsigned round_sort(struct pager *pager, const struct placement_question *room, const struct frame_id *frames,
                           unsigned count, struct batch *clean, struct batch *batch, int *ret_target)
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
        if (page_has(entry, WORD_CLEAN) && !clean_goes_up(pager, room)) {
            clean->frames[clean->count++] = frames[i];
            continue;
        }
        target = target_of(pager, page, room);
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

/*
 * Fresh extents come under management: one that has pages, which can then leave, or several that have none, which only
 * makes room (a program that reserved much and has touched little).
 */
static void fresh_register(struct pager *pager)
{
    for (int i = 0; i < FRESH_AT_A_TIME && pager->fresh_count > 0; i++) {
        uint32_t before = pager_frames_used(pager);

        if (pager_private_register_some(pager) != 0 || pager_frames_used(pager) + EXTENT_PAGES > before ||
            pager_frames_used(pager) + pager->marks.high <= pager->wanted_frames)
            return;
    }
}

/* How many pages leave at a time: compressing is done here and now, and faults wait for it. */
static unsigned round_size(const struct pager *pager, const struct placement_question *room, unsigned wanted)
{
    unsigned size = PAGER_BATCH;

    if (placement_target(pager->placement, room) == TIER_ZMEM)
        size = COMPRESS_MIN + (PAGER_BATCH - COMPRESS_MIN) * pager->refused_share / 256;
    return wanted < size ? wanted : size;
}

/*
 * Twice as many come into limbo as leave it, until the policy has what it wants there. Not while the budget shrinks:
 * others wait for the memory, so what is oldest leaves at once.
 */
static void limbo_fill(struct pager *pager, unsigned wanted)
{
    for (int i = 0; i < 2; i++) {
        uint32_t more = pager->is_shrinking ? 0 : placement_unmap_wanted(pager->placement, pager->frames);
        uint32_t limbo = frames_count(pager->frames, FRAME_LIMBO);

        if (limbo + more < wanted)
            more = wanted - limbo;
        if (more == 0)
            return;
        unmap_some(pager, more);
    }
}

unsigned pager_evict_some(struct pager *pager, unsigned wanted)
{
    struct placement_question room = {.is_clean_copy = false}; /* a page that is nowhere else */
    struct frame_id frames[PAGER_BATCH];
    struct batch batch = {.count = 0};
    struct batch clean = {.count = 0};
    unsigned count;
    unsigned gone;
    int target;

    pager_room(pager, &room);
    wanted = round_size(pager, &room, wanted);
    fresh_register(pager);
    limbo_fill(pager, wanted);
    count = placement_evict(pager->placement, pager->frames, frames, wanted);
    gone = round_sort(pager, &room, frames, count, &clean, &batch, &target);
    gone += clean_leave(pager, &clean);
    if (batch.count > 0)
        gone += batch_move(pager, &batch, target);
    pager_limbo_flush(pager);
    /* Limbo is full of pages that have nowhere to go: behind them may be copies that can be dropped. */
    if (gone == 0 && count > 0)
        unmap_some(pager, PAGER_BATCH);
    return gone;
}

/* ---- before the loop blocks ------------------------------------------------------------------------------------ */

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

static void rounds_run(struct pager *pager)
{
    uint64_t start_ns = os_now_ns();

    for (int round = 0; round < 2 && pager_frames_used(pager) + pager->marks.high > pager->wanted_frames; round++) {
        unsigned gone = pager_evict_some(pager, PAGER_BATCH);

        if (gone == 0)
            break;
        pager->has_evicted = true;
        pager->share.evicted_pages += gone;
    }
    pager->share.evict_ns += os_now_ns() - start_ns;
}

void pager_balance(struct pager *pager)
{
    pager->has_evicted = false;
    if (pager_frames_used(pager) + pager->marks.low > pager->wanted_frames)
        rounds_run(pager);
    pager_spread_some(pager);
    pager_compressed_follow(pager);
    pager_share_follow(pager);
    if (pager->is_shrinking)
        pager_budget_follow(pager);
    pager_demote_some(pager);
    if (pager->needs_count > 0)
        pager_needs_follow(pager);
    if (pager->is_starved || pager->atomics_count > 0)
        waiters_retry(pager);
    if (pager->stalls_count > 0)
        pager_stalls_answer(pager);
}

uint64_t pager_deadline_ns(const struct pager *pager)
{
    uint64_t shrink_ns = pager_shrink_deadline_ns(pager);
    uint64_t spread_ns = pager_spread_deadline_ns(pager);
    uint64_t stall_ns = pager_stall_deadline_ns(pager);

    if (spread_ns < shrink_ns)
        shrink_ns = spread_ns;
    return shrink_ns < stall_ns ? shrink_ns : stall_ns;
}
