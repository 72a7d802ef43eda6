/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filter.c - how likely a proposal is to be used, learned from those before. PURE. Run by the shard's thread.
 *
 * Logistic regression over a few hashed features, learned event by event, after Bhatia et al.: Perceptron-based
 * prefetch filtering, ISCA 2019 (there a perceptron; here its answer is a probability, so that it can be weighed
 * against what a wasted page costs). Nothing is believed before it was seen (a new filter says one in four), but for
 * streams, which are right three times in four in most programs.
 */
#include "prefetch/predictor.h"

#define WEIGHT_ONE 4096 /* weights are log-odds in 1/4096 */
#define WEIGHT_MAX (4 * WEIGHT_ONE)
#define LEARN_PART 4 /* a surprise of 1 moves each weight by 256/4096 */
#define PRIOR      (-1 * WEIGHT_ONE)
#define SHAPE_BITS 6 /* length and distance of a proposal */

/* 1024 / (1 + exp(-x)) for x = 0, 1/2, 1, ... 8. */
static const uint16_t logistic[] = {512,  637,  749,  837,  902,  946,  975,  993, 1006,
                                    1012, 1017, 1020, 1021, 1022, 1023, 1023, 1024};

void filter_init(struct filter *filter)
{
    *filter = (struct filter){0};
    for (uint32_t i = 0; i < 1U << SHAPE_BITS; i++)
        filter->weights[0][(uint32_t)PREFETCH_STREAMS << SHAPE_BITS | i] = -2 * PRIOR;
}

static uint16_t mix(uint64_t value, uint32_t salt)
{
    value = (value + salt) * 0x9e3779b97f4a7c15U;
    return (uint16_t)(value >> 48) % FEATURE_WEIGHTS;
}

struct features features_of(const struct proposal *proposal)
{
    uint32_t predictor = (uint32_t)proposal->predictor;
    uint32_t length = bucket_of(proposal->length, 7);
    uint32_t distance = bucket_of(proposal->distance, 7);
    uint64_t page = proposal->page.index;

    return (struct features){{
        (uint16_t)(predictor << SHAPE_BITS | length << 3 | distance),
        (uint16_t)(predictor << 5 | proposal->support << 3 | length),
        mix(page, 1),
        mix(proposal->trigger.index, 2),
        mix((page >> 8) * PREFETCH_PREDICTORS + predictor, 3),
        mix((page - proposal->trigger.index) * PREFETCH_PREDICTORS + predictor, 4),
    }};
}

static uint32_t likely_of(int32_t odds)
{
    uint32_t size = (uint32_t)(odds < 0 ? -odds : odds);
    uint32_t at = size / (WEIGHT_ONE / 2);
    uint32_t likely;

    if (at >= ARRAY_COUNT(logistic) - 1)
        likely = LIKELY_ONE;
    else
        likely = logistic[at] + (logistic[at + 1] - logistic[at]) * (size % (WEIGHT_ONE / 2)) / (WEIGHT_ONE / 2);
    return odds < 0 ? LIKELY_ONE - likely : likely;
}

uint32_t filter_likely(const struct filter *filter, const struct features *features)
{
    int32_t odds = PRIOR;

    for (unsigned i = 0; i < FEATURES; i++)
        odds += filter->weights[i][features->at[i]];
    return likely_of(odds);
}

void filter_learn(struct filter *filter, const struct features *features, bool was_used)
{
    int32_t surprise = (int32_t)(was_used ? LIKELY_ONE : 0) - (int32_t)filter_likely(filter, features);

    for (unsigned i = 0; i < FEATURES; i++) {
        int16_t *weight = &filter->weights[i][features->at[i]];
        int32_t changed = *weight + surprise / LEARN_PART;

        *weight = (int16_t)(changed > WEIGHT_MAX ? WEIGHT_MAX : changed < -WEIGHT_MAX ? -WEIGHT_MAX : changed);
    }
}
