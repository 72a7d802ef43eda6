/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bare.h - the raw reference for a fault: a userfaultfd handler of a few lines that copies the page.
 *
 * Its thread waits as the product's shard does (a poll on an io_uring, poll(2) where that is refused) and then reads
 * and copies; nothing else. It runs on the processor of the thread that opened it.
 */
#ifndef TIERMESH_BENCH_BARE_H
#define TIERMESH_BENCH_BARE_H

#include <stdbool.h>
#include <stdint.h>

struct bare;

/* Memory whose pages are absent; private anonymous, or a shared mapping of a memfd. Page i starts with the word i. */
struct bare *bare_open(bool is_shared, uint32_t pages_count);
void bare_close(struct bare *bare);

/* Makes every page absent. */
void bare_empty(struct bare *bare);

char *bare_memory(const struct bare *bare);

#endif
