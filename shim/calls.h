/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.h - the interposed system calls among themselves, and how an interval of addresses is taken apart.
 *
 * call_NAME() does what the system call NAME does, of managed memory too, and returns what the kernel returns: a result
 * or a negative errno. Two doors lead there: the function NAME that the program calls, and syscall(SYS_NAME).
 */
#ifndef TIERMESH_SHIM_CALLS_H
#define TIERMESH_SHIM_CALLS_H

#include "runtime/hooks.h"
#include "shim/raw.h"
#include "shim/shim.h"

#include <sys/resource.h>
#include <sys/types.h>
#include <sys/uio.h>

#define CALL_PAGE_BYTES ((uintptr_t)4096)

/* ---- mappings (map.c, advise.c, remap.c, probe.c) ---------------------------------------------------------------- */

long call_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
long call_munmap(void *address, size_t size);
long call_mprotect(void *address, size_t size, int protection, int key); /* key: -1, or as pkey_mprotect(2) */
long call_madvise(void *address, size_t size, int advice);
long call_process_madvise(int process, const struct iovec *parts, size_t count, int advice, unsigned flags);
long call_mremap(void *address, size_t old_size, size_t new_size, int flags, void *target);
long call_mincore(void *address, size_t size, unsigned char *pages);
long call_msync(void *address, size_t size, int flags);
long call_mseal(void *address, size_t size, unsigned long flags);

/* ---- memory that must stay (keep.c) ----------------------------------------------------------------------------- */

long call_mlock(int number, const void *address, size_t size, int flags); /* number: SYS_mlock or SYS_mlock2 */
long call_mlockall(int flags);
long call_futex(const long arguments[6]);

/* The pages of these bytes, as far as they are managed, stay in memory from now on. 0 or -errno. */
int keep_bytes(const void *address, size_t size);

/* Was managed memory ever locked? Until then nothing of what the kernel refuses on locked memory needs to be looked
 * for. */
bool keep_locks(void);

/* Is the stack pointer in managed memory? Then the `size` bytes below it stay in memory. 0 or -errno. */
int keep_stack(size_t size);

/* ---- the program's own userfaultfd (watch.c) -------------------------------------------------------------------- */

long call_ioctl(int fd, unsigned long request, void *argument);

/* ---- processes and descriptors (process.c, descriptors.c) ------------------------------------------------------- */

long call_fork(void);
long call_clone(unsigned long flags, void *stack, int *parent_tid, int *child_tid, void *tls);
long call_clone3(void *arguments, size_t size);
long call_seccomp(unsigned operation, unsigned flags, void *argument);
long call_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);
long call_prlimit(pid_t process, unsigned which, const struct rlimit *new_limit,
                  struct rlimit *old_limit); /* limit.c */
long call_close(int fd);
long call_dup3(int from, int to, int flags);
long call_dup2(int from, int to);
long call_close_range(unsigned first, unsigned last, unsigned flags);

/* ---- intervals -------------------------------------------------------------------------------------------------- */

/* Do our interposers have a say in this call at all? */
static inline bool calls_managed(void)
{
    return shim_active() && !shim_own_thread();
}

/* Has the interval a byte of our range? False for an empty or wrapped one: such calls are the kernel's to refuse. */
static inline bool interval_is_ours(uintptr_t begin, size_t size)
{
    return begin + size > begin && begin < hooks_base + hooks_size_bytes && begin + size > hooks_base;
}

static inline uintptr_t page_down(uintptr_t address)
{
    return address & ~(CALL_PAGE_BYTES - 1);
}

static inline uintptr_t page_up(uintptr_t address)
{
    return page_down(address + CALL_PAGE_BYTES - 1);
}

/* An interval cut at the edges of our range. Start with `next` and `end`. */
struct interval {
    uintptr_t next, end; /* what is left */
    char *at;            /* the part */
    size_t size;
    bool ours;
};

static inline bool interval_part(struct interval *interval)
{
    uintptr_t limit = interval->end;
    uintptr_t top = hooks_base + hooks_size_bytes;

    if (interval->next >= interval->end)
        return false;
    interval->ours = hooks_owns((void *)interval->next);
    if (interval->ours && limit > top)
        limit = top;
    else if (interval->next < hooks_base && limit > hooks_base)
        limit = hooks_base;
    interval->at = (char *)interval->next;
    interval->size = limit - interval->next;
    interval->next = limit;
    return true;
}

/* A part inside our range, cut where kind, protection or traits change. Start with `next` and `end`. */
struct stretch {
    uintptr_t next, end; /* what is left */
    char *at;            /* the part */
    size_t size;
    enum hooks_kind kind;
    int protection;
    unsigned traits;
};

static inline bool stretch_part(struct stretch *stretch)
{
    struct hooks_run run;
    uintptr_t limit;

    if (stretch->next >= stretch->end)
        return false;
    hooks_describe((void *)stretch->next, &run);
    limit = (uintptr_t)run.address + run.size_bytes;
    limit = limit < stretch->end ? limit : stretch->end;
    stretch->at = (char *)stretch->next;
    stretch->size = limit - stretch->next;
    stretch->kind = run.kind;
    stretch->protection = run.protection;
    stretch->traits = run.traits;
    stretch->next = limit;
    return true;
}

#endif
