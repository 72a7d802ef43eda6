/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

static void test_reserved_window_has_both_halves(void **state)
{
    struct mmu_window window;

    (void)state;
    ok(mmu_window_reserve(TEST_BASE, SHARED_BYTES, PRIVATE_BYTES, &window));
    assert_int_equal(window.base, TEST_BASE);
    assert_true(fcntl(window.memfd, F_GETFD) & FD_CLOEXEC);
    assert_true(window.memfd >= 100);
    assert_ptr_equal(mmu_page_address(&window, page_of(3)), (void *)(uintptr_t)(TEST_BASE + 3 * PAGE_BYTES));
    assert_int_equal(mmu_page_at(&window, (void *)(uintptr_t)(TEST_BASE + 3 * PAGE_BYTES + 5)).index, 3);
    assert_true(mmu_page_is_shared(&window, page_of(PRIVATE_FIRST - 1)));
    assert_false(mmu_page_is_shared(&window, page_of(PRIVATE_FIRST)));
    assert_false(mmu_address_is_inside(&window, (void *)(uintptr_t)(TEST_BASE - 1)));
    assert_true(mmu_address_is_inside(&window, (void *)(uintptr_t)TEST_BASE));
    assert_true(mmu_address_is_inside(&window, (void *)(uintptr_t)(TEST_BASE + SHARED_BYTES + PRIVATE_BYTES - 1)));
    assert_false(mmu_address_is_inside(&window, (void *)(uintptr_t)(TEST_BASE + SHARED_BYTES + PRIVATE_BYTES)));
    *(volatile char *)mmu_page_address(&window, page_of(PRIVATE_FIRST)) = 1; /* fresh: the kernel fills it */
    mmu_window_release(&window);
    assert_int_equal(window.memfd, -1);
    assert_true(mmu_window_is_free(TEST_BASE, SHARED_BYTES + PRIVATE_BYTES));
}

/* Maps `extent` of the window with memory of `fd`; what was there stays out of the way. */
static void *occupy(unsigned extent, int fd)
{
    void *wanted = (void *)(uintptr_t)(TEST_BASE + extent * EXTENT_BYTES);
    void *got = mmap(wanted, PAGE_BYTES, PROT_READ, MAP_PRIVATE | MAP_FIXED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);

    assert_ptr_equal(got, wanted);
    return got;
}

static void check_taken(unsigned extent, int fd, const char *name)
{
    struct mmu_window window = {.memfd = -2};
    void *memory = occupy(extent, fd);

    assert_false(mmu_window_is_free(TEST_BASE, SHARED_BYTES + PRIVATE_BYTES));
    assert_int_equal(mmu_window_reserve(TEST_BASE, SHARED_BYTES, PRIVATE_BYTES, &window), -EADDRINUSE);
    assert_non_null(strstr(error_text(), name));
    assert_int_equal(window.memfd, -2);
    munmap(memory, PAGE_BYTES);
    /* The half that could be mapped is gone again. */
    assert_true(mmu_window_is_free(TEST_BASE, SHARED_BYTES + PRIVATE_BYTES));
}

static void test_taken_window_names_the_occupant(void **state)
{
    int fd = memfd_create("squatter", MFD_CLOEXEC);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)PAGE_BYTES), 0);
    check_taken(1, fd, "squatter");
    check_taken(SHARED_EXTENTS + 1, fd, "squatter");
    check_taken(2, -1, "anonymous memory");
    close(fd);
}

static void test_window_must_be_whole_extents_inside_user_space(void **state)
{
    struct mmu_window window;

    (void)state;
    assert_int_equal(mmu_window_reserve(TEST_BASE + PAGE_BYTES, SHARED_BYTES, 0, &window), -EINVAL);
    assert_int_equal(mmu_window_reserve(TEST_BASE, SHARED_BYTES + PAGE_BYTES, 0, &window), -EINVAL);
    assert_int_equal(mmu_window_reserve(TEST_BASE, 0, 0, &window), -EINVAL);
    assert_int_equal(mmu_window_reserve(0, SHARED_BYTES, 0, &window), -EINVAL);
    assert_int_equal(mmu_window_reserve(0x7fffffe00000, SHARED_BYTES, 0, &window), -EINVAL);
    assert_int_equal(mmu_window_reserve(TEST_BASE, UINT64_MAX & ~(EXTENT_BYTES - 1), SHARED_BYTES, &window), -EINVAL);
    assert_false(mmu_window_is_free(0x7fffffe00000, SHARED_BYTES));
}

static void test_one_half_may_be_empty(void **state)
{
    struct mmu_window window;

    (void)state;
    ok(mmu_window_reserve(TEST_BASE, SHARED_BYTES, 0, &window));
    mmu_window_release(&window);
    ok(mmu_window_reserve(TEST_BASE, 0, PRIVATE_BYTES, &window));
    *(volatile char *)mmu_page_address(&window, page_of(0)) = 1;
    mmu_window_release(&window);
}

static int reserve_under_limit(enum __rlimit_resource resource, rlim_t value, const char *name)
{
    struct rlimit limit = {value, value};
    struct mmu_window window;

    if (setrlimit(resource, &limit) != 0)
        return 1;
    if (mmu_window_reserve(TEST_BASE, SHARED_BYTES, PRIVATE_BYTES, &window) != -ENOMEM)
        return 2;
    return strstr(error_text(), name) != NULL ? 0 : 3;
}

static int reserve_under_small_address_space(void *argument)
{
    (void)argument;
    return reserve_under_limit(RLIMIT_AS, SHARED_BYTES / 2, "RLIMIT_AS");
}

static int reserve_under_small_file_size(void *argument)
{
    (void)argument;
    return reserve_under_limit(RLIMIT_FSIZE, PAGE_BYTES, "RLIMIT_FSIZE");
}

static void test_limits_are_named(void **state)
{
    (void)state;
    assert_int_equal(in_child(reserve_under_small_address_space, NULL), 0);
    assert_int_equal(in_child(reserve_under_small_file_size, NULL), 0);
}

static long resident_pages(void)
{
    char text[64] = {0};
    char *after;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_true(read(fd, text, sizeof(text) - 1) > 0);
    close(fd);
    strtol(text, &after, 10);
    return strtol(after, NULL, 10);
}

static void test_large_window_is_not_charged(void **state)
{
    uint64_t half = (uint64_t)100 << 30; /* fits below 512 GiB with room for TSan */
    long before = resident_pages();
    struct mmu_window window;

    (void)state;
    ok(mmu_window_reserve(TEST_BASE, half, half, &window));
    assert_true(resident_pages() - before < 256);
    mmu_window_release(&window);
}

/* The VmFlags line of the mapping at `address`. */
static void mapping_flags(uint64_t address, char *flags, size_t size)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[256], start[32];
    bool inside = false;

    assert_non_null(maps);
    snprintf(start, sizeof(start), "%llx-", (unsigned long long)address);
    flags[0] = '\0';
    while (fgets(line, sizeof(line), maps) != NULL) {
        if (strncmp(line, start, strlen(start)) == 0)
            inside = true;
        if (inside && strncmp(line, "VmFlags:", 8) == 0) {
            snprintf(flags, size, "%s", line);
            break;
        }
    }
    fclose(maps);
}

static void test_shared_half_is_kept_from_children_and_core_dumps(void **state)
{
    struct mmu_window window;
    char flags[256];

    (void)state;
    ok(mmu_window_reserve(TEST_BASE, SHARED_BYTES, PRIVATE_BYTES, &window));
    mapping_flags(TEST_BASE, flags, sizeof(flags));
    assert_non_null(strstr(flags, " dc"));
    assert_non_null(strstr(flags, " dd"));
    mapping_flags(TEST_BASE + SHARED_BYTES, flags, sizeof(flags));
    assert_null(strstr(flags, " dc"));
    assert_non_null(strstr(flags, " dd"));
    mmu_window_release(&window);
}

static void test_shared_bytes_are_reached_through_the_memfd(void **state)
{
    struct mmu_window window;
    uint8_t bytes[3 * PAGE_BYTES], back[3 * PAGE_BYTES];

    (void)state;
    ok(mmu_window_reserve(TEST_BASE, SHARED_BYTES, 0, &window));
    page_fill(bytes, 5);
    page_fill(bytes + PAGE_BYTES, 6);
    page_fill(bytes + 2 * PAGE_BYTES, 7);
    ok(mmu_shared_write(&window, page_of(5), 100, bytes + 100, sizeof(bytes) - 100));
    ok(mmu_shared_read(&window, page_of(5), 100, back, sizeof(bytes) - 100));
    assert_memory_equal(back, bytes + 100, sizeof(bytes) - 100);
    /* The same bytes show at the addresses: this window is not registered with a handler. */
    assert_memory_equal((uint8_t *)mmu_page_address(&window, page_of(6)), bytes + PAGE_BYTES, PAGE_BYTES);
    mmu_window_release(&window);
}

static void test_present_tells_touched_fresh_pages(void **state)
{
    struct mmu_window window;
    bool present[300];

    (void)state;
    ok(mmu_window_reserve(TEST_BASE, 0, PRIVATE_BYTES, &window));
    madvise((void *)(uintptr_t)TEST_BASE, PRIVATE_BYTES, MADV_NOHUGEPAGE);
    *(volatile char *)mmu_page_address(&window, page_of(7)) = 1;
    *(volatile char *)mmu_page_address(&window, page_of(299)) = 1;
    ok(mmu_present(&window, page_of(0), 300, present));
    for (unsigned i = 0; i < 300; i++)
        assert_int_equal(present[i], i == 7 || i == 299);
    mmu_window_release(&window);
}

/* A process that has changed its user, in which pagemap cannot be opened. */
static void test_populated_where_nobody_can_look(void **state)
{
    struct mmu_window window, blind;
    bool present[300];

    (void)state;
    ok(mmu_window_reserve(TEST_BASE, 0, PRIVATE_BYTES, &window));
    blind = window;
    blind.pagemap_fd = -1;
    *(volatile char *)mmu_page_address(&window, page_of(7)) = 1;
    assert_int_equal(mmu_present(&blind, page_of(0), 300, present), -EACCES);
    ok(mmu_populate(&blind, page_of(0), 300));
    ok(mmu_present(&window, page_of(0), 300, present));
    for (unsigned i = 0; i < 300; i++)
        assert_true(present[i]);
    assert_int_equal(*(volatile char *)mmu_page_address(&window, page_of(7)), 1);
    mmu_window_release(&window);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserved_window_has_both_halves),
        cmocka_unit_test(test_taken_window_names_the_occupant),
        cmocka_unit_test(test_window_must_be_whole_extents_inside_user_space),
        cmocka_unit_test(test_one_half_may_be_empty),
        cmocka_unit_test(test_limits_are_named),
        cmocka_unit_test(test_large_window_is_not_charged),
        cmocka_unit_test(test_shared_half_is_kept_from_children_and_core_dumps),
        cmocka_unit_test(test_shared_bytes_are_reached_through_the_memfd),
        cmocka_unit_test(test_present_tells_touched_fresh_pages),
        cmocka_unit_test(test_populated_where_nobody_can_look),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
