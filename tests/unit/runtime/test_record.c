/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_record.c - the recorder: what was told is in the file, as one trace or as the parts that were written whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/pt1.h"
#include "runtime/record.h"

#define BYTES_MAX (1u << 20)

static char folder[] = "/tmp/test_record_XXXXXX";
static char path[64];
static uint8_t bytes[BYTES_MAX];
static size_t bytes_count;

static uint64_t page_at(unsigned touch)
{
    return ((uint64_t)0x7f0000000 + touch * 40503u % 9973u) ^ (uint64_t)(touch % 5 == 0) << 50;
}

static bool store_at(unsigned touch)
{
    return touch % 3 == 1;
}

/* A touch begins `i` ns after the one before was served, and takes 1000 ns. */
static void touches_tell(struct record *record, unsigned first, unsigned count)
{
    static uint64_t now_ns = 5000;

    for (unsigned i = first; i < first + count; i++) {
        now_ns += i % 100;
        record_touch(record, page_at(i), store_at(i), now_ns, now_ns + 1000);
        now_ns += 1000;
    }
}

static void file_read(const char *name)
{
    FILE *file = fopen(name, "rbe");

    assert_non_null(file);
    bytes_count = fread(bytes, 1, BYTES_MAX, file);
    assert_true(bytes_count < BYTES_MAX);
    fclose(file);
}

static uint64_t varint_take(struct bytes_reader *reader)
{
    uint64_t value = 0;
    uint8_t byte = 0x80;

    for (unsigned shift = 0; byte >= 0x80; shift += 7) {
        byte = bytes_take_u8(reader);
        value |= (uint64_t)(byte & 0x7f) << shift;
    }
    return value;
}

/*
 * A part whose first touch has this number. Returns how many touches it has. *gaps_ns: what heads told beyond the
 * touches of their parts: of those that were held back for the next.
 */
static unsigned part_check(struct bytes_reader *reader, unsigned first, uint64_t *gaps_ns)
{
    char magic[4];
    unsigned count;
    uint64_t page = 0;
    uint8_t stores = 0;

    bytes_take(reader, magic, sizeof(magic));
    assert_memory_equal(magic, "PT1", 4);
    count = (unsigned)bytes_take_u64(reader);
    *gaps_ns += bytes_take_u64(reader);
    assert_int_equal(bytes_take_u32(reader), 1);
    assert_int_equal(bytes_take_u32(reader), 0);
    for (unsigned i = first; i < first + count; i++) {
        page = pt1_page(varint_take(reader), page);
        assert_int_equal(page, page_at(i));
    }
    for (unsigned i = first; i < first + count; i++) {
        assert_int_equal(bytes_take_u8(reader), i == 0 ? 0 : pt1_gap_of(i % 100));
        *gaps_ns -= i == 0 ? 0 : i % 100;
    }
    for (unsigned i = first; i < first + count; i++) {
        if ((i - first) % 8 == 0)
            stores = bytes_take_u8(reader);
        assert_int_equal(stores >> (i - first) % 8 & 1, store_at(i));
    }
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(varint_take(reader), 0);
    assert_false(reader->failed);
    assert_true(*gaps_ns < 8 * 100);
    return count;
}

/* The whole file. Returns how many touches; *ret_parts: in how many parts. */
static unsigned file_check(const char *name, unsigned *ret_parts)
{
    struct bytes_reader reader;
    unsigned count = 0;
    uint64_t gaps_ns = 0;

    file_read(name);
    reader = (struct bytes_reader){.next = bytes, .left = bytes_count};
    for (*ret_parts = 0; reader.left > 0; ++*ret_parts)
        count += part_check(&reader, count, &gaps_ns);
    return count;
}

static struct record *make(bool is_shared)
{
    struct record *record;

    assert_int_equal(record_create(path, is_shared, &record), 0);
    return record;
}

static int set_up(void **state)
{
    (void)state;
    strcpy(folder + sizeof(folder) - 7, "XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/trace", folder);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

/* ------------------------------------------------------------------------------------------------------------------ */

static void parts_become_one_trace(void **state)
{
    static const unsigned counts[] = {1, 7, 8, RECORD_PART - 1, RECORD_PART, RECORD_PART + 1, 3 * RECORD_PART + 5};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++) {
        struct record *record = make(false);
        unsigned parts;

        touches_tell(record, 0, counts[i]);
        record_close(record);
        assert_int_equal(file_check(path, &parts), counts[i]);
        assert_int_equal(parts, 1);
    }
}

/* What a process leaves that is killed now. */
static void what_is_flushed_is_whole(void **state)
{
    struct record *record = make(false);
    unsigned parts, told = 0;

    (void)state;
    for (unsigned step = 1; step <= 40; step += 3) {
        touches_tell(record, told, step);
        told += step;
        record_flush(record);
        if (told >= 8)
            assert_int_equal(file_check(path, &parts), told / 8 * 8);
    }
    assert_true(parts > 5);
    record_close(record);
    assert_int_equal(file_check(path, &parts), told);
    assert_int_equal(parts, 1);
}

static void nothing_told_makes_no_file(void **state)
{
    struct record *record = make(false);

    (void)state;
    record_flush(record);
    record_close(record);
    assert_int_equal(access(path, F_OK), -1);
    record_close(NULL);
}

/* RLIMIT_FSIZE stands for a disk that is full: a write is cut short, and the next fails. */
static void full_disk_leaves_a_valid_prefix(void **state)
{
    struct rlimit before, tight;
    struct record *record = make(false);
    unsigned parts, count;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tight = (struct rlimit){.rlim_cur = 100000, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    touches_tell(record, 0, 20 * RECORD_PART);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    count = file_check(path, &parts);
    assert_int_equal(count, parts * RECORD_PART);
    assert_in_range(parts, 1, 5);
    touches_tell(record, 0, 2 * RECORD_PART); /* there is room again, but the trace would have a hole */
    record_close(record);
    assert_int_equal(file_check(path, &parts), count);
}

static void file_that_cannot_be_is_said(void **state)
{
    struct record *record;
    char long_path[RECORD_PATH_MAX + 1];

    (void)state;
    snprintf(path, sizeof(path), "%s/none/trace", folder);
    record = make(false);
    assert_int_equal(record_open(record), -ENOENT);
    assert_non_null(strstr(error_text(), path));
    touches_tell(record, 0, RECORD_PART + 1); /* says so once, and goes on */
    record_close(record);
    memset(long_path, 'x', RECORD_PATH_MAX);
    long_path[RECORD_PATH_MAX] = '\0';
    assert_int_equal(record_create(long_path, false, &record), -ENAMETOOLONG);
}

static void second_of_a_job_has_its_own_file(void **state)
{
    struct record *first = make(true), *second = make(true);
    char other[96];
    unsigned parts;

    (void)state;
    touches_tell(second, 0, 30);
    record_flush(second);
    touches_tell(first, 0, 50);
    record_close(first);
    record_close(second);
    assert_int_equal(file_check(path, &parts), 30);
    snprintf(other, sizeof(other), "%s.%d", path, (int)getpid());
    assert_int_equal(file_check(other, &parts), 50);
}

static void child_writes_its_own_file(void **state)
{
    struct record *record = make(true);
    char other[96];
    unsigned parts;
    int status;
    pid_t pid;

    (void)state;
    touches_tell(record, 0, 21);
    record_flush(record);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        record_forked(record);
        touches_tell(record, 0, RECORD_PART + 3);
        record_close(record);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    touches_tell(record, 21, 9);
    record_close(record);
    assert_int_equal(file_check(path, &parts), 30);
    snprintf(other, sizeof(other), "%s.%d", path, (int)pid);
    assert_int_equal(file_check(other, &parts), RECORD_PART + 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parts_become_one_trace, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_flushed_is_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_told_makes_no_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(full_disk_leaves_a_valid_prefix, set_up, tear_down),
        cmocka_unit_test_setup_teardown(file_that_cannot_be_is_said, set_up, tear_down),
        cmocka_unit_test_setup_teardown(second_of_a_job_has_its_own_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(child_writes_its_own_file, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
