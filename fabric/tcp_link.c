/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_link.c - one connection of one plane: connect, greet, write, read, and its cut. Runs on the loop's thread.
 *
 * Always: a socket is watched exactly while state != LINK_DOWN; bytes are written only while LINK_UP.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "fabric/tcp.h"
#include "fabric/transport.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ATTEMPT_NS     ((uint64_t)5000000000U)
#define BACKOFF_MIN_NS ((uint64_t)1000000U)
#define BACKOFF_MAX_NS ((uint64_t)200000000U)
#define READS_AT_ONCE  4

static void link_ready(struct loop_watch *watch, uint32_t events);
static void link_expired(struct loop_timer *timer);

static struct loop *link_loop(const struct tcp_link *link)
{
    return link->peer->tcp->config.loop;
}

void tcp_link_init(struct tcp_link *link, struct tcp_peer *peer, enum fabric_plane plane)
{
    *link = (struct tcp_link){
        .peer = peer,
        .plane = plane,
        .fd = -1,
        .watch = {.ready = link_ready, .context = link},
        .timer = {.expired = link_expired, .context = link},
    };
}

static int link_watch(struct tcp_link *link, int fd, uint32_t events)
{
    int result;

    link->watch.fd = fd;
    result = loop_watch(link_loop(link), &link->watch, events);
    if (result == 0) {
        link->fd = fd;
        link->wants_write = (events & EPOLLOUT) != 0;
    }
    return result;
}

/* In vain, EPOLLOUT would come for ever: a failure here is a broken connection. */
static void link_want_write(struct tcp_link *link, bool wants_write)
{
    int result;

    if (link->wants_write == wants_write)
        return;
    link->wants_write = wants_write;
    result = loop_rewatch(link_loop(link), &link->watch, EPOLLIN | (wants_write ? (uint32_t)EPOLLOUT : 0));
    if (result != 0)
        tcp_link_cut(link, -result);
}

void tcp_link_close(struct tcp_link *link)
{
    loop_timer_stop(link_loop(link), &link->timer);
    if (link->state == LINK_DOWN)
        return;
    if (link->is_carried) {
        link->peer->tcp->carrier->ops->end(link);
        link->is_carried = false;
        link->carried = NULL;
    } else {
        loop_unwatch(link_loop(link), &link->watch);
        close(link->fd);
        link->fd = -1;
    }
    link->state = LINK_DOWN;
    link->generation++;
    link->greeting_bytes = 0;
    stream_reset(&link->stream);
}

static void link_try_later(struct tcp_link *link)
{
    loop_timer_start(link_loop(link), &link->timer, os_now_ns() + link->backoff_ns);
    link->backoff_ns = link->backoff_ns == 0 ? BACKOFF_MIN_NS : link->backoff_ns * 2;
    if (link->backoff_ns > BACKOFF_MAX_NS)
        link->backoff_ns = BACKOFF_MAX_NS;
}

void tcp_link_cut(struct tcp_link *link, int error)
{
    struct tcp_peer *peer = link->peer;

    if (link->state == LINK_UP) {
        peer->tcp->base.counters.cuts++;
        link->down_since_ns = os_now_ns();
        link->backoff_ns = 0;
        log_debug("connection to node %u (plane %d) is lost: %s", peer->id.index, link->plane, strerror(error));
    }
    tcp_link_close(link);
    peer->trouble = error;
    if (peer->session == 0)
        return;
    if (tcp_connects(peer))
        link_try_later(link);
    tcp_peer_watch_time(peer);
}

/* ---- connecting ------------------------------------------------------------------------------------------------ */

void tcp_link_carry(struct tcp_link *link, void *carried, enum link_state state, uint64_t attempt_ns)
{
    link->is_carried = true;
    link->carried = carried;
    link->state = state;
    loop_timer_start(link_loop(link), &link->timer, os_now_ns() + attempt_ns);
}

void tcp_link_try(struct tcp_link *link)
{
    struct tcp_peer *peer = link->peer;
    struct carrier *carrier = peer->tcp->carrier;
    const struct sockaddr *address = (const struct sockaddr *)&peer->address;
    int result;
    int fd;

    if (carrier != NULL && peer->carrier_address != 0 && carrier->ops->try(link))
        return;
    fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        tcp_link_cut(link, errno);
        return;
    }
    tcp_socket_tune(peer->tcp, fd);
    if (connect(fd, address, peer->address_bytes) != 0 && errno != EINPROGRESS) {
        result = -errno;
        close(fd);
        tcp_link_cut(link, -result);
        return;
    }
    result = link_watch(link, fd, EPOLLOUT);
    if (result != 0) {
        close(fd);
        tcp_link_cut(link, -result);
        return;
    }
    link->state = LINK_CONNECTING;
    loop_timer_start(link_loop(link), &link->timer, os_now_ns() + ATTEMPT_NS);
}

static void link_expired(struct loop_timer *timer)
{
    struct tcp_link *link = timer->context;

    if (link->state == LINK_DOWN)
        tcp_link_try(link);
    else
        tcp_link_cut(link, ETIMEDOUT);
}

/* A new socket's buffer takes a greeting whole. */
static void link_connected(struct tcp_link *link)
{
    uint8_t hello[GREETING_BYTES];
    socklen_t size = sizeof(int);
    int error = 0;

    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    if (error == 0) {
        struct greeting greeting = tcp_hello_next(link);

        link->state = LINK_GREETING;
        greeting_encode(&greeting, hello);
        if (send(link->fd, hello, sizeof(hello), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(hello))
            error = ECONNRESET;
    }
    if (error != 0) {
        tcp_link_cut(link, error);
        return;
    }
    link->greeting_bytes = 0;
    link_want_write(link, false);
}

/* Reads the WELCOME and not a byte more: frames follow. */
static void link_greeting_read(struct tcp_link *link)
{
    struct greeting welcome;
    ssize_t count =
        recv(link->fd, link->greeting + link->greeting_bytes, GREETING_BYTES - link->greeting_bytes, MSG_DONTWAIT);

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0) {
        tcp_link_cut(link, count == 0 ? ECONNRESET : errno);
        return;
    }
    link->greeting_bytes += (size_t)count;
    if (link->greeting_bytes < GREETING_BYTES)
        return;
    if (greeting_decode(link->greeting, &welcome) != 0)
        tcp_peer_fail(link->peer, "something else than a node answers at its address");
    else
        tcp_welcomed(link, &welcome);
}

static void path_note(const struct tcp_link *link)
{
    struct tcp_peer *peer = link->peer;
    struct carrier *carrier = peer->tcp->carrier;

    if (carrier != NULL && !link->is_carried)
        fabric_path_set(&peer->tcp->base, peer->id, link->plane, "tcp: %s",
                        carrier->ops->reason(carrier, peer->id.index));
}

int tcp_link_attach(struct tcp_link *link, int fd, uint64_t received)
{
    struct tcp_peer *peer = link->peer;
    struct fabric *base = &peer->tcp->base;
    uint64_t resends;
    uint64_t generation;
    int result = session_resume(&link->session, received, &resends);

    if (result != 0)
        return result;
    if (fd != link->fd) {
        if (link->state == LINK_UP)
            base->counters.cuts++;
        tcp_link_close(link);
        link->down_since_ns = os_now_ns();
        result = link_watch(link, fd, EPOLLIN);
        if (result != 0) {
            tcp_peer_watch_time(peer);
            return result;
        }
    }
    loop_timer_stop(link_loop(link), &link->timer);
    base->counters.resends += resends;
    link->state = LINK_UP;
    link->backoff_ns = 0;
    link->has_goodbye = false;
    path_note(link);
    generation = link->generation;
    if (!fabric_is_up(base, peer->id))
        fabric_report_up(base, peer->id);
    if (link->generation == generation)
        tcp_link_flush(link);
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

void tcp_link_flush(struct tcp_link *link)
{
    struct session *session = &link->session;
    const uint8_t *bytes;
    size_t size;

    if (link->is_carried) {
        link->peer->tcp->carrier->ops->flush(link);
        return;
    }
    while ((size = session_unsent(session, &bytes)) > 0) {
        ssize_t count = send(link->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno != EAGAIN) {
            tcp_link_cut(link, errno);
            return;
        }
        if (count > 0)
            session_wrote(session, (size_t)count);
        if (count < 0 || (size_t)count < size) {
            link_want_write(link, true);
            return;
        }
    }
    link_want_write(link, false);
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

static void link_goodbye(struct tcp_link *link)
{
    link->has_goodbye = true;
    tcp_peer_watch_time(link->peer);
}

/* Hands out what is in a buffer. False when the connection is gone, by whatever cause. */
static bool link_deliver(struct tcp_link *link, struct stream *stream)
{
    struct fabric *base = &link->peer->tcp->base;
    uint64_t generation = link->generation;
    struct frame frame;
    const uint8_t *bytes;
    bool is_duplicate = false;
    int result;

    while ((result = stream_next(stream, &frame, &bytes)) > 0) {
        result = session_receive(&link->session, &frame, &is_duplicate);
        if (result < 0)
            break;
        base->counters.duplicates_dropped += is_duplicate;
        if (result > 0)
            fabric_deliver(base, link->peer->id, link->plane, bytes, frame.size_bytes);
        else if (frame.type == FRAME_GOODBYE)
            link_goodbye(link);
        if (link->generation != generation)
            return false;
    }
    if (result == 0)
        return true;
    tcp_peer_fail(link->peer, "it broke the framing");
    return false;
}

static void link_acknowledge(struct tcp_link *link)
{
    const uint8_t *unsent;

    if (!session_owes_ack(&link->session))
        return;
    if (link->session.received_bytes < SESSION_ACK_BYTES) {
        tcp_ack_later(link->peer->tcp);
        return;
    }
    /* Behind a backlog it would only add to it; the timer looks again. */
    if (session_unsent(&link->session, &unsent) > 0 || session_append_control(&link->session, FRAME_ACK) != 0)
        tcp_ack_later(link->peer->tcp);
    else
        tcp_link_flush(link);
}

/* Whole frames are handed out where they are; a part of one waits in the link's own buffer for the rest. */
bool tcp_link_take(struct tcp_link *link, uint8_t *bytes, size_t size)
{
    uint64_t generation = link->generation;
    struct stream view = {bytes, 0, size};
    uint8_t *room;
    size_t room_bytes;

    if (link->stream.start == link->stream.end && !link_deliver(link, &view))
        return false;
    while (view.start < view.end) {
        if (stream_room(&link->stream, &room, &room_bytes) != 0) {
            tcp_peer_fail(link->peer, "no memory to receive from it");
            return false;
        }
        if (room_bytes > view.end - view.start)
            room_bytes = view.end - view.start;
        memcpy(room, view.memory + view.start, room_bytes);
        view.start += room_bytes;
        stream_filled(&link->stream, room_bytes);
        if (!link_deliver(link, &link->stream))
            return false;
    }
    link_acknowledge(link);
    return link->generation == generation;
}

/* A read that leaves room in the buffer has emptied the socket; the watch is level-triggered in case it has not. */
static void link_read(struct tcp_link *link)
{
    for (int i = 0; i < READS_AT_ONCE; i++) {
        uint8_t *room;
        size_t size;
        ssize_t count;

        if (stream_room(&link->stream, &room, &size) != 0) {
            tcp_peer_fail(link->peer, "no memory to receive from it");
            return;
        }
        count = recv(link->fd, room, size, MSG_DONTWAIT);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (count <= 0) {
            tcp_link_cut(link, count == 0 ? ECONNRESET : errno);
            return;
        }
        stream_filled(&link->stream, (size_t)count);
        if (!link_deliver(link, &link->stream))
            return;
        link_acknowledge(link);
        if ((size_t)count < size || link->state != LINK_UP)
            return;
    }
}

static void link_ready(struct loop_watch *watch, uint32_t events)
{
    struct tcp_link *link = watch->context;
    uint64_t generation = link->generation;

    if (link->state == LINK_CONNECTING) {
        link_connected(link);
        return;
    }
    if (link->state == LINK_GREETING) {
        link_greeting_read(link);
        return;
    }
    if ((events & EPOLLOUT) != 0 && link->state == LINK_UP)
        tcp_link_flush(link);
    if ((events & ~(uint32_t)EPOLLOUT) != 0 && link->generation == generation && link->state == LINK_UP)
        link_read(link);
}
