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
    uint8_t bytes[WIRE_HEADER_BYTES + 10];
    struct wire in = {.type = WIRE_BULK_DATA,
                      .flags = WIRE_BY_FILE,
                      .result = -5,
                      .id = UINT64_MAX,
                      .a = 1,
                      .b = (uint64_t)1 << 63,
                      .payload_bytes = 10};
    struct wire out;

    (void)state;
    memset(bytes, 0xab, sizeof(bytes));
    wire_encode(&in, bytes);
    assert_int_equal(wire_decode(bytes, sizeof(bytes), &out), 0);
    assert_int_equal(out.type, in.type);
    assert_int_equal(out.flags, in.flags);
    assert_int_equal(out.result, in.result);
    assert_true(out.id == in.id && out.a == in.a && out.b == in.b);
    assert_int_equal(out.payload_bytes, 10);
    assert_ptr_equal(out.payload, bytes + WIRE_HEADER_BYTES);
}

static void test_refuses_what_does_not_fit(void **state)
{
    uint8_t bytes[WIRE_HEADER_BYTES + 10] = {0};
    struct wire wire = {.type = WIRE_FREE};
    struct wire out = {.type = 99};

    (void)state;
    wire_encode(&wire, bytes);
    assert_int_equal(wire_decode(bytes, WIRE_HEADER_BYTES, &out), 0);
    for (size_t size = 0; size < WIRE_HEADER_BYTES; size++)
        assert_int_equal(wire_decode(bytes, size, &out), -EBADMSG);
    assert_int_equal(wire_decode(bytes, WIRE_HEADER_BYTES + 1, &out), -EBADMSG);
    wire.payload_bytes = 10; /* a payload where none belongs */
    wire_encode(&wire, bytes);
    assert_int_equal(wire_decode(bytes, sizeof(bytes), &out), -EBADMSG);
    wire = (struct wire){.type = WIRE_BULK_DATA}; /* none where one belongs */
    wire_encode(&wire, bytes);
    assert_int_equal(wire_decode(bytes, WIRE_HEADER_BYTES, &out), -EBADMSG);
    for (unsigned type = 0; type < 256; type++) {
        bool known = type >= WIRE_FREE && type < WIRE_TYPES && type != WIRE_BULK_DATA;

        bytes[2] = (uint8_t)type;
        assert_int_equal(wire_decode(bytes, WIRE_HEADER_BYTES, &out), known ? 0 : -EBADMSG);
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
