/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_measure.c - measuring gives figures, in bounded time, and leaves the tier as it was.
 */
#include "base/error.h"
#include "base/os.h"
#include "tests/support/loop_sync.h"
#include "tests/unit/tiers/check.h"
#include "tiers/tier.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/vfs.h>

static void measure_check(struct tier *tier)
{
    uint64_t free_before = tier_slots_free(tier);
    struct tier_cost cost = {0, 0};
    uint64_t start = os_now_ns();

    assert_int_equal(tier_measure(tier, &cost), 0);
    assert_true(os_now_ns() - start < 5000000000u); /* against a hang; a loaded machine may take long */
    assert_true(cost.read_ns > 0 && cost.read_ns < 1000000000u);
    assert_true(cost.write_ns > 0 && cost.write_ns < 1000000000u);
    assert_int_equal(tier_slots_free(tier), free_before);
    print_message("%s: read %llu ns, write %llu ns a page\n", tier_name(tier), (unsigned long long)cost.read_ns,
                  (unsigned long long)cost.write_ns);
}

static void memory_is_measured(void **state)
{
    struct tier *tier;

    (void)state;
    assert_int_equal(tier_ddr_open(1 << 20, &tier), 0);
    measure_check(tier);
    tier_close(tier);
    assert_int_equal(tier_cxl_emulated_open(1 << 20, &tier), 0);
    measure_check(tier);
    tier_close(tier);
}

static void compressed_memory_is_measured(void **state)
{
    struct tier *tier;

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tier_zmem_open(1 << 20, i == 0 ? "lz4" : "zstd", &tier), 0);
        measure_check(tier);
        tier_close(tier);
    }
}

static void the_disk_is_measured(void **state)
{
    struct loop *loop = loop_sync_create();
    struct tier *tier;
    struct statfs about;

    (void)state;
    if (statfs(".", &about) < 0 || about.f_type == TMPFS_MAGIC)
        skip();
    assert_int_equal(tier_nvme_open(loop, ".", 1 << 20, &tier), 0);
    measure_check(tier);
    tier_close(tier);
    loop_sync_destroy(loop);
}

static void tiny_and_full_tiers(void **state)
{
    struct tier_cost cost;
    struct tier_slot slot;
    struct tier *tier;

    (void)state;
    assert_int_equal(tier_cxl_emulated_open(3 * PAGE_BYTES, &tier), 0);
    measure_check(tier);
    assert_int_equal(tier_take(tier, 3, &slot), 3);
    assert_int_equal(tier_measure(tier, &cost), -ENOSPC);
    assert_non_null(strstr(error_text(), "no slot is free"));
    tier_close(tier);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_measured),
        cmocka_unit_test(compressed_memory_is_measured),
        cmocka_unit_test(the_disk_is_measured),
        cmocka_unit_test(tiny_and_full_tiers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
