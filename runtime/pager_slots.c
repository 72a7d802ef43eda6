/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_slots.c - slots of the lower tiers, as the pager sees them: whose bytes lie where, and what room there is.
 *
 * Runs on the shard's thread. Always holds: tier_pages[] counts the pages whose `where` names that tier.
 */
#include "runtime/pager_internal.h"

/* CXL memory and zmem give bytes at once; NVMe takes a transfer. */
bool pager_where_is_near(enum page_where where)
{
    return where == WHERE_CXL || where == WHERE_ZMEM;
}

enum tier_kind pager_tier_of(enum page_where where)
{
    ASSERT(pager_where_is_near(where) || where == WHERE_NVME);
    return where == WHERE_CXL ? TIER_CXL : where == WHERE_ZMEM ? TIER_ZMEM : TIER_NVME;
}

/* The page's bytes lie in this slot from now on. */
void pager_slot_set(struct pager *pager, struct page_entry *entry, enum tier_kind tier, uint32_t slot)
{
    static const enum page_where wheres[TIERS] = {
        [TIER_CXL] = WHERE_CXL, [TIER_ZMEM] = WHERE_ZMEM, [TIER_NVME] = WHERE_NVME};

    ASSERT(wheres[tier] != WHERE_NOWHERE);
    page_set_where(entry, wheres[tier], slot);
    pager->tier_pages[tier]++;
}

/* A page's slot is not needed any more: its bytes are elsewhere now, or nowhere. */
void pager_slot_put(struct pager *pager, enum tier_kind tier, uint32_t slot)
{
    pager->tier_pages[tier]--;
    pager_demotion_cancel(pager, tier, slot);
    tier_put(pager->config.tiers[tier], (struct tier_slot){slot});
}

const char *pager_damage_text(enum tier_kind tier)
{
    return tier == TIER_CXL ? "its checksum in the CXL tier is wrong" : "its checksum in the zmem tier is wrong";
}

void pager_forget_clean_slot(struct pager *pager, struct page_entry *entry)
{
    struct frame_note *note;

    if (!page_has(entry, WORD_CLEAN))
        return;
    note = pager_note(pager, entry);
    tier_put(pager->config.tiers[TIER_NVME], (struct tier_slot){note->clean_slot});
    note->clean_slot = UINT32_MAX;
    page_word_change(entry, WORD_CLEAN, 0);
}

/*
 * The slot of a page that was read is kept as a clean copy while there is plenty of room below, and where the page may
 * be mapped read-only for it.
 */
bool pager_keeps_slots(const struct pager *pager)
{
    struct tier_counters counters;

    if (pager->window->pagemap_fd < 0)
        return false;
    tier_counters_get(pager->config.tiers[TIER_NVME], &counters);
    return tier_slots_free(pager->config.tiers[TIER_NVME]) > counters.slots_max / 16;
}

/* What there is room for in the lower tiers. */
void pager_room(const struct pager *pager, struct placement_question *question)
{
    for (int i = TIER_CXL; i < TIERS; i++) {
        struct tier_counters counters;

        if (pager->config.tiers[i] == NULL)
            continue;
        tier_counters_get(pager->config.tiers[i], &counters);
        question->slots_max[i] = counters.slots_max;
        question->slots_free[i] = tier_slots_free(pager->config.tiers[i]);
    }
    if (pager_share_passes_by(pager))
        question->slots_free[TIER_ZMEM] = 0;
}

/* Above what placement keeps free: else nothing would ever move on from there. */
void pager_tier_low_set(struct pager *pager, enum tier_kind tier)
{
    struct tier_counters counters;
    uint64_t slots;

    if (pager->config.tiers[tier] == NULL)
        return;
    tier_counters_get(pager->config.tiers[tier], &counters);
    slots = counters.slots_max < UINT32_MAX ? counters.slots_max : UINT32_MAX;
    pager->tier_low[tier] =
        slots < PLACEMENT_FRAMES_MIN ? 1 : placement_kept_of(slots) + placement_marks_of((uint32_t)slots).low;
}

void pager_tier_pages(struct pager *pager, uint64_t pages[TIERS])
{
    for (int i = TIER_CXL; i < TIERS; i++)
        pages[i] = pager->tier_pages[i];
    pages[TIER_CXL] += pager_far_used(pager);
    pages[TIER_DDR] = pager_frames_used(pager) - pager_compressed_frames(pager) - pager_far_used(pager);
}
