/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explore.c - dsm_explore: walks every interleaving of small worlds over the shipped coherence/ code.
 *
 *   dsm_explore [--seconds=S] [--scenario=NAME] [--expect=CHECKERS]
 *
 * In each state every message that could arrive next, every thread, every timer and (where the scenario has one) every
 * death is tried: depth first, a state saved by copying the world's bytes and known again by a hash of what matters in
 * it. The checkers run after every step, and those of a quiescent cluster where nothing more can happen. There is no
 * time: a timer may fire at any moment after it was set, a node's clock moves only with its timers. So a page may be
 * taken away before its thread runs, again and again; ways on which a thread faults too often are not followed.
 */
#include "world.h"

#include "base/assert.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#define VISITED_BITS  24
#define VISITED_COUNT ((size_t)1 << VISITED_BITS)
#define VISITED_MAX   (VISITED_COUNT / 4 * 3)
#define DEPTH_MAX     2000
#define CHOICES_MAX   64
#define LIVE_NEW      UINT16_MAX
#define PROGRAM_MAX   4
#define FAULTS_MAX    3 /* of one operation; an instruction on two pages needs two */

/* Choices beyond the events of a world. */
#define CHOICE_DIES_SILENT 100 /* nothing that the node sent last arrives */
#define CHOICE_DIES_LATE   101 /* all of it arrives */

struct step {
    uint8_t operation; /* OPERATIONS: nothing */
    uint8_t first, second;
    uint8_t is_store;
};

/* Three nodes with one thread each. Page 0 has its home at node 0, page 1 at node 1. */
struct scenario {
    const char *name;
    uint8_t pages;
    uint8_t crashes;
    uint16_t keep_lock_permille;
    uint8_t has_holds; /* grants are held for a time: more states */
    struct step programs[WORLD_THREADS_MAX][PROGRAM_MAX];
};

#define END                                                                                                            \
    {                                                                                                                  \
        OPERATIONS, 0, 0, 0                                                                                            \
    }
#define LOAD(page)                                                                                                     \
    {                                                                                                                  \
        OPERATION_LOAD, page, 0, 0                                                                                     \
    }
#define STORE(page)                                                                                                    \
    {                                                                                                                  \
        OPERATION_STORE, page, 0, 1                                                                                    \
    }
#define STORE_TWO(a, b)                                                                                                \
    {                                                                                                                  \
        OPERATION_STORE_TWO, a, b, 1                                                                                   \
    }
#define EVICT(page)                                                                                                    \
    {                                                                                                                  \
        OPERATION_EVICT, page, 0, 0                                                                                    \
    }
#define ATOMIC(page)                                                                                                   \
    {                                                                                                                  \
        OPERATION_ATOMIC, page, 0, 0                                                                                   \
    }
#define READ(page)                                                                                                     \
    {                                                                                                                  \
        OPERATION_READ, page, 0, 0                                                                                     \
    }
#define LOCK(number, kind)                                                                                             \
    {                                                                                                                  \
        OPERATION_LOCK, number, 0, kind                                                                                \
    }
#define PREFETCH(page)                                                                                                 \
    {                                                                                                                  \
        OPERATION_PREFETCH, page, 0, 0                                                                                 \
    }

static const struct scenario scenarios[] = {
    {"readers", 1, 0, 0, 0, {{STORE(0), LOAD(0), END}, {LOAD(0), LOAD(0), END}, {STORE(0), END}}},
    {"writers", 1, 0, 0, 1, {{STORE(0), STORE(0), END}, {STORE(0), LOAD(0), END}, {STORE(0), END}}},
    {"away", 1, 0, 0, 0, {{END}, {STORE(0), LOAD(0), STORE(0), END}, {STORE(0), LOAD(0), END}}},
    {"evictions", 1, 0, 0, 0, {{LOAD(0), END}, {STORE(0), EVICT(0), LOAD(0), END}, {STORE(0), EVICT(0), END}}},
    {"two pages", 2, 0, 0, 0, {{STORE_TWO(0, 1), END}, {STORE_TWO(1, 0), END}, {LOAD(0), LOAD(1), END}}},
    {"atomics", 1, 0, 0, 0, {{ATOMIC(0), END}, {STORE(0), ATOMIC(0), END}, {LOAD(0), ATOMIC(0), END}}},
    {"reads", 1, 0, 0, 0, {{LOAD(0), END}, {STORE(0), STORE(0), END}, {READ(0), LOAD(0), END}}},
    {"prefetch", 1, 0, 0, 0, {{STORE(0), END}, {PREFETCH(0), STORE(0), END}, {PREFETCH(0), LOAD(0), END}}},
    {"locks", 1, 0, 1000, 0, {{LOCK(0, 1), END}, {LOCK(0, 1), LOCK(0, 1), END}, {LOCK(0, 0), LOCK(0, 1), END}}},
    {"death", 1, 1, 0, 0, {{LOAD(0), END}, {STORE(0), END}, {STORE(0), LOAD(0), END}}},
    {"death of a lock's owner", 1, 1, 1000, 0, {{LOCK(0, 1), END}, {LOCK(0, 1), END}, {LOCK(0, 0), END}}},
};

/*
 * A state on the way. A step changes the protocol's memory of one node only, so a level keeps its own copy of that
 * node's and refers to an earlier level's copy of the others'.
 */
struct level {
    struct event choices[CHOICES_MAX];
    uint8_t *world;
    uint8_t *block;                       /* of the nodes that owner[] says are kept here */
    uint16_t owner[WORLD_NODES_MAX];      /* which level keeps the node's block */
    uint64_t block_hash[WORLD_NODES_MAX]; /* of those kept here */
    unsigned count, next;
};

struct explorer {
    const struct scenario *scenario;
    struct world *world;
    uint64_t *visited;
    struct level *levels;
    uint16_t live[WORLD_NODES_MAX];      /* the level whose copy equals the node's block now, or LIVE_NEW */
    uint64_t live_hash[WORLD_NODES_MAX]; /* valid unless LIVE_NEW */
    unsigned depth, depth_max;
    uint64_t states, steps, ends, pruned;
    time_t until;
    bool is_complete;
};

/* For the handler of a failed ASSERT, which cannot be given anything. */
static struct {
    struct world *world;
    jmp_buf out;
} running;

static void aborted(int signal_number)
{
    (void)signal_number;
    world_fail(running.world, "assert", "an assertion failed, see above");
    longjmp(running.out, 1);
}

static const struct scenario *program_source;

static void operation_next(struct world *world, struct thread *thread)
{
    unsigned index = (unsigned)(thread - world->threads);
    const struct step *program = program_source->programs[index];
    unsigned at = 0, length = 0;

    while (length < PROGRAM_MAX && program[length].operation != OPERATIONS)
        length++;
    at = length - 1 - thread->left;
    thread->operation = program[at].operation;
    thread->pages[0] = program[at].first;
    thread->pages[1] = program[at].second;
    thread->lock = program[at].first;
    thread->is_store = program[at].is_store;
    thread->is_exclusive = program[at].is_store;
    thread->pages_count = 1;
    thread->value = 1; /* the word of atomics; a lock request waits */
}

static uint32_t program_length(const struct scenario *scenario, unsigned thread)
{
    uint32_t length = 0;

    while (length < PROGRAM_MAX && scenario->programs[thread][length].operation != OPERATIONS)
        length++;
    return length;
}

static struct world *scenario_world(const struct scenario *scenario)
{
    struct settings settings = {
        .nodes_count = 3,
        .extents_count = scenario->pages,
        .extent_pages = 1,
        .threads_count = 3,
        .hot_pages = scenario->pages,
        .keep_lock_permille = scenario->keep_lock_permille,
        .limits = {.nodes_count = 3,
                   .requests_max = 4,
                   .locks_max = 4,
                   .home_locks_max = 8,
                   .hold_ns = scenario->has_holds ? 1 : 0,
                   .hold_ns_max = scenario->has_holds ? 1 : 0},
    };
    struct world *world = world_create(&settings, 1);

    world->is_exploring = true;
    world->next_operation = operation_next;
    program_source = scenario;
    for (unsigned i = 0; i < settings.threads_count; i++)
        world->threads[i].left = program_length(scenario, i);
    world_start(world);
    return world;
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

#define SAVED_BYTES offsetof(struct world, traces_count)

static uint8_t *live_block(const struct world *world, unsigned node)
{
    return (uint8_t *)(uintptr_t)(world + 1) + node * world->coherence_bytes;
}

static void state_save(struct explorer *explorer, struct level *level)
{
    struct world *world = explorer->world;

    if (level->world == NULL) {
        level->world = malloc(SAVED_BYTES);
        level->block = malloc(world->coherence_bytes * WORLD_NODES_MAX);
        ASSERT(level->world != NULL && level->block != NULL);
    }
    memcpy(level->world, world, SAVED_BYTES);
    for (unsigned node = 0; node < WORLD_NODES_MAX; node++) {
        if (explorer->live[node] == LIVE_NEW) {
            memcpy(level->block + node * world->coherence_bytes, live_block(world, node), world->coherence_bytes);
            level->block_hash[node] = explorer->live_hash[node];
            explorer->live[node] = (uint16_t)(level - explorer->levels);
        }
        level->owner[node] = explorer->live[node];
    }
}

static void state_restore(struct explorer *explorer, const struct level *level)
{
    struct world *world = explorer->world;

    memcpy(world, level->world, SAVED_BYTES);
    for (unsigned node = 0; node < WORLD_NODES_MAX; node++) {
        const struct level *owner = &explorer->levels[level->owner[node]];

        if (explorer->live[node] == level->owner[node])
            continue;
        memcpy(live_block(world, node), owner->block + node * world->coherence_bytes, world->coherence_bytes);
        explorer->live[node] = level->owner[node];
        explorer->live_hash[node] = owner->block_hash[node];
    }
}

/* Messages count by their place in their queue, not by where they lie. */
static uint64_t state_hash(struct explorer *explorer)
{
    struct world *world = explorer->world;
    uint64_t hash = XXH3_64bits(world->nodes, offsetof(struct world, channels) - offsetof(struct world, nodes));

    for (unsigned i = 0; i < WORLD_NODES_MAX * WORLD_NODES_MAX * PLANES_COUNT; i++)
        for (uint16_t slot = net_channel(world, i)->first; slot != 0; slot = world->messages[slot - 1].next)
            hash = XXH3_64bits_withSeed(&world->messages[slot - 1], offsetof(struct message_slot, next), hash + i);
    hash = XXH3_64bits_withSeed(world->events, world->events_count * sizeof(world->events[0]), hash);
    for (unsigned node = 0; node < WORLD_NODES_MAX; node++) {
        if (explorer->live[node] == LIVE_NEW)
            explorer->live_hash[node] = XXH3_64bits(live_block(world, node), world->coherence_bytes);
        hash = XXH3_64bits_withSeed(&explorer->live_hash[node], sizeof(uint64_t), hash);
    }
    return hash == 0 ? 1 : hash;
}

/* True: not seen before; it is now. */
static bool state_is_new(struct explorer *explorer)
{
    uint64_t hash = state_hash(explorer);
    size_t at = hash >> (64 - VISITED_BITS);

    while (explorer->visited[at] != 0) {
        if (explorer->visited[at] == hash)
            return false;
        at = (at + 1) % VISITED_COUNT;
    }
    explorer->visited[at] = hash;
    explorer->states++;
    return true;
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static void choice_add(struct level *level, unsigned kind, unsigned node, unsigned index)
{
    ASSERT(level->count < CHOICES_MAX);
    level->choices[level->count++] =
        (struct event){.kind = (uint8_t)kind, .node = (uint8_t)node, .index = (uint16_t)index};
}

static void choices_find(struct explorer *explorer, struct level *level)
{
    struct world *world = explorer->world;

    level->count = 0;
    level->next = 0;
    for (unsigned i = 0; i < WORLD_NODES_MAX * WORLD_NODES_MAX * PLANES_COUNT; i++)
        if (net_channel(world, i)->first != 0)
            choice_add(level, EVENT_DELIVER, i / PLANES_COUNT % WORLD_NODES_MAX, i);
    for (unsigned i = 0; i < world->events_count; i++)
        if (i == 0 || memcmp(&world->events[i], &world->events[i - 1], sizeof(world->events[i])) != 0)
            choice_add(level, world->events[i].kind, world->events[i].node, world->events[i].index);
    for (unsigned i = 0; i < world->settings.nodes_count; i++) {
        if (!world->nodes[i].is_alive)
            continue;
        if (coherence_deadline_ns(world->nodes[i].coherence) != UINT64_MAX)
            choice_add(level, EVENT_TICK, i, 0);
        if (level->count > 0 && world->crashes < explorer->scenario->crashes) {
            choice_add(level, CHOICE_DIES_SILENT, i, 0);
            choice_add(level, CHOICE_DIES_LATE, i, 0);
        }
    }
}

static void event_remove(struct world *world, const struct event *event)
{
    uint32_t at = 0;

    while (at < world->events_count &&
           (world->events[at].kind != event->kind || world->events[at].node != event->node ||
            world->events[at].index != event->index))
        at++;
    ASSERT(at < world->events_count);
    world->events_count--;
    memmove(&world->events[at], &world->events[at + 1], (world->events_count - at) * sizeof(world->events[0]));
}

static void choice_execute(struct world *world, const struct event *choice)
{
    struct sim_node *node = &world->nodes[choice->node];

    if (choice->kind == CHOICE_DIES_SILENT || choice->kind == CHOICE_DIES_LATE) {
        world->keeps_dead = choice->kind == CHOICE_DIES_LATE;
        faults_crash(world, choice->node);
        return;
    }
    if (choice->kind == EVENT_TICK && node->clock_ns < coherence_deadline_ns(node->coherence))
        node->clock_ns = coherence_deadline_ns(node->coherence);
    if (choice->kind != EVENT_TICK && choice->kind != EVENT_DELIVER)
        event_remove(world, choice);
    world_execute(world, choice);
    check_writers_all(world);
}

static void end_check(struct world *world)
{
    check_progress_end(world);
    check_directory(world);
    check_leaks(world);
    check_atomics_all(world);
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

static void level_push(struct explorer *explorer)
{
    struct level *level = &explorer->levels[explorer->depth];

    choices_find(explorer, level);
    if (level->count == 0) {
        explorer->ends++;
        end_check(explorer->world);
        return;
    }
    ASSERT(explorer->depth + 1 < DEPTH_MAX);
    state_save(explorer, level);
    explorer->depth++;
    if (explorer->depth > explorer->depth_max)
        explorer->depth_max = explorer->depth;
}

static bool is_hopeless(const struct world *world)
{
    for (unsigned i = 0; i < world->settings.threads_count; i++)
        if (world->threads[i].faults > FAULTS_MAX)
            return true;
    return false;
}

static bool has_budget(const struct explorer *explorer)
{
    return explorer->states < VISITED_MAX && (explorer->steps % 4096 != 0 || time(NULL) < explorer->until);
}

static void walk(struct explorer *explorer)
{
    struct world *world = explorer->world;

    while (explorer->depth > 0 && !world->is_failed && has_budget(explorer)) {
        struct level *level = &explorer->levels[explorer->depth - 1];

        if (level->next == level->count) {
            explorer->depth--;
            continue;
        }
        if (level->next > 0)
            state_restore(explorer, level);
        explorer->steps++;
        explorer->live[level->choices[level->next].node] = LIVE_NEW;
        choice_execute(world, &level->choices[level->next++]);
        if (world->is_failed)
            break;
        if (is_hopeless(world))
            explorer->pruned++;
        else if (state_is_new(explorer))
            level_push(explorer);
    }
    explorer->is_complete = explorer->depth == 0;
}

/* The way to the failure again, in words. */
static void failure_print(struct explorer *explorer)
{
    struct world *world = explorer->world;
    unsigned depth = explorer->depth;

    printf("scenario \"%s\" fails after %u steps: checker %s: %s\n", explorer->scenario->name, depth, world->checker,
           world->failure);
    state_restore(explorer, &explorer->levels[0]);
    world->is_verbose = true;
    if (setjmp(running.out) != 0)
        return;
    for (unsigned i = 0; i < depth; i++)
        choice_execute(world, &explorer->levels[i].choices[explorer->levels[i].next - 1]);
}

static void level_free(struct level *level)
{
    free(level->world);
    free(level->block);
}

/* True: every promise kept; else the failed checker's name is copied. */
static bool explore(const struct scenario *scenario, time_t until, char *ret_checker)
{
    struct explorer explorer = {.scenario = scenario, .until = until};
    bool is_good;

    explorer.visited = calloc(VISITED_COUNT, sizeof(explorer.visited[0]));
    explorer.levels = calloc(DEPTH_MAX, sizeof(explorer.levels[0]));
    ASSERT(explorer.visited != NULL && explorer.levels != NULL);
    explorer.world = scenario_world(scenario);
    running.world = explorer.world;
    signal(SIGABRT, aborted);
    for (unsigned node = 0; node < WORLD_NODES_MAX; node++)
        explorer.live[node] = LIVE_NEW;
    if (setjmp(running.out) == 0) {
        (void)state_is_new(&explorer);
        level_push(&explorer);
        walk(&explorer);
    }
    is_good = !explorer.world->is_failed;
    printf("%-24s %9llu states %10llu steps %8llu ends %7llu cut, depth %u%s\n", scenario->name,
           (unsigned long long)explorer.states, (unsigned long long)explorer.steps, (unsigned long long)explorer.ends,
           (unsigned long long)explorer.pruned, explorer.depth_max, explorer.is_complete ? ", complete" : "");
    if (!is_good) {
        strcpy(ret_checker, explorer.world->checker);
        failure_print(&explorer);
    }
    for (unsigned i = 0; i < DEPTH_MAX; i++)
        level_free(&explorer.levels[i]);
    free(explorer.levels);
    free(explorer.visited);
    world_destroy(explorer.world);
    return is_good;
}

static const char *option_value(const char *argument, const char *name)
{
    size_t length = strlen(name);

    return strncmp(argument, name, length) == 0 ? argument + length : NULL;
}

int main(int argc, char **argv)
{
    const char *only = NULL, *expect = NULL, *value;
    unsigned seconds = 20;
    char checker[32] = "";
    bool is_good = true;
    time_t start = time(NULL);

    for (int i = 1; i < argc; i++) {
        if ((value = option_value(argv[i], "--seconds=")) != NULL)
            seconds = (unsigned)strtoul(value, NULL, 10);
        else if ((value = option_value(argv[i], "--scenario=")) != NULL)
            only = value;
        else if ((value = option_value(argv[i], "--expect=")) != NULL)
            expect = value;
        else
            return 64;
    }
    for (unsigned i = 0; i < ARRAY_COUNT(scenarios) && is_good; i++) {
        time_t share = (time_t)(seconds * (i + 1) / ARRAY_COUNT(scenarios));

        if (only == NULL || strcmp(only, scenarios[i].name) == 0)
            is_good = explore(&scenarios[i], only == NULL ? start + share + 1 : start + seconds, checker);
    }
    if (expect == NULL)
        return is_good ? 0 : 1;
    if (!is_good && strstr(expect, checker) != NULL) {
        printf("caught by %s\n", checker);
        return 0;
    }
    printf("the planted bug was %s\n", is_good ? "not caught" : "caught by another checker than expected");
    return 1;
}
