/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk.c - runs of pages kept current and in memory for a reader, and the reader on the same host.
 *
 * The serving half runs on the shard alone. A run is opened by a message (the reader then copies from our file, or
 * reads one-sidedly what we copied into the memory that we lend) or by a thread of this node that sends the bytes over
 * a connection of its own (bulk_stream.c).
 *
 * A slice of the lent memory belongs to one reader from before it is filled until it closes the run, or is not a member
 * any more: its key is gone by then (peers_view). So nobody reads a slice while it is written.
 */
#include "runtime/bulk.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "runtime/bulk_pull.h"
#include "runtime/bulk_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READS_MAX 64 /* of this node, in flight */

enum serve_state {
    SERVE_FREE = 0,
    SERVE_ASKED,  /* coherence_read() is on its way */
    SERVE_GATHER, /* bytes come from lower tiers */
    SERVE_COPY,   /* lent: slice by slice is copied, a slice a turn of the loop */
    SERVE_OPEN,   /* the reader copies from our file, or from slices; the pages of slices are not kept any more */
};

/* A run that this home keeps for a reader. */
struct serve {
    struct request current; /* only its token is used: coherence answers it */
    struct request *opener; /* a thread of this node that waits for the run to be open; NULL: the reader, by message */
    enum serve_state state;
    struct node_id reader;
    uint64_t id; /* the reader's, or for an opener our own */
    struct page_id first;
    unsigned pages_count, pinned_count;
    bool is_lent; /* by slices */
    unsigned copied_count;
    uint8_t slices[LEND_SLICES_MAX]; /* their numbers; of a lent run all it needs, from the start */
    bool has_holes;                  /* a page was never written: our file has nothing there, which reads as zeroes */
    bool is_current;                 /* coherence keeps it so until coherence_read_end() */
};

/* A run that a thread of this node reads. On the thread's stack; found by its number. */
struct read {
    struct request request; /* finished when the run is open */
    struct node_id home;
    uint64_t id;
    struct page_id first;
    unsigned pages_count;
};

struct bulk {
    struct serve serves[BULK_SERVED_MAX];
    struct read *reads[READS_MAX]; /* the shard's */
    uint64_t next_id, next_serve;
    unsigned gathering, copying;
    bool slice_is_used[LEND_SLICES];
};

static void wire_send(struct node *node, struct node_id to, const struct wire *wire)
{
    uint8_t header[WIRE_HEADER_BYTES];
    struct iovec part = {header, sizeof(header)};

    wire_encode(wire, header);
    peers_send(node, to, PLANE_CONTROL, &part, 1);
}

static int copy_from_file(int file, uint64_t offset, size_t size, char *buffer)
{
    while (size > 0) {
        ssize_t done = pread(file, buffer, size, (off_t)offset);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 && errno == EFAULT ? -EFAULT : -EIO;
        buffer += done;
        offset += (uint64_t)done;
        size -= (size_t)done;
    }
    return 0;
}

/* ---- the home -------------------------------------------------------------------------------------------------- */

static uint64_t serve_token(const struct serve *serve)
{
    return (uint64_t)(uintptr_t)&serve->current | TOKEN_BULK;
}

static unsigned slices_of(const struct serve *serve)
{
    return serve->is_lent ? (serve->pages_count + LEND_SLICE_PAGES - 1) / LEND_SLICE_PAGES : 0;
}

/* The pages may change and leave again. */
static void serve_release(struct node *node, struct serve *serve)
{
    for (unsigned i = 0; i < serve->pinned_count; i++) {
        struct page_entry *entry = table_find(node->pages, page_of(serve->first.index + i));

        if (page_unpin(entry))
            pager_unpinned(node->pager);
    }
    serve->pinned_count = 0;
    if (serve->is_current)
        coherence_read_end(node->coherence, serve_token(serve), os_now_ns());
    serve->is_current = false;
}

static void serve_end(struct node *node, struct serve *serve)
{
    serve_release(node, serve);
    for (unsigned i = 0; i < slices_of(serve); i++)
        node->bulk->slice_is_used[serve->slices[i]] = false;
    node->bulk->gathering -= serve->state == SERVE_GATHER;
    node->bulk->copying -= serve->state == SERVE_COPY;
    serve->state = SERVE_FREE;
}

static void serve_answer(struct node *node, struct serve *serve, int result)
{
    struct wire wire = {.type = WIRE_BULK_READY, .id = serve->id, .result = result, .a = serve->has_holes};

    if (serve->is_lent)
        wire.type = WIRE_BULK_PART;
    if (serve->opener != NULL)
        request_finish(serve->opener, result, serve->id);
    else
        wire_send(node, serve->reader, &wire);
}

static void serve_refuse(struct node *node, struct serve *serve, int result)
{
    serve_answer(node, serve, result);
    serve_end(node, serve);
}

/* Pages that are in memory are pinned there; pages never written need no pin: a hole of the file reads as zeroes. */
static int serve_pin(struct node *node, struct serve *serve)
{
    while (serve->pinned_count < serve->pages_count) {
        struct page_id page = page_of(serve->first.index + serve->pinned_count);
        struct page_entry *entry = table_touch(node->pages, page);

        if (entry == NULL || page_has(entry, WORD_POISONED))
            return -EIO;
        if (!pager_hold(node->pager, page))
            return -EAGAIN;
        serve->has_holes |= page_where(entry) == WHERE_NOWHERE;
        serve->pinned_count++;
    }
    return 0;
}

static void serve_advance(struct node *node, struct serve *serve)
{
    int error;

    if (!pager_is_crowded(node->pager))
        pager_gather(node->pager, page_of(serve->first.index + serve->pinned_count),
                     serve->pages_count - serve->pinned_count);
    error = serve_pin(node, serve);
    if (error == -EAGAIN)
        return; /* bulk_retry() comes back when the disk has answered */
    if (error != 0) {
        serve_refuse(node, serve, error);
        return;
    }
    node->bulk->gathering--;
    if (serve->is_lent) {
        node->bulk->copying++;
        serve->state = SERVE_COPY;
        return;
    }
    serve->state = SERVE_OPEN;
    serve_answer(node, serve, 0);
}

/* By pread(): a load from a hole would make a page in our file. */
static void slice_copy(struct node *node, struct serve *serve)
{
    unsigned index = serve->copied_count;
    unsigned left = serve->pages_count - index * LEND_SLICE_PAGES;
    size_t size = (left < LEND_SLICE_PAGES ? left : LEND_SLICE_PAGES) * PAGE_BYTES;
    uint64_t lent_at = (uint64_t)serve->slices[index] * LEND_SLICE_BYTES;
    uint64_t file_at = (serve->first.index + (uint64_t)index * LEND_SLICE_PAGES) << PAGE_SHIFT;
    struct wire part = {.type = WIRE_BULK_PART, .id = serve->id, .a = lent_at, .b = index};
    int error = copy_from_file(node->window.memfd, file_at, size, (char *)fabric_lent(node->tcp) + lent_at);

    if (error != 0) {
        serve_refuse(node, serve, -EIO);
        return;
    }
    wire_send(node, serve->reader, &part);
    if (++serve->copied_count < slices_of(serve))
        return;
    node->bulk->copying--;
    serve->state = SERVE_OPEN;
    serve_release(node, serve);
}

/* coherence_read() is answered; called from inside the protocol, so the rest waits for bulk_retry(). */
void bulk_current(struct node *node, struct request *request, int result)
{
    struct serve *serve = CONTAINER_OF(request, struct serve, current);

    serve->current.result = result;
    serve->is_current = result == 0;
    serve->state = SERVE_GATHER;
    node->bulk->gathering++;
}

static bool run_is_served_here(const struct node *node, uint64_t first, uint64_t count)
{
    return count > 0 && count <= READ_PAGES_MAX && first < node->window.shared_bytes >> PAGE_SHIFT &&
           first / EXTENT_PAGES == (first + count - 1) / EXTENT_PAGES &&
           node_is(node->coherence_env.home_of(node->coherence_env.context, page_of(first)), node->self);
}

/* All that the run needs, or nothing. */
static bool slices_take(struct node *node, struct serve *serve)
{
    unsigned count = 0;

    for (unsigned i = 0; i < LEND_SLICES && count < slices_of(serve); i++)
        if (!node->bulk->slice_is_used[i])
            serve->slices[count++] = (uint8_t)i;
    for (unsigned i = 0; count == slices_of(serve) && i < count; i++)
        node->bulk->slice_is_used[serve->slices[i]] = true;
    return count == slices_of(serve);
}

/* 0: answered later. Else why not. */
static int serve_begin(struct node *node, const struct serve *wanted)
{
    struct serve *serve = node->bulk->serves;
    int error;

    if (!run_is_served_here(node, wanted->first.index, wanted->pages_count))
        return -EFAULT;
    while (serve < node->bulk->serves + BULK_SERVED_MAX && serve->state != SERVE_FREE)
        serve++;
    if (serve == node->bulk->serves + BULK_SERVED_MAX)
        return -EAGAIN;
    *serve = *wanted;
    if (!slices_take(node, serve)) {
        serve->state = SERVE_FREE;
        return -EAGAIN;
    }
    serve->state = SERVE_ASKED;
    error = coherence_read(node->coherence, serve->first, serve->pages_count, serve_token(serve), os_now_ns());
    if (error != 0)
        serve_end(node, serve);
    return error;
}

static void serve_open(struct node *node, struct node_id from, const struct wire *wire)
{
    bool is_lent = wire->type == WIRE_BULK_LEND;
    struct wire refusal = {.type = is_lent ? WIRE_BULK_PART : WIRE_BULK_READY, .id = wire->id};
    struct serve wanted = {.reader = from, .id = wire->id, .first = page_of(wire->a), .is_lent = is_lent};

    wanted.pages_count = wire->b <= (is_lent ? LEND_PAGES_MAX : READ_PAGES_MAX) ? (unsigned)wire->b : 0;
    refusal.result = is_lent && bulk_pull_lent(node) == NULL ? -EOPNOTSUPP : serve_begin(node, &wanted);
    if (refusal.result != 0)
        wire_send(node, from, &refusal);
}

void bulk_serve_open(struct node *node, struct node_id reader, struct page_id first, unsigned pages_count,
                     struct request *opener)
{
    struct serve wanted = {
        .opener = opener, .reader = reader, .id = ++node->bulk->next_serve, .first = first, .pages_count = pages_count};
    int error = view_has(&node->view, reader) ? serve_begin(node, &wanted) : -EHOSTDOWN;

    if (error != 0)
        request_finish(opener, error, 0);
}

static void serves_close(struct node *node, struct node_id reader, uint64_t id, bool is_opened_here)
{
    for (unsigned i = 0; i < BULK_SERVED_MAX; i++) {
        struct serve *serve = &node->bulk->serves[i];

        if ((serve->state == SERVE_OPEN || serve->state == SERVE_COPY) && serve->id == id &&
            node_is(serve->reader, reader) && (serve->opener != NULL) == is_opened_here)
            serve_end(node, serve);
    }
}

void bulk_serve_close(struct node *node, struct node_id reader, uint64_t id)
{
    serves_close(node, reader, id, true);
}

bool bulk_is_waiting(const struct node *node)
{
    return node->bulk->gathering + node->bulk->copying > 0;
}

bool bulk_is_copying(const struct node *node)
{
    return node->bulk->copying > 0;
}

void bulk_retry(struct node *node)
{
    for (unsigned i = 0; node->bulk->copying > 0 && i < BULK_SERVED_MAX; i++)
        if (node->bulk->serves[i].state == SERVE_COPY)
            slice_copy(node, &node->bulk->serves[i]);
    for (unsigned i = 0; node->bulk->gathering > 0 && i < BULK_SERVED_MAX; i++) {
        struct serve *serve = &node->bulk->serves[i];

        if (serve->state != SERVE_GATHER)
            continue;
        if (serve->current.result != 0 || !view_has(&node->view, serve->reader))
            serve_refuse(node, serve, serve->current.result != 0 ? serve->current.result : -EHOSTDOWN);
        else
            serve_advance(node, serve);
    }
}

/* ---- the reader ------------------------------------------------------------------------------------------------ */

static struct read **read_find(struct node *node, struct node_id home, uint64_t id)
{
    for (unsigned i = 0; i < READS_MAX; i++) {
        struct read *read = node->bulk->reads[i];

        if (read != NULL && read->id == id && node_is(read->home, home))
            return &node->bulk->reads[i];
    }
    return NULL;
}

static void run_read(struct request *request)
{
    struct read *read = CONTAINER_OF(request, struct read, request);
    struct node *node = request->node;
    struct wire wire = {.type = WIRE_BULK_OPEN, .a = read->first.index, .b = read->pages_count};
    struct read **slot = node->bulk->reads;
    bool is_answered = bulk_home_answers(&node->view, node->self, read->home);

    while (slot < node->bulk->reads + READS_MAX && *slot != NULL)
        slot++;
    if (slot == node->bulk->reads + READS_MAX || !is_answered) {
        request_finish(request, is_answered ? -EAGAIN : -EHOSTDOWN, 0);
        return;
    }
    *slot = read;
    wire.id = read->id = ++node->bulk->next_id;
    wire_send(node, read->home, &wire);
}

/* The closing message of a read; nobody waits for it, so it is not on a stack. */
struct closing {
    struct loop_call call;
    struct node *node;
    struct node_id home;
    uint64_t id;
};

static void call_close(struct loop_call *call)
{
    struct closing *closing = CONTAINER_OF(call, struct closing, call);
    struct wire wire = {.type = WIRE_BULK_CLOSE, .id = closing->id};

    wire_send(closing->node, closing->home, &wire);
    free(closing);
}

static void ready_arrived(struct node *node, struct node_id from, const struct wire *wire)
{
    struct read **slot = read_find(node, from, wire->id);
    struct read *read = slot != NULL ? *slot : NULL;

    if (read == NULL)
        return;
    *slot = NULL;
    request_finish(&read->request, wire->result > 0 ? -EPROTO : wire->result, wire->a);
}

void bulk_receive(struct node *node, struct node_id from, const struct wire *wire)
{
    switch (wire->type) {
    case WIRE_BULK_OPEN:
    case WIRE_BULK_LEND:
        serve_open(node, from, wire);
        return;
    case WIRE_BULK_READY:
        ready_arrived(node, from, wire);
        return;
    case WIRE_BULK_CLOSE:
        serves_close(node, from, wire->id, false);
        return;
    case WIRE_BULK_PART:
        bulk_pull_part(node, from, wire);
        return;
    default:
        return;
    }
}

void bulk_view(struct node *node, const struct view *view)
{
    for (unsigned i = 0; i < BULK_SERVED_MAX; i++) {
        struct serve *serve = &node->bulk->serves[i];

        if ((serve->state == SERVE_OPEN || serve->state == SERVE_COPY) && !view_has(view, serve->reader))
            serve_end(node, serve);
    }
    for (unsigned i = 0; i < READS_MAX; i++) {
        struct read *read = node->bulk->reads[i];

        if (read != NULL && !bulk_home_answers(view, node->self, read->home)) {
            node->bulk->reads[i] = NULL;
            request_finish(&read->request, -EHOSTDOWN, 0);
        }
    }
    bulk_pull_view(node, view);
}

/* ---- the reading thread ---------------------------------------------------------------------------------------- */

/*
 * Through the mapping where every page is there: a copy by the processor costs a third of pread(). A load from a hole
 * would make a page in the home's file, so holes are read by pread().
 */
static int copy_out(struct node *node, const struct read *read, const struct peer_file *file, size_t offset,
                    size_t size, void *buffer)
{
    uint64_t at = (read->first.index << PAGE_SHIFT) + offset;

    if (read->request.value != 0 || file->bytes == NULL)
        return copy_from_file(atomic_load(&file->number) - 1, at, size, buffer);
    memcpy(buffer, file->bytes + at, size);
    /* Who was removed meanwhile copied from pages that nobody kept for it. */
    return atomic_load(&node->is_out) != 0 ? -EHOSTDOWN : 0;
}

static int read_by_file(struct node *node, struct read *read, const struct peer_file *file, size_t offset, size_t size,
                        void *buffer)
{
    struct closing *closing = malloc(sizeof(*closing));
    int error = closing == NULL ? -ENOMEM : request_call(&read->request);

    if (error != 0) {
        free(closing);
        return error;
    }
    error = copy_out(node, read, file, offset, size, buffer);
    *closing = (struct closing){{call_close, NULL}, node, read->home, read->id};
    loop_post(node->loop, &closing->call);
    return error;
}

int bulk_read(struct node *node, struct node_id home, struct page_id first, size_t offset_bytes, size_t size_bytes,
              void *buffer)
{
    const struct peer_file *file = &node->peer_files[home.index];
    struct read read = {
        .request = REQUEST(node, run_read),
        .home = home,
        .first = first,
        .pages_count = (unsigned)((offset_bytes + size_bytes + PAGE_BYTES - 1) >> PAGE_SHIFT),
    };
    size_t done_bytes = 0;
    int error;

    if (atomic_load_explicit(&file->number, memory_order_acquire) > 0)
        return read_by_file(node, &read, file, offset_bytes, size_bytes, buffer);
    error = bulk_pull_read(node, home, first, offset_bytes, size_bytes, buffer, &done_bytes);
    if (error != -EAGAIN)
        return error;
    offset_bytes += done_bytes;
    return bulk_stream_read(node->stream, home, page_of(first.index + (offset_bytes >> PAGE_SHIFT)),
                            offset_bytes % PAGE_BYTES, size_bytes - done_bytes, (char *)buffer + done_bytes);
}

/* ---- set-up ---------------------------------------------------------------------------------------------------- */

int bulk_create(struct node *node, struct bulk **ret_bulk)
{
    void *memory;
    int error = os_pages_map(sizeof(struct bulk), &memory);

    (void)node;
    if (error == 0)
        *ret_bulk = memory;
    return error;
}

void bulk_destroy(struct bulk *bulk)
{
    os_pages_unmap(bulk, sizeof(*bulk));
}
