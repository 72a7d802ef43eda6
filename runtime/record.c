/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.c - the recorder. Run by the shard's thread, and in the end by the one that closes.
 *
 * Always holds: the first `file_bytes` of the file are whole parts, each but the last of them a multiple of eight
 * touches, and parts[] knows where their columns are.
 */
#include "runtime/record.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/pt1.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PARTS_MAX     (1u << 20)
#define INSTRUCTIONS  1u
#define PART_BYTES    (PT1_HEAD_BYTES + RECORD_PART * (PT1_VARINT_MAX + 2) + RECORD_PART / 8)
#define JOINED_SUFFIX ".joined"
#define FLUSH_NS      100000000u

BUILD_ASSERT(RECORD_PART % 8 == 0);

struct part {
    uint64_t page_first, page_last;
    uint32_t touches_count, pages_bytes;
};

struct record {
    char given[RECORD_PATH_MAX], path[RECORD_PATH_MAX + 16];
    bool is_shared, is_child, is_stopped;
    int fd; /* -1: not open yet */
    uint64_t file_bytes, gaps_ns, gaps_all_ns, touches_all;
    uint64_t served_ns; /* when the fault before had been served */
    uint64_t flush_ns;  /* when the file is to have what is held */
    unsigned held;      /* touches that are not in the file */
    uint64_t pages[RECORD_PART];
    uint8_t gaps[RECORD_PART], stores[RECORD_PART / 8];
    uint32_t parts_count;
    struct part *parts;
    uint8_t bytes[PART_BYTES];
};

int record_create(const char *path, bool is_shared, struct record **ret_record)
{
    struct record *record;
    void *memory;

    if (strlen(path) >= RECORD_PATH_MAX)
        return error_set(-ENAMETOOLONG, "record to %.40s...: the path is longer than %d bytes", path,
                         RECORD_PATH_MAX - 1);
    if (os_pages_map(sizeof(*record), &memory) != 0)
        return error_set(-ENOMEM, "record to %s: no memory", path);
    record = memory;
    if (os_pages_map(PARTS_MAX * sizeof(struct part), &memory) != 0) {
        os_pages_unmap(record, sizeof(*record));
        return error_set(-ENOMEM, "record to %s: no memory", path);
    }
    record->parts = memory;
    record->is_shared = is_shared;
    record->fd = -1;
    snprintf(record->given, sizeof(record->given), "%s", path);
    *ret_record = record;
    return 0;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

int record_open(struct record *record)
{
    int flags = O_RDWR | O_CREAT | O_CLOEXEC;
    bool is_first = record->is_shared && !record->is_child;
    int fd;

    snprintf(record->path, sizeof(record->path), "%s", record->given);
    if (record->is_child)
        snprintf(record->path, sizeof(record->path), "%s.%d", record->given, (int)getpid());
    fd = open(record->path, flags | (is_first ? O_EXCL : O_TRUNC), 0666);
    if (fd < 0 && is_first && errno == EEXIST) {
        snprintf(record->path, sizeof(record->path), "%s.%d", record->given, (int)getpid());
        fd = open(record->path, flags | O_TRUNC, 0666);
    }
    if (fd < 0)
        return error_set(-errno, "%s: %m; give a file that can be written", record->path);
    record->fd = os_descriptor_own(fd);
    return 0;
}

static int write_all(int fd, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t done = write(fd, bytes, size);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done == 0 ? -EIO : -errno;
        bytes += done;
        size -= (size_t)done;
    }
    return 0;
}

/* The file keeps the parts that are whole. */
static void stop(struct record *record, const char *why)
{
    record->is_stopped = true;
    if (record->fd >= 0 && ftruncate(record->fd, (off_t)record->file_bytes) != 0)
        log_warn("record to %s: cut what was not written whole: %m", record->path);
    log_warn("record to %s stops after %lu touches: %s; the program goes on", record->path, record->touches_all, why);
}

/* The first `count` of what is held, as a part. Returns its bytes. */
static size_t part_encode(struct record *record, unsigned count, struct part *part)
{
    uint8_t *bytes = record->bytes;
    size_t used = PT1_HEAD_BYTES;

    pt1_head_put(bytes, count, record->gaps_ns, INSTRUCTIONS, 0);
    part->pages_bytes = (uint32_t)pt1_pages_put(bytes + used, record->pages, count);
    part->page_first = record->pages[0];
    part->page_last = record->pages[count - 1];
    part->touches_count = count;
    used += part->pages_bytes;
    memcpy(bytes + used, record->gaps, count);
    used += count;
    memcpy(bytes + used, record->stores, (count + 7) / 8);
    used += (count + 7) / 8;
    memset(bytes + used, 0, count); /* instructions */
    return used + count;
}

static void part_write(struct record *record, unsigned count)
{
    struct part *part = &record->parts[record->parts_count];
    size_t size;
    int error = record->fd < 0 ? record_open(record) : 0;

    if (error != 0) {
        stop(record, strerrordesc_np(-error));
        return;
    }
    size = part_encode(record, count, part);
    error = write_all(record->fd, record->bytes, size);
    if (error != 0 || record->parts_count + 1 == PARTS_MAX) {
        stop(record, error != 0 ? strerrordesc_np(-error) : "the file has as many parts as can be");
        return;
    }
    record->parts_count++;
    record->file_bytes += size;
    record->touches_all += count;
    record->gaps_all_ns += record->gaps_ns;
    record->gaps_ns = 0;
    record->held -= count;
    memmove(record->pages, record->pages + count, record->held * sizeof(record->pages[0]));
    memmove(record->gaps, record->gaps + count, record->held);
    if (record->held > 0)
        record->stores[0] = record->stores[count / 8]; /* fewer than eight are left */
}

void record_touch(struct record *record, uint64_t page, bool is_store, uint64_t start_ns, uint64_t end_ns)
{
    uint64_t gap_ns = start_ns > record->served_ns && record->served_ns != 0 ? start_ns - record->served_ns : 0;
    unsigned at = record->held;

    if (record->is_stopped)
        return;
    record->served_ns = end_ns > record->served_ns ? end_ns : record->served_ns;
    record->gaps_ns += gap_ns;
    record->pages[at] = page;
    record->gaps[at] = pt1_gap_of(gap_ns);
    if (at % 8 == 0)
        record->stores[at / 8] = 0;
    record->stores[at / 8] |= (uint8_t)((unsigned)is_store << at % 8);
    if (++record->held == RECORD_PART)
        part_write(record, RECORD_PART);
}

/* A recording of days has small parts no more when half of their number is used up. */
void record_flush(struct record *record)
{
    unsigned count = record->held / 8 * 8;

    if (count > 0 && !record->is_stopped && record->parts_count < PARTS_MAX / 2)
        part_write(record, count);
}

void record_tick(struct record *record, uint64_t now_ns)
{
    if (now_ns < record->flush_ns)
        return;
    record->flush_ns = now_ns + FLUSH_NS;
    record_flush(record);
}

void record_forked(struct record *record)
{
    if (record->fd >= 0)
        os_descriptor_close(record->fd);
    record->fd = -1;
    record->is_child = true;
    record->held = record->parts_count = 0;
    record->file_bytes = record->gaps_ns = record->gaps_all_ns = record->touches_all = record->served_ns = 0;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

enum column {
    COLUMN_PAGES,
    COLUMN_GAPS,
    COLUMN_STORES,
    COLUMN_INSTRUCTIONS,
    COLUMNS,
};

static size_t column_bytes(const struct part *part, enum column column)
{
    if (column == COLUMN_PAGES)
        return part->pages_bytes;
    return column == COLUMN_STORES ? (part->touches_count + 7) / 8 : part->touches_count;
}

/* The column of a part that begins at `offset` in the file; its first page now follows another. */
static int column_copy(struct record *record, int to, const struct part *part, enum column column, uint64_t offset,
                       uint64_t page_before)
{
    uint8_t *bytes = record->bytes;
    size_t size = column_bytes(part, column), head = 0;
    int error;

    if (pread(record->fd, bytes, size, (off_t)offset) != (ssize_t)size)
        return -EIO;
    if (column == COLUMN_PAGES) {
        uint8_t varint[PT1_VARINT_MAX];

        head = pt1_varint_put(varint, pt1_zigzag(part->page_first, 0));
        error = write_all(to, varint, pt1_varint_put(varint, pt1_zigzag(part->page_first, page_before)));
        if (error != 0)
            return error;
    }
    return write_all(to, bytes + head, size - head);
}

static int columns_join(struct record *record, int to)
{
    uint8_t head[PT1_HEAD_BYTES];
    int error;

    pt1_head_put(head, record->touches_all, record->gaps_all_ns, INSTRUCTIONS, 0);
    error = write_all(to, head, sizeof(head));
    for (enum column column = COLUMN_PAGES; column < COLUMNS && error == 0; column++) {
        uint64_t page_before = 0, offset = 0;

        for (uint32_t i = 0; i < record->parts_count && error == 0; i++) {
            const struct part *part = &record->parts[i];
            uint64_t at = offset + PT1_HEAD_BYTES;

            offset = at;
            for (enum column next = COLUMN_PAGES; next < COLUMNS; next++) {
                at += next < column ? column_bytes(part, next) : 0;
                offset += column_bytes(part, next);
            }
            error = column_copy(record, to, part, column, at, page_before);
            page_before = part->page_last;
        }
    }
    return error;
}

static void parts_join(struct record *record)
{
    char joined[sizeof(record->path) + sizeof(JOINED_SUFFIX)];
    int to, error;

    snprintf(joined, sizeof(joined), "%s" JOINED_SUFFIX, record->path);
    to = open(joined, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    error = to < 0 ? -errno : columns_join(record, to);
    if (to >= 0)
        close(to);
    if (error == 0 && rename(joined, record->path) != 0)
        error = -errno;
    if (error == 0)
        return;
    unlink(joined);
    log_warn("record to %s: its %u parts stay as they are: %s", record->path, record->parts_count,
             strerrordesc_np(-error));
}

void record_close(struct record *record)
{
    if (record == NULL)
        return;
    if (record->held > 0 && !record->is_stopped)
        part_write(record, record->held);
    if (record->parts_count > 1 && !record->is_stopped)
        parts_join(record);
    if (record->fd >= 0)
        os_descriptor_close(record->fd);
    os_pages_unmap(record->parts, PARTS_MAX * sizeof(struct part));
    os_pages_unmap(record, sizeof(*record));
}
