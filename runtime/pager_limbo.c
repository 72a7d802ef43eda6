/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_limbo.c - the limbo of private pages: moved out of the application's sight, into places of an area of ours. A
 * touch brings the page back and counts as a hit; what is not touched leaves from there.
 *
 * Shared pages need none of this: they are unmapped and stay in the memfd. It takes UFFDIO_MOVE; without it private
 * pages stay mapped until they leave, and their touches are not seen. Places are given out around a ring, so that pages
 * that come together lie together, and leave in one call of the kernel.
 *
 * Always holds: a private page that is WHERE_LIMBO has a place, which is in its frame's note, and nothing else has one.
 */
#include "runtime/pager_internal.h"

#include <string.h>

#define SEARCH_MAX  1024u /* places that are looked at for a free one */
#define LIMBO_SHARE 2u    /* of the frames: the places; policies want three tenths at most */

void *pager_limbo_address(const struct pager *pager, uint32_t place)
{
    return (char *)pager->limbo + (size_t)place * PAGE_BYTES;
}

uint32_t pager_limbo_place(struct pager *pager, struct page_id page)
{
    const struct page_entry *entry = pager_entry(pager, page);

    return page_where(entry) == WHERE_LIMBO ? pager->notes[entry->place].limbo - 1 : PAGER_LIMBO_NONE;
}

/* As many as there were at first; the last may be given up later. */
static uint32_t places_reserved(const struct pager *pager)
{
    return pager->table_frames / LIMBO_SHARE + PAGER_BATCH;
}

/* Without an area there is no limbo, and all else works. */
int pager_limbo_create(struct pager *pager)
{
    uint32_t places = places_reserved(pager);
    void *memory;
    int error;

    if (!mmu_features(pager->mmu)->has_move)
        return 0;
    error = os_pages_map(places, &memory);
    if (error != 0)
        return error;
    pager->limbo_taken = memory;
    pager->limbo_places = places;
    if (mmu_staging_create(pager->mmu, places, &pager->limbo) != 0)
        pager->limbo = NULL;
    return 0;
}

void pager_limbo_destroy(struct pager *pager)
{
    os_pages_unmap(pager->limbo_taken, places_reserved(pager));
}

/* Consecutive free places, `wanted` at most. More are in play than a policy fills: the ring seldom meets a used one. */
static unsigned places_take(struct pager *pager, unsigned wanted, uint32_t *ret_first)
{
    uint32_t in_play = pager->wanted_frames / LIMBO_SHARE + 2 * PAGER_BATCH;
    unsigned count = 0;

    ASSERT(pager->limbo_emptied.count == 0); /* it may span free places */
    if (in_play > pager->limbo_places)
        in_play = pager->limbo_places;
    for (unsigned looked = 0; looked < SEARCH_MAX; looked++, pager->limbo_cursor++) {
        if (pager->limbo_cursor >= in_play)
            pager->limbo_cursor = 0;
        if (!pager->limbo_taken[pager->limbo_cursor])
            break;
    }
    *ret_first = pager->limbo_cursor;
    while (count < wanted && *ret_first + count < in_play && !pager->limbo_taken[*ret_first + count])
        count++;
    pager->limbo_cursor += count;
    return count;
}

/* What the present budget has no use for; limbo stays so small under a larger one. */
void pager_addresses_limit(struct pager *pager)
{
    uint32_t places = pager->wanted_frames / LIMBO_SHARE + 2 * PAGER_BATCH;

    if (pager->limbo == NULL)
        return;
    pager_limbo_flush(pager);
    for (uint32_t i = places; i < pager->limbo_places; i++)
        if (pager->limbo_taken[i])
            places = i + 1;
    if (places >= pager->limbo_places)
        return;
    pager->limbo_places = places;
    mmu_staging_limit(pager->mmu, pager->limbo, places);
}

static void page_entered(struct pager *pager, struct frame_id frame, uint32_t place)
{
    struct page_entry *entry = pager_entry(pager, frames_page(pager->frames, frame));

    pager->limbo_taken[place] = true;
    pager->notes[frame.index].limbo = place + 1;
    page_set_where(entry, WHERE_LIMBO, frame.index);
    page_word_change(entry, WORD_WRITABLE, 0);
    pager_share_entered(pager, frame);
    frames_push_tail(pager->frames, frame, FRAME_LIMBO);
}

unsigned pager_limbo_enter(struct pager *pager, const struct frame_id *frames, unsigned count)
{
    struct page_id first = frames_page(pager->frames, frames[0]);
    uint32_t place = 0;
    unsigned places = pager->limbo != NULL ? places_take(pager, count, &place) : 0;
    unsigned moved = 0;

    if (places == 0) { /* no limbo: they stay mapped until they leave */
        for (unsigned i = 0; i < count; i++)
            frames_push_tail(pager->frames, frames[i], FRAME_LIMBO);
        return count;
    }
    moved = pager_take_out(pager, first, places, pager_limbo_address(pager, place));
    for (unsigned i = 0; i < moved; i++)
        page_entered(pager, frames[i], place + i);
    if (moved == places)
        return moved;
    frames_push_tail(pager->frames, frames[moved], FRAME_MAPPED); /* pinned, for example */
    return moved + 1;
}

unsigned pager_limbo_fill(struct pager *pager, const struct frame_id *frames, unsigned count, const void *bytes)
{
    uint32_t place = 0;
    unsigned places = pager->limbo != NULL ? places_take(pager, count, &place) : 0;

    if (places == 0 || mmu_staging_fill(pager->mmu, pager_limbo_address(pager, place), bytes, places) != 0)
        return 0;
    for (unsigned i = 0; i < places; i++) {
        pager->limbo_taken[place + i] = true;
        pager->notes[frames[i].index].limbo = place + i + 1;
    }
    return places;
}

static void places_put(struct pager *pager, uint32_t place, unsigned count)
{
    memset(&pager->limbo_taken[place], false, count);
    mmu_staging_clear(pager->mmu, pager_limbo_address(pager, place), 0, count);
}

void pager_limbo_flush(struct pager *pager)
{
    struct places *emptied = &pager->limbo_emptied;

    if (emptied->count > 0)
        places_put(pager, emptied->first, emptied->count);
    emptied->count = 0;
}

/* Do the places from `first` up to `end` hold nothing? */
static bool places_are_free(const struct pager *pager, uint32_t first, uint32_t end)
{
    return first <= end && end - first <= PAGER_BATCH && !memchr(&pager->limbo_taken[first], true, end - first);
}

/*
 * A call of the kernel for each page would be a flush of all processors for each. Pages mostly leave in the order in
 * which they came, so their places lie side by side, but for those whose pages were rescued.
 */
void pager_limbo_clear(struct pager *pager, struct page_id first, unsigned count)
{
    uint32_t place = pager_limbo_place(pager, first);
    struct places *emptied = &pager->limbo_emptied;

    for (unsigned i = 0; i < count; i++)
        pager_note(pager, pager_entry(pager, page_of(first.index + i)))->limbo = 0;
    if (emptied->count > 0 && !places_are_free(pager, emptied->first + emptied->count, place))
        pager_limbo_flush(pager);
    if (emptied->count == 0)
        emptied->first = place;
    emptied->count = place + count - emptied->first;
}

/* A clean page is copied, to be mapped read-only; another one goes back as it is. */
int pager_limbo_restore(struct pager *pager, struct page_id page, struct page_entry *entry, bool is_write)
{
    uint32_t place = pager_limbo_place(pager, page);
    void *bytes = pager_limbo_address(pager, place);
    bool writable;
    int error;

    if (is_write)
        pager_forget_clean_slot(pager, entry);
    writable = pager_want_writable(pager, entry, is_write);
    error = writable ? mmu_put_back(pager->mmu, page, bytes) : mmu_copy(pager->mmu, page, 1, bytes, false);
    if (error != 0)
        return error;
    pager_note(pager, entry)->limbo = 0;
    if (writable)
        pager->limbo_taken[place] = false;
    else
        places_put(pager, place, 1);
    page_set_where(entry, WHERE_MAPPED, entry->place);
    page_word_change(entry, 0, writable ? WORD_WRITABLE : 0);
    return 0;
}

int pager_limbo_rescue(struct pager *pager, struct page_id page, struct page_entry *entry, bool is_write)
{
    int error = pager_limbo_restore(pager, page, entry, is_write);

    if (error == 0)
        pager_soft_hit(pager, (struct frame_id){entry->place});
    return error;
}
