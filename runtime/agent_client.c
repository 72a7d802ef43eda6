/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_client.c - a node's connection to its job's agent.
 *
 * Runs in the thread that calls dsm_init(), then in the shard. Never reads past the record it wants, so that the
 * descriptor is readable exactly when there is something to read.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "runtime/agent.h"
#include "runtime/agent_socket.h"
#include "runtime/agent_wire.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct agent_link {
    int fd;
    unsigned nodes_count;
    size_t record_have;               /* bytes of the record that is being read */
    uint8_t record[AGENT_RECORD_MAX]; /* length and body */
};

/* The lowest one leaves room below 512 GiB, which the thread sanitizer wants. */
static const uint64_t window_bases[] = {
    0x100000000000, 0x200000000000, 0x300000000000, 0x080000000000, 0x400000000000, 0x500000000000, 0x001000000000,
};

uint64_t agent_window_base(unsigned candidate)
{
    return candidate < ARRAY_COUNT(window_bases) ? window_bases[candidate] : 0;
}

/* 0 when `events` came (or an error to be met by the next call), -ETIMEDOUT. */
static int link_wait(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd one = {.fd = fd, .events = events};
        uint64_t now_ns = os_now_ns();
        uint64_t left_ms = deadline_ns <= now_ns ? 0 : (deadline_ns - now_ns) / 1000000 + 1;
        int ready = poll(&one, 1, left_ms > 60000 ? 60000 : (int)left_ms);

        if (ready > 0)
            return 0;
        if (left_ms == 0)
            return -ETIMEDOUT;
    }
}

/*
 * Reads towards one whole record; never blocks. 1 and its body, 0: more must come, or -EPIPE, -EPROTO.
 * The body is valid until the next call.
 */
static int link_take_record(struct agent_link *link, const uint8_t **ret_body, size_t *ret_body_bytes)
{
    for (;;) {
        size_t want = AGENT_LENGTH_BYTES;
        ssize_t got;

        if (link->record_have >= AGENT_LENGTH_BYTES) {
            size_t body_bytes;

            if (agent_length_decode(link->record, AGENT_RECORD_MAX - AGENT_LENGTH_BYTES, &body_bytes) < 0)
                return -EPROTO;
            want += body_bytes;
            if (link->record_have == want) {
                link->record_have = 0;
                *ret_body = link->record + AGENT_LENGTH_BYTES;
                *ret_body_bytes = body_bytes;
                return 1;
            }
        }
        got = recv(link->fd, link->record + link->record_have, want - link->record_have, 0);
        if (got < 0 && errno == EAGAIN)
            return 0;
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return -EPIPE;
        link->record_have += (size_t)got;
    }
}

static int link_refused(const uint8_t *body, size_t body_bytes)
{
    struct agent_refusal refusal;

    if (agent_refuse_decode(body, body_bytes, &refusal) < 0)
        return error_set(-EPROTO, "the job's agent sent something else than was due");
    return error_set(refusal.code, "the job's agent refused this node: %s", refusal.sentence);
}

/* Waits for a record of `type`; a refusal by the agent is the result. */
static int link_await(struct agent_link *link, enum agent_record type, uint64_t deadline_ns, const uint8_t **ret_body,
                      size_t *ret_body_bytes)
{
    for (;;) {
        int result = link_take_record(link, ret_body, ret_body_bytes);

        if (result > 0 && (*ret_body)[0] == (uint8_t)type)
            return 0;
        if (result > 0)
            return link_refused(*ret_body, *ret_body_bytes);
        if (result == -EPIPE)
            return error_set(result, "the job's agent hung up: dsmrun ended while this node was joining");
        if (result < 0)
            return error_set(result, "what answers at DSM_AGENT is not a job's agent");
        if (link_wait(link->fd, POLLIN, deadline_ns) < 0)
            return error_set(-ETIMEDOUT,
                             "not all of the job's %u nodes joined in time: does every rank call dsm_init()?",
                             link->nodes_count);
    }
}

static int link_send(struct agent_link *link, const uint8_t *record, size_t size_bytes, uint64_t deadline_ns)
{
    while (size_bytes > 0) {
        ssize_t sent = send(link->fd, record, size_bytes, MSG_NOSIGNAL);

        if (sent >= 0) {
            record += sent;
            size_bytes -= (size_t)sent;
        } else if (errno == EAGAIN) {
            if (link_wait(link->fd, POLLOUT, deadline_ns) < 0)
                return error_set(-ETIMEDOUT, "the job's agent does not read");
        } else if (errno != EINTR) {
            return error_set(-EPIPE, "the job's agent is gone: %s", strerror(errno));
        }
    }
    return 0;
}

/* One attempt. A full backlog of a unix socket is -EAGAIN. */
static int connect_once(int fd, const struct sockaddr_storage *address, socklen_t address_bytes, uint64_t deadline_ns)
{
    int failure = 0;
    socklen_t failure_bytes = sizeof(failure);

    if (connect(fd, (const struct sockaddr *)address, address_bytes) == 0)
        return 0;
    if (errno != EINPROGRESS && errno != EINTR)
        return -errno;
    if (link_wait(fd, POLLOUT, deadline_ns) < 0)
        return -ETIMEDOUT;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &failure_bytes) < 0)
        return -errno;
    return -failure;
}

static int link_connect(const char *text, uint64_t deadline_ns, int *ret_fd)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    struct sockaddr_storage address;
    socklen_t address_bytes;
    int result = agent_socket_parse(text, &address, &address_bytes);
    int fd;

    if (result < 0)
        return result;
    fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(-errno, "a socket for the job's agent: %s", strerror(errno));
    while ((result = connect_once(fd, &address, address_bytes, deadline_ns)) == -EAGAIN && os_now_ns() < deadline_ns)
        nanosleep(&pause, NULL);
    if (result < 0) {
        close(fd);
        return error_set(result == -EAGAIN ? -ETIMEDOUT : result,
                         "connect to the job's agent at %s: %s (did dsmrun end, or is DSM_AGENT left over?)", text,
                         strerror(-result));
    }
    agent_socket_tune(fd);
    *ret_fd = fd;
    return 0;
}

static uint64_t deadline_after(uint64_t timeout_ns)
{
    uint64_t now_ns = os_now_ns();

    return timeout_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + timeout_ns;
}

static int say_hello(struct agent_link *link, const struct agent_place *place, uint64_t bases_free,
                     uint64_t deadline_ns, uint64_t *ret_window_base)
{
    struct agent_hello hello = {.version = AGENT_WIRE_VERSION,
                                .rank = (uint16_t)place->rank,
                                .nodes_count = (uint16_t)place->nodes_count,
                                .bases_free = bases_free};
    uint8_t record[AGENT_SMALL_MAX];
    const uint8_t *body;
    size_t body_bytes;
    int result;

    memcpy(hello.key, place->key, AGENT_KEY_BYTES);
    result = link_send(link, record, agent_hello_encode(&hello, record), deadline_ns);
    /* An agent that refuses early hangs up on what we send: its sentence says more than our broken pipe. */
    if (result < 0 && result != -EPIPE)
        return result;
    result = link_await(link, AGENT_WINDOW, deadline_ns, &body, &body_bytes);
    if (result < 0)
        return result;
    if (agent_window_decode(body, body_bytes, ret_window_base) < 0)
        return error_set(-EPROTO, "the job's agent sent a broken window base");
    return 0;
}

int agent_connect(const struct agent_place *place, uint64_t bases_free, uint64_t timeout_ns,
                  struct agent_link **ret_link, uint64_t *ret_window_base)
{
    uint64_t deadline_ns = deadline_after(timeout_ns);
    struct agent_link *link = malloc(sizeof(*link));
    int result;

    ASSERT(!place->is_alone && place->nodes_count >= 1 && place->nodes_count <= NODES_MAX);
    if (link == NULL)
        return error_set(-ENOMEM, "no memory for the connection to the job's agent");
    link->record_have = 0;
    link->nodes_count = place->nodes_count;
    result = link_connect(place->address, deadline_ns, &link->fd);
    if (result < 0)
        goto free_link;
    result = say_hello(link, place, bases_free, deadline_ns, ret_window_base);
    if (result < 0)
        goto close_link;
    *ret_link = link;
    return 0;

close_link:
    close(link->fd);
free_link:
    free(link);
    return result;
}

int agent_meet(struct agent_link *link, const struct agent_peer *self, uint64_t timeout_ns,
               struct agent_welcome *ret_welcome)
{
    uint64_t deadline_ns = deadline_after(timeout_ns);
    uint8_t record[AGENT_SMALL_MAX];
    const uint8_t *body;
    size_t body_bytes;
    int result = link_send(link, record, agent_meet_encode(self, record), deadline_ns);

    if (result < 0 && result != -EPIPE)
        return result;
    result = link_await(link, AGENT_WELCOME, deadline_ns, &body, &body_bytes);
    if (result < 0)
        return result;
    if (agent_welcome_decode(body, body_bytes, link->nodes_count, ret_welcome) < 0)
        return error_set(-EPROTO, "the job's agent sent a broken list of peers");
    return 0;
}

void agent_link_host(const struct agent_link *link, char ret_host[AGENT_HOST_MAX])
{
    struct sockaddr_storage address;
    socklen_t address_bytes = sizeof(address);

    if (getsockname(link->fd, (struct sockaddr *)&address, &address_bytes) == 0 && address.ss_family != AF_UNIX &&
        getnameinfo((const struct sockaddr *)&address, address_bytes, ret_host, AGENT_HOST_MAX, NULL, 0,
                    NI_NUMERICHOST) == 0)
        return;
    snprintf(ret_host, AGENT_HOST_MAX, "127.0.0.1");
}

int agent_link_descriptor(const struct agent_link *link)
{
    return link->fd;
}

int agent_link_read(struct agent_link *link, struct view *ret_view)
{
    const uint8_t *body;
    size_t body_bytes;
    int result = link_take_record(link, &body, &body_bytes);

    if (result == 0)
        return 0;
    if (result > 0 && agent_view_decode(body, body_bytes, link->nodes_count, ret_view) == 0)
        return 1;
    if (result != -EPIPE)
        log_error("the job's agent sent a broken record; its connection is closed");
    /* What came after a broken record is never looked at. */
    (void)shutdown(link->fd, SHUT_RDWR);
    return -EPIPE;
}

/* From the shard: a few bytes into an empty socket buffer. An agent that does not take them is dead or will be soon. */
static void link_say(struct agent_link *link, const uint8_t *record, size_t size_bytes)
{
    ssize_t sent = send(link->fd, record, size_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (sent != (ssize_t)size_bytes)
        (void)shutdown(link->fd, SHUT_RDWR);
}

void agent_link_suspect(struct agent_link *link, struct node_id peer)
{
    uint8_t record[AGENT_SMALL_MAX];

    link_say(link, record, agent_suspect_encode(peer, record));
}

void agent_link_leave(struct agent_link *link)
{
    uint8_t record[AGENT_SMALL_MAX];

    link_say(link, record, agent_leave_encode(record));
}

void agent_link_close(struct agent_link *link)
{
    if (link == NULL)
        return;
    close(link->fd);
    free(link);
}
