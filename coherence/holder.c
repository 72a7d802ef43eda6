/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holder.c - holding: what this node does when a page's home wants its rights back.
 *
 * Rights go down first, then bytes and answers go out (P6, P11). A recall that must wait, for the hold (P12) or for a
 * pin, is kept in the page's errand. The home's own threads are a holder too: home.c calls holder_take() and hears of
 * a late end through home_yielded() (P10).
 */
#include "coherence/internal.h"

void errands_init(struct coherence *c)
{
    for (unsigned i = c->errands_count; i > 0; i--) {
        errand_at(c, i)->next = c->errand_free;
        c->errand_free = (ref16)i;
    }
}

/*
 * Errands for requests never run out: there is one for each request. Recalls share the rest. 0: none left.
 */
ref16 errand_take(struct coherence *c, struct page_id page, struct coherence_page *entry, bool is_extra)
{
    ref16 ref = c->errand_free;

    if (is_extra && c->errands_extra == c->errands_extra_max)
        return 0;
    ASSERT(ref != 0 && entry->pending == 0);
    c->errand_free = errand_at(c, ref)->next;
    *errand_at(c, ref) = (struct errand){.page = page, .is_extra = is_extra};
    c->errands_extra = (uint16_t)(c->errands_extra + (is_extra ? 1 : 0));
    entry->pending = ref;
    return ref;
}

void errand_put_if_idle(struct coherence *c, ref16 ref, struct coherence_page *entry)
{
    struct errand *errand = errand_at(c, ref);

    if (errand->first != 0 || errand->recall.type != MESSAGE_NONE)
        return;
    c->errands_extra = (uint16_t)(c->errands_extra - (errand->is_extra ? 1 : 0));
    *errand = (struct errand){.next = c->errand_free};
    c->errand_free = ref;
    entry->pending = 0;
}

static void timer_start(struct coherence *c, ref16 ref, uint64_t until_ns)
{
    struct errand *errand = errand_at(c, ref);

    errand->is_timed = true;
    errand->until_ns = until_ns;
    errand->previous = 0;
    errand->next = c->timed_first;
    if (c->timed_first != 0)
        errand_at(c, c->timed_first)->previous = ref;
    c->timed_first = ref;
    if (until_ns < c->deadline_ns)
        c->deadline_ns = until_ns;
}

static void timer_stop(struct coherence *c, ref16 ref)
{
    struct errand *errand = errand_at(c, ref);

    if (!errand->is_timed)
        return;
    if (errand->previous != 0)
        errand_at(c, errand->previous)->next = errand->next;
    else
        c->timed_first = errand->next;
    if (errand->next != 0)
        errand_at(c, errand->next)->previous = errand->previous;
    errand->is_timed = false;
    errand->next = errand->previous = 0;
    if (c->timed_first == 0)
        c->deadline_ns = UINT64_MAX;
}

static enum access recall_leaves(uint8_t type)
{
    return type == MESSAGE_RECALL_SHARED ? ACCESS_READ : ACCESS_NONE;
}

/* Takes note of a recall that must wait. False: no room. */
static bool recall_keep(struct coherence *c, struct page_id page, struct coherence_page *entry,
                        const struct recall *recall, ref16 *ret_ref)
{
    ref16 ref = entry->pending;

    if (ref == 0) {
        ref = errand_take(c, page, entry, true);
        if (ref == 0)
            return false;
    } else if (!errand_at(c, ref)->is_extra) {
        /* The recall may outlive the requests, whose errands must not run out. */
        if (c->errands_extra == c->errands_extra_max)
            return false;
        errand_at(c, ref)->is_extra = true;
        c->errands_extra++;
    }
    errand_at(c, ref)->recall = *recall;
    *ret_ref = ref;
    return true;
}

/*
 * Lowers the rights of this node's threads as `recall` says. 0: done. -EINPROGRESS: kept in the errand, or PAGE_ASKED.
 * The caller answers, or the end of the hold or pin does.
 */
int holder_take(struct coherence *c, struct page_id page, const struct recall *recall, uint64_t now_ns)
{
    struct coherence_page *entry = page_entry(c, page);
    enum access left = recall_leaves(recall->type);
    uint64_t until_ns = hold_until_ns(c, page);
    ref16 ref;

    if (entry->state == PAGE_INVALID || entry->state == PAGE_POISONED ||
        (left == ACCESS_READ && entry->state == PAGE_SHARED))
        return 0;
    if (until_ns > now_ns && recall_keep(c, page, entry, recall, &ref)) { /* P12 */
        c->counters.recalls_held++;
        timer_start(c, ref, until_ns);
        return -EINPROGRESS;
    }
    if (!MUTANT(2) && c->env->protect(c->env->context, page, left) != 0) { /* P11 */
        if (recall_keep(c, page, entry, recall, &ref))
            errand_at(c, ref)->is_lowering = true;
        else
            entry->flags |= PAGE_ASKED;
        return -EINPROGRESS;
    }
    hold_end(c, page, now_ns);
    return 0;
}

/* The rights are down: bytes go to the requester, a report to the home. P6, P7 */
static void recall_answer(struct coherence *c, struct page_id page, struct coherence_page *entry,
                          const struct recall *recall)
{
    bool is_shared = recall->type == MESSAGE_RECALL_SHARED;
    bool is_direct = !node_is(recall->requester, recall->home) && node_is_member(c, recall->requester);
    struct message report = {.page = page,
                             .sequence = recall->sequence,
                             .request = recall->request,
                             .requester = recall->requester,
                             .c = recall->c};

    if (entry->state != PAGE_EXCLUSIVE && !(is_shared && entry->state == PAGE_SHARED)) {
        report.type = MESSAGE_RECALLED; /* P17: this node has not got them */
        report.flags = MESSAGE_POISONED;
        message_send(c, recall->home, &report);
        return;
    }
    entry->sequence = recall->sequence;
    entry->state = is_shared ? PAGE_SHARED : PAGE_INVALID;
    if (is_direct) {
        report.type = MESSAGE_DATA;
        report.a = is_shared ? ACCESS_READ : ACCESS_WRITE;
        message_send_page(c, recall->requester, &report);
    }
    report.type = is_shared || !is_direct ? MESSAGE_WRITE_BACK : MESSAGE_RECALLED;
    report.a = is_shared ? 1 : 0;
    if (report.type == MESSAGE_WRITE_BACK)
        message_send_page(c, recall->home, &report);
    else
        message_send(c, recall->home, &report);
    if (!is_shared)
        c->env->drop(c->env->context, page);
}

static void invalidate_answer(struct coherence *c, struct page_id page, struct coherence_page *entry,
                              const struct recall *recall)
{
    struct message ack = {.type = MESSAGE_INVALIDATED,
                          .page = page,
                          .sequence = recall->sequence,
                          .request = recall->request,
                          .requester = recall->requester,
                          .c = recall->c};

    if (entry->state == PAGE_SHARED) {
        entry->state = PAGE_INVALID;
        entry->sequence = recall->sequence;
        c->env->drop(c->env->context, page);
    }
    message_send(c, recall->home, &ack);
}

static void holder_answer(struct coherence *c, struct page_id page, struct coherence_page *entry,
                          const struct recall *recall, uint64_t now_ns)
{
    if (node_is(recall->home, c->self)) { /* P10 */
        if (entry->state != PAGE_POISONED)
            entry->state = recall_leaves(recall->type) == ACCESS_READ ? PAGE_SHARED : PAGE_INVALID;
        entry->sequence = recall->sequence;
        home_yielded(c, page, recall_leaves(recall->type), now_ns);
    } else if (recall->type == MESSAGE_INVALIDATE) {
        invalidate_answer(c, page, entry, recall);
    } else {
        recall_answer(c, page, entry, recall);
    }
}

/* invalidate, recall-shared, recall-exclusive, from the page's home. */
void holder_receive(struct coherence *c, const struct message *message, uint64_t now_ns)
{
    struct coherence_page *entry = page_entry(c, message->page);
    struct recall recall = {.type = message->type,
                            .sequence = message->sequence,
                            .home = message->from,
                            .requester = message->requester,
                            .request = message->request,
                            .c = message->c};

    if (entry == NULL || !node_is(page_home(c, message->page), message->from) || node_is(message->requester, c->self) ||
        node_is(message->from, c->self)) {
        bad(c); /* P18 */
        return;
    }
    if (entry->pending != 0 && errand_at(c, entry->pending)->recall.type != MESSAGE_NONE) {
        stale(c); /* P15: the home repeats one that is waiting */
        return;
    }
    if ((int32_t)(message->sequence - entry->sequence) <= 0 ||
        (message->type == MESSAGE_INVALIDATE && entry->state == PAGE_EXCLUSIVE)) {
        stale(c); /* P15: what came with transaction n is not meant by n or an earlier one (P8) */
        return;
    }
    if (holder_take(c, message->page, &recall, now_ns) == 0)
        holder_answer(c, message->page, entry, &recall, now_ns);
}

/* The recall in the errand can be answered: it leaves the errand. */
static void recall_finish(struct coherence *c, ref16 ref, struct coherence_page *entry, uint64_t now_ns)
{
    struct errand *errand = errand_at(c, ref);
    struct recall recall = errand->recall;
    struct page_id page = errand->page;

    errand->recall.type = MESSAGE_NONE;
    errand->is_lowering = false;
    errand_put_if_idle(c, ref, entry);
    hold_end(c, page, now_ns);
    holder_answer(c, page, entry, &recall, now_ns);
}

static void hold_expired(struct coherence *c, ref16 ref, uint64_t now_ns)
{
    struct errand *errand = errand_at(c, ref);
    struct coherence_page *entry = page_entry(c, errand->page);

    timer_stop(c, ref);
    ASSERT(entry != NULL && entry->pending == ref);
    if (!MUTANT(2) && c->env->protect(c->env->context, errand->page, recall_leaves(errand->recall.type)) != 0)
        errand->is_lowering = true;
    else
        recall_finish(c, ref, entry, now_ns);
}

void holder_tick(struct coherence *c, uint64_t now_ns)
{
    ref16 ref = c->timed_first;
    uint64_t deadline_ns = UINT64_MAX;

    /* An expiry only adds to the front of the list, and only later deadlines. */
    while (ref != 0) {
        ref16 next = errand_at(c, ref)->next;

        if (errand_at(c, ref)->until_ns <= now_ns)
            hold_expired(c, ref, now_ns);
        ref = next;
    }
    for (ref = c->timed_first; ref != 0; ref = errand_at(c, ref)->next) {
        if (errand_at(c, ref)->until_ns < deadline_ns)
            deadline_ns = errand_at(c, ref)->until_ns;
    }
    c->deadline_ns = deadline_ns;
}

/* The pin is over and the rights are down. */
void holder_protected(struct coherence *c, struct page_id page, uint64_t now_ns)
{
    struct coherence_page *entry = page_entry(c, page);
    struct node_id home = page_home(c, page);
    struct message again = {.type = MESSAGE_AGAIN, .page = page};

    if (entry == NULL)
        return;
    if (entry->pending != 0 && errand_at(c, entry->pending)->is_lowering) {
        recall_finish(c, entry->pending, entry, now_ns);
        return;
    }
    /* An eviction or recall that was given up: the threads get back what the protocol says they have. */
    if (entry->state == PAGE_SHARED || entry->state == PAGE_EXCLUSIVE)
        c->env->install(c->env->context, page, entry->state == PAGE_SHARED ? ACCESS_READ : ACCESS_WRITE, NULL);
    if ((entry->flags & PAGE_ASKED) != 0) { /* P11 */
        entry->flags &= (uint8_t)~PAGE_ASKED;
        again.from = c->self;
        again.sequence = 0;
        if (node_is(home, c->self))
            home_answer(c, &again, now_ns);
        else
            message_send(c, home, &again);
    }
}

/* V5: recalls by homes that are no members any more are forgotten. */
static void recall_drop(struct coherence *c, ref16 ref)
{
    struct errand *errand = errand_at(c, ref);

    timer_stop(c, ref);
    errand->recall.type = MESSAGE_NONE;
    errand->is_lowering = false; /* coherence_protected() gives the rights back */
}

void holder_homes_died(struct coherence *c)
{
    for (unsigned i = 1; i <= c->errands_count; i++) {
        struct errand *errand = errand_at(c, i);
        struct coherence_page *entry;

        if (errand->recall.type == MESSAGE_NONE || node_is_member(c, errand->recall.home))
            continue;
        entry = page_entry(c, errand->page);
        recall_drop(c, (ref16)i);
        if (entry != NULL)
            errand_put_if_idle(c, (ref16)i, entry);
    }
}

/* V8 */
void holder_forget(struct coherence *c, struct coherence_page *entry)
{
    if (entry->pending != 0) {
        recall_drop(c, entry->pending);
        errand_put_if_idle(c, entry->pending, entry);
    }
    *entry = (struct coherence_page){.state = PAGE_INVALID};
}
