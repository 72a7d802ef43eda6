/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_holder.c - what a node does when its rights are wanted back: order, pins, hold.
 */
#include "world.h"

/* P6: the owner sends the bytes to the requester itself, after its own threads lost the right to write. */
static void test_owner_sends_to_the_requester(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);
    unsigned data;

    (void)state;
    put(world, 1, page, 7);
    fault(world, 2, page, ACCESS_WRITE, 1);
    world_deliver_type(world, MESSAGE_GET_EXCLUSIVE);
    world_deliver_type(world, MESSAGE_RECALL_EXCLUSIVE);
    assert_int_equal(rights(world, 1, page), ACCESS_NONE);
    data = world_find(world, MESSAGE_DATA);
    assert_int_equal(world->queue[data].to, 2);
    assert_true(world->queue[data].word == 7);
    assert_false(world->queue[world_find(world, MESSAGE_RECALLED)].has_word);
    world_run(world);
    assert_true(*word(world, 2, page) == 7);
    world_end(world);
}

/* P7: a downgrade brings the bytes home too, so that the next reader is served from there. */
static void test_downgrade_writes_back(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 1, page, 7);
    assert_true(get(world, 2, page) == 7);
    assert_int_equal(rights(world, 1, page), ACCESS_READ);
    assert_true(*word(world, 0, page) == 7);
    assert_true(directory(world, page)->sharers == 6 && directory(world, page)->owner == 0);
    fault(world, 3, page, ACCESS_READ, 1);
    world_deliver_type(world, MESSAGE_GET_SHARED);
    assert_int_equal(world->queue[0].message.type, MESSAGE_GRANT);
    world_run(world);
    assert_true(*word(world, 3, page) == 7);
    world_end(world);
}

/* P7: the home as requester gets the bytes once. */
static void test_home_fetches_with_one_message(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 1, page, 8);
    fault(world, 0, page, ACCESS_WRITE, 1);
    world_deliver_type(world, MESSAGE_RECALL_EXCLUSIVE);
    assert_int_equal(world->count, 1);
    assert_int_equal(world->queue[0].message.type, MESSAGE_WRITE_BACK);
    world_run(world);
    assert_int_equal(world->nodes[0].results[1], 0);
    assert_true(*word(world, 0, page) == 8);
    world_end(world);
}

/* P11: pinned pages answer when the pin ends, at the owner and at the home. */
static void test_pinned_page_answers_later(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    for (unsigned owner = 0; owner < 2; owner++) {
        put(world, owner, page, 7 + owner);
        pin(world, owner, page, true);
        fault(world, 2, page, ACCESS_WRITE, 1);
        world_run(world);
        assert_int_equal(world->nodes[2].results[1], NONE);
        assert_int_equal(rights(world, owner, page), ACCESS_WRITE);
        unpin(world, owner, page, ACCESS_NONE);
        world_run(world);
        assert_int_equal(world->nodes[2].results[1], 0);
        assert_true(*word(world, 2, page) == 7 + owner);
    }
    world_end(world);
}

/* P11: a fault while the rights are going down waits for them to come again. */
static void test_fault_during_recall_of_a_pinned_page(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 1, page, 7);
    pin(world, 1, page, true);
    fault(world, 2, page, ACCESS_WRITE, 1);
    world_run(world);
    fault(world, 1, page, ACCESS_WRITE, 2);
    world_run(world);
    assert_int_equal(world->nodes[1].results[2], NONE);
    unpin(world, 1, page, ACCESS_NONE);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], 0);
    assert_int_equal(world->nodes[1].results[2], 0);
    assert_int_equal(directory(world, page)->owner, 2);
    world_end(world);
}

/* P12: a recall right after the grant waits for the hold; the tick does it. */
static void test_granted_page_is_held(void **state)
{
    struct world *world = world_start_holding(50000);
    struct page_id page = page_at(0, 0);
    uint64_t deadline_ns;

    (void)state;
    put(world, 1, page, 7);
    fault(world, 2, page, ACCESS_WRITE, 1);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], NONE);
    assert_int_equal(rights(world, 1, page), ACCESS_WRITE);
    deadline_ns = coherence_deadline_ns(at(world, 1));
    assert_true(deadline_ns >= world->now_ns + 50000 && deadline_ns <= world->now_ns + 100001);
    world->now_ns = deadline_ns - 1;
    coherence_tick(at(world, 1), world->now_ns);
    assert_int_equal(world->count, 0);
    world->now_ns = deadline_ns;
    coherence_tick(at(world, 1), world->now_ns);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], 0);
    assert_true(coherence_deadline_ns(at(world, 1)) == UINT64_MAX);
    world_end(world);
}

/* P12: the hold doubles for a thread that comes back soon, up to its maximum. */
static void test_hold_doubles_on_refault(void **state)
{
    struct world *world = world_start_holding(1000);
    struct page_id page = page_at(0, 0);
    uint64_t longest_ns = 0;

    (void)state;
    for (unsigned round = 0; round < 24; round++) {
        unsigned node = 1 + round % 2;

        fault(world, node, page, ACCESS_WRITE, node);
        for (unsigned other = 1; other < 3; other++) {
            world_run(world);
            if (coherence_deadline_ns(at(world, other)) == UINT64_MAX)
                continue;
            if (coherence_deadline_ns(at(world, other)) - world->now_ns > longest_ns)
                longest_ns = coherence_deadline_ns(at(world, other)) - world->now_ns;
            world->now_ns = coherence_deadline_ns(at(world, other));
            coherence_tick(at(world, other), world->now_ns);
            world_run(world);
        }
        assert_int_equal(world->nodes[node].results[node], 0);
    }
    assert_true(longest_ns >= 8000 && longest_ns <= 16001);
    world_end(world);
}

/* P12: the home's own threads are held too, and a prefetched page is not. */
static void test_hold_at_home_and_not_for_prefetch(void **state)
{
    struct world *world = world_start_holding(50000);
    struct page_id page = page_at(0, 0), other = page_at(0, 1);

    (void)state;
    touch(world, 0, page, ACCESS_WRITE);
    fault(world, 1, page, ACCESS_WRITE, 1);
    world_run(world);
    assert_int_equal(world->nodes[1].results[1], NONE);
    world->now_ns = coherence_deadline_ns(at(world, 0));
    coherence_tick(at(world, 0), world->now_ns);
    world_run(world);
    assert_int_equal(world->nodes[1].results[1], 0);
    assert_int_equal(coherence_fault(at(world, 2), other, ACCESS_WRITE, 2, 2, true, world->now_ns), 0);
    world_run(world);
    assert_int_equal(world->nodes[2].results[2], 0);
    touch(world, 3, other, ACCESS_WRITE);
    world_end(world);
}

/* P13: a sharer that forgot its copy acks all the same. */
static void test_forgotten_copy_is_acked(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    (void)get(world, 1, page);
    assert_int_equal(coherence_evict(at(world, 1), page, 2, 0), 0);
    assert_int_equal(world->nodes[1].results[2], 0);
    assert_int_equal(world->count, 0);
    assert_true(directory(world, page)->sharers == 2);
    touch(world, 2, page, ACCESS_WRITE);
    world_end(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owner_sends_to_the_requester),
        cmocka_unit_test(test_downgrade_writes_back),
        cmocka_unit_test(test_home_fetches_with_one_message),
        cmocka_unit_test(test_pinned_page_answers_later),
        cmocka_unit_test(test_fault_during_recall_of_a_pinned_page),
        cmocka_unit_test(test_granted_page_is_held),
        cmocka_unit_test(test_hold_doubles_on_refault),
        cmocka_unit_test(test_hold_at_home_and_not_for_prefetch),
        cmocka_unit_test(test_forgotten_copy_is_acked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
