/* SPDX-License-Identifier: Apache-2.0 */
/*
 * managed_fork.c - the way of managed memory through a fork.
 *
 * The shard stands still while the kernel copies the process, with no transfer under way, so the child's copy of its
 * tables, of compressed memory and of the emulated CXL memory is whole and fits the copied mappings. What lies on NVMe
 * belongs to both from then on: the child's account was made before the fork. Run by the forking thread, in both.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "runtime/managed.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define EXIT_LOST 71

/* ---- descriptors ------------------------------------------------------------------------------------------------ */

/*
 * The child opens as many as it closes, and a few in passing: places for those are held from here until there, since
 * the program's other threads may take what is free.
 */
static void room_leave(struct fork_room *room)
{
    for (unsigned i = 0; i < room->count; i++)
        os_descriptor_close(room->spares[i]);
    room->count = 0;
}

static int room_take(struct fork_room *room, int any_descriptor)
{
    while (room->count < FORK_SPARES) {
        int spare = fcntl(any_descriptor, F_DUPFD_CLOEXEC, OS_DESCRIPTOR_LOWEST);

        if (spare < 0)
            break;
        room->spares[room->count++] = os_descriptor_own(spare);
    }
    if (room->count == FORK_SPARES)
        return 0;
    room_leave(room);
    return error_set(-EMFILE, "the table of descriptors is full (ulimit -n): a managed child needs %d free ones",
                     FORK_SPARES);
}

static void *task_main(void *argument)
{
    _Atomic(uint32_t) *is_over = argument;

    while (atomic_load(is_over) == 0)
        os_futex_wait(is_over, 0, UINT64_MAX, false);
    return NULL;
}

/* A child and its shard are two tasks more of the user: where that is limited, it is tried. */
static int tasks_check(void)
{
    struct rlimit limit;
    pthread_t tasks[2];
    _Atomic(uint32_t) is_over = 0;
    unsigned count = 0;
    int error = 0;

    if (getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || geteuid() == 0)
        return 0;
    while (error == 0 && count < ARRAY_COUNT(tasks)) {
        error = os_thread_start_small(&tasks[count], "tiermesh-room", task_main, &is_over);
        count += error == 0;
    }
    atomic_store(&is_over, 1);
    os_futex_wake(&is_over, (int)ARRAY_COUNT(tasks), false);
    for (unsigned i = 0; i < count; i++)
        pthread_join(tasks[i], NULL);
    if (error == 0)
        return 0;
    return error_set(error,
                     "no room for the child and its shard in the limit on processes (ulimit -u) or on addresses");
}

/* Is there room for a child? */
int hooks_fork_check(void)
{
    struct fork_room room = {0};
    int error;

    if (!managed_is_running())
        return 0;
    room.limit_before = os_descriptors_raise();
    error = room_take(&room, mmu_descriptor(managed_context.shard.mmu));
    room_leave(&room);
    os_descriptors_restore(room.limit_before);
    if (error == 0)
        error = tasks_check();
    if (error != 0)
        log_warn("process %d: cannot fork: %s", (int)getpid(), error_text());
    return error;
}

/* What the child will need, from the limit on descriptors and from the broker. */
static int child_provide(struct private_shard *shard)
{
    struct fork_room *room = &shard->room;
    int any_descriptor = mmu_descriptor(shard->mmu);
    int error;

    room->limit_before = os_descriptors_raise();
    error = room_take(room, any_descriptor);
    if (error == 0 && shard->broker != NULL) {
        room_leave(room); /* what the broker sends comes there */
        error = broker_child_prepare(shard->broker, &shard->child_broker);
        if (error == 0)
            error = room_take(room, any_descriptor);
    }
    if (error == 0)
        return 0;
    if (shard->child_broker != NULL)
        broker_child_forget(shard->child_broker);
    shard->child_broker = NULL;
    os_descriptors_restore(room->limit_before);
    return error;
}

/* ---- the way ---------------------------------------------------------------------------------------------------- */

/*
 * The mutex first: no other thread has it in the child. The shard does not need it to stop: orders that wait for it
 * come after the fork.
 */
int hooks_fork_prepare(void)
{
    struct private_shard *shard = &managed_context.shard;
    struct order *order = &shard->park_order;
    int error;

    managed_lock(&managed_context);
    if (!managed_is_running())
        return 0;
    order->run = run_park;
    atomic_store_explicit(&order->done, 0, memory_order_relaxed);
    managed_context.is_lent = true;
    private_shard_post(&managed_context, order);
    error = managed_wait(order);
    if (error == 0)
        error = child_provide(shard);
    if (error == 0)
        return 0;
    log_warn("process %d: cannot fork: %s", (int)getpid(), error_text());
    private_shard_release(&managed_context);
    managed_context.is_lent = false;
    managed_unlock(&managed_context);
    return error;
}

void hooks_fork_parent(void)
{
    if (managed_is_running()) {
        if (managed_context.shard.child_broker != NULL)
            broker_child_forget(managed_context.shard.child_broker);
        managed_context.shard.child_broker = NULL;
        room_leave(&managed_context.shard.room);
        os_descriptors_restore(managed_context.shard.room.limit_before);
        managed_context.is_lent = false;
        private_shard_release(&managed_context);
    }
    managed_unlock(&managed_context);
}

/* Going on would mean that evicted pages read as zeroes. */
static void child_check(int error)
{
    if (error == 0)
        return;
    managed_say("a forked child is ended, its memory could not be taken along", error_text());
    _exit(EXIT_LOST);
}

void hooks_fork_child_memory(void)
{
    struct private_shard *shard = &managed_context.shard;

    room_leave(&shard->room);
    mmu_window_look(&managed_context.window);
    managed_context.pid = getpid();
    if (!managed_is_running()) {
        child_check(managed_enter_child(&managed_context));
        return;
    }
    if (shard->child_broker != NULL)
        broker_child_enter(shard->broker, shard->child_broker, shard->tiers[TIER_NVME]);
    shard->broker = shard->child_broker;
    shard->child_broker = NULL;
    child_check(mmu_reopen(shard->mmu, &managed_context.window));
    child_check(managed_enter_child(&managed_context));
    pager_private_enter_child(shard->pager);
}

void hooks_fork_child_thread(void)
{
    managed_slots_reset();
    if (managed_is_running()) {
        child_check(private_shard_resume(&managed_context));
        os_descriptors_restore(managed_context.shard.room.limit_before);
        managed_context.is_lent = false;
    }
    managed_unlock(&managed_context);
}
