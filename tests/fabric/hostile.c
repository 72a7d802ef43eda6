/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostile.c - peers and strangers that break the rules (F6): each costs its own connections, and nothing else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/os.h"
#include "base/random.h"
#include "fabric/greeting.h"
#include "fabric/shm.h"
#include "fabric/stream.h"
#include "tests/fabric/world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct world world;

static int set_up_tcp(void **state)
{
    (void)state;
    world_open(&world, "tcp", false, "epoll");
    world_connect_all(&world);
    return 0;
}

static int set_up_shm(void **state)
{
    (void)state;
    world_open(&world, "shm", false, "epoll");
    world_connect_all(&world);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_close(&world);
    return 0;
}

/* The honest nodes are as before. */
static void check_others(void)
{
    world_send_sized(&world, 0, 1, PLANE_DATA, 10000);
    world_send_sized(&world, 1, 0, PLANE_CONTROL, 100);
    world_settle(&world);
    assert_int_equal(world.nodes[0].downs[1] + world.nodes[1].downs[0], 0);
}

static int tcp_call(unsigned node)
{
    uint8_t blob[FABRIC_ADDRESS_MAX];
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct bytes_reader reader = {blob, fabric_address(world.nodes[node].fabric, blob), false};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bytes_take_u16(&reader), 4);
    address.sin_port = htons(bytes_take_u16(&reader));
    bytes_take(&reader, &address.sin_addr, sizeof(address.sin_addr));
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static int shm_call(unsigned node)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint8_t blob[FABRIC_ADDRESS_MAX];
    size_t size = fabric_address(world.nodes[node].fabric, blob);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0 && size < sizeof(address.sun_path));
    memcpy(address.sun_path, blob, size);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* True when the other side has closed; waits for it, at most `limit_ns`. */
static bool is_hung_up(int fd, uint64_t limit_ns)
{
    uint64_t end_ns = os_now_ns() + limit_ns;
    uint8_t bytes[4096];

    while (os_now_ns() < end_ns) {
        ssize_t count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);

        if (count == 0 || (count < 0 && errno != EAGAIN))
            return true;
        world_turn(&world);
    }
    return false;
}

static struct greeting hello_from(unsigned from, unsigned to)
{
    return (struct greeting){
        .version = FABRIC_PROTOCOL,
        .kind = GREETING_HELLO,
        .from = (uint16_t)from,
        .to = (uint16_t)to,
        .attempt = 1,
        .job = 77,
        .from_incarnation = 5,
        .session = 6,
    };
}

static void say(int fd, const struct greeting *greeting)
{
    uint8_t bytes[GREETING_BYTES];

    greeting_encode(greeting, bytes);
    assert_int_equal(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
}

static enum greeting_status hear(int fd)
{
    uint64_t end_ns = os_now_ns() + (uint64_t)5000000000U;
    uint8_t bytes[GREETING_BYTES];
    struct greeting welcome;

    while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_PEEK) != (ssize_t)sizeof(bytes)) {
        assert_true(os_now_ns() < end_ns);
        world_turn(&world);
    }
    assert_int_equal(recv(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
    assert_int_equal(greeting_decode(bytes, &welcome), 0);
    assert_int_equal(welcome.kind, GREETING_WELCOME);
    return (enum greeting_status)welcome.status;
}

static void test_garbage_is_hung_up_on(void **state)
{
    struct random random = {3};
    uint8_t bytes[512];

    (void)state;
    for (int round = 0; round < 40; round++) {
        int fd = tcp_call(round % 3 == 0 ? 0 : 1);

        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = (uint8_t)random_next(&random);
        assert_true(send(fd, bytes, 1 + random_below(&random, sizeof(bytes)), MSG_NOSIGNAL) > 0);
        shutdown(fd, SHUT_WR);
        assert_true(is_hung_up(fd, 2000000000U));
        close(fd);
    }
    check_others();
}

/* Greets as node 2, whose own session ends by that, and returns the attached connection of the control plane. */
static int tcp_intrude(void)
{
    struct greeting hello = hello_from(2, 0);
    int fd = tcp_call(0);

    say(fd, &hello);
    assert_int_equal(hear(fd), GREETING_OK);
    assert_int_equal(world.nodes[0].downs[2], 1);
    assert_int_equal(world.nodes[0].ups[2], 2);
    return fd;
}

static void frame_send(int fd, struct frame frame, size_t extra_bytes)
{
    uint8_t bytes[FRAME_HEADER_BYTES + 256] = {0};

    frame_encode(&frame, bytes);
    assert_true(send(fd, bytes, FRAME_HEADER_BYTES + extra_bytes, MSG_NOSIGNAL) > 0);
}

static void check_intruder_is_down(int fd)
{
    assert_true(is_hung_up(fd, 2000000000U));
    close(fd);
    assert_int_equal(world.nodes[0].downs[2], 2);
    assert_non_null(strstr(world.nodes[0].cause[2], "framing"));
    check_others();
}

static void test_oversize_frame_ends_the_session(void **state)
{
    struct frame frame = {.tag = 6, .type = FRAME_MESSAGE, .size_bytes = FABRIC_MESSAGE_MAX + 1, .sequence = 1};
    int fd;

    (void)state;
    fd = tcp_intrude();
    frame_send(fd, frame, 0);
    check_intruder_is_down(fd);
}

static void test_gap_in_sequence_ends_the_session(void **state)
{
    struct frame frame = {.tag = 6, .type = FRAME_MESSAGE, .size_bytes = 8, .sequence = 1};
    int fd;

    (void)state;
    fd = tcp_intrude();
    world.nodes[0].takes_any = true;
    world.nodes[0].received[2][PLANE_CONTROL] = 0;
    frame_send(fd, frame, 8);
    frame_send(fd, frame, 8); /* a duplicate is dropped */
    WORLD_UNTIL(&world, world.nodes[0].received[2][PLANE_CONTROL] == 1);
    frame.sequence = 3;
    frame_send(fd, frame, 8);
    assert_true(is_hung_up(fd, 2000000000U));
    assert_int_equal(world.nodes[0].received[2][PLANE_CONTROL], 1);
    world.nodes[0].takes_any = false;
    world_forget(&world, 0, 2);
    check_intruder_is_down(fd);
}

static void test_impossible_ack_ends_the_session(void **state)
{
    struct frame frame = {.tag = 6, .type = FRAME_ACK, .ack = 1};
    int fd;

    (void)state;
    fd = tcp_intrude();
    frame_send(fd, frame, 0);
    check_intruder_is_down(fd);
}

static void test_wrong_greetings_are_told_why(void **state)
{
    static const struct {
        struct greeting hello;
        enum greeting_status status;
    } cases[] = {
        {{.version = 2, .kind = 1, .from = 2, .attempt = 1, .job = 77, .from_incarnation = 5, .session = 6},
         REFUSED_VERSION},
        {{.version = 1, .kind = 1, .from = 2, .attempt = 1, .job = 78, .from_incarnation = 5, .session = 6},
         REFUSED_JOB},
        {{.version = 1, .kind = 1, .from = 2, .to = 1, .attempt = 1, .job = 77, .from_incarnation = 5, .session = 6},
         REFUSED_NODE},
        {{.version = 1, .kind = 1, .from = 0, .attempt = 1, .job = 77, .from_incarnation = 5, .session = 6},
         REFUSED_NODE},
        {{.version = 1, .kind = 1, .from = 3, .attempt = 1, .job = 77, .from_incarnation = 5, .session = 6},
         REFUSED_NODE},
        {{.version = 1, .kind = 1, .from = UINT16_MAX, .attempt = 1, .job = 77, .from_incarnation = 5, .session = 6},
         REFUSED_NODE},
        {{.version = 1,
          .kind = 1,
          .from = 2,
          .attempt = 1,
          .job = 77,
          .from_incarnation = 5,
          .to_incarnation = 9,
          .session = 6},
         REFUSED_PROCESS},
        {{.version = 1, .kind = 1, .from = 2, .plane = 2, .attempt = 1, .job = 77, .from_incarnation = 5, .session = 6},
         REFUSED_SESSION},
        {{.version = 1, .kind = 2, .from = 2, .attempt = 1, .job = 77, .from_incarnation = 5, .session = 6},
         REFUSED_SESSION},
        {{.version = 1, .kind = 1, .from = 2, .attempt = 1, .job = 77, .from_incarnation = 5, .session = 0},
         REFUSED_SESSION},
        {{.version = 1,
          .kind = 1,
          .from = 2,
          .attempt = 1,
          .job = 77,
          .from_incarnation = 5,
          .session = 6,
          .received = 1},
         REFUSED_SESSION},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        int fd = tcp_call(0);

        say(fd, &cases[i].hello);
        assert_int_equal(hear(fd), cases[i].status);
        assert_true(is_hung_up(fd, 2000000000U));
        close(fd);
    }
    check_others();
}

/* More strangers than the gate has room for: an honest node still gets in, and the strangers go within their time. */
static void test_flood_of_silent_strangers(void **state)
{
    int fds[300];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++) {
        fds[i] = tcp_call(0);
        if (i % 16 == 0)
            world_turn(&world);
    }
    world_connect(&world, 2, 0);
    WORLD_UNTIL(&world, world.nodes[0].ups[2] == 2 && world.nodes[2].is_up[0]);
    assert_true(is_hung_up(fds[0], 1000000000U)); /* sent away for the newer ones */
    assert_false(is_hung_up(fds[299], 1000000U));
    assert_true(is_hung_up(fds[299], 7000000000U));
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++)
        close(fds[i]);
    check_others();
}

/* ---- shm ------------------------------------------------------------------------------------------------------- */

static void packet_with_files(int fd, const struct greeting *greeting, const int *files, size_t count)
{
    uint8_t bytes[GREETING_BYTES];
    union {
        struct cmsghdr header;
        uint8_t bytes[CMSG_SPACE(8 * sizeof(int))];
    } control = {0};
    struct iovec part = {bytes, sizeof(bytes)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    greeting_encode(greeting, bytes);
    if (count > 0) {
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(&control.header), files, count * sizeof(int));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    }
    assert_int_equal(sendmsg(fd, &message, MSG_NOSIGNAL), sizeof(bytes));
}

static unsigned descriptors_open(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void check_pipe_is_no_bell(void)
{
    struct greeting hello = hello_from(2, 0);
    int fd = shm_call(0);
    int files[2];
    int ends[2];

    assert_int_equal(shm_segment_create(&files[0]), 0);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    files[1] = ends[1];
    packet_with_files(fd, &hello, files, 2);
    assert_int_equal(hear(fd), REFUSED_SESSION);
    close(files[0]);
    close(ends[0]);
    close(ends[1]);
    close(fd);
}

/* No memory, memory that could shrink, too many descriptors, no bell: refused, and no descriptor stays behind. */
static void test_shm_bad_offers_are_refused(void **state)
{
    struct greeting hello = hello_from(2, 0);
    int file = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int files[8] = {file, file, file, file, file, file, file, file};
    unsigned before;

    (void)state;
    assert_true(file >= 0);
    world_turn(&world);
    before = descriptors_open();
    for (size_t count = 0; count <= 8; count++) {
        int fd = shm_call(0);

        packet_with_files(fd, &hello, files, count);
        assert_true(is_hung_up(fd, 2000000000U));
        close(fd);
    }
    assert_int_equal(ftruncate(file, 64 << 20), 0);
    files[1] = eventfd(0, EFD_CLOEXEC);
    for (int round = 0; round < 2; round++) { /* a segment of another size, without and with seals */
        int fd = shm_call(0);

        packet_with_files(fd, &hello, files, 2);
        assert_int_equal(hear(fd), REFUSED_SESSION);
        close(fd);
        assert_int_equal(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    }
    close(files[1]);
    check_pipe_is_no_bell();
    assert_int_equal(descriptors_open(), before);
    assert_int_equal(world.nodes[0].downs[2], 0);
    close(file);
    check_others();
}

/* Greets as node 2 with good memory, and returns the connection and a view of the rings. */
static int shm_intrude(uint64_t session, struct shm_segment *ret_segment)
{
    struct greeting hello = hello_from(2, 0);
    int fd = shm_call(0);
    int files[2];

    hello.session = session;
    assert_int_equal(shm_segment_create(&files[0]), 0);
    assert_int_equal(shm_segment_map(files[0], ret_segment), 0);
    files[1] = eventfd(0, EFD_CLOEXEC);
    packet_with_files(fd, &hello, files, 2);
    assert_int_equal(hear(fd), GREETING_OK);
    assert_int_equal(world.nodes[0].downs[2], 1);
    close(files[0]);
    close(files[1]);
    return fd;
}

/* Spoils the rings in one way a round; node 0 must notice, end that session, and go on. */
static void test_shm_broken_rings_end_the_session(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 6; round++) {
        struct shm_segment segment;
        struct ring_shared *in;
        uint32_t *record;
        int fd;

        world_connect(&world, 2, 0);
        WORLD_UNTIL(&world, world.nodes[0].is_up[2] && world.nodes[2].is_up[0]);
        world.nodes[0].downs[2] = 0;
        fd = shm_intrude(100 + round, &segment);
        in = &segment.rings[0][PLANE_DATA];
        record = (uint32_t *)(void *)segment.bytes[0][PLANE_DATA];
        *record = round == 0 ? 0 : round == 1 ? FABRIC_MESSAGE_MAX + 1 : 100;
        atomic_store(&in->tail, round == 2 ? 16 : round == 3 ? UINT64_MAX : round == 4 ? 12 : SHM_DATA_BYTES);
        if (round == 5) { /* the other direction: an impossible head, seen when its ring seems full */
            *record = 0;
            atomic_store(&in->tail, 0);
            atomic_store(&segment.rings[1][PLANE_CONTROL].head, (uint64_t)1 << 40);
            while (world_send(&world, 0, 2, PLANE_CONTROL) == 0)
                ;
        }
        WORLD_UNTIL(&world, world.nodes[0].downs[2] == 2);
        assert_non_null(strstr(world.nodes[0].cause[2], "ring"));
        assert_int_equal(world_send(&world, 0, 2, PLANE_CONTROL), -EHOSTDOWN);
        shm_segment_unmap(&segment);
        close(fd);
        world_forget(&world, 0, 2);
        check_others();
        WORLD_UNTIL(&world, !world.nodes[2].is_up[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TCP_TEST(name) cmocka_unit_test_setup_teardown(name, set_up_tcp, tear_down)
#define SHM_TEST(name) cmocka_unit_test_setup_teardown(name, set_up_shm, tear_down)
        TCP_TEST(test_garbage_is_hung_up_on),
        TCP_TEST(test_oversize_frame_ends_the_session),
        TCP_TEST(test_gap_in_sequence_ends_the_session),
        TCP_TEST(test_impossible_ack_ends_the_session),
        TCP_TEST(test_wrong_greetings_are_told_why),
        TCP_TEST(test_flood_of_silent_strangers),
        SHM_TEST(test_shm_bad_offers_are_refused),
        SHM_TEST(test_shm_broken_rings_end_the_session),
    };

    log_configure(LOG_WARN, "hostile");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
