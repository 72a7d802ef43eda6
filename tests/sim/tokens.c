/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens.c - what was asked of the protocol and is not answered yet.
 *
 * Each token is answered exactly once (a condition wait twice: registered, then signalled). The generation tells a
 * second answer from the answer to the slot's next use.
 */
#include "world.h"

#include "base/assert.h"

#include <errno.h>

#define TOKENS_A_THREAD (WORLD_TOKENS_MAX / WORLD_THREADS_MAX)

/* A thread's tokens have places of their own: what other threads ask does not change their values. */
struct token *token_new(struct world *world, enum token_kind kind, unsigned thread, unsigned page)
{
    for (unsigned i = thread * TOKENS_A_THREAD; i < (thread + 1) * TOKENS_A_THREAD; i++) {
        struct token *token = &world->tokens[i];

        if (token->kind != TOKEN_FREE)
            continue;
        token->kind = (uint8_t)kind;
        token->is_finished = false;
        token->is_registered = false;
        token->is_timed = false;
        token->node = world->threads[thread].node;
        token->thread = (uint16_t)thread;
        token->page = (uint16_t)page;
        token->result = 0;
        token->value = 0;
        token->generation++;
        return token;
    }
    return NULL;
}

uint64_t token_value(const struct world *world, const struct token *token)
{
    return (uint64_t)(token - world->tokens) | (uint64_t)token->generation << 16;
}

void token_free(struct token *token)
{
    token->kind = TOKEN_FREE;
}

/* The thread's own call: it looks at the token when it runs. */
static void thread_done(struct world *world, struct token *token, int result, uint64_t answer)
{
    struct thread *thread = &world->threads[token->thread];

    token->is_finished = true;
    token->result = result;
    token->value = answer;
    if (thread->operation == OPERATION_LOCK)
        locking_granted(world, token->thread, result, (uint32_t)answer);
    if (thread->state == THREAD_WAITING)
        processor_wake(world, token->thread, world->settings.wake_ns_max);
}

static void cond_done(struct world *world, struct token *token, int result, uint64_t answer)
{
    if (result == 0 && answer == 1 && !token->is_registered) {
        token->is_registered = true;
        processor_wake(world, token->thread, world->settings.wake_ns_max);
        return;
    }
    thread_done(world, token, result, answer);
}

static void fault_done(struct world *world, struct token *token, int result)
{
    struct thread *thread = &world->threads[token->thread];
    struct frame *frame = &world->nodes[token->node].frames[token->page];
    bool waits = thread->state == THREAD_FAULTING && thread->wait_page == token->page;

    if (result != 0 && result != -EAGAIN && !frame->is_poisoned && world->nodes[token->node].is_alive)
        world_fail(world, "environment", "node %u: a fault on page %u ends with %d, and the page is not poisoned",
                   token->node, token->page, result);
    if (result == -EAGAIN)
        world_fail(world, "environment", "node %u: a fault on page %u, not a prefetch, ends with -EAGAIN", token->node,
                   token->page);
    token_free(token);
    if (waits)
        processor_wake(world, (unsigned)(thread - world->threads), world->settings.wake_ns_max);
}

void token_done(struct world *world, unsigned node, uint64_t value, int result, uint64_t answer)
{
    unsigned index = value & UINT16_MAX;
    struct token *token = &world->tokens[index < WORLD_TOKENS_MAX ? index : 0];

    if (index >= WORLD_TOKENS_MAX || token->kind == TOKEN_FREE || token->is_finished ||
        token_value(world, token) != value || token->node != node) {
        world_fail(world, "leaks", "node %u: done(%d) for token 0x%llx, which is not in use", node, result,
                   (unsigned long long)value);
        return;
    }
    switch ((enum token_kind)token->kind) {
    case TOKEN_FREE:
        break;
    case TOKEN_FAULT:
        fault_done(world, token, result);
        break;
    case TOKEN_PREFETCH:
        if (world->mutant != WORLD_MUTANT_LOSE_DONE)
            token_free(token);
        break;
    case TOKEN_THREAD:
        thread_done(world, token, result, answer);
        break;
    case TOKEN_COND:
        cond_done(world, token, result, answer);
        break;
    }
    processor_wake_retrying(world, node);
}
