/* SPDX-License-Identifier: Apache-2.0 */
/*
 * throttle.c - stops prefetching that does not pay. PURE. Run by the shard's thread.
 *
 * Accuracy is a moving average over about 32 judged pages. Below a quarter the predictor is off but for small probes,
 * and it needs half to be on again; between a quarter and a half it goes a quarter as deep.
 */
#include "prefetch/predictor.h"

#define AVERAGE_SHIFT 5
#define OFF_BELOW     (ACCURACY_ONE / 4)
#define FULL_ABOVE    (ACCURACY_ONE / 2)
#define PROBE_EVERY   64u /* events of the predictor while it is off */
#define PROBE_PAGES   4u

void throttle_init(struct throttle *throttle)
{
    *throttle = (struct throttle){.accuracy = ACCURACY_ONE};
}

void throttle_judge(struct throttle *throttle, bool was_used)
{
    uint32_t change = ((was_used ? ACCURACY_ONE - throttle->accuracy : throttle->accuracy) >> AVERAGE_SHIFT);

    throttle->accuracy = was_used ? throttle->accuracy + change : throttle->accuracy - change;
    if (throttle->accuracy < OFF_BELOW)
        throttle->is_off = true;
    else if (throttle->accuracy >= FULL_ABOVE)
        throttle->is_off = false;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t throttle_depth(const struct throttle *throttle, uint32_t depth)
{
    if (throttle->is_off)
        return throttle->skipped >= PROBE_EVERY ? least(depth, PROBE_PAGES) : 0;
    if (throttle->accuracy < FULL_ABOVE)
        return depth < PROBE_PAGES * 4 ? least(depth, PROBE_PAGES) : depth / 4;
    return depth;
}

void throttle_issued(struct throttle *throttle, uint32_t count)
{
    throttle->skipped = count > 0 ? 0 : throttle->skipped + 1;
}
