/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.c - nodes in one process on one loop, over any fabric, and traffic that checks itself.
 */
#include "tests/fabric/world.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/os.h"
#include "base/random.h"
#include "runtime/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint8_t payload_sent[FABRIC_MESSAGE_MAX + 8];
static uint8_t payload_expected[FABRIC_MESSAGE_MAX + 8];

static uint64_t message_seed(unsigned from, unsigned to, unsigned plane, uint64_t number)
{
    return number << 8 | from << 5 | to << 2 | plane;
}

/* Sizes of all magnitudes up to size_max. */
static size_t message_size(const struct world *world, uint64_t seed)
{
    struct random random = {seed};
    uint32_t magnitude = random_below(&random, 19);
    uint32_t size = 1 + random_below(&random, (uint32_t)1 << magnitude);

    return size > world->size_max ? world->size_max : size;
}

static void message_fill(uint8_t *bytes, size_t size, uint64_t seed)
{
    struct random random = {~seed};

    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = random_next(&random);

        memcpy(bytes + i, &word, 8);
    }
}

static void on_message(void *context, struct node_id from, enum fabric_plane plane, const void *bytes, size_t size)
{
    struct world_node *node = context;
    struct world *world = node->world;
    uint64_t number = node->received[from.index][plane]++;

    ASSERT(!world->is_in_send);                                               /* F3, F7 */
    ASSERT(((uintptr_t)bytes & 7) == 0);                                      /* F8 */
    ASSERT(from.index == node->config.self.index || node->is_up[from.index]); /* F5 */
    if (!node->takes_any) {
        message_fill(payload_expected, size, message_seed(from.index, node->config.self.index, plane, number));
        ASSERT(memcmp(bytes, payload_expected, size) == 0); /* F1, F2 */
    }
    if (node->hook != NULL) {
        node->hook(node, from);
        if (!node->takes_any) {
            message_fill(payload_expected, size, message_seed(from.index, node->config.self.index, plane, number));
            ASSERT(memcmp(bytes, payload_expected, size) == 0); /* F8 */
        }
    }
}

static void on_up(void *context, struct node_id peer)
{
    struct world_node *node = context;

    ASSERT(!node->world->is_in_send && !node->is_up[peer.index]);
    node->is_up[peer.index] = true;
    node->ups[peer.index]++;
}

static void on_down(void *context, struct node_id peer, const char *cause)
{
    struct world_node *node = context;

    ASSERT(!node->world->is_in_send && strlen(cause) > 0);
    node->is_up[peer.index] = false;
    node->downs[peer.index]++;
    snprintf(node->cause[peer.index], sizeof(node->cause[0]), "%s", cause);
}

static int transport_open(const struct world *world, const struct fabric_config *config, struct fabric **ret_fabric)
{
    if (strcmp(world->transport, "verbs") == 0)
        return fabric_verbs_open(config, ret_fabric);
    if (strcmp(world->transport, "tcp") == 0)
        return fabric_tcp_open(config, ret_fabric);
    if (strcmp(world->transport, "shm") == 0)
        return fabric_shm_open(config, ret_fabric);
    if (strcmp(world->transport, "pool") == 0)
        return fabric_pool_open(config, ret_fabric);
    return fabric_loopback_open(config, ret_fabric);
}

static void node_prepare(struct world *world, unsigned index)
{
    struct world_node *node = &world->nodes[index];

    node->world = world;
    node->config = (struct fabric_config){
        .self = node_of(index),
        .nodes_count = WORLD_NODES,
        .loop = world->loop,
        .user = {node, on_message, on_up, on_down, NULL},
        .job = 77,
        .incarnation = os_random() | 1,
        .session_timeout_ns = world->timeout_ns,
        .window_bytes_max = WORLD_WINDOW_BYTES,
        .bind_address = getenv("TIERMESH_TEST_ADDRESS"),
        .shm_directory = world->directory,
        .pool_path = world->pool,
        .shared_file = -1,
    };
}

/* A configuration that a test changed is kept, except for the incarnation: it is another process now. */
void world_node_open(struct world *world, unsigned index)
{
    struct world_node *node = &world->nodes[index];
    struct faulty_config faults = {
        .seed = ++world->seed,
        .delay_permille = 200,
        .delay_ns_max = 2000000,
        .cut_permille = world->cut_permille,
    };
    struct fabric *below;
    int result;

    node->config.incarnation = os_random() | 1;
    result = transport_open(world, &node->config, &below);
    /* Where there is a device, to be without one is a failure: whoever knows sets the variable. */
    if (result == -ENODEV && strcmp(world->transport, "verbs") == 0 && getenv("TIERMESH_TEST_NEEDS_VERBS") == NULL) {
        fprintf(stderr, "SKIPPED, nothing of RDMA was tested: %s\n", error_text());
        rmdir(world->directory);
        exit(77);
    }
    if (result != 0) {
        fprintf(stderr, "open %s: %s\n", world->transport, error_text());
        abort();
    }
    node->fabric = below;
    if (world->is_faulty) {
        result = fabric_faulty_open(below, &node->config, &faults, &node->fabric);
        ASSERT(result == 0);
    }
}

void world_node_close(struct world *world, unsigned index)
{
    fabric_close(world->nodes[index].fabric);
    world->nodes[index].fabric = NULL;
    memset(world->nodes[index].is_up, 0, sizeof(world->nodes[index].is_up));
}

/* A file in place of memory that hosts share; TIERMESH_TEST_POOL names a device to use instead. */
static void pool_make(struct world *world)
{
    const char *device = getenv("TIERMESH_TEST_POOL");
    int fd;

    if (strcmp(world->transport, "pool") != 0)
        return;
    if (device != NULL) {
        snprintf(world->pool, sizeof(world->pool), "%s", device);
        return;
    }
    snprintf(world->pool, sizeof(world->pool), "%s/pool", world->directory);
    fd = open(world->pool, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ASSERT(fd >= 0 && ftruncate(fd, WORLD_POOL_BYTES) == 0);
    close(fd);
}

static void pool_remove(const struct world *world)
{
    if (strncmp(world->pool, world->directory, strlen(world->directory)) == 0)
        unlink(world->pool);
}

void world_open(struct world *world, const char *transport, bool is_faulty, const char *loop_kind)
{
    int result;

    *world = (struct world){
        .transport = transport,
        .is_faulty = is_faulty,
        .size_max = FABRIC_MESSAGE_MAX,
        .timeout_ns = strcmp(transport, "verbs") == 0 ? 3000000000U : 1000000000U,
        .seed = 1,
    };
    if (is_faulty && (strcmp(transport, "tcp") == 0 || strcmp(transport, "verbs") == 0))
        world->cut_permille = 20;
    snprintf(world->directory, sizeof(world->directory), "/tmp/tiermesh-fabric-XXXXXX");
    if (mkdtemp(world->directory) == NULL)
        abort();
    pool_make(world);
    result = loop_create(loop_kind, &world->loop);
    if (result != 0) {
        pool_remove(world);
        rmdir(world->directory);
        fprintf(stderr, "%s: skipped\n", error_text());
        exit(77);
    }
    for (unsigned i = 0; i < WORLD_NODES; i++) {
        node_prepare(world, i);
        world_node_open(world, i);
    }
}

void world_close(struct world *world)
{
    for (unsigned i = 0; i < WORLD_NODES; i++)
        if (world->nodes[i].fabric != NULL)
            world_node_close(world, i);
    loop_destroy(world->loop);
    pool_remove(world);
    ASSERT(rmdir(world->directory) == 0); /* no fabric leaves a socket behind */
}

void world_open_in_child(struct world *world, const char *loop_kind)
{
    int result = loop_create(loop_kind, &world->loop);

    ASSERT(result == 0);
    for (unsigned i = 0; i < WORLD_NODES; i++) {
        world->nodes[i].fabric = NULL;
        world->nodes[i].config.loop = world->loop;
        memset(world->nodes[i].is_up, 0, sizeof(world->nodes[i].is_up));
    }
}

void world_connect(struct world *world, unsigned from, unsigned to)
{
    uint8_t blob[FABRIC_ADDRESS_MAX];
    size_t size = fabric_address(world->nodes[to].fabric, blob);
    int result = fabric_connect(world->nodes[from].fabric, node_of(to), blob, size);

    ASSERT(result == 0);
    world->nodes[from].is_up[to] = false;
}

/* What is tested is what was asked for, and not another way that works as well. */
static void world_check_paths(struct world *world)
{
    for (unsigned from = 0; from < WORLD_NODES; from++)
        for (unsigned to = 0; to < WORLD_NODES; to++)
            for (unsigned plane = 0; plane < PLANES && from != to; plane++) {
                const char *path = fabric_path(world->nodes[from].fabric, node_of(to), (enum fabric_plane)plane);
                uint64_t end_ns = os_now_ns() + (uint64_t)20000000000U;

                while (path[0] == '\0' && os_now_ns() < end_ns) /* one plane makes a peer, the other one follows */
                    world_turn(world);
                if (world->is_faulty && strcmp(world->transport, "verbs") == 0)
                    continue; /* a cut while it connects may leave TCP for a while */
                if (strncmp(path, world->transport, strlen(world->transport)) != 0) {
                    fprintf(stderr, "node %u reaches node %u by '%s'\n", from, to, path);
                    abort();
                }
            }
}

void world_connect_all(struct world *world)
{
    uint64_t end_ns = os_now_ns() + (uint64_t)20000000000U;
    unsigned ups;

    for (unsigned from = 0; from < WORLD_NODES; from++)
        for (unsigned to = 0; to < from; to++)
            world_connect(world, from, to);
    do {
        ASSERT(os_now_ns() < end_ns);
        world_turn(world);
        ups = 0;
        for (unsigned from = 0; from < WORLD_NODES; from++)
            for (unsigned to = 0; to < WORLD_NODES; to++)
                ups += world->nodes[from].is_up[to];
    } while (ups < WORLD_NODES * (WORLD_NODES - 1));
    world_check_paths(world);
}

void world_forget(struct world *world, unsigned a, unsigned b)
{
    for (unsigned plane = 0; plane < PLANES; plane++) {
        world->nodes[a].sent[b][plane] = world->nodes[b].received[a][plane] = 0;
        world->nodes[b].sent[a][plane] = world->nodes[a].received[b][plane] = 0;
    }
}

/* In pieces, one of them empty; the caller's memory is spoilt as soon as send() has returned (F3). */
static int send_pieces(struct world *world, unsigned from, unsigned to, enum fabric_plane plane, size_t size)
{
    size_t first = size / 3;
    struct iovec parts[4] = {
        {payload_sent, first},
        {NULL, 0},
        {payload_sent + first, size / 2 - first},
        {payload_sent + size / 2, size - size / 2},
    };
    int result;

    world->is_in_send = true;
    result = fabric_send(world->nodes[from].fabric, node_of(to), plane, parts, 4);
    world->is_in_send = false;
    memset(payload_sent, 0xee, size);
    return result;
}

int world_send(struct world *world, unsigned from, unsigned to, enum fabric_plane plane)
{
    uint64_t *number = &world->nodes[from].sent[to][plane];
    uint64_t seed = message_seed(from, to, plane, *number);
    size_t size = message_size(world, seed);
    int result;

    message_fill(payload_sent, size, seed);
    result = send_pieces(world, from, to, plane, size);
    if (result == 0)
        ++*number;
    return result;
}

void world_send_sized(struct world *world, unsigned from, unsigned to, enum fabric_plane plane, size_t size)
{
    uint64_t *number = &world->nodes[from].sent[to][plane];
    uint64_t end_ns = os_now_ns() + (uint64_t)20000000000U;
    int result;

    for (;;) {
        message_fill(payload_sent, size, message_seed(from, to, plane, *number));
        result = send_pieces(world, from, to, plane, size);
        if (result != -ENOBUFS)
            break;
        ASSERT(os_now_ns() < end_ns);
        world_turn(world);
    }
    ASSERT(result == 0);
    ++*number;
}

void world_turn(struct world *world)
{
    loop_run_once(world->loop, os_now_ns() + 5000000U);
}

bool world_all_arrived(struct world *world)
{
    for (unsigned from = 0; from < WORLD_NODES; from++)
        for (unsigned to = 0; to < WORLD_NODES; to++)
            for (unsigned plane = 0; plane < PLANES; plane++) {
                ASSERT(world->nodes[to].received[from][plane] <= world->nodes[from].sent[to][plane]); /* F1: once */
                if (world->nodes[to].received[from][plane] != world->nodes[from].sent[to][plane])
                    return false;
            }
    return true;
}

void world_settle(struct world *world)
{
    uint64_t end_ns = os_now_ns() + (uint64_t)20000000000U;

    while (!world_all_arrived(world)) {
        ASSERT(os_now_ns() < end_ns);
        world_turn(world);
    }
}
