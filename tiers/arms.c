/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arms.c - miniature simulations of LRU, S3-FIFO and LIRS. PURE. Run by the shard's thread.
 *
 * All arms share one directory of sampled pages: who was touched when. An arm has one cell a page: its place on one of
 * the arm's two lists. Jiang, Zhang: LIRS, SIGMETRICS 2002; the LIRS stack needs no links here: a page is in it when it
 * was touched after the protected page that was touched longest ago. Yang, Zhang, Qiu, Yue, Vinayak: FIFO queues are
 * all you need for cache eviction (S3-FIFO), SOSP 2023; moved to the main queue after one hit.
 */
#include "tiers/arms.h"
#include "base/assert.h"

#include <string.h>

#define FRAMES_MAX      2048u            /* of an arm */
#define PAGES_MAX       (4 * FRAMES_MAX) /* in the directory */
#define NONE            UINT16_MAX
#define MASKS           (1u << ARMS)
#define COUNT_UNIT      64u /* counts are kept in such parts, for their decay */
#define SCAN_MAX        8u
#define DIFFERENCES_MIN 32u /* touches that tell arms apart in a round of comparing */
#define ROUNDS_MEMORY   64u
#define GAIN_MIN        100u /* another arm must save one in so many misses */

enum list {
    LIST_MAIN = 0,  /* LRU: all; LIRS: protected pages; S3-FIFO: main */
    LIST_TRIAL = 1, /* LIRS: on trial; S3-FIFO: small */
    LIST_GHOST = 2, /* S3-FIFO: `mark` says since when */
    LIST_NONE = 3,
};

struct cell {
    uint16_t next, previous;
    uint8_t list, hits;
};

/* A sampled page: one cache line for all arms. */
struct seen {
    uint64_t hash;
    uint32_t touched;
    uint16_t chain, next, previous; /* in the directory */
    uint16_t mark;                  /* S3-FIFO: clock when it became a ghost */
    struct cell cells[ARMS];
};
BUILD_ASSERT(sizeof(struct seen) <= 64);

struct ends {
    uint16_t head, tail, count;
};

struct arms {
    uint32_t sample_shift; /* one page in 2^shift */
    uint32_t frames;       /* of an arm */
    uint32_t pages_max, pages_count;
    uint32_t now;
    uint32_t round_touches, round_differences;
    enum arm choice;
    uint32_t protected_max[ARMS];
    uint16_t s3_clock; /* evictions from the small list */
    struct ends recency;
    struct ends lists[ARMS][2];
    uint32_t counts[MASKS];    /* touches by the set of arms that missed */
    uint16_t heads[PAGES_MAX]; /* of chains */
    _Alignas(64) struct seen seen[PAGES_MAX];
};

static const uint32_t trial_percent[ARMS] = {
    [ARM_LIRS_1] = 1, [ARM_LIRS_10] = 10, [ARM_LIRS_30] = 30, [ARM_LIRS_60] = 60};

uint32_t arm_trial_frames(enum arm arm, uint32_t frames)
{
    uint32_t trial = (uint32_t)((uint64_t)frames * trial_percent[arm] / 100);

    return trial > 0 || trial_percent[arm] == 0 ? trial : 1;
}

uint32_t arm_small_frames(uint32_t frames)
{
    return frames >= 20 ? frames / 10 : 1;
}

/* ---- set up ------------------------------------------------------------------------------------------------------ */

size_t arms_bytes(void)
{
    return sizeof(struct arms);
}

/* Small memories need most of their pages for a fair picture, and can afford it. */
static uint32_t sample_shift_for(uint32_t frames)
{
    uint32_t shift = frames < 64 ? 0 : frames < 256 ? 1 : frames < 1024 ? 2 : 3;

    while (frames >> shift > FRAMES_MAX)
        shift++;
    return shift;
}

void arms_resize(struct arms *arms, uint32_t frames)
{
    arms->sample_shift = sample_shift_for(frames);
    arms->frames = frames >> arms->sample_shift;
    ASSERT(arms->frames > 0);
    arms->pages_max = 4 * arms->frames;
    arms->pages_count = 0;
    arms->round_touches = arms->round_differences = 0;
    arms->recency = (struct ends){NONE, NONE, 0};
    memset(arms->heads, 0xff, sizeof(arms->heads));
    memset(arms->counts, 0, sizeof(arms->counts));
    for (unsigned i = 0; i < ARMS; i++) {
        arms->protected_max[i] = arms->frames - arm_trial_frames((enum arm)i, arms->frames);
        for (unsigned list = 0; list < 2; list++)
            arms->lists[i][list] = (struct ends){NONE, NONE, 0};
    }
}

void arms_init(struct arms *arms, uint32_t frames)
{
    arms->now = 0;
    arms->choice = ARM_LIRS_10;
    arms_resize(arms, frames);
}

enum arm arms_choice(const struct arms *arms)
{
    return arms->choice;
}

/* ---- lists of an arm ----------------------------------------------------------------------------------------------
 */

static struct cell *cell_of(struct arms *arms, enum arm arm, uint16_t page)
{
    return &arms->seen[page].cells[arm];
}

static void cell_remove(struct arms *arms, enum arm arm, uint16_t page)
{
    struct cell *cell = cell_of(arms, arm, page);
    struct ends *ends = &arms->lists[arm][cell->list];

    if (cell->previous == NONE)
        ends->head = cell->next;
    else
        cell_of(arms, arm, cell->previous)->next = cell->next;
    if (cell->next == NONE)
        ends->tail = cell->previous;
    else
        cell_of(arms, arm, cell->next)->previous = cell->previous;
    ends->count--;
    cell->list = LIST_NONE;
}

static void cell_append(struct arms *arms, enum arm arm, uint16_t page, enum list list)
{
    struct cell *cell = cell_of(arms, arm, page);
    struct ends *ends = &arms->lists[arm][list];

    cell->list = (uint8_t)list;
    cell->next = NONE;
    cell->previous = ends->tail;
    if (ends->tail == NONE)
        ends->head = page;
    else
        cell_of(arms, arm, ends->tail)->next = page;
    ends->tail = page;
    ends->count++;
}

static void cell_move(struct arms *arms, enum arm arm, uint16_t page, enum list list)
{
    cell_remove(arms, arm, page);
    cell_append(arms, arm, page, list);
}

static bool is_resident(struct arms *arms, enum arm arm, uint16_t page)
{
    return cell_of(arms, arm, page)->list <= LIST_TRIAL;
}

static bool is_full(const struct arms *arms, enum arm arm)
{
    return arms->lists[arm][LIST_MAIN].count + (uint32_t)arms->lists[arm][LIST_TRIAL].count == arms->frames;
}

/* ---- LRU and LIRS -------------------------------------------------------------------------------------------------
 */

/* Touched since the protected page that was touched longest ago. `touched`: before this touch. */
static bool is_in_stack(const struct arms *arms, enum arm arm, uint32_t touched)
{
    uint16_t bottom = arms->lists[arm][LIST_MAIN].head;

    return bottom == NONE || (int32_t)(touched - arms->seen[bottom].touched) > 0;
}

static void lirs_evict(struct arms *arms, enum arm arm)
{
    enum list list = arms->lists[arm][LIST_TRIAL].count > 0 ? LIST_TRIAL : LIST_MAIN;

    cell_remove(arms, arm, arms->lists[arm][list].head);
}

static void lirs_protect(struct arms *arms, enum arm arm, uint16_t page, uint32_t protected_max)
{
    cell_append(arms, arm, page, LIST_MAIN);
    if (arms->lists[arm][LIST_MAIN].count > protected_max)
        cell_move(arms, arm, arms->lists[arm][LIST_MAIN].head, LIST_TRIAL);
}

/* LRU is LIRS with nothing on trial. is_known: the page was touched before, at `touched`. */
static bool lirs_touch(struct arms *arms, enum arm arm, uint16_t page, bool is_known, uint32_t touched)
{
    uint32_t protected_max = arms->protected_max[arm];
    bool is_hit = is_resident(arms, arm, page), protect;

    if (is_hit && cell_of(arms, arm, page)->list == LIST_MAIN) {
        cell_move(arms, arm, page, LIST_MAIN);
        return true;
    }
    protect = arm == ARM_LRU || arms->lists[arm][LIST_MAIN].count < protected_max ||
              (is_known && is_in_stack(arms, arm, touched));
    if (is_hit)
        cell_remove(arms, arm, page);
    else if (is_full(arms, arm))
        lirs_evict(arms, arm);
    if (protect && protected_max > 0)
        lirs_protect(arms, arm, page, protected_max);
    else
        cell_append(arms, arm, page, LIST_TRIAL);
    return is_hit;
}

/* ---- S3-FIFO ------------------------------------------------------------------------------------------------------
 */

static void s3_evict(struct arms *arms)
{
    const struct ends *lists = arms->lists[ARM_S3_FIFO];

    for (;;) {
        bool is_small = lists[LIST_TRIAL].count > 0 &&
                        (lists[LIST_TRIAL].count >= arm_small_frames(arms->frames) || lists[LIST_MAIN].count == 0);
        uint16_t page = lists[is_small ? LIST_TRIAL : LIST_MAIN].head;
        struct cell *cell = cell_of(arms, ARM_S3_FIFO, page);

        if (cell->hits == 0) {
            cell_remove(arms, ARM_S3_FIFO, page);
            if (is_small) {
                cell->list = LIST_GHOST;
                arms->seen[page].mark = ++arms->s3_clock;
            }
            return;
        }
        cell->hits = is_small ? 0 : (uint8_t)(cell->hits - 1);
        cell_move(arms, ARM_S3_FIFO, page, LIST_MAIN);
    }
}

static bool s3_touch(struct arms *arms, uint16_t page)
{
    struct cell *cell = cell_of(arms, ARM_S3_FIFO, page);
    uint32_t ghosts_max = arms->frames - arm_small_frames(arms->frames);
    bool is_ghost;

    if (is_resident(arms, ARM_S3_FIFO, page)) {
        cell->hits = (uint8_t)(cell->hits < 3 ? cell->hits + 1 : 3);
        return true;
    }
    is_ghost = cell->list == LIST_GHOST && (uint16_t)(arms->s3_clock - arms->seen[page].mark) <= ghosts_max;
    if (is_full(arms, ARM_S3_FIFO))
        s3_evict(arms);
    cell->hits = 0;
    cell_append(arms, ARM_S3_FIFO, page, is_ghost ? LIST_MAIN : LIST_TRIAL);
    return false;
}

/* ---- the directory ------------------------------------------------------------------------------------------------
 */

static uint16_t *chain_of(struct arms *arms, uint64_t hash)
{
    return &arms->heads[(hash & UINT32_MAX) * arms->pages_max >> 32];
}

static void recency_remove(struct arms *arms, uint16_t page)
{
    struct seen *seen = &arms->seen[page];

    if (seen->previous == NONE)
        arms->recency.head = seen->next;
    else
        arms->seen[seen->previous].next = seen->next;
    if (seen->next == NONE)
        arms->recency.tail = seen->previous;
    else
        arms->seen[seen->next].previous = seen->previous;
}

static void recency_append(struct arms *arms, uint16_t page)
{
    struct seen *seen = &arms->seen[page];

    seen->next = NONE;
    seen->previous = arms->recency.tail;
    if (arms->recency.tail == NONE)
        arms->recency.head = page;
    else
        arms->seen[arms->recency.tail].next = page;
    arms->recency.tail = page;
}

static bool is_resident_anywhere(struct arms *arms, uint16_t page)
{
    for (unsigned arm = 0; arm < ARMS; arm++)
        if (is_resident(arms, (enum arm)arm, page))
            return true;
    return false;
}

static void chain_remove(struct arms *arms, uint16_t page)
{
    uint16_t *link = chain_of(arms, arms->seen[page].hash);

    while (*link != page)
        link = &arms->seen[*link].chain;
    *link = arms->seen[page].chain;
}

/* The page touched longest ago that no arm holds; one that an arm holds only after a bounded search. */
static uint16_t page_reclaim(struct arms *arms)
{
    uint16_t page = arms->recency.head;

    for (unsigned i = 0; i < SCAN_MAX && is_resident_anywhere(arms, page); i++) {
        recency_remove(arms, page);
        recency_append(arms, page);
        page = arms->recency.head;
    }
    for (unsigned arm = 0; arm < ARMS; arm++)
        if (is_resident(arms, (enum arm)arm, page))
            cell_remove(arms, (enum arm)arm, page);
    recency_remove(arms, page);
    chain_remove(arms, page);
    return page;
}

static uint16_t page_add(struct arms *arms, uint64_t hash)
{
    uint16_t page;
    uint16_t *head;

    page = arms->pages_count < arms->pages_max ? (uint16_t)arms->pages_count++ : page_reclaim(arms);
    head = chain_of(arms, hash);
    arms->seen[page] = (struct seen){.hash = hash, .chain = *head};
    *head = page;
    for (unsigned arm = 0; arm < ARMS; arm++)
        arms->seen[page].cells[arm] = (struct cell){.list = LIST_NONE};
    recency_append(arms, page);
    return page;
}

static uint16_t page_find(struct arms *arms, uint64_t hash)
{
    uint16_t page = *chain_of(arms, hash);

    while (page != NONE && arms->seen[page].hash != hash)
        page = arms->seen[page].chain;
    return page;
}

/* ---- the choice ---------------------------------------------------------------------------------------------------
 */

/* What `arm` misses and the choice does not, and the other way round. */
static void compare(const struct arms *arms, unsigned arm, uint64_t *ret_worse, uint64_t *ret_better)
{
    uint64_t worse = 0, better = 0;

    for (unsigned mask = 0; mask < MASKS; mask++) {
        unsigned missed = mask >> arm & 1, choice_missed = mask >> arms->choice & 1;

        if (missed > choice_missed)
            worse += arms->counts[mask];
        else if (missed < choice_missed)
            better += arms->counts[mask];
    }
    *ret_worse = worse;
    *ret_better = better;
}

static uint64_t choice_misses(const struct arms *arms)
{
    uint64_t misses = 0;

    for (unsigned mask = 0; mask < MASKS; mask++)
        misses += mask >> arms->choice & 1 ? arms->counts[mask] : 0;
    return misses;
}

static bool round_end(struct arms *arms)
{
    uint64_t misses = choice_misses(arms), gain_most = 0;
    enum arm best = arms->choice;

    for (unsigned arm = 0; arm < ARMS; arm++) {
        uint64_t worse, better;

        compare(arms, arm, &worse, &better);
        if (better > worse + misses / GAIN_MIN && better - worse > gain_most) {
            gain_most = better - worse;
            best = (enum arm)arm;
        }
    }
    for (unsigned mask = 0; mask < MASKS; mask++)
        arms->counts[mask] -= arms->counts[mask] / ROUNDS_MEMORY;
    arms->round_touches = arms->round_differences = 0;
    if (best == arms->choice)
        return false;
    arms->choice = best;
    return true;
}

bool arms_touch(struct arms *arms, uint64_t hash)
{
    uint32_t touched, missed = 0;
    uint16_t page;
    bool is_known;

    if (arms->sample_shift > 0 && hash >> (64 - arms->sample_shift) != 0)
        return false;
    page = page_find(arms, hash);
    is_known = page != NONE;
    if (is_known) {
        recency_remove(arms, page);
        recency_append(arms, page);
    } else {
        page = page_add(arms, hash);
    }
    touched = arms->seen[page].touched;
    for (unsigned arm = 0; arm < ARMS; arm++) {
        bool is_hit =
            arm == ARM_S3_FIFO ? s3_touch(arms, page) : lirs_touch(arms, (enum arm)arm, page, is_known, touched);
        missed |= is_hit ? 0 : 1u << arm;
    }
    arms->seen[page].touched = ++arms->now;
    arms->counts[missed] += COUNT_UNIT;
    arms->round_touches++;
    arms->round_differences += missed != 0 && missed != MASKS - 1;
    return arms->round_touches >= arms->frames && arms->round_differences >= DIFFERENCES_MIN && round_end(arms);
}
