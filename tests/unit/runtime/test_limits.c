/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_limits.c - how budgets follow limits, pressure and wishes: the decision by a clock of our own, and the watch
 * over a picture of a machine.
 */
#include "base/os.h"
#include "runtime/limits.h"
#include "runtime/loop.h"
#include "tests/support/fake_root.h"

#define MIB       ((uint64_t)1 << 20)
#define SECOND_NS UINT64_C(1000000000)
#define NO_LIMIT  ((struct cgroup_room){.limit_bytes = UINT64_MAX, .room_bytes = INT64_MAX})

static struct cgroup_room room_of(uint64_t limit_mib, int64_t room_mib)
{
    return (struct cgroup_room){.limit_bytes = limit_mib * MIB, .room_bytes = room_mib * (int64_t)MIB};
}

struct machine {
    struct limits_state state;
    struct limits_input input;
};

static struct machine machine_new(uint64_t ddr_mib)
{
    struct machine machine = {.input = {.now_ns = 100 * SECOND_NS, .room = NO_LIMIT}};

    machine.input.wanted_bytes[TIER_DDR] = ddr_mib * MIB;
    return machine;
}

/* One second later. Returns the DDR budget. */
static uint64_t ddr_next(struct machine *machine)
{
    machine->input.now_ns += SECOND_NS;
    limits_decide(&machine->state, &machine->input);
    return machine->state.budget_bytes[TIER_DDR];
}

static void without_limits_all_is_given(void **state)
{
    struct machine machine = machine_new(256);

    (void)state;
    machine.input.wanted_bytes[TIER_CXL] = 512 * MIB;
    assert_int_equal(ddr_next(&machine), 256 * MIB);
    assert_int_equal(machine.state.budget_bytes[TIER_CXL], 512 * MIB);
    assert_int_equal(machine.state.budget_bytes[TIER_NVME], 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(ddr_next(&machine), 256 * MIB);
}

static void a_limit_takes_at_once_and_only_what_is_missing(void **state)
{
    struct machine machine = machine_new(256);

    (void)state;
    machine.input.room = room_of(128, 100); /* nothing is used yet */
    assert_int_equal(ddr_next(&machine), 100 * MIB);
    machine.input.used_bytes[TIER_DDR] = 100 * MIB; /* now it is: nothing else changed */
    machine.input.room = room_of(128, 0);
    assert_int_equal(ddr_next(&machine), 100 * MIB);
    machine.input.room = room_of(64, -64); /* the limit is halved */
    assert_int_equal(ddr_next(&machine), 36 * MIB);
}

static void tiers_share_what_fits(void **state)
{
    struct machine machine = machine_new(256);

    (void)state;
    machine.input.wanted_bytes[TIER_CXL] = 512 * MIB;
    machine.input.room = room_of(512, 384);
    assert_int_equal(ddr_next(&machine), 128 * MIB);
    assert_int_equal(machine.state.budget_bytes[TIER_CXL], 256 * MIB);
}

static void there_is_a_least_budget(void **state)
{
    struct machine machine = machine_new(256);

    (void)state;
    machine.input.room = room_of(64, -500);
    assert_int_equal(ddr_next(&machine), LIMITS_MIN_BYTES);
    machine = machine_new(1); /* less than that is wanted */
    machine.input.room = room_of(64, -500);
    assert_int_equal(ddr_next(&machine), MIB);
}

static void room_that_comes_back_is_taken_in_steps(void **state)
{
    struct machine machine = machine_new(256);
    uint64_t before;

    (void)state;
    machine.input.room = room_of(128, 96);
    assert_int_equal(ddr_next(&machine), 96 * MIB);
    machine.input.room = room_of(512, 400);
    before = 96 * MIB;
    for (int i = 0; i < 20; i++) {
        uint64_t now = ddr_next(&machine);

        assert_true(now >= before && now <= before + 16 * MIB + PAGE_BYTES);
        before = now;
    }
    assert_int_equal(before, 256 * MIB);
}

/* Usage that goes up and down a little must not make the budget follow. */
static void small_changes_are_left_out(void **state)
{
    struct machine machine = machine_new(256);
    uint64_t budget;

    (void)state;
    machine.input.room = room_of(128, 96);
    budget = ddr_next(&machine);
    for (int i = 0; i < 50; i++) {
        machine.input.room = room_of(128, 96 + i % 7 - 3);
        assert_int_equal(ddr_next(&machine), budget);
    }
}

static void pressure_takes_an_eighth_a_second_down_to_a_quarter(void **state)
{
    struct machine machine = machine_new(256);
    uint64_t before = ddr_next(&machine);

    (void)state;
    machine.input.is_pressed = true;
    assert_int_equal(ddr_next(&machine), before - before / 8);
    /* Again within the second: one word of the kernel is not two. */
    machine.input.now_ns += SECOND_NS / 4;
    limits_decide(&machine.state, &machine.input);
    assert_int_equal(machine.state.budget_bytes[TIER_DDR], before - before / 8);
    for (int i = 0; i < 30; i++) {
        uint64_t now = ddr_next(&machine);

        assert_true(now <= before && now >= 64 * MIB);
        before = now;
    }
    assert_int_equal(before, 64 * MIB);
}

static void quiet_gives_back_step_by_step(void **state)
{
    struct machine machine = machine_new(256);
    uint64_t low;
    uint64_t before;
    int steps = 0;

    (void)state;
    ddr_next(&machine);
    machine.input.is_pressed = true;
    for (int i = 0; i < 4; i++)
        low = ddr_next(&machine);
    machine.input.is_pressed = false;
    for (int i = 0; i < 4; i++)
        assert_int_equal(ddr_next(&machine), low); /* not before it has been quiet for a while */
    before = low;
    while (before < 256 * MIB) {
        uint64_t now = ddr_next(&machine);

        assert_true(now >= before && now <= before + 17 * MIB);
        before = now;
        assert_true(++steps < 30);
    }
    assert_true(steps > 3);
}

static void pressure_in_between_starts_the_quiet_anew(void **state)
{
    struct machine machine = machine_new(256);
    uint64_t low = 0;

    (void)state;
    ddr_next(&machine);
    for (int round = 0; round < 60; round++) {
        uint64_t now;

        machine.input.is_pressed = round % 4 == 0;
        now = ddr_next(&machine);
        assert_true(low == 0 || now <= low);
        low = now;
    }
    assert_int_equal(low, 64 * MIB);
}

static void a_wish_is_granted_at_once(void **state)
{
    struct machine machine = machine_new(256);

    (void)state;
    ddr_next(&machine);
    machine.input.wanted_bytes[TIER_DDR] = 32 * MIB;
    assert_int_equal(ddr_next(&machine), 32 * MIB);
    machine.input.wanted_bytes[TIER_DDR] = 512 * MIB;
    assert_int_equal(ddr_next(&machine), 512 * MIB);
    machine.input.room = room_of(1024, 200);
    machine.input.wanted_bytes[TIER_DDR] = 1024 * MIB; /* as far as it fits */
    assert_int_equal(ddr_next(&machine), 200 * MIB);
}

/* Any sequence: no budget above the wish, none below the floor, whole pages. */
static void bounds_always_hold(void **state)
{
    struct machine machine = machine_new(256);
    uint64_t seed = 12345;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint64_t ddr;

        seed = seed * 6364136223846793005U + 1442695040888963407U;
        machine.input.is_pressed = (seed >> 60) == 0;
        machine.input.room = (seed >> 56 & 7) == 0 ? NO_LIMIT : room_of(512, (int64_t)(seed >> 33 & 1023) - 512);
        machine.input.used_bytes[TIER_DDR] = machine.state.budget_bytes[TIER_DDR];
        if ((seed >> 48 & 63) == 0)
            machine.input.wanted_bytes[TIER_DDR] = ((seed >> 20 & 511) + 1) * MIB + (seed & 8191);
        machine.input.now_ns += seed >> 40 & 0xffffffff;
        limits_decide(&machine.state, &machine.input);
        ddr = machine.state.budget_bytes[TIER_DDR];
        assert_true(ddr <= machine.input.wanted_bytes[TIER_DDR]);
        assert_true(ddr >= LIMITS_MIN_BYTES || ddr + PAGE_BYTES > machine.input.wanted_bytes[TIER_DDR]);
        assert_int_equal(ddr % PAGE_BYTES, 0);
    }
}

/* ---- the watch ------------------------------------------------------------------------------------------------- */

struct watched {
    uint64_t used_bytes[TIERS];
    uint64_t budget_bytes[TIERS];
    unsigned changes;
};

static void give_used(void *context, uint64_t bytes[TIERS])
{
    memcpy(bytes, ((struct watched *)context)->used_bytes, sizeof(((struct watched *)context)->used_bytes));
}

static void take_change(void *context, enum tier_kind tier, uint64_t budget_bytes)
{
    struct watched *watched = context;

    watched->budget_bytes[tier] = budget_bytes;
    watched->changes++;
}

static void group_limit(const struct fake_root *root, uint64_t limit_mib, uint64_t usage_mib)
{
    char text[64];

    snprintf(text, sizeof(text), "%lu\n", limit_mib * MIB);
    fake_file(root, "/sys/fs/cgroup/job/memory.max", text);
    snprintf(text, sizeof(text), "%lu\n", usage_mib * MIB);
    fake_file(root, "/sys/fs/cgroup/job/memory.current", text);
}

static void the_watch_follows_the_group(void **state)
{
    struct watched watched = {.changes = 0};
    struct limits_config config = {.wanted_bytes = {[TIER_DDR] = 256 * MIB},
                                   .user = {&watched, give_used, take_change}};
    struct limits *limits;
    struct fake_root root;
    uint64_t now_ns;

    (void)state;
    fake_root_make(&root);
    fake_file(&root, "/proc/self/cgroup", "0::/job\n");
    fake_file(&root, "/proc/self/mountinfo", "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    group_limit(&root, 512, 20);
    config.root = root.path;
    assert_int_equal(loop_create("epoll", &config.loop), 0);
    assert_int_equal(limits_open(&config, &limits), 0);
    assert_int_equal(watched.budget_bytes[TIER_DDR], 256 * MIB);
    assert_int_equal(watched.changes, 1);

    now_ns = limits_deadline_ns(limits);
    assert_true(now_ns > os_now_ns() && now_ns < os_now_ns() + 2 * SECOND_NS);
    limits_tick(limits, now_ns - 1); /* not due */
    group_limit(&root, 128, 20);
    limits_tick(limits, now_ns);
    assert_int_equal(watched.changes, 2);
    assert_int_equal(watched.budget_bytes[TIER_DDR], 96 * MIB); /* 128 - 20 - the margin */

    limits_want(limits, TIER_DDR, 64 * MIB);
    assert_int_equal(watched.budget_bytes[TIER_DDR], 64 * MIB);
    limits_close(limits);
    loop_destroy(config.loop);

    limits_at_start(root.path, (uint64_t[TIERS]){[TIER_DDR] = 256 * MIB}, watched.budget_bytes);
    assert_int_equal(watched.budget_bytes[TIER_DDR], 96 * MIB);
    fake_root_remove(&root);
}

/* Over the kernel's own files and both loops: it opens, ticks and closes. */
static void the_watch_runs_here(void **state)
{
    static const char *const kinds[] = {"epoll", "auto"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct watched watched = {.changes = 0};
        struct limits_config config = {
            .root = "", .wanted_bytes = {[TIER_DDR] = 4 * MIB}, .user = {&watched, give_used, take_change}};
        struct limits *limits;

        assert_int_equal(loop_create(kinds[i], &config.loop), 0);
        assert_int_equal(limits_open(&config, &limits), 0);
        assert_int_equal(watched.budget_bytes[TIER_DDR], 4 * MIB);
        loop_run_once(config.loop, os_now_ns() + SECOND_NS / 100);
        limits_tick(limits, limits_deadline_ns(limits));
        limits_close(limits);
        loop_destroy(config.loop);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_limits_all_is_given),
        cmocka_unit_test(a_limit_takes_at_once_and_only_what_is_missing),
        cmocka_unit_test(tiers_share_what_fits),
        cmocka_unit_test(there_is_a_least_budget),
        cmocka_unit_test(room_that_comes_back_is_taken_in_steps),
        cmocka_unit_test(small_changes_are_left_out),
        cmocka_unit_test(pressure_takes_an_eighth_a_second_down_to_a_quarter),
        cmocka_unit_test(quiet_gives_back_step_by_step),
        cmocka_unit_test(pressure_in_between_starts_the_quiet_anew),
        cmocka_unit_test(a_wish_is_granted_at_once),
        cmocka_unit_test(bounds_always_hold),
        cmocka_unit_test(the_watch_follows_the_group),
        cmocka_unit_test(the_watch_runs_here),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
