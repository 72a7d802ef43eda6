/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rig_message.c - a small message between two machines as the protocols send it: 64 bytes on the control plane of the
 * verbs fabric, there and back, the loop asleep between. Prints "message MICROSECONDS", half of the median round trip.
 *
 *   bench_rig_message RANK ADDRESS FOLDER [ROUND_TRIPS]     on both; the folder is shared
 */
#include "base/error.h"
#include "base/os.h"
#include "bench/report.h"
#include "bench/setup.h"
#include "fabric/fabric.h"
#include "runtime/loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_BYTES   64
#define ROUND_TRIPS_MAX 4096U
#define MEET_NS         UINT64_C(30000000000)
#define SESSION_NS      UINT64_C(10000000000)

struct side {
    struct fabric *fabric;
    struct node_id peer;
    bool is_server, is_up, is_over;
    unsigned received_count;
};

static void message_send(struct side *side)
{
    static const char bytes[MESSAGE_BYTES] = {1};
    struct iovec part = {(void *)(uintptr_t)bytes, sizeof(bytes)};
    int error = fabric_send(side->fabric, side->peer, PLANE_CONTROL, &part, 1);

    if (error != 0)
        die("send: %s", strerror(-error));
}

static void on_message(void *context, struct node_id from, enum fabric_plane plane, const void *bytes, size_t size)
{
    struct side *side = context;

    (void)from, (void)plane, (void)bytes;
    if (size != MESSAGE_BYTES)
        die("a message of %zu bytes arrived", size);
    side->received_count++;
    if (side->is_server)
        message_send(side);
}

static void on_up(void *context, struct node_id peer)
{
    struct side *side = context;

    (void)peer;
    side->is_up = true;
}

static void on_down(void *context, struct node_id peer, const char *cause)
{
    struct side *side = context;

    (void)peer;
    if (!side->is_server)
        die("the other machine is gone: %s", cause);
    side->is_over = true;
}

/* Rank 0 leaves its address in the folder, and rank 1 connects. */
static void meet(struct side *side, struct loop *loop, const char *folder)
{
    uint8_t blob[FABRIC_ADDRESS_MAX];
    uint64_t deadline_ns = os_now_ns() + MEET_NS;
    char path[2][300];
    FILE *file = NULL;
    size_t size;

    snprintf(path[0], sizeof(path[0]), "%s/address", folder);
    snprintf(path[1], sizeof(path[1]), "%s/address.new", folder);
    if (side->is_server) {
        size = fabric_address(side->fabric, blob);
        file = fopen(path[1], "w");
        if (file == NULL || fwrite(blob, 1, size, file) != size || fclose(file) != 0 || rename(path[1], path[0]) != 0)
            die("write %s: %m", path[0]);
    } else {
        while ((file = fopen(path[0], "r")) == NULL && os_now_ns() < deadline_ns)
            nap_ns(20000000);
        if (file == NULL)
            die("%s does not come", path[0]);
        size = fread(blob, 1, sizeof(blob), file);
        fclose(file);
        unlink(path[0]);
        if (fabric_connect(side->fabric, side->peer, blob, size) != 0)
            die("connect: %s", error_text());
    }
    while (!side->is_up && os_now_ns() < deadline_ns)
        loop_run_once(loop, deadline_ns);
    if (!side->is_up)
        die("no connection to the other machine");
}

static void round_trips(struct side *side, struct loop *loop, unsigned count)
{
    static double times_us[ROUND_TRIPS_MAX];
    const char *path = fabric_path(side->fabric, side->peer, PLANE_CONTROL);

    if (strncmp(path, "verbs", 5) != 0)
        die("messages go by %s", path);
    for (unsigned i = 0; i < count; i++) {
        uint64_t started_ns = now_ns();

        message_send(side);
        while (side->received_count <= i)
            loop_run_once(loop, UINT64_MAX);
        times_us[i] = (double)(now_ns() - started_ns) / 1e3;
    }
    printf("message %.2f\n", quantile(times_us, count, 0.5) / 2);
}

int main(int argc, char **argv)
{
    unsigned count = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 300;
    struct side side = {.is_server = argc > 1 && strcmp(argv[1], "0") == 0};
    struct loop *loop;

    if (argc < 4 || count == 0 || count > ROUND_TRIPS_MAX)
        die("usage: %s RANK ADDRESS FOLDER [1 .. %u]", argv[0], ROUND_TRIPS_MAX);
    if (loop_create("auto", &loop) != 0)
        die("make a loop: %s", error_text());
    struct fabric_config config = {
        .self = node_of(side.is_server ? 0 : 1),
        .nodes_count = 2,
        .loop = loop,
        .user = {&side, on_message, on_up, on_down, NULL},
        .job = 77,
        .incarnation = os_random() | 1,
        .session_timeout_ns = SESSION_NS,
        .window_bytes_max = 2 * FABRIC_MESSAGE_MAX,
        .bind_address = argv[2],
        .shared_file = -1,
    };
    side.peer = node_of(side.is_server ? 1 : 0);
    if (fabric_verbs_open(&config, &side.fabric) != 0)
        die("%s", error_text());
    meet(&side, loop, argv[3]);
    if (!side.is_server)
        round_trips(&side, loop, count);
    while (side.is_server && !side.is_over)
        loop_run_once(loop, UINT64_MAX);
    fabric_close(side.fabric);
    loop_destroy(loop);
    return 0;
}
