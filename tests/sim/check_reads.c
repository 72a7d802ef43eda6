/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_reads.c - fresh reads, and no lost page.
 *
 * Fresh reads (P4, P7, P8, P9, P10, A3, A5): whatever a node reads is the last write in the page's order. The ghost
 * holds it: with a single writer the order of a page's writes is the order in which they execute. No lost page (P13,
 * P17, V2, V4): a page is poisoned only when a crash or a disk error may have taken its last version, and a page that
 * was written never reads as zeroes.
 */
#include "world.h"

#include <string.h>

void check_reads(struct world *world, unsigned node, unsigned page, const struct content *content)
{
    static const struct content zero;
    const struct content *truth = &world->ghosts[page].content;

    if (memcmp(content, truth, sizeof(*content)) == 0)
        return;
    for (unsigned word = 0; word < CONTENT_WORDS; word++)
        if (content->words[word] != truth->words[word]) {
            world_fail(world, memcmp(content, &zero, sizeof(zero)) == 0 ? "lost" : "reads",
                       "node %u reads 0x%llx in word %u of page %u, the last write is 0x%llx", node,
                       (unsigned long long)content->words[word], word, page, (unsigned long long)truth->words[word]);
            return;
        }
}

void check_lost_poison(struct world *world, unsigned node, unsigned page, const char *why)
{
    if (!world->ghosts[page].may_be_lost)
        world_fail(world, "lost", "node %u loses page %u (%s), whose last version lives", node, page, why);
}
