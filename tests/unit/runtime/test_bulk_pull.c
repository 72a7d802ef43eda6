/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bulk_pull.c - the reader of runs by RDMA, against a home and a fabric that do what the test says: whole runs,
 * connections that break in the middle, homes that refuse, leave or lie.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/os.h"
#include "runtime/bulk_pull.h"
#include "runtime/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define SELF       1
#define HOME       0
#define OTHER      2
#define FIRST      1000
#define OFFSET     100
#define SIZE       (LEND_PAGES_MAX * PAGE_BYTES - 300)
#define LENT_BYTES ((size_t)LEND_SLICES_MAX * LEND_SLICE_BYTES)
#define PATIENCE   UINT64_C(20000000000)

struct reader {
    pthread_t thread;
    size_t size_bytes, done_bytes;
    int result;
    _Atomic(bool) is_over;
    char buffer[SIZE];
};

static struct {
    struct node node;
    struct fabric fabric;
    uint64_t peer_lends;
    bool is_broken;
    struct wire last; /* that the reader's shard sent */
    unsigned lends_count, closes_count;
    struct fabric_operation *operations[16]; /* under way or over */
    unsigned operations_count, over_count;
} world;

static char landing[PULL_BYTES] __attribute__((aligned(8)));
static char lent[LENT_BYTES];
static struct reader reader;

/* ---- what is below --------------------------------------------------------------------------------------------- */

int peers_send(struct node *node, struct node_id to, enum fabric_plane plane, const struct iovec *parts,
               int parts_count)
{
    assert_ptr_equal(node, &world.node);
    assert_int_equal(to.index, HOME);
    assert_int_equal(plane, PLANE_CONTROL);
    assert_int_equal(parts_count, 1);
    assert_int_equal(wire_decode(parts[0].iov_base, parts[0].iov_len, &world.last), 0);
    world.lends_count += world.last.type == WIRE_BULK_LEND;
    world.closes_count += world.last.type == WIRE_BULK_CLOSE;
    return 0;
}

void *fabric_lent(struct fabric *fabric)
{
    (void)fabric;
    return NULL;
}

void *fabric_landing(struct fabric *fabric)
{
    (void)fabric;
    return landing;
}

uint64_t fabric_peer_lends(struct fabric *fabric, struct node_id peer)
{
    (void)fabric;
    assert_int_equal(peer.index, HOME);
    return world.peer_lends;
}

int fabric_operate(struct fabric *fabric, struct fabric_operation *operation)
{
    const char *into = operation->into;

    (void)fabric;
    if (world.is_broken)
        return -EOPNOTSUPP;
    if (operation->size_bytes > LENT_BYTES || operation->offset_bytes > LENT_BYTES - operation->size_bytes)
        return -EINVAL;
    assert_int_equal(operation->kind, FABRIC_READ);
    assert_true(into >= landing && into + operation->size_bytes <= landing + PULL_BYTES);
    assert_true(world.operations_count - world.over_count < PULL_SLOTS);
    world.operations[world.operations_count++] = operation;
    return 0;
}

/* ---- the home -------------------------------------------------------------------------------------------------- */

/* Byte `at` of the run. */
static char byte_at(size_t at)
{
    return (char)(at * 31 + (at >> 12) * 7);
}

/* The last slice comes first in what is lent. */
static uint64_t place_of(unsigned slice)
{
    return (LEND_SLICES_MAX - 1 - slice) * LEND_SLICE_BYTES;
}

static void part_come(unsigned from, uint64_t slice, uint64_t place, int32_t result)
{
    struct wire wire = {.type = WIRE_BULK_PART, .result = result, .id = world.last.id, .a = place, .b = slice};

    bulk_pull_part(&world.node, node_of(from), &wire);
}

static void operation_end(unsigned index, int result)
{
    struct fabric_operation *operation = world.operations[index];

    if (result == 0)
        memcpy(operation->into, lent + operation->offset_bytes, operation->size_bytes);
    world.over_count++;
    operation->done(operation, result, result == 0 ? operation->into : NULL);
}

/* ---- the reader ------------------------------------------------------------------------------------------------ */

static void *reader_main(void *argument)
{
    struct reader *self = argument;

    self->result = bulk_pull_read(&world.node, node_of(HOME), page_of(FIRST), OFFSET, self->size_bytes, self->buffer,
                                  &self->done_bytes);
    atomic_store(&self->is_over, true);
    return NULL;
}

static void turn(void)
{
    loop_run_once(world.node.loop, os_now_ns() + 1000000);
}

#define UNTIL(condition)                                                                                               \
    do {                                                                                                               \
        uint64_t until_end_ns = os_now_ns() + PATIENCE;                                                                \
        while (!(condition)) {                                                                                         \
            assert_true(os_now_ns() < until_end_ns);                                                                   \
            turn();                                                                                                    \
        }                                                                                                              \
    } while (0)

static void turns(void)
{
    for (int i = 0; i < 20; i++)
        turn();
}

static void reader_start(size_t size_bytes)
{
    memset(&reader, 0, sizeof(reader));
    reader.size_bytes = size_bytes;
    assert_int_equal(pthread_create(&reader.thread, NULL, reader_main, &reader), 0);
}

static void reader_ends(int result, size_t done_bytes)
{
    UNTIL(atomic_load(&reader.is_over));
    assert_int_equal(pthread_join(reader.thread, NULL), 0);
    assert_int_equal(reader.result, result);
    assert_int_equal(reader.done_bytes, done_bytes);
    for (size_t i = 0; i < done_bytes; i++)
        assert_int_equal(reader.buffer[i], byte_at(OFFSET + i));
    for (size_t i = done_bytes; i < SIZE; i++)
        assert_int_equal(reader.buffer[i], 0);
    turns();
    assert_int_equal(world.closes_count, world.lends_count);
}

static int set_up(void **state)
{
    (void)state;
    memset(&world, 0, sizeof(world));
    memset(landing, 0x55, sizeof(landing));
    for (unsigned slice = 0; slice < LEND_SLICES_MAX; slice++)
        for (size_t i = 0; i < LEND_SLICE_BYTES; i++)
            lent[place_of(slice) + i] = byte_at(slice * LEND_SLICE_BYTES + i);
    world.peer_lends = LENT_BYTES;
    world.node.self = node_of(SELF);
    world.node.view = (struct view){.epoch = {1}, .members = 7};
    world.node.tcp = world.node.via[HOME] = &world.fabric;
    assert_int_equal(loop_create("epoll", &world.node.loop), 0);
    assert_int_equal(bulk_pull_create(&world.node), 0);
    assert_non_null(world.node.pulls);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    bulk_pull_destroy(world.node.pulls);
    loop_destroy(world.node.loop);
    return 0;
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

/* Slices are told in any order and land two at a time; the buffer has them in theirs. */
static void test_whole_run(void **state)
{
    (void)state;
    reader_start(SIZE);
    UNTIL(world.lends_count == 1);
    assert_int_equal(world.last.a, FIRST);
    assert_int_equal(world.last.b, LEND_PAGES_MAX);
    for (unsigned slice = LEND_SLICES_MAX; slice-- > 0;)
        part_come(HOME, slice, place_of(slice), 0);
    assert_int_equal(world.operations_count, PULL_SLOTS);
    operation_end(0, 0);
    turns();
    assert_int_equal(world.operations_count, PULL_SLOTS); /* they are copied out in order, and this was the second */
    operation_end(1, 0);
    for (unsigned i = PULL_SLOTS; i < LEND_SLICES_MAX; i++) {
        UNTIL(world.operations_count > i);
        assert_int_equal(world.closes_count, 0);
        operation_end(i, 0);
    }
    reader_ends(0, SIZE);
    assert_int_equal(bulk_pull_bytes(&world.node), LENT_BYTES);
}

/* A few bytes are a page of a slice. */
static void test_few_bytes(void **state)
{
    (void)state;
    reader_start(10);
    UNTIL(world.lends_count == 1);
    assert_int_equal(world.last.b, 1);
    part_come(HOME, 0, place_of(0), 0);
    assert_int_equal(world.operations[0]->size_bytes, PAGE_BYTES);
    operation_end(0, 0);
    reader_ends(0, 10);
}

/* What came before stays; the run is closed, and its slots are others', only when nothing is under way any more. */
static void test_connection_breaks(void **state)
{
    (void)state;
    reader_start(SIZE);
    UNTIL(world.lends_count == 1);
    for (unsigned slice = 0; slice < LEND_SLICES_MAX; slice++)
        part_come(HOME, slice, place_of(slice), 0);
    operation_end(0, 0);
    UNTIL(world.operations_count == 3);
    operation_end(1, -ECONNABORTED);
    turns();
    assert_int_equal(world.closes_count, 0);
    assert_false(atomic_load(&reader.is_over));
    operation_end(2, 0);
    reader_ends(-EAGAIN, LEND_SLICE_BYTES - OFFSET);
}

/* Between a slice's word and its read the way is another. */
static void test_way_is_gone(void **state)
{
    (void)state;
    reader_start(SIZE);
    UNTIL(world.lends_count == 1);
    world.is_broken = true;
    part_come(HOME, 0, place_of(0), 0);
    turns();
    assert_false(atomic_load(&reader.is_over)); /* the second was asked for as well */
    part_come(HOME, 1, place_of(1), 0);
    reader_ends(-EAGAIN, 0);
}

static void test_home_refuses(void **state)
{
    static const int results[][2] = {{-EAGAIN, -EAGAIN},       {-EOPNOTSUPP, -EAGAIN}, {-EIO, -EIO},
                                     {-EHOSTDOWN, -EHOSTDOWN}, {7, -EPROTO},           {INT32_MIN, -EPROTO}};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(results); i++) {
        reader_start(SIZE);
        UNTIL(world.lends_count == i + 1);
        part_come(HOME, 0, 0, results[i][0]);
        reader_ends(results[i][1], 0);
    }
    assert_int_equal(world.operations_count, 0);
}

/* A home that lies costs its own read; what others say, or say of other reads, is nothing. */
static void test_home_lies(void **state)
{
    (void)state;
    reader_start(SIZE);
    UNTIL(world.lends_count == 1);
    part_come(OTHER, 0, place_of(0), 0);
    world.last.id++;
    part_come(HOME, 0, place_of(0), 0);
    world.last.id--;
    assert_int_equal(world.operations_count, 0);
    part_come(HOME, 0, place_of(0), 0);
    part_come(HOME, 0, place_of(1), 0); /* again, elsewhere */
    assert_int_equal(world.operations_count, 1);
    operation_end(0, 0);
    part_come(HOME, 0, place_of(1), 0);
    part_come(HOME, 1, LENT_BYTES - LEND_SLICE_BYTES + 1, 0);
    turns();
    assert_int_equal(world.operations_count, 1);
    part_come(HOME, 2, UINT64_MAX - 5, 0);
    reader_ends(-EAGAIN, LEND_SLICE_BYTES - OFFSET);
    reader_start(SIZE);
    UNTIL(world.lends_count == 2);
    part_come(HOME, LEND_SLICES_MAX, 0, 0);
    reader_ends(-EPROTO, 0);
    reader_start(SIZE);
    UNTIL(world.lends_count == 3);
    part_come(HOME, UINT64_MAX, 0, 0);
    reader_ends(-EPROTO, 0);
}

static void test_views(void **state)
{
    static const uint64_t views[] = {7 & ~(1u << HOME), 7 & ~(1u << SELF), 0};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(views); i++) {
        struct view view = {.epoch = {2}, .members = views[i]};

        reader_start(SIZE);
        UNTIL(world.lends_count == i + 1);
        part_come(HOME, 0, place_of(0), 0);
        bulk_pull_view(&world.node, &view);
        turns();
        assert_false(atomic_load(&reader.is_over)); /* a read is under way */
        operation_end((unsigned)i, 0);
        reader_ends(-EHOSTDOWN, LEND_SLICE_BYTES - OFFSET);
    }
    world.node.view.members = 7 & ~(1u << SELF);
    reader_start(SIZE);
    reader_ends(-EHOSTDOWN, 0);
    assert_int_equal(world.lends_count, ARRAY_COUNT(views));
}

/* The shard is asked once; until a second has passed nobody asks again. */
static void test_home_without_rdma(void **state)
{
    size_t done_bytes = 1;

    (void)state;
    world.peer_lends = 0;
    reader_start(SIZE);
    reader_ends(-EAGAIN, 0);
    world.peer_lends = LENT_BYTES;
    assert_int_equal(bulk_pull_read(&world.node, node_of(HOME), page_of(FIRST), 0, 10, reader.buffer, &done_bytes),
                     -EAGAIN);
    assert_int_equal(done_bytes, 0);
    assert_int_equal(world.lends_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_whole_run),   TEST(test_few_bytes),         TEST(test_connection_breaks),
        TEST(test_way_is_gone), TEST(test_home_refuses),      TEST(test_home_lies),
        TEST(test_views),       TEST(test_home_without_rdma),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
