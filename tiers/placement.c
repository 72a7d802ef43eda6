/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.c - water marks, the choice of a tier, and the way to the replacement policy. PURE. Run by the shard's
 * thread.
 */
#include "tiers/placement.h"
#include "base/assert.h"

/* The policy's own memory follows. */
struct placement {
    const struct placement_ops *ops;
    struct placement_cost cost;
    uint32_t frames_max;
    uint32_t frames_table;
    _Alignas(64) char memory[];
};

size_t placement_bytes(const struct placement_ops *ops, uint32_t frames_table)
{
    return sizeof(struct placement) + (ops->bytes != NULL ? ops->bytes(frames_table) : 0);
}

void placement_init(struct placement *placement, const struct placement_ops *ops, uint32_t frames_table,
                    uint32_t frames_max, const struct placement_cost *cost)
{
    ASSERT(frames_max > 0 && frames_max <= frames_table);
    placement->ops = ops;
    placement->cost = *cost;
    placement->frames_max = frames_max;
    placement->frames_table = frames_table;
    if (ops->init != NULL)
        ops->init(placement, frames_table);
}

const char *placement_policy(const struct placement *placement)
{
    return placement->ops->name;
}

const char *placement_choice(const struct placement *placement)
{
    return placement->ops->choice != NULL ? placement->ops->choice(placement) : "";
}

uint32_t placement_frames_max(const struct placement *placement)
{
    return placement->frames_max;
}

void *placement_memory(struct placement *placement)
{
    return placement->memory;
}

const void *placement_memory_const(const struct placement *placement)
{
    return placement->memory;
}

void placement_resize(struct placement *placement, uint32_t frames_max)
{
    ASSERT(frames_max > 0 && frames_max <= placement->frames_table);
    placement->frames_max = frames_max;
    if (placement->ops->resized != NULL)
        placement->ops->resized(placement);
}

void placement_inserted(struct placement *placement, struct frames *frames, struct frame_id frame, bool prefetched)
{
    placement->ops->inserted(placement, frames, frame, prefetched);
}

void placement_soft_hit(struct placement *placement, struct frames *frames, struct frame_id frame)
{
    placement->ops->soft_hit(placement, frames, frame);
}

void placement_chilled(struct placement *placement, struct frames *frames, struct frame_id frame)
{
    ASSERT(frames_list(frames, frame) == FRAME_LIMBO);
    placement->ops->chilled(placement, frames, frame);
}

void placement_evicted(struct placement *placement, const struct frames *frames, struct frame_id frame)
{
    if (placement->ops->evicted != NULL)
        placement->ops->evicted(placement, frames, frame);
}

void placement_forgotten(struct placement *placement, const struct frames *frames, struct frame_id frame)
{
    if (placement->ops->forgotten != NULL)
        placement->ops->forgotten(placement, frames, frame);
}

unsigned placement_unmap(struct placement *placement, struct frames *frames, struct frame_id *frames_out,
                         unsigned wanted)
{
    return placement->ops->unmap(placement, frames, frames_out, wanted);
}

unsigned placement_evict(struct placement *placement, struct frames *frames, struct frame_id *frames_out,
                         unsigned wanted)
{
    return placement->ops->evict(placement, frames, frames_out, wanted);
}

uint32_t placement_unmap_wanted(const struct placement *placement, const struct frames *frames)
{
    return placement->ops->unmap_wanted(placement, frames);
}

/* ---- water marks ---------------------------------------------------------------------------------------------- */

static uint32_t between(uint32_t value, uint32_t low, uint32_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* The upper bounds keep a large budget in use: 8 MiB free are enough for the eviction of a batch to keep ahead. */
struct placement_marks placement_marks_of(uint32_t frames_max)
{
    struct placement_marks marks;

    ASSERT(frames_max >= PLACEMENT_FRAMES_MIN);
    marks.reserve = between(frames_max / 128, 1, 256);
    marks.low = between(frames_max / 32, marks.reserve + 1, 2048);
    marks.high = marks.low + between(frames_max / 32, 1, 2048);
    marks.limbo_target = between(frames_max / 8, 1, UINT32_MAX);
    return marks;
}

/* ---- where to ------------------------------------------------------------------------------------------------- */

static uint64_t move_ns(const struct placement *placement, enum tier_kind tier)
{
    return placement->cost.write_ns[tier] + placement->cost.read_ns[tier];
}

uint64_t placement_kept_of(uint64_t slots_max)
{
    return slots_max / 16 < TIER_RUN_MAX ? slots_max / 16 : TIER_RUN_MAX;
}

/* The last slots of a tier that others lie below are left to what is on its way there while its oldest move down. */
static bool tier_has_room(const struct placement_question *question, enum tier_kind tier)
{
    uint64_t kept = tier == TIER_NVME ? 0 : placement_kept_of(question->slots_max[tier]);

    return question->slots_free[tier] > kept;
}

/* Of the tiers from `first` on. */
static int cheapest_with_room(const struct placement *placement, const struct placement_question *question,
                              enum tier_kind first)
{
    int best = PLACE_NOWHERE;

    for (enum tier_kind tier = first; tier < TIERS; tier++) {
        if (!tier_has_room(question, tier))
            continue;
        if (best == PLACE_NOWHERE || move_ns(placement, tier) < move_ns(placement, (enum tier_kind)best))
            best = (int)tier;
    }
    return best;
}

/* Better a tier's last slots than none. */
static int any_with_slots(const struct placement_question *question)
{
    for (enum tier_kind tier = TIER_CXL; tier < TIERS; tier++)
        if (question->slots_free[tier] > 0)
            return (int)tier;
    return PLACE_NOWHERE;
}

/* A page with a copy below moves only into room that nobody else needs: never so that others must be pushed down. */
static bool local_copy_will_do(const struct placement *placement, const struct placement_question *question, int best)
{
    uint64_t copy_ns = placement->cost.read_ns[question->copy_tier];

    return copy_ns <= move_ns(placement, (enum tier_kind)best) ||
           question->slots_free[best] <= question->slots_max[best] / 4;
}

int placement_target(const struct placement *placement, const struct placement_question *question)
{
    int best = cheapest_with_room(placement, question, TIER_CXL);

    if (best == PLACE_NOWHERE)
        best = any_with_slots(question);
    if (!question->is_clean_copy)
        return best;
    if (best == PLACE_NOWHERE)
        return PLACE_DROP;
    if (!question->copy_is_remote)
        return local_copy_will_do(placement, question, best) ? PLACE_DROP : best;
    return placement->cost.remote_read_ns <= move_ns(placement, (enum tier_kind)best) ? PLACE_DROP : best;
}

int placement_demotion(const struct placement *placement, const struct placement_question *question,
                       enum tier_kind from)
{
    return cheapest_with_room(placement, question, (enum tier_kind)(from + 1));
}
