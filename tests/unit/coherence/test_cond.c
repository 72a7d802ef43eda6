/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cond.c - conditions at the home of their word: L8.
 */
#include "world.h"

#define WORD 8

static void wait_for(struct world *world, unsigned node, uint64_t token)
{
    world->nodes[node].dones[token] = 0;
    assert_int_equal(coherence_cond_wait(at(world, node), WORD, token, 0), 0);
}

static void wake(struct world *world, unsigned node, bool all)
{
    world->nodes[node].results[9] = NONE;
    assert_int_equal(coherence_cond_wake(at(world, node), WORD, all, 9, 0), 0);
    world_run(world);
    assert_int_equal(world->nodes[node].results[9], 0);
}

static void test_waiters_are_woken_in_order(void **state)
{
    struct world *world = world_start();

    (void)state;
    for (unsigned node = 0; node < 3; node++)
        wait_for(world, node, 1);
    world_run(world);
    for (unsigned node = 0; node < 3; node++) {
        assert_int_equal(world->nodes[node].dones[1], 1);
        assert_true(world->nodes[node].values[1] == 1);
    }
    wake(world, 3, false);
    assert_int_equal(world->nodes[0].dones[1], 2);
    assert_true(world->nodes[0].values[1] == 0);
    assert_int_equal(world->nodes[1].dones[1], 1);
    wake(world, 3, true);
    assert_int_equal(world->nodes[1].dones[1], 2);
    assert_int_equal(world->nodes[2].dones[1], 2);
    world_end(world);
}

static void test_wake_of_nobody_is_forgotten(void **state)
{
    struct world *world = world_start();

    (void)state;
    wake(world, 3, true);
    wait_for(world, 1, 1);
    world_run(world);
    assert_int_equal(world->nodes[1].dones[1], 1);
    world_end(world);
}

/* The home decides between the wake and the cancel: the waiter hears of exactly one. */
static void test_cancel_races_with_wake(void **state)
{
    struct world *world = world_start();

    (void)state;
    wait_for(world, 1, 1);
    wait_for(world, 2, 1);
    world_run(world);
    coherence_cond_cancel(at(world, 1), 1, 0);
    assert_int_equal(world->nodes[1].dones[1], 1);
    wake(world, 3, false); /* the cancel was first: the wake is node 2's */
    assert_int_equal(world->nodes[1].results[1], -ECANCELED);
    assert_int_equal(world->nodes[2].results[1], 0);
    assert_int_equal(world->nodes[2].dones[1], 2);
    wait_for(world, 1, 2);
    world_run(world);
    assert_int_equal(coherence_cond_wake(at(world, 3), WORD, false, 9, 0), 0);
    world_deliver_type(world, MESSAGE_COND_WAKE);
    coherence_cond_cancel(at(world, 1), 2, 0); /* woken before: no cancel */
    world_run(world);
    assert_int_equal(world->nodes[1].results[2], 0);
    assert_int_equal(world->nodes[1].dones[2], 2);
    world_end(world);
}

/* L7: a repeated wait does not stand in the queue for one that was woken; a repeated wake wakes nobody. */
static void test_repeated_requests_are_ignored(void **state)
{
    struct world *world = world_start();
    struct queued wait, signal;

    (void)state;
    wait_for(world, 1, 1);
    wait = world->queue[0];
    world_run(world);
    assert_int_equal(coherence_cond_wake(at(world, 3), WORD, false, 9, 0), 0);
    signal = world->queue[0];
    world_run(world);
    assert_int_equal(world->nodes[1].dones[1], 2);
    world_hand_over(world, &wait);
    wait_for(world, 2, 1);
    world_run(world);
    world_hand_over(world, &signal);
    world_run(world);
    assert_int_equal(world->nodes[2].dones[1], 1);
    wake(world, 3, false);
    assert_int_equal(world->nodes[2].dones[1], 2);
    world_end(world);
}

/* V5, V7: no waiter is left behind by a dead home, none is woken in a dead one's place. */
static void test_deaths(void **state)
{
    struct world *world = world_start();

    (void)state;
    wait_for(world, 1, 1);
    wait_for(world, 2, 1);
    world_run(world);
    world_kill(world, 1);
    wake(world, 3, false);
    assert_int_equal(world->nodes[2].dones[1], 2);
    wait_for(world, 2, 2);
    world_run(world);
    world_kill(world, 0);
    assert_int_equal(world->nodes[2].results[2], -EHOSTDOWN);
    world_end(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waiters_are_woken_in_order),
        cmocka_unit_test(test_wake_of_nobody_is_forgotten),
        cmocka_unit_test(test_cancel_races_with_wake),
        cmocka_unit_test(test_repeated_requests_are_ignored),
        cmocka_unit_test(test_deaths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
