/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.c - asking: this node's faults, atomics, reads and evictions, until they are done.
 *
 * Requests for the same page are one errand and one message at a time: the errand's first request stands in the
 * message, the others join it. What a grant does not satisfy asks again.
 */
#include "coherence/internal.h"

static enum access state_access(uint8_t state)
{
    return state == PAGE_EXCLUSIVE ? ACCESS_WRITE : state == PAGE_SHARED ? ACCESS_READ : ACCESS_NONE;
}

void requests_init(struct coherence *c)
{
    for (unsigned i = c->limits.requests_max; i > 0; i--) {
        request_at(c, i)->next = c->request_free;
        c->request_free = (ref16)i;
    }
}

ref16 request_take(struct coherence *c)
{
    ref16 ref = c->request_free;

    if (ref != 0) {
        c->request_free = request_at(c, ref)->next;
        *request_at(c, ref) = (struct request){.serial = 0};
    }
    return ref;
}

void request_put(struct coherence *c, ref16 ref)
{
    *request_at(c, ref) = (struct request){.next = c->request_free};
    c->request_free = ref;
}

/* To its home: a message, or a call when the home is here (P10). */
static void request_send(struct coherence *c, struct node_id home, struct message *message, uint64_t now_ns)
{
    message->from = c->self;
    message->requester = c->self;
    message->epoch = c->view.epoch;
    if (node_is(home, c->self))
        home_request(c, message, now_ns);
    else
        message_send(c, home, message);
}

static bool errand_is_prefetch(const struct coherence *c, const struct errand *errand)
{
    for (ref16 ref = errand->first; ref != 0; ref = request_at(c, ref)->next) {
        if (!request_at(c, ref)->is_prefetch)
            return false;
    }
    return true;
}

/* Asks for what the errand's requests want. */
static void errand_send(struct coherence *c, struct errand *errand, const struct coherence_page *entry, uint64_t now_ns)
{
    struct request *request = request_at(c, errand->first);
    struct message message = {.page = errand->page, .request = errand->first - 1u};

    errand->serial = request->serial = ++c->serial;
    message.c = errand->serial << MESSAGE_SERIAL_SHIFT;
    if (request->kind == REQUEST_PUT) {
        message.type = MESSAGE_PUT;
    } else {
        message.type = errand->access == ACCESS_WRITE ? MESSAGE_GET_EXCLUSIVE : MESSAGE_GET_SHARED;
        message.c |= entry->state == PAGE_INVALID ? 0 : GET_HAS_COPY; /* P9 */
        message.flags = errand_is_prefetch(c, errand) ? MESSAGE_PREFETCH : 0;
    }
    request_send(c, request->home, &message, now_ns);
}

/* Ends every request of the errand for which `access` is enough. Returns the thread of the first that somebody awaits.
 */
static uint64_t errand_finish(struct coherence *c, struct errand *errand, enum access access, int result,
                              bool *ret_somebody_waits)
{
    uint64_t thread = 0;
    ref16 ref = errand->first;

    *ret_somebody_waits = false;
    errand->first = errand->last = 0;
    errand->access = ACCESS_NONE;
    errand->serial = 0;
    while (ref != 0) {
        struct request *request = request_at(c, ref);
        ref16 next = request->next;

        if (request->access > access) {
            request->next = 0;
            if (errand->last != 0)
                request_at(c, errand->last)->next = ref;
            else
                errand->first = ref;
            errand->last = ref;
            if (request->access > errand->access)
                errand->access = request->access;
        } else {
            uint64_t token = request->token;

            if (!request->is_prefetch && !*ret_somebody_waits) {
                *ret_somebody_waits = true;
                thread = request->thread;
            }
            request_put(c, ref);
            done(c, token, result, 0);
        }
        ref = next;
    }
    return thread;
}

static void errand_fail(struct coherence *c, ref16 ref, struct coherence_page *entry, int result)
{
    struct errand *errand = errand_at(c, ref);
    bool somebody_waits;

    errand_finish(c, errand, ACCESS_WRITE, result, &somebody_waits);
    errand_put_if_idle(c, ref, entry);
}

static ref16 errand_join(struct coherence *c, struct page_id page, struct coherence_page *entry, ref16 request)
{
    ref16 ref = entry->pending != 0 ? entry->pending : errand_take(c, page, entry, false);
    struct errand *errand = errand_at(c, ref);

    if (errand->last != 0)
        request_at(c, errand->last)->next = request;
    else
        errand->first = request;
    errand->last = request;
    if (request_at(c, request)->access > errand->access)
        errand->access = request_at(c, request)->access;
    return ref;
}

/* Can a thread use the page now, and for a while? */
static bool page_suffices(const struct coherence *c, const struct coherence_page *entry, enum access access)
{
    return state_access(entry->state) >= access &&
           !(entry->pending != 0 && errand_at(c, entry->pending)->is_lowering) && (entry->flags & PAGE_ASKED) == 0;
}

int coherence_fault(struct coherence *c, struct page_id page, enum access access, uint64_t thread, uint64_t token,
                    bool prefetch, uint64_t now_ns)
{
    struct coherence_page *entry = page_entry(c, page);
    struct node_id home = page_home(c, page);
    struct request *request;
    ref16 ref;

    if (entry == NULL || node_is_none(home))
        return -EFAULT;
    if (entry->state == PAGE_POISONED) {
        c->env->poison(c->env->context, page, "its bytes were lost");
        done(c, token, -EIO, 0);
        return 0;
    }
    if (page_suffices(c, entry, access)) {
        if (!prefetch)
            c->env->install(c->env->context, page, state_access(entry->state), NULL);
        done(c, token, 0, 0);
        return 0;
    }
    if (!node_is_member(c, home)) { /* V5 */
        page_poison(c, page, entry, "its home left the job");
        done(c, token, -EHOSTDOWN, 0);
        return 0;
    }
    ref = request_take(c); /* P14 */
    if (ref == 0)
        return -EAGAIN;
    request = request_at(c, ref);
    *request = (struct request){.page = page,
                                .token = token,
                                .thread = thread,
                                .home = home,
                                .kind = REQUEST_FAULT,
                                .access = (uint8_t)access,
                                .is_prefetch = prefetch};
    ref = errand_join(c, page, entry, ref);
    if (errand_at(c, ref)->serial == 0)
        errand_send(c, errand_at(c, ref), entry, now_ns);
    return 0;
}

/* The home's own exclusive page: given up without a message. P13 */
static int evict_at_home(struct coherence *c, struct page_id page, struct coherence_page *entry, uint64_t now_ns)
{
    struct coherence_home *home = c->env->home(c->env->context, page);

    if (home == NULL || home->busy != 0 || c->env->protect(c->env->context, page, ACCESS_NONE) != 0)
        return -EBUSY;
    entry->state = PAGE_INVALID;
    home->owner = 0;
    home->sharers &= ~node_bit(c->self);
    hold_end(c, page, now_ns);
    return 0;
}

int coherence_evict(struct coherence *c, struct page_id page, uint64_t token, uint64_t now_ns)
{
    struct coherence_page *entry = page_entry(c, page);
    struct node_id home = page_home(c, page);
    int result = 0;
    ref16 ref;

    if (entry == NULL || node_is_none(home))
        return -EFAULT;
    if (entry->pending != 0 || entry->flags != 0)
        return -EBUSY;
    if (entry->state == PAGE_EXCLUSIVE && !node_is(home, c->self)) { /* P13 */
        if (!node_is_member(c, home)) {
            done(c, token, -EHOSTDOWN, 0);
            return 0;
        }
        ref = request_take(c);
        if (ref == 0)
            return -EAGAIN;
        *request_at(c, ref) = (struct request){.page = page,
                                               .token = token,
                                               .home = home,
                                               .kind = REQUEST_PUT,
                                               .access = ACCESS_WRITE,
                                               .is_prefetch = true};
        ref = errand_join(c, page, entry, ref);
        errand_send(c, errand_at(c, ref), entry, now_ns);
        return 0;
    }
    if (entry->state == PAGE_SHARED || entry->state == PAGE_EXCLUSIVE) {
        if (node_is(home, c->self))
            result = evict_at_home(c, page, entry, now_ns);
        else if (c->env->protect(c->env->context, page, ACCESS_NONE) != 0)
            result = -EBUSY;
    }
    if (result != 0) {
        /* A protect() that is in progress ends in coherence_protected(), which gives the rights back. */
        return result;
    }
    if (entry->state != PAGE_POISONED) {
        if (entry->state == PAGE_SHARED && !node_is(home, c->self))
            c->env->drop(c->env->context, page);
        entry->state = PAGE_INVALID;
    }
    done(c, token, 0, 0);
    return 0;
}

static void confirm(struct coherence *c, const struct message *grant, struct node_id home, uint8_t flags, uint64_t a,
                    uint64_t now_ns)
{
    struct message message = {.type = MESSAGE_CONFIRM,
                              .flags = flags,
                              .page = grant->page,
                              .sequence = grant->sequence,
                              .request = grant->request,
                              .requester = c->self,
                              .a = a,
                              .c = grant->c};

    if (node_is(home, c->self)) {
        message.from = c->self;
        home_answer(c, &message, now_ns);
    } else {
        message_send(c, home, &message);
    }
}

/* A grant that nobody waits for. P15: of the last transaction, it may be the home's question of V2. */
static void grant_unmatched(struct coherence *c, const struct message *message, const struct coherence_page *entry,
                            struct node_id home, uint64_t now_ns)
{
    stale(c);
    if (message->type == MESSAGE_GRANT && node_is(message->from, home) && message->sequence == entry->sequence &&
        (entry->state == PAGE_SHARED || entry->state == PAGE_EXCLUSIVE))
        confirm(c, message, home, 0, CONFIRM_DONE, now_ns);
}

/* Makes the grant true here. False: it came without bytes and the copy is gone (P9). */
static bool grant_install(struct coherence *c, const struct message *message, struct coherence_page *entry,
                          bool is_home)
{
    static const uint8_t zeroes[PAGE_BYTES];
    enum access access = message->a == ACCESS_WRITE ? ACCESS_WRITE : ACCESS_READ;
    const void *bytes = message->payload;

    if (bytes == NULL && (message->flags & MESSAGE_ZERO) != 0 && !is_home)
        bytes = entry->sequence == 0 ? NULL : zeroes;
    else if (bytes == NULL && entry->state == PAGE_INVALID && !is_home)
        return false;
    entry->state = access == ACCESS_WRITE ? PAGE_EXCLUSIVE : PAGE_SHARED;
    entry->sequence = message->sequence;
    c->env->install(c->env->context, message->page, access, bytes);
    return true;
}

/* A grant from the home, or the data from the owner. */
void request_granted(struct coherence *c, const struct message *message, uint64_t now_ns)
{
    struct coherence_page *entry = page_entry(c, message->page);
    struct node_id home = page_home(c, message->page);
    struct errand *errand;
    enum access access = message->a == ACCESS_WRITE ? ACCESS_WRITE : ACCESS_READ;
    uint64_t thread;
    bool somebody_waits;
    ref16 ref;

    if (entry == NULL || (message->type == MESSAGE_GRANT && !node_is(message->from, home))) {
        bad(c); /* P18 */
        return;
    }
    ref = entry->pending;
    errand = ref == 0 ? NULL : errand_at(c, ref);
    if (errand == NULL || errand->serial == 0 || errand->serial != message_serial(message) ||
        errand->first != message->request + 1) {
        grant_unmatched(c, message, entry, home, now_ns);
        return;
    }
    if ((message->flags & MESSAGE_POISONED) != 0) { /* P17 */
        page_poison(c, message->page, entry, "its bytes were lost");
        entry->sequence = message->sequence;
        errand_fail(c, ref, entry, -EIO);
        confirm(c, message, home, MESSAGE_POISONED, CONFIRM_DONE, now_ns);
        return;
    }
    if (!grant_install(c, message, entry, node_is(home, c->self))) {
        confirm(c, message, home, 0, CONFIRM_NOCOPY, now_ns);
        errand_send(c, errand, entry, now_ns);
        return;
    }
    thread = errand_finish(c, errand, access, 0, &somebody_waits);
    if (somebody_waits)
        hold_begin(c, message->page, thread, now_ns); /* P12 */
    if (errand->first == 0)
        errand_put_if_idle(c, ref, entry);
    confirm(c, message, home, 0, CONFIRM_DONE, now_ns);
    /* A call of the home may have given the page on already, and the errand to somebody else. */
    if (entry->pending == ref && errand->first != 0 && errand->serial == 0)
        errand_send(c, errand, entry, now_ns);
}

/*
 * The errand's message was answered without a grant. What nobody waits for ends with -error (a put that is done: 0);
 * what somebody waits for asks again (P16), unless the page is lost.
 */
static void errand_refused(struct coherence *c, ref16 ref, struct coherence_page *entry, int error, uint64_t now_ns)
{
    struct errand *errand = errand_at(c, ref);
    ref16 next = errand->first;

    if (error == EIO && entry->state != PAGE_POISONED)
        page_poison(c, errand->page, entry, "its bytes were lost");
    if (error != EAGAIN && error != 0) {
        errand_fail(c, ref, entry, -error);
        return;
    }
    errand->first = errand->last = 0;
    errand->access = ACCESS_NONE;
    errand->serial = 0;
    while (next != 0) {
        ref16 request = next;
        uint64_t token = request_at(c, request)->token;

        next = request_at(c, request)->next;
        request_at(c, request)->next = 0;
        if (request_at(c, request)->is_prefetch) {
            request_put(c, request);
            done(c, token, -error, 0);
        } else {
            errand_join(c, errand->page, entry, request);
        }
    }
    if (errand->first != 0)
        errand_send(c, errand, entry, now_ns);
    else
        errand_put_if_idle(c, ref, entry);
}

/* The request that an answer of the home names, or NULL: late or repeated (P15). */
static struct request *request_match(struct coherence *c, const struct message *message)
{
    struct request *request;

    if (message->request >= c->limits.requests_max) {
        bad(c);
        return NULL;
    }
    request = request_at(c, message->request + 1);
    if (request->kind == REQUEST_FREE || request->serial != message_serial(message) ||
        !page_is(request->page, message->page) || !node_is(request->home, message->from)) {
        stale(c);
        return NULL;
    }
    return request;
}

void request_refused(struct coherence *c, const struct message *message, uint64_t now_ns)
{
    struct request *request = request_match(c, message);
    int error = message->a == EIO || message->a == ESTALE ? (int)message->a : EAGAIN;

    if (request == NULL)
        return;
    if (request->kind == REQUEST_FAULT || request->kind == REQUEST_PUT) {
        struct coherence_page *entry = page_entry(c, message->page);

        if (entry == NULL || entry->pending == 0 || errand_at(c, entry->pending)->serial != message_serial(message))
            stale(c);
        else
            errand_refused(c, entry->pending, entry, error, now_ns);
    } else if (request->kind != REQUEST_READING) {
        uint64_t token = request->token;

        request_put(c, (ref16)(message->request + 1));
        done(c, token, -error, 0);
    }
}

/* An answer that ends a request: put-done, atomic-done, read-ready. */
void request_finished(struct coherence *c, const struct message *message, enum request_kind kind, uint64_t now_ns)
{
    struct request *request = request_match(c, message);
    struct coherence_page *entry = page_entry(c, message->page);
    uint64_t token;
    int result;

    if (request == NULL || entry == NULL || request->kind != kind)
        return;
    token = request->token;
    if (kind == REQUEST_PUT) {
        if (entry->pending != 0 && errand_at(c, entry->pending)->serial == request->serial)
            errand_refused(c, entry->pending, entry, 0, now_ns);
        return;
    }
    result = kind == REQUEST_ATOMIC ? -(int)(message->b & 4095) : -(int)(message->a & 4095);
    if (kind == REQUEST_READ && result == 0)
        request->kind = REQUEST_READING;
    else
        request_put(c, (ref16)(message->request + 1));
    done(c, token, result, kind == REQUEST_ATOMIC ? message->a : 0);
}

/* P14: a request that is no errand. 0 and the request, or -EAGAIN, -EFAULT; *ret_request NULL: it has ended already. */
static int request_begin(struct coherence *c, struct page_id page, uint64_t token, enum request_kind kind,
                         struct request **ret_request)
{
    struct coherence_page *entry = page_entry(c, page);
    struct node_id home = page_home(c, page);
    ref16 ref;

    if (entry == NULL || node_is_none(home))
        return -EFAULT;
    *ret_request = NULL;
    if (!node_is_member(c, home)) { /* V5 */
        done(c, token, -EHOSTDOWN, 0);
        return 0;
    }
    ref = request_take(c);
    if (ref == 0)
        return -EAGAIN;
    *ret_request = request_at(c, ref);
    **ret_request =
        (struct request){.page = page, .token = token, .home = home, .serial = ++c->serial, .kind = (uint8_t)kind};
    return 0;
}

static uint32_t request_index(const struct coherence *c, const struct request *request)
{
    return (uint32_t)(request - request_at(c, 1));
}

int coherence_atomic(struct coherence *c, struct page_id page, unsigned offset_bytes, unsigned operation,
                     uint64_t argument, uint64_t expected, uint64_t token, uint64_t now_ns)
{
    struct message message = {.type = MESSAGE_ATOMIC, .page = page, .a = argument, .b = expected};
    struct request *request;
    int result;

    if (offset_bytes % 8 != 0 || offset_bytes >= PAGE_BYTES || operation >= ATOMIC_OPERATIONS)
        return -EINVAL;
    result = request_begin(c, page, token, REQUEST_ATOMIC, &request);
    if (result != 0 || request == NULL)
        return result;
    message.request = request_index(c, request);
    message.c = request->serial << MESSAGE_SERIAL_SHIFT | (uint64_t)operation << 12 | offset_bytes / 8;
    request_send(c, request->home, &message, now_ns);
    return 0;
}

int coherence_read(struct coherence *c, struct page_id first, unsigned pages_count, uint64_t token, uint64_t now_ns)
{
    struct message message = {.type = MESSAGE_READ, .page = first, .a = pages_count};
    struct request *request;
    int result;

    if (pages_count == 0 || first.index % EXTENT_PAGES + pages_count > EXTENT_PAGES)
        return -EINVAL;
    result = request_begin(c, first, token, REQUEST_READ, &request);
    if (result != 0 || request == NULL)
        return result;
    request->count = (uint16_t)pages_count;
    message.request = request_index(c, request);
    message.c = request->serial << MESSAGE_SERIAL_SHIFT;
    request_send(c, request->home, &message, now_ns);
    return 0;
}

/* Reads are few: a scan of this node's own requests, off the fault path. */
void coherence_read_end(struct coherence *c, uint64_t token, uint64_t now_ns)
{
    for (unsigned i = 1; i <= c->limits.requests_max; i++) {
        struct request request = *request_at(c, i);
        struct message message = {.type = MESSAGE_READ_END,
                                  .page = request.page,
                                  .request = i - 1,
                                  .c = request.serial << MESSAGE_SERIAL_SHIFT};

        if (request.kind != REQUEST_READING || request.token != token)
            continue;
        request_put(c, (ref16)i);
        if (node_is(request.home, c->self))
            read_end(c, c->self, i - 1, request.serial, now_ns);
        else if (node_is_member(c, request.home))
            message_send(c, request.home, &message);
        return;
    }
}

/* V5. A page that is still here stays: faults that waited for the end of a recall have their rights. */
static void errand_home_died(struct coherence *c, ref16 ref, struct coherence_page *entry)
{
    struct errand *errand = errand_at(c, ref);
    struct request *first = request_at(c, errand->first);
    bool somebody_waits;

    if (first->kind == REQUEST_PUT) {
        ref16 put = errand->first;
        uint64_t token = first->token;

        errand->first = first->next;
        errand->last = errand->first == 0 ? 0 : errand->last;
        request_put(c, put);
        done(c, token, -EHOSTDOWN, 0);
    }
    if (errand->first != 0 && state_access(entry->state) != ACCESS_NONE) {
        c->env->install(c->env->context, errand->page, state_access(entry->state), NULL);
        errand_finish(c, errand, state_access(entry->state), 0, &somebody_waits);
    }
    if (errand->first != 0)
        page_poison(c, errand->page, entry, "its home left the job");
    errand_fail(c, ref, entry, -EHOSTDOWN);
}

/* V5: what was asked of homes that are no members ends. */
void requests_home_died(struct coherence *c)
{
    for (unsigned i = 1; i <= c->limits.requests_max; i++) {
        struct request request = *request_at(c, i);
        struct coherence_page *entry;

        if (request.kind == REQUEST_FREE || request.kind == REQUEST_READING || node_is_member(c, request.home))
            continue;
        entry = page_entry(c, request.page);
        if ((request.kind == REQUEST_FAULT || request.kind == REQUEST_PUT) && entry != NULL && entry->pending != 0) {
            errand_home_died(c, entry->pending, entry);
        } else {
            request_put(c, (ref16)i);
            done(c, request.token, -EHOSTDOWN, 0);
        }
    }
}

static void errand_forget(struct coherence *c, ref16 ref)
{
    struct errand *errand = errand_at(c, ref);

    while (errand->first != 0) {
        ref16 request = errand->first;
        uint64_t token = request_at(c, request)->token;

        errand->first = request_at(c, request)->next;
        request_put(c, request);
        done(c, token, -EFAULT, 0);
    }
    errand->last = 0;
    errand->serial = 0;
}

/* V8: a late answer finds no request with its serial. */
void requests_forget(struct coherence *c, struct page_id first, unsigned pages_count)
{
    for (unsigned i = 1; i <= c->limits.requests_max; i++) {
        struct request request = *request_at(c, i);
        struct coherence_page *entry;

        if (request.kind == REQUEST_FREE || request.page.index - first.index >= pages_count)
            continue;
        entry = page_entry(c, request.page);
        if ((request.kind == REQUEST_FAULT || request.kind == REQUEST_PUT) && entry != NULL && entry->pending != 0) {
            errand_forget(c, entry->pending);
            continue;
        }
        request_put(c, (ref16)i);
        if (request.kind != REQUEST_READING)
            done(c, request.token, -EFAULT, 0);
    }
}
