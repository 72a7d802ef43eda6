/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences with the words of an error in them, as error_set() and the log make them. */
#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_the_error_has_its_words(void **state)
{
    (void)state;
    errno = ENOENT;
    error_set(-1, "%s: %m; %m", "a file");
    assert_string_equal(error_text(), "a file: No such file or directory; No such file or directory");
    errno = 100000;
    error_set(-1, "%m");
    assert_string_equal(error_text(), "unknown error");
}

static void test_what_is_no_error_stays(void **state)
{
    (void)state;
    errno = EPERM;
    error_set(-1, "100%% of %d%%m, %5s|%-3u|", 7, "ab", 3U);
    assert_string_equal(error_text(), "100% of 7%m,    ab|3  |");
}

static void test_what_has_no_room_is_cut_off(void **state)
{
    char bytes[12];
    struct text text = {.bytes = bytes, .size_bytes = sizeof(bytes)};
    char long_format[1000];

    (void)state;
    errno = ENOENT;
    text_add(&text, "%s: %m", "x");
    assert_string_equal(bytes, "x: No such ");
    assert_int_equal(text.used, 11);
    for (size_t i = 0; i + 2 < sizeof(long_format); i += 2)
        memcpy(long_format + i, "%m", 3);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
    error_set(-1, long_format);
#pragma GCC diagnostic pop
    assert_memory_equal(error_text(), "No such file or directoryNo such", 32);
    assert_true(strlen(error_text()) < 512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_error_has_its_words),
        cmocka_unit_test(test_what_is_no_error_stays),
        cmocka_unit_test(test_what_has_no_room_is_cut_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
