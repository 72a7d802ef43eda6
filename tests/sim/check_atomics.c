/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_atomics.c - an atomic that reports success was applied exactly once (A1, A2).
 *
 * All atomics add 1. Never more are applied than were asked for, never more report success than were applied; old
 * values differ, because the word's old value is below the number applied. At the end the sums are equal.
 */
#include "world.h"

void check_atomics_applied(struct world *world, unsigned page, unsigned word)
{
    struct ghost_page *ghost = &world->ghosts[page];

    ghost->applied[word]++;
    if (ghost->applied[word] > ghost->started[word])
        world_fail(world, "atomics", "word %u of page %u: %llu additions were made, %llu were asked for", word, page,
                   (unsigned long long)ghost->applied[word], (unsigned long long)ghost->started[word]);
}

void check_atomics_finished(struct world *world, unsigned page, unsigned word, uint64_t old)
{
    struct ghost_page *ghost = &world->ghosts[page];

    ghost->finished[word]++;
    if (ghost->finished[word] > ghost->applied[word] || old >= ghost->applied[word])
        world_fail(world, "atomics", "word %u of page %u: %llu additions report success, old value %llu, %llu made",
                   word, page, (unsigned long long)ghost->finished[word], (unsigned long long)old,
                   (unsigned long long)ghost->applied[word]);
    ghost->old_sum[word] += old;
}

/* With every node alive, all additions asked for were made once and reported once, each with its own old value. */
void check_atomics_all(struct world *world)
{
    for (unsigned page = 0; page < world_pages_count(world); page++)
        for (unsigned word = 1; word < CONTENT_WORDS; word++) {
            const struct ghost_page *ghost = &world->ghosts[page];
            uint64_t made = ghost->applied[word];

            if (ghost->may_be_lost || world->crashes > 0)
                continue;
            if (ghost->started[word] != made || ghost->finished[word] != made || ghost->content.words[word] != made ||
                ghost->old_sum[word] != made * (made - 1) / 2)
                world_fail(world, "atomics",
                           "word %u of page %u: %llu additions asked, %llu made, %llu reported, sum %llu", word, page,
                           (unsigned long long)ghost->started[word], (unsigned long long)made,
                           (unsigned long long)ghost->finished[word], (unsigned long long)ghost->content.words[word]);
        }
}
