/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop_sync.c - a loop for unit tests that does transfers by pread and pwrite when told to.
 */
#include "tests/support/loop_sync.h"
#include "base/assert.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define QUEUE_MAX 1024u

struct loop {
    struct loop_io *queue[QUEUE_MAX];
    unsigned head, count;
    uint32_t limit_bytes;
    unsigned interrupts;
    uint64_t fail_offset_bytes;
    int fail_error;
    int buffers_result;
};

struct loop *loop_sync_create(void)
{
    struct loop *loop = calloc(1, sizeof(*loop));

    ASSERT(loop != NULL);
    return loop;
}

void loop_sync_destroy(struct loop *loop)
{
    ASSERT(loop->count == 0);
    free(loop);
}

void loop_io_start(struct loop *loop, struct loop_io *io)
{
    ASSERT(loop->count < QUEUE_MAX);
    loop->queue[(loop->head + loop->count++) % QUEUE_MAX] = io;
}

int loop_buffers(struct loop *loop, void *memory, size_t size_bytes)
{
    ASSERT(memory != NULL && size_bytes > 0);
    return loop->buffers_result;
}

static int io_do(struct loop *loop, const struct loop_io *io)
{
    size_t size_bytes = io->size_bytes;
    ssize_t moved;

    if (loop->interrupts > 0) {
        loop->interrupts--;
        return -EINTR;
    }
    if (loop->fail_error < 0 && io->offset_bytes <= loop->fail_offset_bytes &&
        loop->fail_offset_bytes < io->offset_bytes + io->size_bytes)
        return loop->fail_error;
    if (loop->limit_bytes > 0 && size_bytes > loop->limit_bytes)
        size_bytes = loop->limit_bytes;
    moved = io->is_write ? pwrite(io->fd, io->memory, size_bytes, (off_t)io->offset_bytes)
                         : pread(io->fd, io->memory, size_bytes, (off_t)io->offset_bytes);
    return moved < 0 ? -errno : (int)moved;
}

unsigned loop_sync_run(struct loop *loop)
{
    unsigned done = 0;

    while (loop->count > 0) {
        struct loop_io *io = loop->queue[loop->head];

        loop->head = (loop->head + 1) % QUEUE_MAX;
        loop->count--;
        done++;
        io->done(io, io_do(loop, io));
    }
    return done;
}

void loop_sync_limit(struct loop *loop, uint32_t size_bytes)
{
    loop->limit_bytes = size_bytes;
}

void loop_sync_interrupt(struct loop *loop, unsigned count)
{
    loop->interrupts = count;
}

void loop_sync_fail(struct loop *loop, uint64_t offset_bytes, int error)
{
    loop->fail_offset_bytes = offset_bytes;
    loop->fail_error = error;
}

void loop_sync_buffers_result(struct loop *loop, int result)
{
    loop->buffers_result = result;
}
