/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_agent.c - nodes meet at an agent, over real sockets: threads are the nodes, the test's own thread is the agent.
 */
#include "base/bytes.h"
#include "base/error.h"
#include "base/os.h"
#include "base/random.h"
#include "runtime/agent.h"
#include "runtime/agent_socket.h"
#include "runtime/agent_wire.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND_NS 1000000000u
#define LIMIT_NS  (20 * (uint64_t)SECOND_NS)

static const uint8_t job_key[AGENT_KEY_BYTES] = {1, 2, 3, 250, 251, 252};

struct node {
    struct agent_place place;
    uint64_t bases_free;
    uint64_t timeout_ns;
    bool meets; /* or stops after agent_connect() */
    pthread_t thread;
    _Atomic(bool) is_done;
    int connect_result, meet_result;
    char sentence[256];
    struct agent_link *link;
    uint64_t window_base;
    struct agent_welcome welcome;
};

struct job {
    struct agent *agent;
    char address[AGENT_ADDRESS_MAX];
    unsigned nodes_count;
    struct node *nodes;
};

static void *node_run(void *argument)
{
    struct node *node = argument;
    struct agent_peer self = {.blob_bytes = 3 + node->place.rank};

    snprintf(self.host, sizeof(self.host), "host-%u", node->place.rank);
    memset(self.blob, (int)('a' + node->place.rank), self.blob_bytes);
    node->connect_result =
        agent_connect(&node->place, node->bases_free, node->timeout_ns, &node->link, &node->window_base);
    if (node->connect_result == 0 && node->meets)
        node->meet_result = agent_meet(node->link, &self, node->timeout_ns, &node->welcome);
    snprintf(node->sentence, sizeof(node->sentence), "%s", error_text());
    atomic_store(&node->is_done, true);
    return NULL;
}

static void job_open(struct job *job, const char *address, unsigned nodes_count)
{
    *job = (struct job){.nodes_count = nodes_count};
    assert_int_equal(agent_create(address, nodes_count, job_key, job->address, sizeof(job->address), &job->agent), 0);
    job->nodes = calloc(nodes_count, sizeof(job->nodes[0]));
    assert_non_null(job->nodes);
    for (unsigned i = 0; i < nodes_count; i++) {
        struct node *node = &job->nodes[i];

        node->place = (struct agent_place){.rank = i, .nodes_count = nodes_count};
        memcpy(node->place.address, job->address, sizeof(job->address));
        memcpy(node->place.key, job_key, sizeof(job_key));
        node->bases_free = 0x7f;
        node->timeout_ns = LIMIT_NS;
        node->meets = true;
    }
}

static void node_start(struct node *node)
{
    assert_int_equal(os_thread_start(&node->thread, "node", node_run, node), 0);
}

static void job_close(struct job *job)
{
    for (unsigned i = 0; i < job->nodes_count; i++)
        agent_link_close(job->nodes[i].link);
    agent_destroy(job->agent);
    free(job->nodes);
}

static void agent_step(struct job *job, int timeout_ms)
{
    struct pollfd descriptors[AGENT_POLL_MAX];
    int count = agent_poll(job->agent, descriptors, AGENT_POLL_MAX);

    (void)poll(descriptors, (nfds_t)count, timeout_ms);
    agent_serve(job->agent);
}

/* Serves until the nodes in `which` (bits) are done, and joins them. */
static void serve_until_done(struct job *job, uint64_t which)
{
    uint64_t deadline_ns = os_now_ns() + LIMIT_NS;

    for (unsigned i = 0; i < job->nodes_count; i++) {
        if ((which >> i & 1) == 0)
            continue;
        while (!atomic_load(&job->nodes[i].is_done)) {
            assert_true(os_now_ns() < deadline_ns);
            agent_step(job, 2);
        }
        pthread_join(job->nodes[i].thread, NULL);
    }
}

static void job_start(struct job *job)
{
    uint64_t all = (((uint64_t)1 << (job->nodes_count - 1)) - 1) << 1 | 1;

    for (unsigned i = 0; i < job->nodes_count; i++)
        node_start(&job->nodes[i]);
    serve_until_done(job, all);
    for (unsigned i = 0; i < job->nodes_count; i++) {
        assert_int_equal(job->nodes[i].connect_result, 0);
        assert_int_equal(job->nodes[i].meet_result, 0);
    }
}

/* The next view a node hears, with the agent running. */
static struct view next_view(struct job *job, unsigned rank)
{
    uint64_t deadline_ns = os_now_ns() + LIMIT_NS;
    struct view view;

    for (;;) {
        struct pollfd one = {.fd = agent_link_descriptor(job->nodes[rank].link), .events = POLLIN};
        int result;

        agent_step(job, 1);
        (void)poll(&one, 1, 1);
        result = agent_link_read(job->nodes[rank].link, &view);
        assert_in_range(result, 0, 1);
        if (result == 1)
            return view;
        assert_true(os_now_ns() < deadline_ns);
    }
}

static void check_met(const struct job *job)
{
    for (unsigned i = 0; i < job->nodes_count; i++) {
        const struct agent_welcome *welcome = &job->nodes[i].welcome;

        assert_int_equal(welcome->view.epoch.number, 1);
        assert_int_equal(view_count(&welcome->view), job->nodes_count);
        assert_int_equal(welcome->job, job->nodes[0].welcome.job);
        assert_int_equal(welcome->window_base, job->nodes[i].window_base);
        for (unsigned peer = 0; peer < job->nodes_count; peer++) {
            char host[AGENT_HOST_MAX];

            snprintf(host, sizeof(host), "host-%u", peer);
            assert_string_equal(welcome->peers[peer].host, host);
            assert_int_equal(welcome->peers[peer].blob_bytes, 3 + peer);
            assert_int_equal(welcome->peers[peer].blob[2 + peer], 'a' + peer);
        }
    }
}

static void test_nodes_meet_and_agree_on_a_base(void **state)
{
    struct job job;
    struct stat directory;

    (void)state;
    job_open(&job, NULL, 3);
    assert_int_equal(stat(agent_directory(job.agent), &directory), 0);
    assert_int_equal(directory.st_mode & 07777, 0700);
    job.nodes[0].bases_free = 0x6;
    job.nodes[1].bases_free = 0x7d;
    job.nodes[2].bases_free = 0xc;
    job_start(&job);
    check_met(&job);
    assert_int_equal(job.nodes[0].window_base, agent_window_base(2));
    job_close(&job);
}

static void test_a_full_job_meets(void **state)
{
    struct job job;

    (void)state;
    job_open(&job, NULL, NODES_MAX);
    job_start(&job);
    check_met(&job);
    assert_int_equal(job.nodes[0].window_base, 0x100000000000);
    job_close(&job);
}

static void test_no_base_is_free_everywhere(void **state)
{
    struct job job;

    (void)state;
    job_open(&job, NULL, 2);
    job.nodes[0].bases_free = 1;
    job.nodes[1].bases_free = 2;
    job_start(&job);
    assert_int_equal(job.nodes[0].window_base, 0);
    assert_int_equal(job.nodes[1].window_base, 0);
    job_close(&job);
}

static void test_over_tcp(void **state)
{
    struct job job;
    char host[AGENT_HOST_MAX];

    (void)state;
    job_open(&job, "tcp:127.0.0.1:0", 2);
    assert_memory_equal(job.address, "tcp:127.0.0.1:", 14);
    assert_null(agent_directory(job.agent));
    job_start(&job);
    check_met(&job);
    agent_link_host(job.nodes[0].link, host);
    assert_string_equal(host, "127.0.0.1");
    job_close(&job);
}

static void test_leave_death_and_suspicion_change_the_view(void **state)
{
    struct job job;
    struct view view;

    (void)state;
    job_open(&job, NULL, 5);
    job_start(&job);

    agent_link_leave(job.nodes[1].link);
    agent_link_close(job.nodes[1].link);
    job.nodes[1].link = NULL;
    agent_exited(job.agent, 1); /* even when the launcher is the first to know */
    view = next_view(&job, 0);
    assert_int_equal(view.epoch.number, 2);
    assert_int_equal(view.members, 0x1d);

    agent_link_close(job.nodes[2].link);
    job.nodes[2].link = NULL;
    view = next_view(&job, 0);
    assert_int_equal(view.epoch.number, 3);
    assert_int_equal(view.members, 0x19);
    agent_exited(job.agent, 2); /* known already: no third view */

    agent_link_suspect(job.nodes[0].link, node_of(0));
    agent_link_suspect(job.nodes[0].link, node_of(2));
    agent_link_suspect(job.nodes[0].link, node_of(4));
    view = next_view(&job, 0);
    assert_int_equal(view.epoch.number, 4);
    assert_int_equal(view.members, 0x09);
    do /* the suspected one hears that it is out, and has no say any more */
        view = next_view(&job, 4);
    while (view.epoch.number < 4);
    assert_int_equal(view.members, 0x09);
    agent_link_suspect(job.nodes[4].link, node_of(0));
    agent_link_close(job.nodes[3].link);
    job.nodes[3].link = NULL;
    view = next_view(&job, 0);
    assert_int_equal(view.epoch.number, 5);
    assert_int_equal(view.members, 0x01);
    job_close(&job);
}

static void test_a_rank_that_ends_early_ends_the_start(void **state)
{
    struct job job;

    (void)state;
    job_open(&job, NULL, 3);
    node_start(&job.nodes[0]);
    for (unsigned i = 0; i < 20; i++)
        agent_step(&job, 2);
    agent_exited(job.agent, 2);
    serve_until_done(&job, 1);
    assert_int_equal(job.nodes[0].connect_result, -EHOSTDOWN);
    assert_non_null(strstr(job.nodes[0].sentence, "rank 2 ended"));
    node_start(&job.nodes[1]); /* one that comes later hears the same */
    serve_until_done(&job, 2);
    assert_int_equal(job.nodes[1].connect_result, -EHOSTDOWN);
    job_close(&job);
}

static void test_a_node_that_hangs_up_before_it_met(void **state)
{
    struct job job;

    (void)state;
    job_open(&job, NULL, 2);
    job.nodes[1].meets = false;
    node_start(&job.nodes[0]);
    node_start(&job.nodes[1]);
    serve_until_done(&job, 2);
    agent_link_close(job.nodes[1].link);
    job.nodes[1].link = NULL;
    serve_until_done(&job, 1);
    assert_int_equal(job.nodes[0].connect_result, 0);
    assert_int_equal(job.nodes[0].meet_result, -EHOSTDOWN);
    job_close(&job);
}

static void test_not_all_join_in_time(void **state)
{
    struct job job;

    (void)state;
    job_open(&job, NULL, 2);
    job.nodes[0].timeout_ns = SECOND_NS / 10;
    node_start(&job.nodes[0]);
    serve_until_done(&job, 1);
    assert_int_equal(job.nodes[0].connect_result, -ETIMEDOUT);
    job_close(&job);
}

static void test_strangers_are_refused(void **state)
{
    struct job job;
    struct job others;

    (void)state;
    job_open(&job, NULL, 2);
    job_open(&others, NULL, 2);
    memcpy(others.nodes[0].place.address, job.address, sizeof(job.address));
    memcpy(others.nodes[1].place.address, job.address, sizeof(job.address));
    others.nodes[0].place.key[31] ^= 1;
    others.nodes[1].place.nodes_count = 3;
    node_start(&others.nodes[0]);
    node_start(&others.nodes[1]);
    while (!atomic_load(&others.nodes[0].is_done) || !atomic_load(&others.nodes[1].is_done))
        agent_step(&job, 2);
    pthread_join(others.nodes[0].thread, NULL);
    pthread_join(others.nodes[1].thread, NULL);
    assert_int_equal(others.nodes[0].connect_result, -EACCES);
    assert_int_equal(others.nodes[1].connect_result, -EPROTO);
    job_start(&job); /* the job's own nodes were not disturbed */
    check_met(&job);
    memcpy(others.nodes[0].place.key, job_key, sizeof(job_key));
    atomic_store(&others.nodes[0].is_done, false);
    node_start(&others.nodes[0]);
    while (!atomic_load(&others.nodes[0].is_done))
        agent_step(&job, 2);
    pthread_join(others.nodes[0].thread, NULL);
    assert_int_equal(others.nodes[0].connect_result, -EALREADY);
    job_close(&others);
    job_close(&job);
}

static void test_the_end_of_the_agent_is_noticed(void **state)
{
    struct job job;
    struct view view;
    struct pollfd one;
    char directory[128];

    (void)state;
    job_open(&job, NULL, 1);
    job_start(&job);
    assert_int_equal(agent_link_read(job.nodes[0].link, &view), 0);
    snprintf(directory, sizeof(directory), "%s", agent_directory(job.agent));
    agent_destroy(job.agent);
    job.agent = NULL;
    assert_int_equal(access(directory, F_OK), -1);
    one = (struct pollfd){.fd = agent_link_descriptor(job.nodes[0].link), .events = POLLIN};
    assert_int_equal(poll(&one, 1, 1000), 1);
    assert_int_equal(agent_link_read(job.nodes[0].link, &view), -EPIPE);
    assert_int_equal(agent_link_read(job.nodes[0].link, &view), -EPIPE);
    job_close(&job);
}

/* A bare connection to the agent that says `bytes`. */
static int raw_connect(const struct job *job, const void *bytes, size_t size_bytes)
{
    struct sockaddr_storage address;
    socklen_t address_bytes;
    int fd;

    assert_int_equal(agent_socket_parse(job->address, &address, &address_bytes), 0);
    fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, address_bytes), 0);
    if (size_bytes > 0)
        assert_int_equal(send(fd, bytes, size_bytes, MSG_NOSIGNAL), size_bytes);
    return fd;
}

/* The agent hung up: with a sentence or without. */
static void assert_ended(struct job *job, int fd)
{
    uint64_t deadline_ns = os_now_ns() + LIMIT_NS;
    uint8_t bytes[512];
    ssize_t got;

    do {
        assert_true(os_now_ns() < deadline_ns);
        agent_step(job, 1);
        got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    } while (got > 0 || (got < 0 && errno == EAGAIN));
    close(fd);
}

static void test_garbage_costs_only_its_connection(void **state)
{
    struct random random = {42};
    struct job job;
    uint8_t record[AGENT_SMALL_MAX];
    struct agent_hello hello = {.version = AGENT_WIRE_VERSION + 1, .nodes_count = 2};

    (void)state;
    job_open(&job, NULL, 2);
    memcpy(hello.key, job_key, sizeof(job_key));
    assert_ended(&job, raw_connect(&job, record, agent_hello_encode(&hello, record)));
    assert_ended(&job, raw_connect(&job, record, agent_leave_encode(record)));
    assert_ended(&job, raw_connect(&job, "\0\0\0\0", 4));
    assert_ended(&job, raw_connect(&job, "\377\377\377\377", 4));
    for (unsigned round = 0; round < 200; round++) {
        for (size_t i = 0; i < sizeof(record); i++)
            record[i] = (uint8_t)random_next(&random);
        if (round % 2 == 0)
            memcpy(record, "\x09\0\0\0", 4);
        assert_ended(&job, raw_connect(&job, record, 64 + random_below(&random, 900)));
    }
    job_start(&job);
    check_met(&job);
    /* A member that breaks the protocol is a member that died. */
    agent_link_suspect(job.nodes[1].link, node_of(60));
    assert_int_equal(send(agent_link_descriptor(job.nodes[1].link), "\1\0\0\0\3", 5, MSG_NOSIGNAL), 5);
    assert_int_equal(next_view(&job, 0).members, 1);
    job_close(&job);
}

static void test_silent_connections_are_bounded_and_end(void **state)
{
    struct job job;
    int silent[2 * AGENT_CLIENTS_PER_NODE];
    uint64_t start_ns;

    (void)state;
    job_open(&job, NULL, 2);
    for (size_t i = 0; i < ARRAY_COUNT(silent); i++)
        silent[i] = raw_connect(&job, "\x3c", i % 2);
    agent_step(&job, 100);
    agent_step(&job, 0);
    {
        struct pollfd descriptors[AGENT_POLL_MAX];

        /* Every slot is taken: the listener is not polled. */
        assert_int_equal(agent_poll(job.agent, descriptors, AGENT_POLL_MAX), ARRAY_COUNT(silent));
    }
    start_ns = os_now_ns();
    assert_in_range(agent_deadline_ns(job.agent) - start_ns, 1, 5 * (uint64_t)SECOND_NS);
    job_start(&job);
    check_met(&job);
    assert_true(os_now_ns() - start_ns > 3 * (uint64_t)SECOND_NS);
    for (size_t i = 0; i < ARRAY_COUNT(silent); i++)
        assert_ended(&job, silent[i]);
    job_close(&job);
}

/* ---- records ---------------------------------------------------------------------------------------------------- */

/* Feeds every truncation and many mutations of a record's body to every decoder: refused or decoded, never a crash. */
static void decode_all(const uint8_t *body, size_t body_bytes)
{
    static struct agent_welcome welcome;
    struct agent_hello hello;
    struct agent_peer peer;
    struct agent_refusal refusal;
    struct node_id suspect;
    struct view view;
    uint64_t base;
    int decoded = 0;

    decoded += agent_hello_decode(body, body_bytes, &hello) == 0;
    decoded += agent_window_decode(body, body_bytes, &base) == 0;
    decoded += agent_meet_decode(body, body_bytes, &peer) == 0;
    decoded += agent_welcome_decode(body, body_bytes, 3, &welcome) == 0;
    decoded += agent_view_decode(body, body_bytes, 3, &view) == 0;
    decoded += agent_suspect_decode(body, body_bytes, &suspect) == 0;
    decoded += agent_refuse_decode(body, body_bytes, &refusal) == 0;
    assert_in_range(decoded, 0, 1);
}

static void check_record(const uint8_t *record, size_t record_bytes)
{
    struct random random = {record_bytes};
    size_t body_bytes;
    uint8_t *copy;

    assert_int_equal(agent_length_decode(record, AGENT_RECORD_MAX, &body_bytes), 0);
    assert_int_equal(body_bytes + AGENT_LENGTH_BYTES, record_bytes);
    for (size_t size = 0; size < body_bytes; size++) {
        copy = malloc(size + 1); /* exact, so that the sanitizer sees a read beyond */
        assert_non_null(copy);
        memcpy(copy, record + AGENT_LENGTH_BYTES, size);
        if (size > 0)
            decode_all(copy, size);
        free(copy);
    }
    for (unsigned round = 0; round < 2000; round++) {
        copy = malloc(body_bytes);
        assert_non_null(copy);
        memcpy(copy, record + AGENT_LENGTH_BYTES, body_bytes);
        copy[random_below(&random, (uint32_t)body_bytes)] = (uint8_t)random_next(&random);
        decode_all(copy, body_bytes);
        free(copy);
    }
}

static void test_records_round_trip_and_refuse(void **state)
{
    static uint8_t record[AGENT_RECORD_MAX];
    static struct agent_welcome welcome, got_welcome;
    struct agent_hello hello = {.version = 1, .rank = 2, .nodes_count = 3, .bases_free = 5}, got_hello;
    struct agent_refusal refusal = {.code = -EACCES, .sentence = "no\033[2J"}, got_refusal;
    struct view view = {{7}, 5}, got_view;
    struct node_id got_suspect;
    const uint8_t *body = record + AGENT_LENGTH_BYTES;
    size_t size;

    (void)state;
    size = agent_hello_encode(&hello, record);
    assert_int_equal(size, AGENT_LENGTH_BYTES + AGENT_HELLO_BYTES);
    check_record(record, size);
    assert_int_equal(agent_hello_decode(body, size - AGENT_LENGTH_BYTES, &got_hello), 0);
    assert_int_equal(got_hello.bases_free, 5);
    size = agent_view_encode(&view, record);
    check_record(record, size);
    assert_int_equal(agent_view_decode(body, size - AGENT_LENGTH_BYTES, 3, &got_view), 0);
    assert_int_equal(got_view.members, 5);
    assert_int_equal(agent_view_decode(body, size - AGENT_LENGTH_BYTES, 2, &got_view), -EBADMSG);
    size = agent_suspect_encode(node_of(9), record);
    check_record(record, size);
    assert_int_equal(agent_suspect_decode(body, size - AGENT_LENGTH_BYTES, &got_suspect), 0);
    assert_int_equal(got_suspect.index, 9);
    size = agent_refuse_encode(&refusal, record);
    check_record(record, size);
    assert_int_equal(agent_refuse_decode(body, size - AGENT_LENGTH_BYTES, &got_refusal), 0);
    assert_string_equal(got_refusal.sentence, "no?[2J"); /* cannot steer a terminal */
    welcome = (struct agent_welcome){.job = 11, .window_base = 12, .view = {{1}, 7}};
    welcome.peers[2].blob_bytes = AGENT_BLOB_MAX;
    snprintf(welcome.peers[1].host, sizeof(welcome.peers[1].host), "b");
    size = agent_welcome_encode(&welcome, 3, record);
    check_record(record, size);
    assert_int_equal(agent_welcome_decode(body, size - AGENT_LENGTH_BYTES, 3, &got_welcome), 0);
    assert_true(got_welcome.job == 11 && got_welcome.window_base == 12);
    assert_true(got_welcome.view.epoch.number == 1 && got_welcome.view.members == 7);
    assert_memory_equal(welcome.peers, got_welcome.peers, sizeof(welcome.peers)); /* no padding inside */
}

/* ---- the place -------------------------------------------------------------------------------------------------- */

static void place_environment(const char *agent, const char *rank, const char *size, const char *key_fd)
{
    const char *const names[] = {"DSM_AGENT", "DSM_RANK", "DSM_SIZE", "DSM_KEY_FD"};
    const char *const values[] = {agent, rank, size, key_fd};

    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        if (values[i] == NULL)
            unsetenv(names[i]);
        else
            assert_int_equal(setenv(names[i], values[i], 1), 0);
    }
}

static void test_a_place_is_found(void **state)
{
    struct agent_place place;
    int fd = memfd_create("key", 0);
    int pipes[2];
    char text[16], pipe_text[16];

    (void)state;
    assert_true(fd >= 0 && pipe(pipes) == 0);
    assert_int_equal(write(fd, job_key, sizeof(job_key)), sizeof(job_key));
    snprintf(text, sizeof(text), "%d", fd);
    snprintf(pipe_text, sizeof(pipe_text), "%d", pipes[0]);

    place_environment(NULL, NULL, NULL, NULL);
    assert_int_equal(agent_place_find(&place), 0);
    assert_true(place.is_alone);
    assert_int_equal(place.nodes_count, 1);

    place_environment("tcp:127.0.0.1:5", "0", "1", text);
    assert_int_equal(agent_place_find(&place), 0);
    assert_string_equal(place.directory, "");
    place_environment("unix:/x/y/agent", "2", "3", text);
    for (unsigned again = 0; again < 2; again++) {
        memset(&place, 0, sizeof(place));
        assert_int_equal(agent_place_find(&place), 0);
        assert_false(place.is_alone);
        assert_int_equal(place.rank, 2);
        assert_int_equal(place.nodes_count, 3);
        assert_string_equal(place.address, "unix:/x/y/agent");
        assert_string_equal(place.directory, "/x/y");
        assert_memory_equal(place.key, job_key, sizeof(job_key));
    }
    place_environment("unix:/x", "3", "3", text);
    assert_int_equal(agent_place_find(&place), -EINVAL);
    place_environment("unix:/x", "0", "65", text);
    assert_int_equal(agent_place_find(&place), -EINVAL);
    place_environment("unix:/x", "1x", "3", text);
    assert_int_equal(agent_place_find(&place), -EINVAL);
    place_environment("unix:/x", "1", "3", pipe_text);
    assert_int_equal(agent_place_find(&place), -EINVAL);
    place_environment("unix:/x", "1", "3", NULL);
    assert_int_equal(agent_place_find(&place), -EINVAL);
    place_environment(NULL, "1", "3", text);
    assert_int_equal(agent_place_find(&place), -EINVAL);
    place_environment(NULL, NULL, NULL, NULL);
    close(fd);
    close(pipes[0]);
    close(pipes[1]);
}

static void test_bad_addresses_are_refused(void **state)
{
    static const char *const bad[] = {"",        "x",          "unix:",         "unix:relative", "tcp:1.2.3.4",
                                      "tcp::80", "tcp:a.b:80", "tcp:1.2.3.4:x", "udp:1.2.3.4:5"};
    struct sockaddr_storage address;
    socklen_t address_bytes;
    struct agent *agent;
    char text[AGENT_ADDRESS_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        assert_int_equal(agent_socket_parse(bad[i], &address, &address_bytes), -EINVAL);
    assert_int_equal(agent_socket_parse("tcp:[::1]:80", &address, &address_bytes), 0);
    assert_int_equal(address.ss_family, AF_INET6);
    assert_int_equal(agent_create("unix:/nonexistent/agent", 1, job_key, text, sizeof(text), &agent), -ENOENT);
    assert_int_equal(agent_create("tcp:192.0.2.1:0", 1, job_key, text, sizeof(text), &agent), -EADDRNOTAVAIL);
}

static void test_nobody_answers(void **state)
{
    struct agent_place place = {.nodes_count = 1, .address = "unix:/nonexistent/agent"};
    struct agent_link *link;
    uint64_t base;

    (void)state;
    assert_int_equal(agent_connect(&place, 1, SECOND_NS, &link, &base), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_meet_and_agree_on_a_base),
        cmocka_unit_test(test_a_full_job_meets),
        cmocka_unit_test(test_no_base_is_free_everywhere),
        cmocka_unit_test(test_over_tcp),
        cmocka_unit_test(test_leave_death_and_suspicion_change_the_view),
        cmocka_unit_test(test_a_rank_that_ends_early_ends_the_start),
        cmocka_unit_test(test_a_node_that_hangs_up_before_it_met),
        cmocka_unit_test(test_not_all_join_in_time),
        cmocka_unit_test(test_strangers_are_refused),
        cmocka_unit_test(test_the_end_of_the_agent_is_noticed),
        cmocka_unit_test(test_garbage_costs_only_its_connection),
        cmocka_unit_test(test_silent_connections_are_bounded_and_end),
        cmocka_unit_test(test_records_round_trip_and_refuse),
        cmocka_unit_test(test_a_place_is_found),
        cmocka_unit_test(test_bad_addresses_are_refused),
        cmocka_unit_test(test_nobody_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
