/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cond.c - conditions: queues of waiting nodes at the home of a word, in order of arrival. L8
 *
 * The node's half uses the pool of lock.c, the home's half the claims of claims.c.
 */
#include "coherence/internal.h"

static struct message cond_message(const struct coherence *c, uint32_t ref, uint8_t type)
{
    const struct lock *lock = lock_at(c, ref);

    return (struct message){.type = type,
                            .page = page_of(lock->first >> (PAGE_SHIFT - 3)),
                            .requester = c->self,
                            .request = ref - 1,
                            .a = lock->first,
                            .c = lock->serial << MESSAGE_SERIAL_SHIFT};
}

static int cond_ask(struct coherence *c, uint64_t word, uint64_t token, enum lock_state state, uint8_t type, uint64_t b)
{
    struct node_id home = page_home(c, page_of(word >> (PAGE_SHIFT - 3)));
    struct message message;
    uint32_t ref;

    if (node_is_none(home))
        return -EFAULT;
    if (!node_is_member(c, home)) { /* V5 */
        done(c, token, -EHOSTDOWN, 0);
        return 0;
    }
    ref = lock_take(c);
    if (ref == 0)
        return -EAGAIN;
    lock_at(c, ref)->first = word;
    lock_at(c, ref)->token = token;
    lock_at(c, ref)->home = home;
    lock_at(c, ref)->state = (uint8_t)state;
    message = cond_message(c, ref, type);
    message.b = b;
    message_send(c, home, &message);
    return 0;
}

int coherence_cond_wait(struct coherence *c, uint64_t word, uint64_t token, uint64_t now_ns)
{
    (void)now_ns;
    return cond_ask(c, word, token, COND_ASKED, MESSAGE_COND_WAIT, 0);
}

int coherence_cond_wake(struct coherence *c, uint64_t word, bool all, uint64_t token, uint64_t now_ns)
{
    (void)now_ns;
    return cond_ask(c, word, token, COND_WAKING, MESSAGE_COND_WAKE, all ? 1 : 0);
}

/* The home says whether the wait was woken before. */
void coherence_cond_cancel(struct coherence *c, uint64_t token, uint64_t now_ns)
{
    uint32_t ref = lock_by_token(c, token, true);
    struct message message;

    (void)now_ns;
    if (ref == 0)
        return;
    lock_at(c, ref)->state = COND_CANCELLING;
    message = cond_message(c, ref, MESSAGE_COND_CANCEL);
    message_send(c, lock_at(c, ref)->home, &message);
}

void cond_receive(struct coherence *c, const struct message *message)
{
    struct lock *lock = lock_match(c, message);
    struct lock was;
    int result = message->credit == ECANCELED || message->credit == ENOSPC ? -(int)message->credit : 0;

    if (lock == NULL || lock->state < COND_ASKED || !node_is(message->from, lock->home)) {
        stale(c); /* L7 */
        return;
    }
    was = *lock;
    if (message->type == MESSAGE_COND_WAITING) {
        if (was.state == COND_ASKED) {
            lock->state = COND_REGISTERED;
            done(c, was.token, 0, 1);
        }
        return;
    }
    if ((message->type == MESSAGE_COND_WAKE_DONE) != (was.state == COND_WAKING)) {
        stale(c);
        return;
    }
    lock_put(c, message->request + 1);
    if (was.state == COND_ASKED && result == 0)
        done(c, was.token, 0, 1);
    done(c, was.token, result, 0);
}

static void cond_tell(struct coherence *c, struct node_id to, const struct message *about, uint8_t type, uint32_t error)
{
    struct message message = {.type = type,
                              .page = about->page,
                              .requester = to,
                              .request = about->request,
                              .credit = error,
                              .a = about->a,
                              .c = about->c};

    message_send(c, to, &message);
}

static void cond_requested(struct coherence *c, const struct message *message)
{
    uint32_t ref = claim_take(c);
    struct claim *claim;

    if (ref == 0) {
        cond_tell(c, message->from, message, MESSAGE_COND_WOKEN, ENOSPC);
        return;
    }
    claim = claim_at(c, ref);
    claim->first = message->a;
    claim->count = 1;
    claim->serial = message_serial(message);
    claim->request = message->request;
    claim->node = message->from;
    claim->space = SPACE_CONDS;
    claim->state = CLAIM_WAITING;
    claim_insert(c, ref);
    cond_tell(c, message->from, message, MESSAGE_COND_WAITING, 0);
}

static uint32_t cond_earliest(const struct coherence *c, uint64_t word)
{
    uint32_t ref = claim_overlapping(c, SPACE_CONDS, word, 1, 0), best = 0;

    for (; ref != 0; ref = claim_overlapping(c, SPACE_CONDS, word, 1, ref)) {
        if (best == 0 || claim_at(c, ref)->arrival < claim_at(c, best)->arrival)
            best = ref;
    }
    return best;
}

static void cond_wake(struct coherence *c, const struct message *message)
{
    uint32_t ref;

    do {
        ref = cond_earliest(c, message->a);
        if (ref != 0) {
            struct claim claim = *claim_at(c, ref);
            struct message about = {.page = message->page,
                                    .request = claim.request,
                                    .a = message->a,
                                    .c = claim.serial << MESSAGE_SERIAL_SHIFT};

            claim_remove(c, ref);
            cond_tell(c, claim.node, &about, MESSAGE_COND_WOKEN, 0);
        }
    } while (ref != 0 && message->b == 1);
    cond_tell(c, message->from, message, MESSAGE_COND_WAKE_DONE, 0);
}

void cond_home_receive(struct coherence *c, const struct message *message)
{
    uint32_t ref;

    if (message->request >= c->limits.locks_max || message->a == UINT64_MAX ||
        !page_is(message->page, page_of(message->a >> (PAGE_SHIFT - 3))) ||
        !node_is(page_home(c, message->page), c->self)) {
        bad(c); /* P18 */
        return;
    }
    if (message->type != MESSAGE_COND_CANCEL && !lock_serial_is_new(c, message)) {
        stale(c); /* L7 */
        return;
    }
    ref = claim_find(c, SPACE_CONDS, message->a, 1, message->from, message->request, message_serial(message));
    if (message->type == MESSAGE_COND_WAKE) {
        cond_wake(c, message);
    } else if (message->type == MESSAGE_COND_WAIT) {
        cond_requested(c, message);
    } else if (ref != 0) {
        claim_remove(c, ref);
        cond_tell(c, message->from, message, MESSAGE_COND_WOKEN, ECANCELED);
    } else {
        stale(c);
    }
}
