/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers.c - the other nodes: which transport leads to each, what comes from them, and who is still in.
 *
 * Runs on the shard's thread. The transport is chosen per pair by the same rule at both ends: shm when both are on one
 * host and offer it, else the network: RDMA, and TCP where that does not work (fabric/verbs.c decides for each
 * connection).
 */
#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "runtime/bulk.h"
#include "runtime/bulk_pull.h"
#include "runtime/bulk_stream.h"
#include "runtime/memory.h"
#include "runtime/node.h"
#include "runtime/topology.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BIND_DEFAULT "127.0.0.1"
#define LINK_LOOK_NS 50000000 /* between looks at the agent's link while the job starts */

/* Kinds of addresses in a node's blob: kind (1 byte), length (2 bytes), bytes. */
enum address_kind {
    ADDRESS_SHM = 1,
    ADDRESS_TCP = 2,
    ADDRESS_BULK = 3,
    ADDRESS_POOL = 4,
};

/* ---- incoming -------------------------------------------------------------------------------------------------- */

static void coherence_arrived(struct node *node, struct node_id from, const void *bytes, size_t size_bytes)
{
    struct message message;

    if (message_decode(bytes, size_bytes, &message) != 0) {
        log_warn("node %u sent a coherence message of %zu bytes that cannot be read; ignored", from.index, size_bytes);
        return;
    }
    coherence_receive(node->coherence, from, &message, os_now_ns());
}

static void runtime_arrived(struct node *node, struct node_id from, const void *bytes, size_t size_bytes)
{
    struct wire wire;

    if (wire_decode(bytes, size_bytes, &wire) != 0)
        log_warn("node %u sent a runtime message of %zu bytes that cannot be read; ignored", from.index, size_bytes);
    else if (wire.type == WIRE_FREE || wire.type == WIRE_FREED)
        memory_receive(node, from, &wire);
    else
        bulk_receive(node, from, &wire);
}

static void peer_message(void *context, struct node_id from, enum fabric_plane plane, const void *bytes,
                         size_t size_bytes)
{
    struct node *node = context;
    uint8_t family = *(const uint8_t *)bytes;

    (void)plane;
    node->messages_received++;
    node->bytes_received += size_bytes;
    cluster_heard(node->cluster, from, os_now_ns());
    switch (family) {
    case 1:
        coherence_arrived(node, from, bytes, size_bytes);
        return;
    case MESSAGE_FAMILY_CLUSTER:
        cluster_receive(node->cluster, from, bytes, size_bytes, os_now_ns());
        return;
    case MESSAGE_FAMILY_RUNTIME:
        runtime_arrived(node, from, bytes, size_bytes);
        return;
    default:
        log_warn("node %u sent a message of unknown family %u; ignored", from.index, family);
    }
}

static void peer_up(void *context, struct node_id peer)
{
    struct node *node = context;

    node->peers_up |= (uint64_t)1 << peer.index;
}

static void peer_path_changed(void *context, struct node_id peer)
{
    struct node *node = context;
    struct fabric *fabric = node->via[peer.index];
    const char *control = fabric == NULL ? "" : fabric_path(fabric, peer, PLANE_CONTROL);
    const char *data = fabric == NULL ? "" : fabric_path(fabric, peer, PLANE_DATA);

    if (control[0] != '\0' && data[0] != '\0')
        log_info("node %u is reached by %s; control messages by %s", peer.index, data, control);
    topology_tell(node);
}

static void peer_down(void *context, struct node_id peer, const char *cause)
{
    struct node *node = context;

    node->peers_up &= ~((uint64_t)1 << peer.index);
    if (node->is_leaving || !view_has(&node->view, peer))
        return;
    log_warn("connection to node %u ended: %s; asking the agent to remove it", peer.index, cause);
    if (node->link != NULL)
        agent_link_suspect(node->link, peer);
}

/* ---- outgoing -------------------------------------------------------------------------------------------------- */

int peers_send(struct node *node, struct node_id to, enum fabric_plane plane, const struct iovec *parts,
               int parts_count)
{
    struct fabric *fabric = to.index < NODES_MAX ? node->via[to.index] : NULL;
    int error = fabric == NULL ? -EHOSTDOWN : fabric_send(fabric, to, plane, parts, parts_count);

    node->messages_sent++;
    for (int i = 0; i < parts_count; i++)
        node->bytes_sent += parts[i].iov_len;
    if (error == -ENOBUFS) {
        /* It neither reads nor dies: a node that stops all others is worse than a lost one. */
        fabric_disconnect(fabric, to);
        peer_down(node, to, "it takes no more messages");
    }
    return error;
}

/* ---- set-up ---------------------------------------------------------------------------------------------------- */

static int shm_directory_make(const struct node *node, char *path, size_t size)
{
    const char *base = getenv("XDG_RUNTIME_DIR");
    struct stat status;

    if (node->directory[0] != '\0') { /* dsmrun made it and removes it */
        snprintf(path, size, "%s", node->directory);
        return 0;
    }
    snprintf(path, size, "%s/tiermesh-%u-%016lx", base != NULL && base[0] == '/' ? base : "/tmp", geteuid(), node->job);
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return error_set(-errno, "make %s for shared-memory rings: %m", path);
    if (lstat(path, &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid() ||
        (status.st_mode & 077) != 0)
        return error_set(-EACCES, "%s is not a directory of this user with mode 0700; remove it", path);
    return 0;
}

static struct fabric_config fabric_config_of(struct node *node, const char *directory)
{
    return (struct fabric_config){
        .self = node->self,
        .nodes_count = node->nodes_count,
        .loop = node->loop,
        .user = {node, peer_message, peer_up, peer_down, peer_path_changed},
        .job = node->job,
        .incarnation = os_random(),
        .session_timeout_ns = node->config.session_timeout_ns,
        .window_bytes_max = 64 << 20,
        .bind_address = node->config.bind,
        .shm_directory = directory,
        .pool_path = node->config.pool,
        .shared_file = node->window.memfd,
        .lent_bytes = LEND_BYTES,
        .landing_bytes = PULL_BYTES,
    };
}

static int faulty_stack(struct node *node, const struct fabric_config *config, struct fabric **fabric)
{
    struct faulty_config faults = {
        .seed = node->config.faulty_seed + node->self.index,
        .delay_permille = 100,
        .delay_ns_max = 2000000,
        .cut_permille = (fabric_capabilities(*fabric) & FABRIC_CAP_RESUMES) != 0 ? 2 : 0,
    };

    return node->config.faulty_seed == 0 ? 0 : fabric_faulty_open(*fabric, config, &faults, fabric);
}

/* RDMA with TCP below it, or TCP alone and why. A host without a device is no news; one that cannot be used is. */
static int network_open(struct node *node, const struct fabric_config *config)
{
    const char *wanted = node->config.transport;
    int error;

    if (strcmp(wanted, "tcp") == 0)
        return fabric_tcp_open(config, &node->tcp);
    error = fabric_verbs_open(config, &node->tcp);
    if (error == 0)
        return 0;
    snprintf(node->rdma_refused, sizeof(node->rdma_refused), "%s", error_text());
    if (error != -ENODEV || strcmp(wanted, "verbs") == 0)
        log_warn("%s; using TCP", node->rdma_refused);
    else
        log_info("%s; using TCP", node->rdma_refused);
    return fabric_tcp_open(config, &node->tcp);
}

int peers_open(struct node *node)
{
    char directory[300];
    struct fabric_config config = fabric_config_of(node, directory);
    const char *wanted = node->config.transport;
    bool wants_pool = strcmp(wanted, "pool") == 0;
    bool wants_shm = strcmp(wanted, "auto") == 0 || strcmp(wanted, "shm") == 0;
    bool wants_tcp = !wants_pool && strcmp(wanted, "shm") != 0;
    int error = 0;

    /* Unless told otherwise, listen where this node met its agent: on loopback, or where other hosts are. */
    if (node->link != NULL && strcmp(node->config.bind, BIND_DEFAULT) == 0)
        agent_link_host(node->link, node->config.bind);
    if (node->nodes_count == 1)
        return fabric_loopback_open(&config, &node->tcp);
    if (wants_shm) {
        error = shm_directory_make(node, directory, sizeof(directory));
        if (error == 0)
            error = fabric_shm_open(&config, &node->shm);
        if (error == 0)
            error = faulty_stack(node, &config, &node->shm);
    }
    if (wants_pool) {
        error = fabric_pool_open(&config, &node->pool);
        if (error == 0)
            error = faulty_stack(node, &config, &node->pool);
    }
    if (error == 0 && wants_tcp)
        error = network_open(node, &config);
    if (error == 0 && node->tcp != NULL)
        error = faulty_stack(node, &config, &node->tcp);
    if (error == 0 && node->tcp != NULL)
        error = bulk_stream_open(node, &node->stream);
    if (error == 0)
        error = bulk_pull_create(node);
    return error;
}

static void blob_add(struct bytes_writer *writer, enum address_kind kind, const void *blob, size_t size)
{
    if (size == 0)
        return;
    bytes_put_u8(writer, (uint8_t)kind);
    bytes_put_u16(writer, (uint16_t)size);
    bytes_put(writer, blob, size);
}

static void host_name(char *host, size_t size)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t count = fd < 0 ? 0 : read(fd, host, size - 1);

    if (fd >= 0)
        close(fd);
    host[count > 0 ? count : 0] = '\0';
    host[strcspn(host, "\n")] = '\0';
}

static void self_describe(struct node *node, struct agent_peer *self)
{
    struct bytes_writer writer = {self->blob, sizeof(self->blob), false};

    uint8_t blob[FABRIC_ADDRESS_MAX];

    host_name(self->host, sizeof(self->host));
    if (node->shm != NULL)
        blob_add(&writer, ADDRESS_SHM, blob, fabric_address(node->shm, blob));
    if (node->tcp != NULL)
        blob_add(&writer, ADDRESS_TCP, blob, fabric_address(node->tcp, blob));
    if (node->pool != NULL)
        blob_add(&writer, ADDRESS_POOL, blob, fabric_address(node->pool, blob));
    if (node->stream != NULL)
        blob_add(&writer, ADDRESS_BULK, blob, bulk_stream_address(node->stream, (char *)blob, sizeof(blob)));
    ASSERT(!writer.failed);
    self->blob_bytes = (uint32_t)(sizeof(self->blob) - writer.left);
}

/* The address of one kind inside a peer's blob; NULL: it has none. */
static const uint8_t *blob_find(const struct agent_peer *peer, enum address_kind kind, size_t *ret_size)
{
    struct bytes_reader reader = {peer->blob, peer->blob_bytes, false};

    while (reader.left > 0) {
        uint8_t found = bytes_take_u8(&reader);
        uint16_t size = bytes_take_u16(&reader);

        if (reader.failed || reader.left < size)
            return NULL;
        if (found == kind) {
            *ret_size = size;
            return reader.next;
        }
        reader.next += size;
        reader.left -= size;
    }
    return NULL;
}

static int peer_choose(struct node *node, const struct agent_peer *self, const struct agent_peer *peer,
                       struct node_id id)
{
    bool one_host = self->host[0] != '\0' && strcmp(self->host, peer->host) == 0;
    size_t size = 0;
    const uint8_t *bulk = node->stream != NULL ? blob_find(peer, ADDRESS_BULK, &size) : NULL;
    const uint8_t *address;

    if (bulk != NULL && bulk_stream_peer(node->stream, id, (const char *)bulk, size) != 0)
        return error_set(-EPROTO, "node %u gave an address for bulk reads that cannot be read", id.index);
    address = one_host && node->shm != NULL ? blob_find(peer, ADDRESS_SHM, &size) : NULL;

    node->via[id.index] = node->shm;
    node->via_why[id.index] = "both nodes are on this host";
    if (address == NULL) {
        node->via_why[id.index] = strcmp(node->config.transport, "auto") != 0 ? "option transport asks for it"
                                  : one_host ? "a node of this host has no shared memory for it" : "another host";
        node->via[id.index] = node->pool != NULL ? node->pool : node->tcp;
        address = node->pool != NULL  ? blob_find(peer, ADDRESS_POOL, &size)
                  : node->tcp != NULL ? blob_find(peer, ADDRESS_TCP, &size)
                                      : NULL;
    }
    if (address == NULL)
        return error_set(-EHOSTDOWN, "no transport leads to node %u; option transport may exclude it", id.index);
    return id.index < node->self.index ? fabric_connect(node->via[id.index], id, address, size) : 0;
}

/* A member that dies before all are connected ends the start: there is no job of the promised size. */
static bool member_is_lost(struct node *node)
{
    struct view view;
    int result = agent_link_read(node->link, &view);

    return result < 0 || (result == 1 && view.members != node->view.members);
}

static int peers_wait(struct node *node, uint64_t deadline_ns)
{
    uint64_t all = node->view.members & ~((uint64_t)1 << node->self.index);

    while ((node->peers_up & all) != all) {
        if (member_is_lost(node))
            return error_set(-EHOSTDOWN, "a node ended while the job was starting");
        if (os_now_ns() >= deadline_ns)
            return error_set(-ETIMEDOUT, "the other nodes joined but cannot all be reached; "
                             "check option bind and the network between them");
        loop_run_once(node->loop, os_now_ns() + LINK_LOOK_NS);
    }
    return 0;
}

/* A duplicate, so that threads may read from it whatever becomes of the connection. */
static void peer_file_keep(struct node *node, struct node_id peer)
{
    struct fabric *fabric = node->via[peer.index];
    int file = fabric != NULL && !node_is(peer, node->self) ? fabric_peer_file(fabric, peer) : -1;
    struct peer_file *kept = &node->peer_files[peer.index];
    void *bytes;

    file = file >= 0 ? fcntl(file, F_DUPFD_CLOEXEC, 100) : -1;
    if (file < 0)
        return;
    bytes = mmap(NULL, node->window.shared_bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file, 0);
    kept->bytes = bytes == MAP_FAILED ? NULL : bytes;
    if (kept->bytes != NULL)
        madvise(bytes, node->window.shared_bytes, MADV_DONTDUMP);
    atomic_store_explicit(&kept->number, file + 1, memory_order_release);
}

int peers_meet(struct node *node)
{
    struct agent_welcome *welcome;
    struct agent_peer self = {.blob_bytes = 0};
    uint64_t deadline_ns = os_now_ns() + node->config.join_timeout_ns;
    int error;

    self_describe(node, &self);
    node->via[node->self.index] = node->pool != NULL ? node->pool : node->tcp != NULL ? node->tcp : node->shm;
    if (node->link == NULL) {
        node->view = (struct view){.epoch = {1}, .members = (uint64_t)1 << node->self.index};
        return 0;
    }
    welcome = calloc(1, sizeof(*welcome));
    if (welcome == NULL)
        return -ENOMEM;
    error = agent_meet(node->link, &self, node->config.join_timeout_ns, welcome);
    node->view = welcome->view;
    for (unsigned i = 0; error == 0 && i < node->nodes_count; i++)
        if (i != node->self.index && view_has(&welcome->view, node_of(i)))
            error = peer_choose(node, &self, &welcome->peers[i], node_of(i));
    free(welcome);
    if (error == 0)
        error = peers_wait(node, deadline_ns);
    for (unsigned i = 0; error == 0 && i < node->nodes_count; i++)
        peer_file_keep(node, node_of(i));
    if (error == 0)
        topology_tell(node);
    return error;
}

void peers_close(struct node *node)
{
    char directory[300];

    if (node->shm != NULL) {
        fabric_close(node->shm);
        if (node->directory[0] == '\0' && shm_directory_make(node, directory, sizeof(directory)) == 0)
            rmdir(directory); /* the last node of the host succeeds */
    }
    if (node->tcp != NULL)
        fabric_close(node->tcp);
    if (node->pool != NULL)
        fabric_close(node->pool);
    node->shm = node->tcp = node->pool = NULL;
    topology_forget();
    for (unsigned i = 0; i < NODES_MAX; i++) {
        struct peer_file *kept = &node->peer_files[i];

        if (kept->bytes != NULL)
            munmap((void *)(uintptr_t)kept->bytes, node->window.shared_bytes);
        if (atomic_load(&kept->number) > 0)
            close(atomic_load(&kept->number) - 1);
    }
}

/* ---- views ----------------------------------------------------------------------------------------------------- */

static void view_out(struct node *node)
{
    if (atomic_exchange(&node->is_out, 1) != 0 || node->is_stopping)
        return;
    pager_shut_shared(node->pager);
    if (!node->is_leaving)
        log_error("this node is not a member of the job any more: it was silent for too long or its agent ended; "
                  "shared memory raises SIGBUS");
}

void peers_view(struct node *node, const struct view *view)
{
    uint64_t gone = node->view.members & ~view->members;
    uint64_t now_ns = os_now_ns();

    if (view->epoch.number <= node->view.epoch.number)
        return;
    node->view = *view;
    /* Nothing of a dead node may be taken in after its pages were given up. */
    for (unsigned i = 0; i < NODES_MAX; i++) {
        if ((gone >> i & 1) == 0 || i == node->self.index || node->via[i] == NULL)
            continue;
        log_info("node %u left the job", i);
        fabric_disconnect(node->via[i], node_of(i));
        node->via[i] = NULL;
    }
    topology_tell(node);
    if (!view_has(view, node->self))
        view_out(node);
    cluster_set_view(node->cluster, view, now_ns);
    coherence_set_view(node->coherence, view, now_ns);
    bulk_view(node, view);
    memory_view(node, view);
}
