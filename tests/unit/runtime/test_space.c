/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_space.c - the allocator's bookkeeping against a simple model: no overlap, alignment, reuse, refusals.
 */
#include "base/assert.h"
#include "base/os.h"
#include "base/random.h"
#include "runtime/space.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BASE    ((uint64_t)0x100000000000)
#define EXTENTS 512

/* Extents handed out in order; a freed run may come again. */
struct source {
    bool is_taken[EXTENTS];
    unsigned taken_count;
};

static int source_take(void *context, uint64_t count, uint64_t *ret_first)
{
    struct source *source = context;
    uint64_t run = 0;

    for (uint64_t i = 0; i < EXTENTS; i++) {
        run = source->is_taken[i] ? 0 : run + 1;
        if (run < count)
            continue;
        *ret_first = i + 1 - count;
        for (uint64_t k = *ret_first; k <= i; k++)
            source->is_taken[k] = true;
        source->taken_count += (unsigned)count;
        return 0;
    }
    return -ENOMEM;
}

static void source_give(void *context, uint64_t first, uint64_t count)
{
    struct source *source = context;

    for (uint64_t k = first; k < first + count; k++) {
        ASSERT(source->is_taken[k]);
        source->is_taken[k] = false;
    }
    source->taken_count -= (unsigned)count;
}

static struct space *space_make(struct source *source)
{
    struct space_config config = {BASE, EXTENTS, source, source_take, source_give};
    struct space *space;

    memset(source, 0, sizeof(*source));
    assert_int_equal(space_create(&config, &space), 0);
    return space;
}

static void test_take_aligns_and_sizes(void **state)
{
    static const size_t sizes[] = {1, 16, 17, 100, 4095, 4096, 5000, 65536, 1 << 20, (1 << 20) + 1, 5 << 20};
    struct source source;
    struct space *space = space_make(&source);

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        for (size_t alignment = 1; alignment <= EXTENT_BYTES; alignment *= 8) {
            uint64_t address;
            size_t usable;
            bool was_used;

            assert_int_equal(space_take(space, sizes[i], alignment, &address, &was_used), 0);
            assert_int_equal(address % alignment, 0);
            assert_int_equal(address % (sizes[i] >= PAGE_BYTES ? PAGE_BYTES : 16), 0);
            assert_int_equal(space_usable_size(space, address, &usable), 0);
            assert_true(usable >= sizes[i]);
        }
    }
    space_destroy(space);
}

static void test_put_refuses_what_it_never_gave(void **state)
{
    struct source source;
    struct space *space = space_make(&source);
    uint64_t address;
    bool was_used;

    (void)state;
    assert_int_equal(space_take(space, 100, 16, &address, &was_used), 0);
    assert_false(was_used);
    assert_int_equal(space_put(space, address + 16), -EINVAL);
    assert_int_equal(space_put(space, BASE - 16), -EFAULT);
    assert_int_equal(space_put(space, BASE + (uint64_t)EXTENTS * EXTENT_BYTES), -EFAULT);
    assert_int_equal(space_put(space, BASE + 100 * EXTENT_BYTES), -EFAULT);
    assert_int_equal(space_put(space, address), 0);
    assert_int_equal(space_put(space, address), -EINVAL);
    assert_int_equal(space_take(space, 100, 16, &address, &was_used), 0);
    assert_true(was_used);
    space_destroy(space);
}

static void test_extents_go_back(void **state)
{
    struct source source;
    struct space *space = space_make(&source);
    uint64_t addresses[64];
    bool was_used;

    (void)state;
    for (int i = 0; i < 64; i++)
        assert_int_equal(space_take(space, 1 << 20, 16, &addresses[i], &was_used), 0);
    assert_int_equal(source.taken_count, 32);
    for (int i = 0; i < 64; i++)
        assert_int_equal(space_put(space, addresses[i]), 0);
    assert_int_equal(source.taken_count, 1); /* the last slab of a class is kept */
    assert_int_equal(space_take(space, 100 * EXTENT_BYTES, 16, &addresses[0], &was_used), 0);
    assert_int_equal(space_put(space, addresses[0]), 0);
    assert_int_equal(source.taken_count, 1);
    assert_int_equal(space_take(space, (size_t)EXTENTS * EXTENT_BYTES, 16, &addresses[0], &was_used), -ENOMEM);
    space_destroy(space);
}

struct block {
    uint64_t address;
    size_t size;
};

static void check_no_overlap(const struct block *blocks, unsigned count, const struct block *new)
{
    for (unsigned i = 0; i < count; i++)
        assert_true(new->address + new->size <= blocks[i].address ||
                    blocks[i].address + blocks[i].size <= new->address);
}

static void test_random_against_model(void **state)
{
    struct source source;
    struct space *space = space_make(&source);
    struct random random = {42};
    struct block blocks[256];
    unsigned count = 0;

    (void)state;
    for (int step = 0; step < 20000; step++) {
        if (count < ARRAY_COUNT(blocks) && random_below(&random, 2) == 0) {
            struct block new = {.size = 1 + random_below(&random, 1u << random_below(&random, 21))};
            bool was_used;

            assert_int_equal(space_take(space, new.size, 16, &new.address, &was_used), 0);
            check_no_overlap(blocks, count, &new);
            blocks[count++] = new;
        } else if (count > 0) {
            unsigned victim = random_below(&random, count);

            assert_int_equal(space_put(space, blocks[victim].address), 0);
            blocks[victim] = blocks[--count];
        }
    }
    while (count > 0)
        assert_int_equal(space_put(space, blocks[--count].address), 0);
    space_destroy(space);
}

/* Many small blocks: what is kept beside the memory stays below two thousandths of it. */
static void test_metadata_is_small(void **state)
{
    struct source source;
    struct space *space = space_make(&source);
    uint64_t address;
    bool was_used;

    (void)state;
    for (int i = 0; i < 200000; i++)
        assert_int_equal(space_take(space, 256, 16, &address, &was_used), 0);
    assert_true(space_metadata_bytes(space) - 4096 < (uint64_t)source.taken_count * EXTENT_BYTES / 500);
    space_destroy(space);
}

struct worker {
    struct space *space;
    uint64_t seed;
    pthread_t thread;
};

static void *worker_run(void *argument)
{
    struct worker *worker = argument;
    struct random random = {worker->seed};
    uint64_t held[32] = {0};

    for (int step = 0; step < 20000; step++) {
        uint64_t *slot = &held[random_below(&random, ARRAY_COUNT(held))];
        bool was_used;

        if (*slot != 0)
            ASSERT(space_put(worker->space, *slot) == 0);
        *slot = 0;
        ASSERT(space_take(worker->space, 1 + random_below(&random, 2000), 16, slot, &was_used) == 0);
    }
    for (unsigned i = 0; i < ARRAY_COUNT(held); i++)
        ASSERT(held[i] == 0 || space_put(worker->space, held[i]) == 0);
    return NULL;
}

static void test_threads_share_a_space(void **state)
{
    struct source source;
    struct space *space = space_make(&source);
    struct worker workers[4];

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(workers); i++) {
        workers[i] = (struct worker){.space = space, .seed = i};
        assert_int_equal(os_thread_start(&workers[i].thread, "space", worker_run, &workers[i]), 0);
    }
    for (unsigned i = 0; i < ARRAY_COUNT(workers); i++)
        pthread_join(workers[i].thread, NULL);
    space_destroy(space);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take_aligns_and_sizes), cmocka_unit_test(test_put_refuses_what_it_never_gave),
        cmocka_unit_test(test_extents_go_back),       cmocka_unit_test(test_random_against_model),
        cmocka_unit_test(test_metadata_is_small),     cmocka_unit_test(test_threads_share_a_space),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
