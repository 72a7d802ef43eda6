/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames.c - the frame table: lists over fixed entries, linked by index. PURE. Run by the shard's thread.
 *
 * Always holds: every frame below `fresh` is on exactly one list; frames from `fresh` on were never used, are free, and
 * their entries were never written, so that a large budget costs nothing until it is used.
 */
#include "tiers/frames.h"
#include "base/assert.h"

size_t frames_bytes(uint32_t frames_max)
{
    return sizeof(struct frames) + (size_t)frames_max * sizeof(struct frame_entry);
}

void frames_init(struct frames *frames, uint32_t frames_max)
{
    ASSERT(frames_max > 0 && frames_max < UINT32_MAX);
    frames->frames_max = frames_max;
    frames->fresh = 0;
    for (unsigned list = 0; list < FRAME_LISTS; list++)
        frames->lists[list] = (struct frame_ends){UINT32_MAX, UINT32_MAX, 0};
}

static void list_remove(struct frames *frames, uint32_t index)
{
    struct frame_entry *entry = &frames->entries[index];
    struct frame_ends *ends = &frames->lists[entry->list];

    if (entry->previous == UINT32_MAX)
        ends->head = entry->next;
    else
        frames->entries[entry->previous].next = entry->next;
    if (entry->next == UINT32_MAX)
        ends->tail = entry->previous;
    else
        frames->entries[entry->next].previous = entry->previous;
    ends->count--;
}

static void list_append(struct frames *frames, uint32_t index, enum frame_list list)
{
    struct frame_entry *entry = &frames->entries[index];
    struct frame_ends *ends = &frames->lists[list];

    entry->list = (unsigned)list & ((1u << FRAME_LIST_BITS) - 1);
    entry->next = UINT32_MAX;
    entry->previous = ends->tail;
    if (ends->tail == UINT32_MAX)
        ends->head = index;
    else
        frames->entries[ends->tail].next = index;
    ends->tail = index;
    ends->count++;
}

struct frame_id frames_take(struct frames *frames, struct page_id page)
{
    uint32_t index = frames->lists[FRAME_FREE].head;

    ASSERT(page.index < FRAME_NO_PAGE);
    if (index != UINT32_MAX)
        list_remove(frames, index);
    else if (frames->fresh < frames->frames_max)
        index = frames->fresh++;
    else
        return FRAME_NONE;
    frames->entries[index].page = page.index & FRAME_NO_PAGE;
    list_append(frames, index, FRAME_BUSY);
    return (struct frame_id){index};
}

void frames_put(struct frames *frames, struct frame_id frame)
{
    ASSERT(frame.index < frames->fresh);
    ASSERT(frames->entries[frame.index].list != FRAME_FREE);
    list_remove(frames, frame.index);
    frames->entries[frame.index].page = FRAME_NO_PAGE;
    list_append(frames, frame.index, FRAME_FREE);
}

void frames_push_tail(struct frames *frames, struct frame_id frame, enum frame_list list)
{
    ASSERT(frame.index < frames->fresh);
    ASSERT(list > FRAME_FREE && list < FRAME_LISTS);
    ASSERT(frames->entries[frame.index].list != FRAME_FREE);
    list_remove(frames, frame.index);
    list_append(frames, frame.index, list);
}

void frames_push_head(struct frames *frames, struct frame_id frame, enum frame_list list)
{
    struct frame_ends *ends = &frames->lists[list];
    struct frame_entry *entry = &frames->entries[frame.index];

    frames_push_tail(frames, frame, list);
    if (ends->head == frame.index)
        return;
    ends->tail = entry->previous;
    frames->entries[ends->tail].next = UINT32_MAX;
    entry->previous = UINT32_MAX;
    entry->next = ends->head;
    frames->entries[ends->head].previous = frame.index;
    ends->head = frame.index;
}
