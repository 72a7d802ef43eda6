/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forget.c - pages that were freed: everything about them ends, on every node, while the extent table still has them.
 * V8
 *
 * What is under way on other nodes answers to requests, transactions and recalls that are gone: it is ignored like any
 * late message, and a new life of the page begins with nothing.
 */
#include "coherence/internal.h"

static bool is_in(struct page_id page, struct page_id first, unsigned pages_count)
{
    return page.index - first.index < pages_count;
}

static void transactions_forget(struct coherence *c, struct page_id first, unsigned pages_count)
{
    for (unsigned i = 1; i <= c->transactions_count; i++) {
        struct transaction *t = transaction_at(c, i);

        if (!t->is_used || t->goal == GOAL_READ || !is_in(t->page, first, pages_count))
            continue;
        served_release(c, t);
        transaction_put(c, t);
    }
    for (unsigned i = 0; i < pages_count; i++) {
        struct coherence_home *home = home_entry(c, page_of(first.index + i));

        if (home != NULL)
            *home = (struct coherence_home){.owner = 0};
    }
    for (unsigned i = 1; i <= c->transactions_count; i++) { /* their pages are idle now: nothing is run by this */
        struct transaction *t = transaction_at(c, i);

        if (t->is_used && t->goal == GOAL_READ && is_in(t->page, first, pages_count))
            read_forget(c, t, 0);
    }
}

void coherence_forget(struct coherence *c, struct page_id first, unsigned pages_count)
{
    requests_forget(c, first, pages_count);
    for (unsigned i = 0; i < pages_count; i++) {
        struct coherence_page *entry = page_entry(c, page_of(first.index + i));

        if (entry != NULL)
            holder_forget(c, entry);
    }
    transactions_forget(c, first, pages_count);
}
