/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loopback.c - the smallest fabric: the first one to read.
 *
 * A message is copied into the receiver's inbox, and the receiver's loop hands it over. Fabrics of one process that
 * share a loop (tests) find each other by address in a list; so everything runs on that loop's thread, and only the
 * list needs a lock.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "fabric/inbox.h"
#include "fabric/transport.h"

#include <errno.h>

enum entry_kind {
    ENTRY_MESSAGE = INBOX_MESSAGE,
    ENTRY_UP,   /* the bytes are the other side's address */
    ENTRY_DOWN, /* the bytes are the cause */
};

struct loopback_peer {
    struct loopback *fabric; /* NULL: no session */
    uint64_t session;
};

struct loopback {
    struct fabric base;
    struct fabric_config config;
    uint64_t address;
    struct loopback *next;
    struct inbox inbox;
    struct loopback_peer peers[NODES_MAX];
};

static struct {
    pthread_mutex_t lock; /* guards all */
    struct loopback *first;
} opened = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct loopback *loopback_find(uint64_t address)
{
    struct loopback *found;

    pthread_mutex_lock(&opened.lock);
    for (found = opened.first; found != NULL && found->address != address; found = found->next)
        ;
    pthread_mutex_unlock(&opened.lock);
    return found;
}

/* The connecting side knows its session since connect(); the other side learns it here, in order with the rest. */
static void loopback_handle_up(struct loopback *loopback, struct node_id from, uint64_t session, uint64_t address)
{
    struct loopback_peer *peer = &loopback->peers[from.index];

    if (from.index > loopback->base.self.index)
        *peer = (struct loopback_peer){loopback_find(address), session};
    if (peer->fabric != NULL && peer->session == session)
        fabric_report_up(&loopback->base, from);
}

static void loopback_handle(void *context, const struct inbox_entry *entry, const uint8_t *bytes)
{
    struct loopback *loopback = context;
    struct node_id from = node_of(entry->from);
    struct loopback_peer *peer = &loopback->peers[from.index];
    uint64_t address;

    if (entry->kind == ENTRY_UP) {
        memcpy(&address, bytes, sizeof(address));
        loopback_handle_up(loopback, from, entry->session, address);
        return;
    }
    /* What belongs to a session that this side ended meanwhile is dropped (F5). */
    if (entry->session != peer->session)
        return;
    if (entry->kind == ENTRY_MESSAGE) {
        fabric_deliver(&loopback->base, from, (enum fabric_plane)entry->plane, bytes, entry->size_bytes);
        return;
    }
    *peer = (struct loopback_peer){0};
    fabric_report_down(&loopback->base, from, (const char *)bytes);
}

static void loopback_notify(struct loopback *to, struct node_id from, enum entry_kind kind, uint64_t session,
                            const void *bytes, size_t size)
{
    struct inbox_entry entry = {.kind = kind, .from = from.index, .session = session};
    struct iovec part = {(void *)(uintptr_t)bytes, size};

    if (inbox_push(&to->inbox, entry, &part, 1) != 0)
        log_error("loopback: no memory to tell node %u about node %u", to->base.self.index, from.index);
}

static void loopback_notify_down(struct loopback *to, struct node_id from, uint64_t session, const char *cause)
{
    loopback_notify(to, from, ENTRY_DOWN, session, cause, strlen(cause) + 1);
}

static size_t loopback_address(struct fabric *fabric, uint8_t blob[FABRIC_ADDRESS_MAX])
{
    struct loopback *loopback = CONTAINER_OF(fabric, struct loopback, base);

    memcpy(blob, &loopback->address, sizeof(loopback->address));
    return sizeof(loopback->address);
}

static const char *loopback_refusal(const struct loopback *from, const struct loopback *to, struct node_id peer)
{
    if (to == NULL)
        return "nobody listens at its address";
    if (to->config.loop != from->config.loop)
        return "it is on another loop";
    if (to->config.job != from->config.job)
        return "it belongs to another job";
    if (!node_is(to->base.self, peer) || from->base.self.index >= to->base.nodes_count)
        return "its address is another node's";
    return NULL;
}

static int loopback_connect(struct fabric *fabric, struct node_id peer, const uint8_t *blob, size_t size_bytes)
{
    struct loopback *loopback = CONTAINER_OF(fabric, struct loopback, base);
    uint64_t session = os_random();
    struct loopback *other;
    const char *refusal;
    uint64_t address;

    if (size_bytes != sizeof(address))
        return error_set(-EINVAL, "connect to node %u: not a loopback address", peer.index);
    memcpy(&address, blob, sizeof(address));
    other = loopback_find(address);
    refusal = loopback_refusal(loopback, other, peer);
    loopback->peers[peer.index] = (struct loopback_peer){refusal == NULL ? other : NULL, session};
    if (refusal != NULL) {
        if (other != NULL)
            other->base.counters.peers_refused++;
        loopback_notify_down(loopback, peer, session, refusal);
        return 0;
    }
    loopback_notify(other, fabric->self, ENTRY_UP, session, &loopback->address, sizeof(address));
    loopback_notify(loopback, peer, ENTRY_UP, session, &other->address, sizeof(address));
    return 0;
}

static int loopback_send(struct fabric *fabric, struct node_id to, enum fabric_plane plane, const struct iovec *parts,
                         int parts_count)
{
    struct loopback *loopback = CONTAINER_OF(fabric, struct loopback, base);
    const struct loopback_peer *peer = &loopback->peers[to.index];
    struct inbox_entry entry = {
        .kind = ENTRY_MESSAGE, .from = fabric->self.index, .plane = (uint16_t)plane, .session = peer->session};

    if (peer->fabric == NULL)
        return -EHOSTDOWN;
    return inbox_push(&peer->fabric->inbox, entry, parts, parts_count);
}

static void loopback_disconnect(struct fabric *fabric, struct node_id to)
{
    struct loopback *loopback = CONTAINER_OF(fabric, struct loopback, base);
    struct loopback_peer *peer = &loopback->peers[to.index];

    if (peer->fabric != NULL) {
        struct loopback_peer *back = &peer->fabric->peers[fabric->self.index];

        loopback_notify_down(peer->fabric, fabric->self, peer->session, "it ended the session");
        if (back->session == peer->session)
            back->fabric = NULL; /* this fabric may be gone before the notice is read */
    }
    *peer = (struct loopback_peer){0};
}

static int loopback_peer_file(struct fabric *fabric, struct node_id peer)
{
    (void)fabric;
    (void)peer;
    return -EOPNOTSUPP;
}

static void loopback_close(struct fabric *fabric)
{
    struct loopback *loopback = CONTAINER_OF(fabric, struct loopback, base);
    struct loopback **link;

    for (unsigned i = 0; i < fabric->nodes_count; i++)
        if (i != fabric->self.index)
            loopback_disconnect(fabric, node_of(i));
    pthread_mutex_lock(&opened.lock);
    for (link = &opened.first; *link != loopback; link = &(*link)->next)
        ;
    *link = loopback->next;
    pthread_mutex_unlock(&opened.lock);
    inbox_fini(&loopback->inbox);
    os_pages_unmap(loopback, sizeof(*loopback));
}

static const struct fabric_ops loopback_ops = {
    .name = "loopback",
    .address = loopback_address,
    .connect = loopback_connect,
    .send = loopback_send,
    .disconnect = loopback_disconnect,
    .peer_file = loopback_peer_file,
    .close = loopback_close,
};

int fabric_loopback_open(const struct fabric_config *config, struct fabric **ret_fabric)
{
    struct loopback *loopback;
    void *memory;
    int result = fabric_config_check(config);

    if (result != 0)
        return result;
    if (os_pages_map(sizeof(*loopback), &memory) != 0)
        return error_set(-ENOMEM, "loopback: no memory for %zu bytes", sizeof(*loopback));
    loopback = memory;
    fabric_init(&loopback->base, &loopback_ops, config);
    loopback->config = *config;
    loopback->address = os_random();
    loopback->peers[config->self.index].fabric = loopback;
    inbox_init(&loopback->inbox, config, loopback_handle, loopback);
    pthread_mutex_lock(&opened.lock);
    loopback->next = opened.first;
    opened.first = loopback;
    pthread_mutex_unlock(&opened.lock);
    *ret_fabric = &loopback->base;
    return 0;
}
