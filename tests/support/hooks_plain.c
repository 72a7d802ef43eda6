/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hooks_plain.c - runtime/hooks.h by nothing but the kernel: memory is never absent. With it the preload library is
 * tested without the runtime. Addresses are given out upwards and never again; a fork is counted.
 */
#include "runtime/hooks.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RANGE_BYTES ((uint64_t)4 << 40)
#define PAGE_BYTES  4096

uint64_t hooks_base, hooks_size_bytes;
uint64_t hooks_malloc_threshold_bytes;
uint64_t hooks_mmap_threshold_bytes = 64 << 10;

static struct {
    pthread_mutex_t lock;
    uint64_t next;
} plain = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int reserve(uint64_t begin, size_t size)
{
    void *memory = mmap((void *)begin, size, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (begin != 0 ? MAP_FIXED : 0), -1, 0);

    if (memory == MAP_FAILED)
        return -errno;
    if (begin == 0)
        hooks_base = (uint64_t)memory;
    return 0;
}

int hooks_open(void)
{
    const char *threshold = getenv("DSM_PRELOAD_MALLOC_THRESHOLD");
    int error;

    if (getenv("DSM_PRELOAD") == NULL)
        return -ENOENT;
    if (threshold != NULL)
        hooks_malloc_threshold_bytes = strtoull(threshold, NULL, 0);
    error = reserve(0, RANGE_BYTES);
    if (error != 0)
        return error;
    plain.next = hooks_base;
    hooks_size_bytes = RANGE_BYTES;
    return 0;
}

const char *hooks_error(void)
{
    return "the range could not be reserved";
}

void hooks_warn(const char *sentence)
{
    (void)!write(STDERR_FILENO, sentence, strlen(sentence));
}

bool hooks_is_running(void)
{
    return false;
}

int hooks_descriptor_next(int descriptor)
{
    (void)descriptor;
    return -1;
}

void hooks_freeze(void)
{
}

int hooks_map(size_t size_bytes, size_t alignment_bytes, int protection, void **ret_address)
{
    uint64_t mask = alignment_bytes > PAGE_BYTES ? alignment_bytes - 1 : PAGE_BYTES - 1;
    uint64_t begin;

    if (size_bytes > RANGE_BYTES)
        return -ENOMEM;
    pthread_mutex_lock(&plain.lock);
    begin = (plain.next + mask) & ~mask;
    if (begin + size_bytes > hooks_base + RANGE_BYTES) {
        pthread_mutex_unlock(&plain.lock);
        return -ENOSPC;
    }
    plain.next = begin + size_bytes;
    pthread_mutex_unlock(&plain.lock);
    *ret_address = (void *)begin;
    return hooks_map_at((void *)begin, size_bytes, protection, true);
}

int hooks_map_at(void *address, size_t size_bytes, int protection, bool replace)
{
    /* What was given out before cannot be told from what was not: only the end of the used part can grow. */
    if (!replace) {
        bool free_yet;

        pthread_mutex_lock(&plain.lock);
        free_yet = (uint64_t)address >= plain.next;
        if (free_yet)
            plain.next = (uint64_t)address + size_bytes;
        pthread_mutex_unlock(&plain.lock);
        if (!free_yet)
            return -EEXIST;
    }
    if (mmap(address, size_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        return -errno;
    return 0;
}

int hooks_map_foreign(void *address, size_t size_bytes, int protection, int flags, int descriptor, int64_t offset_bytes)
{
    if (mmap(address, size_bytes, protection, flags, descriptor, offset_bytes) == MAP_FAILED)
        return -errno;
    return 0;
}

int hooks_unmap(void *address, size_t size_bytes)
{
    return reserve((uint64_t)address, size_bytes);
}

int hooks_protect(void *address, size_t size_bytes, int protection)
{
    return mprotect(address, size_bytes, protection) == 0 ? 0 : -errno;
}

int hooks_discard(void *address, size_t size_bytes)
{
    return madvise(address, size_bytes, MADV_DONTNEED) == 0 ? 0 : -errno;
}

int hooks_keep(void *address, size_t size_bytes)
{
    (void)address;
    (void)size_bytes;
    return 0;
}

int hooks_prefetch(void *address, size_t size_bytes)
{
    (void)address;
    (void)size_bytes;
    return 0;
}

int hooks_wipe_on_fork(void *address, size_t size_bytes, bool wipe)
{
    return madvise(address, size_bytes, wipe ? MADV_WIPEONFORK : MADV_KEEPONFORK) == 0 ? 0 : -errno;
}

void hooks_describe(const void *address, struct hooks_run *ret_run)
{
    uint64_t page = (uint64_t)address & ~(uint64_t)(PAGE_BYTES - 1);

    *ret_run = (struct hooks_run){(void *)page, PAGE_BYTES, page < plain.next ? HOOKS_MANAGED : HOOKS_FREE,
                                  PROT_READ | PROT_WRITE};
}

bool hooks_may_have_bytes(const void *page)
{
    (void)page;
    return true;
}

int hooks_fork_prepare(void)
{
    pthread_mutex_lock(&plain.lock);
    return 0;
}

void hooks_fork_parent(void)
{
    pthread_mutex_unlock(&plain.lock);
}

void hooks_fork_child_memory(void)
{
    pthread_mutex_unlock(&plain.lock);
}

void hooks_fork_child_thread(void)
{
}

void hooks_finish(void)
{
}
