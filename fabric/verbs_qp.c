/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_qp.c - one queue pair: its sends, what completes on it, and its end. Runs on the loop's thread.
 *
 * Always: a slot is written only when its place in the send queue is free; a queue pair that has ended is found by no
 * completion any more, since its queue is emptied after it was destroyed.
 */
#include "fabric/verbs.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/os.h"
#include "fabric/transport.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define COMPLETIONS_AT_ONCE 16
#define WR_IS_SEND          ((uint64_t)1 << 63) /* else wr_id is the slot of a receive */
#define LINGER_NS           ((uint64_t)1000000000U)
#define RNR_TIMER           12 /* 0.64 ms, as verbs count it */
#define RNR_RETRIES         7  /* for ever: credits see to it that it does not happen */

/* ---- places and blocks ----------------------------------------------------------------------------------------- */

static struct verbs_plane *plane_of(const struct verbs_qp *qp)
{
    return &qp->verbs->planes[qp->plane];
}

static struct verbs_qp **bucket_of(struct verbs *verbs, uint32_t number)
{
    return &verbs->buckets[(number ^ number >> 8) % VERBS_BUCKETS];
}

static struct verbs_qp *qp_find(struct verbs *verbs, uint32_t number)
{
    struct verbs_qp *qp = *bucket_of(verbs, number);

    while (qp != NULL && qp->qp->qp_num != number)
        qp = qp->next;
    return qp;
}

/* The longest lingering queue pair of the plane makes room. */
static bool lingering_end(struct verbs *verbs, enum fabric_plane plane)
{
    struct verbs_qp *oldest = NULL;

    for (unsigned i = 0; i < VERBS_QPS_MAX; i++) {
        struct verbs_qp *qp = &verbs->qps[i];

        if (qp->state == VERBS_LINGERING && qp->plane == plane && (oldest == NULL || qp->until_ns < oldest->until_ns))
            oldest = qp;
    }
    if (oldest != NULL)
        verbs_qp_end(oldest);
    return oldest != NULL;
}

static bool block_take(struct verbs *verbs, enum fabric_plane plane, unsigned *ret_block)
{
    struct verbs_plane *of = &verbs->planes[plane];

    do {
        for (unsigned i = 0; i < of->blocks_count; i++)
            if (!of->block_is_used[i]) {
                of->block_is_used[i] = true;
                *ret_block = i;
                return true;
            }
    } while (lingering_end(verbs, plane));
    return false;
}

struct verbs_qp *verbs_qp_take(struct verbs *verbs, struct tcp_link *link)
{
    for (unsigned i = 0; i < VERBS_QPS_MAX; i++) {
        struct verbs_qp *qp = &verbs->qps[i];
        uint16_t generation = qp->generation;
        unsigned block;

        if (qp->state != VERBS_FREE)
            continue;
        if (!block_take(verbs, link->plane, &block))
            return NULL;
        *qp = (struct verbs_qp){
            .verbs = verbs,
            .link = link,
            .state = VERBS_MEETING,
            .plane = link->plane,
            .index = (uint16_t)i,
            .generation = generation,
            .block = block,
        };
        return qp;
    }
    return NULL;
}

/* ---- states ---------------------------------------------------------------------------------------------------- */

static int qp_modify(struct verbs_qp *qp, enum ibv_qp_state state)
{
    struct verbs *verbs = qp->verbs;
    struct ibv_qp_attr attributes = {.qp_state = state};
    uint32_t mtu_bytes;
    int mask = 0;
    int error;

    if (rdma_init_qp_attr(qp->id, &attributes, &mask) != 0)
        return -errno;
    if (state == IBV_QPS_INIT) {
        /* Writes, of nothing: no memory grants any. See verbs_qp_touch(). */
        attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | verbs_pages_access(qp);
        mask |= IBV_QP_ACCESS_FLAGS;
    } else if (state == IBV_QPS_RTR) {
        attributes.min_rnr_timer = RNR_TIMER;
        mask |= IBV_QP_MIN_RNR_TIMER;
        mtu_bytes = (uint32_t)128 << attributes.path_mtu;
        while (mtu_bytes > verbs->choice.mtu_bytes && attributes.path_mtu > IBV_MTU_256) {
            attributes.path_mtu--;
            mtu_bytes >>= 1;
        }
        qp->mtu_bytes = mtu_bytes;
    } else if (state == IBV_QPS_RTS) {
        attributes.timeout = verbs->ack_timeout;
        attributes.retry_cnt = VERBS_RETRIES;
        attributes.rnr_retry = RNR_RETRIES;
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
    }
    error = ibv_modify_qp(qp->qp, &attributes, mask);
    return -error;
}

int verbs_qp_create(struct verbs_qp *qp)
{
    struct verbs_plane *plane = plane_of(qp);
    struct ibv_qp_init_attr attributes = {
        .qp_context = qp,
        .send_cq = plane->cq,
        .recv_cq = plane->cq,
        .srq = plane->srq,
        .cap = {.max_send_wr = plane->depth, .max_send_sge = 1, .max_inline_data = VERBS_INLINE_MAX},
        .qp_type = IBV_QPT_RC,
    };
    struct verbs_qp **bucket;

    qp->qp = ibv_create_qp(qp->verbs->pd, &attributes);
    if (qp->qp == NULL && errno == EINVAL) { /* so much inline data is not to be had */
        attributes.cap.max_inline_data = 0;
        qp->qp = ibv_create_qp(qp->verbs->pd, &attributes);
    }
    if (qp->qp == NULL)
        return -errno;
    qp->inline_bytes_max = attributes.cap.max_inline_data;
    bucket = bucket_of(qp->verbs, qp->qp->qp_num);
    qp->next = *bucket;
    *bucket = qp;
    return qp_modify(qp, IBV_QPS_INIT);
}

int verbs_qp_ready(struct verbs_qp *qp)
{
    int result = qp_modify(qp, IBV_QPS_RTR);

    return result == 0 ? qp_modify(qp, IBV_QPS_RTS) : result;
}

void verbs_qp_up(struct verbs_qp *qp)
{
    struct tcp_link *link = qp->link;

    if (link == NULL || qp->state != VERBS_MEETING)
        return;
    qp->state = VERBS_UP;
    verbs_path_note(link);
    if (verbs_pages_grant(qp) != 0 || tcp_link_attach(link, link->fd, qp->received) != 0)
        tcp_link_cut(link, EPROTO);
}

void verbs_qp_block(struct verbs_qp *qp, bool is_blocked)
{
    if (qp->is_blocked == is_blocked)
        return;
    qp->is_blocked = is_blocked;
    qp->verbs->blocked_count += is_blocked ? 1U : -1U;
}

/* ---- sending --------------------------------------------------------------------------------------------------- */

bool verbs_qp_has_place(const struct verbs_qp *qp)
{
    return qp->posted - qp->completed < plane_of(qp)->depth;
}

static bool has_credit(const struct verbs_qp *qp)
{
    return qp->chunks_sent - qp->chunks_credited < plane_of(qp)->credits;
}

int verbs_qp_post(struct verbs_qp *qp, struct ibv_send_wr *wr, bool is_signalled)
{
    struct ibv_send_wr *bad;
    int error;

    ASSERT(verbs_qp_has_place(qp));
    qp->posted++;
    wr->wr_id = WR_IS_SEND | (uint64_t)qp->generation << 48 | (uint64_t)qp->index << 32 | qp->posted;
    if (is_signalled || qp->posted - qp->signalled >= plane_of(qp)->depth / 4) {
        wr->send_flags |= IBV_SEND_SIGNALED;
        qp->signalled = qp->posted;
    }
    error = ibv_post_send(qp->qp, wr, &bad);
    return -error;
}

/* A chunk, or with size 0 a word about credits. 0 or -errno. */
static int qp_send(struct verbs_qp *qp, const uint8_t *bytes, size_t size, uint32_t flags)
{
    struct verbs_plane *plane = plane_of(qp);
    uint8_t *slot =
        plane->send_slots + ((size_t)qp->block * plane->depth + qp->posted % plane->depth) * plane->chunk_bytes;
    struct ibv_sge sge = {.addr = (uintptr_t)slot, .length = (uint32_t)size, .lkey = qp->verbs->mr->lkey};
    struct ibv_send_wr wr = {
        .sg_list = &sge,
        .num_sge = size > 0,
        .opcode = IBV_WR_SEND_WITH_IMM,
        .imm_data = htobe32((qp->chunks_taken & VERBS_COUNT_MASK) | flags),
    };

    if (size > 0 && size <= qp->inline_bytes_max) {
        sge.addr = (uintptr_t)bytes;
        wr.send_flags = IBV_SEND_INLINE;
    } else if (size > 0) {
        memcpy(slot, bytes, size);
    }
    qp->chunks_sent += size > 0;
    qp->chunks_told = qp->chunks_taken;
    return verbs_qp_post(qp, &wr, false);
}

int verbs_qp_note(struct verbs_qp *qp, const uint8_t *bytes, size_t size)
{
    return verbs_qp_has_place(qp) && has_credit(qp) ? qp_send(qp, bytes, size, VERBS_NOTE) : -EAGAIN;
}

/* As many whole frames as a chunk holds, or a part of one that is larger. */
static size_t chunk_cut(struct verbs_qp *qp, const uint8_t *bytes, size_t unsent_bytes)
{
    size_t chunk_bytes = plane_of(qp)->chunk_bytes;
    size_t left = qp->frame_left_bytes;
    size_t size = 0;
    struct frame frame;

    qp->frame_left_bytes = 0;
    while (unsent_bytes > chunk_bytes) {
        if (left == 0) {
            int result = frame_decode(bytes + size, &frame);

            ASSERT(result == 0); /* the session encoded it */
            left = frame_bytes(&frame);
        }
        if (size + left > chunk_bytes) {
            if (size > 0)
                return size;
            qp->frame_left_bytes = left - chunk_bytes;
            return chunk_bytes;
        }
        size += left;
        left = 0;
    }
    return unsent_bytes;
}

void verbs_qp_flush(struct verbs_qp *qp)
{
    struct tcp_link *link = qp->link;
    const uint8_t *bytes;
    size_t size;

    verbs_qp_block(qp, false);
    while ((size = session_unsent(&link->session, &bytes)) > 0) {
        int result;

        if (!verbs_qp_has_place(qp) || !has_credit(qp)) {
            verbs_qp_block(qp, true);
            return;
        }
        size = chunk_cut(qp, bytes, size);
        result = qp_send(qp, bytes, size, 0);
        if (result != 0) {
            tcp_link_cut(link, -result);
            return;
        }
        session_wrote(&link->session, size);
    }
}

void verbs_qp_told(struct verbs_qp *qp)
{
    int result;

    if (qp->chunks_taken - qp->chunks_told < plane_of(qp)->credits / 2)
        return;
    if (!verbs_qp_has_place(qp)) {
        verbs_qp_block(qp, true);
        return;
    }
    result = qp_send(qp, NULL, 0, 0);
    if (result != 0 && qp->link != NULL)
        tcp_link_cut(qp->link, -result);
}

void verbs_qp_resume(struct verbs_qp *qp)
{
    struct tcp_link *link = qp->link;

    verbs_qp_flush(qp);
    if (link->carried == qp)
        verbs_qp_told(qp);
}

bool verbs_qp_is_due(const struct verbs_qp *qp)
{
    if (qp->state == VERBS_FREE)
        return false;
    return qp->trouble != 0 || (qp->state == VERBS_LINGERING && qp->completed == qp->posted) ||
           (qp->is_blocked && verbs_qp_has_place(qp) && has_credit(qp));
}

/* An empty write takes no receive and touches no memory, but is acknowledged, or fails after the retries. */
void verbs_qp_touch(struct verbs_qp *qp)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
    int result;

    /* What is signalled and not completed is being tried already; what is not signalled may never have got there. */
    if (qp->posted == qp->ticked && qp->signalled == qp->completed && verbs_qp_has_place(qp)) {
        result = verbs_qp_post(qp, &wr, true);
        if (result != 0 && qp->link != NULL) {
            tcp_link_cut(qp->link, -result);
            return;
        }
    }
    qp->ticked = qp->posted;
}

/* All of it has reached the peer: the last send is signalled for that. */
bool verbs_qp_is_flushed(struct verbs_qp *qp)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
    const uint8_t *unsent;

    verbs_drain(qp->verbs, qp->plane);
    if (qp->trouble != 0)
        return true;
    if (qp->link != NULL && session_unsent(&qp->link->session, &unsent) > 0)
        return false;
    if (qp->signalled != qp->posted && verbs_qp_has_place(qp) && verbs_qp_post(qp, &wr, true) != 0)
        return true;
    return qp->completed == qp->posted;
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

/* It still sends; what is lent may be another's from now on. */
void verbs_qp_linger(struct verbs_qp *qp)
{
    verbs_qp_block(qp, false);
    verbs_pages_revoke(qp);
    qp->link = NULL;
    qp->state = VERBS_LINGERING;
    qp->until_ns = os_now_ns() + LINGER_NS;
    qp->verbs->lingering_count++;
}

static void qp_forget(struct verbs_qp *qp)
{
    struct verbs_qp **at = bucket_of(qp->verbs, qp->qp->qp_num);

    while (*at != qp)
        at = &(*at)->next;
    *at = qp->next;
}

void verbs_qp_end(struct verbs_qp *qp)
{
    struct verbs *verbs = qp->verbs;
    struct ibv_qp *below = qp->qp;

    if (qp->state == VERBS_FREE)
        return;
    verbs_qp_block(qp, false);
    verbs->lingering_count -= qp->state == VERBS_LINGERING;
    verbs->troubles_count -= qp->trouble != 0;
    verbs_pages_abort(qp);
    verbs_pages_revoke(qp);
    qp->state = VERBS_FREE;
    qp->trouble = 0;
    qp->generation = (qp->generation + 1U) & VERBS_GENERATION_MASK;
    qp->link = NULL;
    plane_of(qp)->block_is_used[qp->block] = false;
    if (below != NULL) {
        qp_forget(qp);
        qp->qp = NULL;
        ibv_destroy_qp(below);
    }
    if (qp->id != NULL)
        rdma_destroy_id(qp->id);
    qp->id = NULL;
    if (below != NULL)
        verbs_drain(verbs, qp->plane);
}

/* ---- completions ----------------------------------------------------------------------------------------------- */

/* Told from the poll: whoever drains may stand in the middle of a queue of completions, or inside send(). */
void verbs_qp_trouble(struct verbs_qp *qp, int error, const char *what)
{
    if (qp->trouble != 0)
        return;
    qp->trouble = error;
    qp->trouble_text = what;
    qp->verbs->troubles_count++;
}

static void send_completed(struct verbs *verbs, const struct ibv_wc *wc)
{
    struct verbs_qp *qp = &verbs->qps[(wc->wr_id >> 32) % VERBS_QPS_MAX];

    if (qp->state == VERBS_FREE || qp->generation != (wc->wr_id >> 48 & VERBS_GENERATION_MASK))
        return;
    if (wc->status == IBV_WC_SUCCESS) {
        qp->completed = (uint32_t)wc->wr_id;
        verbs_pages_completed(qp, qp->completed);
        return;
    }
    verbs_pages_failed(qp, (uint32_t)wc->wr_id, wc->status);
    verbs_qp_trouble(qp, wc->status == IBV_WC_RETRY_EXC_ERR ? ETIMEDOUT : ECONNRESET, ibv_wc_status_str(wc->status));
}

static void receive_completed(struct verbs *verbs, enum fabric_plane plane, const struct ibv_wc *wc)
{
    struct verbs_plane *of = &verbs->planes[plane];
    struct verbs_qp *qp = qp_find(verbs, wc->qp_num);
    uint32_t slot = (uint32_t)wc->wr_id;
    uint32_t credits;

    if (qp != NULL && wc->status == IBV_WC_SUCCESS && qp->trouble == 0 && qp->link != NULL) {
        credits = (be32toh(wc->imm_data) - qp->chunks_credited) & VERBS_COUNT_MASK;
        if ((wc->wc_flags & IBV_WC_WITH_IMM) == 0 || wc->opcode != IBV_WC_RECV)
            verbs_qp_trouble(qp, EBADMSG, "it sent what no node of ours sends");
        else if (credits > qp->chunks_sent - qp->chunks_credited)
            verbs_qp_trouble(qp, EBADMSG, "it returned more credits than it had");
        else
            qp->chunks_credited += credits;
    }
    if (qp == NULL || wc->status != IBV_WC_SUCCESS || wc->byte_len == 0) {
        int ignored = verbs_receive_post(verbs, plane, slot); /* in vain only when the device is lost */

        (void)ignored;
        return;
    }
    ASSERT(of->arrivals_count < of->receives_count);
    of->arrivals[(of->arrivals_first + of->arrivals_count++) % of->receives_count] = (struct verbs_arrival){
        .qp = qp->index,
        .generation = qp->generation,
        .slot = slot,
        .size_bytes = wc->byte_len,
        .is_note = (be32toh(wc->imm_data) & VERBS_NOTE) != 0,
    };
}

/* Takes all completions of a plane. Sends are settled, receives are put aside. Never calls back. */
void verbs_drain(struct verbs *verbs, enum fabric_plane plane)
{
    struct ibv_wc wcs[COMPLETIONS_AT_ONCE];
    int count;

    do {
        count = ibv_poll_cq(verbs->planes[plane].cq, COMPLETIONS_AT_ONCE, wcs);
        for (int i = 0; i < count; i++) {
            if ((wcs[i].wr_id & WR_IS_SEND) != 0)
                send_completed(verbs, &wcs[i]);
            else
                receive_completed(verbs, plane, &wcs[i]);
        }
    } while (count == COMPLETIONS_AT_ONCE);
}
