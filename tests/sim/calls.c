/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.c - operations that are longer than an instruction: copies under pins, reads without rights, atomics,
 * conditions, evictions, prefetches, long pins.
 *
 * A pin is never held across a fault. Each function is entered when its thread runs, and finds its place by `stage`.
 */
#include "world.h"

#include "base/assert.h"

#include <errno.h>

/* The thread's open token, finished or not. */
static struct token *thread_token(struct world *world, const struct thread *thread)
{
    return &world->tokens[thread->token - 1];
}

/* A token for the thread's next call; NULL: none is free, the thread tries again after the node's next done(). */
static struct token *call_begin(struct world *world, unsigned index, enum token_kind kind, unsigned page)
{
    struct thread *thread = &world->threads[index];
    struct token *token = token_new(world, kind, index, page);

    thread->state = token == NULL ? THREAD_RETRYING : THREAD_WAITING;
    thread->token = (uint16_t)(token == NULL ? 0 : token - world->tokens + 1);
    return token;
}

/*
 * The call was refused: -EAGAIN is tried again after the node's next done(), any other code listed ends the operation.
 * True: it was accepted.
 */
static bool call_accepted(struct world *world, unsigned index, struct token *token, int result)
{
    struct thread *thread = &world->threads[index];

    if (result == 0)
        return true;
    token_free(token);
    thread->token = 0;
    if (result == -EAGAIN)
        thread->state = THREAD_RETRYING;
    else
        processor_finish(world, index);
    return false;
}

static void copy_end(struct world *world, unsigned index, unsigned page)
{
    struct thread *thread = &world->threads[index];
    enum access rights = world->nodes[thread->node].frames[page].rights;

    if (thread->is_store && rights == ACCESS_WRITE)
        processor_store(world, index, page);
    else if (rights != ACCESS_NONE)
        processor_load(world, index, page);
    memory_unpin(world, thread->node, page);
}

/* stage counts half steps: even, the page is about to be pinned; odd, its bytes are being copied. */
void call_copy(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];
    unsigned page = thread->pages[0] + thread->stage / 2U;

    if (thread->stage % 2 == 1) {
        copy_end(world, index, page);
        thread->stage++;
        page++;
    }
    if (thread->stage / 2 >= thread->pages_count) {
        processor_finish(world, index);
        return;
    }
    if (!processor_need(world, index, page, thread->is_store ? ACCESS_WRITE : ACCESS_READ))
        return;
    memory_pin(world, thread->node, page);
    thread->stage++;
    processor_wake(world, index, 5 * NS_PER_US);
}

static void read_bytes(struct world *world, struct thread *thread, uint64_t value)
{
    unsigned home = world_page_home(world, thread->pages[0]);

    for (unsigned i = 0; i < thread->pages_count && world->nodes[home].is_alive; i++) {
        unsigned page = thread->pages[0] + i;
        const struct frame *frame = &world->nodes[home].frames[page];

        if (!frame->is_lost)
            check_reads(world, home, page, &frame->content);
    }
    coherence_read_end(world->nodes[thread->node].coherence, value, world_now(world, thread->node));
    processor_wake_retrying(world, thread->node); /* its request is free again, without a done() */
}

/* stage 0: ask; 1: asked; 2: the bytes are taken from the home's store without rights, then the read ends. */
void call_read(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];
    struct token *token;

    if (thread->stage == 0) {
        token = call_begin(world, index, TOKEN_THREAD, thread->pages[0]);
        if (token == NULL)
            return;
        trace_note(world, TRACE_CALL, thread->node, thread->pages[0], (int64_t)index, token_value(world, token),
                   "reads without rights");
        thread->stage = 1;
        if (!call_accepted(world, index, token,
                           coherence_read(world->nodes[thread->node].coherence, world_page_id(world, thread->pages[0]),
                                          thread->pages_count, token_value(world, token),
                                          world_now(world, thread->node))))
            thread->stage = 0;
        return;
    }
    token = thread_token(world, thread);
    if (!token->is_finished)
        return;
    if (thread->stage == 1 && token->result == 0) {
        thread->stage = 2;
        processor_wake(world, index, 50 * NS_PER_US);
        return;
    }
    if (thread->stage == 2)
        read_bytes(world, thread, token_value(world, token));
    token_free(token);
    processor_finish(world, index);
}

static bool atomic_ask(struct world *world, unsigned index, unsigned page, unsigned word)
{
    struct thread *thread = &world->threads[index];
    struct token *token = call_begin(world, index, TOKEN_THREAD, page);
    uint64_t expected = world->ghosts[page].content.words[word];

    if (token == NULL)
        return false;
    trace_note(world, TRACE_CALL, thread->node, page, (int64_t)index, token_value(world, token), "adds");
    thread->value = expected;
    thread->stage = 1;
    world->ghosts[page].started[word]++;
    if (call_accepted(world, index, token,
                      coherence_atomic(world->nodes[thread->node].coherence, world_page_id(world, page), word * 8,
                                       thread->is_store ? ATOMIC_COMPARE_SWAP : ATOMIC_ADD,
                                       thread->is_store ? expected + 1 : 1, expected, token_value(world, token),
                                       world_now(world, thread->node))))
        return true;
    world->ghosts[page].started[word]--;
    thread->stage = 0;
    return false;
}

/*
 * Additions of 1, some by compare-and-swap: every old value is seen once, and the sum tells how many were made. A swap
 * that fails added nothing.
 */
void call_atomic(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];
    unsigned page = thread->pages[0], word = 1 + thread->lock % (CONTENT_WORDS - 1U);
    struct token *token;

    if (thread->stage == 0) {
        (void)atomic_ask(world, index, page, word);
        return;
    }
    token = thread_token(world, thread);
    if (!token->is_finished)
        return;
    if (token->result == 0 && thread->is_store && token->value != thread->value)
        world->ghosts[page].started[word]--;
    else if (token->result == 0)
        check_atomics_finished(world, page, word, token->value);
    token_free(token);
    processor_finish(world, index);
}

/* Within env->atomic(), at the home. */
int memory_atomic(struct world *world, unsigned node, unsigned page, const struct message *operation, uint64_t *ret_old)
{
    struct frame *frame = &world->nodes[node].frames[page];
    struct ghost_page *ghost = &world->ghosts[page];
    unsigned word = atomic_offset_of(operation) / 8;
    unsigned times = world->mutant == WORLD_MUTANT_ATOMIC_TWICE && world_fault_chance(world, 20) ? 2 : 1;

    if (word >= CONTENT_WORDS) { /* of the page, but only a hostile node asks for it: it reads as zero */
        world_fail(world, "environment", "an atomic on word %u of page %u, which nobody asked for", word, page);
        *ret_old = 0;
        return 0;
    }
    if (frame->is_lost)
        return -EIO;
    if (frame->is_slow && !world->is_exploring) {
        world_schedule(world, 1 + world_fault_draw(world, world->settings.slow_ns_max), EVENT_ATOMIC_READY, node, page);
        return -EINPROGRESS;
    }
    check_writers_atomic(world, node, page);
    *ret_old = frame->content.words[word];
    frame->is_present = true;
    trace_note(world, TRACE_ATOMIC, node, page, (int64_t)*ret_old, word, NULL);
    if (atomic_operation_of(operation) == ATOMIC_COMPARE_SWAP && operation->b != *ret_old)
        return 0;
    for (unsigned i = 0; i < times; i++) {
        frame->content.words[word]++;
        check_atomics_applied(world, page, word);
    }
    ghost->content.words[word] = frame->content.words[word];
    return 0;
}

/* ---- conditions: a counter of items; the waiter registers, looks, and sleeps ------------------------------------- */

static uint64_t cond_word(const struct world *world, const struct thread *thread)
{
    unsigned word = thread->lock % WORLD_WORDS;

    return world_page_id(world, word % world_pages_count(world)).index << (PAGE_SHIFT - 3) | (8 + word);
}

static void cond_wake(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];
    struct token *token = call_begin(world, index, TOKEN_THREAD, 0);

    if (token == NULL)
        return;
    trace_note(world, TRACE_CALL, thread->node, UINT16_MAX, (int64_t)index, token_value(world, token),
               "wakes a waiter");
    thread->stage++;
    if (!call_accepted(world, index, token,
                       coherence_cond_wake(world->nodes[thread->node].coherence, cond_word(world, thread),
                                           thread->is_store, token_value(world, token),
                                           world_now(world, thread->node))))
        thread->stage--;
}

/* stage 0: put an item, 1: wake a waiter (again, if the call was refused), 2: asked. */
void call_produce(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];

    if (thread->stage == 0) {
        world->items[thread->lock % WORLD_WORDS]++;
        thread->stage = 1;
    }
    if (thread->stage == 1) {
        cond_wake(world, index);
        return;
    }
    if (!thread_token(world, thread)->is_finished)
        return;
    token_free(thread_token(world, thread));
    processor_finish(world, index);
}

static void consume_ask(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];
    struct token *token = call_begin(world, index, TOKEN_COND, 0);

    if (token == NULL)
        return;
    trace_note(world, TRACE_CALL, thread->node, UINT16_MAX, (int64_t)index, token_value(world, token),
               "waits for a signal");
    thread->stage = 1;
    if (!call_accepted(world, index, token,
                       coherence_cond_wait(world->nodes[thread->node].coherence, cond_word(world, thread),
                                           token_value(world, token), world_now(world, thread->node))))
        thread->stage = 0;
}

/* Takes an item if there is one. A waiter that does not need its signal any more passes it on. */
static bool item_take(struct world *world, const struct thread *thread)
{
    int64_t *items = &world->items[thread->lock % WORLD_WORDS];

    if (*items == 0)
        return false;
    (*items)--;
    return true;
}

static void consume_cancel(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];
    struct token *token = thread_token(world, thread);

    thread->stage = 2;
    coherence_cond_cancel(world->nodes[thread->node].coherence, token_value(world, token),
                          world_now(world, thread->node));
}

/*
 * stage 0: register; 1: registered or asleep; 2: has its item, or gave up, and cancels; 3: passes a signal on that it
 * did not need; 4: asked for that. At the very end nobody will signal any more, and sleepers give up.
 */
void call_consume(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];
    struct token *token = thread->token == 0 ? NULL : thread_token(world, thread);
    bool was_signalled;

    if (thread->stage == 0) {
        consume_ask(world, index);
        return;
    }
    if (thread->stage == 3) {
        cond_wake(world, index);
        return;
    }
    if (!token->is_finished) {
        if (thread->stage == 1 && token->is_registered && (item_take(world, thread) || world->is_ending))
            consume_cancel(world, index);
        return;
    }
    was_signalled = token->result == 0;
    token_free(token);
    thread->token = 0;
    if (thread->stage == 1 && was_signalled && !item_take(world, thread) && !world->is_ending) {
        thread->stage = 0;
        processor_wake(world, index, world->settings.wake_ns_max);
    } else if (thread->stage == 2 && was_signalled) {
        thread->stage = 3;
        processor_wake(world, index, world->settings.wake_ns_max);
    } else {
        processor_finish(world, index);
    }
}

/* ---- evictions, prefetches, pins --------------------------------------------------------------------------------- */

void call_evict(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];
    unsigned page = thread->pages[0];
    struct token *token;

    if (thread->stage == 0) {
        token = call_begin(world, index, TOKEN_THREAD, page);
        if (token == NULL)
            return;
        trace_note(world, TRACE_CALL, thread->node, page, (int64_t)index, token_value(world, token), "evicts");
        thread->stage = 1;
        if (!call_accepted(world, index, token,
                           coherence_evict(world->nodes[thread->node].coherence, world_page_id(world, page),
                                           token_value(world, token), world_now(world, thread->node))) &&
            thread->state == THREAD_RETRYING)
            thread->stage = 0;
        return;
    }
    if (!thread_token(world, thread)->is_finished)
        return;
    token_free(thread_token(world, thread));
    processor_finish(world, index);
}

/* Nobody waits for a prefetch; the token closes by itself. */
void call_prefetch(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];
    struct token *token = token_new(world, TOKEN_PREFETCH, index, thread->pages[0]);
    const struct frame *frame = &world->nodes[thread->node].frames[thread->pages[0]];
    enum access access = thread->is_store ? ACCESS_WRITE : ACCESS_READ;

    if (token != NULL &&
        (frame->rights >= access || frame->is_poisoned || frame->is_reporting ||
         coherence_fault(world->nodes[thread->node].coherence, world_page_id(world, thread->pages[0]), access, index,
                         token_value(world, token), true, world_now(world, thread->node)) != 0))
        token_free(token);
    processor_finish(world, index);
}

/* dsm_pin(): the page stays for a while; the thread goes on. */
void call_pin(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];
    unsigned page = thread->pages[0];

    if (!processor_need(world, index, page, thread->is_store ? ACCESS_WRITE : ACCESS_READ))
        return;
    memory_pin(world, thread->node, page);
    world_schedule(world, 1 + world_draw(world, world->settings.pin_ns_max), EVENT_UNPIN, thread->node, page);
    processor_finish(world, index);
}
