/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atomics.c - dsm_atomic_*: on the spot when this node owns the page, else at the page's home.
 *
 * Runs on application threads. While the page is pinned with write access no other node can have it, so a processor
 * atomic on the mapping is atomic for the whole job; it may fault on this thread, which the shard answers.
 */
#include "base/error.h"
#include "base/os.h"
#include "coherence/message.h"
#include "runtime/memory.h"
#include "runtime/request.h"
#include "tiermesh/dsm.h"

#include <errno.h>

#define API __attribute__((visibility("default")))

struct atomic_call {
    unsigned operation;
    uint64_t argument, expected;
};

static uint64_t on_the_spot(_Atomic(uint64_t) *word, const struct atomic_call *call)
{
    uint64_t old = call->expected;

    switch (call->operation) {
    case ATOMIC_LOAD:
        return atomic_load(word);
    case ATOMIC_STORE:
    case ATOMIC_EXCHANGE:
        return atomic_exchange(word, call->argument);
    case ATOMIC_ADD:
        return atomic_fetch_add(word, call->argument);
    default:
        atomic_compare_exchange_strong(word, &old, call->argument);
        return old;
    }
}

static bool try_here(struct node *node, uint64_t *address, const struct atomic_call *call, uint64_t *ret_old)
{
    struct page_id page = mmu_page_at(&node->window, address);
    struct page_entry *entry = table_find(node->pages, page);

    if (entry == NULL || !page_pin(entry, call->operation == ATOMIC_LOAD ? ACCESS_READ : ACCESS_WRITE))
        return false;
    *ret_old = on_the_spot((_Atomic(uint64_t) *)address, call);
    if (page_unpin(entry) && atomic_exchange(&node->unpin_posted, 1) == 0)
        loop_post(node->loop, &node->unpin_call);
    return true;
}

static void run_atomic(struct request *request)
{
    const struct atomic_call *call = request->pointer;
    int error = coherence_atomic(request->node->coherence, request->page, (unsigned)request->a, call->operation,
                                 call->argument, call->expected, request_token(request), os_now_ns());

    if (error != 0)
        request_finish(request, error, 0);
}

static int at_home(struct node *node, uint64_t *address, struct atomic_call *call, uint64_t *ret_old)
{
    int error;

    do {
        struct request request = REQUEST(node, run_atomic, .page = mmu_page_at(&node->window, address),
                                         .a = (uintptr_t)address % PAGE_BYTES, .pointer = call);

        error = request_call(&request);
        *ret_old = request.value;
    } while (error == -EAGAIN);
    if (error == -EIO)
        return error_set(error, "the page at %p is lost", (void *)address);
    if (error == -EHOSTDOWN)
        return error_set(error, "the home of %p left the job; whether the atomic took effect is unknown",
                         (void *)address);
    return error;
}

static int atomic_do(uint64_t *address, struct atomic_call call, uint64_t *ret_old)
{
    struct node *node = node_current();
    uint64_t old;
    int error = 0;

    if (node == NULL)
        return error_set(-ENOTCONN, "this process is not a node; call dsm_init() first");
    if (atomic_load_explicit(&node->is_out, memory_order_relaxed) != 0)
        return error_set(-EHOSTDOWN, "this node is not a member of the job any more");
    if ((uintptr_t)address % sizeof(uint64_t) != 0)
        return error_set(-EINVAL, "%p is not aligned to 8 bytes", (void *)address);
    if (!memory_is_ours(node, address, sizeof(uint64_t), true))
        return error_set(-EFAULT, "%p is not shared memory of this job", (void *)address);
    if (!try_here(node, address, &call, &old))
        error = at_home(node, address, &call, &old);
    if (error == 0 && ret_old != NULL)
        *ret_old = old;
    return error;
}

API int dsm_atomic_load(const uint64_t *address, uint64_t *ret_value)
{
    if (ret_value == NULL)
        return error_set(-EINVAL, "ret_value is NULL");
    return atomic_do((uint64_t *)(uintptr_t)address, (struct atomic_call){ATOMIC_LOAD, 0, 0}, ret_value);
}

API int dsm_atomic_store(uint64_t *address, uint64_t value)
{
    return atomic_do(address, (struct atomic_call){ATOMIC_STORE, value, 0}, NULL);
}

API int dsm_atomic_fetch_add(uint64_t *address, uint64_t value, uint64_t *ret_old)
{
    return atomic_do(address, (struct atomic_call){ATOMIC_ADD, value, 0}, ret_old);
}

API int dsm_atomic_exchange(uint64_t *address, uint64_t value, uint64_t *ret_old)
{
    return atomic_do(address, (struct atomic_call){ATOMIC_EXCHANGE, value, 0}, ret_old);
}

API int dsm_atomic_compare_swap(uint64_t *address, uint64_t expected, uint64_t desired, uint64_t *ret_old)
{
    return atomic_do(address, (struct atomic_call){ATOMIC_COMPARE_SWAP, desired, expected}, ret_old);
}
