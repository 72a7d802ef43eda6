/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvme.c - the NVMe tier: slots in a file or on a device, moved by the loop with O_DIRECT. Run by the shard's thread.
 *
 * A short transfer is continued where it stopped. A run that fails is repeated page by page from there, so that one bad
 * block costs one page and the report names it.
 */
#include "base/error.h"
#include "base/os.h"
#include "tiers/backend.h"
#include "tiers/nvme_file.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define RETRIES_MAX 8 /* of a transfer that the kernel interrupts */

struct nvme {
    struct tier tier;
    struct loop *loop;
    int fd;
    bool is_device;
};

static struct nvme *nvme_of(struct tier *tier)
{
    return CONTAINER_OF(tier, struct nvme, tier);
}

static uint64_t slot_offset_bytes(struct tier_slot first, unsigned pages)
{
    return ((uint64_t)first.index + pages) * PAGE_BYTES;
}

static void piece_done(struct loop_io *io, int result);

static void piece_start(struct tier_transfer *transfer)
{
    struct nvme *nvme = nvme_of(transfer->tier);
    unsigned left = transfer->is_single ? 1 : transfer->pages_count - transfer->pages_moved;

    transfer->io = (struct loop_io){
        .fd = nvme->fd,
        .is_write = transfer->is_write,
        .memory = (char *)transfer->memory + transfer->pages_moved * PAGE_BYTES,
        .size_bytes = (uint32_t)(left * PAGE_BYTES),
        .offset_bytes = slot_offset_bytes(transfer->first, transfer->pages_moved),
        .done = piece_done,
        .context = transfer,
    };
    loop_io_start(nvme->loop, &transfer->io);
}

static void piece_failed(struct tier_transfer *transfer, int result)
{
    if ((result == -EINTR || result == -EAGAIN) && transfer->retries++ < RETRIES_MAX) {
        piece_start(transfer);
        return;
    }
    if (transfer->io.size_bytes > PAGE_BYTES) {
        transfer->is_single = true;
        piece_start(transfer);
        return;
    }
    transfer->failed_page = transfer->pages_moved;
    tier_transfer_finish(transfer, result);
}

static void piece_done(struct loop_io *io, int result)
{
    struct tier_transfer *transfer = io->context;

    if (result < (int)PAGE_BYTES) { /* an error, or too little to go on from: O_DIRECT needs whole blocks */
        piece_failed(transfer, result < 0 ? result : -EIO);
        return;
    }
    transfer->pages_moved += (unsigned)result / (unsigned)PAGE_BYTES;
    if (transfer->pages_moved < transfer->pages_count)
        piece_start(transfer);
    else
        tier_transfer_finish(transfer, 0);
}

static void nvme_transfer(struct tier *tier, struct tier_transfer *transfer)
{
    (void)tier;
    piece_start(transfer);
}

static int nvme_move_now(struct tier *tier, struct tier_slot first, unsigned pages_count, void *memory, bool is_write)
{
    struct nvme *nvme = nvme_of(tier);
    size_t size_bytes = pages_count * PAGE_BYTES;
    off_t offset = (off_t)slot_offset_bytes(first, 0);
    ssize_t moved =
        is_write ? pwrite(nvme->fd, memory, size_bytes, offset) : pread(nvme->fd, memory, size_bytes, offset);

    if (moved < 0)
        return -errno;
    return moved == (ssize_t)size_bytes ? 0 : -EIO;
}

static int nvme_resize(struct tier *tier, uint64_t slots_count)
{
    struct nvme *nvme = nvme_of(tier);

    return nvme_file_resize(tier->where, nvme->fd, nvme->is_device, tier->slots.count * PAGE_BYTES,
                            slots_count * PAGE_BYTES);
}

static void nvme_close(struct tier *tier)
{
    struct nvme *nvme = nvme_of(tier);

    close(nvme->fd);
    tier_fini(tier);
    os_pages_unmap(nvme, sizeof(*nvme));
}

static const struct tier_ops nvme_ops = {
    .name = "nvme",
    .capabilities = 0,
    .transfer = nvme_transfer,
    .move_now = nvme_move_now,
    .resize = nvme_resize,
    .close = nvme_close,
};

int tier_nvme_open(struct loop *loop, const char *directory, uint64_t size_bytes, struct tier **ret_tier)
{
    char where[sizeof(((struct tier *)NULL)->where)];
    struct nvme *nvme;
    uint32_t slots_count;
    void *memory;
    int result = tier_slots_of(nvme_ops.name, size_bytes, &slots_count);

    if (result < 0)
        return result;
    if (os_pages_map(sizeof(*nvme), &memory) < 0)
        return error_set(-ENOMEM, "tier nvme: out of memory");
    nvme = memory;
    nvme->loop = loop;
    result = nvme_file_open(directory, slots_count * PAGE_BYTES, &nvme->fd, &nvme->is_device);
    if (result < 0)
        goto unmap;
    snprintf(where, sizeof(where), "%s%s", nvme->is_device ? "" : "unlinked file in ", directory);
    result = tier_init(&nvme->tier, &nvme_ops, slots_count, where);
    if (result < 0)
        goto close_fd;
    *ret_tier = &nvme->tier;
    return 0;

close_fd:
    close(nvme->fd);
unmap:
    os_pages_unmap(memory, sizeof(*nvme));
    return result;
}
