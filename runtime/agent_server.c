/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_server.c - the job's agent: lets nodes in, tells each the others' addresses, and sends views.
 *
 * Runs on dsmrun's thread; never blocks. What clients send is checked: a wrong byte costs that connection, and a rank
 * whose connection ends before it left is dead for the job. Before its HELLO (which must prove the key within
 * HELLO_TIMEOUT_NS) a client costs one of a bounded number of slots and nothing else.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "cluster/agree.h"
#include "runtime/agent.h"
#include "runtime/agent_socket.h"
#include "runtime/agent_wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define HELLO_TIMEOUT_NS     5000000000u
#define STRANGERS_LOGGED_MAX 8
#define OUT_BYTES_MAX        (AGENT_RECORD_MAX + 128 * AGENT_SMALL_MAX) /* more views than a job can have */

enum client_state {
    CLIENT_FREE = 0,
    CLIENT_NEW,     /* must say HELLO before its deadline */
    CLIENT_GREETED, /* waits for the window base */
    CLIENT_MEETING, /* has the base; must MEET */
    CLIENT_MET,     /* member once all have met */
    CLIENT_LEFT,
    CLIENT_ENDING, /* refused: hang up when the sentence is sent */
};

struct agent_client {
    enum client_state state;
    int fd;
    unsigned rank; /* valid from CLIENT_GREETED on */
    uint64_t deadline_ns;
    size_t in_bytes;
    uint8_t in[AGENT_SMALL_MAX];
    uint8_t *out; /* what the socket did not take yet */
    size_t out_bytes, out_sent;
};

struct agent {
    int listener;
    unsigned nodes_count;
    uint8_t key[AGENT_KEY_BYTES];
    struct agree agree;
    uint64_t bases_free;
    bool is_window_agreed;
    bool is_doomed; /* a rank ended before all had met: the job cannot start */
    unsigned doomed_by;
    unsigned strangers_count; /* connections that ended before they proved the key */
    char directory[108];      /* "": not ours */
    char socket_path[108];
    struct agent_welcome welcome;
    unsigned clients_max;
    struct agent_client clients[]; /* clients_max */
};

static void client_close(struct agent_client *client)
{
    close(client->fd);
    free(client->out);
    *client = (struct agent_client){.state = CLIENT_FREE};
}

static void client_flush(struct agent_client *client)
{
    while (client->out_sent < client->out_bytes) {
        ssize_t sent = send(client->fd, client->out + client->out_sent, client->out_bytes - client->out_sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return; /* full, or broken: the read side notices */
        client->out_sent += (size_t)sent;
    }
    free(client->out);
    client->out = NULL;
    client->out_bytes = client->out_sent = 0;
}

/* A client that cannot be told something is cut off: its read side sees the end. */
static void client_send(struct agent_client *client, const uint8_t *record, size_t size_bytes)
{
    uint8_t *grown = NULL;

    if (client->out_bytes + size_bytes <= OUT_BYTES_MAX)
        grown = realloc(client->out, client->out_bytes + size_bytes);
    if (grown == NULL) {
        log_error("rank %u does not read what the agent says, or no memory is left: its connection is closed",
                  client->rank);
        (void)shutdown(client->fd, SHUT_RDWR);
        return;
    }
    client->out = grown;
    memcpy(client->out + client->out_bytes, record, size_bytes);
    client->out_bytes += size_bytes;
    client_flush(client);
}

__attribute__((format(printf, 3, 4))) static void client_refuse(struct agent_client *client, int code,
                                                                const char *format, ...)
{
    struct agent_refusal refusal = {.code = code};
    uint8_t record[AGENT_SMALL_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(refusal.sentence, sizeof(refusal.sentence), format, arguments);
    va_end(arguments);
    client->state = CLIENT_ENDING;
    client->deadline_ns = os_now_ns() + HELLO_TIMEOUT_NS;
    client_send(client, record, agent_refuse_encode(&refusal, record));
}

static void client_refuse_doomed(const struct agent *agent, struct agent_client *client)
{
    client_refuse(client, -EHOSTDOWN, "rank %u ended before all nodes had joined", agent->doomed_by);
}

static bool client_is_node(const struct agent_client *client)
{
    return client->state == CLIENT_GREETED || client->state == CLIENT_MEETING || client->state == CLIENT_MET;
}

static void send_to_nodes(struct agent *agent, const uint8_t *record, size_t size_bytes)
{
    for (unsigned i = 0; i < agent->clients_max; i++) {
        if (client_is_node(&agent->clients[i]))
            client_send(&agent->clients[i], record, size_bytes);
    }
}

/* The node that is no longer in it hears of the view too, if it still listens. */
static void send_view(struct agent *agent)
{
    uint8_t record[AGENT_SMALL_MAX];

    send_to_nodes(agent, record, agent_view_encode(&agent->agree.view, record));
}

static void rank_died(struct agent *agent, unsigned rank)
{
    bool is_new_view = agree_exited(&agent->agree, node_of(rank));

    if (is_new_view) {
        send_view(agent);
    } else if (!agent->agree.is_started && !agent->is_doomed) {
        agent->is_doomed = true;
        agent->doomed_by = rank;
        for (unsigned i = 0; i < agent->clients_max; i++) {
            if (client_is_node(&agent->clients[i]))
                client_refuse_doomed(agent, &agent->clients[i]);
        }
    }
}

static void agree_on_window(struct agent *agent)
{
    unsigned greeted = 0;
    uint8_t record[AGENT_SMALL_MAX];
    size_t size;

    for (unsigned i = 0; i < agent->clients_max; i++)
        greeted += agent->clients[i].state == CLIENT_GREETED;
    if (greeted < agent->nodes_count)
        return;
    agent->is_window_agreed = true;
    for (unsigned i = 0; agent_window_base(i) != 0 && agent->welcome.window_base == 0; i++) {
        if ((agent->bases_free >> i & 1) != 0)
            agent->welcome.window_base = agent_window_base(i);
    }
    size = agent_window_encode(agent->welcome.window_base, record);
    for (unsigned i = 0; i < agent->clients_max; i++) {
        if (agent->clients[i].state == CLIENT_GREETED) {
            agent->clients[i].state = CLIENT_MEETING;
            client_send(&agent->clients[i], record, size);
        }
    }
}

/* In constant time: how long it takes says nothing about where two keys differ. */
static bool keys_are_equal(const uint8_t *a, const uint8_t *b)
{
    volatile uint8_t difference = 0;

    for (unsigned i = 0; i < AGENT_KEY_BYTES; i++)
        difference = (uint8_t)(difference | (a[i] ^ b[i]));
    return difference == 0;
}

static bool rank_is_taken(const struct agent *agent, unsigned rank)
{
    for (unsigned i = 0; i < agent->clients_max; i++) {
        if (client_is_node(&agent->clients[i]) && agent->clients[i].rank == rank)
            return true;
    }
    return agent->agree.status[rank] != AGREE_ABSENT;
}

/* Whoever can connect could fill the log. */
static void stranger_log(struct agent *agent, const char *what)
{
    if (agent->strangers_count++ < STRANGERS_LOGGED_MAX)
        log_warn("a connection to the job's agent %s and is closed", what);
}

static void handle_hello(struct agent *agent, struct agent_client *client, const struct agent_hello *hello)
{
    if (!keys_are_equal(hello->key, agent->key)) {
        stranger_log(agent, "did not know the job's key");
        client_refuse(client, -EACCES, "it does not know the job's key");
    } else if (hello->version != AGENT_WIRE_VERSION) {
        client_refuse(client, -EPROTO, "it speaks version %u, dsmrun speaks %u: use the same installation of both",
                      hello->version, AGENT_WIRE_VERSION);
    } else if (hello->nodes_count != agent->nodes_count || hello->rank >= agent->nodes_count) {
        client_refuse(client, -EPROTO, "rank %u of %u is not in this job of %u", hello->rank, hello->nodes_count,
                      agent->nodes_count);
    } else if (agent->is_doomed) {
        client_refuse_doomed(agent, client);
    } else if (rank_is_taken(agent, hello->rank)) {
        client_refuse(client, -EALREADY, "rank %u is or was a node of this job already", hello->rank);
    } else {
        client->state = CLIENT_GREETED;
        client->rank = hello->rank;
        client->deadline_ns = UINT64_MAX;
        agent->bases_free &= hello->bases_free;
        agree_on_window(agent);
    }
}

static void send_welcome(struct agent *agent)
{
    uint8_t *record = malloc(AGENT_RECORD_MAX);

    agent->welcome.view = agent->agree.view;
    if (record == NULL) {
        log_error("no memory to tell the nodes of each other");
        for (unsigned i = 0; i < agent->clients_max; i++) {
            if (client_is_node(&agent->clients[i]))
                client_refuse(&agent->clients[i], -ENOMEM, "dsmrun has no memory");
        }
        return;
    }
    send_to_nodes(agent, record, agent_welcome_encode(&agent->welcome, agent->nodes_count, record));
    free(record);
}

/* 0, or -EBADMSG: this record is not allowed here. */
static int handle_record(struct agent *agent, struct agent_client *client, const uint8_t *body, size_t body_bytes)
{
    struct agent_hello hello;
    struct node_id suspect;

    switch (client->state) {
    case CLIENT_NEW:
        if (agent_hello_decode(body, body_bytes, &hello) < 0)
            return -EBADMSG;
        handle_hello(agent, client, &hello);
        return 0;
    case CLIENT_MEETING:
        if (agent_meet_decode(body, body_bytes, &agent->welcome.peers[client->rank]) < 0)
            return -EBADMSG;
        client->state = CLIENT_MET;
        if (agree_join(&agent->agree, node_of(client->rank)))
            send_welcome(agent);
        return 0;
    case CLIENT_MET:
        if (body[0] == AGENT_LEAVE && body_bytes == 1) {
            client->state = CLIENT_LEFT;
            if (agree_leave(&agent->agree, node_of(client->rank)))
                send_view(agent);
            return 0;
        }
        if (agent_suspect_decode(body, body_bytes, &suspect) < 0)
            return -EBADMSG;
        if (agree_suspect(&agent->agree, node_of(client->rank), suspect)) {
            log_warn("rank %u does not hear from rank %u, which is out of the job now", client->rank, suspect.index);
            send_view(agent);
        }
        return 0;
    case CLIENT_FREE:
    case CLIENT_GREETED:
    case CLIENT_LEFT:
    case CLIENT_ENDING:
        break;
    }
    return -EBADMSG;
}

/* Handles the whole records in client->in. 0, or -EBADMSG. */
static int client_parse(struct agent *agent, struct agent_client *client)
{
    while (client->in_bytes >= AGENT_LENGTH_BYTES && client->state != CLIENT_ENDING) {
        size_t body_max = client->state == CLIENT_NEW ? AGENT_HELLO_BYTES : sizeof(client->in) - AGENT_LENGTH_BYTES;
        size_t body_bytes, record_bytes;

        if (agent_length_decode(client->in, body_max, &body_bytes) < 0)
            return -EBADMSG;
        record_bytes = AGENT_LENGTH_BYTES + body_bytes;
        if (client->in_bytes < record_bytes)
            return 0;
        if (handle_record(agent, client, client->in + AGENT_LENGTH_BYTES, body_bytes) < 0)
            return -EBADMSG;
        client->in_bytes -= record_bytes;
        memmove(client->in, client->in + record_bytes, client->in_bytes);
    }
    return 0;
}

/* The connection is over: what that means depends on how far it came. */
static void client_ended(struct agent *agent, struct agent_client *client)
{
    bool was_node = client_is_node(client);
    unsigned rank = client->rank;

    client_close(client);
    if (was_node)
        rank_died(agent, rank);
}

/* Reads and handles all that is there. */
static void client_read(struct agent *agent, struct agent_client *client)
{
    while (client->state != CLIENT_FREE) {
        ssize_t got;

        if (client->state == CLIENT_ENDING)
            client->in_bytes = 0;
        got = recv(client->fd, client->in + client->in_bytes, sizeof(client->in) - client->in_bytes, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0) {
            client_ended(agent, client);
            return;
        }
        client->in_bytes += (size_t)got;
        if (client->state != CLIENT_ENDING && client_parse(agent, client) < 0) {
            if (client->state == CLIENT_NEW)
                stranger_log(agent, "sent no proper greeting");
            else
                log_warn("rank %u sent the agent a record that is broken or not due", client->rank);
            client_ended(agent, client);
        }
    }
}

static struct agent_client *client_find_free(struct agent *agent)
{
    for (unsigned i = 0; i < agent->clients_max; i++) {
        if (agent->clients[i].state == CLIENT_FREE)
            return &agent->clients[i];
    }
    return NULL;
}

static void accept_all(struct agent *agent)
{
    struct agent_client *client;

    while ((client = client_find_free(agent)) != NULL) {
        int fd = accept4(agent->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0)
            return;
        agent_socket_tune(fd);
        *client = (struct agent_client){.state = CLIENT_NEW, .fd = fd, .deadline_ns = os_now_ns() + HELLO_TIMEOUT_NS};
    }
}

static bool client_has_deadline(const struct agent_client *client)
{
    return client->state == CLIENT_NEW || client->state == CLIENT_ENDING;
}

void agent_serve(struct agent *agent)
{
    uint64_t now_ns;

    accept_all(agent);
    for (unsigned i = 0; i < agent->clients_max; i++) {
        if (agent->clients[i].state != CLIENT_FREE) {
            client_flush(&agent->clients[i]);
            client_read(agent, &agent->clients[i]);
        }
    }
    now_ns = os_now_ns();
    for (unsigned i = 0; i < agent->clients_max; i++) {
        struct agent_client *client = &agent->clients[i];

        if (client_has_deadline(client) &&
            (client->deadline_ns <= now_ns || (client->state == CLIENT_ENDING && client->out_bytes == 0)))
            client_ended(agent, client);
    }
}

int agent_poll(const struct agent *agent, struct pollfd *descriptors, int count)
{
    int used = 0;
    bool has_room = false;

    for (unsigned i = 0; i < agent->clients_max; i++) {
        const struct agent_client *client = &agent->clients[i];

        if (client->state == CLIENT_FREE) {
            has_room = true;
        } else if (used < count) {
            descriptors[used++] =
                (struct pollfd){.fd = client->fd, .events = (short)(client->out_bytes > 0 ? POLLIN | POLLOUT : POLLIN)};
        }
    }
    /* When every slot is taken, new connections wait in the kernel until one ends. */
    if (has_room && used < count)
        descriptors[used++] = (struct pollfd){.fd = agent->listener, .events = POLLIN};
    return used;
}

uint64_t agent_deadline_ns(const struct agent *agent)
{
    uint64_t deadline_ns = UINT64_MAX;

    for (unsigned i = 0; i < agent->clients_max; i++) {
        if (client_has_deadline(&agent->clients[i]) && agent->clients[i].deadline_ns < deadline_ns)
            deadline_ns = agent->clients[i].deadline_ns;
    }
    return deadline_ns;
}

void agent_exited(struct agent *agent, unsigned rank)
{
    for (unsigned i = 0; i < agent->clients_max; i++) {
        struct agent_client *client = &agent->clients[i];

        if (client_is_node(client) && client->rank == rank)
            client_read(agent, client);
    }
    rank_died(agent, rank);
}

const char *agent_directory(const struct agent *agent)
{
    return agent->directory[0] == '\0' ? NULL : agent->directory;
}

/* A fresh directory that only this user can enter, and the socket's address in it. */
static int directory_create(struct agent *agent, char *ret_address, size_t size)
{
    const char *parents[] = {getenv("XDG_RUNTIME_DIR"), "/tmp"};
    int failure = ENOENT;

    for (size_t i = 0; i < ARRAY_COUNT(parents); i++) {
        /* A socket's path must fit in 107 bytes. */
        if (parents[i] == NULL || parents[i][0] != '/' || strlen(parents[i]) > 64)
            continue;
        snprintf(agent->directory, sizeof(agent->directory), "%s/dsmrun-XXXXXX", parents[i]);
        if (mkdtemp(agent->directory) != NULL) {
            snprintf(ret_address, size, "unix:%s/agent", agent->directory);
            return 0;
        }
        failure = errno;
    }
    agent->directory[0] = '\0';
    return error_set(-failure, "a directory for the job's socket under $XDG_RUNTIME_DIR or /tmp: %s",
                     strerror(failure));
}

/* The port the kernel chose, written into the address. */
static int address_of_listener(const struct agent *agent, char *ret_address, size_t size)
{
    struct sockaddr_storage address;
    socklen_t address_bytes = sizeof(address);
    char host[NI_MAXHOST], port[NI_MAXSERV];
    int length;

    if (getsockname(agent->listener, (struct sockaddr *)&address, &address_bytes) < 0)
        return error_set(-errno, "the agent's own address: %s", strerror(errno));
    if (getnameinfo((const struct sockaddr *)&address, address_bytes, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return error_set(-EINVAL, "the agent's own address has no numeric form");
    length = snprintf(ret_address, size, address.ss_family == AF_INET6 ? "tcp:[%s]:%s" : "tcp:%s:%s", host, port);
    return length < 0 || (size_t)length >= size ? error_set(-ENAMETOOLONG, "the agent's address is too long") : 0;
}

/* Binds and listens; on success agent->socket_path is ours to unlink. */
static int listener_open(struct agent *agent, const char *text, char *ret_address, size_t size)
{
    struct sockaddr_storage address;
    socklen_t address_bytes;
    int result = agent_socket_parse(text, &address, &address_bytes);

    if (result < 0)
        return result;
    agent->listener = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (agent->listener < 0)
        return error_set(-errno, "a socket for the job's agent: %s", strerror(errno));
    if (bind(agent->listener, (const struct sockaddr *)&address, address_bytes) < 0) {
        result = error_set(-errno, "the job's agent cannot listen at %s: %s", text, strerror(errno));
        goto close_listener;
    }
    if (address.ss_family == AF_UNIX)
        snprintf(agent->socket_path, sizeof(agent->socket_path), "%s", text + strlen("unix:"));
    if (listen(agent->listener, NODES_MAX) < 0) {
        result = error_set(-errno, "the job's agent cannot listen at %s: %s", text, strerror(errno));
        goto unlink_socket;
    }
    if (address.ss_family != AF_UNIX)
        result = address_of_listener(agent, ret_address, size);
    else if (ret_address != text)
        snprintf(ret_address, size, "%s", text);
    if (result == 0)
        return 0;

unlink_socket:
    if (agent->socket_path[0] != '\0')
        (void)unlink(agent->socket_path);
close_listener:
    close(agent->listener);
    return result;
}

int agent_create(const char *address, unsigned nodes_count, const uint8_t key[AGENT_KEY_BYTES], char *ret_address,
                 size_t size, struct agent **ret_agent)
{
    unsigned clients_max = AGENT_CLIENTS_PER_NODE * nodes_count;
    struct agent *agent;
    int result = 0;

    ASSERT(nodes_count >= 1 && nodes_count <= NODES_MAX);
    agent = calloc(1, sizeof(*agent) + clients_max * sizeof(agent->clients[0]));
    if (agent == NULL)
        return error_set(-ENOMEM, "no memory for the job's agent");
    agent->nodes_count = nodes_count;
    agent->clients_max = clients_max;
    agent->bases_free = UINT64_MAX;
    agent->welcome.job = os_random();
    memcpy(agent->key, key, AGENT_KEY_BYTES);
    agree_init(&agent->agree, nodes_count);
    if (address == NULL) {
        result = directory_create(agent, ret_address, size);
        address = ret_address;
    }
    if (result < 0)
        goto free_agent;
    result = listener_open(agent, address, ret_address, size);
    if (result < 0)
        goto remove_directory;
    *ret_agent = agent;
    return 0;

remove_directory:
    if (agent->directory[0] != '\0')
        (void)rmdir(agent->directory);
free_agent:
    free(agent);
    return result;
}

void agent_destroy(struct agent *agent)
{
    if (agent == NULL)
        return;
    for (unsigned i = 0; i < agent->clients_max; i++) {
        if (agent->clients[i].state != CLIENT_FREE)
            client_close(&agent->clients[i]);
    }
    close(agent->listener);
    if (agent->socket_path[0] != '\0')
        (void)unlink(agent->socket_path);
    if (agent->directory[0] != '\0')
        (void)rmdir(agent->directory);
    explicit_bzero(agent->key, sizeof(agent->key));
    free(agent);
}
