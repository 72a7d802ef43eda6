/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <dirent.h>

static int open_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;

    assert_non_null(directory);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

static void test_probe_names_its_source_and_leaves_nothing_open(void **state)
{
    struct mmu_switches none = {0};
    struct mmu_features features;
    int before = open_descriptors();

    (void)state;
    assert_int_equal(mmu_features_probe(&none, &features), 0);
    assert_int_equal(open_descriptors(), before);
    assert_non_null(features.source);
    assert_true(strcmp(features.source, "/dev/userfaultfd") == 0 ||
                strcmp(features.source, "userfaultfd system call") == 0);
}

static void test_each_switch_hides_one_feature(void **state)
{
    struct mmu_switches none = {0};
    struct mmu_features all, features;

    (void)state;
    ok(mmu_features_probe(&none, &all));
    ok(mmu_features_probe(&(struct mmu_switches){.no_move = true}, &features));
    assert_false(features.has_move);
    assert_int_equal(features.has_poison, all.has_poison);
    ok(mmu_features_probe(&(struct mmu_switches){.no_poison = true}, &features));
    assert_false(features.has_poison);
    assert_int_equal(features.has_move, all.has_move);
    ok(mmu_features_probe(&(struct mmu_switches){.no_wp_async = true}, &features));
    assert_false(features.has_wp_async);
    assert_int_equal(features.has_continue_wp, all.has_continue_wp);
    ok(mmu_features_probe(&(struct mmu_switches){.no_continue_wp = true}, &features));
    assert_false(features.has_continue_wp);
    assert_int_equal(features.has_wp_async, all.has_wp_async);
}

/* Exit codes of children: 0 as expected, 1 not, 77 the machine allows userfaultfd to everybody. */
static int probe_as_nobody(void *argument)
{
    struct mmu_switches none = {0};
    struct mmu_features features = {.source = "untouched"};
    int result;

    (void)argument;
    if (setgid(65534) != 0 || setuid(65534) != 0)
        return 77;
    result = mmu_features_probe(&none, &features);
    if (result == 0)
        return 77;
    if (result != -EPERM || strcmp(features.source, "untouched") != 0)
        return 1;
    return strstr(error_text(), "vm.unprivileged_userfaultfd=1 (now 0)") != NULL &&
                   strstr(error_text(), "/dev/userfaultfd") != NULL && strstr(error_text(), "mode 0") != NULL &&
                   strstr(error_text(), "CAP_SYS_PTRACE") != NULL
               ? 0
               : 1;
}

static void test_refusal_says_what_would_help(void **state)
{
    int result = in_child(probe_as_nobody, NULL);

    (void)state;
    if (result == 77)
        skip();
    assert_int_equal(result, 0);
}

static int probe_without_descriptors(void *argument)
{
    struct mmu_switches none = {0};
    struct mmu_features features;
    struct rlimit limit = {3, 3};

    (void)argument;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || mmu_features_probe(&none, &features) != -EMFILE)
        return 1;
    return strstr(error_text(), "ulimit -n") != NULL ? 0 : 1;
}

static void test_lack_of_descriptors_is_not_taken_for_refusal(void **state)
{
    (void)state;
    assert_int_equal(in_child(probe_without_descriptors, NULL), 0);
}

static int open_with_few_descriptors(void *argument)
{
    struct mmu_switches none = {0};
    struct fixture fixture;
    struct rlimit limit = {64, 64};

    (void)argument;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 1;
    fixture_open(&fixture, &none);
    return mmu_descriptor(fixture.mmu) < 64 ? 0 : 1;
}

static void test_low_limit_on_descriptors_keeps_low_numbers(void **state)
{
    (void)state;
    assert_int_equal(in_child(open_with_few_descriptors, NULL), 0);
}

static void test_kernel_without_minor_faults_is_refused(void **state)
{
    struct mmu_features features = {.has_wp_shmem = true};
    struct mmu_window window;
    struct mmu *mmu = NULL;

    (void)state;
    ok(mmu_window_reserve(TEST_BASE, EXTENT_BYTES, 0, &window));
    assert_int_equal(mmu_open(&window, &features, &mmu), -EOPNOTSUPP);
    assert_non_null(strstr(error_text(), "minor faults"));
    features = (struct mmu_features){.has_minor = true};
    assert_int_equal(mmu_open(&window, &features, &mmu), -EOPNOTSUPP);
    assert_non_null(strstr(error_text(), "write protection"));
    assert_null(mmu);
    mmu_window_release(&window);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probe_names_its_source_and_leaves_nothing_open),
        cmocka_unit_test(test_each_switch_hides_one_feature),
        cmocka_unit_test(test_refusal_says_what_would_help),
        cmocka_unit_test(test_lack_of_descriptors_is_not_taken_for_refusal),
        cmocka_unit_test(test_low_limit_on_descriptors_keeps_low_numbers),
        cmocka_unit_test(test_kernel_without_minor_faults_is_refused),
    };

    require_userfaultfd();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
