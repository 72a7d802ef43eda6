/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.h - an application thread asks the shard and sleeps until it is answered.
 *
 * The request lies on the caller's stack; it is the shard's from request_post() until `done`.
 */
#ifndef TIERMESH_RUNTIME_REQUEST_H
#define TIERMESH_RUNTIME_REQUEST_H

#include "runtime/node.h"

struct request {
    struct loop_call call;
    struct node *node;
    void (*run)(struct request *request); /* on the shard; ends with request_finish(), at once or later */
    /*
     * The shard stores `done` with release after result and value; request_wait() loads it with acquire.
     * 0: pending, 1: finished, 2: registered (conditions only).
     */
    _Atomic(uint32_t) done;
    int result;
    uint64_t value;
    /* Arguments, each run function's own. */
    struct page_id page;
    uint64_t a, b, c;
    void *pointer;
};

#define REQUEST(node_, run_, ...) {.node = (node_), .run = (run_), __VA_ARGS__}

void request_post(struct request *request);

/* The shard: the request is answered. Its memory may be gone when this returns. */
void request_finish(struct request *request, int result, uint64_t value);

/* Sleep until done. Returns the result, or -ETIMEDOUT: it is still the shard's (cancel it, then wait again). */
int request_wait(struct request *request, uint64_t timeout_ns);

/* Post and wait without limit. */
int request_call(struct request *request);

static inline uint64_t request_token(const struct request *request)
{
    return (uint64_t)(uintptr_t)request | TOKEN_REQUEST;
}

static inline struct request *token_pointer(uint64_t token)
{
    return (struct request *)(uintptr_t)(token & ~(uint64_t)TOKEN_TAG);
}

#endif
