/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cluster.c - extents, names and barriers of several clusters, with crashes at every step. See world.h.
 */
#include "tests/unit/cluster/world.h"

#include "cluster/message.h"

static int take(struct world *world, unsigned node, uint64_t count)
{
    return world_ask(world, node, (struct world_token){.ask = ASK_TAKE, .count = count});
}

static int give(struct world *world, unsigned node, uint64_t first, uint64_t count)
{
    return world_ask(world, node, (struct world_token){.ask = ASK_GIVE, .first = first, .count = count});
}

static int set(struct world *world, unsigned node, const char *name, uint64_t value)
{
    struct world_token token = {.ask = ASK_SET, .value = value};

    snprintf(token.name, sizeof(token.name), "%s", name);
    return world_ask(world, node, token);
}

static int get(struct world *world, unsigned node, const char *name, bool wait)
{
    struct world_token token = {.ask = ASK_GET, .first = wait};

    snprintf(token.name, sizeof(token.name), "%s", name);
    return world_ask(world, node, token);
}

static int barrier(struct world *world, unsigned node)
{
    return world_ask(world, node, (struct world_token){.ask = ASK_BARRIER});
}

static struct world *world_ready(unsigned nodes_count, uint64_t seed)
{
    struct world *world = world_open(nodes_count, seed);

    world_drain(world);
    return world;
}

static const struct world_token *ended(const struct world *world, int token)
{
    assert_true(token >= 0);
    assert_true(world->tokens[token].is_done);
    return &world->tokens[token];
}

static int result_of(const struct world *world, int token)
{
    return ended(world, token)->result;
}

/* ---- one thing at a time ---------------------------------------------------------------------------------------- */

static void test_runs_are_taken_and_given(void **state)
{
    struct world *world = world_ready(3, 1);
    int a = take(world, 0, 3), b = take(world, 1, 5), c;

    (void)state;
    world_drain(world);
    assert_int_equal(result_of(world, a), 0);
    assert_int_equal(result_of(world, b), 0);
    c = give(world, 0, ended(world, a)->first, 3);
    world_drain(world);
    assert_int_equal(result_of(world, c), 0);
    c = take(world, 2, 3); /* first fit: the hole is used again */
    world_drain(world);
    assert_int_equal(ended(world, c)->first, ended(world, a)->first);
    world_check_end(world);
    world_close(world);
}

static void test_a_run_has_homes_where_asked(void **state)
{
    struct world *world = world_ready(3, 2);
    int spread = take(world, 2, 7);
    int placed = world_ask(world, 0, (struct world_token){.ask = ASK_TAKE, .count = 2, .value = 2});

    (void)state;
    world_drain(world);
    for (unsigned i = 0; i < 7; i++)
        assert_int_equal(cluster_extent_at(world->nodes[1].cluster, ended(world, spread)->first + i)->home, i % 3 + 1);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(cluster_extent_at(world->nodes[2].cluster, ended(world, placed)->first + i)->home, 2);
    assert_null(cluster_extent_at(world->nodes[0].cluster, WORLD_EXTENTS));
    world_close(world);
}

static void test_what_cannot_be_given(void **state)
{
    struct world *world = world_ready(2, 3);
    int a = take(world, 0, 4), b;
    uint64_t first;

    (void)state;
    world_drain(world);
    first = ended(world, a)->first;
    b = take(world, 0, 4);
    world_drain(world);
    assert_int_equal(ended(world, b)->first, first + 4);
    {
        const int wrong[] = {give(world, 0, first, 3),    give(world, 0, first + 1, 3),     give(world, 0, first, 8),
                             give(world, 1, first, 4),    give(world, 0, first, 5),         give(world, 0, 60, 5),
                             give(world, 0, 1u << 30, 4), give(world, 0, UINT64_MAX - 4, 4)};

        world_drain(world);
        for (size_t i = 0; i < ARRAY_COUNT(wrong); i++)
            assert_int_equal(result_of(world, wrong[i]), -EINVAL);
    }
    a = give(world, 0, first, 4);
    b = give(world, 0, first, 4); /* a second time */
    world_drain(world);
    assert_int_equal(result_of(world, a), 0);
    assert_int_equal(result_of(world, b), -EINVAL);
    world_close(world);
}

static void test_the_table_is_full(void **state)
{
    struct world *world = world_ready(2, 4);
    int all = take(world, 0, WORLD_EXTENTS), more = take(world, 1, 1), huge = take(world, 1, UINT64_MAX / 2), again;

    (void)state;
    world_drain(world);
    /* Which of the two small ones came first is chance. */
    assert_int_equal(result_of(world, all) + result_of(world, more), -ENOMEM);
    assert_int_equal(result_of(world, huge), -ENOMEM);
    again = take(world, 0, WORLD_EXTENTS + 1);
    world_drain(world);
    assert_int_equal(result_of(world, again), -ENOMEM);
    world_close(world);
}

static void test_requests_are_bounded(void **state)
{
    struct world *world = world_ready(2, 5);

    (void)state;
    for (unsigned i = 0; i < 8; i++)
        assert_true(take(world, 1, 1) >= 0);
    assert_int_equal(take(world, 1, 1), -EAGAIN);
    world_drain(world);
    assert_true(take(world, 1, 1) >= 0);
    world_drain(world);
    world_check_end(world);
    world_close(world);
}

static void test_requests_wait_for_the_first_view(void **state)
{
    struct world *world = world_open(3, 6);
    int a = take(world, 1, 2), b[3];

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        b[i] = barrier(world, i);
    assert_false(world->tokens[a].is_done);
    world_drain(world);
    assert_int_equal(result_of(world, a), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(result_of(world, b[i]), 0);
    world_close(world);
}

static void test_names(void **state)
{
    struct world *world = world_ready(3, 7);
    int a, b, waits;

    (void)state;
    a = get(world, 1, "root", false);
    assert_int_equal(result_of(world, a), -ENOENT);
    waits = get(world, 2, "root", true);
    a = set(world, 0, "root", 77);
    b = set(world, 1, "other", 5);
    world_drain(world);
    assert_int_equal(result_of(world, a), 0);
    assert_int_equal(result_of(world, b), 0);
    assert_int_equal(result_of(world, waits), 0);
    assert_int_equal(ended(world, waits)->value, 77);
    a = set(world, 2, "root", 78);
    world_drain(world);
    b = get(world, 0, "root", false);
    assert_int_equal(ended(world, b)->value, 78);
    a = set(world, 2, "root", 0);
    world_drain(world);
    assert_int_equal(result_of(world, a), 0);
    assert_int_equal(result_of(world, get(world, 0, "root", false)), -ENOENT);
    a = set(world, 2, "absent", 0); /* removing what is not there is nothing */
    world_drain(world);
    assert_int_equal(result_of(world, a), 0);
    world_close(world);
}

static void test_names_are_bounded(void **state)
{
    struct world *world = world_ready(2, 8);
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    int tokens[5], removed, again;

    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        tokens[i] = set(world, 1, names[i], i + 1);
        world_drain(world);
    }
    assert_int_equal(result_of(world, tokens[3]), 0);
    assert_int_equal(result_of(world, tokens[4]), -ENOSPC);
    removed = set(world, 0, "b", 0);
    world_drain(world);
    again = set(world, 0, "e", 9);
    world_drain(world);
    assert_int_equal(result_of(world, removed), 0);
    assert_int_equal(result_of(world, again), 0);
    assert_int_equal(ended(world, get(world, 1, "d", false))->value, 4);
    world_close(world);
}

static void test_a_name_is_not_told_before_it_is_everywhere(void **state)
{
    /* Whatever the order of deliveries: once one node has read the new value, no other reads the old one. */
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct world *world = world_ready(4, seed);
        uint64_t newest = 1;

        assert_true(set(world, 0, "x", 1) >= 0);
        world_drain(world);
        assert_true(set(world, 1, "x", 2) >= 0);
        assert_true(set(world, 2, "x", 3) >= 0);
        do {
            unsigned node = random_below(&world->random, 4);
            int token = get(world, node, "x", false);

            assert_true(token >= 0);
            while (!world->tokens[token].is_done)
                assert_true(world_step(world));
            if (ended(world, token)->value != newest) {
                assert_true(newest == 1 || ended(world, token)->value != 1);
                newest = ended(world, token)->value;
            }
        } while (world_step(world));
        world_close(world);
    }
    (void)state;
}

static void test_a_barrier_waits_for_all(void **state)
{
    struct world *world = world_ready(4, 9);
    int tokens[4];

    (void)state;
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < 3; i++)
            tokens[i] = barrier(world, i);
        assert_int_equal(barrier(world, 0), -EBUSY);
        world_drain(world);
        for (unsigned i = 0; i < 3; i++)
            assert_false(world->tokens[tokens[i]].is_done);
        tokens[3] = barrier(world, 3);
        world_drain(world);
        for (unsigned i = 0; i < 4; i++)
            assert_int_equal(result_of(world, tokens[i]), 0);
    }
    world_close(world);
}

static void test_a_view_change_ends_barriers(void **state)
{
    for (unsigned victim = 0; victim < 4; victim++) {
        struct world *world = world_ready(4, victim);
        int tokens[4];

        for (unsigned i = 0; i < 4; i++)
            tokens[i] = i == victim ? -1 : barrier(world, i);
        world_drain(world);
        world_crash(world, victim);
        world_drain(world);
        for (unsigned i = 0; i < 4; i++) {
            if (i != victim)
                assert_int_equal(result_of(world, tokens[i]), -EHOSTDOWN);
        }
        for (unsigned i = 0; i < 4; i++)
            tokens[i] = i == victim ? -1 : barrier(world, i);
        world_drain(world);
        for (unsigned i = 0; i < 4; i++) {
            if (i != victim)
                assert_int_equal(result_of(world, tokens[i]), 0);
        }
        world_close(world);
    }
    (void)state;
}

static void test_waiting_can_be_cancelled(void **state)
{
    struct world *world = world_ready(3, 10);
    int waits = get(world, 1, "never", true), tokens[3];

    (void)state;
    cluster_cancel(world->nodes[1].cluster, (uint64_t)waits, 0);
    assert_int_equal(result_of(world, waits), -ECANCELED);
    cluster_cancel(world->nodes[1].cluster, (uint64_t)waits, 0); /* nothing there any more */

    tokens[1] = barrier(world, 1);
    world_drain(world);
    cluster_cancel(world->nodes[1].cluster, (uint64_t)tokens[1], 0);
    cluster_cancel(world->nodes[1].cluster, (uint64_t)tokens[1], 0);
    world_drain(world);
    assert_int_equal(result_of(world, tokens[1]), -ECANCELED);
    world->nodes[1].barriers[1]--;
    tokens[0] = barrier(world, 0);
    tokens[2] = barrier(world, 2);
    world_drain(world);
    assert_false(world->tokens[tokens[0]].is_done); /* node 1 does not count as arrived */
    tokens[1] = barrier(world, 1);
    world_drain(world);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(result_of(world, tokens[i]), 0);
    world_close(world);
}

/* The cancel races with the release in every way: all three see one outcome of the round. */
static void test_a_cancel_races_with_the_release(void **state)
{
    unsigned released = 0, cancelled = 0;

    for (uint64_t seed = 0; seed < 300; seed++) {
        struct world *world = world_ready(3, seed);
        int tokens[3];

        for (unsigned i = 0; i < 3; i++)
            tokens[i] = barrier(world, i);
        for (unsigned steps = random_below(&world->random, 8); steps > 0; steps--)
            (void)world_step(world);
        cluster_cancel(world->nodes[2].cluster, (uint64_t)tokens[2], 0);
        world_drain(world);
        if (result_of(world, tokens[2]) == 0) {
            released++;
            assert_int_equal(result_of(world, tokens[0]), 0);
            assert_int_equal(result_of(world, tokens[1]), 0);
        } else {
            cancelled++;
            assert_int_equal(result_of(world, tokens[2]), -ECANCELED);
            assert_false(world->tokens[tokens[0]].is_done || world->tokens[tokens[1]].is_done);
        }
        world_close(world);
    }
    assert_true(released > 0 && cancelled > 0);
    (void)state;
}

/* ---- faults ----------------------------------------------------------------------------------------------------- */

/* One random request of a node that lives; gives back what its node took, sometimes. */
static void ask_something(struct world *world)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    unsigned node = random_below(&world->random, world->nodes_count);
    unsigned what = random_below(&world->random, 10);

    if (world->nodes[node].is_dead || world->tokens_count >= WORLD_TOKENS - 1)
        return;
    if (what < 4) {
        (void)take(world, node, 1 + random_below(&world->random, 5));
    } else if (what < 7) {
        for (unsigned i = 0; i < world->tokens_count; i++) {
            const struct world_token *token = &world->tokens[i];

            if (token->ask == ASK_TAKE && token->node == node && token->is_done && token->result == 0 &&
                !world_is_given(world, i, false)) {
                (void)give(world, node, token->first, token->count);
                break;
            }
        }
    } else if (what < 8) {
        (void)set(world, node, names[random_below(&world->random, 6)], random_below(&world->random, 4));
    } else if (what < 9) {
        (void)get(world, node, names[random_below(&world->random, 6)], random_below(&world->random, 2) == 0);
    } else {
        (void)barrier(world, node);
    }
}

enum fault {
    FAULT_CRASH,
    FAULT_EXPEL,
};

/* Runs one seed for some steps; at step `at` something happens to `victim`. Returns the steps it took. */
static unsigned run_with_fault(unsigned nodes_count, uint64_t seed, unsigned at, unsigned victim, enum fault fault)
{
    struct world *world = world_open(nodes_count, seed);
    unsigned steps;

    for (unsigned asks = 60; asks > 0 || random_below(&world->random, 3) != 0;) {
        if (asks > 0 && random_below(&world->random, 3) == 0) {
            ask_something(world);
            asks--;
        }
        if (world->steps == at && fault == FAULT_CRASH)
            world_crash(world, victim);
        else if (world->steps == at)
            world_expel(world, victim);
        (void)world_step(world);
    }
    steps = world->steps;
    world_drain(world);
    world_check_end(world);
    assert_int_equal(world->views_count, at < steps ? 2 : 1);
    for (unsigned i = 0; i < nodes_count; i++)
        assert_int_equal(world->nodes[i].suspicions, 0);
    world_close(world);
    return steps;
}

static void loop_over_fault_points(enum fault fault)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        unsigned steps = run_with_fault(3, seed, UINT32_MAX, 0, fault);

        assert_true(steps > 100);
        for (unsigned at = 1; at < steps && at < 260; at++) {
            for (unsigned victim = 0; victim < 3; victim++)
                (void)run_with_fault(3, seed, at, victim, fault);
        }
    }
}

static void test_a_crash_at_every_step(void **state)
{
    (void)state;
    loop_over_fault_points(FAULT_CRASH);
}

static void test_an_expulsion_at_every_step(void **state)
{
    (void)state;
    loop_over_fault_points(FAULT_EXPEL);
}

/* Keepers fall one after the other, while their changes are on the way. */
static void test_many_faults_in_a_row(void **state)
{
    for (uint64_t seed = 0; seed < 1500; seed++) {
        unsigned nodes_count = 3 + (unsigned)(seed % 4);
        struct world *world = world_open(nodes_count, seed);
        unsigned faults = 0;

        for (unsigned round = 0; round < 400; round++) {
            unsigned victim = random_below(&world->random, nodes_count);

            if (random_below(&world->random, 5) == 0)
                ask_something(world);
            if (random_below(&world->random, 60) == 0 && faults + 1 < nodes_count && world_is_in(world, victim)) {
                faults++;
                if (random_below(&world->random, 2) == 0)
                    world_crash(world, victim);
                else
                    world_expel(world, victim);
            }
            (void)world_step(world);
        }
        world_drain(world);
        world_check_end(world);
        world_close(world);
    }
    (void)state;
}

static void test_a_node_that_is_out_gets_ehostdown(void **state)
{
    struct world *world = world_ready(3, 11);
    int pending = take(world, 0, 1), waits = get(world, 0, "x", true), blocked = barrier(world, 0);

    (void)state;
    world_expel(world, 0);
    assert_true(world_hear(world, 0));
    assert_int_equal(result_of(world, pending), -EHOSTDOWN);
    assert_int_equal(result_of(world, waits), -EHOSTDOWN);
    assert_int_equal(result_of(world, blocked), -EHOSTDOWN);
    assert_int_equal(take(world, 0, 1), -EHOSTDOWN);
    assert_int_equal(barrier(world, 0), -EHOSTDOWN);
    assert_true(cluster_deadline_ns(world->nodes[0].cluster) == UINT64_MAX);
    world_drain(world);
    world_check_end(world);
    world_close(world);
}

/* ---- peers that send what they should not ------------------------------------------------------------------------ */

static void send_garbage(struct world *world, unsigned from, unsigned to)
{
    uint8_t bytes[WORLD_BYTES];
    size_t size = random_below(&world->random, sizeof(bytes));

    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)random_next(&world->random);
    if (size >= 4 && random_below(&world->random, 2) == 0) {
        bytes[0] = MESSAGE_FAMILY_CLUSTER;
        bytes[1] = CLUSTER_MESSAGE_VERSION;
        bytes[2] = (uint8_t)random_below(&world->random, CLUSTER_TYPES + 1);
        bytes[3] = 0;
    }
    cluster_receive(world->nodes[to].cluster, node_of(from), bytes, size, world->now_ns);
}

static void test_garbage_changes_nothing(void **state)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct world *world = world_open(3, seed);

        for (unsigned round = 0; round < 200; round++) {
            if (random_below(&world->random, 5) == 0)
                ask_something(world);
            (void)world_step(world);
            /* From a node beyond the job, and broken bytes from a member. */
            send_garbage(world, 3 + random_below(&world->random, 100), random_below(&world->random, 3));
            cluster_receive(world->nodes[0].cluster, node_of(1), "\2\1\7", random_below(&world->random, 4), 0);
        }
        world_drain(world);
        world_check_end(world);
        world_close(world);
    }
    (void)state;
}

/* A well-formed message of any type, with numbers that are near the truth. */
static void send_rogue(struct world *world, unsigned from, unsigned to)
{
    struct random *random = &world->random;
    struct cluster_message message = {
        .type = (uint8_t)(1 + random_below(random, CLUSTER_TYPES - 1)),
        .epoch = cluster_view(world->nodes[to].cluster)->epoch,
        .sequence = random_below(random, 12),
        .index = random_below(random, 20),
        .result = -1 - (int)random_below(random, 100),
        .change = {.index = random_below(random, 16) == 0 ? UINT64_MAX : random_below(random, 20),
                   .sequence = random_below(random, 12),
                   .requester = node_of(random_below(random, 4)),
                   .kind = (uint8_t)random_below(random, CHANGE_KINDS),
                   .placement = (uint8_t)random_below(random, 2),
                   .node = node_of(random_below(random, 5)),
                   .members = random_below(random, 16),
                   .first_extent = random_below(random, WORLD_EXTENTS + 2),
                   .extents_count = 1 + random_below(random, 6),
                   .value = random_below(random, 3),
                   .name = {(char)('a' + random_below(random, 6))}}};
    uint8_t bytes[CLUSTER_MESSAGE_MAX];

    if (message.change.kind == CHANGE_NONE)
        message.change.index = 0;
    cluster_receive(world->nodes[to].cluster, node_of(from), bytes, cluster_message_encode(&message, bytes), 0);
}

/* A member that lies may spoil the tables, but it crashes nobody, ends nothing twice, and its removal frees all. */
static void test_a_rogue_member(void **state)
{
    for (uint64_t seed = 0; seed < 900; seed++) {
        struct world *world = world_ready(3, seed);
        unsigned rogue = (unsigned)(seed % 3);

        world->is_lawless = true;
        world->nodes[rogue].is_rogue = true;
        for (unsigned round = 0; round < 300; round++) {
            if (random_below(&world->random, 5) == 0)
                ask_something(world);
            (void)world_step(world);
            send_rogue(world, rogue, (rogue + 1 + random_below(&world->random, 2)) % 3);
        }
        world_close(world);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_are_taken_and_given),
        cmocka_unit_test(test_a_run_has_homes_where_asked),
        cmocka_unit_test(test_what_cannot_be_given),
        cmocka_unit_test(test_the_table_is_full),
        cmocka_unit_test(test_requests_are_bounded),
        cmocka_unit_test(test_requests_wait_for_the_first_view),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_names_are_bounded),
        cmocka_unit_test(test_a_name_is_not_told_before_it_is_everywhere),
        cmocka_unit_test(test_a_barrier_waits_for_all),
        cmocka_unit_test(test_a_view_change_ends_barriers),
        cmocka_unit_test(test_waiting_can_be_cancelled),
        cmocka_unit_test(test_a_cancel_races_with_the_release),
        cmocka_unit_test(test_a_crash_at_every_step),
        cmocka_unit_test(test_an_expulsion_at_every_step),
        cmocka_unit_test(test_many_faults_in_a_row),
        cmocka_unit_test(test_a_node_that_is_out_gets_ehostdown),
        cmocka_unit_test(test_garbage_changes_nothing),
        cmocka_unit_test(test_a_rogue_member),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
