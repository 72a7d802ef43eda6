/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_fill.c - bytes into memory: faults on pages to which this node has the rights.
 *
 * Runs on the shard's thread and never waits: what needs the disk becomes a fill, what needs a frame that is not there
 * becomes a stalled fault, and other pages' faults go on meanwhile.
 */
#include "runtime/pager_internal.h"

#include <errno.h>
#include <string.h>

#define FIRST_READ_PAGES 32 /* a long run is read in two transfers, so that the demanded page does not wait for all */
#define PARKED_MAX      16 /* triggers held in buffers at a time */

uint32_t pager_frames_used(const struct pager *pager)
{
    return pager->table_frames - frames_count(pager->frames, FRAME_FREE) +
           (uint32_t)(pager->fresh_pages + pager->kept_pages) + pager_compressed_frames(pager);
}

bool pager_frame_take(struct pager *pager, struct page_id page, struct frame_id *ret_frame)
{
    struct frame_id frame = frames_take(pager->frames, page);

    if (frame.index == FRAME_NONE.index)
        return false;
    pager->notes[frame.index] = (struct frame_note){.clean_slot = UINT32_MAX};
    *ret_frame = frame;
    return true;
}

void pager_frame_attach(struct pager *pager, struct page_entry *entry, struct frame_id frame, enum page_where where,
                        bool prefetched)
{
    ASSERT(!page_is_in_memory(entry)); /* a page has one frame */
    page_set_where(entry, where, frame.index);
    pager_spread_inserted(pager, frame);
    placement_inserted(pager->placement, pager->frames, frame, prefetched);
    if (prefetched)
        pager_ahead_placed(pager, frame, where == WHERE_LIMBO ? AHEAD_SEEN : AHEAD_BLIND);
    else if (where == WHERE_LIMBO)
        frames_push_tail(pager->frames, frame, FRAME_LIMBO);
}

/* Room for one more page that a fault wants; replies do not ask. */
static bool demand_has_room(struct pager *pager)
{
    if (pager_frames_used(pager) < pager->budget_frames)
        return true;
    pager_evict_some(pager, PAGER_BATCH);
    return pager_frames_used(pager) < pager->budget_frames;
}

static void record(struct pager *pager, enum dsm_source source, const struct stalled_fault *fault)
{
    if (fault != NULL && fault->thread != 0)
        pager_touched(pager, source, fault->page, fault->is_write, fault->start_ns);
}

/* ---- the page is in memory already ----------------------------------------------------------------------------- */

static int mapped_serve(struct pager *pager, struct page_id page, struct page_entry *entry, bool is_write)
{
    bool writable;

    if (is_write && page_has(entry, WORD_CLEAN))
        pager_guess_written(pager, page);
    if (is_write)
        pager_forget_clean_slot(pager, entry);
    writable = pager_want_writable(pager, entry, is_write);
    if (!writable || page_has(entry, WORD_WRITABLE)) {
        mmu_wake(pager->mmu, page, 1);
        return 0;
    }
    page_word_change(entry, 0, WORD_WRITABLE);
    return mmu_protect(pager->mmu, page, 1, true);
}

static int limbo_serve(struct pager *pager, struct page_id page, struct page_entry *entry, bool is_write)
{
    struct frame_id frame = {entry->place};
    bool writable;

    if (is_write)
        pager_forget_clean_slot(pager, entry);
    writable = pager_want_writable(pager, entry, is_write);
    pager->notes[frame.index].eviction = 0;
    page_set_where(entry, WHERE_MAPPED, frame.index);
    page_word_change(entry, 0, writable ? WORD_WRITABLE : 0);
    pager_soft_hit(pager, frame);
    return mmu_continue(pager->mmu, page, 1, writable);
}

/* Private and on its way to NVMe: the buffer of the eviction holds the bytes. */
static int leaving_private_serve(struct pager *pager, struct page_id page, struct page_entry *entry)
{
    struct frame_note *note = pager_note(pager, entry);
    struct eviction *eviction = &pager->evictions[note->eviction - 1];
    const char *bytes = eviction->transfer.memory;
    struct frame_id frame = {entry->place};
    unsigned i = 0;

    while (!page_is(eviction->pages[i], page))
        i++;
    note->eviction = 0;
    page_set_where(entry, WHERE_MAPPED, frame.index);
    page_word_change(entry, 0, WORD_WRITABLE);
    pager_soft_hit(pager, frame);
    return mmu_copy(pager->mmu, page, 1, bytes + i * PAGE_BYTES, true);
}

/* ---- the page is in a lower tier, or nowhere ------------------------------------------------------------------- */

/* The page is published when its bytes are there: from then on threads may pin it and copy. */
static int frame_settle(struct pager *pager, struct page_entry *entry, struct frame_id frame, enum page_where where,
                        bool writable, bool prefetched, int error)
{
    if (error != 0) {
        frames_put(pager->frames, frame);
        return error;
    }
    pager_frame_attach(pager, entry, frame, where, prefetched);
    page_word_change(entry, 0, writable ? WORD_WRITABLE : 0);
    return 0;
}

static int zero_serve(struct pager *pager, struct page_id page, struct page_entry *entry)
{
    bool writable = page_rights(entry) == ACCESS_WRITE;
    unsigned run = pager_is_shared(pager, page) ? 1 : pager_new_run(pager, page);
    struct frame_id frame;

    if (run > 1 && pager_new_pages(pager, page, run) == 0)
        return 0;
    if (!pager_frame_take(pager, page, &frame))
        return -ENOMEM;
    return frame_settle(pager, entry, frame, WHERE_MAPPED, writable, false,
                        mmu_zero(pager->mmu, page, 1, writable));
}

/* Consecutive pages that have frames, unmapped. Returns how many; 0: no room in limbo, or refused. */
static unsigned place_unmapped(struct pager *pager, struct page_id first, const struct frame_id *frames, unsigned count,
                               const void *bytes)
{
    if (!pager_is_shared(pager, first))
        return pager_limbo_fill(pager, frames, count, bytes);
    return mmu_shared_write(pager->window, first, 0, bytes, count * PAGE_BYTES) == 0 ? count : 0;
}

/* Shared bytes for which no thread of this node has rights now stay unmapped. */
static int place_bytes(struct pager *pager, struct page_id page, struct page_entry *entry, const void *bytes,
                       enum placing placing)
{
    bool writable = pager_want_writable(pager, entry, placing == PLACE_WRITE);
    struct frame_id frame;

    if (!pager_frame_take(pager, page, &frame))
        return -ENOMEM;
    if (page_rights(entry) == ACCESS_NONE)
        return frame_settle(pager, entry, frame, WHERE_LIMBO, false, false,
                            mmu_shared_write(pager->window, page, 0, bytes, PAGE_BYTES));
    if (placing == PLACE_SEEN && place_unmapped(pager, page, &frame, 1, bytes) == 1)
        return frame_settle(pager, entry, frame, WHERE_LIMBO, false, true, 0);
    return frame_settle(pager, entry, frame, WHERE_MAPPED, writable, placing >= PLACE_BLIND,
                        mmu_copy(pager->mmu, page, 1, bytes, writable));
}

/* CXL memory, or zmem through a buffer: at once. */
int pager_near_serve(struct pager *pager, struct page_id page, struct page_entry *entry, enum placing placing)
{
    enum tier_kind tier = pager_tier_of(page_where(entry));
    uint32_t slot = entry->place;
    const void *bytes = tier_view(pager->config.tiers[tier], (struct tier_slot){slot}, pager->bounce);
    int error;

    if (bytes == NULL)
        return -EBADMSG;
    error = place_bytes(pager, page, entry, bytes, placing);
    if (error == 0) {
        pager_slot_put(pager, tier, slot);
        pager->stats.moves[tier][DSM_TIER_DDR]++;
    }
    return error;
}

/* ---- reads from NVMe ------------------------------------------------------------------------------------------- */

static struct fill *fill_find_free(struct pager *pager)
{
    for (unsigned i = 0; i < PAGER_FILLS_MAX; i++)
        if (pager->fills[i].pages_count == 0)
            return &pager->fills[i];
    return NULL;
}

/* How many pages from `first` on lie in consecutive NVMe slots, `limit` at most. */
unsigned pager_run_length(struct pager *pager, struct page_id first, unsigned limit)
{
    struct page_entry *entry = table_find(pager->pages, first);
    uint32_t slot;
    unsigned count = 0;

    if (entry == NULL || page_where(entry) != WHERE_NVME)
        return 0;
    slot = entry->place;
    while (count < limit && entry != NULL && page_where(entry) == WHERE_NVME && entry->place == slot + count &&
           !page_has(entry, WORD_POISONED)) {
        count++;
        entry = table_find(pager->pages, page_of(first.index + count));
    }
    return count;
}

static void fill_done(struct tier_transfer *transfer, int result);

/* false: no fill or buffer is free now. */
bool pager_fill_run(struct pager *pager, struct page_id first, unsigned pages_count,
                     const struct stalled_fault *fault, const struct prefetch_run *run)
{
    struct fill *fill = fill_find_free(pager);
    struct page_entry *entry = pager_entry(pager, first);
    void *memory = fill != NULL ? tier_buffers_take(pager->buffers, pages_count) : NULL;

    if (memory == NULL)
        return false;
    *fill = (struct fill){
        .pager = pager,
        .first = first,
        .pages_count = pages_count,
        .demanded = fault != NULL ? fault->page : PAGE_NONE,
        .start_ns = fault != NULL ? fault->start_ns : 0,
        .trigger = run != NULL && run->count > 0 ? run->trigger : PAGE_NONE,
        .is_watched = run != NULL && run->is_watched,
        .is_write = fault != NULL && fault->is_write,
    };
    fill->transfer = (struct tier_transfer){
        .first = {entry->place},
        .pages_count = pages_count,
        .memory = memory,
        .done = fill_done,
        .context = fill,
    };
    for (unsigned i = 0; i < pages_count; i++)
        page_set_where(pager_entry(pager, page_of(first.index + i)), WHERE_FILLING, (uint32_t)(fill - pager->fills));
    pager->tier_pages[TIER_NVME] -= pages_count;
    tier_transfer_start(pager->config.tiers[TIER_NVME], &fill->transfer);
    return true;
}

/*
 * The demanded page and what prefetch adds. Pages right behind it come with it in one transfer, but not too many: the
 * thread waits for all of that transfer.
 */
void pager_fill_start(struct pager *pager, struct page_id page, const struct stalled_fault *fault)
{
    struct prefetch_plan plan = {.runs_count = 0};
    struct prefetch_run *run = &plan.runs[0];
    unsigned length = 1;

    if (fault != NULL)
        pager_predict(pager, page, fault->thread, &plan);
    if (plan.runs_count > 0 && run->stride == 1 && run->first.index == page.index + 1) {
        length = run->count + 1 < FIRST_READ_PAGES ? run->count + 1 : FIRST_READ_PAGES;
        length = length < pager_prefetch_room(pager) ? length : pager_prefetch_room(pager);
        length = pager_run_length(pager, page, length > 0 ? length : 1);
    }
    if (!pager_fill_run(pager, page, length, fault, plan.runs_count > 0 ? run : NULL)) {
        pager_plan_cut(pager, &plan, 0);
        if (fault != NULL)
            pager_stall(pager, fault);
        else
            pager->is_starved = true;
        return;
    }
    pager->stats.prefetched_pages += length - 1;
    if (length > 1) {
        run->first.index += length - 1;
        run->count -= length - 1;
    }
    pager_prefetch_start(pager, &plan);
}

static const char *fill_bytes(const struct fill *fill, unsigned i)
{
    return (const char *)fill->transfer.memory + (size_t)i * PAGE_BYTES;
}

static void sends_serve(struct pager *pager, struct page_id page, const void *bytes)
{
    for (unsigned i = 0; pager->sends_count > 0 && i < PAGER_SENDS_MAX; i++) {
        struct pending_send *send = &pager->sends[i];

        if (!send->is_used || !page_is(send->message.page, page))
            continue;
        send->is_used = false;
        pager->sends_count--;
        if (bytes == NULL)
            send->message.flags |= MESSAGE_POISONED;
        pager->config.user.send_bytes(pager->config.user.context, send->to, &send->message, bytes);
    }
}

static void slot_settle(struct pager *pager, struct page_entry *entry, uint32_t slot, bool keep)
{
    if (!keep) {
        tier_put(pager->config.tiers[TIER_NVME], (struct tier_slot){slot});
        return;
    }
    pager_note(pager, entry)->clean_slot = slot;
    page_word_change(entry, 0, WORD_CLEAN);
}

/* One page of a fill: to memory, mapped when this node has rights. */
static int fill_place(struct pager *pager, struct fill *fill, unsigned i, bool keep)
{
    struct page_id page = page_of(fill->first.index + i);
    struct page_entry *entry = pager_entry(pager, page);
    uint32_t slot = fill->transfer.first.index + i;
    bool is_write = fill->is_write && page_is(page, fill->demanded);
    int error;

    page_set_where(entry, WHERE_NOWHERE, 0);
    keep = keep && !is_write;
    page_word_change(entry, 0, keep ? WORD_CLEAN : 0); /* so that it is mapped read-only */
    error = place_bytes(pager, page, entry, fill_bytes(fill, i), is_write ? PLACE_WRITE : PLACE_READ);
    if (error != 0) {
        page_word_change(entry, WORD_CLEAN, 0);
        pager_slot_set(pager, entry, TIER_NVME, slot);
        mmu_wake(pager->mmu, page, 1); /* whoever waits faults again, and stalls */
        return error;
    }
    slot_settle(pager, entry, slot, keep);
    if (keep || is_write)
        pager_guess_kept(pager, page);
    if (is_write)
        pager_guess_written(pager, page);
    pager->stats.moves[DSM_TIER_NVME][DSM_TIER_DDR]++;
    return 0;
}

static bool fill_keeps(const struct fill *fill, struct page_id page)
{
    return fill->keeps_slots && !pager_guess_writes(fill->pager, page);
}

/* The page stays unmapped, so that its first touch is seen. */
static bool fill_sees(const struct fill *fill, unsigned i)
{
    return fill->is_watched && !fill->touched[i] && !page_is(page_of(fill->first.index + i), fill->demanded);
}

/* How many pages of a fill, from one on, can be placed in one call of the kernel; a frame is taken for each. */
static unsigned run_frames(struct pager *pager, struct fill *fill, unsigned from, unsigned end, bool keep,
                           struct frame_id *frames)
{
    bool is_seen = fill_sees(fill, from);
    unsigned count = 0;

    while (from + count < end && !fill->cancelled[from + count]) {
        struct page_id page = page_of(fill->first.index + from + count);
        enum access access = page_rights(pager_entry(pager, page));

        if (page_is(page, fill->trigger) || (fill->is_write && page_is(page, fill->demanded)) ||
            fill_sees(fill, from + count) != is_seen || access < (keep ? ACCESS_READ : ACCESS_WRITE) ||
            fill_keeps(fill, page) != keep || !pager_frame_take(pager, page, &frames[count]))
            break;
        count++;
    }
    return count;
}

/* The page is placed. Before it can be pinned: nobody may write it while the slot is kept. */
static void run_page_placed(struct pager *pager, struct page_id page, struct frame_id frame, uint32_t slot, bool keep,
                            enum page_where where, bool prefetched)
{
    struct page_entry *entry = pager_entry(pager, page);

    page_word_change(entry, 0, keep ? WORD_CLEAN : where == WHERE_MAPPED ? WORD_WRITABLE : 0);
    if (keep) {
        pager->notes[frame.index].clean_slot = slot;
        pager_guess_kept(pager, page);
    }
    pager_frame_attach(pager, entry, frame, where, prefetched);
    if (!keep)
        tier_put(pager->config.tiers[TIER_NVME], (struct tier_slot){slot});
}

/*
 * A run of pages whose slots are all kept, or none, and that are all mapped, or none. Returns how many; 0: one by one.
 */
static unsigned fill_place_run(struct pager *pager, struct fill *fill, unsigned from, unsigned end, bool keep)
{
    struct page_id first = page_of(fill->first.index + from);
    struct frame_id frames[PAGER_RUN_MAX];
    bool is_seen = fill_sees(fill, from);
    unsigned taken = run_frames(pager, fill, from, end, keep, frames);
    unsigned count = taken;

    if (taken == 0)
        return 0;
    if (is_seen)
        count = place_unmapped(pager, first, frames, taken, fill_bytes(fill, from));
    else if (mmu_copy(pager->mmu, first, taken, fill_bytes(fill, from), !keep) != 0)
        count = 0;
    while (taken > count)
        frames_put(pager->frames, frames[--taken]);
    for (unsigned i = 0; i < count; i++)
        run_page_placed(pager, page_of(first.index + i), frames[i], fill->transfer.first.index + from + i, keep,
                        is_seen ? WHERE_LIMBO : WHERE_MAPPED,
                        is_seen || !(fill->touched[from + i] || page_is(page_of(first.index + i), fill->demanded)));
    pager->stats.moves[DSM_TIER_NVME][DSM_TIER_DDR] += count;
    return count;
}

/* Page i of a fill, or a run from there on up to `end`. Returns how many were dealt with. */
static unsigned fill_deliver_some(struct pager *pager, struct fill *fill, unsigned i, unsigned end)
{
    struct page_id page = page_of(fill->first.index + i);
    unsigned placed;
    int error;

    if (fill->cancelled[i]) {
        tier_put(pager->config.tiers[TIER_NVME], (struct tier_slot){fill->transfer.first.index + i});
        return 1;
    }
    placed = fill_place_run(pager, fill, i, end, fill_keeps(fill, page));
    if (placed > 0)
        return placed;
    error = fill_place(pager, fill, i, fill->keeps_slots);
    if (error != 0 && error != -ENOMEM)
        pager_fail(pager, page, strerror(-error));
    return 1;
}

/* true: the trigger stays in a buffer of one page, and the fill with it. */
static bool fill_park(struct pager *pager, struct fill *fill, unsigned i)
{
    char *memory;

    if (fill->cancelled[i] || page_is(fill->trigger, fill->demanded) || pager->parked_count == PARKED_MAX)
        return false;
    memory = tier_buffers_take(pager->buffers, 1);
    if (memory == NULL)
        return false;
    memcpy(memory, fill_bytes(fill, i), PAGE_BYTES);
    fill->spoken = fill->pages_count - 1;
    pager->unused_frames += fill->spoken;
    fill->first = fill->trigger;
    fill->transfer.first.index += i;
    fill->transfer.memory = memory;
    fill->pages_count = fill->transfer.pages_count = 1;
    fill->cancelled[0] = false;
    fill->is_parked = true;
    pager->parked_count++;
    return true;
}

static void unpark_oldest(struct pager *pager)
{
    for (;;) {
        struct fill *fill = &pager->fills[pager->parked_hand++ % PAGER_FILLS_MAX];

        if (fill->pages_count == 0 || !fill->is_parked)
            continue;
        prefetch_wasted(pager->prefetch, fill->first);
        pager->stats.prefetch_unused += 1 + fill->spoken;
        pager_unpark(pager, fill, NULL);
        return;
    }
}

/* true: the fill goes on, holding its trigger. */
static bool fill_deliver(struct pager *pager, struct fill *fill)
{
    unsigned trigger = PAGER_RUN_MAX;
    unsigned i = 0;

    fill->keeps_slots = pager_keeps_slots(pager);
    while (i < fill->pages_count) {
        if (page_is(page_of(fill->first.index + i), fill->trigger))
            trigger = i++;
        else
            i += fill_deliver_some(pager, fill, i, fill->pages_count);
    }
    if (trigger == PAGER_RUN_MAX)
        return false;
    if (pager->parked_count == PARKED_MAX)
        unpark_oldest(pager);
    if (fill_park(pager, fill, trigger))
        return true;
    fill->trigger = PAGE_NONE;
    fill_deliver_some(pager, fill, trigger, trigger + 1);
    return false;
}

/* The page is wanted, or its buffer is. */
void pager_unpark(struct pager *pager, struct fill *fill, const struct stalled_fault *fault)
{
    struct page_id page = fill->first;
    void *memory = fill->transfer.memory;

    fill->is_parked = false;
    pager->parked_count--;
    pager->unused_frames -= fill->spoken;
    pager->stats.prefetch_hits += fault != NULL && fault->thread != 0 ? fill->spoken : 0;
    fill->trigger = PAGE_NONE;
    fill->demanded = fault != NULL ? page : PAGE_NONE;
    fill->is_write = fault != NULL && fault->is_write;
    fill->keeps_slots = pager_keeps_slots(pager);
    fill_deliver_some(pager, fill, 0, 1);
    fill->pages_count = 0;
    tier_buffers_put(pager->buffers, memory, 1);
    if (fault != NULL && fault->thread != 0)
        pager_predicted_touch(pager, fault, false);
}

/* Something in the run could not be read: find out which, one page at a time. */
static void fill_retry_singly(struct pager *pager, struct fill *fill)
{
    struct stalled_fault fault = {.page = fill->demanded, .start_ns = fill->start_ns, .is_write = fill->is_write};

    for (unsigned i = 0; i < fill->pages_count; i++) {
        struct page_id page = page_of(fill->first.index + i);
        uint32_t slot = fill->transfer.first.index + i;

        if (fill->cancelled[i]) {
            tier_put(pager->config.tiers[TIER_NVME], (struct tier_slot){slot});
            continue;
        }
        pager_slot_set(pager, pager_entry(pager, page), TIER_NVME, slot);
    }
    for (unsigned i = 0; i < fill->pages_count; i++) {
        struct page_id page = page_of(fill->first.index + i);

        if (fill->cancelled[i] || page_where(pager_entry(pager, page)) != WHERE_NVME)
            continue;
        if (!pager_fill_run(pager, page, 1, page_is(page, fill->demanded) ? &fault : NULL, NULL)) {
            mmu_wake(pager->mmu, page, 1);
            pager->is_starved = true;
        }
    }
}

static void fill_fail(struct pager *pager, struct fill *fill)
{
    struct page_id page = fill->first;

    sends_serve(pager, page, NULL);
    if (fill->cancelled[0]) {
        tier_put(pager->config.tiers[TIER_NVME], fill->transfer.first);
        return;
    }
    page_set_where(pager_entry(pager, page), WHERE_NOWHERE, 0);
    tier_put(pager->config.tiers[TIER_NVME], fill->transfer.first);
    pager_fail(pager, page, "it cannot be read from the NVMe tier");
}

static void fill_done(struct tier_transfer *transfer, int result)
{
    struct fill *fill = transfer->context;
    struct pager *pager = fill->pager;
    struct fill finished = *fill;
    bool goes_on = false;
    struct stalled_fault fault = {
        .page = finished.demanded, .start_ns = finished.start_ns, .thread = 1, .is_write = finished.is_write};

    for (unsigned i = 0; result == 0 && i < finished.pages_count; i++)
        sends_serve(pager, page_of(finished.first.index + i), fill_bytes(&finished, i));
    if (result == 0) {
        goes_on = fill_deliver(pager, fill);
        if (!page_is(finished.demanded, PAGE_NONE))
            record(pager, DSM_FROM_NVME, &fault);
    } else if (finished.pages_count == 1) {
        fill_fail(pager, fill);
    } else {
        fill_retry_singly(pager, fill);
    }
    if (!goes_on)
        fill->pages_count = 0;
    tier_buffers_put(pager->buffers, finished.transfer.memory, finished.pages_count);
}

/* ---- a fault, by where the bytes are --------------------------------------------------------------------------- */

static void join_fill(struct pager *pager, struct page_entry *entry, const struct stalled_fault *fault)
{
    struct fill *fill = &pager->fills[entry->place];
    bool is_first;

    if (fault == NULL)
        return;
    is_first = page_is(fill->demanded, PAGE_NONE);
    if (fill->is_watched) {
        bool *touched = &fill->touched[fault->page.index - fill->first.index];

        is_first = fault->thread != 0 && !*touched && !page_is(fill->demanded, fault->page);
        *touched = true;
    }
    if (page_is(fill->demanded, PAGE_NONE)) {
        fill->demanded = fault->page;
        fill->start_ns = fault->start_ns;
        fill->is_write = fault->is_write;
    }
    if (is_first)
        pager_predicted_touch(pager, fault, true);
}

static int serve_in_memory(struct pager *pager, struct page_entry *entry, struct page_id page, bool is_write)
{
    enum page_where where = page_where(entry);

    if (where == WHERE_MAPPED)
        return mapped_serve(pager, page, entry, is_write);
    if (where == WHERE_LEAVING && !pager_is_shared(pager, page))
        return leaving_private_serve(pager, page, entry);
    if (!pager_is_shared(pager, page))
        return pager_limbo_rescue(pager, page, entry, is_write);
    return limbo_serve(pager, page, entry, is_write);
}

/*
 * true: the page is in memory when this returns. false: it comes later, is stalled for want of a frame, or is lost.
 * fault NULL: nobody waits; the bytes are wanted in memory only.
 */
bool pager_bring(struct pager *pager, struct page_id page, const struct stalled_fault *fault)
{
    struct page_entry *entry = pager_entry(pager, page);
    enum page_where where = page_where(entry);
    enum dsm_source source = DSM_FROM_DDR;
    bool is_write = fault != NULL && fault->is_write;
    bool is_ahead = fault != NULL && fault->thread != 0 && pager_ahead_is_seen(pager, entry);
    int error;

    if (where == WHERE_FILLING) {
        struct fill *fill = &pager->fills[entry->place];

        if (!fill->is_parked) {
            join_fill(pager, entry, fault);
            return false;
        }
        pager_unpark(pager, fill, fault);
        record(pager, DSM_FROM_NVME, fault);
        return page_is_in_memory(entry);
    }
    /* A page with a slot may always change places with one in DDR: reading it frees the slot. A new page may not. */
    if (!page_is_in_memory(entry) && fault != NULL && !demand_has_room(pager) &&
        (where == WHERE_NOWHERE || pager_is_crowded(pager))) {
        pager_stall(pager, fault);
        return false;
    }
    if (where == WHERE_NVME) {
        if (fault != NULL && fault->thread != 0)
            pager_share_read(pager, entry);
        pager_fill_start(pager, page, fault);
        return false;
    }
    if (pager_where_is_near(where)) {
        source = where == WHERE_CXL ? DSM_FROM_CXL : DSM_FROM_ZMEM;
        error = pager_near_serve(pager, page, entry, is_write ? PLACE_WRITE : PLACE_READ);
    } else if (where == WHERE_NOWHERE) {
        source = DSM_FROM_ZERO;
        error = zero_serve(pager, page, entry);
    } else {
        error = fault != NULL ? serve_in_memory(pager, entry, page, is_write) : 0;
    }
    if (error == -ENOMEM) {
        if (fault != NULL)
            pager_stall(pager, fault);
        return false;
    }
    if (error != 0) {
        pager_fail(pager, page, error == -EBADMSG ? pager_damage_text(pager_tier_of(where)) : strerror(-error));
        return false;
    }
    record(pager, source, fault);
    if (is_ahead)
        pager_predicted_touch(pager, fault, false);
    if (pager_where_is_near(where) && fault != NULL) {
        struct prefetch_plan plan;

        pager_predict(pager, page, fault->thread, &plan);
        pager_prefetch_start(pager, &plan);
    }
    return true;
}

void pager_fault(struct pager *pager, struct page_id page, bool is_write, uint32_t thread, uint64_t start_ns)
{
    struct stalled_fault fault = {.page = page, .start_ns = start_ns, .thread = thread, .is_write = is_write};
    struct page_entry *entry = pager_entry(pager, page);

    /* Rights may have gone since the thread faulted, or stalled: it then faults again and asks the protocol. */
    if (entry == NULL || page_has(entry, WORD_POISONED) ||
        page_rights(entry) < (is_write ? ACCESS_WRITE : ACCESS_READ)) {
        mmu_wake(pager->mmu, page, 1);
        return;
    }
    pager_bring(pager, page, &fault);
}
