/* SPDX-License-Identifier: Apache-2.0 */
/*
 * real_loop.c - the NVMe tier over the runtime's loops, io_uring and epoll, with registered buffers: random runs in
 * flight at once, every page checked.
 */
#include "base/error.h"
#include "base/os.h"
#include "runtime/loop.h"
#include "tests/unit/tiers/check.h"
#include "tiers/tier.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#define FLIGHTS   32u
#define ROUNDS    200u
#define RUN_PAGES 16u

struct flight {
    struct tier_transfer transfer;
    struct test *test;
    uint64_t number; /* of the first page's contents; 0: this flight holds no slots */
};

struct test {
    struct loop *loop;
    struct tier *tier;
    struct tier_buffers *buffers;
    struct random random;
    struct flight flights[FLIGHTS];
    unsigned inflight;
    uint64_t next_number;
};

static void flight_done(struct tier_transfer *transfer, int result)
{
    struct flight *flight = transfer->context;

    assert_int_equal(result, 0);
    flight->test->inflight--;
    for (unsigned i = 0; !transfer->is_write && i < transfer->pages_count; i++)
        page_check((char *)transfer->memory + i * PAGE_BYTES, flight->number + i);
    tier_buffers_put(flight->test->buffers, transfer->memory, transfer->pages_count);
    if (transfer->is_write)
        return;
    for (unsigned i = 0; i < transfer->pages_count; i++)
        tier_put(flight->test->tier, (struct tier_slot){transfer->first.index + i});
    flight->number = 0;
}

/* Writes a run when the flight holds none, else reads it back and gives the slots up. */
static void flight_start(struct test *test, struct flight *flight)
{
    struct tier_transfer *transfer = &flight->transfer;
    bool is_write = flight->number == 0;

    if (is_write) {
        transfer->pages_count = tier_take(test->tier, 1 + random_below(&test->random, RUN_PAGES), &transfer->first);
        flight->number = test->next_number;
        test->next_number += transfer->pages_count;
    }
    transfer->memory = tier_buffers_take(test->buffers, transfer->pages_count);
    assert_non_null(transfer->memory);
    for (unsigned i = 0; i < transfer->pages_count; i++)
        page_fill((char *)transfer->memory + i * PAGE_BYTES, is_write ? flight->number + i : 0);
    transfer->is_write = is_write;
    transfer->done = flight_done;
    transfer->context = flight;
    flight->test = test;
    test->inflight++;
    tier_transfer_start(test->tier, transfer);
}

static void loop_wait(struct test *test)
{
    uint64_t limit_ns = os_now_ns() + 20000000000u;

    while (test->inflight > 0) {
        (void)loop_run_once(test->loop, limit_ns);
        assert_true(os_now_ns() < limit_ns);
    }
}

static void pages_survive_over(const char *kind)
{
    static struct test test;
    struct tier_counters counters;
    int result = loop_create(kind, &test.loop);

    if (result == -EPERM || result == -ENOSYS)
        skip();
    assert_int_equal(result, 0);
    test.random = (struct random){1};
    test.next_number = 1;
    assert_int_equal(tier_nvme_open(test.loop, ".", 4 << 20, &test.tier), 0);
    assert_int_equal(tier_buffers_create(test.loop, FLIGHTS * RUN_PAGES * 2, &test.buffers), 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < FLIGHTS; i++) {
            if (random_below(&test.random, 2) == 0)
                flight_start(&test, &test.flights[i]);
        }
        loop_wait(&test);
    }
    for (unsigned i = 0; i < FLIGHTS; i++) {
        if (test.flights[i].number != 0)
            flight_start(&test, &test.flights[i]);
    }
    loop_wait(&test);
    tier_counters_get(test.tier, &counters);
    assert_int_equal(counters.slots_used, 0);
    assert_int_equal(counters.pages_read, counters.pages_written);
    assert_true(counters.pages_read > ROUNDS * FLIGHTS);
    tier_buffers_destroy(test.buffers);
    tier_close(test.tier);
    loop_destroy(test.loop);
}

static void pages_survive_over_io_uring(void **state)
{
    (void)state;
    pages_survive_over("io_uring");
}

static void pages_survive_over_epoll(void **state)
{
    (void)state;
    pages_survive_over("epoll");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_survive_over_io_uring),
        cmocka_unit_test(pages_survive_over_epoll),
    };
    struct statfs about;

    if (statfs(".", &about) < 0 || about.f_type == TMPFS_MAGIC)
        return 77; /* nothing to test on */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
