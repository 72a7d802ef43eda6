/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_detector.c - heartbeats and suspicion, on a simulated clock. See world.h: a heartbeat every 100, suspect at
 * 1000.
 */
#include "tests/unit/cluster/world.h"

/* Runs to `until_ns`: every node ticks at its deadline; what is sent arrives at once, but not at or from `silent`. */
static void run_until(struct world *world, uint64_t until_ns, unsigned silent)
{
    for (;;) {
        uint64_t next_ns = until_ns;

        for (unsigned i = 0; i < world->nodes_count; i++) {
            uint64_t deadline_ns = cluster_deadline_ns(world->nodes[i].cluster);

            if (i != silent && deadline_ns < next_ns)
                next_ns = deadline_ns;
        }
        if (next_ns >= until_ns)
            break;
        if (next_ns < world->now_ns)
            next_ns = world->now_ns; /* overdue: at once */
        world->now_ns = next_ns;
        for (unsigned i = 0; i < world->nodes_count; i++) {
            if (i != silent && cluster_deadline_ns(world->nodes[i].cluster) <= next_ns)
                cluster_tick(world->nodes[i].cluster, next_ns);
            assert_true(i == silent || cluster_deadline_ns(world->nodes[i].cluster) > next_ns);
        }
        for (unsigned i = 0; i < world->nodes_count; i++) {
            for (unsigned j = 0; j < world->nodes_count; j++) {
                if (i == silent || j == silent)
                    world->queues[i][j].count = 0;
                while (world_deliver(world, i, j))
                    ;
            }
        }
    }
    world->now_ns = until_ns;
}

static struct world *world_ready(unsigned nodes_count)
{
    struct world *world = world_open(nodes_count, 1);

    world_drain(world);
    return world;
}

static void test_nobody_is_suspected_while_all_live(void **state)
{
    struct world *world = world_ready(4);

    (void)state;
    run_until(world, 50000, UINT32_MAX);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(world->nodes[i].suspicions, 0);
    world_close(world);
}

static void test_a_silent_peer_is_suspected_once_a_view(void **state)
{
    struct world *world = world_ready(4);

    (void)state;
    run_until(world, 5000, UINT32_MAX);
    run_until(world, 5900, 2);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(world->nodes[i].suspicions, 0);
    run_until(world, 6200, 2);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(world->nodes[i].suspicions, i != 2);
        assert_int_equal(world->nodes[i].suspects, i == 2 ? 0 : 4);
    }
    run_until(world, 12000, 2);
    assert_int_equal(world->nodes[0].suspicions, 1);
    /* Somebody else went; node 2 is still in, and still silent: it is named again. */
    world_crash(world, 3);
    for (unsigned i = 0; i < 2; i++)
        assert_true(world_hear(world, i));
    world->nodes[3].is_dead = false; /* its clock need not be skipped */
    run_until(world, 13500, 2);
    assert_int_equal(world->nodes[0].suspicions, 2);
    assert_int_equal(world->nodes[0].suspects, 4);
    world_close(world);
}

static void test_any_message_counts_as_a_sign_of_life(void **state)
{
    struct world *world = world_ready(2);

    (void)state;
    for (uint64_t now_ns = 0; now_ns < 20000; now_ns += 50) {
        cluster_heard(world->nodes[0].cluster, node_of(1), now_ns);
        cluster_tick(world->nodes[0].cluster, now_ns);
    }
    assert_int_equal(world->nodes[0].suspicions, 0);
    cluster_heard(world->nodes[0].cluster, node_of(99), 20000); /* not in the job: nothing */
    world_close(world);
}

static void test_heartbeats_fill_silence_only(void **state)
{
    struct world *world = world_ready(2);
    struct cluster *cluster = world->nodes[0].cluster;
    unsigned sent = 0;

    (void)state;
    for (uint64_t now_ns = 10; now_ns <= 1000; now_ns += 10) {
        unsigned before = world->queues[0][1].count;

        cluster_heard(cluster, node_of(1), now_ns);
        cluster_tick(cluster, now_ns);
        sent += world->queues[0][1].count - before;
    }
    assert_int_equal(sent, 10);
    assert_int_equal(cluster_deadline_ns(cluster), 1100);
    world_close(world);
}

static void test_a_node_that_was_stopped_blames_nobody(void **state)
{
    struct world *world = world_ready(3);

    (void)state;
    run_until(world, 5000, UINT32_MAX);
    cluster_tick(world->nodes[0].cluster, 90000); /* the next look after a long stop */
    assert_int_equal(world->nodes[0].suspicions, 0);
    for (uint64_t now_ns = 90100; now_ns < 90950; now_ns += 100)
        cluster_tick(world->nodes[0].cluster, now_ns);
    assert_int_equal(world->nodes[0].suspicions, 0);
    for (uint64_t now_ns = 90950; now_ns < 91200; now_ns += 100)
        cluster_tick(world->nodes[0].cluster, now_ns);
    assert_int_equal(world->nodes[0].suspicions, 2); /* they are silent indeed */
    world_close(world);
}

static void test_a_node_alone_has_no_deadline(void **state)
{
    struct world *world = world_open(1, 1);

    (void)state;
    assert_true(cluster_deadline_ns(world->nodes[0].cluster) == UINT64_MAX);
    world_drain(world);
    assert_true(cluster_deadline_ns(world->nodes[0].cluster) == UINT64_MAX);
    cluster_tick(world->nodes[0].cluster, 1000000);
    assert_int_equal(world->queues[0][0].count, 0);
    world_close(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_is_suspected_while_all_live),
        cmocka_unit_test(test_a_silent_peer_is_suspected_once_a_view),
        cmocka_unit_test(test_any_message_counts_as_a_sign_of_life),
        cmocka_unit_test(test_heartbeats_fill_silence_only),
        cmocka_unit_test(test_a_node_that_was_stopped_blames_nobody),
        cmocka_unit_test(test_a_node_alone_has_no_deadline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
