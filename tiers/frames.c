/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames.c - the frame table: lists over fixed entries, linked by index. PURE. Run by the shard's thread.
 *
 * Always holds: every frame below `fresh` is on exactly one list; frames from `fresh` on were never used, are free, and
 * their entries were never written, so that a large budget costs nothing until it is used.
 */
#include "tiers/frames.h"
#include "base/assert.h"

#define PAGE_BITS 56
#define LIST_BITS 8
#define NO_PAGE   (((uint64_t)1 << PAGE_BITS) - 1)

struct entry {
    uint64_t page : PAGE_BITS;
    uint64_t list : LIST_BITS;
    uint32_t next, previous; /* FRAME_NONE's index at the ends */
};
BUILD_ASSERT(sizeof(struct entry) == 16);

struct ends {
    uint32_t head, tail, count;
};

struct frames {
    uint32_t frames_max;
    uint32_t fresh; /* frames used at least once: 0 .. fresh-1 */
    struct ends lists[FRAME_LISTS];
    struct entry entries[];
};

size_t frames_bytes(uint32_t frames_max)
{
    return sizeof(struct frames) + (size_t)frames_max * sizeof(struct entry);
}

void frames_init(struct frames *frames, uint32_t frames_max)
{
    ASSERT(frames_max > 0 && frames_max < UINT32_MAX);
    frames->frames_max = frames_max;
    frames->fresh = 0;
    for (unsigned list = 0; list < FRAME_LISTS; list++)
        frames->lists[list] = (struct ends){UINT32_MAX, UINT32_MAX, 0};
}

static void list_remove(struct frames *frames, uint32_t index)
{
    struct entry *entry = &frames->entries[index];
    struct ends *ends = &frames->lists[entry->list];

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
    struct entry *entry = &frames->entries[index];
    struct ends *ends = &frames->lists[list];

    entry->list = (unsigned)list & ((1u << LIST_BITS) - 1);
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

    ASSERT(page.index < NO_PAGE);
    if (index != UINT32_MAX)
        list_remove(frames, index);
    else if (frames->fresh < frames->frames_max)
        index = frames->fresh++;
    else
        return FRAME_NONE;
    frames->entries[index].page = page.index & NO_PAGE;
    list_append(frames, index, FRAME_BUSY);
    return (struct frame_id){index};
}

void frames_put(struct frames *frames, struct frame_id frame)
{
    ASSERT(frame.index < frames->fresh);
    ASSERT(frames->entries[frame.index].list != FRAME_FREE);
    list_remove(frames, frame.index);
    frames->entries[frame.index].page = NO_PAGE;
    list_append(frames, frame.index, FRAME_FREE);
}

struct page_id frames_page(const struct frames *frames, struct frame_id frame)
{
    ASSERT(frame.index < frames->frames_max);
    if (frame.index >= frames->fresh || frames->entries[frame.index].page == NO_PAGE)
        return PAGE_NONE;
    return page_of(frames->entries[frame.index].page);
}

bool frames_is_past(const struct frames *frames, struct frame_id frame)
{
    return frame.index >= frames->fresh;
}

enum frame_list frames_list(const struct frames *frames, struct frame_id frame)
{
    ASSERT(frame.index < frames->frames_max);
    return frame.index >= frames->fresh ? FRAME_FREE : (enum frame_list)frames->entries[frame.index].list;
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
    struct ends *ends = &frames->lists[list];
    struct entry *entry = &frames->entries[frame.index];

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

struct frame_id frames_head(const struct frames *frames, enum frame_list list)
{
    ASSERT(list > FRAME_FREE && list < FRAME_LISTS);
    return (struct frame_id){frames->lists[list].head};
}

struct frame_id frames_next(const struct frames *frames, struct frame_id frame)
{
    ASSERT(frame.index < frames->fresh);
    return (struct frame_id){frames->entries[frame.index].next};
}

unsigned frames_heads(const struct frames *frames, enum frame_list list, struct frame_id *frames_out, unsigned wanted)
{
    struct frame_id frame = frames_head(frames, list);
    unsigned count = 0;

    while (count < wanted && frame.index != FRAME_NONE.index) {
        frames_out[count++] = frame;
        frame = frames_next(frames, frame);
    }
    return count;
}

uint32_t frames_count(const struct frames *frames, enum frame_list list)
{
    ASSERT(list < FRAME_LISTS);
    return frames->lists[list].count + (list == FRAME_FREE ? frames->frames_max - frames->fresh : 0);
}
