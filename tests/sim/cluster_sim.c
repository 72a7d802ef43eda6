/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cluster_sim.c - dsm_sim_cluster: the shipped cluster/ code on simulated nodes, from seeds.
 *
 *   dsm_sim_cluster --seed=N [--seeds=COUNT] [--seconds=S] [--mutant=E] [--expect=CHECKER]
 *
 * Nodes take and give extents, set and read names and meet at barriers while messages are delayed, cut for a while and
 * nodes die. Checkers: extents (a run belongs to one, and is in every table when it is taken), names (a read after a
 * set sees it), barrier (nobody leaves before all came), answers (each request once), progress and replicas (at the
 * end nothing is open and all tables are equal).
 */
#include "cluster/cluster.h"

#include "base/assert.h"
#include "base/random.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NODES_COUNT_MAX 6
#define EXTENTS         64
#define MESSAGES        4096
#define MESSAGE_BYTES   256
#define NAMES           3
#define US              1000U
#define MS              1000000U

enum request_kind {
    ASK_NOTHING,
    ASK_TAKE,
    ASK_GIVE,
    ASK_SET,
    ASK_GET,
    ASK_BARRIER,
    ASK_KINDS,
};

enum planted {
    PLANTED_NONE,
    PLANTED_LOSS,     /* a message is lost inside a live connection: progress */
    PLANTED_REPLICA,  /* a table entry changes by itself: replicas */
    PLANTED_TWICE,    /* an answer is given twice: answers */
    PLANTED_BARRIER,  /* a node forgets that it has not come yet: barrier */
    PLANTED_OLD_NAME, /* a read returns the value before: names */
    PLANTED_EXTENT,   /* a table entry is forgotten: extents */
};

struct flight {
    uint64_t arrives_ns;
    uint32_t sequence;
    uint16_t from, to, size_bytes;
    bool used;
    uint8_t bytes[MESSAGE_BYTES];
};

struct run {
    uint64_t first, count;
    bool used;
};

struct node {
    struct sim *sim;
    unsigned index;
    struct cluster *cluster;
    struct cluster_env env;
    bool is_alive;
    uint32_t epoch;
    uint64_t view_due_ns, think_ns;
    uint8_t asks;
    uint64_t token, asked_ns;
    unsigned name;
    uint64_t value;           /* set: what; get: the least that it may return */
    struct run run;           /* what it asked for or owns */
    uint64_t rounds;          /* barriers entered */
    uint64_t set_last[NAMES]; /* its own names */
    uint32_t left;
};

struct sim {
    uint64_t seed, now_ns, steps;
    struct random random;
    unsigned nodes_count, planted;
    uint32_t sequence, loss_permille;
    uint32_t delay_ns_max, stall_permille, crash_permille, crashes_max, crashes;
    struct node nodes[NODES_COUNT_MAX];
    uint64_t last_ns[NODES_COUNT_MAX][NODES_COUNT_MAX], stalled_ns[NODES_COUNT_MAX][NODES_COUNT_MAX];
    struct flight flights[MESSAGES];
    struct view view;
    uint64_t names_done[NODES_COUNT_MAX][NAMES]; /* the youngest value whose set is done */
    uint64_t suspicions;
    bool is_healed, is_failed;
    const char *checker;
    char failure[200];
};

static void fail(struct sim *sim, const char *checker, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void fail(struct sim *sim, const char *checker, const char *format, ...)
{
    va_list arguments;

    if (sim->is_failed)
        return;
    sim->is_failed = true;
    sim->checker = checker;
    va_start(arguments, format);
    vsnprintf(sim->failure, sizeof(sim->failure), format, arguments);
    va_end(arguments);
}

static uint32_t draw(struct sim *sim, uint32_t bound)
{
    return random_below(&sim->random, bound);
}

static bool chance(struct sim *sim, uint32_t permille)
{
    return draw(sim, 1000) < permille;
}

/* ---- what the nodes need from outside -----------------------------------------------------------------------------
 */

static void env_send(void *context, struct node_id to, const void *bytes, size_t size_bytes)
{
    struct node *node = context;
    struct sim *sim = node->sim;
    uint64_t *last_ns = &sim->last_ns[node->index][to.index];
    struct flight *flight = NULL;
    uint64_t arrives_ns = sim->now_ns + US + draw(sim, sim->delay_ns_max);

    ASSERT(to.index < sim->nodes_count && size_bytes <= MESSAGE_BYTES);
    if (!view_has(&sim->view, to) && node->epoch == sim->view.epoch.number)
        return;
    if (sim->planted == PLANTED_LOSS && !sim->is_healed && chance(sim, 20))
        return;
    for (unsigned i = 0; i < MESSAGES && flight == NULL; i++)
        if (!sim->flights[i].used)
            flight = &sim->flights[i];
    ASSERT(flight != NULL);
    if (arrives_ns < sim->stalled_ns[node->index][to.index])
        arrives_ns = sim->stalled_ns[node->index][to.index];
    if (arrives_ns < *last_ns)
        arrives_ns = *last_ns;
    *last_ns = arrives_ns;
    *flight = (struct flight){.arrives_ns = arrives_ns,
                              .sequence = sim->sequence++,
                              .from = (uint16_t)node->index,
                              .to = to.index,
                              .size_bytes = (uint16_t)size_bytes,
                              .used = true};
    memcpy(flight->bytes, bytes, size_bytes);
}

static void check_taken(struct sim *sim, struct node *node)
{
    for (unsigned i = 0; i < sim->nodes_count; i++) {
        struct node *other = &sim->nodes[i];

        if (!other->is_alive || other->epoch != sim->view.epoch.number)
            continue;
        for (uint64_t e = node->run.first; e < node->run.first + node->run.count; e++) {
            const struct cluster_extent *extent = cluster_extent_at(other->cluster, e);
            bool is_known = extent != NULL && extent->allocator == node->index + 1;

            if (!is_known || (sim->planted == PLANTED_EXTENT && i == 1))
                fail(sim, "extents", "node %u took extent %llu, node %u does not know it", node->index,
                     (unsigned long long)e, i);
        }
        if (other != node && other->run.used && other->run.first < node->run.first + node->run.count &&
            node->run.first < other->run.first + other->run.count)
            fail(sim, "extents", "extent %llu belongs to nodes %u and %u", (unsigned long long)node->run.first,
                 node->index, i);
    }
}

/* A death breaks a barrier for some and not for others: from then on rounds cannot be compared. */
static void check_barrier(struct sim *sim, const struct node *node)
{
    if (sim->crashes > 0)
        return;
    for (unsigned i = 0; i < sim->nodes_count; i++)
        if (sim->nodes[i].is_alive &&
            (sim->nodes[i].rounds < node->rounds ||
             (sim->planted == PLANTED_BARRIER && i != node->index && sim->nodes[i].asks == ASK_BARRIER)))
            fail(sim, "barrier", "node %u leaves round %llu, node %u is in round %llu", node->index,
                 (unsigned long long)node->rounds, i, (unsigned long long)sim->nodes[i].rounds);
}

static void finish(struct sim *sim, struct node *node)
{
    node->asks = ASK_NOTHING;
    node->think_ns = sim->now_ns + draw(sim, 300 * US);
}

static void answered(struct sim *sim, struct node *node, int result, uint64_t value)
{
    switch ((enum request_kind)node->asks) {
    case ASK_TAKE:
        if (result == 0) {
            node->run.first = value;
            node->run.used = true;
            check_taken(sim, node);
        }
        break;
    case ASK_GIVE:
        if (result == 0)
            node->run.used = false;
        break;
    case ASK_SET:
        if (result == 0)
            sim->names_done[node->index][node->name % NAMES] = node->value;
        break;
    case ASK_GET:
        if (result == 0 && value + (sim->planted == PLANTED_OLD_NAME ? 0 : 1) <= node->value)
            fail(sim, "names", "node %u reads %llu, %llu was set before", node->index, (unsigned long long)value,
                 (unsigned long long)node->value);
        if (result == -ENOENT && node->value != 0)
            fail(sim, "names", "node %u finds no name, %llu was set before", node->index,
                 (unsigned long long)node->value);
        break;
    case ASK_BARRIER:
        if (result == 0)
            check_barrier(sim, node);
        break;
    case ASK_NOTHING:
    case ASK_KINDS:
        break;
    }
    finish(sim, node);
}

static void env_done(void *context, uint64_t token, int result, uint64_t value)
{
    struct node *node = context;
    struct sim *sim = node->sim;
    bool again = sim->planted == PLANTED_TWICE && node->is_alive;

    if (!node->is_alive)
        return;
    if (node->asks == ASK_NOTHING || token != node->token)
        fail(sim, "answers", "node %u: done(%d) for token %llu, which is not open", node->index, result,
             (unsigned long long)token);
    else
        answered(sim, node, result, value);
    if (again) {
        sim->planted = PLANTED_NONE;
        env_done(context, token, result, value);
    }
}

static void env_extents_taken(void *context, uint64_t first, uint64_t count)
{
    (void)context;
    (void)first;
    (void)count;
}

static void env_extents_freed(void *context, uint64_t first, uint64_t count)
{
    struct node *node = context;

    for (uint64_t e = first; e < first + count; e++) {
        const struct cluster_extent *extent = cluster_extent_at(node->cluster, e);

        if (extent == NULL || extent->home == 0)
            fail(node->sim, "extents", "node %u hears that extent %llu is freed, its table has forgotten it already",
                 node->index, (unsigned long long)e);
    }
}

static void env_suspect(void *context, struct node_id peer)
{
    struct node *node = context;

    if (node->sim->nodes[peer.index].is_alive)
        node->sim->suspicions++; /* a cut looks like a death; the agent of this simulation knows better */
}

/* ---- what the programs on the nodes do -----------------------------------------------------------------------------
 */

static int ask_name(struct sim *sim, struct node *node)
{
    char name[16];
    unsigned owner = node->asks == ASK_SET ? node->index : draw(sim, sim->nodes_count);

    node->name = draw(sim, NAMES);
    snprintf(name, sizeof(name), "n%u.%u", owner, node->name);
    if (node->asks == ASK_SET) {
        node->value = ++node->set_last[node->name];
        return cluster_name_set(node->cluster, name, node->value, node->token, sim->now_ns);
    }
    node->value = sim->names_done[owner][node->name];
    return cluster_name_get(node->cluster, name, false, node->token, sim->now_ns);
}

static int ask_call(struct sim *sim, struct node *node)
{
    switch ((enum request_kind)node->asks) {
    case ASK_TAKE:
        node->run.count = 1 + draw(sim, 5);
        return cluster_extents_take(node->cluster, node->run.count,
                                    draw(sim, 2) == 0 ? CLUSTER_PLACE_NODE : CLUSTER_PLACE_INTERLEAVE,
                                    node_of(draw(sim, sim->nodes_count)), node->token, sim->now_ns);
    case ASK_GIVE:
        return cluster_extents_give(node->cluster, node->run.first, node->run.count, node->token, sim->now_ns);
    case ASK_SET:
    case ASK_GET:
        return ask_name(sim, node);
    case ASK_BARRIER:
        node->rounds++;
        return cluster_barrier(node->cluster, node->token, sim->now_ns);
    case ASK_NOTHING:
    case ASK_KINDS:
        break;
    }
    return -EINVAL;
}

/* Every node does the same number of barriers, so that no barrier waits for ever: one after each 8 other requests. */
static void ask(struct sim *sim, struct node *node)
{
    int result;

    node->left--;
    node->asks = node->left % 8 == 0 ? ASK_BARRIER : (uint8_t)(ASK_TAKE + draw(sim, ASK_BARRIER - ASK_TAKE));
    if (node->asks == ASK_TAKE && node->run.used)
        node->asks = ASK_GIVE;
    if (node->asks == ASK_GIVE && !node->run.used)
        node->asks = ASK_TAKE;
    node->token++;
    node->asked_ns = sim->now_ns;
    result = ask_call(sim, node);
    if (result != 0) {
        fail(sim, "answers", "node %u: request %u is refused with %d", node->index, node->asks, result);
        finish(sim, node);
    }
}

/* ---- time and faults -----------------------------------------------------------------------------------------------
 */

static void crash(struct sim *sim, struct node *dead)
{
    dead->is_alive = false;
    sim->crashes++;
    sim->view.epoch.number++;
    sim->view.members &= ~(UINT64_C(1) << dead->index);
    for (unsigned i = 0; i < MESSAGES; i++)
        if (sim->flights[i].used && sim->flights[i].to == dead->index)
            sim->flights[i].used = false;
    for (unsigned i = 0; i < sim->nodes_count; i++) {
        uint64_t kept_ns = sim->now_ns + draw(sim, sim->delay_ns_max); /* what would arrive later is lost */

        for (unsigned f = 0; f < MESSAGES; f++)
            if (sim->flights[f].used && sim->flights[f].from == dead->index && sim->flights[f].to == i &&
                sim->flights[f].arrives_ns > kept_ns)
                sim->flights[f].used = false;
        sim->nodes[i].view_due_ns = sim->now_ns + MS + draw(sim, 4 * MS);
    }
}

static void view_enter(struct sim *sim, struct node *node)
{
    node->view_due_ns = UINT64_MAX;
    node->epoch = sim->view.epoch.number;
    for (unsigned i = 0; i < MESSAGES; i++)
        if (sim->flights[i].used && sim->flights[i].to == node->index &&
            !view_has(&sim->view, node_of(sim->flights[i].from)))
            sim->flights[i].used = false;
    cluster_set_view(node->cluster, &sim->view, sim->now_ns);
}

static void chaos(struct sim *sim)
{
    unsigned a = draw(sim, sim->nodes_count), b = draw(sim, sim->nodes_count);

    if (a != b && chance(sim, sim->stall_permille))
        sim->stalled_ns[a][b] = sim->now_ns + draw(sim, 5 * MS);
    if (sim->crashes < sim->crashes_max && sim->nodes[a].is_alive && chance(sim, sim->crash_permille))
        crash(sim, &sim->nodes[a]);
}

/* Does what is next on a node; true when there was something. */
static bool node_step(struct sim *sim, struct node *node)
{
    if (!node->is_alive)
        return false;
    if (node->view_due_ns <= sim->now_ns) {
        view_enter(sim, node);
        return true;
    }
    if (cluster_deadline_ns(node->cluster) <= sim->now_ns) {
        cluster_tick(node->cluster, sim->now_ns);
        return true;
    }
    if (node->asks == ASK_NOTHING && node->left > 0 && node->think_ns <= sim->now_ns) {
        ask(sim, node);
        return true;
    }
    return false;
}

static struct flight *flight_first(struct sim *sim)
{
    struct flight *first = NULL;

    for (unsigned i = 0; i < MESSAGES; i++) {
        struct flight *flight = &sim->flights[i];

        if (flight->used && (first == NULL || flight->arrives_ns < first->arrives_ns ||
                             (flight->arrives_ns == first->arrives_ns && flight->sequence < first->sequence)))
            first = flight;
    }
    return first;
}

static void flight_land(struct sim *sim, struct flight *flight)
{
    struct node *node = &sim->nodes[flight->to];
    _Alignas(8) uint8_t bytes[MESSAGE_BYTES];

    flight->used = false;
    if (!node->is_alive)
        return;
    memcpy(bytes, flight->bytes, flight->size_bytes);
    cluster_heard(node->cluster, node_of(flight->from), sim->now_ns);
    cluster_receive(node->cluster, node_of(flight->from), bytes, flight->size_bytes, sim->now_ns);
}

/* The next moment at which something happens. */
static uint64_t next_ns(struct sim *sim)
{
    const struct flight *flight = flight_first(sim);
    uint64_t soonest_ns = flight == NULL ? UINT64_MAX : flight->arrives_ns;

    for (unsigned i = 0; i < sim->nodes_count; i++) {
        const struct node *node = &sim->nodes[i];
        uint64_t due_ns;

        if (!node->is_alive)
            continue;
        due_ns = cluster_deadline_ns(node->cluster);
        if (node->view_due_ns < due_ns)
            due_ns = node->view_due_ns;
        if (node->asks == ASK_NOTHING && node->left > 0 && node->think_ns < due_ns)
            due_ns = node->think_ns;
        if (due_ns < soonest_ns)
            soonest_ns = due_ns;
    }
    return soonest_ns;
}

static void step(struct sim *sim)
{
    struct flight *flight;
    uint64_t due_ns = next_ns(sim);

    sim->steps++;
    if (due_ns > sim->now_ns)
        sim->now_ns = due_ns;
    if (!sim->is_healed && sim->steps % 16 == 0)
        chaos(sim);
    for (unsigned i = 0; i < sim->nodes_count; i++)
        if (node_step(sim, &sim->nodes[i]))
            return;
    flight = flight_first(sim);
    if (flight != NULL && flight->arrives_ns <= sim->now_ns)
        flight_land(sim, flight);
}

static bool is_busy(const struct sim *sim)
{
    for (unsigned i = 0; i < sim->nodes_count; i++)
        if (sim->nodes[i].is_alive && (sim->nodes[i].asks != ASK_NOTHING || sim->nodes[i].left > 0))
            return true;
    return false;
}

/* After a death some nodes have one barrier more to do than others: the last ones give up. */
static void barriers_cancel(struct sim *sim)
{
    bool is_stuck = sim->crashes > 0;

    for (unsigned i = 0; i < sim->nodes_count; i++) {
        const struct node *node = &sim->nodes[i];

        if (node->is_alive && node->asks != ASK_BARRIER && (node->asks != ASK_NOTHING || node->left > 0))
            is_stuck = false;
    }
    for (unsigned i = 0; is_stuck && i < sim->nodes_count; i++)
        if (sim->nodes[i].is_alive && sim->nodes[i].asks == ASK_BARRIER &&
            sim->now_ns - sim->nodes[i].asked_ns > 50 * MS)
            cluster_cancel(sim->nodes[i].cluster, sim->nodes[i].token, sim->now_ns);
}

static void check_end(struct sim *sim)
{
    const struct cluster *truth = NULL;

    for (unsigned i = 0; i < sim->nodes_count; i++) {
        const struct node *node = &sim->nodes[i];

        if (!node->is_alive)
            continue;
        if (node->asks != ASK_NOTHING)
            fail(sim, "progress", "node %u waits for ever for request %u of %llu us", i, node->asks,
                 (unsigned long long)(node->asked_ns / US));
        if (truth == NULL)
            truth = node->cluster;
        for (uint64_t e = 0; e < EXTENTS; e++)
            if (memcmp(cluster_extent_at(truth, e), cluster_extent_at(node->cluster, e),
                       sizeof(struct cluster_extent)) != 0)
                fail(sim, "replicas", "node %u has another entry for extent %llu", i, (unsigned long long)e);
    }
}

static void sim_start(struct sim *sim, uint64_t seed, unsigned planted)
{
    *sim = (struct sim){.seed = seed, .random = {seed}, .now_ns = US, .planted = planted};
    sim->nodes_count = 2 + draw(sim, NODES_COUNT_MAX - 1);
    sim->delay_ns_max = 1 + draw(sim, 200 * US);
    sim->stall_permille = draw(sim, 2) * draw(sim, 200);
    sim->crash_permille = 5;
    sim->crashes_max = draw(sim, 2) * draw(sim, sim->nodes_count);
    sim->view = (struct view){.epoch = {1}, .members = (UINT64_C(1) << sim->nodes_count) - 1};
    for (unsigned i = 0; i < sim->nodes_count; i++) {
        struct node *node = &sim->nodes[i];
        struct cluster_limits limits = {.nodes_count = (uint16_t)sim->nodes_count,
                                        .extents_count = EXTENTS,
                                        .requests_max = 4,
                                        .names_max = NODES_COUNT_MAX * NAMES,
                                        .heartbeat_ns = 2 * MS,
                                        .suspect_ns = 20 * MS};

        node->sim = sim;
        node->index = i;
        node->is_alive = true;
        node->left = 48;
        node->view_due_ns = US + draw(sim, 2 * MS);
        node->env = (struct cluster_env){node, env_send, env_done, env_extents_taken, env_extents_freed, env_suspect};
        node->cluster = calloc(1, cluster_bytes(&limits));
        ASSERT(node->cluster != NULL);
        cluster_init(node->cluster, &limits, &node->env, node_of(i));
    }
}

/* Phase 1 under faults, then everything must end within a virtual second. */
static bool sim_run(struct sim *sim)
{
    uint64_t healed_ns;

    while (!sim->is_failed && sim->steps < 4000 && is_busy(sim))
        step(sim);
    sim->is_healed = true;
    healed_ns = sim->now_ns;
    while (!sim->is_failed && is_busy(sim) && sim->now_ns < healed_ns + 1000 * (uint64_t)MS) {
        step(sim);
        barriers_cancel(sim);
    }
    for (healed_ns = sim->now_ns; !sim->is_failed && sim->now_ns < healed_ns + 20 * MS;)
        step(sim); /* the last changes reach everybody */
    if (sim->planted == PLANTED_REPLICA && sim->nodes[1].is_alive)
        memset((void *)(uintptr_t)cluster_extent_at(sim->nodes[1].cluster, 7), 1, sizeof(struct cluster_extent));
    check_end(sim);
    for (unsigned i = 0; i < sim->nodes_count; i++)
        free(sim->nodes[i].cluster);
    return !sim->is_failed;
}

static const char *option_value(const char *argument, const char *name)
{
    size_t length = strlen(name);

    return strncmp(argument, name, length) == 0 ? argument + length : NULL;
}

int main(int argc, char **argv)
{
    static struct sim sim;
    uint64_t seed = 1, seeds = 1, steps = 0, crashes = 0, worlds = 0;
    unsigned planted = 0, seconds = 60;
    const char *value, *expect = NULL;
    time_t start = time(NULL);
    bool is_good = true;

    for (int i = 1; i < argc; i++) {
        if ((value = option_value(argv[i], "--seed=")) != NULL)
            seed = strtoull(value, NULL, 10);
        else if ((value = option_value(argv[i], "--seeds=")) != NULL)
            seeds = strtoull(value, NULL, 10);
        else if ((value = option_value(argv[i], "--seconds=")) != NULL)
            seconds = (unsigned)strtoul(value, NULL, 10);
        else if ((value = option_value(argv[i], "--mutant=")) != NULL)
            planted = (unsigned)strtoul(value, NULL, 10);
        else if ((value = option_value(argv[i], "--expect=")) != NULL)
            expect = value;
        else
            return 64;
    }
    for (; worlds < seeds && is_good && time(NULL) - start < (time_t)seconds; worlds++) {
        sim_start(&sim, seed + worlds, planted);
        is_good = sim_run(&sim);
        steps += sim.steps;
        crashes += sim.crashes;
    }
    printf("%llu worlds, %llu steps, %llu crashes\n", (unsigned long long)worlds, (unsigned long long)steps,
           (unsigned long long)crashes);
    if (!is_good)
        printf("seed %llu failed at step %llu, %llu us: checker %s: %s\nreplay: %s --seed=%llu\n",
               (unsigned long long)sim.seed, (unsigned long long)sim.steps, (unsigned long long)(sim.now_ns / US),
               sim.checker, sim.failure, argv[0], (unsigned long long)sim.seed);
    if (expect == NULL)
        return is_good ? 0 : 1;
    return !is_good && strstr(expect, sim.checker) != NULL ? 0 : 1;
}
