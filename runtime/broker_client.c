/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_client.c - a managed process's end of the connection to its job's broker.
 *
 * Run by the shard's thread, and around a fork by whoever forks while the shard stands still: one at a time. All memory
 * comes from mmap, none is kept on the stack that would not fit a small thread.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/os.h"
#include "runtime/broker_wire.h"
#include "runtime/loop.h"
#include "tiers/shared_slots.h"
#include "tiers/tier.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FD_LOWEST        100 /* above what programs count on, and what they close by number */
#define CHILD_TIMEOUT_NS 10000000000u

struct broker {
    int fd, device_fd;
    uint32_t serial, version;
    uint32_t capacity; /* of the store; 0: there is none */
    size_t account_size;
    struct account *account;
    size_t table_size;
    struct nvme_store store;
    bool is_wish_pending; /* came while an answer was awaited */
    struct account_limits limits;
    struct broker_message message;
    struct broker_packet packet;
};

static struct slot_account *slots_of(struct account *account)
{
    return (void *)((char *)account + ACCOUNT_SLOTS_OFFSET);
}

static void close_if_open(int fd)
{
    if (fd >= 0)
        os_descriptor_close(fd);
}

/* NULL: no memory, with a sentence. */
static struct broker *broker_new(void)
{
    struct broker *broker;
    void *memory;

    if (os_pages_map(sizeof(*broker), &memory) < 0) {
        error_set(-ENOMEM, "no memory for the connection to the job's broker");
        return NULL;
    }
    broker = memory;
    broker->fd = broker->device_fd = broker->store.fd = -1;
    return broker;
}

/* ---- questions and answers ------------------------------------------------------------------------------------- */

static void wish_note(struct broker *broker)
{
    if (broker->message.limits.serial <= broker->limits.serial)
        return;
    broker->limits = broker->message.limits;
    broker->is_wish_pending = true;
}

/* 0 when there is something to read, -ETIMEDOUT. */
static int wait_readable(int fd, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        uint64_t now_ns = os_now_ns();
        uint64_t left_ms = deadline_ns <= now_ns ? 0 : (deadline_ns - now_ns) / 1000000 + 1;
        int ready = poll(&one, 1, left_ms > 60000 ? 60000 : (int)left_ms);

        if (ready > 0)
            return 0;
        if (left_ms == 0)
            return -ETIMEDOUT;
    }
}

/* The next packet into broker->message; its descriptors stay in broker->packet. 0, -EAGAIN, -EPIPE, -EPROTO. */
static int packet_take(struct broker *broker)
{
    int error = broker_receive(broker->fd, &broker->packet);

    if (error == -EAGAIN || error == -EPIPE || error == -EMSGSIZE)
        return error;
    if (error == 0 && broker_decode(broker->packet.bytes, broker->packet.size_bytes, &broker->message) == 0)
        return 0;
    broker_packet_close(&broker->packet);
    return -EPROTO;
}

static int answer_check(struct broker *broker, enum broker_type wanted, unsigned fds_wanted)
{
    if (broker->message.type == wanted && broker->packet.fds_count == fds_wanted)
        return 0;
    broker_packet_close(&broker->packet);
    if (broker->message.type == BROKER_REFUSE)
        return error_set(broker->message.code, "the job's broker refused: %s", broker->message.sentence);
    return error_set(-EPROTO, "the job's broker sent something else than was due");
}

/* Answers to earlier questions, whose time had run out, are thrown away with what came along. */
static int answer_await(struct broker *broker, uint64_t deadline_ns)
{
    for (;;) {
        int error = packet_take(broker);

        if (error == 0 && broker->message.serial == broker->serial)
            return 0;
        if (error == 0) {
            broker_packet_close(&broker->packet);
            if (broker->message.type == BROKER_WISH)
                wish_note(broker);
            continue;
        }
        if (error == -EPIPE)
            return error_set(error, "the job's broker hung up: dsmrun has ended");
        if (error == -EMSGSIZE)
            return error_set(-EMFILE, "no descriptors for what the job's broker sent (ulimit -n)");
        if (error == -EPROTO)
            return error_set(error, "what answers as the job's broker is none");
        if (wait_readable(broker->fd, deadline_ns) < 0)
            return error_set(-ETIMEDOUT, "the job's broker does not answer; is dsmrun stopped?");
    }
}

static int ask(struct broker *broker, enum broker_type question, uint64_t timeout_ns)
{
    uint64_t deadline_ns = os_now_ns() + timeout_ns;
    int error;

    broker->message.type = question;
    broker->message.serial = ++broker->serial;
    broker->message.version = broker_version();
    error = broker_send(broker->fd, &broker->message, NULL, 0, &broker->packet);
    if (error == -EPIPE)
        return error_set(error, "the job's broker hung up: dsmrun has ended");
    if (error != 0)
        return error_set(-ETIMEDOUT, "the job's broker does not read; is dsmrun stopped?");
    return answer_await(broker, deadline_ns);
}

/* ---- what came with an answer ---------------------------------------------------------------------------------- */

static int map_shared(int fd, size_t size_bytes, void **ret_memory)
{
    void *memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (memory == MAP_FAILED)
        return error_set(-errno, "map %zu bytes that the job's processes share: %m", size_bytes);
    /* Small pages: an untouched stretch costs nothing. */
    (void)madvise(memory, size_bytes, MADV_NOHUGEPAGE);
    *ret_memory = memory;
    return 0;
}

/* Not for a child of a fork that knows nothing of us: the broker takes it that whoever maps an account uses it. */
static void account_keep_from_children(struct broker *broker)
{
    (void)madvise(broker->account, broker->account_size, MADV_DONTFORK);
}

static int account_map(struct broker *broker, int fd)
{
    void *memory;
    int error;

    broker->account_size = account_bytes(broker->capacity);
    error = map_shared(fd, broker->account_size, &memory);
    if (error != 0)
        return error;
    broker->account = memory;
    return 0;
}

static int table_map(struct broker *broker, int fd)
{
    void *memory;
    int error;

    broker->table_size = slot_table_bytes(broker->capacity);
    error = map_shared(fd, broker->table_size, &memory);
    if (error != 0)
        return error;
    broker->store.table = memory;
    if (slot_table_check(broker->store.table, broker->table_size) != 0 ||
        slot_account_check(slots_of(broker->account), broker->store.table,
                           broker->account_size - ACCOUNT_SLOTS_OFFSET) != 0)
        return error_set(-EPROTO, "what the job's broker sent is not a table of slots");
    return 0;
}

/* Takes the descriptors out of the packet: those of accounts and tables are not needed once they are mapped. */
static int welcome_take(struct broker *broker)
{
    const struct broker_message *welcome = &broker->message;
    int *fds = broker->packet.fds;
    unsigned next = 1;
    int error;

    broker->capacity = welcome->capacity;
    error = account_map(broker, fds[0]);
    if (error == 0)
        account_keep_from_children(broker);
    if (error == 0 && (welcome->flags & BROKER_HAS_STORE) != 0) {
        error = table_map(broker, fds[1]);
        broker->store.fd = os_descriptor_own(fds[2]);
        broker->store.is_device = (welcome->flags & BROKER_IS_DEVICE) != 0;
        broker->store.account = slots_of(broker->account);
        memcpy(broker->store.where, welcome->where, sizeof(broker->store.where));
        close(fds[1]);
        next = 3;
    }
    if (error == 0 && (welcome->flags & BROKER_HAS_USERFAULT) != 0)
        broker->device_fd = os_descriptor_own(fds[next++]);
    close(fds[0]);
    for (; next < broker->packet.fds_count; next++)
        close(fds[next]);
    broker->packet.fds_count = 0;
    return error;
}

static unsigned welcome_fds(uint32_t flags)
{
    return 1 + ((flags & BROKER_HAS_STORE) != 0 ? 2u : 0u) + ((flags & BROKER_HAS_USERFAULT) != 0 ? 1u : 0u);
}

int broker_connect(uint64_t timeout_ns, struct broker **ret_broker)
{
    const char *path = getenv(BROKER_PATH_VARIABLE), *key = getenv(BROKER_KEY_VARIABLE);
    struct broker *broker;
    int error = 0;

    if (path == NULL || path[0] == '\0')
        return -ENOENT;
    broker = broker_new();
    if (broker == NULL)
        return -ENOMEM;
    if (key == NULL || broker_key_parse(key, broker->message.key) != 0)
        error = error_set(-EACCES, "the environment has no " BROKER_KEY_VARIABLE " for the job's broker");
    if (error == 0)
        error = broker_call(path, &broker->fd);
    if (error == 0) {
        broker->fd = os_descriptor_own(broker->fd);
        error = ask(broker, BROKER_HELLO, timeout_ns);
    }
    if (error == 0)
        error = answer_check(broker, BROKER_WELCOME, welcome_fds(broker->message.flags));
    if (error == 0)
        error = welcome_take(broker);
    if (error != 0) {
        broker_close(broker);
        return error;
    }
    *ret_broker = broker;
    return 0;
}

void broker_close(struct broker *broker)
{
    if (broker == NULL)
        return;
    if (broker->account != NULL)
        munmap(broker->account, broker->account_size);
    if (broker->store.table != NULL)
        munmap(broker->store.table, broker->table_size);
    close_if_open(broker->store.fd);
    close_if_open(broker->device_fd);
    close_if_open(broker->fd);
    os_pages_unmap(broker, sizeof(*broker));
}

/* ---- everyday --------------------------------------------------------------------------------------------------- */

int broker_descriptor(const struct broker *broker)
{
    return broker->fd;
}

int broker_device(const struct broker *broker)
{
    return broker->device_fd;
}

bool broker_has_store(const struct broker *broker)
{
    return broker->capacity > 0;
}

int broker_wishes(struct broker *broker, struct account_limits *ret_limits)
{
    int error;

    while ((error = packet_take(broker)) == 0) {
        broker_packet_close(&broker->packet);
        if (broker->message.type == BROKER_WISH)
            wish_note(broker);
    }
    if (broker->is_wish_pending) {
        broker->is_wish_pending = false;
        *ret_limits = broker->limits;
        return 1;
    }
    return error == -EAGAIN ? 0 : -EPIPE;
}

void broker_publish(struct broker *broker, enum account_state state, const struct account_stats *stats)
{
    struct account *account = broker->account;
    uint32_t turn = atomic_load_explicit(&account->turn, memory_order_relaxed) + 1;

    turn += turn == 0; /* 0 says that there is none yet */
    memcpy(&account->copies[turn % 2], stats, sizeof(*stats));
    atomic_store_explicit(&account->turn, turn, memory_order_release);
    atomic_store_explicit(&account->state, (uint32_t)state, memory_order_release);
}

int broker_tier_open(struct broker *broker, struct loop *loop, struct tier **ret_tier)
{
    int error;

    ASSERT(broker_has_store(broker));
    error = tier_nvme_attach(loop, &broker->store, ret_tier);
    if (error != 0)
        return error;
    error = loop_hold(loop, broker->fd);
    if (error != 0)
        tier_close(*ret_tier);
    return error;
}

int broker_tier_loop(struct broker *broker, struct tier *tier, struct loop *loop)
{
    int error = loop_hold(loop, broker->fd);

    if (error == 0)
        tier_nvme_loop(tier, loop);
    return error;
}

/* ---- fork -------------------------------------------------------------------------------------------------------- */

static int child_take(struct broker *parent, struct broker *child)
{
    int *fds = parent->packet.fds;
    int error;

    child->fd = os_descriptor_own(fds[0]);
    child->limits = parent->limits;
    child->capacity = parent->capacity;
    error = account_map(child, fds[1]);
    close(fds[1]);
    parent->packet.fds_count = 0;
    if (error != 0 || child->capacity == 0)
        return error;
    if (slot_account_check(slots_of(child->account), parent->store.table, child->account_size - ACCOUNT_SLOTS_OFFSET) !=
        0)
        return error_set(-EPROTO, "what the job's broker sent is not an account");
    if (slot_account_clone(parent->store.table, parent->store.account, slots_of(child->account)) != 0)
        return error_set(-EAGAIN, "a page in the job's NVMe store is shared by too many processes, or one of them is "
                                  "stopped in the middle of a change");
    return 0;
}

int broker_child_prepare(struct broker *parent, struct broker **ret_child)
{
    struct broker *child = broker_new();
    int error;

    if (child == NULL)
        return -ENOMEM;
    error = ask(parent, BROKER_CHILD, CHILD_TIMEOUT_NS);
    if (error == 0)
        error = answer_check(parent, BROKER_ADOPT, 2);
    if (error == 0)
        error = child_take(parent, child);
    if (parent->is_wish_pending) { /* its packet is gone, and nobody would look for it */
        parent->message.type = BROKER_AGAIN;
        parent->message.serial = 0;
        parent->limits.serial--;
        parent->is_wish_pending = false;
        (void)!broker_send(parent->fd, &parent->message, NULL, 0, &parent->packet);
    }
    if (error != 0) {
        broker_close(child);
        return error;
    }
    *ret_child = child;
    return 0;
}

/* The table and the store are the parent's, and go on to the child by the fork itself. */
void broker_child_forget(struct broker *child)
{
    broker_close(child);
}

void broker_child_enter(struct broker *parent, struct broker *child, struct tier *tier)
{
    account_keep_from_children(child);
    child->device_fd = parent->device_fd;
    child->store = parent->store;
    child->table_size = parent->table_size;
    child->store.account = slots_of(child->account);
    if (tier != NULL)
        tier_nvme_account(tier, child->store.account);
    os_descriptor_close(parent->fd);
    child->fd = os_descriptor_own(child->fd); /* now there may be a place for it that is remembered */
    os_pages_unmap(parent, sizeof(*parent)); /* its account was not inherited */
    child->message.type = BROKER_HERE;
    child->message.serial = 0;
    (void)!broker_send(child->fd, &child->message, NULL, 0, &child->packet);
}
