/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inbox.c - what waits in this process to be handed to the user by the loop. Runs on the loop's thread.
 */
#include "fabric/inbox.h"

#include "base/assert.h"
#include "fabric/transport.h"

#include <errno.h>

static int inbox_poll(struct loop_poller *poller)
{
    struct inbox *inbox = poller->context;
    struct fifo swap = inbox->filling;
    int handled = 0;

    if (fifo_used(&swap) == 0)
        return 0;
    inbox->filling = inbox->draining;
    inbox->draining = swap;
    while (fifo_used(&inbox->draining) > 0) {
        struct inbox_entry entry;
        const uint8_t *front = fifo_front(&inbox->draining);

        memcpy(&entry, front, sizeof(entry));
        if (entry.kind == INBOX_MESSAGE)
            inbox->queued_bytes[entry.from][entry.plane] -= entry.size_bytes;
        inbox->handle(inbox->context, &entry, front + sizeof(entry));
        fifo_drop(&inbox->draining, sizeof(entry) + fabric_round8(entry.size_bytes));
        handled++;
    }
    return handled;
}

static bool inbox_arm(struct loop_poller *poller)
{
    struct inbox *inbox = poller->context;

    return fifo_used(&inbox->filling) > 0;
}

void inbox_init(struct inbox *inbox, const struct fabric_config *config,
                void (*handle)(void *context, const struct inbox_entry *entry, const uint8_t *bytes), void *context)
{
    *inbox = (struct inbox){
        .loop = config->loop,
        .poller = {.poll = inbox_poll, .arm = inbox_arm, .context = inbox},
        .handle = handle,
        .context = context,
        .window_bytes_max = config->window_bytes_max,
    };
    fifo_init(&inbox->filling, SIZE_MAX / 4);
    fifo_init(&inbox->draining, SIZE_MAX / 4);
    loop_poller_add(inbox->loop, &inbox->poller);
}

void inbox_fini(struct inbox *inbox)
{
    loop_poller_remove(inbox->loop, &inbox->poller);
    fifo_fini(&inbox->filling);
    fifo_fini(&inbox->draining);
}

int inbox_push(struct inbox *inbox, struct inbox_entry entry, const struct iovec *parts, int parts_count)
{
    size_t size = fabric_parts_size(parts, parts_count);
    size_t *queued = &inbox->queued_bytes[entry.from][entry.plane];
    size_t record = sizeof(entry) + fabric_round8(size);
    uint8_t *memory;

    BUILD_ASSERT(sizeof(struct inbox_entry) % 8 == 0);
    if (entry.kind == INBOX_MESSAGE && size > inbox->window_bytes_max - *queued)
        return -ENOBUFS;
    memory = fifo_reserve(&inbox->filling, record);
    if (memory == NULL)
        return -ENOBUFS;
    entry.size_bytes = size;
    memcpy(memory, &entry, sizeof(entry));
    fabric_parts_copy(memory + sizeof(entry), parts, parts_count);
    fifo_commit(&inbox->filling, record);
    if (entry.kind == INBOX_MESSAGE)
        *queued += size;
    return 0;
}
