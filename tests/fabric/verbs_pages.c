/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_pages.c - one-sided reads and atomics of what peers lend: over a real device (label rig), else skipped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/os.h"
#include "base/random.h"
#include "fabric/verbs.h"
#include "tests/fabric/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LENT_BYTES    ((size_t)256 * 1024)
#define LANDING_BYTES ((size_t)320 * 1024)

struct expected {
    struct fabric_operation operation;
    unsigned done_count;
    int result;
    uint64_t word;
    bool is_checked; /* the bytes must be what the owner wrote */
};

static struct world world;

static uint8_t byte_at(size_t offset)
{
    return (uint8_t)(offset * 31 + (offset >> 8));
}

/* Every node lends; its memory says where each byte is. */
static int set_up(void **state)
{
    (void)state;
    world_open(&world, "verbs", false, "epoll");
    for (unsigned i = 0; i < WORLD_NODES; i++) {
        uint8_t *lent;

        world_node_close(&world, i);
        world.nodes[i].config.lent_bytes = LENT_BYTES;
        world.nodes[i].config.lends_words = true;
        world.nodes[i].config.landing_bytes = LANDING_BYTES;
        world_node_open(&world, i);
        lent = fabric_lent(world.nodes[i].fabric);
        assert_non_null(lent);
        for (size_t at = 0; at < LENT_BYTES; at++)
            lent[at] = byte_at(at);
    }
    world_connect_all(&world);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_close(&world);
    return 0;
}

static struct tcp *tcp_at(unsigned node)
{
    return CONTAINER_OF(world.nodes[node].fabric, struct tcp, base);
}

static struct verbs_qp *qp_at(unsigned node, unsigned peer)
{
    struct tcp_link *link = &tcp_at(node)->peers[peer].links[PLANE_DATA];

    return link->is_carried ? link->carried : NULL;
}

static void on_done(struct fabric_operation *operation, int result, const void *bytes)
{
    struct expected *expected = operation->context;
    const uint8_t *read = bytes;

    expected->done_count++;
    expected->result = result;
    if (result != 0)
        return;
    if (operation->kind != FABRIC_READ)
        memcpy(&expected->word, bytes, sizeof(expected->word));
    for (size_t i = 0; expected->is_checked && i < operation->size_bytes; i++)
        assert_int_equal(read[i], byte_at(operation->offset_bytes + i));
}

static int start(struct expected *expected, unsigned from, unsigned to, enum fabric_operation_kind kind,
                 uint64_t offset, uint32_t size)
{
    expected->operation.kind = kind;
    expected->operation.peer = node_of(to);
    expected->operation.offset_bytes = offset;
    expected->operation.size_bytes = size;
    expected->operation.done = on_done;
    expected->operation.context = expected;
    expected->done_count = 0;
    return fabric_operate(world.nodes[from].fabric, &expected->operation);
}

/* The send queue may be full of messages. */
static void start_in_time(struct expected *expected, unsigned from, unsigned to, enum fabric_operation_kind kind,
                          uint64_t offset, uint32_t size)
{
    int result;

    WORLD_UNTIL(&world, (result = start(expected, from, to, kind, offset, size)) != -EAGAIN);
    assert_int_equal(result, 0);
}

/* The peer's note about its memory comes with its first messages. */
static void wait_for_notes(unsigned from, unsigned to)
{
    WORLD_UNTIL(&world, qp_at(from, to) != NULL && qp_at(from, to)->peer_lends.size_bytes != 0);
}

static void test_capabilities_say_so(void **state)
{
    (void)state;
    assert_int_not_equal(fabric_capabilities(world.nodes[0].fabric) & FABRIC_CAP_PAGES, 0);
    assert_int_not_equal(fabric_capabilities(world.nodes[0].fabric) & FABRIC_CAP_ATOMICS, 0);
}

/* In both directions, all sizes, in the middle of messages; the bytes are the owner's. */
static void test_reads_bring_the_owners_bytes(void **state)
{
    static struct expected reads[16];
    struct random random = {3};

    (void)state;
    wait_for_notes(0, 1);
    wait_for_notes(2, 0);
    for (unsigned round = 0; round < 40; round++) {
        for (size_t i = 0; i < ARRAY_COUNT(reads); i++) {
            uint32_t size = 1 + random_below(&random, FABRIC_READ_MAX);
            uint64_t offset = random_below(&random, (uint32_t)(LENT_BYTES - size + 1));

            reads[i].is_checked = true;
            start_in_time(&reads[i], i % 2 == 0 ? 0 : 2, i % 2 == 0 ? 1 : 0, FABRIC_READ, offset, size);
            world_send(&world, 0, 1, PLANE_DATA);
            world_send(&world, 2, 0, PLANE_DATA);
        }
        for (size_t i = 0; i < ARRAY_COUNT(reads); i++)
            WORLD_UNTIL(&world, reads[i].done_count > 0);
        for (size_t i = 0; i < ARRAY_COUNT(reads); i++) {
            assert_int_equal(reads[i].done_count, 1);
            assert_int_equal(reads[i].result, 0);
        }
    }
    world_settle(&world);
}

/* All that is lent in one read, where the reader wants it, and there alone. */
static void test_reads_land(void **state)
{
    static struct expected one = {.is_checked = true};
    uint8_t *landing = fabric_landing(world.nodes[1].fabric);

    (void)state;
    assert_non_null(landing);
    wait_for_notes(1, 0);
    assert_int_equal(fabric_peer_lends(world.nodes[1].fabric, node_of(0)), LENT_BYTES);
    memset(landing, 0xee, LANDING_BYTES);
    one.operation.into = landing + 8;
    assert_int_equal(start(&one, 1, 0, FABRIC_READ, 0, LENT_BYTES), 0);
    WORLD_UNTIL(&world, one.done_count == 1);
    assert_int_equal(one.result, 0);
    for (size_t i = 0; i < LANDING_BYTES; i++)
        assert_int_equal(landing[i], i < 8 || i >= LENT_BYTES + 8 ? 0xee : byte_at(i - 8));
    one.operation.into = landing + LANDING_BYTES - 8;
    assert_int_equal(start(&one, 1, 0, FABRIC_READ, 0, 9), -EINVAL);
    one.operation.into = landing + 4;
    assert_int_equal(start(&one, 1, 0, FABRIC_READ, 0, 8), -EINVAL);
    one.operation.into = landing - 8;
    assert_int_equal(start(&one, 1, 0, FABRIC_READ, 0, 8), -EINVAL);
    one.operation.into = landing + LANDING_BYTES + 8;
    assert_int_equal(start(&one, 1, 0, FABRIC_READ, 0, 8), -EINVAL);
}

static void test_bounds_are_checked_before_the_wire(void **state)
{
    struct expected one = {.done_count = 0};

    (void)state;
    wait_for_notes(0, 1);
    assert_int_equal(start(&one, 0, 1, FABRIC_READ, LENT_BYTES, 1), -EINVAL);
    assert_int_equal(start(&one, 0, 1, FABRIC_READ, LENT_BYTES - 1, 2), -EINVAL);
    assert_int_equal(start(&one, 0, 1, FABRIC_READ, UINT64_MAX, 2), -EINVAL);
    assert_int_equal(start(&one, 0, 1, FABRIC_READ, 0, 0), -EINVAL);
    assert_int_equal(start(&one, 0, 1, FABRIC_READ, 0, FABRIC_READ_MAX + 1), -EINVAL);
    assert_int_equal(start(&one, 0, 1, FABRIC_FETCH_ADD, 4, 0), -EINVAL);
    assert_int_equal(start(&one, 0, 1, FABRIC_READ, LENT_BYTES - 1, 1), 0);
    WORLD_UNTIL(&world, one.done_count == 1);
    assert_int_equal(one.result, 0);
}

static void test_too_many_at_once_are_refused(void **state)
{
    static struct expected reads[VERBS_READS_MAX + 1];
    unsigned started = 0;
    int result = 0;

    (void)state;
    wait_for_notes(0, 1);
    while (started < ARRAY_COUNT(reads) && (result = start(&reads[started], 0, 1, FABRIC_READ, 0, 100)) == 0)
        started++;
    assert_int_equal(result, -EAGAIN);
    assert_true(started >= 16);
    for (unsigned i = 0; i < started; i++)
        WORLD_UNTIL(&world, reads[i].done_count == 1 && reads[i].result == 0);
}

/* Two nodes add to one word of a third; every old value is seen once. */
static void test_fetch_adds_add_up(void **state)
{
    static struct expected adds[2];
    static bool is_seen[600];
    uint64_t *word = (uint64_t *)fabric_lent(world.nodes[0].fabric) + 5;

    (void)state;
    *word = 0;
    wait_for_notes(1, 0);
    wait_for_notes(2, 0);
    for (unsigned i = 0; i < 300; i++) {
        for (unsigned from = 1; from < 3; from++) {
            adds[from - 1].operation.operand = 1;
            assert_int_equal(start(&adds[from - 1], from, 0, FABRIC_FETCH_ADD, 40, 0), 0);
        }
        for (unsigned k = 0; k < 2; k++) {
            WORLD_UNTIL(&world, adds[k].done_count == 1);
            assert_int_equal(adds[k].result, 0);
            assert_true(adds[k].word < 600 && !is_seen[adds[k].word]);
            is_seen[adds[k].word] = true;
        }
    }
    assert_int_equal(*word, 600);
}

static void test_compare_and_swap(void **state)
{
    struct expected one = {.done_count = 0};
    uint64_t *word = fabric_lent(world.nodes[0].fabric);

    (void)state;
    *word = 17;
    wait_for_notes(1, 0);
    one.operation.expected = 16;
    one.operation.operand = 99;
    assert_int_equal(start(&one, 1, 0, FABRIC_COMPARE_SWAP, 0, 0), 0);
    WORLD_UNTIL(&world, one.done_count == 1);
    assert_int_equal(one.word, 17);
    assert_int_equal(*word, 17);
    one.operation.expected = 17;
    assert_int_equal(start(&one, 1, 0, FABRIC_COMPARE_SWAP, 0, 0), 0);
    WORLD_UNTIL(&world, one.done_count == 1);
    assert_int_equal(one.word, 17);
    assert_int_equal(*word, 99);
}

static void test_who_lends_nothing_is_not_read(void **state)
{
    struct expected one = {.done_count = 0};

    (void)state;
    world_node_close(&world, 0);
    WORLD_UNTIL(&world, !world.nodes[1].is_up[0] && !world.nodes[2].is_up[0]);
    world.nodes[0].config.lent_bytes = 0;
    world_node_open(&world, 0);
    world_forget(&world, 1, 0);
    world_connect(&world, 1, 0);
    WORLD_UNTIL(&world, world.nodes[1].is_up[0] && world.nodes[0].is_up[1]);
    world_send_sized(&world, 0, 1, PLANE_DATA, 100);
    world_settle(&world);
    assert_null(fabric_lent(world.nodes[0].fabric));
    assert_int_equal(start(&one, 1, 0, FABRIC_READ, 0, 8), -EOPNOTSUPP);
}

/* Who lends for reading alone is read, and changed by nobody, whatever a peer believes. */
static void test_words_that_are_not_lent(void **state)
{
    struct expected one = {.is_checked = true};
    uint64_t *word;

    (void)state;
    world_node_close(&world, 0);
    WORLD_UNTIL(&world, !world.nodes[1].is_up[0] && !world.nodes[2].is_up[0]);
    world.nodes[0].config.lends_words = false;
    world_node_open(&world, 0);
    word = fabric_lent(world.nodes[0].fabric);
    for (size_t at = 0; at < LENT_BYTES; at++)
        ((uint8_t *)word)[at] = byte_at(at);
    world_forget(&world, 1, 0);
    world_connect(&world, 1, 0);
    wait_for_notes(1, 0);
    assert_int_equal(start(&one, 1, 0, FABRIC_READ, 0, 100), 0);
    WORLD_UNTIL(&world, one.done_count == 1);
    assert_int_equal(one.result, 0);
    assert_int_equal(start(&one, 1, 0, FABRIC_FETCH_ADD, 0, 0), -EOPNOTSUPP);
    qp_at(1, 0)->peer_lends.has_atomics = true;
    *word = 4321;
    one.operation.operand = 1;
    assert_int_equal(start(&one, 1, 0, FABRIC_FETCH_ADD, 0, 0), 0);
    WORLD_UNTIL(&world, one.done_count == 1);
    assert_int_equal(one.result, -EACCES);
    assert_int_equal(*word, 4321);
}

/* ---- connections that end -------------------------------------------------------------------------------------- */

/* An atomic under way when its connection is cut says that its fate is unknown, once; the session goes on. */
static void test_cut_during_an_atomic(void **state)
{
    static struct expected adds[10];

    (void)state;
    wait_for_notes(1, 0);
    for (size_t i = 0; i < ARRAY_COUNT(adds); i++) {
        adds[i].operation.operand = 1;
        assert_int_equal(start(&adds[i], 1, 0, FABRIC_FETCH_ADD, 40, 0), 0);
    }
    assert_int_equal(fabric_cut(world.nodes[1].fabric, node_of(0)), 0);
    for (size_t i = 0; i < ARRAY_COUNT(adds); i++)
        assert_int_equal(adds[i].done_count, 0); /* never from inside a call */
    for (size_t i = 0; i < ARRAY_COUNT(adds); i++) {
        WORLD_UNTIL(&world, adds[i].done_count == 1);
        assert_int_equal(adds[i].result, -ECONNABORTED);
    }
    world_send_sized(&world, 1, 0, PLANE_DATA, 5000);
    world_settle(&world);
    for (size_t i = 0; i < ARRAY_COUNT(adds); i++)
        assert_int_equal(adds[i].done_count, 1);
    assert_int_equal(world.nodes[1].downs[0], 0);
}

/*
 * The peer closes in the middle of reads: each ends once, whole or with an error, and nothing lands afterwards, when
 * the memory may be another's.
 */
static void test_peer_closes_during_reads(void **state)
{
    static struct expected reads[8];
    uint8_t *landing = fabric_landing(world.nodes[1].fabric);
    unsigned aborted_count = 0;

    (void)state;
    wait_for_notes(1, 0);
    for (size_t i = 0; i < ARRAY_COUNT(reads); i++) {
        reads[i].is_checked = true;
        reads[i].operation.into = landing;
        start_in_time(&reads[i], 1, 0, FABRIC_READ, 0, LENT_BYTES);
    }
    world_node_close(&world, 0);
    for (size_t i = 0; i < ARRAY_COUNT(reads); i++) {
        WORLD_UNTIL(&world, reads[i].done_count == 1);
        assert_true(reads[i].result == 0 || reads[i].result == -ECONNABORTED || reads[i].result == -EACCES);
        aborted_count += reads[i].result != 0;
    }
    assert_true(aborted_count > 0);
    memset(landing, 0xee, LANDING_BYTES);
    WORLD_UNTIL(&world, !world.nodes[1].is_up[0]);
    assert_int_equal(fabric_peer_lends(world.nodes[1].fabric, node_of(0)), 0);
    for (size_t i = 0; i < LANDING_BYTES; i++)
        assert_int_equal(landing[i], 0xee);
    for (size_t i = 0; i < ARRAY_COUNT(reads); i++)
        assert_int_equal(reads[i].done_count, 1);
}

/* Once the owner has disconnected it writes there what is not for that peer, which is refused at once. */
static void test_disconnected_reads_no_more(void **state)
{
    static struct expected reads[8];
    unsigned refused_count = 0;

    (void)state;
    wait_for_notes(1, 0);
    for (size_t i = 0; i < ARRAY_COUNT(reads); i++) {
        reads[i].is_checked = true;
        reads[i].operation.into = fabric_landing(world.nodes[1].fabric);
        start_in_time(&reads[i], 1, 0, FABRIC_READ, 0, LENT_BYTES);
    }
    fabric_disconnect(world.nodes[0].fabric, node_of(1));
    memset(fabric_lent(world.nodes[0].fabric), 0xee, LENT_BYTES);
    usleep(100000); /* the device goes on alone */
    for (size_t i = 0; i < ARRAY_COUNT(reads); i++) {
        WORLD_UNTIL(&world, reads[i].done_count == 1);
        refused_count += reads[i].result != 0;
    }
    assert_true(refused_count > 0);
    WORLD_UNTIL(&world, !world.nodes[1].is_up[0]);
}

/* The key of a connection that has ended opens nothing any more: the peer's device refuses, nothing is written. */
static void test_key_dies_with_its_connection(void **state)
{
    struct expected one = {.done_count = 0};
    uint64_t *word = fabric_lent(world.nodes[0].fabric);
    struct verbs_lent old;

    (void)state;
    wait_for_notes(1, 0);
    old = qp_at(1, 0)->peer_lends;
    assert_int_equal(fabric_cut(world.nodes[1].fabric, node_of(0)), 0);
    WORLD_UNTIL(&world, qp_at(1, 0) != NULL && qp_at(1, 0)->peer_lends.size_bytes != 0);
    assert_int_not_equal(qp_at(1, 0)->peer_lends.key, old.key);
    *word = 1234;
    qp_at(1, 0)->peer_lends.key = old.key;
    one.operation.operand = 1;
    assert_int_equal(start(&one, 1, 0, FABRIC_FETCH_ADD, 0, 0), 0);
    WORLD_UNTIL(&world, one.done_count == 1);
    assert_int_equal(one.result, -EACCES);
    assert_int_equal(*word, 1234);
    world_send_sized(&world, 1, 0, PLANE_DATA, 5000); /* the session outlives it, by whatever way */
    world_settle(&world);
    assert_int_equal(world.nodes[1].downs[0] + world.nodes[0].downs[1], 0);
}

/* Where the device has no memory windows, each connection has a registration of its own, which ends with it too. */
static void test_without_memory_windows(void **state)
{
    struct expected one = {.is_checked = true};
    struct verbs_lent old;

    (void)state;
    wait_for_notes(1, 0);
    verbs_of(tcp_at(0)->carrier)->attributes.device_cap_flags &= ~(unsigned)IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    for (int round = 0; round < 2; round++) {
        old = qp_at(1, 0)->peer_lends;
        assert_int_equal(fabric_cut(world.nodes[1].fabric, node_of(0)), 0);
        WORLD_UNTIL(&world, qp_at(1, 0) != NULL && qp_at(1, 0)->peer_lends.size_bytes != 0);
        assert_null(qp_at(0, 1)->window);
        assert_non_null(qp_at(0, 1)->lent_mr);
        assert_int_not_equal(qp_at(1, 0)->peer_lends.key, old.key);
        assert_int_equal(start(&one, 1, 0, FABRIC_READ, 1000, 9000), 0);
        WORLD_UNTIL(&world, one.done_count == 1);
        assert_int_equal(one.result, 0);
    }
    qp_at(1, 0)->peer_lends.key = old.key;
    assert_int_equal(start(&one, 1, 0, FABRIC_READ, 0, 8), 0);
    WORLD_UNTIL(&world, one.done_count == 1);
    assert_int_equal(one.result, -EACCES);
}

/* What cannot be registered is not lent; the connection stays as it is. */
static void test_registration_fails(void **state)
{
    struct expected one = {.done_count = 0};
    struct verbs *verbs = verbs_of(tcp_at(0)->carrier);

    (void)state;
    wait_for_notes(1, 0);
    verbs->attributes.device_cap_flags &= ~(unsigned)IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    verbs->config.lent_bytes = (size_t)1 << 50;
    assert_int_equal(fabric_cut(world.nodes[1].fabric, node_of(0)), 0);
    WORLD_UNTIL(&world, qp_at(1, 0) != NULL && qp_at(0, 1) != NULL);
    world_send_sized(&world, 0, 1, PLANE_DATA, 5000);
    world_settle(&world);
    verbs->config.lent_bytes = LENT_BYTES;
    assert_non_null(qp_at(0, 1));
    assert_null(qp_at(0, 1)->lent_mr);
    assert_int_equal(start(&one, 1, 0, FABRIC_READ, 0, 8), -EOPNOTSUPP);
}

/* The key of one peer is none for another. */
static void test_key_is_for_its_peer_alone(void **state)
{
    struct expected one = {.done_count = 0};

    (void)state;
    wait_for_notes(1, 0);
    wait_for_notes(2, 0);
    assert_int_not_equal(qp_at(1, 0)->peer_lends.key, qp_at(2, 0)->peer_lends.key);
    qp_at(2, 0)->peer_lends.key = qp_at(1, 0)->peer_lends.key;
    assert_int_equal(start(&one, 2, 0, FABRIC_READ, 0, 8), 0);
    WORLD_UNTIL(&world, one.done_count == 1);
    assert_int_equal(one.result, -EACCES);
    assert_int_equal(start(&one, 1, 0, FABRIC_READ, 0, 8), 0);
    WORLD_UNTIL(&world, one.done_count == 1);
    assert_int_equal(one.result, 0);
}

/* Beyond what is lent, whatever this side believes. */
static void test_read_beyond_what_is_lent(void **state)
{
    struct expected one = {.done_count = 0};

    (void)state;
    wait_for_notes(1, 0);
    qp_at(1, 0)->peer_lends.size_bytes *= 2;
    assert_int_equal(start(&one, 1, 0, FABRIC_READ, LENT_BYTES - 8, 16), 0);
    WORLD_UNTIL(&world, one.done_count == 1);
    assert_int_equal(one.result, -EACCES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_capabilities_say_so),
        TEST(test_reads_bring_the_owners_bytes),
        TEST(test_reads_land),
        TEST(test_bounds_are_checked_before_the_wire),
        TEST(test_too_many_at_once_are_refused),
        TEST(test_fetch_adds_add_up),
        TEST(test_compare_and_swap),
        TEST(test_who_lends_nothing_is_not_read),
        TEST(test_words_that_are_not_lent),
        TEST(test_cut_during_an_atomic),
        TEST(test_peer_closes_during_reads),
        TEST(test_disconnected_reads_no_more),
        TEST(test_key_dies_with_its_connection),
        TEST(test_without_memory_windows),
        TEST(test_registration_fails),
        TEST(test_key_is_for_its_peer_alone),
        TEST(test_read_beyond_what_is_lent),
    };

    log_configure(LOG_ERROR, "verbs_pages");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
