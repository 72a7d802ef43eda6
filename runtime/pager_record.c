/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_record.c - what becomes of each fault that was served: a figure, and a record when somebody wants a trace.
 */
#include "runtime/pager_internal.h"
#include "runtime/record.h"

void pager_record(struct pager *pager, struct record *record)
{
    pager->record = record;
}

void pager_touched(struct pager *pager, enum dsm_source source, struct page_id page, bool is_write, uint64_t start_ns)
{
    uint64_t now_ns = os_now_ns();

    histogram_add(&pager->stats.faults[source], now_ns - start_ns);
    if (pager->record != NULL)
        record_touch(pager->record, (pager->window->base >> PAGE_SHIFT) + page.index, is_write, start_ns, now_ns);
}
