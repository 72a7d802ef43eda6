/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pkgrank.c - ranks the packages of this machine's distribution by who depends on them, on several nodes at once.
 *
 *     dsmrun -n 3 --ddr 8M --cxl 8M --nvme 256M:/scratch pkgrank
 *
 * An ordinary program over <tiermesh/dsm.h>: every node runs main(). The package lists lie in shared memory, the graph
 * is made of plain pointers and arrays in it, and no line sends a message. At the end node 0 does the same again
 * alone, in malloc memory, and compares. The last line is "demo: ok ..." or "demo: FAILED ...".
 */
#include "demo/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROOT_NAME       "pkgrank"
#define ROOT_TIMEOUT_NS (30u * 1000000000ull)
#define TOP_COUNT       15

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Node 0 makes the root of all shared data and publishes it; the others wait for its name. */
static int graph_meet(struct job *job)
{
    const struct dsm_attributes spread = {.placement = DSM_PLACE_INTERLEAVE};
    int result;

    job->doing = "meet at the root";
    if (job->node != 0)
        return dsm_root_get(ROOT_NAME, ROOT_TIMEOUT_NS, (void **)&job->graph);
    result = dsm_malloc(sizeof(*job->graph), (void **)&job->graph);
    if (result == 0)
        result = dsm_malloc_with(TEXT_MAX, &spread, (void **)&job->graph->text);
    return result != 0 ? result : dsm_root_set(ROOT_NAME, job->graph);
}

static void tell(const struct job *job, double *since, const char *what, size_t count)
{
    double now = seconds();

    if (job->node == 0)
        printf("%-28s %9zu  %7.2f s\n", what, count, now - *since);
    *since = now;
}

static void tell_step(uint64_t step, double change)
{
    if (step % 10 == 0)
        printf("  step %3llu, change %.2e\n", (unsigned long long)step, change);
}

static size_t provided_count(const struct job *job)
{
    size_t total = 0;

    for (unsigned node = 0; node < job->nodes_count; node++)
        total += job->graph->parts[node].provided_count;
    return total;
}

/* Everything that the nodes do together. */
static int work(struct job *job, const struct inputs *inputs)
{
    double since = seconds();
    int result;

    if ((result = graph_meet(job)) != 0 || (result = graph_load(job, inputs)) != 0)
        return result;
    tell(job, &since, "bytes of package lists", job_part(job)->text_bytes);
    if ((result = graph_scan(job)) != 0)
        return result;
    tell(job, &since, "stanzas", job->graph->progress);
    if ((result = graph_intern(job)) != 0 || (result = graph_number(job)) != 0)
        return result;
    tell(job, &since, "distinct packages", job->graph->ids_count);
    if ((result = graph_provide(job)) != 0)
        return result;
    tell(job, &since, "provided names", provided_count(job));
    if ((result = graph_link(job)) != 0 || (result = graph_rank(job, tell_step)) != 0)
        return result;
    tell(job, &since, "steps over the edges", job->graph->steps);
    if ((result = sections_add(job)) != 0)
        return result;
    tell(job, &since, "sections", job->graph->sections_count);
    job->doing = "gather the figures";
    job_part(job)->touched_bytes = graph_touched(job);
    result = dsm_stats(&job_part(job)->stats, sizeof(struct dsm_stats));
    return result != 0 ? result : dsm_barrier();
}

/* Node 0 only. *ret_is_right says whether all is as it must be. */
static int judge(struct job *job, const struct inputs *inputs, double shared_seconds, bool *ret_is_right)
{
    double since = seconds();
    struct plain plain;
    double plain_seconds;
    int result;

    job->doing = "compute it plainly";
    result = plain_run(inputs, &plain);
    plain_seconds = seconds() - since;
    if (result == 0) {
        report_top(job->graph, TOP_COUNT);
        report_sections(job->graph, 5);
        *ret_is_right = report_check(job->graph, &plain);
        *ret_is_right = report_tiers(job->graph, job->nodes_count) && *ret_is_right;
        printf("\nwall time %.2f s on %u nodes, %.2f s plain in one process without limits: %.1fx\n", shared_seconds,
               job->nodes_count, plain_seconds, shared_seconds / plain_seconds);
    }
    plain_fini(&plain);
    return result;
}

/* The last barrier: the others leave with node 0's verdict. */
static int verdict_hear(struct job *job, bool is_right)
{
    int result;

    if (job->node == 0)
        job->graph->is_failed = !is_right;
    job->doing = "hear the verdict";
    result = dsm_barrier();
    if (result == 0 && job->graph->is_failed) {
        job->doing = "agree with the plain computation";
        result = -EBADMSG;
    }
    return result;
}

static int run(struct job *job, const struct inputs *inputs)
{
    double since = seconds();
    bool is_right = false;
    char praise[160];
    int result;

    job->doing = "start";
    result = dsm_init(NULL);
    if (result != 0)
        return result;
    job->node = (unsigned)dsm_node_id();
    job->nodes_count = (unsigned)dsm_node_count();
    result = work(job, inputs);
    if (result == 0 && job->node == 0)
        result = judge(job, inputs, seconds() - since, &is_right);
    if (result == 0)
        result = verdict_hear(job, is_right);
    if (result != 0)
        return result;
    snprintf(praise, sizeof(praise), "%zu packages, %zu edges, %llu steps on %u nodes equal the plain computation",
             job->graph->ids_count, job->graph->edges_count, (unsigned long long)job->graph->steps, job->nodes_count);
    job->doing = "leave";
    result = dsm_finalize();
    if (result == 0 && job->node == 0)
        printf("\ndemo: ok: %s\n", praise);
    return result;
}

int main(int argc, char **argv)
{
    struct job job = {.graph = NULL};
    struct inputs inputs = {.count = 0};
    int result = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc && result == 0; i++)
        result = inputs_add(&inputs, argv[i]);
    if (argc == 1)
        result = inputs_find(&inputs);
    if (result == 0 && argc == 1 && inputs.lists_count == 0)
        fprintf(stderr, "pkgrank: apt has no package lists here (apt-get update brings them): installed ones only\n");
    job.doing = "find package lists";
    if (result == 0)
        result = run(&job, &inputs);
    if (result != 0) {
        const char *why = dsm_errmsg();

        printf("demo: FAILED: node %u could not %s: %s%s%s\n", job.node, job.doing, strerror(-result),
               why[0] != '\0' ? ": " : "", why);
    }
    inputs_fini(&inputs);
    return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
