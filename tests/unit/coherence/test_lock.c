/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lock.c - locks between nodes: order, hand-over, tries, cancelling, deaths. L1 .. L7, V6
 */
#include "world.h"

enum mode { SHARED, EXCLUSIVE, TRY };

static void lock(struct world *world, unsigned node, uint64_t first, uint64_t count, enum mode mode, uint64_t token)
{
    world->nodes[node].results[token] = NONE;
    assert_int_equal(coherence_lock(at(world, node), LOCK_WORDS, first, count, mode != SHARED, mode != TRY, token, 0),
                     0);
}

static bool has(const struct world *world, unsigned node, uint64_t token)
{
    return world->nodes[node].results[token] == 0;
}

static void unlock(struct world *world, unsigned node, uint64_t token)
{
    world->nodes[node].is_lock_in_use = false;
    coherence_lock_release(at(world, node), (uint32_t)world->nodes[node].values[token], 0);
}

static void use(struct world *world)
{
    for (unsigned node = 0; node < NODES; node++)
        world->nodes[node].is_lock_in_use = true;
}

/* L1: overlapping ranges exclude each other unless shared; others do not. */
static void test_ranges_conflict_when_they_overlap(void **state)
{
    struct world *world = world_start();

    (void)state;
    use(world);
    lock(world, 1, 0, 4, EXCLUSIVE, 1);
    lock(world, 2, 4, 2, EXCLUSIVE, 1);
    world_run(world);
    assert_true(has(world, 1, 1) && has(world, 2, 1));
    lock(world, 3, 3, 2, SHARED, 1);
    world_run(world);
    assert_false(has(world, 3, 1));
    unlock(world, 1, 1);
    world_run(world);
    assert_false(has(world, 3, 1));
    unlock(world, 2, 1);
    world_run(world);
    assert_true(has(world, 3, 1));
    lock(world, 1, 3, 2, SHARED, 2);
    world_run(world);
    assert_true(has(world, 1, 2));
    world_end(world);
}

/* L1: pages and words are spaces of their own; a lock outside every extent is refused. */
static void test_spaces_do_not_meet(void **state)
{
    struct world *world = world_start();
    uint64_t outside = PAGES;

    (void)state;
    use(world);
    lock(world, 1, 0, 1, EXCLUSIVE, 1);
    for (unsigned node = 2; node < NODES; node++)
        assert_int_equal(coherence_lock(at(world, node), LOCK_PAGES, 0, 2, true, true, 1, 0), 0);
    world_run(world);
    assert_true(has(world, 1, 1) && has(world, 2, 1) && !has(world, 3, 1));
    assert_int_equal(coherence_lock(at(world, 1), LOCK_PAGES, outside, 1, true, true, 2, 0), -EFAULT);
    assert_int_equal(coherence_lock(at(world, 1), LOCK_PAGES, 0, 0, true, true, 2, 0), -EINVAL);
    assert_int_equal(coherence_lock(at(world, 1), LOCK_PAGES, 1, UINT64_MAX, true, true, 2, 0), -EINVAL);
    unlock(world, 2, 1);
    world_run(world);
    assert_true(has(world, 3, 1));
    world_end(world);
}

/* L1: a reader that comes after a waiting writer waits behind it. */
static void test_waiters_are_granted_in_order_of_arrival(void **state)
{
    struct world *world = world_start();

    (void)state;
    use(world);
    lock(world, 1, 0, 1, SHARED, 1);
    world_run(world);
    lock(world, 2, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    lock(world, 3, 0, 1, SHARED, 1);
    world_run(world);
    assert_false(has(world, 2, 1) || has(world, 3, 1));
    unlock(world, 1, 1);
    world_run(world);
    assert_true(has(world, 2, 1) && !has(world, 3, 1));
    unlock(world, 2, 1);
    world_run(world);
    assert_true(has(world, 3, 1));
    world_end(world);
}

/* L2: an idle lock stays with its last holder until it is asked for, once. */
static void test_idle_lock_is_cached_until_wanted(void **state)
{
    struct world *world = world_start();

    (void)state;
    lock(world, 1, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    assert_int_equal(world->nodes[1].wanted, 0);
    lock(world, 2, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    assert_true(has(world, 2, 1));
    assert_int_equal(world->nodes[1].wanted, 1);
    assert_int_equal(world->nodes[1].lock_wanted, world->nodes[1].values[1]);
    world->nodes[2].is_lock_in_use = true;
    lock(world, 1, 0, 1, EXCLUSIVE, 1);
    lock(world, 3, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    assert_int_equal(world->nodes[2].wanted, 1);
    world_end(world);
}

/* L3: one message from release to the next holder. */
static void test_hand_over_is_direct(void **state)
{
    struct world *world = world_start();

    (void)state;
    world->nodes[1].is_lock_in_use = true;
    lock(world, 1, 0, 4, EXCLUSIVE, 1);
    lock(world, 2, 1, 1, EXCLUSIVE, 1);
    lock(world, 3, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    unlock(world, 1, 1);
    assert_int_equal(world_count(world, MESSAGE_LOCK_RELEASE), 0);
    world_deliver_type(world, MESSAGE_LOCK_GRANT);
    assert_true(has(world, 2, 1));
    world_run(world); /* lock-passed: the home serves the rest of the range */
    assert_true(has(world, 3, 1));
    world_end(world);
}

/* L3: a release that crosses lock-wanted ends the promise. */
static void test_release_that_crosses_the_promise(void **state)
{
    struct world *world = world_start();

    (void)state;
    lock(world, 1, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    lock(world, 2, 0, 1, EXCLUSIVE, 1);
    world_deliver_type(world, MESSAGE_LOCK);
    unlock(world, 1, 1);
    world_run(world);
    assert_true(has(world, 2, 1));
    assert_int_equal(world->nodes[1].wanted, 0);
    world_end(world);
}

/* L4: the next holder is done before the home hears that it was the next. */
static void test_release_before_the_home_heard_of_the_hand_over(void **state)
{
    struct world *world = world_start();
    struct queued passed;

    (void)state;
    world->nodes[1].is_lock_in_use = true;
    lock(world, 1, 0, 1, EXCLUSIVE, 1);
    lock(world, 2, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    unlock(world, 1, 1);
    world_deliver_type(world, MESSAGE_LOCK_GRANT);
    unlock(world, 2, 1);
    passed = world_pick(world, world_find(world, MESSAGE_LOCK_PASSED));
    lock(world, 3, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    assert_false(has(world, 3, 1));
    world_hand_over(world, &passed);
    world_run(world);
    assert_true(has(world, 3, 1));
    world_end(world);
}

/* L5: a try fails against a lock in use or a waiter, and gets an idle one. */
static void test_try_does_not_wait(void **state)
{
    struct world *world = world_start();

    (void)state;
    world->nodes[1].is_lock_in_use = true;
    lock(world, 1, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    lock(world, 2, 0, 1, TRY, 1);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], -EBUSY);
    lock(world, 3, 0, 1, EXCLUSIVE, 1);
    lock(world, 2, 0, 1, TRY, 1);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], -EBUSY);
    unlock(world, 1, 1);
    world_run(world);
    assert_true(has(world, 3, 1));
    lock(world, 2, 0, 1, TRY, 1); /* node 3 caches it, idle */
    world_run(world);
    assert_true(has(world, 2, 1));
    world_end(world);
}

/* L6: the end of the wait is told at once; a grant that was under way goes back. */
static void test_cancel_ends_at_once(void **state)
{
    struct world *world = world_start();

    (void)state;
    use(world);
    lock(world, 1, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    lock(world, 2, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    coherence_lock_cancel(at(world, 2), 1, 0);
    assert_int_equal(world->nodes[2].results[1], -ECANCELED);
    lock(world, 3, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    unlock(world, 1, 1);
    world_run(world);
    assert_true(has(world, 3, 1));
    assert_int_equal(world->nodes[2].dones[1], 1);
    coherence_lock_cancel(at(world, 3), 1, 0); /* granted already: nothing */
    assert_true(has(world, 3, 1));
    world_end(world);
}

/* L6, P14: cancelled requests give their places back; places are bounded on both sides. */
static void test_places_are_bounded_and_come_back(void **state)
{
    struct world *world = world_start();

    (void)state;
    use(world);
    lock(world, 1, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    for (unsigned round = 0; round < 20; round++) {
        lock(world, 2, 0, 1, EXCLUSIVE, 1);
        world_run(world);
        coherence_lock_cancel(at(world, 2), 1, 0);
        world_run(world);
    }
    unlock(world, 1, 1);
    world_run(world);
    for (uint64_t i = 0; i < LOCKS; i++) {
        lock(world, 2, 10 + i, 1, EXCLUSIVE, 10 + i);
        lock(world, 3, 20 + i, 1, EXCLUSIVE, 20 + i);
    }
    assert_int_equal(coherence_lock(at(world, 3), LOCK_WORDS, 1, 1, true, true, 20, 0), -EAGAIN);
    world_run(world);
    lock(world, 0, 1, 1, EXCLUSIVE, 30); /* the home knows 8 already, its home_locks_max */
    world_run(world);
    assert_int_equal(world->nodes[0].results[30], -ENOSPC);
    world_end(world);
}

/* L7: a grant to nobody goes back to the home; a repeated one changes nothing. */
static void test_unknown_and_repeated_grants(void **state)
{
    struct world *world = world_start();
    struct queued grant;

    (void)state;
    use(world);
    lock(world, 1, 0, 1, EXCLUSIVE, 1);
    world_deliver(world, 0);
    grant = world->queue[0];
    world_run(world);
    world_hand_over(world, &grant);
    world_run(world);
    assert_int_equal(world->nodes[1].dones[1], 1);
    unlock(world, 1, 1);
    world_run(world);
    world_hand_over(world, &grant);
    world_run(world);
    lock(world, 2, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    assert_true(has(world, 2, 1));
    world_end(world);
}

/* V6: the next in the queue hears that the holder died; so does one who comes later, once. */
static void test_death_of_the_holder_is_told(void **state)
{
    struct world *world = world_start();

    (void)state;
    use(world);
    lock(world, 1, 0, 1, EXCLUSIVE, 1);
    lock(world, 1, 1, 1, EXCLUSIVE, 2);
    world_run(world);
    lock(world, 2, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    world_kill(world, 1);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], -EOWNERDEAD);
    lock(world, 3, 1, 1, EXCLUSIVE, 2);
    world_run(world);
    assert_int_equal(world->nodes[3].results[2], -EOWNERDEAD);
    unlock(world, 3, 2);
    world_run(world);
    lock(world, 2, 1, 1, EXCLUSIVE, 3);
    world_run(world);
    assert_true(has(world, 2, 3));
    world_end(world);
}

/* V6: who heard of a death and dies too, a reader even, does not take the news along. */
static void test_news_of_a_death_survives_its_hearer(void **state)
{
    struct world *world = world_start();

    (void)state;
    use(world);
    lock(world, 1, 0, 1, EXCLUSIVE, 1);
    lock(world, 2, 0, 1, SHARED, 1);
    world_run(world);
    world_kill(world, 1);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], -EOWNERDEAD);
    lock(world, 3, 0, 1, SHARED, 1);
    world_run(world);
    assert_true(has(world, 3, 1));
    world_kill(world, 2);
    lock(world, 0, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    unlock(world, 3, 1); /* no direct hand-over: only the home knows */
    world_run(world);
    assert_int_equal(world->nodes[0].results[1], -EOWNERDEAD);
    world_end(world);
}

/* V6: holder and promised waiter were one node: the waiter may have had the lock when it died. */
static void test_death_of_holder_and_waiter(void **state)
{
    struct world *world = world_start();

    (void)state;
    lock(world, 1, 0, 1, SHARED, 1);
    world_run(world);
    lock(world, 1, 0, 1, EXCLUSIVE, 2);
    world_deliver_type(world, MESSAGE_LOCK);
    world_deliver_type(world, MESSAGE_LOCK_WANTED);
    world_deliver_type(world, MESSAGE_LOCK_GRANT);
    assert_true(has(world, 1, 2));
    world_kill(world, 1); /* lock-passed is lost */
    lock(world, 2, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], -EOWNERDEAD);
    world_end(world);
}

/* V6: a dead waiter is passed over. */
static void test_death_of_a_promised_waiter(void **state)
{
    struct world *world = world_start();

    (void)state;
    use(world);
    lock(world, 1, 0, 1, EXCLUSIVE, 1);
    lock(world, 2, 0, 1, EXCLUSIVE, 1);
    lock(world, 3, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    world_kill(world, 2);
    world_run(world);
    unlock(world, 1, 1);
    world_run(world);
    assert_true(has(world, 3, 1));
    world_end(world);
}

/* V5: the home is gone: waiting ends, what is held can still be released. */
static void test_death_of_the_home(void **state)
{
    struct world *world = world_start();

    (void)state;
    use(world);
    lock(world, 1, 0, 1, EXCLUSIVE, 1);
    lock(world, 2, 0, 1, EXCLUSIVE, 1);
    world_run(world);
    world_kill(world, 0);
    assert_int_equal(world->nodes[2].results[1], -EHOSTDOWN);
    unlock(world, 1, 1);
    lock(world, 1, 0, 1, EXCLUSIVE, 2);
    assert_int_equal(world->nodes[1].results[2], -EHOSTDOWN);
    assert_int_equal(world->count, 0);
    world_end(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_conflict_when_they_overlap),
        cmocka_unit_test(test_spaces_do_not_meet),
        cmocka_unit_test(test_waiters_are_granted_in_order_of_arrival),
        cmocka_unit_test(test_idle_lock_is_cached_until_wanted),
        cmocka_unit_test(test_hand_over_is_direct),
        cmocka_unit_test(test_release_that_crosses_the_promise),
        cmocka_unit_test(test_release_before_the_home_heard_of_the_hand_over),
        cmocka_unit_test(test_try_does_not_wait),
        cmocka_unit_test(test_cancel_ends_at_once),
        cmocka_unit_test(test_places_are_bounded_and_come_back),
        cmocka_unit_test(test_unknown_and_repeated_grants),
        cmocka_unit_test(test_death_of_the_holder_is_told),
        cmocka_unit_test(test_news_of_a_death_survives_its_hearer),
        cmocka_unit_test(test_death_of_holder_and_waiter),
        cmocka_unit_test(test_death_of_a_promised_waiter),
        cmocka_unit_test(test_death_of_the_home),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
