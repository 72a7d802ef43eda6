/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop_epoll.c - the event loop on epoll, for where io_uring is refused.
 *
 * Transfers go to two workers, which read or write and post the completion back (base/loop.h: done runs on the
 * loop's thread). Everything else is run by the loop's owner.
 */
#include "base/assert.h"
#include "base/error.h"
#include "runtime/loop_core.h"

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_MAX    64
#define WORKERS_COUNT 2

/* What a transfer's internal words hold here. */
struct epoll_io {
    struct loop_call call; /* posts the completion; call.next links the workers' queue before that */
    struct epoll_loop *loop;
    int64_t result;
};
_Static_assert(sizeof(struct epoll_io) <= sizeof(((struct loop_io *)0)->internal), "fits");

struct epoll_loop {
    struct loop core;
    int epoll_fd;
    bool has_no_pwait2; /* kernel before 5.11 or a seccomp profile without it: waits are whole milliseconds */
    uint32_t ios_inflight;

    pthread_mutex_t lock; /* guards what follows; taken by owner and workers, never with another lock */
    pthread_cond_t changed;
    struct loop_io *first, *last;
    bool is_ending;

    pthread_t workers[WORKERS_COUNT];
};

static struct epoll_loop *epoll_of(struct loop *loop)
{
    return CONTAINER_OF(loop, struct epoll_loop, core);
}

/* ---- transfers ------------------------------------------------------------------------------------------------- */

static struct epoll_io *epoll_io_of(struct loop_io *io)
{
    return (struct epoll_io *)(void *)io->internal;
}

static struct loop_io *io_of(struct loop_call *call)
{
    return CONTAINER_OF(CONTAINER_OF(call, struct epoll_io, call), struct loop_io, internal);
}

static void io_finish(struct loop_call *call)
{
    struct loop_io *io = io_of(call);

    epoll_io_of(io)->loop->ios_inflight--;
    io->done(io, (int)epoll_io_of(io)->result);
}

static int64_t io_transfer(const struct loop_io *io)
{
    ssize_t result;

    do {
        if (io->is_write)
            result = pwrite(io->fd, io->memory, io->size_bytes, (off_t)io->offset_bytes);
        else
            result = pread(io->fd, io->memory, io->size_bytes, (off_t)io->offset_bytes);
    } while (result < 0 && errno == EINTR);
    return result < 0 ? -errno : result;
}

/* Sleeps until there is a transfer; NULL: the loop ends. */
static struct loop_io *io_next(struct epoll_loop *epoll)
{
    struct loop_io *io;

    pthread_mutex_lock(&epoll->lock);
    while (epoll->first == NULL && !epoll->is_ending)
        pthread_cond_wait(&epoll->changed, &epoll->lock);
    io = epoll->first;
    if (io != NULL) {
        struct loop_call *next = epoll_io_of(io)->call.next;

        epoll->first = next == NULL ? NULL : io_of(next);
    }
    pthread_mutex_unlock(&epoll->lock);
    return io;
}

static void *worker_run(void *argument)
{
    struct epoll_loop *epoll = argument;
    struct loop_io *io;

    while ((io = io_next(epoll)) != NULL) {
        epoll_io_of(io)->result = io_transfer(io);
        loop_post(&epoll->core, &epoll_io_of(io)->call);
    }
    return NULL;
}

static void epoll_io(struct loop *loop, struct loop_io *io)
{
    struct epoll_loop *epoll = epoll_of(loop);
    struct epoll_io *own = epoll_io_of(io);

    own->call = (struct loop_call){.run = io_finish};
    own->loop = epoll;
    epoll->ios_inflight++;
    pthread_mutex_lock(&epoll->lock);
    if (epoll->first == NULL)
        epoll->first = io;
    else
        epoll_io_of(epoll->last)->call.next = &own->call;
    epoll->last = io;
    pthread_cond_signal(&epoll->changed);
    pthread_mutex_unlock(&epoll->lock);
}

static int epoll_buffers(struct loop *loop, void *memory, size_t size_bytes)
{
    (void)loop;
    (void)memory;
    return error_set(-EOPNOTSUPP, "event loop: epoll has no registered buffers (%zu bytes)", size_bytes);
}

/* ---- watches --------------------------------------------------------------------------------------------------- */

static int control(struct epoll_loop *epoll, int operation, const struct loop_slot *slot)
{
    struct epoll_event event = {.events = slot->events, .data.u64 = loop_slot_key(&epoll->core, slot)};

    return epoll_ctl(epoll->epoll_fd, operation, slot->watch->fd, &event) == 0 ? 0 : -errno;
}

static int epoll_watch(struct loop *loop, struct loop_watch *watch, uint32_t events)
{
    struct loop_slot *slot;
    int error = loop_slot_take(loop, watch, events, &slot);

    if (error != 0)
        return error;
    error = control(epoll_of(loop), EPOLL_CTL_ADD, slot);
    if (error != 0) {
        loop_slot_put(loop, slot);
        return error_set(error, "watch descriptor %d: %m", watch->fd);
    }
    return 0;
}

static int epoll_rewatch(struct loop *loop, struct loop_watch *watch, uint32_t events)
{
    struct loop_slot *slot = loop_slot_of(loop, watch);

    if (slot->events == events)
        return 0;
    slot->events = events;
    return control(epoll_of(loop), EPOLL_CTL_MOD, slot);
}

static void epoll_unwatch(struct loop *loop, struct loop_watch *watch)
{
    struct loop_slot *slot = loop_slot_of(loop, watch);
    /* A descriptor closed before has left the epoll set by itself: the error says nothing. */
    int ignored = control(epoll_of(loop), EPOLL_CTL_DEL, slot);

    (void)ignored;
    loop_slot_put(loop, slot);
}

/* ---- waiting --------------------------------------------------------------------------------------------------- */

static int wait_ms(struct epoll_loop *epoll, struct epoll_event *events, uint64_t left_ns)
{
    uint64_t left_ms = left_ns / 1000000U + (left_ns % 1000000U != 0);
    int limit_ms = left_ns == UINT64_MAX ? -1 : left_ms > 1000000 ? 1000000 : (int)left_ms;

    return epoll_wait(epoll->epoll_fd, events, EVENTS_MAX, limit_ms);
}

static int wait_ns(struct epoll_loop *epoll, struct epoll_event *events, uint64_t left_ns)
{
    struct timespec limit = {(time_t)(left_ns / 1000000000U), (long)(left_ns % 1000000000U)};
    int count;

    if (!epoll->has_no_pwait2) {
        count = epoll_pwait2(epoll->epoll_fd, events, EVENTS_MAX, left_ns == UINT64_MAX ? NULL : &limit, NULL);
        if (count >= 0 || (errno != ENOSYS && errno != EPERM))
            return count;
        epoll->has_no_pwait2 = true;
    }
    return wait_ms(epoll, events, left_ns);
}

static void epoll_loop_wait(struct loop *loop, uint64_t deadline_ns)
{
    struct epoll_loop *epoll = epoll_of(loop);
    struct epoll_event events[EVENTS_MAX];
    uint64_t left_ns = deadline_ns;
    int count;

    if (deadline_ns != 0 && deadline_ns != UINT64_MAX) {
        uint64_t now_ns = os_now_ns();

        left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    }
    count = wait_ns(epoll, events, left_ns);
    loop_core_woke(loop);
    for (int i = 0; i < count; i++) {
        struct loop_slot *slot = loop_slot_find(loop, events[i].data.u64);

        if (slot == NULL)
            continue;
        loop->handled++;
        slot->watch->ready(slot->watch, events[i].events);
    }
}

/* ---- start and end --------------------------------------------------------------------------------------------- */

static void workers_end(struct epoll_loop *epoll, unsigned count)
{
    pthread_mutex_lock(&epoll->lock);
    epoll->is_ending = true;
    pthread_cond_broadcast(&epoll->changed);
    pthread_mutex_unlock(&epoll->lock);
    while (count > 0)
        pthread_join(epoll->workers[--count], NULL);
}

static void epoll_destroy(struct loop *loop)
{
    struct epoll_loop *epoll = epoll_of(loop);

    ASSERT(epoll->ios_inflight == 0);
    workers_end(epoll, WORKERS_COUNT);
    pthread_cond_destroy(&epoll->changed);
    pthread_mutex_destroy(&epoll->lock);
    os_descriptor_close(epoll->epoll_fd);
    loop_core_fini(loop);
    os_pages_unmap(epoll, sizeof(*epoll));
}

static void epoll_forget(struct loop *loop)
{
    struct epoll_loop *epoll = epoll_of(loop);

    os_descriptor_close(epoll->epoll_fd);
    loop_core_fini(loop);
    os_pages_unmap(epoll, sizeof(*epoll));
}

static const struct loop_ops epoll_ops = {
    .name = "epoll",
    .watch = epoll_watch,
    .rewatch = epoll_rewatch,
    .unwatch = epoll_unwatch,
    .io = epoll_io,
    .buffers = epoll_buffers,
    .wait = epoll_loop_wait,
    .destroy = epoll_destroy,
    .forget = epoll_forget,
};

static int workers_start(struct epoll_loop *epoll)
{
    for (unsigned i = 0; i < WORKERS_COUNT; i++) {
        int error = os_thread_start(&epoll->workers[i], "dsm-io", worker_run, epoll);

        if (error != 0) {
            workers_end(epoll, i);
            return error_set(error, "event loop: the system refuses a thread for disk transfers");
        }
    }
    return 0;
}

int loop_epoll_create(struct loop **ret_loop)
{
    struct epoll_loop *epoll;
    void *memory;
    int error;

    error = os_pages_map(sizeof(*epoll), &memory);
    if (error != 0)
        return error_set(error, "event loop: out of memory");
    epoll = memory;
    error = loop_core_init(&epoll->core, &epoll_ops);
    if (error != 0)
        goto unmap;
    epoll->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll->epoll_fd < 0) {
        error = error_set(-errno, "event loop: epoll: %m");
        goto fini_core;
    }
    epoll->epoll_fd = os_descriptor_own(epoll->epoll_fd);
    error = loop_core_start(&epoll->core);
    if (error != 0)
        goto close_epoll;
    pthread_mutex_init(&epoll->lock, NULL);
    pthread_cond_init(&epoll->changed, NULL);
    error = workers_start(epoll);
    if (error != 0)
        goto destroy_lock;
    *ret_loop = &epoll->core;
    return 0;

destroy_lock:
    pthread_cond_destroy(&epoll->changed);
    pthread_mutex_destroy(&epoll->lock);
close_epoll:
    os_descriptor_close(epoll->epoll_fd);
fini_core:
    loop_core_fini(&epoll->core);
unmap:
    os_pages_unmap(epoll, sizeof(*epoll));
    return error;
}
