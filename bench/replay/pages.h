/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.h - numbers the pages of a trace 0, 1, 2, ... in the order of their first touch, so that arrays will do.
 */
#ifndef TIERMESH_BENCH_REPLAY_PAGES_H
#define TIERMESH_BENCH_REPLAY_PAGES_H

#include "base/types.h"

struct pages;

struct pages *pages_create(void); /* NULL: no memory */
void pages_destroy(struct pages *pages);
/* The page's number, a new one when it has none. UINT32_MAX: no memory, or too many pages. */
uint32_t pages_number(struct pages *pages, struct page_id page);
uint32_t pages_count(const struct pages *pages);
struct page_id pages_page(const struct pages *pages, uint32_t number);

#endif
