/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_forget.c - memory is freed while requests on it are under way, at every point of them: V8.
 */
#include "world.h"

/* What the runtime does when an extent is freed, on every node. */
static void forget_everywhere(struct world *world, struct page_id page)
{
    unsigned home = 0, index = 0;

    assert_true(locate(page, &home, &index));
    for (unsigned i = 0; i < NODES; i++) {
        struct node *node = &world->nodes[i];

        coherence_forget(at(world, i), page, 1);
        node->tables.rights[home][index] = ACCESS_NONE;
        node->tables.words[home][index] = 0;
    }
}

/* What was under way arrives while the page belongs to nobody. */
static void world_late(struct world *world)
{
    world->is_freed = true;
    world_run(world);
    world->is_freed = false;
}

/* Freed after `steps` messages of a transaction; then the page lives anew, and nothing of the old life shows. */
static void freed_after(unsigned steps, enum access access, unsigned requester)
{
    struct world *world = world_start();
    struct page_id page = page_at(0, 0);

    put(world, 1, page, 5);
    fault(world, requester, page, access, 1);
    for (unsigned i = 0; i < steps && world->count > 0; i++)
        world_deliver(world, 0);
    forget_everywhere(world, page);
    assert_true(world->nodes[requester].results[1] == 0 || world->nodes[requester].results[1] == -EFAULT);
    assert_int_equal(world->nodes[requester].dones[1], 1);
    world_late(world);
    for (unsigned i = 0; i < NODES; i++)
        assert_int_equal(rights(world, i, page), ACCESS_NONE);
    assert_int_equal(directory(world, page)->busy, 0);
    assert_int_equal(directory(world, page)->owner, 0);
    assert_true(directory(world, page)->sharers == 0);
    put(world, requester, page, 9);
    touch(world, 3 - requester % 3, page, ACCESS_READ);
    assert_true(*word(world, 3 - requester % 3, page) == 9);
    world_end(world);
}

static void test_freed_during_a_transaction(void **state)
{
    (void)state;
    for (unsigned steps = 0; steps < 8; steps++) {
        freed_after(steps, ACCESS_READ, 2);
        freed_after(steps, ACCESS_WRITE, 2);
        freed_after(steps, ACCESS_WRITE, 0);
    }
}

/* A read of the range, and an exclusive request that waits for its end. */
static void test_freed_during_a_read(void **state)
{
    struct page_id page = page_at(0, 0);

    (void)state;
    for (unsigned steps = 0; steps < 6; steps++) {
        struct world *world = world_start();

        put(world, 1, page, 5);
        assert_int_equal(coherence_read(at(world, 2), page, 1, 2, world->now_ns), 0);
        for (unsigned i = 0; i < steps && world->count > 0; i++)
            world_deliver(world, 0);
        fault(world, 3, page, ACCESS_WRITE, 1);
        forget_everywhere(world, page);
        world_late(world);
        coherence_read_end(at(world, 2), 2, world->now_ns);
        world_run(world);
        assert_int_equal(world->nodes[3].results[1], -EFAULT);
        assert_int_equal(directory(world, page)->busy, 0);
        put(world, 3, page, 9);
        world_end(world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freed_during_a_transaction),
        cmocka_unit_test(test_freed_during_a_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
