/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adaptive.c - ARC (Megiddo, Modha: FAST 2003), LIRS (Jiang, Zhang: SIGMETRICS 2002) and S3-FIFO (Yang, Zhang, Qiu,
 * Yue, Vinayak: SOSP 2023), written from the papers, to compare with.
 */
#include "bench/replay/cache.h"
#include "bench/replay/queue.h"

#include <string.h>

/* Lists of resident pages first, then those of ghosts. */
enum list {
    LIST_NEW = 0, /* ARC: T1; S3-FIFO: small; LIRS: resident pages on trial */
    LIST_OLD = 1, /* ARC: T2; S3-FIFO: main; LIRS: protected pages are here only by name, their order is the stack's */
    LIST_NEW_GHOSTS = 2,
    LIST_OLD_GHOSTS = 3,
    LISTS = 4,
    LIST_NONE = 4,
};

struct adaptive {
    uint32_t frames;
    uint32_t target; /* ARC: of the first list */
    struct links links;
    struct queue lists[LISTS];
    uint8_t *list; /* by page */
    uint8_t *hits;
    /* LIRS only */
    struct links stack_links;
    struct queue stack;
    bool *is_in_stack;
    struct links ghost_links;
    struct queue ghosts; /* of the stack, the one evicted first at the head */
};

static void adaptive_destroy(void *cache)
{
    struct adaptive *adaptive = cache;

    links_destroy(&adaptive->links);
    links_destroy(&adaptive->stack_links);
    links_destroy(&adaptive->ghost_links);
    free(adaptive->list);
    free(adaptive->hits);
    free(adaptive->is_in_stack);
    free(adaptive);
}

static void *adaptive_create(const struct cache_config *config)
{
    struct adaptive *adaptive = calloc(1, sizeof(*adaptive));
    bool has_memory;

    if (adaptive == NULL)
        return NULL;
    adaptive->frames = config->frames;
    for (unsigned list = 0; list < LISTS; list++)
        adaptive->lists[list] = queue_new();
    adaptive->stack = queue_new();
    adaptive->ghosts = queue_new();
    adaptive->list = malloc(config->pages_count);
    adaptive->hits = calloc(config->pages_count, 1);
    adaptive->is_in_stack = calloc(config->pages_count, sizeof(bool));
    has_memory = links_create(&adaptive->links, config->pages_count) &&
                 links_create(&adaptive->stack_links, config->pages_count) &&
                 links_create(&adaptive->ghost_links, config->pages_count);
    if (!has_memory || adaptive->list == NULL || adaptive->hits == NULL || adaptive->is_in_stack == NULL) {
        adaptive_destroy(adaptive);
        return NULL;
    }
    memset(adaptive->list, LIST_NONE, config->pages_count);
    return adaptive;
}

static void page_remove(struct adaptive *adaptive, uint32_t page)
{
    if (adaptive->list[page] < LIST_NONE)
        queue_remove(&adaptive->lists[adaptive->list[page]], &adaptive->links, page);
    adaptive->list[page] = LIST_NONE;
}

static void page_move(struct adaptive *adaptive, uint32_t page, enum list list)
{
    page_remove(adaptive, page);
    queue_push(&adaptive->lists[list], &adaptive->links, page);
    adaptive->list[page] = (uint8_t)list;
}

/* The oldest of a list goes to another one; LIST_NONE: it is forgotten. */
static void oldest_move(struct adaptive *adaptive, enum list from, enum list to)
{
    uint32_t page = adaptive->lists[from].head;

    if (to == LIST_NONE)
        page_remove(adaptive, page);
    else
        page_move(adaptive, page, to);
}

/* ---- ARC ----------------------------------------------------------------------------------------------------------
 */

static void arc_replace(struct adaptive *adaptive, bool is_old_ghost)
{
    uint32_t new_count = adaptive->lists[LIST_NEW].count;

    if (new_count > 0 && (new_count > adaptive->target || (is_old_ghost && new_count == adaptive->target)))
        oldest_move(adaptive, LIST_NEW, LIST_NEW_GHOSTS);
    else
        oldest_move(adaptive, LIST_OLD, LIST_OLD_GHOSTS);
}

static void arc_ghost_hit(struct adaptive *adaptive, uint32_t page)
{
    uint32_t new_ghosts = adaptive->lists[LIST_NEW_GHOSTS].count, old_ghosts = adaptive->lists[LIST_OLD_GHOSTS].count;
    uint32_t step;

    if (adaptive->list[page] == LIST_NEW_GHOSTS) {
        step = old_ghosts > new_ghosts ? old_ghosts / new_ghosts : 1;
        adaptive->target = adaptive->frames - adaptive->target > step ? adaptive->target + step : adaptive->frames;
        arc_replace(adaptive, false);
    } else {
        step = new_ghosts > old_ghosts ? new_ghosts / old_ghosts : 1;
        adaptive->target = adaptive->target > step ? adaptive->target - step : 0;
        arc_replace(adaptive, true);
    }
    page_move(adaptive, page, LIST_OLD);
}

static void arc_room(struct adaptive *adaptive)
{
    const struct queue *lists = adaptive->lists;
    uint32_t resident = lists[LIST_NEW].count + lists[LIST_OLD].count;
    uint32_t all = resident + lists[LIST_NEW_GHOSTS].count + lists[LIST_OLD_GHOSTS].count;

    if (lists[LIST_NEW].count + lists[LIST_NEW_GHOSTS].count == adaptive->frames) {
        if (lists[LIST_NEW].count == adaptive->frames) {
            oldest_move(adaptive, LIST_NEW, LIST_NONE);
            return;
        }
        oldest_move(adaptive, LIST_NEW_GHOSTS, LIST_NONE);
    } else if (all == 2 * adaptive->frames) {
        oldest_move(adaptive, LIST_OLD_GHOSTS, LIST_NONE);
    }
    if (resident == adaptive->frames)
        arc_replace(adaptive, false);
}

static void arc_touch(void *cache, uint32_t page, uint32_t next, struct cache_counts *counts)
{
    struct adaptive *adaptive = cache;

    (void)next;
    if (adaptive->list[page] <= LIST_OLD) {
        counts->soft_faults++;
        page_move(adaptive, page, LIST_OLD);
        return;
    }
    counts->misses++;
    if (adaptive->list[page] != LIST_NONE) {
        arc_ghost_hit(adaptive, page);
        return;
    }
    arc_room(adaptive);
    page_move(adaptive, page, LIST_NEW);
}

/* ---- S3-FIFO: a tenth is small, one hit moves a page to main, ghosts as many as main has frames ---------------------
 */

static void s3_fifo_evict(struct adaptive *adaptive)
{
    struct queue *lists = adaptive->lists;
    uint32_t small = adaptive->frames / 10 > 0 ? adaptive->frames / 10 : 1;

    for (;;) {
        bool is_small = lists[LIST_NEW].count > 0 && (lists[LIST_NEW].count >= small || lists[LIST_OLD].count == 0);
        uint32_t page = lists[is_small ? LIST_NEW : LIST_OLD].head;

        if (adaptive->hits[page] == 0) {
            oldest_move(adaptive, is_small ? LIST_NEW : LIST_OLD, is_small ? LIST_NEW_GHOSTS : LIST_NONE);
            if (lists[LIST_NEW_GHOSTS].count > adaptive->frames - small)
                oldest_move(adaptive, LIST_NEW_GHOSTS, LIST_NONE);
            return;
        }
        adaptive->hits[page] = is_small ? 0 : (uint8_t)(adaptive->hits[page] - 1);
        page_move(adaptive, page, LIST_OLD);
    }
}

static void s3_fifo_touch(void *cache, uint32_t page, uint32_t next, struct cache_counts *counts)
{
    struct adaptive *adaptive = cache;
    bool is_ghost = adaptive->list[page] == LIST_NEW_GHOSTS;

    (void)next;
    if (adaptive->list[page] <= LIST_OLD) {
        counts->soft_faults++;
        adaptive->hits[page] = (uint8_t)(adaptive->hits[page] < 3 ? adaptive->hits[page] + 1 : 3);
        return;
    }
    counts->misses++;
    if (is_ghost)
        page_remove(adaptive, page);
    if (adaptive->lists[LIST_NEW].count + adaptive->lists[LIST_OLD].count == adaptive->frames)
        s3_fifo_evict(adaptive);
    adaptive->hits[page] = 0;
    page_move(adaptive, page, is_ghost ? LIST_OLD : LIST_NEW);
}

/* ---- LIRS: a hundredth on trial, two ghosts a frame
 * ------------------------------------------------------------------ */

static bool lirs_is_ghost(const struct adaptive *adaptive, uint32_t page)
{
    return adaptive->is_in_stack[page] && adaptive->list[page] == LIST_NONE;
}

static void stack_remove(struct adaptive *adaptive, uint32_t page)
{
    if (!adaptive->is_in_stack[page])
        return;
    if (lirs_is_ghost(adaptive, page))
        queue_remove(&adaptive->ghosts, &adaptive->ghost_links, page);
    queue_remove(&adaptive->stack, &adaptive->stack_links, page);
    adaptive->is_in_stack[page] = false;
}

static void stack_push(struct adaptive *adaptive, uint32_t page)
{
    stack_remove(adaptive, page);
    queue_push(&adaptive->stack, &adaptive->stack_links, page);
    adaptive->is_in_stack[page] = true;
}

/* The bottom of the stack is a protected page. */
static void stack_prune(struct adaptive *adaptive)
{
    while (adaptive->stack.count > 0 && adaptive->list[adaptive->stack.head] != LIST_OLD)
        stack_remove(adaptive, adaptive->stack.head);
}

static uint32_t lirs_protected_max(const struct adaptive *adaptive)
{
    return adaptive->frames - (adaptive->frames / 100 > 0 ? adaptive->frames / 100 : 1);
}

/* The page becomes protected, the bottom of the stack goes on trial for it. */
static void lirs_protect(struct adaptive *adaptive, uint32_t page)
{
    page_move(adaptive, page, LIST_OLD);
    if (adaptive->lists[LIST_OLD].count > lirs_protected_max(adaptive)) {
        uint32_t bottom = adaptive->stack.head;

        stack_remove(adaptive, bottom);
        page_move(adaptive, bottom, LIST_NEW);
    }
    stack_prune(adaptive);
}

static void lirs_evict(struct adaptive *adaptive)
{
    uint32_t page = adaptive->lists[LIST_NEW].head;

    if (page == QUEUE_END)
        return;
    page_remove(adaptive, page);
    if (!adaptive->is_in_stack[page])
        return;
    queue_push(&adaptive->ghosts, &adaptive->ghost_links, page);
    if (adaptive->ghosts.count > 2 * adaptive->frames)
        stack_remove(adaptive, adaptive->ghosts.head);
}

static void lirs_hit(struct adaptive *adaptive, uint32_t page)
{
    bool was_in_stack = adaptive->is_in_stack[page];

    stack_push(adaptive, page);
    if (adaptive->list[page] == LIST_OLD)
        stack_prune(adaptive);
    else if (was_in_stack)
        lirs_protect(adaptive, page);
    else
        page_move(adaptive, page, LIST_NEW);
}

static void lirs_touch(void *cache, uint32_t page, uint32_t next, struct cache_counts *counts)
{
    struct adaptive *adaptive = cache;
    bool protect;

    (void)next;
    if (adaptive->list[page] != LIST_NONE) {
        counts->soft_faults++;
        lirs_hit(adaptive, page);
        return;
    }
    counts->misses++;
    protect = adaptive->is_in_stack[page];
    stack_remove(adaptive, page);
    if (adaptive->lists[LIST_NEW].count + adaptive->lists[LIST_OLD].count == adaptive->frames)
        lirs_evict(adaptive);
    stack_push(adaptive, page);
    if (protect || adaptive->lists[LIST_OLD].count < lirs_protected_max(adaptive))
        lirs_protect(adaptive, page);
    else
        page_move(adaptive, page, LIST_NEW);
}

const struct cache_ops cache_arc = {"arc", 1, false, adaptive_create, arc_touch, adaptive_destroy};
const struct cache_ops cache_s3_fifo = {"s3-fifo", 2, false, adaptive_create, s3_fifo_touch, adaptive_destroy};
const struct cache_ops cache_lirs = {"lirs", 2, false, adaptive_create, lirs_touch, adaptive_destroy};
