/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - reads page traces (PT1, plain or zstd) record by record: memory does not grow with the trace.
 *
 * base/pt1.h has the format. Columns lie one behind the other, so that reading pages together with gaps means reading
 * the file twice at the same time.
 */
#ifndef TIERMESH_BENCH_REPLAY_TRACE_H
#define TIERMESH_BENCH_REPLAY_TRACE_H

#include "base/types.h"

#include <stdio.h>

#define TRACE_PAGE_BITS 52 /* a page number of a 64-bit address */

struct trace;

struct trace_record {
    struct page_id page;
    uint32_t gap_accesses; /* accesses since the record before; 0 when gaps were not asked for */
};

/*
 * Opens and looks at the head. Returns 0, -ENOENT and other errors of the file system, -EINVAL: not a PT1 trace,
 * or -ENOMEM; each with a sentence (error_text()).
 */
int MUST_USE trace_open(const char *path, bool with_gaps, struct trace **ret_trace);
/* The same over open files, which it takes; gaps NULL: without. `name` is for messages. */
int MUST_USE trace_open_files(FILE *pages, FILE *gaps, const char *name, struct trace **ret_trace);
void trace_close(struct trace *trace);

/* What the heads promise of the parts that were begun; all of it at the end. */
uint64_t trace_records(const struct trace *trace);
uint64_t trace_accesses(const struct trace *trace);

/*
 * 1: *ret_record is the next one. 0: that was all, and the columns behind were looked at as well. -EINVAL: the trace
 * is cut short or damaged; the sentence names the record.
 */
int MUST_USE trace_next(struct trace *trace, struct trace_record *ret_record);

#endif
