/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop_core.c - dispatch of base/loop.h: timers, pollers, posted calls, when to look and when to block.
 *
 * Run by the loop's owner, loop_post() excepted. Allocates only when created: a shard's thread never calls malloc.
 */
#include "runtime/loop_core.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#define YIELD_NS_MAX    5000U /* a longer sched_yield ran somebody else */

#define GENERATION_MASK 0xffffffU

static void owner_check(const struct loop *loop)
{
    ASSERT(!loop->has_owner || pthread_equal(loop->owner, pthread_self()));
}

/* ---- watches --------------------------------------------------------------------------------------------------- */

int loop_slot_take(struct loop *loop, struct loop_watch *watch, uint32_t events, struct loop_slot **ret_slot)
{
    struct loop_slot *slot;

    if (fcntl(watch->fd, F_GETFD) < 0)
        return error_set(-errno, "watch descriptor %d: %m", watch->fd);
    if (loop->slot_free != LOOP_SLOT_NONE) {
        slot = &loop->slots[loop->slot_free];
        loop->slot_free = slot->next;
    } else if (loop->slots_used < LOOP_WATCHES_MAX) {
        slot = &loop->slots[loop->slots_used++];
    } else {
        return error_set(-ENFILE, "watch descriptor %d: a loop watches at most %u", watch->fd, LOOP_WATCHES_MAX);
    }
    slot->watch = watch;
    slot->events = events;
    watch->internal[0] = (uint64_t)(slot - loop->slots) + 1;
    *ret_slot = slot;
    return 0;
}

void loop_slot_put(struct loop *loop, struct loop_slot *slot)
{
    slot->watch->internal[0] = 0;
    slot->watch = NULL;
    slot->generation = (slot->generation + 1) & GENERATION_MASK;
    slot->next = loop->slot_free;
    loop->slot_free = (uint32_t)(slot - loop->slots);
}

struct loop_slot *loop_slot_of(struct loop *loop, const struct loop_watch *watch)
{
    struct loop_slot *slot;

    ASSERT(watch->internal[0] >= 1 && watch->internal[0] <= loop->slots_used);
    slot = &loop->slots[watch->internal[0] - 1];
    ASSERT(slot->watch == watch);
    return slot;
}

uint64_t loop_slot_key(const struct loop *loop, const struct loop_slot *slot)
{
    return (uint64_t)slot->generation << 32 | (uint64_t)(slot - loop->slots);
}

struct loop_slot *loop_slot_find(struct loop *loop, uint64_t key)
{
    struct loop_slot *slot = &loop->slots[(uint32_t)key];

    return slot->watch != NULL && slot->generation == key >> 32 ? slot : NULL;
}

int loop_watch(struct loop *loop, struct loop_watch *watch, uint32_t events)
{
    owner_check(loop);
    return loop->ops->watch(loop, watch, events);
}

int loop_rewatch(struct loop *loop, struct loop_watch *watch, uint32_t events)
{
    owner_check(loop);
    return loop->ops->rewatch(loop, watch, events);
}

void loop_unwatch(struct loop *loop, struct loop_watch *watch)
{
    owner_check(loop);
    loop->ops->unwatch(loop, watch);
}

void loop_io_start(struct loop *loop, struct loop_io *io)
{
    owner_check(loop);
    loop->ops->io(loop, io);
}

int loop_buffers(struct loop *loop, void *memory, size_t size_bytes)
{
    owner_check(loop);
    return loop->ops->buffers(loop, memory, size_bytes);
}

int loop_hold(struct loop *loop, int fd)
{
    owner_check(loop);
    return loop->ops->hold == NULL ? 0 : loop->ops->hold(loop, fd);
}

/* ---- timers: internal[0] is the place in the heap plus one, internal[1] the order of start ------------------------
 */

static bool timer_is_before(const struct loop_timer *a, const struct loop_timer *b)
{
    return a->deadline_ns != b->deadline_ns ? a->deadline_ns < b->deadline_ns : a->internal[1] < b->internal[1];
}

static void timer_place(struct loop *loop, uint32_t index, struct loop_timer *timer)
{
    loop->timers[index] = timer;
    timer->internal[0] = (uint64_t)index + 1;
}

static void timer_sift(struct loop *loop, uint32_t index, struct loop_timer *timer)
{
    while (index > 0 && timer_is_before(timer, loop->timers[(index - 1) / 2])) {
        timer_place(loop, index, loop->timers[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * index + 1;

        if (child + 1 < loop->timers_count && timer_is_before(loop->timers[child + 1], loop->timers[child]))
            child++;
        if (child >= loop->timers_count || !timer_is_before(loop->timers[child], timer))
            break;
        timer_place(loop, index, loop->timers[child]);
        index = child;
    }
    timer_place(loop, index, timer);
}

void loop_timer_stop(struct loop *loop, struct loop_timer *timer)
{
    uint32_t index = (uint32_t)timer->internal[0] - 1;
    struct loop_timer *last;

    owner_check(loop);
    if (timer->internal[0] == 0)
        return;
    ASSERT(index < loop->timers_count && loop->timers[index] == timer);
    timer->internal[0] = 0;
    last = loop->timers[--loop->timers_count];
    if (last != timer)
        timer_sift(loop, index, last);
}

void loop_timer_start(struct loop *loop, struct loop_timer *timer, uint64_t deadline_ns)
{
    loop_timer_stop(loop, timer);
    ASSERT(loop->timers_count < LOOP_TIMERS_MAX);
    timer->deadline_ns = deadline_ns;
    timer->internal[1] = loop->timers_started++;
    timer_sift(loop, loop->timers_count++, timer);
}

/* Timers that a callback starts already expired wait for the next round: others get their turn. */
static void timers_run(struct loop *loop)
{
    uint64_t started = loop->timers_started;
    uint64_t now_ns;

    if (loop->timers_count == 0)
        return;
    now_ns = os_now_ns();
    while (loop->timers_count > 0) {
        struct loop_timer *timer = loop->timers[0];

        if (timer->deadline_ns > now_ns || timer->internal[1] >= started)
            break;
        loop_timer_stop(loop, timer);
        loop->handled++;
        timer->expired(timer);
    }
}

/* ---- pollers --------------------------------------------------------------------------------------------------- */

void loop_poller_add(struct loop *loop, struct loop_poller *poller)
{
    owner_check(loop);
    poller->next = loop->pollers;
    loop->pollers = poller;
}

void loop_poller_remove(struct loop *loop, struct loop_poller *poller)
{
    struct loop_poller **link = &loop->pollers;

    owner_check(loop);
    while (*link != poller) {
        ASSERT(*link != NULL);
        link = &(*link)->next;
    }
    *link = poller->next;
    if (loop->poller_next == poller)
        loop->poller_next = poller->next;
}

static void pollers_run(struct loop *loop)
{
    struct loop_poller *poller = loop->pollers;

    while (poller != NULL) {
        loop->poller_next = poller->next;
        loop->handled += poller->poll(poller);
        poller = loop->poller_next;
    }
}

static bool pollers_arm(struct loop *loop)
{
    bool is_busy = false;

    for (struct loop_poller *poller = loop->pollers; poller != NULL; poller = poller->next)
        is_busy |= poller->arm(poller);
    loop->is_armed = true;
    return is_busy;
}

/* ---- posted calls ---------------------------------------------------------------------------------------------- */

/*
 * A task on the same memory with a table of descriptors of its own (vfork, clone without CLONE_FILES) may have another
 * file under the number of wake_fd, or none: it borrows the descriptor. Where that is forbidden (Yama), false.
 */
static bool ring_from_outside(const struct loop *loop)
{
    uint64_t one = 1;
    bool done = false;
    long process = syscall(SYS_pidfd_open, loop->process, 0);
    long fd = process >= 0 ? syscall(SYS_pidfd_getfd, process, loop->wake_fd, 0) : -1;

    if (fd >= 0) {
        done = write((int)fd, &one, sizeof(one)) == (ssize_t)sizeof(one);
        close((int)fd);
    }
    if (process >= 0)
        close((int)process);
    return done;
}

static void ring(struct loop *loop)
{
    uint64_t one = 1;
    ssize_t written;

    if (getpid() == loop->process) {
        written = write(loop->wake_fd, &one, sizeof(one));
        ASSERT(written == (ssize_t)sizeof(one));
    } else if (!ring_from_outside(loop)) {
        atomic_store(&loop->is_sleeping, 1); /* it finds the call when something else wakes it, and others shall ring */
    }
}

void loop_post(struct loop *loop, struct loop_call *call)
{
    struct loop_call *head = atomic_load_explicit(&loop->posted, memory_order_relaxed);

    /* The caller may be gone with `call` as soon as this succeeds; `loop` outlives its posters. See struct loop. */
    do
        call->next = head;
    while (!atomic_compare_exchange_weak(&loop->posted, &head, call));
    if (atomic_load(&loop->is_sleeping) != 0 && atomic_exchange(&loop->is_sleeping, 0) != 0)
        ring(loop);
}

static void calls_run(struct loop *loop)
{
    struct loop_call *newest;
    struct loop_call *oldest = NULL;

    if (atomic_load_explicit(&loop->posted, memory_order_relaxed) == NULL)
        return;
    newest = atomic_exchange(&loop->posted, NULL);
    while (newest != NULL) {
        struct loop_call *next = newest->next;

        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        struct loop_call *call = oldest;

        oldest = call->next;
        loop->handled++;
        call->run(call);
    }
}

static void wake_ready(struct loop_watch *watch, uint32_t events)
{
    (void)watch;
    (void)events;
}

/* ---- running --------------------------------------------------------------------------------------------------- */

void loop_core_woke(struct loop *loop)
{
    if (!loop->is_armed)
        return;
    loop->is_armed = false;
    atomic_store(&loop->is_sleeping, 0);
    for (struct loop_poller *poller = loop->pollers; poller != NULL; poller = poller->next)
        if (poller->disarm != NULL)
            poller->disarm(poller);
}

static bool look(struct loop *loop)
{
    loop->handled = 0;
    calls_run(loop);
    timers_run(loop);
    pollers_run(loop);
    loop->ops->wait(loop, 0);
    return loop->handled > 0;
}

/* Returns true when something was handled. */
static bool spin(struct loop *loop)
{
    uint64_t begin_ns = os_now_ns();
    uint64_t now_ns = begin_ns;
    bool is_found;

    do {
        uint64_t before_ns = now_ns;

        sched_yield();
        is_found = look(loop);
        now_ns = os_now_ns();
        if (is_found || now_ns - before_ns > YIELD_NS_MAX)
            break;
    } while (now_ns - begin_ns < loop->spin_ns);
    return is_found;
}

/* A block that was over within the longest spin should have been a spin; a longer one makes the next spin shorter. */
static void spin_adapt(struct loop *loop, uint64_t blocked_ns)
{
    loop->spin_ns = blocked_ns < loop->spin_ns_max ? loop->spin_ns_max : loop->spin_ns / 2;
    if (loop->spin_ns < loop->spin_ns_max / 16)
        loop->spin_ns = loop->spin_ns_max / 16;
}

static void block(struct loop *loop, uint64_t limit_ns)
{
    bool is_busy;

    if (loop->timers_count > 0 && loop->timers[0]->deadline_ns < limit_ns)
        limit_ns = loop->timers[0]->deadline_ns;
    is_busy = pollers_arm(loop);
    atomic_store(&loop->is_sleeping, 1);
    if (is_busy || atomic_load(&loop->posted) != NULL)
        limit_ns = 0;
    loop->ops->wait(loop, limit_ns);
    loop_core_woke(loop);
}

int loop_run_once(struct loop *loop, uint64_t limit_ns)
{
    uint64_t before_ns;
    int handled;

    if (!loop->has_owner) {
        loop->owner = pthread_self();
        loop->has_owner = true;
    }
    owner_check(loop);
    if (look(loop) || limit_ns == 0)
        return loop->handled;
    if (spin(loop))
        return loop->handled;
    before_ns = loop->spin_ns_max > 0 ? os_now_ns() : 0;
    block(loop, limit_ns);
    if (loop->spin_ns_max > 0)
        spin_adapt(loop, os_now_ns() - before_ns);
    handled = loop->handled;
    if (handled == 0) {
        look(loop);
        handled = loop->handled;
    }
    return handled;
}

void loop_submit(struct loop *loop)
{
    owner_check(loop);
    if (loop->ops->submit != NULL)
        loop->ops->submit(loop);
}

void loop_run_until(struct loop *loop, const bool *is_done)
{
    while (!*is_done)
        loop_run_once(loop, UINT64_MAX);
}

void loop_spin_set(struct loop *loop, uint64_t spin_ns_max)
{
    loop->spin_ns_max = spin_ns_max;
    loop->spin_ns = spin_ns_max;
}

const char *loop_kind(const struct loop *loop)
{
    return loop->ops->name;
}

/* ---- start and end --------------------------------------------------------------------------------------------- */

int loop_core_init(struct loop *loop, const struct loop_ops *ops)
{
    void *slots;
    void *timers;
    int error;

    error = os_pages_map(LOOP_WATCHES_MAX * sizeof(struct loop_slot), &slots);
    if (error != 0)
        return error_set(error, "event loop: no address space for the table of watches");
    error = os_pages_map(LOOP_TIMERS_MAX * sizeof(struct loop_timer *), &timers);
    if (error != 0) {
        error_set(error, "event loop: no address space for the timers");
        goto unmap_slots;
    }
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->wake_fd < 0) {
        error = error_set(-errno, "event loop: eventfd: %m");
        goto unmap_timers;
    }
    loop->wake_fd = os_descriptor_own(loop->wake_fd);
    loop->process = getpid();
    loop->ops = ops;
    loop->slots = slots;
    loop->slot_free = LOOP_SLOT_NONE;
    loop->timers = timers;
    return 0;

unmap_timers:
    os_pages_unmap(timers, LOOP_TIMERS_MAX * sizeof(struct loop_timer *));
unmap_slots:
    os_pages_unmap(slots, LOOP_WATCHES_MAX * sizeof(struct loop_slot));
    return error;
}

int loop_core_start(struct loop *loop)
{
    loop->wake_watch = (struct loop_watch){.fd = loop->wake_fd, .ready = wake_ready};
    return loop->ops->watch(loop, &loop->wake_watch, EPOLLIN | EPOLLET);
}

void loop_core_fini(struct loop *loop)
{
    os_descriptor_close(loop->wake_fd);
    os_pages_unmap(loop->timers, LOOP_TIMERS_MAX * sizeof(struct loop_timer *));
    os_pages_unmap(loop->slots, LOOP_WATCHES_MAX * sizeof(struct loop_slot));
}

int loop_create(const char *kind, struct loop **ret_loop)
{
    int error;

    if (strcmp(kind, "epoll") == 0)
        return loop_epoll_create(ret_loop);
    if (strcmp(kind, "auto") != 0 && strcmp(kind, "io_uring") != 0)
        return error_set(-EINVAL, "event loop: there is no kind '%s'; it is auto, io_uring or epoll", kind);
    error = loop_uring_create(ret_loop);
    if (error == 0 || strcmp(kind, "io_uring") == 0)
        return error;
    log_warn("%s; using epoll", error_text());
    return loop_epoll_create(ret_loop);
}

void loop_forget(struct loop *loop)
{
    loop->ops->forget(loop);
}

void loop_destroy(struct loop *loop)
{
    if (loop != NULL)
        loop->ops->destroy(loop);
}
