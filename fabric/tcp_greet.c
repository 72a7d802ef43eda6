/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_greet.c - who may connect, and which session a connection belongs to. Runs on the loop's thread.
 *
 * A HELLO of the current session resumes one of its planes. A HELLO of an unknown session begins it, if its sender has
 * not met this process yet; else the session is over and the sender is told so. What is read was written by strangers.
 */
#include "base/log.h"
#include "fabric/tcp.h"
#include "fabric/transport.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * The kernel ends a connection whose bytes stay unacknowledged, or which is silent, for half of the session's
 * timeout; the session then has its whole timeout to come back. Failures cost latency or time, never correctness.
 */
void tcp_socket_tune(const struct tcp *tcp, int fd)
{
    uint64_t half_ms = tcp->config.session_timeout_ns / 2000000U;
    int one = 1;
    int timeout_ms = half_ms > 600000 ? 600000 : half_ms < 100 ? 100 : (int)half_ms;
    int idle_s = timeout_ms / 2000 + 1;
    int probes = 3;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

/* ---- accepting side -------------------------------------------------------------------------------------------- */

static int answer(const struct tcp *tcp, int fd, const struct greeting *hello, enum greeting_status status,
                  uint64_t received)
{
    struct greeting welcome = greeting_answer(hello, &tcp->config, status);
    uint8_t bytes[GREETING_BYTES];

    welcome.received = received;
    greeting_encode(&welcome, bytes);
    return send(fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(bytes) ? 0 : -ECONNRESET;
}

/* Makes the HELLO's session the peer's, if it may be. May call back. */
static enum greeting_status adopt(struct tcp_peer *peer, const struct greeting *hello)
{
    if (hello->session == peer->session)
        return hello->from_incarnation == peer->incarnation ? GREETING_OK : REFUSED_PROCESS;
    if (hello->session == peer->session_ended || hello->to_incarnation != 0)
        return REFUSED_SESSION;
    if (peer->session != 0)
        tcp_peer_fail(peer, hello->from_incarnation == peer->incarnation ? "it started a new session"
                                                                         : "its process is another one");
    tcp_peer_begin(peer, hello->session);
    peer->incarnation = hello->from_incarnation;
    return GREETING_OK;
}

enum greeting_status tcp_hello_judge(struct tcp *tcp, const struct greeting *hello, struct tcp_link **ret_link)
{
    enum greeting_status status = greeting_judge(hello, &tcp->config);
    struct tcp_link *link = NULL;

    *ret_link = NULL;
    if (status == GREETING_OK) {
        status = adopt(&tcp->peers[hello->from], hello);
        link = &tcp->peers[hello->from].links[hello->plane];
        if (status == GREETING_OK && hello->attempt <= link->attempt)
            return GREETING_OK;
    }
    if (status == GREETING_OK && (hello->received < link->session.acked || hello->received > link->session.sent))
        status = REFUSED_SESSION;
    if (status == GREETING_OK) {
        *ret_link = link;
    } else {
        tcp->base.counters.peers_refused++;
        log_debug("refused a connection that says it is node %u: status %d", hello->from, (int)status);
    }
    return status;
}

static void refuse(struct tcp *tcp, struct gate_slot *slot, const struct greeting *hello, enum greeting_status status)
{
    int ignored = answer(tcp, slot->fd, hello, status, 0); /* a stranger who does not listen is sent away as well */

    (void)ignored;
    gate_refuse(slot);
}

static void admit(struct tcp *tcp, struct gate_slot *slot, const struct greeting *hello)
{
    struct tcp_link *link;
    enum greeting_status status = tcp_hello_judge(tcp, hello, &link);
    int fd;

    if (status != GREETING_OK) {
        refuse(tcp, slot, hello, status);
        return;
    }
    if (link == NULL) {
        gate_refuse(slot); /* overtaken by a newer connection */
        return;
    }
    fd = gate_take(slot);
    tcp_socket_tune(tcp, fd);
    /* What a carrier still has under way could arrive after the answer; a socket's rest is only ever read by us. */
    if (link->is_carried)
        tcp_link_cut(link, ECONNRESET);
    if (answer(tcp, fd, hello, GREETING_OK, link->session.received) != 0) {
        close(fd);
        return;
    }
    link->attempt = hello->attempt;
    if (tcp_link_attach(link, fd, hello->received) != 0)
        close(fd);
}

void tcp_greeted(struct gate *gate, struct gate_slot *slot)
{
    struct tcp *tcp = gate->context;
    struct greeting hello;
    ssize_t count =
        recv(slot->fd, slot->greeting + slot->filled_bytes, GREETING_BYTES - slot->filled_bytes, MSG_DONTWAIT);

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0) {
        gate_refuse(slot);
        return;
    }
    slot->filled_bytes += (size_t)count;
    if (slot->filled_bytes < GREETING_BYTES)
        return;
    if (greeting_decode(slot->greeting, &hello) != 0) {
        tcp->base.counters.peers_refused++;
        gate_refuse(slot);
        return;
    }
    admit(tcp, slot, &hello);
}

/* ---- connecting side ------------------------------------------------------------------------------------------- */

static struct greeting hello_of(const struct tcp_link *link)
{
    const struct tcp_peer *peer = link->peer;
    const struct fabric_config *config = &peer->tcp->config;

    return (struct greeting){
        .version = FABRIC_PROTOCOL,
        .kind = GREETING_HELLO,
        .plane = (uint16_t)link->plane,
        .from = config->self.index,
        .to = peer->id.index,
        .attempt = link->attempt,
        .job = config->job,
        .from_incarnation = config->incarnation,
        .to_incarnation = peer->incarnation,
        .session = peer->session,
        .received = link->session.received,
    };
}

struct greeting tcp_hello_next(struct tcp_link *link)
{
    link->attempt++;
    return hello_of(link);
}

/* NULL, or why this WELCOME ends the session. */
static const char *welcome_fault(const struct tcp_link *link, const struct greeting *welcome)
{
    struct greeting hello = hello_of(link);
    uint64_t known = link->peer->incarnation;

    if (welcome->status != GREETING_OK)
        return greeting_status_text(welcome->status);
    if (welcome->version != FABRIC_PROTOCOL)
        return greeting_status_text(REFUSED_VERSION);
    if (!greeting_fits(welcome, &hello) || welcome->from_incarnation == 0)
        return "its answer to a greeting makes no sense";
    if (welcome->from != link->peer->id.index)
        return greeting_status_text(REFUSED_NODE);
    if (known != 0 && known != welcome->from_incarnation)
        return greeting_status_text(REFUSED_PROCESS);
    return NULL;
}

void tcp_welcomed(struct tcp_link *link, const struct greeting *welcome)
{
    struct tcp_peer *peer = link->peer;
    const char *fault = welcome_fault(link, welcome);

    if (fault != NULL) {
        tcp_peer_fail(peer, fault);
        return;
    }
    peer->incarnation = welcome->from_incarnation;
    if (tcp_link_attach(link, link->fd, welcome->received) != 0)
        tcp_peer_fail(peer, "it acknowledges messages that were never sent");
}
