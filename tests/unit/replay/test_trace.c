/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_trace.c - the reader of PT1 traces: what was written is read, and every cut is noticed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/pt1.h"
#include "bench/replay/trace.h"

#define RECORDS 1000u

static uint8_t bytes[32768];
static size_t bytes_count;

static void put(uint64_t value, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        bytes[bytes_count++] = (uint8_t)(value >> 8 * i);
}

static void put_varint(uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        put(value | 0x80, 1);
    put(value, 1);
}

static uint64_t page_at(unsigned record)
{
    return record % 3 == 0 ? record : ((uint64_t)1 << 51) - record * 4099u % 5000u;
}

/* Behind what is there. */
static void part_write(void)
{
    uint64_t page = 0;

    memcpy(bytes + bytes_count, "PT1", 4);
    bytes_count += 4;
    put(RECORDS, 8);
    put(123456, 8);
    put(7, 4);
    put(64, 4);
    for (unsigned i = 0; i < RECORDS; i++) {
        int64_t delta = (int64_t)(page_at(i) - page);

        put_varint((uint64_t)delta << 1 ^ (uint64_t)(delta >> 63));
        page = page_at(i);
    }
    for (unsigned i = 0; i < RECORDS; i++)
        put(i & 0xff, 1);
    for (unsigned i = 0; i < (RECORDS + 7) / 8; i++)
        put(0xaa, 1);
    for (unsigned i = 0; i < RECORDS; i++)
        put_varint(i);
}

static void trace_write(void)
{
    bytes_count = 0;
    part_write();
}

/* How many records there are in the first `size` bytes, or an error. */
static int records_read(size_t size, bool with_gaps)
{
    FILE *pages = fmemopen(bytes, size, "rb"), *gaps = with_gaps ? fmemopen(bytes, size, "rb") : NULL;
    struct trace_record record;
    struct trace *trace;
    int count = 0, error;

    assert_non_null(pages);
    error = trace_open_files(pages, gaps, "test", &trace);
    if (error != 0)
        return error;
    while ((error = trace_next(trace, &record)) == 1) {
        assert_int_equal(record.page.index, page_at((unsigned)count % RECORDS));
        assert_int_equal(record.gap_accesses, with_gaps ? pt1_gap_value((uint8_t)(count % (int)RECORDS)) : 0);
        count++;
    }
    if (error == 0) {
        assert_int_equal(trace_next(trace, &record), 0); /* as often as one likes */
        assert_int_equal(trace_records(trace), count);
        assert_int_equal(trace_accesses(trace), 123456 * ((unsigned)count / RECORDS));
    }
    trace_close(trace);
    return error < 0 ? error : count;
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    trace_write();
    assert_int_equal(records_read(bytes_count, false), RECORDS);
    assert_int_equal(records_read(bytes_count, true), RECORDS);
}

static void every_cut_is_noticed(void **state)
{
    (void)state;
    trace_write();
    for (size_t size = 1; size < bytes_count; size++) {
        assert_true(records_read(size, size % 2 == 0) < 0);
        assert_non_null(strstr(error_text(), "test: "));
    }
}

static void what_follows_is_noticed(void **state)
{
    (void)state;
    trace_write();
    put(0, 1);
    assert_true(records_read(bytes_count, false) < 0);
}

/* As a recording leaves them that was cut off. */
static void parts_are_one_trace(void **state)
{
    size_t first;

    (void)state;
    trace_write();
    first = bytes_count;
    part_write();
    assert_int_equal(records_read(bytes_count, false), 2 * RECORDS);
    assert_int_equal(records_read(bytes_count, true), 2 * RECORDS);
    for (size_t size = first + 1; size < bytes_count; size += 7)
        assert_true(records_read(size, size % 2 == 0) < 0);
    bytes[first + 2] = '2';
    assert_true(records_read(bytes_count, false) < 0);
}

static void pages_that_no_address_has_are_refused(void **state)
{
    (void)state;
    trace_write();
    memset(bytes + 28, 0xff, 8); /* the first delta */
    bytes[36] = 0x7f;
    assert_true(records_read(bytes_count, false) < 0);
    memset(bytes + 28, 0xff, 12); /* does not end */
    assert_true(records_read(bytes_count, false) < 0);
}

static void gaps_are_quantised(void **state)
{
    (void)state;
    for (unsigned gap = 0; gap <= UINT8_MAX; gap++)
        assert_int_equal(pt1_gap_of(pt1_gap_value((uint8_t)gap)), gap);
    assert_int_equal(pt1_gap_of(31), 31);
    assert_int_equal(pt1_gap_of(33), 32);
    assert_int_equal(pt1_gap_of((31 << 14) + 1), UINT8_MAX);
    assert_int_equal(pt1_gap_of(UINT64_MAX), UINT8_MAX);
    assert_int_equal(pt1_gap_value(0), 0);
    assert_int_equal(pt1_gap_value(31), 31);
    assert_int_equal(pt1_gap_value(32), 32);
    assert_int_equal(pt1_gap_value(47), 62);
    assert_int_equal(pt1_gap_value(255), 31 << 14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read), cmocka_unit_test(every_cut_is_noticed),
        cmocka_unit_test(what_follows_is_noticed),  cmocka_unit_test(pages_that_no_address_has_are_refused),
        cmocka_unit_test(gaps_are_quantised),       cmocka_unit_test(parts_are_one_trace),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
