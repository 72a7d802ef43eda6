/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_message.c - every message survives the wire, and what a peer can get wrong is refused. P18
 */
#include "coherence/message.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static uint8_t bytes[MESSAGE_HEADER_BYTES + PAGE_BYTES];

static struct message sample(uint8_t type)
{
    return (struct message){.type = type,
                            .flags = MESSAGE_PREFETCH,
                            .from = {3},
                            .requester = {7},
                            .epoch = {0x01020304},
                            .page = {0x1122334455667788},
                            .sequence = 0xfffffffe,
                            .request = 5,
                            .credit = 6,
                            .a = UINT64_MAX,
                            .b = 1,
                            .c = 0x123456789abcdef0};
}

static void test_every_type_survives_the_wire(void **state)
{
    (void)state;
    for (uint8_t type = 1; type < MESSAGE_TYPES_COUNT; type++) {
        struct message in = sample(type), out;

        message_encode(&in, bytes);
        assert_int_equal(message_decode(bytes, MESSAGE_HEADER_BYTES, &out), 0);
        assert_int_equal(out.type, type);
        assert_int_equal(out.flags, in.flags);
        assert_int_equal(out.from.index, 3);
        assert_int_equal(out.requester.index, 7);
        assert_int_equal(out.epoch.number, in.epoch.number);
        assert_true(out.page.index == in.page.index);
        assert_true(out.sequence == in.sequence && out.request == 5 && out.credit == 6);
        assert_true(out.a == in.a && out.b == in.b && out.c == in.c);
        assert_null(out.payload);
        assert_string_not_equal(message_name(type), "?");
    }
}

static void test_a_page_travels_only_where_the_table_says(void **state)
{
    (void)state;
    for (uint8_t type = 1; type < MESSAGE_TYPES_COUNT; type++) {
        struct message in = sample(type), out;
        bool may = type == MESSAGE_DATA || type == MESSAGE_GRANT || type == MESSAGE_WRITE_BACK;

        in.payload_bytes = PAGE_BYTES;
        message_encode(&in, bytes);
        assert_int_equal(message_decode(bytes, sizeof(bytes), &out), may ? 0 : -EBADMSG);
        if (may)
            assert_ptr_equal(out.payload, bytes + MESSAGE_HEADER_BYTES);
        in.flags = MESSAGE_POISONED;
        message_encode(&in, bytes);
        assert_int_equal(message_decode(bytes, sizeof(bytes), &out), -EBADMSG);
    }
}

static void test_truncated_messages_are_refused(void **state)
{
    struct message in = sample(MESSAGE_DATA), out;

    (void)state;
    in.payload_bytes = PAGE_BYTES;
    message_encode(&in, bytes);
    for (size_t size = 0; size < sizeof(bytes); size += size < MESSAGE_HEADER_BYTES ? 1 : 61)
        assert_int_equal(message_decode(bytes, size, &out), -EBADMSG);
    assert_int_equal(message_decode(bytes, sizeof(bytes), &out), 0);
}

static void refuse_with_byte(unsigned offset, uint8_t value)
{
    struct message in = sample(MESSAGE_GET_SHARED), out;

    message_encode(&in, bytes);
    bytes[offset] = value;
    assert_int_equal(message_decode(bytes, MESSAGE_HEADER_BYTES, &out), -EBADMSG);
}

static void test_wrong_fields_are_refused(void **state)
{
    (void)state;
    refuse_with_byte(0, 2);                   /* family */
    refuse_with_byte(1, MESSAGE_VERSION + 1); /* version */
    refuse_with_byte(2, 0);                   /* type */
    refuse_with_byte(2, MESSAGE_TYPES_COUNT);
    refuse_with_byte(3, 0x80);      /* flag */
    refuse_with_byte(4, NODES_MAX); /* from */
    refuse_with_byte(6, NODES_MAX); /* requester */
    refuse_with_byte(56, 1);        /* payload size */
    refuse_with_byte(60, 1);        /* zero */
}

static void test_classes_say_who_may_wait_for_whom(void **state)
{
    (void)state;
    assert_int_equal(message_class_of(MESSAGE_GET_EXCLUSIVE), CLASS_REQUEST);
    assert_int_equal(message_class_of(MESSAGE_RECALL_SHARED), CLASS_FORWARD);
    assert_int_equal(message_class_of(MESSAGE_WRITE_BACK), CLASS_REPLY);
    assert_int_equal(message_class_of(MESSAGE_CONFIRM), CLASS_REPLY);
    assert_string_equal(message_name(0), "?");
    assert_string_equal(message_name(MESSAGE_TYPES_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_survives_the_wire),
        cmocka_unit_test(test_a_page_travels_only_where_the_table_says),
        cmocka_unit_test(test_truncated_messages_are_refused),
        cmocka_unit_test(test_wrong_fields_are_refused),
        cmocka_unit_test(test_classes_say_who_may_wait_for_whom),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
