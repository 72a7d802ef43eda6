/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_meet.c - connections by rdma_cm: requests, answers, and their ends. Runs on the loop's thread.
 *
 * The queue pairs are ours and only introduced by rdma_cm. An event is acknowledged before it is acted upon, since the
 * end of an id waits for that. What private data says was written by strangers.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "fabric/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define LISTEN_BACKLOG   128
#define REJECTED_BY_USER 28 /* IB_CM_REJ_CONSUMER_DEFINED: private data is the peer's word */
#define RESPONDER_MAX    16 /* one-sided operations under way, in each direction */

/* What an event said, after it was acknowledged. */
struct happening {
    enum rdma_cm_event_type type;
    int status;
    struct rdma_cm_id *id;
    struct verbs_qp *qp; /* NULL: of a request or the listener */
    uint8_t bytes[256];
    size_t size_bytes;
};

int verbs_listen(struct verbs *verbs)
{
    struct sockaddr_storage address = verbs->bind;
    int flags;

    verbs->events = rdma_create_event_channel();
    if (verbs->events == NULL)
        return error_set(-errno, "RDMA: open /dev/infiniband/rdma_cm: %m; load the module rdma_ucm");
    flags = fcntl(verbs->events->fd, F_GETFL);
    if (flags < 0 || fcntl(verbs->events->fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return error_set(-errno, "RDMA: descriptor of rdma_cm: %m");
    if (rdma_create_id(verbs->events, &verbs->listener, NULL, RDMA_PS_TCP) != 0)
        return error_set(-errno, "RDMA: make an endpoint: %m");
    if (rdma_bind_addr(verbs->listener, (struct sockaddr *)&address) != 0 ||
        rdma_listen(verbs->listener, LISTEN_BACKLOG) != 0)
        return error_set(-errno, "RDMA: listen on %s: %m", verbs->config.bind_address);
    verbs->port = ntohs(rdma_get_src_port(verbs->listener));
    return 0;
}

static struct rdma_conn_param parameters(const struct verbs_qp *qp, const void *bytes, size_t size)
{
    int most = qp->verbs->attributes.max_qp_rd_atom;
    uint8_t depth = (uint8_t)(most > RESPONDER_MAX ? RESPONDER_MAX : most);

    return (struct rdma_conn_param){
        .private_data = bytes,
        .private_data_len = (uint8_t)size,
        .responder_resources = depth,
        .initiator_depth = depth,
        .retry_count = 7,
        .rnr_retry_count = 7,
        .srq = 1,
        .qp_num = qp->qp->qp_num,
    };
}

static bool is_our_device(const struct verbs *verbs, const struct rdma_cm_id *id)
{
    return id->verbs != NULL && strcmp(ibv_get_device_name(id->verbs->device), verbs->device.name) == 0;
}

/* ---- connecting side ------------------------------------------------------------------------------------------- */

static void attempt_failed(struct verbs_qp *qp, const char *step, int error)
{
    struct tcp_link *link = qp->link;
    char cause[VERBS_REASON_MAX];

    snprintf(cause, sizeof(cause), "%s: %s", step, error == 0 ? "refused" : strerror(error));
    verbs_give_up(qp->verbs, link->peer->id, cause);
    tcp_link_cut(link, error == 0 ? ECONNREFUSED : error);
}

bool verbs_try(struct tcp_link *link)
{
    struct verbs *verbs = verbs_of_link(link);
    struct tcp_peer *peer = link->peer;
    struct sockaddr_storage from = verbs->bind;
    struct sockaddr_storage to = peer->address;
    in_port_t port = htons((uint16_t)peer->carrier_address);
    uint64_t attempt_ns = verbs_attempt_ns(verbs);
    struct verbs_qp *qp;

    if (os_now_ns() < verbs->peers[peer->id.index].sockets_until_ns)
        return false;
    qp = verbs_qp_take(verbs, link);
    if (qp == NULL)
        return false;
    if (to.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&to)->sin6_port = port;
    else
        ((struct sockaddr_in *)&to)->sin_port = port;
    qp->until_ns = os_now_ns() + attempt_ns;
    if (rdma_create_id(verbs->events, &qp->id, qp, RDMA_PS_TCP) != 0 ||
        rdma_resolve_addr(qp->id, (struct sockaddr *)&from, (struct sockaddr *)&to, (int)(attempt_ns / 1000000U)) !=
            0) {
        verbs_give_up(verbs, peer->id, strerror(errno));
        verbs_qp_end(qp);
        return false;
    }
    tcp_link_carry(link, qp, LINK_CONNECTING, attempt_ns);
    return true;
}

static void address_resolved(struct verbs_qp *qp)
{
    if (!is_our_device(qp->verbs, qp->id))
        attempt_failed(qp, "another device leads there", ENETUNREACH);
    else if (rdma_resolve_route(qp->id, (int)(verbs_attempt_ns(qp->verbs) / 1000000U)) != 0)
        attempt_failed(qp, "find a route", errno);
}

static void route_resolved(struct verbs_qp *qp)
{
    struct greeting hello = tcp_hello_next(qp->link);
    uint8_t bytes[VERBS_HELLO_BYTES];
    struct rdma_conn_param request;
    int result = verbs_qp_create(qp);

    if (result != 0) {
        attempt_failed(qp, "make a queue pair", -result);
        return;
    }
    verbs_hello_encode(&hello, bytes);
    request = parameters(qp, bytes, sizeof(bytes));
    qp->link->state = LINK_GREETING;
    if (rdma_connect(qp->id, &request) != 0)
        attempt_failed(qp, "connect", errno);
}

static void answered(struct verbs_qp *qp, const struct happening *now)
{
    struct tcp_link *link = qp->link;
    struct greeting welcome;
    int result;

    if (verbs_welcome_decode(now->bytes, now->size_bytes, &welcome) != 0) {
        tcp_peer_fail(link->peer, "something else than a node answers at its RDMA address");
        return;
    }
    result = verbs_qp_ready(qp);
    if (result == 0 && rdma_establish(qp->id) != 0)
        result = -errno;
    if (result == 0)
        result = verbs_pages_grant(qp);
    if (result != 0) {
        attempt_failed(qp, "start the queue pair", -result);
        return;
    }
    qp->state = VERBS_UP;
    verbs_path_note(link);
    tcp_welcomed(link, &welcome);
}

/* By the peer, with its reason, which ends the session; or below it, which leaves TCP. */
static void rejected(struct verbs_qp *qp, const struct happening *now)
{
    struct greeting welcome;

    if (now->status == REJECTED_BY_USER && verbs_welcome_decode(now->bytes, now->size_bytes, &welcome) == 0 &&
        welcome.status != GREETING_OK && welcome.status != REFUSED_SYSTEM)
        tcp_welcomed(qp->link, &welcome);
    else
        attempt_failed(qp, now->status == REJECTED_BY_USER ? "the peer wants TCP for now" : "nobody listens there", 0);
}

/* ---- accepting side -------------------------------------------------------------------------------------------- */

static void reject(struct verbs *verbs, struct rdma_cm_id *id, const struct greeting *hello,
                   enum greeting_status status)
{
    struct greeting welcome = greeting_answer(hello, &verbs->config, status);
    uint8_t bytes[GREETING_BYTES];

    greeting_encode(&welcome, bytes);
    rdma_reject(id, bytes, sizeof(bytes)); /* in vain: its attempt ends in time */
    rdma_destroy_id(id);
}

/* The old connection of the link has ended: what the answer says was received is all that ever will be. */
static int accept_on(struct verbs_qp *qp, const struct greeting *hello)
{
    struct greeting welcome = greeting_answer(hello, &qp->verbs->config, GREETING_OK);
    uint8_t bytes[GREETING_BYTES];
    struct rdma_conn_param answer;
    int result = verbs_qp_create(qp);

    if (result == 0)
        result = verbs_qp_ready(qp);
    if (result != 0)
        return result;
    welcome.received = qp->link->session.received;
    greeting_encode(&welcome, bytes);
    answer = parameters(qp, bytes, sizeof(bytes));
    return rdma_accept(qp->id, &answer) != 0 ? -errno : 0;
}

static void admit(struct verbs *verbs, struct rdma_cm_id *id, const struct greeting *hello, struct tcp_link *link)
{
    struct verbs_qp *qp;
    int result;

    if (link->state != LINK_DOWN)
        tcp_link_cut(link, ECONNRESET);
    qp = is_our_device(verbs, id) ? verbs_qp_take(verbs, link) : NULL;
    if (qp == NULL) {
        reject(verbs, id, hello, REFUSED_SYSTEM);
        return;
    }
    qp->id = id;
    id->context = qp;
    qp->received = hello->received;
    qp->until_ns = os_now_ns() + verbs_attempt_ns(verbs);
    result = accept_on(qp, hello);
    if (result != 0) {
        log_warn("RDMA connection of node %u cannot be accepted: %s; it will use TCP", hello->from, strerror(-result));
        rdma_reject(id, NULL, 0);
        verbs_qp_end(qp);
        return;
    }
    link->attempt = hello->attempt;
    tcp_link_carry(link, qp, LINK_GREETING, verbs_attempt_ns(verbs));
}

static void requested(struct verbs *verbs, const struct happening *now)
{
    struct tcp *tcp = verbs->base.tcp;
    struct greeting hello;
    struct tcp_link *link;
    enum greeting_status status;

    if (verbs_hello_decode(now->bytes, now->size_bytes, &hello) != 0) {
        tcp->base.counters.peers_refused++;
        rdma_reject(now->id, NULL, 0);
        rdma_destroy_id(now->id);
        return;
    }
    if (hello.from < NODES_MAX && os_now_ns() < verbs->peers[hello.from].sockets_until_ns) {
        reject(verbs, now->id, &hello, REFUSED_SYSTEM);
        return;
    }
    status = tcp_hello_judge(tcp, &hello, &link);
    if (status != GREETING_OK || link == NULL)
        reject(verbs, now->id, &hello, status == GREETING_OK ? REFUSED_SYSTEM : status);
    else
        admit(verbs, now->id, &hello, link);
}

/* ---- events ---------------------------------------------------------------------------------------------------- */

/* What it sent before is still handed out, then the link is cut. */
static void disconnected(struct verbs_qp *qp)
{
    struct verbs *verbs = qp->verbs;
    uint16_t generation = qp->generation;

    verbs_drain(verbs, qp->plane);
    verbs_deliver(verbs, qp->plane, (int)verbs->planes[qp->plane].receives_count);
    if (qp->generation != generation)
        return;
    if (qp->link != NULL)
        tcp_link_cut(qp->link, ECONNRESET);
    else
        verbs_qp_end(qp);
}

static void happened_to(struct verbs_qp *qp, const struct happening *now)
{
    bool connects = qp->link != NULL && tcp_connects(qp->link->peer) && qp->state == VERBS_MEETING;

    switch (now->type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (connects)
            address_resolved(qp);
        return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        if (connects)
            route_resolved(qp);
        return;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
        if (connects)
            answered(qp, now);
        return;
    case RDMA_CM_EVENT_REJECTED:
        if (connects)
            rejected(qp, now);
        return;
    case RDMA_CM_EVENT_ESTABLISHED:
        verbs_qp_up(qp);
        return;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
        if (connects)
            attempt_failed(qp, rdma_event_str(now->type), now->status < 0 ? -now->status : EHOSTUNREACH);
        else
            disconnected(qp);
        return;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        if (qp->link != NULL)
            verbs_give_up(qp->verbs, qp->link->peer->id, "the device was removed");
        disconnected(qp);
        return;
    case RDMA_CM_EVENT_DISCONNECTED:
        disconnected(qp);
        return;
    case RDMA_CM_EVENT_CONNECT_REQUEST:
    case RDMA_CM_EVENT_MULTICAST_JOIN:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
    case RDMA_CM_EVENT_ADDR_CHANGE:
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        return;
    }
}

/* The system waits for it to be given back. */
static void listener_lost(struct verbs *verbs)
{
    log_warn("RDMA device %s is being removed; new connections use TCP", verbs->device.name);
    rdma_destroy_id(verbs->listener);
    verbs->listener = NULL;
}

static bool happening_take(struct verbs *verbs, struct happening *now)
{
    struct rdma_cm_event *event;
    const struct rdma_conn_param *said;

    if (rdma_get_cm_event(verbs->events, &event) != 0)
        return false;
    said = &event->param.conn;
    *now = (struct happening){
        .type = event->event,
        .status = event->status,
        .id = event->id,
        .qp = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? NULL : event->id->context,
    };
    if (said->private_data != NULL && said->private_data_len > 0) {
        now->size_bytes = said->private_data_len;
        memcpy(now->bytes, said->private_data, now->size_bytes);
    }
    rdma_ack_cm_event(event);
    return true;
}

void verbs_events_ready(struct loop_watch *watch, uint32_t events)
{
    struct verbs *verbs = watch->context;
    struct happening now;

    (void)events;
    while (happening_take(verbs, &now)) {
        if (now.type == RDMA_CM_EVENT_CONNECT_REQUEST)
            requested(verbs, &now);
        else if (now.id == verbs->listener && now.type == RDMA_CM_EVENT_DEVICE_REMOVAL)
            listener_lost(verbs);
        else if (now.qp != NULL && now.qp->id == now.id)
            happened_to(now.qp, &now);
    }
}
