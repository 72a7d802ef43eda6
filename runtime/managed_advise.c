/* SPDX-License-Identifier: Apache-2.0 */
/*
 * managed_advise.c - what the program said of its memory while nothing was managed yet: programs advise what they map
 * right after mapping it.
 */
#include "runtime/managed.h"

void managed_advice_forget(struct managed *managed, uint64_t first, uint64_t end)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < managed->advice_count; i++) {
        struct early_advice early = managed->advice[i];

        if (early.first < first && early.end > first)
            early.end = first; /* of two ends the first one: it is only advice */
        else if (early.first < end && early.end > end)
            early.first = end;
        else if (early.first < end && early.end > first)
            continue;
        managed->advice[kept++] = early;
    }
    managed->advice_count = kept;
}

void managed_advice_keep(struct managed *managed, uint64_t first, uint64_t end, enum dsm_advice advice)
{
    if (advice == DSM_ADVISE_WILL_NEED || advice == DSM_ADVISE_COLD)
        return; /* all is in memory */
    managed_advice_forget(managed, first, end);
    if (advice != DSM_ADVISE_NORMAL && managed->advice_count < EARLY_ADVICE_MAX)
        managed->advice[managed->advice_count++] = (struct early_advice){first, end, advice};
}

void managed_advice_hand_over(struct managed *managed)
{
    for (unsigned i = 0; i < managed->advice_count; i++) {
        const struct early_advice *early = &managed->advice[i];

        /* No room for more advice is no error of the program's. */
        pager_advise(managed->shard.pager, page_of(early->first), early->end - early->first, early->advice);
    }
    managed->advice_count = 0;
}
