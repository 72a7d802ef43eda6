/* SPDX-License-Identifier: Apache-2.0 */
/* The end that guard.h makes to a call: with a call that waits for a page in its destination, as MOVE looks for one. */
#include "fixture.h"

#include "mmu/guard.h"

#define PLACES 4U

struct guarded {
    struct fixture fixture;
    struct guard guard;
    uint8_t *staging;
};

static int open_guarded(void **state)
{
    static struct guarded guarded;
    void *staging;

    memset(&guarded, 0, sizeof(guarded));
    fixture_open(&guarded.fixture, &(struct mmu_switches){0});
    if (!guarded.fixture.features.has_move) {
        *state = NULL;
        fixture_close(&guarded.fixture);
        return 0;
    }
    ok(mmu_staging_create(guarded.fixture.mmu, PLACES, &staging));
    guarded.staging = staging;
    ok(guard_start(&guarded.guard));
    *state = &guarded;
    return 0;
}

static int close_guarded(void **state)
{
    struct guarded *guarded = *state;

    if (guarded == NULL)
        return 0;
    guard_close(&guarded->guard);
    fixture_close(&guarded->fixture);
    return 0;
}

static void enter(struct guarded *guarded)
{
    guard_enter(&guarded->guard, mmu_descriptor(guarded->fixture.mmu), (uint64_t)(uintptr_t)guarded->staging, PLACES);
}

static bool place_is_empty(const struct guarded *guarded, unsigned place)
{
    unsigned char is_there = 0;

    assert_int_equal(mincore(guarded->staging + (size_t)place * PAGE_BYTES, PAGE_BYTES, &is_there), 0);
    return (is_there & 1) == 0;
}

static void stuck_call(struct guarded *guarded)
{
    uint64_t started_ns = os_now_ns();

    enter(guarded);
    while (place_is_empty(guarded, 0))
        assert_true(os_now_ns() - started_ns < 5000000000U);
    assert_true(guard_leave(&guarded->guard));
    for (unsigned i = 0; i < PLACES; i++)
        assert_false(place_is_empty(guarded, i));
    mmu_staging_clear(guarded->fixture.mmu, guarded->staging, 0, PLACES);
}

static void test_call_that_lasts_is_ended(void **state)
{
    if (*state == NULL)
        skip();
    stuck_call(*state);
    stuck_call(*state);
}

static void test_calls_that_return_are_left_alone(void **state)
{
    struct guarded *guarded = *state;
    uint64_t started_ns = os_now_ns();
    unsigned ended = 0;

    if (guarded == NULL)
        skip();
    while (os_now_ns() - started_ns < 200000000U) {
        enter(guarded);
        if (guard_leave(&guarded->guard)) { /* this thread did not run for a while */
            mmu_staging_clear(guarded->fixture.mmu, guarded->staging, 0, PLACES);
            ended++;
        }
    }
    assert_true(ended < 20);
    for (unsigned i = 0; i < PLACES; i++)
        assert_true(place_is_empty(guarded, i));
}

/* The watcher sleeps by then, and is woken. */
static void test_call_after_a_pause_is_ended(void **state)
{
    if (*state == NULL)
        skip();
    stuck_call(*state);
    usleep(1500000);
    stuck_call(*state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_call_that_lasts_is_ended, open_guarded, close_guarded),
        cmocka_unit_test_setup_teardown(test_calls_that_return_are_left_alone, open_guarded, close_guarded),
        cmocka_unit_test_setup_teardown(test_call_after_a_pause_is_ended, open_guarded, close_guarded),
    };

    require_userfaultfd();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
