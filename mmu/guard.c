/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guard.c - the thread that ends a UFFDIO_MOVE which does not return (guard.h says why there are such).
 *
 * It looks every PERIOD_NS while calls are made, and sleeps otherwise. A call that it sees twice is ended. One that was
 * only slow loses nothing by it: its pages stay where they are, as if they were pinned.
 */
#include "mmu/guard.h"
#include "base/os.h"
#include "mmu/uapi.h"

#include <errno.h>
#include <string.h>

#define PERIOD_NS    20000000U
#define IDLE_PERIODS 50U /* without a call, then the watcher sleeps until there is one */
#define ZERO_TRIES   100U

enum phase {
    GUARD_OUTSIDE,
    GUARD_INSIDE, /* the call is under way */
    GUARD_ENDING, /* the watcher puts pages into the destination */
    GUARD_ENDED,
};

static enum phase phase_of(uint32_t call)
{
    return call & 3U;
}

/* ---- the watcher ------------------------------------------------------------------------------------------------ */

static void zero_page_put(int descriptor, uint64_t address)
{
    for (unsigned i = 0; i < ZERO_TRIES; i++) {
        struct uffdio_zeropage zero = {.range = {address, PAGE_BYTES}, .mode = UFFDIO_ZEROPAGE_MODE_DONTWAKE};

        if (ioctl(descriptor, UFFDIO_ZEROPAGE, &zero) == 0 || errno != EAGAIN)
            return; /* EEXIST: this page was moved */
    }
}

static void call_end(struct guard *guard, uint32_t call)
{
    if (!atomic_compare_exchange_strong(&guard->call, &call, call - GUARD_INSIDE + GUARD_ENDING))
        return; /* it has returned */
    call = call - GUARD_INSIDE + GUARD_ENDING;
    for (unsigned i = 0; i < guard->pages_count; i++)
        zero_page_put(guard->descriptor, guard->destination + (uint64_t)i * PAGE_BYTES);
    atomic_store(&guard->call, call - GUARD_ENDING + GUARD_ENDED);
    os_futex_wake(&guard->call, 1, false);
}

/* Until a call is made that is not `seen`. */
static void sleep_deeply(struct guard *guard, uint32_t seen)
{
    atomic_store(&guard->is_asleep, 1);
    if (atomic_load(&guard->call) == seen && !atomic_load(&guard->is_closing))
        os_futex_wait(&guard->is_asleep, 1, UINT64_MAX, false);
    atomic_store(&guard->is_asleep, 0);
}

static void *watcher_main(void *argument)
{
    struct guard *guard = argument;
    uint32_t seen = 0;
    unsigned idle = 0;

    while (!atomic_load(&guard->is_closing)) {
        uint32_t call = atomic_load(&guard->call);

        if (call == seen && phase_of(call) == GUARD_INSIDE)
            call_end(guard, call);
        idle = call == seen ? idle + 1 : 0;
        seen = call;
        if (idle >= IDLE_PERIODS && phase_of(call) != GUARD_INSIDE)
            sleep_deeply(guard, call);
        else
            os_futex_wait(&guard->is_asleep, 0, PERIOD_NS, false);
    }
    return NULL;
}

/* ---- the shard -------------------------------------------------------------------------------------------------- */

int guard_start(struct guard *guard)
{
    int error = os_thread_start_small(&guard->thread, "tiermesh-guard", watcher_main, guard);

    guard->is_watched = error == 0;
    return error;
}

void guard_enter(struct guard *guard, int descriptor, uint64_t destination, unsigned pages_count)
{
    uint32_t before = atomic_load_explicit(&guard->call, memory_order_relaxed);

    guard->descriptor = descriptor;
    guard->destination = destination;
    guard->pages_count = pages_count;
    /* In one order with sleep_deeply(): either it sees the call, or this sees that it sleeps. */
    atomic_store(&guard->call, before - phase_of(before) + 4 + GUARD_INSIDE);
    if (atomic_load(&guard->is_asleep) != 0) {
        atomic_store(&guard->is_asleep, 0);
        os_futex_wake(&guard->is_asleep, 1, false);
    }
}

bool guard_leave(struct guard *guard)
{
    uint32_t call = atomic_load_explicit(&guard->call, memory_order_relaxed);

    if (phase_of(call) == GUARD_INSIDE &&
        atomic_compare_exchange_strong(&guard->call, &call, call - GUARD_INSIDE + GUARD_OUTSIDE))
        return false;
    while (phase_of(call = atomic_load(&guard->call)) == GUARD_ENDING)
        os_futex_wait(&guard->call, call, UINT64_MAX, false);
    return true;
}

void guard_forget(struct guard *guard)
{
    memset(guard, 0, sizeof(*guard));
}

void guard_close(struct guard *guard)
{
    if (!guard->is_watched)
        return;
    atomic_store(&guard->is_closing, true);
    atomic_store(&guard->is_asleep, 0);
    os_futex_wake(&guard->is_asleep, 1, false);
    pthread_join(guard->thread, NULL);
    guard_forget(guard);
}
