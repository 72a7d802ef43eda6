/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.c - the reader of PT1 traces. Nothing in a file is believed before it was looked at.
 */
#include "bench/replay/trace.h"
#include "base/error.h"
#include "base/pt1.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define BUFFER_BYTES 65536u
#define END          (-1)
#define BROKEN       (-2) /* the compressed stream is damaged */

/* Bytes of one file, decompressed when it is compressed. */
struct source {
    FILE *file;
    ZSTD_DStream *zstd; /* NULL: plain */
    ZSTD_inBuffer in;
    size_t at, filled;
    size_t frame_left; /* 0: a compressed frame has ended here */
    bool is_broken;
    uint8_t raw[BUFFER_BYTES], bytes[BUFFER_BYTES];
};

struct trace {
    char name[256];
    uint64_t records, accesses, record; /* of the parts until now */
    uint64_t part_first;                /* record with which this part begins */
    uint64_t page;
    bool has_gaps, is_ended;
    struct source pages, gaps;
};

static const uint8_t zstd_magic[4] = {0x28, 0xb5, 0x2f, 0xfd};

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

static int source_open(struct source *source, FILE *file)
{
    source->file = file;
    source->filled = fread(source->bytes, 1, BUFFER_BYTES, file);
    if (source->filled < sizeof(zstd_magic) || memcmp(source->bytes, zstd_magic, sizeof(zstd_magic)) != 0)
        return 0;
    source->zstd = ZSTD_createDStream();
    if (source->zstd == NULL)
        return -ENOMEM;
    memcpy(source->raw, source->bytes, source->filled);
    source->in = (ZSTD_inBuffer){source->raw, source->filled, 0};
    source->filled = 0;
    return 0;
}

static void source_close(struct source *source)
{
    ZSTD_freeDStream(source->zstd);
    if (source->file != NULL)
        fclose(source->file);
}

/* Decompresses until there are bytes; none: the file has ended. */
static void source_decompress(struct source *source)
{
    ZSTD_outBuffer out = {source->bytes, BUFFER_BYTES, 0};

    while (out.pos == 0 && !source->is_broken) {
        if (source->in.pos == source->in.size) {
            size_t got = fread(source->raw, 1, BUFFER_BYTES, source->file);

            if (got == 0 && source->frame_left == 0)
                return;
            source->in = (ZSTD_inBuffer){source->raw, got, 0};
        }
        size_t before = source->in.pos;
        size_t left = ZSTD_decompressStream(source->zstd, &out, &source->in);

        source->is_broken = ZSTD_isError(left);
        source->frame_left = left;
        if (out.pos == 0 && source->in.pos == before)
            return; /* the file ends within a frame */
    }
    source->filled = out.pos;
}

static int source_more(struct source *source)
{
    source->at = source->filled = 0;
    if (source->zstd == NULL)
        source->filled = fread(source->bytes, 1, BUFFER_BYTES, source->file);
    else
        source_decompress(source);
    if (source->is_broken)
        return BROKEN;
    return source->filled > 0 ? source->bytes[source->at++] : END;
}

static inline int source_byte(struct source *source)
{
    return source->at < source->filled ? source->bytes[source->at++] : source_more(source);
}

/* 0, END or BROKEN; a varint that does not fit 64 bits is broken. */
static int source_varint(struct source *source, uint64_t *ret_value)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < PT1_VARINT_MAX; i++) {
        int byte = source_byte(source);

        if (byte < 0)
            return byte;
        if (i == PT1_VARINT_MAX - 1 && byte > 1)
            return BROKEN;
        value |= (uint64_t)(byte & 0x7f) << 7 * i;
        if (byte < 0x80) {
            *ret_value = value;
            return 0;
        }
    }
    return BROKEN;
}

static int source_skip(struct source *source, uint64_t bytes)
{
    while (bytes > 0) {
        uint64_t here = source->filled - source->at;
        int byte;

        if (here == 0) {
            byte = source_more(source);
            if (byte < 0)
                return byte;
            bytes--;
            continue;
        }
        here = here < bytes ? here : bytes;
        source->at += here;
        bytes -= here;
    }
    return 0;
}

/* A column of varints. */
static int source_skip_varints(struct source *source, uint64_t count)
{
    uint64_t ignored;
    int error = 0;

    for (; count > 0 && error == 0; count--)
        error = source_varint(source, &ignored);
    return error;
}

/* ---- the head --------------------------------------------------------------------------------------------------- */

static int head_read(const struct trace *trace, struct source *source, uint64_t *ret_records, uint64_t *ret_accesses)
{
    struct bytes_reader reader = {.left = PT1_HEAD_BYTES};
    uint8_t head[PT1_HEAD_BYTES];
    char magic[PT1_MAGIC_BYTES];

    for (unsigned i = 0; i < PT1_HEAD_BYTES; i++) {
        int byte = source_byte(source);

        if (byte < 0)
            return error_set(-EINVAL, "%s: is no PT1 trace: it ends, or is damaged, within the %u bytes of %s head",
                             trace->name, PT1_HEAD_BYTES, trace->records == 0 ? "the" : "a part's");
        head[i] = (uint8_t)byte;
        if (i + 1 == PT1_MAGIC_BYTES && memcmp(head, PT1_MAGIC, PT1_MAGIC_BYTES) != 0)
            return error_set(-EINVAL,
                             "%s: is no PT1 trace: it does not begin with \"PT1\"; give a trace of page "
                             "touches, plain or compressed by zstd",
                             trace->name);
    }
    reader.next = head;
    bytes_take(&reader, magic, sizeof(magic));
    *ret_records = bytes_take_u64(&reader);
    *ret_accesses = bytes_take_u64(&reader);
    if (*ret_records == 0)
        return error_set(-EINVAL, "%s: the trace has no records", trace->name);
    return 0;
}

static int cut_short(const struct trace *trace, int why, const char *column)
{
    if (why == BROKEN)
        return error_set(-EINVAL,
                         "%s: the trace is damaged in its column of %s, at or behind record %lu of %lu; copy "
                         "or record it again",
                         trace->name, column, trace->record, trace->records);
    return error_set(-EINVAL,
                     "%s: the trace is cut short in its column of %s, record %lu of %lu; copy or record it "
                     "again",
                     trace->name, column, trace->record, trace->records);
}

/* Both sources stand at the head of a part. */
static int part_begin(struct trace *trace)
{
    uint64_t records, accesses;
    int error = head_read(trace, &trace->pages, &records, &accesses);

    if (error != 0)
        return error;
    if (records > UINT64_MAX - trace->records)
        return error_set(-EINVAL, "%s: the trace is damaged: it claims more records than can be", trace->name);
    trace->part_first = trace->records;
    trace->records += records;
    trace->accesses += accesses;
    trace->page = 0;
    if (!trace->has_gaps)
        return 0;
    error = head_read(trace, &trace->gaps, &records, &accesses);
    if (error != 0)
        return error;
    error = source_skip_varints(&trace->gaps, records);
    return error != 0 ? cut_short(trace, error, "pages") : 0;
}

int trace_open_files(FILE *pages, FILE *gaps, const char *name, struct trace **ret_trace)
{
    struct trace *trace = calloc(1, sizeof(*trace));
    int error;

    if (trace == NULL) {
        fclose(pages);
        if (gaps != NULL)
            fclose(gaps);
        return error_set(-ENOMEM, "%s: no memory to read it", name);
    }
    snprintf(trace->name, sizeof(trace->name), "%s", name);
    trace->gaps.file = gaps;
    trace->has_gaps = gaps != NULL;
    error = source_open(&trace->pages, pages);
    if (error == 0 && gaps != NULL)
        error = source_open(&trace->gaps, gaps);
    if (error != 0)
        error = error_set(error, "%s: no memory to decompress it", name);
    else
        error = part_begin(trace);
    if (error == 0)
        *ret_trace = trace;
    else
        trace_close(trace);
    return error;
}

int trace_open(const char *path, bool with_gaps, struct trace **ret_trace)
{
    FILE *pages = fopen(path, "rbe"), *gaps = NULL;

    if (pages != NULL && with_gaps)
        gaps = fopen(path, "rbe");
    if (pages == NULL || (with_gaps && gaps == NULL)) {
        int error = -errno;

        if (pages != NULL)
            fclose(pages);
        return error_set(error, "%s: cannot open the trace: %s", path, strerror(-error));
    }
    return trace_open_files(pages, gaps, path, ret_trace);
}

void trace_close(struct trace *trace)
{
    if (trace == NULL)
        return;
    source_close(&trace->pages);
    source_close(&trace->gaps);
    free(trace);
}

uint64_t trace_records(const struct trace *trace)
{
    return trace->records;
}

uint64_t trace_accesses(const struct trace *trace)
{
    return trace->accesses;
}

/* ---- records ---------------------------------------------------------------------------------------------------- */

static int columns_skip(struct source *source, uint64_t records, bool with_gaps, const char **ret_column)
{
    int error = 0;

    *ret_column = "gaps";
    if (with_gaps)
        error = source_skip(source, records);
    if (error != 0)
        return error;
    *ret_column = "stores";
    error = source_skip(source, records / 8 + (records % 8 != 0));
    if (error != 0)
        return error;
    *ret_column = "instructions";
    return source_skip_varints(source, records);
}

/* What lies behind the pages must be there too, and nothing but another part behind that. 1: there is one; 0: none. */
static int part_next(struct trace *trace)
{
    uint64_t records = trace->records - trace->part_first;
    const char *column;
    int error;

    if (trace->is_ended)
        return 0;
    error = columns_skip(&trace->pages, records, true, &column);
    if (error == 0 && trace->has_gaps)
        error = columns_skip(&trace->gaps, records, false, &column);
    if (error != 0)
        return cut_short(trace, error, column);
    error = source_byte(&trace->pages);
    trace->is_ended = error == END;
    if (error == END)
        return 0;
    if (error != PT1_MAGIC[0])
        return error_set(-EINVAL, "%s: the trace goes on behind its %lu records: it is damaged or not one trace",
                         trace->name, trace->records);
    trace->pages.at--; /* source_byte() took it from there */
    error = part_begin(trace);
    return error == 0 ? 1 : error;
}

int trace_next(struct trace *trace, struct trace_record *ret_record)
{
    uint64_t delta;
    int gap = 0, error;

    if (trace->record == trace->records) {
        error = part_next(trace);
        if (error != 1)
            return error;
    }
    error = source_varint(&trace->pages, &delta);
    if (error != 0)
        return cut_short(trace, error, "pages");
    if (trace->has_gaps)
        gap = source_byte(&trace->gaps);
    if (gap < 0)
        return cut_short(trace, gap, "gaps");
    trace->page = pt1_page(delta, trace->page);
    if (trace->page >> TRACE_PAGE_BITS != 0)
        return error_set(-EINVAL, "%s: record %lu names page %#lx, which no address has: the trace is damaged",
                         trace->name, trace->record, trace->page);
    trace->record++;
    *ret_record = (struct trace_record){page_of(trace->page), pt1_gap_value((uint8_t)gap)};
    return 1;
}
