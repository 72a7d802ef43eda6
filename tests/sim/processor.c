/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processor.c - simulated threads that execute instructions on shared pages.
 *
 * An instruction needs the rights on all its pages at the moment it executes; where one lacks it faults and starts
 * again when something changed, as a processor does. A thread executes one operation after another, drawn from the
 * workload generator (or listed, while exploring). Operations longer than an instruction keep their place in `stage`.
 */
#include "world.h"

#include "base/assert.h"

#include <errno.h>

static void operation_draw(struct world *world, struct thread *thread);

void processor_wake(struct world *world, unsigned index, uint32_t delay_ns_max)
{
    struct thread *thread = &world->threads[index];

    if (thread->state == THREAD_RUNNABLE || thread->state == THREAD_DEAD)
        return;
    thread->state = THREAD_RUNNABLE;
    world_schedule(world, world_draw(world, delay_ns_max), EVENT_THREAD, thread->node, index);
}

void processor_wake_page(struct world *world, unsigned node, unsigned page)
{
    for (unsigned i = 0; i < world->settings.threads_count; i++) {
        struct thread *thread = &world->threads[i];

        if (thread->node == node && thread->state == THREAD_FAULTING && thread->wait_page == page)
            processor_wake(world, i, world->settings.wake_ns_max);
    }
}

void processor_wake_retrying(struct world *world, unsigned node)
{
    for (unsigned i = 0; i < world->settings.threads_count; i++)
        if (world->threads[i].node == node && world->threads[i].state == THREAD_RETRYING)
            processor_wake(world, i, world->settings.wake_ns_max);
}

/* The final audit reads every page once from every thread, after the thread's last operation. */
static bool audit_next(struct world *world, struct thread *thread)
{
    if (!world->is_healed || world->is_exploring || thread->audit >= world_pages_count(world))
        return false;
    thread->operation = OPERATION_LOAD;
    thread->pages[0] = thread->audit++;
    return true;
}

static void thread_next(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];

    thread->stage = 0;
    thread->held = 0;
    thread->token = 0;
    thread->faults = 0;
    thread->started_ns = world->now_ns;
    if (thread->left > 0) {
        if (world->is_healed || world->is_exploring)
            thread->left--;
        operation_draw(world, thread);
    } else if (!audit_next(world, thread)) {
        thread->state = THREAD_DONE;
        return;
    }
    thread->state = THREAD_DONE;
    processor_wake(world, index, world->settings.think_ns_max);
}

/* The operation has ended, well or badly. */
void processor_finish(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];

    check_progress_operation(world, index);
    world->operations_done[thread->operation]++;
    thread_next(world, index);
}

static uint16_t page_draw(struct world *world)
{
    return (uint16_t)world_draw(world, world->settings.hot_pages);
}

/* Several pages of one extent. */
static void pages_draw(struct world *world, struct thread *thread)
{
    unsigned within = thread->pages[0] % world->settings.extent_pages;

    thread->pages_count = (uint16_t)(1 + world_draw(world, world->settings.extent_pages - within));
}

static void operation_draw(struct world *world, struct thread *thread)
{
    const struct settings *settings = &world->settings;
    unsigned total = 0, drawn, operation = 0;

    if (world->is_exploring) {
        world->next_operation(world, thread);
        return;
    }
    for (unsigned i = 0; i < OPERATIONS; i++)
        total += settings->weights[i];
    drawn = world_draw(world, total);
    while (drawn >= settings->weights[operation])
        drawn -= settings->weights[operation++];
    thread->operation = (uint8_t)operation;
    thread->pages[0] = page_draw(world);
    thread->pages[1] = page_draw(world);
    thread->is_store = world_draw(world, 2) == 1;
    thread->is_exclusive = world_draw(world, 3) > 0;
    thread->lock = (uint8_t)world_draw(world, WORLD_LOCKS);
    thread->value = world_draw(world, CONTENT_WORDS - 1);
    pages_draw(world, thread);
}

void processor_start(struct world *world)
{
    for (unsigned i = 0; i < world->settings.threads_count; i++) {
        world->threads[i].node = (uint8_t)(i % world->settings.nodes_count);
        world->threads[i].left = world->is_exploring ? world->threads[i].left : UINT32_MAX;
        thread_next(world, i);
    }
}

/* Asks the protocol for the page. done() or install() may come before this returns. */
static void fault(struct world *world, unsigned index, unsigned page, enum access access)
{
    struct thread *thread = &world->threads[index];
    struct sim_node *node = &world->nodes[thread->node];
    struct token *token = token_new(world, TOKEN_FAULT, index, page);
    uint64_t value;
    int result;

    thread->faults++;
    thread->wait_page = (uint16_t)page;
    thread->state = THREAD_FAULTING;
    if (token == NULL)
        return; /* its earlier requests are still open; any of them will wake it */
    value = token_value(world, token);
    trace_note(world, TRACE_CALL, thread->node, page, (int64_t)index, access, "faults");
    result = coherence_fault(node->coherence, world_page_id(world, page), access, index, value, false,
                             world_now(world, thread->node));
    if (result == 0)
        return;
    token_free(token);
    if (result != -EAGAIN)
        world_fail(world, "environment", "coherence_fault() of page %u at node %u returns %d", page, thread->node,
                   result);
    thread->state = THREAD_RETRYING;
}

/*
 * True when the thread may do `access` on the page now. False: it faults and will run again, or the page is poisoned
 * and the operation has ended (SIGBUS).
 */
bool processor_need(struct world *world, unsigned index, unsigned page, enum access access)
{
    struct thread *thread = &world->threads[index];
    struct frame *frame = &world->nodes[thread->node].frames[page];

    if (frame->rights >= access)
        return true;
    if (frame->is_poisoned) {
        processor_finish(world, index);
    } else if (frame->is_reporting) {
        thread->wait_page = (uint16_t)page;
        thread->state = THREAD_FAULTING;
    } else {
        fault(world, index, page, access);
    }
    return false;
}

void processor_load(struct world *world, unsigned index, unsigned page)
{
    struct thread *thread = &world->threads[index];

    check_reads(world, thread->node, page, &world->nodes[thread->node].frames[page].content);
}

/* Every stored value is different from every other. */
void processor_store(struct world *world, unsigned index, unsigned page)
{
    struct thread *thread = &world->threads[index];
    struct frame *frame = &world->nodes[thread->node].frames[page];
    uint64_t stamp = (uint64_t)(index + 1) << 48 | ++world->stamps[index] << 8;

    check_reads(world, thread->node, page, &frame->content);
    check_writers(world, thread->node, page);
    frame->content.words[0] = stamp;
    world->ghosts[page].content.words[0] = stamp;
}

static void run_instruction(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];
    unsigned first = thread->pages[0], second = thread->pages[1];
    bool stores_first = thread->operation == OPERATION_STORE || thread->operation == OPERATION_STORE_TWO;
    bool stores_second = thread->operation == OPERATION_STORE_TWO || thread->operation == OPERATION_MOVE;
    bool has_second = thread->operation != OPERATION_LOAD && thread->operation != OPERATION_STORE;

    if (!processor_need(world, index, first, stores_first ? ACCESS_WRITE : ACCESS_READ))
        return;
    if (has_second && !processor_need(world, index, second, stores_second ? ACCESS_WRITE : ACCESS_READ))
        return;
    if (stores_first)
        processor_store(world, index, first);
    else
        processor_load(world, index, first);
    if (has_second && stores_second)
        processor_store(world, index, second);
    else if (has_second)
        processor_load(world, index, second);
    processor_finish(world, index);
}

void processor_run(struct world *world, unsigned index)
{
    static void (*const runs[OPERATIONS])(struct world *, unsigned) = {
        [OPERATION_LOAD] = run_instruction,     [OPERATION_STORE] = run_instruction,
        [OPERATION_LOAD_TWO] = run_instruction, [OPERATION_STORE_TWO] = run_instruction,
        [OPERATION_MOVE] = run_instruction,     [OPERATION_COPY] = call_copy,
        [OPERATION_READ] = call_read,           [OPERATION_ATOMIC] = call_atomic,
        [OPERATION_LOCK] = locking_run,         [OPERATION_PRODUCE] = call_produce,
        [OPERATION_CONSUME] = call_consume,     [OPERATION_EVICT] = call_evict,
        [OPERATION_PREFETCH] = call_prefetch,   [OPERATION_PIN] = call_pin,
    };
    struct thread *thread = &world->threads[index];

    if (thread->state == THREAD_DEAD)
        return;
    ASSERT(thread->state == THREAD_RUNNABLE);
    thread->state = THREAD_WAITING;
    runs[thread->operation](world, index);
}

/* Everything has ended but sleepers that wait for a signal: they give up. */
void processor_end(struct world *world)
{
    world->is_ending = true;
    for (unsigned i = 0; i < world->settings.threads_count; i++)
        if (world->threads[i].state == THREAD_WAITING && world->threads[i].operation == OPERATION_CONSUME)
            processor_wake(world, i, 1);
}

void processor_crash(struct world *world, unsigned node)
{
    for (unsigned i = 0; i < world->settings.threads_count; i++)
        if (world->threads[i].node == node)
            world->threads[i].state = THREAD_DEAD;
    for (unsigned i = 0; i < WORLD_TOKENS_MAX; i++)
        if (world->tokens[i].kind != TOKEN_FREE && world->tokens[i].node == node)
            token_free(&world->tokens[i]);
}
