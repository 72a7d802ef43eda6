/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_spread.c - heats, and who changes places between near and far memory: by hand, and with pages that are touched
 * at random, against who would be best.
 */
#include "tests/unit/tiers/check.h"
#include "tiers/spread.h"

#define MS UINT64_C(1000000)

static struct spread *spread_new(uint32_t frames)
{
    struct spread *spread = calloc(1, spread_bytes(frames));

    assert_non_null(spread);
    spread_init(spread, frames);
    return spread;
}

static struct frame_id frame(uint32_t index)
{
    return (struct frame_id){index};
}

static void sampled(struct spread *spread, uint32_t index, uint64_t time_ns)
{
    for (int i = 0; i < 40; i++) /* whatever was known before is forgotten */
        spread_sampled(spread, frame(index), time_ns, true);
}

static void the_scale_goes_by_octaves_and_back(void **state)
{
    (void)state;
    assert_int_equal(spread_heat_of(0), 1);
    assert_int_equal(spread_heat_of(UINT64_MAX), SPREAD_HEATS - 1);
    for (uint64_t time_ns = 100000; time_ns < UINT64_C(1) << 40; time_ns += time_ns / 7) {
        uint64_t back_ns = spread_time_of(spread_heat_of(time_ns));

        assert_in_range(spread_heat_of(2 * time_ns) - spread_heat_of(time_ns), SPREAD_OCTAVE - 1, SPREAD_OCTAVE + 1);
        assert_true(back_ns <= time_ns + 1024 && back_ns >= time_ns - time_ns / 7);
    }
}

static void parts_are_counted_through_all_changes(void **state)
{
    struct spread *spread = spread_new(8);

    (void)state;
    spread_inserted(spread, frame(0), SPREAD_NEAR);
    spread_inserted(spread, frame(5), SPREAD_FAR);
    assert_int_equal(spread_count(spread, SPREAD_NEAR), 1);
    assert_int_equal(spread_count(spread, SPREAD_FAR), 1);
    sampled(spread, 5, MS);
    spread_found(spread, frame(5), SPREAD_NEAR);
    assert_int_equal(spread_heat(spread, frame(5)), spread_heat_of(MS));
    assert_int_equal(spread_count(spread, SPREAD_NEAR), 2);
    spread_forgotten(spread, frame(5));
    spread_forgotten(spread, frame(5));
    spread_found(spread, frame(5), SPREAD_FAR); /* free: it lies nowhere */
    spread_sampled(spread, frame(5), MS, true);
    assert_int_equal(spread_part(spread, frame(5)), SPREAD_NONE);
    assert_int_equal(spread_count(spread, SPREAD_FAR), 0);
    spread_inserted(spread, frame(5), SPREAD_FAR);
    assert_int_equal(spread_heat(spread, frame(5)), 0);
    free(spread);
}

static void a_first_sample_is_drawn_to_the_middle(void **state)
{
    struct spread *spread = spread_new(8);

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        spread_inserted(spread, frame(i), SPREAD_NEAR);
        sampled(spread, i, 64 * MS);
    }
    spread_inserted(spread, frame(4), SPREAD_FAR);
    spread_sampled(spread, frame(4), MS, true);
    assert_in_range(spread_heat(spread, frame(4)), spread_heat_of(7 * MS), spread_heat_of(9 * MS)); /* root of 64 */
    spread_inserted(spread, frame(5), SPREAD_FAR);
    spread_sampled(spread, frame(5), MS, false); /* was watched for a short time only, and is cold all the same */
    assert_true(spread_heat(spread, frame(5)) > spread_heat_of(64 * MS));
    for (int i = 0; i < 40; i++)
        spread_sampled(spread, frame(5), MS, false);
    assert_int_equal(spread_heat(spread, frame(5)), SPREAD_COLD);
    free(spread);
}

static void the_coldest_leave_and_the_unknown_only_when_nothing_is_known(void **state)
{
    struct spread *spread = spread_new(64);
    struct frame_id frames[64];

    (void)state;
    for (uint32_t i = 0; i < 32; i++)
        spread_inserted(spread, frame(i), SPREAD_NEAR);
    assert_int_equal(spread_coldest(spread, frames, 8), 8);
    assert_int_equal(frames[0].index, 0); /* those that came first */
    for (uint32_t i = 0; i < 16; i++)
        sampled(spread, i, MS << i);
    assert_int_equal(spread_coldest(spread, frames, 2), 2);
    assert_int_equal(frames[0].index + frames[1].index, 14 + 15);
    for (uint32_t i = 0; i < 16; i++)
        sampled(spread, i, i == 0 ? 8 * MS : 0); /* but one, all are in use */
    assert_int_equal(spread_coldest(spread, frames, 8), 8);
    for (unsigned i = 0; i < 8; i++)
        assert_true(frames[i].index >= 16);
    free(spread);
}

static void far_pages_come_near_only_if_worth_it(void **state)
{
    struct spread *spread = spread_new(64);
    struct frame_id frames[64];

    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        spread_inserted(spread, frame(i), SPREAD_NEAR);
        sampled(spread, i, 10 * MS);
        spread_inserted(spread, frame(8 + i), SPREAD_FAR);
        sampled(spread, 8 + i, 6 * MS); /* hotter, but not twice */
    }
    assert_int_equal(spread_hottest(spread, 0, frames, 64), 0);
    assert_int_equal(spread_hottest(spread, 3, frames, 64), 8); /* there is room: any, and the caller takes three */
    sampled(spread, 12, 2 * MS);
    assert_int_equal(spread_hottest(spread, 0, frames, 64), 1);
    assert_int_equal(frames[0].index, 12);
    spread_inserted(spread, frame(20), SPREAD_FAR); /* nothing is known of it */
    assert_int_equal(spread_hottest(spread, 0, frames, 64), 1);
    /* Ten hot ones for the one cold place there is. */
    for (uint32_t i = 0; i < 8; i++)
        sampled(spread, i, i == 0 ? 1000 * MS : MS);
    for (uint32_t i = 8; i < 16; i++)
        sampled(spread, i, (i == 8 ? 20 : 100) * MS);
    assert_int_equal(spread_hottest(spread, 0, frames, 64), 1);
    assert_int_equal(frames[0].index, 8);
    free(spread);
}

static void the_hand_visits_all(void **state)
{
    struct spread *spread = spread_new(10000);
    static bool seen[10000];
    struct frame_id frames[16];
    unsigned count = 0;

    (void)state;
    for (uint32_t i = 0; i < 10000; i += 3)
        spread_inserted(spread, frame(i), i % 2 != 0 ? SPREAD_NEAR : SPREAD_FAR);
    for (int turn = 0; turn < 400; turn++) {
        unsigned got = spread_next(spread, frames, 16);

        for (unsigned i = 0; i < got; i++) {
            assert_int_equal(frames[i].index % 3, 0);
            count += !seen[frames[i].index];
            seen[frames[i].index] = true;
        }
    }
    assert_int_equal(count, 3334);
    free(spread);
}

/*
 * Pages with Zipf's weights (0.99), a quarter of them near, first come. Each round samples 64: the time to the next
 * touch is exponential with the page's mean. In the end the near part's share of touches is compared with the best
 * possible.
 */
#define ZIPF_PAGES 4096u
#define ZIPF_NEAR  1024u

static double logarithm(double value) /* natural; the tests do not link libm */
{
    double y = (value - 1) / (value + 1), term = y, sum = 0;

    if (value > 1.5 || value < 0.5)
        return value > 1.5 ? logarithm(value / 2) + 0.6931471805599453 : logarithm(value * 2) - 0.6931471805599453;
    for (int i = 1; i < 40; i += 2, term *= y * y)
        sum += term / i;
    return 2 * sum;
}

static double weight_of(uint32_t rank)
{
    return 1.0 / ((double)rank + 1); /* nearly Zipf's 0.99 */
}

static double near_share(const struct spread *spread, const uint32_t *ranks)
{
    double near = 0, all = 0;

    for (uint32_t i = 0; i < ZIPF_PAGES; i++) {
        all += weight_of(ranks[i]);
        near += spread_part(spread, frame(i)) == SPREAD_NEAR ? weight_of(ranks[i]) : 0;
    }
    return near / all;
}

static void zipf_round(struct spread *spread, const uint32_t *ranks, struct random *random)
{
    struct frame_id frames[64];
    unsigned count = spread_next(spread, frames, 64);
    uint64_t watch_ns = spread_watch_ns(spread) == 0 ? 100 * MS : spread_watch_ns(spread);

    for (unsigned i = 0; i < count; i++) {
        double uniform = ((double)(random_next(random) >> 11) + 1) / 9007199254740993.0;
        double time_ns = -logarithm(uniform) * 1e6 / weight_of(ranks[frames[i].index]);
        bool is_touched = time_ns < (double)watch_ns;

        spread_sampled(spread, frames[i], is_touched ? (uint64_t)time_ns : watch_ns, is_touched);
    }
    count = spread_hottest(spread, 0, frames, 16);
    for (unsigned i = 0; i < count; i++)
        spread_found(spread, frames[i], SPREAD_NEAR);
    for (unsigned left = spread_count(spread, SPREAD_NEAR) - ZIPF_NEAR; left > 0;) {
        count = spread_coldest(spread, frames, left < 16 ? left : 16);
        for (unsigned i = 0; i < count; i++)
            spread_found(spread, frames[i], SPREAD_FAR);
        left -= count;
    }
}

static void hot_pages_of_a_zipf_end_near(void **state)
{
    struct spread *spread = spread_new(ZIPF_PAGES);
    static uint32_t ranks[ZIPF_PAGES];
    struct random random = {7};
    double first, last, best = 0, all = 0;

    (void)state;
    for (uint32_t i = 0; i < ZIPF_PAGES; i++) {
        uint32_t other = (uint32_t)(random_next(&random) % (i + 1));

        ranks[i] = ranks[other];
        ranks[other] = i;
        spread_inserted(spread, frame(i), i < ZIPF_NEAR ? SPREAD_NEAR : SPREAD_FAR);
        all += weight_of(i);
        best += i < ZIPF_NEAR ? weight_of(i) : 0;
    }
    first = near_share(spread, ranks) / (best / all);
    for (int round = 0; round < 1000; round++)
        zipf_round(spread, ranks, &random);
    last = near_share(spread, ranks) / (best / all);
    print_message("share of touches near, of the best possible: first come %.3f, spread %.3f\n", first, last);
    assert_true(first < 0.5);
    assert_true(last > 0.93);
    free(spread);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_scale_goes_by_octaves_and_back),
        cmocka_unit_test(parts_are_counted_through_all_changes),
        cmocka_unit_test(a_first_sample_is_drawn_to_the_middle),
        cmocka_unit_test(the_coldest_leave_and_the_unknown_only_when_nothing_is_known),
        cmocka_unit_test(far_pages_come_near_only_if_worth_it),
        cmocka_unit_test(the_hand_visits_all),
        cmocka_unit_test(hot_pages_of_a_zipf_end_near),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
