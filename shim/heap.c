/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heap.c - the managed heap: jemalloc's arenas over the range of runtime/hooks.h, and the threads' share in them.
 *
 * Arena 0 is jemalloc's own: it has ordinary memory and serves nobody but jemalloc's bookkeeping. Managed arenas are
 * made with the default hooks and get ours afterwards, so that what an arena knows of its blocks lies in ordinary
 * memory too and a free never touches the block. A thread is given an arena by turns when it first allocates.
 *
 * What is freed should leave the charge soon, or cold garbage would be written to a lower tier: jemalloc gives it back
 * within a tenth of a second. Address ranges below 2 MiB are emptied but kept by the arena (retain), so that the map of
 * the process does not fall into small pieces. Large blocks are not jemalloc's (heap_large.c).
 */
#include "shim/heap.h"
#include "shim/raw.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define ARENAS_MAX 32
#define ROOM_BYTES ((size_t)8 << 20) /* a thread's cache, and what jemalloc may ask for to cut it from */

/*
 * One automatic arena, 0; the program's MALLOC_CONF does not reach us (heap_jemalloc.c). Small blocks are cut from 32
 * KiB (jemalloc takes one page for many classes): each such piece costs 128 bytes beside the managed memory.
 */
const char *je_malloc_conf = "narenas:1,oversize_threshold:0,background_thread:false,retain:true,slab_sizes:1-4096:8,"
                             "dirty_decay_ms:100,muzzy_decay_ms:0,dss:disabled,abort:false,abort_conf:false";

struct heap heap;
_Thread_local int heap_thread __attribute__((tls_model("initial-exec"))) = HEAP_THREAD_NEW;

/* The arenas of the threads. The lock is taken around a fork too. */
static struct {
    pthread_mutex_t lock;
    pthread_key_t key;
    _Atomic(unsigned) turn;
    unsigned count;
    _Atomic(unsigned) arenas[ARENAS_MAX]; /* jemalloc's index; 0: not made yet */
} threads = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- memory of the arenas --------------------------------------------------------------------------------------- */

/*
 * jemalloc asks for a chunk to cut the extent from before it asks for the extent; chunks above 2 MiB are refused, they
 * would be a size class more than is needed. What the extents of large classes measure is a class and one page.
 */
static bool is_growth(size_t size)
{
    return size > HEAP_BLOCK_BYTES && size % (HEAP_BLOCK_BYTES / 4) == 0;
}

static void *extent_alloc(extent_hooks_t *hooks, void *new_address, size_t size, size_t alignment, bool *zero,
                          bool *commit, unsigned arena)
{
    void *address;

    (void)hooks;
    (void)arena;
    /* With retain no extent is asked for at a place. */
    if (new_address != NULL || is_growth(size))
        return NULL;
    if (size >= HEAP_BLOCK_BYTES && alignment < HEAP_BLOCK_BYTES)
        alignment = HEAP_BLOCK_BYTES; /* whole huge pages */
    if (hooks_map(size, alignment, PROT_READ | PROT_WRITE, &address) != 0)
        return NULL;
    *zero = true;
    *commit = true;
    return address;
}

/* True: the arena keeps the addresses, emptied by extent_purge_forced(). */
static bool extent_dalloc(extent_hooks_t *hooks, void *address, size_t size, bool committed, unsigned arena)
{
    (void)hooks;
    (void)committed;
    (void)arena;
    return size < HEAP_BLOCK_BYTES || hooks_unmap(address, size) != 0;
}

static bool extent_purge_forced(extent_hooks_t *hooks, void *address, size_t size, size_t offset, size_t length,
                                unsigned arena)
{
    (void)hooks;
    (void)size;
    (void)arena;
    return hooks_discard((char *)address + offset, length) != 0;
}

static bool extent_split(extent_hooks_t *hooks, void *address, size_t size, size_t size_a, size_t size_b,
                         bool committed, unsigned arena)
{
    (void)hooks;
    (void)address;
    (void)size;
    (void)size_a;
    (void)size_b;
    (void)committed;
    (void)arena;
    return false;
}

static bool extent_merge(extent_hooks_t *hooks, void *address_a, size_t size_a, void *address_b, size_t size_b,
                         bool committed, unsigned arena)
{
    (void)hooks;
    (void)address_a;
    (void)size_a;
    (void)address_b;
    (void)size_b;
    (void)committed;
    (void)arena;
    return false;
}

/* No lazy purge: pages given to the kernel "when it likes" would stay in the charge. */
static extent_hooks_t extent_hooks = {
    .alloc = extent_alloc,
    .dalloc = extent_dalloc,
    .purge_forced = extent_purge_forced,
    .split = extent_split,
    .merge = extent_merge,
};

/* ---- arenas ----------------------------------------------------------------------------------------------------- */

static int arena_set(unsigned arena, const char *what, void *value, size_t size)
{
    char name[64];

    snprintf(name, sizeof(name), "arena.%u.%s", arena, what);
    return je_mallctl(name, NULL, NULL, value, size);
}

/* 0: it cannot be made. */
static unsigned arena_make(void)
{
    extent_hooks_t *hooks = &extent_hooks;
    size_t grow_bytes = HEAP_BLOCK_BYTES; /* at once; jemalloc would take more and more */
    unsigned arena = 0;
    size_t size = sizeof(arena);

    if (je_mallctl("arenas.create", &arena, &size, NULL, 0) != 0)
        return 0;
    if (arena_set(arena, "extent_hooks", &hooks, sizeof(hooks)) != 0 ||
        arena_set(arena, "retain_grow_limit", &grow_bytes, sizeof(grow_bytes)) != 0)
        return 0;
    return arena;
}

/* The arena of a place in the circle, made when it is first wanted. */
static unsigned arena_at(unsigned place)
{
    unsigned arena = atomic_load_explicit(&threads.arenas[place], memory_order_acquire);

    if (arena != 0)
        return arena;
    pthread_mutex_lock(&threads.lock);
    arena = atomic_load_explicit(&threads.arenas[place], memory_order_relaxed);
    if (arena == 0) {
        arena = arena_make();
        atomic_store_explicit(&threads.arenas[place], arena, memory_order_release);
    }
    pthread_mutex_unlock(&threads.lock);
    return arena;
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

/* jemalloc takes its share of the thread apart a little later (its key is younger): allocate nothing there any more. */
static void thread_end(void *unused)
{
    (void)unused;
    heap_thread = HEAP_THREAD_OTHER;
}

/*
 * jemalloc goes on without the cache of a thread for which it got no memory, and crashes when it looks there (5.3,
 * tcache_init). So that is not tried where a limit leaves no room.
 */
static bool has_room(void)
{
    void *memory = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return memory != MAP_FAILED && munmap(memory, ROOM_BYTES) == 0;
}

static void thread_enter(void)
{
    unsigned arena;

    /* First: what libc or jemalloc allocate in here is libc's. */
    heap_thread = HEAP_THREAD_OTHER;
    if (shim_own_thread() || !heap_is_first() || !has_room())
        return;
    arena = arena_at(atomic_fetch_add_explicit(&threads.turn, 1, memory_order_relaxed) % threads.count);
    if (arena == 0 || je_mallctl("thread.arena", NULL, NULL, &arena, sizeof(arena)) != 0)
        return;
    if (pthread_setspecific(threads.key, &threads) != 0)
        return;
    heap_thread = HEAP_THREAD_READY;
}

bool heap_wants(size_t size, const void *caller)
{
    int before = errno;

    if (heap_thread == HEAP_THREAD_OTHER || shim_caller_is_libc(caller))
        return false;
    if (!shim_active()) {
        if (atomic_load_explicit(&shim.state, memory_order_relaxed) == SHIM_INERT)
            heap_thread = HEAP_THREAD_OTHER; /* for good */
        return false;
    }
    if (heap_thread == HEAP_THREAD_NEW)
        thread_enter();
    errno = before;
    return heap_thread == HEAP_THREAD_READY && size >= heap.threshold_bytes;
}

/* ---- start ------------------------------------------------------------------------------------------------------ */

static unsigned arena_count(void)
{
    cpu_set_t cpus;
    unsigned count;

    if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0)
        return 4;
    count = 2 * (unsigned)CPU_COUNT(&cpus);
    return count < ARENAS_MAX ? count : ARENAS_MAX;
}

int heap_start(void)
{
    unsigned spare;

    /* Before jemalloc makes its own key: destructors run in that order. */
    if (pthread_key_create(&threads.key, thread_end) != 0)
        return -EAGAIN;
    threads.count = arena_count();
    spare = arena_at(0);
    if (spare == 0)
        return -ENOMEM;
    heap.spare_flags = MALLOCX_ARENA(spare) | MALLOCX_TCACHE_NONE;
    heap.threshold_bytes =
        hooks_malloc_threshold_bytes < HEAP_LARGE_BYTES ? hooks_malloc_threshold_bytes : HEAP_LARGE_BYTES;
    heap.span_bytes = HEAP_LARGE_BYTES - heap.threshold_bytes;
    return 0;
}

/* ---- fork ------------------------------------------------------------------------------------------------------- */

/* jemalloc's handlers, which it thinks it registers (heap_jemalloc.c). */
static struct {
    void (*prepare)(void);
    void (*parent)(void);
    void (*child)(void);
} jemalloc_fork;

int heap_jemalloc_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));
int heap_jemalloc_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
    jemalloc_fork.prepare = prepare;
    jemalloc_fork.parent = parent;
    jemalloc_fork.child = child;
    return 0;
}

void heap_fork_prepare(void)
{
    pthread_mutex_lock(&threads.lock);
    heap_large_lock();
    if (jemalloc_fork.prepare != NULL)
        jemalloc_fork.prepare();
}

void heap_fork_parent(void)
{
    if (jemalloc_fork.parent != NULL)
        jemalloc_fork.parent();
    heap_large_unlock();
    pthread_mutex_unlock(&threads.lock);
}

void heap_fork_child(void)
{
    if (jemalloc_fork.child != NULL)
        jemalloc_fork.child();
    heap_large_unlock();
    pthread_mutex_unlock(&threads.lock);
}
