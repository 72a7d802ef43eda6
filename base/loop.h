/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h - what a shard's event loop offers to the edges (fabric, mmu, tiers).
 *
 * Only declarations and dispatch: runtime/ implements it twice (io_uring; epoll with workers). One thread owns
 * a loop and runs every callback; only loop_post() may be called from other threads. No callback may block.
 */
#ifndef TIERMESH_BASE_LOOP_H
#define TIERMESH_BASE_LOOP_H

#include "base/types.h"

struct loop;

/* A descriptor that the loop watches. Memory is the caller's and stays until loop_unwatch() returns. */
struct loop_watch {
    int fd;
    void (*ready)(struct loop_watch *watch, uint32_t events); /* events: EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP */
    void *context;
    uint64_t internal[2]; /* the loop's */
};

/*
 * One read or write of a file at an offset. The caller keeps it and its memory until `done` was called.
 * `done` runs on the loop's thread, never inside loop_io(): result is bytes moved or a negative errno
 * (a short transfer is possible and is the caller's to judge).
 */
struct loop_io {
    int fd;
    bool is_write;
    void *memory; /* for O_DIRECT: aligned as the file needs; inside a loop_buffers() area it is not pinned again */
    uint32_t size_bytes;
    uint64_t offset_bytes;
    void (*done)(struct loop_io *io, int result);
    void *context;
    uint64_t internal[4]; /* the loop's */
};

/* A one-shot timer. */
struct loop_timer {
    void (*expired)(struct loop_timer *timer);
    void *context;
    uint64_t deadline_ns; /* os_now_ns() clock; the loop's once started */
    uint64_t internal[2]; /* the loop's; zero before first use */
};

/*
 * Something that must be looked at before the loop blocks (a ring in shared memory).
 * poll: handle what is there, return how many things were handled.
 * arm: the loop is about to block; ask the other side to ring a watched descriptor from now on, then return
 *      true when something came in meanwhile (the loop will not block).
 * disarm: the loop woke up; nobody needs to ring. May be NULL.
 */
struct loop_poller {
    int (*poll)(struct loop_poller *poller);
    bool (*arm)(struct loop_poller *poller);
    void (*disarm)(struct loop_poller *poller);
    void *context;
    struct loop_poller *next; /* the loop's */
};

/* A call posted from another thread; runs once on the loop's thread. */
struct loop_call {
    void (*run)(struct loop_call *call);
    struct loop_call *next; /* the loop's */
};

struct loop_ops {
    const char *name; /* "io_uring" or "epoll" */
    int (*watch)(struct loop *loop, struct loop_watch *watch, uint32_t events);
    int (*rewatch)(struct loop *loop, struct loop_watch *watch, uint32_t events);
    void (*unwatch)(struct loop *loop, struct loop_watch *watch);
    void (*io)(struct loop *loop, struct loop_io *io);
    int (*buffers)(struct loop *loop, void *memory, size_t size_bytes);
    int (*hold)(struct loop *loop, int fd); /* NULL: nothing to do */
    void (*submit)(struct loop *loop); /* NULL: transfers start at once */
    void (*wait)(struct loop *loop, uint64_t deadline_ns);
    void (*destroy)(struct loop *loop);
    void (*forget)(struct loop *loop); /* as destroy, in a forked child: its threads are not here */
};

/*
 * Level-triggered watching; 0 or -errno. With EPOLLET in `events`, edge-triggered: cheaper, but `ready` must take all
 * there is. rewatch changes the events. Neither calls `ready` before it returns.
 */
int loop_watch(struct loop *loop, struct loop_watch *watch, uint32_t events) MUST_USE;
int loop_rewatch(struct loop *loop, struct loop_watch *watch, uint32_t events) MUST_USE;
void loop_unwatch(struct loop *loop, struct loop_watch *watch);

/* Start one transfer. Cannot fail: errors arrive at io->done. */
void loop_io_start(struct loop *loop, struct loop_io *io);

/*
 * Register one memory area (once a loop) for transfers without pinning each time.
 * 0, or -errno (e.g. -ENOMEM for the memlock limit): transfers then work all the same, a little slower.
 */
int loop_buffers(struct loop *loop, void *memory, size_t size_bytes);

/*
 * Keep the file behind fd open (once a loop) until the last transfer of this loop has ended, also when the process is
 * killed or executes another program meanwhile: whoever sees the file end knows that the device is done. 0 or -errno.
 */
int loop_hold(struct loop *loop, int fd) MUST_USE;

void loop_timer_start(struct loop *loop, struct loop_timer *timer, uint64_t deadline_ns);
void loop_timer_stop(struct loop *loop, struct loop_timer *timer);

void loop_poller_add(struct loop *loop, struct loop_poller *poller);
void loop_poller_remove(struct loop *loop, struct loop_poller *poller);

/* Any thread. Wakes the loop when it sleeps; release here pairs with the acquire before call->run. */
void loop_post(struct loop *loop, struct loop_call *call);

#endif
