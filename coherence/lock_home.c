/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock_home.c - the home's half of locks: who holds what, who waits, whom to ask. L1 .. L6, V6
 */
#include "coherence/internal.h"

static uint8_t wire_space(const struct message *message)
{
    return (uint8_t)(message->c & LOCK_WIRE_SPACE);
}

static struct page_id unit_page(uint8_t space, uint64_t unit)
{
    return page_of(space == LOCK_PAGES ? unit : unit >> (PAGE_SHIFT - 3));
}

static uint64_t claim_c(const struct claim *claim)
{
    return claim->serial << MESSAGE_SERIAL_SHIFT | claim->space | (claim->is_exclusive ? LOCK_WIRE_EXCLUSIVE : 0);
}

static void tell(struct coherence *c, const struct claim *claim, uint8_t type, uint32_t error)
{
    struct message message = {.type = type,
                              .page = unit_page(claim->space, claim->first),
                              .requester = claim->node,
                              .request = claim->request,
                              .credit = error,
                              .a = claim->first,
                              .b = claim->count,
                              .c = claim_c(claim)};

    message_send(c, claim->node, &message);
}

static bool conflicts(const struct claim *a, const struct claim *b)
{
    return a->is_exclusive || b->is_exclusive;
}

/* What stands between a waiter and its grant. L1 */
struct obstacles {
    uint32_t holders_count, holder;
    bool has_earlier_waiter, has_asked_holder;
    bool has_orphan; /* no obstacle, but the grant must come from the home, which has news */
};

static struct obstacles obstacles_of(const struct coherence *c, uint32_t waiter)
{
    const struct claim *claim = claim_at(c, waiter);
    struct obstacles obstacles = {0};
    uint32_t ref = claim_overlapping(c, claim->space, claim->first, claim->count, 0);

    for (; ref != 0; ref = claim_overlapping(c, claim->space, claim->first, claim->count, ref)) {
        const struct claim *other = claim_at(c, ref);

        obstacles.has_orphan = obstacles.has_orphan || other->state == CLAIM_ORPHAN;
        if (ref == waiter || !conflicts(claim, other))
            continue;
        if (other->state == CLAIM_HELD && !MUTANT(4)) {
            obstacles.holders_count++;
            obstacles.holder = ref;
            obstacles.has_asked_holder = obstacles.has_asked_holder || other->is_asked;
        } else if (other->state == CLAIM_WAITING && other->arrival < claim->arrival) {
            obstacles.has_earlier_waiter = true;
        }
    }
    return obstacles;
}

/* V6: whoever gets a part of what a dead node held exclusively hears of it, once. */
static bool orphans_take(struct coherence *c, const struct claim *claim)
{
    uint32_t ref = claim_overlapping(c, claim->space, claim->first, claim->count, 0);
    bool found = false;

    while (ref != 0) {
        uint32_t next = claim_overlapping(c, claim->space, claim->first, claim->count, ref);

        if (claim_at(c, ref)->state == CLAIM_ORPHAN) {
            claim_remove(c, ref);
            found = true;
        }
        ref = next;
    }
    return found;
}

static void claim_grant(struct coherence *c, uint32_t ref)
{
    struct claim *claim = claim_at(c, ref);
    bool is_owner_dead = orphans_take(c, claim);

    claim->state = CLAIM_HELD;
    claim->is_asked = false;
    claim->is_owner_dead = is_owner_dead;
    tell(c, claim, MESSAGE_LOCK_GRANT, is_owner_dead ? EOWNERDEAD : 0);
}

/* L2, L3: asks one holder, once; names the waiter when it can be granted directly. */
static void holder_ask(struct coherence *c, uint32_t holder, uint32_t waiter, bool can_pass)
{
    struct claim *held = claim_at(c, holder), *next = claim_at(c, waiter);
    struct message message = {.type = MESSAGE_LOCK_WANTED,
                              .page = unit_page(held->space, held->first),
                              .requester = NODE_NONE,
                              .request = held->request,
                              .c = claim_c(held) | (next->is_try ? LOCK_WIRE_TRY : 0)};

    if (held->is_asked)
        return;
    held->is_asked = true;
    if (can_pass && !next->is_try && next->is_exclusive && next->count <= UINT32_MAX && next->first >= held->first &&
        next->first + next->count <= held->first + held->count) {
        held->promised = waiter;
        next->promised_by = holder;
        message.requester = next->node;
        message.credit = next->request;
        message.sequence = (uint32_t)next->count;
        message.a = claim_c(next);
        message.b = next->first;
    }
    message_send(c, held->node, &message);
}

static void holders_ask(struct coherence *c, uint32_t waiter, bool can_pass)
{
    const struct claim *claim = claim_at(c, waiter);
    uint32_t ref = claim_overlapping(c, claim->space, claim->first, claim->count, 0);

    for (; ref != 0; ref = claim_overlapping(c, claim->space, claim->first, claim->count, ref)) {
        if (claim_at(c, ref)->state == CLAIM_HELD && conflicts(claim, claim_at(c, ref)))
            holder_ask(c, ref, waiter, can_pass);
    }
}

/* Grants a waiter, or asks whoever is in its way. False: a new try is refused (L5). */
static bool waiter_settle(struct coherence *c, uint32_t ref, bool is_new)
{
    struct obstacles obstacles = obstacles_of(c, ref);
    struct claim *claim = claim_at(c, ref);

    if (obstacles.holders_count == 0 && !obstacles.has_earlier_waiter) {
        claim_grant(c, ref);
        return true;
    }
    if (claim->is_try && is_new && (obstacles.has_earlier_waiter || obstacles.has_asked_holder))
        return false;
    holders_ask(c, ref, obstacles.holders_count == 1 && !obstacles.has_earlier_waiter && !obstacles.has_orphan);
    return true;
}

/* Something in this range was given up: its waiters, in order of arrival. */
static void range_serve(struct coherence *c, uint8_t space, uint64_t first, uint64_t count)
{
    uint64_t served = 0, end = first + count;

    for (;;) {
        uint32_t ref = claim_overlapping(c, space, first, end - first, 0), best = 0;
        const struct claim *claim;

        for (; ref != 0; ref = claim_overlapping(c, space, first, end - first, ref)) {
            claim = claim_at(c, ref);
            if (claim->state == CLAIM_WAITING && claim->promised_by == 0 && claim->arrival > served &&
                (best == 0 || claim->arrival < claim_at(c, best)->arrival))
                best = ref;
        }
        if (best == 0)
            return;
        claim = claim_at(c, best);
        served = claim->arrival;
        (void)waiter_settle(c, best, false);
        if (claim->state != CLAIM_HELD)
            continue;
        /* Later waiters of the rest of its range must ask the new holder. */
        end = claim->first + claim->count > end ? claim->first + claim->count : end;
        first = claim->first < first ? claim->first : first;
    }
}

/* Ends the promise a holder or waiter is part of. */
static void promise_end(struct coherence *c, struct claim *claim)
{
    if (claim->promised != 0)
        claim_at(c, claim->promised)->promised_by = 0;
    if (claim->promised_by != 0)
        claim_at(c, claim->promised_by)->promised = 0;
    claim->promised = claim->promised_by = 0;
}

static void claim_end_and_serve(struct coherence *c, uint32_t ref)
{
    struct claim gone = *claim_at(c, ref);

    promise_end(c, claim_at(c, ref));
    claim_remove(c, ref);
    range_serve(c, gone.space, gone.first, gone.count);
}

static void lock_requested(struct coherence *c, const struct message *message)
{
    struct claim refused = {.first = message->a,
                            .count = message->b,
                            .serial = message_serial(message),
                            .request = message->request,
                            .node = message->from,
                            .space = wire_space(message)};
    uint32_t ref = claim_take(c);
    uint64_t arrival;

    if (ref == 0) {
        tell(c, &refused, MESSAGE_LOCK_REFUSED, ENOSPC);
        return;
    }
    arrival = claim_at(c, ref)->arrival;
    *claim_at(c, ref) = refused;
    claim_at(c, ref)->arrival = arrival;
    claim_at(c, ref)->state = CLAIM_WAITING;
    claim_at(c, ref)->is_exclusive = (message->c & LOCK_WIRE_EXCLUSIVE) != 0;
    claim_at(c, ref)->is_try = (message->c & LOCK_WIRE_TRY) != 0;
    claim_insert(c, ref);
    if (!waiter_settle(c, ref, true)) {
        tell(c, claim_at(c, ref), MESSAGE_LOCK_REFUSED, EBUSY);
        claim_remove(c, ref);
    }
}

static void lock_released(struct coherence *c, uint32_t ref, const struct message *message)
{
    struct claim *claim = claim_at(c, ref);

    if (claim->state == CLAIM_HELD && message->credit == EOWNERDEAD) {
        promise_end(c, claim);
        claim->state = CLAIM_ORPHAN; /* V6: the next one hears of it */
        range_serve(c, claim->space, claim->first, claim->count);
    } else if (claim->state == CLAIM_HELD) {
        claim_end_and_serve(c, ref);
    } else if (claim->promised_by != 0) {
        claim->is_released_early = true; /* L4 */
    } else {
        stale(c);
    }
}

/* L3: the holder has granted the lock to the waiter it was told of. */
static void lock_passed(struct coherence *c, uint32_t ref, const struct message *message)
{
    struct claim held = *claim_at(c, ref);
    uint32_t waiter = held.promised;

    if (held.state != CLAIM_HELD) {
        stale(c);
        return;
    }
    if (waiter == 0) {
        if (!node_is_member(c, message->requester))
            claim_at(c, ref)->state = CLAIM_ORPHAN; /* V6: it may have used the lock before it died */
        else
            claim_remove(c, ref);
    } else {
        promise_end(c, claim_at(c, ref));
        claim_remove(c, ref);
        if (claim_at(c, waiter)->is_released_early) {
            claim_remove(c, waiter); /* L4 */
        } else {
            claim_at(c, waiter)->state = CLAIM_HELD;
            claim_at(c, waiter)->passed_by = node_bit(held.node);
        }
    }
    range_serve(c, held.space, held.first, held.count);
}

/* L5: a thread holds the lock: tries against it fail. */
static void lock_busy(struct coherence *c, uint32_t holder)
{
    struct claim held = *claim_at(c, holder);
    uint32_t ref = claim_overlapping(c, held.space, held.first, held.count, 0);

    while (ref != 0) {
        const struct claim *claim = claim_at(c, ref);

        if (claim->state == CLAIM_WAITING && claim->is_try && conflicts(claim, &held)) {
            tell(c, claim, MESSAGE_LOCK_REFUSED, EBUSY);
            claim_end_and_serve(c, ref);
            ref = claim_overlapping(c, held.space, held.first, held.count, 0);
        } else {
            ref = claim_overlapping(c, held.space, held.first, held.count, ref);
        }
    }
}

/* L6: a promised waiter stays: it may have been granted already. */
static void lock_cancelled(struct coherence *c, uint32_t ref)
{
    struct claim *claim = claim_at(c, ref);

    if (claim->state != CLAIM_WAITING || claim->promised_by != 0)
        return;
    tell(c, claim, MESSAGE_LOCK_REFUSED, ECANCELED);
    claim_end_and_serve(c, ref);
}

/* L7: false: a late or repeated request. */
bool lock_serial_is_new(struct coherence *c, const struct message *message)
{
    uint64_t *last = lock_serial_at(c, message->from, message->request);

    if (message_serial(message) <= *last)
        return false;
    *last = message_serial(message);
    return true;
}

void lock_home_receive(struct coherence *c, const struct message *message)
{
    uint8_t space = wire_space(message);
    uint32_t ref;

    if (space > LOCK_WORDS || message->request >= c->limits.locks_max || message->b == 0 ||
        message->a + message->b < message->a || !page_is(message->page, unit_page(space, message->a)) ||
        !node_is(page_home(c, message->page), c->self)) {
        bad(c); /* P18 */
        return;
    }
    ref = claim_find(c, space, message->a, message->b, message->from, message->request, message_serial(message));
    if (message->type == MESSAGE_LOCK ? !lock_serial_is_new(c, message) : ref == 0) {
        stale(c);
        return;
    }
    switch (message->type) {
    case MESSAGE_LOCK:
        lock_requested(c, message);
        break;
    case MESSAGE_LOCK_RELEASE:
        lock_released(c, ref, message);
        break;
    case MESSAGE_LOCK_PASSED:
        lock_passed(c, ref, message);
        break;
    case MESSAGE_LOCK_BUSY:
        lock_busy(c, ref);
        break;
    default:
        lock_cancelled(c, ref);
        break;
    }
}

/* V6 */
static void holder_died(struct coherence *c, uint32_t ref)
{
    struct claim gone = *claim_at(c, ref);
    uint32_t waiter = gone.promised;

    promise_end(c, claim_at(c, ref));
    if (gone.is_exclusive || gone.is_owner_dead) /* the news it had may have died with it */
        claim_at(c, ref)->state = CLAIM_ORPHAN;
    else
        claim_remove(c, ref);
    if (waiter != 0 && claim_at(c, waiter)->is_released_early)
        claim_remove(c, waiter);
    else if (waiter != 0)
        claim_grant(c, waiter);
    range_serve(c, gone.space, gone.first, gone.count);
}

/* Dead waiters first: none of them may be granted what a dead holder leaves, and eat the news of it. */
void lock_home_view_changed(struct coherence *c)
{
    for (uint32_t i = 1; i <= c->limits.home_locks_max; i++) {
        struct claim *claim = claim_at(c, i);

        if (claim->state != CLAIM_WAITING || node_is_member(c, claim->node))
            continue;
        if (claim->promised_by != 0)
            claim_at(c, claim->promised_by)->is_owner_dead = true; /* it may have been granted, and used it */
        promise_end(c, claim);
        claim->state = CLAIM_DEAD;
    }
    for (uint32_t i = 1; i <= c->limits.home_locks_max; i++) {
        const struct claim *claim = claim_at(c, i);

        if (claim->state == CLAIM_HELD && !node_is_member(c, claim->node))
            holder_died(c, i);
        else if (claim->state == CLAIM_HELD && (claim->passed_by & ~c->view.members) != 0)
            tell(c, claim, MESSAGE_LOCK_GRANT, 0); /* its grant may have died with the last holder */
    }
    for (unsigned node = 0; node < c->limits.nodes_count; node++) {
        if (!node_is_member(c, node_of(node)))
            memset(lock_serial_at(c, node_of(node), 0), 0, sizeof(uint64_t) * c->limits.locks_max);
    }
    for (uint32_t i = 1; i <= c->limits.home_locks_max; i++) {
        if (claim_at(c, i)->state != CLAIM_DEAD)
            continue;
        if (claim_at(c, i)->space == SPACE_CONDS)
            claim_remove(c, i); /* V7 */
        else
            claim_end_and_serve(c, i);
    }
}
