/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_shared_slots.c - slots shared by processes: taken once, given back once, whenever a process is killed.
 *
 * The source is included, so that a process can be ended at each of its points in turn. A checker compares every word
 * with the bits of all accounts; two naive protocols show that it finds what it is there to find.
 */
#include "tests/unit/tiers/check.h"

static void point(void);
#define SLOT_POINT() point()
#include "tiers/shared_slots.c" /* NOLINT */

#include <sys/mman.h>
#include <time.h>

#define ACCOUNTS 6u /* ids 1 .. 6 */
#define SLOTS    (3 * SLOT_CHUNK + 100)

/* All of it in memory that the processes of a test share. */
struct world {
    struct slot_table *table;
    struct slot_account *accounts[ACCOUNTS + 1];
    _Atomic(uint32_t) *contents; /* who wrote into the slot last: a number never used twice */
    _Atomic(uint32_t) *wrong;
    _Atomic(uint32_t) *numbers;
};

static int points_left = -1; /* -1: never */

static void point(void)
{
    if (points_left > 0 && --points_left == 0)
        raise(SIGKILL);
}

static void *shared_new(size_t size_bytes)
{
    void *memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(memory != MAP_FAILED);
    return memory;
}

static void account_reset(struct world *world, uint32_t id)
{
    memset(world->accounts[id], 0, slot_account_bytes(SLOTS));
    slot_account_init(world->accounts[id], SLOTS, id);
}

static int world_open(void **state)
{
    struct world *world = calloc(1, sizeof(*world));

    assert_non_null(world);
    world->table = shared_new(slot_table_bytes(SLOTS));
    world->contents = shared_new(SLOTS * sizeof(*world->contents));
    world->wrong = shared_new(2 * sizeof(*world->wrong));
    world->numbers = world->wrong + 1;
    slot_table_init(world->table, SLOTS, SLOTS);
    for (uint32_t id = 1; id <= ACCOUNTS; id++) {
        world->accounts[id] = shared_new(slot_account_bytes(SLOTS));
        account_reset(world, id);
    }
    points_left = -1;
    *state = world;
    return 0;
}

static int world_close(void **state)
{
    struct world *world = *state;

    munmap(world->table, slot_table_bytes(SLOTS));
    munmap(world->contents, SLOTS * sizeof(*world->contents));
    munmap(world->wrong, 2 * sizeof(*world->wrong));
    for (uint32_t id = 1; id <= ACCOUNTS; id++)
        munmap(world->accounts[id], slot_account_bytes(SLOTS));
    free(world);
    return 0;
}

/* Slots whose word is not what the accounts' bits say (S1), while nobody is at work. */
static unsigned violations(const struct world *world)
{
    unsigned found = 0;
    uint32_t used = 0;

    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        uint32_t holders = 0;

        for (uint32_t id = 1; id <= ACCOUNTS; id++)
            holders += bit_get(world->accounts[id], slot);
        found += world->table->words[slot] != holders;
        used += holders > 0;
    }
    return found + (world->table->used != used);
}

static void release(struct world *world, uint32_t id)
{
    bool is_certain;

    slot_account_release(world->table, world->accounts[id], SLOTS, id, &is_certain);
    if (!is_certain)
        slot_table_recount(world->table, SLOTS);
    account_reset(world, id);
}

/* ---- one process ------------------------------------------------------------------------------------------------ */

static void runs_are_taken_in_order_and_given_back(void **state)
{
    struct world *world = *state;
    struct shared_slots slots;
    uint32_t first, before = 0;

    shared_slots_open(&slots, world->table, world->accounts[1]);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(shared_slots_take(&slots, 64, &first), 64);
        assert_true(i == 0 || first == before + 64);
        assert_true(shared_slots_are_held(&slots, first, 64));
        before = first;
    }
    assert_int_equal(shared_slots_held(&slots), 50 * 64);
    assert_int_equal(shared_slots_free(&slots), SLOTS - 50 * 64);
    assert_int_equal(violations(world), 0);
    for (uint32_t slot = 0; slot < 64; slot++)
        shared_slots_put(&slots, first + slot);
    assert_false(shared_slots_are_held(&slots, first, 1));
    assert_int_equal(shared_slots_held(&slots), 49 * 64);
    assert_int_equal(violations(world), 0);
}

static void last_slot_is_found_and_a_full_store_gives_none(void **state)
{
    struct world *world = *state;
    struct shared_slots slots, other;
    uint32_t first, taken = 0, count;

    shared_slots_open(&slots, world->table, world->accounts[1]);
    shared_slots_open(&other, world->table, world->accounts[2]);
    while ((count = shared_slots_take(taken % 3 == 0 ? &slots : &other, 1 + taken % 90, &first)) > 0)
        taken += count;
    assert_int_equal(taken, SLOTS);
    assert_int_equal(shared_slots_free(&slots), 0);
    assert_int_equal(shared_slots_take(&other, 1, &first), 0);
    for (uint32_t slot = 5; slot < SLOTS; slot += 1777) {
        struct shared_slots *holder = bit_get(world->accounts[1], slot) ? &slots : &other;
        struct shared_slots *taker = slot % 2 == 0 ? &slots : &other;

        shared_slots_put(holder, slot);
        assert_int_equal(shared_slots_take(taker, 64, &first), 1);
        assert_int_equal(first, slot);
    }
    assert_int_equal(violations(world), 0);
}

static void window_follows_use(void **state)
{
    struct world *world = *state;
    struct shared_slots slots;
    uint32_t first;

    shared_slots_open(&slots, world->table, world->accounts[1]);
    assert_int_equal(shared_slots_take(&slots, 1, &first), 1);
    assert_true(world->table->window <= CHUNKS_LEAST);
    assert_true(shared_slots_reach(&slots) <= 64);
    assert_int_equal(slot_table_high(world->table, SLOTS), first + 1);
}

static void smaller_count_is_kept_to(void **state)
{
    struct world *world = *state;
    struct shared_slots slots;
    uint32_t first, count, taken = 0;

    shared_slots_open(&slots, world->table, world->accounts[1]);
    slot_table_resize(world->table, 5000);
    while ((count = shared_slots_take(&slots, 256, &first)) > 0) {
        assert_true(first + count <= 5000);
        taken += count;
    }
    assert_int_equal(taken, 5000);
    slot_table_resize(world->table, 6000);
    while ((count = shared_slots_take(&slots, 256, &first)) > 0)
        taken += count;
    assert_int_equal(taken, 6000);
}

static void cloned_slots_are_free_when_both_have_put_them(void **state)
{
    struct world *world = *state;
    struct shared_slots parent, child, other;
    uint32_t first, again;

    shared_slots_open(&parent, world->table, world->accounts[1]);
    assert_int_equal(shared_slots_take(&parent, 200, &first), 200);
    assert_int_equal(slot_account_clone(world->table, world->accounts[1], world->accounts[2]), 0);
    child = parent;
    shared_slots_change(&child, world->accounts[2]);
    assert_int_equal(violations(world), 0);
    assert_int_equal(shared_slots_held(&child), 200);
    for (uint32_t i = 0; i < 200; i++)
        shared_slots_put(i % 2 == 0 ? &parent : &child, first + i);
    shared_slots_open(&other, world->table, world->accounts[3]);
    atomic_store(&world->table->count, first + 200); /* nothing else is left to take below it */
    for (uint32_t i = 0; i < first; i++)
        world->table->words[i] = 1;
    assert_int_equal(shared_slots_take(&other, 1, &again), 0);
    shared_slots_put(&child, first + 42);
    assert_int_equal(shared_slots_take(&other, 64, &again), 1);
    assert_int_equal(again, first + 42);
}

static void count_of_holders_has_an_end(void **state)
{
    struct world *world = *state;
    struct shared_slots parent;
    uint32_t first;

    shared_slots_open(&parent, world->table, world->accounts[1]);
    assert_int_equal(shared_slots_take(&parent, 3, &first), 3);
    world->table->words[first + 1] = SLOT_HOLDERS_MAX;
    assert_int_equal(slot_account_clone(world->table, world->accounts[1], world->accounts[2]), -EAGAIN);
    release(world, 2);
    assert_int_equal(world->table->words[first], 1);
    assert_int_equal(world->table->words[first + 1], SLOT_HOLDERS_MAX);
    assert_int_equal(world->table->words[first + 2], 1);
}

/* A word that another process has tagged, and that process stands still. */
static void tag_of_another_delays_a_put_but_not_its_caller(void **state)
{
    struct world *world = *state;
    struct shared_slots parent;
    uint32_t first;

    shared_slots_open(&parent, world->table, world->accounts[1]);
    assert_int_equal(shared_slots_take(&parent, 4, &first), 4);
    assert_int_equal(slot_account_clone(world->table, world->accounts[1], world->accounts[2]), 0);
    world->table->words[first] |= TAG_TAKING | 2u << ID_SHIFT;
    shared_slots_put(&parent, first);
    assert_true(shared_slots_are_held(&parent, first, 1));
    assert_int_equal(slot_account_clone(world->table, world->accounts[1], world->accounts[3]), -EAGAIN);
    release(world, 3);
    atomic_store(&world->accounts[2]->busy_first, first);
    atomic_store(&world->accounts[2]->busy_end, first + 1);
    atomic_store(&world->accounts[2]->is_busy, 1);
    release(world, 2); /* it was killed there */
    assert_int_equal(world->table->words[first], 1);
    shared_slots_put(&parent, first + 1);
    assert_false(shared_slots_are_held(&parent, first, 1));
    assert_int_equal(world->table->words[first], 0);
    assert_int_equal(violations(world), 0);
}

static void put_of_a_slot_that_is_not_held(void *argument)
{
    shared_slots_put(argument, 7);
}

static void putting_what_is_not_held_is_caught(void **state)
{
    struct world *world = *state;
    struct shared_slots slots;

    shared_slots_open(&slots, world->table, world->accounts[1]);
    check_aborts(put_of_a_slot_that_is_not_held, &slots);
}

static void wrong_tables_are_refused(void **state)
{
    struct world *world = *state;
    size_t size_bytes = slot_table_bytes(SLOTS), account_bytes = slot_account_bytes(SLOTS);

    assert_int_equal(slot_table_check(world->table, size_bytes), 0);
    assert_int_equal(slot_table_check(world->table, size_bytes - 1), -EPROTO);
    assert_int_equal(slot_table_check(world->table, 8), -EPROTO);
    assert_int_equal(slot_account_check(world->accounts[1], world->table, account_bytes), 0);
    assert_int_equal(slot_account_check(world->accounts[1], world->table, account_bytes - 1), -EPROTO);
    world->accounts[1]->id = 0;
    assert_int_equal(slot_account_check(world->accounts[1], world->table, account_bytes), -EPROTO);
    world->table->magic++;
    assert_int_equal(slot_table_check(world->table, size_bytes), -EPROTO);
}

/* What a broken process wrote into its account must not end the broker, nor free what others hold. */
static void nonsense_in_an_account_is_survived(void **state)
{
    struct world *world = *state;
    struct shared_slots slots;
    struct random random = {7};
    uint32_t first;

    shared_slots_open(&slots, world->table, world->accounts[1]);
    assert_int_equal(shared_slots_take(&slots, 100, &first), 100);
    for (int round = 0; round < 200; round++) {
        uint64_t *words = (uint64_t *)(void *)world->accounts[2];
        bool is_certain;

        for (size_t i = 0; i < slot_account_bytes(SLOTS) / 8; i++)
            words[i] = random_next(&random);
        for (uint32_t slot = first; slot < first + 100; slot++)
            world->accounts[2]->held[slot / 64] &= ~((uint64_t)1 << slot % 64);
        slot_account_release(world->table, world->accounts[2], SLOTS, 2, &is_certain);
    }
    assert_true(shared_slots_are_held(&slots, first, 100));
    for (uint32_t slot = first; slot < first + 100; slot++)
        assert_int_equal(world->table->words[slot], 1);
}

/* ---- killed at every point -------------------------------------------------------------------------------------- */

struct scene {
    const char *name;
    void (*run)(struct world *world, struct shared_slots *slots, uint32_t first);
};

static void scene_take(struct world *world, struct shared_slots *slots, uint32_t first)
{
    (void)world;
    (void)shared_slots_take(slots, 5, &first);
}

static void scene_put(struct world *world, struct shared_slots *slots, uint32_t first)
{
    (void)world;
    shared_slots_put(slots, first);      /* held by this process alone */
    shared_slots_put(slots, first + 64); /* by another too */
}

static void scene_clone(struct world *world, struct shared_slots *slots, uint32_t first)
{
    (void)slots;
    (void)first;
    if (slot_account_clone(world->table, world->accounts[1], world->accounts[2]) != 0)
        _exit(2);
}

/* What is wrong with the obvious ways: they must be found out. */
static void naive_take(struct world *world, struct shared_slots *slots, uint32_t first)
{
    uint32_t expected = 0;

    (void)first;
    bit_put(slots->account, 3000, true);
    if (atomic_compare_exchange_strong(&world->table->words[3000], &expected, 1))
        atomic_fetch_add(&world->table->used, 1);
}

static void naive_put(struct world *world, struct shared_slots *slots, uint32_t first)
{
    bit_put(slots->account, first + 64, false);
    atomic_fetch_sub(&world->table->words[first + 64], 1);
}

/* Account 3 holds `first + 64 ..` too, and 3000. */
static void scene_prepare(struct world *world, struct shared_slots *slots, uint32_t *ret_first)
{
    struct shared_slots other;
    uint32_t first;

    shared_slots_open(slots, world->table, world->accounts[1]);
    assert_int_equal(shared_slots_take(slots, 128, ret_first), 128);
    assert_int_equal(slot_account_clone(world->table, world->accounts[1], world->accounts[3]), 0);
    shared_slots_open(&other, world->table, world->accounts[3]);
    for (uint32_t i = 0; i < 64; i++)
        shared_slots_put(&other, *ret_first + i);
    other.at = 2990;
    other.end = 3010;
    assert_int_equal(shared_slots_take(&other, 20, &first), 20);
}

/* Violations after the scene was cut at each of its points and its process's accounts were given back. */
static unsigned scene_cut_everywhere(const struct scene *scene, unsigned *ret_points)
{
    unsigned found = 0, points = 0;

    for (bool was_cut = true; was_cut; points++) {
        void *state;
        struct world *world;
        struct shared_slots slots;
        uint32_t first;
        int status;
        pid_t pid;

        world_open(&state);
        world = state;
        scene_prepare(world, &slots, &first);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            points_left = (int)points + 1;
            scene->run(world, &slots, first);
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        was_cut = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        assert_true(was_cut || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
        release(world, 1);
        release(world, 2);
        found += violations(world);
        found += slot_account_count(world->accounts[3], SLOTS) != 64 + 20;
        release(world, 3);
        found += violations(world);
        found += slot_table_recount(world->table, SLOTS) != 0;
        world_close(&state);
    }
    *ret_points = points;
    return found;
}

static void killed_at_any_point_leaves_neither_leak_nor_double_free(void **state)
{
    const struct scene scenes[] = {{"take", scene_take}, {"put", scene_put}, {"clone", scene_clone}};
    unsigned points;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(scenes); i++) {
        assert_int_equal(scene_cut_everywhere(&scenes[i], &points), 0);
        assert_true(points > 10);
    }
}

static void checker_finds_naive_protocols_out(void **state)
{
    const struct scene scenes[] = {{"take", naive_take}, {"put", naive_put}};
    unsigned points;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(scenes); i++)
        assert_true(scene_cut_everywhere(&scenes[i], &points) > 0);
}

/* ---- many processes, killed at random --------------------------------------------------------------------------- */

#define HELD_MAX 512u

static _Noreturn void worker(struct world *world, uint32_t id, uint64_t seed)
{
    struct random random = {seed};
    struct shared_slots slots;
    uint32_t held[HELD_MAX], numbers[HELD_MAX], count = 0;

    shared_slots_open(&slots, world->table, world->accounts[id]);
    for (;;) {
        if (count < HELD_MAX / 2 || (random_below(&random, 2) == 0 && count < HELD_MAX - 64)) {
            uint32_t first;
            uint32_t taken = shared_slots_take(&slots, 1 + random_below(&random, 64), &first);

            for (uint32_t i = 0; i < taken; i++) {
                held[count] = first + i;
                numbers[count] = atomic_fetch_add(world->numbers, 1);
                atomic_store(&world->contents[first + i], numbers[count++]);
            }
        } else {
            uint32_t pick = random_below(&random, count);

            if (atomic_load(&world->contents[held[pick]]) != numbers[pick])
                atomic_fetch_add(world->wrong, 1);
            shared_slots_put(&slots, held[pick]);
            held[pick] = held[--count];
            numbers[pick] = numbers[count];
        }
    }
}

static pid_t worker_start(struct world *world, uint32_t id, uint64_t seed)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        worker(world, id, seed);
    return pid;
}

static void processes_killed_at_random_leave_nothing(void **state)
{
    struct world *world = *state;
    struct random random = {20};
    pid_t pids[ACCOUNTS + 1];

    atomic_store(&world->table->count, 1500); /* tight: they meet at the same slots */
    for (uint32_t id = 1; id <= ACCOUNTS; id++)
        pids[id] = worker_start(world, id, random_next(&random));
    for (int round = 0; round < 300; round++) {
        uint32_t id = 1 + random_below(&random, ACCOUNTS);
        struct timespec pause = {0, (long)random_below(&random, 3000000)};

        nanosleep(&pause, NULL);
        kill(pids[id], SIGKILL);
        assert_int_equal(waitpid(pids[id], NULL, 0), pids[id]);
        release(world, id);
        pids[id] = worker_start(world, id, random_next(&random));
    }
    for (uint32_t id = 1; id <= ACCOUNTS; id++)
        kill(pids[id], SIGKILL);
    for (uint32_t id = 1; id <= ACCOUNTS; id++) {
        assert_int_equal(waitpid(pids[id], NULL, 0), pids[id]);
        release(world, id);
    }
    assert_int_equal(atomic_load(world->wrong), 0);
    assert_true(atomic_load(world->numbers) > 10000);
    slot_table_recount(world->table, SLOTS);
    assert_int_equal(violations(world), 0);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, world_open, world_close)
    const struct CMUnitTest tests[] = {
        CASE(runs_are_taken_in_order_and_given_back),
        CASE(last_slot_is_found_and_a_full_store_gives_none),
        CASE(window_follows_use),
        CASE(smaller_count_is_kept_to),
        CASE(cloned_slots_are_free_when_both_have_put_them),
        CASE(count_of_holders_has_an_end),
        CASE(tag_of_another_delays_a_put_but_not_its_caller),
        CASE(putting_what_is_not_held_is_caught),
        CASE(wrong_tables_are_refused),
        CASE(nonsense_in_an_account_is_survived),
        cmocka_unit_test(killed_at_any_point_leaves_neither_leak_nor_double_free),
        cmocka_unit_test(checker_finds_naive_protocols_out),
        CASE(processes_killed_at_random_leave_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
