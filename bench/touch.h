/* SPDX-License-Identifier: Apache-2.0 */
/*
 * touch.h - touching pages one by one, in a random order that comes round only after all of them, and timing each.
 */
#ifndef TIERMESH_BENCH_TOUCH_H
#define TIERMESH_BENCH_TOUCH_H

#include <stdbool.h>
#include <stdint.h>

struct touch {
    char *memory;
    uint32_t *order;
    uint32_t pages_count;
    uint32_t next; /* in order */
};

/* Page i of the memory holds the word i, or will after touch_fill(). */
void touch_init(struct touch *touch, void *memory, uint32_t pages_count);
void touch_fini(struct touch *touch);

/* Stores the word i into each page i, in address order. */
void touch_fill(const struct touch *touch);

/* The next `count` pages of the order: median time of a load (or store of the same word), us. Checks what it loads. */
double touch_some(struct touch *touch, uint32_t count, bool is_store);

#endif
