/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_home.c - the home's decisions: who gets a page, when, and with which bytes.
 */
#include "world.h"

/* P1, P5: the writer is alone, and only after every reader acked. */
static void test_grant_waits_for_all_acks(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    (void)get(world, 1, page);
    (void)get(world, 2, page);
    fault(world, 3, page, ACCESS_WRITE, 1);
    world_deliver_type(world, MESSAGE_GET_EXCLUSIVE);
    assert_int_equal(world_count(world, MESSAGE_INVALIDATE), 2);
    world_deliver_type(world, MESSAGE_INVALIDATE);
    world_deliver_type(world, MESSAGE_INVALIDATED);
    assert_int_equal(world_count(world, MESSAGE_GRANT), 0);
    assert_int_equal(world->nodes[3].results[1], NONE);
    world_run(world);
    assert_int_equal(world->nodes[3].results[1], 0);
    assert_int_equal(rights(world, 1, page), ACCESS_NONE);
    assert_int_equal(rights(world, 2, page), ACCESS_NONE);
    assert_int_equal(directory(world, page)->owner, 4);
    assert_true(directory(world, page)->sharers == 0);
    world_end(world);
}

/* P2, P8: the second waits until the first has confirmed; a third comes after it. */
static void test_requests_are_served_in_order_of_arrival(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    for (unsigned node = 1; node < NODES; node++)
        fault(world, node, page, ACCESS_WRITE, 1);
    for (unsigned node = 1; node < NODES; node++)
        world_deliver_type(world, MESSAGE_GET_EXCLUSIVE);
    assert_int_equal(world->count, 1); /* the grant to node 1 */
    world_deliver_type(world, MESSAGE_GRANT);
    assert_int_equal(world->nodes[1].results[1], 0);
    assert_int_equal(world_count(world, MESSAGE_RECALL_EXCLUSIVE), 0);
    world_deliver_type(world, MESSAGE_CONFIRM);
    assert_int_equal(world->queue[world_find(world, MESSAGE_RECALL_EXCLUSIVE)].message.requester.index, 2);
    world_run(world);
    assert_int_equal(directory(world, page)->owner, 4);
    assert_int_equal(directory(world, page)->busy, 0);
    world_end(world);
}

/* P8: with the bytes on their way from owner to requester, both must speak before the next is served. */
static void test_home_waits_for_confirm_and_report(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 1, page, 7);
    fault(world, 2, page, ACCESS_WRITE, 1);
    world_deliver_type(world, MESSAGE_GET_EXCLUSIVE);
    world_deliver_type(world, MESSAGE_RECALL_EXCLUSIVE);
    world_deliver_type(world, MESSAGE_DATA);
    world_deliver_type(world, MESSAGE_CONFIRM); /* before the report of the last owner */
    assert_int_not_equal(directory(world, page)->busy, 0);
    world_deliver_type(world, MESSAGE_RECALLED);
    assert_int_equal(directory(world, page)->busy, 0);
    assert_int_equal(directory(world, page)->owner, 3);
    assert_true(*word(world, 2, page) == 7);
    world_end(world);
}

/* P4: what nobody could write travels as a flag; afterwards readers get the store's bytes. */
static void test_untouched_page_is_granted_as_zero(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    fault(world, 1, page, ACCESS_READ, 1);
    world_deliver_type(world, MESSAGE_GET_SHARED);
    assert_int_equal(world->queue[0].message.flags, MESSAGE_ZERO);
    assert_false(world->queue[0].has_word);
    world_run(world);
    put(world, 0, page, 9);
    fault(world, 1, page, ACCESS_READ, 1);
    world_deliver_type(world, MESSAGE_GET_SHARED);
    assert_true(world->queue[0].has_word);
    world_run(world);
    assert_true(*word(world, 1, page) == 9);
    world_end(world);
}

/* P4: zeroes replace what a node had of the page before it was forgotten everywhere. */
static void test_zero_grant_replaces_old_bytes(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    (void)get(world, 1, page);
    assert_int_equal(coherence_evict(at(world, 1), page, 2, 0), 0);
    assert_true(*word(world, 1, page) == 0xdead);
    assert_true(get(world, 1, page) == 0);
    world_end(world);
}

/* P10: alone at home nothing is sent, and reading gives the right to write. */
static void test_home_alone_needs_no_message(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(2, 1);

    (void)state;
    fault(world, 2, page, ACCESS_READ, 1);
    assert_int_equal(world->nodes[2].results[1], 0);
    assert_int_equal(rights(world, 2, page), ACCESS_WRITE);
    assert_int_equal(world->count, 0);
    assert_int_equal(directory(world, page)->owner, 3);
    world_end(world);
}

/* P10: with a reader elsewhere the home shares, and its upgrade invalidates. */
static void test_home_shares_and_upgrades(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    (void)get(world, 1, page);
    touch(world, 0, page, ACCESS_READ);
    assert_int_equal(rights(world, 0, page), ACCESS_READ);
    touch(world, 0, page, ACCESS_WRITE);
    assert_int_equal(rights(world, 0, page), ACCESS_WRITE);
    assert_int_equal(rights(world, 1, page), ACCESS_NONE);
    world_end(world);
}

/* P1: values follow the right to write through every node and back. */
static void test_last_write_is_read_everywhere(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(1, 1);

    (void)state;
    for (unsigned round = 1; round < 40; round++) {
        put(world, round * 7 % NODES, page, round);
        for (unsigned node = 0; node < (round * 3) % (NODES + 1); node++)
            assert_true(get(world, node, page) == round);
    }
    world_end(world);
}

/* P17: bytes lost at home poison the page for all who ask; whoever shares keeps his copy. */
static void test_lost_page_is_poisoned(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 0, page, 5);
    (void)get(world, 1, page);
    coherence_lost(at(world, 0), page, "test", 0);
    assert_true(is_poisoned(world, 0, page));
    assert_int_equal(rights(world, 1, page), ACCESS_READ);
    fault(world, 2, page, ACCESS_READ, 1);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], -EIO);
    assert_true(is_poisoned(world, 2, page));
    fault(world, 0, page, ACCESS_READ, 1);
    assert_int_equal(world->nodes[0].results[1], -EIO);
    world_end(world);
}

/* P17: the bytes cannot be read when they are to be sent: the requester is not left waiting. */
static void test_unreadable_store_ends_the_request(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 0, page, 5);
    world->nodes[0].is_store_broken = true;
    fault(world, 1, page, ACCESS_WRITE, 1);
    world_run(world);
    assert_int_equal(world->nodes[1].results[1], -EIO);
    assert_int_equal(directory(world, page)->flags & HOME_POISONED, HOME_POISONED);
    assert_int_equal(directory(world, page)->busy, 0);
    world_end(world);
}

/* P17: an owner that lost the bytes says so when it is recalled; a sharer fetches its copy again. */
static void test_owner_that_lost_bytes_poisons_sharer_does_not(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0), other = page_at(0, 1);

    (void)state;
    put(world, 1, page, 5);
    coherence_lost(at(world, 1), page, "test", 0);
    fault(world, 2, page, ACCESS_READ, 1);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], -EIO);
    put(world, 0, other, 6);
    (void)get(world, 1, other);
    coherence_lost(at(world, 1), other, "test", 0);
    assert_true(get(world, 1, other) == 6);
    world_end(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grant_waits_for_all_acks),
        cmocka_unit_test(test_requests_are_served_in_order_of_arrival),
        cmocka_unit_test(test_home_waits_for_confirm_and_report),
        cmocka_unit_test(test_untouched_page_is_granted_as_zero),
        cmocka_unit_test(test_zero_grant_replaces_old_bytes),
        cmocka_unit_test(test_home_alone_needs_no_message),
        cmocka_unit_test(test_home_shares_and_upgrades),
        cmocka_unit_test(test_last_write_is_read_everywhere),
        cmocka_unit_test(test_lost_page_is_poisoned),
        cmocka_unit_test(test_unreadable_store_ends_the_request),
        cmocka_unit_test(test_owner_that_lost_bytes_poisons_sharer_does_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
