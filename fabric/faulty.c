/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faulty.c - delays and cuts from a seed, over any fabric. Runs on the loop's thread.
 *
 * Delays hold messages back before they reach the fabric below, in order within a plane; cuts go through fabric_cut().
 * It stands between that fabric and the user in both directions, because what is held for a session must end with it.
 */
#include "base/error.h"
#include "base/os.h"
#include "base/random.h"
#include "fabric/fifo.h"
#include "fabric/transport.h"

#include <errno.h>

#define RETRY_NS ((uint64_t)1000000U)

struct held {
    uint64_t release_ns;
    uint64_t size_bytes;
};

struct faulty {
    struct fabric base;
    struct fabric_ops ops; /* a copy with the name and capabilities of the fabric below */
    struct fabric *below;
    struct loop *loop;
    struct faulty_config faults;
    struct random random;
    struct loop_timer timer; /* the earliest release */
    uint64_t timer_ns;       /* when it expires; UINT64_MAX: it does not run */
    struct fifo held[NODES_MAX][PLANES];
    uint64_t newest_ns[NODES_MAX][PLANES]; /* release time of the last message held */
};

static struct faulty *faulty_of(struct fabric *fabric)
{
    return CONTAINER_OF(fabric, struct faulty, base);
}

static void faulty_forget(struct faulty *faulty, struct node_id peer)
{
    for (unsigned plane = 0; plane < PLANES; plane++) {
        fifo_fini(&faulty->held[peer.index][plane]);
        faulty->newest_ns[peer.index][plane] = 0;
    }
}

/* ---- from below ------------------------------------------------------------------------------------------------ */

static void below_message(void *context, struct node_id from, enum fabric_plane plane, const void *bytes,
                          size_t size_bytes)
{
    struct faulty *faulty = context;

    fabric_deliver(&faulty->base, from, plane, bytes, size_bytes);
}

static void below_up(void *context, struct node_id peer)
{
    struct faulty *faulty = context;

    fabric_report_up(&faulty->base, peer);
}

static void below_down(void *context, struct node_id peer, const char *cause)
{
    struct faulty *faulty = context;

    faulty_forget(faulty, peer);
    fabric_report_down(&faulty->base, peer, cause);
}

static void below_path(void *context, struct node_id peer)
{
    struct faulty *faulty = context;

    if (faulty->base.user.path_changed != NULL)
        faulty->base.user.path_changed(faulty->base.user.context, peer);
}

/* ---- holding back ---------------------------------------------------------------------------------------------- */

static bool rolled(struct faulty *faulty, uint32_t permille)
{
    return permille > 0 && random_below(&faulty->random, 1000) < permille;
}

/* Passes on what is due by `now_ns`. Returns when the next message of this plane is due, or UINT64_MAX. */
static uint64_t plane_release(struct faulty *faulty, struct node_id peer, enum fabric_plane plane, uint64_t now_ns)
{
    struct fifo *fifo = &faulty->held[peer.index][plane];

    while (fifo_used(fifo) > 0) {
        struct held held;
        struct iovec part;
        int result;

        memcpy(&held, fifo_front(fifo), sizeof(held));
        if (held.release_ns > now_ns)
            return held.release_ns;
        part = (struct iovec){fifo_front(fifo) + sizeof(held), (size_t)held.size_bytes};
        result = fabric_send(faulty->below, peer, plane, &part, 1);
        if (result == -ENOBUFS)
            return now_ns + RETRY_NS;
        /* -EHOSTDOWN: the peer is down, and what is held for it will be forgotten. */
        fifo_drop(fifo, sizeof(held) + fabric_round8(held.size_bytes));
    }
    return UINT64_MAX;
}

static void faulty_release(struct faulty *faulty, uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;

    for (unsigned i = 0; i < faulty->base.nodes_count; i++)
        for (unsigned plane = 0; plane < PLANES; plane++) {
            uint64_t due_ns = plane_release(faulty, node_of(i), (enum fabric_plane)plane, now_ns);

            if (due_ns < next_ns)
                next_ns = due_ns;
        }
    faulty->timer_ns = next_ns;
    if (next_ns != UINT64_MAX)
        loop_timer_start(faulty->loop, &faulty->timer, next_ns);
}

static void faulty_expired(struct loop_timer *timer)
{
    faulty_release(timer->context, os_now_ns());
}

static int faulty_hold(struct faulty *faulty, struct node_id to, enum fabric_plane plane, const struct iovec *parts,
                       int parts_count)
{
    size_t size = fabric_parts_size(parts, parts_count);
    size_t bytes = sizeof(struct held) + fabric_round8(size);
    uint64_t *newest_ns = &faulty->newest_ns[to.index][plane];
    struct fifo *fifo = &faulty->held[to.index][plane];
    struct held held = {.size_bytes = size};
    uint8_t *memory = fifo_reserve(fifo, bytes);

    if (memory == NULL)
        return -ENOBUFS;
    held.release_ns = os_now_ns() + random_next(&faulty->random) % (faulty->faults.delay_ns_max + 1);
    if (held.release_ns < *newest_ns)
        held.release_ns = *newest_ns;
    *newest_ns = held.release_ns;
    memcpy(memory, &held, sizeof(held));
    fabric_parts_copy(memory + sizeof(held), parts, parts_count);
    fifo_commit(fifo, bytes);
    if (held.release_ns < faulty->timer_ns) {
        faulty->timer_ns = held.release_ns;
        loop_timer_start(faulty->loop, &faulty->timer, held.release_ns);
    }
    return 0;
}

static int faulty_send(struct fabric *fabric, struct node_id to, enum fabric_plane plane, const struct iovec *parts,
                       int parts_count)
{
    struct faulty *faulty = faulty_of(fabric);
    bool is_self = node_is(to, fabric->self);

    if (!is_self && !fabric_is_open(fabric, to))
        return -EHOSTDOWN;
    if (!is_self && rolled(faulty, faulty->faults.cut_permille)) {
        int ignored = fabric_cut(faulty->below, to); /* it can: checked when opened */

        (void)ignored;
    }
    if (fifo_used(&faulty->held[to.index][plane]) > 0 || rolled(faulty, faulty->faults.delay_permille))
        return faulty_hold(faulty, to, plane, parts, parts_count);
    return fabric_send(faulty->below, to, plane, parts, parts_count);
}

/* ---- the other calls ------------------------------------------------------------------------------------------- */

static size_t faulty_address(struct fabric *fabric, uint8_t blob[FABRIC_ADDRESS_MAX])
{
    return fabric_address(faulty_of(fabric)->below, blob);
}

static int faulty_connect(struct fabric *fabric, struct node_id peer, const uint8_t *blob, size_t size_bytes)
{
    return fabric_connect(faulty_of(fabric)->below, peer, blob, size_bytes);
}

/* What was sent before goes before the end. */
static void faulty_disconnect(struct fabric *fabric, struct node_id peer)
{
    struct faulty *faulty = faulty_of(fabric);

    for (unsigned plane = 0; plane < PLANES; plane++)
        plane_release(faulty, peer, (enum fabric_plane)plane, UINT64_MAX);
    faulty_forget(faulty, peer);
    if (!node_is(peer, fabric->self))
        fabric_disconnect(faulty->below, peer);
}

static int faulty_peer_file(struct fabric *fabric, struct node_id peer)
{
    return fabric_peer_file(faulty_of(fabric)->below, peer);
}

static void faulty_cut(struct fabric *fabric, struct node_id peer)
{
    int ignored = fabric_cut(faulty_of(fabric)->below, peer); /* it can: this call exists only then */

    (void)ignored;
}

static void faulty_counters(const struct fabric *fabric, struct fabric_counters *ret_counters)
{
    fabric_counters_get(CONTAINER_OF(fabric, const struct faulty, base)->below, ret_counters);
}

static void faulty_close(struct fabric *fabric)
{
    struct faulty *faulty = faulty_of(fabric);

    for (unsigned i = 0; i < fabric->nodes_count; i++)
        faulty_disconnect(fabric, node_of(i));
    loop_timer_stop(faulty->loop, &faulty->timer);
    fabric_close(faulty->below);
    os_pages_unmap(faulty, sizeof(*faulty));
}

int fabric_faulty_open(struct fabric *below, const struct fabric_config *config, const struct faulty_config *faults,
                       struct fabric **ret_fabric)
{
    struct faulty *faulty;
    void *memory;
    int result = fabric_config_check(config);

    if (result != 0)
        return result;
    if (faults->cut_permille > 0 && (fabric_capabilities(below) & FABRIC_CAP_RESUMES) == 0)
        return error_set(-EINVAL, "faulty: %s does not survive cuts", fabric_name(below));
    if (os_pages_map(sizeof(*faulty), &memory) != 0)
        return error_set(-ENOMEM, "faulty: no memory for %zu bytes", sizeof(*faulty));
    faulty = memory;
    faulty->ops = (struct fabric_ops){
        .name = fabric_name(below),
        .capabilities = fabric_capabilities(below),
        .address = faulty_address,
        .connect = faulty_connect,
        .send = faulty_send,
        .disconnect = faulty_disconnect,
        .peer_file = faulty_peer_file,
        .cut = below->ops->cut == NULL ? NULL : faulty_cut,
        .counters = faulty_counters,
        .close = faulty_close,
    };
    fabric_init(&faulty->base, &faulty->ops, config);
    faulty->below = below;
    faulty->base.below = below;
    faulty->loop = config->loop;
    faulty->faults = *faults;
    faulty->random = (struct random){faults->seed};
    faulty->timer_ns = UINT64_MAX;
    faulty->timer = (struct loop_timer){.expired = faulty_expired, .context = faulty};
    for (unsigned i = 0; i < NODES_MAX; i++)
        for (unsigned plane = 0; plane < PLANES; plane++)
            fifo_init(&faulty->held[i][plane], config->window_bytes_max + sizeof(struct held) + 8);
    below->user = (struct fabric_user){
        .context = faulty,
        .message = below_message,
        .peer_up = below_up,
        .peer_down = below_down,
        .path_changed = below_path,
    };
    *ret_fabric = &faulty->base;
    return 0;
}
