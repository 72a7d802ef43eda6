/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_atomic.c - atomics at the home: A1, A2.
 */
#include "world.h"

static void add(struct world *world, unsigned node, struct page_id page, uint64_t value, uint64_t token)
{
    world->nodes[node].results[token] = NONE;
    assert_int_equal(coherence_atomic(at(world, node), page, 0, ATOMIC_ADD, value, 0, token, world->now_ns), 0);
}

/* A1: the owner gives the page up first; readers elsewhere too, the asker among them. */
static void test_atomic_runs_when_nobody_else_has_the_page(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 1, page, 40);
    add(world, 2, page, 2, 1);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], 0);
    assert_true(world->nodes[2].values[1] == 40);
    assert_int_equal(rights(world, 1, page), ACCESS_NONE);
    assert_true(get(world, 1, page) == 42);
    (void)get(world, 3, page);
    add(world, 3, page, 1, 1);
    world_run(world);
    assert_true(world->nodes[3].values[1] == 42);
    assert_int_equal(rights(world, 3, page), ACCESS_NONE);
    assert_true(get(world, 3, page) == 43);
    world_end(world);
}

/* A1: the home's own rights stay, and its own atomics need no message when it is alone. */
static void test_atomic_at_home_keeps_the_homes_rights(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 0, page, 1);
    add(world, 1, page, 1, 1);
    world_run(world);
    assert_int_equal(rights(world, 0, page), ACCESS_WRITE);
    add(world, 0, page, 1, 2);
    assert_int_equal(world->nodes[0].results[2], 0);
    assert_int_equal(world->count, 0);
    assert_true(*word(world, 0, page) == 3);
    world_end(world);
}

/* A2: a repeated request is answered again and not executed again. */
static void test_repeated_atomic_is_executed_once(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);
    struct queued request;

    (void)state;
    add(world, 1, page, 5, 1);
    request = world->queue[0];
    world_run(world);
    world_hand_over(world, &request);
    assert_int_equal(world_count(world, MESSAGE_ATOMIC_DONE), 1);
    world_run(world);
    assert_int_equal(world->nodes[0].atomics, 1);
    assert_true(*word(world, 0, page) == 5);
    assert_int_equal(world->nodes[1].dones[1], 1);
    world_end(world);
}

/* A2: so is one that waits for the store's bytes. */
static void test_atomic_waits_for_the_store(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    world->nodes[0].is_atomic_slow = true;
    add(world, 1, page, 5, 1);
    fault(world, 2, page, ACCESS_WRITE, 1);
    world_run(world);
    assert_int_equal(world->nodes[1].results[1], NONE);
    assert_int_equal(world->nodes[2].results[1], NONE);
    world->nodes[0].is_atomic_slow = false;
    coherence_atomic_ready(at(world, 0), page, 0);
    coherence_atomic_ready(at(world, 0), page, 0);
    world_run(world);
    assert_int_equal(world->nodes[0].atomics, 1);
    assert_int_equal(world->nodes[1].results[1], 0);
    assert_int_equal(world->nodes[2].results[1], 0);
    world_end(world);
}

/* A2, P17: the store is broken: an error, and the page is lost. */
static void test_atomic_on_a_lost_page(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    world->nodes[0].is_store_broken = true;
    for (uint64_t token = 1; token < 3; token++) {
        add(world, 1, page, 5, token);
        world_run(world);
        assert_int_equal(world->nodes[1].results[token], -EIO);
    }
    assert_true(is_poisoned(world, 0, page));
    world_end(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_atomic_runs_when_nobody_else_has_the_page),
        cmocka_unit_test(test_atomic_at_home_keeps_the_homes_rights),
        cmocka_unit_test(test_repeated_atomic_is_executed_once),
        cmocka_unit_test(test_atomic_waits_for_the_store),
        cmocka_unit_test(test_atomic_on_a_lost_page),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
