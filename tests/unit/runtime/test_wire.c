/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_wire.c - the runtime's own messages: what is encoded is decoded, everything else is refused.
 */
#include "base/random.h"
#include "runtime/wire.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_round_trip(void **state)
{
    uint8_t bytes[WIRE_HEADER_BYTES];
    struct wire in = {.type = WIRE_BULK_READY, .result = -5, .id = UINT64_MAX, .a = 1, .b = (uint64_t)1 << 63};
    struct wire out;

    (void)state;
    wire_encode(&in, bytes);
    assert_int_equal(wire_decode(bytes, sizeof(bytes), &out), 0);
    assert_int_equal(out.type, in.type);
    assert_int_equal(out.result, in.result);
    assert_true(out.id == in.id && out.a == in.a && out.b == in.b);
}

static void test_refuses_what_does_not_fit(void **state)
{
    uint8_t bytes[WIRE_HEADER_BYTES + 10] = {0};
    struct wire wire = {.type = WIRE_FREE};
    struct wire out;

    (void)state;
    wire_encode(&wire, bytes);
    for (size_t size = 0; size <= sizeof(bytes); size++)
        assert_int_equal(wire_decode(bytes, size, &out), size == WIRE_HEADER_BYTES ? 0 : -EBADMSG);
    for (unsigned type = 0; type < 256; type++) {
        bytes[2] = (uint8_t)type;
        assert_int_equal(wire_decode(bytes, WIRE_HEADER_BYTES, &out), type > 0 && type < WIRE_TYPES ? 0 : -EBADMSG);
    }
    bytes[2] = WIRE_FREE;
    bytes[1]++; /* another version */
    assert_int_equal(wire_decode(bytes, WIRE_HEADER_BYTES, &out), -EBADMSG);
}

static void test_random_bytes_never_crash(void **state)
{
    struct random random = {1};
    uint8_t bytes[64];
    struct wire out;
    int accepted = 0;

    (void)state;
    for (int i = 0; i < 100000; i++) {
        for (size_t k = 0; k < sizeof(bytes); k++)
            bytes[k] = (uint8_t)random_next(&random);
        accepted += wire_decode(bytes, random_below(&random, sizeof(bytes)), &out) == 0;
    }
    assert_int_equal(accepted, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_refuses_what_does_not_fit),
        cmocka_unit_test(test_random_bytes_never_crash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
