/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "fabric/session.h"

#include <errno.h>
#include <string.h>

#define WINDOW_BYTES ((size_t)FABRIC_MESSAGE_MAX)

static struct session here, there;
static struct stream stream; /* from here to there */

static int set_up(void **state)
{
    (void)state;
    session_init(&here, 7, WINDOW_BYTES);
    session_init(&there, 7, WINDOW_BYTES);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    session_fini(&here);
    session_fini(&there);
    stream_fini(&stream);
    return 0;
}

static int append(struct session *session, size_t size)
{
    static uint8_t bytes[FABRIC_MESSAGE_MAX];
    struct iovec part = {bytes, size};

    return session_append(session, &part, 1);
}

/* Moves up to `limit` unsent bytes to the other side; returns the messages that are new there. */
static unsigned carry(size_t limit)
{
    const uint8_t *unsent;
    size_t size = session_unsent(&here, &unsent);
    unsigned delivered = 0;
    struct frame frame;
    const uint8_t *bytes;
    bool is_duplicate;

    size = size < limit ? size : limit;
    while (size > 0) {
        uint8_t *room;
        size_t room_size;

        assert_int_equal(stream_room(&stream, &room, &room_size), 0);
        room_size = room_size < size ? room_size : size;
        assert_true(session_unsent(&here, &unsent) >= room_size);
        memcpy(room, unsent, room_size);
        stream_filled(&stream, room_size);
        session_wrote(&here, room_size);
        size -= room_size;
        while (stream_next(&stream, &frame, &bytes) == 1) {
            int result = session_receive(&there, &frame, &is_duplicate);

            assert_true(result >= 0);
            delivered += (unsigned)result;
        }
    }
    return delivered;
}

static void acknowledge(void)
{
    struct frame ack = {.tag = 7, .type = FRAME_ACK, .sequence = there.sent, .ack = there.received};
    bool is_duplicate;

    assert_int_equal(session_receive(&here, &ack, &is_duplicate), 0);
}

static void test_acknowledged_frames_are_forgotten(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        assert_int_equal(append(&here, 1000), 0);
    assert_int_equal(carry(SIZE_MAX), 10);
    assert_true(fifo_used(&here.retained) > 10000);
    assert_true(session_owes_ack(&there));
    acknowledge();
    assert_int_equal(fifo_used(&here.retained), 0);
    assert_int_equal(here.written_bytes, 0);
}

static void test_window_counts_what_is_not_acknowledged(void **state)
{
    (void)state;
    assert_int_equal(append(&here, FABRIC_MESSAGE_MAX), 0);
    assert_int_equal(append(&here, 1), -ENOBUFS);
    assert_int_equal(session_append_control(&here, FRAME_ACK), 0);
    assert_int_equal(carry(SIZE_MAX), 1);
    assert_int_equal(append(&here, 1), -ENOBUFS);
    acknowledge();
    assert_int_equal(append(&here, FABRIC_MESSAGE_MAX), 0);
}

static void test_resume_sends_what_is_missing(void **state)
{
    uint64_t resends;

    (void)state;
    for (int i = 0; i < 10; i++)
        assert_int_equal(append(&here, 100), 0);
    assert_int_equal(carry(4 * 136 + 50), 4); /* frames of 136 bytes: four, and a piece of the fifth */
    stream_reset(&stream);
    assert_int_equal(session_resume(&here, there.received, &resends), 0);
    assert_int_equal(resends, 1);
    assert_int_equal(carry(SIZE_MAX), 6);
    assert_int_equal(there.received, 10);
}

static void test_duplicates_are_dropped(void **state)
{
    struct frame frame = {.tag = 7, .type = FRAME_MESSAGE, .size_bytes = 8, .sequence = 1};
    bool is_duplicate;

    (void)state;
    assert_int_equal(session_receive(&there, &frame, &is_duplicate), 1);
    assert_false(is_duplicate);
    assert_int_equal(session_receive(&there, &frame, &is_duplicate), 0);
    assert_true(is_duplicate);
    frame.sequence = 2;
    assert_int_equal(session_receive(&there, &frame, &is_duplicate), 1);
}

static void test_impossible_frames_are_bad_messages(void **state)
{
    static const struct frame frames[] = {
        {.tag = 8, .type = FRAME_MESSAGE, .size_bytes = 8, .sequence = 1},
        {.tag = 7, .type = FRAME_MESSAGE, .size_bytes = 8, .sequence = 2},
        {.tag = 7, .type = FRAME_MESSAGE, .size_bytes = 8, .sequence = 0},
        {.tag = 7, .type = FRAME_MESSAGE, .size_bytes = 8, .sequence = 1, .ack = 1},
        {.tag = 7, .type = FRAME_ACK, .sequence = 1},
        {.tag = 7, .type = FRAME_ACK, .ack = UINT64_MAX},
    };
    bool is_duplicate;
    uint64_t resends;

    (void)state;
    for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++)
        assert_int_equal(session_receive(&there, &frames[i], &is_duplicate), -EBADMSG);
    assert_int_equal(session_resume(&here, 1, &resends), -EBADMSG);
    assert_int_equal(append(&here, 8), 0);
    assert_int_equal(carry(SIZE_MAX), 1);
    acknowledge();
    assert_int_equal(session_resume(&here, 0, &resends), -EBADMSG);
}

/* Random appends, partial writes, acknowledgements of both kinds and cuts: every message arrives once, in order. */
static void test_random_cuts_lose_nothing(void **state)
{
    struct random random = {11};
    uint64_t delivered = 0;
    uint64_t resends;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        switch (random_below(&random, 6)) {
        case 0:
        case 1:
            if (append(&here, 1 + random_below(&random, 3000)) != 0)
                acknowledge();
            break;
        case 2:
            delivered += carry(random_below(&random, 20000));
            break;
        case 3:
            acknowledge();
            break;
        case 4:
            (void)!session_append_control(&here, FRAME_ACK);
            break;
        default:
            stream_reset(&stream);
            assert_int_equal(session_resume(&here, there.received, &resends), 0);
            break;
        }
        assert_int_equal(delivered, there.received);
    }
    delivered += carry(SIZE_MAX);
    assert_int_equal(delivered, here.sent);
    acknowledge();
    assert_int_equal(fifo_used(&here.retained), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_acknowledged_frames_are_forgotten),  TEST(test_window_counts_what_is_not_acknowledged),
        TEST(test_resume_sends_what_is_missing),       TEST(test_duplicates_are_dropped),
        TEST(test_impossible_frames_are_bad_messages), TEST(test_random_cuts_lose_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
