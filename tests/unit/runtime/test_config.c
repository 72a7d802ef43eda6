/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_config.c - options: parsing, precedence, refusals with sentences.
 */
#include "base/error.h"
#include "runtime/config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_defaults_are_valid(void **state)
{
    struct dsm_config config;

    (void)state;
    assert_int_equal(config_init(&config), 0);
    assert_int_equal(config_check(&config), 0);
    assert_int_equal(config.ddr_bytes, 256 << 20);
    assert_string_equal(config.transport, "auto");
    assert_true(config.move);
}

static void test_set_parses_each_kind(void **state)
{
    struct dsm_config config;

    (void)state;
    assert_int_equal(config_init(&config), 0);
    assert_int_equal(config_set(&config, "ddr", "3M"), 0);
    assert_int_equal(config.ddr_bytes, 3 << 20);
    assert_int_equal(config_set(&config, "cxl", "2g"), 0);
    assert_int_equal(config.cxl_bytes, (uint64_t)2 << 30);
    assert_string_equal(config.cxl_source, "");
    assert_int_equal(config_set(&config, "cxl", "2G:node"), 0);
    assert_string_equal(config.cxl_source, "node");
    assert_int_equal(config_set(&config, "cxl", "2G:emulated"), 0);
    assert_int_equal(config_cxl_memory_bytes(&config), (uint64_t)2 << 30);
    assert_int_equal(config_set(&config, "cxl", "2G:/dev/dax0.0"), 0);
    assert_int_equal(config_cxl_memory_bytes(&config), 0);
    assert_int_equal(config_set(&config, "cxl", "2G:emulated"), 0);
    assert_int_equal(config_set(&config, "cxl", "2G:remote"), -EINVAL);
    assert_int_equal(config_set(&config, "cxl", "2G:"), -EINVAL);
    assert_string_equal(config.cxl_source, "emulated");
    assert_int_equal(config_set(&config, "zmem", "1M"), 0);
    assert_int_equal(config_zmem_bytes(&config, 3 << 20), 1 << 20);
    assert_int_equal(config_set(&config, "zmem", "70%"), 0);
    assert_int_equal(config_zmem_bytes(&config, 200 << 20), 140 << 20);
    assert_int_equal(config_set(&config, "nvme", "4G:/some where"), 0);
    assert_int_equal(config.nvme_bytes, (uint64_t)4 << 30);
    assert_string_equal(config.nvme_path, "/some where");
    assert_int_equal(config_set(&config, "nvme", "0"), 0);
    assert_int_equal(config.nvme_bytes, 0);
    assert_int_equal(config_set(&config, "suspect", "1500"), 0);
    assert_int_equal(config.suspect_ns, 1500000000);
    assert_int_equal(config_set(&config, "hold_us", "70"), 0);
    assert_int_equal(config.hold_ns, 70000);
    assert_int_equal(config_set(&config, "uffd.move", "off"), 0);
    assert_false(config.move);
    assert_int_equal(config_set(&config, "transport", "tcp"), 0);
    assert_string_equal(config.transport, "tcp");
}

static void test_set_refuses_bad_values(void **state)
{
    static const char *const bad[][2] = {
        {"ddr", ""},        {"ddr", "M"},         {"ddr", "1X"},         {"ddr", "-1M"},
        {"nvme", "4G"},     {"nvme", "4G:"},      {"nvme", ":/x"},       {"nvme", "0:/x"},
        {"transport", ""},  {"transport", "sh"},  {"transport", "udp"},  {"uffd.move", "maybe"},
        {"suspect", "1s"},  {"requests", "ten"},  {"ddr", "99999999999999T"},
        {"zmem", "0%"},     {"zmem", "91%"},      {"zmem", "%"},        {"zmem", "7%M"},
        {"hold_us", "99999999999999999999"},
    };
    struct dsm_config config;

    (void)state;
    assert_int_equal(config_init(&config), 0);
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct dsm_config before = config;

        assert_int_equal(config_set(&config, bad[i][0], bad[i][1]), -EINVAL);
        assert_non_null(strstr(error_text(), bad[i][0]));
        assert_memory_equal(&config, &before, sizeof(config));
    }
}

static void test_words_are_a_set(void **state)
{
    struct dsm_config config;

    (void)state;
    assert_int_equal(config_init(&config), 0);
    assert_int_equal(config.prefetch_predictors, 1 | 8 | 16);
    assert_int_equal(config_set(&config, "prefetch.predictors", "temporal,hints"), 0);
    assert_int_equal(config.prefetch_predictors, 2 | 8);
    assert_int_equal(config_set(&config, "prefetch.predictors", "signature"), 0);
    assert_int_equal(config.prefetch_predictors, 4);
    assert_int_equal(config_set(&config, "prefetch.predictors", "hints,"), -EINVAL);
    assert_non_null(strstr(error_text(), "streams temporal signature hints around, with commas between"));
    assert_int_equal(config_set(&config, "prefetch.predictors", "hint"), -EINVAL);
    assert_int_equal(config_set(&config, "prefetch.predictors", ""), -EINVAL);
    assert_int_equal(config.prefetch_predictors, 4);
}

static void test_unknown_name_gets_a_suggestion(void **state)
{
    struct dsm_config config;

    (void)state;
    assert_int_equal(config_init(&config), 0);
    assert_int_equal(config_set(&config, "transprot", "tcp"), -ENOENT);
    assert_non_null(strstr(error_text(), "'transport'"));
}

static void test_environment_overrides_defaults(void **state)
{
    struct dsm_config config;

    (void)state;
    setenv("DSM_DDR", "7M", 1);
    setenv("DSM_UFFD_POISON", "off", 1);
    assert_int_equal(config_init(&config), 0);
    assert_int_equal(config.ddr_bytes, 7 << 20);
    assert_false(config.poison);
    setenv("DSM_DDR", "lots", 1);
    assert_int_equal(config_init(&config), -EINVAL);
    assert_non_null(strstr(error_text(), "DSM_DDR"));
    unsetenv("DSM_DDR");
    unsetenv("DSM_UFFD_POISON");
}

static void test_check_refuses_what_the_machine_lacks(void **state)
{
    static const char *const bad[][2] = {
        {"ddr", "8000G"}, {"cxl", "8000G"}, {"ddr", "1M"}, {"requests", "1"}, {"requests", "99999"},
        {"heartbeat", "0"}, {"heartbeat", "1000"},
        {"window.shared", "3000001"}, {"window.private", "0"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct dsm_config config;

        assert_int_equal(config_init(&config), 0);
        assert_int_equal(config_set(&config, bad[i][0], bad[i][1]), 0);
        assert_int_not_equal(config_check(&config), 0);
        assert_non_null(strstr(error_text(), bad[i][0]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_valid),
        cmocka_unit_test(test_set_parses_each_kind),
        cmocka_unit_test(test_set_refuses_bad_values),
        cmocka_unit_test(test_words_are_a_set),
        cmocka_unit_test(test_unknown_name_gets_a_suggestion),
        cmocka_unit_test(test_environment_overrides_defaults),
        cmocka_unit_test(test_check_refuses_what_the_machine_lacks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
