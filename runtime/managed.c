/* SPDX-License-Identifier: Apache-2.0 */
/*
 * managed.c - opening, orders, and what needs no shard: the outside of runtime/hooks.h.
 *
 * Run by the program's threads, some before any constructor. No malloc, no stdio streams, no managed memory.
 */
#include "runtime/managed.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEEP_RETRY_NS 100000
#define SIGNALS_BYTES 8

uint64_t hooks_base;
_Atomic(uint64_t) hooks_size_bytes;
uint64_t hooks_malloc_threshold_bytes, hooks_mmap_threshold_bytes;
struct managed managed_context;

/*
 * What the shard sees of an order. Each thread has a slot; a task that shares it with another one (made by clone() on
 * the same memory, without thread-local storage of its own) takes a spare one.
 */
struct order_slot {
    _Atomic(bool) is_taken;
    struct order order;
};

#define SPARE_SLOTS 64

static _Thread_local struct order_slot thread_slot TLS_STATIC;
static struct order_slot spare_slots[SPARE_SLOTS];

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static int tables_make(void)
{
    void *memory;
    int error = ranges_create(managed_context.window.private_bytes >> PAGE_SHIFT, &managed_context.ranges);

    if (error == 0)
        error = os_pages_map(managed_context.window.private_bytes >> EXTENT_SHIFT, &memory);
    if (error != 0)
        return error_set(error, "no memory for the tables of managed memory");
    managed_context.extents = memory;
    return 0;
}

int hooks_open(void)
{
    const struct dsm_config *config = &managed_context.config;
    uint64_t wanted[TIERS] = {0};
    int error = config_init(&managed_context.config);

    if (error == 0)
        error = config_check(config);
    if (error == 0)
        error = managed_window_open(&managed_context);
    if (error == 0)
        error = tables_make();
    if (error != 0)
        return error;
    log_configure(LOG_WARN, "");
    managed_context.pid = getpid();
    wanted[TIER_DDR] = config->ddr_bytes;
    wanted[TIER_CXL] = config_cxl_memory_bytes(config);
    wanted[TIER_ZMEM] = config->zmem_bytes;
    limits_at_start("", wanted, managed_context.budget_bytes);
    if (config->zmem_percent > 0)
        managed_context.budget_bytes[TIER_ZMEM] = config_zmem_bytes(config, managed_context.budget_bytes[TIER_DDR]);
    hooks_malloc_threshold_bytes = config->preload_malloc_threshold_bytes;
    hooks_mmap_threshold_bytes = config->preload_mmap_threshold_bytes;
    hooks_base = managed_context.window.base;
    hooks_size_bytes = managed_context.window.private_bytes;
    return 0;
}

const char *hooks_error(void)
{
    return error_text();
}

void hooks_warn(const char *sentence)
{
    log_warn("%s", sentence);
}

void managed_say(const char *what, const char *why)
{
    log_error("process %d: %s: %s", (int)getpid(), what, why);
}

void hooks_freeze(void)
{
    managed_context.is_frozen = true;
}

bool hooks_is_running(void)
{
    return managed_is_running();
}

int hooks_descriptor_next(int descriptor)
{
    return os_descriptor_next(descriptor);
}

/* ---- the mutex -------------------------------------------------------------------------------------------------- */

static bool mutex_try(_Atomic(uint32_t) *mutex)
{
    uint32_t free_word = 0;

    return atomic_compare_exchange_strong_explicit(mutex, &free_word, 1, memory_order_acquire, memory_order_relaxed);
}

static void mutex_unlock(_Atomic(uint32_t) *mutex)
{
    if (atomic_exchange_explicit(mutex, 0, memory_order_release) == 2)
        os_futex_wake(mutex, 1, false);
}

void managed_lock(struct managed *context)
{
    if (mutex_try(&context->mutex))
        return;
    while (atomic_exchange_explicit(&context->mutex, 2, memory_order_acquire) != 0)
        os_futex_wait(&context->mutex, 2, UINT64_MAX, false);
}

bool managed_try_lock(struct managed *context)
{
    return context->is_lent || mutex_try(&context->mutex);
}

void managed_unlock(struct managed *context)
{
    if (!context->is_lent)
        mutex_unlock(&context->mutex);
}

/* ---- orders ----------------------------------------------------------------------------------------------------- */

static bool slot_try(struct order_slot *slot)
{
    return !atomic_exchange_explicit(&slot->is_taken, true, memory_order_acquire);
}

static struct order_slot *slot_take(void)
{
    if (slot_try(&thread_slot))
        return &thread_slot;
    for (unsigned i = 0;; i = (i + 1) % SPARE_SLOTS) {
        if (slot_try(&spare_slots[i]))
            return &spare_slots[i];
        if (i == SPARE_SLOTS - 1)
            sched_yield();
    }
}

void managed_slots_reset(void)
{
    atomic_store(&thread_slot.is_taken, false);
    for (unsigned i = 0; i < SPARE_SLOTS; i++)
        atomic_store(&spare_slots[i].is_taken, false);
}

void order_finish(struct order *order, int result)
{
    order->result = result;
    /* Pairs with the acquire in managed_wait(): result is seen. */
    atomic_store_explicit(&order->done, 1, memory_order_release);
    os_futex_wake(&order->done, 1, false);
}

int managed_wait(struct order *order)
{
    while (atomic_load_explicit(&order->done, memory_order_acquire) == 0)
        os_futex_wait(&order->done, 0, UINT64_MAX, false);
    return order->result;
}

/* Pages that the order may make accessible. */
static uint64_t order_opens(const struct order *order)
{
    bool opens = order->run == run_map || order->run == run_map_at || order->run == run_protect;

    return opens && order->protection != PROT_NONE ? order->end - order->first : 0;
}

/* A large order finds the shard running, so that what is beyond the budget is never left to the kernel to fill. */
static int order_carry_out(struct order *order)
{
    int result;

    if (!managed_is_running()) {
        managed_lock(&managed_context);
        managed_start_if_near(&managed_context, order_opens(order));
        if (!managed_is_running()) {
            result = order->run(&managed_context, order);
            managed_unlock(&managed_context);
            return result;
        }
        managed_unlock(&managed_context);
    }
    atomic_store_explicit(&order->done, 0, memory_order_relaxed);
    private_shard_post(&managed_context, order);
    return managed_wait(order);
}

int managed_call(struct order *order)
{
    uint64_t all = UINT64_MAX;
    uint64_t before;
    int saved_errno = errno;
    struct order_slot *slot;
    int result;

    /* A handler that came here would wait for the mutex, or the slot, of the call that it interrupts. */
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, SIGNALS_BYTES);
    slot = slot_take();
    slot->order = *order;
    result = order_carry_out(&slot->order);
    *order = slot->order;
    atomic_store_explicit(&slot->is_taken, false, memory_order_release);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, SIGNALS_BYTES);
    errno = saved_errno;
    return result;
}

/* ---- the calls -------------------------------------------------------------------------------------------------- */

static uint64_t page_index(const void *address)
{
    return ((uintptr_t)address - managed_context.window.base) >> PAGE_SHIFT;
}

static struct order order_of(int (*run)(struct managed *, struct order *), const void *address, size_t size_bytes)
{
    uint64_t first = page_index(address);

    return (struct order){.run = run, .first = first, .end = first + (size_bytes >> PAGE_SHIFT)};
}

int hooks_map(size_t size_bytes, size_t alignment_bytes, int protection, void **ret_address)
{
    struct order order = {.run = run_map};
    int error;

    order.end = size_bytes >> PAGE_SHIFT;
    order.alignment_pages = alignment_bytes > PAGE_BYTES ? alignment_bytes >> PAGE_SHIFT : 1;
    order.protection = protection;
    error = managed_call(&order);
    if (error == 0)
        *ret_address = (void *)(uintptr_t)(managed_context.window.base + (order.first << PAGE_SHIFT));
    return error;
}

int hooks_map_at(void *address, size_t size_bytes, int protection, bool replace)
{
    struct order order = order_of(run_map_at, address, size_bytes);

    order.protection = protection;
    order.is_set = replace;
    return managed_call(&order);
}

int hooks_map_foreign(void *address, size_t size_bytes, int protection, int flags, int descriptor, int64_t offset_bytes)
{
    struct order order = order_of(run_map_foreign, address, size_bytes);

    order.protection = protection;
    order.flags = flags;
    order.descriptor = descriptor;
    order.offset_bytes = offset_bytes;
    return managed_call(&order);
}

int hooks_unmap(void *address, size_t size_bytes)
{
    struct order order = order_of(run_unmap, address, size_bytes);

    return managed_call(&order);
}

int hooks_protect(void *address, size_t size_bytes, int protection)
{
    struct order order = order_of(run_protect, address, size_bytes);

    order.protection = protection;
    return managed_call(&order);
}

int hooks_discard(void *address, size_t size_bytes)
{
    struct order order = order_of(run_discard, address, size_bytes);

    return managed_call(&order);
}

int hooks_keep(void *address, size_t size_bytes)
{
    struct timespec pause = {0, KEEP_RETRY_NS};

    for (;;) {
        struct order order = order_of(run_keep, address, size_bytes);
        int error = managed_call(&order);

        if (error != -EAGAIN)
            return error;
        syscall(SYS_nanosleep, &pause, NULL);
    }
}

int hooks_advise(void *address, size_t size_bytes, enum dsm_advice advice)
{
    struct order order = order_of(run_advise, address, size_bytes);

    order.flags = (int)advice;
    return managed_call(&order);
}

void hooks_settle_affinity(void)
{
    affine_settle(&managed_context.shard.affine);
}

int hooks_mark(void *address, size_t size_bytes, int advice)
{
    struct order order = order_of(run_mark, address, size_bytes);

    order.flags = advice;
    return managed_call(&order);
}

static int run_describe(struct managed *context, struct order *order)
{
    uint64_t pages = context->window.private_bytes >> PAGE_SHIFT;
    struct range run = {.first = pages, .end = UINT64_MAX}; /* cut off since (hooks_limit) */

    if (order->first < pages)
        run = ranges_at(context->ranges, order->first);
    order->first = run.first;
    order->end = run.end;
    order->protection = run.state.protection;
    order->flags = run.state.kind;
    order->traits = run.state.traits;
    return 0;
}

void hooks_describe(const void *address, struct hooks_run *ret_run)
{
    struct order order = order_of(run_describe, address, PAGE_BYTES);

    (void)managed_call(&order);
    *ret_run = (struct hooks_run){
        .address = (void *)(uintptr_t)(managed_context.window.base + (order.first << PAGE_SHIFT)),
        .size_bytes = (order.end - order.first) << PAGE_SHIFT,
        .kind = (enum hooks_kind)order.flags,
        .protection = order.protection,
        .traits = order.traits,
    };
}

/* What the pager does not know may be there all the same: fresh, or kept. */
bool hooks_may_have_bytes(const void *page)
{
    struct page_id id = page_of(page_index(page));
    const struct page_entry *entry = managed_is_running() ? table_find(managed_context.shard.pages, id) : NULL;
    bool present;

    if (entry != NULL && page_where(entry) != WHERE_NOWHERE)
        return true;
    return mmu_present(&managed_context.window, id, 1, &present) != 0 || present;
}
