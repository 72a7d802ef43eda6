/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.c - posting to the shard and sleeping on a futex.
 */
#include "runtime/request.h"
#include "base/os.h"

#include <errno.h>

static void request_arrived(struct loop_call *call)
{
    struct request *request = CONTAINER_OF(call, struct request, call);

    request->run(request);
}

void request_post(struct request *request)
{
    request->call.run = request_arrived;
    loop_post(request->node->loop, &request->call);
}

void request_finish(struct request *request, int result, uint64_t value)
{
    request->result = result;
    request->value = value;
    atomic_store_explicit(&request->done, 1, memory_order_release);
    /* The waiter may be gone by now: the kernel only hashes the address. */
    os_futex_wake(&request->done, 1, false);
}

int request_wait(struct request *request, uint64_t timeout_ns)
{
    uint64_t start_ns = timeout_ns == UINT64_MAX ? 0 : os_now_ns();
    uint32_t state;

    while ((state = atomic_load_explicit(&request->done, memory_order_acquire)) != 1) {
        uint64_t left_ns = UINT64_MAX;

        if (timeout_ns != UINT64_MAX) {
            uint64_t spent_ns = os_now_ns() - start_ns;

            if (spent_ns >= timeout_ns)
                return -ETIMEDOUT;
            left_ns = timeout_ns - spent_ns;
        }
        os_futex_wait(&request->done, state, left_ns, false);
    }
    return request->result;
}

int request_call(struct request *request)
{
    request_post(request);
    return request_wait(request, UINT64_MAX);
}
