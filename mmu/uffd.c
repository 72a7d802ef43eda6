/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uffd.c - the descriptor: opening, what is registered, reading faults, closing.
 *
 * One userfaultfd a process serves both halves. No events are enabled (fork, remap, remove, unmap): they would block
 * their callers until the shard reads them, and the shard itself causes them. Runs on the shard's thread.
 *
 * Always holds: a registered page is never filled by the kernel, and none stays readable when the descriptor is gone.
 */
#include "mmu/uffd.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "mmu/uapi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MESSAGES_MAX    32
#define FEATURES_SHARED (UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_WP_HUGETLBFS_SHMEM)

static int start(struct mmu *mmu)
{
    const struct mmu_features *features = &mmu->features;
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    const char *source;
    int fd;

    if (mmu->window.shared_bytes > 0 && (!features->has_minor || !features->has_wp_shmem))
        return error_set(-EOPNOTSUPP, "this kernel's userfaultfd lacks %s on memfd; shared memory needs Linux 5.19",
                         features->has_minor ? "write protection" : "minor faults");
    if (mmu->window.shared_bytes > 0)
        api.features |= FEATURES_SHARED;
    if (features->has_thread_id)
        api.features |= UFFD_FEATURE_THREAD_ID;
    if (features->has_exact_address)
        api.features |= UFFD_FEATURE_EXACT_ADDRESS;
    if (features->has_move)
        api.features |= UFFD_FEATURE_MOVE;
    if (features->has_poison)
        api.features |= UFFD_FEATURE_POISON;
    fd = uffd_descriptor_open(features->device, &source);
    if (fd < 0)
        return fd;
    if (ioctl(fd, UFFDIO_API, &api) != 0) {
        int error = error_set(-errno, "userfaultfd handshake: %s", strerror(errno));

        close(fd);
        return error;
    }
    mmu->fd = descriptor_raise(fd);
    return 0;
}

static int register_range(const struct mmu *mmu, uint64_t address, size_t size_bytes, uint64_t mode)
{
    struct uffdio_register range = {.range = {address, size_bytes}, .mode = mode};

    if (ioctl(mmu->fd, UFFDIO_REGISTER, &range) == 0)
        return 0;
    return error_set(-errno, "register 0x%llx-0x%llx: %s%s", (unsigned long long)address,
                     (unsigned long long)(address + size_bytes), strerror(errno),
                     errno == ENOMEM ? "; raise vm.max_map_count" : "");
}

int uffd_register_shared(const struct mmu *mmu, uint64_t address, size_t size_bytes)
{
    return register_range(mmu, address, size_bytes,
                          UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP);
}

int uffd_register_private(const struct mmu *mmu, uint64_t address, size_t size_bytes)
{
    void *memory = (void *)(uintptr_t)address;

    /*
     * A child would read zeroes where pages are absent: registered memory does not exist in it, unless the child calls
     * mmu_reopen(). Fresh memory does, and is whole. Same flags on neighbouring ranges, so that the kernel merges them.
     */
    if (!mmu->window.is_inherited && madvise(memory, size_bytes, MADV_DONTFORK) != 0)
        return error_set(-errno, "keep 0x%llx from children: %s", (unsigned long long)address, strerror(errno));
    madvise(memory, size_bytes, MADV_NOHUGEPAGE); /* EINVAL where the kernel has no huge pages */
    return register_range(mmu, address, size_bytes, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP);
}

int mmu_open(const struct mmu_window *window, const struct mmu_features *features, struct mmu **ret_mmu)
{
    struct mmu *mmu = calloc(1, sizeof(*mmu));
    void *memory;
    int error;

    if (mmu == NULL)
        return error_set(-ENOMEM, "no memory for the fault handler");
    mmu->window = *window;
    mmu->features = *features;
    error = memfd_open("tiermesh-sigbus", 0, &mmu->sigbus_fd);
    if (error != 0)
        goto free_mmu;
    /* Populated for reading, every page is the kernel's zero page, and UFFDIO_COPY never faults on its source. */
    memory = mmap(NULL, ZEROES_PAGES * PAGE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        error = error_set(-ENOMEM, "map %u zero pages: %s", ZEROES_PAGES, strerror(errno));
        goto close_sigbus;
    }
    mmu->zeroes = memory;
    error = os_pages_map(REMAPPED_MAX * sizeof(*mmu->remapped), &memory);
    if (error != 0)
        goto unmap_zeroes;
    mmu->remapped = memory;
    error = start(mmu);
    if (error != 0)
        goto unmap_remapped;
    if (window->shared_bytes > 0)
        error = uffd_register_shared(mmu, window->base, window->shared_bytes);
    if (error != 0)
        goto close_fd;
    *ret_mmu = mmu;
    return 0;
close_fd:
    os_descriptor_close(mmu->fd);
unmap_remapped:
    os_pages_unmap(mmu->remapped, REMAPPED_MAX * sizeof(*mmu->remapped));
unmap_zeroes:
    munmap((void *)(uintptr_t)mmu->zeroes, ZEROES_PAGES * PAGE_BYTES);
close_sigbus:
    os_descriptor_close(mmu->sigbus_fd);
free_mmu:
    free(mmu);
    return error;
}

int mmu_reopen(struct mmu *mmu, const struct mmu_window *window)
{
    int error = 0;

    mmu->window = *window;
    guard_forget(&mmu->guard);
    os_descriptor_close(mmu->fd);
    error = start(mmu);
    for (unsigned i = 0; error == 0 && mmu->features.has_move && i < mmu->stagings_count; i++)
        error = uffd_register_private(mmu, (uint64_t)(uintptr_t)mmu->stagings[i].memory, mmu->stagings[i].size_bytes);
    return error;
}

void mmu_guard(struct mmu *mmu)
{
    int error = mmu->features.has_move ? guard_start(&mmu->guard) : 0;

    if (error != 0)
        log_warn("start the thread that watches over UFFDIO_MOVE: %s (ulimit -u, -v); a huge page that is partly "
                 "pinned may stop the runtime on Linux 6.12 and older",
                 strerrordesc_np(-error));
}

/* All but the descriptor. */
static void release(struct mmu *mmu)
{
    for (unsigned i = 0; i < mmu->stagings_count; i++)
        munmap(mmu->stagings[i].memory, mmu->stagings[i].size_bytes);
    os_pages_unmap(mmu->remapped, REMAPPED_MAX * sizeof(*mmu->remapped));
    munmap((void *)(uintptr_t)mmu->zeroes, ZEROES_PAGES * PAGE_BYTES);
    os_descriptor_close(mmu->sigbus_fd);
    free(mmu);
}

/*
 * Threads that wait sit in the queue of the descriptor, not of the mapping: after the remapping they are woken, fault
 * again and get SIGBUS. mmap() excludes the fault path, so nobody can enter the queue for the old mapping afterwards.
 */
void mmu_close(struct mmu *mmu)
{
    size_t size = mmu->window.shared_bytes + mmu->window.private_bytes;
    void *base = (void *)(uintptr_t)mmu->window.base;
    struct uffdio_range range = {mmu->window.base, size};
    void *got;

    guard_close(&mmu->guard);
    got = mmap(base, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, mmu->sigbus_fd, 0);
    if (got == base) {
        ioctl(mmu->fd, UFFDIO_WAKE, &range);
        os_descriptor_close(mmu->fd);
    } else {
        log_error("close the fault handler: remap the window: %m; the descriptor stays open, absent pages hang");
    }
    release(mmu);
}

void mmu_cancel(struct mmu *mmu)
{
    guard_close(&mmu->guard);
    os_descriptor_close(mmu->fd);
    release(mmu);
}

int mmu_shut_shared(struct mmu *mmu)
{
    void *base = (void *)(uintptr_t)mmu->window.base;
    struct uffdio_range range = {mmu->window.base, mmu->window.shared_bytes};

    if (mmap(base, mmu->window.shared_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
             mmu->sigbus_fd, 0) != base)
        return error_set(-errno, "remap the shared half of the window: %m");
    ioctl(mmu->fd, UFFDIO_WAKE, &range);
    return 0;
}

int mmu_descriptor(const struct mmu *mmu)
{
    return mmu->fd;
}

const struct mmu_features *mmu_features(const struct mmu *mmu)
{
    return &mmu->features;
}

/* ---- faults --------------------------------------------------------------------------------------------------------
 */

/* False for what no caller can answer. */
static bool fault_decode(const struct mmu *mmu, const struct uffd_msg *message, struct mmu_fault *ret_fault)
{
    uint64_t flags = message->arg.pagefault.flags;
    const void *address = (const void *)(uintptr_t)message->arg.pagefault.address;
    enum mmu_fault_kind kind = MMU_FAULT_MISSING;

    if (message->event != UFFD_EVENT_PAGEFAULT) {
        log_error("userfaultfd event 0x%x was not asked for", message->event);
        return false;
    }
    if (!mmu_address_is_inside(&mmu->window, address)) {
        log_error("fault at %p, outside the window", address);
        return false;
    }
    if (flags & UFFD_PAGEFAULT_FLAG_WP)
        kind = MMU_FAULT_WP;
    else if (flags & UFFD_PAGEFAULT_FLAG_MINOR)
        kind = MMU_FAULT_MINOR;
    *ret_fault = (struct mmu_fault){
        .page = mmu_page_at(&mmu->window, address),
        .kind = kind,
        .is_write = (flags & UFFD_PAGEFAULT_FLAG_WRITE) != 0,
        .thread = mmu->features.has_thread_id ? message->arg.pagefault.feat.ptid : 0,
    };
    return true;
}

int mmu_faults_read(struct mmu *mmu, struct mmu_fault *faults, int count)
{
    struct uffd_msg messages[MESSAGES_MAX];
    size_t wanted;
    ssize_t got;
    int used = 0;

    do {
        wanted = count - used < MESSAGES_MAX ? (size_t)(count - used) : MESSAGES_MAX;
        got = read(mmu->fd, messages, wanted * sizeof(messages[0]));

        if (got < 0 && errno != EAGAIN && errno != EINTR)
            log_error("read faults: %m");
        if (got <= 0)
            return used;
        for (size_t i = 0; i < (size_t)got / sizeof(messages[0]); i++)
            used += fault_decode(mmu, &messages[i], &faults[used]) ? 1 : 0;
    } while ((size_t)got == wanted * sizeof(messages[0]) && used < count);
    return used;
}

/* ---- private extents -----------------------------------------------------------------------------------------------
 */

int mmu_register(struct mmu *mmu, struct page_id first, uint64_t pages_count)
{
    ASSERT(!run_is_shared(mmu, first, pages_count));
    return uffd_register_private(mmu, run_address(mmu, first), run_bytes(pages_count));
}

int mmu_unregister(struct mmu *mmu, struct page_id first, uint64_t pages_count)
{
    struct uffdio_range range = {run_address(mmu, first), run_bytes(pages_count)};
    int error;

    ASSERT(!run_is_shared(mmu, first, pages_count));
    error = poison_lift(mmu, first, pages_count);
    if (error != 0)
        return error;
    if (ioctl(mmu->fd, UFFDIO_UNREGISTER, &range) != 0 ||
        (!mmu->window.is_inherited && madvise((void *)(uintptr_t)range.start, range.len, MADV_DOFORK) != 0))
        return error_set(-errno, "unregister 0x%llx-0x%llx: %s", (unsigned long long)range.start,
                         (unsigned long long)(range.start + range.len), strerror(errno));
    return 0;
}
