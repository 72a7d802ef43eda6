/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_guess.c - will pages that are brought ahead be written? A page that is mapped read-only, because NVMe has the
 * same bytes, costs one more fault when it is; a page that is mapped writable costs a write when it was not.
 *
 * Per region of 64 MiB: how many pages were mapped read-only lately, and how many of these were written. Where most
 * were, runs are mapped writable, but for one page in 32, which goes on telling.
 */
#include "runtime/pager_internal.h"

#define REGION_PAGES_LOG 14
#define PROBE_STRIDE     32u
#define KNOWN_MIN        8u /* pages that must have been seen */

static struct guess *guess_of(struct pager *pager, struct page_id page)
{
    return &pager->guesses[(page.index >> REGION_PAGES_LOG) % PAGER_GUESSES];
}

void pager_guess_kept(struct pager *pager, struct page_id page)
{
    struct guess *guess = guess_of(pager, page);

    if (guess->kept == UINT8_MAX) {
        guess->kept /= 2;
        guess->written /= 2;
    }
    guess->kept++;
}

void pager_guess_written(struct pager *pager, struct page_id page)
{
    struct guess *guess = guess_of(pager, page);

    if (guess->written < guess->kept)
        guess->written++;
}

bool pager_guess_writes(struct pager *pager, struct page_id page)
{
    const struct guess *guess = guess_of(pager, page);

    return page.index % PROBE_STRIDE != 0 && guess->kept >= KNOWN_MIN && 2 * guess->written > guess->kept;
}
