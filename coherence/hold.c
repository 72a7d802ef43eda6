/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold.c - how long a granted page is kept before it may be recalled. P12
 *
 * A set-associative table of the pages granted last. When a set is full the entry whose hold ended first goes: then a
 * page can lose its hold early, never wait longer.
 */
#include "coherence/internal.h"

static uint32_t hold_set(const struct coherence *c, struct page_id page)
{
    return (uint32_t)(page.index * UINT64_C(0x9e3779b97f4a7c15) >> 40) & c->hold_mask & ~(uint32_t)(HOLD_WAYS - 1);
}

static struct hold *hold_find(const struct coherence *c, struct page_id page)
{
    uint32_t set = hold_set(c, page);

    for (uint32_t way = 0; way < HOLD_WAYS; way++) {
        struct hold *hold = hold_at(c, set + way);

        if (hold->is_used && page_is(hold->page, page))
            return hold;
    }
    return NULL;
}

static struct hold *hold_victim(const struct coherence *c, struct page_id page)
{
    uint32_t set = hold_set(c, page);
    struct hold *victim = hold_at(c, set);

    for (uint32_t way = 0; way < HOLD_WAYS; way++) {
        struct hold *hold = hold_at(c, set + way);

        if (!hold->is_used)
            return hold;
        if (hold->until_ns < victim->until_ns)
            victim = hold;
    }
    return victim;
}

void hold_begin(struct coherence *c, struct page_id page, uint64_t thread, uint64_t now_ns)
{
    struct hold *hold;
    uint64_t length_ns;
    uint8_t level = 0;

    if (c->limits.hold_ns == 0 || MUTANT(7))
        return;
    hold = hold_find(c, page);
    if (hold != NULL && hold->thread == thread && hold->lost_ns != 0 &&
        now_ns - hold->lost_ns < UINT64_C(4) * c->limits.hold_ns_max)
        level = hold->level < 20 ? (uint8_t)(hold->level + 1) : hold->level;
    if (hold == NULL)
        hold = hold_victim(c, page);
    length_ns = (uint64_t)c->limits.hold_ns << level;
    if (length_ns > c->limits.hold_ns_max)
        length_ns = c->limits.hold_ns_max;
    length_ns += random_below(&c->random, (uint32_t)length_ns + 1);
    *hold =
        (struct hold){.page = page, .thread = thread, .until_ns = now_ns + length_ns, .level = level, .is_used = true};
}

uint64_t hold_until_ns(const struct coherence *c, struct page_id page)
{
    const struct hold *hold = c->limits.hold_ns == 0 ? NULL : hold_find(c, page);

    return hold == NULL || hold->lost_ns != 0 ? 0 : hold->until_ns;
}

void hold_end(struct coherence *c, struct page_id page, uint64_t now_ns)
{
    struct hold *hold = c->limits.hold_ns == 0 ? NULL : hold_find(c, page);

    if (hold != NULL)
        hold->lost_ns = now_ns == 0 ? 1 : now_ns;
}
