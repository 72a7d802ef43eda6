/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.c - filling, mapping, protecting and unmapping runs of pages. One system call a run, unless pages of it are in
 * another state than the rest. Runs on the shard's thread.
 *
 * Page-table facts this file lives with (each has a test in tests/unit/mmu):
 *   - the kernel stops at a page that is there (EEXIST) and wakes nobody for it: wake it here, go on behind it;
 *   - a shared page that was write-protected when it was zapped leaves a mark in the page table. COPY and CONTINUE
 *     overwrite the mark (and its protection), POISON does not;
 *   - EEXIST on a shared page says that the memfd has it, not that it is mapped.
 */
#include "base/error.h"
#include "mmu/uapi.h"
#include "mmu/uffd.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

/* What is left of a run. */
struct run {
    struct mmu *mmu;
    uint64_t address;
    size_t size_bytes;
    const uint8_t *bytes; /* for copies; NULL otherwise */
    bool writable;
    const char *verb; /* for the sentence */
};

static struct page_id run_page(const struct run *run)
{
    return mmu_page_at(&run->mmu->window, (const void *)(uintptr_t)run->address);
}

static void run_advance(struct run *run, size_t size_bytes)
{
    run->address += size_bytes;
    run->size_bytes -= size_bytes;
    if (run->bytes != NULL)
        run->bytes += size_bytes;
}

static int run_fail(const struct run *run, int error)
{
    return error_set(error, "%s page 0x%llx: %s", run->verb, (unsigned long long)run_page(run).index, strerror(-error));
}

static void wake(struct mmu *mmu, uint64_t address, size_t size_bytes)
{
    struct uffdio_range range = {address, size_bytes};

    ioctl(mmu->fd, UFFDIO_WAKE, &range);
}

/*
 * Repeats `step` until the run is done. A step returns the bytes it did, or -errno; `occupied` decides about one page
 * where the kernel said EEXIST.
 */
static int run_all(struct run *run, int64_t (*step)(const struct run *run), int (*occupied)(const struct run *run))
{
    while (run->size_bytes > 0) {
        int64_t done = step(run);

        if (done == -EAGAIN) {
            sched_yield();
            continue;
        }
        if (done == -EEXIST) {
            int error = occupied(run);

            if (error != 0)
                return run_fail(run, error);
            done = (int64_t)PAGE_BYTES;
        }
        if (done < 0)
            return run_fail(run, (int)done);
        run_advance(run, (size_t)done);
    }
    return 0;
}

/* The kernel says -1 and EAGAIN when it did a part; `done` is then positive. */
static int64_t step_result(int result, int64_t done)
{
    if (result == 0 || (errno == EAGAIN && done > 0))
        return done;
    return -errno;
}

static int64_t copy_step(const struct run *run)
{
    struct uffdio_copy copy = {
        .dst = run->address,
        .src = (uint64_t)(uintptr_t)run->bytes,
        .len = run->size_bytes,
        .mode = run->writable ? 0 : UFFDIO_COPY_MODE_WP,
    };
    int result = ioctl(run->mmu->fd, UFFDIO_COPY, &copy);

    return step_result(result, copy.copy);
}

static int64_t continue_step(const struct run *run)
{
    struct uffdio_continue map = {
        .range = {run->address, run->size_bytes},
        .mode = run->writable ? 0 : UFFDIO_CONTINUE_MODE_WP,
    };
    int result = ioctl(run->mmu->fd, UFFDIO_CONTINUE, &map);

    return step_result(result, map.mapped);
}

static int wake_one(const struct run *run)
{
    wake(run->mmu, run->address, PAGE_BYTES);
    return 0;
}

/*
 * Where the kernel cannot map a memfd page protected in one step (before 6.4): protecting after mapping would let a
 * store through in between. So take the page out of the memfd and copy it in again; nobody else reaches an unmapped
 * one.
 */
static int64_t continue_by_copy_step(const struct run *run)
{
    uint8_t page[PAGE_BYTES];
    struct run one = {.mmu = run->mmu, .address = run->address, .size_bytes = PAGE_BYTES, .bytes = page};
    uint64_t word;
    int64_t done;
    int error = pagemap_read(&run->mmu->window, (const void *)(uintptr_t)run->address, 1, &word);

    if (error == 0 && word & PAGEMAP_PRESENT)
        return -EEXIST;
    if (error == 0)
        error = mmu_shared_read(&run->mmu->window, run_page(run), 0, page, PAGE_BYTES);
    if (error != 0)
        return error;
    if (madvise((void *)(uintptr_t)run->address, PAGE_BYTES, MADV_REMOVE) != 0)
        return -errno;
    done = copy_step(&one);
    if (done < 0 && mmu_shared_write(&run->mmu->window, run_page(run), 0, page, PAGE_BYTES) != 0)
        return -EIO;
    return done;
}

static int continue_run(struct run *run)
{
    bool by_copy = !run->writable && !run->mmu->features.has_continue_wp;

    return run_all(run, by_copy ? continue_by_copy_step : continue_step, wake_one);
}

/*
 * A shared page whose bytes are in the memfd although it is not mapped: they are older than the caller's, who asked for
 * these in an absent place. Mapped pages are left alone: the application may have stored into them.
 */
static int copy_occupied(const struct run *run)
{
    struct run one = *run;
    struct page_id page = run_page(run);
    uint64_t word;
    int error;

    if (!mmu_page_is_shared(&run->mmu->window, page))
        return wake_one(run);
    error = pagemap_read(&run->mmu->window, (const void *)(uintptr_t)run->address, 1, &word);
    if (error != 0)
        return error;
    if (word & PAGEMAP_PRESENT)
        return wake_one(run);
    error = mmu_shared_write(&run->mmu->window, page, 0, run->bytes, PAGE_BYTES);
    if (error != 0)
        return error;
    one.size_bytes = PAGE_BYTES;
    one.bytes = NULL;
    return continue_run(&one);
}

int mmu_copy(struct mmu *mmu, struct page_id first, unsigned pages_count, const void *bytes, bool writable)
{
    struct run run = {
        .mmu = mmu,
        .address = run_address(mmu, first),
        .size_bytes = run_bytes(pages_count),
        .bytes = bytes,
        .writable = writable,
        .verb = "fill",
    };

    (void)run_is_shared(mmu, first, pages_count);
    return run_all(&run, copy_step, copy_occupied);
}

int mmu_zero(struct mmu *mmu, struct page_id first, unsigned pages_count, bool writable)
{
    for (unsigned done = 0; done < pages_count; done += ZEROES_PAGES) {
        unsigned left = pages_count - done;
        int error = mmu_copy(mmu, page_of(first.index + done), left < ZEROES_PAGES ? left : ZEROES_PAGES, mmu->zeroes,
                             writable);

        if (error != 0)
            return error;
    }
    return 0;
}

int mmu_continue(struct mmu *mmu, struct page_id first, unsigned pages_count, bool writable)
{
    struct run run = {
        .mmu = mmu,
        .address = run_address(mmu, first),
        .size_bytes = run_bytes(pages_count),
        .writable = writable,
        .verb = "map",
    };

    ASSERT(run_is_shared(mmu, first, pages_count));
    return continue_run(&run);
}

int mmu_protect(struct mmu *mmu, struct page_id first, unsigned pages_count, bool writable)
{
    struct uffdio_writeprotect protect = {
        .range = {run_address(mmu, first), run_bytes(pages_count)},
        .mode = writable ? 0 : UFFDIO_WRITEPROTECT_MODE_WP,
    };

    (void)run_is_shared(mmu, first, pages_count);
    while (ioctl(mmu->fd, UFFDIO_WRITEPROTECT, &protect) != 0) {
        if (errno != EAGAIN)
            return error_set(-errno, "%s page 0x%llx: %s", writable ? "unprotect" : "protect",
                             (unsigned long long)first.index, strerror(errno));
        sched_yield();
    }
    return 0;
}

static int advise(struct mmu *mmu, struct page_id first, unsigned pages_count, int advice, const char *verb)
{
    if (madvise((void *)(uintptr_t)run_address(mmu, first), run_bytes(pages_count), advice) == 0)
        return 0;
    return error_set(-errno, "%s page 0x%llx: %s%s", verb, (unsigned long long)first.index, strerror(errno),
                     errno == EINVAL ? " (locked by mlock?)" : "");
}

/* The kernel moves the dirty state to the memfd's page and flushes every processor before it returns. */
int mmu_zap(struct mmu *mmu, struct page_id first, unsigned pages_count)
{
    ASSERT(run_is_shared(mmu, first, pages_count));
    return advise(mmu, first, pages_count, MADV_DONTNEED, "unmap");
}

int mmu_free(struct mmu *mmu, struct page_id first, unsigned pages_count)
{
    int error;

    ASSERT(run_is_shared(mmu, first, pages_count));
    error = poison_lift(mmu, first, pages_count);
    if (error != 0)
        return error;
    error = advise(mmu, first, pages_count, MADV_REMOVE, "free");
    /* Marks of poison outlive the page they stand for. */
    if (error == 0 && mmu->has_marked_poison)
        error = mmu_zap(mmu, first, pages_count);
    return error;
}

int mmu_drop(struct mmu *mmu, struct page_id first, unsigned pages_count)
{
    int error;

    ASSERT(!run_is_shared(mmu, first, pages_count));
    error = poison_lift(mmu, first, pages_count);
    if (error != 0)
        return error;
    return advise(mmu, first, pages_count, MADV_DONTNEED, "drop");
}

void mmu_wake(struct mmu *mmu, struct page_id first, unsigned pages_count)
{
    wake(mmu, run_address(mmu, first), run_bytes(pages_count));
}
