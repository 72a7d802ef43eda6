/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_devdax.c - a slot store over a mapped file, and files that cannot be one. The test machine has no dax device: a
 * plain file stands for one where libpmem2 is told to believe that it is DAX (PMEM2_FORCE_GRANULARITY, its own hook for
 * tests); tests/rig has the device. Without libpmem2 only the refusal is tested.
 */
#include "base/error.h"
#include "tests/unit/tiers/check.h"
#include "tiers/tier.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#define MIB ((uint64_t)1 << 20)

static char path[64];
static bool is_built;

static void file_make(uint64_t size_bytes)
{
    int fd;

    snprintf(path, sizeof(path), "/tmp/tiermesh-dax-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size_bytes), 0);
    close(fd);
    setenv("PMEM2_FORCE_GRANULARITY", "CACHE_LINE", 1);
}

static void refused(const char *name, uint64_t size_bytes, int error, const char *words)
{
    struct tier *tier = NULL;

    assert_int_equal(tier_dax_open(name, size_bytes, &tier), error);
    assert_null(tier);
    if (strstr(error_text(), words) == NULL)
        assert_string_equal(error_text(), words);
}

static void needs_build(void)
{
    if (!is_built)
        skip();
}

static void a_build_without_the_library_says_so(void **state)
{
    (void)state;
    file_make(2 * MIB);
    if (!is_built)
        refused(path, MIB, -EOPNOTSUPP, "this build of Tiermesh is without it");
    unlink(path);
}

static void pages_go_in_and_come_out(void **state)
{
    struct tier_counters counters;
    struct tier_slot slot;
    struct tier *tier;
    char page[PAGE_BYTES];

    (void)state;
    needs_build();
    file_make(4 * MIB);
    assert_int_equal(tier_dax_open(path, 2 * MIB, &tier), 0);
    assert_string_equal(tier_name(tier), "cxl (dax)");
    for (unsigned i = 0; i < 512; i++) {
        assert_int_equal(tier_take(tier, 1, &slot), 1);
        page_fill(tier_address(tier, slot), slot.index);
        tier_seal(tier, slot, 1);
    }
    assert_int_equal(tier_take(tier, 1, &slot), 0); /* no more than was asked for */
    for (uint32_t i = 0; i < 512; i++)
        page_check(tier_view(tier, (struct tier_slot){i}, page), i);
    ((char *)tier_address(tier, (struct tier_slot){7}))[100] ^= 1;
    assert_null(tier_view(tier, (struct tier_slot){7}, page));
    tier_counters_get(tier, &counters);
    assert_int_equal(counters.slots_max, 512);
    for (uint32_t i = 0; i < 512; i++)
        tier_put(tier, (struct tier_slot){i});
    assert_int_equal(tier_resize(tier, 4 * MIB), -ENOSPC);
    tier_close(tier);
    unlink(path);
}

static void one_process_at_a_time(void **state)
{
    struct tier *tier;
    int fd;

    (void)state;
    needs_build();
    file_make(2 * MIB);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    refused(path, 2 * MIB, -EBUSY, "another process uses it");
    close(fd);
    assert_int_equal(tier_dax_open(path, 2 * MIB, &tier), 0);
    refused(path, 2 * MIB, -EBUSY, "another process uses it");
    tier_close(tier);
    assert_int_equal(tier_dax_open(path, 2 * MIB, &tier), 0);
    tier_close(tier);
    unlink(path);
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    needs_build();
    file_make(2 * MIB);
    refused(path, 4 * MIB, -ENOSPC, "has 2 MiB, and option cxl asks for 4 MiB");
    refused(path, 100, -EINVAL, "");
    refused(path, MIB + 100, -EINVAL, "takes a multiple of that");
    assert_int_equal(truncate(path, 2 * MIB + 77), 0);
    refused(path, MIB, -EINVAL, "no multiple of its step");
    assert_int_equal(truncate(path, 0), 0);
    refused(path, MIB, -EINVAL, "has 0 bytes");
    unlink(path);
}

static void files_that_are_no_device_are_refused(void **state)
{
    (void)state;
    needs_build();
    refused("/nowhere/dax0.0", MIB, -ENOENT, "/nowhere/dax0.0");
    refused("/tmp", MIB, -EISDIR, "/tmp");
    refused("/dev/null", MIB, -EINVAL, "/dev/null is no dax device");
    file_make(2 * MIB);
    unsetenv("PMEM2_FORCE_GRANULARITY");
    refused(path, MIB, -EOPNOTSUPP, "a file without DAX");
    unlink(path);
}

/* Root may open anything, so another user tries. */
static void a_device_without_permission_is_refused_with_its_remedy(void **state)
{
    int status;
    pid_t child;

    (void)state;
    needs_build();
    file_make(2 * MIB);
    assert_int_equal(chmod(path, 0400), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct tier *tier;
        bool is_right = (getuid() != 0 || setuid(65534) == 0) && tier_dax_open(path, MIB, &tier) == -EACCES &&
                        strstr(error_text(), "this user may not read and write it") != NULL;

        _exit(is_right ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_build_without_the_library_says_so),
        cmocka_unit_test(pages_go_in_and_come_out),
        cmocka_unit_test(one_process_at_a_time),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(files_that_are_no_device_are_refused),
        cmocka_unit_test(a_device_without_permission_is_refused_with_its_remedy),
    };
    struct tier *tier;

    file_make(MIB); /* all files are refused without the library; a size that does not fit is another error */
    is_built = tier_dax_open(path, 2 * MIB, &tier) != -EOPNOTSUPP;
    unlink(path);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
