/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_message.c - messages of the cluster family: round trips, truncation, every single-byte change.
 */
#include "base/random.h"
#include "cluster/message.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct cluster_message example(uint8_t type)
{
    struct cluster_message message = {.type = type, .epoch = {3}};

    switch ((enum cluster_type)type) {
    case CLUSTER_REPORT:
    case CLUSTER_REQUEST:
    case CLUSTER_UPDATE:
        message.change = (struct cluster_change){.index = 9,
                                                 .sequence = 4,
                                                 .requester = {2},
                                                 .kind = CHANGE_TAKE,
                                                 .placement = CLUSTER_PLACE_INTERLEAVE,
                                                 .node = {7},
                                                 .members = 7,
                                                 .first_extent = 100,
                                                 .extents_count = 20,
                                                 .value = 0x123456789abcdef0,
                                                 .name = "a name"};
        break;
    case CLUSTER_ACK:
    case CLUSTER_COMMIT:
        message.index = 12;
        break;
    case CLUSTER_REPLY:
        message.result = -ENOMEM;
        message.sequence = 6;
        break;
    case CLUSTER_ARRIVE:
    case CLUSTER_WITHDRAW:
    case CLUSTER_RELEASE:
    case CLUSTER_WITHDRAWN:
        message.sequence = 8;
        break;
    case CLUSTER_HEARTBEAT:
    case CLUSTER_COLLECT:
    case CLUSTER_TYPES:
        break;
    }
    return message;
}

static void test_every_type_comes_back(void **state)
{
    (void)state;
    for (uint8_t type = 1; type < CLUSTER_TYPES; type++) {
        struct cluster_message message = example(type), decoded;
        uint8_t bytes[CLUSTER_MESSAGE_MAX];
        size_t size = cluster_message_encode(&message, bytes);

        assert_int_equal(bytes[0], MESSAGE_FAMILY_CLUSTER);
        assert_int_equal(bytes[1], CLUSTER_MESSAGE_VERSION);
        assert_int_equal(cluster_message_decode(bytes, size, &decoded), 0);
        assert_memory_equal(&decoded, &message, sizeof(message));
        assert_int_equal(cluster_message_decode(bytes, size - 1, &decoded), -EBADMSG);
    }
}

static void test_the_longest_name_fits(void **state)
{
    struct cluster_message message = {.type = CLUSTER_REQUEST, .change = {.kind = CHANGE_NAME, .value = 1}}, decoded;
    uint8_t bytes[CLUSTER_MESSAGE_MAX];

    (void)state;
    memset(message.change.name, 'n', CLUSTER_NAME_MAX);
    assert_int_equal(cluster_message_decode(bytes, cluster_message_encode(&message, bytes), &decoded), 0);
    assert_string_equal(decoded.change.name, message.change.name);
}

/* An exact heap copy, so that the sanitizer sees a read beyond. */
static int decode_copy(const uint8_t *bytes, size_t size, struct cluster_message *ret_message)
{
    uint8_t *copy = malloc(size == 0 ? 1 : size);
    int result;

    assert_non_null(copy);
    memcpy(copy, bytes, size);
    result = cluster_message_decode(copy, size, ret_message);
    free(copy);
    return result;
}

static void test_truncated_and_changed_bytes(void **state)
{
    (void)state;
    for (uint8_t type = 1; type < CLUSTER_TYPES; type++) {
        struct cluster_message message = example(type), decoded;
        uint8_t bytes[CLUSTER_MESSAGE_MAX + 1] = {0};
        size_t size = cluster_message_encode(&message, bytes);

        for (size_t cut = 0; cut < size; cut++)
            assert_int_equal(decode_copy(bytes, cut, &decoded), -EBADMSG);
        assert_int_equal(decode_copy(bytes, size + 1, &decoded), -EBADMSG);
        for (size_t at = 0; at < size; at++) {
            uint8_t kept = bytes[at];

            for (unsigned value = 0; value < 256; value++) {
                bytes[at] = (uint8_t)value;
                /* Whatever decodes is in range, and encodes again to the same bytes. */
                if (decode_copy(bytes, size, &decoded) == 0) {
                    uint8_t again[CLUSTER_MESSAGE_MAX];

                    assert_int_equal(cluster_message_encode(&decoded, again), size);
                    assert_memory_equal(again, bytes, size);
                    assert_true(decoded.change.requester.index < NODES_MAX);
                    assert_true(decoded.change.kind < CHANGE_KINDS);
                }
            }
            bytes[at] = kept;
        }
    }
}

static void test_what_is_out_of_range(void **state)
{
    struct cluster_message wrong[] = {
        {.type = CLUSTER_REQUEST, .change = {.kind = CHANGE_NONE}},
        {.type = CLUSTER_UPDATE, .change = {.kind = CHANGE_NONE}},
        {.type = CLUSTER_REPORT, .change = {.kind = CHANGE_NONE, .index = 1}},
        {.type = CLUSTER_REQUEST, .change = {.kind = CHANGE_KINDS}},
        {.type = CLUSTER_REQUEST, .change = {.kind = CHANGE_TAKE}},
        {.type = CLUSTER_REQUEST, .change = {.kind = CHANGE_TAKE, .extents_count = 1, .placement = 2}},
        {.type = CLUSTER_REQUEST, .change = {.kind = CHANGE_TAKE, .extents_count = 1, .node = NODE_NONE}},
        {.type = CLUSTER_UPDATE, .change = {.kind = CHANGE_GIVE, .extents_count = 2, .first_extent = UINT64_MAX - 1}},
        {.type = CLUSTER_UPDATE, .change = {.kind = CHANGE_GIVE, .extents_count = 1, .requester = {NODES_MAX}}},
        {.type = CLUSTER_REQUEST, .change = {.kind = CHANGE_NAME, .value = 1}},
        {.type = CLUSTER_REPLY, .result = 0},
    };
    struct cluster_message decoded;
    uint8_t bytes[CLUSTER_MESSAGE_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++)
        assert_int_equal(cluster_message_decode(bytes, cluster_message_encode(&wrong[i], bytes), &decoded), -EBADMSG);
}

static void test_random_bytes(void **state)
{
    struct random random = {7};
    struct cluster_message decoded;

    (void)state;
    for (unsigned round = 0; round < 200000; round++) {
        uint8_t bytes[CLUSTER_MESSAGE_MAX];
        size_t size = random_below(&random, sizeof(bytes));

        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)random_next(&random);
        if (size > 3) {
            bytes[0] = MESSAGE_FAMILY_CLUSTER;
            bytes[1] = CLUSTER_MESSAGE_VERSION;
            bytes[2] %= CLUSTER_TYPES + 1;
            bytes[3] = 0;
        }
        (void)decode_copy(bytes, size, &decoded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_comes_back),
        cmocka_unit_test(test_the_longest_name_fits),
        cmocka_unit_test(test_truncated_and_changed_bytes),
        cmocka_unit_test(test_what_is_out_of_range),
        cmocka_unit_test(test_random_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
