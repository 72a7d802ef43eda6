/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_admit.c - messages that are late, repeated, or should not have been sent: P3, P14, P15, P18.
 */
#include "world.h"

/* P3, P15: every message of a busy exchange delivered twice; nothing changes but the counters. */
static void test_every_message_twice(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);
    uint64_t stale = 0;

    (void)state;
    for (unsigned round = 1; round <= 12; round++) {
        unsigned node = round % NODES;

        fault(world, node, page, round % 3 == 0 ? ACCESS_READ : ACCESS_WRITE, 1);
        while (world->count > 0) {
            struct queued queued = world_pick(world, 0);

            world_hand_over(world, &queued);
            world_hand_over(world, &queued);
        }
        assert_int_equal(world->nodes[node].results[1], 0);
        if (rights(world, node, page) == ACCESS_WRITE)
            *word(world, node, page) = round;
    }
    for (unsigned node = 0; node < NODES; node++)
        stale += counter_stale(world, node);
    assert_true(stale > 12);
    assert_true(get(world, 2, page) == 11 || get(world, 2, page) == 12);
    assert_int_equal(directory(world, page)->busy, 0);
    world_end(world);
}

/* P3: the answer of an earlier transaction does not count for the one in service. */
static void test_ack_of_an_earlier_transaction_is_ignored(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);
    struct queued ack;

    (void)state;
    (void)get(world, 1, page);
    fault(world, 2, page, ACCESS_WRITE, 1);
    world_deliver_type(world, MESSAGE_GET_EXCLUSIVE);
    world_deliver_type(world, MESSAGE_INVALIDATE);
    ack = world->queue[world_find(world, MESSAGE_INVALIDATED)];
    world_run(world);
    (void)get(world, 1, page);
    fault(world, 3, page, ACCESS_WRITE, 1);
    world_deliver_type(world, MESSAGE_GET_EXCLUSIVE);
    world_hand_over(world, &ack);
    assert_int_equal(world_count(world, MESSAGE_GRANT), 0);
    assert_int_equal(counter_stale(world, 0), 1);
    world_run(world);
    assert_int_equal(world->nodes[3].results[1], 0);
    world_end(world);
}

/* P15: a recall of an earlier transaction does not take the page that came with a later one. */
static void test_repeated_recall_is_ignored(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);
    struct queued recall;

    (void)state;
    put(world, 1, page, 5);
    fault(world, 2, page, ACCESS_WRITE, 1);
    world_deliver_type(world, MESSAGE_GET_EXCLUSIVE);
    recall = world->queue[world_find(world, MESSAGE_RECALL_EXCLUSIVE)];
    world_run(world);
    put(world, 1, page, 6);
    world_hand_over(world, &recall);
    assert_int_equal(world->count, 0);
    assert_int_equal(rights(world, 1, page), ACCESS_WRITE);
    assert_true(counter_stale(world, 1) > 0);
    world_end(world);
}

static struct queued forged(uint8_t type, unsigned from, unsigned to, struct page_id page)
{
    return (struct queued){.message = {.type = type,
                                       .from = node_of(from),
                                       .requester = node_of(from),
                                       .epoch = {1},
                                       .page = page,
                                       .sequence = 1,
                                       .c = UINT64_C(1) << MESSAGE_SERIAL_SHIFT},
                           .to = (uint16_t)to};
}

/* P14: a slot that is still in service takes no second request; one outside the pool is refused. */
static void test_requests_beyond_credit_are_refused(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);
    struct queued request = forged(MESSAGE_GET_SHARED, 1, 0, page);

    (void)state;
    world_hand_over(world, &request);
    assert_int_equal(world_count(world, MESSAGE_GRANT), 1);
    request.message.c = UINT64_C(2) << MESSAGE_SERIAL_SHIFT;
    world_hand_over(world, &request);
    assert_int_equal(world->queue[world_find(world, MESSAGE_NACK)].message.a, EAGAIN);
    assert_int_equal(counter_bad(world, 0), 1);
    request.message.request = REQUESTS;
    request.message.c = UINT64_C(3) << MESSAGE_SERIAL_SHIFT;
    world_hand_over(world, &request);
    assert_int_equal(counter_bad(world, 0), 2);
    world_end(world);
}

/* P18: rights are taken only by the home, answers only from whom was asked. */
static void test_strangers_are_not_believed(void **state)
{
    static const uint8_t from_home[] = {MESSAGE_INVALIDATE, MESSAGE_RECALL_SHARED, MESSAGE_RECALL_EXCLUSIVE,
                                        MESSAGE_GRANT};
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);
    struct queued message;

    (void)state;
    put(world, 1, page, 5);
    for (unsigned i = 0; i < ARRAY_COUNT(from_home); i++) {
        message = forged(from_home[i], 2, 1, page);
        message.message.sequence = 100;
        world_hand_over(world, &message);
        assert_int_equal(counter_bad(world, 1), i + 1);
    }
    assert_int_equal(rights(world, 1, page), ACCESS_WRITE);
    message = forged(MESSAGE_GET_SHARED, 2, 0, page);
    message.message.requester = node_of(3);
    world_hand_over(world, &message);
    message = forged(MESSAGE_GET_SHARED, 2, 3, page); /* not its home */
    world_hand_over(world, &message);
    assert_int_equal(counter_bad(world, 0), 1);
    assert_int_equal(counter_bad(world, 3), 1);
    message = forged(MESSAGE_GRANT, 1, 0, page); /* the home's own halves talk by calls */
    world_hand_over(world, &message);
    assert_int_equal(counter_bad(world, 0), 2);
    world_end(world);
}

/* V1: nodes outside the view, and members under another's name, are refused. */
static void test_only_members_are_heard(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);
    struct queued message = forged(MESSAGE_GET_SHARED, 1, 0, page);

    (void)state;
    coherence_receive(at(world, 0), node_of(2), &message.message, 0);
    assert_int_equal(counter_bad(world, 0), 1);
    message.message.epoch.number = 0; /* from before it joined */
    world_hand_over(world, &message);
    assert_int_equal(counter_bad(world, 0), 2);
    message.message.epoch.number = 7; /* it knows of a later view already */
    world_hand_over(world, &message);
    assert_int_equal(world_count(world, MESSAGE_GRANT), 1);
    world_kill(world, 1);
    message.message.epoch.number = 2;
    world_hand_over(world, &message);
    assert_int_equal(counter_bad(world, 0), 3);
    world_end(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_message_twice),
        cmocka_unit_test(test_ack_of_an_earlier_transaction_is_ignored),
        cmocka_unit_test(test_repeated_recall_is_ignored),
        cmocka_unit_test(test_requests_beyond_credit_are_refused),
        cmocka_unit_test(test_strangers_are_not_believed),
        cmocka_unit_test(test_only_members_are_heard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
