/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads.c - two nodes, each a thread with its own loop that really sleeps: bells, room and acknowledgements between
 * loops. Run under TSan too. Prints the median round trip of 64 B + 4 KiB beside that of plain blocking sockets.
 *
 * usage: threads TRANSPORT LOOP
 */
#include "base/assert.h"
#include "base/log.h"
#include "base/os.h"
#include "fabric/fabric.h"
#include "runtime/loop.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PINGS_COUNT  3000
#define FLOOD_COUNT  1500
#define REPLY_BYTES  4096
#define FLOOD_BYTES  ((size_t)48 * 1024)
#define WINDOW_BYTES ((size_t)1024 * 1024)

struct side {
    struct fabric *fabric;
    struct loop *loop;
    struct node_id self, peer;
    bool is_up, is_down, is_done;
    uint64_t pings, replies, replies_wanted, floods_sent, floods_received;
    uint64_t ping_begun_ns;
    uint64_t times_ns[PINGS_COUNT];
    struct loop_timer timer;
};

struct meeting {
    const char *transport;
    const char *loop_kind;
    char directory[64];
    uint8_t blob[FABRIC_ADDRESS_MAX];
    size_t blob_bytes;
    pthread_barrier_t barrier;
};

static struct meeting meeting;
static uint8_t zeroes[FLOOD_BYTES];

static void ping(struct side *side)
{
    uint8_t request[64] = {'p'};
    struct iovec part = {request, sizeof(request)};
    int result;

    side->ping_begun_ns = os_now_ns();
    result = fabric_send(side->fabric, side->peer, PLANE_CONTROL, &part, 1);
    ASSERT(result == 0);
    side->pings++;
}

/* Both sides flood at once, so that rings and windows fill in both directions. */
static void flood(struct side *side)
{
    while (side->floods_sent < FLOOD_COUNT) {
        struct iovec parts[2] = {{&side->floods_sent, sizeof(uint64_t)}, {zeroes, FLOOD_BYTES - sizeof(uint64_t)}};
        int result = fabric_send(side->fabric, side->peer, PLANE_DATA, parts, 2);

        if (result == -ENOBUFS) {
            loop_timer_start(side->loop, &side->timer, os_now_ns() + 1000000U);
            return;
        }
        ASSERT(result == 0);
        side->floods_sent++;
    }
}

static void side_check_done(struct side *side)
{
    side->is_done = side->floods_received == FLOOD_COUNT && side->floods_sent == FLOOD_COUNT;
}

static void flood_again(struct loop_timer *timer)
{
    flood(timer->context);
    side_check_done(timer->context);
}

static void on_message(void *context, struct node_id from, enum fabric_plane plane, const void *bytes, size_t size)
{
    struct side *side = context;
    struct iovec part = {zeroes, REPLY_BYTES};
    uint64_t number;
    int result;

    ASSERT(node_is(from, side->peer));
    if (plane == PLANE_DATA && size == FLOOD_BYTES) {
        memcpy(&number, bytes, sizeof(number));
        ASSERT(number == side->floods_received);
        side->floods_received++;
        if (side->floods_received == 1)
            flood(side);
        side_check_done(side);
    } else if (plane == PLANE_CONTROL) {
        result = fabric_send(side->fabric, side->peer, PLANE_DATA, &part, 1);
        ASSERT(result == 0);
    } else {
        ASSERT(size == REPLY_BYTES);
        side->times_ns[side->replies++] = os_now_ns() - side->ping_begun_ns;
        if (side->replies < PINGS_COUNT)
            ping(side);
        else
            flood(side);
    }
}

static void on_up(void *context, struct node_id peer)
{
    struct side *side = context;

    (void)peer;
    side->is_up = true;
    if (side->self.index == 1)
        ping(side);
}

static void on_down(void *context, struct node_id peer, const char *cause)
{
    struct side *side = context;

    (void)peer;
    (void)cause;
    side->is_down = true;
}

static void side_open(struct side *side, unsigned self)
{
    struct fabric_config config = {
        .self = node_of(self),
        .nodes_count = 2,
        .user = {side, on_message, on_up, on_down, NULL},
        .job = 1,
        .incarnation = 1 + self,
        .session_timeout_ns = 5000000000U,
        .window_bytes_max = WINDOW_BYTES,
        .shm_directory = meeting.directory,
        .shared_file = -1,
    };
    int result = loop_create(meeting.loop_kind, &side->loop);

    if (result == -EPERM || result == -ENOSYS)
        exit(77);
    ASSERT(result == 0);
    config.loop = side->loop;
    side->self = node_of(self);
    side->peer = node_of(1 - self);
    side->timer = (struct loop_timer){.expired = flood_again, .context = side};
    result = strcmp(meeting.transport, "tcp") == 0 ? fabric_tcp_open(&config, &side->fabric)
                                                   : fabric_shm_open(&config, &side->fabric);
    ASSERT(result == 0);
}

static void turn_until(struct side *side, const bool *is_done)
{
    uint64_t end_ns = os_now_ns() + (uint64_t)15000000000U;

    while (!*is_done) {
        ASSERT(os_now_ns() < end_ns); /* a bell was lost */
        loop_run_once(side->loop, os_now_ns() + 5000000000U);
    }
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static uint64_t median(uint64_t *times_ns, size_t count)
{
    qsort(times_ns, count, sizeof(*times_ns), by_size);
    return times_ns[count / 2];
}

/* Node 0 waits for the end of node 1, which closes first. */
static void *answer_run(void *argument)
{
    static struct side side;

    (void)argument;
    side_open(&side, 0);
    meeting.blob_bytes = fabric_address(side.fabric, meeting.blob);
    pthread_barrier_wait(&meeting.barrier);
    turn_until(&side, &side.is_done);
    turn_until(&side, &side.is_down);
    fabric_close(side.fabric);
    loop_destroy(side.loop);
    return NULL;
}

static uint64_t ask_run(void)
{
    static struct side side;
    int result;

    pthread_barrier_wait(&meeting.barrier);
    side_open(&side, 1);
    result = fabric_connect(side.fabric, node_of(0), meeting.blob, meeting.blob_bytes);
    ASSERT(result == 0);
    turn_until(&side, &side.is_done);
    ASSERT(side.is_up && !side.is_down);
    fabric_close(side.fabric);
    loop_destroy(side.loop);
    return median(side.times_ns, PINGS_COUNT);
}

/* ---- the plain sockets ----------------------------------------------------------------------------------------- */

static void receive_all(int fd, size_t size)
{
    static _Thread_local uint8_t bytes[REPLY_BYTES];
    ssize_t count = recv(fd, bytes, size, MSG_WAITALL);

    ASSERT(count == (ssize_t)size);
}

static void *plain_answer_run(void *argument)
{
    int fd = accept(*(const int *)argument, NULL, NULL);
    int one = 1;

    ASSERT(fd >= 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    for (int i = 0; i < PINGS_COUNT; i++) {
        receive_all(fd, 64);
        if (send(fd, zeroes, REPLY_BYTES, 0) != REPLY_BYTES)
            break;
    }
    close(fd);
    return NULL;
}

static uint64_t plain_run(void)
{
    static uint64_t times_ns[PINGS_COUNT];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;
    pthread_t thread;
    int result;

    ASSERT(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 1) == 0);
    ASSERT(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    result = os_thread_start(&thread, "plain", plain_answer_run, &listener);
    ASSERT(result == 0);
    ASSERT(connect(fd, (struct sockaddr *)&address, size) == 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    for (int i = 0; i < PINGS_COUNT; i++) {
        uint64_t begin_ns = os_now_ns();

        ASSERT(send(fd, zeroes, 64, 0) == 64);
        receive_all(fd, REPLY_BYTES);
        times_ns[i] = os_now_ns() - begin_ns;
    }
    pthread_join(thread, NULL);
    close(fd);
    close(listener);
    return median(times_ns, PINGS_COUNT);
}

int main(int argc, char **argv)
{
    uint64_t fabric_ns;
    uint64_t plain_ns;
    pthread_t thread;
    int result;

    if (argc != 3)
        return 2;
    log_configure(LOG_WARN, "threads");
    meeting.transport = argv[1];
    meeting.loop_kind = argv[2];
    snprintf(meeting.directory, sizeof(meeting.directory), "/tmp/tiermesh-fabric-XXXXXX");
    if (mkdtemp(meeting.directory) == NULL)
        return 1;
    plain_ns = plain_run();
    pthread_barrier_init(&meeting.barrier, NULL, 2);
    result = os_thread_start(&thread, "answer", answer_run, NULL);
    ASSERT(result == 0);
    fabric_ns = ask_run();
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&meeting.barrier);
    ASSERT(rmdir(meeting.directory) == 0);
    printf("%s on %s: median round trip %.1f us, plain tcp %.1f us\n", argv[1], argv[2], (double)fabric_ns / 1000,
           (double)plain_ns / 1000);
    return 0;
}
