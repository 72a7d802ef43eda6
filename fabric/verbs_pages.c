/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_pages.c - one-sided operations: what this node lends, and reads and atomics of what its peers lend.
 *
 * A connection has a key of its own to what is lent: a memory window bound to its data queue pair, or where the device
 * has none a registration. Both go before the queue pair does, so a key is of no use afterwards. Results land in slots
 * of the registered pool and are handed out there, from the poll. Runs on the loop's thread.
 */
#include "fabric/verbs.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "fabric/transport.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define NOTE_BYTES              24
#define WINDOW_IS_SERVED(verbs) (((verbs)->attributes.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0)

/* ---- lending --------------------------------------------------------------------------------------------------- */

static bool device_has_atomics(const struct verbs *verbs)
{
    return verbs->attributes.atomic_cap != IBV_ATOMIC_NONE;
}

static bool words_are_lent(const struct verbs *verbs)
{
    return verbs->config.lends_words && device_has_atomics(verbs);
}

static unsigned lent_access(const struct verbs *verbs)
{
    unsigned access = IBV_ACCESS_REMOTE_READ;

    return words_are_lent(verbs) ? access | IBV_ACCESS_REMOTE_ATOMIC : access;
}

/* Pages of this process alone, known to the device. */
static int memory_make(struct verbs *verbs, size_t size, unsigned access, void **ret_memory, struct ibv_mr **ret_mr)
{
    void *memory;

    if (os_pages_map(size, &memory) != 0)
        return -ENOMEM;
    madvise(memory, size, MADV_DONTFORK);
    if (access != 0) {
        *ret_mr = ibv_reg_mr(verbs->pd, memory, size, access);
        if (*ret_mr == NULL) {
            int error = errno;

            os_pages_unmap(memory, size);
            return -error;
        }
    }
    *ret_memory = memory;
    return 0;
}

/* Messages do without: when the memory cannot be had, or not be locked, nothing is lent, or nothing lands. */
void verbs_lend(struct verbs *verbs)
{
    const struct fabric_config *config = &verbs->config;
    unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
    int error = 0;

    if (!WINDOW_IS_SERVED(verbs))
        access = 0; /* registered for each connection */
    if (config->lent_bytes > 0)
        error = memory_make(verbs, config->lent_bytes, access, &verbs->lent, &verbs->lent_mr);
    if (error == 0 && config->landing_bytes > 0)
        error = memory_make(verbs, config->landing_bytes, IBV_ACCESS_LOCAL_WRITE, &verbs->landing, &verbs->landing_mr);
    if (error != 0)
        log_warn("RDMA: %zu KiB for one-sided reads and atomics cannot be registered with %s (%s; see 'ulimit -l'); "
                 "going on without them",
                 (config->lent_bytes + config->landing_bytes) >> 10, verbs->device.name, strerror(-error));
}

void verbs_lend_end(struct verbs *verbs)
{
    if (verbs->lent_mr != NULL)
        ibv_dereg_mr(verbs->lent_mr);
    if (verbs->landing_mr != NULL)
        ibv_dereg_mr(verbs->landing_mr);
    os_pages_unmap(verbs->lent, verbs->config.lent_bytes);
    os_pages_unmap(verbs->landing, verbs->config.landing_bytes);
}

/* The access flags that a data queue pair needs so that its peer can use what is lent. */
unsigned verbs_pages_access(const struct verbs_qp *qp)
{
    return qp->plane == PLANE_DATA && qp->verbs->lent != NULL ? lent_access(qp->verbs) : 0;
}

static int window_bind(struct verbs_qp *qp, uint32_t *ret_key)
{
    struct verbs *verbs = qp->verbs;
    struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW};

    qp->window = ibv_alloc_mw(verbs->pd, IBV_MW_TYPE_2);
    if (qp->window == NULL)
        return -errno;
    wr.bind_mw.mw = qp->window;
    wr.bind_mw.rkey = ibv_inc_rkey(qp->window->rkey);
    wr.bind_mw.bind_info.mr = verbs->lent_mr;
    wr.bind_mw.bind_info.addr = (uintptr_t)verbs->lent;
    wr.bind_mw.bind_info.length = verbs->config.lent_bytes;
    wr.bind_mw.bind_info.mw_access_flags = lent_access(verbs);
    *ret_key = wr.bind_mw.rkey;
    return verbs_qp_post(qp, &wr, false);
}

/* As at open, what cannot be registered is not lent: false, and messages go on. */
static bool registration_make(struct verbs_qp *qp, uint32_t *ret_key)
{
    struct verbs *verbs = qp->verbs;
    unsigned access = lent_access(verbs) | IBV_ACCESS_LOCAL_WRITE;

    qp->lent_mr = ibv_reg_mr(verbs->pd, verbs->lent, verbs->config.lent_bytes, access);
    if (qp->lent_mr == NULL) {
        log_warn("RDMA: %zu KiB cannot be registered with %s for node %u (%m; see 'ulimit -l'); nothing is lent to it",
                 verbs->config.lent_bytes >> 10, verbs->device.name, qp->link->peer->id.index);
        return false;
    }
    *ret_key = qp->lent_mr->rkey;
    return true;
}

/* The key goes to the peer on the connection that it is for, and on no other. */
int verbs_pages_grant(struct verbs_qp *qp)
{
    struct verbs *verbs = qp->verbs;
    uint8_t note[NOTE_BYTES];
    struct bytes_writer writer = {note, sizeof(note), false};
    uint32_t key = 0;
    int result = 0;

    if (verbs_pages_access(qp) == 0)
        return 0;
    if (WINDOW_IS_SERVED(verbs))
        result = window_bind(qp, &key);
    else if (!registration_make(qp, &key))
        return 0;
    if (result != 0)
        return result;
    bytes_put_u64(&writer, (uintptr_t)verbs->lent);
    bytes_put_u64(&writer, verbs->config.lent_bytes);
    bytes_put_u32(&writer, key);
    bytes_put_u32(&writer, words_are_lent(verbs));
    ASSERT(!writer.failed && writer.left == 0);
    return verbs_qp_note(qp, note, sizeof(note));
}

/* Before the queue pair goes: the window holds on to it. Whoever still reads is refused. */
void verbs_pages_revoke(struct verbs_qp *qp)
{
    if (qp->window != NULL)
        ibv_dealloc_mw(qp->window);
    if (qp->lent_mr != NULL)
        ibv_dereg_mr(qp->lent_mr);
    qp->window = NULL;
    qp->lent_mr = NULL;
}

/* What the peer says it lends. It is judged when used: by us against its size, by the peer's device against the truth.
 */
int verbs_pages_noted(struct verbs_qp *qp, const uint8_t *bytes, size_t size)
{
    struct bytes_reader reader = {bytes, size, false};
    struct verbs_lent lent;

    lent.address = bytes_take_u64(&reader);
    lent.size_bytes = bytes_take_u64(&reader);
    lent.key = bytes_take_u32(&reader);
    lent.has_atomics = bytes_take_u32(&reader) != 0;
    if (reader.failed || reader.left != 0 || qp->plane != PLANE_DATA || qp->peer_lends.size_bytes != 0)
        return -EBADMSG;
    qp->peer_lends = lent;
    return 0;
}

/* ---- operations ------------------------------------------------------------------------------------------------ */

static struct verbs *verbs_of_fabric(struct fabric *fabric)
{
    return verbs_of(CONTAINER_OF(fabric, struct tcp, base)->carrier);
}

static void *pages_lent(struct fabric *fabric)
{
    return verbs_of_fabric(fabric)->lent;
}

static void *pages_landing(struct fabric *fabric)
{
    return verbs_of_fabric(fabric)->landing;
}

/* The queue pair that operations on the peer's memory take; NULL: none now. */
static struct verbs_qp *operations_qp(struct verbs *verbs, struct node_id peer)
{
    struct tcp_link *link = &verbs->base.tcp->peers[peer.index].links[PLANE_DATA];
    struct verbs_qp *qp = link->is_carried ? link->carried : NULL;

    return qp != NULL && qp->state == VERBS_UP && qp->trouble == 0 ? qp : NULL;
}

static uint64_t pages_peer_lends(struct fabric *fabric, struct node_id peer)
{
    const struct verbs_qp *qp = operations_qp(verbs_of_fabric(fabric), peer);

    return qp == NULL ? 0 : qp->peer_lends.size_bytes;
}

static uint64_t read_max(const struct verbs *verbs, const struct fabric_operation *operation)
{
    uint64_t at = (uintptr_t)operation->into - (uintptr_t)verbs->landing;

    if (operation->into == NULL)
        return FABRIC_READ_MAX;
    return verbs->landing == NULL || at > verbs->config.landing_bytes || (at & 7) != 0
               ? 0
               : verbs->config.landing_bytes - at;
}

static int operation_check(const struct verbs_qp *qp, const struct fabric_operation *operation)
{
    bool is_read = operation->kind == FABRIC_READ;
    uint64_t size = is_read ? operation->size_bytes : sizeof(uint64_t);
    uint64_t lent = qp->peer_lends.size_bytes;

    if (lent == 0 || (!is_read && !qp->peer_lends.has_atomics))
        return -EOPNOTSUPP;
    if (size == 0 || size > lent || (is_read && size > read_max(qp->verbs, operation)) ||
        operation->offset_bytes > lent - size)
        return -EINVAL;
    return !is_read && (operation->offset_bytes & 7) != 0 ? -EINVAL : 0;
}

static struct verbs_slot *slot_take(struct verbs *verbs)
{
    for (unsigned i = 0; i < VERBS_READS_MAX; i++)
        if (verbs->slots[i].operation == NULL)
            return &verbs->slots[i];
    return NULL;
}

static uint8_t *slot_memory(struct verbs *verbs, const struct verbs_slot *slot)
{
    return verbs->read_slots + (size_t)(slot - verbs->slots) * FABRIC_READ_MAX;
}

static int operation_post(struct verbs_qp *qp, struct verbs_slot *slot, const struct fabric_operation *operation)
{
    struct verbs *verbs = qp->verbs;
    uint64_t address = qp->peer_lends.address + operation->offset_bytes;
    struct ibv_sge sge = {
        .addr = (uintptr_t)slot_memory(verbs, slot),
        .length = operation->kind == FABRIC_READ ? operation->size_bytes : (uint32_t)sizeof(uint64_t),
        .lkey = verbs->mr->lkey,
    };
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1};

    if (operation->kind == FABRIC_READ) {
        if (operation->into != NULL) {
            sge.addr = (uintptr_t)operation->into;
            sge.lkey = verbs->landing_mr->lkey;
        }
        wr.opcode = IBV_WR_RDMA_READ;
        wr.wr.rdma.remote_addr = address;
        wr.wr.rdma.rkey = qp->peer_lends.key;
    } else {
        bool is_add = operation->kind == FABRIC_FETCH_ADD;

        wr.opcode = is_add ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
        wr.wr.atomic.remote_addr = address;
        wr.wr.atomic.rkey = qp->peer_lends.key;
        wr.wr.atomic.compare_add = is_add ? operation->operand : operation->expected;
        wr.wr.atomic.swap = is_add ? 0 : operation->operand;
    }
    return verbs_qp_post(qp, &wr, true);
}

static int pages_operate(struct fabric *fabric, struct fabric_operation *operation)
{
    struct verbs *verbs = verbs_of_fabric(fabric);
    struct verbs_qp *qp = operations_qp(verbs, operation->peer);
    struct verbs_slot *slot;
    int result;

    if (verbs->base.tcp->peers[operation->peer.index].session == 0)
        return -EHOSTDOWN;
    if (qp == NULL)
        return -EOPNOTSUPP;
    result = operation_check(qp, operation);
    if (result != 0)
        return result;
    slot = verbs_qp_has_place(qp) ? slot_take(verbs) : NULL;
    if (slot == NULL)
        return -EAGAIN;
    result = operation_post(qp, slot, operation);
    if (result != 0) {
        verbs_qp_trouble(qp, -result, "a one-sided operation cannot be posted");
        return -EOPNOTSUPP;
    }
    *slot = (struct verbs_slot){
        .operation = operation,
        .qp = qp->index,
        .generation = qp->generation,
        .number = qp->posted,
        .result = -EINPROGRESS,
    };
    qp->operations_count++;
    return 0;
}

static void slot_over(struct verbs_qp *qp, struct verbs_slot *slot, int result)
{
    slot->result = result;
    qp->operations_count--;
    qp->verbs->slots_over_count++;
}

static bool slot_is_of(const struct verbs_slot *slot, const struct verbs_qp *qp)
{
    return slot->operation != NULL && slot->result == -EINPROGRESS && slot->qp == qp->index &&
           slot->generation == qp->generation;
}

/* All of the queue pair up to `number` are done. */
void verbs_pages_completed(struct verbs_qp *qp, uint32_t number)
{
    struct verbs *verbs = qp->verbs;

    for (unsigned i = 0; qp->operations_count > 0 && i < VERBS_READS_MAX; i++)
        if (slot_is_of(&verbs->slots[i], qp) && (int32_t)(number - verbs->slots[i].number) >= 0)
            slot_over(qp, &verbs->slots[i], 0);
}

/* Of one that failed the device says why; what stood behind it has no answer. */
void verbs_pages_failed(struct verbs_qp *qp, uint32_t number, enum ibv_wc_status status)
{
    struct verbs *verbs = qp->verbs;
    bool is_refused = status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR;

    for (unsigned i = 0; i < VERBS_READS_MAX; i++)
        if (slot_is_of(&verbs->slots[i], qp) && verbs->slots[i].number == number && is_refused)
            slot_over(qp, &verbs->slots[i], -EACCES);
}

/* The queue pair ends: nobody knows whether those that are under way were executed. */
void verbs_pages_abort(struct verbs_qp *qp)
{
    struct verbs *verbs = qp->verbs;

    for (unsigned i = 0; qp->operations_count > 0 && i < VERBS_READS_MAX; i++)
        if (slot_is_of(&verbs->slots[i], qp))
            slot_over(qp, &verbs->slots[i], -ECONNABORTED);
}

/* Tells the users. Calls back. */
int verbs_pages_deliver(struct verbs *verbs)
{
    int count = 0;

    for (unsigned i = 0; verbs->slots_over_count > 0 && i < VERBS_READS_MAX; i++) {
        struct verbs_slot *slot = &verbs->slots[i];
        struct fabric_operation *operation = slot->operation;

        if (operation == NULL || slot->result == -EINPROGRESS)
            continue;
        verbs->slots_over_count--;
        count++;
        fabric_report_done(&verbs->base.tcp->base, operation, slot->result,
                           slot->result != 0         ? NULL
                           : operation->into != NULL ? operation->into
                                                     : slot_memory(verbs, slot));
        slot->operation = NULL; /* only now: its bytes were in use */
    }
    return count;
}

static const struct fabric_pages_ops pages_ops = {
    .lent = pages_lent,
    .landing = pages_landing,
    .peer_lends = pages_peer_lends,
    .operate = pages_operate,
};

void verbs_pages_offer(struct verbs *verbs)
{
    struct tcp *tcp = verbs->base.tcp;

    tcp->base.pages = &pages_ops;
    tcp->ops.capabilities |= FABRIC_CAP_PAGES | (device_has_atomics(verbs) ? FABRIC_CAP_ATOMICS : 0);
}
