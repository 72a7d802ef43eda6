/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locking.c - threads that share their node's cached locks, as runtime/ does.
 *
 * A node owns a lock from done() until coherence_lock_release(); in between its threads use it one after another (or
 * together, when shared) without a message. A lock that is wanted elsewhere is given back as soon as no thread uses it.
 * stage 0: find or ask; 1: asked; 2: inside the critical section.
 */
#include "world.h"

#include <errno.h>

static struct held_lock *held_find(struct world *world, const struct thread *thread)
{
    struct sim_node *node = &world->nodes[thread->node];

    for (unsigned i = 0; i < WORLD_HELD_MAX; i++) {
        struct held_lock *held = &node->held[i];

        if (held->used && held->lock == thread->lock && !held->is_wanted &&
            (held->is_exclusive || !thread->is_exclusive))
            return held;
    }
    return NULL;
}

static bool held_is_free_for(const struct held_lock *held, const struct thread *thread)
{
    return held->users == 0 || (!thread->is_exclusive && !held->user_exclusive);
}

static void held_use(struct world *world, struct thread *thread, struct held_lock *held)
{
    held->users++;
    held->user_exclusive = thread->is_exclusive;
    thread->held = (uint8_t)(held - world->nodes[thread->node].held + 1);
    thread->stage = 2;
}

static void wake_local(struct world *world, unsigned node)
{
    for (unsigned i = 0; i < world->settings.threads_count; i++)
        if (world->threads[i].node == node && world->threads[i].state == THREAD_LOCAL)
            processor_wake(world, i, world->settings.wake_ns_max);
}

static void lock_ask(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];
    const struct lock_range *range = &world->locks[thread->lock];
    struct token *token = token_new(world, TOKEN_THREAD, index, range->page);
    bool waits = thread->value > 0; /* one in CONTENT_WORDS tries only */
    uint64_t value;
    int result;

    thread->state = THREAD_RETRYING;
    if (token == NULL)
        return;
    thread->token = (uint16_t)(token - world->tokens + 1);
    thread->stage = 1;
    thread->state = THREAD_WAITING;
    value = token_value(world, token);
    world->asked[thread->node] |= UINT64_C(1) << thread->lock;
    trace_note(world, TRACE_CALL, thread->node, range->page, (int64_t)index, value,
               thread->is_exclusive ? "asks for an exclusive lock" : "asks for a shared lock");
    result = coherence_lock(world->nodes[thread->node].coherence, range->space, range->first, range->count,
                            thread->is_exclusive, waits, value, world_now(world, thread->node));
    if (result != 0) {
        token_free(token);
        thread->stage = 0;
        if (result != -EAGAIN)
            world_fail(world, "environment", "coherence_lock() at node %u returns %d", thread->node, result);
        thread->state = THREAD_RETRYING;
    } else if (!token->is_finished && waits && !world->is_exploring &&
               world_draw(world, 1000) < world->settings.timeout_permille) {
        token->is_timed = true;
        world_schedule(world, world_draw(world, NS_PER_MS), EVENT_TIMEOUT, thread->node, thread->token - 1U);
    }
}

/* Inside done(): from now on the node owns the lock, whenever the thread will run. */
void locking_granted(struct world *world, unsigned index, int result, uint32_t number)
{
    struct thread *thread = &world->threads[index];
    struct sim_node *node = &world->nodes[thread->node];

    if (result != 0 && result != -EOWNERDEAD)
        return;
    for (unsigned i = 0; i < WORLD_HELD_MAX; i++) {
        struct held_lock *held = &node->held[i];

        if (held->used)
            continue;
        *held =
            (struct held_lock){.number = number, .used = 1, .lock = thread->lock, .is_exclusive = thread->is_exclusive};
        check_locks_grant(world, thread->node, i, result);
        held_use(world, thread, held);
        return;
    }
    world_fail(world, "environment", "node %u owns more locks than the simulator has room for", thread->node);
}

static void held_release(struct world *world, unsigned node, struct held_lock *held)
{
    uint32_t number = held->number;

    if (world->mutant == WORLD_MUTANT_KEEP_LOCK && world_fault_chance(world, 100)) {
        coherence_lock_release(world->nodes[node].coherence, number, world_now(world, node));
        return;
    }
    held->used = 0;
    trace_note(world, TRACE_CALL, node, UINT16_MAX, number, 0, "gives back a lock");
    coherence_lock_release(world->nodes[node].coherence, number, world_now(world, node));
    wake_local(world, node);
}

/* True: a thread uses it, it comes back later. False: forgotten, the protocol gives it up at once. */
bool locking_wanted(struct world *world, unsigned node, uint32_t number)
{
    for (unsigned i = 0; i < WORLD_HELD_MAX; i++) {
        struct held_lock *held = &world->nodes[node].held[i];

        if (!held->used || held->number != number)
            continue;
        if (held->users > 0) {
            held->is_wanted = true;
            return true;
        }
        held->used = 0;
        return false;
    }
    world_fail(world, "locks", "node %u is told that lock %u is wanted, which it does not own", node, number);
    return false;
}

void locking_timeout(struct world *world, unsigned index)
{
    struct token *token = &world->tokens[index];

    if (token->kind != TOKEN_THREAD || !token->is_timed || token->is_finished)
        return;
    trace_note(world, TRACE_CALL, token->node, UINT16_MAX, 0, token_value(world, token), "gives up waiting for a lock");
    coherence_lock_cancel(world->nodes[token->node].coherence, token_value(world, token),
                          world_now(world, token->node));
}

static void critical_section_leave(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];
    struct held_lock *held = &world->nodes[thread->node].held[thread->held - 1];
    bool keep = world_draw(world, 1000) < world->settings.keep_lock_permille;

    check_locks_use(world, thread->node, thread->held - 1U);
    held->users--;
    if (held->users == 0 && (held->is_wanted || !keep))
        held_release(world, thread->node, held);
    else
        wake_local(world, thread->node);
    processor_finish(world, index);
}

static void stage_find(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];
    struct held_lock *held = held_find(world, thread);

    if (held == NULL) {
        lock_ask(world, index);
    } else if (held_is_free_for(held, thread)) {
        held_use(world, thread, held);
        processor_wake(world, index, world->settings.wake_ns_max);
    } else {
        thread->state = THREAD_LOCAL;
    }
}

static void stage_asked(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];
    struct token *token = &world->tokens[thread->token - 1];

    if (!token->is_finished)
        return;
    if (token->result != -ECANCELED && token->result != -EBUSY && token->result != -EHOSTDOWN &&
        token->result != -ENOSPC)
        world_fail(world, "environment", "a lock request ends with %d", token->result);
    token_free(token);
    processor_finish(world, index);
}

/* One store or load on a page of the range, under the lock; a fault there keeps the lock. */
static void stage_inside(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];
    struct held_lock *held = &world->nodes[thread->node].held[thread->held - 1];
    struct frame *frame = &world->nodes[thread->node].frames[world->locks[thread->lock].page];
    unsigned page = world->locks[thread->lock].page;

    if (thread->token != 0)
        token_free(&world->tokens[thread->token - 1]);
    thread->token = 0;
    check_locks_use(world, thread->node, (unsigned)(held - world->nodes[thread->node].held));
    if (!frame->is_poisoned) {
        if (!processor_need(world, index, page, thread->is_exclusive ? ACCESS_WRITE : ACCESS_READ))
            return;
        if (thread->is_exclusive)
            processor_store(world, index, page);
        else
            processor_load(world, index, page);
    }
    critical_section_leave(world, index);
}

void locking_run(struct world *world, unsigned index)
{
    struct thread *thread = &world->threads[index];

    if (thread->stage == 0)
        stage_find(world, index);
    else if (thread->stage == 1)
        stage_asked(world, index);
    else
        stage_inside(world, index);
}

/* What the dead node owned must be announced to the next owner. */
void locking_crash(struct world *world, unsigned node)
{
    for (unsigned i = 0; i < WORLD_HELD_MAX; i++) {
        struct held_lock *held = &world->nodes[node].held[i];

        if (held->used && held->is_exclusive)
            for (unsigned d = 0; d < WORLD_DEATHS_MAX; d++)
                if (!world->deaths[d].used) {
                    world->deaths[d] = (struct ghost_death){.node = (uint16_t)node, .lock = held->lock, .used = 1};
                    break;
                }
        held->used = 0;
    }
}
