/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cxl.c - the CXL tier, emulated: a slot store over anonymous memory of this node. Run by the shard's thread.
 *
 * It says "(emulated)" wherever its name is printed, because its speed is DDR's. Address space for four times the size
 * is reserved so that the store can grow without moving; only the part in use is accessible and charged when touched.
 */
#include "base/error.h"
#include "base/os.h"
#include "tiers/mapped.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define GROWTH_MAX 4u /* times the size at open */
#define RUNS_MAX   64 /* of one process_madvise() */

struct anonymous {
    struct mapped_source source;
    uint64_t reserved_bytes;
    int self; /* pidfd of this process; -1: the kernel refuses process_madvise(MADV_DONTNEED), before 6.13 */
};

static struct anonymous *anonymous_of(struct mapped_source *source)
{
    return CONTAINER_OF(source, struct anonymous, source);
}

/*
 * False when the kernel or a sandbox refuses: each run then takes its own call. After fork the descriptor still names
 * the parent; the kernel refuses DONTNEED on another process, so the child falls back too.
 */
static bool runs_give_back(struct anonymous *anonymous, const struct iovec *runs, unsigned count, size_t size_bytes)
{
    return anonymous->self >= 0 && syscall(SYS_process_madvise, anonymous->self, runs, (unsigned long)count,
                                           MADV_DONTNEED, 0) == (long)size_bytes;
}

static void anonymous_give_back(struct mapped_source *source, const struct tier_slot *firsts, const unsigned *counts,
                                unsigned runs)
{
    struct anonymous *anonymous = anonymous_of(source);

    while (runs > 0) {
        struct iovec vector[RUNS_MAX];
        unsigned batch = runs < RUNS_MAX ? runs : RUNS_MAX;
        size_t size_bytes = 0;

        for (unsigned i = 0; i < batch; i++) {
            vector[i].iov_base = source->memory + firsts[i].index * PAGE_BYTES;
            vector[i].iov_len = counts[i] * PAGE_BYTES;
            size_bytes += vector[i].iov_len;
        }
        if (!runs_give_back(anonymous, vector, batch, size_bytes)) {
            for (unsigned i = 0; i < batch; i++)
                (void)madvise(vector[i].iov_base, vector[i].iov_len, MADV_DONTNEED);
        }
        firsts += batch;
        counts += batch;
        runs -= batch;
    }
}

static int anonymous_resize(struct mapped_source *source, uint64_t size_bytes)
{
    struct anonymous *anonymous = anonymous_of(source);
    char *end = source->memory + size_bytes;

    if (size_bytes > anonymous->reserved_bytes)
        return error_set(-ENOMEM, "tier cxl (emulated) to %llu MiB: it can grow to %llu MiB, four times its first size",
                         (unsigned long long)(size_bytes >> 20), (unsigned long long)(anonymous->reserved_bytes >> 20));
    if (size_bytes > source->size_bytes && mprotect(source->memory, size_bytes, PROT_READ | PROT_WRITE) < 0)
        return error_set(-errno, "tier cxl (emulated) to %llu MiB: %m", (unsigned long long)(size_bytes >> 20));
    if (size_bytes < source->size_bytes) {
        (void)madvise(end, source->size_bytes - size_bytes, MADV_DONTNEED);
        (void)mprotect(end, source->size_bytes - size_bytes, PROT_NONE);
    }
    source->size_bytes = size_bytes;
    return 0;
}

static void anonymous_close(struct mapped_source *source)
{
    struct anonymous *anonymous = anonymous_of(source);

    if (anonymous->self >= 0)
        os_descriptor_close(anonymous->self);
    munmap(source->memory, anonymous->reserved_bytes);
    os_pages_unmap(anonymous, sizeof(*anonymous));
}

/* Memory for size_bytes, room for more. PROT_NONE is not counted by a strict overcommit policy. */
static int anonymous_open(uint64_t size_bytes, struct mapped_source **ret_source)
{
    struct anonymous *anonymous;
    void *object;
    void *memory;

    if (os_pages_map(sizeof(*anonymous), &object) < 0)
        return error_set(-ENOMEM, "tier cxl (emulated): out of memory");
    anonymous = object;
    anonymous->reserved_bytes = size_bytes * GROWTH_MAX;
    memory = mmap(NULL, anonymous->reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        os_pages_unmap(object, sizeof(*anonymous));
        return error_set(-ENOMEM, "tier cxl (emulated) of %llu MiB: no address space for four times that size",
                         (unsigned long long)(size_bytes >> 20));
    }
    (void)madvise(memory, anonymous->reserved_bytes, MADV_NOHUGEPAGE); /* a slot freed is a page given back */
    (void)madvise(memory, anonymous->reserved_bytes, MADV_DONTDUMP);   /* may hold what its owner keeps out of dumps */
    anonymous->self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (anonymous->self >= 0)
        anonymous->self = os_descriptor_own(anonymous->self);
    anonymous->source = (struct mapped_source){
        .memory = memory,
        .resize = anonymous_resize,
        .give_back = anonymous_give_back,
        .close = anonymous_close,
    };
    if (anonymous_resize(&anonymous->source, size_bytes) < 0) {
        anonymous_close(&anonymous->source);
        return -ENOMEM;
    }
    *ret_source = &anonymous->source;
    return 0;
}

static const struct tier_ops cxl_emulated_ops = {
    .name = "cxl (emulated)",
    .capabilities = TIER_CAP_ADDRESSABLE,
    .transfer = mapped_transfer,
    .address = mapped_address,
    .move_now = mapped_move_now,
    .freed = mapped_freed,
    .resize = mapped_resize,
    .close = mapped_close,
};

int tier_cxl_emulated_open(uint64_t size_bytes, struct tier **ret_tier)
{
    struct mapped_source *source = NULL;
    uint32_t slots_count;
    int result = tier_slots_of(cxl_emulated_ops.name, size_bytes, &slots_count);

    if (result < 0)
        return result;
    result = anonymous_open(slots_count * PAGE_BYTES, &source);
    if (result < 0)
        return result;
    result = mapped_open("memory of this machine", &cxl_emulated_ops, source, ret_tier);
    if (result < 0)
        source->close(source);
    return result;
}
