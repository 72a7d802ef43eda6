/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.c - the home's half of coherence_read(): pages kept current and in place while somebody copies from the store.
 *
 * A read takes its pages in ascending order, each for good (A4). Pages that another node owns, or that are in service,
 * are made current by helpers, ordinary transactions in the page's queue, a few pages ahead (A3).
 */
#include "coherence/internal.h"

static struct page_id read_page(const struct transaction *t, unsigned offset)
{
    return page_of(t->page.index + offset);
}

/* The store is current and no transaction that could change that has begun. */
static bool page_can_be_taken(const struct coherence *c, const struct coherence_home *home)
{
    const struct transaction *head = home->busy == 0 ? NULL : transaction_at(c, home->busy);

    if (home->owner != 0 && home->owner != c->self.index + 1)
        return false;
    return head == NULL || head->phase == PHASE_QUEUED || (head->goal == GOAL_SHARED && head->has_granted);
}

/* Puts a helper in the queue of a page. False: there is none. */
static bool helper_start(struct coherence *c, struct transaction *t, unsigned offset, uint64_t now_ns)
{
    struct transaction *helper = transaction_take(c, POOL_HELPERS);

    if (helper == NULL) {
        t->is_stalled = c->are_reads_stalled = true;
        return false;
    }
    helper->goal = GOAL_HELPER;
    helper->page = read_page(t, offset);
    helper->requester = c->self;
    helper->parent = transaction_ref(c, t);
    helper->c = ++c->serial << MESSAGE_SERIAL_SHIFT;
    t->helping = (uint16_t)(t->helping | 1u << (offset - t->cursor));
    home_enqueue(c, c->env->home(c->env->context, helper->page), helper, now_ns);
    return true;
}

static void read_fail(struct coherence *c, struct transaction *t, uint64_t now_ns)
{
    transaction_answer(c, t, MESSAGE_READ_READY, EIO, 0, now_ns);
    read_forget(c, t, now_ns);
}

/* Takes what can be taken. Returns -EIO when a page is lost. */
static int read_take(struct coherence *c, struct transaction *t)
{
    while (t->cursor < t->count) {
        struct coherence_home *home = c->env->home(c->env->context, read_page(t, t->cursor));

        if (home == NULL || (home->flags & HOME_POISONED) != 0)
            return -EIO;
        if (!page_can_be_taken(c, home))
            break;
        home->flags |= HOME_READ;
        t->cursor++;
        t->helping = (uint16_t)(t->helping >> 1);
    }
    return 0;
}

/* Helpers for the next page, and once for those after it. True: one was at work for the next page and is done. */
static bool read_help(struct coherence *c, struct transaction *t, uint64_t now_ns)
{
    unsigned cursor = t->cursor;

    for (unsigned offset = cursor; offset < t->count && offset < cursor + READ_AHEAD; offset++) {
        const struct coherence_home *home = c->env->home(c->env->context, read_page(t, offset));

        if ((t->helping >> (offset - cursor) & 1) != 0 || (offset > cursor && offset < t->ahead))
            continue;
        if (home != NULL && !page_can_be_taken(c, home) && !helper_start(c, t, offset, now_ns))
            break;
        if (offset >= t->ahead)
            t->ahead = (uint16_t)(offset + 1);
    }
    return (t->helping & 1) == 0 && !t->is_stalled;
}

void read_run(struct coherence *c, struct transaction *t, uint64_t now_ns)
{
    bool again = true;

    if (t->is_running || t->phase != PHASE_READ_RUNNING)
        return;
    t->is_running = true;
    while (again) {
        if (t->b != 0 || read_take(c, t) != 0) {
            t->is_running = false;
            read_fail(c, t, now_ns);
            return;
        }
        if (t->cursor == t->count) {
            struct message ready;

            t->phase = PHASE_READ_READY;
            ready = (struct message){.type = MESSAGE_READ_READY,
                                     .from = c->self,
                                     .page = t->page,
                                     .requester = t->requester,
                                     .request = t->request,
                                     .c = t->c};
            t->is_running = false;
            if (node_is(t->requester, c->self))
                request_finished(c, &ready, REQUEST_READ, now_ns);
            else
                message_send(c, t->requester, &ready);
            return;
        }
        again = read_help(c, t, now_ns);
    }
    t->is_running = false;
}

void read_begin(struct coherence *c, struct transaction *t, uint64_t now_ns)
{
    ref16 ref = transaction_ref(c, t);

    t->phase = PHASE_READ_RUNNING;
    t->count = (uint16_t)t->a;
    t->older = c->reads_first;
    if (c->reads_first != 0)
        transaction_at(c, c->reads_first)->newer = ref;
    c->reads_first = ref;
    read_run(c, t, now_ns);
}

/* A helper has done what it could for `page`. */
void read_helped(struct coherence *c, ref16 parent, struct page_id page, int error, uint64_t now_ns)
{
    if (parent != 0) {
        struct transaction *t = transaction_at(c, parent);
        uint64_t offset = page.index - read_page(t, t->cursor).index;

        if (offset < READ_AHEAD)
            t->helping = (uint16_t)(t->helping & ~(1u << offset));
        if (error != 0)
            t->b = EIO;
        read_run(c, t, now_ns);
    }
    if (c->are_reads_stalled) {
        ref16 next = c->reads_first;

        c->are_reads_stalled = false;
        while (next != 0) {
            struct transaction *t = transaction_at(c, next);

            next = t->older;
            if (t->is_stalled) {
                t->is_stalled = false;
                read_run(c, t, now_ns);
            }
        }
    }
}

static bool page_is_read(const struct coherence *c, struct page_id page)
{
    for (ref16 ref = c->reads_first; ref != 0; ref = transaction_at(c, ref)->older) {
        const struct transaction *t = transaction_at(c, ref);

        if (page.index - t->page.index < t->cursor)
            return true;
    }
    return false;
}

/* The read is over: its pages may be owned again, and exclusive requests that waited go on (A5). */
void read_forget(struct coherence *c, struct transaction *t, uint64_t now_ns)
{
    struct page_id first = t->page;
    unsigned taken = t->cursor;
    ref16 ref = transaction_ref(c, t);

    if (t->newer != 0)
        transaction_at(c, t->newer)->older = t->older;
    else
        c->reads_first = t->older;
    if (t->older != 0)
        transaction_at(c, t->older)->newer = t->newer;
    for (unsigned i = 1; t->helping != 0 && i <= c->transactions_count; i++) {
        if (transaction_at(c, i)->is_used && transaction_at(c, i)->parent == ref)
            transaction_at(c, i)->parent = 0;
    }
    served_release(c, t);
    transaction_put(c, t);
    for (unsigned i = 0; i < taken; i++) {
        struct page_id page = page_of(first.index + i);
        struct coherence_home *home = c->env->home(c->env->context, page);

        if (home == NULL || page_is_read(c, page))
            continue;
        home->flags &= (uint8_t)~HOME_READ;
        if (home->busy != 0 && transaction_at(c, home->busy)->phase == PHASE_READERS)
            home_run(c, transaction_at(c, home->busy), NULL, now_ns);
    }
}

void read_end(struct coherence *c, struct node_id reader, uint32_t request, uint64_t serial, uint64_t now_ns)
{
    struct served *served;

    if (request >= c->limits.requests_max) {
        bad(c);
        return;
    }
    served = served_at(c, reader, request);
    if (served->serial != serial || served->transaction == 0 ||
        transaction_at(c, served->transaction)->goal != GOAL_READ ||
        transaction_at(c, served->transaction)->phase != PHASE_READ_READY) {
        stale(c);
        return;
    }
    read_forget(c, transaction_at(c, served->transaction), now_ns);
}
