/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random.h - seeded random numbers: the only source of chance in the pure folders.
 *
 * splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
 */
#ifndef TIERMESH_BASE_RANDOM_H
#define TIERMESH_BASE_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state;
};

#define RANDOM_STEP 0x9e3779b97f4a7c15U

/* The last step by itself: a bijection that spreads each bit over all. */
static inline uint64_t random_mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
}

static inline uint64_t random_next(struct random *random)
{
    return random_mix(random->state += RANDOM_STEP);
}

/* Uniform in 0 .. bound-1; bound > 0. The bias of the multiplication is below bound / 2^32. */
static inline uint32_t random_below(struct random *random, uint32_t bound)
{
    return (uint32_t)((random_next(random) >> 32) * bound >> 32);
}

#endif
