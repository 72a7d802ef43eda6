/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_trace.c - the reader of traces: any bytes are a trace or are refused; what is read twice is the same.
 *
 * Input: a file, plain or compressed.
 */
#include "base/assert.h"
#include "bench/replay/trace.h"

#include <string.h>

#define RECORDS_MAX 100000u

/* A sum over the records, and how it ended. */
static uint64_t read_all(const uint8_t *data, size_t size, bool with_gaps, int *ret_result)
{
    FILE *pages = fmemopen((void *)(uintptr_t)data, size, "rb");
    FILE *gaps = with_gaps ? fmemopen((void *)(uintptr_t)data, size, "rb") : NULL;
    struct trace_record record;
    struct trace *trace;
    uint64_t sum = 0, count = 0;
    int result;

    ASSERT(pages != NULL && (gaps != NULL || !with_gaps));
    result = trace_open_files(pages, gaps, "input", &trace);
    if (result == 0) {
        while (count < RECORDS_MAX && (result = trace_next(trace, &record)) == 1) {
            ASSERT(record.page.index >> TRACE_PAGE_BITS == 0);
            ASSERT(++count <= trace_records(trace));
            sum = sum * 31 + record.page.index;
        }
        trace_close(trace);
    }
    *ret_result = result;
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int result, result_gaps;
    uint64_t sum, sum_gaps;

    if (size == 0)
        return 0;
    sum = read_all(data, size, false, &result);
    sum_gaps = read_all(data, size, true, &result_gaps);
    ASSERT((result == 0) == (result_gaps == 0));
    ASSERT(result != 0 || sum == sum_gaps);
    return 0;
}
