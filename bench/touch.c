/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/touch.h"
#include "bench/report.h"
#include "bench/setup.h"

#include <stdlib.h>

void touch_init(struct touch *touch, void *memory, uint32_t pages_count)
{
    *touch = (struct touch){.memory = memory, .order = order_make(pages_count), .pages_count = pages_count};
}

void touch_fini(struct touch *touch)
{
    free(touch->order);
}

static volatile uint64_t *word_of(const struct touch *touch, uint32_t page)
{
    return (volatile uint64_t *)(void *)(touch->memory + (size_t)page * DSM_PAGE_BYTES);
}

void touch_fill(const struct touch *touch)
{
    for (uint32_t page = 0; page < touch->pages_count; page++)
        *word_of(touch, page) = page;
}

double touch_some(struct touch *touch, uint32_t count, bool is_store)
{
    double *times_us = malloc(count * sizeof(*times_us));
    double median_us;

    if (times_us == NULL)
        die("no memory for %u times", count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t page = touch->order[touch->next];
        volatile uint64_t *word = word_of(touch, page);
        uint64_t start_ns = now_ns();

        if (is_store)
            *word = page;
        else if (*word != page)
            die("page %u holds the word %lu", page, *word);
        times_us[i] = (double)(now_ns() - start_ns) / 1000;
        touch->next = (touch->next + 1) % touch->pages_count;
    }
    median_us = quantile(times_us, count, 0.5);
    free(times_us);
    return median_us;
}
