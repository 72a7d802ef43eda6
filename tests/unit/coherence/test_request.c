/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_request.c - what this node asks: joining, upgrades, eviction, bounds, prefetch.
 */
#include "world.h"

/* P9: a sharer's upgrade moves no bytes. */
static void test_upgrade_is_without_bytes(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 0, page, 3);
    (void)get(world, 1, page);
    fault(world, 1, page, ACCESS_WRITE, 1);
    world_deliver_type(world, MESSAGE_GET_EXCLUSIVE);
    assert_int_equal(world->queue[0].message.type, MESSAGE_GRANT);
    assert_false(world->queue[0].has_word);
    assert_int_equal(world->queue[0].message.flags, 0);
    world_run(world);
    assert_true(*word(world, 1, page) == 3);
    assert_int_equal(rights(world, 1, page), ACCESS_WRITE);
    world_end(world);
}

/* P9: two upgrade at once: the second has lost its copy when its turn comes, and gets the first's bytes. */
static void test_lost_race_of_upgrades_gets_bytes(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 0, page, 3);
    (void)get(world, 1, page);
    (void)get(world, 2, page);
    fault(world, 1, page, ACCESS_WRITE, 1);
    fault(world, 2, page, ACCESS_WRITE, 1);
    world_run(world);
    assert_int_equal(world->nodes[1].results[1], 0);
    assert_int_equal(world->nodes[2].results[1], 0);
    assert_int_equal(directory(world, page)->owner, 3);
    assert_true(*word(world, 2, page) == 3);
    world_end(world);
}

/* P9: the copy vanished while the upgrade was under way: refused, asked again, and the bytes are the home's. */
static void test_vanished_copy_is_asked_for_again(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 0, page, 3);
    (void)get(world, 1, page);
    fault(world, 1, page, ACCESS_WRITE, 1);
    coherence_lost(at(world, 1), page, "test", 0);
    world_run(world);
    assert_int_equal(world->nodes[1].results[1], 0);
    assert_true(*word(world, 1, page) == 3);
    world_end(world);
}

/* Faults on one page join one message; a writer among readers asks again when reading was granted. */
static void test_faults_join(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    fault(world, 1, page, ACCESS_READ, 1);
    fault(world, 1, page, ACCESS_READ, 2);
    fault(world, 1, page, ACCESS_WRITE, 3);
    assert_int_equal(world->count, 1);
    world_deliver(world, 0);
    world_deliver(world, 0);
    assert_int_equal(world->nodes[1].results[1], 0);
    assert_int_equal(world->nodes[1].results[2], 0);
    assert_int_equal(world->nodes[1].results[3], NONE);
    world_run(world);
    assert_int_equal(world->nodes[1].results[3], 0);
    assert_int_equal(world->nodes[1].dones[1], 1);
    world_end(world);
}

/* P14: no more requests than the limit; the next done() makes room. */
static void test_requests_are_bounded(void **state)
{
    struct world *world = world_start();

    (void)state;
    for (unsigned i = 0; i < REQUESTS; i++)
        fault(world, 1, page_at(0, 0), ACCESS_READ, i);
    assert_int_equal(coherence_fault(at(world, 1), page_at(0, 1), ACCESS_READ, 9, 9, false, 0), -EAGAIN);
    assert_int_equal(coherence_read(at(world, 1), page_at(0, 1), 1, 9, 0), -EAGAIN);
    world_run(world);
    fault(world, 1, page_at(0, 1), ACCESS_READ, 9);
    world_run(world);
    assert_int_equal(world->nodes[1].results[9], 0);
    world_end(world);
}

/* P13: an exclusive page goes home by a transaction of its own. */
static void test_exclusive_page_is_put(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 1, page, 5);
    assert_int_equal(coherence_evict(at(world, 1), page, 2, 0), 0);
    assert_int_equal(coherence_evict(at(world, 1), page, 3, 0), -EBUSY);
    world_run(world);
    assert_int_equal(world->nodes[1].results[2], 0);
    assert_int_equal(rights(world, 1, page), ACCESS_NONE);
    assert_true(*word(world, 0, page) == 5);
    assert_int_equal(directory(world, page)->owner, 0);
    assert_true(get(world, 2, page) == 5);
    world_end(world);
}

/* P13: a recall that was first takes the page from the owner; the put that follows finds nothing to do. */
static void test_put_that_races_with_a_recall(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 1, page, 5);
    fault(world, 2, page, ACCESS_WRITE, 1);
    world_deliver_type(world, MESSAGE_GET_EXCLUSIVE);
    assert_int_equal(coherence_evict(at(world, 1), page, 2, 0), 0);
    world_deliver_type(world, MESSAGE_PUT);
    fault(world, 1, page, ACCESS_READ, 3); /* still here: nothing to wait for */
    assert_int_equal(world->nodes[1].results[3], 0);
    world_deliver_type(world, MESSAGE_RECALL_EXCLUSIVE);
    fault(world, 1, page, ACCESS_READ, 4); /* joins the put, asks when that is done */
    world_run(world);
    assert_int_equal(world->nodes[1].results[2], 0);
    assert_int_equal(world->nodes[2].results[1], 0);
    assert_int_equal(world->nodes[1].results[4], 0);
    assert_true(*word(world, 1, page) == 5);
    world_end(world);
}

/* P13: the home forgets its own page without a message; not while it is pinned. */
static void test_home_evicts_its_own(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 0, page, 4);
    pin(world, 0, page, true);
    assert_int_equal(coherence_evict(at(world, 0), page, 2, 0), -EBUSY);
    unpin(world, 0, page, ACCESS_NONE);
    assert_int_equal(rights(world, 0, page), ACCESS_WRITE); /* given back */
    assert_int_equal(coherence_evict(at(world, 0), page, 2, 0), 0);
    assert_int_equal(world->nodes[0].results[2], 0);
    assert_int_equal(world->count, 0);
    assert_int_equal(directory(world, page)->owner, 0);
    assert_true(get(world, 1, page) == 4);
    world_end(world);
}

/* P16: refused while the page is in service or owned elsewhere; a fault that joined it is served. */
static void test_prefetch_is_refused_not_queued(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0), other = page_at(0, 1);

    (void)state;
    put(world, 1, page, 5);
    assert_int_equal(coherence_fault(at(world, 2), page, ACCESS_READ, 1, 1, true, 0), 0);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], -EAGAIN);
    assert_int_equal(rights(world, 1, page), ACCESS_WRITE);
    assert_int_equal(coherence_fault(at(world, 2), page, ACCESS_READ, 1, 2, true, 0), 0);
    fault(world, 2, page, ACCESS_READ, 3);
    world_run(world);
    assert_int_equal(world->nodes[2].results[2], -EAGAIN);
    assert_int_equal(world->nodes[2].results[3], 0);
    assert_int_equal(coherence_fault(at(world, 2), other, ACCESS_READ, 1, 4, true, 0), 0);
    world_run(world);
    assert_int_equal(world->nodes[2].results[4], 0);
    world_end(world);
}

static void test_pages_outside_are_refused(void **state)
{
    struct world *world = world_start();
    struct page_id outside = page_of(PAGES);

    (void)state;
    assert_int_equal(coherence_fault(at(world, 1), outside, ACCESS_READ, 1, 1, false, 0), -EFAULT);
    assert_int_equal(coherence_evict(at(world, 1), outside, 1, 0), -EFAULT);
    assert_int_equal(coherence_atomic(at(world, 1), outside, 0, ATOMIC_ADD, 1, 0, 1, 0), -EFAULT);
    assert_int_equal(coherence_atomic(at(world, 1), page_at(0, 0), 4, ATOMIC_ADD, 1, 0, 1, 0), -EINVAL);
    assert_int_equal(coherence_atomic(at(world, 1), page_at(0, 0), 8, ATOMIC_OPERATIONS, 1, 0, 1, 0), -EINVAL);
    assert_int_equal(coherence_read(at(world, 1), page_at(0, 0), 0, 1, 0), -EINVAL);
    assert_int_equal(coherence_read(at(world, 1), page_at(0, 1), READ_PAGES_MAX, 1, 0), -EINVAL);
    assert_int_equal(world->count, 0);
    world_end(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_upgrade_is_without_bytes),
        cmocka_unit_test(test_lost_race_of_upgrades_gets_bytes),
        cmocka_unit_test(test_vanished_copy_is_asked_for_again),
        cmocka_unit_test(test_faults_join),
        cmocka_unit_test(test_requests_are_bounded),
        cmocka_unit_test(test_exclusive_page_is_put),
        cmocka_unit_test(test_put_that_races_with_a_recall),
        cmocka_unit_test(test_home_evicts_its_own),
        cmocka_unit_test(test_prefetch_is_refused_not_queued),
        cmocka_unit_test(test_pages_outside_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
