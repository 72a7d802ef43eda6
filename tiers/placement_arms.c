/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement_arms.c - LRU, S3-FIFO or LIRS over the same pages, whichever arms.c finds best. PURE. Run by the shard's
 * thread.
 *
 * Each resident page is on the lists of LIRS (protected, or on trial; LRU is LIRS that protects all) and at the same
 * time on those of S3-FIFO (small, main). All lists are kept up with every touch that is seen, so that a change of the
 * policy finds its lists filled; the chosen one says who leaves. Prefetched pages that nobody touched are on a list of
 * their own instead. What the pager sees and what it may evict (limbo) is on the lists of frames.h:
 *
 *   FRAME_MAPPED  protected pages, in the order of the last touch seen
 *   FRAME_TRIAL   mapped pages on trial, in that order: they go into limbo sooner, since they may leave sooner
 *   FRAME_COLD    prefetched pages not seen touched; an eighth of the frames, at least 64
 *   FRAME_LIMBO   unmapped pages of all kinds
 *
 * 24 bytes a frame, and two ghosts a frame of the budget of 12.8 bytes each.
 */
#include "base/assert.h"
#include "tiers/arms.h"
#include "tiers/ghosts.h"
#include "tiers/placement.h"

#include <string.h>

#define NONE          UINT32_MAX
#define GHOSTS_SHARE  2u
#define COLD_MIN      64u
#define COLD_SHARE    8u
#define CREDIT_PAGE   2u                  /* frames that may be unmapped for a page that comes in */
#define CREDIT_COLD   1u                  /* and for a prefetched one that is touched: nobody waited for it long */
#define SCAN_MAX      64u                 /* pages looked at for one that may leave, before any will do */
#define TRIAL_BATCHES 4u                  /* that are on trial at least, but no more than a quarter of the frames */
#define FRAMES_FADE   16u                 /* calls of evict() after which a low of the resident pages is forgotten */
#define RESIZE_SHARE  8u                  /* another budget that differs less changes no sizes */
#define AGE_MAX       ((uint32_t)1 << 30) /* of times that are compared */
#define GHOSTS_EVERY  4u                  /* touches, a line of ghosts is swept: there are two for five frames */

enum list {
    LIST_NONE = 0, /* zeroed memory: the frame holds no page that the policy was told of */
    LIST_PROTECTED = 1,
    LIST_TRIAL = 2,
    LIST_COLD = 3,
    LIST_SMALL = 4,
    LIST_MAIN = 5,
    LISTS = 6,
};

/* Two sets of lists: LIRS and cold pages, S3-FIFO. */
enum set {
    SET_LIRS = 0,
    SET_S3 = 1,
    SETS = 2,
};

struct node {
    uint32_t next[SETS], previous[SETS];
    uint32_t touched;
    uint8_t list[SETS];
    uint8_t hits;   /* S3-FIFO: touches since it moved, 3 at most */
    bool is_chosen; /* within one call of evict() */
};
BUILD_ASSERT(sizeof(struct node) == 24);

struct ends {
    uint32_t head, tail, count;
};

struct chooser {
    uint32_t frames;       /* that pages have when memory is full: the budget, or what others leave of it */
    uint32_t sized_frames; /* what the ghosts and the small caches are made for: about `frames` */
    enum arm arm;          /* the choice, and what it protects at most */
    uint32_t protected_max;
    uint32_t batch;      /* that leaves at a time */
    uint32_t now;        /* touches that were seen */
    uint32_t s3_clock;   /* evictions from the small list */
    uint32_t credit;     /* for unmapping */
    uint32_t swept;      /* frame whose time is looked at next */
    uint32_t nodes_used; /* frames from here on were never told of */
    size_t ghosts_offset, arms_offset;
    struct ends lists[LISTS];
    struct node nodes[];
};

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t nodes_bytes(uint32_t frames_table)
{
    return aligned(sizeof(struct chooser) + (size_t)frames_table * sizeof(struct node));
}

static size_t chooser_bytes(uint32_t frames_table)
{
    return aligned(arms_bytes()) + ghosts_bytes((uint64_t)GHOSTS_SHARE * frames_table) + nodes_bytes(frames_table);
}

static struct chooser *chooser_of(struct placement *placement)
{
    return placement_memory(placement);
}

static struct ghosts *ghosts_of(struct chooser *chooser)
{
    return (struct ghosts *)(void *)((char *)chooser + chooser->ghosts_offset);
}

static struct arms *arms_of(struct chooser *chooser)
{
    return (struct arms *)(void *)((char *)chooser + chooser->arms_offset);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static enum set set_of(enum list list)
{
    return list >= LIST_SMALL ? SET_S3 : SET_LIRS;
}

static void node_remove(struct chooser *chooser, uint32_t index, enum set set)
{
    struct node *node = &chooser->nodes[index];
    struct ends *ends = &chooser->lists[node->list[set]];

    if (node->list[set] == LIST_NONE)
        return;
    if (node->previous[set] == NONE)
        ends->head = node->next[set];
    else
        chooser->nodes[node->previous[set]].next[set] = node->next[set];
    if (node->next[set] == NONE)
        ends->tail = node->previous[set];
    else
        chooser->nodes[node->next[set]].previous[set] = node->previous[set];
    ends->count--;
    node->list[set] = LIST_NONE;
}

static void node_move(struct chooser *chooser, uint32_t index, enum list list)
{
    struct node *node = &chooser->nodes[index];
    struct ends *ends = &chooser->lists[list];
    enum set set = set_of(list);

    node_remove(chooser, index, set);
    node->list[set] = (uint8_t)list;
    node->next[set] = NONE;
    node->previous[set] = ends->tail;
    if (ends->tail == NONE)
        ends->head = index;
    else
        chooser->nodes[ends->tail].next[set] = index;
    ends->tail = index;
    ends->count++;
}

static void node_move_first(struct chooser *chooser, uint32_t index, enum list list)
{
    struct node *nodes = chooser->nodes;
    struct ends *ends = &chooser->lists[list];
    enum set set = set_of(list);

    node_move(chooser, index, list);
    if (ends->head == index)
        return;
    ends->tail = nodes[index].previous[set];
    nodes[ends->tail].next[set] = NONE;
    nodes[index].previous[set] = NONE;
    nodes[index].next[set] = ends->head;
    nodes[ends->head].previous[set] = index;
    ends->head = index;
}

static bool is_on(const struct chooser *chooser, uint32_t index, enum list list)
{
    return chooser->nodes[index].list[set_of(list)] == list;
}

/* ---- LIRS and LRU ---------------------------------------------------------------------------------------------------
 */

/*
 * After another choice or budget. Pages that come in leave again in batches: with fewer on trial than that, protected
 * ones would leave, and nobody would stay on trial for long enough to be touched again.
 */
static void choice_take(struct chooser *chooser)
{
    enum arm arm = arms_choice(arms_of(chooser));
    uint32_t trial;

    chooser->arm = arm;
    if (arm == ARM_S3_FIFO) /* LIRS is kept up as well as may be, until it is needed */
        arm = ARM_LIRS_10;
    trial = arm_trial_frames(arm, chooser->frames);
    if (arm != ARM_LRU)
        trial = most(trial, least(TRIAL_BATCHES * chooser->batch, chooser->frames / 4));
    chooser->protected_max = chooser->frames - trial;
}

static bool is_in_stack(const struct chooser *chooser, uint32_t touched)
{
    uint32_t bottom = chooser->lists[LIST_PROTECTED].head;

    return bottom == NONE || (int32_t)(touched - chooser->nodes[bottom].touched) > 0;
}

/* At most two a touch: after another choice the lists follow within as many touches as there are frames. */
static void protected_trim(struct chooser *chooser)
{
    for (unsigned i = 0; i < 2 && chooser->lists[LIST_PROTECTED].count > chooser->protected_max; i++)
        node_move(chooser, chooser->lists[LIST_PROTECTED].head, LIST_TRIAL);
}

/* known: the page was touched before, at `touched`. */
static void lirs_touch(struct chooser *chooser, uint32_t index, bool is_known, uint32_t touched)
{
    uint32_t room = chooser->protected_max;
    const struct ends *lists = chooser->lists;
    bool is_filling = lists[LIST_PROTECTED].count + lists[LIST_TRIAL].count < room;
    bool protect = room == chooser->frames || is_on(chooser, index, LIST_PROTECTED) ||
                   (is_known && (is_in_stack(chooser, touched) || lists[LIST_PROTECTED].count < room)) || is_filling;

    node_move(chooser, index, protect && room > 0 ? LIST_PROTECTED : LIST_TRIAL);
    chooser->nodes[index].touched = chooser->now;
    protected_trim(chooser);
}

/* ---- touches --------------------------------------------------------------------------------------------------------
 */

/* Times that are compared must not be farther apart than half the clock. */
static void times_sweep(struct chooser *chooser)
{
    struct node *node = &chooser->nodes[chooser->swept];

    if (chooser->now - node->touched > AGE_MAX)
        node->touched = chooser->now - AGE_MAX;
    chooser->swept = chooser->swept + 1 < chooser->nodes_used ? chooser->swept + 1 : 0;
    if (chooser->now % GHOSTS_EVERY == 0)
        ghosts_sweep(ghosts_of(chooser), chooser->now, AGE_MAX);
}

static void frame_list_set(struct chooser *chooser, struct frames *frames, struct frame_id frame)
{
    bool is_trial = is_on(chooser, frame.index, chooser->arm == ARM_S3_FIFO ? LIST_SMALL : LIST_TRIAL);

    frames_push_tail(frames, frame, is_trial ? FRAME_TRIAL : FRAME_MAPPED);
}

static uint32_t limbo_target(const struct chooser *chooser)
{
    return (uint32_t)((uint64_t)chooser->frames * 3 / 10) + 1;
}

static void credit_add(struct chooser *chooser, uint32_t pages)
{
    chooser->credit = least(chooser->credit + pages, limbo_target(chooser));
}

static void page_demanded(struct chooser *chooser, struct frames *frames, struct frame_id frame, uint64_t hash)
{
    struct node *node = &chooser->nodes[frame.index];
    struct ghost ghost = {0};
    bool is_ghost = ghosts_take(ghosts_of(chooser), hash, &ghost);
    uint32_t main_max = chooser->frames - arm_small_frames(chooser->frames);
    bool is_main = is_ghost && ghost.evicted != 0 && chooser->s3_clock - ghost.evicted <= main_max;

    chooser->now++;
    node->hits = 0;
    node_move(chooser, frame.index, is_main ? LIST_MAIN : LIST_SMALL);
    lirs_touch(chooser, frame.index, is_ghost, ghost.touched);
    if (arms_touch(arms_of(chooser), hash))
        choice_take(chooser);
    times_sweep(chooser);
    frame_list_set(chooser, frames, frame);
}

static void chooser_inserted(struct placement *placement, struct frames *frames, struct frame_id frame, bool prefetched)
{
    struct chooser *chooser = chooser_of(placement);
    struct node *node = &chooser->nodes[frame.index];

    ASSERT(node->list[SET_LIRS] == LIST_NONE && node->list[SET_S3] == LIST_NONE);
    if (frame.index >= chooser->nodes_used)
        chooser->nodes_used = frame.index + 1;
    node->touched = chooser->now;
    if (prefetched) {
        node_move(chooser, frame.index, LIST_COLD);
        frames_push_tail(frames, frame, FRAME_COLD);
    } else {
        credit_add(chooser, CREDIT_PAGE);
        page_demanded(chooser, frames, frame, page_hash(frames_page(frames, frame)));
    }
}

static void chooser_soft_hit(struct placement *placement, struct frames *frames, struct frame_id frame)
{
    struct chooser *chooser = chooser_of(placement);
    struct node *node = &chooser->nodes[frame.index];
    uint64_t hash = page_hash(frames_page(frames, frame));

    ASSERT(node->list[SET_LIRS] != LIST_NONE);
    if (node->list[SET_LIRS] == LIST_COLD) {
        credit_add(chooser, CREDIT_COLD);
        page_demanded(chooser, frames, frame, hash);
        return;
    }
    chooser->now++;
    node->hits = (uint8_t)(node->hits < 3 ? node->hits + 1 : 3);
    lirs_touch(chooser, frame.index, true, node->touched);
    if (arms_touch(arms_of(chooser), hash))
        choice_take(chooser);
    frame_list_set(chooser, frames, frame);
}

/* Like a prefetched page that nobody has touched for long. */
static void chooser_chilled(struct placement *placement, struct frames *frames, struct frame_id frame)
{
    struct chooser *chooser = chooser_of(placement);
    struct node *node = &chooser->nodes[frame.index];

    ASSERT(node->list[SET_LIRS] != LIST_NONE);
    node_remove(chooser, frame.index, SET_S3);
    node->touched = chooser->now - chooser->frames - 1;
    node_move_first(chooser, frame.index, LIST_COLD);
    frames_push_head(frames, frame, FRAME_LIMBO);
}

static void node_forget(struct chooser *chooser, uint32_t index)
{
    node_remove(chooser, index, SET_LIRS);
    node_remove(chooser, index, SET_S3);
}

static void chooser_evicted(struct placement *placement, const struct frames *frames, struct frame_id frame)
{
    struct chooser *chooser = chooser_of(placement);
    const struct node *node = &chooser->nodes[frame.index];
    struct ghost ghost = {.touched = node->touched};

    ASSERT(node->list[SET_LIRS] != LIST_NONE);
    if (node->list[SET_S3] == LIST_SMALL) {
        chooser->s3_clock += chooser->s3_clock == UINT32_MAX ? 2 : 1;
        ghost.evicted = chooser->s3_clock;
    }
    if (node->list[SET_LIRS] != LIST_COLD)
        ghosts_put(ghosts_of(chooser), page_hash(frames_page(frames, frame)), ghost);
    node_forget(chooser, frame.index);
}

static void chooser_forgotten(struct placement *placement, const struct frames *frames, struct frame_id frame)
{
    struct chooser *chooser = chooser_of(placement);

    (void)frames;
    ASSERT(chooser->nodes[frame.index].list[SET_LIRS] != LIST_NONE);
    node_forget(chooser, frame.index);
}

static void chooser_init(struct placement *placement, uint32_t frames_table)
{
    struct chooser *chooser = chooser_of(placement);

    chooser->frames = placement_frames_max(placement);
    for (unsigned list = 0; list < LISTS; list++)
        chooser->lists[list] = (struct ends){NONE, NONE, 0};
    chooser->arms_offset = nodes_bytes(frames_table);
    chooser->ghosts_offset = chooser->arms_offset + aligned(arms_bytes());
    arms_init(arms_of(chooser), chooser->frames);
    choice_take(chooser);
    ghosts_init(ghosts_of(chooser), (uint64_t)GHOSTS_SHARE * chooser->frames);
    chooser->sized_frames = chooser->frames;
}

/* Budgets may change a little and often, and another size makes ghosts and small caches begin anew. */
static void chooser_resized(struct placement *placement)
{
    struct chooser *chooser = chooser_of(placement);
    uint32_t sized = chooser->sized_frames;
    uint32_t frames = placement_frames_max(placement);

    chooser->frames = frames;
    if ((frames > sized ? frames - sized : sized - frames) > sized / RESIZE_SHARE) {
        arms_resize(arms_of(chooser), frames);
        ghosts_resize(ghosts_of(chooser), (uint64_t)GHOSTS_SHARE * frames);
        chooser->sized_frames = frames;
    }
    choice_take(chooser);
}

/* ---- into limbo -----------------------------------------------------------------------------------------------------
 */

static uint32_t cold_allowed(const struct chooser *chooser)
{
    return most(COLD_MIN, chooser->frames / COLD_SHARE);
}

/*
 * Mapped pages on trial beyond this go into limbo before others: half of the trial pages may be mapped, or so many that
 * they take half of limbo.
 */
static uint32_t trial_allowed(const struct chooser *chooser, const struct frames *frames)
{
    uint32_t trial =
        chooser->arm == ARM_S3_FIFO ? arm_small_frames(chooser->frames) : chooser->frames - chooser->protected_max;
    uint32_t limbo = frames_count(frames, FRAME_LIMBO);
    uint32_t in_limbo = most((uint32_t)((uint64_t)limbo * trial / chooser->frames), least(trial / 2, limbo / 2));

    return trial > in_limbo ? trial - in_limbo : 0;
}

static uint32_t excess_of(const struct frames *frames, enum frame_list list, uint32_t allowed)
{
    uint32_t count = frames_count(frames, list);

    return count > allowed ? count - allowed : 0;
}

static uint32_t trial_excess_of(const struct chooser *chooser, const struct frames *frames)
{
    uint32_t count = frames_count(frames, FRAME_TRIAL);
    uint32_t allowed = count > 0 ? trial_allowed(chooser, frames) : 0;

    return count > allowed ? count - allowed : 0;
}

/*
 * Prefetched pages over their share are unmapped in any case: they are the next to leave. So are pages on trial, as far
 * as the credit goes: however full limbo is of protected pages, it is not those that should leave.
 */
static uint32_t chooser_unmap_wanted(const struct placement *placement, const struct frames *frames)
{
    const struct chooser *chooser = placement_memory_const(placement);
    uint32_t target = limbo_target(chooser), count = frames_count(frames, FRAME_LIMBO);
    uint32_t trial = trial_excess_of(chooser, frames);
    uint32_t wanted = most(count < target ? target - count : 0, trial);

    wanted = least(wanted, chooser->credit);
    return most(wanted, excess_of(frames, FRAME_COLD, cold_allowed(chooser)));
}

static unsigned unmap_list(struct chooser *chooser, struct frames *frames, struct frame_id *frames_out, unsigned wanted)
{
    uint32_t cold_excess = excess_of(frames, FRAME_COLD, cold_allowed(chooser));
    uint32_t trial_excess = trial_excess_of(chooser, frames);
    unsigned cold = frames_heads(frames, FRAME_COLD, frames_out, least(cold_excess, wanted));
    unsigned trial = frames_heads(frames, FRAME_TRIAL, frames_out + cold, least(trial_excess, wanted - cold));
    unsigned count = cold + trial;

    count += frames_heads(frames, FRAME_MAPPED, frames_out + count, wanted - count);
    if (count == wanted || (cold > 0 && trial > 0))
        return count;
    /* Few are mapped. Of the other two lists, what was not named above; the next call has the rest. */
    if (trial == 0)
        count += frames_heads(frames, FRAME_TRIAL, frames_out + count, wanted - count);
    if (cold == 0)
        count += frames_heads(frames, FRAME_COLD, frames_out + count, wanted - count);
    return count;
}

static unsigned chooser_unmap(struct placement *placement, struct frames *frames, struct frame_id *frames_out,
                              unsigned wanted)
{
    struct chooser *chooser = chooser_of(placement);
    unsigned count = unmap_list(chooser, frames, frames_out, wanted);

    chooser->credit -= least(chooser->credit, count);
    return count;
}

/* ---- out of limbo ---------------------------------------------------------------------------------------------------
 */

static bool may_leave(const struct chooser *chooser, const struct frames *frames, uint32_t index)
{
    return !chooser->nodes[index].is_chosen && frames_list(frames, (struct frame_id){index}) == FRAME_LIMBO;
}

/* The first of a list, from its head on, that may leave. */
static uint32_t list_victim(const struct chooser *chooser, const struct frames *frames, enum list list)
{
    uint32_t index = chooser->lists[list].head;

    for (unsigned i = 0; i < SCAN_MAX && index != NONE; i++) {
        if (may_leave(chooser, frames, index))
            return index;
        index = chooser->nodes[index].next[set_of(list)];
    }
    return NONE;
}

static uint32_t lru_victim(const struct chooser *chooser, const struct frames *frames)
{
    uint32_t trial = list_victim(chooser, frames, LIST_TRIAL);
    uint32_t protected = list_victim(chooser, frames, LIST_PROTECTED);

    if (trial == NONE || protected == NONE)
        return trial == NONE ? protected : trial;
    return (int32_t)(chooser->nodes[trial].touched - chooser->nodes[protected].touched) < 0 ? trial : protected;
}

/* Pages that were touched move to the main list on the way, whether they are mapped or not. */
static uint32_t s3_victim(struct chooser *chooser, const struct frames *frames)
{
    const struct ends *lists = chooser->lists;
    uint32_t index;

    for (unsigned i = 0; i < SCAN_MAX; i++) {
        bool is_small = lists[LIST_SMALL].count > 0 &&
                        (lists[LIST_SMALL].count >= arm_small_frames(chooser->frames) || lists[LIST_MAIN].count == 0);

        index = lists[is_small ? LIST_SMALL : LIST_MAIN].head;
        if (index == NONE)
            return NONE;
        if (chooser->nodes[index].hits == 0) {
            uint32_t victim = list_victim(chooser, frames, is_small ? LIST_SMALL : LIST_MAIN);

            return victim != NONE ? victim : list_victim(chooser, frames, is_small ? LIST_MAIN : LIST_SMALL);
        }
        chooser->nodes[index].hits = is_small ? 0 : (uint8_t)(chooser->nodes[index].hits - 1);
        node_move(chooser, index, LIST_MAIN);
    }
    return NONE;
}

/* Cold pages over their share, or that were there for as many touches as there are frames. */
static uint32_t cold_victim(const struct chooser *chooser, const struct frames *frames)
{
    uint32_t head = chooser->lists[LIST_COLD].head;

    if (head == NONE || (chooser->lists[LIST_COLD].count <= cold_allowed(chooser) &&
                         chooser->now - chooser->nodes[head].touched <= chooser->frames))
        return NONE;
    return list_victim(chooser, frames, LIST_COLD);
}

static uint32_t any_victim(const struct chooser *chooser, const struct frames *frames)
{
    struct frame_id frame = frames_head(frames, FRAME_LIMBO);

    while (frame.index != FRAME_NONE.index && chooser->nodes[frame.index].is_chosen)
        frame = frames_next(frames, frame);
    return frame.index;
}

static uint32_t victim_choose(struct chooser *chooser, const struct frames *frames)
{
    enum arm arm = chooser->arm;
    uint32_t victim = cold_victim(chooser, frames);

    if (victim == NONE && arm == ARM_S3_FIFO)
        victim = s3_victim(chooser, frames);
    else if (victim == NONE && arm == ARM_LRU)
        victim = lru_victim(chooser, frames);
    else if (victim == NONE)
        victim = list_victim(chooser, frames, LIST_TRIAL);
    return victim != NONE ? victim : any_victim(chooser, frames);
}

/* Behind all others of its lists, so that it is not looked at again while it leaves. */
static void victim_note(struct chooser *chooser, uint32_t index)
{
    struct node *node = &chooser->nodes[index];

    node->is_chosen = true;
    node_move(chooser, index, (enum list)node->list[SET_LIRS]);
    if (node->list[SET_S3] != LIST_NONE)
        node_move(chooser, index, (enum list)node->list[SET_S3]);
}

/*
 * The pager keeps frames free for what comes next, and memory that it does not manage counts in the budget as well. If
 * shares were taken of the whole budget, the pages on trial would be those that are not there.
 */
static void frames_look(struct placement *placement, struct chooser *chooser, uint32_t leaving)
{
    const struct ends *lists = chooser->lists;
    uint32_t resident = lists[LIST_PROTECTED].count + lists[LIST_TRIAL].count + lists[LIST_COLD].count;
    uint32_t left = most(resident - least(resident, leaving), PLACEMENT_FRAMES_MIN);

    left = least(left, placement_frames_max(placement));
    chooser->batch = leaving;
    chooser->frames = left < chooser->frames ? left : chooser->frames + (left - chooser->frames) / FRAMES_FADE;
    choice_take(chooser);
}

static unsigned chooser_evict(struct placement *placement, struct frames *frames, struct frame_id *frames_out,
                              unsigned wanted)
{
    struct chooser *chooser = chooser_of(placement);
    unsigned count = 0;

    wanted = least(wanted, frames_count(frames, FRAME_LIMBO));
    frames_look(placement, chooser, wanted);
    while (count < wanted) {
        uint32_t index = victim_choose(chooser, frames);

        ASSERT(index != NONE);
        victim_note(chooser, index);
        frames_out[count++] = (struct frame_id){index};
    }
    for (unsigned i = 0; i < count; i++)
        chooser->nodes[frames_out[i].index].is_chosen = false;
    return count;
}

static const char *chooser_choice(const struct placement *placement)
{
    static const char *const names[ARMS] = {
        [ARM_LRU] = "lru",         [ARM_S3_FIFO] = "s3-fifo", [ARM_LIRS_1] = "lirs-1",
        [ARM_LIRS_10] = "lirs-10", [ARM_LIRS_30] = "lirs-30", [ARM_LIRS_60] = "lirs-60",
    };

    return names[((const struct chooser *)placement_memory_const(placement))->arm];
}

const struct placement_ops placement_arms = {
    .name = "arms",
    .choice = chooser_choice,
    .bytes = chooser_bytes,
    .init = chooser_init,
    .resized = chooser_resized,
    .inserted = chooser_inserted,
    .soft_hit = chooser_soft_hit,
    .chilled = chooser_chilled,
    .evicted = chooser_evicted,
    .forgotten = chooser_forgotten,
    .unmap_wanted = chooser_unmap_wanted,
    .unmap = chooser_unmap,
    .evict = chooser_evict,
};
