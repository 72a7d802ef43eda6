/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signature.c - steps inside a region of 1 MiB that followed such steps before, there or elsewhere. PURE. Run by the
 * shard's thread.
 *
 * A region's last steps are folded into a signature; a table says which step came next after each signature. The
 * likely path is walked as long as its steps are likely together. After Kim et al.: Path confidence based lookahead
 * prefetching (SPP), MICRO 2016.
 */
#include "prefetch/predictor.h"

#define REGION_BITS 8
#define COUNT_MAX   31u

void signature_init(struct signature *signature)
{
    *signature = (struct signature){0};
}

static struct signature_region *region_of(struct signature *signature, uint64_t region)
{
    return &signature->regions[page_hash(page_of(region)) % SIGNATURE_REGIONS];
}

static uint16_t sign(uint16_t sign, int32_t step)
{
    return (uint16_t)((uint32_t)sign << 4 ^ ((uint32_t)step & 0xffU)) % SIGNATURES;
}

/* The step was seen after this signature; it takes the place of the rarest one when it is new. */
static void learn(struct signature_steps *steps, int32_t step)
{
    unsigned at = 0;

    for (unsigned i = 0; i < SIGNATURE_STEPS; i++) {
        if (steps->steps[i] == step) {
            at = i;
            break;
        }
        if (steps->counts[i] < steps->counts[at])
            at = i;
    }
    if (steps->steps[at] != step) {
        steps->steps[at] = (int16_t)step;
        steps->counts[at] = 0;
    }
    steps->counts[at]++;
    if (++steps->total <= COUNT_MAX)
        return;
    steps->total = 0;
    for (unsigned i = 0; i < SIGNATURE_STEPS; i++)
        steps->total = (uint8_t)(steps->total + (steps->counts[i] /= 2));
}

bool signature_event(struct signature *signature, const struct prefetch_event *event, struct signature_walk *ret_walk)
{
    uint64_t number = event->page.index >> REGION_BITS;
    struct signature_region *region = region_of(signature, number);
    int32_t step = (int32_t)(event->page.index - region->last);

    if (region->number != number || step == 0) {
        *region = (struct signature_region){.number = number, .last = event->page.index};
        return false;
    }
    learn(&signature->table[region->sign], step);
    region->sign = sign(region->sign, step);
    region->last = event->page.index;
    *ret_walk = (struct signature_walk){.at = event->page, .sign = region->sign, .likely = LIKELY_ONE};
    return true;
}

bool signature_next(const struct signature *signature, struct signature_walk *walk, struct proposal *proposal)
{
    const struct signature_steps *steps = &signature->table[walk->sign];
    unsigned best = 0;
    uint64_t next;

    for (unsigned i = 1; i < SIGNATURE_STEPS; i++)
        if (steps->counts[i] > steps->counts[best])
            best = i;
    if (steps->counts[best] < 2)
        return false;
    walk->likely = walk->likely * steps->counts[best] / (steps->total + 1U);
    next = walk->at.index + (uint64_t)(int64_t)steps->steps[best];
    if (walk->likely < LIKELY_ONE / 4 || next >> REGION_BITS != walk->at.index >> REGION_BITS)
        return false;
    walk->at = page_of(next);
    walk->sign = sign(walk->sign, steps->steps[best]);
    walk->distance++;
    proposal->page = walk->at;
    proposal->distance = walk->distance;
    proposal->length = 1U << (walk->likely * 8 / (LIKELY_ONE + 1)) >> 1;
    proposal->support = steps->counts[best] >= 8;
    return true;
}
