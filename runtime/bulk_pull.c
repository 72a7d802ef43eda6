/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk_pull.c - the reader of bulk reads by RDMA.
 *
 * A pull belongs to the thread that took it until the shard has run its `closing`. A part of it is the thread's until
 * it was asked for, then the shard's until its request is finished; an operation under way is always waited for, so
 * that nothing lands in a slot that has another owner.
 */
#include "runtime/bulk_pull.h"
#include "base/log.h"
#include "base/os.h"
#include "runtime/bulk.h"
#include "runtime/request.h"

#include <errno.h>
#include <string.h>

#define IDS_OF_PULLS ((uint64_t)1 << 63) /* other reads of the same home count without it (bulk.c) */
#define REFUSED_NS   UINT64_C(1000000000)

struct part {
    struct request request; /* finished when the slice has landed */
    struct fabric_operation operation;
    bool is_asked; /* the thread has a slot for it */
    bool has_come; /* the home has copied it */
    bool is_over;  /* the request is finished */
};

struct pull {
    _Atomic(bool) is_taken;
    bool is_open; /* the home knows it: its messages are for us */
    struct node *node;
    char *landing; /* PULL_SLOTS slices */
    struct node_id home;
    uint64_t id;
    struct page_id first;
    unsigned pages_count, parts_count;
    int refusal; /* the home's word, or the view's: no further part comes */
    struct loop_call begin, closing;
    struct part parts[LEND_SLICES_MAX];
};

struct pulls {
    uint64_t next_id;
    _Atomic(uint64_t) bytes;
    _Atomic(uint64_t) refused_until_ns[NODES_MAX]; /* the home is not reached so, when last asked */
    struct pull pulls[PULLS_MAX];
};

/* ---- the shard ------------------------------------------------------------------------------------------------- */

char *bulk_pull_lent(const struct node *node)
{
    return node->tcp == NULL ? NULL : fabric_lent(node->tcp);
}

static size_t part_bytes(const struct pull *pull, const struct part *part)
{
    unsigned left = pull->pages_count - (unsigned)(part - pull->parts) * LEND_SLICE_PAGES;

    return (left < LEND_SLICE_PAGES ? left : LEND_SLICE_PAGES) * PAGE_BYTES;
}

static void part_finish(struct part *part, int result)
{
    part->is_over = true;
    request_finish(&part->request, result, 0);
}

/* -EACCES is a key that is of no use any more: the connection is about to end. */
static void part_landed(struct fabric_operation *operation, int result, const void *bytes)
{
    struct part *part = CONTAINER_OF(operation, struct part, operation);
    struct pull *pull = operation->context;

    (void)bytes;
    if (result == 0)
        atomic_fetch_add(&pull->node->pulls->bytes, operation->size_bytes);
    part_finish(part, result == 0 ? 0 : -EAGAIN);
}

/* Reads the slice when the home has it and the thread has room, or ends it when it will not come. */
static void part_advance(struct pull *pull, struct part *part)
{
    int error;

    if (!part->is_asked || part->is_over || part->operation.done != NULL)
        return;
    if (!part->has_come) {
        if (pull->refusal != 0)
            part_finish(part, pull->refusal);
        return;
    }
    part->operation.done = part_landed;
    error = fabric_operate(pull->node->tcp, &part->operation);
    if (error != 0)
        part_finish(part, -EAGAIN); /* over a socket, then; a home that named a wrong place is found out there */
}

static void parts_advance(struct pull *pull)
{
    for (unsigned i = 0; i < pull->parts_count; i++)
        part_advance(pull, &pull->parts[i]);
}

static void wire_send(struct node *node, struct node_id to, const struct wire *wire)
{
    uint8_t header[WIRE_HEADER_BYTES];
    struct iovec part = {header, sizeof(header)};

    wire_encode(wire, header);
    peers_send(node, to, PLANE_CONTROL, &part, 1);
}

static void call_begin(struct loop_call *call)
{
    struct pull *pull = CONTAINER_OF(call, struct pull, begin);
    struct node *node = pull->node;
    struct wire wire = {.type = WIRE_BULK_LEND, .a = pull->first.index, .b = pull->pages_count};

    for (unsigned i = 0; i < pull->parts_count && i < PULL_SLOTS; i++)
        pull->parts[i].is_asked = true;
    if (!bulk_home_answers(&node->view, node->self, pull->home)) {
        pull->refusal = -EHOSTDOWN;
    } else if (node->via[pull->home.index] != node->tcp || fabric_peer_lends(node->tcp, pull->home) == 0) {
        atomic_store(&node->pulls->refused_until_ns[pull->home.index], os_now_ns() + REFUSED_NS);
        pull->refusal = -EAGAIN;
    } else {
        wire.id = pull->id = ++node->pulls->next_id | IDS_OF_PULLS;
        pull->is_open = true;
        wire_send(node, pull->home, &wire);
    }
    parts_advance(pull);
}

/* The thread has copied a slice out: there is room for another. */
static void run_part(struct request *request)
{
    struct part *part = CONTAINER_OF(request, struct part, request);

    part->is_asked = true;
    part_advance(part->operation.context, part);
}

static void call_close(struct loop_call *call)
{
    struct pull *pull = CONTAINER_OF(call, struct pull, closing);
    struct wire wire = {.type = WIRE_BULK_CLOSE, .id = pull->id};

    if (pull->is_open)
        wire_send(pull->node, pull->home, &wire);
    pull->is_open = false;
    atomic_store_explicit(&pull->is_taken, false, memory_order_release);
}

void bulk_pull_part(struct node *node, struct node_id from, const struct wire *wire)
{
    struct pull *pull = node->pulls == NULL ? NULL : node->pulls->pulls;

    for (unsigned i = 0; pull != NULL && i < PULLS_MAX; i++, pull++) {
        if (!pull->is_open || pull->id != wire->id || !node_is(pull->home, from))
            continue;
        if (wire->result != 0 || wire->b >= pull->parts_count) {
            pull->refusal = wire->result < 0 && wire->result > -4096 ? wire->result : -EPROTO;
            if (pull->refusal == -EOPNOTSUPP)
                pull->refusal = -EAGAIN;
        } else if (!pull->parts[wire->b].has_come) {
            pull->parts[wire->b].has_come = true;
            pull->parts[wire->b].operation.offset_bytes = wire->a;
        }
        parts_advance(pull);
        return;
    }
}

void bulk_pull_view(struct node *node, const struct view *view)
{
    for (unsigned i = 0; node->pulls != NULL && i < PULLS_MAX; i++) {
        struct pull *pull = &node->pulls->pulls[i];

        if (!pull->is_open || bulk_home_answers(view, node->self, pull->home))
            continue;
        pull->refusal = -EHOSTDOWN;
        parts_advance(pull);
    }
}

/* ---- the reading thread ---------------------------------------------------------------------------------------- */

static struct pull *pull_take(struct node *node)
{
    for (unsigned i = 0; i < PULLS_MAX; i++)
        if (!atomic_exchange_explicit(&node->pulls->pulls[i].is_taken, true, memory_order_acquire))
            return &node->pulls->pulls[i];
    return NULL;
}

/* Nobody else knows it: the shard looks at no pull that is not open. */
static void pull_prepare(struct pull *pull, struct node_id home, struct page_id first, unsigned pages_count)
{
    pull->home = home;
    pull->first = first;
    pull->pages_count = pages_count;
    pull->parts_count = (pages_count + LEND_SLICE_PAGES - 1) / LEND_SLICE_PAGES;
    pull->refusal = 0;
    for (unsigned i = 0; i < pull->parts_count; i++) {
        struct part *part = &pull->parts[i];

        memset(part, 0, sizeof(*part));
        part->request = (struct request)REQUEST(pull->node, run_part);
        part->operation = (struct fabric_operation){
            .kind = FABRIC_READ,
            .peer = home,
            .size_bytes = (uint32_t)part_bytes(pull, part),
            .into = pull->landing + (size_t)(i % PULL_SLOTS) * LEND_SLICE_BYTES,
            .context = pull,
        };
    }
}

/* Copies the parts out in their order; `offset_bytes` counts from the first page of the pull. */
static int pull_copy(struct pull *pull, size_t offset_bytes, size_t size_bytes, char *buffer, size_t *ret_done_bytes)
{
    unsigned asked = pull->parts_count < PULL_SLOTS ? pull->parts_count : PULL_SLOTS;
    size_t done = 0;
    int error = 0;

    for (unsigned i = 0; i < asked; i++) {
        struct part *part = &pull->parts[i];
        size_t from = i == 0 ? offset_bytes : 0; /* in its first page */
        int result = request_wait(&part->request, UINT64_MAX);
        size_t size = part->operation.size_bytes - from;

        error = error != 0 ? error : result;
        if (error != 0)
            continue; /* those that were asked for are waited for */
        size = size < size_bytes - done ? size : size_bytes - done;
        memcpy(buffer + done, (const char *)part->operation.into + from, size);
        done += size;
        if (asked < pull->parts_count)
            request_post(&pull->parts[asked++].request);
    }
    *ret_done_bytes = done;
    return error;
}

/* One run of LEND_PAGES_MAX at most. */
static int pull_run(struct node *node, struct node_id home, struct page_id first, size_t offset_bytes,
                    size_t size_bytes, char *buffer, size_t *ret_done_bytes)
{
    struct pull *pull = pull_take(node);
    int error;

    *ret_done_bytes = 0;
    if (pull == NULL)
        return -EAGAIN;
    pull_prepare(pull, home, first, (unsigned)((offset_bytes + size_bytes + PAGE_BYTES - 1) >> PAGE_SHIFT));
    loop_post(node->loop, &pull->begin);
    error = pull_copy(pull, offset_bytes, size_bytes, buffer, ret_done_bytes);
    loop_post(node->loop, &pull->closing);
    return error;
}

int bulk_pull_read(struct node *node, struct node_id home, struct page_id first, size_t offset_bytes, size_t size_bytes,
                   void *buffer, size_t *ret_done_bytes)
{
    size_t done = 0;
    int error = 0;

    *ret_done_bytes = 0;
    if (node->pulls == NULL || os_now_ns() < atomic_load(&node->pulls->refused_until_ns[home.index]))
        return -EAGAIN;
    while (error == 0 && done < size_bytes) {
        size_t at = offset_bytes + done;
        size_t most = LEND_PAGES_MAX * PAGE_BYTES - at % PAGE_BYTES;
        size_t size = size_bytes - done < most ? size_bytes - done : most;
        size_t count;

        error = pull_run(node, home, page_of(first.index + (at >> PAGE_SHIFT)), at % PAGE_BYTES, size,
                         (char *)buffer + done, &count);
        done += count;
    }
    *ret_done_bytes = done;
    return error;
}

/* ---- set-up ---------------------------------------------------------------------------------------------------- */

uint64_t bulk_pull_bytes(const struct node *node)
{
    return node->pulls == NULL ? 0 : atomic_load_explicit(&node->pulls->bytes, memory_order_relaxed);
}

int bulk_pull_create(struct node *node)
{
    char *landing = node->tcp == NULL ? NULL : fabric_landing(node->tcp);
    struct pulls *pulls;
    void *memory;

    if (landing == NULL)
        return 0;
    if (os_pages_map(sizeof(*pulls), &memory) != 0)
        return -ENOMEM;
    pulls = memory;
    for (unsigned i = 0; i < PULLS_MAX; i++) {
        pulls->pulls[i].node = node;
        pulls->pulls[i].landing = landing + (size_t)i * PULL_SLOTS * LEND_SLICE_BYTES;
        pulls->pulls[i].begin.run = call_begin;
        pulls->pulls[i].closing.run = call_close;
    }
    node->pulls = pulls;
    return 0;
}

void bulk_pull_destroy(struct pulls *pulls)
{
    os_pages_unmap(pulls, sizeof(*pulls));
}
