/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shadow.c - would there be fewer faults without prefetch? PURE. Run by the shard's thread.
 *
 * Prefetched pages that nobody has touched hold `unused` frames. Without them the last `unused` pages that left would
 * still be here (of an LRU list that is exact: its stack property). So a sample of the pages that leave is remembered,
 * by hash as in miniature simulation (Waldspurger et al., ATC 2017), and a fault on one of the last `unused` counts
 * against prefetch. When that exceeds what prefetch gained by more than 2 % of the faults there would be without it,
 * all is off, for as long again each time.
 */
#include "prefetch/predictor.h"

#define WINDOW_EVENTS 512u
#define OFF_WINDOWS   8u
#define SLACK         8u /* faults; a sample is not exact */
#define WAYS          4u

void shadow_init(struct shadow *shadow)
{
    *shadow = (struct shadow){0};
    for (unsigned i = 0; i < SHADOW_PAGES; i++)
        shadow->pages[i].page = PAGE_NONE;
}

/* So few pages are sampled that those that matter use half of the table. */
static uint32_t sample_shift(const struct shadow *shadow)
{
    return bucket_of(shadow->unused / (SHADOW_PAGES / 2), 20);
}

static bool is_sampled(const struct shadow *shadow, struct page_id page)
{
    return (page_hash(page) >> 12 & ((1U << sample_shift(shadow)) - 1)) == 0;
}

static struct shadow_page *set_of(struct shadow *shadow, struct page_id page)
{
    return &shadow->pages[page_hash(page) % (SHADOW_PAGES / WAYS) * WAYS];
}

void shadow_evicted(struct shadow *shadow, struct page_id page, uint32_t unused)
{
    struct shadow_page *set = set_of(shadow, page);
    struct shadow_page *place = &set[0];

    shadow->evictions++;
    shadow->unused = unused;
    if (unused == 0 || !is_sampled(shadow, page))
        return;
    for (unsigned i = 1; i < WAYS; i++)
        if (page_is(set[i].page, PAGE_NONE) || set[i].left_at < place->left_at)
            place = &set[i];
    *place = (struct shadow_page){page, shadow->evictions};
}

static uint32_t fault_polluted(struct shadow *shadow, struct page_id page)
{
    struct shadow_page *set = set_of(shadow, page);

    for (unsigned i = 0; i < WAYS; i++) {
        if (!page_is(set[i].page, page))
            continue;
        set[i].page = PAGE_NONE;
        return shadow->evictions - set[i].left_at < shadow->unused ? 1U << sample_shift(shadow) : 0;
    }
    return 0;
}

static void window_end(struct shadow *shadow)
{
    uint32_t without = shadow->events > shadow->polluted ? shadow->events - shadow->polluted : 0;

    if (shadow->off_until > 0)
        shadow->off_until--;
    else if (shadow->polluted > shadow->gained + without / 50 + SLACK)
        shadow->off_until = OFF_WINDOWS;
    shadow->gained = shadow->polluted = shadow->events = 0;
}

uint32_t shadow_event(struct shadow *shadow, const struct prefetch_event *event)
{
    uint32_t polluted = event->was_prefetched ? 0 : fault_polluted(shadow, event->page);

    shadow->gained += event->was_prefetched;
    shadow->polluted += polluted;
    if (++shadow->events >= WINDOW_EVENTS)
        window_end(shadow);
    return polluted;
}

bool shadow_is_off(const struct shadow *shadow)
{
    return shadow->off_until > 0;
}
