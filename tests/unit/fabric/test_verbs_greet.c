/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_verbs_greet.c - greetings in the private data of rdma_cm: whole, padded, short, and nonsense.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "fabric/verbs_greet.h"

#include <errno.h>
#include <string.h>

static const struct greeting hello = {
    .version = FABRIC_PROTOCOL,
    .kind = GREETING_HELLO,
    .plane = PLANE_DATA,
    .from = 5,
    .to = 2,
    .attempt = 77,
    .job = 0x1122334455667788,
    .from_incarnation = 0x8877665544332211,
    .to_incarnation = 3,
    .session = UINT64_MAX,
    .received = 1234567890123,
};

static void test_hello_comes_back_as_it_went(void **state)
{
    uint8_t bytes[VERBS_HELLO_BYTES + 200] = {0}; /* padded, as the device delivers it */
    struct greeting read;

    (void)state;
    verbs_hello_encode(&hello, bytes);
    assert_int_equal(verbs_hello_decode(bytes, sizeof(bytes), &read), 0);
    assert_memory_equal(&read, &hello, sizeof(hello));
    assert_int_equal(verbs_hello_decode(bytes, VERBS_HELLO_BYTES, &read), 0);
}

static void test_short_hello_is_refused(void **state)
{
    uint8_t bytes[VERBS_HELLO_BYTES];
    struct greeting read;

    (void)state;
    verbs_hello_encode(&hello, bytes);
    for (size_t size = 0; size < sizeof(bytes); size++)
        assert_int_equal(verbs_hello_decode(bytes, size, &read), -EBADMSG);
    bytes[0] ^= 1;
    assert_int_equal(verbs_hello_decode(bytes, sizeof(bytes), &read), -EBADMSG);
}

/* Whatever a stranger writes behind the magic is read, and judged by the same code as over TCP. */
static void test_any_hello_can_be_judged(void **state)
{
    struct fabric_config config = {.self = {2}, .nodes_count = 8, .job = hello.job, .incarnation = 9};
    struct random random = {1};
    uint8_t bytes[VERBS_HELLO_BYTES];
    struct greeting read;

    (void)state;
    verbs_hello_encode(&hello, bytes);
    assert_int_equal(verbs_hello_decode(bytes, sizeof(bytes), &read), 0);
    read.to_incarnation = 9;
    assert_int_equal(greeting_judge(&read, &config), GREETING_OK);
    for (int i = 0; i < 10000; i++) {
        for (size_t at = 4; at < sizeof(bytes); at++)
            bytes[at] = (uint8_t)random_next(&random);
        assert_int_equal(verbs_hello_decode(bytes, sizeof(bytes), &read), 0);
        assert_int_not_equal(greeting_judge(&read, &config), GREETING_OK);
    }
}

static void test_welcome_is_read_and_nothing_else(void **state)
{
    struct fabric_config config = {.self = {2}, .job = hello.job, .incarnation = 9};
    struct greeting welcome = greeting_answer(&hello, &config, REFUSED_JOB);
    uint8_t bytes[148] = {0};
    struct greeting read;

    (void)state;
    greeting_encode(&welcome, bytes);
    assert_int_equal(verbs_welcome_decode(bytes, sizeof(bytes), &read), 0);
    assert_int_equal(read.status, REFUSED_JOB);
    assert_true(greeting_fits(&read, &hello));
    assert_int_equal(verbs_welcome_decode(bytes, GREETING_BYTES - 1, &read), -EBADMSG);
    assert_int_equal(verbs_welcome_decode(NULL, 0, &read), -EBADMSG);
    greeting_encode(&hello, bytes);
    assert_int_equal(verbs_welcome_decode(bytes, sizeof(bytes), &read), -EBADMSG);
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(verbs_welcome_decode(bytes, sizeof(bytes), &read), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hello_comes_back_as_it_went),
        cmocka_unit_test(test_short_hello_is_refused),
        cmocka_unit_test(test_any_hello_can_be_judged),
        cmocka_unit_test(test_welcome_is_read_and_nothing_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
