/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nvme.c - the NVMe tier in a directory of the working directory, and every way in which that can go wrong.
 */
#include "base/error.h"
#include "tests/support/loop_sync.h"
#include "tests/unit/tiers/check.h"
#include "tiers/tier.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>

struct fixture {
    char directory[256];
    struct loop *loop;
};

struct outcome {
    unsigned calls;
    int result;
};

static int fixture_setup(void **state)
{
    static struct fixture fixture;

    snprintf(fixture.directory, sizeof(fixture.directory), "tiers-nvme-XXXXXX");
    if (mkdtemp(fixture.directory) == NULL)
        return -1;
    fixture.loop = loop_sync_create();
    *state = &fixture;
    return 0;
}

static int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;

    loop_sync_destroy(fixture->loop);
    return rmdir(fixture->directory); /* fails when anything was left in it */
}

static void outcome_note(struct tier_transfer *transfer, int result)
{
    struct outcome *outcome = transfer->context;

    outcome->calls++;
    outcome->result = result;
}

static struct tier *tier_new(struct fixture *fixture, unsigned slots_count)
{
    struct tier *tier = NULL;
    int result = tier_nvme_open(fixture->loop, fixture->directory, slots_count * PAGE_BYTES, &tier);

    if (result < 0)
        print_message("%s\n", error_text());
    assert_int_equal(result, 0);
    return tier;
}

static int transfer_run(struct fixture *fixture, struct tier *tier, struct tier_transfer *transfer,
                        struct tier_slot first, unsigned pages_count, void *memory, bool is_write)
{
    struct outcome outcome = {0, 1};

    *transfer = (struct tier_transfer){
        .first = first,
        .pages_count = pages_count,
        .memory = memory,
        .is_write = is_write,
        .done = outcome_note,
        .context = &outcome,
    };
    tier_transfer_start(tier, transfer);
    assert_int_equal(outcome.calls, 0); /* never inside the start */
    loop_sync_run(fixture->loop);
    assert_int_equal(outcome.calls, 1);
    return outcome.result;
}

static struct tier_slot pages_store(struct fixture *fixture, struct tier *tier, unsigned count, uint64_t number)
{
    void *memory = pages_new(count);
    struct tier_transfer transfer;
    struct tier_slot first;

    assert_int_equal(tier_take(tier, count, &first), count);
    for (unsigned i = 0; i < count; i++)
        page_fill((char *)memory + i * PAGE_BYTES, number + i);
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, count, memory, true), 0);
    free(memory);
    return first;
}

/* The tier's file, found among this process's descriptors, opened again without O_DIRECT. */
static int file_find(const struct fixture *fixture)
{
    for (int fd = 3; fd < 256; fd++) {
        char link[64];
        char target[1024];
        ssize_t size;

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        size = readlink(link, target, sizeof(target) - 1);
        if (size <= 0)
            continue;
        target[size] = '\0';
        if (strstr(target, fixture->directory) != NULL && strstr(target, "(deleted)") != NULL)
            return open(link, O_RDWR | O_CLOEXEC);
    }
    return -1;
}

/* Standard error into a pipe while `call` runs; what was written there. */
static void log_begin(int *saved, int *pipe_end)
{
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    *saved = dup(STDERR_FILENO);
    assert_true(*saved >= 0);
    assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
    *pipe_end = ends[0];
}

static void log_end(int saved, int pipe_end, char *text, size_t size)
{
    ssize_t count;

    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
    count = read(pipe_end, text, size - 1);
    close(pipe_end);
    text[count > 0 ? count : 0] = '\0';
}

static void pages_come_back(void **state)
{
    struct fixture *fixture = *state;
    struct tier *tier = tier_new(fixture, 1024);
    struct tier_slot first = pages_store(fixture, tier, 256, 100);
    struct tier_slot second = pages_store(fixture, tier, 3, 900);
    void *memory = pages_new(256);
    struct tier_transfer transfer;
    struct tier_counters counters;

    assert_string_equal(tier_name(tier), "nvme");
    assert_int_equal(second.index, first.index + 256);
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, 256, memory, false), 0);
    for (unsigned i = 0; i < 256; i++)
        page_check((char *)memory + i * PAGE_BYTES, 100 + i);
    assert_int_equal(transfer_run(fixture, tier, &transfer, (struct tier_slot){second.index + 2}, 1, memory, false), 0);
    page_check(memory, 902);
    tier_counters_get(tier, &counters);
    assert_int_equal(counters.pages_written, 259);
    assert_int_equal(counters.pages_read, 257);
    assert_int_equal(counters.slots_used, 259);
    free(memory);
    tier_close(tier);
}

static void the_file_is_reserved_private_and_nameless(void **state)
{
    struct fixture *fixture = *state;
    struct tier *tier = tier_new(fixture, 1024);
    int fd = file_find(fixture);
    struct stat about;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &about), 0);
    assert_int_equal(about.st_size, 1024 * PAGE_BYTES);
    assert_true((uint64_t)about.st_blocks * 512 >= 1024 * PAGE_BYTES);
    assert_int_equal(about.st_nlink, 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    close(fd);
    tier_close(tier);
}

static void short_transfers_are_continued(void **state)
{
    struct fixture *fixture = *state;
    struct tier *tier = tier_new(fixture, 256);
    void *memory = pages_new(64);
    struct tier_transfer transfer;
    struct tier_slot first;

    loop_sync_limit(fixture->loop, 3 * PAGE_BYTES);
    first = pages_store(fixture, tier, 64, 1);
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, 64, memory, false), 0);
    loop_sync_limit(fixture->loop, PAGE_BYTES + 512); /* not whole pages: the started one is moved again */
    memset(memory, 0, 64 * PAGE_BYTES);
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, 64, memory, false), 0);
    for (unsigned i = 0; i < 64; i++)
        page_check((char *)memory + i * PAGE_BYTES, 1 + i);
    loop_sync_limit(fixture->loop, 512); /* never a whole page */
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, 64, memory, false), -EIO);
    loop_sync_limit(fixture->loop, 0);
    free(memory);
    tier_close(tier);
}

static void interrupted_transfers_are_repeated_but_not_for_ever(void **state)
{
    struct fixture *fixture = *state;
    struct tier *tier = tier_new(fixture, 16);
    struct tier_transfer transfer;
    struct tier_slot first;
    void *memory = pages_new(1);

    loop_sync_interrupt(fixture->loop, 5);
    first = pages_store(fixture, tier, 1, 3);
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, 1, memory, false), 0);
    page_check(memory, 3);
    loop_sync_interrupt(fixture->loop, 1000);
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, 1, memory, false), -EIO);
    loop_sync_interrupt(fixture->loop, 0);
    free(memory);
    tier_close(tier);
}

static void a_bad_block_costs_one_page(void **state)
{
    struct fixture *fixture = *state;
    struct tier *tier = tier_new(fixture, 256);
    struct tier_slot first = pages_store(fixture, tier, 32, 50);
    void *memory = pages_new(32);
    struct tier_transfer transfer;

    loop_sync_fail(fixture->loop, (first.index + 11) * PAGE_BYTES + 100, -EIO);
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, 32, memory, false), -EIO);
    assert_int_equal(transfer.failed_page, 11);
    for (unsigned i = 0; i < 11; i++)
        page_check((char *)memory + i * PAGE_BYTES, 50 + i);
    assert_int_equal(transfer_run(fixture, tier, &transfer, (struct tier_slot){first.index + 12}, 20, memory, false),
                     0);
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, 12, memory, true), -EIO);
    assert_int_equal(transfer.failed_page, 11);
    loop_sync_fail(fixture->loop, 0, 0);
    free(memory);
    tier_close(tier);
}

static void changed_bytes_in_the_file_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct tier *tier = tier_new(fixture, 256);
    struct tier_slot first = pages_store(fixture, tier, 16, 1);
    void *memory = pages_new(16);
    struct tier_transfer transfer;
    char text[1024];
    char expected[64];
    int fd = file_find(fixture);
    int saved;
    int pipe_end;

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "x", 1, (off_t)((first.index + 6) * PAGE_BYTES + 4000)), 1);
    assert_int_equal(fsync(fd), 0);
    close(fd);
    log_begin(&saved, &pipe_end);
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, 16, memory, false), -EIO);
    log_end(saved, pipe_end, text, sizeof(text));
    assert_int_equal(transfer.failed_page, 6);
    snprintf(expected, sizeof(expected), "read slot %u of tier nvme", first.index + 6);
    assert_non_null(strstr(text, expected));
    assert_non_null(strstr(text, fixture->directory));
    assert_non_null(strstr(text, "checksum"));
    assert_int_equal(transfer_run(fixture, tier, &transfer, (struct tier_slot){first.index + 7}, 9, memory, false), 0);
    free(memory);
    tier_close(tier);
}

static void lost_blocks_are_refused_not_read_as_zeroes(void **state)
{
    struct fixture *fixture = *state;
    struct tier *tier = tier_new(fixture, 64);
    struct tier_slot first = pages_store(fixture, tier, 4, 1);
    void *memory = pages_new(4);
    struct tier_transfer transfer;
    int fd = file_find(fixture);

    assert_true(fd >= 0);
    assert_int_equal(
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)((first.index + 2) * PAGE_BYTES), PAGE_BYTES),
        0);
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, 4, memory, false), -EIO);
    assert_int_equal(transfer.failed_page, 2);
    assert_int_equal(ftruncate(fd, (off_t)((first.index + 1) * PAGE_BYTES)), 0);
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, 4, memory, false), -EIO);
    assert_int_equal(transfer.failed_page, 1);
    close(fd);
    free(memory);
    tier_close(tier);
}

static void injected_errors_come_and_end(void **state)
{
    struct fixture *fixture = *state;
    struct tier *tier = tier_new(fixture, 64);
    struct tier_slot first = pages_store(fixture, tier, 4, 1);
    void *memory = pages_new(4);
    struct tier_transfer transfer;
    struct tier_counters counters;

    tier_inject_errors(tier, 2);
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, 4, memory, false), -EIO);
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, 4, memory, true), -EIO);
    for (unsigned i = 0; i < 4; i++)
        page_fill((char *)memory + i * PAGE_BYTES, 60 + i);
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, 4, memory, true), 0);
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, 4, memory, false), 0);
    page_check(memory, 60);
    tier_counters_get(tier, &counters);
    assert_int_equal(counters.errors, 2);
    free(memory);
    tier_close(tier);
}

#define MANY 40u

/* Many transfers wait at once; each ends with its own pages. */
static void many_transfers_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct tier *tier = tier_new(fixture, 1024);
    struct tier_transfer transfers[MANY];
    struct outcome outcomes[MANY] = {{0, 0}};
    char *memory = pages_new(MANY * 8);
    struct random random = {3};

    for (unsigned i = 0; i < MANY; i++) {
        transfers[i] = (struct tier_transfer){
            .memory = memory + i * 8 * PAGE_BYTES,
            .is_write = true,
            .done = outcome_note,
            .context = &outcomes[i],
        };
        transfers[i].pages_count = tier_take(tier, 1 + random_below(&random, 8), &transfers[i].first);
        for (unsigned page = 0; page < transfers[i].pages_count; page++)
            page_fill((char *)transfers[i].memory + page * PAGE_BYTES, i * 8 + page);
        tier_transfer_start(tier, &transfers[i]);
    }
    loop_sync_run(fixture->loop);
    memset(memory, 0, MANY * 8 * PAGE_BYTES);
    for (unsigned i = MANY; i-- > 0;) {
        transfers[i].is_write = false;
        tier_transfer_start(tier, &transfers[i]);
    }
    loop_sync_run(fixture->loop);
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(outcomes[i].calls, 2);
        assert_int_equal(outcomes[i].result, 0);
        for (unsigned page = 0; page < transfers[i].pages_count; page++)
            page_check((char *)transfers[i].memory + page * PAGE_BYTES, i * 8 + page);
    }
    free(memory);
    tier_close(tier);
}

static void grows_and_shrinks(void **state)
{
    struct fixture *fixture = *state;
    struct tier *tier = tier_new(fixture, 64);
    struct tier_slot first = pages_store(fixture, tier, 64, 1);
    struct tier_slot more;
    void *memory = pages_new(1);
    struct tier_transfer transfer;
    int fd = file_find(fixture);
    struct stat about;

    assert_true(fd >= 0);
    assert_int_equal(tier_resize(tier, 128 * PAGE_BYTES), 0);
    assert_int_equal(fstat(fd, &about), 0);
    assert_int_equal(about.st_size, 128 * PAGE_BYTES);
    more = pages_store(fixture, tier, 10, 200);
    assert_int_equal(tier_resize(tier, 64 * PAGE_BYTES), -EBUSY);
    for (unsigned i = 0; i < 10; i++)
        tier_put(tier, (struct tier_slot){more.index + i});
    assert_int_equal(tier_resize(tier, 64 * PAGE_BYTES), 0);
    assert_int_equal(fstat(fd, &about), 0);
    assert_int_equal(about.st_size, 64 * PAGE_BYTES);
    assert_int_equal(transfer_run(fixture, tier, &transfer, (struct tier_slot){first.index + 63}, 1, memory, false), 0);
    page_check(memory, 64);
    close(fd);
    free(memory);
    tier_close(tier);
}

/* ---- refused -------------------------------------------------------------------------------------------------- */

static int open_result(struct fixture *fixture, const char *path, uint64_t size_bytes)
{
    struct tier *tier = NULL;
    int result = tier_nvme_open(fixture->loop, path, size_bytes, &tier);

    if (result == 0)
        tier_close(tier);
    else
        assert_null(tier);
    return result;
}

static void a_full_disk_is_said_with_figures(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(open_result(fixture, fixture->directory, (uint64_t)8 << 40), -ENOSPC);
    assert_non_null(strstr(error_text(), fixture->directory));
    assert_non_null(strstr(error_text(), "8388608 MiB wanted"));
    assert_non_null(strstr(error_text(), "MiB free"));
}

static void a_file_size_limit_is_said(void **state)
{
    struct fixture *fixture = *state;
    struct rlimit before;
    struct rlimit small = {1 << 20, 0};
    int result;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    result = open_result(fixture, fixture->directory, 4 << 20); /* no SIGXFSZ either */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(result, -ENOSPC);
    assert_non_null(strstr(error_text(), "ulimit -f"));
}

static void missing_and_wrong_paths_are_refused(void **state)
{
    struct fixture *fixture = *state;
    char path[512];
    int fd;

    snprintf(path, sizeof(path), "%s/nowhere", fixture->directory);
    assert_int_equal(open_result(fixture, path, 1 << 20), -ENOENT);
    assert_non_null(strstr(error_text(), "nowhere"));
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(open_result(fixture, path, 1 << 20), -ENOTDIR);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(open_result(fixture, fixture->directory, 100), -EINVAL);
}

static void memory_file_systems_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct statfs about;

    if (statfs("/dev/shm", &about) < 0 || about.f_type != TMPFS_MAGIC)
        skip();
    assert_int_equal(open_result(fixture, "/dev/shm", 1 << 20), -EOPNOTSUPP);
    assert_non_null(strstr(error_text(), "tmpfs"));
}

/* In a child, because it gives up rights for good. Its exit code: 0 as expected, 1 not, 77 cannot be tried here. */
static int child_code(struct fixture *fixture, int (*run)(struct fixture *fixture))
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0)
        _exit(run(fixture));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int unwritable_open(struct fixture *fixture)
{
    struct tier *tier;

    if (geteuid() == 0 && seteuid(65534) < 0)
        return 77;
    if (access(".", X_OK) < 0 || faccessat(AT_FDCWD, fixture->directory, X_OK, AT_EACCESS) < 0)
        return 77; /* that user cannot even look here */
    return tier_nvme_open(fixture->loop, fixture->directory, 1 << 20, &tier) == -EACCES &&
                   strstr(error_text(), fixture->directory) != NULL
               ? 0
               : 1;
}

static void an_unwritable_directory_is_refused(void **state)
{
    struct fixture *fixture = *state;
    int code;

    assert_int_equal(chmod(fixture->directory, 0555), 0);
    code = child_code(fixture, unwritable_open);
    assert_int_equal(chmod(fixture->directory, 0755), 0);
    if (code == 77)
        skip();
    assert_int_equal(code, 0);
}

/* A read-only mount that only the child sees and that ends with it. */
static int read_only_open(struct fixture *fixture)
{
    struct tier *tier;

    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(fixture->directory, fixture->directory, NULL, MS_BIND, NULL) < 0 ||
        mount(NULL, fixture->directory, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) < 0)
        return 77;
    return tier_nvme_open(fixture->loop, fixture->directory, 1 << 20, &tier) == -EROFS ? 0 : 1;
}

static void a_read_only_file_system_is_refused(void **state)
{
    int code = child_code(*state, read_only_open);

    if (code == 77)
        skip();
    assert_int_equal(code, 0);
}

/* A loop device over a nameless file, which the kernel takes apart when its last user closes it. -1: not here. */
static int device_make(const struct fixture *fixture, char *path, size_t size)
{
    struct loop_config config = {.info = {.lo_flags = LO_FLAGS_AUTOCLEAR}};
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    int file = open(fixture->directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    int device = -1;
    int number;

    if (control >= 0 && file >= 0 && fallocate(file, 0, 0, 1 << 20) == 0 &&
        (number = ioctl(control, LOOP_CTL_GET_FREE)) >= 0) {
        snprintf(path, size, "/dev/loop%d", number);
        device = open(path, O_RDWR | O_CLOEXEC);
        config.fd = (uint32_t)file;
        if (device >= 0 && ioctl(device, LOOP_CONFIGURE, &config) < 0) {
            close(device);
            device = -1;
        }
    }
    if (control >= 0)
        close(control);
    if (file >= 0)
        close(file);
    return device;
}

static void a_block_device_serves(void **state)
{
    struct fixture *fixture = *state;
    struct tier *tier = NULL;
    struct tier_transfer transfer;
    struct tier_slot first;
    char path[64];
    void *memory = pages_new(8);
    int device = device_make(fixture, path, sizeof(path));

    if (device < 0) {
        free(memory);
        skip();
    }
    assert_int_equal(open_result(fixture, path, 2 << 20), -ENOSPC);
    assert_int_equal(tier_nvme_open(fixture->loop, path, 1 << 20, &tier), 0);
    assert_int_equal(open_result(fixture, path, 1 << 20), -EBUSY); /* one user at a time */
    first = pages_store(fixture, tier, 8, 5);
    assert_int_equal(transfer_run(fixture, tier, &transfer, first, 8, memory, false), 0);
    page_check((char *)memory + 7 * PAGE_BYTES, 12);
    tier_close(tier);
    close(device);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_come_back),
        cmocka_unit_test(the_file_is_reserved_private_and_nameless),
        cmocka_unit_test(short_transfers_are_continued),
        cmocka_unit_test(interrupted_transfers_are_repeated_but_not_for_ever),
        cmocka_unit_test(a_bad_block_costs_one_page),
        cmocka_unit_test(changed_bytes_in_the_file_are_refused),
        cmocka_unit_test(lost_blocks_are_refused_not_read_as_zeroes),
        cmocka_unit_test(injected_errors_come_and_end),
        cmocka_unit_test(many_transfers_at_once),
        cmocka_unit_test(grows_and_shrinks),
        cmocka_unit_test(a_full_disk_is_said_with_figures),
        cmocka_unit_test(a_file_size_limit_is_said),
        cmocka_unit_test(missing_and_wrong_paths_are_refused),
        cmocka_unit_test(memory_file_systems_are_refused),
        cmocka_unit_test(an_unwritable_directory_is_refused),
        cmocka_unit_test(a_read_only_file_system_is_refused),
        cmocka_unit_test(a_block_device_serves),
    };
    struct statfs about;

    if (statfs(".", &about) < 0 || about.f_type == TMPFS_MAGIC)
        return 77; /* nothing to test on */
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
