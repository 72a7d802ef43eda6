/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contract.c - the contract of fabric.h, F1 to F8, over the transport named on the command line.
 *
 * usage: contract TRANSPORT [faulty] [LOOP]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/os.h"
#include "base/random.h"
#include "tests/fabric/world.h"

#include <errno.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *transport;
static const char *loop_kind = "epoll";
static bool is_faulty;
static struct world world;

static bool is_transport(const char *name)
{
    return strcmp(transport, name) == 0;
}

static int set_up(void **state)
{
    (void)state;
    world_open(&world, transport, is_faulty, loop_kind);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_close(&world);
    return 0;
}

/* F1: every size that is special to someone, on both planes and to oneself. */
static void test_sizes_arrive_whole(void **state)
{
    static const size_t sizes[] = {1,    2,    7,     8,     9,     63,     64,     65,     4095,  4096,
                                   4097, 8192, 65535, 65536, 65537, 131072, 262137, 262143, 262144};

    (void)state;
    world_connect_all(&world);
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++)
        for (unsigned plane = 0; plane < PLANES; plane++) {
            world_send_sized(&world, 0, 1, (enum fabric_plane)plane, sizes[i]);
            world_send_sized(&world, 2, 1, (enum fabric_plane)plane, sizes[i]);
            world_send_sized(&world, 1, 0, (enum fabric_plane)plane, sizes[i]);
            world_send_sized(&world, 1, 1, (enum fabric_plane)plane, sizes[i]);
        }
    world_settle(&world);
}

static void storm(unsigned messages_count)
{
    struct random random = {42};

    for (unsigned i = 0; i < messages_count; i++) {
        unsigned from = random_below(&random, WORLD_NODES);
        unsigned to = random_below(&random, WORLD_NODES);
        enum fabric_plane plane = (enum fabric_plane)random_below(&random, PLANES);
        int result = world_send(&world, from, to, plane);

        assert_true(result == 0 || result == -ENOBUFS);
        if (result != 0 || random_below(&random, 4) == 0)
            world_turn(&world);
    }
    world_settle(&world);
}

/* F1, F2: random sizes between all pairs of three nodes, on both planes, each checked for content and order. */
static void test_random_traffic_keeps_content_and_order(void **state)
{
    struct fabric_counters counters;
    uint64_t sent = 0;

    (void)state;
    world_connect_all(&world);
    storm(4000);
    for (unsigned to = 0; to < WORLD_NODES; to++)
        for (unsigned plane = 0; plane < PLANES; plane++)
            sent += world.nodes[0].sent[to][plane];
    fabric_counters_get(world.nodes[0].fabric, &counters);
    assert_true(counters.messages_sent == sent);
    assert_true(counters.bytes_sent > sent);
}

/* F2: the planes do not wait for each other: the small plane gets through while the other is full. */
static void test_planes_are_independent(void **state)
{
    (void)state;
    world_connect_all(&world);
    world.size_max = 4096;
    while (world_send(&world, 0, 1, PLANE_DATA) == 0)
        ;
    assert_int_equal(world_send(&world, 0, 1, PLANE_CONTROL), 0);
    world_settle(&world);
}

/* F3: a window that is full is -ENOBUFS, not a wait and not a loss. */
static void test_full_window_is_refused(void **state)
{
    int result;

    (void)state;
    world_connect_all(&world);
    do
        result = world_send(&world, 2, 0, PLANE_DATA);
    while (result == 0);
    assert_int_equal(result, -ENOBUFS);
    assert_true(world.nodes[2].sent[0][PLANE_DATA] > 3);
    world_settle(&world);
    world_send_sized(&world, 2, 0, PLANE_DATA, FABRIC_MESSAGE_MAX);
    world_settle(&world);
}

/* F4: connections cut in the middle of traffic, from both ends; nothing is lost or repeated, nobody is told. */
static void test_cuts_are_repaired(void **state)
{
    struct random random = {9};
    struct fabric_counters counters;
    uint64_t cuts = 0;
    uint64_t resends = 0;

    (void)state;
    world_connect_all(&world);
    if (fabric_cut(world.nodes[0].fabric, node_of(1)) == -EOPNOTSUPP) {
        assert_int_equal(fabric_capabilities(world.nodes[0].fabric) & FABRIC_CAP_RESUMES, 0);
        skip();
    }
    for (unsigned i = 0; i < 6000; i++) {
        unsigned from = random_below(&random, WORLD_NODES);
        unsigned to = random_below(&random, WORLD_NODES);
        int result = world_send(&world, from, to, (enum fabric_plane)random_below(&random, PLANES));

        assert_true(result == 0 || result == -ENOBUFS);
        if (from != to && random_below(&random, 8) == 0)
            assert_int_equal(fabric_cut(world.nodes[from].fabric, node_of(to)), 0);
        if (result != 0 || random_below(&random, 4) == 0)
            world_turn(&world);
    }
    world_settle(&world);
    for (unsigned i = 0; i < WORLD_NODES; i++) {
        fabric_counters_get(world.nodes[i].fabric, &counters);
        cuts += counters.cuts;
        resends += counters.resends;
        for (unsigned j = 0; j < WORLD_NODES; j++)
            assert_int_equal(world.nodes[i].downs[j], 0);
    }
    assert_true(cuts > 200);
    assert_true(resends > 0);
}

/* F5: who ends a session is not called back; the other one is, once; a new connect() begins anew. */
static void test_disconnect_and_connect_again(void **state)
{
    (void)state;
    world_connect_all(&world);
    for (unsigned round = 1; round <= 5; round++) {
        unsigned ender = round % 2;

        world_send_sized(&world, 0, 1, PLANE_DATA, 5000);
        world_send_sized(&world, 1, 0, PLANE_CONTROL, 50);
        world_settle(&world);
        fabric_disconnect(world.nodes[ender].fabric, node_of(1 - ender));
        world.nodes[ender].is_up[1 - ender] = false;
        assert_int_equal(world_send(&world, ender, 1 - ender, PLANE_CONTROL), -EHOSTDOWN);
        WORLD_UNTIL(&world, !world.nodes[1 - ender].is_up[ender]);
        assert_int_equal(world_send(&world, 1 - ender, ender, PLANE_CONTROL), -EHOSTDOWN);
        world_forget(&world, 0, 1);
        world_connect(&world, 1, 0);
        WORLD_UNTIL(&world, world.nodes[0].is_up[1] && world.nodes[1].is_up[0]);
    }
    assert_int_equal(world.nodes[0].downs[1] + world.nodes[1].downs[0], 5);
    assert_int_equal(world.nodes[0].downs[2] + world.nodes[1].downs[2], 0);
    storm(200);
}

/* F5: connect() without disconnect() replaces the session: the other side sees down, then up. */
static void test_connect_replaces_the_session(void **state)
{
    (void)state;
    world_connect_all(&world);
    world_connect(&world, 2, 0);
    WORLD_UNTIL(&world, world.nodes[0].ups[2] == 2 && world.nodes[2].ups[0] == 2);
    assert_int_equal(world.nodes[0].downs[2], 1);
    assert_int_equal(world.nodes[2].downs[0], 0);
    storm(200);
}

/* F5: another process under the same node id is another session; what was for the old one does not reach it. */
static void test_new_incarnation_is_a_new_session(void **state)
{
    (void)state;
    world_connect_all(&world);
    storm(100);
    world_node_close(&world, 2);
    WORLD_UNTIL(&world, !world.nodes[0].is_up[2] && !world.nodes[1].is_up[2]);
    assert_int_equal(world.nodes[0].downs[2], 1);
    assert_int_equal(world_send(&world, 0, 2, PLANE_DATA), -EHOSTDOWN);
    world_node_open(&world, 2);
    world_forget(&world, 0, 2);
    world_forget(&world, 1, 2);
    world_forget(&world, 2, 2);
    world_connect(&world, 2, 0);
    world_connect(&world, 2, 1);
    WORLD_UNTIL(&world, world.nodes[0].is_up[2] && world.nodes[1].is_up[2] && world.nodes[2].is_up[0] &&
                            world.nodes[2].is_up[1]);
    storm(200);
    assert_int_equal(world.nodes[0].downs[2], 1);
}

/* F5: an address where nobody is: down after the session's timeout, with a cause, once. */
static void test_unreachable_peer_is_down_in_time(void **state)
{
    uint8_t blob[FABRIC_ADDRESS_MAX];
    size_t size = fabric_address(world.nodes[0].fabric, blob);
    uint64_t begin_ns = os_now_ns();

    (void)state;
    world_node_close(&world, 0);
    assert_int_equal(fabric_connect(world.nodes[1].fabric, node_of(0), blob, size), 0);
    assert_int_equal(world_send(&world, 1, 0, PLANE_CONTROL) == 0 || is_transport("loopback"), 1);
    WORLD_UNTIL(&world, world.nodes[1].downs[0] == 1);
    assert_true(os_now_ns() - begin_ns < 3 * world.timeout_ns);
    assert_int_equal(world_send(&world, 1, 0, PLANE_CONTROL), -EHOSTDOWN);
    for (int i = 0; i < 10; i++)
        world_turn(&world);
    assert_int_equal(world.nodes[1].downs[0], 1);
    assert_int_equal(world.nodes[1].ups[0], 0);
}

/* F5: nonsense as an address is refused by connect() itself. */
static void test_bad_address_is_refused(void **state)
{
    uint8_t blob[FABRIC_ADDRESS_MAX];
    size_t size = fabric_address(world.nodes[0].fabric, blob);

    (void)state;
    assert_int_equal(fabric_connect(world.nodes[1].fabric, node_of(0), blob, 0), -EINVAL);
    assert_int_equal(fabric_connect(world.nodes[1].fabric, node_of(0), blob, 3), is_transport("shm") ? 0 : -EINVAL);
    memset(blob, 0xff, sizeof(blob));
    assert_int_equal(fabric_connect(world.nodes[1].fabric, node_of(0), blob, size + 1), -EINVAL);
}

/* F5, F6: a node of another job, and the right address under the wrong id, are refused with a cause. */
static void test_strangers_are_refused(void **state)
{
    uint8_t blob[FABRIC_ADDRESS_MAX];
    size_t size;
    struct fabric_counters counters;

    (void)state;
    world_node_close(&world, 2);
    world.nodes[2].config.job = 78;
    world_node_open(&world, 2);
    world_connect(&world, 2, 0);
    WORLD_UNTIL(&world, world.nodes[2].downs[0] == 1);
    assert_non_null(strstr(world.nodes[2].cause[0], "another job"));
    fabric_counters_get(world.nodes[0].fabric, &counters);
    assert_true(counters.peers_refused >= 1);

    world_node_close(&world, 2);
    world.nodes[2].config.job = 77;
    world_node_open(&world, 2);
    size = fabric_address(world.nodes[0].fabric, blob);
    assert_int_equal(fabric_connect(world.nodes[2].fabric, node_of(1), blob, size), 0);
    WORLD_UNTIL(&world, world.nodes[2].downs[1] == 1);
    assert_int_equal(world.nodes[0].ups[2] + world.nodes[1].ups[2], 0);
}

/* F5: messages sent between connect() and peer_up() wait, and arrive in order. */
static void test_messages_before_up_wait(void **state)
{
    (void)state;
    world_connect(&world, 1, 0);
    for (int i = 0; i < 20; i++)
        world_send_sized(&world, 1, 0, PLANE_CONTROL, 1000);
    world_settle(&world);
    assert_int_equal(world.nodes[0].ups[1], 1);
}

/* F5, F8: the callback of a message may end the session that brought it; its bytes stay until it returns. */
static void hook_disconnect(struct world_node *node, struct node_id from)
{
    node->hook = NULL;
    fabric_disconnect(node->fabric, from);
    node->is_up[from.index] = false;
    if (node->config.self.index > from.index)
        world_connect(node->world, node->config.self.index, from.index);
}

static void test_callback_may_end_the_session(void **state)
{
    (void)state;
    world_connect_all(&world);
    world.nodes[1].hook = hook_disconnect;
    world.nodes[1].takes_any = true;
    for (int i = 0; i < 5; i++)
        world_send_sized(&world, 0, 1, PLANE_DATA, 9000);
    WORLD_UNTIL(&world, world.nodes[0].downs[1] == 1 && world.nodes[1].is_up[0] && world.nodes[0].is_up[1]);
    world_forget(&world, 0, 1);
    world.nodes[1].takes_any = false;
    storm(100);
}

/* F7: messages to oneself come by the loop, in order, also from within a callback. */
static void hook_reply_to_self(struct world_node *node, struct node_id from)
{
    (void)from;
    if (node->sent[node->config.self.index][PLANE_CONTROL] < 50)
        world_send_sized(node->world, node->config.self.index, node->config.self.index, PLANE_CONTROL, 3000);
}

static void test_messages_to_oneself(void **state)
{
    (void)state;
    world.nodes[1].hook = hook_reply_to_self;
    world_send_sized(&world, 1, 1, PLANE_CONTROL, 100);
    assert_int_equal(world.nodes[1].received[1][PLANE_CONTROL], 0);
    WORLD_UNTIL(&world, world.nodes[1].received[1][PLANE_CONTROL] == 50);
    world_settle(&world);
}

/* A close says what was sent before. */
static void test_close_flushes(void **state)
{
    (void)state;
    world_connect_all(&world);
    for (int i = 0; i < 30; i++) {
        world_send_sized(&world, 1, 0, PLANE_DATA, 4000);
        world_send_sized(&world, 1, 0, PLANE_CONTROL, 100);
    }
    if (is_faulty && (is_transport("tcp") || is_transport("verbs")))
        world_settle(&world); /* a cut that the close finds is not repaired any more */
    world_node_close(&world, 1);
    WORLD_UNTIL(&world, world.nodes[0].downs[1] == 1);
    assert_int_equal(world.nodes[0].received[1][PLANE_DATA], 30);
    assert_int_equal(world.nodes[0].received[1][PLANE_CONTROL], 30);
}

static _Noreturn void child_run(int up_pipe, const uint8_t *blob, size_t size)
{
    world_open_in_child(&world, loop_kind);
    world_node_open(&world, 2);
    if (fabric_connect(world.nodes[2].fabric, node_of(0), blob, size) != 0)
        _exit(1);
    while (!world.nodes[2].is_up[0] || world.nodes[2].sent[0][PLANE_DATA] < 100) {
        if (world.nodes[2].is_up[0])
            world_send(&world, 2, 0, PLANE_DATA);
        world_turn(&world);
    }
    if (write(up_pipe, "u", 1) != 1)
        _exit(1);
    for (;;) {
        world_send(&world, 2, 0, PLANE_DATA);
        world_turn(&world);
    }
}

/* A killed process leaves its socket's name behind; the job removes its directory. */
static void remove_leftovers(void)
{
    char pattern[128];
    glob_t found;

    snprintf(pattern, sizeof(pattern), "%s/fabric-2-*", world.directory);
    if (glob(pattern, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        unlink(found.gl_pathv[i]);
    globfree(&found);
}

/* F5: the peer's process is killed in the middle of traffic. */
static void test_killed_process_is_down(void **state)
{
    uint8_t blob[FABRIC_ADDRESS_MAX];
    size_t size = fabric_address(world.nodes[0].fabric, blob);
    uint64_t begin_ns;
    int ends[2];
    int status;
    pid_t child;
    char byte;

    (void)state;
    if (is_transport("loopback"))
        skip();
    assert_int_equal(pipe(ends), 0);
    world_node_close(&world, 2); /* the child is node 2 */
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        child_run(ends[1], blob, size);
    WORLD_UNTIL(&world, world.nodes[0].received[2][PLANE_DATA] >= 100);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    begin_ns = os_now_ns();
    WORLD_UNTIL(&world, world.nodes[0].downs[2] == 1);
    assert_true(os_now_ns() - begin_ns < (is_transport("shm") ? world.timeout_ns : 3 * world.timeout_ns));
    assert_int_equal(world_send(&world, 0, 2, PLANE_DATA), -EHOSTDOWN);
    close(ends[0]);
    close(ends[1]);
    remove_leftovers();
}

/* FABRIC_CAP_SHARED_FILES: each side sees the other's file. */
static void test_shared_files(void **state)
{
    int file = memfd_create("test", MFD_CLOEXEC);
    char text[8] = {0};

    (void)state;
    assert_true(file >= 0);
    assert_int_equal(write(file, "shared", 6), 6);
    world_node_close(&world, 0);
    world.nodes[0].config.shared_file = file;
    world_node_open(&world, 0);
    world_connect_all(&world);
    if ((fabric_capabilities(world.nodes[0].fabric) & FABRIC_CAP_SHARED_FILES) == 0) {
        assert_int_equal(fabric_peer_file(world.nodes[1].fabric, node_of(0)), -EOPNOTSUPP);
    } else {
        assert_int_equal(pread(fabric_peer_file(world.nodes[1].fabric, node_of(0)), text, 6, 0), 6);
        assert_string_equal(text, "shared");
        assert_int_equal(fabric_peer_file(world.nodes[0].fabric, node_of(1)), -EOPNOTSUPP);
    }
    close(file);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_sizes_arrive_whole),
        TEST(test_random_traffic_keeps_content_and_order),
        TEST(test_planes_are_independent),
        TEST(test_full_window_is_refused),
        TEST(test_cuts_are_repaired),
        TEST(test_disconnect_and_connect_again),
        TEST(test_connect_replaces_the_session),
        TEST(test_new_incarnation_is_a_new_session),
        TEST(test_unreachable_peer_is_down_in_time),
        TEST(test_bad_address_is_refused),
        TEST(test_strangers_are_refused),
        TEST(test_messages_before_up_wait),
        TEST(test_callback_may_end_the_session),
        TEST(test_messages_to_oneself),
        TEST(test_close_flushes),
        TEST(test_killed_process_is_down),
        TEST(test_shared_files),
    };

    if (argc < 2)
        return 2;
    log_configure(LOG_WARN, "contract");
    transport = argv[1];
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "faulty") == 0)
            is_faulty = true;
        else
            loop_kind = argv[i];
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
