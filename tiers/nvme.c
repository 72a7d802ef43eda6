/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvme.c - the NVMe tier: slots in a file or on a device, moved by the loop with O_DIRECT. Run by the shard's thread.
 *
 * The store is this process's own, or that of all processes of a job: then its descriptor and its slots belong to
 * whoever attached it.
 *
 * A short transfer is continued where it stopped. A run that fails is repeated page by page from there, so that one bad
 * block costs one page and the report names it.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/os.h"
#include "tiers/backend.h"
#include "tiers/nvme_file.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define RETRIES_MAX 8 /* of a transfer that the kernel interrupts */

struct nvme {
    struct tier tier;
    struct loop *loop;
    int fd;
    bool is_device;
    bool is_attached; /* fd and slots are not ours */
    struct shared_slots shared;
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

    if (!nvme->is_attached)
        os_descriptor_close(nvme->fd);
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
    os_descriptor_close(nvme->fd);
unmap:
    os_pages_unmap(memory, sizeof(*nvme));
    return result;
}

/* Asked before the kernel does, which would send SIGXFSZ as well. */
static int limit_check(const char *where, uint64_t size_bytes)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < size_bytes)
        return error_set(-EFBIG,
                         "tier nvme (%s) of %llu MiB: this process may write files of %llu MiB only, raise ulimit -f",
                         where, (unsigned long long)(size_bytes >> 20), (unsigned long long)(limit.rlim_cur >> 20));
    return 0;
}

int tier_nvme_attach(struct loop *loop, const struct nvme_store *store, struct tier **ret_tier)
{
    struct nvme *nvme;
    void *memory;
    int result = limit_check(store->where, slot_offset_bytes((struct tier_slot){store->table->count}, 0));

    if (result < 0)
        return result;
    if (os_pages_map(sizeof(*nvme), &memory) < 0)
        return error_set(-ENOMEM, "tier nvme: out of memory");
    nvme = memory;
    nvme->loop = loop;
    nvme->fd = store->fd;
    nvme->is_device = store->is_device;
    nvme->is_attached = true;
    shared_slots_open(&nvme->shared, store->table, store->account);
    result = tier_init_shared(&nvme->tier, &nvme_ops, &nvme->shared, store->where);
    if (result < 0) {
        os_pages_unmap(memory, sizeof(*nvme));
        return result;
    }
    *ret_tier = &nvme->tier;
    return 0;
}

void tier_nvme_account(struct tier *tier, struct slot_account *account)
{
    struct nvme *nvme = nvme_of(tier);

    ASSERT(tier->ops == &nvme_ops && nvme->is_attached && tier->inflight == 0);
    shared_slots_change(&nvme->shared, account);
    nvme->loop = NULL;
}

void tier_nvme_loop(struct tier *tier, struct loop *loop)
{
    struct nvme *nvme = nvme_of(tier);

    ASSERT(tier->ops == &nvme_ops && tier->inflight == 0);
    nvme->loop = loop;
}
