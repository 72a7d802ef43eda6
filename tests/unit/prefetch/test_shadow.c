/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_shadow.c - where prefetched pages cost more faults than they save, all goes off for a while.
 */
#include "tests/unit/prefetch/check.h"

static uint32_t fault(struct shadow *shadow, uint64_t page)
{
    return shadow_event(shadow, &(struct prefetch_event){.page = page_of(page)});
}

static void touch_prefetched(struct shadow *shadow, uint64_t page)
{
    shadow_event(shadow, &(struct prefetch_event){.page = page_of(page), .was_prefetched = true});
}

static void faults_on_pages_that_room_would_have_kept_count(void **state)
{
    struct shadow shadow;

    (void)state;
    shadow_init(&shadow);
    for (uint64_t page = 0; page < 300; page++)
        shadow_evicted(&shadow, page_of(page), 100);
    assert_int_equal(fault(&shadow, 299), 1); /* the last that left */
    assert_int_equal(fault(&shadow, 299), 0); /* once */
    assert_int_equal(fault(&shadow, 201), 1);
    assert_int_equal(fault(&shadow, 150), 0); /* it would have left all the same */
    assert_int_equal(fault(&shadow, 5000), 0);
    shadow_evicted(&shadow, page_of(7000), 0); /* nothing takes frames: nothing to blame */
    assert_int_equal(fault(&shadow, 7000), 0);
}

/* Each prefetched page pushes out one that is wanted again, and few are used. */
static void harm_switches_all_off(void **state)
{
    struct shadow shadow;

    (void)state;
    shadow_init(&shadow);
    assert_false(shadow_is_off(&shadow));
    for (uint64_t i = 0; i < 1000; i++) {
        shadow_evicted(&shadow, page_of(i), 200);
        fault(&shadow, i);
    }
    assert_true(shadow_is_off(&shadow));
    for (uint64_t i = 0; i < 20000 && shadow_is_off(&shadow); i++)
        fault(&shadow, 100000 + i);
    assert_false(shadow_is_off(&shadow)); /* another try */
}

static void gain_that_outweighs_harm_keeps_it_on(void **state)
{
    struct shadow shadow;

    (void)state;
    shadow_init(&shadow);
    for (uint64_t i = 0; i < 20000; i++) {
        shadow_evicted(&shadow, page_of(i), 200);
        if (i % 3 == 0)
            fault(&shadow, i);
        else
            touch_prefetched(&shadow, 50000 + i);
        assert_false(shadow_is_off(&shadow));
    }
}

/* Many more unused frames than the table has places: a sample stands for them all. */
static void large_caches_are_sampled(void **state)
{
    struct shadow shadow;
    uint64_t polluted = 0;

    (void)state;
    shadow_init(&shadow);
    for (uint64_t page = 0; page < 100000; page++)
        shadow_evicted(&shadow, page_of(page), 50000);
    for (uint64_t page = 0; page < 100000; page++)
        polluted += fault(&shadow, page);
    assert_in_range(polluted, 20000, 80000); /* 50000 it should be */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_on_pages_that_room_would_have_kept_count),
        cmocka_unit_test(harm_switches_all_off),
        cmocka_unit_test(gain_that_outweighs_harm_keeps_it_on),
        cmocka_unit_test(large_caches_are_sampled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
