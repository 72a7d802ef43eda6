/* SPDX-License-Identifier: Apache-2.0 */
/*
 * private.c - taking private pages out of the application's sight, into staging memory of the shard.
 *
 * By UFFDIO_MOVE the page itself changes its address: atomic against every store, and the kernel refuses pages that
 * are pinned or shared by fork (EBUSY), and all pages of a huge page that is partly pinned (guard.h). The destination
 * of a MOVE must be registered with the same descriptor, so staging is, and only pages that were moved there may be
 * touched.
 *
 * Without MOVE, and where it refuses a page that is shared by fork: protect, copy, drop. A store between is held as a
 * WP fault; it finds the page absent when it is woken.
 * A transfer by a device into a pinned page raises no fault, so it is lost there, and nothing tells an unprivileged
 * process whether a page is pinned: without MOVE the caller must keep pinned pages out of the run.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "mmu/uapi.h"
#include "mmu/uffd.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

/* Pages that are looked at together when MOVE refuses one. */
#define REFUSED_MAX      64U

#define MOVE_TRIES       10000U /* in a row that come to nothing */
#define STUCK_NS         UINT64_C(200000000)
#define STUCK_LONGEST_NS UINT64_C(60000000000)

static int refuse_out(struct page_id page, int error)
{
    switch (error) {
    case EBUSY:
    case EINVAL:
        return error_set(-EBUSY, "page 0x%llx is pinned or locked", (unsigned long long)page.index);
    case ENOENT:
        return error_set(-ENOENT, "page 0x%llx is not there", (unsigned long long)page.index);
    default:
        return error_set(-error, "take out page 0x%llx: %s", (unsigned long long)page.index, strerror(error));
    }
}

/* ---- extents whose pages do not come out ------------------------------------------------------------------------- */

static struct stuck *stuck_place(struct mmu *mmu, struct page_id page)
{
    return &mmu->stuck[page.index / EXTENT_PAGES % STUCK_MAX];
}

static bool extent_is_stuck(struct mmu *mmu, struct page_id page)
{
    const struct stuck *stuck = stuck_place(mmu, page);

    return stuck->extent == page.index / EXTENT_PAGES + 1 && os_now_ns() < stuck->until_ns;
}

/* Each attempt takes the time of the guard: the more there were, the later is the next. */
static void extent_set_stuck(struct mmu *mmu, struct page_id page)
{
    struct stuck *stuck = stuck_place(mmu, page);
    uint64_t extent = page.index / EXTENT_PAGES + 1;
    uint64_t now_ns = os_now_ns();
    bool is_again = stuck->extent == extent && now_ns < stuck->until_ns + stuck->wait_ns;
    uint64_t wait_ns = is_again ? 2 * stuck->wait_ns : STUCK_NS;

    log_info("pages of the huge page around 0x%llx stay: one of them is pinned", (unsigned long long)page.index);
    wait_ns = wait_ns < STUCK_LONGEST_NS ? wait_ns : STUCK_LONGEST_NS;
    *stuck = (struct stuck){.extent = extent, .until_ns = now_ns + wait_ns, .wait_ns = wait_ns};
}

/* ---- by UFFDIO_MOVE --------------------------------------------------------------------------------------------- */

/* One call: pages that it moved are added to `done`. 0, or an errno: EDEADLK when the call had to be ended. */
static int move_once(struct mmu *mmu, uint64_t source, uint64_t destination, uint64_t size, uint64_t *done)
{
    struct uffdio_move move = {
        .dst = destination + *done,
        .src = source + *done,
        .len = size - *done,
        .mode = UFFDIO_MOVE_MODE_DONTWAKE,
    };
    int error = 0;

    guard_enter(&mmu->guard, mmu->fd, move.dst, (unsigned)(move.len >> PAGE_SHIFT));
    if (ioctl(mmu->fd, UFFDIO_MOVE, &move) != 0)
        error = errno;
    if (move.move > 0)
        *done += (uint64_t)move.move;
    return guard_leave(&mmu->guard) ? EDEADLK : error;
}

/* Moves what the kernel will move. Returns how many pages, and in ret_error what is with the next one (an errno). */
static unsigned move_out(struct mmu *mmu, struct page_id first, unsigned pages_count, void *staging, int *ret_error)
{
    uint64_t size = run_bytes(pages_count);
    uint64_t done = 0;
    unsigned vain = 0;

    *ret_error = extent_is_stuck(mmu, first) ? EBUSY : 0;
    while (done < size && *ret_error == 0) {
        uint64_t before = done;

        *ret_error = move_once(mmu, run_address(mmu, first), (uint64_t)(uintptr_t)staging, size, &done);
        vain = done > before ? 0 : vain + 1;
        if (*ret_error == EAGAIN && vain < MOVE_TRIES) {
            *ret_error = 0;
            sched_yield();
        }
    }
    if (done == size)
        *ret_error = 0;
    if (*ret_error == EDEADLK || *ret_error == EAGAIN) {
        unsigned moved = (unsigned)(done >> PAGE_SHIFT);

        mmu_staging_clear(mmu, staging, moved, pages_count - moved);
        extent_set_stuck(mmu, page_of(first.index + moved));
        *ret_error = EBUSY;
    }
    return (unsigned)(done >> PAGE_SHIFT);
}

/* Pages from the start of the run that can be read without a fault: the shard cannot answer its own. */
static int count_present(struct mmu *mmu, struct page_id first, unsigned pages_count, unsigned *ret_count)
{
    unsigned count = 0;
    bool present[EXTENT_PAGES];
    int error;

    if (pages_count > EXTENT_PAGES)
        pages_count = EXTENT_PAGES;
    error = mmu_present(&mmu->window, first, pages_count, present);
    if (error != 0)
        return error;
    while (count < pages_count && present[count])
        count++;
    *ret_count = count;
    return 0;
}

/* Like a debugger: also what the program may not read itself (PROT_NONE). */
static int read_forced(const struct mmu *mmu, struct page_id first, unsigned pages_count, void *bytes)
{
    off_t address = (off_t)run_address(mmu, first);
    int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    ssize_t got;

    if (fd < 0)
        return error_set(-errno, "open /proc/self/mem: %s", strerror(errno));
    got = pread(fd, bytes, run_bytes(pages_count), address);
    close(fd);
    return got == (ssize_t)run_bytes(pages_count) ? 0 : refuse_out(first, EBUSY);
}

static int read_out(const struct mmu *mmu, struct page_id first, unsigned pages_count, void *bytes)
{
    struct iovec to = {bytes, run_bytes(pages_count)};
    struct iovec from = {mmu_page_address(&mmu->window, first), run_bytes(pages_count)};

    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)run_bytes(pages_count))
        return 0;
    return read_forced(mmu, first, pages_count, bytes);
}

/*
 * Staging that MOVE fills is registered: storing there would fault on ourselves. Returns how many pages were copied,
 * and in ret_error why not more (an errno; EFAULT: the program may not read the next one).
 */
static unsigned stage(struct mmu *mmu, void *staging, const void *bytes, unsigned pages_count, int *ret_error)
{
    uint64_t size = run_bytes(pages_count);
    uint64_t done = 0;

    *ret_error = 0;
    while (done < size && *ret_error == 0) {
        struct uffdio_copy copy = {
            .dst = (uint64_t)(uintptr_t)staging + done,
            .src = (uint64_t)(uintptr_t)bytes + done,
            .len = size - done,
            .mode = UFFDIO_COPY_MODE_DONTWAKE,
        };

        if (ioctl(mmu->fd, UFFDIO_COPY, &copy) != 0 && errno != EAGAIN)
            *ret_error = errno;
        if (copy.copy > 0)
            done += (uint64_t)copy.copy;
    }
    return (unsigned)(done >> PAGE_SHIFT);
}

/* One page that the program may not read, by way of our own memory. */
static int stage_forced(struct mmu *mmu, struct page_id page, void *staging)
{
    uint8_t bytes[PAGE_BYTES];
    int error = read_forced(mmu, page, 1, bytes);

    if (error == 0 && stage(mmu, staging, bytes, 1, &error) != 1)
        error = error_set(-error, "copy into staging: %s", strerror(error));
    return error;
}

static int copy_out(struct mmu *mmu, struct page_id first, unsigned pages_count, void *staging)
{
    unsigned done = 0;
    int error = 0;

    if (!mmu->features.has_move)
        return read_out(mmu, first, pages_count, staging);
    while (done < pages_count && error == 0) {
        struct page_id next = page_of(first.index + done);
        uint8_t *to = (uint8_t *)staging + run_bytes(done);
        unsigned copied = stage(mmu, to, mmu_page_address(&mmu->window, next), pages_count - done, &error);

        done += copied;
        if (error == EFAULT) {
            error = stage_forced(mmu, page_of(first.index + done), (uint8_t *)staging + run_bytes(done));
            done += error == 0;
        } else if (error != 0) {
            error = error_set(-error, "copy into staging: %s", strerror(error));
        }
    }
    if (error != 0)
        mmu_staging_clear(mmu, staging, 0, pages_count);
    return error;
}

/* Of pages that are protected: a store meanwhile is held until they are gone. */
static int copy_protected(struct mmu *mmu, struct page_id first, unsigned pages_count, void *staging)
{
    int error = copy_out(mmu, first, pages_count, staging);

    if (error == 0 && madvise(mmu_page_address(&mmu->window, first), run_bytes(pages_count), MADV_DONTNEED) != 0) {
        error = refuse_out(first, errno); /* locked by the program */
        mmu_staging_clear(mmu, staging, 0, pages_count);
    }
    return error;
}

static int copy_piece(struct mmu *mmu, struct page_id first, unsigned pages_count, void *staging)
{
    int error = mmu_protect(mmu, first, pages_count, false);

    if (error == 0)
        error = copy_protected(mmu, first, pages_count, staging);
    if (error != 0 && mmu_protect(mmu, first, pages_count, true) != 0)
        NEVER("what was protected can be made writable again");
    return error;
}

static int take_out_by_copy(struct mmu *mmu, struct page_id first, unsigned pages_count, void *staging,
                            unsigned *ret_moved)
{
    unsigned done = 0;
    int error = 0;

    while (done < pages_count && error == 0) {
        struct page_id next = page_of(first.index + done);
        unsigned count;

        error = count_present(mmu, next, pages_count - done, &count);
        if (error == 0 && count == 0)
            error = refuse_out(next, ENOENT);
        if (error == 0)
            error = copy_piece(mmu, next, count, (uint8_t *)staging + run_bytes(done));
        if (error == 0)
            done += count;
    }
    *ret_moved = done;
    return error;
}

enum refused {
    REFUSED_ABSENT,
    REFUSED_PROTECTED,
    REFUSED_SHARED, /* by fork */
    REFUSED_ALONE,
};

static enum refused refused_of(uint64_t word)
{
    if ((word & PAGEMAP_PRESENT) == 0)
        return REFUSED_ABSENT;
    if ((word & PAGEMAP_PROTECTED) != 0)
        return REFUSED_PROTECTED;
    return (word & PAGEMAP_ALONE) == 0 ? REFUSED_SHARED : REFUSED_ALONE;
}

/* Made this process's own by a write fault, which never waits for us: the pages are there. */
static unsigned take_out_alone(struct mmu *mmu, struct page_id first, unsigned pages_count, void *staging,
                               int *ret_error)
{
    *ret_error = EBUSY;
    if (madvise(mmu_page_address(&mmu->window, first), run_bytes(pages_count), MADV_POPULATE_WRITE) != 0)
        return 0;
    return move_out(mmu, first, pages_count, staging, ret_error);
}

/*
 * What MOVE refuses with EBUSY is pinned, shared by fork, or was shared until a moment ago. A page that is mapped twice
 * cannot be pinned for writing: pinning would have given the pinner its own copy (Linux 5.19, FAULT_FLAG_UNSHARE). A
 * protected one is copied: whoever pins a page to store there unprotects it first, and no store comes in between. It
 * stays protected if it cannot go. Takes what is alike at the start of the run. Returns how many pages went.
 */
static unsigned take_out_refused(struct mmu *mmu, struct page_id first, unsigned pages_count, void *staging,
                                 int *ret_error)
{
    uint64_t words[REFUSED_MAX];
    unsigned count = 1;
    unsigned limit = pages_count < REFUSED_MAX ? pages_count : REFUSED_MAX;
    enum refused kind;
    int error = pagemap_read(&mmu->window, mmu_page_address(&mmu->window, first), limit, words);

    /* Who may not look protects nothing (mmu.h), so a write fault cannot wait for us. Refused again: it is pinned. */
    if (error == -EACCES) {
        words[0] = PAGEMAP_PRESENT | PAGEMAP_ALONE;
        limit = 1;
        error = 0;
    }
    if (error == 0) {
        kind = refused_of(words[0]);
        while (count < limit && refused_of(words[count]) == kind)
            count++;
        if (kind == REFUSED_ALONE) {
            unsigned moved = take_out_alone(mmu, first, count, staging, &error);

            *ret_error = moved > 0 ? 0 : refuse_out(first, error);
            return moved;
        }
        if (kind == REFUSED_ABSENT)
            error = refuse_out(first, ENOENT);
        else if (kind == REFUSED_PROTECTED)
            error = copy_protected(mmu, first, count, staging);
        else
            error = copy_piece(mmu, first, count, staging);
    }
    *ret_error = error;
    return error == 0 ? count : 0;
}

static int take_out_by_move(struct mmu *mmu, struct page_id first, unsigned pages_count, void *staging,
                            unsigned *ret_moved)
{
    unsigned done = 0;
    int error = 0;

    while (done < pages_count && error == 0) {
        struct page_id next = page_of(first.index + done);
        uint8_t *to = (uint8_t *)staging + run_bytes(done);
        unsigned moved = move_out(mmu, next, pages_count - done, to, &error);

        done += moved;
        if (moved > 0 || error == 0) {
            error = 0;
            continue; /* look at the page that was refused alone */
        }
        if (error == EBUSY) {
            done += take_out_refused(mmu, next, pages_count - done, to, &error);
            continue;
        }
        if (error == EINVAL)
            error = copy_piece(mmu, next, 1, to); /* not writable by the program: MOVE wants equal mappings */
        else
            error = refuse_out(next, error);
        if (error == 0)
            done++;
    }
    *ret_moved = done;
    return error;
}

int mmu_take_out(struct mmu *mmu, struct page_id first, unsigned pages_count, void *staging, unsigned *ret_moved)
{
    ASSERT(!run_is_shared(mmu, first, pages_count));
    if (mmu->features.has_move)
        return take_out_by_move(mmu, first, pages_count, staging, ret_moved);
    return take_out_by_copy(mmu, first, pages_count, staging, ret_moved);
}

int mmu_put_back(struct mmu *mmu, struct page_id page, void *staging)
{
    struct uffdio_move move = {
        .dst = run_address(mmu, page),
        .src = (uint64_t)(uintptr_t)staging,
        .len = PAGE_BYTES,
    };

    ASSERT(mmu->features.has_move);
    while (ioctl(mmu->fd, UFFDIO_MOVE, &move) != 0) {
        if (errno == EBUSY || errno == EINVAL) { /* shared by fork, or the program may not write there now */
            int error = mmu_copy(mmu, page, 1, staging, true);

            if (error == 0)
                mmu_staging_clear(mmu, staging, 0, 1);
            return error;
        }
        if (errno != EAGAIN)
            return error_set(-errno, "put page 0x%llx back: %s", (unsigned long long)page.index, strerror(errno));
        move.move = 0;
    }
    return 0;
}

/* ---- staging -------------------------------------------------------------------------------------------------------
 */

/* Aligned to an extent, so that a huge page can be moved whole: one end of the surplus is given back. */
static void *map_aligned(size_t size_bytes)
{
    uint8_t *memory = mmap(NULL, size_bytes + EXTENT_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before;

    if (memory == MAP_FAILED)
        return NULL;
    before = (EXTENT_BYTES - ((uintptr_t)memory & (EXTENT_BYTES - 1))) & (EXTENT_BYTES - 1);
    if (before > 0)
        munmap(memory, before);
    if (before < EXTENT_BYTES)
        munmap(memory + before + size_bytes, EXTENT_BYTES - before);
    return memory + before;
}

int mmu_staging_create(struct mmu *mmu, unsigned pages_count, void **ret_staging)
{
    size_t size = run_bytes(pages_count);
    void *memory;
    int error = 0;

    ASSERT(pages_count > 0 && mmu->stagings_count < STAGINGS_MAX);
    memory = map_aligned(size);
    if (memory == NULL)
        return error_set(-ENOMEM, "map %u pages of staging: %s", pages_count, strerror(errno));
    madvise(memory, size, MADV_DONTDUMP);
    if (mmu->features.has_move)
        error = uffd_register_private(mmu, (uint64_t)(uintptr_t)memory, size);
    else if (!mmu->window.is_inherited && madvise(memory, size, MADV_DONTFORK) != 0)
        error = error_set(-errno, "keep staging from children: %s", strerror(errno));
    if (error != 0) {
        munmap(memory, size);
        return error;
    }
    mmu->stagings[mmu->stagings_count++] = (struct staging){memory, size};
    *ret_staging = memory;
    return 0;
}

void mmu_staging_limit(struct mmu *mmu, void *staging, unsigned pages_count)
{
    struct staging *found = mmu->stagings;

    while (found->memory != staging)
        found++;
    ASSERT(found < mmu->stagings + mmu->stagings_count && run_bytes(pages_count) <= found->size_bytes);
    if (run_bytes(pages_count) == found->size_bytes)
        return;
    munmap((uint8_t *)staging + run_bytes(pages_count), found->size_bytes - run_bytes(pages_count));
    found->size_bytes = run_bytes(pages_count);
}

void mmu_staging_clear(struct mmu *mmu, void *staging, unsigned first, unsigned pages_count)
{
    int result = 0;

    if (mmu->features.has_move && pages_count > 0)
        result = madvise((uint8_t *)staging + run_bytes(first), run_bytes(pages_count), MADV_DONTNEED);
    ASSERT(result == 0); /* else the next move there would find it occupied */
}

int mmu_staging_fill(struct mmu *mmu, void *staging, const void *bytes, unsigned pages_count)
{
    unsigned done = 0;
    int error = 0;

    ASSERT(mmu->features.has_move);
    while (done < pages_count && error == 0)
        done += stage(mmu, (uint8_t *)staging + run_bytes(done), (const uint8_t *)bytes + run_bytes(done),
                      pages_count - done, &error);
    if (done == pages_count)
        return 0;
    mmu_staging_clear(mmu, staging, 0, pages_count);
    return error_set(-error, "fill %u pages of staging: %s", pages_count, strerror(error));
}
