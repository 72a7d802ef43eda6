/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_node_measure.c - measuring this machine's own nodes, in bounded time, and nodes that are not there. What figures
 * come is the machine's business; that they are figures of memory, not of caches, is checked.
 */
#include "base/numa.h"
#include "base/os.h"
#include "tests/unit/tiers/check.h"
#include "tiers/node_measure.h"

#include <errno.h>
#include <sched.h>

static void memory_of_this_machine_has_figures(void **state)
{
    struct memory_speed speed = {0};
    uint64_t start_ns = os_now_ns();

    (void)state;
    if (node_measure_one(0, &speed) != 0)
        skip();                                       /* no NUMA in this kernel, or a sandbox */
    assert_true(os_now_ns() - start_ns < 2000000000); /* also when others run */
    assert_in_range(speed.latency_ns, 10, 1000000);   /* a line in a cache takes 1 to 5 ns */
    assert_in_range(speed.bandwidth_mbs, 1, 10000000);
}

static void a_node_that_is_not_there_is_refused(void **state)
{
    struct memory_speed speed = {7, 7};

    (void)state;
    assert_true(node_measure_one(1023, &speed) < 0);
    assert_true(node_measure_one(4000, &speed) < 0);
    assert_int_equal(speed.latency_ns, 7);
}

static void only_what_tells_something_is_measured(void **state)
{
    static struct topology topology;
    cpu_set_t before, after;

    (void)state;
    topology.nodes_count = 2;
    topology.nodes[0] = (struct topology_node){
        .number = 0, .has_processors = true, .memory_bytes = 1 << 20, .near_node = 0, .near_processor = 0};
    topology.nodes[1] = topology.nodes[0];
    topology.nodes[1].number = 1023;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    node_measure(&topology);
    assert_int_equal(topology.nodes[0].measured.latency_ns, 0);
    topology.nodes[1].has_processors = false; /* and its memory cannot be had */
    node_measure(&topology);
    assert_int_equal(topology.nodes[1].measured.latency_ns, 0);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

/* Moving to the node where a page is leaves it there; what is not there says so. */
static void pages_say_where_they_are(void **state)
{
    char *memory = pages_new(2);
    void *pages[2] = {memory, NULL};
    int where[2], to[2], results[2] = {77, 77};

    (void)state;
    if (numa_where(pages, 2, where) != 0)
        skip();
    assert_true(where[0] >= 0);
    assert_true(where[1] < 0);
    to[0] = to[1] = where[0];
    assert_int_equal(numa_move(pages, to, 2, results), 0);
    assert_int_equal(results[0], where[0]);
    assert_true(results[1] < 0);
    to[0] = 1023;
    assert_true(numa_move(pages, to, 1, results) < 0);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_this_machine_has_figures),
        cmocka_unit_test(a_node_that_is_not_there_is_refused),
        cmocka_unit_test(only_what_tells_something_is_measured),
        cmocka_unit_test(pages_say_where_they_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
