/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pagemap.c - what the kernel knows of this process's pages (Documentation/admin-guide/mm/pagemap.rst).
 *
 * The file is opened early and stays open: who changes its user (setuid) may not open it afterwards, since the file of
 * a process that is not dumpable belongs to root.
 */
#include "base/error.h"
#include "base/os.h"
#include "mmu/uffd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void mmu_window_look(struct mmu_window *window)
{
    if (window->pagemap_fd >= 0)
        os_descriptor_close(window->pagemap_fd);
    window->pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (window->pagemap_fd >= 0)
        window->pagemap_fd = os_descriptor_own(window->pagemap_fd);
}

int pagemap_read(const struct mmu_window *window, const void *address, unsigned pages_count, uint64_t *ret_words)
{
    size_t size = pages_count * sizeof(*ret_words);
    off_t offset = (off_t)(((uintptr_t)address >> PAGE_SHIFT) * sizeof(*ret_words));
    ssize_t got;

    if (window->pagemap_fd < 0)
        return error_set(-EACCES, "/proc/self/pagemap could not be opened: no /proc, or a process that has changed its "
                         "user");
    got = pread(window->pagemap_fd, ret_words, size, offset);
    if (got != (ssize_t)size)
        return error_set(got < 0 ? -errno : -EIO, "read /proc/self/pagemap at %p: %s", address,
                         got < 0 ? strerror(errno) : "short read");
    return 0;
}

int mmu_present(const struct mmu_window *window, struct page_id first, unsigned pages_count, bool *ret_present)
{
    const uint8_t *address = mmu_page_address(window, first);
    uint64_t words[128];

    for (unsigned done = 0; done < pages_count; done += ARRAY_COUNT(words)) {
        unsigned left = pages_count - done;
        unsigned count = left < ARRAY_COUNT(words) ? left : (unsigned)ARRAY_COUNT(words);
        int error = pagemap_read(window, address + ((size_t)done << PAGE_SHIFT), count, words);

        if (error != 0)
            return error;
        for (unsigned i = 0; i < count; i++)
            ret_present[done + i] = (words[i] & (PAGEMAP_PRESENT | PAGEMAP_SWAP)) != 0;
    }
    return 0;
}

int mmu_populate(const struct mmu_window *window, struct page_id first, unsigned pages_count)
{
    void *address = mmu_page_address(window, first);

    if (madvise(address, (size_t)pages_count << PAGE_SHIFT, MADV_POPULATE_READ) == 0)
        return 0;
    return error_set(-errno, "populate %u pages at %p: %s", pages_count, address, strerror(errno));
}
