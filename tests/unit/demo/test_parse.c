/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_parse.c - control text that is as it should be, and text that is not.
 */
#include "demo/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_span(struct span span, const char *text)
{
    assert_int_equal(span.bytes, strlen(text));
    assert_memory_equal(span.start, text, span.bytes);
}

static struct span span_of(const char *text)
{
    return (struct span){text, strlen(text)};
}

static void test_fields_are_found(void **state)
{
    static const char text[] = "\n\nPackage: a\nDEPENDS:b ,\n\tc\nDescription: one\n two\nX:\n\nPackage: z";
    const char *at = text;
    struct package package;

    (void)state;
    assert_true(package_parse(&at, text + sizeof(text) - 1, &package));
    assert_span(package.name, "a");
    assert_span(package.relations[RELATION_DEPENDS], "b ,\n\tc");
    assert_span(package.description, "one");
    assert_int_equal(package.version.bytes, 0);
    assert_true(package_parse(&at, text + sizeof(text) - 1, &package));
    assert_span(package.name, "z");
    assert_int_equal(package.relations[RELATION_DEPENDS].bytes, 0);
    assert_false(package_parse(&at, text + sizeof(text) - 1, &package));
}

static void test_nameless_stanza_is_passed_over(void **state)
{
    static const char text[] = "Version: 1\n\nPackage:  \n\nPackage: a\n";
    const char *at = text;
    struct package package;

    (void)state;
    assert_true(package_parse(&at, text + sizeof(text) - 1, &package));
    assert_span(package.name, "a");
    assert_int_equal(package.version.bytes, 0);
}

/* Every slice boundary: each stanza is found by exactly one slice. */
static void test_slices_find_every_stanza_once(void **state)
{
    static const char text[] = "Package: a\n\n\nPackage: b\nVersion: 1\n\nPackage: c\n\n\n\nPackage: d";
    const char *end = text + sizeof(text) - 1;

    (void)state;
    for (const char *cut = text; cut <= end; cut++) {
        const char *middle = stanza_find(text, cut, end);
        const char *at = stanza_find(text, text, end);
        struct package package;
        char names[8] = "";

        while (at < middle && package_parse(&at, end, &package))
            strncat(names, package.name.start, 1);
        at = middle;
        while (at < end && package_parse(&at, end, &package))
            strncat(names, package.name.start, 1);
        assert_string_equal(names, "abcd");
    }
}

static void test_relations_are_taken_apart(void **state)
{
    struct span field = span_of(" a (>= 1) | b:any|c [amd64] , ,\n d<x>,(,|e| ,f");
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    struct span item, name;
    size_t count = 0;

    (void)state;
    while (item_next(&field, &item))
        while (alternative_next(&item, &name))
            assert_span(name, names[count++]);
    assert_int_equal(count, 6);
}

/* Cut everywhere and placed at the end of a block: a sanitizer sees any read past the end. */
static void test_cut_text_is_read_within_bounds(void **state)
{
    static const char text[] = "Package: a\nDepends: b (>= 1), c | d:any\n e\n\nPackage: f\nDescription: g\n h\n";

    (void)state;
    for (size_t bytes = 0; bytes < sizeof(text); bytes++) {
        char *copy = malloc(bytes + 1);
        const char *at = copy;
        struct package package;
        size_t count = 0;

        assert_non_null(copy);
        copy = realloc(copy, bytes > 0 ? bytes : 1);
        assert_non_null(copy);
        memcpy(copy, text, bytes);
        at = copy;
        while (package_parse(&at, copy + bytes, &package)) {
            struct span item, name;

            count++;
            while (item_next(&package.relations[RELATION_DEPENDS], &item))
                while (alternative_next(&item, &name))
                    assert_true(name.start + name.bytes <= copy + bytes);
        }
        assert_true(count <= 2);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_are_found),
        cmocka_unit_test(test_nameless_stanza_is_passed_over),
        cmocka_unit_test(test_slices_find_every_stanza_once),
        cmocka_unit_test(test_relations_are_taken_apart),
        cmocka_unit_test(test_cut_text_is_read_within_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
