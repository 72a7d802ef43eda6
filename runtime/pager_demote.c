/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_demote.c - the oldest pages of CXL memory and of zmem move on to a lower tier while theirs is nearly full.
 *
 * Runs on the shard's thread before it blocks. Pages are copied to a buffer and written from there, so a page that is
 * touched meanwhile is served from its slot as ever: the demotion of that page is cancelled, and what was written for
 * it is put. One batch of a tier is on its way at a time.
 */
#include "runtime/pager_internal.h"

#include <string.h>

#define COMPRESS_MAX 32u /* pages from CXL memory to zmem at a time: compressing holds up faults */

void pager_demotion_cancel(struct pager *pager, enum tier_kind tier, uint32_t slot)
{
    struct demotion *demotion = &pager->demotions[tier];

    for (unsigned i = 0; i < demotion->pages_count; i++)
        if (demotion->slots[i] == slot)
            demotion->cancelled[i] = true;
}

/* ---- to NVMe --------------------------------------------------------------------------------------------------- */

static void demotion_done(struct tier_transfer *transfer, int result)
{
    struct demotion *demotion = transfer->context;
    struct pager *pager = demotion->pager;
    unsigned count = demotion->pages_count;

    pager->is_write_failing = result != 0;
    demotion->pages_count = 0; /* what is put now is not cancelled */
    for (unsigned i = 0; i < count; i++) {
        struct tier_slot to = {transfer->first.index + i};

        if (demotion->cancelled[i] || result != 0) {
            tier_put(pager->config.tiers[TIER_NVME], to);
            continue;
        }
        pager_slot_put(pager, demotion->from, demotion->slots[i]);
        pager_slot_set(pager, pager_entry(pager, demotion->pages[i]), TIER_NVME, to.index);
        if (demotion->from == TIER_ZMEM)
            pager_share_left(pager, demotion->pages[i], pager_entry(pager, demotion->pages[i]));
        pager->stats.moves[demotion->from][DSM_TIER_NVME]++;
    }
    tier_buffers_put(pager->buffers, transfer->memory, transfer->pages_count);
}

/* A page whose checksum is wrong is lost. NULL: it was. */
static const void *page_view(struct pager *pager, enum tier_kind from, uint32_t slot, struct page_id page, void *bounce)
{
    const void *bytes = tier_view(pager->config.tiers[from], (struct tier_slot){slot}, bounce);

    if (bytes == NULL)
        pager_fail(pager, page, pager_damage_text(from));
    return bytes;
}

/* Copies pages of the list to the buffer until it is full. Returns how many. */
static unsigned demotion_load(struct pager *pager, struct demotion *demotion, const struct aged *aged, char *memory,
                              unsigned limit)
{
    unsigned loaded = 0;

    for (unsigned i = 0; i < aged->count && loaded < limit; i++) {
        char *place = memory + loaded * PAGE_BYTES;
        const void *bytes = page_view(pager, demotion->from, aged->slots[i], aged->pages[i], place);

        if (bytes == NULL)
            continue;
        if (bytes != place)
            memcpy(place, bytes, PAGE_BYTES);
        demotion->cancelled[loaded] = false;
        demotion->slots[loaded] = aged->slots[i];
        demotion->pages[loaded++] = aged->pages[i];
    }
    return loaded;
}

/* The slots and the buffer that are not needed after all, from `used` on. */
static void demotion_trim(struct pager *pager, struct tier_slot to, char *memory, unsigned used, unsigned taken)
{
    for (unsigned i = used; i < taken; i++)
        tier_put(pager->config.tiers[TIER_NVME], (struct tier_slot){to.index + i});
    if (used < taken)
        tier_buffers_put(pager->buffers, memory + used * PAGE_BYTES, taken - used);
}

static void demote_to_nvme(struct pager *pager, struct demotion *demotion, const struct aged *aged)
{
    struct tier *nvme = pager->config.tiers[TIER_NVME];
    struct tier_slot to;
    unsigned taken = nvme != NULL && aged->count > 0 ? tier_take(nvme, aged->count, &to) : 0;
    char *memory = taken > 0 ? tier_buffers_take(pager->buffers, taken) : NULL;
    unsigned loaded;

    if (taken == 0)
        return;
    if (memory == NULL) {
        for (unsigned i = 0; i < taken; i++)
            tier_put(nvme, (struct tier_slot){to.index + i});
        return;
    }
    loaded = demotion_load(pager, demotion, aged, memory, taken);
    demotion_trim(pager, to, memory, loaded, taken);
    if (loaded == 0)
        return;
    demotion->pager = pager;
    demotion->pages_count = loaded;
    demotion->transfer = (struct tier_transfer){.first = to,
                                                .pages_count = loaded,
                                                .memory = memory,
                                                .is_write = true,
                                                .done = demotion_done,
                                                .context = demotion};
    tier_transfer_start(nvme, &demotion->transfer);
}

/* ---- to zmem --------------------------------------------------------------------------------------------------- */

/* Leaves in the list what does not compress or finds no room. */
static void demote_to_zmem(struct pager *pager, enum tier_kind from, struct aged *aged)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < aged->count; i++) {
        const void *bytes = page_view(pager, from, aged->slots[i], aged->pages[i], pager->bounce);
        struct tier_slot to;

        if (bytes == NULL)
            continue;
        if (tier_store(pager->config.tiers[TIER_ZMEM], aged->pages[i], bytes, &to) != 0) {
            aged->slots[kept] = aged->slots[i];
            aged->pages[kept++] = aged->pages[i];
            continue;
        }
        pager_slot_put(pager, from, aged->slots[i]);
        pager_slot_set(pager, pager_entry(pager, aged->pages[i]), TIER_ZMEM, to.index);
        pager->stats.moves[from][DSM_TIER_ZMEM]++;
    }
    aged->count = kept;
}

/* ---- one batch ------------------------------------------------------------------------------------------------- */

/* The pages that lie there longest. */
static void aged_find(struct pager *pager, enum tier_kind from, unsigned wanted, struct aged *aged)
{
    struct page_id pages[PAGER_BATCH];
    struct tier_slot first = {0};
    unsigned count = tier_oldest(pager->config.tiers[from], wanted, &first, pages);

    aged->count = 0;
    for (unsigned i = 0; i < count; i++) {
        if (page_is(pages[i], PAGE_NONE))
            continue;
        aged->slots[aged->count] = first.index + i;
        aged->pages[aged->count++] = pages[i];
    }
}

static void demote_from(struct pager *pager, enum tier_kind from)
{
    struct demotion *demotion = &pager->demotions[from];
    struct tier *tier = pager->config.tiers[from];
    struct placement_question question = {.is_clean_copy = false};
    struct aged aged;
    int target;

    if (tier == NULL || demotion->pages_count != 0)
        return;
    if (tier_slots_free(tier) >= pager->tier_low[from] && !(from == TIER_ZMEM && pager_compressed_must_leave(pager)))
        return;
    pager_room(pager, &question);
    target = placement_demotion(pager->placement, &question, from);
    if (target < 0)
        return;
    aged_find(pager, from, target == TIER_ZMEM ? COMPRESS_MAX : PAGER_BATCH, &aged);
    if (target == TIER_ZMEM)
        demote_to_zmem(pager, from, &aged);
    demotion->from = from;
    demote_to_nvme(pager, demotion, &aged);
}

void pager_demote_some(struct pager *pager)
{
    demote_from(pager, TIER_ZMEM); /* first: CXL memory may want its room */
    demote_from(pager, TIER_CXL);
}
