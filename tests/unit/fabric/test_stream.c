/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric/stream.h"

#include <errno.h>
#include <string.h>

static struct stream stream;
static uint8_t wire[FRAME_BYTES_MAX];

static int tear_down(void **state)
{
    (void)state;
    stream_fini(&stream);
    return 0;
}

static size_t make(uint32_t size, uint64_t sequence)
{
    struct frame frame = {.tag = 3, .type = FRAME_MESSAGE, .size_bytes = size, .sequence = sequence, .ack = 9};

    memset(wire, (int)(sequence & 0xff), sizeof(wire));
    frame_encode(&frame, wire);
    return frame_bytes(&frame);
}

static void feed(const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        uint8_t *room;
        size_t room_size;

        assert_int_equal(stream_room(&stream, &room, &room_size), 0);
        assert_true(room_size > 0);
        if (room_size > size)
            room_size = size;
        memcpy(room, bytes, room_size);
        stream_filled(&stream, room_size);
        bytes += room_size;
        size -= room_size;
    }
}

static void test_frame_arrives_byte_by_byte(void **state)
{
    size_t size = make(13, 5);
    struct frame frame;
    const uint8_t *bytes;

    (void)state;
    assert_int_equal(size, FRAME_HEADER_BYTES + 16);
    for (size_t i = 0; i < size; i++) {
        assert_int_equal(stream_next(&stream, &frame, &bytes), 0);
        feed(wire + i, 1);
    }
    assert_int_equal(stream_next(&stream, &frame, &bytes), 1);
    assert_int_equal(frame.tag, 3);
    assert_int_equal(frame.size_bytes, 13);
    assert_int_equal(frame.sequence, 5);
    assert_int_equal(frame.ack, 9);
    assert_int_equal(bytes[12], 5);
    assert_int_equal((uintptr_t)bytes & 7, 0);
    assert_int_equal(stream_next(&stream, &frame, &bytes), 0);
}

/* The buffer is passed many times, with frames of all sizes lying across every boundary. */
static void test_many_frames_through_one_buffer(void **state)
{
    uint64_t received = 0;
    struct frame frame;
    const uint8_t *bytes;

    (void)state;
    for (uint64_t sequence = 1; sequence <= 300; sequence++) {
        uint32_t size = sequence % 17 == 0 ? FABRIC_MESSAGE_MAX : (uint32_t)(sequence * 7919 % 30000 + 1);
        size_t wire_size = make(size, sequence);

        feed(wire, wire_size / 2);
        while (stream_next(&stream, &frame, &bytes) == 1)
            assert_int_equal(frame.sequence, ++received);
        feed(wire + wire_size / 2, wire_size - wire_size / 2);
        if (sequence % 3 != 0 && size < FABRIC_MESSAGE_MAX / 2)
            continue;
        while (stream_next(&stream, &frame, &bytes) == 1) {
            assert_int_equal(frame.sequence, ++received);
            assert_int_equal(bytes[0], frame.sequence & 0xff);
            assert_int_equal(bytes[frame.size_bytes - 1], frame.sequence & 0xff);
            assert_int_equal((uintptr_t)bytes & 7, 0);
        }
    }
    assert_int_equal(received, 300);
}

static void test_wrong_headers_are_bad_messages(void **state)
{
    static const struct {
        size_t offset;
        uint8_t value;
    } cases[] = {{4, 0}, {4, 4}, {5, 1}, {6, 1}, {7, 1}, {8, 0}, {10, 5}, {11, 1}, {12, 1}, {15, 1}};
    struct frame frame;
    const uint8_t *bytes;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        make(5, 1);
        wire[cases[i].offset] = cases[i].value;
        stream_reset(&stream);
        feed(wire, FRAME_HEADER_BYTES);
        assert_int_equal(stream_next(&stream, &frame, &bytes), -EBADMSG);
    }
    make(5, 1);
    wire[4] = FRAME_ACK; /* an acknowledgement has no bytes */
    stream_reset(&stream);
    feed(wire, FRAME_HEADER_BYTES);
    assert_int_equal(stream_next(&stream, &frame, &bytes), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_frame_arrives_byte_by_byte, tear_down),
        cmocka_unit_test_teardown(test_many_frames_through_one_buffer, tear_down),
        cmocka_unit_test_teardown(test_wrong_headers_are_bad_messages, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
