/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window.c - the reservation of addresses, and the bytes of shared pages through the memfd.
 *
 * The shared half is one mapping of one memfd, offset == address - base, so that its bytes can be read and written
 * without touching the mapping. The private half is anonymous memory that the kernel fills until it is registered.
 * Neither half is charged before it is touched. Reserving is done by the thread that starts the node; the functions
 * that copy bytes may be called by any thread. Reads /proc without malloc or stdio: the preload library runs here
 * early.
 *
 * Nothing of the window goes into a core dump: the kernel would visit every page of it, and absent ones have no bytes.
 */
#include "base/error.h"
#include "base/os.h"
#include "mmu/uapi.h"
#include "mmu/uffd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define ADDRESS_END ((uint64_t)1 << 47)

/* ---- who is in the way ---------------------------------------------------------------------------------------------
 */

struct maps_reader {
    int fd;
    size_t used, next;
    char bytes[4096];
};

/* One line without its newline, cut to `size`. False at the end. */
static bool maps_line(struct maps_reader *reader, char *line, size_t size)
{
    size_t length = 0;

    for (;;) {
        if (reader->next == reader->used) {
            ssize_t got = read(reader->fd, reader->bytes, sizeof(reader->bytes));

            if (got <= 0)
                return false;
            reader->used = (size_t)got;
            reader->next = 0;
        }
        if (reader->bytes[reader->next++] == '\n')
            break;
        if (length < size - 1)
            line[length++] = reader->bytes[reader->next - 1];
    }
    line[length] = '\0';
    return true;
}

/* Describes the first mapping that overlaps [base, end). */
static void describe_occupant(uint64_t base, uint64_t end, char *text, size_t size)
{
    struct maps_reader reader = {.fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
    char line[256];

    snprintf(text, size, "something that /proc/self/maps does not show");
    if (reader.fd < 0)
        return;
    while (maps_line(&reader, line, sizeof(line))) {
        char *dash;
        uint64_t first = strtoull(line, &dash, 16);
        uint64_t last = *dash == '-' ? strtoull(dash + 1, NULL, 16) : 0;
        char *name = strpbrk(line, "/[");

        if (first < end && last > base) {
            snprintf(text, size, "%s at 0x%llx-0x%llx", name != NULL ? name : "anonymous memory",
                     (unsigned long long)first, (unsigned long long)last);
            break;
        }
    }
    close(reader.fd);
}

/* ---- the memfd -----------------------------------------------------------------------------------------------------
 */

int memfd_open(const char *name, uint64_t size_bytes, int *ret_fd)
{
    struct rlimit limit;
    int error;
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return error_set(-errno, "create a memfd: %s", strerror(errno));
    /* Growing beyond this limit would not fail but raise SIGXFSZ. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size_bytes) {
        error = error_set(-ENOMEM, "a memfd of %llu bytes exceeds the limit on file sizes (RLIMIT_FSIZE, ulimit -f)",
                          (unsigned long long)size_bytes);
        goto close_fd;
    }
    if (ftruncate(fd, (off_t)size_bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        error = error_set(-errno, "size and seal a memfd of %llu bytes: %s", (unsigned long long)size_bytes,
                          strerror(errno));
        goto close_fd;
    }
    *ret_fd = descriptor_raise(fd);
    return 0;
close_fd:
    close(fd);
    return error;
}

/* ---- the reservation -----------------------------------------------------------------------------------------------
 */

void shared_advise(void *address, size_t size_bytes)
{
    /* A child would read zeroes where pages are absent here, and instantiate them under our feet. */
    madvise(address, size_bytes, MADV_DONTFORK);
    madvise(address, size_bytes, MADV_DONTDUMP);
    /* Pages of 4 KiB come and go one by one; EINVAL where the kernel has no huge pages. */
    madvise(address, size_bytes, MADV_NOHUGEPAGE);
}

static bool overcommit_is_strict(void)
{
    char value = '0';
    int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    if (read(fd, &value, 1) != 1)
        value = '0';
    close(fd);
    return value == '2';
}

static int refuse_memory(uint64_t size_bytes)
{
    const char *cause = "the kernel has no memory for it";
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        cause = "the limit on address space (RLIMIT_AS, ulimit -v) is too small";
    else if (getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        cause = "the limit on data (RLIMIT_DATA, ulimit -d) is too small";
    else if (overcommit_is_strict())
        cause = "vm.overcommit_memory is 2, which charges reservations; set it to 0 or 1";
    return error_set(-ENOMEM, "reserve a window of %llu MiB: %s", (unsigned long long)(size_bytes >> 20), cause);
}

static int map_half(uint64_t base, uint64_t size_bytes, int flags, int fd)
{
    void *wanted = (void *)(uintptr_t)base;
    void *got;
    char occupant[200];

    if (size_bytes == 0)
        return 0;
    got = mmap(wanted, size_bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE | MAP_FIXED_NOREPLACE, fd, 0);
    if (got == wanted)
        return 0;
    if (got != MAP_FAILED)
        munmap(got, size_bytes); /* before 4.17 the flag is only a hint */
    else if (errno == ENOMEM)
        return refuse_memory(size_bytes);
    else if (errno != EEXIST)
        return error_set(-errno, "map 0x%llx-0x%llx: %s", (unsigned long long)base,
                         (unsigned long long)(base + size_bytes), strerror(errno));
    describe_occupant(base, base + size_bytes, occupant, sizeof(occupant));
    return error_set(-EADDRINUSE, "the window 0x%llx-0x%llx is taken by %s", (unsigned long long)base,
                     (unsigned long long)(base + size_bytes), occupant);
}

static bool window_is_valid(uint64_t base, uint64_t shared_bytes, uint64_t private_bytes)
{
    return base != 0 && ((base | shared_bytes | private_bytes) & (EXTENT_BYTES - 1)) == 0 && base < ADDRESS_END &&
           shared_bytes <= ADDRESS_END - base && private_bytes <= ADDRESS_END - base - shared_bytes &&
           shared_bytes + private_bytes > 0;
}

int mmu_window_reserve(uint64_t base, uint64_t shared_bytes, uint64_t private_bytes, struct mmu_window *ret_window)
{
    struct mmu_window window = {
        .base = base, .shared_bytes = shared_bytes, .private_bytes = private_bytes, .pagemap_fd = -1};
    void *shared = (void *)(uintptr_t)base;
    void *private = (void *)(uintptr_t)(base + shared_bytes);
    int error;

    if (!window_is_valid(base, shared_bytes, private_bytes))
        return error_set(-EINVAL, "a window of %llu + %llu bytes at 0x%llx: not whole extents of 2 MiB below 0x%llx",
                         (unsigned long long)shared_bytes, (unsigned long long)private_bytes, (unsigned long long)base,
                         (unsigned long long)ADDRESS_END);
    error = memfd_open("tiermesh", shared_bytes, &window.memfd);
    if (error != 0)
        return error;
    error = map_half(base, shared_bytes, MAP_SHARED, window.memfd);
    if (error != 0)
        goto close_memfd;
    error = map_half(base + shared_bytes, private_bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (error != 0)
        goto unmap_shared;
    if (shared_bytes > 0)
        shared_advise(shared, shared_bytes);
    if (private_bytes > 0)
        madvise(private, private_bytes, MADV_DONTDUMP);
    mmu_window_look(&window);
    *ret_window = window;
    return 0;
unmap_shared:
    if (shared_bytes > 0)
        munmap(shared, shared_bytes);
close_memfd:
    os_descriptor_close(window.memfd);
    return error;
}

/* The thread sanitizer ends the process when a mapping outside its range is asked for. */
#if defined(__SANITIZE_THREAD__)
#define SANITIZER_END 0x8000000000U
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZER_END 0x8000000000U
#endif
#endif
#ifndef SANITIZER_END
#define SANITIZER_END UINT64_MAX
#endif

bool mmu_window_is_free(uint64_t base, uint64_t size_bytes)
{
    void *wanted = (void *)(uintptr_t)base;
    void *got;

    if (!window_is_valid(base, size_bytes, 0) || base + size_bytes > SANITIZER_END)
        return false;
    got = mmap(wanted, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED)
        return false;
    munmap(got, size_bytes);
    return got == wanted;
}

void mmu_window_release(struct mmu_window *window)
{
    munmap((void *)(uintptr_t)window->base, window->shared_bytes + window->private_bytes);
    os_descriptor_close(window->memfd);
    if (window->pagemap_fd >= 0)
        os_descriptor_close(window->pagemap_fd);
    *window = (struct mmu_window){.memfd = -1, .pagemap_fd = -1};
}

/* ---- bytes of shared pages ------------------------------------------------------------------------------------- */

static bool shared_range_is_valid(const struct mmu_window *window, struct page_id page, size_t offset_bytes,
                                  size_t size_bytes)
{
    uint64_t pages = window->shared_bytes >> PAGE_SHIFT;

    return page.index < pages && offset_bytes <= window->shared_bytes - (page.index << PAGE_SHIFT) &&
           size_bytes <= window->shared_bytes - (page.index << PAGE_SHIFT) - offset_bytes;
}

int mmu_shared_read(const struct mmu_window *window, struct page_id page, size_t offset_bytes, void *bytes,
                    size_t size_bytes)
{
    uint64_t offset = (page.index << PAGE_SHIFT) + offset_bytes;
    uint8_t *next = bytes;

    ASSERT(shared_range_is_valid(window, page, offset_bytes, size_bytes));
    while (size_bytes > 0) {
        ssize_t got = pread(window->memfd, next, size_bytes, (off_t)offset);

        if (got <= 0)
            return error_set(-EIO, "read page 0x%llx of the shared half: %s", (unsigned long long)page.index,
                             got < 0 ? strerror(errno) : "end of file");
        next += got;
        offset += (uint64_t)got;
        size_bytes -= (size_t)got;
    }
    return 0;
}

int mmu_shared_write(const struct mmu_window *window, struct page_id page, size_t offset_bytes, const void *bytes,
                     size_t size_bytes)
{
    uint64_t offset = (page.index << PAGE_SHIFT) + offset_bytes;
    const uint8_t *next = bytes;

    ASSERT(shared_range_is_valid(window, page, offset_bytes, size_bytes));
    while (size_bytes > 0) {
        ssize_t put = pwrite(window->memfd, next, size_bytes, (off_t)offset);

        if (put <= 0)
            return error_set(-EIO, "write page 0x%llx of the shared half: %s", (unsigned long long)page.index,
                             put < 0 ? strerror(errno) : "nothing written");
        next += put;
        offset += (uint64_t)put;
        size_bytes -= (size_t)put;
    }
    return 0;
}
