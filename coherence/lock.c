/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock.c - this node's locks: asking the home, keeping what was granted, handing over. L2, L3, L6, L7
 *
 * A lock's number is its place in the pool. Threads share a held lock in runtime/; here it is the node's.
 */
#include "coherence/internal.h"

void locks_init(struct coherence *c)
{
    for (uint32_t i = c->limits.locks_max; i > 0; i--) {
        lock_at(c, i)->next = c->lock_free;
        c->lock_free = i;
    }
}

uint32_t lock_take(struct coherence *c)
{
    uint32_t ref = c->lock_free;

    if (ref != 0) {
        c->lock_free = lock_at(c, ref)->next;
        *lock_at(c, ref) = (struct lock){.next_node = NODE_NONE, .serial = ++c->serial};
    }
    return ref;
}

void lock_put(struct coherence *c, uint32_t ref)
{
    *lock_at(c, ref) = (struct lock){.next = c->lock_free};
    c->lock_free = ref;
}

/* The lock or wait that a message names, or NULL. L7 */
struct lock *lock_match(struct coherence *c, const struct message *message)
{
    struct lock *lock;

    if (message->request >= c->limits.locks_max)
        return NULL;
    lock = lock_at(c, message->request + 1);
    return lock->state != LOCK_FREE && lock->serial == message_serial(message) ? lock : NULL;
}

uint32_t lock_by_token(const struct coherence *c, uint64_t token, bool is_cond)
{
    for (uint32_t i = 1; i <= c->limits.locks_max; i++) {
        const struct lock *lock = lock_at(c, i);
        bool is_waiting =
            is_cond ? lock->state == COND_ASKED || lock->state == COND_REGISTERED : lock->state == LOCK_WAITING;

        if (is_waiting && lock->token == token)
            return i;
    }
    return 0;
}

static struct message lock_message(const struct coherence *c, uint32_t ref, uint8_t type)
{
    const struct lock *lock = lock_at(c, ref);

    return (struct message){.type = type,
                            .page = page_of(lock->space == LOCK_PAGES ? lock->first : lock->first >> (PAGE_SHIFT - 3)),
                            .requester = c->self,
                            .request = ref - 1,
                            .a = lock->first,
                            .b = lock->count,
                            .c = lock->serial << MESSAGE_SERIAL_SHIFT | lock->space |
                                 (lock->is_exclusive ? LOCK_WIRE_EXCLUSIVE : 0)};
}

static void lock_tell_home(struct coherence *c, uint32_t ref, uint8_t type)
{
    struct message message = lock_message(c, ref, type);

    message_send(c, lock_at(c, ref)->home, &message);
}

int coherence_lock(struct coherence *c, enum lock_space space, uint64_t first, uint64_t count, bool exclusive,
                   bool wait, uint64_t token, uint64_t now_ns)
{
    struct page_id page = page_of(space == LOCK_PAGES ? first : first >> (PAGE_SHIFT - 3));
    struct node_id home = page_home(c, page);
    struct message message;
    struct lock *lock;
    uint32_t ref;

    (void)now_ns;
    if (count == 0 || first + count < first)
        return -EINVAL;
    if (node_is_none(home))
        return -EFAULT;
    if (!node_is_member(c, home)) { /* V5 */
        done(c, token, -EHOSTDOWN, 0);
        return 0;
    }
    ref = lock_take(c);
    if (ref == 0)
        return -EAGAIN;
    lock = lock_at(c, ref);
    lock->first = first;
    lock->count = count;
    lock->token = token;
    lock->home = home;
    lock->state = LOCK_WAITING;
    lock->space = (uint8_t)space;
    lock->is_exclusive = exclusive;
    message = lock_message(c, ref, MESSAGE_LOCK);
    message.c |= wait ? 0 : LOCK_WIRE_TRY;
    message_send(c, home, &message);
    return 0;
}

/* L6: a grant may be under way; the slot stays until the home has answered. */
void coherence_lock_cancel(struct coherence *c, uint64_t token, uint64_t now_ns)
{
    uint32_t ref = lock_by_token(c, token, false);

    (void)now_ns;
    if (ref == 0)
        return;
    lock_at(c, ref)->state = LOCK_ZOMBIE;
    lock_tell_home(c, ref, MESSAGE_LOCK_CANCEL);
    done(c, token, -ECANCELED, 0);
}

/* L3: to the waiter the home has named, else to the home. */
static void lock_give_up(struct coherence *c, uint32_t ref)
{
    struct lock *lock = lock_at(c, ref);
    struct message grant = {
        .type = MESSAGE_LOCK_GRANT,
        .page = page_of(lock->space == LOCK_PAGES ? lock->next_first : lock->next_first >> (PAGE_SHIFT - 3)),
        .requester = lock->next_node,
        .request = lock->next_request,
        .a = lock->next_first,
        .b = lock->next_count,
        .c = lock->next_c};
    struct message passed = lock_message(c, ref, MESSAGE_LOCK_PASSED);

    if (!node_is_none(lock->next_node) && node_is_member(c, lock->home) && !lock->is_owner_dead) {
        passed.requester = lock->next_node;
        passed.credit = lock->next_request;
        message_send(c, lock->next_node, &grant);
        message_send(c, lock->home, &passed);
    } else {
        struct message release = lock_message(c, ref, MESSAGE_LOCK_RELEASE);

        release.credit = lock->is_owner_dead ? EOWNERDEAD : 0;
        message_send(c, lock->home, &release);
    }
    lock_put(c, ref);
}

void coherence_lock_release(struct coherence *c, uint32_t lock, uint64_t now_ns)
{
    (void)now_ns;
    ASSERT(lock < c->limits.locks_max && lock_at(c, lock + 1)->state == LOCK_HELD);
    lock_give_up(c, lock + 1);
}

/* Asks the threads' side; gives the lock up when it is idle. */
static void lock_ask_threads(struct coherence *c, uint32_t ref)
{
    struct lock *lock = lock_at(c, ref);

    if (!c->env->lock_wanted(c->env->context, ref - 1))
        lock_give_up(c, ref);
    else if (lock->is_try)
        lock_tell_home(c, ref, MESSAGE_LOCK_BUSY); /* L5 */
}

static void lock_granted(struct coherence *c, const struct message *message)
{
    struct lock *lock = lock_match(c, message);
    struct message release = {.type = MESSAGE_LOCK_RELEASE,
                              .page = message->page,
                              .requester = c->self,
                              .request = message->request,
                              .credit = message->credit,
                              .a = message->a,
                              .b = message->b,
                              .c = message->c};
    uint32_t ref = message->request + 1;

    if (lock == NULL) {
        stale(c); /* L7: nobody here wants it: back to the home, which ignores it when it knows better */
        message_send(c, page_home(c, message->page), &release);
    } else if (lock->state == LOCK_ZOMBIE) {
        lock->is_owner_dead = message->credit == EOWNERDEAD;
        lock_give_up(c, ref); /* L6 */
    } else if (lock->state != LOCK_WAITING) {
        stale(c);
    } else {
        lock->state = LOCK_HELD;
        done(c, lock->token, message->credit == EOWNERDEAD ? -EOWNERDEAD : 0, ref - 1);
        if (lock->is_wanted)
            lock_ask_threads(c, ref);
    }
}

/* May come before the grant, when that comes from the last holder. */
static void lock_wanted(struct coherence *c, const struct message *message)
{
    struct lock *lock = lock_match(c, message);

    if (lock == NULL || lock->state > LOCK_ZOMBIE || !node_is(message->from, lock->home)) {
        stale(c);
        return;
    }
    lock->is_wanted = true;
    lock->is_try = (message->c & LOCK_WIRE_TRY) != 0;
    if (node_is_member(c, message->requester)) {
        lock->next_node = message->requester;
        lock->next_request = message->credit;
        lock->next_c = message->a;
        lock->next_first = message->b;
        lock->next_count = message->sequence;
    }
    if (lock->state == LOCK_HELD)
        lock_ask_threads(c, message->request + 1);
}

static void lock_refused(struct coherence *c, const struct message *message)
{
    struct lock *lock = lock_match(c, message);
    uint32_t error = message->credit;
    uint64_t token;
    bool is_waiting;

    if (lock == NULL || lock->state > LOCK_ZOMBIE || lock->state == LOCK_HELD || !node_is(message->from, lock->home)) {
        stale(c);
        return;
    }
    token = lock->token;
    is_waiting = lock->state == LOCK_WAITING;
    lock_put(c, message->request + 1);
    if (is_waiting)
        done(c, token, error == ENOSPC || error == ECANCELED ? -(int)error : -EBUSY, 0);
}

void lock_receive(struct coherence *c, const struct message *message)
{
    switch (message->type) {
    case MESSAGE_LOCK_GRANT:
        lock_granted(c, message);
        break;
    case MESSAGE_LOCK_WANTED:
        lock_wanted(c, message);
        break;
    default:
        lock_refused(c, message);
        break;
    }
}

/* V5. A lock that is held stays held until it is released; then there is nobody to tell. */
void locks_view_changed(struct coherence *c)
{
    for (uint32_t i = 1; i <= c->limits.locks_max; i++) {
        struct lock lock = *lock_at(c, i);

        if (lock.state == LOCK_FREE)
            continue;
        if (!node_is_member(c, lock.next_node))
            lock_at(c, i)->next_node = NODE_NONE;
        if (node_is_member(c, lock.home) || lock.state == LOCK_HELD)
            continue;
        lock_put(c, i);
        if (lock.state != LOCK_ZOMBIE)
            done(c, lock.token, -EHOSTDOWN, 0);
    }
}
