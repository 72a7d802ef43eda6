/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dsm.c - the functions of tiermesh/dsm.h: check the arguments, then call the part that does the work.
 */
#include "tiermesh/dsm.h"
#include "base/error.h"
#include "base/os.h"
#include "runtime/advise.h"
#include "runtime/locks.h"
#include "runtime/memory.h"
#include "runtime/pins.h"
#include "runtime/transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

/* ---- start and end --------------------------------------------------------------------------------------------- */

API int dsm_config_create(struct dsm_config **ret_config)
{
    struct dsm_config *config;
    int error;

    if (ret_config == NULL)
        return error_set(-EINVAL, "ret_config is NULL");
    config = malloc(sizeof(*config));
    if (config == NULL)
        return error_set(-ENOMEM, "no memory for a configuration");
    error = config_init(config);
    if (error != 0) {
        free(config);
        return error;
    }
    *ret_config = config;
    return 0;
}

API int dsm_config_set(struct dsm_config *config, const char *name, const char *value)
{
    if (config == NULL || name == NULL || value == NULL)
        return error_set(-EINVAL, "config, name and value must not be NULL");
    return config_set(config, name, value);
}

API void dsm_config_destroy(struct dsm_config *config)
{
    free(config);
}

API int dsm_init(const struct dsm_config *config)
{
    struct dsm_config defaults;
    int error;

    if (config == NULL) {
        error = config_init(&defaults);
        if (error != 0)
            return error;
        config = &defaults;
    }
    return node_start(config);
}

static int not_started(void)
{
    return error_set(-ENOTCONN, "this process is not a node; call dsm_init() first");
}

API int dsm_finalize(void)
{
    return node_current() == NULL ? not_started() : node_stop();
}

API int dsm_node_id(void)
{
    struct node *node = node_current();

    return node == NULL ? not_started() : node->self.index;
}

API int dsm_node_count(void)
{
    struct node *node = node_current();

    return node == NULL ? not_started() : (int)node->nodes_count;
}

API const char *dsm_errmsg(void)
{
    return error_text();
}

/* The node, when it is one and still a member. */
static int enter(struct node **ret_node)
{
    struct node *node = node_current();

    if (node == NULL)
        return not_started();
    if (atomic_load_explicit(&node->is_out, memory_order_relaxed) != 0)
        return error_set(-EHOSTDOWN, "this node is not a member of the job any more");
    *ret_node = node;
    return 0;
}

/* The node, and a range that is memory of the job. */
static int enter_range(const void *address, size_t size_bytes, bool shared_only, struct node **ret_node)
{
    int error = enter(ret_node);

    if (error != 0)
        return error;
    if (size_bytes == 0)
        return error_set(-EINVAL, "a range of 0 bytes");
    if ((uintptr_t)address + size_bytes < (uintptr_t)address ||
        !memory_is_ours(*ret_node, address, size_bytes, shared_only))
        return error_set(-EFAULT, "%zu bytes at %p are not %smemory of this job", size_bytes, address,
                         shared_only ? "shared " : "");
    return 0;
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static int attributes_check(const struct node *node, const struct dsm_attributes *attributes)
{
    size_t alignment = attributes->alignment_bytes;

    if (attributes->kind != DSM_SHARED && attributes->kind != DSM_PRIVATE)
        return error_set(-EINVAL, "attribute kind cannot be %d", (int)attributes->kind);
    if ((unsigned)attributes->placement > DSM_PLACE_NODE)
        return error_set(-EINVAL, "attribute placement cannot be %d", (int)attributes->placement);
    if (attributes->placement == DSM_PLACE_NODE &&
        (attributes->node < 0 || (unsigned)attributes->node >= node->nodes_count))
        return error_set(-EINVAL, "attribute node cannot be %d in a job of %u nodes", attributes->node,
                         node->nodes_count);
    if ((alignment & (alignment - 1)) != 0 || alignment > EXTENT_BYTES)
        return error_set(-EINVAL, "alignment must be a power of two up to 2 MiB, not %zu", alignment);
    return 0;
}

API int dsm_malloc_with(size_t size_bytes, const struct dsm_attributes *attributes, void **ret_memory)
{
    static const struct dsm_attributes defaults = {.kind = DSM_SHARED};
    struct node *node = NULL;
    int error = enter(&node);

    if (error != 0)
        return error;
    if (attributes == NULL)
        attributes = &defaults;
    if (ret_memory == NULL || size_bytes == 0)
        return error_set(-EINVAL, ret_memory == NULL ? "ret_memory is NULL" : "0 bytes cannot be allocated");
    if (size_bytes > PTRDIFF_MAX)
        return error_set(-EOVERFLOW, "%zu bytes are more than an object can have", size_bytes);
    error = attributes_check(node, attributes);
    return error != 0 ? error : memory_allocate(node, size_bytes, attributes, ret_memory);
}

API int dsm_malloc(size_t size_bytes, void **ret_memory)
{
    return dsm_malloc_with(size_bytes, NULL, ret_memory);
}

API int dsm_calloc(size_t count, size_t size_bytes, void **ret_memory)
{
    size_t total;

    if (__builtin_mul_overflow(count, size_bytes, &total))
        return error_set(-EOVERFLOW, "%zu times %zu bytes are more than a size can be", count, size_bytes);
    return dsm_malloc_with(total, NULL, ret_memory);
}

static int move_to(struct node *node, void *from, size_t size_bytes, void *to)
{
    /* Through ordinary stores: both are memory that this thread may touch. */
    (void)node;
    memcpy(to, from, size_bytes);
    return dsm_free(from);
}

API int dsm_realloc(void *memory, size_t size_bytes, void **ret_memory)
{
    struct dsm_attributes attributes = {.kind = DSM_SHARED};
    struct node *node = NULL;
    size_t usable;
    void *moved;
    int error = enter(&node);

    if (error != 0 || memory == NULL)
        return error != 0 ? error : dsm_malloc(size_bytes, ret_memory);
    if (ret_memory == NULL || size_bytes == 0)
        return error_set(-EINVAL, ret_memory == NULL ? "ret_memory is NULL" : "0 bytes cannot be allocated");
    error = memory_usable_size(node, memory, &usable);
    if (error != 0)
        return error;
    if (size_bytes <= usable && size_bytes >= usable / 2) {
        *ret_memory = memory;
        return 0;
    }
    if (!mmu_page_is_shared(&node->window, mmu_page_at(&node->window, memory)))
        attributes.kind = DSM_PRIVATE;
    error = dsm_malloc_with(size_bytes, &attributes, &moved);
    if (error != 0)
        return error;
    error = move_to(node, memory, size_bytes < usable ? size_bytes : usable, moved);
    *ret_memory = moved;
    return error;
}

API int dsm_free(void *memory)
{
    struct node *node = NULL;
    int error = enter(&node);

    if (error != 0 || memory == NULL)
        return error;
    advise_freed(node, memory);
    return memory_free(node, memory);
}

API int dsm_usable_size(const void *memory, size_t *ret_size_bytes)
{
    struct node *node = NULL;
    int error = enter(&node);

    if (error != 0)
        return error;
    if (ret_size_bytes == NULL)
        return error_set(-EINVAL, "ret_size_bytes is NULL");
    return memory_usable_size(node, memory, ret_size_bytes);
}

/* ---- explicit reads and writes --------------------------------------------------------------------------------- */

/* What dsm_transfer.internal holds. */
struct transfer {
    uint64_t is_active; /* 0: not started, or waited for */
    uint64_t is_write;
    char *managed;
    char *buffer;
    size_t size_bytes;
};
BUILD_ASSERT(sizeof(struct transfer) <= sizeof(struct dsm_transfer));

#define AHEAD_BYTES ((size_t)64 * PAGE_BYTES) /* hinted at beyond the page that is waited for */

static struct transfer *transfer_of(struct dsm_transfer *transfer)
{
    return (struct transfer *)(void *)transfer->internal;
}

static int transfer_start(struct node *node, struct dsm_transfer *handle, struct transfer start)
{
    if (handle == NULL)
        return error_set(-EINVAL, "DSM_NOWAIT needs a transfer");
    if (transfer_of(handle)->is_active != 0)
        return error_set(-EINVAL, "this transfer is in flight; wait for it first");
    start.is_active = 1;
    *transfer_of(handle) = start;
    transfer_ask(node, start.managed, start.size_bytes, start.is_write != 0 ? ACCESS_WRITE : ACCESS_READ, true);
    return 0;
}

static int transfer_check(const void *buffer, unsigned flags, const struct dsm_transfer *transfer)
{
    if (buffer == NULL)
        return error_set(-EINVAL, "buffer is NULL");
    if ((flags & ~DSM_NOWAIT) != 0)
        return error_set(-EINVAL, "flags cannot be 0x%x", flags);
    if (flags == 0 && transfer != NULL)
        return error_set(-EINVAL, "a transfer goes with DSM_NOWAIT only");
    return 0;
}

API int dsm_read(void *buffer, const void *address, size_t size_bytes, unsigned flags, struct dsm_transfer *transfer)
{
    struct node *node = NULL;
    int error = enter_range(address, size_bytes, false, &node);

    if (error == 0)
        error = transfer_check(buffer, flags, transfer);
    if (error != 0)
        return error;
    if (flags == DSM_NOWAIT)
        return transfer_start(node, transfer, (struct transfer){.managed = (char *)(uintptr_t)address,
                                                                .buffer = buffer,
                                                                .size_bytes = size_bytes});
    return transfer_read(node, address, size_bytes, buffer);
}

API int dsm_write(void *address, const void *buffer, size_t size_bytes, unsigned flags, struct dsm_transfer *transfer)
{
    struct node *node = NULL;
    int error = enter_range(address, size_bytes, false, &node);

    if (error == 0)
        error = transfer_check(buffer, flags, transfer);
    if (error != 0)
        return error;
    if (flags == DSM_NOWAIT)
        return transfer_start(node, transfer, (struct transfer){.is_write = 1,
                                                                .managed = address,
                                                                .buffer = (char *)(uintptr_t)buffer,
                                                                .size_bytes = size_bytes});
    return transfer_write(node, address, size_bytes, buffer);
}

static int transfer_finish(struct node *node, struct transfer *transfer)
{
    transfer->is_active = 0;
    if (transfer->is_write != 0)
        return transfer_write(node, transfer->managed, transfer->size_bytes, transfer->buffer);
    return transfer_read(node, transfer->managed, transfer->size_bytes, transfer->buffer);
}

static int transfer_page(struct node *node, struct transfer *transfer, size_t size)
{
    int error = transfer->is_write != 0 ? transfer_write(node, transfer->managed, size, transfer->buffer)
                                        : transfer_read(node, transfer->managed, size, transfer->buffer);

    if (error != 0)
        return error;
    transfer->managed += size;
    transfer->buffer += size;
    transfer->size_bytes -= size;
    return 0;
}

/*
 * Page by page, so that a transfer larger than DDR ends too. The first page that is not near is asked for in earnest,
 * and, when the caller may wait, copied all the same. -EAGAIN: time is up, or the caller must not wait.
 */
static int transfer_advance(struct node *node, struct transfer *transfer, uint64_t deadline_ns)
{
    enum access access = transfer->is_write != 0 ? ACCESS_WRITE : ACCESS_READ;
    int error = 0;

    while (error == 0 && transfer->size_bytes > 0) {
        size_t room = PAGE_BYTES - (uintptr_t)transfer->managed % PAGE_BYTES;
        size_t size = transfer->size_bytes < room ? transfer->size_bytes : room;

        if (!transfer_is_near(node, transfer->managed, size, access)) {
            if (deadline_ns == 0) {
                transfer_ask(node, transfer->managed, size, access, false);
                transfer_ask(node, transfer->managed,
                             transfer->size_bytes < AHEAD_BYTES ? transfer->size_bytes : AHEAD_BYTES, access, true);
                return -EAGAIN;
            }
            if (os_now_ns() >= deadline_ns)
                return -EAGAIN;
        }
        error = transfer_page(node, transfer, size);
    }
    transfer->is_active = 0;
    return error;
}

static int transfer_enter(struct dsm_transfer *transfer, struct node **ret_node)
{
    int error = enter(ret_node);

    if (error == 0 && (transfer == NULL || transfer_of(transfer)->is_active == 0))
        error = error_set(-EINVAL, "this transfer was not started, or waited for already");
    return error;
}

API int dsm_wait(struct dsm_transfer *transfer, uint64_t timeout_ns)
{
    uint64_t start_ns = os_now_ns();
    struct node *node = NULL;
    int error = transfer_enter(transfer, &node);

    if (error != 0)
        return error;
    if (timeout_ns == DSM_FOREVER)
        return transfer_finish(node, transfer_of(transfer));
    error = transfer_advance(node, transfer_of(transfer),
                             timeout_ns > UINT64_MAX - start_ns ? UINT64_MAX : start_ns + timeout_ns);
    return error == -EAGAIN ? error_set(-ETIMEDOUT, "the transfer is still in flight") : error;
}

API int dsm_test(struct dsm_transfer *transfer)
{
    struct node *node = NULL;
    int error = transfer_enter(transfer, &node);

    return error != 0 ? error : transfer_advance(node, transfer_of(transfer), 0);
}

/* ---- locks ----------------------------------------------------------------------------------------------------- */

static void page_range(const struct node *node, const void *address, size_t size_bytes, uint64_t *ret_first,
                       uint64_t *ret_count)
{
    uint64_t last = mmu_page_at(&node->window, (const char *)address + size_bytes - 1).index;

    *ret_first = mmu_page_at(&node->window, address).index;
    *ret_count = last - *ret_first + 1;
}

static int lock_result(int error)
{
    switch (error) {
    case -ETIMEDOUT:
        return error_set(error, "the lock was not granted in time");
    case -EBUSY:
        return error_set(error, "the lock is held");
    case -EOWNERDEAD:
        return error_set(error, "the lock is held now, but its last holder's node died: check what it guards");
    case -EHOSTDOWN:
        return error_set(error, "the node that keeps the lock left the job");
    case -ENOSPC:
        return error_set(error, "the node that keeps the lock has no room for more locks; unlock some");
    default:
        return error;
    }
}

API int dsm_lock(const void *address, size_t size_bytes, enum dsm_lock_mode mode, uint64_t timeout_ns)
{
    struct lock_key key = {.space = LOCK_PAGES, .is_exclusive = mode == DSM_LOCK_EXCLUSIVE};
    struct node *node = NULL;
    int error = enter_range(address, size_bytes, true, &node);

    if (error != 0)
        return error;
    if (mode != DSM_LOCK_SHARED && mode != DSM_LOCK_EXCLUSIVE)
        return error_set(-EINVAL, "lock mode cannot be %d", (int)mode);
    page_range(node, address, size_bytes, &key.first, &key.count);
    return lock_result(locks_take(node, &key, timeout_ns));
}

API int dsm_unlock(const void *address, size_t size_bytes)
{
    struct node *node = node_current();
    uint64_t first;
    uint64_t count;

    if (node == NULL)
        return not_started();
    if (size_bytes == 0 || !mmu_address_is_inside(&node->window, address))
        return error_set(-EPERM, "this thread does not hold that lock");
    page_range(node, address, size_bytes, &first, &count);
    return locks_put(node, LOCK_PAGES, first, count);
}

static struct lock_key word_key(const struct node *node, const void *address)
{
    return (struct lock_key){.space = LOCK_WORDS,
                             .is_exclusive = true,
                             .first = ((uintptr_t)address - node->window.base) / 8,
                             .count = 1};
}

static int mutex_take(dsm_mutex *mutex, uint64_t timeout_ns)
{
    struct lock_key key;
    struct node *node = NULL;
    int error = enter_range(mutex, sizeof(*mutex), true, &node);

    if (error != 0)
        return error;
    key = word_key(node, mutex);
    return lock_result(locks_take(node, &key, timeout_ns));
}

API int dsm_mutex_lock(dsm_mutex *mutex)
{
    return mutex_take(mutex, DSM_FOREVER);
}

API int dsm_mutex_trylock(dsm_mutex *mutex)
{
    return mutex_take(mutex, 0);
}

API int dsm_mutex_unlock(dsm_mutex *mutex)
{
    struct node *node = node_current();
    struct lock_key key;

    if (node == NULL)
        return not_started();
    key = word_key(node, mutex);
    return locks_put(node, key.space, key.first, key.count);
}

static int cond_result(int error)
{
    switch (error) {
    case -ETIMEDOUT:
        return error_set(error, "the condition was not signalled in time");
    case -EHOSTDOWN:
        return error_set(error, "the node that keeps the condition left the job");
    case -ENOSPC:
        return error_set(error, "the node that keeps the condition has no room for more waiters");
    default:
        return lock_result(error);
    }
}

API int dsm_cond_wait(dsm_cond *cond, dsm_mutex *mutex, uint64_t timeout_ns)
{
    struct lock_key key;
    struct node *node = NULL;
    int error = enter_range(cond, sizeof(*cond), true, &node);

    if (error != 0)
        return error;
    key = word_key(node, mutex);
    if (!locks_is_held(key.space, key.first, key.count))
        return error_set(-EPERM, "this thread does not hold the mutex");
    return cond_result(locks_cond_wait(node, word_key(node, cond).first, &key, timeout_ns));
}

static int cond_wake(dsm_cond *cond, bool all)
{
    struct node *node = NULL;
    int error = enter_range(cond, sizeof(*cond), true, &node);

    return error != 0 ? error : cond_result(locks_cond_wake(node, word_key(node, cond).first, all));
}

API int dsm_cond_signal(dsm_cond *cond)
{
    return cond_wake(cond, false);
}

API int dsm_cond_broadcast(dsm_cond *cond)
{
    return cond_wake(cond, true);
}

static void run_barrier(struct request *request)
{
    int error = cluster_barrier(request->node->cluster, request_token(request), os_now_ns());

    if (error != 0)
        request_finish(request, error, 0);
}

API int dsm_barrier(void)
{
    struct node *node = NULL;
    int error = enter(&node);
    struct request request = REQUEST(node, run_barrier);

    if (error != 0)
        return error;
    error = request_call(&request);
    if (error == -EHOSTDOWN)
        return error_set(error, "a node left the job while this one waited at a barrier");
    if (error == -EBUSY)
        return error_set(error, "another thread of this node is at the barrier");
    return error;
}

/* ---- names ----------------------------------------------------------------------------------------------------- */

static int name_check(const char *name)
{
    if (name == NULL || name[0] == '\0' || strlen(name) > DSM_NAME_MAX)
        return error_set(-EINVAL, "a name has 1 to %d bytes", DSM_NAME_MAX);
    return 0;
}

static void run_name_set(struct request *request)
{
    int error = cluster_name_set(request->node->cluster, request->pointer, request->a, request_token(request),
                                 os_now_ns());

    if (error != 0)
        request_finish(request, error, 0);
}

API int dsm_root_set(const char *name, void *memory)
{
    struct request request = {.run = run_name_set};
    struct node *node = NULL;
    int error = memory == NULL ? enter(&node) : enter_range(memory, 1, true, &node);

    if (error == 0)
        error = name_check(name);
    if (error != 0)
        return error;
    request.node = node;
    request.pointer = (void *)(uintptr_t)name;
    request.a = (uint64_t)(uintptr_t)memory;
    error = request_call(&request);
    return error == -ENOSPC ? error_set(error, "no more names can be published; remove some") : error;
}

static void run_name_get(struct request *request)
{
    int error = cluster_name_get(request->node->cluster, request->pointer, request->a != 0, request_token(request),
                                 os_now_ns());

    if (error != 0)
        request_finish(request, error, 0);
}

static void run_cancel(struct request *request)
{
    cluster_cancel(request->node->cluster, request_token(request->pointer), os_now_ns());
    request_finish(request, 0, 0);
}

API int dsm_root_get(const char *name, uint64_t timeout_ns, void **ret_memory)
{
    struct request request = {.run = run_name_get};
    struct node *node = NULL;
    int error = enter(&node);

    if (error == 0)
        error = ret_memory == NULL ? error_set(-EINVAL, "ret_memory is NULL") : name_check(name);
    if (error != 0)
        return error;
    request.node = node;
    request.pointer = (void *)(uintptr_t)name;
    request.a = timeout_ns != 0;
    request_post(&request);
    error = request_wait(&request, timeout_ns == 0 ? UINT64_MAX : timeout_ns);
    if (error == -ETIMEDOUT && atomic_load(&request.done) != 1) {
        struct request cancel = REQUEST(node, run_cancel, .pointer = &request);

        request_call(&cancel);
        error = request_wait(&request, UINT64_MAX);
    }
    if (error == -ECANCELED || error == -ENOENT)
        return error_set(error == -ENOENT ? -ENOENT : -ETIMEDOUT, "no pointer is published as '%s'", name);
    if (error != 0)
        return error_set(error, "ask for the name '%s': %s", name, strerror(-error));
    *ret_memory = (void *)(uintptr_t)request.value;
    return 0;
}

/* ---- hints and pins -------------------------------------------------------------------------------------------- */

API int dsm_prefetch(const void *address, size_t size_bytes)
{
    struct node *node = NULL;
    int error = enter_range(address, size_bytes, false, &node);

    if (error == 0)
        transfer_ask(node, address, size_bytes, ACCESS_READ, true);
    return error;
}

API int dsm_advise(void *address, size_t size_bytes, enum dsm_advice advice)
{
    struct node *node = NULL;
    int error = enter_range(address, size_bytes, false, &node);

    if (error != 0)
        return error;
    if ((unsigned)advice > DSM_ADVISE_WALK)
        return error_set(-EINVAL, "advice cannot be %d", (int)advice);
    error = advise_range(node, address, size_bytes, advice);
    return error == -ENOSPC ? error_set(error, "too many ranges are advised already; take some back by NORMAL") : error;
}

API int dsm_pin(void *address, size_t size_bytes, int writable, uint64_t timeout_ns)
{
    struct node *node = NULL;
    int error = enter_range(address, size_bytes, false, &node);

    if (error != 0)
        return error;
    if (timeout_ns > PIN_NS_MAX)
        return error_set(-EINVAL, "a pin lasts 60 s at most");
    return pins_take(node, address, size_bytes, writable != 0, timeout_ns == 0 ? PIN_NS_DEFAULT : timeout_ns);
}

API int dsm_unpin(void *address, size_t size_bytes)
{
    struct node *node = NULL;
    int error = enter_range(address, size_bytes, false, &node);

    return error != 0 ? error : pins_put(node, address, size_bytes);
}
