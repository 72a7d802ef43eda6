/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.c - the carrier of tcp's links over RDMA: what the loop drives. docs/VERBS.md is its design.
 *
 * Runs on the loop's thread. The control plane is looked at before every few messages of the data plane.
 */
#include "fabric/verbs.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "fabric/transport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#define ATTEMPT_NS_MAX  ((uint64_t)2000000000U)
#define CONTROL_AT_ONCE 64
#define DATA_AT_ONCE    8
#define ACK_TIMEOUT_MIN 12 /* 17 ms, as verbs count it */
#define ACK_TIMEOUT_MAX 20
#define ADDRESS_IS_RDMA 0x10000U

uint64_t verbs_attempt_ns(const struct verbs *verbs)
{
    uint64_t half_ns = verbs->config.session_timeout_ns / 2;

    return half_ns < ATTEMPT_NS_MAX ? half_ns : ATTEMPT_NS_MAX;
}

/* ---- paths ----------------------------------------------------------------------------------------------------- */

void verbs_give_up(struct verbs *verbs, struct node_id peer, const char *cause)
{
    struct verbs_peer *of = &verbs->peers[peer.index];

    if (os_now_ns() >= of->sockets_until_ns)
        log_info("RDMA to node %u does not work (%s); using TCP", peer.index, cause);
    of->sockets_until_ns = os_now_ns() + VERBS_BROKEN_WAIT;
    snprintf(of->reason, sizeof(of->reason), "%s", cause);
}

void verbs_path_note(struct tcp_link *link)
{
    const struct verbs *verbs = verbs_of_link(link);
    const struct verbs_qp *qp = link->carried;

    fabric_path_set(&link->peer->tcp->base, link->peer->id, link->plane, "verbs: %s port %u, gid %u%s, mtu %u",
                    verbs->device.name, verbs->choice.port, verbs->choice.gid_index,
                    verbs->choice.roce_version == 2 ? " (RoCE v2)" : "", qp->mtu_bytes);
}

static const char *carrier_reason(struct carrier *carrier, unsigned peer)
{
    const char *reason = verbs_of(carrier)->peers[peer].reason;

    return reason[0] != '\0' ? reason : "the peer has no RDMA address, or asked for TCP";
}

/* ---- the carrier's calls --------------------------------------------------------------------------------------- */

static uint32_t carrier_address(struct carrier *carrier)
{
    return ADDRESS_IS_RDMA | verbs_of(carrier)->port;
}

static void carrier_flush(struct tcp_link *link)
{
    verbs_qp_flush(link->carried);
}

static bool carrier_is_flushed(struct tcp_link *link)
{
    return verbs_qp_is_flushed(link->carried);
}

static void carrier_linger(struct tcp_link *link)
{
    struct verbs_qp *qp = link->carried;
    bool is_flushed = verbs_qp_is_flushed(qp); /* asks for the last completion */

    (void)is_flushed;
    verbs_qp_linger(qp);
    link->carried = NULL;
}

static void carrier_end(struct tcp_link *link)
{
    struct verbs_qp *qp = link->carried;

    if (qp == NULL)
        return;
    if (qp->state == VERBS_MEETING && tcp_connects(link->peer) && os_now_ns() >= qp->until_ns)
        verbs_give_up(qp->verbs, link->peer->id, "no answer to an RDMA request in time");
    verbs_qp_end(qp);
}

/* ---- what the loop drives -------------------------------------------------------------------------------------- */

static void arrival_take(struct verbs *verbs, enum fabric_plane plane, const struct verbs_arrival *arrival)
{
    struct verbs_plane *of = &verbs->planes[plane];
    struct verbs_qp *qp = &verbs->qps[arrival->qp];
    int ignored;

    if (qp->generation == arrival->generation && qp->state == VERBS_MEETING)
        verbs_qp_up(qp); /* the peer sends, so it is ready; rdma_cm has yet to say so */
    if (qp->generation == arrival->generation && qp->link != NULL) {
        uint8_t *bytes = of->receive_slots + (size_t)arrival->slot * of->chunk_bytes;

        qp->chunks_taken++;
        if (!arrival->is_note)
            tcp_link_take(qp->link, bytes, arrival->size_bytes);
        else if (verbs_pages_noted(qp, bytes, arrival->size_bytes) != 0)
            verbs_qp_trouble(qp, EBADMSG, "it said something of its memory that makes no sense");
    }
    ignored = verbs_receive_post(verbs, plane, arrival->slot); /* in vain only when the device is lost */
    (void)ignored;
    if (qp->generation == arrival->generation && qp->link != NULL)
        verbs_qp_told(qp);
}

int verbs_deliver(struct verbs *verbs, enum fabric_plane plane, int count_max)
{
    struct verbs_plane *of = &verbs->planes[plane];
    int count = 0;

    for (; count < count_max && of->arrivals_count > 0; count++) {
        struct verbs_arrival arrival = of->arrivals[of->arrivals_first];

        of->arrivals_first = (of->arrivals_first + 1) % of->receives_count;
        of->arrivals_count--;
        arrival_take(verbs, plane, &arrival);
    }
    return count;
}

static void trouble_handle(struct verbs_qp *qp)
{
    struct tcp_link *link = qp->link;
    int error = qp->trouble;
    char cause[VERBS_REASON_MAX];

    if (link == NULL) {
        verbs_qp_end(qp);
    } else if (error == EBADMSG) {
        tcp_peer_fail(link->peer, qp->trouble_text);
    } else {
        snprintf(cause, sizeof(cause), "the queue pair broke: %s", qp->trouble_text);
        verbs_give_up(qp->verbs, link->peer->id, cause);
        tcp_link_cut(link, error);
    }
}

/* Queue pairs that wait for something. Their trouble may call back. */
static void waiting_look(struct verbs *verbs)
{
    for (unsigned i = 0; i < VERBS_QPS_MAX; i++) {
        struct verbs_qp *qp = &verbs->qps[i];

        if (qp->state == VERBS_FREE)
            continue;
        if (qp->trouble != 0)
            trouble_handle(qp);
        else if (qp->state == VERBS_LINGERING && (verbs_qp_is_flushed(qp) || os_now_ns() >= qp->until_ns))
            verbs_qp_end(qp);
        else if (qp->is_blocked && qp->state == VERBS_UP)
            verbs_qp_resume(qp);
    }
}

static bool waiting_is_due(const struct verbs *verbs)
{
    if (verbs->slots_over_count > 0)
        return true;
    if (verbs->troubles_count + verbs->lingering_count + verbs->blocked_count == 0)
        return false;
    for (unsigned i = 0; i < VERBS_QPS_MAX; i++)
        if (verbs_qp_is_due(&verbs->qps[i]))
            return true;
    return false;
}

static int verbs_poll(struct loop_poller *poller)
{
    struct verbs *verbs = poller->context;
    int count;

    verbs_drain(verbs, PLANE_CONTROL);
    count = verbs_deliver(verbs, PLANE_CONTROL, CONTROL_AT_ONCE);
    verbs_drain(verbs, PLANE_DATA);
    count += verbs_deliver(verbs, PLANE_DATA, DATA_AT_ONCE);
    count += verbs_pages_deliver(verbs);
    if (verbs->troubles_count + verbs->lingering_count + verbs->blocked_count > 0)
        waiting_look(verbs);
    return count;
}

/* What completes from now on makes the channel readable; what completed before is looked for once more. */
static bool verbs_arm(struct loop_poller *poller)
{
    struct verbs *verbs = poller->context;
    bool is_busy = false;

    for (unsigned i = 0; i < PLANES; i++) {
        struct verbs_plane *plane = &verbs->planes[i];

        /* In vain only when the device is lost; the tick looks then. */
        if (!plane->is_armed)
            ibv_req_notify_cq(plane->cq, 0);
        plane->is_armed = true;
        verbs_drain(verbs, (enum fabric_plane)i);
        is_busy |= plane->arrivals_count > 0;
    }
    return is_busy || waiting_is_due(verbs);
}

static void channel_ready(struct loop_watch *watch, uint32_t events)
{
    struct verbs *verbs = watch->context;
    struct ibv_cq *cq;
    void *context;

    (void)events;
    while (ibv_get_cq_event(verbs->channel, &cq, &context) == 0) {
        for (unsigned i = 0; i < PLANES; i++)
            if (verbs->planes[i].cq == cq)
                verbs->planes[i].is_armed = false;
        ibv_ack_cq_events(cq, 1);
    }
    verbs_poll(&verbs->poller);
}

/* Errors of a queue pair come as completions as well; those of the port end connections by their timeouts. */
static void async_ready(struct loop_watch *watch, uint32_t events)
{
    struct verbs *verbs = watch->context;
    struct ibv_async_event event;

    (void)events;
    while (ibv_get_async_event(verbs->context, &event) == 0) {
        if (event.event_type == IBV_EVENT_DEVICE_FATAL || event.event_type == IBV_EVENT_PORT_ERR)
            log_warn("RDMA device %s: %s", verbs->device.name, ibv_event_type_str(event.event_type));
        ibv_ack_async_event(&event);
    }
}

static uint64_t tick_ns(const struct verbs *verbs)
{
    return verbs->config.session_timeout_ns / 4 + 1;
}

static void tick_expired(struct loop_timer *timer)
{
    struct verbs *verbs = timer->context;

    for (unsigned i = 0; i < VERBS_QPS_MAX; i++)
        if (verbs->qps[i].state == VERBS_UP)
            verbs_qp_touch(&verbs->qps[i]);
    waiting_look(verbs);
    verbs_poll(&verbs->poller);
    loop_timer_start(verbs->config.loop, timer, os_now_ns() + tick_ns(verbs));
}

/* ---- opening and closing --------------------------------------------------------------------------------------- */

static void verbs_free(struct verbs *verbs)
{
    for (unsigned i = 0; i < VERBS_QPS_MAX; i++)
        verbs_qp_end(&verbs->qps[i]);
    if (verbs->listener != NULL)
        rdma_destroy_id(verbs->listener);
    if (verbs->events != NULL)
        rdma_destroy_event_channel(verbs->events);
    verbs_device_close(verbs);
    os_pages_unmap(verbs, sizeof(*verbs));
}

static void carrier_close(struct carrier *carrier)
{
    struct verbs *verbs = verbs_of(carrier);
    struct loop *loop = verbs->config.loop;

    loop_timer_stop(loop, &verbs->tick);
    loop_poller_remove(loop, &verbs->poller);
    loop_unwatch(loop, &verbs->events_watch);
    loop_unwatch(loop, &verbs->channel_watch);
    loop_unwatch(loop, &verbs->async_watch);
    verbs_free(verbs);
}

static const struct carrier_ops verbs_carrier_ops = {
    .address = carrier_address,
    .try = verbs_try,
    .flush = carrier_flush,
    .is_flushed = carrier_is_flushed,
    .linger = carrier_linger,
    .end = carrier_end,
    .reason = carrier_reason,
    .close = carrier_close,
};

static int bind_parse(struct verbs *verbs)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&verbs->bind;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&verbs->bind;

    if (verbs->config.bind_address == NULL)
        verbs->config.bind_address = "127.0.0.1";
    v4->sin_family = AF_INET;
    if (inet_pton(AF_INET, verbs->config.bind_address, &v4->sin_addr) == 1)
        return 0;
    v6->sin6_family = AF_INET6;
    if (inet_pton(AF_INET6, verbs->config.bind_address, &v6->sin6_addr) == 1)
        return 0;
    return error_set(-EINVAL, "RDMA: '%s' is not a numeric address", verbs->config.bind_address);
}

/* The kernel's retries last for half of the session's timeout, as those of tcp. */
static uint8_t ack_timeout(uint64_t session_timeout_ns)
{
    uint8_t exponent = ACK_TIMEOUT_MIN;

    while (exponent < ACK_TIMEOUT_MAX &&
           ((uint64_t)4096 << (exponent + 1)) * (VERBS_RETRIES + 1) <= session_timeout_ns / 2)
        exponent++;
    return exponent;
}

static int watches_open(struct verbs *verbs)
{
    struct loop *loop = verbs->config.loop;
    int result;

    verbs->events_watch = (struct loop_watch){.fd = verbs->events->fd, .ready = verbs_events_ready, .context = verbs};
    verbs->channel_watch = (struct loop_watch){.fd = verbs->channel->fd, .ready = channel_ready, .context = verbs};
    verbs->async_watch = (struct loop_watch){.fd = verbs->context->async_fd, .ready = async_ready, .context = verbs};
    result = loop_watch(loop, &verbs->events_watch, EPOLLIN);
    if (result != 0)
        return error_set(result, "RDMA: watch events: %s", strerror(-result));
    result = loop_watch(loop, &verbs->channel_watch, EPOLLIN);
    if (result != 0)
        goto unwatch_events;
    result = loop_watch(loop, &verbs->async_watch, EPOLLIN);
    if (result != 0)
        goto unwatch_channel;
    verbs->poller = (struct loop_poller){.poll = verbs_poll, .arm = verbs_arm, .context = verbs};
    loop_poller_add(loop, &verbs->poller);
    verbs->tick = (struct loop_timer){.expired = tick_expired, .context = verbs};
    loop_timer_start(loop, &verbs->tick, os_now_ns() + tick_ns(verbs));
    return 0;

unwatch_channel:
    loop_unwatch(loop, &verbs->channel_watch);
unwatch_events:
    loop_unwatch(loop, &verbs->events_watch);
    return error_set(result, "RDMA: watch completions: %s", strerror(-result));
}

int fabric_verbs_open(const struct fabric_config *config, struct fabric **ret_fabric)
{
    struct verbs *verbs;
    void *memory;
    int result = fabric_config_check(config);

    if (result != 0)
        return result;
    if (os_pages_map(sizeof(*verbs), &memory) != 0)
        return error_set(-ENOMEM, "RDMA: no memory for %zu bytes", sizeof(*verbs));
    verbs = memory;
    verbs->base.ops = &verbs_carrier_ops;
    verbs->config = *config;
    verbs->ack_timeout = ack_timeout(config->session_timeout_ns);
    result = bind_parse(verbs);
    if (result != 0)
        goto unmap;
    result = verbs_device_open(verbs);
    if (result != 0)
        goto unmap;
    result = verbs_listen(verbs);
    if (result == 0)
        result = watches_open(verbs);
    if (result != 0)
        goto free_verbs;
    result = tcp_open(config, "verbs", &verbs->base, ret_fabric);
    if (result == 0) {
        verbs_pages_offer(verbs);
        return 0;
    }
    carrier_close(&verbs->base);
    return result;

free_verbs:
    verbs_free(verbs);
    return result;
unmap:
    os_pages_unmap(memory, sizeof(*verbs));
    return result;
}
