/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hooks_plain.c - runtime/hooks.h by nothing but the kernel: memory is never absent. With it the preload library is
 * tested without the runtime. What lies where is a sorted list of runs under one lock, which a fork holds.
 * HOOKS_PLAIN_BASE places the range, whose first GiB is then left to the test; HOOKS_PLAIN_REFUSE_FORK lets no fork
 * happen.
 */
#include "runtime/hooks.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RANGE_BYTES ((uint64_t)4 << 40)
#define PAGE_BYTES  4096
#define RUNS_MAX    65536

uint64_t hooks_base;
_Atomic(uint64_t) hooks_size_bytes;
uint64_t hooks_malloc_threshold_bytes;
uint64_t hooks_mmap_threshold_bytes = 64 << 10;

/* Mapped runs; what lies between two of them is free. */
struct run {
    uint64_t begin, end;
    enum hooks_kind kind;
    int protection;
    unsigned traits;
};

static struct {
    _Atomic(bool) lock;
    struct run runs[RUNS_MAX];
    size_t count;
    uint64_t lowest; /* that is handed out unasked */
} plain;

/*
 * As hooks.h has it: signals are blocked inside. Not a pthread_mutex_t, whose atomics libc leaves out while it knows of
 * one thread: a task that the program made by clone() is none.
 */
static uint64_t plain_lock(void)
{
    uint64_t all = UINT64_MAX, before;

    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof(before));
    while (atomic_exchange(&plain.lock, true))
        sched_yield();
    return before;
}

static void plain_unlock(uint64_t before)
{
    atomic_store(&plain.lock, false);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof(before));
}

/* ---- the list --------------------------------------------------------------------------------------------------- */

/* The first run that ends behind an address; `count` when there is none. */
static size_t run_find(uint64_t address)
{
    size_t low = 0, high = plain.count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (plain.runs[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void run_insert(size_t at, struct run run)
{
    if (plain.count == RUNS_MAX)
        abort();
    memmove(&plain.runs[at + 1], &plain.runs[at], (plain.count - at) * sizeof(run));
    plain.runs[at] = run;
    plain.count++;
}

static void run_remove(size_t at)
{
    plain.count--;
    memmove(&plain.runs[at], &plain.runs[at + 1], (plain.count - at) * sizeof(struct run));
}

static void run_cut(uint64_t address)
{
    size_t i = run_find(address);
    struct run tail;

    if (i == plain.count || plain.runs[i].begin >= address)
        return;
    tail = plain.runs[i];
    tail.begin = address;
    plain.runs[i].end = address;
    run_insert(i + 1, tail);
}

static void run_join(size_t left)
{
    struct run *a = &plain.runs[left];

    if (left + 1 >= plain.count || a->end != a[1].begin || a->kind != a[1].kind || a->protection != a[1].protection ||
        a->traits != a[1].traits)
        return;
    a->end = a[1].end;
    run_remove(left + 1);
}

static void run_set(uint64_t begin, uint64_t end, enum hooks_kind kind, int protection)
{
    size_t i;

    run_cut(begin);
    run_cut(end);
    i = run_find(begin);
    while (i < plain.count && plain.runs[i].begin < end)
        run_remove(i);
    if (kind == HOOKS_FREE)
        return;
    run_insert(i, (struct run){begin, end, kind, protection, 0});
    run_join(i);
    if (i > 0)
        run_join(i - 1);
}

static bool range_is_free(uint64_t begin, uint64_t end)
{
    size_t i = run_find(begin);

    return i == plain.count || plain.runs[i].begin >= end;
}

static int run_protect(struct run *run, void *protection);

/* Calls change for each run in an interval, cut to it; -ENOMEM when there were holes. */
static int for_runs(uint64_t begin, uint64_t end, int (*change)(struct run *run, void *context), void *context)
{
    uint64_t next = begin;
    bool holes = false;

    run_cut(begin);
    run_cut(end);
    for (size_t i = run_find(begin); i < plain.count && plain.runs[i].begin < end; i++) {
        int error;

        holes |= plain.runs[i].begin != next;
        if (holes && change == run_protect) /* what lies behind the first hole keeps its protection */
            return -ENOMEM;
        error = change(&plain.runs[i], context);
        if (error != 0)
            return error;
        next = plain.runs[i].end;
    }
    return holes || next != end ? -ENOMEM : 0;
}

/* ---- start ------------------------------------------------------------------------------------------------------ */

static int place(uint64_t begin, size_t size, int protection, int flags, int fd, int64_t offset)
{
    return mmap((void *)begin, size, protection, flags | MAP_FIXED, fd, offset) == MAP_FAILED ? -errno : 0;
}

static int place_plain(uint64_t begin, size_t size, int protection)
{
    return place(begin, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

int hooks_open(void)
{
    const char *threshold = getenv("DSM_PRELOAD_MALLOC_THRESHOLD");
    const char *base = getenv("HOOKS_PLAIN_BASE");
    void *memory;

    if (getenv("DSM_PRELOAD") == NULL)
        return -ENOENT;
    if (threshold != NULL)
        hooks_malloc_threshold_bytes = strtoull(threshold, NULL, 0);
    memory = mmap(base != NULL ? (void *)strtoull(base, NULL, 0) : NULL, RANGE_BYTES, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    hooks_base = (uint64_t)memory;
    hooks_size_bytes = RANGE_BYTES;
    plain.lowest = hooks_base + (base != NULL ? (uint64_t)1 << 30 : 0);
    return 0;
}

/* The tail goes. */
void hooks_limit(uint64_t limit_bytes)
{
    uint64_t signals = plain_lock();
    uint64_t end = plain.count > 0 ? plain.runs[plain.count - 1].end : hooks_base;

    end = end > plain.lowest ? end : plain.lowest;
    if (hooks_base + hooks_size_bytes - end > limit_bytes &&
        munmap((void *)end, hooks_base + hooks_size_bytes - end) == 0)
        hooks_size_bytes = end - hooks_base;
    plain_unlock(signals);
}

const char *hooks_error(void)
{
    return "the range could not be reserved";
}

void hooks_warn(const char *sentence)
{
    (void)!write(STDERR_FILENO, sentence, strlen(sentence));
    (void)!write(STDERR_FILENO, "\n", 1);
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

/* ---- mappings --------------------------------------------------------------------------------------------------- */

/* First fit. 0: none. */
static uint64_t find_gap(size_t size, uint64_t mask)
{
    uint64_t begin = (plain.lowest + mask) & ~mask;

    for (size_t i = 0; i <= plain.count; i++) {
        uint64_t limit = i < plain.count ? plain.runs[i].begin : hooks_base + hooks_size_bytes;

        if (limit >= begin && limit - begin >= size)
            return begin;
        if (i < plain.count)
            begin = (plain.runs[i].end + mask) & ~mask;
    }
    return 0;
}

int hooks_map(size_t size_bytes, size_t alignment_bytes, int protection, void **ret_address)
{
    uint64_t signals;
    uint64_t mask = alignment_bytes > PAGE_BYTES ? alignment_bytes - 1 : PAGE_BYTES - 1;
    uint64_t begin;
    int error = -ENOSPC;

    signals = plain_lock();
    begin = find_gap(size_bytes, mask);
    if (begin != 0) {
        error = place_plain(begin, size_bytes, protection);
        if (error == 0)
            run_set(begin, begin + size_bytes, HOOKS_MANAGED, protection);
    }
    plain_unlock(signals);
    if (error == 0)
        *ret_address = (void *)begin;
    return error;
}

int hooks_map_at(void *address, size_t size_bytes, int protection, bool replace)
{
    uint64_t signals;
    uint64_t begin = (uint64_t)address;
    int error = -EEXIST;

    signals = plain_lock();
    if (replace || range_is_free(begin, begin + size_bytes))
        error = place_plain(begin, size_bytes, protection);
    if (error == 0)
        run_set(begin, begin + size_bytes, HOOKS_MANAGED, protection);
    plain_unlock(signals);
    return error;
}

int hooks_map_foreign(void *address, size_t size_bytes, int protection, int flags, int descriptor, int64_t offset_bytes)
{
    uint64_t signals;
    uint64_t begin = (uint64_t)address;
    int error;

    signals = plain_lock();
    error = place(begin, size_bytes, protection, flags, descriptor, offset_bytes);
    if (error == 0)
        run_set(begin, begin + size_bytes, HOOKS_FOREIGN, protection);
    plain_unlock(signals);
    return error;
}

int hooks_unmap(void *address, size_t size_bytes)
{
    uint64_t signals;
    uint64_t begin = (uint64_t)address;
    int error;

    signals = plain_lock();
    error = place_plain(begin, size_bytes, PROT_NONE);
    if (error == 0)
        run_set(begin, begin + size_bytes, HOOKS_FREE, PROT_NONE);
    plain_unlock(signals);
    return error;
}

static int run_protect(struct run *run, void *protection)
{
    if (mprotect((void *)run->begin, run->end - run->begin, *(int *)protection) != 0)
        return -errno;
    run->protection = *(int *)protection;
    return 0;
}

int hooks_protect(void *address, size_t size_bytes, int protection)
{
    uint64_t signals;
    int error;

    signals = plain_lock();
    error = for_runs((uint64_t)address, (uint64_t)address + size_bytes, run_protect, &protection);
    plain_unlock(signals);
    return error;
}

static int run_advise(struct run *run, void *advice)
{
    return madvise((void *)run->begin, run->end - run->begin, *(int *)advice) == 0 ? 0 : -errno;
}

static int advise(void *address, size_t size, int advice)
{
    uint64_t signals;
    int error;

    signals = plain_lock();
    error = for_runs((uint64_t)address, (uint64_t)address + size, run_advise, &advice);
    plain_unlock(signals);
    return error;
}

int hooks_discard(void *address, size_t size_bytes)
{
    return advise(address, size_bytes, MADV_DONTNEED);
}

static unsigned traits_advised(unsigned traits, int advice)
{
    switch (advice) {
    case MADV_WIPEONFORK:
        return traits | HOOKS_WIPED;
    case MADV_KEEPONFORK:
        return traits & ~(unsigned)HOOKS_WIPED;
    case MADV_DONTFORK:
        return traits | HOOKS_LEFT;
    case MADV_DOFORK:
        return traits & ~(unsigned)HOOKS_LEFT;
    case MADV_DONTDUMP:
        return traits | HOOKS_UNDUMPED;
    case MADV_DODUMP:
        return traits & ~(unsigned)HOOKS_UNDUMPED;
    case MADV_HUGEPAGE:
        return (traits | HOOKS_HUGE) & ~(unsigned)HOOKS_SMALL;
    default:
        return (traits | HOOKS_SMALL) & ~(unsigned)HOOKS_HUGE;
    }
}

static int run_mark(struct run *run, void *advice)
{
    int error = run_advise(run, advice);

    if (error == 0)
        run->traits = traits_advised(run->traits, *(int *)advice);
    return error;
}

int hooks_mark(void *address, size_t size_bytes, int advice)
{
    uint64_t signals = plain_lock();
    int error = for_runs((uint64_t)address, (uint64_t)address + size_bytes, run_mark, &advice);

    plain_unlock(signals);
    return error;
}

static int run_keep(struct run *run, void *context)
{
    (void)context;
    if (run->kind == HOOKS_MANAGED)
        run->kind = HOOKS_KEPT;
    return 0;
}

int hooks_keep(void *address, size_t size_bytes)
{
    uint64_t signals;
    int error;

    signals = plain_lock();
    error = for_runs((uint64_t)address, (uint64_t)address + size_bytes, run_keep, NULL);
    plain_unlock(signals);
    return error;
}

int hooks_advise(void *address, size_t size_bytes, enum dsm_advice advice)
{
    (void)address;
    (void)size_bytes;
    (void)advice;
    return 0;
}

void hooks_describe(const void *address, struct hooks_run *ret_run)
{
    uint64_t signals;
    uint64_t page = (uint64_t)address & ~(uint64_t)(PAGE_BYTES - 1);
    size_t i;

    signals = plain_lock();
    i = run_find(page);
    if (i < plain.count && plain.runs[i].begin <= page) {
        const struct run *run = &plain.runs[i];

        *ret_run = (struct hooks_run){.address = (void *)run->begin,
                                      .size_bytes = run->end - run->begin,
                                      .kind = run->kind,
                                      .protection = run->protection,
                                      .traits = run->traits};
    } else {
        uint64_t begin = i > 0 ? plain.runs[i - 1].end : hooks_base;
        uint64_t end = i < plain.count ? plain.runs[i].begin : hooks_base + hooks_size_bytes;

        *ret_run = (struct hooks_run){.address = (void *)begin, .size_bytes = end - begin};
    }
    plain_unlock(signals);
}

bool hooks_may_have_bytes(const void *page)
{
    unsigned char resident;

    return mincore((void *)(uintptr_t)page, PAGE_BYTES, &resident) != 0 || (resident & 1) != 0;
}

/* ---- fork ------------------------------------------------------------------------------------------------------- */

void hooks_settle_affinity(void)
{
}

int hooks_fork_check(void)
{
    return 0;
}

int hooks_fork_prepare(void)
{
    const char *refuse = getenv("HOOKS_PLAIN_REFUSE_FORK");

    if (refuse != NULL)
        return -ENOMEM;
    while (atomic_exchange(&plain.lock, true))
        sched_yield();
    return 0;
}

void hooks_fork_parent(void)
{
    atomic_store(&plain.lock, false);
}

void hooks_fork_child_memory(void)
{
    for (size_t i = plain.count; i > 0; i--) {
        struct run *run = &plain.runs[i - 1];

        if ((run->traits & HOOKS_LEFT) == 0)
            continue;
        mmap((void *)run->begin, run->end - run->begin, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        run_remove(i - 1);
    }
    atomic_store(&plain.lock, false);
}

void hooks_fork_child_thread(void)
{
}

void hooks_finish(void)
{
}
