/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch_rivals.c - what others do, written from what is published of them, for comparison.
 *
 * next-8: the eight pages behind a miss.
 * vma-ra: Linux swap read-ahead by virtual address: up to eight pages around the fault, in the direction of the last
 *   one, more when the last ones were hit.
 * file-ra: Linux read-ahead of a mapped file: a window that grows to 32 pages while faults are in order, asked for anew
 *   at a mark inside it.
 * leap: the majority of the last steps is the step to go on with (Al Maruf, Chowdhury: Effectively prefetching remote
 *   memory with Leap, ATC 2020).
 * State that Linux keeps for a mapping or a file is kept here for 64 MiB of addresses.
 */
#include "bench/replay/prefetch_list.h"

#define AREAS         64u
#define AREA_BITS     14u
#define CLUSTER_PAGES 8u
#define FILE_PAGES    32u
#define LEAP_STEPS    32u

static void add(struct sim_pages *pages, uint64_t page)
{
    pages->is_seen[pages->count] = true;
    pages->pages[pages->count++] = page_of(page);
}

/* ---- next-8 ---------------------------------------------------------------------------------------------------- */

static size_t next8_bytes(uint32_t frames)
{
    (void)frames;
    return 1;
}

static void next8_init(void *state, uint32_t frames)
{
    (void)state;
    (void)frames;
}

static void next8_event(void *state, struct page_id page, bool was_prefetched, const struct prefetch_view *view,
                        struct sim_pages *ret_pages)
{
    (void)state;
    (void)view;
    for (uint64_t i = 1; i <= CLUSTER_PAGES && !was_prefetched; i++)
        add(ret_pages, page.index + i);
}

/* ---- vma-ra ---------------------------------------------------------------------------------------------------- */

struct vma {
    uint64_t last;
    uint32_t window, hits;
};

static size_t vma_bytes(uint32_t frames)
{
    (void)frames;
    return AREAS * sizeof(struct vma);
}

static void vma_init(void *state, uint32_t frames)
{
    struct vma *vmas = state;

    (void)frames;
    for (unsigned i = 0; i < AREAS; i++)
        vmas[i] = (struct vma){0, 0, 4};
}

static uint32_t window_of(uint32_t hits, bool is_next, uint32_t before)
{
    uint32_t pages = hits + 2;

    if (pages == 2 && !is_next)
        pages = 1;
    else if (pages > 2)
        for (pages = 4; pages < hits + 2;)
            pages *= 2;
    pages = pages > CLUSTER_PAGES ? CLUSTER_PAGES : pages;
    return pages < before / 2 ? before / 2 : pages;
}

static void vma_event(void *state, struct page_id page, bool was_prefetched, const struct prefetch_view *view,
                      struct sim_pages *ret_pages)
{
    struct vma *vma = &((struct vma *)state)[(page.index >> AREA_BITS) % AREAS];
    bool is_up = page.index == vma->last + 1;
    bool is_down = page.index + 1 == vma->last;
    uint64_t first;

    (void)view;
    if (was_prefetched) {
        vma->hits++;
        return;
    }
    vma->window = window_of(vma->hits, is_up || is_down, vma->window);
    vma->hits = 0;
    vma->last = page.index;
    first = is_up ? page.index : is_down ? page.index - vma->window + 1 : page.index - (vma->window - 1) / 2;
    for (uint64_t i = 0; i < vma->window; i++)
        if (first + i != page.index)
            add(ret_pages, first + i);
}

/* ---- file-ra --------------------------------------------------------------------------------------------------- */

struct file {
    uint64_t start, last;
    uint32_t size, async;
};

static size_t file_bytes(uint32_t frames)
{
    (void)frames;
    return AREAS * sizeof(struct file);
}

static void file_init(void *state, uint32_t frames)
{
    struct file *files = state;

    (void)frames;
    for (unsigned i = 0; i < AREAS; i++)
        files[i] = (struct file){0};
}

static uint32_t present_before(const struct prefetch_view *view, uint64_t page)
{
    uint32_t count = 0;

    while (count < FILE_PAGES && page > count && !view->is_absent(view->context, page_of(page - 1 - count)))
        count++;
    return count;
}

static void file_window(struct file *file, uint64_t start, uint32_t size, uint32_t async)
{
    file->start = start;
    file->size = size > FILE_PAGES ? FILE_PAGES : size;
    file->async = async < file->size ? async : file->size;
}

static void file_event(void *state, struct page_id page, bool was_prefetched, const struct prefetch_view *view,
                       struct sim_pages *ret_pages)
{
    struct file *file = &((struct file *)state)[(page.index >> AREA_BITS) % AREAS];
    bool is_mark = file->size > 0 && page.index == file->start + file->size - file->async;
    uint32_t next = file->size < FILE_PAGES / 16 ? file->size * 4 : file->size * 2;
    uint32_t history;

    next = next > FILE_PAGES ? FILE_PAGES : next;
    if (is_mark || (!was_prefetched && file->size > 0 && page.index == file->start + file->size)) {
        file_window(file, file->start + file->size, next, next);
    } else if (was_prefetched) {
        return;
    } else if (page.index == file->last + 1) {
        file_window(file, page.index, 4, 3);
    } else {
        history = present_before(view, page.index);
        file->last = page.index;
        if (history <= 1)
            return;
        file_window(file, page.index, history + 1, 1);
    }
    file->last = page.index;
    for (uint64_t i = 0; i < file->size; i++)
        if (file->start + i != page.index)
            add(ret_pages, file->start + i);
}

/* ---- leap ------------------------------------------------------------------------------------------------------ */

struct leap {
    int64_t steps[LEAP_STEPS];
    uint64_t last;
    int64_t trend;
    uint32_t count, window, hits;
};

static size_t leap_bytes(uint32_t frames)
{
    (void)frames;
    return sizeof(struct leap);
}

static void leap_init(void *state, uint32_t frames)
{
    (void)frames;
    *(struct leap *)state = (struct leap){.trend = 1};
}

/* Boyer-Moore over the newest `length` steps; 0: no step has the majority. */
static int64_t majority(const struct leap *leap, uint32_t length)
{
    int64_t candidate = 0;
    uint32_t votes = 0;
    uint32_t times = 0;

    for (uint32_t i = 1; i <= length; i++) {
        int64_t step = leap->steps[(leap->count - i) % LEAP_STEPS];

        if (votes == 0)
            candidate = step;
        if (step == candidate)
            votes++;
        else
            votes--;
    }
    for (uint32_t i = 1; i <= length; i++)
        times += leap->steps[(leap->count - i) % LEAP_STEPS] == candidate;
    return times > length / 2 ? candidate : 0;
}

static int64_t trend_find(const struct leap *leap)
{
    int64_t found = 0;

    for (uint32_t length = LEAP_STEPS / 4; length <= LEAP_STEPS && found == 0; length *= 2)
        found = majority(leap, length);
    return found;
}

static void leap_event(void *state, struct page_id page, bool was_prefetched, const struct prefetch_view *view,
                       struct sim_pages *ret_pages)
{
    struct leap *leap = state;
    int64_t step = (int64_t)(page.index - leap->last);
    int64_t trend;

    (void)view;
    leap->steps[leap->count++ % LEAP_STEPS] = step;
    leap->last = page.index;
    if (was_prefetched) {
        leap->hits++;
        return;
    }
    trend = trend_find(leap);
    leap->window = window_of(leap->hits, step == leap->trend, leap->window);
    leap->hits = 0;
    if (trend != 0)
        leap->trend = trend;
    for (uint32_t i = 0; i < leap->window; i++)
        add(ret_pages, trend != 0 ? page.index + (uint64_t)(trend * (int64_t)(i + 1))
                                  : page.index - page.index % leap->window + i);
}

const struct prefetcher_ops prefetcher_next8 = {"next-8", next8_bytes, next8_init, next8_event, NULL, NULL, NULL};
const struct prefetcher_ops prefetcher_vma = {"vma-ra", vma_bytes, vma_init, vma_event, NULL, NULL, NULL};
const struct prefetcher_ops prefetcher_file = {"file-ra", file_bytes, file_init, file_event, NULL, NULL, NULL};
const struct prefetcher_ops prefetcher_leap = {"leap", leap_bytes, leap_init, leap_event, NULL, NULL, NULL};
