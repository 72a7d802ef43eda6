/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buffers.c - a pool of page-aligned bounce buffers in one area that the loop knows. Run by the shard's thread.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "tiers/slots.h"
#include "tiers/tier.h"

#include <errno.h>
#include <string.h>

struct tier_buffers {
    struct slots slots;
    char *memory;
};

void tier_buffers_loop(struct tier_buffers *buffers, struct loop *loop)
{
    size_t size_bytes = buffers->slots.count * PAGE_BYTES;
    int result = loop_buffers(loop, buffers->memory, size_bytes);

    if (result < 0)
        log_info("register %zu KiB of transfer buffers: %s; transfers pin them each time", size_bytes >> 10,
                 strerrordesc_np(-result));
}

int tier_buffers_create(struct loop *loop, unsigned pages_count, struct tier_buffers **ret_buffers)
{
    size_t size_bytes = pages_count * PAGE_BYTES;
    struct tier_buffers *buffers;
    void *object;
    void *memory;

    ASSERT(pages_count > 0 && pages_count <= SLOTS_MAX);
    if (os_pages_map(sizeof(*buffers), &object) < 0)
        goto refuse;
    if (os_pages_map(size_bytes, &memory) < 0)
        goto unmap_object;
    buffers = object;
    buffers->memory = memory;
    if (slots_init(&buffers->slots, pages_count) < 0)
        goto unmap_memory;
    tier_buffers_loop(buffers, loop);
    *ret_buffers = buffers;
    return 0;

unmap_memory:
    os_pages_unmap(memory, size_bytes);
unmap_object:
    os_pages_unmap(object, sizeof(*buffers));
refuse:
    return error_set(-ENOMEM, "transfer buffers of %zu KiB: out of memory", size_bytes >> 10);
}

void tier_buffers_destroy(struct tier_buffers *buffers)
{
    if (buffers == NULL)
        return;
    ASSERT(buffers->slots.used_count == 0);
    os_pages_unmap(buffers->memory, buffers->slots.count * PAGE_BYTES);
    slots_fini(&buffers->slots);
    os_pages_unmap(buffers, sizeof(*buffers));
}

void *tier_buffers_take(struct tier_buffers *buffers, unsigned pages_count)
{
    uint32_t first;

    ASSERT(pages_count > 0);
    if (slots_take(&buffers->slots, pages_count, pages_count, &first) == 0)
        return NULL;
    return buffers->memory + first * PAGE_BYTES;
}

void tier_buffers_put(struct tier_buffers *buffers, void *memory, unsigned pages_count)
{
    size_t offset = (size_t)((char *)memory - buffers->memory);

    ASSERT(offset % PAGE_BYTES == 0 && offset / PAGE_BYTES + pages_count <= buffers->slots.count);
    for (unsigned i = 0; i < pages_count; i++)
        slots_put(&buffers->slots, (uint32_t)(offset / PAGE_BYTES) + i);
}
