/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_line.c - checksums, and lines that are told together, in memory that hosts share. Any thread.
 */
#include "base/random.h"
#include "fabric/pool_memory.h"

#include <string.h>

uint64_t pool_hash(uint64_t seed, const void *memory, size_t size_bytes)
{
    const uint8_t *bytes = memory;
    uint64_t hash = random_mix(seed + size_bytes);

    for (size_t i = 0; i < size_bytes; i += sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, bytes + i, sizeof(word));
        hash = (hash ^ word) * RANDOM_STEP;
        hash ^= hash >> 29;
    }
    return random_mix(hash);
}

void pool_line_write(struct pool_line *line, const uint64_t words[POOL_LINE_WORDS])
{
    volatile uint64_t *to = line->words;

    for (int i = 0; i < POOL_LINE_WORDS; i++)
        to[i] = words[i];
    *(volatile uint64_t *)&line->check = pool_hash(0, words, sizeof(line->words));
    pool_write_back(line, sizeof(*line));
}

bool pool_line_read(const struct pool_line *line, uint64_t ret_words[POOL_LINE_WORDS])
{
    const volatile uint64_t *from = line->words;
    uint64_t words[POOL_LINE_WORDS];
    uint64_t check;

    pool_drop(line, sizeof(*line));
    for (int i = 0; i < POOL_LINE_WORDS; i++)
        words[i] = from[i];
    check = *(const volatile uint64_t *)&line->check;
    if (check != pool_hash(0, words, sizeof(words)))
        return false;
    memcpy(ret_words, words, sizeof(words));
    return true;
}
