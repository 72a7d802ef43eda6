/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_hostile.c - what a broken host can write into a pool (F6): it costs its own session, and nothing else. And pools
 * that cannot be used. The test writes into node 2's partition as node 2 would; node 1 is the one who reads it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "fabric/pool.h"
#include "tests/fabric/world.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define PARTITION_BYTES ((1 + (size_t)WORLD_NODES) * POOL_STEP_BYTES)

static struct world world;
static uint8_t *memory;

static int set_up(void **state)
{
    int fd;

    (void)state;
    world_open(&world, "pool", false, "epoll");
    world_connect_all(&world);
    fd = open(world.pool, O_RDWR | O_CLOEXEC);
    memory = mmap(NULL, WORLD_NODES * PARTITION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return memory == MAP_FAILED ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    munmap(memory, WORLD_NODES * PARTITION_BYTES);
    world_close(&world);
    return 0;
}

static struct pool_partition *partition(unsigned node)
{
    return (struct pool_partition *)(void *)(memory + node * PARTITION_BYTES);
}

/* Node 2 to node 1, control. */
static struct pool_line *tail(void)
{
    return &partition(2)->sides[1].tail[PLANE_CONTROL];
}

static uint8_t *record(void)
{
    uint64_t words[POOL_LINE_WORDS];

    ASSERT(pool_line_read(tail(), words));
    return memory + 2 * PARTITION_BYTES + 2 * POOL_STEP_BYTES + words[1] % POOL_CONTROL_BYTES;
}

static void tail_move(uint64_t bytes)
{
    uint64_t words[POOL_LINE_WORDS];

    ASSERT(pool_line_read(tail(), words));
    words[1] += bytes;
    pool_line_write(tail(), words);
}

/* Node 1 finds it out; nodes 0 and 1 go on. */
static void session_ends(const char *cause)
{
    WORLD_UNTIL(&world, world.nodes[1].downs[2] == 1);
    if (strstr(world.nodes[1].cause[2], cause) == NULL)
        fail_msg("node 1 says: %s", world.nodes[1].cause[2]);
    world_send_sized(&world, 0, 1, PLANE_DATA, 10000);
    world_send_sized(&world, 1, 0, PLANE_CONTROL, 100);
    WORLD_UNTIL(&world, world.nodes[1].received[0][PLANE_DATA] == 1 && world.nodes[0].received[1][PLANE_CONTROL] == 1);
    assert_int_equal(world.nodes[0].downs[1] + world.nodes[1].downs[0] + world.nodes[0].downs[2], 0);
}

static void an_impossible_tail_ends_the_session(void **state)
{
    static const uint64_t moves[] = {POOL_CONTROL_BYTES + 8, 4, 8, ~UINT64_C(0) << 3};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(moves); i++) {
        if (i > 0) {
            tear_down(state);
            assert_int_equal(set_up(state), 0);
        }
        tail_move(moves[i]);
        session_ends("broke its ring");
    }
}

/* size, position, checksum of a record that is said to be there. */
static void record_forge(uint64_t size_bytes, uint64_t position, uint64_t check)
{
    const uint64_t words[3] = {size_bytes, position, check};

    memcpy(record(), words, sizeof(words));
    tail_move(POOL_RECORD_BYTES + 64);
    session_ends("broke its ring");
}

static void a_record_of_no_size_ends_the_session(void **state)
{
    (void)state;
    record_forge(0, 0, 0);
}

static void a_record_that_is_too_large_ends_the_session(void **state)
{
    (void)state;
    record_forge(FABRIC_MESSAGE_MAX + 1, 0, 0);
}

static void a_record_beyond_the_tail_ends_the_session(void **state)
{
    (void)state;
    record_forge(65, 0, 0);
}

static void a_record_of_an_earlier_lap_ends_the_session(void **state)
{
    (void)state;
    record_forge(64, POOL_CONTROL_BYTES, 0);
}

static void wrong_bytes_end_the_session(void **state)
{
    (void)state;
    record_forge(64, 0, 1);
}

static void an_impossible_head_ends_the_session(void **state)
{
    uint64_t words[POOL_LINE_WORDS] = {0};

    (void)state;
    ASSERT(pool_line_read(&partition(2)->sides[1].head[PLANE_DATA], words));
    words[1] = 1 << 30; /* more than was ever sent */
    pool_line_write(&partition(2)->sides[1].head[PLANE_DATA], words);
    while (world_send(&world, 1, 2, PLANE_DATA) == 0) /* the head is looked at when the ring is full */
        ;
    session_ends("broke its ring");
}

/* Half of a line from one time, half from another: it is not taken for anything, and comes again. */
static void a_line_that_is_not_whole_means_nothing(void **state)
{
    struct pool_line kept = *tail();

    (void)state;
    tail()->words[1] += 1000000;
    partition(2)->sides[1].greeting.words[0] = POOL_LEAVE;
    for (int i = 0; i < 20; i++)
        world_turn(&world);
    assert_int_equal(world.nodes[1].downs[2], 0);
    *tail() = kept;
    world_send_sized(&world, 2, 1, PLANE_CONTROL, 500);
    WORLD_UNTIL(&world, world.nodes[1].received[2][PLANE_CONTROL] == 1);
}

/* Its host has stopped: nothing is written any more. */
static void a_header_that_stands_still_ends_the_session(void **state)
{
    struct pool *silent = (struct pool *)(void *)world.nodes[2].fabric;
    uint64_t begin_ns = os_now_ns();

    (void)state;
    silent->beat_at_ns = UINT64_MAX;
    while (world.nodes[1].downs[2] == 0 && os_now_ns() - begin_ns < 5 * world.timeout_ns)
        world_turn(&world);
    assert_non_null(strstr(world.nodes[1].cause[2], "no sign of life"));
}

/* A second process under node 2's number: the first notices, and writes there no more. */
static void a_partition_that_is_taken_ends_all_sessions(void **state)
{
    uint64_t words[POOL_LINE_WORDS];

    (void)state;
    ASSERT(pool_line_read(&partition(2)->header, words));
    words[3] ^= 0xff;
    pool_line_write(&partition(2)->header, words);
    WORLD_UNTIL(&world, world.nodes[2].downs[0] == 1 && world.nodes[2].downs[1] == 1);
    assert_non_null(strstr(world.nodes[2].cause[0], "taken"));
    WORLD_UNTIL(&world, world.nodes[1].downs[2] == 1 && world.nodes[0].downs[2] == 1);
    assert_int_equal(world_send(&world, 2, 0, PLANE_CONTROL), -EHOSTDOWN);
    world_node_close(&world, 2); /* and leaves the other's header alone */
    ASSERT(pool_line_read(&partition(2)->header, words));
    assert_int_not_equal(words[3], 0);
}

static void open_refused(const struct fabric_config *config, int result, const char *sentence)
{
    struct fabric *fabric;

    assert_int_equal(fabric_pool_open(config, &fabric), result);
    if (strstr(error_text(), sentence) == NULL)
        fail_msg("%s", error_text());
}

/* Writes a node's header as a living process does. */
struct life {
    pthread_t thread;
    unsigned node;
    atomic_bool is_over;
};

static void *live(void *context)
{
    struct life *life = context;
    uint64_t words[POOL_LINE_WORDS];

    ASSERT(pool_line_read(&partition(life->node)->header, words));
    while (!atomic_load(&life->is_over)) {
        words[4]++;
        pool_line_write(&partition(life->node)->header, words);
        usleep(20000);
    }
    return NULL;
}

static void open_refused_while(unsigned node, const struct fabric_config *config, const char *sentence)
{
    struct life life = {.node = node};

    assert_int_equal(pthread_create(&life.thread, NULL, live, &life), 0);
    open_refused(config, -EBUSY, sentence);
    atomic_store(&life.is_over, true);
    pthread_join(life.thread, NULL);
}

/* Each job has a pool of its own: one that lives is not disturbed, what a dead one left is taken over. */
static void a_pool_of_another_job_is_left_alone(void **state)
{
    struct fabric_config config = world.nodes[2].config;
    uint64_t words[POOL_LINE_WORDS];

    (void)state;
    world_node_close(&world, 2);
    ASSERT(pool_line_read(&partition(2)->header, words));
    words[3] = 4711;
    pool_line_write(&partition(2)->header, words);
    open_refused_while(2, &config, "another process writes the part of node 2");
    config.job++;
    open_refused_while(0, &config, "another job uses it");
    world_node_open(&world, 2); /* node 2's header stands still now */
    world_forget(&world, 2, 0);
    world_connect(&world, 2, 0);
    WORLD_UNTIL(&world, world.nodes[2].is_up[0]);
    assert_int_equal(world.nodes[0].downs[1] + world.nodes[1].downs[0], 0);
}

/* It welcomed and ended the session before that was seen: up and down, not a time-out. */
static void an_end_right_after_the_welcome_is_seen(void **state)
{
    uint64_t words[POOL_LINE_WORDS];
    uint8_t blob[FABRIC_ADDRESS_MAX];
    size_t size = fabric_address(world.nodes[1].fabric, blob);

    (void)state;
    world_node_close(&world, 1);
    WORLD_UNTIL(&world, world.nodes[2].downs[1] == 1);
    assert_int_equal(fabric_connect(world.nodes[2].fabric, node_of(1), blob, size), 0);
    ASSERT(pool_line_read(&partition(2)->sides[1].greeting, words));
    words[0] = POOL_LEAVE;
    words[4] = words[3];
    words[3] = world.nodes[1].config.incarnation;
    pool_line_write(&partition(1)->sides[2].greeting, words);
    WORLD_UNTIL(&world, world.nodes[2].downs[1] == 2);
    assert_int_equal(world.nodes[2].ups[1], 2);
    assert_string_equal(world.nodes[2].cause[1], "it ended the session");
}

/* Of a file or a path that node 0 cannot have for a pool. */
static void refused(const char *path, int result, const char *sentence)
{
    struct fabric_config config = world.nodes[0].config;

    config.pool_path = path;
    open_refused(&config, result, sentence);
}

static void what_is_no_pool_is_refused(void **state)
{
    char path[128];
    int fd;

    (void)state;
    refused("pool", -EINVAL, "option pool must name");
    refused("", -EINVAL, "absolute path");
    refused("/dev/null", -EINVAL, "neither a dax device nor a file");
    snprintf(path, sizeof(path), "%s/missing", world.directory);
    refused(path, -ENOENT, "missing: No such file");
    refused(world.directory, -EISDIR, "Is a directory");
    snprintf(path, sizeof(path), "%s/small", world.directory);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, (24 << 20) - 1), 0);
    refused(path, -ENOSPC, "and 3 nodes need 24 MiB");
    assert_int_equal(ftruncate(fd, 24 << 20), 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    refused(path, -EBUSY, "uses it as a store of its own");
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(an_impossible_tail_ends_the_session),
        TEST(a_record_of_no_size_ends_the_session),
        TEST(a_record_that_is_too_large_ends_the_session),
        TEST(a_record_beyond_the_tail_ends_the_session),
        TEST(a_record_of_an_earlier_lap_ends_the_session),
        TEST(wrong_bytes_end_the_session),
        TEST(an_impossible_head_ends_the_session),
        TEST(a_line_that_is_not_whole_means_nothing),
        TEST(a_header_that_stands_still_ends_the_session),
        TEST(a_partition_that_is_taken_ends_all_sessions),
        TEST(a_pool_of_another_job_is_left_alone),
        TEST(an_end_right_after_the_welcome_is_seen),
        TEST(what_is_no_pool_is_refused),
    };

    log_configure(LOG_ERROR, "pool_hostile");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
