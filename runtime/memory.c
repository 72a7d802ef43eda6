/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c - one allocator for each place memory can come from, extents from the cluster, frees across nodes.
 *
 * Application threads allocate and free. A free of another node's block is a message to that node, where a helper
 * thread frees it (giving extents back waits for the cluster, which the shard must not do).
 */
#include "runtime/memory.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "runtime/space.h"

#include <errno.h>
#include <string.h>

#define SPACE_INTERLEAVE NODES_MAX       /* spaces[0 .. NODES_MAX - 1]: homes at that node */
#define SPACE_PRIVATE    (NODES_MAX + 1)
#define SPACES           (NODES_MAX + 2)
#define REMOTE_FREES_MAX 4096 /* waiting at the helper; the asker waits for each, so peers' threads bound it */
#define ASKED_MAX        1024 /* frees of this node at other nodes */

struct place {
    struct memory *memory;
    unsigned index;
};

struct remote_free {
    struct node_id from;
    struct wire wire;
};

struct memory {
    struct node *node;
    pthread_mutex_t mutex; /* spaces, private_used */
    struct space *spaces[SPACES];
    struct place places[SPACES];
    uint8_t *private_used; /* by extent of the private half */
    uint64_t private_hand;

    /*
     * What application threads may know of shared extents: home + 1, and allocator + 1 above 16 bits; 0: ask the shard.
     * Stored by the shard with release, read with acquire.
     */
    _Atomic(uint32_t) *extents;

    pthread_mutex_t queue_mutex; /* the fields below */
    pthread_cond_t queue_filled;
    struct remote_free *queue;
    unsigned queue_first, queue_count;
    bool helper_runs, helper_stops;
    pthread_t helper;

    struct request *asked[ASKED_MAX]; /* the shard's: frees that other nodes answer; index is the wire id */
};

static uint64_t shared_extents(const struct node *node)
{
    return node->window.shared_bytes / EXTENT_BYTES;
}

static uint64_t private_extents(const struct node *node)
{
    return node->window.private_bytes / EXTENT_BYTES;
}

/* ---- extents that this process knows --------------------------------------------------------------------------- */

static uint32_t extent_pack(const struct cluster_extent *extent)
{
    return extent == NULL || extent->home == 0 ? 0 : extent->home | (uint32_t)extent->allocator << 16;
}

static void run_lookup(struct request *request)
{
    struct node *node = request->node;
    uint32_t packed = extent_pack(cluster_extent_at(node->cluster, request->a));

    atomic_store_explicit(&node->memory->extents[request->a], packed, memory_order_release);
    request_finish(request, 0, packed);
}

static uint32_t extent_known(const struct node *node, uint64_t extent)
{
    struct request request = {.node = (struct node *)(uintptr_t)node, .run = run_lookup, .a = extent};
    uint32_t packed;

    if (extent >= shared_extents(node))
        return 0;
    packed = atomic_load_explicit(&node->memory->extents[extent], memory_order_acquire);
    if (packed != 0)
        return packed;
    request_call(&request);
    return (uint32_t)request.value;
}

struct node_id memory_home_of(const struct node *node, struct page_id page)
{
    uint32_t packed = extent_known(node, page.index / EXTENT_PAGES);

    return packed == 0 ? NODE_NONE : node_of((packed & 0xffff) - 1);
}

static bool private_is_used(const struct node *node, uint64_t extent)
{
    struct memory *memory = node->memory;
    bool used;

    pthread_mutex_lock(&memory->mutex);
    used = extent < private_extents(node) && memory->private_used[extent] != 0;
    pthread_mutex_unlock(&memory->mutex);
    return used;
}

bool memory_is_ours(const struct node *node, const void *address, size_t size_bytes, bool shared_only)
{
    uint64_t first;
    uint64_t last;

    if (!mmu_address_is_inside(&node->window, address) ||
        !mmu_address_is_inside(&node->window, (const char *)address + size_bytes - 1))
        return false;
    first = mmu_page_at(&node->window, address).index / EXTENT_PAGES;
    last = mmu_page_at(&node->window, (const char *)address + size_bytes - 1).index / EXTENT_PAGES;
    for (uint64_t i = first; i <= last; i++) {
        bool is_private = i >= shared_extents(node);

        if (is_private && (shared_only || !private_is_used(node, i - shared_extents(node))))
            return false;
        if (!is_private && extent_known(node, i) == 0)
            return false;
    }
    return true;
}

/* ---- extents for the allocators -------------------------------------------------------------------------------- */

static void run_shared_take(struct request *request)
{
    struct node *node = request->node;
    bool interleave = request->b == SPACE_INTERLEAVE;
    struct node_id home = interleave ? NODE_NONE : node_of((unsigned)request->b);
    int error = cluster_extents_take(node->cluster, request->a,
                                     interleave ? CLUSTER_PLACE_INTERLEAVE : CLUSTER_PLACE_NODE, home,
                                     request_token(request), os_now_ns());

    if (error != 0)
        request_finish(request, error, 0);
}

static int shared_take(void *context, uint64_t count, uint64_t *ret_first)
{
    const struct place *place = context;
    int error;

    do {
        struct request request = REQUEST(place->memory->node, run_shared_take, .a = count, .b = place->index);

        error = request_call(&request);
        *ret_first = request.value;
    } while (error == -EAGAIN);
    return error;
}

static void run_shared_give(struct request *request)
{
    struct node *node = request->node;
    int error = cluster_extents_give(node->cluster, request->a, request->b, request_token(request), os_now_ns());

    if (error != 0)
        request_finish(request, error, 0);
}

static void shared_give(void *context, uint64_t first, uint64_t count)
{
    const struct place *place = context;
    int error;

    do {
        struct request request = REQUEST(place->memory->node, run_shared_give, .a = first, .b = count);

        error = request_call(&request);
    } while (error == -EAGAIN);
    if (error != 0 && error != -EHOSTDOWN)
        log_error("give %lu extents at %lu back: %s", count, first, strerror(-error));
}

void memory_extents_freed(struct node *node, uint64_t first_extent, uint64_t extents_count)
{
    for (uint64_t i = 0; i < extents_count; i++)
        atomic_store_explicit(&node->memory->extents[first_extent + i], 0, memory_order_release);
}

static void run_private(struct request *request)
{
    struct node *node = request->node;
    struct page_id first = page_of(request->a * EXTENT_PAGES);
    int error = 0;

    if (request->c != 0)
        pager_private_give(node->pager, first, request->b * EXTENT_PAGES);
    else
        error = pager_private_take(node->pager, first, request->b * EXTENT_PAGES);
    request_finish(request, error, 0);
}

static uint64_t private_run_from(const struct memory *memory, uint64_t start, uint64_t count, uint64_t total)
{
    uint64_t run = 0;

    for (uint64_t i = start; i < total; i++) {
        run = memory->private_used[i] != 0 ? 0 : run + 1;
        if (run == count)
            return i + 1 - count;
    }
    return UINT64_MAX;
}

static void private_mark(struct memory *memory, uint64_t first, uint64_t count, uint8_t used)
{
    pthread_mutex_lock(&memory->mutex);
    memset(&memory->private_used[first], used, count);
    pthread_mutex_unlock(&memory->mutex);
}

static int private_take(void *context, uint64_t count, uint64_t *ret_first)
{
    struct memory *memory = ((const struct place *)context)->memory;
    struct node *node = memory->node;
    uint64_t total = private_extents(node);
    uint64_t first;
    struct request request = REQUEST(node, run_private, .b = count);
    int error;

    pthread_mutex_lock(&memory->mutex);
    first = private_run_from(memory, memory->private_hand, count, total);
    if (first == UINT64_MAX)
        first = private_run_from(memory, 0, count, total);
    if (first != UINT64_MAX) {
        memset(&memory->private_used[first], 1, count);
        memory->private_hand = first + count;
    }
    pthread_mutex_unlock(&memory->mutex);
    if (first == UINT64_MAX)
        return -ENOMEM;
    request.a = *ret_first = shared_extents(node) + first;
    error = request_call(&request);
    if (error != 0)
        private_mark(memory, first, count, 0);
    return error;
}

static void private_give(void *context, uint64_t first, uint64_t count)
{
    struct memory *memory = ((const struct place *)context)->memory;
    struct request request = REQUEST(memory->node, run_private, .a = first, .b = count, .c = 1);

    request_call(&request);
    private_mark(memory, first - shared_extents(memory->node), count, 0);
}

/* ---- allocating ------------------------------------------------------------------------------------------------ */

static int space_get(struct node *node, unsigned index, struct space **ret_space)
{
    struct memory *memory = node->memory;
    struct space_config config = {
        .base = node->window.base,
        .extents_count = shared_extents(node) + private_extents(node),
        .context = &memory->places[index],
        .extents_take = index == SPACE_PRIVATE ? private_take : shared_take,
        .extents_give = index == SPACE_PRIVATE ? private_give : shared_give,
    };
    int error = 0;

    pthread_mutex_lock(&memory->mutex);
    if (memory->spaces[index] == NULL)
        error = space_create(&config, &memory->spaces[index]);
    *ret_space = memory->spaces[index];
    pthread_mutex_unlock(&memory->mutex);
    return error;
}

static unsigned space_index(const struct node *node, const struct dsm_attributes *attributes)
{
    if (attributes->kind == DSM_PRIVATE)
        return SPACE_PRIVATE;
    if (attributes->placement == DSM_PLACE_INTERLEAVE)
        return SPACE_INTERLEAVE;
    return attributes->placement == DSM_PLACE_NODE ? (unsigned)attributes->node : node->self.index;
}

int memory_allocate(struct node *node, size_t size_bytes, const struct dsm_attributes *attributes, void **ret_memory)
{
    struct space *space;
    uint64_t address;
    bool was_used;
    int error = space_get(node, space_index(node, attributes), &space);

    if (error == 0)
        error = space_take(space, size_bytes, attributes->alignment_bytes, &address, &was_used);
    if (error == -ENOMEM)
        return error_set(error, "no %zu bytes of addresses are free in a row; raise option window.%s", size_bytes,
                         attributes->kind == DSM_PRIVATE ? "private" : "shared");
    if (error != 0)
        return error_set(error, "allocate %zu bytes: %s", size_bytes, strerror(-error));
    *ret_memory = (void *)(uintptr_t)address;
    if (was_used)
        memset(*ret_memory, 0, size_bytes);
    return 0;
}

/* ---- freeing --------------------------------------------------------------------------------------------------- */

static int local_answer(struct memory *memory, uint64_t address, bool is_free, size_t *ret_size)
{
    for (unsigned i = 0; i < SPACES; i++) {
        struct space *space;

        pthread_mutex_lock(&memory->mutex);
        space = memory->spaces[i];
        pthread_mutex_unlock(&memory->mutex);
        if (space == NULL || !space_owns(space, address))
            continue;
        return is_free ? space_put(space, address) : space_usable_size(space, address, ret_size);
    }
    return -EFAULT;
}

static void run_ask_owner(struct request *request)
{
    struct node *node = request->node;
    uint8_t header[WIRE_HEADER_BYTES];
    struct iovec part = {header, sizeof(header)};
    struct wire wire = {.type = WIRE_FREE, .a = request->a, .b = request->b};

    for (uint64_t id = 0; id < ASKED_MAX; id++) {
        if (node->memory->asked[id] != NULL)
            continue;
        wire.id = id;
        wire_encode(&wire, header);
        if (!view_has(&node->view, node_of((unsigned)request->c))) {
            request_finish(request, -EHOSTDOWN, 0);
            return;
        }
        node->memory->asked[id] = request;
        peers_send(node, node_of((unsigned)request->c), PLANE_CONTROL, &part, 1);
        return;
    }
    request_finish(request, -EAGAIN, 0);
}

static int owner_answer(struct node *node, unsigned owner, uint64_t offset, bool is_free, size_t *ret_size)
{
    int error;

    do {
        struct request request = REQUEST(node, run_ask_owner, .a = offset, .b = is_free, .c = owner);

        error = request_call(&request);
        *ret_size = request.value;
    } while (error == -EAGAIN);
    return error;
}

static int block_answer(struct node *node, const void *memory, bool is_free, size_t *ret_size)
{
    uint64_t address = (uint64_t)(uintptr_t)memory;
    uint32_t packed = 0;
    int error;

    if (!mmu_address_is_inside(&node->window, memory))
        return error_set(-EFAULT, "%p is not memory of this job", memory);
    if (mmu_page_is_shared(&node->window, mmu_page_at(&node->window, memory)))
        packed = extent_known(node, (address - node->window.base) / EXTENT_BYTES);
    if (packed == 0 || packed >> 16 == node->self.index + 1U)
        error = local_answer(node->memory, address, is_free, ret_size);
    else
        error = owner_answer(node, (packed >> 16) - 1, address - node->window.base, is_free, ret_size);
    if (error == -EFAULT)
        return error_set(error, "%p is not memory of this job", memory);
    if (error == -EINVAL)
        return error_set(error, "%p is not the start of an allocation, or was freed already", memory);
    if (error == -EHOSTDOWN)
        return error_set(error, "%p was allocated by a node that left the job", memory);
    return error;
}

int memory_free(struct node *node, void *memory)
{
    size_t size = 0;

    return block_answer(node, memory, true, &size);
}

int memory_usable_size(struct node *node, const void *memory, size_t *ret_size_bytes)
{
    size_t size = 0;
    int error = block_answer(node, memory, false, &size);

    if (error == 0)
        *ret_size_bytes = size;
    return error;
}

/* ---- frees for other nodes ------------------------------------------------------------------------------------- */

static void run_answer(struct request *request)
{
    uint8_t header[WIRE_HEADER_BYTES];
    struct iovec part = {header, sizeof(header)};

    wire_encode(request->pointer, header);
    peers_send(request->node, node_of((unsigned)request->a), PLANE_CONTROL, &part, 1);
    request_finish(request, 0, 0);
}

static void remote_free_do(struct memory *memory, const struct remote_free *free)
{
    size_t size = 0;
    struct wire answer = {.type = WIRE_FREED, .id = free->wire.id};
    struct request request = REQUEST(memory->node, run_answer, .pointer = &answer, .a = free->from.index);

    answer.result = local_answer(memory, memory->node->window.base + free->wire.a, free->wire.b != 0, &size);
    answer.a = size;
    request_call(&request);
}

static void *helper_main(void *argument)
{
    struct memory *memory = argument;

    pthread_mutex_lock(&memory->queue_mutex);
    while (!memory->helper_stops) {
        struct remote_free free;

        if (memory->queue_count == 0) {
            pthread_cond_wait(&memory->queue_filled, &memory->queue_mutex);
            continue;
        }
        free = memory->queue[memory->queue_first];
        memory->queue_first = (memory->queue_first + 1) % REMOTE_FREES_MAX;
        memory->queue_count--;
        pthread_mutex_unlock(&memory->queue_mutex);
        remote_free_do(memory, &free);
        pthread_mutex_lock(&memory->queue_mutex);
    }
    pthread_mutex_unlock(&memory->queue_mutex);
    return NULL;
}

static void free_arrived(struct node *node, struct node_id from, const struct wire *wire)
{
    struct memory *memory = node->memory;
    unsigned at;

    pthread_mutex_lock(&memory->queue_mutex);
    if (!memory->helper_runs) {
        int error = os_thread_start(&memory->helper, "tiermesh-free", helper_main, memory);

        memory->helper_runs = error == 0;
        if (error != 0)
            log_error("start the thread that frees for other nodes: %s", strerror(-error));
    }
    if (memory->queue_count == REMOTE_FREES_MAX) {
        log_warn("node %u asks for more frees at a time than its threads can; ignored", from.index);
    } else {
        at = (memory->queue_first + memory->queue_count++) % REMOTE_FREES_MAX;
        memory->queue[at] = (struct remote_free){from, *wire};
        pthread_cond_signal(&memory->queue_filled);
    }
    pthread_mutex_unlock(&memory->queue_mutex);
}

static void freed_arrived(struct node *node, struct node_id from, const struct wire *wire)
{
    struct request *request = wire->id < ASKED_MAX ? node->memory->asked[wire->id] : NULL;

    if (request == NULL || request->c != from.index)
        return;
    node->memory->asked[wire->id] = NULL;
    request_finish(request, wire->result > 0 ? -EPROTO : wire->result, wire->a);
}

void memory_receive(struct node *node, struct node_id from, const struct wire *wire)
{
    if (wire->type == WIRE_FREE)
        free_arrived(node, from, wire);
    else
        freed_arrived(node, from, wire);
}

void memory_view(struct node *node, const struct view *view)
{
    for (unsigned id = 0; id < ASKED_MAX; id++) {
        struct request *request = node->memory->asked[id];

        if (request == NULL || view_has(view, node_of((unsigned)request->c)))
            continue;
        node->memory->asked[id] = NULL;
        request_finish(request, -EHOSTDOWN, 0);
    }
}

/* ---- set-up ---------------------------------------------------------------------------------------------------- */

uint64_t memory_metadata_bytes(const struct memory *memory)
{
    uint64_t bytes = sizeof(*memory);

    for (unsigned i = 0; i < SPACES; i++)
        if (memory->spaces[i] != NULL)
            bytes += space_metadata_bytes(memory->spaces[i]);
    return bytes;
}

int memory_create(struct node *node, struct memory **ret_memory)
{
    struct memory *memory;
    void *area;
    int error = os_pages_map(sizeof(*memory), &area);

    if (error != 0)
        return error;
    memory = area;
    memory->node = node;
    error = os_pages_map(private_extents(node), &area);
    memory->private_used = error == 0 ? area : NULL;
    if (error == 0)
        error = os_pages_map(shared_extents(node) * sizeof(uint32_t), &area);
    memory->extents = error == 0 ? area : NULL;
    if (error == 0)
        error = os_pages_map(REMOTE_FREES_MAX * sizeof(struct remote_free), &area);
    memory->queue = error == 0 ? area : NULL;
    pthread_mutex_init(&memory->mutex, NULL);
    pthread_mutex_init(&memory->queue_mutex, NULL);
    pthread_cond_init(&memory->queue_filled, NULL);
    for (unsigned i = 0; i < SPACES; i++)
        memory->places[i] = (struct place){memory, i};
    if (error != 0)
        memory_destroy(memory);
    else
        *ret_memory = memory;
    return error;
}

void memory_stop(struct memory *memory)
{
    bool runs;

    pthread_mutex_lock(&memory->queue_mutex);
    memory->helper_stops = true;
    runs = memory->helper_runs;
    pthread_cond_signal(&memory->queue_filled);
    pthread_mutex_unlock(&memory->queue_mutex);
    if (runs)
        pthread_join(memory->helper, NULL);
}

void memory_destroy(struct memory *memory)
{
    const struct node *node = memory->node;

    for (unsigned i = 0; i < SPACES; i++)
        if (memory->spaces[i] != NULL)
            space_destroy(memory->spaces[i]);
    os_pages_unmap(memory->queue, REMOTE_FREES_MAX * sizeof(struct remote_free));
    os_pages_unmap(memory->extents, shared_extents(node) * sizeof(uint32_t));
    os_pages_unmap(memory->private_used, private_extents(node));
    os_pages_unmap(memory, sizeof(*memory));
}
