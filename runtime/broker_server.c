/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_server.c - the job's broker: lets processes in, makes accounts, gives back what ended processes held.
 *
 * Runs on dsmrun's thread; never blocks, except to reserve room on the disk when the store grows. What clients send is
 * checked: a wrong packet costs that connection. Before its first packet, which must prove the key within
 * HELLO_TIMEOUT_NS, a client costs one of STRANGERS_MAX places and nothing else.
 *
 * Always holds: the account of client i has id i + 1, and exists from its WELCOME or ADOPT until account_release().
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "runtime/broker_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#define HELLO_TIMEOUT_NS 5000000000u
#define STRANGERS_MAX    64u
#define STRANGERS_LOGGED 8u
#define CLIENTS_MAX      (BROKER_PROCESSES_MAX + STRANGERS_MAX)
#define PAUSE_NS         100000000u /* before connections are accepted again after the kernel refused one */
#define RELEASE_NS       1000000u   /* first look at whether a process is gone; doubled up to RELEASE_NS_MAX */
#define RELEASE_NS_MAX   500000000u
#define WISH_NS          20000000u /* before a wish is sent again to a process that does not read */
#define TRIM_NS          1000000000u
#define EVENTS           64
#define ROUNDS           16 /* of EVENTS a call: the rest of dsmrun has its turn too */

enum client_state {
    CLIENT_FREE = 0,
    CLIENT_NEW,     /* must prove the key before its deadline */
    CLIENT_ASKER,   /* dsmctl */
    CLIENT_PROCESS, /* has an account */
    CLIENT_GONE,    /* its socket ended; has an account until its memory is gone too */
};

struct broker_client {
    enum client_state state;
    int fd, account_fd;
    int pid, parent_pid; /* pid 0: a child that was not heard of yet */
    char name[16];
    uint64_t deadline_ns, release_ns;
    bool is_wish_due;
    struct account_limits limits;
};

struct broker_server {
    int listeners[2]; /* path, abstract name */
    bool is_paused;
    uint64_t paused_until_ns, trim_ns;
    int poll_fd, device_fd;
    uint8_t key[BROKER_KEY_BYTES];
    char key_text[2 * BROKER_KEY_BYTES + 1];
    char path[BROKER_PATH_MAX];
    struct store store;
    void (*ended)(void *context, const struct broker_process *process);
    void *context;
    unsigned strangers_logged;
    uint32_t clients_used; /* of clients[], ever */
    struct broker_packet packet;
    struct broker_message question, answer;
    struct broker_client clients[CLIENTS_MAX];
};

/* epoll's word: the index of a client, or of a listener above these. */
#define LISTENER_WORD(i) (CLIENTS_MAX + (unsigned)(i))

static uint32_t index_of(const struct broker_server *server, const struct broker_client *client)
{
    return (uint32_t)(client - server->clients);
}

/* ---- clients -------------------------------------------------------------------------------------------------- */

static struct broker_client *client_new(struct broker_server *server, int fd, enum client_state state)
{
    struct broker_client *client = NULL;
    struct epoll_event event = {.events = EPOLLIN};
    int on = 1;

    for (uint32_t i = 0; client == NULL && i < CLIENTS_MAX; i++) {
        if (server->clients[i].state == CLIENT_FREE)
            client = &server->clients[i];
    }
    if (client == NULL)
        return NULL;
    event.data.u32 = index_of(server, client);
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ||
        epoll_ctl(server->poll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return NULL;
    *client = (struct broker_client){.state = state, .fd = fd, .account_fd = -1, .deadline_ns = UINT64_MAX};
    if (event.data.u32 >= server->clients_used)
        server->clients_used = event.data.u32 + 1;
    return client;
}

static void process_describe(struct broker_server *server, const struct broker_client *client,
                             struct broker_process *process)
{
    memset(process, 0, sizeof(*process));
    process->pid = client->pid;
    process->parent_pid = client->parent_pid;
    memcpy(process->name, client->name, sizeof(process->name));
    process->limits = client->limits;
    account_read(&server->store, client->account_fd, process);
}

static void client_free(struct broker_client *client)
{
    client->state = CLIENT_FREE;
}

/* A child that never ran has nothing to tell. */
static void tell_end(struct broker_server *server, const struct broker_client *client)
{
    struct broker_process *process = &server->answer.process;

    if (client->pid == 0 || server->ended == NULL)
        return;
    process_describe(server, client, process);
    process->is_ended = 1;
    server->ended(server->context, process);
}

static void client_release(struct broker_server *server, struct broker_client *client, uint64_t now_ns)
{
    if (!account_is_unused(client->account_fd) ||
        !account_release(&server->store, client->account_fd, index_of(server, client) + 1)) {
        client->deadline_ns = now_ns + client->release_ns;
        if (client->release_ns < RELEASE_NS_MAX)
            client->release_ns *= 2;
        return;
    }
    tell_end(server, client);
    close(client->account_fd);
    client_free(client);
}

static void client_ended(struct broker_server *server, struct broker_client *client)
{
    (void)epoll_ctl(server->poll_fd, EPOLL_CTL_DEL, client->fd, NULL);
    close(client->fd);
    client->fd = -1;
    if (client->state != CLIENT_PROCESS) {
        client_free(client);
        return;
    }
    client->state = CLIENT_GONE;
    client->release_ns = RELEASE_NS;
    client_release(server, client, os_now_ns());
}

/* Whoever does not take an answer in one piece is cut off. */
static void client_answer(struct broker_server *server, struct broker_client *client, const int *fds, unsigned count)
{
    server->answer.serial = server->question.serial;
    if (broker_send(client->fd, &server->answer, fds, count, &server->packet) < 0)
        (void)shutdown(client->fd, SHUT_RDWR); /* noticed as its end */
}

static void client_refuse(struct broker_server *server, struct broker_client *client, int code, const char *sentence)
{
    server->answer.type = BROKER_REFUSE;
    server->answer.code = code;
    snprintf(server->answer.sentence, sizeof(server->answer.sentence), "%s", sentence);
    client_answer(server, client, NULL, 0);
}

/* Whoever can connect could fill the log. */
static void stranger_log(struct broker_server *server, const char *what)
{
    if (server->strangers_logged++ < STRANGERS_LOGGED)
        log_warn("a connection to the job's broker %s and is closed", what);
}

/* In constant time: how long it takes says nothing about where two keys differ. */
static bool keys_are_equal(const uint8_t *a, const uint8_t *b)
{
    volatile uint8_t difference = 0;

    for (unsigned i = 0; i < BROKER_KEY_BYTES; i++)
        difference = (uint8_t)(difference | (a[i] ^ b[i]));
    return difference == 0;
}

/* ---- processes ------------------------------------------------------------------------------------------------ */

static void name_read(struct broker_client *client)
{
    char path[32];
    ssize_t got;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/comm", client->pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    got = read(fd, client->name, sizeof(client->name) - 1);
    close(fd);
    client->name[got > 0 ? got : 0] = '\0';
    client->name[strcspn(client->name, "\n")] = '\0';
    for (char *c = client->name; *c != '\0'; c++) {
        if (*c < ' ' || *c > '~')
            *c = '?';
    }
}

/* Who connected. The credentials of a packet that came before we asked for them are not there. */
static int peer_pid(int fd)
{
    struct ucred peer = {.pid = 0};
    socklen_t size = sizeof(peer);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

static void process_welcome(struct broker_server *server, struct broker_client *client)
{
    const struct store *store = &server->store;
    int fds[BROKER_FDS_MAX];
    unsigned count = 0;
    int error = account_open(store, index_of(server, client) + 1, &client->account_fd);

    if (error != 0) {
        errno = -error;
        (void)error_set(error, "the broker cannot make an account: %m");
        client_refuse(server, client, error, error_text());
        return;
    }
    client->state = CLIENT_PROCESS;
    client->pid = peer_pid(client->fd);
    client->deadline_ns = UINT64_MAX;
    name_read(client);
    fds[count++] = client->account_fd;
    server->answer.type = BROKER_WELCOME;
    server->answer.version = broker_version();
    server->answer.id = index_of(server, client) + 1;
    server->answer.capacity = store->capacity;
    server->answer.flags = 0;
    memcpy(server->answer.where, store->where, sizeof(store->where));
    if (store->table != NULL) {
        fds[count++] = store->table_fd;
        fds[count++] = store->fd;
        server->answer.flags |= BROKER_HAS_STORE | (store->is_device ? BROKER_IS_DEVICE : 0);
    }
    if (server->device_fd >= 0) {
        fds[count++] = server->device_fd;
        server->answer.flags |= BROKER_HAS_USERFAULT;
    }
    client_answer(server, client, fds, count);
}

static unsigned processes_count(const struct broker_server *server)
{
    unsigned count = 0;

    for (uint32_t i = 0; i < server->clients_used; i++)
        count += server->clients[i].state == CLIENT_PROCESS || server->clients[i].state == CLIENT_GONE;
    return count;
}

static bool is_full(struct broker_server *server, struct broker_client *client)
{
    if (processes_count(server) < BROKER_PROCESSES_MAX)
        return false;
    client_refuse(server, client, -EAGAIN, "the job has as many managed processes as its broker serves");
    return true;
}

/* A process is about to fork: the child's end of a connection, and its account. */
static void child_adopt(struct broker_server *server, struct broker_client *parent)
{
    struct broker_client *child = NULL;
    int ends[2] = {-1, -1}, fds[2];

    if (is_full(server, parent))
        return;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0)
        child = client_new(server, ends[0], CLIENT_NEW);
    if (child == NULL || account_open(&server->store, index_of(server, child) + 1, &child->account_fd) != 0) {
        if (child != NULL)
            client_free(child);
        if (ends[0] >= 0) {
            close(ends[0]);
            close(ends[1]);
        }
        client_refuse(server, parent, -EMFILE, "the broker has no descriptor or memory for another process");
        return;
    }
    child->state = CLIENT_PROCESS;
    child->parent_pid = parent->pid;
    child->limits = parent->limits;
    memcpy(child->name, parent->name, sizeof(child->name));
    fds[0] = ends[1];
    fds[1] = child->account_fd;
    server->answer.type = BROKER_ADOPT;
    server->answer.id = index_of(server, child) + 1;
    client_answer(server, parent, fds, 2);
    close(ends[1]); /* if it was not sent, the child's connection ends here */
}

static void wish_send(struct broker_server *server, struct broker_client *client)
{
    server->answer.type = BROKER_WISH;
    server->answer.serial = 0;
    server->answer.limits = client->limits;
    client->is_wish_due = broker_send(client->fd, &server->answer, NULL, 0, &server->packet) == -EAGAIN;
    client->deadline_ns = client->is_wish_due ? os_now_ns() + WISH_NS : UINT64_MAX;
}

/* 0, or -EBADMSG: this packet is not due here. */
static int process_handle(struct broker_server *server, struct broker_client *client)
{
    switch ((int)server->question.type) {
    case BROKER_CHILD:
        child_adopt(server, client);
        return 0;
    case BROKER_HERE:
        if (client->pid != 0)
            return -EBADMSG;
        client->pid = server->packet.pid;
        name_read(client);
        return 0;
    case BROKER_AGAIN:
        wish_send(server, client);
        return 0;
    default:
        return -EBADMSG;
    }
}

/* ---- dsmctl --------------------------------------------------------------------------------------------------- */

static struct broker_client *process_find(struct broker_server *server, int pid)
{
    for (uint32_t i = 0; i < server->clients_used; i++) {
        if (server->clients[i].state == CLIENT_PROCESS && server->clients[i].pid == pid && pid != 0)
            return &server->clients[i];
    }
    return NULL;
}

static struct broker_client *process_next(struct broker_server *server, uint32_t from)
{
    for (uint32_t i = from; i < server->clients_used; i++) {
        if (server->clients[i].state == CLIENT_PROCESS && server->clients[i].pid != 0)
            return &server->clients[i];
    }
    return NULL;
}

static void handle_stat(struct broker_server *server, struct broker_client *client)
{
    const struct broker_message *question = &server->question;
    struct broker_client *found =
        question->pid == 0 ? process_next(server, question->id) : process_find(server, question->pid);

    if (found == NULL && question->pid != 0) {
        client_refuse(server, client, -ESRCH, "the job's broker does not know this process");
        return;
    }
    server->answer.type = BROKER_DONE;
    if (found != NULL) {
        server->answer.type = BROKER_PROCESS;
        server->answer.id = index_of(server, found) + 1;
        process_describe(server, found, &server->answer.process);
    }
    client_answer(server, client, NULL, 0);
}

/* 0 or a negative errno with a sentence. */
static int limit_set(struct broker_server *server, const struct broker_message *question)
{
    struct broker_client *client = process_find(server, question->pid);
    struct broker_process *process = &server->answer.process;

    if (client == NULL)
        return error_set(-ESRCH, "the job's broker does not know this process");
    if (question->tier == DSM_TIER_NVME) {
        server->trim_ns = os_now_ns() + TRIM_NS;
        return store_resize(&server->store, question->size_bytes);
    }
    process_describe(server, client, process);
    if (process->stats.written_ns > 0 && process->stats.tier_budget_pages[question->tier] == 0)
        return error_set(-EOPNOTSUPP, "process %d has no %s tier; it must be started with one", client->pid,
                         broker_tier_name((enum dsm_tier)question->tier));
    if (question->size_bytes < EXTENT_BYTES)
        return error_set(-EINVAL, "a budget has at least 2M");
    client->limits.bytes[question->tier] = question->size_bytes;
    client->limits.is_set |= (uint64_t)1 << question->tier;
    client->limits.serial++;
    wish_send(server, client);
    return 0;
}

static void handle_limit(struct broker_server *server, struct broker_client *client)
{
    int error = limit_set(server, &server->question);

    if (error != 0) {
        client_refuse(server, client, error, error_text());
        return;
    }
    server->answer.type = BROKER_DONE;
    client_answer(server, client, NULL, 0);
}

/* The first packet of a process, or any of dsmctl's. */
static int stranger_handle(struct broker_server *server, struct broker_client *client)
{
    const struct broker_message *question = &server->question;

    if (question->type != BROKER_HELLO && question->type != BROKER_STAT && question->type != BROKER_LIMIT)
        return -EBADMSG;
    if (!keys_are_equal(question->key, server->key)) {
        stranger_log(server, "did not know the job's key");
        client_refuse(server, client, -EACCES, "it does not know the job's key");
    } else if (question->version != broker_version()) {
        client_refuse(server, client, -EPROTO, "dsmrun and the other side are of different installations");
    } else if (question->type != BROKER_HELLO) {
        client->state = CLIENT_ASKER;
        client->deadline_ns = os_now_ns() + HELLO_TIMEOUT_NS;
        question->type == BROKER_STAT ? handle_stat(server, client) : handle_limit(server, client);
    } else if (client->state != CLIENT_NEW) {
        return -EBADMSG;
    } else if (!is_full(server, client)) {
        process_welcome(server, client);
    }
    return 0;
}

/* ---- the loop ------------------------------------------------------------------------------------------------- */

static void client_read(struct broker_server *server, struct broker_client *client)
{
    int error = broker_receive(client->fd, &server->packet);

    if (error == -EAGAIN)
        return;
    if (error == 0) {
        broker_packet_close(&server->packet); /* nobody has to send us descriptors */
        error = broker_decode(server->packet.bytes, server->packet.size_bytes, &server->question);
    }
    if (error == 0)
        error = client->state == CLIENT_PROCESS ? process_handle(server, client) : stranger_handle(server, client);
    if (error == 0)
        return;
    if (error != -EPIPE && client->state == CLIENT_PROCESS)
        log_warn("process %d sent the job's broker a packet that is broken or not due", client->pid);
    else if (error != -EPIPE)
        stranger_log(server, "sent no proper greeting");
    client_ended(server, client);
}

/* One more stranger than there are places for: who waits longest makes room. */
static void stranger_evict(struct broker_server *server)
{
    struct broker_client *oldest = NULL;
    unsigned count = 0;

    for (uint32_t i = 0; i < server->clients_used; i++) {
        struct broker_client *client = &server->clients[i];

        if (client->state != CLIENT_NEW && client->state != CLIENT_ASKER)
            continue;
        count++;
        if (oldest == NULL || client->deadline_ns < oldest->deadline_ns)
            oldest = client;
    }
    if (count >= STRANGERS_MAX)
        client_ended(server, oldest);
}

static void listeners_watch(struct broker_server *server, bool is_paused)
{
    server->is_paused = is_paused;
    for (unsigned i = 0; i < 2; i++) {
        struct epoll_event event = {.events = is_paused ? 0 : EPOLLIN, .data.u32 = LISTENER_WORD(i)};

        if (server->listeners[i] >= 0)
            (void)epoll_ctl(server->poll_fd, EPOLL_CTL_MOD, server->listeners[i], &event);
    }
}

static void accept_some(struct broker_server *server, int listener)
{
    for (int i = 0; i < EVENTS; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        struct broker_client *client;

        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            log_warn("the job's broker cannot accept a connection: %m");
            server->paused_until_ns = os_now_ns() + PAUSE_NS;
            listeners_watch(server, true);
        }
        if (fd < 0)
            return;
        stranger_evict(server);
        client = client_new(server, fd, CLIENT_NEW);
        if (client == NULL)
            close(fd);
        else
            client->deadline_ns = os_now_ns() + HELLO_TIMEOUT_NS;
    }
}

static void deadlines_check(struct broker_server *server)
{
    uint64_t now_ns = os_now_ns();

    for (uint32_t i = 0; i < server->clients_used; i++) {
        struct broker_client *client = &server->clients[i];

        if (client->state == CLIENT_FREE || client->deadline_ns > now_ns)
            continue;
        if (client->state == CLIENT_GONE)
            client_release(server, client, now_ns);
        else if (client->state == CLIENT_PROCESS)
            wish_send(server, client);
        else
            client_ended(server, client);
    }
    if (server->is_paused && now_ns >= server->paused_until_ns)
        listeners_watch(server, false);
    if (now_ns >= server->trim_ns)
        server->trim_ns = store_trim(&server->store) ? UINT64_MAX : now_ns + TRIM_NS;
}

void broker_server_serve(struct broker_server *server)
{
    struct epoll_event events[EVENTS];

    for (int round = 0; round < ROUNDS; round++) {
        int count = epoll_wait(server->poll_fd, events, EVENTS, 0);

        for (int i = 0; i < count; i++) {
            uint32_t word = events[i].data.u32;

            if (word >= CLIENTS_MAX)
                accept_some(server, server->listeners[word - CLIENTS_MAX]);
            else if (server->clients[word].state != CLIENT_FREE && server->clients[word].fd >= 0)
                client_read(server, &server->clients[word]);
        }
        if (count < EVENTS)
            break;
    }
    deadlines_check(server);
}

int broker_server_descriptor(const struct broker_server *server)
{
    return server->poll_fd;
}

uint64_t broker_server_deadline_ns(const struct broker_server *server)
{
    uint64_t deadline_ns =
        server->is_paused && server->paused_until_ns < server->trim_ns ? server->paused_until_ns : server->trim_ns;

    for (uint32_t i = 0; i < server->clients_used; i++) {
        if (server->clients[i].state != CLIENT_FREE && server->clients[i].deadline_ns < deadline_ns)
            deadline_ns = server->clients[i].deadline_ns;
    }
    return deadline_ns;
}

const char *broker_server_key(const struct broker_server *server)
{
    return server->key_text;
}

void broker_server_visit(struct broker_server *server,
                         void (*visit)(void *context, const struct broker_process *process), void *context)
{
    for (struct broker_client *client = process_next(server, 0); client != NULL;
         client = process_next(server, index_of(server, client) + 1)) {
        process_describe(server, client, &server->answer.process);
        visit(context, &server->answer.process);
    }
}

/* ---- start and end -------------------------------------------------------------------------------------------- */

static int listener_open(struct broker_server *server, const char *path, bool is_abstract)
{
    struct sockaddr_un address;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = LISTENER_WORD(is_abstract)};
    socklen_t size = broker_address(path, is_abstract, &address);
    int fd;

    if (size == 0)
        return error_set(-ENAMETOOLONG, "the job's broker cannot listen at %s: the path is too long", path);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(-errno, "a socket for the job's broker: %m");
    if (bind(fd, (const struct sockaddr *)&address, size) < 0 || listen(fd, 256) < 0 ||
        epoll_ctl(server->poll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        int error = error_set(-errno, "the job's broker cannot listen at %s: %m", path);

        close(fd);
        return error;
    }
    server->listeners[is_abstract] = fd;
    /* Processes of the job may have another user by the time they come; the key tells who belongs to it. */
    if (!is_abstract)
        (void)chmod(path, 0666);
    return 0;
}

static int server_open(struct broker_server *server, const char *path, const struct broker_store *store)
{
    int error;

    for (unsigned i = 0; i < BROKER_KEY_BYTES; i += 8) {
        uint64_t random = os_random();

        memcpy(server->key + i, &random, sizeof(random));
    }
    broker_key_print(server->key, server->key_text);
    snprintf(server->path, sizeof(server->path), "%s", path);
    server->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (server->poll_fd < 0)
        return error_set(-errno, "a descriptor for the job's broker: %m");
    error = listener_open(server, path, false);
    if (error == 0)
        error = listener_open(server, path, true);
    if (error == 0)
        error = store_open(&server->store, store);
    return error;
}

int broker_server_create(const char *path, const struct broker_store *store,
                         void (*ended)(void *context, const struct broker_process *process), void *context,
                         struct broker_server **ret_server)
{
    struct broker_server *server = calloc(1, sizeof(*server));
    int error;

    if (server == NULL)
        return error_set(-ENOMEM, "no memory for the job's broker");
    server->listeners[0] = server->listeners[1] = server->poll_fd = -1;
    server->trim_ns = UINT64_MAX;
    server->ended = ended;
    server->context = context;
    server->device_fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    error = server_open(server, path, store);
    if (error != 0) {
        server->ended = NULL;
        broker_server_destroy(server);
        return error;
    }
    *ret_server = server;
    return 0;
}

static void close_if_open(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* Also a check on ourselves: when every account was given back, nothing may be held any more. */
static void clients_end(struct broker_server *server)
{
    bool are_all_released = true;

    for (uint32_t i = 0; i < server->clients_used; i++) {
        struct broker_client *client = &server->clients[i];

        if (client->state == CLIENT_PROCESS || client->state == CLIENT_GONE) {
            tell_end(server, client);
            if (!account_is_unused(client->account_fd) ||
                !account_release(&server->store, client->account_fd, index_of(server, client) + 1))
                are_all_released = false;
            close(client->account_fd);
        }
        if (client->state != CLIENT_FREE)
            close_if_open(client->fd);
    }
    if (are_all_released && store_used(&server->store) > 0)
        log_error("%u slots of the job's NVMe store are held by no process: this is a bug of ours",
                  store_used(&server->store));
}

void broker_server_destroy(struct broker_server *server)
{
    if (server == NULL)
        return;
    clients_end(server);
    if (server->listeners[0] >= 0)
        (void)unlink(server->path);
    close_if_open(server->listeners[0]);
    close_if_open(server->listeners[1]);
    close_if_open(server->device_fd);
    close_if_open(server->poll_fd);
    store_close(&server->store);
    explicit_bzero(server->key, sizeof(server->key));
    explicit_bzero(server->key_text, sizeof(server->key_text));
    free(server);
}
