/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uffd.h - struct mmu and the steps that the files of this folder share. Not for other folders.
 */
#ifndef TIERMESH_MMU_UFFD_H
#define TIERMESH_MMU_UFFD_H

#include "base/assert.h"
#include "mmu/guard.h"
#include "mmu/mmu.h"

#define STAGINGS_MAX 8
#define ZEROES_PAGES 64U
#define STUCK_MAX    256U
#define REMAPPED_MAX 65536U /* more pages than vm.max_map_count leaves room for by default */

struct staging {
    void *memory;
    size_t size_bytes;
};

/* An extent with a huge page that cannot be split now: its pages are not moved until then. */
struct stuck {
    uint64_t extent; /* its number + 1; 0: none */
    uint64_t until_ns, wait_ns;
};

/* All fields are the shard's thread's. */
struct mmu {
    struct mmu_window window;
    struct mmu_features features;
    int fd;
    int sigbus_fd;      /* a sealed, empty memfd: a touch of any mapping of it raises SIGBUS */
    const void *zeroes; /* ZEROES_PAGES pages, read-only: the kernel's zero page, costs no memory */
    struct staging stagings[STAGINGS_MAX];
    unsigned stagings_count;

    /* Pages that mmu_poison() replaced by a mapping of sigbus_fd, in no order; page indexes. */
    uint64_t *remapped;
    size_t remapped_count;

    struct guard guard;
    struct stuck stuck[STUCK_MAX]; /* by the extent's number */

    bool has_marked_poison; /* UFFDIO_POISON was used: freeing has to clear its marks */
};

/* features.c: a userfaultfd without its UFFDIO_API handshake. -errno with a sentence. */
int uffd_descriptor_open(int device, const char **ret_source) MUST_USE;

/* features.c: os_descriptor_own(). */
int descriptor_raise(int fd);

/* window.c: a sealed memfd of size_bytes, close-on-exec. -errno with a sentence. */
int memfd_open(const char *name, uint64_t size_bytes, int *ret_fd) MUST_USE;

/* uffd.c: register a range in one call; -errno with a sentence. Private: kept from children and huge pages too. */
int uffd_register_shared(const struct mmu *mmu, uint64_t address, size_t size_bytes) MUST_USE;
int uffd_register_private(const struct mmu *mmu, uint64_t address, size_t size_bytes) MUST_USE;

/* window.c: what each mapping of the shared half needs besides mmap(). */
void shared_advise(void *address, size_t size_bytes);

/* pagemap.c: words of a run. 0, -EACCES (it may not be read), or -errno, with a sentence. */
#define PAGEMAP_PRESENT   (UINT64_C(1) << 63)
#define PAGEMAP_SWAP      (UINT64_C(1) << 62) /* a page in swap, or a marker: protected or poisoned */
#define PAGEMAP_PROTECTED (UINT64_C(1) << 57)
#define PAGEMAP_ALONE     (UINT64_C(1) << 56) /* mapped once: not shared by fork */
int pagemap_read(const struct mmu_window *window, const void *address, unsigned pages_count,
                 uint64_t *ret_words) MUST_USE;

/* poison.c: pages of the run that were remapped become ordinary absent pages again. */
int poison_lift(struct mmu *mmu, struct page_id first, uint64_t pages_count) MUST_USE;

static inline uint64_t run_address(const struct mmu *mmu, struct page_id first)
{
    return (uint64_t)(uintptr_t)mmu_page_address(&mmu->window, first);
}

static inline size_t run_bytes(uint64_t pages_count)
{
    return (size_t)pages_count << PAGE_SHIFT;
}

/* A run lies in one half of the window: mixing them is our bug. */
static inline bool run_is_shared(const struct mmu *mmu, struct page_id first, uint64_t pages_count)
{
    uint64_t shared_pages = mmu->window.shared_bytes >> PAGE_SHIFT;
    uint64_t all_pages = shared_pages + (mmu->window.private_bytes >> PAGE_SHIFT);

    ASSERT(pages_count > 0 && pages_count <= all_pages && first.index <= all_pages - pages_count);
    ASSERT(first.index >= shared_pages || first.index + pages_count <= shared_pages);
    return first.index < shared_pages;
}

#endif
