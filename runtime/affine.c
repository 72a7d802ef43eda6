/* SPDX-License-Identifier: Apache-2.0 */
/*
 * affine.c - where the shard of an unchanged program runs, by what its faults cost there. See affine.h.
 *
 * Faults are counted in epochs. What an epoch cost is known when it ends; the way that costs less is kept, and the
 * other one tried for an epoch now and then, less often the more often it loses.
 */
#include "runtime/affine.h"
#include "base/textfile.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define EPOCH_FAULTS   256u
#define SAME_THREAD    (EPOCH_FAULTS - EPOCH_FAULTS / 8)
#define PATIENCE_MIN   4u
#define PATIENCE_MAX   256u
#define COST_NS_MAX    500000u /* between faults: the thread computes, or waits for others, and wakes do not matter */
#define GAIN_SHARE     8u      /* the other way must be better by this part */
#define RESUME_FAULTS  8u      /* after a pause */
#define PAUSE_NS       2000000u
#define LETTING_GO     UINT32_MAX

/* Field 39 of its stat: the processor that it last ran on; AFFINE_FREE: it is gone. */
static int processor_of(uint32_t thread)
{
    char path[64];
    char text[1024];
    const char *at;
    int processor = AFFINE_FREE;

    snprintf(path, sizeof(path), "/proc/self/task/%u/stat", thread);
    if (text_read(path, text, sizeof(text)) != 0)
        return AFFINE_FREE;
    at = strrchr(text, ')'); /* the name before may hold anything */
    for (int field = 2; at != NULL && field < 39; field++)
        at = strchr(at + 1, ' ');
    if (at != NULL && sscanf(at, "%d", &processor) != 1)
        processor = AFFINE_FREE;
    return processor;
}

/* A mask that is all a process has is given as everything, so that it follows a cpuset that grows later. */
static void mask_set(const struct affine *affine, pid_t thread, const cpu_set_t *mask)
{
    cpu_set_t everything;

    memset(&everything, 0xff, sizeof(everything));
    (void)sched_setaffinity(thread, sizeof(*mask), CPU_EQUAL(mask, &affine->all) ? &everything : mask);
}

/* By any thread: whoever changes `held` gives the mask back. */
static void let_go(struct affine *affine, uint32_t held)
{
    if (held == 0 || held == LETTING_GO || !atomic_compare_exchange_strong(&affine->held, &held, LETTING_GO))
        return;
    mask_set(affine, (pid_t)held, &affine->mask);
    atomic_store(&affine->held, 0);
}

static void hold(struct affine *affine, const cpu_set_t *one)
{
    if (atomic_load(&affine->held) != 0 ||
        sched_getaffinity((pid_t)affine->thread, sizeof(affine->mask), &affine->mask) != 0 ||
        !CPU_ISSET((size_t)affine->processor, &affine->mask) || CPU_COUNT(&affine->mask) == 1)
        return;
    atomic_store(&affine->held, affine->thread);
    (void)sched_setaffinity((pid_t)affine->thread, sizeof(*one), one);
}

static void move_free(struct affine *affine)
{
    let_go(affine, atomic_load(&affine->held));
    if (affine->processor == AFFINE_FREE)
        return;
    affine->processor = AFFINE_FREE;
    mask_set(affine, 0, &affine->all);
}

static void move_beside(struct affine *affine)
{
    int processor = processor_of(affine->thread);
    cpu_set_t one;

    if (processor < 0 || processor >= CPU_SETSIZE || !CPU_ISSET((size_t)processor, &affine->all))
        return;
    CPU_ZERO(&one);
    CPU_SET((size_t)processor, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0)
        return;
    affine->processor = processor;
    hold(affine, &one);
}

static void move(struct affine *affine, bool beside)
{
    if (beside)
        move_beside(affine);
    else
        move_free(affine);
}

/* Nothing is known, and being free is the default. */
static void forget(struct affine *affine)
{
    affine->is_trial = false;
    affine->is_preferred = false;
    affine->patience = affine->left = PATIENCE_MIN;
    affine->cost_ns[0] = affine->cost_ns[1] = 0;
    move_free(affine);
}

static void trial_end(struct affine *affine)
{
    bool other = !affine->is_preferred;
    uint64_t kept_ns = affine->cost_ns[affine->is_preferred];

    affine->is_trial = false;
    if (affine->cost_ns[other] < kept_ns - kept_ns / GAIN_SHARE) {
        affine->is_preferred = other;
        affine->patience = PATIENCE_MIN;
    } else if (affine->patience < PATIENCE_MAX) {
        affine->patience *= 2;
    }
    affine->left = affine->patience;
    move(affine, affine->is_preferred);
}

static void epoch_end(struct affine *affine, uint64_t now_ns)
{
    uint64_t cost_ns = (now_ns - affine->epoch_ns) / EPOCH_FAULTS;

    if (affine->by_thread < SAME_THREAD || cost_ns > COST_NS_MAX) {
        forget(affine);
        return;
    }
    affine->cost_ns[affine->processor != AFFINE_FREE] = cost_ns;
    if (affine->is_trial) {
        trial_end(affine);
    } else if (--affine->left == 0) {
        affine->is_trial = true;
        move(affine, !affine->is_preferred);
    } else if (affine->is_preferred && atomic_load(&affine->held) != affine->thread) {
        move_beside(affine); /* the thread had its mask back */
    }
}

void affine_init(struct affine *affine, bool is_on)
{
    memset(affine, 0, sizeof(*affine));
    affine->processor = AFFINE_FREE;
    affine->is_on = is_on && sched_getaffinity(0, sizeof(affine->all), &affine->all) == 0 &&
                    CPU_COUNT(&affine->all) > 1;
    forget(affine);
}

static void epoch_begin(struct affine *affine, uint32_t thread, uint64_t now_ns)
{
    affine->by_thread = 0;
    affine->epoch_ns = now_ns;
    if (affine->thread != thread)
        forget(affine);
    affine->thread = thread;
}

void affine_fault(struct affine *affine, uint32_t thread, uint64_t now_ns)
{
    if (!affine->is_on || thread == 0)
        return;
    if (affine->faults == EPOCH_FAULTS) {
        epoch_end(affine, now_ns);
        affine->faults = 0;
    }
    if (affine->faults == 0)
        epoch_begin(affine, thread, now_ns);
    affine->last_ns = now_ns;
    affine->by_thread += affine->thread == thread;
    if (++affine->faults == RESUME_FAULTS && affine->is_preferred && !affine->is_trial &&
        affine->processor == AFFINE_FREE)
        move_beside(affine);
}

uint64_t affine_deadline_ns(const struct affine *affine)
{
    return affine->processor == AFFINE_FREE ? UINT64_MAX : affine->last_ns + PAUSE_NS;
}

void affine_tick(struct affine *affine, uint64_t now_ns)
{
    if (now_ns < affine_deadline_ns(affine))
        return;
    affine->faults = 0; /* what was measured of this epoch says nothing */
    if (affine->is_trial)
        affine->left = 1; /* again, soon */
    affine->is_trial = false;
    move_free(affine);
}

void affine_settle(struct affine *affine)
{
    uint32_t held = atomic_load(&affine->held);
    int saved_errno = errno;

    if (held == 0)
        return;
    let_go(affine, held);
    while (atomic_load(&affine->held) == LETTING_GO) /* somebody is at it */
        sched_yield();
    errno = saved_errno;
}
