/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hooks.h - managed memory of an unchanged program: what the preload library asks of the runtime.
 *
 * One range of addresses belongs to us (hooks_owns). Parts of it are handed out by hooks_map() with the meaning of
 * anonymous private mmap(2): page-aligned, zeroed, private to the process, inherited by fork. At first the kernel fills
 * them as it fills any memory. When what was handed out nears the DDR budget, the shard's thread is started, memory
 * comes under management and is evicted to lower tiers and brought back as it is used.
 *
 * Addresses and sizes are whole pages. Results are 0 or a negative errno. Any thread; not from a signal handler that
 * interrupts one of these. All signals are blocked inside. No function touches managed memory, allocates by malloc, or
 * changes errno. docs/PRELOAD.md has the whole picture.
 */
#ifndef TIERMESH_RUNTIME_HOOKS_H
#define TIERMESH_RUNTIME_HOOKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tiermesh/dsm.h"

/* ---- start ------------------------------------------------------------------------------------------------------ */

/*
 * hooks_open - reads the options from the environment and reserves the range. Starts no thread. Called once, before
 * anything else, possibly before any constructor has run.
 * 0; -ENOENT: this process is not to be managed (no DSM_PRELOAD in the environment); else the sentence says why.
 */
int hooks_open(void);
const char *hooks_error(void);         /* the sentence of the last failed call of this thread */
void hooks_warn(const char *sentence); /* a log line, level warning */

/* Written by hooks_open(): base and size of the range; 0: nothing is managed. hooks_limit() may make it smaller. */
extern uint64_t hooks_base;
extern _Atomic(uint64_t) hooks_size_bytes;

/* Option preload.malloc_threshold, written by hooks_open(): blocks below this size are libc's own. */
extern uint64_t hooks_malloc_threshold_bytes;

/* Option preload.mmap_threshold, written by hooks_open(): what the program maps below this size stays the kernel's. */
extern uint64_t hooks_mmap_threshold_bytes;

static inline bool hooks_owns(const void *address)
{
    return (uintptr_t)address - hooks_base < atomic_load_explicit(&hooks_size_bytes, memory_order_relaxed);
}

/*
 * A limit on address space or data is about to hold (RLIMIT_AS, RLIMIT_DATA): what is free of the range is given back,
 * so that the limit counts what is mapped. For good: the range keeps room for a few times the limit.
 */
void hooks_limit(uint64_t limit_bytes);

/* From now on nothing new may be started (a seccomp filter is being installed): what is not managed yet never is. */
void hooks_freeze(void);

/* The shard's thread runs in this process: memory may be absent, and descriptors are ours. */
bool hooks_is_running(void);

/*
 * The lowest of our descriptors that is >= `descriptor`; -1 when there is none. The program's close(2), dup2(2) and
 * close_range(2) leave them alone. They are 100 or more where the limit on descriptors allows that. Async-signal-safe.
 */
int hooks_descriptor_next(int descriptor);

/* ---- mappings --------------------------------------------------------------------------------------------------- */

/* Anywhere in the range. alignment_bytes: 0 or a power of two. -ENOSPC: no addresses; -ENOMEM: the budgets forbid. */
int hooks_map(size_t size_bytes, size_t alignment_bytes, int protection, void **ret_address);

/* Exactly there, the whole inside the range; what was mapped there is replaced (-EEXIST unless `replace`). */
int hooks_map_at(void *address, size_t size_bytes, int protection, bool replace);

/*
 * mmap(2) with MAP_FIXED of something that is not ours to manage (a file, shared memory, a stack), inside the range:
 * what lay there is forgotten, and the kernel has these addresses until hooks_unmap() or hooks_map_at().
 */
int hooks_map_foreign(void *address, size_t size_bytes, int protection, int flags, int descriptor,
                      int64_t offset_bytes);

/* munmap(2): parts, several mappings, and holes are allowed. Touching the addresses afterwards raises SIGSEGV. */
int hooks_unmap(void *address, size_t size_bytes);

/* mprotect(2), of foreign parts too. -ENOMEM: part of it is not mapped. Holds wherever the bytes are. */
int hooks_protect(void *address, size_t size_bytes, int protection);

/* The contents become zeroes (MADV_DONTNEED, MADV_FREE). Foreign parts are passed to the kernel. -ENOMEM: holes. */
int hooks_discard(void *address, size_t size_bytes);

/*
 * Keep in memory until unmapped, never to be evicted: for memory that the kernel or hardware uses behind our back
 * (mlock, stacks of threads, robust and priority-inheriting futexes). Brings what is absent.
 * -ENOMEM: more than half of the DDR budget would be kept so.
 */
int hooks_keep(void *address, size_t size_bytes);

/* As dsm_advise(), which is followed as far as there is room: never an error but for holes (-ENOMEM). */
int hooks_advise(void *address, size_t size_bytes, enum dsm_advice advice);

/* What madvise(2) says for as long as the memory is mapped. Of foreign parts only HOOKS_LEFT is known. */
enum hooks_trait {
    HOOKS_WIPED = 1,    /* the child of a fork sees zeroes there (MADV_WIPEONFORK) */
    HOOKS_LEFT = 2,     /* the child of a fork has nothing there (MADV_DONTFORK) */
    HOOKS_UNDUMPED = 4, /* not in a core dump (MADV_DONTDUMP) */
    HOOKS_HUGE = 8,     /* MADV_HUGEPAGE */
    HOOKS_SMALL = 16,   /* MADV_NOHUGEPAGE */
};

/* madvise(2) with advice that gives or takes a trait. Foreign parts too. -ENOMEM: holes; else what the kernel says. */
int hooks_mark(void *address, size_t size_bytes, int advice);

enum hooks_kind {
    HOOKS_FREE = 0, /* not mapped */
    HOOKS_MANAGED = 1,
    HOOKS_KEPT = 2,    /* ours, but stays in memory */
    HOOKS_FOREIGN = 3, /* the kernel's */
};

struct hooks_run {
    void *address;
    size_t size_bytes; /* of the largest run around the asked page whose pages are all alike */
    enum hooks_kind kind;
    int protection;
    unsigned traits; /* enum hooks_trait, or-ed */
};

/* What lies at an address of the range. */
void hooks_describe(const void *address, struct hooks_run *ret_run);

/* Was the page ever written, as far as we know: false means that it reads as zeroes and need not be copied. */
bool hooks_may_have_bytes(const void *page);

/* ---- fork ------------------------------------------------------------------------------------------------------- */

/*
 * prepare holds the shard at a point where its tables and the mappings agree; nothing but the fork may come between it
 * and its counterpart. -ENOMEM, -EMFILE...: the fork must not happen (the counterpart must not be called).
 * In the child, child_memory comes first: before anything touches managed memory. It allocates nothing. child_thread
 * comes when malloc and pthread_create work again. If the child cannot go on, it is ended there with a sentence: it
 * would read zeroes in place of its bytes.
 */
int hooks_fork_prepare(void);
/* Before a fork that cannot be refused later: -EMFILE, and the log says so. Holds nothing. */
int hooks_fork_check(void);
void hooks_fork_parent(void);
void hooks_fork_child_memory(void);
void hooks_fork_child_thread(void);

/* ---- processors ------------------------------------------------------------------------------------------------- */

/* Every thread's mask of processors is the program's when this returns (affine.h). Any thread; cheap; keeps errno. */
void hooks_settle_affinity(void);

/* ---- seeing it -------------------------------------------------------------------------------------------------- */

/* The process ends in order: hand the last figures over. Safe at any time; may be called more than once. */
void hooks_finish(void);

#endif
