/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk.c - both ends of a bulk read.
 *
 * The serving half runs on the shard alone. The reading half is an application thread that sleeps in its request while
 * the shard fills a bounce area chunk by chunk; the thread copies out of it (its buffer may be managed memory, on which
 * the shard must never fault).
 */
#include "runtime/bulk.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define READS_MAX 64 /* of this node, in flight */

enum serve_state {
    SERVE_FREE = 0,
    SERVE_ASKED,   /* coherence_read() is on its way */
    SERVE_GATHER,  /* bytes come from lower tiers */
    SERVE_OPEN,    /* the reader copies from our file */
};

/* A run that this home keeps for a reader. */
struct serve {
    struct request current; /* only its token is used: coherence answers it */
    enum serve_state state;
    struct node_id reader;
    uint64_t id;
    struct page_id first;
    unsigned pages_count, pinned_count;
    bool by_file;
    bool is_current; /* coherence keeps it so until coherence_read_end() */
};

/* A run that a thread of this node reads. On the thread's stack; found by its number. */
struct read {
    struct request request; /* finished when the run is open (by file) or all bytes are here */
    struct node_id home;
    uint64_t id;
    struct page_id first;
    unsigned pages_count;
    bool by_file;
    char *bounce;
    size_t bytes_wanted;
    _Atomic(uint64_t) bytes_here; /* stored with release after the bytes; the thread loads it with acquire */
};

struct bulk {
    struct serve serves[BULK_SERVED_MAX];
    struct read *reads[READS_MAX]; /* the shard's */
    uint64_t next_id;
    unsigned gathering;
};

static void wire_send(struct node *node, struct node_id to, const struct wire *wire)
{
    uint8_t header[WIRE_HEADER_BYTES];
    struct iovec parts[2] = {{header, sizeof(header)}, {(void *)(uintptr_t)wire->payload, wire->payload_bytes}};

    wire_encode(wire, header);
    peers_send(node, to, wire->payload_bytes != 0 ? PLANE_DATA : PLANE_CONTROL, parts, wire->payload_bytes != 0 ? 2 : 1);
}

/* ---- the home -------------------------------------------------------------------------------------------------- */

static uint64_t serve_token(const struct serve *serve)
{
    return (uint64_t)(uintptr_t)&serve->current | TOKEN_BULK;
}

static void serve_end(struct node *node, struct serve *serve)
{
    for (unsigned i = 0; i < serve->pinned_count; i++) {
        struct page_entry *entry = table_find(node->pages, page_of(serve->first.index + i));

        if (page_unpin(entry))
            pager_unpinned(node->pager);
    }
    if (serve->is_current)
        coherence_read_end(node->coherence, serve_token(serve), os_now_ns());
    if (serve->state == SERVE_GATHER)
        node->bulk->gathering--;
    serve->state = SERVE_FREE;
}

static void serve_refuse(struct node *node, struct serve *serve, int result)
{
    struct wire wire = {.type = WIRE_BULK_READY, .id = serve->id, .result = result};

    wire_send(node, serve->reader, &wire);
    serve_end(node, serve);
}

static int chunk_send(struct node *node, struct serve *serve, uint64_t offset, uint32_t size)
{
    static _Thread_local char bytes[BULK_CHUNK_BYTES];
    struct page_id page = page_of(serve->first.index + (offset >> PAGE_SHIFT));
    struct wire wire = {
        .type = WIRE_BULK_DATA, .id = serve->id, .a = offset, .payload = bytes, .payload_bytes = size};

    if (mmu_shared_read(&node->window, page, 0, bytes, size) != 0)
        return -EIO;
    wire_send(node, serve->reader, &wire);
    return 0;
}

static void serve_send(struct node *node, struct serve *serve)
{
    uint64_t total = (uint64_t)serve->pages_count * PAGE_BYTES;

    for (uint64_t offset = 0; offset < total; offset += BULK_CHUNK_BYTES) {
        uint32_t size = total - offset < BULK_CHUNK_BYTES ? (uint32_t)(total - offset) : BULK_CHUNK_BYTES;

        if (chunk_send(node, serve, offset, size) != 0) {
            serve_refuse(node, serve, -EIO);
            return;
        }
    }
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
        serve->pinned_count++;
    }
    return 0;
}

static void serve_advance(struct node *node, struct serve *serve)
{
    struct wire wire = {.type = WIRE_BULK_READY, .id = serve->id};
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
    if (!serve->by_file) {
        serve_send(node, serve);
        return;
    }
    node->bulk->gathering--;
    serve->state = SERVE_OPEN;
    wire_send(node, serve->reader, &wire);
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

static void serve_open(struct node *node, struct node_id from, const struct wire *wire)
{
    struct bulk *bulk = node->bulk;
    struct wire refusal = {.type = WIRE_BULK_READY, .id = wire->id, .result = -EFAULT};
    struct serve *serve = bulk->serves;
    int error;

    if (wire->b == 0 || wire->b > READ_PAGES_MAX || wire->a >= node->window.shared_bytes >> PAGE_SHIFT ||
        wire->a / EXTENT_PAGES != (wire->a + wire->b - 1) / EXTENT_PAGES ||
        !node_is(node->coherence_env.home_of(node, page_of(wire->a)), node->self)) {
        wire_send(node, from, &refusal);
        return;
    }
    while (serve < bulk->serves + BULK_SERVED_MAX && serve->state != SERVE_FREE)
        serve++;
    refusal.result = -EAGAIN;
    if (serve == bulk->serves + BULK_SERVED_MAX) {
        wire_send(node, from, &refusal);
        return;
    }
    *serve = (struct serve){.state = SERVE_ASKED,
                            .reader = from,
                            .id = wire->id,
                            .first = page_of(wire->a),
                            .pages_count = (unsigned)wire->b,
                            .by_file = (wire->flags & WIRE_BY_FILE) != 0};
    error = coherence_read(node->coherence, serve->first, serve->pages_count,
                           serve_token(serve), os_now_ns());
    if (error != 0) {
        serve->state = SERVE_FREE;
        wire_send(node, from, &refusal);
    }
}

static void serve_close(struct node *node, struct node_id from, uint64_t id)
{
    for (unsigned i = 0; i < BULK_SERVED_MAX; i++) {
        struct serve *serve = &node->bulk->serves[i];

        if (serve->state == SERVE_OPEN && serve->id == id && node_is(serve->reader, from))
            serve_end(node, serve);
    }
}

bool bulk_is_waiting(const struct node *node)
{
    return node->bulk->gathering > 0;
}

void bulk_retry(struct node *node)
{
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
    struct wire wire = {.type = WIRE_BULK_OPEN,
                        .flags = read->by_file ? WIRE_BY_FILE : 0,
                        .a = read->first.index,
                        .b = read->pages_count};
    struct read **slot = node->bulk->reads;

    while (slot < node->bulk->reads + READS_MAX && *slot != NULL)
        slot++;
    if (slot == node->bulk->reads + READS_MAX || !view_has(&node->view, read->home)) {
        request_finish(request, view_has(&node->view, read->home) ? -EAGAIN : -EHOSTDOWN, 0);
        return;
    }
    *slot = read;
    wire.id = read->id = ++node->bulk->next_id;
    wire_send(node, read->home, &wire);
}

static void run_close(struct request *request)
{
    struct wire wire = {.type = WIRE_BULK_CLOSE, .id = request->a};

    wire_send(request->node, node_of((unsigned)request->b), &wire);
    request_finish(request, 0, 0);
}

static void data_arrived(struct node *node, struct node_id from, const struct wire *wire)
{
    struct read **slot = read_find(node, from, wire->id);
    struct read *read = slot != NULL ? *slot : NULL;
    uint64_t here;

    if (read == NULL || read->by_file)
        return;
    here = atomic_load_explicit(&read->bytes_here, memory_order_relaxed);
    if (wire->a != here || wire->payload_bytes > read->bytes_wanted - here) {
        log_warn("node %u sent bulk bytes that were not asked for; ignored", from.index);
        return;
    }
    memcpy(read->bounce + here, wire->payload, wire->payload_bytes);
    atomic_store_explicit(&read->bytes_here, here + wire->payload_bytes, memory_order_release);
    if (here + wire->payload_bytes == read->bytes_wanted) {
        *slot = NULL;
        request_finish(&read->request, 0, 0);
    }
}

static void ready_arrived(struct node *node, struct node_id from, const struct wire *wire)
{
    struct read **slot = read_find(node, from, wire->id);
    struct read *read = slot != NULL ? *slot : NULL;

    if (read == NULL || (wire->result == 0 && !read->by_file))
        return;
    *slot = NULL;
    request_finish(&read->request, wire->result > 0 ? -EPROTO : wire->result, 0);
}

void bulk_receive(struct node *node, struct node_id from, const struct wire *wire)
{
    switch (wire->type) {
    case WIRE_BULK_OPEN:
        serve_open(node, from, wire);
        return;
    case WIRE_BULK_READY:
        ready_arrived(node, from, wire);
        return;
    case WIRE_BULK_DATA:
        data_arrived(node, from, wire);
        return;
    case WIRE_BULK_CLOSE:
        serve_close(node, from, wire->id);
        return;
    default:
        return;
    }
}

void bulk_view(struct node *node, const struct view *view)
{
    for (unsigned i = 0; i < BULK_SERVED_MAX; i++) {
        struct serve *serve = &node->bulk->serves[i];

        if (serve->state == SERVE_OPEN && !view_has(view, serve->reader))
            serve_end(node, serve);
    }
    for (unsigned i = 0; i < READS_MAX; i++) {
        struct read *read = node->bulk->reads[i];

        if (read != NULL && !view_has(view, read->home)) {
            node->bulk->reads[i] = NULL;
            request_finish(&read->request, -EHOSTDOWN, 0);
        }
    }
}

/* ---- the reading thread ---------------------------------------------------------------------------------------- */

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

static int read_by_file(struct node *node, struct read *read, int file, size_t offset, size_t size, void *buffer)
{
    struct request close_request = REQUEST(node, run_close, .b = read->home.index);
    int error = request_call(&read->request);

    if (error != 0)
        return error;
    error = copy_from_file(file, (read->first.index << PAGE_SHIFT) + offset, size, buffer);
    close_request.a = read->id;
    request_call(&close_request);
    return error;
}

static int read_by_bytes(struct read *read, size_t offset, size_t size, char *buffer)
{
    void *bounce;
    int error = os_pages_map(read->bytes_wanted, &bounce);

    if (error != 0)
        return error;
    read->bounce = bounce;
    error = request_call(&read->request);
    if (error == 0)
        memcpy(buffer, (char *)bounce + offset, size);
    os_pages_unmap(bounce, read->bytes_wanted);
    return error;
}

int bulk_read(struct node *node, struct node_id home, struct page_id first, size_t offset_bytes, size_t size_bytes,
              void *buffer)
{
    int file = atomic_load_explicit(&node->peer_files[home.index], memory_order_acquire) - 1;
    struct read read = {
        .request = REQUEST(node, run_read),
        .home = home,
        .first = first,
        .pages_count = (unsigned)((offset_bytes + size_bytes + PAGE_BYTES - 1) >> PAGE_SHIFT),
        .by_file = file >= 0,
    };

    read.bytes_wanted = read.pages_count * PAGE_BYTES;
    if (read.by_file)
        return read_by_file(node, &read, file, offset_bytes, size_bytes, buffer);
    return read_by_bytes(&read, offset_bytes, size_bytes, buffer);
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
