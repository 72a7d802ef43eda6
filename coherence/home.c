/* SPDX-License-Identifier: Apache-2.0 */
/*
 * home.c - deciding: the home's half of the protocol. One transaction a page at a time, in order of arrival (P2).
 *
 * home_run() takes the transaction at the head of a page from phase to phase until it must wait, then the next one.
 * What it waits for comes in through admit.c, the local holder (home_yielded), reads that end, or a new view.
 *
 * Invariant: on an idle page, owner != 0 implies that sharers is empty (P1).
 */
#include "coherence/internal.h"

void home_init(struct coherence *c)
{
    for (unsigned i = c->transactions_count; i > 0; i--) {
        transaction_at(c, i)->next = c->transaction_free;
        c->transaction_free = (ref16)i;
    }
}

struct transaction *transaction_take(struct coherence *c, enum pool pool)
{
    ref16 ref = c->transaction_free;
    struct transaction *t;

    if (c->pool_free[pool] == 0)
        return NULL;
    ASSERT(ref != 0);
    t = transaction_at(c, ref);
    c->transaction_free = t->next;
    c->pool_free[pool]--;
    *t = (struct transaction){.is_used = true, .pool = (uint8_t)pool};
    return t;
}

void transaction_put(struct coherence *c, struct transaction *t)
{
    c->pool_free[t->pool]++;
    *t = (struct transaction){.next = c->transaction_free};
    c->transaction_free = transaction_ref(c, t);
}

/* The transaction in service on a page, or NULL. */
struct transaction *home_transaction(const struct coherence *c, struct page_id page, struct coherence_home **ret_home)
{
    struct coherence_home *home = home_entry(c, page);

    *ret_home = home;
    return home == NULL || home->busy == 0 ? NULL : transaction_at(c, home->busy);
}

/* The requester's slot is free for its next request (P14). */
void served_release(struct coherence *c, const struct transaction *t)
{
    struct served *served;

    if (t->goal == GOAL_HELPER)
        return;
    served = served_at(c, t->requester, t->request);
    if (served->transaction == transaction_ref(c, t))
        served->transaction = 0;
}

/* An answer without bytes to the requester. */
static void reply(struct coherence *c, struct message *message, uint64_t now_ns)
{
    struct node_id to = message->requester;

    if (!node_is(to, c->self)) {
        message_send(c, to, message);
        return;
    }
    message->from = c->self;
    switch (message->type) {
    case MESSAGE_GRANT:
        request_granted(c, message, now_ns);
        break;
    case MESSAGE_NACK:
        request_refused(c, message, now_ns);
        break;
    case MESSAGE_PUT_DONE:
        request_finished(c, message, REQUEST_PUT, now_ns);
        break;
    case MESSAGE_ATOMIC_DONE:
        request_finished(c, message, REQUEST_ATOMIC, now_ns);
        break;
    default:
        request_finished(c, message, REQUEST_READ, now_ns);
        break;
    }
}

void transaction_answer(struct coherence *c, const struct transaction *t, uint8_t type, uint64_t a, uint64_t b,
                        uint64_t now_ns)
{
    struct message message = {.type = type,
                              .page = t->page,
                              .sequence = t->sequence,
                              .requester = t->requester,
                              .request = t->request,
                              .a = a,
                              .b = b,
                              .c = t->c};

    served_release(c, t);
    if (!t->is_requester_dead)
        reply(c, &message, now_ns);
}

void home_lost(struct coherence *c, struct coherence_home *home, struct page_id page, const char *why)
{
    struct coherence_page *entry = page_entry(c, page);

    if ((home->flags & HOME_POISONED) != 0)
        return;
    home->flags |= HOME_POISONED; /* P17 */
    home->owner = 0;
    if (entry != NULL)
        page_poison(c, page, entry, why);
}

static void refuse(struct coherence *c, struct transaction *t, uint64_t error, uint64_t now_ns)
{
    t->phase = PHASE_DONE;
    if (t->goal == GOAL_HELPER)
        t->a = error; /* home_finish() tells the read */
    else
        transaction_answer(c, t, MESSAGE_NACK, error, 0, now_ns);
}

static void local_yielded(struct coherence *c, struct coherence_home *home, enum access left)
{
    if (home->owner == c->self.index + 1) {
        home->owner = 0;
        home->sharers |= left == ACCESS_READ ? node_bit(c->self) : 0;
    }
    if (left == ACCESS_NONE)
        home->sharers &= ~node_bit(c->self);
}

/* Asks one holder to give up its rights, or calls the one here (P10). */
static void ask_holder(struct coherence *c, struct transaction *t, uint8_t type, struct node_id holder,
                       struct node_id to, uint64_t now_ns)
{
    struct coherence_home *home = c->env->home(c->env->context, t->page);
    struct recall recall = {
        .type = type, .sequence = t->sequence, .home = c->self, .requester = to, .request = t->request, .c = t->c};
    struct message message = {
        .type = type, .page = t->page, .sequence = t->sequence, .requester = to, .request = t->request, .c = t->c};
    enum access left = type == MESSAGE_RECALL_SHARED ? ACCESS_READ : ACCESS_NONE;

    t->awaited |= node_bit(holder);
    if (!node_is(holder, c->self)) {
        message_send(c, holder, &message);
        return;
    }
    if (holder_take(c, t->page, &recall, now_ns) == 0) {
        struct coherence_page *entry = page_entry(c, t->page);

        if (entry->state != PAGE_POISONED)
            entry->state = left == ACCESS_READ && entry->state != PAGE_INVALID ? PAGE_SHARED : PAGE_INVALID;
        entry->sequence = t->sequence;
        t->awaited &= ~node_bit(holder);
        local_yielded(c, home, left);
    }
}

/* From another node: the bytes come back here, or go to the requester directly (P6). */
static void recall_owner(struct coherence *c, struct transaction *t, uint8_t type, struct node_id owner,
                         struct node_id to, uint64_t now_ns)
{
    if (!node_is(owner, c->self)) {
        t->recall = type;
        t->is_direct = t->is_confirm_awaited = !node_is(to, c->self);
        t->source = t->is_direct ? node_bit(owner) : 0;
    }
    ask_holder(c, t, type, owner, to, now_ns);
}

/* P11: the holder has room now. */
void home_ask_again(struct coherence *c, struct transaction *t, struct node_id holder, uint64_t now_ns)
{
    struct coherence_home *home = c->env->home(c->env->context, t->page);
    uint8_t type = t->recall != MESSAGE_NONE ? t->recall : MESSAGE_INVALIDATE;

    if (node_is(holder, c->self) && home->owner == c->self.index + 1)
        type = t->goal == GOAL_SHARED || t->goal == GOAL_HELPER ? MESSAGE_RECALL_SHARED : MESSAGE_RECALL_EXCLUSIVE;
    ask_holder(c, t, type, holder, t->is_direct ? t->requester : c->self, now_ns);
    home_run(c, t, NULL, now_ns);
}

/* V2: the requester shares a page whose owner died before it wrote the bytes back: they come from the requester. */
void home_fetch(struct coherence *c, struct transaction *t, struct coherence_home *home, uint64_t now_ns)
{
    served_release(c, t);
    t->goal = GOAL_HELPER;
    t->is_doubtful = false;
    t->phase = PHASE_COLLECT;
    t->sequence = ++home->sequence;
    recall_owner(c, t, MESSAGE_RECALL_SHARED, t->requester, c->self, now_ns);
}

static void invalidate_others(struct coherence *c, struct transaction *t, struct coherence_home *home, uint64_t keep,
                              uint64_t now_ns)
{
    uint64_t others = home->sharers & ~keep;

    while (others != 0) { /* P5 */
        struct node_id node = node_of((unsigned)__builtin_ctzll(others));

        others &= others - 1;
        ask_holder(c, t, MESSAGE_INVALIDATE, node, c->self, now_ns);
    }
}

static struct node_id home_owner(const struct coherence_home *home)
{
    return home->owner == 0 ? NODE_NONE : node_of(home->owner - 1u);
}

/* The transaction gets its number (P3) and asks whoever must give something up. */
static void home_collect(struct coherence *c, struct transaction *t, struct coherence_home *home, uint64_t now_ns)
{
    struct node_id owner = home_owner(home);
    bool is_foreign = !node_is_none(owner) && !node_is(owner, t->requester);
    bool is_remote = !node_is_none(owner) && !node_is(owner, c->self);

    t->sequence = ++home->sequence;
    t->phase = PHASE_COLLECT;
    switch ((enum goal)t->goal) {
    case GOAL_SHARED:
        if (is_foreign && !(MUTANT(6) && is_remote))
            recall_owner(c, t, MESSAGE_RECALL_SHARED, owner, t->requester, now_ns);
        break;
    case GOAL_EXCLUSIVE:
        if (is_foreign)
            recall_owner(c, t, MESSAGE_RECALL_EXCLUSIVE, owner, t->requester, now_ns);
        else
            invalidate_others(c, t, home, node_bit(t->requester), now_ns);
        break;
    case GOAL_PUT: /* P13 */
        if (is_remote && !is_foreign)
            recall_owner(c, t, MESSAGE_RECALL_EXCLUSIVE, owner, c->self, now_ns);
        break;
    case GOAL_ATOMIC: /* A1 */
        if (is_remote)
            recall_owner(c, t, MESSAGE_RECALL_EXCLUSIVE, owner, c->self, now_ns);
        else
            invalidate_others(c, t, home, node_bit(c->self), now_ns);
        break;
    case GOAL_HELPER: /* A3 */
        if (is_remote)
            recall_owner(c, t, MESSAGE_RECALL_SHARED, owner, c->self, now_ns);
        break;
    case GOAL_READ:
        break;
    }
    t->was_waiting = t->awaited != 0;
    if (t->is_direct)
        t->phase = PHASE_CONFIRM;
}

static void home_begin(struct coherence *c, struct transaction *t, struct coherence_home *home, uint64_t now_ns)
{
    struct node_id owner = home_owner(home);
    bool is_get = t->goal == GOAL_SHARED || t->goal == GOAL_EXCLUSIVE;

    home->sharers &= c->view.members; /* V3 */
    if (!node_is_none(owner) && !node_is_member(c, owner))
        home_lost(c, home, t->page, "its owner left the job"); /* V2 */
    else if (is_get && node_is(owner, t->requester) && !node_is(owner, c->self) && (t->c & GET_HAS_COPY) == 0)
        home_lost(c, home, t->page, "its owner started anew"); /* V2 */
    if ((home->flags & HOME_POISONED) != 0) {
        refuse(c, t, EIO, now_ns);
        return;
    }
    if ((t->flags & MESSAGE_PREFETCH) != 0 && is_get && !node_is_none(owner) && !node_is(owner, t->requester) &&
        !node_is(owner, c->self)) {
        refuse(c, t, EAGAIN, now_ns); /* P16 */
        return;
    }
    if (t->goal == GOAL_EXCLUSIVE && !node_is(t->requester, c->self) && (home->flags & HOME_READ) != 0)
        t->phase = PHASE_READERS; /* A5 */
    else
        home_collect(c, t, home, now_ns);
}

/* Everything is given up: the requester gets the page. P4, P9, P10 */
void home_grant(struct coherence *c, struct transaction *t, struct coherence_home *home, const void *bytes,
                uint64_t now_ns)
{
    bool is_self = node_is(t->requester, c->self);
    bool is_owner = home->owner == t->requester.index + 1;
    bool is_listed = is_owner || (home->sharers & node_bit(t->requester)) != 0;
    struct message grant = {.type = MESSAGE_GRANT,
                            .page = t->page,
                            .sequence = t->sequence,
                            .requester = t->requester,
                            .request = t->request,
                            .c = t->c};

    if (is_owner || (is_self && (home->sharers & ~node_bit(c->self)) == 0 && home->owner == 0))
        t->goal = GOAL_EXCLUSIVE;
    grant.a = t->goal == GOAL_EXCLUSIVE ? ACCESS_WRITE : ACCESS_READ;
    t->phase = PHASE_CONFIRM;
    t->has_granted = t->is_confirm_awaited = true;
    if (is_self) {
        grant.payload = bytes;
        grant.payload_bytes = bytes == NULL ? 0 : PAGE_BYTES;
        reply(c, &grant, now_ns);
    } else if (is_listed && (t->c & GET_HAS_COPY) != 0) {
        reply(c, &grant, now_ns);
    } else if ((home->flags & HOME_WRITTEN) == 0) {
        grant.flags = MESSAGE_ZERO;
        reply(c, &grant, now_ns);
    } else {
        message_send_page(c, t->requester, &grant);
    }
}

/* V2, P17: the requester waits for bytes that will not come, unless they are there already. */
void home_grant_poisoned(struct coherence *c, struct transaction *t)
{
    struct message grant = {.type = MESSAGE_GRANT,
                            .flags = MESSAGE_POISONED,
                            .page = t->page,
                            .sequence = t->sequence,
                            .requester = t->requester,
                            .request = t->request,
                            .c = t->c};

    message_send(c, t->requester, &grant);
}

static void home_collected(struct coherence *c, struct transaction *t, struct coherence_home *home, const void *bytes,
                           uint64_t now_ns)
{
    t->phase = PHASE_DONE;
    if (t->is_requester_dead)
        return;
    if ((home->flags & HOME_POISONED) != 0) {
        refuse(c, t, EIO, now_ns);
        return;
    }
    switch ((enum goal)t->goal) {
    case GOAL_SHARED:
    case GOAL_EXCLUSIVE:
        home_grant(c, t, home, bytes, now_ns);
        break;
    case GOAL_PUT:
        transaction_answer(c, t, MESSAGE_PUT_DONE, 0, 0, now_ns);
        break;
    case GOAL_ATOMIC:
        t->phase = PHASE_ATOMIC;
        break;
    case GOAL_HELPER:
    case GOAL_READ:
        break;
    }
}

/* Returns the next transaction of the page, or NULL: the page is idle. */
static struct transaction *home_finish(struct coherence *c, struct transaction *t, struct coherence_home *home,
                                       uint64_t now_ns)
{
    ref16 next = t->first, last = t->last, parent = t->parent;
    struct page_id page = t->page;
    bool is_helper = t->pool == POOL_HELPERS;
    int error = is_helper ? (int)t->a : 0;
    struct transaction *successor = next == 0 ? NULL : transaction_at(c, next);

    served_release(c, t);
    transaction_put(c, t);
    home->busy = next;
    if (successor != NULL) {
        successor->first = successor->next;
        successor->last = successor->next == 0 ? 0 : last;
        successor->next = 0;
        successor->is_running = true;
    }
    if (is_helper)
        read_helped(c, parent, page, error, now_ns);
    return successor;
}

/* Runs the head of a page as far as it goes; `bytes`: what a write-back brought for this node's own threads. */
void home_run(struct coherence *c, struct transaction *t, const void *bytes, uint64_t now_ns)
{
    struct coherence_home *home = c->env->home(c->env->context, t->page);

    if (t->is_running)
        return;
    t->is_running = true;
    for (;;) {
        enum phase before = (enum phase)t->phase;

        switch (before) {
        case PHASE_QUEUED:
            home_begin(c, t, home, now_ns);
            break;
        case PHASE_READERS:
            if ((home->flags & HOME_READ) == 0)
                home_collect(c, t, home, now_ns);
            break;
        case PHASE_COLLECT:
            if (t->awaited == 0 || (MUTANT(1) && t->recall == MESSAGE_NONE))
                home_collected(c, t, home, bytes, now_ns);
            break;
        case PHASE_CONFIRM:
            if (!t->is_confirm_awaited && t->awaited == 0) /* P8 */
                t->phase = PHASE_DONE;
            break;
        case PHASE_ATOMIC:
            if (atomic_run(c, t, home, now_ns))
                t->phase = PHASE_DONE;
            break;
        case PHASE_DONE:
        case PHASE_READ_RUNNING:
        case PHASE_READ_READY:
            t = home_finish(c, t, home, now_ns);
            if (t == NULL)
                return;
            bytes = NULL;
            break;
        }
        if (t->phase == before) {
            t->is_running = false;
            return;
        }
    }
}

void home_enqueue(struct coherence *c, struct coherence_home *home, struct transaction *t, uint64_t now_ns)
{
    struct transaction *head;
    ref16 ref = transaction_ref(c, t);

    if (home->busy == 0) {
        home->busy = ref;
        home_run(c, t, NULL, now_ns);
        return;
    }
    if (MUTANT(5))
        return;
    head = transaction_at(c, home->busy);
    if (head->last != 0)
        transaction_at(c, head->last)->next = ref;
    else
        head->first = ref;
    head->last = ref;
}

/* The home's own threads gave up their rights after all. */
void home_yielded(struct coherence *c, struct page_id page, enum access left, uint64_t now_ns)
{
    struct coherence_home *home;
    struct transaction *t = home_transaction(c, page, &home);

    if (t == NULL || (t->awaited & node_bit(c->self)) == 0)
        return;
    t->awaited &= ~node_bit(c->self);
    local_yielded(c, home, left);
    home_run(c, t, NULL, now_ns);
}
