/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.c - the tcp transport: its peers, and when their sessions begin and end. Runs on the loop's thread.
 *
 * send() numbers and keeps a message in the session and writes it at once when nothing waits before it: one system
 * call a message. A session outlives its connections (session.h); it ends when a link is down for the session's
 * timeout, when the peer is another process or breaks the rules, or when one side says good-bye on both planes.
 */
#include "fabric/tcp.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "fabric/transport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACK_DELAY_NS   ((uint64_t)10000000U)
#define CLOSE_NS       ((uint64_t)100000000U)
#define LISTEN_BACKLOG 128

static struct tcp *tcp_of(struct fabric *fabric)
{
    return CONTAINER_OF(fabric, struct tcp, base);
}

/* ---- sessions begin and end ------------------------------------------------------------------------------------ */

void tcp_peer_begin(struct tcp_peer *peer, uint64_t session)
{
    uint64_t now_ns = os_now_ns();

    ASSERT(peer->session == 0 && session != 0);
    peer->session = session;
    peer->incarnation = 0;
    peer->trouble = 0;
    for (unsigned i = 0; i < PLANES; i++) {
        struct tcp_link *link = &peer->links[i];

        session_init(&link->session, (uint32_t)(session ^ session >> 32) + i, peer->tcp->config.window_bytes_max);
        link->attempt = 0;
        link->backoff_ns = 0;
        link->down_since_ns = now_ns;
        link->has_goodbye = false;
    }
    tcp_peer_watch_time(peer);
}

void tcp_peer_end(struct tcp_peer *peer)
{
    if (peer->session == 0)
        return;
    for (unsigned i = 0; i < PLANES; i++) {
        tcp_link_close(&peer->links[i]);
        session_fini(&peer->links[i].session);
    }
    loop_timer_stop(peer->tcp->config.loop, &peer->deadline);
    peer->deadline_runs = false;
    peer->session_ended = peer->session;
    peer->session = 0;
}

void tcp_peer_fail(struct tcp_peer *peer, const char *cause)
{
    tcp_peer_end(peer);
    fabric_report_down(&peer->tcp->base, peer->id, cause);
}

/* Good-bye was said, and no plane can bring anything more. */
static bool peer_has_left(const struct tcp_peer *peer)
{
    bool is_said = false;

    for (unsigned i = 0; i < PLANES; i++) {
        if (peer->links[i].state == LINK_UP && !peer->links[i].has_goodbye)
            return false;
        is_said |= peer->links[i].has_goodbye;
    }
    return is_said;
}

/* Since when the session lacks a connection; UINT64_MAX: it has both. */
static uint64_t peer_down_since(const struct tcp_peer *peer)
{
    uint64_t since_ns = UINT64_MAX;

    for (unsigned i = 0; i < PLANES; i++)
        if (peer->links[i].state != LINK_UP && peer->links[i].down_since_ns < since_ns)
            since_ns = peer->links[i].down_since_ns;
    return since_ns;
}

void tcp_peer_watch_time(struct tcp_peer *peer)
{
    struct loop *loop = peer->tcp->config.loop;

    if (peer_has_left(peer)) {
        peer->deadline_runs = true;
        loop_timer_start(loop, &peer->deadline, os_now_ns());
    } else if (!peer->deadline_runs && peer_down_since(peer) != UINT64_MAX) {
        peer->deadline_runs = true;
        loop_timer_start(loop, &peer->deadline, peer_down_since(peer) + peer->tcp->config.session_timeout_ns);
    }
}

static void peer_expired(struct loop_timer *timer)
{
    struct tcp_peer *peer = timer->context;
    uint64_t timeout_ns = peer->tcp->config.session_timeout_ns;
    uint64_t since_ns = peer_down_since(peer);
    char cause[128];

    peer->deadline_runs = false;
    if (peer_has_left(peer)) {
        tcp_peer_fail(peer, "it ended the session");
    } else if (since_ns != UINT64_MAX && os_now_ns() - since_ns >= timeout_ns) {
        snprintf(cause, sizeof(cause), "no connection for %llu ms: %s", (unsigned long long)(timeout_ns / 1000000U),
                 peer->trouble == 0 ? "it did not connect" : strerror(peer->trouble));
        tcp_peer_fail(peer, cause);
    } else {
        tcp_peer_watch_time(peer);
    }
}

/* ---- acknowledgements ------------------------------------------------------------------------------------------ */

void tcp_ack_later(struct tcp *tcp)
{
    if (tcp->ack_timer_runs)
        return;
    tcp->ack_timer_runs = true;
    loop_timer_start(tcp->config.loop, &tcp->ack_timer, os_now_ns() + ACK_DELAY_NS);
}

static void link_ack_now(struct tcp_link *link)
{
    const uint8_t *unsent;

    if (link->peer->session == 0 || link->state != LINK_UP || !session_owes_ack(&link->session))
        return;
    if (session_unsent(&link->session, &unsent) > 0 || session_append_control(&link->session, FRAME_ACK) != 0)
        tcp_ack_later(link->peer->tcp);
    else
        tcp_link_flush(link);
}

static void tcp_ack_expired(struct loop_timer *timer)
{
    struct tcp *tcp = timer->context;

    tcp->ack_timer_runs = false;
    for (unsigned i = 0; i < tcp->config.nodes_count; i++)
        for (unsigned plane = 0; plane < PLANES; plane++)
            link_ack_now(&tcp->peers[i].links[plane]);
}

/* ---- addresses ------------------------------------------------------------------------------------------------- */

static size_t tcp_address(struct fabric *fabric, uint8_t blob[FABRIC_ADDRESS_MAX])
{
    struct tcp *tcp = tcp_of(fabric);
    struct sockaddr_storage name = {0};
    socklen_t size = sizeof(name);
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&name;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&name;
    bool is_v6;
    uint8_t place[16] = {0};
    struct bytes_writer writer = {blob, FABRIC_ADDRESS_MAX, false};
    int result = getsockname(tcp->gate.fd, (struct sockaddr *)&name, &size);

    ASSERT(result == 0);
    is_v6 = name.ss_family == AF_INET6;
    memcpy(place, is_v6 ? (const void *)&v6->sin6_addr : (const void *)&v4->sin_addr, is_v6 ? 16 : 4);
    bytes_put_u16(&writer, is_v6 ? 6 : 4);
    bytes_put_u16(&writer, ntohs(is_v6 ? v6->sin6_port : v4->sin_port));
    bytes_put(&writer, place, sizeof(place));
    if (tcp->carrier != NULL)
        bytes_put_u32(&writer, tcp->carrier->ops->address(tcp->carrier));
    return (size_t)(writer.next - blob);
}

static int address_decode(struct tcp_peer *peer, const uint8_t *blob, size_t size_bytes)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&peer->address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&peer->address;
    struct bytes_reader reader = {blob, size_bytes, false};
    uint16_t family = bytes_take_u16(&reader);
    in_port_t port = htons(bytes_take_u16(&reader));
    uint8_t place[16];

    bytes_take(&reader, place, sizeof(place));
    peer->carrier_address = reader.left == CARRIER_ADDRESS_BYTES ? bytes_take_u32(&reader) : 0;
    if (reader.failed || reader.left != 0 || (family != 4 && family != 6) || port == 0)
        return error_set(-EINVAL, "connect to node %u: not a tcp address", peer->id.index);
    peer->address = (struct sockaddr_storage){0};
    if (family == 4) {
        *v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port};
        memcpy(&v4->sin_addr, place, sizeof(v4->sin_addr));
        peer->address_bytes = sizeof(*v4);
    } else {
        *v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = port};
        memcpy(&v6->sin6_addr, place, sizeof(v6->sin6_addr));
        peer->address_bytes = sizeof(*v6);
    }
    return 0;
}

/* ---- the calls ------------------------------------------------------------------------------------------------- */

static void link_flush(struct tcp_link *link)
{
    if (link->state == LINK_UP)
        tcp_link_flush(link);
}

static int tcp_connect(struct fabric *fabric, struct node_id id, const uint8_t *blob, size_t size_bytes)
{
    struct tcp_peer *peer = &tcp_of(fabric)->peers[id.index];
    int result = address_decode(peer, blob, size_bytes);

    if (result != 0)
        return result;
    tcp_peer_begin(peer, os_random() | 1);
    for (unsigned i = 0; i < PLANES; i++)
        tcp_link_try(&peer->links[i]);
    return 0;
}

static int tcp_send(struct fabric *fabric, struct node_id to, enum fabric_plane plane, const struct iovec *parts,
                    int parts_count)
{
    struct tcp *tcp = tcp_of(fabric);
    struct tcp_peer *peer = &tcp->peers[to.index];
    struct tcp_link *link = &peer->links[plane];
    struct inbox_entry entry = {.kind = INBOX_MESSAGE, .from = to.index, .plane = (uint16_t)plane};
    const uint8_t *unsent;
    bool is_idle;
    int result;

    if (node_is(to, fabric->self))
        return inbox_push(&tcp->inbox, entry, parts, parts_count);
    if (peer->session == 0)
        return -EHOSTDOWN;
    is_idle = session_unsent(&link->session, &unsent) == 0;
    result = session_append(&link->session, parts, parts_count);
    if (result == 0 && is_idle)
        link_flush(link);
    return result;
}

static void tcp_deliver_own(void *context, const struct inbox_entry *entry, const uint8_t *bytes)
{
    struct tcp *tcp = context;

    fabric_deliver(&tcp->base, tcp->base.self, (enum fabric_plane)entry->plane, bytes, entry->size_bytes);
}

static void peer_say_goodbye(struct tcp_peer *peer)
{
    for (unsigned i = 0; i < PLANES; i++) {
        struct tcp_link *link = &peer->links[i];

        if (link->state == LINK_UP && session_append_control(&link->session, FRAME_GOODBYE) == 0)
            tcp_link_flush(link);
    }
}

/*
 * A socket closed with unread bytes in it resets the connection, and the peer loses what it has not read: so read
 * and forget them first.
 */
static void link_discard(struct tcp_link *link)
{
    uint8_t bytes[4096];

    if (link->state != LINK_UP)
        return;
    if (link->is_carried) {
        link->peer->tcp->carrier->ops->linger(link);
        return;
    }
    shutdown(link->fd, SHUT_WR);
    for (int i = 0; i < 1024 && recv(link->fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0; i++)
        ;
}

static void tcp_disconnect(struct fabric *fabric, struct node_id id)
{
    struct tcp_peer *peer = &tcp_of(fabric)->peers[id.index];

    peer_say_goodbye(peer);
    for (unsigned i = 0; i < PLANES; i++)
        link_discard(&peer->links[i]);
    tcp_peer_end(peer);
}

static int tcp_peer_file(struct fabric *fabric, struct node_id peer)
{
    (void)fabric;
    (void)peer;
    return -EOPNOTSUPP;
}

/* Both directions lose what is under way: a reset, as a vanished network would cause. */
static void tcp_cut(struct fabric *fabric, struct node_id id)
{
    struct tcp_peer *peer = &tcp_of(fabric)->peers[id.index];
    struct linger reset = {.l_onoff = 1, .l_linger = 0};

    for (unsigned i = 0; i < PLANES; i++) {
        struct tcp_link *link = &peer->links[i];

        if (link->state != LINK_UP)
            continue;
        if (!link->is_carried)
            setsockopt(link->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        tcp_link_cut(link, ECONNABORTED);
    }
}

/* ---- closing --------------------------------------------------------------------------------------------------- */

/* Whether nothing more can or need be written. */
static bool link_is_flushed(struct tcp_link *link)
{
    const uint8_t *unsent;

    if (link->state == LINK_UP && session_unsent(&link->session, &unsent) > 0)
        tcp_link_flush(link);
    if (link->state != LINK_UP)
        return true;
    return link->is_carried ? link->peer->tcp->carrier->ops->is_flushed(link)
                            : session_unsent(&link->session, &unsent) == 0;
}

/* Collects the sockets that still have something to write, or whose last bytes the peer's kernel may not hold. */
static nfds_t tcp_unflushed(struct tcp *tcp, struct pollfd polls[NODES_MAX * PLANES])
{
    nfds_t count = 0;

    for (unsigned i = 0; i < tcp->config.nodes_count; i++)
        for (unsigned plane = 0; plane < PLANES; plane++) {
            struct tcp_link *link = &tcp->peers[i].links[plane];

            if (!link_is_flushed(link))
                polls[count++] = (struct pollfd){.fd = link->is_carried ? -1 : link->fd, .events = POLLOUT};
        }
    return count;
}

static void tcp_close(struct fabric *fabric)
{
    struct tcp *tcp = tcp_of(fabric);
    struct pollfd polls[NODES_MAX * PLANES];
    uint64_t end_ns = os_now_ns() + CLOSE_NS;
    nfds_t count;

    for (unsigned i = 0; i < tcp->config.nodes_count; i++)
        if (tcp->peers[i].session != 0)
            peer_say_goodbye(&tcp->peers[i]);
    while ((count = tcp_unflushed(tcp, polls)) > 0 && os_now_ns() < end_ns)
        poll(polls, count, tcp->carrier == NULL ? 10 : 1); /* a carrier has no descriptor to wait for */
    for (unsigned i = 0; i < tcp->config.nodes_count; i++)
        for (unsigned plane = 0; plane < PLANES; plane++) {
            link_discard(&tcp->peers[i].links[plane]);
            tcp_link_close(&tcp->peers[i].links[plane]);
            stream_fini(&tcp->peers[i].links[plane].stream);
        }
    for (unsigned i = 0; i < tcp->config.nodes_count; i++)
        tcp_peer_end(&tcp->peers[i]);
    loop_timer_stop(tcp->config.loop, &tcp->ack_timer);
    inbox_fini(&tcp->inbox);
    gate_close(&tcp->gate);
    if (tcp->carrier != NULL)
        tcp->carrier->ops->close(tcp->carrier);
    os_pages_unmap(tcp, sizeof(*tcp));
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

static const struct fabric_ops tcp_ops = {
    .name = "tcp",
    .capabilities = FABRIC_CAP_RESUMES,
    .address = tcp_address,
    .connect = tcp_connect,
    .send = tcp_send,
    .disconnect = tcp_disconnect,
    .peer_file = tcp_peer_file,
    .cut = tcp_cut,
    .close = tcp_close,
};

static int bind_address_parse(const char *text, struct sockaddr_storage *ret_address, socklen_t *ret_size)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1 && v4.sin_addr.s_addr != htonl(INADDR_ANY)) {
        memcpy(ret_address, &v4, sizeof(v4));
        *ret_size = sizeof(v4);
        return 0;
    }
    if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1 && !IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr)) {
        memcpy(ret_address, &v6, sizeof(v6));
        *ret_size = sizeof(v6);
        return 0;
    }
    return error_set(-EINVAL, "tcp: '%s' is not a numeric address of this host that peers can connect to", text);
}

static int tcp_listen(const char *text, int *ret_fd)
{
    struct sockaddr_storage address = {0};
    socklen_t size = 0;
    int result = bind_address_parse(text, &address, &size);
    int fd;

    if (result != 0)
        return result;
    fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(-errno, "tcp: make a socket: %m");
    if (bind(fd, (const struct sockaddr *)&address, size) != 0 || listen(fd, LISTEN_BACKLOG) != 0) {
        result = error_set(-errno, "tcp: listen on %s: %m", text);
        close(fd);
        return result;
    }
    *ret_fd = fd;
    return 0;
}

static void tcp_init(struct tcp *tcp, const struct fabric_config *config, const char *name, struct carrier *carrier)
{
    tcp->ops = tcp_ops;
    tcp->ops.name = name;
    fabric_init(&tcp->base, &tcp->ops, config);
    tcp->config = *config;
    tcp->carrier = carrier;
    if (carrier != NULL)
        carrier->tcp = tcp;
    tcp->ack_timer = (struct loop_timer){.expired = tcp_ack_expired, .context = tcp};
    for (unsigned i = 0; i < NODES_MAX; i++) {
        struct tcp_peer *peer = &tcp->peers[i];

        peer->tcp = tcp;
        peer->id = node_of(i);
        peer->deadline = (struct loop_timer){.expired = peer_expired, .context = peer};
        for (unsigned plane = 0; plane < PLANES; plane++)
            tcp_link_init(&peer->links[plane], peer, (enum fabric_plane)plane);
    }
    inbox_init(&tcp->inbox, config, tcp_deliver_own, tcp);
}

int fabric_tcp_open(const struct fabric_config *config, struct fabric **ret_fabric)
{
    return tcp_open(config, "tcp", NULL, ret_fabric);
}

int tcp_open(const struct fabric_config *config, const char *name, struct carrier *carrier, struct fabric **ret_fabric)
{
    struct tcp *tcp;
    void *memory;
    int fd = -1;
    int result = fabric_config_check(config);

    if (result != 0)
        return result;
    result = tcp_listen(config->bind_address == NULL ? "127.0.0.1" : config->bind_address, &fd);
    if (result != 0)
        return result;
    if (os_pages_map(sizeof(*tcp), &memory) != 0) {
        result = error_set(-ENOMEM, "tcp: no memory for %zu bytes", sizeof(*tcp));
        goto close_fd;
    }
    tcp = memory;
    tcp_init(tcp, config, name, carrier);
    result = gate_open(&tcp->gate, config->loop, fd, tcp_greeted, tcp);
    if (result != 0)
        goto fini_inbox;
    *ret_fabric = &tcp->base;
    return 0;

fini_inbox:
    inbox_fini(&tcp->inbox);
    os_pages_unmap(tcp, sizeof(*tcp));
close_fd:
    close(fd);
    return result;
}
