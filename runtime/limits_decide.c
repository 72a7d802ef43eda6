/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits_decide.c - how large each memory tier may be, from what is asked for, what fits, and pressure. No clock, no
 * system call.
 *
 * Always holds: a budget is never above what is wanted; that of DDR or zmem is never below LIMITS_MIN_BYTES unless
 * less is wanted.
 */
#include "runtime/limits.h"

#include <string.h>

#define SECOND_NS    UINT64_C(1000000000)
#define SHARE_WHOLE  1024U
#define SHARE_MIN    (SHARE_WHOLE / 4)
#define SHARE_STEP   (SHARE_WHOLE / 16)
#define QUIET_NS     (5 * SECOND_NS)
#define CHANGE_SHARE 64 /* of what is wanted: smaller changes are not worth it */
#define GROW_SHARE   16

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t scaled(uint64_t bytes, uint64_t by, uint64_t of)
{
    return (uint64_t)((unsigned __int128)bytes * by / of);
}

/* Has so much time passed since? `then_ns` 0: it never happened. */
static bool is_past(uint64_t now_ns, uint64_t then_ns, uint64_t time_ns)
{
    return then_ns == 0 || now_ns - then_ns >= time_ns;
}

/* The share of DDR that pressure leaves. */
static void share_move(struct limits_state *state, const struct limits_input *input, bool may_grow)
{
    if (may_grow) {
        state->share = (uint32_t)least(state->share + SHARE_STEP, SHARE_WHOLE);
    } else if (input->is_pressed && is_past(input->now_ns, state->pressed_ns, SECOND_NS)) {
        state->share -= state->share / 8;
        if (state->share < SHARE_MIN)
            state->share = SHARE_MIN;
        state->pressed_ns = input->now_ns;
    }
}

/* What each tier should have: all that is asked for, or in proportion to that what fits. */
static void targets_find(const struct limits_state *state, const struct limits_input *input, uint64_t targets[TIERS])
{
    uint64_t used_bytes = 0;
    uint64_t sum_bytes = 0;
    uint64_t fit_bytes = 0;

    memcpy(targets, input->wanted_bytes, sizeof(input->wanted_bytes));
    targets[TIER_DDR] = scaled(input->wanted_bytes[TIER_DDR], state->share, SHARE_WHOLE);
    for (int i = 0; i < TIERS; i++) {
        sum_bytes += targets[i];
        used_bytes += input->used_bytes[i];
    }
    if (input->room.room_bytes == INT64_MAX)
        fit_bytes = UINT64_MAX;
    else if ((int64_t)used_bytes + input->room.room_bytes > 0)
        fit_bytes = used_bytes + (uint64_t)input->room.room_bytes;
    for (int i = 0; i < TIERS && sum_bytes > fit_bytes; i++)
        targets[i] = scaled(targets[i], fit_bytes, sum_bytes);
    for (int i = 0; i < TIERS; i++)
        if (i != TIER_CXL && targets[i] < LIMITS_MIN_BYTES)
            targets[i] = least(LIMITS_MIN_BYTES, input->wanted_bytes[i]);
}

/* From the budget there is towards the target: down at once, up by steps; small changes are left out. */
static uint64_t step(uint64_t budget_bytes, uint64_t target_bytes, uint64_t wanted_bytes, bool may_grow)
{
    uint64_t small_bytes = target_bytes == wanted_bytes ? 1 : wanted_bytes / CHANGE_SHARE;

    if (target_bytes + wanted_bytes / CHANGE_SHARE <= budget_bytes)
        return target_bytes;
    if (may_grow && target_bytes >= budget_bytes + small_bytes)
        return least(target_bytes, budget_bytes + wanted_bytes / GROW_SHARE + PAGE_BYTES);
    return budget_bytes;
}

bool limits_decide(struct limits_state *state, const struct limits_input *input)
{
    bool may_grow = !input->is_pressed && is_past(input->now_ns, state->pressed_ns, QUIET_NS) &&
                    is_past(input->now_ns, state->grown_ns, SECOND_NS);
    bool has_changed = false;
    uint64_t targets[TIERS];

    if (state->share == 0)
        state->share = SHARE_WHOLE;
    share_move(state, input, may_grow);
    targets_find(state, input, targets);
    for (int i = 0; i < TIERS; i++) {
        uint64_t before_bytes = state->budget_bytes[i];
        uint64_t wanted_bytes = input->wanted_bytes[i];
        uint64_t budget_bytes = targets[i]; /* what is asked for anew is given at once */

        if (wanted_bytes == state->wanted_bytes[i])
            budget_bytes = step(before_bytes, targets[i], wanted_bytes, may_grow);
        state->budget_bytes[i] = budget_bytes - budget_bytes % PAGE_BYTES;
        state->wanted_bytes[i] = wanted_bytes;
        has_changed |= state->budget_bytes[i] != before_bytes;
    }
    if (may_grow)
        state->grown_ns = input->now_ns;
    return has_changed;
}
