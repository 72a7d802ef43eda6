/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk_stream.c - the connections of bulk reads: a pool at the reader, a thread for each at the home.
 *
 * A peer proves with its greeting that it belongs to the job; what it asks is checked by the shard before anything is
 * kept for it (bulk_serve_open), and a peer that stops reading is dropped after STALL_SECONDS, so that a run is never
 * kept for ever.
 */
#include "runtime/bulk_stream.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "runtime/bulk.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#define GREETING_BYTES  24
#define GREETING_MAGIC  0x746d2d62756c6b31U /* with the version in its last byte */
#define ASK_BYTES       16
#define CONNECTIONS_MAX 128 /* served at a time */
#define IDLE_MAX        8   /* connections kept to one home */
#define STALL_SECONDS   5

struct stream_peer {
    struct sockaddr_storage address;
    socklen_t address_bytes; /* 0: unknown */
    int idle[IDLE_MAX];
    unsigned idle_count;
};

struct connection {
    struct bulk_stream *stream;
    pthread_t thread;
    int fd; /* -1: the slot is free */
    bool is_over;
};

struct bulk_stream {
    struct node *node;
    int listener, stop_fd;
    pthread_t acceptor;
    pthread_mutex_t mutex; /* the fields below */
    struct stream_peer peers[NODES_MAX];
    struct connection connections[CONNECTIONS_MAX];
};

/* ---- sockets --------------------------------------------------------------------------------------------------- */

static int address_parse(const char *text, size_t size, struct sockaddr_storage *ret_address, socklen_t *ret_bytes)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    char host[64];
    char whole[96];
    unsigned port;

    if (size >= sizeof(whole))
        return -EINVAL;
    memcpy(whole, text, size);
    whole[size] = '\0';
    if (sscanf(whole, "%63s %u", host, &port) != 2 || port > 65535)
        return -EINVAL;
    v4.sin_port = v6.sin6_port = htons((uint16_t)port);
    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
        memcpy(ret_address, &v4, sizeof(v4));
        *ret_bytes = sizeof(v4);
        return 0;
    }
    if (inet_pton(AF_INET6, host, &v6.sin6_addr) != 1)
        return -EINVAL;
    memcpy(ret_address, &v6, sizeof(v6));
    *ret_bytes = sizeof(v6);
    return 0;
}

static void socket_tune(int fd)
{
    struct timeval stall = {.tv_sec = STALL_SECONDS};
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    /* A control that paces (bbr) holds bursts on idle connections back; where cubic is not there the default stays. */
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", sizeof("cubic") - 1);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &stall, sizeof(stall));
}

static int send_all(int fd, const void *bytes, size_t size, int flags)
{
    while (size > 0) {
        ssize_t done = send(fd, bytes, size, MSG_NOSIGNAL | flags);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return -EPIPE;
        bytes = (const char *)bytes + done;
        size -= (size_t)done;
    }
    return 0;
}

static int receive_all(int fd, void *bytes, size_t size)
{
    while (size > 0) {
        ssize_t done = recv(fd, bytes, size, MSG_WAITALL);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 && errno == EFAULT ? -EFAULT : -EPIPE;
        bytes = (char *)bytes + done;
        size -= (size_t)done;
    }
    return 0;
}

/* ---- the home -------------------------------------------------------------------------------------------------- */

static void run_open(struct request *request)
{
    bulk_serve_open(request->node, node_of((unsigned)request->a), request->page, (unsigned)request->b, request);
}

/* The run is not needed any more; the connection's thread does not wait for that. */
struct stream_closing {
    struct loop_call call;
    struct node *node;
    struct node_id reader;
    uint64_t id;
};

static void call_close(struct loop_call *call)
{
    struct stream_closing *closing = CONTAINER_OF(call, struct stream_closing, call);

    bulk_serve_close(closing->node, closing->reader, closing->id);
    free(closing);
}

/* The answer goes out with the first bytes of the run. */
static int answer_send(int fd, int64_t result)
{
    uint64_t bytes = htole64((uint64_t)result);

    return send_all(fd, &bytes, sizeof(bytes), result == 0 ? MSG_MORE : 0);
}

static int file_send(int fd, int file, uint64_t offset, size_t size)
{
    off_t at = (off_t)offset;

    while (size > 0) {
        ssize_t done = sendfile(fd, file, &at, size);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return -EPIPE;
        size -= (size_t)done;
    }
    return 0;
}

/* One request of a reader. Not 0: the connection is over. */
static int connection_serve(struct bulk_stream *stream, int fd, struct node_id reader)
{
    struct node *node = stream->node;
    uint8_t ask[ASK_BYTES];
    struct bytes_reader bytes = {ask, sizeof(ask), false};
    uint64_t page;
    uint32_t offset;
    uint32_t size;
    struct stream_closing *closing;
    int64_t result;
    int error = receive_all(fd, ask, sizeof(ask));
    struct request open = REQUEST(node, run_open, .a = reader.index);

    page = bytes_take_u64(&bytes);
    offset = bytes_take_u32(&bytes);
    size = bytes_take_u32(&bytes);
    if (error != 0 || offset >= PAGE_BYTES || size == 0 || size > EXTENT_BYTES)
        return -EPIPE;
    open.page = page_of(page);
    open.b = (offset + size + PAGE_BYTES - 1) / PAGE_BYTES;
    closing = malloc(sizeof(*closing));
    result = closing == NULL ? -ENOMEM : request_call(&open);
    error = answer_send(fd, result);
    if (result != 0) {
        free(closing);
        return error;
    }
    if (error == 0)
        error = file_send(fd, node->window.memfd, (page << PAGE_SHIFT) + offset, size);
    *closing = (struct stream_closing){{call_close, NULL}, node, reader, open.value};
    loop_post(node->loop, &closing->call);
    return error;
}

static int greeting_check(const struct bulk_stream *stream, int fd, struct node_id *ret_reader)
{
    struct timeval deadline = {.tv_sec = STALL_SECONDS};
    struct timeval forever = {.tv_sec = 0};
    uint8_t greeting[GREETING_BYTES];
    struct bytes_reader bytes = {greeting, sizeof(greeting), false};
    uint64_t magic;
    uint64_t job;
    uint64_t reader;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline));
    if (receive_all(fd, greeting, sizeof(greeting)) != 0)
        return -EPIPE;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof(forever));
    magic = bytes_take_u64(&bytes);
    job = bytes_take_u64(&bytes);
    reader = bytes_take_u64(&bytes);
    if (magic != GREETING_MAGIC || job != stream->node->job || reader >= stream->node->nodes_count)
        return -EACCES;
    *ret_reader = node_of((unsigned)reader);
    return 0;
}

static void *connection_main(void *argument)
{
    struct connection *connection = argument;
    struct bulk_stream *stream = connection->stream;
    struct node_id reader;

    if (greeting_check(stream, connection->fd, &reader) == 0)
        while (connection_serve(stream, connection->fd, reader) == 0)
            ;
    pthread_mutex_lock(&stream->mutex);
    connection->is_over = true;
    shutdown(connection->fd, SHUT_RDWR);
    pthread_mutex_unlock(&stream->mutex);
    return NULL;
}

/* Under the mutex: a slot for a connection, after burying one that is over. */
static struct connection *connection_slot(struct bulk_stream *stream)
{
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *connection = &stream->connections[i];

        if (connection->fd >= 0 && connection->is_over) {
            pthread_join(connection->thread, NULL); /* it is past its last use of the mutex, or about to return */
            close(connection->fd);
            connection->fd = -1;
        }
        if (connection->fd < 0)
            return connection;
    }
    return NULL;
}

static void connection_accept(struct bulk_stream *stream)
{
    int fd = accept4(stream->listener, NULL, NULL, SOCK_CLOEXEC);
    struct connection *connection;

    if (fd < 0)
        return;
    socket_tune(fd);
    pthread_mutex_lock(&stream->mutex);
    connection = connection_slot(stream);
    if (connection != NULL) {
        *connection = (struct connection){.stream = stream, .fd = fd};
        if (os_thread_start(&connection->thread, "tiermesh-bulk", connection_main, connection) == 0)
            fd = -1;
        else
            connection->fd = -1;
    }
    pthread_mutex_unlock(&stream->mutex);
    if (fd >= 0)
        close(fd); /* the reader goes page by page */
}

static void *acceptor_main(void *argument)
{
    struct bulk_stream *stream = argument;
    struct pollfd fds[2] = {{.fd = stream->listener, .events = POLLIN}, {.fd = stream->stop_fd, .events = POLLIN}};

    while (poll(fds, 2, -1) >= 0 || errno == EINTR) {
        if ((fds[1].revents & POLLIN) != 0)
            break;
        if ((fds[0].revents & POLLIN) != 0)
            connection_accept(stream);
    }
    return NULL;
}

/* ---- the reader ------------------------------------------------------------------------------------------------ */

static int connect_new(struct bulk_stream *stream, const struct stream_peer *peer)
{
    uint8_t greeting[GREETING_BYTES];
    struct bytes_writer bytes = {greeting, sizeof(greeting), false};
    int fd = socket(peer->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    socket_tune(fd);
    bytes_put_u64(&bytes, GREETING_MAGIC);
    bytes_put_u64(&bytes, stream->node->job);
    bytes_put_u64(&bytes, stream->node->self.index);
    if (connect(fd, (const struct sockaddr *)&peer->address, peer->address_bytes) != 0 ||
        send_all(fd, greeting, sizeof(greeting), 0) != 0) {
        close(fd);
        return -EAGAIN;
    }
    return fd;
}

static int connection_take(struct bulk_stream *stream, struct node_id home)
{
    struct stream_peer *peer = &stream->peers[home.index];
    int fd = -1;

    pthread_mutex_lock(&stream->mutex);
    if (peer->idle_count > 0)
        fd = peer->idle[--peer->idle_count];
    pthread_mutex_unlock(&stream->mutex);
    if (fd >= 0 || peer->address_bytes == 0)
        return fd >= 0 ? fd : -EAGAIN;
    return connect_new(stream, peer);
}

static void connection_put(struct bulk_stream *stream, struct node_id home, int fd)
{
    struct stream_peer *peer = &stream->peers[home.index];
    bool is_kept;

    pthread_mutex_lock(&stream->mutex);
    is_kept = peer->idle_count < IDLE_MAX;
    if (is_kept)
        peer->idle[peer->idle_count++] = fd;
    pthread_mutex_unlock(&stream->mutex);
    if (!is_kept)
        close(fd);
}

/* The answer, and in the same call what has come of the run. A refusal is the answer alone. */
static int run_receive(int fd, char *buffer, size_t size_bytes, int64_t *ret_result)
{
    uint64_t result = 0;
    struct iovec parts[2] = {{&result, sizeof(result)}, {buffer, size_bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t got = recvmsg(fd, &message, 0);
    size_t have;
    int error = 0;

    if (got <= 0)
        return got < 0 && errno == EFAULT ? -EFAULT : -EPIPE;
    if ((size_t)got < sizeof(result))
        error = receive_all(fd, (char *)&result + got, sizeof(result) - (size_t)got);
    have = (size_t)got > sizeof(result) ? (size_t)got - sizeof(result) : 0;
    *ret_result = (int64_t)le64toh(result);
    if (error == 0 && *ret_result == 0)
        error = receive_all(fd, buffer + have, size_bytes - have);
    return error;
}

static int run_fetch(int fd, struct page_id first, size_t offset_bytes, size_t size_bytes, void *buffer,
                     int64_t *ret_result)
{
    uint8_t ask[ASK_BYTES];
    struct bytes_writer bytes = {ask, sizeof(ask), false};
    int error;

    bytes_put_u64(&bytes, first.index);
    bytes_put_u32(&bytes, (uint32_t)offset_bytes);
    bytes_put_u32(&bytes, (uint32_t)size_bytes);
    error = send_all(fd, ask, sizeof(ask), 0);
    return error != 0 ? error : run_receive(fd, buffer, size_bytes, ret_result);
}

/* A broken connection says nothing about the page: the caller goes page by page, and the protocol finds out. */
int bulk_stream_read(struct bulk_stream *stream, struct node_id home, struct page_id first, size_t offset_bytes,
                     size_t size_bytes, void *buffer)
{
    int64_t result;
    int fd = stream == NULL ? -EAGAIN : connection_take(stream, home);
    int error;

    if (fd < 0)
        return -EAGAIN;
    error = run_fetch(fd, first, offset_bytes, size_bytes, buffer, &result);
    if (error != 0) {
        close(fd);
        return error == -EFAULT ? -EFAULT : -EAGAIN;
    }
    connection_put(stream, home, fd);
    return result < 0 && result > -4096 ? (int)result : 0;
}

/* ---- set-up ---------------------------------------------------------------------------------------------------- */

static int listener_open(struct bulk_stream *stream)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    char text[80];
    socklen_t bytes;
    int size = snprintf(text, sizeof(text), "%s 0", stream->node->config.bind);

    if (address_parse(text, (size_t)size, &address, &bytes) != 0)
        return error_set(-EINVAL, "option bind cannot be '%s': it takes a numeric address", stream->node->config.bind);
    stream->listener = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (stream->listener < 0 || bind(stream->listener, (struct sockaddr *)&address, bytes) != 0 ||
        listen(stream->listener, 64) != 0)
        return error_set(-errno, "listen on %s for bulk reads: %m", stream->node->config.bind);
    return 0;
}

int bulk_stream_open(struct node *node, struct bulk_stream **ret_stream)
{
    struct bulk_stream *stream = calloc(1, sizeof(*stream));
    int error;

    if (stream == NULL)
        return -ENOMEM;
    stream->node = node;
    pthread_mutex_init(&stream->mutex, NULL);
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++)
        stream->connections[i].fd = -1;
    stream->stop_fd = eventfd(0, EFD_CLOEXEC);
    stream->listener = -1;
    error = stream->stop_fd < 0 ? error_set(-errno, "make an eventfd: %m") : listener_open(stream);
    if (error == 0) {
        error = os_thread_start(&stream->acceptor, "tiermesh-accept", acceptor_main, stream);
        if (error == 0) {
            *ret_stream = stream;
            return 0;
        }
        error_set(error, "start a thread for bulk reads: no thread is left");
    }
    if (stream->listener >= 0)
        close(stream->listener);
    if (stream->stop_fd >= 0)
        close(stream->stop_fd);
    free(stream);
    return error;
}

size_t bulk_stream_address(const struct bulk_stream *stream, char *text, size_t size)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);
    uint16_t port;
    int used;

    if (getsockname(stream->listener, (struct sockaddr *)&address, &bytes) != 0)
        return 0;
    port = address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                        : ((struct sockaddr_in6 *)&address)->sin6_port;
    used = snprintf(text, size, "%s %u", stream->node->config.bind, ntohs(port));
    return used > 0 && (size_t)used < size ? (size_t)used : 0;
}

int bulk_stream_peer(struct bulk_stream *stream, struct node_id peer, const char *text, size_t size)
{
    struct stream_peer *entry = &stream->peers[peer.index];

    return address_parse(text, size, &entry->address, &entry->address_bytes);
}

void bulk_stream_close(struct bulk_stream *stream)
{
    uint64_t one = 1;
    ssize_t written = write(stream->stop_fd, &one, sizeof(one));

    ASSERT(written == sizeof(one));
    pthread_join(stream->acceptor, NULL);
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *connection = &stream->connections[i];

        if (connection->fd < 0)
            continue;
        shutdown(connection->fd, SHUT_RDWR);
        pthread_join(connection->thread, NULL);
        close(connection->fd);
    }
    for (unsigned i = 0; i < NODES_MAX; i++)
        while (stream->peers[i].idle_count > 0)
            close(stream->peers[i].idle[--stream->peers[i].idle_count]);
    close(stream->listener);
    close(stream->stop_fd);
    free(stream);
}
