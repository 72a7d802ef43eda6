/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_read.c - reads of a range from the home's store: A3, A4, A5.
 */
#include "world.h"

static void start(struct world *world, unsigned node, struct page_id page, unsigned count, uint64_t token)
{
    world->nodes[node].results[token] = NONE;
    assert_int_equal(coherence_read(at(world, node), page, count, token, world->now_ns), 0);
}

/* A3: owners are recalled to shared, so that the store is current; nobody loses the right to read. */
static void test_read_makes_the_store_current(void **state)
{
    struct world *world = world_start();

    (void)state;
    put(world, 1, page_at(0, 0), 5);
    put(world, 2, page_at(0, 1), 6);
    start(world, 3, page_at(0, 0), 2, 1);
    world_run(world);
    assert_int_equal(world->nodes[3].results[1], 0);
    assert_true(*word(world, 0, page_at(0, 0)) == 5 && *word(world, 0, page_at(0, 1)) == 6);
    assert_int_equal(rights(world, 1, page_at(0, 0)), ACCESS_READ);
    assert_int_equal(rights(world, 2, page_at(0, 1)), ACCESS_READ);
    coherence_read_end(at(world, 3), 1, 0);
    world_run(world);
    world_end(world);
}

/* A5: a writer elsewhere waits until the last read ends, before it takes copies away; readers do not wait. */
static void test_writer_waits_for_reads_to_end(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    put(world, 0, page, 5);
    start(world, 1, page, 2, 1);
    start(world, 2, page, 1, 1);
    (void)get(world, 1, page);
    world_run(world);
    fault(world, 3, page, ACCESS_WRITE, 2);
    world_run(world);
    assert_int_equal(world->nodes[3].results[2], NONE);
    assert_int_equal(rights(world, 1, page), ACCESS_READ);
    coherence_read_end(at(world, 1), 1, 0);
    world_run(world);
    assert_int_equal(world->nodes[3].results[2], NONE);
    coherence_read_end(at(world, 2), 1, 0);
    world_run(world);
    assert_int_equal(world->nodes[3].results[2], 0);
    assert_int_equal(directory(world, page)->flags & HOME_READ, 0);
    world_end(world);
}

/* A5: the home itself may go on writing, and atomics too. */
static void test_home_goes_on_during_a_read(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    (void)get(world, 2, page);
    start(world, 1, page, 1, 1);
    world_run(world);
    touch(world, 0, page, ACCESS_WRITE);
    assert_int_equal(coherence_atomic(at(world, 2), page, 0, ATOMIC_ADD, 3, 0, 2, 0), 0);
    world_run(world);
    assert_int_equal(world->nodes[2].results[2], 0);
    coherence_read_end(at(world, 1), 1, 0);
    world_run(world);
    world_end(world);
}

/* A4: two reads of the same pages and two writers between them: all come to an end. */
static void test_reads_and_writers_do_not_wait_in_a_circle(void **state)
{
    struct world *world = world_start();

    (void)state;
    put(world, 1, page_at(0, 0), 1);
    put(world, 2, page_at(0, 1), 2);
    fault(world, 3, page_at(0, 0), ACCESS_WRITE, 1);
    start(world, 1, page_at(0, 0), 2, 2);
    fault(world, 3, page_at(0, 1), ACCESS_WRITE, 3);
    start(world, 2, page_at(0, 0), 2, 2);
    start(world, 0, page_at(0, 0), 2, 2);
    world_run(world);
    for (unsigned node = 0; node < 3; node++) {
        assert_int_equal(world->nodes[node].results[2], 0);
        coherence_read_end(at(world, node), 2, 0);
        world_run(world);
    }
    assert_int_equal(world->nodes[3].results[1], 0);
    assert_int_equal(world->nodes[3].results[3], 0);
    world_end(world);
}

/* A3, P17: a lost page in the range ends the read with an error, and holds nobody up. */
static void test_read_of_a_lost_page(void **state)
{
    struct world *world = world_start();

    (void)state;
    coherence_lost(at(world, 0), page_at(0, 1), "test", 0);
    start(world, 1, page_at(0, 0), 2, 1);
    start(world, 0, page_at(0, 0), 2, 1);
    world_run(world);
    assert_int_equal(world->nodes[1].results[1], -EIO);
    assert_int_equal(world->nodes[0].results[1], -EIO);
    touch(world, 2, page_at(0, 0), ACCESS_WRITE);
    world_end(world);
}

/* V7: a dead reader holds nobody up. */
static void test_dead_reader_is_forgotten(void **state)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    (void)state;
    start(world, 1, page, 1, 1);
    world_run(world);
    fault(world, 2, page, ACCESS_WRITE, 1);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], NONE);
    world_kill(world, 1);
    world_run(world);
    assert_int_equal(world->nodes[2].results[1], 0);
    world_end(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_makes_the_store_current),
        cmocka_unit_test(test_writer_waits_for_reads_to_end),
        cmocka_unit_test(test_home_goes_on_during_a_read),
        cmocka_unit_test(test_reads_and_writers_do_not_wait_in_a_circle),
        cmocka_unit_test(test_read_of_a_lost_page),
        cmocka_unit_test(test_dead_reader_is_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
