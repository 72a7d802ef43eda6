/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_buffers.c - runs of bounce buffers.
 */
#include "tests/support/loop_sync.h"
#include "tests/unit/tiers/check.h"
#include "tiers/tier.h"

#include <errno.h>

static void runs_are_aligned_and_apart(void **state)
{
    struct loop *loop = loop_sync_create();
    struct tier_buffers *buffers;
    char *runs[8];

    (void)state;
    assert_int_equal(tier_buffers_create(loop, 64, &buffers), 0);
    for (unsigned i = 0; i < 8; i++) {
        runs[i] = tier_buffers_take(buffers, 8);
        assert_non_null(runs[i]);
        assert_int_equal((uintptr_t)runs[i] % PAGE_BYTES, 0);
        memset(runs[i], (int)i, 8 * PAGE_BYTES);
    }
    assert_null(tier_buffers_take(buffers, 1));
    for (unsigned i = 0; i < 8; i++) {
        for (size_t at = 0; at < 8 * PAGE_BYTES; at += 512)
            assert_int_equal(runs[i][at], i);
        tier_buffers_put(buffers, runs[i], 8);
    }
    tier_buffers_destroy(buffers);
    loop_sync_destroy(loop);
}

static void parts_of_a_run_may_be_put_alone(void **state)
{
    struct loop *loop = loop_sync_create();
    struct tier_buffers *buffers;
    char *run;

    (void)state;
    assert_int_equal(tier_buffers_create(loop, 16, &buffers), 0);
    run = tier_buffers_take(buffers, 16);
    tier_buffers_put(buffers, run + 4 * PAGE_BYTES, 2);
    assert_null(tier_buffers_take(buffers, 3));
    assert_ptr_equal(tier_buffers_take(buffers, 2), run + 4 * PAGE_BYTES);
    tier_buffers_put(buffers, run, 16);
    tier_buffers_destroy(buffers);
    loop_sync_destroy(loop);
}

static void refused_registration_does_no_harm(void **state)
{
    struct loop *loop = loop_sync_create();
    struct tier_buffers *buffers;
    void *run;

    (void)state;
    loop_sync_buffers_result(loop, -ENOMEM);
    assert_int_equal(tier_buffers_create(loop, 16, &buffers), 0);
    run = tier_buffers_take(buffers, 16);
    assert_non_null(run);
    tier_buffers_put(buffers, run, 16);
    tier_buffers_destroy(buffers);
    tier_buffers_destroy(NULL);
    loop_sync_destroy(loop);
}

static void put_foreign(void *buffers)
{
    static char memory[2 * PAGE_BYTES];

    tier_buffers_put(buffers, memory, 1);
}

static void foreign_memory_is_a_bug(void **state)
{
    struct loop *loop = loop_sync_create();
    struct tier_buffers *buffers;

    (void)state;
    assert_int_equal(tier_buffers_create(loop, 16, &buffers), 0);
    check_aborts(put_foreign, buffers);
    tier_buffers_destroy(buffers);
    loop_sync_destroy(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_aligned_and_apart),
        cmocka_unit_test(parts_of_a_run_may_be_put_alone),
        cmocka_unit_test(refused_registration_does_no_harm),
        cmocka_unit_test(foreign_memory_is_a_bug),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
