/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_faults.c - RDMA that fails, and peers that break its rules: over a real device (label rig), else skipped.
 *
 * It reaches into the carrier to do what a device, a network or a hostile peer would do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/random.h"
#include "fabric/verbs.h"
#include "tests/fabric/world.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct world world;

static int set_up(void **state)
{
    (void)state;
    world_open(&world, "verbs", false, "epoll");
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

static struct tcp_link *link_at(unsigned node, unsigned peer, enum fabric_plane plane)
{
    return &tcp_at(node)->peers[peer].links[plane];
}

static struct verbs_qp *qp_at(unsigned node, unsigned peer, enum fabric_plane plane)
{
    struct tcp_link *link = link_at(node, peer, plane);

    return link->is_carried ? link->carried : NULL;
}

static bool is_path(unsigned node, unsigned peer, const char *words)
{
    return strstr(fabric_path(world.nodes[node].fabric, node_of(peer), PLANE_CONTROL), words) != NULL &&
           strstr(fabric_path(world.nodes[node].fabric, node_of(peer), PLANE_DATA), words) != NULL;
}

static void qp_break(struct verbs_qp *qp)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};

    assert_non_null(qp);
    assert_int_equal(ibv_modify_qp(qp->qp, &attributes, IBV_QP_STATE), 0);
}

static void check_nobody_is_down(void)
{
    for (unsigned i = 0; i < WORLD_NODES; i++)
        for (unsigned j = 0; j < WORLD_NODES; j++)
            assert_int_equal(world.nodes[i].downs[j], 0);
}

/* Random traffic of all; after `breaks_at` messages the queue pairs of a node to a peer fail. */
static void storm(unsigned breaker, unsigned peer, unsigned breaks_at)
{
    struct random random = {breaks_at};

    for (unsigned i = 0; i < 2000; i++) {
        unsigned from = random_below(&random, WORLD_NODES);
        unsigned to = random_below(&random, WORLD_NODES);
        int result = world_send(&world, from, to, (enum fabric_plane)random_below(&random, PLANES));

        assert_true(result == 0 || result == -ENOBUFS);
        if (i == breaks_at) {
            qp_break(qp_at(breaker, peer, PLANE_CONTROL));
            qp_break(qp_at(breaker, peer, PLANE_DATA));
        }
        if (result != 0 || random_below(&random, 4) == 0)
            world_turn(&world);
    }
    world_settle(&world); /* each message once and in order, or the world stops the test */
}

/*
 * A queue pair breaks in the middle of traffic: the pair goes on over TCP with nothing lost or repeated and nobody told
 * but the topology; the others stay as they are, and neither end keeps anything of the old queue pair.
 */
static void broken_pair_goes_on(unsigned breaker, unsigned peer)
{
    storm(breaker, peer, 700);
    check_nobody_is_down();
    assert_true(is_path(0, 1, "tcp: ") && is_path(1, 0, "tcp: "));
    assert_true(is_path(breaker, peer, "the queue pair broke"));
    assert_true(is_path(0, 2, "verbs: ") && is_path(1, 2, "verbs: ") && is_path(2, 0, "verbs: "));
    for (unsigned plane = 0; plane < PLANES; plane++) {
        assert_null(qp_at(0, 1, (enum fabric_plane)plane));
        assert_null(qp_at(1, 0, (enum fabric_plane)plane));
    }
    for (unsigned i = 0; i < VERBS_QPS_MAX; i++) {
        const struct verbs *verbs = verbs_of(tcp_at(1)->carrier);

        assert_true(verbs->qps[i].state == VERBS_FREE || verbs->qps[i].link->peer->id.index != 0);
    }
}

static void test_broken_by_the_connecting_side(void **state)
{
    (void)state;
    broken_pair_goes_on(1, 0);
}

static void test_broken_by_the_accepting_side(void **state)
{
    (void)state;
    broken_pair_goes_on(0, 1);
}

/* The peer's queue pair is gone without a word, as with its host; an idle link finds it out by itself. */
static void test_silent_peer_is_noticed(void **state)
{
    struct verbs_qp *gone[PLANES];
    uint64_t begin_ns = os_now_ns();

    (void)state;
    for (unsigned plane = 0; plane < PLANES; plane++) {
        gone[plane] = qp_at(1, 0, (enum fabric_plane)plane);
        qp_break(gone[plane]);
        gone[plane]->signalled = gone[plane]->completed + 1; /* it does not look for itself */
    }
    WORLD_UNTIL(&world, is_path(0, 1, "tcp: "));
    assert_true(os_now_ns() - begin_ns < 3 * world.timeout_ns);
    world_send_sized(&world, 0, 1, PLANE_DATA, 10000);
    world_send_sized(&world, 1, 0, PLANE_DATA, 10000);
    world_settle(&world);
    check_nobody_is_down();
}

/* An address whose RDMA port is nobody's: TCP, and the reason. */
static void test_nobody_at_the_rdma_port(void **state)
{
    uint8_t blob[FABRIC_ADDRESS_MAX];
    size_t size = fabric_address(world.nodes[0].fabric, blob);

    (void)state;
    blob[size - CARRIER_ADDRESS_BYTES] ^= 0x55;
    assert_int_equal(fabric_connect(world.nodes[2].fabric, node_of(0), blob, size), 0);
    world.nodes[2].is_up[0] = false;
    world_forget(&world, 0, 2);
    WORLD_UNTIL(&world, world.nodes[2].ups[0] == 2 && world.nodes[0].ups[2] == 2 && is_path(2, 0, "tcp: "));
    assert_true(is_path(2, 0, "nobody listens there"));
    world_send_sized(&world, 2, 0, PLANE_DATA, 10000);
    world_settle(&world);
}

/* A peer that has no RDMA address at all, as one without a device. */
static void test_peer_without_rdma(void **state)
{
    uint8_t blob[FABRIC_ADDRESS_MAX];
    size_t size = fabric_address(world.nodes[0].fabric, blob);

    (void)state;
    assert_int_equal(fabric_connect(world.nodes[2].fabric, node_of(0), blob, size - CARRIER_ADDRESS_BYTES), 0);
    world.nodes[2].is_up[0] = false;
    world_forget(&world, 0, 2);
    WORLD_UNTIL(&world, world.nodes[2].ups[0] == 2 && world.nodes[0].ups[2] == 2 && is_path(2, 0, "tcp: "));
    assert_true(is_path(2, 0, "no RDMA address"));
    world_send_sized(&world, 2, 0, PLANE_DATA, 10000);
    world_settle(&world);
}

/* ---- peers that break the rules -------------------------------------------------------------------------------- */

/* Node 1 posts to node 0 what its fabric never would. */
static void post_evil(const void *bytes, uint32_t size, enum ibv_wr_opcode opcode, uint32_t immediate)
{
    struct verbs_qp *qp = qp_at(1, 0, PLANE_DATA);
    struct ibv_sge sge = {.addr = (uintptr_t)bytes, .length = size};
    struct ibv_send_wr *bad;
    struct ibv_send_wr wr = {
        .wr_id = ~(uint64_t)0 >> 1 & ~(uint64_t)0xffff, /* of no generation */
        .sg_list = &sge,
        .num_sge = size > 0,
        .opcode = opcode,
        .imm_data = htobe32(immediate),
        .send_flags = IBV_SEND_INLINE,
    };

    assert_non_null(qp);
    assert_int_equal(ibv_post_send(qp->qp, &wr, &bad), 0);
}

static void check_refused(const char *words)
{
    WORLD_UNTIL(&world, world.nodes[0].downs[1] == 1);
    assert_non_null(strstr(world.nodes[0].cause[1], words));
    world_send_sized(&world, 0, 2, PLANE_DATA, 10000);
    world_send_sized(&world, 2, 0, PLANE_CONTROL, 100);
    world_forget(&world, 0, 1);
    world_settle(&world);
    assert_int_equal(world.nodes[0].downs[2], 0);
}

static void test_credits_that_were_never_used(void **state)
{
    (void)state;
    post_evil(NULL, 0, IBV_WR_SEND_WITH_IMM, 1000000);
    check_refused("more credits");
}

static void test_send_without_a_count(void **state)
{
    (void)state;
    post_evil("12345678", 8, IBV_WR_SEND, 0);
    check_refused("what no node of ours sends");
}

static void test_bytes_that_are_no_frame(void **state)
{
    char bytes[FRAME_HEADER_BYTES];

    (void)state;
    memset(bytes, 0xa5, sizeof(bytes));
    post_evil(bytes, sizeof(bytes), IBV_WR_SEND_WITH_IMM, 0);
    check_refused("broke the framing");
}

/* Larger than a receive: the device refuses it, and the connection ends; nothing is written beyond the slot. */
static void test_send_larger_than_a_slot(void **state)
{
    struct verbs_qp *qp = qp_at(1, 0, PLANE_CONTROL);
    struct ibv_sge sge;
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM};
    struct ibv_send_wr *bad;

    (void)state;
    assert_non_null(qp);
    sge = (struct ibv_sge){(uintptr_t)qp->verbs->memory, qp->verbs->planes[PLANE_CONTROL].chunk_bytes + 8,
                           qp->verbs->mr->lkey};
    assert_int_equal(ibv_post_send(qp->qp, &wr, &bad), 0);
    WORLD_UNTIL(&world, qp_at(1, 0, PLANE_CONTROL) != qp);
    world_send_sized(&world, 0, 1, PLANE_CONTROL, 10000);
    world_send_sized(&world, 1, 0, PLANE_CONTROL, 10000);
    world_settle(&world);
    check_nobody_is_down();
}

/* Somebody who knocks at the RDMA port and speaks another language. */
static void test_stranger_is_turned_away(void **state)
{
    struct verbs *verbs = verbs_of(tcp_at(0)->carrier);
    struct sockaddr_storage to = verbs->bind;
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_conn_param request = {.private_data = "hello", .private_data_len = 5, .qp_num = 1};
    struct fabric_counters counters;
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;

    (void)state;
    ((struct sockaddr_in *)&to)->sin_port = htons(verbs->port);
    assert_non_null(channel);
    assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000), 0);
    assert_int_equal(rdma_get_cm_event(channel, &event), 0);
    rdma_ack_cm_event(event);
    assert_int_equal(rdma_resolve_route(id, 1000), 0);
    assert_int_equal(rdma_get_cm_event(channel, &event), 0);
    rdma_ack_cm_event(event);
    assert_int_equal(rdma_connect(id, &request), 0);
    do {
        world_turn(&world);
        fabric_counters_get(world.nodes[0].fabric, &counters);
    } while (counters.peers_refused == 0);
    assert_int_equal(rdma_get_cm_event(channel, &event), 0);
    assert_int_equal(event->event, RDMA_CM_EVENT_REJECTED);
    rdma_ack_cm_event(event);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
    world_send_sized(&world, 0, 1, PLANE_DATA, 10000);
    world_settle(&world);
    check_nobody_is_down();
}

/* ---- limits ---------------------------------------------------------------------------------------------------- */

static void capabilities_drop(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};

    if (syscall(SYS_capset, &header, data) != 0)
        _exit(10);
}

/* In a child: 0 when the open fails with the sentence that names limit and remedy. */
static int locked_memory_is_short(void)
{
    struct rlimit limit = {256 * 1024, 256 * 1024};
    struct fabric *fabric = NULL;
    struct fabric_config config = world.nodes[0].config;

    capabilities_drop();
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return 11;
    if (fabric_verbs_open(&config, &fabric) != -ENOMEM)
        return 12;
    if (strstr(error_text(), "the limit is 256 KiB") == NULL || strstr(error_text(), "ulimit -l") == NULL) {
        fprintf(stderr, "the sentence is: %s\n", error_text());
        return 13;
    }
    return 0;
}

static void test_locked_memory_is_short(void **state)
{
    pid_t child = fork();
    int status;

    (void)state;
    assert_true(child >= 0);
    if (child == 0)
        _exit(locked_memory_is_short());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_address_of_no_device(void **state)
{
    struct fabric_config config = world.nodes[0].config;
    struct fabric *fabric = NULL;

    (void)state;
    config.bind_address = "127.0.0.1";
    assert_int_equal(fabric_verbs_open(&config, &fabric), -ENODEV);
    assert_non_null(strstr(error_text(), "no device has the address 127.0.0.1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_broken_by_the_connecting_side),
        TEST(test_broken_by_the_accepting_side),
        TEST(test_silent_peer_is_noticed),
        TEST(test_nobody_at_the_rdma_port),
        TEST(test_peer_without_rdma),
        TEST(test_credits_that_were_never_used),
        TEST(test_send_without_a_count),
        TEST(test_bytes_that_are_no_frame),
        TEST(test_send_larger_than_a_slot),
        TEST(test_stranger_is_turned_away),
        TEST(test_locked_memory_is_short),
        TEST(test_address_of_no_device),
    };

    log_configure(LOG_ERROR, "verbs_faults");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
