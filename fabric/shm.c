/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm.c - the shm transport: nodes of one host, rings in shared memory. Runs on the loop's thread.
 *
 * A message is copied once, into the ring, and handed out where it lies. The receiver's bell (one eventfd a fabric)
 * is rung only when its loop is about to block (loop_poller.arm, ring_sleep()). What finds a ring full waits in this
 * process, and moves on when the peer frees room. Nothing is ever lost, so there is no session below; a peer whose
 * socket ends is down at once.
 */
#include "fabric/shm.h"
#include "base/error.h"
#include "base/os.h"
#include "fabric/transport.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLOSE_NS             ((uint64_t)100000000U)
#define LISTEN_BACKLOG       128
#define RECEIVE_COUNT_MAX    64
#define RECEIVE_BYTES_MAX    ((size_t)128 * 1024) /* then the producer gets its room back */
#define WAITING_RECORD_BYTES 8

static struct shm *shm_of(struct fabric *fabric)
{
    return CONTAINER_OF(fabric, struct shm, base);
}

/* ---- sending --------------------------------------------------------------------------------------------------- */

void shm_peer_ring_bell(const struct shm_peer *peer)
{
    uint64_t one = 1;
    ssize_t ignored;

    if (peer->bell < 0)
        return;
    ignored = write(peer->bell, &one, sizeof(one)); /* a full bell rings already */
    (void)ignored;
}

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

static size_t waiting_size(const struct fifo *waiting)
{
    uint64_t size;

    memcpy(&size, fifo_front(waiting), sizeof(size));
    return (size_t)size;
}

void shm_peer_pump(struct shm_peer *peer)
{
    bool is_asleep = false;

    for (unsigned plane = 0; plane < PLANES; plane++) {
        struct fifo *waiting = &peer->waiting[plane];

        while (fifo_used(waiting) > 0) {
            size_t size = waiting_size(waiting);
            uint8_t *message;
            int result = ring_reserve(&peer->out[plane], size, &message);

            peer->is_broken |= result == -EBADMSG;
            if (result != 0)
                break;
            memcpy(message, fifo_front(waiting) + WAITING_RECORD_BYTES, size);
            is_asleep |= ring_commit(&peer->out[plane], size);
            fifo_drop(waiting, WAITING_RECORD_BYTES + fabric_round8(size));
        }
    }
    if (is_asleep)
        shm_peer_ring_bell(peer);
}

static int shm_send(struct fabric *fabric, struct node_id to, enum fabric_plane plane, const struct iovec *parts,
                    int parts_count)
{
    struct shm *shm = shm_of(fabric);
    struct shm_peer *peer = &shm->peers[to.index];
    struct inbox_entry entry = {.kind = INBOX_MESSAGE, .from = to.index, .plane = (uint16_t)plane};
    size_t size = fabric_parts_size(parts, parts_count);
    uint8_t *message;
    int result;

    if (node_is(to, fabric->self))
        return inbox_push(&shm->inbox, entry, parts, parts_count);
    if (peer->session == 0 || peer->is_broken)
        return -EHOSTDOWN;
    if (fifo_used(&peer->waiting[plane]) > 0)
        return waiting_push(&peer->waiting[plane], size, parts, parts_count);
    result = ring_reserve(&peer->out[plane], size, &message);
    if (result == -EAGAIN)
        return waiting_push(&peer->waiting[plane], size, parts, parts_count);
    if (result != 0) {
        peer->is_broken = true; /* peer_down() comes from the next poll, not from here (F3) */
        return -EHOSTDOWN;
    }
    fabric_parts_copy(message, parts, parts_count);
    if (ring_commit(&peer->out[plane], size))
        shm_peer_ring_bell(peer);
    return 0;
}

static void shm_deliver_own(void *context, const struct inbox_entry *entry, const uint8_t *bytes)
{
    struct shm *shm = context;

    fabric_deliver(&shm->base, shm->base.self, (enum fabric_plane)entry->plane, bytes, entry->size_bytes);
}

/* ---- receiving ------------------------------------------------------------------------------------------------- */

/* Hands out some messages of a ring. Returns their number, or -EBADMSG. The session may be another one then. */
static int plane_receive(struct shm_peer *peer, enum fabric_plane plane)
{
    struct ring *ring = &peer->in[plane];
    uint64_t generation = peer->generation;
    size_t bytes_count = 0;
    const uint8_t *message;
    size_t size;
    int count = 0;
    int result = 0;

    peer->is_delivering = true;
    while (count < RECEIVE_COUNT_MAX && bytes_count < RECEIVE_BYTES_MAX) {
        result = ring_next(ring, &message, &size);
        if (result <= 0)
            break;
        count++;
        bytes_count += size;
        fabric_deliver(&peer->shm->base, peer->id, plane, message, size);
        if (peer->generation != generation)
            break;
    }
    peer->is_delivering = false;
    shm_segment_unmap(&peer->garbage);
    if (peer->generation != generation)
        return count;
    if (count > 0 && ring_release(ring))
        shm_peer_ring_bell(peer);
    return result < 0 ? result : count;
}

int shm_peer_receive(struct shm_peer *peer)
{
    int count = 0;

    for (unsigned plane = 0; plane < PLANES && peer->state == SHM_UP; plane++) {
        int result = plane_receive(peer, (enum fabric_plane)plane);

        if (result < 0) {
            shm_peer_fail(peer, "it broke its ring");
            return count;
        }
        count += result;
    }
    return count;
}

static int shm_poll(struct loop_poller *poller)
{
    struct shm *shm = poller->context;
    int count = 0;

    for (uint64_t left = shm->sessions; left != 0; left &= left - 1) {
        struct shm_peer *peer = &shm->peers[__builtin_ctzll(left)];

        if (peer->session == 0)
            continue;
        shm_peer_pump(peer);
        if (peer->is_broken)
            shm_peer_fail(peer, "it broke its ring");
        else
            count += shm_peer_receive(peer);
    }
    return count;
}

/* See ring.h: what comes in from now on, and room that comes free, rings the bell. */
static bool shm_arm(struct loop_poller *poller)
{
    struct shm *shm = poller->context;
    bool is_busy = false;

    for (uint64_t left = shm->sessions; left != 0; left &= left - 1) {
        struct shm_peer *peer = &shm->peers[__builtin_ctzll(left)];

        is_busy |= peer->is_broken;
        for (unsigned plane = 0; plane < PLANES; plane++) {
            struct fifo *waiting = &peer->waiting[plane];

            if (fifo_used(waiting) > 0)
                is_busy |= ring_wait_room(&peer->out[plane], waiting_size(waiting));
            if (peer->state == SHM_UP)
                is_busy |= ring_sleep(&peer->in[plane]);
        }
    }
    return is_busy;
}

static void shm_disarm(struct loop_poller *poller)
{
    struct shm *shm = poller->context;

    for (uint64_t left = shm->sessions; left != 0; left &= left - 1)
        for (unsigned plane = 0; plane < PLANES; plane++)
            ring_wake(&shm->peers[__builtin_ctzll(left)].in[plane]);
}

static void shm_bell_rang(struct loop_watch *watch, uint32_t events)
{
    struct shm *shm = watch->context;
    uint64_t times;
    ssize_t ignored = read(shm->bell, &times, sizeof(times)); /* silences it; how often it rang does not matter */

    (void)ignored;
    (void)events;
    shm_poll(&shm->poller);
}

/* ---- the other calls ------------------------------------------------------------------------------------------- */

static size_t shm_address(struct fabric *fabric, uint8_t blob[FABRIC_ADDRESS_MAX])
{
    struct shm *shm = shm_of(fabric);
    size_t size = strlen(shm->address.sun_path);

    memcpy(blob, shm->address.sun_path, size);
    return size;
}

static int shm_connect(struct fabric *fabric, struct node_id id, const uint8_t *blob, size_t size_bytes)
{
    struct shm_peer *peer = &shm_of(fabric)->peers[id.index];

    if (size_bytes == 0 || size_bytes >= sizeof(peer->address.sun_path) || blob[0] != '/' ||
        memchr(blob, 0, size_bytes) != NULL)
        return error_set(-EINVAL, "connect to node %u: not an shm address", id.index);
    peer->address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(peer->address.sun_path, blob, size_bytes);
    return shm_peer_connect(peer);
}

static void shm_disconnect(struct fabric *fabric, struct node_id id)
{
    struct shm_peer *peer = &shm_of(fabric)->peers[id.index];

    if (peer->session == 0)
        return;
    shm_peer_pump(peer);
    shm_peer_goodbye(peer);
    shm_peer_end(peer);
}

static int shm_peer_file(struct fabric *fabric, struct node_id id)
{
    const struct shm_peer *peer = &shm_of(fabric)->peers[id.index];

    return peer->state == SHM_UP && peer->file >= 0 ? peer->file : -EOPNOTSUPP;
}

static bool shm_is_flushed(struct shm *shm)
{
    bool is_flushed = true;

    for (unsigned i = 0; i < shm->config.nodes_count; i++) {
        struct shm_peer *peer = &shm->peers[i];

        if (peer->state != SHM_UP || peer->is_broken)
            continue;
        shm_peer_pump(peer);
        for (unsigned plane = 0; plane < PLANES; plane++)
            is_flushed &= fifo_used(&peer->waiting[plane]) == 0;
    }
    return is_flushed;
}

static void shm_close(struct fabric *fabric)
{
    struct shm *shm = shm_of(fabric);
    uint64_t end_ns = os_now_ns() + CLOSE_NS;

    while (!shm_is_flushed(shm) && os_now_ns() < end_ns)
        usleep(1000);
    for (unsigned i = 0; i < shm->config.nodes_count; i++) {
        shm_peer_goodbye(&shm->peers[i]);
        shm_peer_end(&shm->peers[i]);
    }
    loop_poller_remove(shm->config.loop, &shm->poller);
    inbox_fini(&shm->inbox);
    gate_close(&shm->gate);
    unlink(shm->address.sun_path);
    loop_unwatch(shm->config.loop, &shm->bell_watch);
    close(shm->bell);
    os_pages_unmap(shm, sizeof(*shm));
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

static const struct fabric_ops shm_ops = {
    .name = "shm",
    .capabilities = FABRIC_CAP_SHARED_FILES,
    .address = shm_address,
    .connect = shm_connect,
    .send = shm_send,
    .disconnect = shm_disconnect,
    .peer_file = shm_peer_file,
    .close = shm_close,
};

static int directory_check(const char *directory)
{
    struct stat about;

    if (directory == NULL || directory[0] != '/')
        return error_set(-EINVAL, "shm: the rendezvous directory must be an absolute path");
    if (stat(directory, &about) != 0)
        return error_set(-errno, "shm: rendezvous directory %s: %m", directory);
    if (!S_ISDIR(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 077) != 0)
        return error_set(-EPERM, "shm: %s must be a directory of this user with mode 0700", directory);
    return 0;
}

static int shm_listen(const struct fabric_config *config, struct sockaddr_un *ret_address, int *ret_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int result = directory_check(config->shm_directory);
    int size;
    int fd;

    if (result != 0)
        return result;
    size = snprintf(address.sun_path, sizeof(address.sun_path), "%s/fabric-%u-%016llx", config->shm_directory,
                    config->self.index, (unsigned long long)os_random());
    if (size >= (int)sizeof(address.sun_path))
        return error_set(-ENAMETOOLONG, "shm: the path of %s is too long for a socket; choose a shorter directory",
                         config->shm_directory);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(-errno, "shm: make a socket: %m");
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, LISTEN_BACKLOG) != 0) {
        result = error_set(-errno, "shm: listen at %s: %m", address.sun_path);
        close(fd);
        return result;
    }
    *ret_address = address;
    *ret_fd = fd;
    return 0;
}

static int shm_bell_open(struct shm *shm)
{
    int result;

    shm->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (shm->bell < 0)
        return error_set(-errno, "shm: make an eventfd: %m");
    shm->bell_watch = (struct loop_watch){.fd = shm->bell, .ready = shm_bell_rang, .context = shm};
    result = loop_watch(shm->config.loop, &shm->bell_watch, EPOLLIN);
    if (result != 0)
        close(shm->bell);
    return result;
}

static void shm_init(struct shm *shm, const struct fabric_config *config)
{
    fabric_init(&shm->base, &shm_ops, config);
    shm->config = *config;
    shm->poller = (struct loop_poller){.poll = shm_poll, .arm = shm_arm, .disarm = shm_disarm, .context = shm};
    for (unsigned i = 0; i < NODES_MAX; i++)
        shm_peer_init(&shm->peers[i], shm, node_of(i));
}

int fabric_shm_open(const struct fabric_config *config, struct fabric **ret_fabric)
{
    struct shm *shm;
    void *memory;
    int fd;
    int result = fabric_config_check(config);

    if (result != 0)
        return result;
    if (os_pages_map(sizeof(*shm), &memory) != 0)
        return error_set(-ENOMEM, "shm: no memory for %zu bytes", sizeof(*shm));
    shm = memory;
    shm_init(shm, config);
    result = shm_listen(config, &shm->address, &fd);
    if (result != 0)
        goto unmap;
    result = shm_bell_open(shm);
    if (result != 0)
        goto close_fd;
    result = gate_open(&shm->gate, config->loop, fd, shm_greeted, shm);
    if (result != 0)
        goto close_bell;
    inbox_init(&shm->inbox, config, shm_deliver_own, shm);
    loop_poller_add(config->loop, &shm->poller);
    *ret_fabric = &shm->base;
    return 0;

close_bell:
    loop_unwatch(config->loop, &shm->bell_watch);
    close(shm->bell);
close_fd:
    unlink(shm->address.sun_path);
    close(fd);
unmap:
    os_pages_unmap(shm, sizeof(*shm));
    return result;
}
