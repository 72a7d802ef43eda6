/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c - the pool transport: hosts that map one memory (a dax device of CXL memory) and whose caches need not know of
 * each other. Runs on the loop's thread.
 *
 * A message is copied into the sender's partition and out of it by the receiver, who checks it and hands out its copy.
 * No bell reaches another host, so the memory is looked at: in each turn of the loop, and while nothing comes after
 * naps that grow to a millisecond. Nothing is ever lost, so there is no session of sequence numbers below.
 */
#include "fabric/pool.h"
#include "base/error.h"
#include "base/os.h"
#include "fabric/transport.h"

#include <errno.h>
#include <unistd.h>

#define CLOSE_NS             UINT64_C(100000000)
#define NAP_NS_MIN           UINT64_C(20000)
#define NAP_NS_MAX           UINT64_C(1000000)
#define BEATS_IN_TIMEOUT     8
#define RECEIVE_COUNT_MAX    64
#define WAITING_RECORD_BYTES 8
#define ADDRESS_MAGIC        UINT64_C(0x315f4c4f4f504d54) /* "TMPOOL_1" */

static struct pool *pool_of(struct fabric *fabric)
{
    return CONTAINER_OF(fabric, struct pool, base);
}

static void nap_shortly(struct pool *pool)
{
    if (pool->nap_ns == NAP_NS_MIN)
        return;
    pool->nap_ns = NAP_NS_MIN;
    loop_timer_start(pool->config.loop, &pool->timer, os_now_ns() + NAP_NS_MIN);
}

/* ---- sending ---------------------------------------------------------------------------------------------------- */

static int waiting_push(struct fifo *waiting, size_t size, const struct iovec *parts, int parts_count)
{
    uint64_t header = size;
    uint8_t *memory = fifo_reserve(waiting, WAITING_RECORD_BYTES + fabric_round8(size));

    if (memory == NULL)
        return -ENOBUFS;
    memcpy(memory, &header, sizeof(header));
    fabric_parts_copy(memory + WAITING_RECORD_BYTES, parts, parts_count);
    fifo_commit(waiting, WAITING_RECORD_BYTES + fabric_round8(size));
    return 0;
}

/* Moves what waits into the rings; never calls back. */
static void peer_pump(struct pool_peer *peer)
{
    for (unsigned plane = 0; plane < PLANES; plane++) {
        struct fifo *waiting = &peer->waiting[plane];
        bool is_put = false;

        while (fifo_used(waiting) > 0) {
            struct iovec part = {fifo_front(waiting) + WAITING_RECORD_BYTES, 0};
            uint64_t size;
            int result;

            memcpy(&size, fifo_front(waiting), sizeof(size));
            part.iov_len = size;
            result = pool_ring_put(&peer->out[plane], &part, 1);
            peer->is_broken |= result == -EBADMSG;
            if (result != 0)
                break;
            is_put = true;
            fifo_drop(waiting, WAITING_RECORD_BYTES + fabric_round8(size));
        }
        if (is_put)
            pool_ring_commit(&peer->out[plane]);
    }
}

static int pool_send(struct fabric *fabric, struct node_id to, enum fabric_plane plane, const struct iovec *parts,
                     int parts_count)
{
    struct pool *pool = pool_of(fabric);
    struct pool_peer *peer = &pool->peers[to.index];
    struct inbox_entry entry = {.kind = INBOX_MESSAGE, .from = to.index, .plane = (uint16_t)plane};
    size_t size = fabric_parts_size(parts, parts_count);
    int result;

    if (node_is(to, fabric->self))
        return inbox_push(&pool->inbox, entry, parts, parts_count);
    if (peer->session == 0 || peer->is_broken)
        return -EHOSTDOWN;
    if (fifo_used(&peer->waiting[plane]) > 0)
        return waiting_push(&peer->waiting[plane], size, parts, parts_count);
    result = pool_ring_put(&peer->out[plane], parts, parts_count);
    if (result == -EAGAIN)
        return waiting_push(&peer->waiting[plane], size, parts, parts_count);
    if (result != 0) {
        peer->is_broken = true; /* peer_down() comes from the next poll, not from here (F3) */
        return -EHOSTDOWN;
    }
    pool_ring_commit(&peer->out[plane]);
    nap_shortly(pool); /* an answer may come soon */
    return 0;
}

static void pool_deliver_own(void *context, const struct inbox_entry *entry, const uint8_t *bytes)
{
    struct pool *pool = context;

    fabric_deliver(&pool->base, pool->base.self, (enum fabric_plane)entry->plane, bytes, entry->size_bytes);
}

/* ---- receiving -------------------------------------------------------------------------------------------------- */

/* Hands out some messages of a ring. Returns their number, or -EBADMSG. The session may be another one then. */
static int plane_receive(struct pool_peer *peer, enum fabric_plane plane)
{
    struct pool *pool = peer->pool;
    uint64_t generation = peer->generation;
    int count = 0;
    int size = 0;

    while (count < RECEIVE_COUNT_MAX) {
        size = pool_ring_take(&peer->in[plane], pool->message);
        if (size <= 0)
            break;
        count++;
        fabric_deliver(&pool->base, peer->id, plane, pool->message, (size_t)size);
        if (peer->generation != generation)
            return count;
    }
    if (count > 0)
        pool_ring_commit(&peer->in[plane]);
    return size < 0 ? size : count;
}

int pool_peer_receive(struct pool_peer *peer)
{
    int count = 0;

    for (unsigned plane = 0; plane < PLANES && peer->state == POOL_UP; plane++) {
        int result = plane_receive(peer, (enum fabric_plane)plane);

        if (result < 0) {
            pool_peer_fail(peer, "it broke its ring in the pool");
            return count;
        }
        count += result;
    }
    return count;
}

/* ---- looking ---------------------------------------------------------------------------------------------------- */

static void beat(struct pool *pool, uint64_t now_ns)
{
    uint64_t interval_ns = pool->config.session_timeout_ns / BEATS_IN_TIMEOUT;

    pool->beat_at_ns = now_ns + (interval_ns < POOL_BEAT_NS_MAX ? interval_ns : POOL_BEAT_NS_MAX);
    pool->is_taken |= pool_is_taken(pool);
    if (!pool->is_taken)
        pool_header_write(pool, pool->config.incarnation);
    for (unsigned i = 0; i < pool->config.nodes_count; i++) {
        if (pool->is_taken && pool->peers[i].session != 0)
            pool_peer_fail(&pool->peers[i], "another process has taken this node's part of the pool");
        else
            pool_peer_watch(&pool->peers[i], now_ns);
    }
}

static int peer_look(struct pool_peer *peer)
{
    int count = 0;

    pool_peer_look(peer);
    if (peer->session == 0)
        return 0;
    peer_pump(peer);
    if (peer->is_broken)
        pool_peer_fail(peer, "it broke its ring in the pool");
    else
        count = pool_peer_receive(peer);
    return count;
}

static int pool_poll(struct loop_poller *poller)
{
    struct pool *pool = poller->context;
    uint64_t now_ns = os_now_ns();
    int count = 0;

    if (now_ns >= pool->beat_at_ns)
        beat(pool, now_ns);
    for (unsigned i = 0; i < pool->config.nodes_count; i++)
        if (i != pool->config.self.index)
            count += peer_look(&pool->peers[i]);
    if (count > 0)
        nap_shortly(pool);
    return count;
}

/* The loop is about to block, and looks again when the timer says so. */
static bool pool_arm(struct loop_poller *poller)
{
    struct pool *pool = poller->context;
    bool is_busy = false;

    for (unsigned i = 0; i < pool->config.nodes_count; i++)
        is_busy |= pool->peers[i].is_broken && pool->peers[i].session != 0;
    return is_busy;
}

/* Each nap without anything is longer. Pollers run in each turn, so this one too has its turn after the nap. */
static void pool_nap_over(struct loop_timer *timer)
{
    struct pool *pool = timer->context;

    loop_timer_start(pool->config.loop, timer, os_now_ns() + pool->nap_ns);
    pool->nap_ns = pool->nap_ns * 2 < NAP_NS_MAX ? pool->nap_ns * 2 : NAP_NS_MAX;
}

/* ---- the other calls -------------------------------------------------------------------------------------------- */

static size_t pool_address(struct fabric *fabric, uint8_t blob[FABRIC_ADDRESS_MAX])
{
    const struct pool *pool = pool_of(fabric);
    const uint64_t words[3] = {ADDRESS_MAGIC, pool_shape(pool, pool->config.self), pool->config.incarnation};

    memcpy(blob, words, sizeof(words));
    return sizeof(words);
}

static int pool_connect(struct fabric *fabric, struct node_id id, const uint8_t *blob, size_t size_bytes)
{
    struct pool *pool = pool_of(fabric);
    struct pool_peer *peer = &pool->peers[id.index];
    uint64_t words[3] = {0};

    if (size_bytes == sizeof(words))
        memcpy(words, blob, sizeof(words));
    if (words[0] != ADDRESS_MAGIC || words[2] == 0)
        return error_set(-EINVAL, "connect to node %u: not an address in a pool", id.index);
    if (pool->is_taken)
        return error_set(-EBUSY, "connect to node %u: another process has taken this node's part of the pool",
                         id.index);
    pool_peer_end(peer);
    pool_peer_connect(peer, words[2], words[1] != pool_shape(pool, id));
    nap_shortly(pool);
    return 0;
}

static void pool_disconnect(struct fabric *fabric, struct node_id id)
{
    struct pool_peer *peer = &pool_of(fabric)->peers[id.index];

    if (peer->session != 0)
        peer_pump(peer);
    pool_peer_end(peer);
}

static int pool_peer_file(struct fabric *fabric, struct node_id id)
{
    (void)fabric;
    (void)id;
    return -EOPNOTSUPP;
}

static bool pool_is_flushed(struct pool *pool)
{
    bool is_flushed = true;

    for (unsigned i = 0; i < pool->config.nodes_count; i++) {
        struct pool_peer *peer = &pool->peers[i];

        if (peer->state != POOL_UP || peer->is_broken)
            continue;
        peer_pump(peer);
        for (unsigned plane = 0; plane < PLANES; plane++)
            is_flushed &= fifo_used(&peer->waiting[plane]) == 0;
    }
    return is_flushed;
}

static void pool_close(struct fabric *fabric)
{
    struct pool *pool = pool_of(fabric);
    uint64_t end_ns = os_now_ns() + CLOSE_NS;

    while (!pool_is_flushed(pool) && os_now_ns() < end_ns)
        usleep(1000);
    for (unsigned i = 0; i < pool->config.nodes_count; i++)
        pool_peer_end(&pool->peers[i]);
    if (!pool->is_taken && !pool_is_taken(pool))
        pool_header_write(pool, 0);
    loop_timer_stop(pool->config.loop, &pool->timer);
    loop_poller_remove(pool->config.loop, &pool->poller);
    inbox_fini(&pool->inbox);
    pool_unmap(pool);
    os_pages_unmap(pool->message, FABRIC_MESSAGE_MAX);
    os_pages_unmap(pool, sizeof(*pool));
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static const struct fabric_ops pool_ops = {
    .name = "pool",
    .address = pool_address,
    .connect = pool_connect,
    .send = pool_send,
    .disconnect = pool_disconnect,
    .peer_file = pool_peer_file,
    .close = pool_close,
};

static int pool_start(struct pool *pool)
{
    void *memory;
    int result = os_pages_map(FABRIC_MESSAGE_MAX, &memory);

    if (result != 0)
        return error_set(result, "pool: no memory for messages");
    pool->message = memory;
    result = pool_map(pool);
    if (result != 0)
        goto free_message;
    result = pool_others_check(pool);
    if (result != 0)
        goto unmap;
    for (unsigned i = 0; i < NODES_MAX; i++)
        pool_peer_init(&pool->peers[i], pool, node_of(i));
    pool_partition_clear(pool);
    pool_header_write(pool, pool->config.incarnation);
    return 0;

unmap:
    pool_unmap(pool);
free_message:
    os_pages_unmap(pool->message, FABRIC_MESSAGE_MAX);
    return result;
}

int fabric_pool_open(const struct fabric_config *config, struct fabric **ret_fabric)
{
    struct pool *pool;
    void *memory;
    int result = fabric_config_check(config);

    if (result != 0)
        return result;
    if (os_pages_map(sizeof(*pool), &memory) != 0)
        return error_set(-ENOMEM, "pool: no memory for %zu bytes", sizeof(*pool));
    pool = memory;
    fabric_init(&pool->base, &pool_ops, config);
    pool->config = *config;
    pool->poller = (struct loop_poller){.poll = pool_poll, .arm = pool_arm, .context = pool};
    pool->timer = (struct loop_timer){.expired = pool_nap_over, .context = pool};
    pool->nap_ns = NAP_NS_MIN;
    result = pool_start(pool);
    if (result != 0) {
        os_pages_unmap(pool, sizeof(*pool));
        return result;
    }
    inbox_init(&pool->inbox, config, pool_deliver_own, pool);
    loop_poller_add(config->loop, &pool->poller);
    loop_timer_start(config->loop, &pool->timer, os_now_ns() + pool->nap_ns);
    *ret_fabric = &pool->base;
    return 0;
}
