/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ddr.c - the DDR tier counts a budget.
 */
#include "base/error.h"
#include "tests/unit/tiers/check.h"
#include "tiers/tier.h"

#include <errno.h>

static void budget_is_counted(void **state)
{
    struct tier_counters counters;
    struct tier_slot slot;
    struct tier *tier;

    (void)state;
    assert_int_equal(tier_ddr_open(100 * PAGE_BYTES, &tier), 0);
    assert_string_equal(tier_name(tier), "ddr");
    assert_int_equal(tier_capabilities(tier), TIER_CAP_IN_PLACE);
    assert_int_equal(tier_take(tier, 60, &slot), 60);
    assert_int_equal(tier_take(tier, 60, &slot), 40);
    assert_int_equal(tier_take(tier, 1, &slot), 0);
    tier_put(tier, slot);
    assert_int_equal(tier_slots_free(tier), 1);
    tier_counters_get(tier, &counters);
    assert_int_equal(counters.slots_used, 99);
    assert_int_equal(counters.slots_max, 100);
    assert_int_equal(counters.metadata_bytes, 0);
    tier_close(tier);
}

static void budget_may_fall_below_use(void **state)
{
    struct tier_slot slot;
    struct tier *tier;

    (void)state;
    assert_int_equal(tier_ddr_open(100 * PAGE_BYTES, &tier), 0);
    assert_int_equal(tier_take(tier, 80, &slot), 80);
    assert_int_equal(tier_resize(tier, 50 * PAGE_BYTES), 0);
    assert_int_equal(tier_slots_free(tier), 0);
    assert_int_equal(tier_take(tier, 1, &slot), 0);
    for (unsigned i = 0; i < 31; i++)
        tier_put(tier, slot);
    assert_int_equal(tier_slots_free(tier), 1);
    tier_close(tier);
}

static void impossible_sizes_are_refused(void **state)
{
    struct tier *tier = NULL;

    (void)state;
    assert_int_equal(tier_ddr_open(0, &tier), -EINVAL);
    assert_int_equal(tier_ddr_open(PAGE_BYTES - 1, &tier), -EINVAL);
    assert_int_equal(tier_ddr_open(UINT64_MAX, &tier), -EINVAL);
    assert_non_null(strstr(error_text(), "tier ddr of 18446744073709551615 bytes"));
    assert_null(tier);
}

static void put_too_many(void *tier)
{
    tier_put(tier, (struct tier_slot){0});
}

static void a_put_too_many_is_a_bug(void **state)
{
    struct tier *tier;

    (void)state;
    assert_int_equal(tier_ddr_open(PAGE_BYTES, &tier), 0);
    check_aborts(put_too_many, tier);
    tier_close(tier);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budget_is_counted),
        cmocka_unit_test(budget_may_fall_below_use),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(a_put_too_many_is_a_bug),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
