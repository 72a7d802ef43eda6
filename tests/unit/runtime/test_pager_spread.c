/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pager_spread.c - pages between near and far memory in the real pager. Which node a page lies on is told by a
 * picture of two nodes, since the test machine may have one: a page is known by its first word. tests/rig has the
 * kernel's own move_pages.
 */
#include "tests/unit/runtime/pager_fixture.h"

#include <errno.h>

#define NEAR_NODE   0
#define FAR_NODE    3
#define DDR_PAGES   1024u
#define NEAR_MOST   (DDR_PAGES + 256) /* a thread that faults fast is ahead of those that are sent away */
#define FAR_PAGES   4096u
#define PAGES       4000u
#define HOT_PAGES   512u
#define HOT_ENOUGH  (HOT_PAGES * 8 / 10)
#define HOT_FIRST   3000u /* the last to come: most are sent far to make room for others */
#define PAGES_LIMIT (PAGER_PRIVATE_BYTES >> PAGE_SHIFT)

/* ---- a picture of two nodes -------------------------------------------------------------------------------------- */

static struct {
    volatile uint8_t node_of[PAGES_LIMIT]; /* the program looks at it too */
    bool is_stuck[PAGES_LIMIT];
    unsigned moves;
    bool is_gone;           /* the far node */
    uint64_t far_max_pages; /* it has room for */
    struct pager *pager;
} machine;

static uint64_t number_of(const void *page)
{
    uint64_t number = *(const volatile uint64_t *)page;

    return number < PAGES_LIMIT ? number : 0;
}

static int picture_where(void *const *pages, unsigned count, int *nodes_out)
{
    for (unsigned i = 0; i < count; i++)
        nodes_out[i] = machine.node_of[number_of(pages[i])];
    return 0;
}

static int picture_move(void *const *pages, const int *nodes_in, unsigned count, int *results_out)
{
    uint64_t used[TIERS];

    pager_tier_pages(machine.pager, used);
    for (unsigned i = 0; i < count; i++) {
        uint64_t number = number_of(pages[i]);

        if (nodes_in[i] == FAR_NODE && machine.is_gone)
            return -ENODEV;
        results_out[i] = nodes_in[i];
        if (nodes_in[i] == FAR_NODE && used[TIER_CXL]++ >= machine.far_max_pages)
            results_out[i] = -ENOMEM;
        else if (machine.is_stuck[number])
            results_out[i] = -EBUSY;
        else
            machine.node_of[number] = (uint8_t)nodes_in[i];
        machine.moves++;
    }
    return 0;
}

static const struct numa_ops picture = {.where = picture_where, .move = picture_move};

/* ---- a program --------------------------------------------------------------------------------------------------- */

struct program {
    struct pager_fixture fixture;
    unsigned pages, hot_first, hot_count; /* touches go over all pages once, then over the hot ones */
    uint64_t until_ns;
    _Atomic(bool) is_done;
    bool was_wrong;
};

static unsigned hot_near(const struct program *program)
{
    unsigned count = 0;

    for (unsigned i = 0; i < program->hot_count; i++)
        count += machine.node_of[program->hot_first + i] == NEAR_NODE;
    return count;
}

static void *program_run(void *argument)
{
    struct program *program = argument;
    struct random random = {3};

    for (unsigned i = 0; i < program->pages; i++) {
        *(volatile uint64_t *)pager_fixture_page(&program->fixture, i) = i;
        if (i % 64 == 0)
            usleep(1000); /* as fast as pages can be moved, or nearly */
    }
    while (program->hot_count > 0 && os_now_ns() < program->until_ns && hot_near(program) <= HOT_ENOUGH) {
        unsigned i = program->hot_first + (unsigned)(random_next(&random) % program->hot_count);

        program->was_wrong |= *(volatile uint64_t *)pager_fixture_page(&program->fixture, i) != i;
        if (i % 32 == 0)
            usleep(100);
    }
    atomic_store(&program->is_done, true);
    return NULL;
}

static void *program_check(void *argument)
{
    struct program *program = argument;

    for (unsigned i = 0; i < program->pages; i++)
        program->was_wrong |= *(volatile uint64_t *)pager_fixture_page(&program->fixture, i) != i;
    atomic_store(&program->is_done, true);
    return NULL;
}

static void program_open(struct program *program, uint64_t nvme_bytes)
{
    const struct pager_config config = {
        .ddr_bytes = DDR_PAGES * PAGE_BYTES,
        .far = {.bytes = FAR_PAGES * PAGE_BYTES, .nodes = {{FAR_NODE, NEAR_NODE}}, .nodes_count = 1, .numa = &picture},
        .prefetch_pages = 32,
        .fault_around_pages = 1,
        .cost = {.read_ns = {300, 900, 2000, 80000}, .write_ns = {300, 900, 3000, 5000}},
        .user = {.has_other_copy = pager_fixture_has_no_copy, .give_back = pager_fixture_has_no_copy},
    };

    memset((void *)&machine, 0, sizeof(machine));
    machine.far_max_pages = FAR_PAGES;
    memset(program, 0, sizeof(*program));
    pager_fixture_open_config(&program->fixture, config, 0, nvme_bytes);
    machine.pager = program->fixture.pager;
}

static void program_play(struct program *program, void *(*run)(void *), unsigned seconds)
{
    atomic_store(&program->is_done, false);
    program->until_ns = os_now_ns() + seconds * UINT64_C(1000000000);
    pager_fixture_run(&program->fixture, run, program, &program->is_done);
    assert_false(program->was_wrong);
}

static void tiers_are(struct program *program, uint64_t *ret_near, uint64_t *ret_far)
{
    uint64_t pages[TIERS];

    pager_tier_pages(program->fixture.pager, pages);
    *ret_near = pages[TIER_DDR];
    *ret_far = pages[TIER_CXL];
}

/* Pages come near by themselves and are sent far in rounds: soon after the last came, the budget holds. */
static void near_settles(struct program *program, uint64_t *ret_near, uint64_t *ret_far)
{
    uint64_t until_ns = os_now_ns() + UINT64_C(5000000000);

    for (;;) {
        tiers_are(program, ret_near, ret_far);
        if (*ret_near <= NEAR_MOST || os_now_ns() >= until_ns)
            break;
        pager_fixture_turn(&program->fixture);
    }
    assert_in_range(*ret_near, 1, NEAR_MOST);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void hot_pages_end_near_and_all_stay_mapped(void **state)
{
    static struct program program;
    const struct stats *stats;
    uint64_t near, far;

    (void)state;
    program_open(&program, 0);
    program.pages = PAGES;
    program_play(&program, program_run, 0);
    near_settles(&program, &near, &far);
    assert_int_equal(near + far, PAGES);
    program.pages = 0;
    program.hot_first = HOT_FIRST - HOT_PAGES;
    program.hot_count = HOT_PAGES;
    for (unsigned i = 0; i < HOT_PAGES; i++) /* however they came: now all are far */
        machine.node_of[program.hot_first + i] = FAR_NODE;
    program_play(&program, program_run, 40);
    stats = pager_stats(program.fixture.pager);
    print_message("%u of %u hot pages near; %lu went far, %lu came near, %lu soft faults\n", hot_near(&program),
                  HOT_PAGES, stats->moves[DSM_TIER_DDR][DSM_TIER_CXL], stats->moves[DSM_TIER_CXL][DSM_TIER_DDR],
                  stats->soft_faults);
    assert_true(hot_near(&program) > HOT_ENOUGH);
    near_settles(&program, &near, &far);
    program.pages = PAGES;
    program_play(&program, program_check, 0);
    assert_int_equal(stats_hard_faults(stats), 0); /* nothing left memory */
    pager_fixture_close(&program.fixture);
}

static void a_program_that_fits_near_is_left_alone(void **state)
{
    static struct program program;
    uint64_t near, far;

    (void)state;
    program_open(&program, 0);
    program.pages = DDR_PAGES / 2;
    program_play(&program, program_run, 0);
    tiers_are(&program, &near, &far);
    assert_int_equal(far, 0);
    assert_int_equal(machine.moves, 0);
    pager_fixture_close(&program.fixture);
}

static void pages_that_do_not_move_are_passed_over(void **state)
{
    static struct program program;
    uint64_t near, far;

    (void)state;
    program_open(&program, 0);
    for (unsigned i = 0; i < DDR_PAGES / 4; i++)
        machine.is_stuck[i * 2] = true;
    program.pages = PAGES;
    program_play(&program, program_run, 0);
    near_settles(&program, &near, &far);
    for (unsigned i = 0; i < DDR_PAGES / 4; i++)
        assert_int_equal(machine.node_of[i * 2], NEAR_NODE);
    pager_fixture_close(&program.fixture);
}

/* What was there stays; what has no room goes on to the next tier, as without far memory. */
static void far_memory_that_vanishes_takes_its_budget_along(void **state)
{
    static struct program program;
    uint64_t near, far, budgets[TIERS];

    (void)state;
    program_open(&program, 64 * MIB);
    machine.is_gone = true;
    program.pages = PAGES;
    program_play(&program, program_run, 0);
    near_settles(&program, &near, &far);
    pager_budget_pages(program.fixture.pager, budgets);
    assert_int_equal(far, 0);
    assert_int_equal(budgets[TIER_DDR], DDR_PAGES);
    assert_int_equal(budgets[TIER_CXL], 0);
    assert_true(pager_stats(program.fixture.pager)->moves[DSM_TIER_DDR][DSM_TIER_NVME] > 0);
    program_play(&program, program_check, 0);
    pager_fixture_close(&program.fixture);
}

static void far_memory_that_is_full_keeps_what_it_has(void **state)
{
    static struct program program;
    uint64_t near, far, budgets[TIERS];

    (void)state;
    program_open(&program, 64 * MIB);
    machine.far_max_pages = DDR_PAGES;
    program.pages = PAGES;
    program_play(&program, program_run, 0);
    near_settles(&program, &near, &far);
    pager_budget_pages(program.fixture.pager, budgets);
    print_message("%lu near, %lu far of %lu\n", near, far, budgets[TIER_CXL]);
    assert_in_range(far, 1, DDR_PAGES);
    assert_in_range(budgets[TIER_CXL], 1, DDR_PAGES);
    program_play(&program, program_check, 0);
    pager_fixture_close(&program.fixture);
}

static void the_far_budget_can_be_told(void **state)
{
    static struct program program;
    uint64_t near, far, budgets[TIERS];
    uint64_t until_ns;

    (void)state;
    program_open(&program, 64 * MIB);
    program.pages = PAGES;
    program_play(&program, program_run, 0);
    assert_int_equal(pager_limit(program.fixture.pager, TIER_CXL, (FAR_PAGES + 1) * PAGE_BYTES), -EINVAL);
    assert_int_equal(pager_limit(program.fixture.pager, TIER_CXL, 1024 * PAGE_BYTES), 0);
    pager_budget_pages(program.fixture.pager, budgets);
    assert_int_equal(budgets[TIER_CXL], 1024);
    assert_int_equal(budgets[TIER_DDR], DDR_PAGES);
    until_ns = os_now_ns() + UINT64_C(5000000000);
    do {
        pager_fixture_turn(&program.fixture);
        tiers_are(&program, &near, &far);
    } while (near + far > DDR_PAGES + 1024 && os_now_ns() < until_ns);
    assert_true(near + far <= DDR_PAGES + 1024);
    program_play(&program, program_check, 0);
    pager_fixture_close(&program.fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hot_pages_end_near_and_all_stay_mapped),
        cmocka_unit_test(a_program_that_fits_near_is_left_alone),
        cmocka_unit_test(pages_that_do_not_move_are_passed_over),
        cmocka_unit_test(far_memory_that_vanishes_takes_its_budget_along),
        cmocka_unit_test(far_memory_that_is_full_keeps_what_it_has),
        cmocka_unit_test(the_far_budget_can_be_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
