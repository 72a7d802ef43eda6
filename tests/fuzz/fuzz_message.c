/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_message.c - the decoder of coherence messages, and one node that believes what it decodes.
 *
 * The input is read twice: once as one message for the decoder, once as a list of steps for a node. A step is an opcode
 * byte: either a call that the node's own threads would make, or a message, whose header fields are then drawn from few
 * values, so that they often match what the node waits for. Whatever comes, no ASSERT may fail and no memory be touched
 * that is not the node's: a peer can do no more than waste time.
 */
#include "coherence/coherence.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NODES     3
#define PAGES     4 /* pages 0 and 1 have their home here, 2 and 3 (of extent 1) at node 1 */
#define CALLS_MAX 200
#define LOCKS     4

struct node {
    struct coherence_page pages[PAGES];
    struct coherence_home homes[PAGES];
    bool is_pinned[PAGES];
    uint32_t lock;
    bool has_lock;
};

static int place(struct page_id page)
{
    uint64_t extent = page.index / EXTENT_PAGES, within = page.index % EXTENT_PAGES;

    return extent > 1 || within > 1 ? -1 : (int)(extent * 2 + within);
}

static struct coherence_page *env_page(void *context, struct page_id page)
{
    return place(page) < 0 ? NULL : &((struct node *)context)->pages[place(page)];
}

static struct coherence_home *env_home(void *context, struct page_id page)
{
    return place(page) < 0 ? NULL : &((struct node *)context)->homes[place(page)];
}

static struct node_id env_home_of(void *context, struct page_id page)
{
    (void)context;
    return place(page) < 0 ? NODE_NONE : node_of(place(page) < 2 ? 0 : 1);
}

static void env_send(void *context, struct node_id to, const struct message *message)
{
    (void)context;
    (void)to;
    (void)message;
}

static int env_protect(void *context, struct page_id page, enum access access)
{
    (void)access;
    return ((struct node *)context)->is_pinned[place(page)] ? -EINPROGRESS : 0;
}

static void env_install(void *context, struct page_id page, enum access access, const void *bytes)
{
    static volatile uint8_t last;

    (void)context;
    (void)page;
    (void)access;
    if (bytes != NULL)
        last = ((const uint8_t *)bytes)[PAGE_BYTES - 1];
    (void)last;
}

static void env_store(void *context, struct page_id page, const void *bytes)
{
    env_install(context, page, ACCESS_NONE, bytes);
}

static void env_drop(void *context, struct page_id page)
{
    (void)context;
    (void)page;
}

static void env_poison(void *context, struct page_id page, const char *why)
{
    (void)context;
    (void)page;
    (void)why;
}

static int env_atomic(void *context, struct page_id page, const struct message *operation, uint64_t *ret_old)
{
    if (((struct node *)context)->is_pinned[place(page)])
        return -EINPROGRESS;
    *ret_old = operation->a;
    return 0;
}

static void env_done(void *context, uint64_t token, int result, uint64_t value)
{
    struct node *node = context;

    if (token == UINT64_MAX && (result == 0 || result == -EOWNERDEAD)) {
        node->lock = (uint32_t)value;
        node->has_lock = true;
    }
}

static bool env_lock_wanted(void *context, uint32_t lock)
{
    struct node *node = context;

    return node->has_lock && node->lock == lock;
}

/* The steps; zeroes when they are used up. */
struct steps {
    const uint8_t *next;
    size_t left;
};

static unsigned draw(struct steps *steps, unsigned bound)
{
    if (steps->left == 0)
        return 0;
    steps->left--;
    return *steps->next++ % bound;
}

static struct page_id draw_page(struct steps *steps)
{
    unsigned page = draw(steps, PAGES + 1);

    return page_of(page / 2 * EXTENT_PAGES + page % 2);
}

static void receive(struct coherence *coherence, struct steps *steps, uint64_t now_ns)
{
    static uint8_t wire[MESSAGE_HEADER_BYTES + PAGE_BYTES];
    struct message message = {.type = (uint8_t)draw(steps, MESSAGE_TYPES_COUNT),
                              .flags = (uint8_t)draw(steps, 8),
                              .from = node_of(draw(steps, NODES)),
                              .requester = node_of(draw(steps, NODES)),
                              .epoch = {1 + draw(steps, 2)},
                              .page = draw_page(steps),
                              .sequence = draw(steps, 16),
                              .request = draw(steps, 6),
                              .credit = draw(steps, 6),
                              .a = draw(steps, 8),
                              .b = draw(steps, 4),
                              .c = (uint64_t)draw(steps, 40) << MESSAGE_SERIAL_SHIFT | draw(steps, 16)};

    message.payload_bytes = draw(steps, 2) == 0 ? 0 : PAGE_BYTES;
    message_encode(&message, wire);
    if (message_decode(wire, MESSAGE_HEADER_BYTES + message.payload_bytes, &message) == 0)
        coherence_receive(coherence, message.from, &message, now_ns);
}

static void call(struct coherence *coherence, struct node *node, struct steps *steps, unsigned operation,
                 uint64_t now_ns)
{
    struct page_id page = draw_page(steps);
    struct view view = {.epoch = {draw(steps, 5)}, .members = 1 | draw(steps, 8)};
    int result = 0;

    switch (operation) {
    case 0:
        result = coherence_fault(coherence, page, draw(steps, 2) == 0 ? ACCESS_READ : ACCESS_WRITE, 1, 1,
                                 draw(steps, 2) == 0, now_ns);
        break;
    case 1:
        result = coherence_evict(coherence, page, 2, now_ns);
        break;
    case 2:
        result = coherence_atomic(coherence, page, 8, draw(steps, ATOMIC_OPERATIONS), 1, 0, 3, now_ns);
        break;
    case 3:
        result = coherence_read(coherence, page, 1 + draw(steps, 2), 4, now_ns);
        break;
    case 4:
        coherence_read_end(coherence, 4, now_ns);
        break;
    case 5:
        result = coherence_lock(coherence, LOCK_WORDS, draw(steps, 8), 1 + draw(steps, 2), draw(steps, 2) == 0,
                                draw(steps, 2) == 0, UINT64_MAX, now_ns);
        break;
    case 6:
        if (node->has_lock)
            coherence_lock_release(coherence, node->lock, now_ns);
        node->has_lock = false;
        break;
    case 7:
        coherence_lock_cancel(coherence, UINT64_MAX, now_ns);
        break;
    case 8:
        result = coherence_cond_wait(coherence, draw(steps, 2), 6, now_ns);
        break;
    case 9:
        coherence_cond_cancel(coherence, 6, now_ns);
        break;
    case 10:
        if (place(page) >= 0)
            node->is_pinned[place(page)] = draw(steps, 2) == 0;
        break;
    case 11:
        if (place(page) >= 0 && !node->is_pinned[place(page)])
            coherence_protected(coherence, page, now_ns);
        break;
    case 12:
        coherence_atomic_ready(coherence, page, now_ns);
        break;
    case 13:
        coherence_lost(coherence, page, "test", now_ns);
        break;
    case 14:
        coherence_tick(coherence, now_ns);
        break;
    default:
        coherence_set_view(coherence, &view, now_ns);
        break;
    }
    (void)result;
}

static void run_node(const uint8_t *data, size_t size)
{
    struct node node = {.lock = 0};
    const struct coherence_env env = {.context = &node,
                                      .page = env_page,
                                      .home = env_home,
                                      .home_of = env_home_of,
                                      .send = env_send,
                                      .send_page = env_send,
                                      .protect = env_protect,
                                      .install = env_install,
                                      .store = env_store,
                                      .drop = env_drop,
                                      .poison = env_poison,
                                      .atomic = env_atomic,
                                      .done = env_done,
                                      .lock_wanted = env_lock_wanted};
    const struct coherence_limits limits = {.nodes_count = NODES,
                                            .requests_max = 4,
                                            .locks_max = LOCKS,
                                            .home_locks_max = 6,
                                            .hold_ns = 1000,
                                            .hold_ns_max = 8000};
    struct coherence *coherence = malloc(coherence_size(&limits));
    struct view view = {.epoch = {1}, .members = 7};
    struct steps steps = {.next = data, .left = size};
    uint64_t now_ns = 1;

    if (coherence == NULL)
        abort();
    coherence_init(coherence, &limits, &env, node_of(0), 1);
    coherence_set_view(coherence, &view, now_ns);
    for (unsigned i = 0; steps.left > 0 && i < CALLS_MAX; i++) {
        unsigned operation = draw(&steps, 48);

        now_ns += 700;
        if (operation < 16)
            call(coherence, &node, &steps, operation, now_ns);
        else
            receive(coherence, &steps, now_ns);
    }
    free(coherence);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t header[MESSAGE_HEADER_BYTES];
    struct message message;

    if (message_decode(data, size, &message) == 0) {
        message_encode(&message, header);
        if (memcmp(header, data, sizeof(header)) != 0 || message_class_of(message.type) > CLASS_REPLY)
            abort();
    }
    run_node(data, size);
    return 0;
}
