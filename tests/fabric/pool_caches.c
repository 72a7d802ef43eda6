/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_caches.c - a ring between two hosts whose caches do not know of each other, which no machine here is.
 *
 * Each host has a copy of the memory for its caches. What it stores reaches the memory when it writes back, or at any
 * time before; what it loads is as old as its last drop, or newer. So a write-back or a drop that is missing in
 * pool_ring.c or pool_line.c, or comes too late, shows as stale bytes: pool_memory.c is replaced by the two below.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "fabric/pool_ring.h"

#include <errno.h>
#include <string.h>

#define CAPACITY_BYTES ((size_t)320 * 1024)
#define LINES          (2 + CAPACITY_BYTES / POOL_LINE_BYTES)
#define BY_CHANCE      40 /* lines that go to the memory, or come from there, for no reason */
#define MESSAGES       20000
#define SIZE_MAX_BYTES 5000
#define OVERHANG_BYTES 8

enum { PRODUCER = 0, CONSUMER = 1, HOSTS = 2, LINE_TAIL = 0, LINE_HEAD = 1, LINE_RING = 2 };

struct line {
    _Alignas(POOL_LINE_BYTES) uint8_t bytes[POOL_LINE_BYTES];
};

static struct {
    struct line memory[LINES];
    struct line caches[HOSTS][LINES];
    struct random random;
    bool is_quiet; /* nothing by chance */
} machine;

static unsigned owner_of(size_t line)
{
    return line == LINE_HEAD ? CONSUMER : PRODUCER;
}

static void line_exchange(unsigned host, size_t line)
{
    if (owner_of(line) == host)
        machine.memory[line] = machine.caches[host][line];
    else
        machine.caches[host][line] = machine.memory[line];
}

static void lines_exchange(const void *memory, size_t size_bytes)
{
    size_t at = (size_t)((const uint8_t *)memory - (const uint8_t *)machine.caches);
    size_t last = (at + size_bytes - 1) / POOL_LINE_BYTES;

    for (size_t i = at / POOL_LINE_BYTES; i <= last; i++)
        line_exchange((unsigned)(i / LINES), i % LINES);
}

static void exchange_by_chance(void)
{
    for (int i = 0; i < BY_CHANCE && !machine.is_quiet; i++)
        line_exchange(random_below(&machine.random, HOSTS), random_below(&machine.random, LINES));
    if (!machine.is_quiet)
        line_exchange(random_below(&machine.random, HOSTS), random_below(&machine.random, LINE_RING));
}

void pool_write_back(const void *memory, size_t size_bytes)
{
    exchange_by_chance();
    lines_exchange(memory, size_bytes);
}

void pool_drop(const void *memory, size_t size_bytes)
{
    exchange_by_chance();
    lines_exchange(memory, size_bytes);
}

static struct pool_ring ring_of(unsigned host)
{
    struct line *cache = machine.caches[host];
    struct pool_line *tail = (struct pool_line *)(void *)&cache[LINE_TAIL];
    struct pool_line *head = (struct pool_line *)(void *)&cache[LINE_HEAD];

    return (struct pool_ring){
        .bytes = cache[LINE_RING].bytes,
        .capacity_bytes = CAPACITY_BYTES,
        .session = 4711,
        .own = host == PRODUCER ? tail : head,
        .other = host == PRODUCER ? head : tail,
    };
}

static size_t message_make(uint64_t number, uint8_t *bytes)
{
    struct random random = {number};
    size_t size = 1 + random_below(&random, SIZE_MAX_BYTES);

    for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
        uint64_t word = random_next(&random);

        memcpy(bytes + i, &word, sizeof(word));
    }
    return size;
}

static uint64_t some_put(struct pool_ring *ring, uint64_t number)
{
    static uint8_t bytes[SIZE_MAX_BYTES + OVERHANG_BYTES];
    unsigned most = random_below(&machine.random, 100);

    for (unsigned i = 0; i < most; i++) {
        struct iovec part = {bytes, message_make(number, bytes)};
        int result = pool_ring_put(ring, &part, 1);

        if (result == -EAGAIN)
            break;
        assert_int_equal(result, 0);
        number++;
    }
    pool_ring_commit(ring);
    return number;
}

static uint64_t some_taken(struct pool_ring *ring, uint64_t number)
{
    static uint8_t bytes[FABRIC_MESSAGE_MAX], wanted[SIZE_MAX_BYTES + OVERHANG_BYTES];
    unsigned most = random_below(&machine.random, 100);

    for (unsigned i = 0; i < most; i++) {
        int size = pool_ring_take(ring, bytes);

        if (size == 0)
            break;
        assert_int_equal(size, message_make(number, wanted));
        assert_memory_equal(bytes, wanted, (size_t)size);
        number++;
    }
    pool_ring_commit(ring);
    return number;
}

static void messages_pass_between_caches_that_know_nothing_of_each_other(void **state)
{
    struct pool_ring producer = ring_of(PRODUCER), consumer = ring_of(CONSUMER);
    uint64_t put = 0, taken = 0;

    (void)state;
    machine.random.state = 5;
    pool_ring_init(&producer);
    pool_ring_init(&consumer);
    for (unsigned round = 0; taken < MESSAGES && round < MESSAGES; round++) {
        put = some_put(&producer, put);
        taken = some_taken(&consumer, taken);
        assert_true(taken <= put);
    }
    assert_true(taken >= MESSAGES);
    assert_true(producer.position > 20 * CAPACITY_BYTES);
}

/* Nothing may depend on lines that happen to leave a cache. */
static void what_was_told_is_seen_at_once(void **state)
{
    struct pool_ring producer = ring_of(PRODUCER), consumer = ring_of(CONSUMER);
    uint64_t put = 0, taken = 0;

    (void)state;
    memset(&machine, 0, sizeof(machine));
    machine.is_quiet = true;
    pool_ring_init(&producer);
    pool_ring_init(&consumer);
    while (put < MESSAGES / 2) {
        put = some_put(&producer, put);
        for (int tries = 0; taken < put && tries < 100; tries++)
            taken = some_taken(&consumer, taken);
        assert_int_equal(taken, put);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_pass_between_caches_that_know_nothing_of_each_other),
        cmocka_unit_test(what_was_told_is_seen_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
