/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ghosts.c - evicted pages, in lines of one cache line. PURE. Run by the shard's thread.
 */
#include "tiers/ghosts.h"
#include "base/assert.h"

#define LINE_GHOSTS 5u

struct entry {
    uint32_t tag; /* 0: free */
    struct ghost ghost;
};

struct line {
    struct entry entries[LINE_GHOSTS];
    uint32_t unused;
};
BUILD_ASSERT(sizeof(struct line) == 64);

struct ghosts {
    uint32_t lines_count;
    uint32_t swept; /* lines before were looked at in this round */
    uint32_t unused[14];
    struct line lines[];
};
BUILD_ASSERT(sizeof(struct ghosts) == 64);

static uint32_t lines_for(uint64_t ghosts_max)
{
    return (uint32_t)(ghosts_max / LINE_GHOSTS + 1);
}

size_t ghosts_bytes(uint64_t ghosts_max)
{
    return sizeof(struct ghosts) + lines_for(ghosts_max) * sizeof(struct line);
}

void ghosts_init(struct ghosts *ghosts, uint64_t ghosts_max)
{
    ghosts->lines_count = lines_for(ghosts_max);
    ghosts->swept = 0;
}

/*
 * A page's line is another one now. What stays in the old lines is still true of its pages; new ones push it out, as it
 * was touched longest ago.
 */
void ghosts_resize(struct ghosts *ghosts, uint64_t ghosts_max)
{
    ghosts_init(ghosts, ghosts_max);
}

/* The low half chooses the line, the high half tells pages of a line apart. */
static struct line *line_of(struct ghosts *ghosts, uint64_t hash)
{
    return &ghosts->lines[(hash & UINT32_MAX) * ghosts->lines_count >> 32];
}

static uint32_t tag_of(uint64_t hash)
{
    uint32_t tag = (uint32_t)(hash >> 32);

    return tag != 0 ? tag : 1;
}

void ghosts_put(struct ghosts *ghosts, uint64_t hash, struct ghost ghost)
{
    struct entry *entries = line_of(ghosts, hash)->entries;
    struct entry *oldest = &entries[0];
    uint32_t tag = tag_of(hash);

    for (unsigned i = 0; i < LINE_GHOSTS; i++) {
        if (entries[i].tag == 0 || entries[i].tag == tag) {
            oldest = &entries[i];
            break;
        }
        if ((int32_t)(entries[i].ghost.touched - oldest->ghost.touched) < 0)
            oldest = &entries[i];
    }
    *oldest = (struct entry){tag, ghost};
}

bool ghosts_take(struct ghosts *ghosts, uint64_t hash, struct ghost *ret_ghost)
{
    struct entry *entries = line_of(ghosts, hash)->entries;
    uint32_t tag = tag_of(hash);

    for (unsigned i = 0; i < LINE_GHOSTS; i++) {
        if (entries[i].tag != tag)
            continue;
        *ret_ghost = entries[i].ghost;
        entries[i].tag = 0;
        return true;
    }
    return false;
}

void ghosts_sweep(struct ghosts *ghosts, uint32_t now, uint32_t age_max)
{
    struct line *line = &ghosts->lines[ghosts->swept];

    for (unsigned i = 0; i < LINE_GHOSTS; i++)
        if (line->entries[i].tag != 0 && now - line->entries[i].ghost.touched > age_max)
            line->entries[i].tag = 0;
    ghosts->swept = ghosts->swept + 1 < ghosts->lines_count ? ghosts->swept + 1 : 0;
}
