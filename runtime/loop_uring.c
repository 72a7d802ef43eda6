/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop_uring.c - the event loop on io_uring. Run by the loop's owner.
 *
 * A level-triggered watch is a one-shot poll that is armed again after its callback: still ready means ready again.
 * An edge-triggered one (EPOLLET) is a multishot poll, armed again only when the kernel ends it. Requests are queued
 * and enter the kernel together, with the next look or block.
 *
 * The ring is made disabled and enabled by the thread that runs it, so it has a single issuer, whoever created it.
 * A watch's poll holds its file: loop_unwatch() therefore enters the kernel, and close() after it really closes.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/textfile.h"
#include "runtime/loop_core.h"

#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define SQ_ENTRIES 512
#define CQ_ENTRIES 4096
#define IOS_MAX    1024 /* in the kernel at once; far below CQ_ENTRIES, so completions do not overflow */

/* A registered buffer is at most 1 GiB; an area is cut into such. */
#define BUFFER_SHIFT 30
#define BUFFERS_MAX  1024

/* What a completion is for: the low bits of user_data. */
enum tag {
    TAG_NOTHING = 0,
    TAG_WATCH = 1, /* the slot's key above */
    TAG_IO = 2,    /* the struct loop_io, 8-byte aligned */
};
#define TAG_BITS 2
#define TAG_MASK 3U

struct uring_loop {
    struct loop core;
    struct io_uring ring;
    bool is_enabled;
    uint32_t arm_first, arm_last; /* slots to arm, linked by next; LOOP_SLOT_NONE: none */
    struct loop_io *io_first;     /* transfers to start, linked by internal[0] */
    struct loop_io *io_last;
    uint32_t ios_inflight;
    uint8_t *buffers; /* the registered area */
    size_t buffers_bytes;
};

static struct uring_loop *uring_of(struct loop *loop)
{
    return CONTAINER_OF(loop, struct uring_loop, core);
}

/* ---- submission ------------------------------------------------------------------------------------------------ */

static void enable(struct uring_loop *uring)
{
    int error;

    if (uring->is_enabled)
        return;
    /* liburing 2.3 declares io_uring_enable_rings() but does not export it. */
    error = io_uring_register((unsigned)uring->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
    ASSERT(error == 0);
    uring->is_enabled = true;
}

/* NULL: the queue is full and the kernel takes nothing now; the caller keeps its request queued. */
static struct io_uring_sqe *sqe_take(struct uring_loop *uring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);

    if (sqe == NULL && uring->is_enabled) {
        io_uring_submit(&uring->ring);
        sqe = io_uring_get_sqe(&uring->ring);
    }
    return sqe;
}

static void arm_later(struct uring_loop *uring, struct loop_slot *slot)
{
    uint32_t index = (uint32_t)(slot - uring->core.slots);

    if (slot->is_queued)
        return;
    slot->is_queued = true;
    slot->next = LOOP_SLOT_NONE;
    if (uring->arm_first == LOOP_SLOT_NONE)
        uring->arm_first = index;
    else
        uring->core.slots[uring->arm_last].next = index;
    uring->arm_last = index;
}

static void arm_forget(struct uring_loop *uring, struct loop_slot *slot)
{
    uint32_t index = (uint32_t)(slot - uring->core.slots);
    uint32_t *link = &uring->arm_first;
    uint32_t before = LOOP_SLOT_NONE;

    while (*link != index) {
        ASSERT(*link != LOOP_SLOT_NONE);
        before = *link;
        link = &uring->core.slots[before].next;
    }
    *link = slot->next;
    if (uring->arm_last == index)
        uring->arm_last = before;
    slot->is_queued = false;
}

static bool prepare_arms(struct uring_loop *uring)
{
    while (uring->arm_first != LOOP_SLOT_NONE) {
        struct loop_slot *slot = &uring->core.slots[uring->arm_first];
        unsigned events = slot->events & ~(unsigned)EPOLLET;
        struct io_uring_sqe *sqe = sqe_take(uring);

        if (sqe == NULL)
            return false;
        uring->arm_first = slot->next;
        slot->is_queued = false;
        slot->is_armed = true;
        if ((slot->events & (uint32_t)EPOLLET) != 0)
            io_uring_prep_poll_multishot(sqe, slot->watch->fd, events);
        else
            io_uring_prep_poll_add(sqe, slot->watch->fd, events);
        sqe->user_data = loop_slot_key(&uring->core, slot) << TAG_BITS | TAG_WATCH;
    }
    return true;
}

/* The registered buffer that holds all of the transfer's memory, or -1. */
static int buffer_of(const struct uring_loop *uring, const struct loop_io *io)
{
    size_t begin = (size_t)((uint8_t *)io->memory - uring->buffers);

    if (uring->buffers == NULL || (uint8_t *)io->memory < uring->buffers || io->size_bytes > uring->buffers_bytes ||
        begin > uring->buffers_bytes - io->size_bytes)
        return -1;
    if (io->size_bytes == 0 || begin >> BUFFER_SHIFT != (begin + io->size_bytes - 1) >> BUFFER_SHIFT)
        return -1;
    return (int)(begin >> BUFFER_SHIFT);
}

static void io_prepare(const struct uring_loop *uring, struct io_uring_sqe *sqe, const struct loop_io *io)
{
    int buffer = buffer_of(uring, io);
    int plain = io->is_write ? IORING_OP_WRITE : IORING_OP_READ;
    int fixed = io->is_write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED;

    io_uring_prep_rw(buffer < 0 ? plain : fixed, sqe, io->fd, io->memory, io->size_bytes, io->offset_bytes);
    if (buffer >= 0)
        sqe->buf_index = (uint16_t)buffer;
    /*
     * Submitting to a disk can block for tens of microseconds: that is for the kernel's workers. Not for one page that
     * is to be read: somebody waits for it, and waking a worker takes as long.
     */
    if (io->is_write || io->size_bytes > PAGE_BYTES)
        sqe->flags |= IOSQE_ASYNC;
    sqe->user_data = (uint64_t)(uintptr_t)io | TAG_IO;
}

static void prepare_ios(struct uring_loop *uring)
{
    while (uring->io_first != NULL && uring->ios_inflight < IOS_MAX) {
        struct loop_io *io = uring->io_first;
        struct io_uring_sqe *sqe = sqe_take(uring);

        if (sqe == NULL)
            return;
        uring->io_first = (struct loop_io *)(uintptr_t)io->internal[0];
        uring->ios_inflight++;
        io_prepare(uring, sqe, io);
    }
}

/* ---- the ops --------------------------------------------------------------------------------------------------- */

static int uring_watch(struct loop *loop, struct loop_watch *watch, uint32_t events)
{
    struct loop_slot *slot;
    int error = loop_slot_take(loop, watch, events, &slot);

    if (error != 0)
        return error;
    slot->is_queued = false;
    slot->is_armed = false;
    arm_later(uring_of(loop), slot);
    return 0;
}

static void uring_io(struct loop *loop, struct loop_io *io)
{
    struct uring_loop *uring = uring_of(loop);

    ASSERT(((uintptr_t)io & TAG_MASK) == 0);
    io->internal[0] = 0;
    if (uring->io_first == NULL)
        uring->io_first = io;
    else
        uring->io_last->internal[0] = (uint64_t)(uintptr_t)io;
    uring->io_last = io;
}

/* Takes the poll out of the kernel, and out of the file: only the task work of an enter does the latter. */
static void poll_cancel(struct uring_loop *uring, uint64_t key)
{
    struct io_uring_sqe *sqe;

    while ((sqe = sqe_take(uring)) == NULL)
        io_uring_get_events(&uring->ring);
    io_uring_prep_poll_remove(sqe, key << TAG_BITS | TAG_WATCH);
    sqe->user_data = TAG_NOTHING;
    io_uring_submit_and_get_events(&uring->ring);
}

static int uring_rewatch(struct loop *loop, struct loop_watch *watch, uint32_t events)
{
    struct uring_loop *uring = uring_of(loop);
    struct loop_slot *slot = loop_slot_of(loop, watch);
    uint64_t key = loop_slot_key(loop, slot);

    if (slot->events == events)
        return 0;
    slot->events = events;
    if (!slot->is_armed)
        return 0; /* queued, or its callback runs right now and queues it afterwards */
    slot->generation = (slot->generation + 1) & 0xffffffU;
    slot->is_armed = false;
    arm_later(uring, slot);
    poll_cancel(uring, key);
    return 0;
}

static void uring_unwatch(struct loop *loop, struct loop_watch *watch)
{
    struct uring_loop *uring = uring_of(loop);
    struct loop_slot *slot = loop_slot_of(loop, watch);
    uint64_t key = loop_slot_key(loop, slot);
    bool is_armed = slot->is_armed;

    if (slot->is_queued)
        arm_forget(uring, slot);
    loop_slot_put(loop, slot);
    if (is_armed)
        poll_cancel(uring, key);
}

static int uring_buffers(struct loop *loop, void *memory, size_t size_bytes)
{
    struct uring_loop *uring = uring_of(loop);
    struct iovec parts[BUFFERS_MAX];
    unsigned count = 0;
    int error;

    ASSERT(uring->buffers == NULL);
    for (size_t done = 0; done < size_bytes; count++) {
        size_t left = size_bytes - done;

        if (count == BUFFERS_MAX)
            return error_set(-EFBIG, "event loop: a buffer area over %u GiB cannot be registered", BUFFERS_MAX);
        parts[count].iov_base = (uint8_t *)memory + done;
        parts[count].iov_len = left < (size_t)1 << BUFFER_SHIFT ? left : (size_t)1 << BUFFER_SHIFT;
        done += parts[count].iov_len;
    }
    error = io_uring_register_buffers(&uring->ring, parts, count);
    if (error != 0)
        return error_set(error, "event loop: register %zu bytes of buffers: %s%s", size_bytes, strerror(-error),
                         error == -ENOMEM ? " (ulimit -l is the limit)" : "");
    uring->buffers = memory;
    uring->buffers_bytes = size_bytes;
    return 0;
}

/*
 * The ring's own reference goes when the ring goes, and that waits for every request. With transfers by threads (epoll)
 * no such thing is needed: a process's files are closed when its last thread has left the kernel.
 */
static int uring_hold(struct loop *loop, int fd)
{
    int error = io_uring_register_files(&uring_of(loop)->ring, &fd, 1);

    return error == 0 ? 0 : error_set(error, "event loop: register descriptor %d: %s", fd, strerror(-error));
}

/* ---- completions ----------------------------------------------------------------------------------------------- */

static void watch_complete(struct uring_loop *uring, uint64_t key, int result, uint32_t flags)
{
    struct loop_slot *slot = loop_slot_find(&uring->core, key);
    bool is_ended = (flags & IORING_CQE_F_MORE) == 0;
    struct loop_watch *watch;

    if (slot == NULL)
        return;
    watch = slot->watch;
    if (is_ended)
        slot->is_armed = false;
    uring->core.handled++;
    watch->ready(watch, result < 0 ? (uint32_t)EPOLLERR : (uint32_t)result);
    slot = loop_slot_find(&uring->core, key);
    /* A descriptor that cannot be polled is reported once; asking again would spin. */
    if (slot != NULL && is_ended && result >= 0)
        arm_later(uring, slot);
}

/* Where the limit on processes leaves the kernel no worker (ulimit -u), it gives up the transfer: then it waits here.
 */
static int io_here(const struct loop_io *io)
{
    ssize_t done = io->is_write ? pwrite(io->fd, io->memory, io->size_bytes, (off_t)io->offset_bytes)
                                : pread(io->fd, io->memory, io->size_bytes, (off_t)io->offset_bytes);

    return done < 0 ? -errno : (int)done;
}

static void io_complete(struct uring_loop *uring, struct loop_io *io, int result)
{
    if (result == -ECANCELED)
        result = io_here(io);
    uring->ios_inflight--;
    uring->core.handled++;
    io->done(io, result);
}

static void completions_run(struct uring_loop *uring)
{
    unsigned ready = io_uring_cq_ready(&uring->ring); /* what comes meanwhile waits its turn */
    struct io_uring_cqe *cqe;

    while (ready-- > 0 && io_uring_peek_cqe(&uring->ring, &cqe) == 0) {
        uint64_t data = cqe->user_data;
        uint32_t flags = cqe->flags;
        int result = cqe->res;

        io_uring_cqe_seen(&uring->ring, cqe);
        if ((data & TAG_MASK) == TAG_WATCH)
            watch_complete(uring, data >> TAG_BITS, result, flags);
        else if ((data & TAG_MASK) == TAG_IO)
            io_complete(uring, (struct loop_io *)(uintptr_t)(data & ~(uint64_t)TAG_MASK), result);
    }
}

static bool kernel_wants_enter(const struct uring_loop *uring)
{
    return (IO_URING_READ_ONCE(*uring->ring.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
}

static void uring_submit(struct loop *loop)
{
    struct uring_loop *uring = uring_of(loop);

    enable(uring);
    prepare_ios(uring);
    if (io_uring_sq_ready(&uring->ring) > 0)
        io_uring_submit(&uring->ring);
}

static void uring_wait(struct loop *loop, uint64_t deadline_ns)
{
    struct uring_loop *uring = uring_of(loop);
    uint64_t now_ns = deadline_ns == 0 || deadline_ns == UINT64_MAX ? 0 : os_now_ns();
    struct io_uring_cqe *cqe;

    enable(uring);
    /* Requests that found no room go in after the next completions. */
    if (!prepare_arms(uring))
        deadline_ns = 0;
    prepare_ios(uring);
    if (deadline_ns > now_ns && io_uring_cq_ready(&uring->ring) == 0) {
        uint64_t left_ns = deadline_ns - now_ns;
        struct __kernel_timespec limit = {(int64_t)(left_ns / 1000000000U), (int64_t)(left_ns % 1000000000U)};

        /* Whatever it returns (a signal, the limit, a full queue): what there is gets handled, the core comes again. */
        io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1, deadline_ns == UINT64_MAX ? NULL : &limit, NULL);
    } else if (io_uring_sq_ready(&uring->ring) > 0 || kernel_wants_enter(uring)) {
        io_uring_submit_and_get_events(&uring->ring);
    }
    loop_core_woke(loop);
    completions_run(uring);
}

/* ---- start and end --------------------------------------------------------------------------------------------- */

/* liburing closes the descriptor itself. */
static void ring_close(struct io_uring *ring)
{
    os_descriptor_disown(ring->ring_fd);
    io_uring_queue_exit(ring);
}

static void uring_destroy(struct loop *loop)
{
    struct uring_loop *uring = uring_of(loop);

    ASSERT(uring->ios_inflight == 0 && uring->io_first == NULL);
    ring_close(&uring->ring);
    loop_core_fini(loop);
    os_pages_unmap(uring, sizeof(*uring));
}

static const struct loop_ops uring_ops = {
    .name = "io_uring",
    .watch = uring_watch,
    .rewatch = uring_rewatch,
    .unwatch = uring_unwatch,
    .io = uring_io,
    .buffers = uring_buffers,
    .hold = uring_hold,
    .submit = uring_submit,
    .wait = uring_wait,
    .destroy = uring_destroy,
    .forget = uring_destroy,
};

/* The sentence for why the kernel refuses. */
static int refused(int error)
{
    char text[16] = "";
    uint64_t disabled;

    if (text_read("/proc/sys/kernel/io_uring_disabled", text, sizeof(text)) == 0 && text_number(text, &disabled) == 0 &&
        disabled != 0)
        return error_set(error, "io_uring is switched off by the sysctl kernel.io_uring_disabled=%u",
                         (unsigned)disabled);
    if (error == -EPERM || error == -EACCES)
        return error_set(error, "io_uring is refused (%s), probably by the container's seccomp profile",
                         strerror(-error));
    if (error == -ENOSYS)
        return error_set(error, "io_uring is not in this kernel, or hidden by the container's seccomp profile");
    return error_set(error, "io_uring cannot be set up: %s", strerror(-error));
}

/* The best ring that this kernel makes: 6.1 and newer, 5.19, 5.11. */
static int ring_create(struct io_uring *ring)
{
    static const unsigned flags[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN |
            IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
        0,
    };
    int error = 0;

    for (size_t i = 0; i < ARRAY_COUNT(flags); i++) {
        struct io_uring_params params = {
            .flags = flags[i] | IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
            .cq_entries = CQ_ENTRIES,
        };

        error = io_uring_queue_init_params(SQ_ENTRIES, ring, &params);
        if (error == -EINVAL)
            continue;
        if (error != 0)
            return refused(error);
        /* RSRC_TAGS came with 5.13, as multishot poll did. */
        if ((params.features & IORING_FEAT_RSRC_TAGS) != 0 && (params.features & IORING_FEAT_EXT_ARG) != 0) {
            ring->ring_fd = ring->enter_ring_fd = os_descriptor_own(ring->ring_fd);
            return 0;
        }
        io_uring_queue_exit(ring);
        return error_set(-ENOSYS, "io_uring of this kernel is too old (5.13 is needed)");
    }
    return refused(error);
}

int loop_uring_create(struct loop **ret_loop)
{
    struct uring_loop *uring;
    void *memory;
    int error;

    error = os_pages_map(sizeof(*uring), &memory);
    if (error != 0)
        return error_set(error, "event loop: out of memory");
    uring = memory;
    error = loop_core_init(&uring->core, &uring_ops);
    if (error != 0)
        goto unmap;
    uring->arm_first = LOOP_SLOT_NONE;
    error = ring_create(&uring->ring);
    if (error != 0)
        goto fini_core;
    error = loop_core_start(&uring->core);
    if (error != 0)
        goto exit_ring;
    *ret_loop = &uring->core;
    return 0;

exit_ring:
    ring_close(&uring->ring);
fini_core:
    loop_core_fini(&uring->core);
unmap:
    os_pages_unmap(uring, sizeof(*uring));
    return error;
}
