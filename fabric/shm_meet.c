/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_meet.c - the rendezvous of two nodes of one host, and its end. Runs on the loop's thread.
 *
 * The connecting side sends HELLO with the pair's memory, its bell and its shared file over a unix socket of packets;
 * the accepting side answers WELCOME with its bell and file. The socket then stays: when it ends, the peer's process
 * has ended or has left. Only processes of the same user get that far.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "fabric/shm.h"
#include "fabric/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define ATTEMPT_NS     ((uint64_t)5000000000U)
#define BACKOFF_MIN_NS ((uint64_t)1000000U)
#define BACKOFF_MAX_NS ((uint64_t)200000000U)
#define FILES_MAX      3
#define GOODBYE_BYTE   'G'

/* A full window still takes the header and padding of the largest message. */
#define WAITING_SLACK_BYTES 16

static void peer_ready(struct loop_watch *watch, uint32_t events);
static void peer_expired(struct loop_timer *timer);

/* ---- packets with descriptors ---------------------------------------------------------------------------------- */

union files_control {
    struct cmsghdr header; /* for alignment */
    uint8_t bytes[CMSG_SPACE(FILES_MAX * sizeof(int))];
};

static void files_close(int files[FILES_MAX])
{
    for (int i = 0; i < FILES_MAX; i++) {
        if (files[i] >= 0)
            close(files[i]);
        files[i] = -1;
    }
}

/* Sends the descriptors up to the first that is -1. 0 or -errno. */
static int packet_send(int fd, const struct greeting *greeting, const int files[FILES_MAX])
{
    uint8_t bytes[GREETING_BYTES];
    union files_control control = {0};
    struct iovec part = {bytes, sizeof(bytes)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    size_t count = 0;

    while (count < FILES_MAX && files[count] >= 0)
        count++;
    if (count > 0) {
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(&control.header), files, count * sizeof(int));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    }
    greeting_encode(greeting, bytes);
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(bytes) ? 0 : -errno;
}

/* The control bytes have room for FILES_MAX descriptors and not one more: the kernel drops the rest. */
static void files_take(struct msghdr *message, int files[FILES_MAX])
{
    struct cmsghdr *header = CMSG_FIRSTHDR(message);

    if (header == NULL || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return;
    ASSERT(header->cmsg_len <= CMSG_LEN(FILES_MAX * sizeof(int)));
    memcpy(files, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
}

/* 0, -EAGAIN, -ECONNRESET (the end), -EBADMSG (no greeting). files: -1 where none came; set on success only. */
static int packet_receive(int fd, struct greeting *ret_greeting, int files[FILES_MAX])
{
    uint8_t bytes[GREETING_BYTES];
    union files_control control = {0};
    struct iovec part = {bytes, sizeof(bytes)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_LEN(FILES_MAX * sizeof(int))};
    ssize_t count = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    for (int i = 0; i < FILES_MAX; i++)
        files[i] = -1;
    if (count < 0)
        return errno == EAGAIN || errno == EINTR ? -EAGAIN : -ECONNRESET;
    files_take(&message, files);
    if (count == (ssize_t)sizeof(bytes) && (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) == 0 &&
        greeting_decode(bytes, ret_greeting) == 0)
        return 0;
    files_close(files);
    return count == 0 ? -ECONNRESET : -EBADMSG;
}

static bool is_same_user(int fd)
{
    struct ucred credentials;
    socklen_t size = sizeof(credentials);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 && credentials.uid == geteuid();
}

/* ---- sessions begin and end ------------------------------------------------------------------------------------ */

void shm_peer_init(struct shm_peer *peer, struct shm *shm, struct node_id id)
{
    *peer = (struct shm_peer){
        .shm = shm,
        .id = id,
        .fd = -1,
        .segment_fd = -1,
        .bell = -1,
        .file = -1,
        .watch = {.ready = peer_ready, .context = peer},
        .timer = {.expired = peer_expired, .context = peer},
    };
    for (unsigned i = 0; i < PLANES; i++)
        fifo_init(&peer->waiting[i], shm->config.window_bytes_max + WAITING_SLACK_BYTES);
}

/* Takes the segment over. */
static void peer_begin(struct shm_peer *peer, uint64_t session, const struct shm_segment *segment)
{
    unsigned out = shm_connects(peer) ? 0 : 1;

    ASSERT(peer->session == 0 && session != 0);
    peer->session = session;
    peer->shm->sessions |= fabric_bit(peer->id);
    peer->segment = *segment;
    peer->incarnation = 0;
    peer->attempt = 0;
    peer->trouble = 0;
    peer->backoff_ns = 0;
    peer->begun_ns = os_now_ns();
    peer->is_broken = false;
    for (unsigned i = 0; i < PLANES; i++) {
        size_t size = i == PLANE_CONTROL ? SHM_CONTROL_BYTES : SHM_DATA_BYTES;

        ring_init(&peer->out[i], &segment->rings[out][i], segment->bytes[out][i], size);
        ring_init(&peer->in[i], &segment->rings[1 - out][i], segment->bytes[1 - out][i], size);
    }
}

static void descriptor_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void peer_hang_up(struct shm_peer *peer)
{
    loop_timer_stop(peer->shm->config.loop, &peer->timer);
    if (peer->state == SHM_DOWN)
        return;
    loop_unwatch(peer->shm->config.loop, &peer->watch);
    descriptor_close(&peer->fd);
    peer->state = SHM_DOWN;
}

void shm_peer_end(struct shm_peer *peer)
{
    if (peer->session == 0)
        return;
    peer_hang_up(peer);
    descriptor_close(&peer->segment_fd);
    descriptor_close(&peer->bell);
    descriptor_close(&peer->file);
    /* The first session that ends inside a callback is the one whose message is in use. */
    if (peer->is_delivering && peer->garbage.memory == NULL)
        peer->garbage = peer->segment;
    else
        shm_segment_unmap(&peer->segment);
    peer->segment = (struct shm_segment){0};
    for (unsigned i = 0; i < PLANES; i++)
        fifo_fini(&peer->waiting[i]);
    peer->generation++;
    peer->session_ended = peer->session;
    peer->session = 0;
    peer->shm->sessions &= ~fabric_bit(peer->id);
}

void shm_peer_fail(struct shm_peer *peer, const char *cause)
{
    shm_peer_end(peer);
    fabric_report_down(&peer->shm->base, peer->id, cause);
}

void shm_peer_goodbye(struct shm_peer *peer)
{
    uint8_t byte = GOODBYE_BYTE;
    ssize_t ignored;

    if (peer->state != SHM_UP)
        return;
    ignored = send(peer->fd, &byte, sizeof(byte), MSG_DONTWAIT | MSG_NOSIGNAL); /* else the end itself says it */
    (void)ignored;
}

/*
 * A bell is an eventfd: what has a type (a file, a pipe, a socket) is none. A pipe could stop us or raise SIGPIPE.
 */
static bool is_bell(int fd)
{
    struct stat about;

    return fd >= 0 && fstat(fd, &about) == 0 && (about.st_mode & S_IFMT) == 0;
}

/* The socket has ended. What the peer had put into its rings before is still handed out. */
static void peer_lost(struct shm_peer *peer, const char *cause)
{
    uint64_t generation = peer->generation;
    uint64_t left = 2 * (SHM_CONTROL_BYTES + SHM_DATA_BYTES) / (RING_RECORD_BYTES + 8);

    /* Bounded, should the peer go on filling its rings. */
    while (left-- > 0 && shm_peer_receive(peer) > 0)
        if (peer->generation != generation)
            return;
    if (peer->generation == generation)
        shm_peer_fail(peer, cause);
}

static int peer_watch(struct shm_peer *peer, int fd, enum shm_state state)
{
    int result;

    peer->watch.fd = fd;
    result = loop_watch(peer->shm->config.loop, &peer->watch, EPOLLIN);
    if (result == 0) {
        peer->fd = fd;
        peer->state = state;
    }
    return result;
}

/* Both sides: greetings are exchanged. May call back. */
static void peer_up(struct shm_peer *peer)
{
    uint64_t generation = peer->generation;

    fabric_report_up(&peer->shm->base, peer->id);
    if (peer->generation != generation)
        return;
    /* Messages sent before the bell was known did not ring it. */
    shm_peer_pump(peer);
    shm_peer_ring_bell(peer);
}

/* ---- connecting side ------------------------------------------------------------------------------------------- */

static void peer_try_later(struct shm_peer *peer, int error)
{
    uint64_t now_ns = os_now_ns();

    peer_hang_up(peer);
    peer->trouble = error;
    loop_timer_start(peer->shm->config.loop, &peer->timer, now_ns + peer->backoff_ns);
    peer->backoff_ns = peer->backoff_ns == 0 ? BACKOFF_MIN_NS : peer->backoff_ns * 2;
    if (peer->backoff_ns > BACKOFF_MAX_NS)
        peer->backoff_ns = BACKOFF_MAX_NS;
}

static struct greeting hello_of(const struct shm_peer *peer)
{
    const struct fabric_config *config = &peer->shm->config;

    return (struct greeting){
        .version = FABRIC_PROTOCOL,
        .kind = GREETING_HELLO,
        .from = config->self.index,
        .to = peer->id.index,
        .attempt = peer->attempt,
        .job = config->job,
        .from_incarnation = config->incarnation,
        .session = peer->session,
    };
}

static int peer_greet(struct shm_peer *peer, int fd)
{
    int files[FILES_MAX] = {peer->segment_fd, peer->shm->bell, peer->shm->config.shared_file};
    struct greeting hello;
    int result;

    if (connect(fd, (const struct sockaddr *)&peer->address, sizeof(peer->address)) != 0)
        return -errno;
    if (!is_same_user(fd))
        return -EPERM;
    peer->attempt++;
    hello = hello_of(peer);
    result = packet_send(fd, &hello, files);
    return result != 0 ? result : peer_watch(peer, fd, SHM_GREETING);
}

static void peer_try(struct shm_peer *peer)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int result;

    if (fd < 0) {
        peer_try_later(peer, errno);
        return;
    }
    result = peer_greet(peer, fd);
    if (result != 0) {
        close(fd);
        peer_try_later(peer, -result);
        return;
    }
    loop_timer_start(peer->shm->config.loop, &peer->timer, os_now_ns() + ATTEMPT_NS);
}

static void peer_expired(struct loop_timer *timer)
{
    struct shm_peer *peer = timer->context;
    char cause[128];

    if (os_now_ns() - peer->begun_ns >= peer->shm->config.session_timeout_ns) {
        snprintf(cause, sizeof(cause), "no connection for %llu ms: %s",
                 (unsigned long long)(peer->shm->config.session_timeout_ns / 1000000U),
                 strerror(peer->trouble == 0 ? ETIMEDOUT : peer->trouble));
        shm_peer_fail(peer, cause);
        return;
    }
    if (peer->state == SHM_GREETING)
        peer_try_later(peer, ETIMEDOUT);
    else
        peer_try(peer);
}

int shm_peer_connect(struct shm_peer *peer)
{
    struct shm_segment segment;
    int fd;
    int result = shm_segment_create(&fd);

    if (result != 0)
        return result;
    result = shm_segment_map(fd, &segment);
    if (result != 0) {
        close(fd);
        return error_set(result, "shm: map the rings of node %u: %s", peer->id.index, strerror(-result));
    }
    peer_begin(peer, os_random() | 1, &segment);
    peer->segment_fd = fd;
    peer_try(peer);
    return 0;
}

/* NULL, or why this WELCOME ends the session. */
static const char *welcome_fault(const struct shm_peer *peer, const struct greeting *welcome, const int *files)
{
    struct greeting hello = hello_of(peer);

    if (welcome->status != GREETING_OK)
        return greeting_status_text(welcome->status);
    if (welcome->version != FABRIC_PROTOCOL)
        return greeting_status_text(REFUSED_VERSION);
    if (welcome->from != peer->id.index)
        return greeting_status_text(REFUSED_NODE);
    if (!greeting_fits(welcome, &hello) || welcome->from_incarnation == 0 || !is_bell(files[0]))
        return "its answer to a greeting makes no sense";
    return NULL;
}

/*
 * A bell that another process gave. Not blocking, so that a full one cannot stop us; a process of our own user that
 * undoes this could as well kill us.
 */
static int bell_accept(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0)
        fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    return fd;
}

static void peer_welcomed(struct shm_peer *peer)
{
    struct greeting welcome;
    int files[FILES_MAX];
    const char *fault;
    int result = packet_receive(peer->fd, &welcome, files);

    if (result == -EAGAIN)
        return;
    if (result == -ECONNRESET) {
        peer_try_later(peer, ECONNRESET);
        return;
    }
    fault = result != 0 ? "its answer to a greeting makes no sense" : welcome_fault(peer, &welcome, files);
    if (fault != NULL) {
        files_close(files);
        shm_peer_fail(peer, fault);
        return;
    }
    loop_timer_stop(peer->shm->config.loop, &peer->timer);
    peer->incarnation = welcome.from_incarnation;
    peer->bell = bell_accept(files[0]);
    peer->file = files[1];
    files[0] = files[1] = -1;
    files_close(files);
    descriptor_close(&peer->segment_fd);
    peer->state = SHM_UP;
    peer_up(peer);
}

static void peer_ready(struct loop_watch *watch, uint32_t events)
{
    struct shm_peer *peer = watch->context;
    uint8_t byte = 0;
    ssize_t count;

    (void)events;
    if (peer->state == SHM_GREETING) {
        peer_welcomed(peer);
        return;
    }
    count = recv(peer->fd, &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0)
        peer_lost(peer, "its process has ended");
    else if (count == 1 && byte == GOODBYE_BYTE)
        peer_lost(peer, "it ended the session");
    else
        shm_peer_fail(peer, "it broke the rules of the rendezvous");
}

/* ---- accepting side -------------------------------------------------------------------------------------------- */

static void refuse(struct shm *shm, struct gate_slot *slot, const struct greeting *hello, enum greeting_status status)
{
    struct greeting welcome = greeting_answer(hello, &shm->config, status);
    const int files[FILES_MAX] = {-1, -1, -1};
    int ignored = packet_send(slot->fd, &welcome, files); /* who does not listen is sent away as well */

    (void)ignored;
    shm->base.counters.peers_refused++;
    log_debug("refused a connection that says it is node %u: status %d", hello->from, (int)status);
    gate_refuse(slot);
}

/* The old session, if any, ends; the new one begins with the memory of files[0]. May call back. */
static enum greeting_status adopt(struct shm_peer *peer, const struct greeting *hello, int files[FILES_MAX])
{
    struct shm_segment segment;
    int result;

    if (hello->session == peer->session || hello->session == peer->session_ended || !is_bell(files[1]))
        return REFUSED_SESSION;
    result = shm_segment_map(files[0], &segment);
    if (result != 0)
        return result == -EBADMSG ? REFUSED_SESSION : REFUSED_SYSTEM;
    if (peer->session != 0)
        shm_peer_fail(peer, hello->from_incarnation == peer->incarnation ? "it started a new session"
                                                                         : "its process is another one");
    peer_begin(peer, hello->session, &segment);
    peer->incarnation = hello->from_incarnation;
    peer->bell = bell_accept(files[1]);
    peer->file = files[2];
    files[1] = files[2] = -1;
    return GREETING_OK;
}

static void admit(struct shm *shm, struct gate_slot *slot, const struct greeting *hello, int files[FILES_MAX])
{
    struct shm_peer *peer = &shm->peers[hello->from];
    const int own_files[FILES_MAX] = {shm->bell, shm->config.shared_file, -1};
    enum greeting_status status = adopt(peer, hello, files);
    struct greeting welcome = greeting_answer(hello, &shm->config, status);
    int fd;

    if (status != GREETING_OK) {
        refuse(shm, slot, hello, status);
        return;
    }
    fd = gate_take(slot);
    if (packet_send(fd, &welcome, own_files) != 0 || peer_watch(peer, fd, SHM_UP) != 0) {
        close(fd);
        shm_peer_end(peer);
        return;
    }
    peer_up(peer);
}

void shm_greeted(struct gate *gate, struct gate_slot *slot)
{
    struct shm *shm = gate->context;
    struct greeting hello;
    enum greeting_status status;
    int files[FILES_MAX];
    int result = packet_receive(slot->fd, &hello, files);

    if (result == -EAGAIN)
        return;
    if (result != 0 || !is_same_user(slot->fd)) {
        files_close(files);
        shm->base.counters.peers_refused += result != -ECONNRESET;
        gate_refuse(slot);
        return;
    }
    status = greeting_judge(&hello, &shm->config);
    if (status != GREETING_OK)
        refuse(shm, slot, &hello, status);
    else
        admit(shm, slot, &hello, files);
    files_close(files);
}
