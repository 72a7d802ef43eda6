/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tags.c - proposals whose fate is not known yet, by page. PURE. Run by the shard's thread.
 *
 * Sets of four, so that each step is bounded. A tag that is pushed out was not used for long.
 */
#include "prefetch/predictor.h"

void tags_init(struct tags *tags)
{
    tags->hand = 0;
    for (uint32_t i = 0; i < TAGS_MAX; i++)
        tags->tags[i].is_used = false;
}

static struct tag *set_of(struct tags *tags, struct page_id page)
{
    return &tags->tags[page_hash(page) % (TAGS_MAX / TAGS_WAYS) * TAGS_WAYS];
}

struct tag *tags_find(struct tags *tags, struct page_id page)
{
    struct tag *set = set_of(tags, page);

    for (unsigned i = 0; i < TAGS_WAYS; i++)
        if (set[i].is_used && page_is(set[i].page, page))
            return &set[i];
    return NULL;
}

void tags_touch(const struct tags *tags, struct page_id page)
{
    const struct tag *set = &tags->tags[page_hash(page) % (TAGS_MAX / TAGS_WAYS) * TAGS_WAYS];

    __builtin_prefetch(&set[0]);
    __builtin_prefetch(&set[2]);
}

struct tag *tags_add(struct tags *tags, struct page_id page, struct tag *ret_pushed_out)
{
    struct tag *set = set_of(tags, page);
    struct tag *place = &set[0];

    for (unsigned i = 0; i < TAGS_WAYS; i++) {
        if (!set[i].is_used || page_is(set[i].page, page)) {
            place = &set[i];
            break;
        }
        if ((int32_t)(set[i].made_at - place->made_at) < 0)
            place = &set[i];
    }
    *ret_pushed_out = *place;
    *place = (struct tag){.page = page, .is_used = true};
    return place;
}

bool tags_expire(struct tags *tags, uint32_t now, uint32_t age, struct tag *ret_expired)
{
    struct tag *tag = &tags->tags[tags->hand++ % TAGS_MAX];

    if (!tag->is_used || tag->is_issued || now - tag->made_at <= age)
        return false;
    *ret_expired = *tag;
    tag->is_used = false;
    return true;
}
