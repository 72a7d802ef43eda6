/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_frames.c - the frame table against lists kept as plain arrays.
 */
#include "tests/unit/tiers/check.h"
#include "tiers/frames.h"

static struct frames *frames_new(uint32_t frames_max)
{
    struct frames *frames = malloc(frames_bytes(frames_max));

    assert_non_null(frames);
    memset(frames, 0xa5, frames_bytes(frames_max)); /* the memory need not be zeroed */
    frames_init(frames, frames_max);
    return frames;
}

static void frames_are_handed_out_once(void **state)
{
    struct frames *frames = frames_new(100);
    bool seen[100] = {false};

    (void)state;
    assert_int_equal(frames_count(frames, FRAME_FREE), 100);
    assert_int_equal(frames_list(frames, (struct frame_id){99}), FRAME_FREE);
    assert_true(page_is(frames_page(frames, (struct frame_id){99}), PAGE_NONE));
    for (uint32_t i = 0; i < 100; i++) {
        struct frame_id frame = frames_take(frames, page_of(i + 7));

        assert_true(frame.index < 100);
        assert_false(seen[frame.index]);
        seen[frame.index] = true;
        assert_int_equal(frames_page(frames, frame).index, i + 7);
        assert_int_equal(frames_list(frames, frame), FRAME_BUSY);
    }
    assert_int_equal(frames_take(frames, page_of(1)).index, FRAME_NONE.index);
    frames_put(frames, (struct frame_id){42});
    assert_true(page_is(frames_page(frames, (struct frame_id){42}), PAGE_NONE));
    assert_int_equal(frames_take(frames, page_of(2)).index, 42);
    free(frames);
}

static void a_frame_costs_16_bytes(void **state)
{
    (void)state;
    assert_true(frames_bytes(1000000) - frames_bytes(1) == (size_t)16 * 999999);
}

/* A list of the model: frames in order. */
struct model {
    uint32_t order[FRAME_LISTS][300];
    uint32_t counts[FRAME_LISTS];
};

static void model_remove(struct model *model, uint32_t frame)
{
    for (unsigned list = 0; list < FRAME_LISTS; list++) {
        for (uint32_t i = 0; i < model->counts[list]; i++) {
            if (model->order[list][i] != frame)
                continue;
            memmove(&model->order[list][i], &model->order[list][i + 1],
                    (model->counts[list] - i - 1) * sizeof(uint32_t));
            model->counts[list]--;
            return;
        }
    }
}

static void model_append(struct model *model, uint32_t frame, enum frame_list list)
{
    model->order[list][model->counts[list]++] = frame;
}

static void model_prepend(struct model *model, uint32_t frame, enum frame_list list)
{
    memmove(&model->order[list][1], &model->order[list][0], model->counts[list]++ * sizeof(uint32_t));
    model->order[list][0] = frame;
}

static void model_check(const struct frames *frames, const struct model *model, const uint64_t *pages)
{
    uint32_t in_use = 0;

    for (enum frame_list list = FRAME_MAPPED; list < FRAME_LISTS; list++) {
        struct frame_id frame = frames_head(frames, list);

        assert_int_equal(frames_count(frames, list), model->counts[list]);
        for (uint32_t i = 0; i < model->counts[list]; i++) {
            assert_int_equal(frame.index, model->order[list][i]);
            assert_int_equal(frames_list(frames, frame), list);
            assert_int_equal(frames_page(frames, frame).index, pages[frame.index]);
            frame = frames_next(frames, frame);
        }
        assert_int_equal(frame.index, FRAME_NONE.index);
        in_use += model->counts[list];
    }
    assert_int_equal(frames_count(frames, FRAME_FREE), 300 - in_use);
}

static void random_operations_match_the_model(void **state)
{
    static struct model model;
    static uint64_t pages[300];
    static bool taken[300];
    struct random random = {5};
    struct frames *frames = frames_new(300);

    (void)state;
    for (unsigned round = 0; round < 20000; round++) {
        uint32_t frame = random_below(&random, 300);
        enum frame_list list = (enum frame_list)(FRAME_MAPPED + random_below(&random, FRAME_LISTS - FRAME_MAPPED));

        if (random_below(&random, 3) == 0) {
            uint64_t page = random_next(&random) >> 12;
            struct frame_id fresh = frames_take(frames, page_of(page));

            if (fresh.index == FRAME_NONE.index)
                continue;
            assert_false(taken[fresh.index]);
            taken[fresh.index] = true;
            pages[fresh.index] = page;
            model_append(&model, fresh.index, FRAME_BUSY);
        } else if (taken[frame] && random_below(&random, 4) == 0) {
            frames_put(frames, (struct frame_id){frame});
            model_remove(&model, frame);
            taken[frame] = false;
        } else if (taken[frame] && random_below(&random, 4) == 0) {
            frames_push_head(frames, (struct frame_id){frame}, list);
            model_remove(&model, frame);
            model_prepend(&model, frame, list);
        } else if (taken[frame]) {
            frames_push_tail(frames, (struct frame_id){frame}, list);
            model_remove(&model, frame);
            model_append(&model, frame, list);
        }
        if (round % 100 == 0)
            model_check(frames, &model, pages);
    }
    model_check(frames, &model, pages);
    free(frames);
}

static void push_free(void *frames)
{
    frames_push_tail(frames, (struct frame_id){0}, FRAME_MAPPED);
}

static void put_twice(void *frames)
{
    frames_put(frames, (struct frame_id){0});
}

static void free_frames_cannot_be_moved(void **state)
{
    struct frames *frames = frames_new(10);

    (void)state;
    check_aborts(push_free, frames); /* never used */
    frames_put(frames, frames_take(frames, page_of(1)));
    check_aborts(push_free, frames);
    check_aborts(put_twice, frames);
    free(frames);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_handed_out_once),
        cmocka_unit_test(a_frame_costs_16_bytes),
        cmocka_unit_test(random_operations_match_the_model),
        cmocka_unit_test(free_frames_cannot_be_moved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
