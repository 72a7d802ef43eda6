/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_placement.c - the replacement policy, the water marks, and the choice of a tier.
 */
#include "tests/unit/tiers/check.h"
#include "tiers/placement.h"

#define FRAMES 1024u

struct fixture {
    struct frames *frames;
    struct placement *placement;
};

static const struct placement_cost cost_usual = {
    .read_ns = {[TIER_DDR] = 300, [TIER_CXL] = 900, [TIER_NVME] = 80000},
    .write_ns = {[TIER_DDR] = 300, [TIER_CXL] = 900, [TIER_NVME] = 5000},
    .remote_read_ns = 30000,
};

static struct fixture fixture_new(const struct placement_cost *cost)
{
    struct fixture fixture = {malloc(frames_bytes(FRAMES)),
                              aligned_alloc(64, placement_bytes(&placement_segmented_fifo, FRAMES))};

    assert_non_null(fixture.frames);
    assert_non_null(fixture.placement);
    frames_init(fixture.frames, FRAMES);
    placement_init(fixture.placement, &placement_segmented_fifo, FRAMES, FRAMES, cost);
    return fixture;
}

static void fixture_free(struct fixture *fixture)
{
    free(fixture->frames);
    free(fixture->placement);
}

static void pages_insert(struct fixture *fixture, uint64_t first, uint32_t count, bool prefetched)
{
    for (uint32_t i = 0; i < count; i++) {
        struct frame_id frame = frames_take(fixture->frames, page_of(first + i));

        assert_int_not_equal(frame.index, FRAME_NONE.index);
        placement_inserted(fixture->placement, fixture->frames, frame, prefetched);
    }
}

/* What the pager does with the answer. */
static unsigned unmap(struct fixture *fixture, struct frame_id *out, unsigned wanted)
{
    unsigned count = placement_unmap(fixture->placement, fixture->frames, out, wanted);

    for (unsigned i = 0; i < count; i++)
        frames_push_tail(fixture->frames, out[i], FRAME_LIMBO);
    return count;
}

static uint64_t page_at(const struct fixture *fixture, struct frame_id frame)
{
    return frames_page(fixture->frames, frame).index;
}

static void oldest_page_leaves_first(void **state)
{
    struct fixture fixture = fixture_new(&cost_usual);
    struct frame_id out[32];

    (void)state;
    pages_insert(&fixture, 100, 50, false);
    assert_int_equal(placement_evict(fixture.placement, fixture.frames, out, 32), 0); /* nothing is in limbo */
    assert_int_equal(unmap(&fixture, out, 20), 20);
    assert_int_equal(placement_evict(fixture.placement, fixture.frames, out, 8), 8);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(page_at(&fixture, out[i]), 100 + i);
    fixture_free(&fixture);
}

static void a_touch_in_limbo_saves_the_page(void **state)
{
    struct fixture fixture = fixture_new(&cost_usual);
    struct frame_id out[64];

    (void)state;
    pages_insert(&fixture, 0, 10, false);
    assert_int_equal(unmap(&fixture, out, 5), 5);
    placement_soft_hit(fixture.placement, fixture.frames, out[0]);
    assert_int_equal(placement_evict(fixture.placement, fixture.frames, out, 64), 4);
    assert_int_equal(page_at(&fixture, out[0]), 1);
    assert_int_equal(unmap(&fixture, out, 64), 6);
    assert_int_equal(page_at(&fixture, out[5]), 0); /* behind all that were never touched again */
    fixture_free(&fixture);
}

static void a_cold_page_leaves_next(void **state)
{
    struct fixture fixture = fixture_new(&cost_usual);
    struct frame_id out[64];

    (void)state;
    pages_insert(&fixture, 0, 10, false);
    assert_int_equal(unmap(&fixture, out, 8), 8);
    placement_chilled(fixture.placement, fixture.frames, out[6]);
    assert_int_equal(placement_evict(fixture.placement, fixture.frames, out, 64), 8);
    assert_int_equal(page_at(&fixture, out[0]), 6);
    assert_int_equal(page_at(&fixture, out[1]), 0);
    placement_soft_hit(fixture.placement, fixture.frames, out[0]);
    assert_int_equal(placement_evict(fixture.placement, fixture.frames, out, 64), 7);
    fixture_free(&fixture);
}

static void prefetched_pages_cannot_push_out_others(void **state)
{
    struct fixture fixture = fixture_new(&cost_usual);
    struct frame_id out[256];
    unsigned count;

    (void)state;
    pages_insert(&fixture, 0, 300, false);
    pages_insert(&fixture, 1000, 200, true); /* an eighth of the frames, 128, may stay */
    count = unmap(&fixture, out, 72);
    assert_int_equal(count, 72);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(page_at(&fixture, out[i]), 1000 + i);
    assert_int_equal(unmap(&fixture, out, 1), 1);
    assert_int_equal(page_at(&fixture, out[0]), 0);
    fixture_free(&fixture);
}

static void a_touched_prefetched_page_is_like_any_other(void **state)
{
    struct fixture fixture = fixture_new(&cost_usual);
    struct frame_id frame;

    (void)state;
    pages_insert(&fixture, 1000, 5, true);
    frame = frames_head(fixture.frames, FRAME_COLD);
    placement_soft_hit(fixture.placement, fixture.frames, frame);
    assert_int_equal(frames_list(fixture.frames, frame), FRAME_MAPPED);
    fixture_free(&fixture);
}

static void all_frames_can_be_unmapped(void **state)
{
    struct fixture fixture = fixture_new(&cost_usual);
    struct frame_id out[FRAMES];
    bool seen[FRAMES] = {false};
    unsigned count;

    (void)state;
    pages_insert(&fixture, 0, 10, false);
    pages_insert(&fixture, 1000, 150, true);
    count = placement_unmap(fixture.placement, fixture.frames, out, FRAMES);
    assert_int_equal(count, 160);
    for (unsigned i = 0; i < count; i++) {
        assert_false(seen[out[i].index]); /* no frame twice */
        seen[out[i].index] = true;
    }
    assert_int_equal(placement_unmap(fixture.placement, fixture.frames, out, 0), 0);
    fixture_free(&fixture);
}

static void random_use_keeps_the_lists_whole(void **state)
{
    struct fixture fixture = fixture_new(&cost_usual);
    struct random random = {99};
    struct frame_id out[64];

    (void)state;
    for (unsigned round = 0; round < 30000; round++) {
        unsigned wanted = random_below(&random, 64);
        unsigned count;

        if (frames_count(fixture.frames, FRAME_FREE) > 0)
            pages_insert(&fixture, round, 1, random_below(&random, 3) == 0);
        if (random_below(&random, 16) == 0)
            (void)unmap(&fixture, out, wanted);
        if (frames_count(fixture.frames, FRAME_LIMBO) > 0 && random_below(&random, 4) == 0)
            placement_soft_hit(fixture.placement, fixture.frames, frames_head(fixture.frames, FRAME_LIMBO));
        if (random_below(&random, 16) != 0)
            continue;
        count = placement_evict(fixture.placement, fixture.frames, out, wanted);
        assert_true(count <= wanted);
        for (unsigned i = 0; i < count; i++) {
            assert_int_equal(frames_list(fixture.frames, out[i]), FRAME_LIMBO);
            frames_put(fixture.frames, out[i]);
        }
    }
    assert_int_equal(frames_count(fixture.frames, FRAME_FREE) + frames_count(fixture.frames, FRAME_MAPPED) +
                         frames_count(fixture.frames, FRAME_COLD) + frames_count(fixture.frames, FRAME_LIMBO),
                     FRAMES);
    fixture_free(&fixture);
}

static void marks_make_sense_at_any_size(void **state)
{
    (void)state;
    for (uint64_t frames = PLACEMENT_FRAMES_MIN; frames < (uint64_t)1 << 31; frames += 1 + frames / 3) {
        struct placement_marks marks = placement_marks_of((uint32_t)frames);

        assert_true(marks.reserve >= 1);
        assert_true(marks.reserve < marks.low);
        assert_true(marks.low < marks.high);
        assert_true(marks.high <= frames / 4 && marks.high <= 4096);
        assert_true(marks.limbo_target >= 1 && marks.limbo_target + marks.high <= frames / 2);
    }
}

static struct placement_question question_new(uint64_t cxl_free, uint64_t nvme_free)
{
    struct placement_question question = {
        .slots_free = {[TIER_CXL] = cxl_free, [TIER_NVME] = nvme_free},
        .slots_max = {[TIER_CXL] = 1000, [TIER_NVME] = 100000},
    };

    return question;
}

static void the_cheapest_tier_with_room_is_taken(void **state)
{
    struct fixture fixture = fixture_new(&cost_usual);
    struct placement_question question = question_new(500, 500);

    (void)state;
    assert_int_equal(placement_target(fixture.placement, &question), TIER_CXL);
    question = question_new(62, 500); /* the last sixteenth is for what is on its way */
    assert_int_equal(placement_target(fixture.placement, &question), TIER_NVME);
    question = question_new(62, 0);
    assert_int_equal(placement_target(fixture.placement, &question), TIER_CXL);
    question = question_new(0, 1);
    assert_int_equal(placement_target(fixture.placement, &question), TIER_NVME);
    question = question_new(0, 0);
    assert_int_equal(placement_target(fixture.placement, &question), PLACE_NOWHERE);
    fixture_free(&fixture);
}

static void cost_decides_not_the_name(void **state)
{
    struct placement_cost cost = cost_usual;
    struct placement_question question = question_new(500, 500);
    struct fixture fixture;

    (void)state;
    cost.read_ns[TIER_CXL] = 90000;
    fixture = fixture_new(&cost);
    assert_int_equal(placement_target(fixture.placement, &question), TIER_NVME);
    fixture_free(&fixture);
}

static void a_cheap_copy_is_dropped(void **state)
{
    struct fixture fixture = fixture_new(&cost_usual);
    struct placement_question question = question_new(0, 500);

    (void)state;
    question.is_clean_copy = true;
    question.copy_is_remote = true;
    assert_int_equal(placement_target(fixture.placement, &question), PLACE_DROP); /* 30 us there, 85 us here */
    question.slots_free[TIER_CXL] = 500;
    assert_int_equal(placement_target(fixture.placement, &question), TIER_CXL);
    question.slots_free[TIER_CXL] = question.slots_free[TIER_NVME] = 0;
    assert_int_equal(placement_target(fixture.placement, &question), PLACE_DROP);
    fixture_free(&fixture);
}

static void a_copy_below_is_kept_unless_there_is_plenty_of_room_above(void **state)
{
    struct fixture fixture = fixture_new(&cost_usual);
    struct placement_question question = question_new(500, 500);

    (void)state;
    question.is_clean_copy = true;
    question.copy_tier = TIER_NVME;
    assert_int_equal(placement_target(fixture.placement, &question), TIER_CXL);
    question.slots_free[TIER_CXL] = 250;
    assert_int_equal(placement_target(fixture.placement, &question), PLACE_DROP);
    question.slots_free[TIER_CXL] = 500;
    question.copy_tier = TIER_CXL;
    assert_int_equal(placement_target(fixture.placement, &question), PLACE_DROP);
    fixture_free(&fixture);
}

static struct placement_question four_tiers(uint64_t cxl_free, uint64_t zmem_free, uint64_t nvme_free)
{
    struct placement_question question = question_new(cxl_free, nvme_free);

    question.slots_free[TIER_ZMEM] = zmem_free;
    question.slots_max[TIER_ZMEM] = 1600;
    return question;
}

static int target_of(const struct fixture *fixture, uint64_t cxl_free, uint64_t zmem_free, uint64_t nvme_free)
{
    struct placement_question question = four_tiers(cxl_free, zmem_free, nvme_free);

    return placement_target(fixture->placement, &question);
}

static int demotion_of(const struct fixture *fixture, enum tier_kind from, uint64_t zmem_free, uint64_t nvme_free)
{
    struct placement_question question = four_tiers(500, zmem_free, nvme_free);

    return placement_demotion(fixture->placement, &question, from);
}

static void compressed_memory_lies_between(void **state)
{
    struct placement_cost cost = cost_usual;
    struct fixture fixture;

    (void)state;
    cost.read_ns[TIER_ZMEM] = 2000;
    cost.write_ns[TIER_ZMEM] = 7000;
    fixture = fixture_new(&cost);
    assert_int_equal(target_of(&fixture, 500, 500, 500), TIER_CXL);
    assert_int_equal(target_of(&fixture, 62, 500, 500), TIER_ZMEM);
    assert_int_equal(target_of(&fixture, 62, 100, 500), TIER_NVME); /* its last sixteenth is kept too */
    assert_int_equal(target_of(&fixture, 62, 100, 0), TIER_CXL);
    assert_int_equal(target_of(&fixture, 0, 100, 0), TIER_ZMEM);
    assert_int_equal(target_of(&fixture, 0, 0, 0), PLACE_NOWHERE);
    fixture_free(&fixture);
}

static void old_pages_move_on_to_the_cheapest_below(void **state)
{
    struct placement_cost cost = cost_usual;
    struct fixture fixture;

    (void)state;
    cost.read_ns[TIER_ZMEM] = 2000;
    cost.write_ns[TIER_ZMEM] = 7000;
    fixture = fixture_new(&cost);
    assert_int_equal(demotion_of(&fixture, TIER_CXL, 500, 500), TIER_ZMEM);
    assert_int_equal(demotion_of(&fixture, TIER_CXL, 100, 500), TIER_NVME); /* never so that others must move on */
    assert_int_equal(demotion_of(&fixture, TIER_CXL, 100, 0), PLACE_NOWHERE);
    assert_int_equal(demotion_of(&fixture, TIER_ZMEM, 500, 500), TIER_NVME);
    assert_int_equal(demotion_of(&fixture, TIER_ZMEM, 500, 0), PLACE_NOWHERE);
    fixture_free(&fixture);
    cost.write_ns[TIER_ZMEM] = 700000; /* slower than the disk */
    fixture = fixture_new(&cost);
    assert_int_equal(demotion_of(&fixture, TIER_CXL, 500, 500), TIER_NVME);
    fixture_free(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oldest_page_leaves_first),
        cmocka_unit_test(a_touch_in_limbo_saves_the_page),
        cmocka_unit_test(a_cold_page_leaves_next),
        cmocka_unit_test(prefetched_pages_cannot_push_out_others),
        cmocka_unit_test(a_touched_prefetched_page_is_like_any_other),
        cmocka_unit_test(all_frames_can_be_unmapped),
        cmocka_unit_test(random_use_keeps_the_lists_whole),
        cmocka_unit_test(marks_make_sense_at_any_size),
        cmocka_unit_test(the_cheapest_tier_with_room_is_taken),
        cmocka_unit_test(cost_decides_not_the_name),
        cmocka_unit_test(a_cheap_copy_is_dropped),
        cmocka_unit_test(a_copy_below_is_kept_unless_there_is_plenty_of_room_above),
        cmocka_unit_test(compressed_memory_lies_between),
        cmocka_unit_test(old_pages_move_on_to_the_cheapest_below),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
