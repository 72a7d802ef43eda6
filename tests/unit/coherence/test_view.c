/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_view.c - what a death does to pages, at every point of a transaction: V2 .. V5.
 */
#include "world.h"

/* V2: what the dead owned alone is lost, and said to be, never zeroes. */
static void test_dead_owners_page_is_poisoned(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 1, page, 5);
    world_kill(world, 1);
    fault(world, 2, page, ACCESS_READ, 1);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], -EIO);
    assert_true(is_poisoned(world, 2, page));
    world_end(world);
}

/* V3: a dead sharer's ack is not waited for. */
static void test_dead_sharer_is_not_waited_for(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 0, page, 5);
    (void)get(world, 1, page);
    fault(world, 2, page, ACCESS_WRITE, 1);
    world_deliver_type(world, MESSAGE_GET_EXCLUSIVE);
    world_kill(world, 1);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], 0);
    assert_true(*word(world, 2, page) == 5);
    world_end(world);
}

/* V2: the owner dies before or after its data left, for a reader and for a writer. */
static void owner_dies(enum access access, bool has_data_arrived, bool has_report_arrived)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);
    int result;

    put(world, 1, page, 5);
    fault(world, 2, page, access, 1);
    world_deliver(world, 0);
    world_deliver(world, 0); /* the recall: data and report are under way */
    if (has_data_arrived)
        world_deliver_type(world, MESSAGE_DATA);
    if (has_report_arrived)
        world_deliver_type(world, access == ACCESS_WRITE ? MESSAGE_RECALLED : MESSAGE_WRITE_BACK);
    world_kill(world, 1);
    world_run(world);
    result = world->nodes[2].results[1];
    assert_int_equal(directory(world, page)->busy, 0);
    if (has_data_arrived || (access == ACCESS_READ && has_report_arrived)) {
        assert_int_equal(result, 0);
        assert_true(*word(world, 2, page) == 5);
        assert_true(get(world, 3, page) == 5);
    } else {
        assert_int_equal(result, -EIO);
        fault(world, 3, page, ACCESS_READ, 1);
        world_run(world);
        assert_int_equal(world->nodes[3].results[1], -EIO);
    }
    world_end(world);
}

static void test_owner_dies_during_a_transfer(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 8; i++)
        owner_dies((i & 1) != 0 ? ACCESS_WRITE : ACCESS_READ, (i & 2) != 0, (i & 4) != 0);
}

/* V4: the requester dies; what it may have had alone is lost, the rest is not. */
static void requester_dies(enum access access, unsigned deliveries)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);
    bool may_have_written;

    put(world, 1, page, 5);
    fault(world, 2, page, access, 1);
    for (unsigned i = 0; i < deliveries && world->count > 0; i++)
        world_deliver(world, 0);
    may_have_written = access == ACCESS_WRITE && deliveries >= 2;
    world_kill(world, 2);
    world_run(world);
    assert_int_equal(directory(world, page)->busy, 0);
    fault(world, 3, page, ACCESS_READ, 1);
    world_run(world);
    assert_int_equal(world->nodes[3].results[1], may_have_written ? -EIO : 0);
    if (!may_have_written)
        assert_true(*word(world, 3, page) == 5);
    world_end(world);
}

static void test_requester_dies_during_a_transfer(void **state)
{
    (void)state;
    for (unsigned deliveries = 0; deliveries < 6; deliveries++) {
        requester_dies(ACCESS_READ, deliveries);
        requester_dies(ACCESS_WRITE, deliveries);
    }
}

/* V4: the same with the bytes at home. */
static void test_requester_dies_after_the_grant(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0), other = page_at(0, 1);

    (void)state;
    put(world, 0, page, 5);
    put(world, 0, other, 6);
    fault(world, 1, page, ACCESS_READ, 1);
    fault(world, 1, other, ACCESS_WRITE, 2);
    world_deliver(world, 0);
    world_deliver(world, 0);
    world_kill(world, 1);
    assert_true(get(world, 2, page) == 5);
    fault(world, 2, other, ACCESS_READ, 1);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], -EIO);
    world_end(world);
}

/* V5: everything asked of a dead home ends; what is here stays. */
static void test_dead_home_ends_requests(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0), other = page_at(0, 1);

    (void)state;
    put(world, 1, page, 5);
    fault(world, 1, other, ACCESS_READ, 1);
    assert_int_equal(coherence_atomic(at(world, 1), other, 0, ATOMIC_ADD, 1, 0, 2, 0), 0);
    assert_int_equal(coherence_evict(at(world, 1), page, 3, 0), 0);
    world_kill(world, 0);
    world_run(world);
    for (uint64_t token = 1; token < 4; token++) {
        assert_int_equal(world->nodes[1].results[token], -EHOSTDOWN);
        assert_int_equal(world->nodes[1].dones[token], 1);
    }
    assert_true(is_poisoned(world, 1, other));
    assert_int_equal(rights(world, 1, page), ACCESS_WRITE);
    assert_false(is_poisoned(world, 1, page));
    fault(world, 2, page, ACCESS_READ, 4);
    assert_int_equal(world->nodes[2].results[4], -EHOSTDOWN);
    assert_true(is_poisoned(world, 2, page));
    world_end(world);
}

/* V5: a recall that waited for a pin is forgotten with its home, and the rights come back. */
static void test_recall_of_a_dead_home_is_forgotten(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 1, page, 5);
    pin(world, 1, page, true);
    fault(world, 2, page, ACCESS_WRITE, 1);
    world_run(world);
    world_kill(world, 0);
    unpin(world, 1, page, ACCESS_NONE);
    assert_int_equal(rights(world, 1, page), ACCESS_WRITE);
    assert_true(*word(world, 1, page) == 5);
    assert_int_equal(world->count, 0);
    world_end(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dead_owners_page_is_poisoned),
        cmocka_unit_test(test_dead_sharer_is_not_waited_for),
        cmocka_unit_test(test_owner_dies_during_a_transfer),
        cmocka_unit_test(test_requester_dies_during_a_transfer),
        cmocka_unit_test(test_requester_dies_after_the_grant),
        cmocka_unit_test(test_dead_home_ends_requests),
        cmocka_unit_test(test_recall_of_a_dead_home_is_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
