/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admit.c - what arrives at a home: requests are checked and counted in (P14, P15, P18), answers are matched to the
 * transaction in service (P3).
 */
#include "coherence/internal.h"

static const uint8_t goals[MESSAGE_TYPES_COUNT] = {
    [MESSAGE_GET_SHARED] = GOAL_SHARED, [MESSAGE_GET_EXCLUSIVE] = GOAL_EXCLUSIVE,
    [MESSAGE_PUT] = GOAL_PUT,           [MESSAGE_ATOMIC] = GOAL_ATOMIC,
    [MESSAGE_READ] = GOAL_READ,
};

static void nack(struct coherence *c, const struct message *request, uint64_t error, uint64_t now_ns)
{
    struct message message = {.type = MESSAGE_NACK,
                              .page = request->page,
                              .request = request->request,
                              .requester = request->from,
                              .a = error,
                              .c = request->c};

    if (node_is(request->from, c->self)) {
        message.from = c->self;
        request_refused(c, &message, now_ns);
    } else {
        message_send(c, request->from, &message);
    }
}

static bool request_is_valid(const struct coherence *c, const struct message *message)
{
    if (message->request >= c->limits.requests_max || !node_is(message->requester, message->from))
        return false;
    if (message->type == MESSAGE_READ)
        return message->a != 0 && message->a <= READ_PAGES_MAX &&
               message->page.index % EXTENT_PAGES + message->a <= EXTENT_PAGES;
    return message->type != MESSAGE_ATOMIC ||
           (atomic_operation_of(message) < ATOMIC_OPERATIONS && atomic_offset_of(message) < PAGE_BYTES);
}

/* P15: a repeated request is ignored, an atomic that is done answered again (A2). */
static void request_repeated(struct coherence *c, const struct message *message, const struct served *served)
{
    struct message again = {.type = MESSAGE_ATOMIC_DONE,
                            .page = message->page,
                            .request = message->request,
                            .requester = message->from,
                            .a = served->value,
                            .b = served->error,
                            .c = message->c};

    stale(c);
    if (served->is_atomic && served->transaction == 0 && served->serial == message_serial(message) &&
        message->type == MESSAGE_ATOMIC)
        message_send(c, message->from, &again);
}

void home_request(struct coherence *c, const struct message *message, uint64_t now_ns)
{
    struct coherence_home *home = home_entry(c, message->page);
    enum pool pool = node_is(message->from, c->self) ? POOL_SELF : POOL_PEERS;
    struct transaction *t;
    struct served *served;

    if (home == NULL || !request_is_valid(c, message)) {
        bad(c); /* P18 */
        if (!node_is(message->from, c->self))
            nack(c, message, ESTALE, now_ns);
        return;
    }
    served = served_at(c, message->from, message->request);
    if (message_serial(message) <= served->serial && !(MUTANT(8) && message->type == MESSAGE_ATOMIC)) {
        request_repeated(c, message, served);
        return;
    }
    if (served->transaction != 0) { /* P14 */
        bad(c);
        nack(c, message, EAGAIN, now_ns);
        return;
    }
    served->serial = message_serial(message);
    served->is_atomic = message->type == MESSAGE_ATOMIC;
    t = (message->flags & MESSAGE_PREFETCH) != 0 && home->busy != 0 ? NULL : transaction_take(c, pool);
    if (t == NULL) {
        nack(c, message, EAGAIN, now_ns); /* P16 */
        return;
    }
    served->transaction = transaction_ref(c, t);
    t->page = message->page;
    t->requester = message->from;
    t->request = message->request;
    t->goal = goals[message->type];
    t->flags = message->flags;
    t->a = message->a;
    t->b = message->b;
    t->c = message->c;
    if (t->goal == GOAL_READ)
        read_begin(c, t, now_ns);
    else
        home_enqueue(c, home, t, now_ns);
}

/* The requester has the page (P8), or says that it has not. */
static void confirmed(struct coherence *c, struct transaction *t, struct coherence_home *home,
                      const struct message *message, uint64_t now_ns)
{
    struct node_id requester = t->requester;

    t->is_confirm_awaited = false;
    if ((message->flags & MESSAGE_POISONED) != 0) {
        home_lost(c, home, t->page, "its bytes were lost on the way");
    } else if (message->a == CONFIRM_NOCOPY) { /* P9 */
        home->sharers &= ~node_bit(requester);
        if (home->owner == requester.index + 1)
            home_lost(c, home, t->page, "its owner lost its bytes");
    } else if (t->goal == GOAL_EXCLUSIVE) {
        bool was_here = !t->is_direct && home->owner == 0 && !node_is(requester, c->self);

        home->owner = (uint8_t)(requester.index + 1);
        home->sharers = 0;
        home->flags |= HOME_WRITTEN;
        if (was_here)
            c->env->drop(c->env->context, t->page);
    } else {
        home->sharers |= node_bit(requester);
        if (t->is_doubtful) {
            home_fetch(c, t, home, now_ns);
            return;
        }
    }
    served_release(c, t);
}

/* The requester may have confirmed before: then it is the owner already. */
static void owner_gone(struct coherence_home *home, struct node_id owner)
{
    if (home->owner == owner.index + 1)
        home->owner = 0;
}

/* Bytes of an unowned page come home (P7). Returns what this node's own threads shall get, or NULL. */
static const void *written_back(struct coherence *c, struct transaction *t, struct coherence_home *home,
                                const struct message *message)
{
    bool is_for_self = node_is(t->requester, c->self) && (t->goal == GOAL_SHARED || t->goal == GOAL_EXCLUSIVE) &&
                       !t->is_requester_dead;

    owner_gone(home, message->from);
    home->flags |= HOME_WRITTEN;
    if (t->recall == MESSAGE_RECALL_SHARED && message->a == 1)
        home->sharers |= node_bit(message->from);
    if (t->is_direct && t->recall == MESSAGE_RECALL_EXCLUSIVE) {
        /* P7: the owner knows already that the requester has left the view. */
        t->is_direct = t->is_confirm_awaited = false;
        t->phase = PHASE_COLLECT;
    }
    if (is_for_self && message->payload != NULL)
        return message->payload;
    if (!MUTANT(3))
        c->env->store(c->env->context, t->page, message->payload);
    return NULL;
}

static const void *reported(struct coherence *c, struct transaction *t, struct coherence_home *home,
                            const struct message *message)
{
    bool has_bytes = message->payload != NULL || (message->flags & MESSAGE_ZERO) != 0;

    if (message->type == MESSAGE_INVALIDATED) {
        home->sharers &= ~node_bit(message->from);
        return NULL;
    }
    if (message->type == MESSAGE_WRITE_BACK && has_bytes)
        return written_back(c, t, home, message);
    if (message->type == MESSAGE_RECALLED && (message->flags & MESSAGE_POISONED) == 0 && t->is_direct &&
        t->recall == MESSAGE_RECALL_EXCLUSIVE && !t->is_requester_dead) {
        owner_gone(home, message->from);
        return NULL;
    }
    home_lost(c, home, t->page,
              t->is_requester_dead ? "it was with a node that left the job" : "its owner lost its bytes");
    if (t->is_direct && t->is_confirm_awaited)
        home_grant_poisoned(c, t);
    return NULL;
}

/* confirm, invalidated, recalled, write-back, again: for the transaction in service, or ignored (P3). */
void home_answer(struct coherence *c, const struct message *message, uint64_t now_ns)
{
    struct coherence_home *home;
    struct transaction *t = home_transaction(c, message->page, &home);
    bool is_awaited = t != NULL && (t->awaited & node_bit(message->from)) != 0;
    const void *bytes = NULL;

    if (home == NULL) {
        bad(c);
        return;
    }
    if (message->type == MESSAGE_AGAIN) {
        if (is_awaited)
            home_ask_again(c, t, message->from, now_ns);
        else
            stale(c);
        return;
    }
    if (message->type == MESSAGE_CONFIRM)
        is_awaited = t != NULL && t->is_confirm_awaited && node_is(t->requester, message->from);
    if (!is_awaited || message->sequence != t->sequence || message->c != t->c) {
        stale(c);
        return;
    }
    if (message->type == MESSAGE_CONFIRM) {
        confirmed(c, t, home, message, now_ns);
    } else if ((message->type == MESSAGE_INVALIDATED) != (t->recall == MESSAGE_NONE)) {
        bad(c); /* P18 */
        return;
    } else {
        t->awaited &= ~node_bit(message->from);
        bytes = reported(c, t, home, message);
    }
    home_run(c, t, bytes, now_ns);
}
