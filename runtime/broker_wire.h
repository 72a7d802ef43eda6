/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_wire.h - what processes, dsmctl and the broker say to each other, and the layout of an account. Private to
 * runtime/broker_*.c.
 *
 * A message is one packet of a unix SOCK_SEQPACKET socket: a type, a serial (an answer has that of its question; 0: not
 * asked for) and the fields of its type, little-endian. Descriptors come along as SCM_RIGHTS.
 *
 *   process                            broker
 *   HELLO key                     -->
 *                                 <--  WELCOME + account [table, store] [userfaultfd device]
 *   CHILD                         -->                              (before a fork)
 *                                 <--  ADOPT + socket, account     (the child's)
 *   HERE                          -->                              (the child, so that its pid is known)
 *   AGAIN                         -->                              (a WISH came at a bad moment)
 *                                 <--  WISH limits                 (at any time)
 *   dsmctl
 *   STAT key, pid, after          -->
 *                                 <--  PROCESS, or DONE: no more
 *   LIMIT key, pid, tier, size    -->
 *                                 <--  DONE
 *                                 <--  REFUSE errno, sentence      (in place of any answer)
 */
#ifndef TIERMESH_RUNTIME_BROKER_WIRE_H
#define TIERMESH_RUNTIME_BROKER_WIRE_H

#include "runtime/broker.h"

#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

#define BROKER_VERSION       1
#define BROKER_SENTENCE_MAX  240
#define BROKER_WHERE_MAX     128
#define BROKER_MESSAGE_MAX   (sizeof(struct broker_process) + 512)
#define BROKER_FDS_MAX       4
#define BROKER_HAS_STORE     1u /* flags of WELCOME: which descriptors follow the account's */
#define BROKER_IS_DEVICE     2u
#define BROKER_HAS_USERFAULT 4u

enum broker_type {
    BROKER_HELLO = 1,
    BROKER_WELCOME = 2,
    BROKER_CHILD = 3,
    BROKER_ADOPT = 4,
    BROKER_HERE = 5,
    BROKER_AGAIN = 6,
    BROKER_WISH = 7,
    BROKER_STAT = 8,
    BROKER_PROCESS = 9,
    BROKER_LIMIT = 10,
    BROKER_DONE = 11,
    BROKER_REFUSE = 12,
    BROKER_TYPES = 13,
};

/* Which fields count depends on the type. */
struct broker_message {
    enum broker_type type;
    uint32_t serial;
    uint32_t version;
    uint8_t key[BROKER_KEY_BYTES];
    uint32_t id; /* of an account; STAT: answer with the next one */
    uint32_t flags;
    uint32_t capacity; /* words of the table of slots */
    char where[BROKER_WHERE_MAX];
    struct account_limits limits;
    int32_t pid;
    uint32_t tier;
    uint64_t size_bytes;
    int32_t code; /* negative errno */
    char sentence[BROKER_SENTENCE_MAX];
    struct broker_process process;
};

/* Version and layout in one number: both sides are of one build, or one refuses. */
uint32_t broker_version(void);

/* The size of the packet; the buffer has BROKER_MESSAGE_MAX bytes. */
size_t broker_encode(const struct broker_message *message, uint8_t *packet);
/* 0 or -EBADMSG. Texts are ended and printable, numbers within the bounds that this header knows. */
int broker_decode(const uint8_t *packet, size_t size_bytes, struct broker_message *ret_message) MUST_USE;

struct broker_packet {
    size_t size_bytes;
    uint8_t bytes[BROKER_MESSAGE_MAX];
    int fds[BROKER_FDS_MAX]; /* the receiver's, close-on-exec */
    unsigned fds_count;
    int pid; /* of the sender, 0: not told (needs SO_PASSCRED) */
};

/* One packet, without blocking. 0, -EAGAIN, -EPIPE (also: broken), -EMSGSIZE. `scratch` is what is sent. */
int broker_send(int fd, const struct broker_message *message, const int *fds, unsigned fds_count,
                struct broker_packet *scratch) MUST_USE;
int broker_receive(int fd, struct broker_packet *ret_packet) MUST_USE;
void broker_packet_close(struct broker_packet *packet); /* the descriptors that came with it */

/* The key in hexadecimal. 0 or -EINVAL. */
int broker_key_parse(const char *text, uint8_t key[BROKER_KEY_BYTES]) MUST_USE;
void broker_key_print(const uint8_t key[BROKER_KEY_BYTES], char text[2 * BROKER_KEY_BYTES + 1]);

/* The socket's two names. Returns the size of the address, 0: the path is too long. */
socklen_t broker_address(const char *path, bool is_abstract, struct sockaddr_un *ret_address);
/* A connected, non-blocking socket; -errno with a sentence. */
int broker_call(const char *path, int *ret_fd) MUST_USE;

/* ---- an account, in memory that its process and the broker share ----------------------------------------------- */

#define ACCOUNT_SLOTS_OFFSET 32768 /* where the slots' part begins (tiers/shared_slots.h) */

/*
 * Figures: the process writes the copy that is not current and then makes it the current one, so that the last whole
 * figures are there however the process ended.
 */
struct account {
    _Atomic(uint32_t) turn; /* copies[turn % 2] is current; 0: none yet */
    _Atomic(uint32_t) state;
    struct account_stats copies[2];
};
_Static_assert(sizeof(struct account) <= ACCOUNT_SLOTS_OFFSET, "the figures fit in front of the slots");

size_t account_bytes(uint32_t capacity); /* capacity 0: no store */

#endif
