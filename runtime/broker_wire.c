/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_wire.c - packets between processes, dsmctl and the broker. Called from any of them; allocates nothing.
 */
#include "runtime/broker_wire.h"
#include "base/bytes.h"
#include "base/error.h"
#include "tiers/shared_slots.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum field {
    FIELD_VERSION = 1 << 0,
    FIELD_KEY = 1 << 1,
    FIELD_ID = 1 << 2,
    FIELD_STORE = 1 << 3, /* flags, capacity, where */
    FIELD_LIMITS = 1 << 4,
    FIELD_PID = 1 << 5,
    FIELD_SIZE = 1 << 6, /* tier, size */
    FIELD_REFUSAL = 1 << 7,
    FIELD_PROCESS = 1 << 8,
};

static const unsigned fields[BROKER_TYPES] = {
    [BROKER_HELLO] = FIELD_VERSION | FIELD_KEY,
    [BROKER_WELCOME] = FIELD_VERSION | FIELD_ID | FIELD_STORE,
    [BROKER_ADOPT] = FIELD_ID,
    [BROKER_WISH] = FIELD_LIMITS,
    [BROKER_STAT] = FIELD_VERSION | FIELD_KEY | FIELD_PID | FIELD_ID,
    [BROKER_PROCESS] = FIELD_ID | FIELD_PROCESS,
    [BROKER_LIMIT] = FIELD_VERSION | FIELD_KEY | FIELD_PID | FIELD_SIZE,
    [BROKER_REFUSE] = FIELD_REFUSAL,
};

const char *broker_tier_name(enum dsm_tier tier)
{
    static const char *const names[DSM_TIERS] = {
        [DSM_TIER_DDR] = "ddr", [DSM_TIER_CXL] = "cxl", [DSM_TIER_ZMEM] = "zmem", [DSM_TIER_NVME] = "nvme"};

    return (unsigned)tier < DSM_TIERS ? names[tier] : "?";
}

uint32_t broker_version(void)
{
    return (uint32_t)BROKER_VERSION << 24 | (uint32_t)sizeof(struct broker_process);
}

size_t account_bytes(uint32_t capacity)
{
    return ACCOUNT_SLOTS_OFFSET + slot_account_bytes(capacity);
}

/* ---- messages ------------------------------------------------------------------------------------------------- */

static void limits_put(struct bytes_writer *writer, const struct account_limits *limits)
{
    bytes_put_u64(writer, limits->serial);
    for (int i = 0; i < DSM_TIERS; i++)
        bytes_put_u64(writer, limits->bytes[i]);
    bytes_put_u64(writer, limits->is_set);
}

static void limits_take(struct bytes_reader *reader, struct account_limits *limits)
{
    limits->serial = bytes_take_u64(reader);
    for (int i = 0; i < DSM_TIERS; i++)
        limits->bytes[i] = bytes_take_u64(reader);
    limits->is_set = bytes_take_u64(reader);
    reader->failed = reader->failed || limits->is_set >> DSM_TIERS != 0;
}

static void text_put(struct bytes_writer *writer, const char *text, size_t size)
{
    uint16_t length = (uint16_t)strnlen(text, size - 1);

    bytes_put_u16(writer, length);
    bytes_put(writer, text, length);
}

/* Ended and printable, whoever sent it. */
static void text_take(struct bytes_reader *reader, char *text, size_t size)
{
    uint16_t length = bytes_take_u16(reader);

    text[0] = '\0';
    if (length >= size) {
        reader->failed = true;
        return;
    }
    bytes_take(reader, text, length);
    text[length] = '\0';
    for (uint16_t i = 0; i < length; i++)
        reader->failed = reader->failed || !isprint((unsigned char)text[i]);
}

static void process_take(struct bytes_reader *reader, struct broker_process *process)
{
    bytes_take(reader, process, sizeof(*process));
    reader->failed = reader->failed || memchr(process->name, '\0', sizeof(process->name)) == NULL ||
                     process->state > ACCOUNT_FINISHED || process->is_ended > 1;
}

size_t broker_encode(const struct broker_message *message, uint8_t *packet)
{
    struct bytes_writer writer = {.next = packet, .left = BROKER_MESSAGE_MAX};
    unsigned has = fields[message->type];

    bytes_put_u8(&writer, (uint8_t)message->type);
    bytes_put_u32(&writer, message->serial);
    if ((has & FIELD_VERSION) != 0)
        bytes_put_u32(&writer, message->version);
    if ((has & FIELD_KEY) != 0)
        bytes_put(&writer, message->key, sizeof(message->key));
    if ((has & FIELD_ID) != 0)
        bytes_put_u32(&writer, message->id);
    if ((has & FIELD_PID) != 0)
        bytes_put_u32(&writer, (uint32_t)message->pid);
    if ((has & FIELD_STORE) != 0) {
        bytes_put_u32(&writer, message->flags);
        bytes_put_u32(&writer, message->capacity);
        text_put(&writer, message->where, sizeof(message->where));
    }
    if ((has & FIELD_SIZE) != 0) {
        bytes_put_u32(&writer, message->tier);
        bytes_put_u64(&writer, message->size_bytes);
    }
    if ((has & FIELD_LIMITS) != 0)
        limits_put(&writer, &message->limits);
    if ((has & FIELD_REFUSAL) != 0) {
        bytes_put_u32(&writer, (uint32_t)message->code);
        text_put(&writer, message->sentence, sizeof(message->sentence));
    }
    if ((has & FIELD_PROCESS) != 0)
        bytes_put(&writer, &message->process, sizeof(message->process));
    return BROKER_MESSAGE_MAX - writer.left;
}

static bool numbers_are_right(const struct broker_message *message, unsigned has)
{
    if ((has & FIELD_PID) != 0 && message->pid < 0)
        return false;
    if ((has & FIELD_SIZE) != 0 && message->tier >= DSM_TIERS)
        return false;
    if ((has & FIELD_STORE) != 0 && (message->flags > (BROKER_HAS_STORE | BROKER_IS_DEVICE | BROKER_HAS_USERFAULT) ||
                                     ((message->flags & BROKER_HAS_STORE) == 0) != (message->capacity == 0)))
        return false;
    return (has & FIELD_REFUSAL) == 0 || (message->code < 0 && message->code > -4096);
}

int broker_decode(const uint8_t *packet, size_t size_bytes, struct broker_message *ret_message)
{
    struct bytes_reader reader = {.next = packet, .left = size_bytes};
    struct broker_message *message = ret_message;
    uint8_t type = bytes_take_u8(&reader);
    unsigned has;

    if (type == 0 || type >= BROKER_TYPES)
        return -EBADMSG;
    has = fields[type];
    message->type = (enum broker_type)type;
    message->serial = bytes_take_u32(&reader);
    if ((has & FIELD_VERSION) != 0)
        message->version = bytes_take_u32(&reader);
    if ((has & FIELD_KEY) != 0)
        bytes_take(&reader, message->key, sizeof(message->key));
    if ((has & FIELD_ID) != 0)
        message->id = bytes_take_u32(&reader);
    if ((has & FIELD_PID) != 0)
        message->pid = (int32_t)bytes_take_u32(&reader);
    if ((has & FIELD_STORE) != 0) {
        message->flags = bytes_take_u32(&reader);
        message->capacity = bytes_take_u32(&reader);
        text_take(&reader, message->where, sizeof(message->where));
    }
    if ((has & FIELD_SIZE) != 0) {
        message->tier = bytes_take_u32(&reader);
        message->size_bytes = bytes_take_u64(&reader);
    }
    if ((has & FIELD_LIMITS) != 0)
        limits_take(&reader, &message->limits);
    if ((has & FIELD_REFUSAL) != 0) {
        message->code = (int32_t)bytes_take_u32(&reader);
        text_take(&reader, message->sentence, sizeof(message->sentence));
    }
    if ((has & FIELD_PROCESS) != 0)
        process_take(&reader, &message->process);
    return reader.failed || reader.left != 0 || !numbers_are_right(message, has) ? -EBADMSG : 0;
}

/* ---- packets -------------------------------------------------------------------------------------------------- */

union ancillary {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(BROKER_FDS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

int broker_send(int fd, const struct broker_message *message, const int *fds, unsigned fds_count,
                struct broker_packet *scratch)
{
    struct iovec bytes = {scratch->bytes, broker_encode(message, scratch->bytes)};
    union ancillary ancillary = {.bytes = {0}};
    struct msghdr header = {.msg_iov = &bytes, .msg_iovlen = 1};

    if (fds_count > 0) {
        struct cmsghdr *rights;

        header.msg_control = &ancillary;
        header.msg_controllen = CMSG_SPACE(fds_count * sizeof(int));
        rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(fds_count * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, fds_count * sizeof(int));
    }
    for (;;) {
        if (sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return 0;
        if (errno == EAGAIN || errno == ETOOMANYREFS || errno == ENOBUFS)
            return -EAGAIN;
        if (errno != EINTR)
            return errno == EMSGSIZE ? -EMSGSIZE : -EPIPE;
    }
}

/* More than we ever send: closed again. */
static void descriptor_take(struct broker_packet *packet, const void *from)
{
    int fd;

    memcpy(&fd, from, sizeof(fd));
    if (packet->fds_count < BROKER_FDS_MAX)
        packet->fds[packet->fds_count++] = fd;
    else
        close(fd);
}

static void ancillary_take(struct msghdr *header, struct broker_packet *packet)
{
    for (struct cmsghdr *at = CMSG_FIRSTHDR(header); at != NULL; at = CMSG_NXTHDR(header, at)) {
        size_t size = at->cmsg_len - CMSG_LEN(0);

        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS) {
            for (size_t i = 0; i < size / sizeof(int); i++)
                descriptor_take(packet, CMSG_DATA(at) + i * sizeof(int));
        } else if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_CREDENTIALS) {
            struct ucred sender;

            memcpy(&sender, CMSG_DATA(at), sizeof(sender));
            packet->pid = sender.pid;
        }
    }
}

int broker_receive(int fd, struct broker_packet *packet)
{
    struct iovec bytes = {packet->bytes, sizeof(packet->bytes)};
    union ancillary ancillary;
    struct msghdr header = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &ancillary};
    ssize_t got;

    packet->fds_count = 0;
    packet->pid = 0;
    do {
        header.msg_controllen = sizeof(ancillary);
        got = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return errno == EAGAIN ? -EAGAIN : -EPIPE;
    ancillary_take(&header, packet);
    if (got == 0 || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        broker_packet_close(packet);
        return got == 0 ? -EPIPE : -EMSGSIZE;
    }
    packet->size_bytes = (size_t)got;
    return 0;
}

void broker_packet_close(struct broker_packet *packet)
{
    for (unsigned i = 0; i < packet->fds_count; i++)
        close(packet->fds[i]);
    packet->fds_count = 0;
}

/* ---- names ---------------------------------------------------------------------------------------------------- */

int broker_key_parse(const char *text, uint8_t key[BROKER_KEY_BYTES])
{
    if (strlen(text) != 2 * BROKER_KEY_BYTES || strspn(text, "0123456789abcdef") != 2 * BROKER_KEY_BYTES)
        return -EINVAL;
    for (unsigned i = 0; i < BROKER_KEY_BYTES; i++) {
        unsigned byte = 0;

        for (unsigned j = 0; j < 2; j++) {
            char digit = text[2 * i + j];

            byte = byte << 4 | (unsigned)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
        }
        key[i] = (uint8_t)byte;
    }
    return 0;
}

void broker_key_print(const uint8_t key[BROKER_KEY_BYTES], char text[2 * BROKER_KEY_BYTES + 1])
{
    for (unsigned i = 0; i < BROKER_KEY_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", key[i]);
}

socklen_t broker_address(const char *path, bool is_abstract, struct sockaddr_un *ret_address)
{
    size_t length = strlen(path);

    memset(ret_address, 0, sizeof(*ret_address));
    ret_address->sun_family = AF_UNIX;
    if (length == 0 || length + 1 >= sizeof(ret_address->sun_path))
        return 0;
    memcpy(ret_address->sun_path + (is_abstract ? 1 : 0), path, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 1);
}

/* The path, or the abstract name for a process that has changed its root or its user. */
int broker_call(const char *path, int *ret_fd)
{
    int error = ENAMETOOLONG;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return error_set(-errno, "a socket to the job's broker: %m");
    for (int i = 0; i < 2; i++) {
        struct sockaddr_un address;
        socklen_t size = broker_address(path, i == 1, &address);

        if (size > 0 && connect(fd, (const struct sockaddr *)&address, size) == 0) {
            *ret_fd = fd;
            return 0;
        }
        if (i == 0 && size > 0)
            error = errno;
    }
    close(fd);
    errno = error;
    /* Full: connect() on such a socket does not wait. */
    return error_set(error == EAGAIN ? -EAGAIN : -ECONNREFUSED, "the job's broker at %s: %m; has dsmrun ended?", path);
}
