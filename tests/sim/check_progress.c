/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_progress.c - phase 2: with no more faults, every operation of every thread ends within a bounded time, also
 * where nodes hammer one page and two-page instructions cross each other
 * (P2, P11, P12, P16, A4, L8, V3, V5).
 */
#include "world.h"

static uint64_t waiting_ns(const struct world *world, const struct thread *thread)
{
    uint64_t since_ns = thread->started_ns > world->healed_ns ? thread->started_ns : world->healed_ns;

    return world->now_ns - since_ns;
}

void check_progress_operation(struct world *world, unsigned index)
{
    uint64_t took_ns;

    if (!world->is_healed)
        return;
    took_ns = waiting_ns(world, &world->threads[index]);
    if (took_ns > world->operation_ns_max)
        world->operation_ns_max = took_ns;
    if (took_ns > OPERATION_NS_BOUND)
        world_fail(world, "progress", "thread %u of node %u: operation %u on pages %u and %u took %llu us", index,
                   world->threads[index].node, world->threads[index].operation, world->threads[index].pages[0],
                   world->threads[index].pages[1], (unsigned long long)(took_ns / NS_PER_US));
}

void check_progress_waiting(struct world *world)
{
    for (unsigned i = 0; i < world->settings.threads_count; i++) {
        const struct thread *thread = &world->threads[i];

        if (thread->state != THREAD_DONE && thread->state != THREAD_DEAD)
            if (waiting_ns(world, thread) > OPERATION_NS_BOUND)
                check_progress_operation(world, i);
    }
}

/* A consumer may sleep while there is nothing to consume. A signal may die with the node it was sent to. */
static bool sleeps_rightly(const struct world *world, const struct thread *thread)
{
    return thread->operation == OPERATION_CONSUME && thread->stage == 1 && thread->token != 0 &&
           world->tokens[thread->token - 1].is_registered && !world->is_ending &&
           (world->crashes > 0 || world->items[thread->lock % WORLD_WORDS] == 0);
}

/* Nothing will ever happen again: nobody may be waiting but a consumer, and at the very end not even that. */
void check_progress_end(struct world *world)
{
    for (unsigned i = 0; i < world->settings.threads_count; i++) {
        const struct thread *thread = &world->threads[i];

        if (thread->state == THREAD_DONE || thread->state == THREAD_DEAD)
            continue;
        if (!sleeps_rightly(world, thread))
            world_fail(
                world, "progress",
                "thread %u of node %u waits for ever: operation %u, stage %u, state %u, pages %u and %u, lock %u", i,
                thread->node, thread->operation, thread->stage, thread->state, thread->pages[0], thread->pages[1],
                thread->lock);
    }
}
