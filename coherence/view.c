/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c - what a new view means to the transactions of this home. V2, V3, V4, V7
 *
 * Not a hot path: it looks at every transaction. Pages that nobody asks for are looked at when somebody does.
 */
#include "coherence/internal.h"

/* Takes a waiting transaction out of its page's queue. */
static void unqueue(struct coherence *c, struct transaction *t)
{
    struct coherence_home *home = c->env->home(c->env->context, t->page);
    struct transaction *head = transaction_at(c, home->busy);
    ref16 ref = transaction_ref(c, t), before = 0;

    for (ref16 i = head->first; i != 0 && i != ref; i = transaction_at(c, i)->next)
        before = i;
    if (before != 0)
        transaction_at(c, before)->next = t->next;
    else
        head->first = t->next;
    if (head->last == ref)
        head->last = before;
}

/* V4: nobody is left to grant to. What may have reached the dead is lost with it. */
static void requester_died(struct coherence *c, struct transaction *t, struct coherence_home *home, bool has_owner_died)
{
    bool has_left = t->has_granted || (t->is_direct && t->awaited == 0);

    t->is_requester_dead = true;
    if (t->goal == GOAL_EXCLUSIVE && t->is_confirm_awaited && has_left)
        home_lost(c, home, t->page, "it was with a node that left the job");
    if (has_owner_died || t->is_doubtful)
        home_lost(c, home, t->page, "its owner left the job");
    t->is_confirm_awaited = false;
    if (t->phase == PHASE_READERS || t->phase == PHASE_ATOMIC)
        t->phase = PHASE_DONE;
}

/* V2 */
static void owner_died(struct coherence *c, struct transaction *t, struct coherence_home *home, uint64_t now_ns)
{
    if (!t->is_direct || t->is_requester_dead) {
        home_lost(c, home, t->page, "its owner left the job");
        return;
    }
    if (home->owner != t->requester.index + 1)
        home->owner = 0;
    if (t->is_confirm_awaited) {
        t->is_doubtful = true;
        home_grant_poisoned(c, t);
    } else if (t->goal == GOAL_SHARED && (home->flags & HOME_POISONED) == 0) {
        home_fetch(c, t, home, now_ns);
    }
}

/* V2: the owner reported, but its data to the requester may have died with it. */
static void source_died(struct coherence *c, struct transaction *t, struct coherence_home *home, uint64_t now_ns)
{
    if (t->goal == GOAL_SHARED && (home->flags & HOME_POISONED) == 0) {
        home_grant(c, t, home, NULL, now_ns); /* it was written back: the store is current */
    } else {
        t->is_doubtful = true;
        home_grant_poisoned(c, t);
    }
}

static void head_members_died(struct coherence *c, struct transaction *t, struct coherence_home *home, uint64_t died,
                              uint64_t now_ns)
{
    bool has_owner_died = t->recall != MESSAGE_NONE && (t->awaited & died) != 0;

    home->sharers &= c->view.members;
    t->awaited &= c->view.members; /* V3 */
    if (t->goal != GOAL_HELPER && (node_bit(t->requester) & died) != 0)
        requester_died(c, t, home, has_owner_died);
    else if (has_owner_died)
        owner_died(c, t, home, now_ns);
    else if (t->is_direct && t->is_confirm_awaited && (t->source & died) != 0)
        source_died(c, t, home, now_ns);
    home_run(c, t, NULL, now_ns);
}

void home_members_died(struct coherence *c, uint64_t died, uint64_t now_ns)
{
    for (unsigned i = 1; i <= c->transactions_count; i++) { /* V7 */
        struct transaction *t = transaction_at(c, i);
        bool is_dead = t->is_used && t->goal != GOAL_HELPER && (node_bit(t->requester) & died) != 0;

        if (is_dead && t->goal == GOAL_READ) {
            read_forget(c, t, now_ns);
        } else if (is_dead && c->env->home(c->env->context, t->page)->busy != i) {
            unqueue(c, t);
            served_release(c, t);
            transaction_put(c, t);
        }
    }
    for (unsigned i = 1; i <= c->transactions_count; i++) {
        struct transaction *t = transaction_at(c, i);
        struct coherence_home *home;

        if (!t->is_used || t->goal == GOAL_READ)
            continue;
        home = c->env->home(c->env->context, t->page);
        if (home->busy == i)
            head_members_died(c, t, home, died, now_ns);
    }
    for (unsigned node = 0; node < c->limits.nodes_count; node++) {
        if ((died >> node & 1) == 0)
            continue;
        for (uint32_t request = 0; request < c->limits.requests_max; request++)
            *served_at(c, node_of(node), request) = (struct served){.serial = 0};
    }
}
