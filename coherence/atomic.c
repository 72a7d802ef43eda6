/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atomic.c - 64-bit atomics, executed at the home on the store's bytes, once (A1, A2).
 */
#include "coherence/internal.h"

/* True: executed (or not to be executed) and answered. False: coherence_atomic_ready() follows. */
bool atomic_run(struct coherence *c, struct transaction *t, struct coherence_home *home, uint64_t now_ns)
{
    struct message operation = {.type = MESSAGE_ATOMIC,
                                .from = t->requester,
                                .requester = t->requester,
                                .page = t->page,
                                .sequence = t->sequence,
                                .request = t->request,
                                .a = t->a,
                                .b = t->b,
                                .c = t->c};
    struct served *served = served_at(c, t->requester, t->request);
    uint64_t old = 0;
    int result;

    if (t->is_requester_dead)
        return true;
    result = c->env->atomic(c->env->context, t->page, &operation, &old);
    if (result == -EINPROGRESS)
        return false;
    if (MUTANT(8) && result == 0 && t->was_waiting)
        result = c->env->atomic(c->env->context, t->page, &operation, &old);
    home->flags |= HOME_WRITTEN;
    if (result != 0)
        home_lost(c, home, t->page, "its bytes were lost");
    served->value = old;
    served->error = result == 0 ? 0 : EIO;
    transaction_answer(c, t, MESSAGE_ATOMIC_DONE, old, served->error, now_ns);
    return true;
}

void coherence_atomic_ready(struct coherence *c, struct page_id page, uint64_t now_ns)
{
    struct coherence_home *home;
    struct transaction *t = home_transaction(c, page, &home);

    if (t != NULL && t->phase == PHASE_ATOMIC)
        home_run(c, t, NULL, now_ns);
}
