/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/os.h"
#include "base/random.h"
#include "fabric/shm.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define RING_BYTES SHM_CONTROL_BYTES

static struct shm_segment segment;
static struct ring producer, consumer;

static int set_up(void **state)
{
    int fd;

    (void)state;
    assert_int_equal(shm_segment_create(&fd), 0);
    assert_int_equal(shm_segment_map(fd, &segment), 0);
    close(fd);
    ring_init(&producer, &segment.rings[0][PLANE_CONTROL], segment.bytes[0][PLANE_CONTROL], RING_BYTES);
    ring_init(&consumer, &segment.rings[0][PLANE_CONTROL], segment.bytes[0][PLANE_CONTROL], RING_BYTES);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    shm_segment_unmap(&segment);
    return 0;
}

static int put(size_t size, uint8_t value)
{
    uint8_t *message;
    int result = ring_reserve(&producer, size, &message);

    if (result != 0)
        return result;
    memset(message, value, size);
    return ring_commit(&producer, size) ? 1 : 0;
}

static void check_get(size_t size, uint8_t value)
{
    const uint8_t *message;
    size_t got;

    assert_int_equal(ring_next(&consumer, &message, &got), 1);
    assert_int_equal(got, size);
    for (size_t i = 0; i < size; i++)
        assert_int_equal(message[i], value);
}

static void test_records_stay_whole_around_the_end(void **state)
{
    const uint8_t *message;
    size_t size;

    (void)state;
    for (uint8_t i = 0; i < 40; i++) { /* 40 times 100,001 bytes pass the end of 512 KiB seven times */
        assert_int_equal(put(100001, i), 0);
        check_get(100001, i);
        assert_false(ring_release(&consumer));
    }
    assert_int_equal(ring_next(&consumer, &message, &size), 0);
    assert_int_equal(put(FABRIC_MESSAGE_MAX, 7), 0);
    check_get(FABRIC_MESSAGE_MAX, 7);
}

static void test_full_ring_refuses_until_released(void **state)
{
    const uint8_t *message;
    size_t size;
    size_t count = 0;

    (void)state;
    while (put(1000, 5) == 0)
        count++;
    assert_int_equal(count, RING_BYTES / 1008);
    assert_int_equal(put(1000, 5), -EAGAIN);
    check_get(1000, 5);
    assert_int_equal(put(1000, 5), -EAGAIN); /* handed out is not given back */
    assert_false(ring_release(&consumer));
    assert_int_equal(put(1000, 5), 0);
    while (ring_next(&consumer, &message, &size) == 1)
        count--;
    assert_int_equal(count, 0);
}

static void test_bell_for_a_sleeping_consumer_rings_once(void **state)
{
    (void)state;
    assert_false(ring_sleep(&consumer));
    assert_int_equal(put(8, 1), 1);
    assert_int_equal(put(8, 2), 0);
    assert_true(ring_sleep(&consumer)); /* records are there: it does not sleep */
    ring_wake(&consumer);
    assert_int_equal(put(8, 3), 0);
}

static void test_bell_for_a_waiting_producer_rings_once(void **state)
{
    (void)state;
    while (put(FABRIC_MESSAGE_MAX / 2, 5) == 0)
        ;
    assert_false(ring_wait_room(&producer, FABRIC_MESSAGE_MAX / 2));
    check_get(FABRIC_MESSAGE_MAX / 2, 5);
    assert_true(ring_release(&consumer));
    assert_false(ring_release(&consumer));
    assert_true(ring_wait_room(&producer, FABRIC_MESSAGE_MAX / 2));
}

static void test_impossible_indexes_are_bad_messages(void **state)
{
    static const uint64_t tails[] = {RING_BYTES + 8, UINT64_MAX, 4, 12};
    const uint8_t *message;
    uint8_t *room;
    size_t size;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(tails); i++) {
        atomic_store(&segment.rings[0][PLANE_CONTROL].tail, tails[i]);
        assert_int_equal(ring_next(&consumer, &message, &size), -EBADMSG);
    }
    atomic_store(&segment.rings[0][PLANE_CONTROL].head, 8);
    while (producer.position + FABRIC_MESSAGE_MAX + 8 <= RING_BYTES)
        assert_int_equal(put(FABRIC_MESSAGE_MAX - 8, 1), 0);
    atomic_store(&segment.rings[0][PLANE_CONTROL].head, producer.position + 8);
    assert_int_equal(ring_reserve(&producer, FABRIC_MESSAGE_MAX, &room), -EBADMSG);
}

static void test_impossible_sizes_are_bad_messages(void **state)
{
    static const uint32_t sizes[] = {0, FABRIC_MESSAGE_MAX + 1, UINT32_MAX, 17};
    const uint8_t *message;
    size_t size;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        memcpy(segment.bytes[0][PLANE_CONTROL], &sizes[i], sizeof(sizes[i]));
        atomic_store(&segment.rings[0][PLANE_CONTROL].tail, 24); /* room for 16 bytes */
        assert_int_equal(ring_next(&consumer, &message, &size), -EBADMSG);
    }
}

/* ---- two threads ----------------------------------------------------------------------------------------------- */

#define THREAD_MESSAGES 60000

/* Stands for the two eventfds. */
static _Atomic(uint32_t) consumer_bell, producer_bell;

static void bell_ring(_Atomic(uint32_t) *bell)
{
    atomic_store(bell, 1);
    os_futex_wake(bell, 1, false);
}

/* A bell that does not ring within 10 s was lost. */
static void bell_wait(_Atomic(uint32_t) *bell)
{
    uint64_t end_ns = os_now_ns() + (uint64_t)10000000000U;

    while (atomic_exchange(bell, 0) == 0) {
        ASSERT(os_now_ns() < end_ns);
        os_futex_wait(bell, 0, 1000000000U, false);
    }
}

static size_t size_of(uint64_t number)
{
    struct random random = {number};

    return 8 + random_below(&random, number % 16 == 0 ? 60000 : 300);
}

static void *producer_run(void *argument)
{
    (void)argument;
    for (uint64_t number = 0; number < THREAD_MESSAGES; number++) {
        size_t size = size_of(number);
        uint8_t *message;
        int result;

        while ((result = ring_reserve(&producer, size, &message)) == -EAGAIN)
            if (!ring_wait_room(&producer, size))
                bell_wait(&producer_bell);
        ASSERT(result == 0);
        memset(message, (int)(number & 0xff), size);
        memcpy(message, &number, sizeof(number));
        if (ring_commit(&producer, size))
            bell_ring(&consumer_bell);
    }
    return NULL;
}

static void consume_all(void)
{
    for (uint64_t number = 0; number < THREAD_MESSAGES; number++) {
        const uint8_t *message;
        uint64_t got;
        size_t size;
        int result;

        while ((result = ring_next(&consumer, &message, &size)) == 0)
            if (!ring_sleep(&consumer))
                bell_wait(&consumer_bell);
        ASSERT(result == 1 && size == size_of(number));
        memcpy(&got, message, sizeof(got));
        ASSERT(got == number);
        ASSERT(size == 8 || message[size - 1] == (number & 0xff));
        if (ring_release(&consumer))
            bell_ring(&producer_bell);
    }
}

static void test_threads_lose_neither_records_nor_bells(void **state)
{
    pthread_t thread;

    (void)state;
    assert_int_equal(os_thread_start(&thread, "producer", producer_run, NULL), 0);
    consume_all();
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_records_stay_whole_around_the_end),       TEST(test_full_ring_refuses_until_released),
        TEST(test_bell_for_a_sleeping_consumer_rings_once), TEST(test_bell_for_a_waiting_producer_rings_once),
        TEST(test_impossible_indexes_are_bad_messages),     TEST(test_impossible_sizes_are_bad_messages),
        TEST(test_threads_lose_neither_records_nor_bells),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
