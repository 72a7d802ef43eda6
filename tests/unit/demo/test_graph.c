/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_graph.c - the graph of packages.txt, worked out by hand, and its ranks by the definition of PageRank.
 */
#include "demo/report.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { EDITOR, LIBC, TOOLKIT_OLD, SPELL, POSTFIX, EXIM, DICTIONARY, PACKAGES };

static const char *const names[PACKAGES] = {"editor", "libc", "toolkit-old", "spell", "postfix", "exim", "dictionary"};

/* Row: who depends; 1 in a column: on whom. */
static const int edges[PACKAGES][PACKAGES] = {
    [EDITOR] = {[LIBC] = 1, [TOOLKIT_OLD] = 1, [POSTFIX] = 1, [EXIM] = 1, [SPELL] = 1},
    [TOOLKIT_OLD] = {[LIBC] = 1},
    [SPELL] = {[LIBC] = 1, [DICTIONARY] = 1},
    [POSTFIX] = {[LIBC] = 1},
    [EXIM] = {[LIBC] = 1},
};

static struct inputs inputs;
static struct job job;
static struct plain plain;

static int build(void **state)
{
    (void)state;
    if (dsm_init(NULL) != 0)
        return -1;
    job.nodes_count = (unsigned)dsm_node_count();
    if (dsm_malloc(sizeof(*job.graph), (void **)&job.graph) != 0 ||
        dsm_malloc(TEXT_MAX, (void **)&job.graph->text) != 0)
        return -1;
    if (graph_load(&job, &inputs) != 0 || graph_scan(&job) != 0 || graph_intern(&job) != 0 || graph_number(&job) != 0 ||
        graph_provide(&job) != 0 || graph_link(&job) != 0 || graph_rank(&job, NULL) != 0)
        return -1;
    return plain_run(&inputs, &plain);
}

static int leave(void **state)
{
    (void)state;
    plain_fini(&plain);
    inputs_fini(&inputs);
    return dsm_finalize();
}

static void test_first_stanza_of_a_name_wins(void **state)
{
    (void)state;
    assert_int_equal(job.graph->progress, PACKAGES + 1);
    assert_int_equal(job.graph->ids_count, PACKAGES);
    for (size_t id = 0; id < PACKAGES; id++) {
        const struct package *package = job.graph->packages[id];

        assert_int_equal(package->name.bytes, strlen(names[id]));
        assert_memory_equal(package->name.start, names[id], package->name.bytes);
    }
    assert_memory_equal(job.graph->packages[LIBC]->version.start, "2.36", 4);
}

static void test_edges_are_those_worked_out_by_hand(void **state)
{
    const struct part *part = &job.graph->parts[0];
    size_t count = 0;

    (void)state;
    for (size_t source = 0; source < PACKAGES; source++) {
        int found[PACKAGES] = {0};

        for (uint64_t edge = part->out_start[source]; edge < part->out_start[source + 1]; edge++)
            found[part->out_targets[edge]]++;
        for (size_t target = 0; target < PACKAGES; target++) {
            assert_int_equal(found[target], edges[source][target]);
            count += (size_t)found[target];
        }
    }
    assert_int_equal(job.graph->edges_count, count);
}

/* A rank is what the definition says it is, given the others: the fixed point, from the table above alone. */
static void test_ranks_are_the_fixed_point(void **state)
{
    const double *rank = job.graph->rank;
    double dangling = 0;

    (void)state;
    for (size_t source = 0; source < PACKAGES; source++) {
        int degree = 0;

        for (size_t target = 0; target < PACKAGES; target++)
            degree += edges[source][target];
        dangling += degree == 0 ? rank[source] : 0;
    }
    for (size_t target = 0; target < PACKAGES; target++) {
        double pulled = dangling / (double)PACKAGES;

        for (size_t source = 0; source < PACKAGES; source++) {
            int degree = 0;

            for (size_t other = 0; other < PACKAGES; other++)
                degree += edges[source][other];
            pulled += edges[source][target] ? rank[source] / degree : 0;
        }
        assert_true(fabs(rank[target] - (0.15 / (double)PACKAGES + 0.85 * pulled)) < 1e-11);
    }
    assert_true(rank[LIBC] > rank[DICTIONARY] && rank[DICTIONARY] > rank[EDITOR]);
}

static void test_plain_computation_agrees(void **state)
{
    (void)state;
    assert_true(report_check(job.graph, &plain));
}

/* The check is worth something: it sees a rank, a name and an edge that are wrong. */
static void test_check_catches_what_is_wrong(void **state)
{
    char letter = job.graph->packages[SPELL]->name.start[0];

    (void)state;
    job.graph->rank[EXIM] += 1e-9;
    assert_false(report_check(job.graph, &plain));
    job.graph->rank[EXIM] = NAN;
    assert_false(report_check(job.graph, &plain));
    job.graph->rank[EXIM] = plain.rank[EXIM];
    job.graph->text[job.graph->packages[SPELL]->name.start - job.graph->text] = '#';
    assert_false(report_check(job.graph, &plain));
    job.graph->text[job.graph->packages[SPELL]->name.start - job.graph->text] = letter;
    job.graph->edges_count++;
    assert_false(report_check(job.graph, &plain));
    job.graph->edges_count--;
    assert_true(report_check(job.graph, &plain));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_stanza_of_a_name_wins), cmocka_unit_test(test_edges_are_those_worked_out_by_hand),
        cmocka_unit_test(test_ranks_are_the_fixed_point),   cmocka_unit_test(test_plain_computation_agrees),
        cmocka_unit_test(test_check_catches_what_is_wrong),
    };

    if (argc != 2 || inputs_add(&inputs, argv[1]) != 0)
        return 1;
    return cmocka_run_group_tests(tests, build, leave);
}
