/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mmu.h - the window of addresses, page faults, and mappings of this process. The only place with UFFDIO_*.
 *
 * Knows addresses and kernel calls, nothing of coherence or tiers. Kernel features are probed with UFFDIO_API, never
 * inferred from a version; each can be switched off to test its fallback. `struct mmu` is used by the shard's thread,
 * except where a function says "any thread".
 *
 * Sources: userfaultfd(2), ioctl_userfaultfd(2), Documentation/admin-guide/mm/userfaultfd.rst.
 */
#ifndef TIERMESH_MMU_MMU_H
#define TIERMESH_MMU_MMU_H

#include "base/types.h"

/* ---- features.c ------------------------------------------------------------------------------------------------- */

struct mmu_features {
    bool has_wp_shmem;    /* write protection on memfd mappings (needed for shared regions) */
    bool has_minor;       /* MINOR faults on memfd mappings (needed for shared regions) */
    bool has_move;        /* UFFDIO_MOVE: eviction of private pages without a protect-and-drop race */
    bool has_poison;      /* UFFDIO_POISON: else a lost page is remapped over an empty file (SIGBUS, two VMAs each) */
    bool has_wp_async;    /* WP_ASYNC + PAGEMAP_SCAN: dirty tracking without a fault; see docs/MMU.md */
    bool has_continue_wp; /* CONTINUE can write-protect: else mmu_continue(writable false) copies the page */
    bool has_thread_id;
    bool has_exact_address;
    const char *source; /* "/dev/userfaultfd" or "userfaultfd system call" */
    int device;         /* as in struct mmu_switches */
};

/* Features the user switched off (true: pretend that the kernel lacks it). */
struct mmu_switches {
    bool no_move, no_poison, no_wp_async, no_continue_wp;
    int device; /* a descriptor of /dev/userfaultfd that somebody with the rights opened; 0: none */
};

/*
 * mmu_features_probe - what this kernel and this process's rights offer.
 * 0, or -EPERM / -ENOSYS with a sentence that names the sysctl, device mode or capability that would help.
 */
int mmu_features_probe(const struct mmu_switches *switches, struct mmu_features *ret_features) MUST_USE;

/* ---- window.c: one reservation, the same on all nodes ------------------------------------------------------------ */

#define MMU_WINDOW_BASE_DEFAULT 0x100000000000U

struct mmu_window {
    uint64_t base;          /* first byte */
    uint64_t shared_bytes;  /* [base, base + shared_bytes): mapping of the memfd at offset 0 */
    uint64_t private_bytes; /* behind it: anonymous */
    int memfd;              /* the shared pages' bytes of this node; offset == address - base. -1: no shared half */
    int pagemap_fd;         /* /proc/self/pagemap. -1: may not be looked at; then no private page may be protected */
    bool is_inherited;      /* forked children have the private half too: mmu_reopen() is called in them */
};

/*
 * mmu_window_reserve - reserve the window at `base` and map its halves (MAP_NORESERVE; works with overcommit_memory 0).
 * 0, -EADDRINUSE with what occupies it (from /proc/self/maps), -ENOMEM (RLIMIT_AS and friends, named).
 */
int mmu_window_reserve(uint64_t base, uint64_t shared_bytes, uint64_t private_bytes,
                       struct mmu_window *ret_window) MUST_USE;
/*
 * mmu_window_look - open the pagemap of this process: for windows that were not made by mmu_window_reserve()
 * (pagemap_fd: -1), and in a forked child, where the inherited one shows the parent's pages. Any thread.
 */
void mmu_window_look(struct mmu_window *window);
/* true when [base, base + size) is free in this process: what a node tells the others when they agree on a window. */
bool mmu_window_is_free(uint64_t base, uint64_t size_bytes);
/* Unmaps the window. After mmu_close(), and only when nothing can touch it any more: addresses may be reused. */
void mmu_window_release(struct mmu_window *window);

static inline void *mmu_page_address(const struct mmu_window *window, struct page_id page)
{
    return (void *)(uintptr_t)(window->base + (page.index << PAGE_SHIFT));
}

static inline bool mmu_address_is_inside(const struct mmu_window *window, const void *address)
{
    return (uintptr_t)address - window->base < window->shared_bytes + window->private_bytes;
}

static inline struct page_id mmu_page_at(const struct mmu_window *window, const void *address)
{
    return page_of(((uintptr_t)address - window->base) >> PAGE_SHIFT);
}

static inline bool mmu_page_is_shared(const struct mmu_window *window, struct page_id page)
{
    return page.index < window->shared_bytes >> PAGE_SHIFT;
}

/* ---- table.[ch]: the page table, allocated by extent: see mmu/table.h ------------------------------------------- */

/* ---- uffd.c: the descriptor and its faults ------------------------------------------------------------------------
 */

struct mmu; /* opaque */

enum mmu_fault_kind {
    MMU_FAULT_MISSING, /* no page there */
    MMU_FAULT_MINOR,   /* shared: the memfd has the page, the mapping does not */
    MMU_FAULT_WP,      /* a store to a write-protected page */
};

struct mmu_fault {
    struct page_id page;
    enum mmu_fault_kind kind;
    bool is_write;
    uint32_t thread; /* kernel thread id; 0 when unknown */
};

/*
 * Opens the descriptor (non-blocking, close-on-exec, moved above fd 100) and registers the shared half.
 * 0, -EPERM / -ENOSYS as mmu_features_probe(), -EOPNOTSUPP (no MINOR or WP on memfd), -ENOMEM.
 */
int mmu_open(const struct mmu_window *window, const struct mmu_features *features, struct mmu **ret_mmu) MUST_USE;

/*
 * Starts the thread without which mmu_take_out() may not return on some kernels (mmu/guard.h); where it cannot be had,
 * a line in the log says so. After mmu_open() and mmu_reopen(). Any thread: the shard of an unchanged program must not,
 * since pthread_create() takes locks of libc's that may be held by a thread which waits for the shard.
 */
void mmu_guard(struct mmu *mmu);

/*
 * Closing: faults that still wait would read zeroes in silence, so the whole window is first made to raise SIGBUS
 * (mapped over a sealed, empty file). It stays so until mmu_window_release(). Called by dsm_finalize only.
 */
void mmu_close(struct mmu *mmu);

/* The end of a handler that nothing was registered with but staging: the window stays as it is. */
void mmu_cancel(struct mmu *mmu);

/*
 * Every touch of shared memory raises SIGBUS from now on, those that wait included; private memory goes on. For a node
 * that is no member any more. No other call may name shared pages afterwards. 0 or -errno with a sentence.
 */
int mmu_shut_shared(struct mmu *mmu) MUST_USE;

/*
 * In a forked child, before anything touches registered memory: the inherited descriptor is closed, a new one opened.
 * Nothing is registered with it yet but staging: register all that was, by mmu_register(). Write protection is gone.
 * `window` is the one of mmu_open(), after mmu_window_look(). 0 or -errno with a sentence. Allocates nothing.
 */
int mmu_reopen(struct mmu *mmu, const struct mmu_window *window) MUST_USE;

int mmu_descriptor(const struct mmu *mmu);
const struct mmu_features *mmu_features(const struct mmu *mmu);

/*
 * Read up to `count` faults, one system call for 32. Returns how many; less than `count`: there were no more, so an
 * edge-triggered watch is enough. Unknown events are logged
 * and skipped. The kind is what the kernel saw when the thread stopped: when the fault is answered the page may be in
 * another state (filled by a prefetch, taken out, zapped). Decide by the page's state, then fill, map or wake it.
 */
int mmu_faults_read(struct mmu *mmu, struct mmu_fault *faults, int count);

/*
 * Private extents join the registration when their memory is to be managed. 0 or -errno with a sentence.
 * Registered: the kernel fills nothing any more (ask mmu_present() afterwards), uses no new huge pages, and a forked
 * child does not have the range. Unregistered again, absent pages read as zeroes: only for memory that was freed.
 */
int mmu_register(struct mmu *mmu, struct page_id first, uint64_t pages_count) MUST_USE;
/* Of pages that stay where they are (mmu_protect() them writable first) or were dropped. Wakes who waits. */
int mmu_unregister(struct mmu *mmu, struct page_id first, uint64_t pages_count) MUST_USE;

/* ---- map.c. Page runs are consecutive. Each wakes the waiting threads unless it says otherwise. -------------------
 * EEXIST (the page is there already: another thread's fault was answered meanwhile) is not an error: these functions
 * wake and go on. -EAGAIN never leaves them. What remains is returned, with a sentence; pages before the failing one
 * are done. -ENOMEM: no memory for page or page table.
 */

/*
 * Copy pages_count * PAGE_BYTES from `bytes` into absent pages. writable false: write-protected.
 * Shared: bytes that the memfd still has for an unmapped page are replaced (slower; mmu_free() first where it matters).
 * `bytes` must not lie in absent managed memory: the shard would wait for itself.
 */
int mmu_copy(struct mmu *mmu, struct page_id first, unsigned pages_count, const void *bytes, bool writable) MUST_USE;

/*
 * Zero pages into absent places. Always real pages: the kernel's shared zero page cannot be installed write-protected
 * in one step, and would be replaced behind our back when written.
 */
int mmu_zero(struct mmu *mmu, struct page_id first, unsigned pages_count, bool writable) MUST_USE;

/* Shared: map pages that the memfd has. -EFAULT: it has not. */
int mmu_continue(struct mmu *mmu, struct page_id first, unsigned pages_count, bool writable) MUST_USE;

/* Set or clear write protection of mapped pages; clearing wakes. */
int mmu_protect(struct mmu *mmu, struct page_id first, unsigned pages_count, bool writable) MUST_USE;

/*
 * Shared: unmap, the bytes stay in the memfd. A store in flight is in the memfd when this returns, except by a device
 * or io_uring into a page it has pinned (that is what dsm_pin() is for). No wake.
 */
int mmu_zap(struct mmu *mmu, struct page_id first, unsigned pages_count) MUST_USE;

/* Shared: give the memory of unmapped or mapped pages back; contents are gone, poison is lifted. No wake. */
int mmu_free(struct mmu *mmu, struct page_id first, unsigned pages_count) MUST_USE;

/* Private: unmap and drop contents (MADV_DONTNEED), lift poison. The next touch is MISSING. No wake. */
int mmu_drop(struct mmu *mmu, struct page_id first, unsigned pages_count) MUST_USE;

/*
 * Private: take pages out into `staging` (from mmu_staging()): afterwards they are absent and staging holds their
 * bytes, page i of the run at page i of staging. By UFFDIO_MOVE; without it by write protection, copy, drop. Threads
 * that wait for the pages are not woken; a store that was held as a WP fault meanwhile is answered like a missing page.
 * Without MOVE (mmu_features()) a pinned page loses what the device writes: the caller keeps such pages out.
 * ret_moved: leading pages moved, always written. 0, or about the page after them: -EBUSY (pinned or shared by fork:
 * skip it, retry later), -ENOENT (it is absent).
 * To put pages back: mmu_copy() from staging, or mmu_put_back().
 */
int mmu_take_out(struct mmu *mmu, struct page_id first, unsigned pages_count, void *staging,
                 unsigned *ret_moved) MUST_USE;

/*
 * A page that was taken out goes back to its absent place, writable, and whoever waits for it runs. Its place in
 * staging is ready again. Needs MOVE. 0 or -errno with a sentence.
 */
int mmu_put_back(struct mmu *mmu, struct page_id page, void *staging) MUST_USE;

/*
 * An area of anonymous memory for mmu_take_out(), prepared for `pages_count` pages; at most 8, unmapped by mmu_close().
 * Only pages that were taken out may be touched there, until mmu_staging_clear() makes their places ready again.
 */
int mmu_staging_create(struct mmu *mmu, unsigned pages_count, void **ret_staging) MUST_USE;
/* Only the first pages_count pages stay; the rest must be empty. */
void mmu_staging_limit(struct mmu *mmu, void *staging, unsigned pages_count);
void mmu_staging_clear(struct mmu *mmu, void *staging, unsigned first, unsigned pages_count);
/* Bytes for pages that are to be put back from there, as if they had been taken out. Needs MOVE. 0 or -errno. */
int mmu_staging_fill(struct mmu *mmu, void *staging, const void *bytes, unsigned pages_count) MUST_USE;

/*
 * Every touch of the page raises SIGBUS from now on, threads that wait included; its bytes are given up. Private pages:
 * registered ones only. Lifted by mmu_free() and mmu_drop(), which must come before the page is filled, mapped or
 * zapped.
 */
int mmu_poison(struct mmu *mmu, struct page_id page) MUST_USE;

/* Wake threads that wait for the page without changing it. */
void mmu_wake(struct mmu *mmu, struct page_id first, unsigned pages_count);

/* ---- bytes of shared pages, through the memfd; any thread ----------------------------------------------------------
 */

/*
 * Copy bytes of pages that are in the memfd, whether mapped or not; the caller knows which: others would read as zeroes
 * and come into being when written. A range may cross pages. 0 or -EIO.
 */
int mmu_shared_read(const struct mmu_window *window, struct page_id page, size_t offset_bytes, void *bytes,
                    size_t size_bytes) MUST_USE;
int mmu_shared_write(const struct mmu_window *window, struct page_id page, size_t offset_bytes, const void *bytes,
                     size_t size_bytes) MUST_USE;

/*
 * Private, fresh and unregistered memory: which of the pages are there (pagemap), mapped, in swap or poisoned. One bool
 * a page. 0 or -errno. Any thread.
 */
int mmu_present(const struct mmu_window *window, struct page_id first, unsigned pages_count,
                bool *ret_present) MUST_USE;

/*
 * Private, fresh and unregistered memory: each page that is not there is made the zero page; for who cannot tell which
 * are. 0 or -errno with a sentence (-EFAULT: the program may not read there). Any thread.
 */
int mmu_populate(const struct mmu_window *window, struct page_id first, unsigned pages_count) MUST_USE;

#endif
