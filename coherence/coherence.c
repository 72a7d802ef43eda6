/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coherence.c - layout of the state, dispatch of messages to the part that understands them, and the small events.
 */
#include "coherence/internal.h"

#define REQUESTS_ALL_MAX  60000U
#define HOLDS_PER_REQUEST 4

struct layout {
    size_t requests, errands, transactions, served, holds, locks, claims, lock_serials, end;
    uint32_t errands_count, errands_extra, transactions_count, holds_count;
};

static size_t place(size_t *end, size_t size, size_t count)
{
    size_t offset = (*end + 15) & ~(size_t)15;

    *end = offset + size * count;
    return offset;
}

static struct layout layout_of(const struct coherence_limits *limits)
{
    struct layout layout = {.end = sizeof(struct coherence)};
    uint32_t all = (uint32_t)limits->nodes_count * limits->requests_max;

    ASSERT(limits->nodes_count >= 1 && limits->nodes_count <= NODES_MAX);
    ASSERT(limits->requests_max >= 1 && limits->requests_max <= 16384 && all <= REQUESTS_ALL_MAX);
    layout.errands_extra = all < ERRANDS_EXTRA_MAX ? all : ERRANDS_EXTRA_MAX;
    layout.errands_count = limits->requests_max + layout.errands_extra;
    layout.transactions_count = all + limits->requests_max + HELPERS_COUNT;
    if (layout.transactions_count > UINT16_MAX)
        layout.transactions_count = UINT16_MAX;
    layout.holds_count = HOLD_WAYS;
    while (layout.holds_count < HOLDS_PER_REQUEST * (uint32_t)limits->requests_max)
        layout.holds_count *= 2;
    layout.requests = place(&layout.end, sizeof(struct request), limits->requests_max);
    layout.errands = place(&layout.end, sizeof(struct errand), layout.errands_count);
    layout.transactions = place(&layout.end, sizeof(struct transaction), layout.transactions_count);
    layout.served = place(&layout.end, sizeof(struct served), all);
    layout.holds = place(&layout.end, sizeof(struct hold), layout.holds_count);
    layout.locks = place(&layout.end, sizeof(struct lock), limits->locks_max);
    layout.claims = place(&layout.end, sizeof(struct claim), limits->home_locks_max);
    layout.lock_serials = place(&layout.end, sizeof(uint64_t), (size_t)limits->nodes_count * limits->locks_max);
    ASSERT(layout.end <= UINT32_MAX);
    return layout;
}

size_t coherence_size(const struct coherence_limits *limits)
{
    return layout_of(limits).end;
}

void coherence_init(struct coherence *c, const struct coherence_limits *limits, const struct coherence_env *env,
                    struct node_id self, uint64_t seed)
{
    struct layout layout = layout_of(limits);

    ASSERT(self.index < limits->nodes_count);
    memset(c, 0, layout.end);
    c->env = env;
    c->limits = *limits;
    c->self = self;
    c->view.members = node_bit(self);
    c->random.state = seed;
    c->requests_offset = (uint32_t)layout.requests;
    c->errands_offset = (uint32_t)layout.errands;
    c->transactions_offset = (uint32_t)layout.transactions;
    c->served_offset = (uint32_t)layout.served;
    c->holds_offset = (uint32_t)layout.holds;
    c->locks_offset = (uint32_t)layout.locks;
    c->claims_offset = (uint32_t)layout.claims;
    c->lock_serials_offset = (uint32_t)layout.lock_serials;
    c->errands_count = (uint16_t)layout.errands_count;
    c->errands_extra_max = (uint16_t)layout.errands_extra;
    c->transactions_count = (uint16_t)layout.transactions_count;
    c->pool_free[POOL_SELF] = limits->requests_max;
    c->pool_free[POOL_HELPERS] = HELPERS_COUNT;
    c->pool_free[POOL_PEERS] = (uint16_t)(layout.transactions_count - limits->requests_max - HELPERS_COUNT);
    c->hold_mask = layout.holds_count - 1;
    c->deadline_ns = UINT64_MAX;
    requests_init(c);
    errands_init(c);
    home_init(c);
    locks_init(c);
    claims_init(c);
}

void coherence_set_env(struct coherence *c, const struct coherence_env *env)
{
    c->env = env;
}

static bool message_leaves(struct coherence *c, struct node_id to, struct message *message)
{
    message->from = c->self;
    message->epoch = c->view.epoch;
    return node_is_member(c, to); /* V1: the others would refuse it, and need not hear */
}

void message_send(struct coherence *c, struct node_id to, struct message *message)
{
    if (message_leaves(c, to, message))
        c->env->send(c->env->context, to, message);
}

void message_send_page(struct coherence *c, struct node_id to, struct message *message)
{
    if (message_leaves(c, to, message))
        c->env->send_page(c->env->context, to, message);
}

void page_poison(struct coherence *c, struct page_id page, struct coherence_page *entry, const char *why)
{
    entry->state = PAGE_POISONED;
    c->env->poison(c->env->context, page, why);
}

static void dispatch_page(struct coherence *c, const struct message *message, uint64_t now_ns)
{
    switch (message->type) {
    case MESSAGE_INVALIDATE:
    case MESSAGE_RECALL_SHARED:
    case MESSAGE_RECALL_EXCLUSIVE:
        holder_receive(c, message, now_ns);
        break;
    case MESSAGE_INVALIDATED:
    case MESSAGE_RECALLED:
    case MESSAGE_WRITE_BACK:
    case MESSAGE_CONFIRM:
    case MESSAGE_AGAIN:
        home_answer(c, message, now_ns);
        break;
    case MESSAGE_DATA:
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
    case MESSAGE_READ_READY:
        request_finished(c, message, REQUEST_READ, now_ns);
        break;
    case MESSAGE_READ_END:
        read_end(c, message->from, message->request, message_serial(message), now_ns);
        break;
    default: /* the requests: dispatch_lock() has the rest */
        home_request(c, message, now_ns);
        break;
    }
}

static void dispatch_lock(struct coherence *c, const struct message *message)
{
    switch (message->type) {
    case MESSAGE_LOCK:
    case MESSAGE_LOCK_BUSY:
    case MESSAGE_LOCK_RELEASE:
    case MESSAGE_LOCK_PASSED:
    case MESSAGE_LOCK_CANCEL:
        lock_home_receive(c, message);
        break;
    case MESSAGE_COND_WAIT:
    case MESSAGE_COND_CANCEL:
    case MESSAGE_COND_WAKE:
        cond_home_receive(c, message);
        break;
    case MESSAGE_COND_WAITING:
    case MESSAGE_COND_WOKEN:
    case MESSAGE_COND_WAKE_DONE:
        cond_receive(c, message);
        break;
    default:
        lock_receive(c, message);
        break;
    }
}

/*
 * P18. The two halves of a page's protocol at its home call each other (P10): no message about an own page goes to the
 * holder's or requester's half, and none comes from this node.
 */
static bool page_message_is_for_home(const struct message *message)
{
    switch (message->type) {
    case MESSAGE_INVALIDATE:
    case MESSAGE_RECALL_SHARED:
    case MESSAGE_RECALL_EXCLUSIVE:
    case MESSAGE_DATA:
    case MESSAGE_GRANT:
    case MESSAGE_NACK:
    case MESSAGE_PUT_DONE:
    case MESSAGE_ATOMIC_DONE:
    case MESSAGE_READ_READY:
        return false;
    default:
        return true;
    }
}

void coherence_receive(struct coherence *c, struct node_id from, const struct message *message, uint64_t now_ns)
{
    bool is_member = node_is_member(c, from);

    if (!is_member || !node_is(from, message->from) || from.index >= c->limits.nodes_count ||
        (int32_t)(message->epoch.number - c->since[from.index]) < 0 || message->type == MESSAGE_NONE ||
        message->type >= MESSAGE_TYPES_COUNT || node_is_none(page_home(c, message->page))) {
        bad(c); /* V1 */
        return;
    }
    if (message->type >= MESSAGE_LOCK)
        dispatch_lock(c, message);
    else if (node_is(from, c->self) ||
             node_is(page_home(c, message->page), c->self) != page_message_is_for_home(message))
        bad(c);
    else
        dispatch_page(c, message, now_ns);
}

void coherence_protected(struct coherence *c, struct page_id page, uint64_t now_ns)
{
    holder_protected(c, page, now_ns);
}

/* P17 */
void coherence_lost(struct coherence *c, struct page_id page, const char *why, uint64_t now_ns)
{
    struct coherence_page *entry = page_entry(c, page);
    struct coherence_home *home = home_entry(c, page);

    if (entry == NULL || entry->state == PAGE_POISONED)
        return;
    if (home != NULL) {
        if (home->owner == 0 || home->owner == c->self.index + 1)
            home_lost(c, home, page, why);
    } else if (entry->state == PAGE_EXCLUSIVE) {
        page_poison(c, page, entry, why); /* the home hears of it when it recalls the page */
    } else if (entry->state == PAGE_SHARED) {
        if (c->env->protect(c->env->context, page, ACCESS_NONE) == 0) {
            entry->state = PAGE_INVALID;
            hold_end(c, page, now_ns);
            c->env->drop(c->env->context, page);
        } else {
            page_poison(c, page, entry, why); /* a pinned copy cannot be replaced under the device */
        }
    }
}

void coherence_set_view(struct coherence *c, const struct view *view, uint64_t now_ns)
{
    uint64_t died = c->view.members & ~view->members;
    uint64_t joined = view->members & ~c->view.members;

    if (view->epoch.number <= c->view.epoch.number)
        return;
    if (c->view.epoch.number == 0)
        joined = view->members;
    c->view = *view;
    for (unsigned i = 0; i < NODES_MAX; i++) {
        if ((joined >> i & 1) != 0)
            c->since[i] = view->epoch.number;
    }
    if (died == 0)
        return;
    requests_home_died(c);
    holder_homes_died(c);
    home_members_died(c, died, now_ns);
    lock_home_view_changed(c);
    locks_view_changed(c);
}

uint64_t coherence_deadline_ns(const struct coherence *c)
{
    return c->deadline_ns;
}

void coherence_tick(struct coherence *c, uint64_t now_ns)
{
    holder_tick(c, now_ns);
}

void coherence_counters_get(const struct coherence *c, struct coherence_counters *ret_counters)
{
    *ret_counters = c->counters;
}
