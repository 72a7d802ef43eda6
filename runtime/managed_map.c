/* SPDX-License-Identifier: Apache-2.0 */
/*
 * managed_map.c - what an order does to mappings: the ranges, the kernel's view, and the pager's, changed together.
 *
 * Run with the mutex: by the asking thread before the shard runs, afterwards on the shard. What always holds: a free
 * page is inaccessible (PROT_NONE) in the kernel, or not there (is_bare); a page of ours has the protection that ranges
 * say; an extent with an accessible page of ours is FRESH or REGISTERED.
 */
#include "base/error.h"
#include "base/log.h"
#include "runtime/managed.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define START_SHARE 2 /* the shard starts when this part of the DDR budget is handed out */

static void *address_of(const struct managed *managed, uint64_t page)
{
    return (void *)(uintptr_t)(managed->window.base + (page << PAGE_SHIFT));
}

static size_t bytes_of(uint64_t first, uint64_t end)
{
    return (size_t)(end - first) << PAGE_SHIFT;
}

static bool range_is_valid(const struct managed *managed, const struct order *order)
{
    uint64_t pages = managed->window.private_bytes >> PAGE_SHIFT;

    return order->first < order->end && order->end <= pages;
}

static bool is_ours(struct range_state state)
{
    return state.kind == HOOKS_MANAGED || state.kind == HOOKS_KEPT;
}

/* ---- counting --------------------------------------------------------------------------------------------------- */

/* Adds or takes away what [first, end) counts for in its present state. */
static void pages_count(struct managed *managed, uint64_t first, uint64_t end, int sign)
{
    struct range run;

    for (uint64_t at = first; ranges_next(managed->ranges, at, &run) && run.first < end; at = run.end) {
        uint64_t from = run.first > first ? run.first : first;
        uint64_t count = (run.end < end ? run.end : end) - from;

        if (run.state.kind == HOOKS_MANAGED && run.state.protection != PROT_NONE)
            managed->managed_pages += sign > 0 ? count : -count;
        if (run.state.kind == HOOKS_KEPT)
            managed->kept_pages += sign > 0 ? count : -count;
    }
}

static int state_set(struct managed *managed, uint64_t first, uint64_t end, struct range_state state)
{
    int error;

    pages_count(managed, first, end, -1);
    error = ranges_set(managed->ranges, first, end, state);
    pages_count(managed, first, end, 1);
    if (managed_is_running())
        pager_private_kept_set(managed->shard.pager, managed->kept_pages);
    return error;
}

/* ---- extents ---------------------------------------------------------------------------------------------------- */

/* The first extent from `extent` on, below `end`, whose state is not (is_other) or is `state`. */
static uint64_t extent_find(const struct managed *managed, uint64_t extent, uint64_t end, enum extent_state state,
                            bool is_other)
{
    while (extent < end && (managed->extents[extent] == state) == is_other)
        extent++;
    return extent;
}

static int extents_charge(struct managed *managed, uint64_t first, uint64_t end)
{
    memset(&managed->extents[first], EXTENT_FRESH, end - first);
    if (!managed_is_running()) {
        managed->charged_extents += end - first;
        return 0;
    }
    for (uint64_t i = first; i < end; i++)
        pager_private_charge(managed->shard.pager, page_of(i * EXTENT_PAGES));
    return 0;
}

/* Pages of ours in [first, end) that are not registered yet. */
static int pages_register(struct managed *managed, uint64_t first, uint64_t end)
{
    struct range run;
    int error = 0;

    for (uint64_t at = first; error == 0 && ranges_next(managed->ranges, at, &run) && run.first < end; at = run.end) {
        uint64_t from = run.first > first ? run.first : first;
        uint64_t to = run.end < end ? run.end : end;

        if (run.state.kind == HOOKS_MANAGED)
            error = mmu_register(managed->shard.mmu, page_of(from), to - from);
    }
    return error;
}

/* Untouched extents become usable: left to the kernel while there is room for them, otherwise managed at once. */
static int extents_open(struct managed *managed, uint64_t first, uint64_t end)
{
    uint64_t room = managed_is_running() ? pager_private_room(managed->shard.pager) : end - first;
    uint64_t middle = first + (room < end - first ? room : end - first);
    int error = middle > first ? extents_charge(managed, first, middle) : 0;

    if (error != 0 || middle == end)
        return error;
    error = pages_register(managed, middle * EXTENT_PAGES, end * EXTENT_PAGES);
    if (error == 0)
        memset(&managed->extents[middle], EXTENT_REGISTERED, end - middle);
    return error;
}

/*
 * Not for a task that only shares this memory: the shard would end with that task. The next order of the process itself
 * starts it.
 */
static bool has_to_start(const struct managed *managed, uint64_t more_pages)
{
    uint64_t charged = (managed->charged_extents << EXTENT_SHIFT) + (more_pages << PAGE_SHIFT);

    return atomic_load(&managed->state) == MANAGED_IDLE && charged >= managed->budget_bytes[TIER_DDR] / START_SHARE &&
           managed_is_own();
}

void managed_start_if_near(struct managed *managed, uint64_t more_pages)
{
    int error;

    if (!has_to_start(managed, more_pages))
        return;
    if (managed->is_frozen) {
        atomic_store(&managed->state, MANAGED_OFF);
        managed_say("its memory stays unmanaged", "it had put itself under a seccomp filter before it needed much");
        return;
    }
    error = private_shard_start(managed);
    if (error != 0) {
        atomic_store(&managed->state, MANAGED_OFF);
        managed_say("its memory stays unmanaged", managed->shard.start_text);
    }
}

/* Accessible pages came into being in [first, end). */
static int extents_use(struct managed *managed, uint64_t first, uint64_t end)
{
    uint64_t last = (end + EXTENT_PAGES - 1) / EXTENT_PAGES;
    uint64_t at = first / EXTENT_PAGES;
    int error = 0;

    while (error == 0 && (at = extent_find(managed, at, last, EXTENT_UNUSED, false)) < last) {
        uint64_t to = extent_find(managed, at, last, EXTENT_UNUSED, true);

        error = extents_open(managed, at, to);
        at = to;
    }
    managed_start_if_near(managed, 0);
    return error;
}

/* Memory that the program may not touch now (PROT_NONE) can have bytes, from a time when it might. */
static bool pages_are_there(const struct managed *managed, uint64_t first, uint64_t end)
{
    bool present[EXTENT_PAGES];

    if (mmu_present(&managed->window, page_of(first), (unsigned)(end - first), present) != 0)
        return true;
    return memchr(present, true, end - first) != NULL;
}

/* What is registered stays so with any protection. */
static bool extent_is_used(const struct managed *managed, uint64_t extent)
{
    uint64_t end = (extent + 1) * EXTENT_PAGES;
    struct range run;

    for (uint64_t at = extent * EXTENT_PAGES; ranges_next(managed->ranges, at, &run) && run.first < end; at = run.end) {
        if (!is_ours(run.state))
            continue;
        if (run.state.protection != PROT_NONE || managed->extents[extent] == EXTENT_REGISTERED)
            return true;
        run.first = run.first > extent * EXTENT_PAGES ? run.first : extent * EXTENT_PAGES;
        if (pages_are_there(managed, run.first, run.end < end ? run.end : end))
            return true;
    }
    return false;
}

/* Extents of [first, end) in which nothing of ours is left are not charged any more. */
static void extents_settle(struct managed *managed, uint64_t first, uint64_t end)
{
    uint64_t last = (end + EXTENT_PAGES - 1) / EXTENT_PAGES;
    uint64_t at = first / EXTENT_PAGES;

    for (; (at = extent_find(managed, at, last, EXTENT_UNUSED, true)) < last; at++) {
        if (extent_is_used(managed, at))
            continue;
        if (managed->extents[at] == EXTENT_FRESH && !managed_is_running())
            managed->charged_extents--;
        else if (managed->extents[at] == EXTENT_FRESH)
            pager_private_uncharge(managed->shard.pager, page_of(at * EXTENT_PAGES));
        managed->extents[at] = EXTENT_UNUSED;
    }
}

int managed_runs(void *context, struct page_id first, struct page_run runs[PAGER_EXTENT_RUNS_MAX])
{
    struct managed *managed = context;
    uint64_t end = first.index + EXTENT_PAGES;
    struct range run;
    int count = 0;

    if (!managed_try_lock(managed))
        return -EAGAIN;
    for (uint64_t at = first.index; ranges_next(managed->ranges, at, &run) && run.first < end; at = run.end) {
        uint64_t from = run.first > first.index ? run.first : first.index;
        uint64_t to = run.end < end ? run.end : end;

        if (run.state.kind == HOOKS_MANAGED && count < (int)PAGER_EXTENT_RUNS_MAX)
            runs[count++] = (struct page_run){page_of(from), (unsigned)(to - from)};
    }
    managed->extents[first.index / EXTENT_PAGES] = EXTENT_REGISTERED;
    managed_unlock(managed);
    return count;
}

/* ---- mapping ---------------------------------------------------------------------------------------------------- */

/* What lies there goes: bytes, slots, mappings. The kernel then has inaccessible memory there again. */
static int pages_clear(struct managed *managed, uint64_t first, uint64_t end)
{
    if (managed_is_running()) {
        pager_advice_forget(managed->shard.pager, page_of(first), end - first);
        pager_private_forget(managed->shard.pager, page_of(first), end - first);
    } else {
        managed_advice_forget(managed, first, end);
    }
    if (managed_free_map(managed, first, end) != 0)
        return -ENOMEM;
    return state_set(managed, first, end, (struct range_state){.kind = HOOKS_FREE});
}

static bool pages_are_free(const struct managed *managed, uint64_t first, uint64_t end)
{
    struct range run = ranges_at(managed->ranges, first);

    return run.state.kind == HOOKS_FREE && run.end >= end;
}

/* Free pages become the program's. */
static int pages_give(struct managed *managed, uint64_t first, uint64_t end, int protection)
{
    struct range_state state = {.kind = HOOKS_MANAGED, .protection = (uint8_t)protection};
    int error = managed_free_open(managed, first, end, protection);

    if (error != 0)
        return error;
    error = state_set(managed, first, end, state);
    if (error == 0 && managed_is_running()) {
        uint64_t last = (end + EXTENT_PAGES - 1) / EXTENT_PAGES;
        uint64_t at = first / EXTENT_PAGES;

        for (; error == 0 && (at = extent_find(managed, at, last, EXTENT_REGISTERED, false)) < last; at++) {
            uint64_t from = at * EXTENT_PAGES > first ? at * EXTENT_PAGES : first;
            uint64_t to = (at + 1) * EXTENT_PAGES < end ? (at + 1) * EXTENT_PAGES : end;

            error = pages_register(managed, from, to);
        }
    }
    if (error == 0 && protection != PROT_NONE)
        error = extents_use(managed, first, end);
    if (error == 0)
        return 0;
    (void)pages_clear(managed, first, end);
    extents_settle(managed, first, end);
    return -ENOMEM;
}

int run_map(struct managed *managed, struct order *order)
{
    uint64_t count = order->end;
    int error;

    if (count == 0)
        return -EINVAL;
    if (ranges_find_free(managed->ranges, count, order->alignment_pages, &order->first) != 0)
        return -ENOSPC;
    order->end = order->first + count;
    error = pages_give(managed, order->first, order->end, order->protection);
    return error == -EEXIST ? -ENOSPC : error;
}

int run_map_at(struct managed *managed, struct order *order)
{
    int error = 0;

    if (!range_is_valid(managed, order))
        return -EINVAL;
    if (!pages_are_free(managed, order->first, order->end)) {
        if (!order->is_set)
            return -EEXIST;
        error = pages_clear(managed, order->first, order->end);
    }
    if (error == 0)
        error = pages_give(managed, order->first, order->end, order->protection);
    if (error == -EEXIST && order->is_set)
        error = -ENOMEM;
    extents_settle(managed, order->first, order->end);
    return error;
}

int run_map_foreign(struct managed *managed, struct order *order)
{
    void *address = address_of(managed, order->first);
    struct range_state state = {.kind = HOOKS_FOREIGN, .protection = (uint8_t)order->protection};
    int error;

    if (!range_is_valid(managed, order))
        return -EINVAL;
    error = pages_clear(managed, order->first, order->end);
    if (error == 0 && mmap(address, bytes_of(order->first, order->end), order->protection, order->flags | MAP_FIXED,
                           order->descriptor, order->offset_bytes) != address)
        error = -errno;
    if (error == 0)
        error = state_set(managed, order->first, order->end, state);
    extents_settle(managed, order->first, order->end);
    return error;
}

int run_unmap(struct managed *managed, struct order *order)
{
    int error = range_is_valid(managed, order) ? pages_clear(managed, order->first, order->end) : -EINVAL;

    if (error == 0)
        extents_settle(managed, order->first, order->end);
    return error;
}

/* ---- protection and contents ------------------------------------------------------------------------------------ */

/* Visits the mapped parts of the order's pages; -ENOMEM when there are holes (all parts are visited all the same). */
static int parts_visit(struct managed *managed, const struct order *order,
                       int (*visit)(struct managed *managed, struct range part, const struct order *order))
{
    uint64_t at = order->first;
    struct range run;
    bool has_holes = false;
    int error = 0;

    while (error == 0 && at < order->end && ranges_next(managed->ranges, at, &run) && run.first < order->end) {
        has_holes = has_holes || run.first > at;
        run.first = run.first > at ? run.first : at;
        run.end = run.end < order->end ? run.end : order->end;
        error = visit(managed, run, order);
        at = run.end;
    }
    return error != 0 ? error : has_holes || at < order->end ? -ENOMEM : 0;
}

static int part_protect(struct managed *managed, struct range part, const struct order *order)
{
    struct range_state state = part.state;
    int error = 0;

    if (mprotect(address_of(managed, part.first), bytes_of(part.first, part.end), order->protection) != 0)
        return -errno;
    state.protection = (uint8_t)order->protection;
    error = state_set(managed, part.first, part.end, state);
    if (error == 0 && is_ours(state) && state.protection != PROT_NONE)
        error = extents_use(managed, part.first, part.end);
    return error;
}

/* As the kernel does: what lies behind the first hole keeps its protection. */
int run_protect(struct managed *managed, struct order *order)
{
    struct order whole = *order;
    struct range run;
    int error;

    if (!range_is_valid(managed, order))
        return -ENOMEM;
    whole.end = order->first;
    while (whole.end < order->end && ranges_next(managed->ranges, whole.end, &run) && run.first <= whole.end)
        whole.end = run.end < order->end ? run.end : order->end;
    error = parts_visit(managed, &whole, part_protect);
    return error == 0 && whole.end < order->end ? -ENOMEM : error;
}

static int part_discard(struct managed *managed, struct range part, const struct order *order)
{
    (void)order;
    if (managed_is_running() && part.state.kind == HOOKS_MANAGED)
        pager_private_forget(managed->shard.pager, page_of(part.first), part.end - part.first);
    return madvise(address_of(managed, part.first), bytes_of(part.first, part.end), MADV_DONTNEED) == 0 ? 0 : -errno;
}

int run_discard(struct managed *managed, struct order *order)
{
    return range_is_valid(managed, order) ? parts_visit(managed, order, part_discard) : -ENOMEM;
}

/* Registered pieces leave management; -EAGAIN while bytes are on their way. */
static int part_keep(struct managed *managed, struct range part, const struct order *order)
{
    struct range_state state = part.state;
    uint64_t at = part.first;
    int error = 0;

    (void)order;
    if (part.state.kind != HOOKS_MANAGED)
        return 0;
    while (error == 0 && managed_is_running() && at < part.end) {
        uint64_t limit = (at / EXTENT_PAGES + 1) * EXTENT_PAGES;

        limit = limit < part.end ? limit : part.end;
        if (managed->extents[at / EXTENT_PAGES] == EXTENT_REGISTERED)
            error = pager_private_keep(managed->shard.pager, page_of(at), limit - at);
        at = limit;
    }
    if (error != 0)
        return error;
    state.kind = HOOKS_KEPT;
    return state_set(managed, part.first, part.end, state);
}

int run_keep(struct managed *managed, struct order *order)
{
    uint64_t most = managed->budget_bytes[TIER_DDR] / 2 >> PAGE_SHIFT;
    uint64_t kept = managed->kept_pages;
    struct range run;

    if (!range_is_valid(managed, order))
        return -ENOMEM;
    for (uint64_t at = order->first; ranges_next(managed->ranges, at, &run) && run.first < order->end; at = run.end) {
        uint64_t from = run.first > order->first ? run.first : order->first;

        if (run.state.kind == HOOKS_MANAGED)
            kept += (run.end < order->end ? run.end : order->end) - from;
    }
    if (kept > most && kept > managed->kept_pages)
        return error_set(-ENOMEM, "more than half of the DDR budget would have to stay in memory; raise option ddr");
    return parts_visit(managed, order, part_keep);
}

/* A hint that finds no room is not an error of the program's. */
static int part_advise(struct managed *managed, struct range part, const struct order *order)
{
    uint64_t count = part.end - part.first;
    enum dsm_advice advice = (enum dsm_advice)order->flags;

    if (part.state.kind == HOOKS_MANAGED && managed_is_running())
        pager_advise(managed->shard.pager, page_of(part.first), count, advice);
    else if (part.state.kind == HOOKS_MANAGED)
        managed_advice_keep(managed, part.first, part.end, advice);
    return 0;
}

int run_advise(struct managed *managed, struct order *order)
{
    return range_is_valid(managed, order) ? parts_visit(managed, order, part_advise) : 0;
}

/* What advice gives and takes. */
static struct range_state state_advised(struct range_state state, int advice)
{
    static const struct {
        int advice;
        uint8_t gives, takes;
    } traits[] = {
        {MADV_WIPEONFORK, HOOKS_WIPED, 0},        {MADV_KEEPONFORK, 0, HOOKS_WIPED},
        {MADV_DONTFORK, HOOKS_LEFT, 0},           {MADV_DOFORK, 0, HOOKS_LEFT},
        {MADV_DONTDUMP, HOOKS_UNDUMPED, 0},       {MADV_DODUMP, 0, HOOKS_UNDUMPED},
        {MADV_HUGEPAGE, HOOKS_HUGE, HOOKS_SMALL}, {MADV_NOHUGEPAGE, HOOKS_SMALL, HOOKS_HUGE},
    };

    for (size_t i = 0; i < ARRAY_COUNT(traits); i++)
        if (traits[i].advice == advice)
            state.traits = (uint8_t)((state.traits & ~traits[i].takes) | traits[i].gives);
    return state;
}

static int part_mark(struct managed *managed, struct range part, const struct order *order)
{
    struct range_state state = state_advised(part.state, order->flags);

    if (madvise(address_of(managed, part.first), bytes_of(part.first, part.end), order->flags) != 0)
        return -errno;
    if (state.kind == HOOKS_FOREIGN)
        state.traits &= HOOKS_LEFT;
    return state_set(managed, part.first, part.end, state);
}

int run_mark(struct managed *managed, struct order *order)
{
    return range_is_valid(managed, order) ? parts_visit(managed, order, part_mark) : -ENOMEM;
}

/* ---- a forked child --------------------------------------------------------------------------------------------- */

/* What the program keeps from its children is a hole here, which the kernel might fill. */
static int child_leave(struct managed *managed, const struct range *run)
{
    int error = pages_clear(managed, run->first, run->end);

    extents_settle(managed, run->first, run->end);
    return error;
}

static int child_run(struct managed *managed, const struct range *run)
{
    uint64_t at = run->first;
    int error = 0;

    if (run->state.traits & HOOKS_WIPED)
        pager_private_forget(managed->shard.pager, page_of(run->first), run->end - run->first);
    while (error == 0 && at < run->end) {
        uint64_t last = (run->end + EXTENT_PAGES - 1) / EXTENT_PAGES;
        uint64_t extent = extent_find(managed, at / EXTENT_PAGES, last, EXTENT_REGISTERED, false);
        uint64_t past = extent_find(managed, extent, last, EXTENT_REGISTERED, true);
        uint64_t from = extent * EXTENT_PAGES > at ? extent * EXTENT_PAGES : at;
        uint64_t to = past * EXTENT_PAGES < run->end ? past * EXTENT_PAGES : run->end;

        if (extent < last)
            error = mmu_register(managed->shard.mmu, page_of(from), to - from);
        at = past * EXTENT_PAGES;
    }
    return error;
}

int managed_enter_child(struct managed *managed)
{
    struct range run;
    int error = 0;

    for (uint64_t at = 0; error == 0 && ranges_next(managed->ranges, at, &run); at = run.end)
        if (run.state.traits & HOOKS_LEFT)
            error = child_leave(managed, &run);
        else if (run.state.kind == HOOKS_MANAGED && managed_is_running())
            error = child_run(managed, &run);
    return error;
}
