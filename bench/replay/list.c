/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.c - the policies by name.
 */
#include "bench/replay/cache.h"

#include <string.h>

static const struct cache_ops *const caches[] = {
    &cache_segmented_fifo, &cache_fifo, &cache_lru, &cache_clock, &cache_lru_2, &cache_belady,
};

const struct cache_ops *cache_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(caches); i++)
        if (strcmp(caches[i]->name, name) == 0)
            return caches[i];
    return NULL;
}
