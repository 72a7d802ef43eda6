/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message_types.h - every message type: X(name, text, class, payload).
 *
 * R is the requester, H the page's home, O the owner, S any holder. Fields not named are zero. Every request carries
 * its serial in `c` (message_serial()); every answer to it carries `request` and `c` back unchanged.
 */
#ifndef TIERMESH_COHERENCE_MESSAGE_TYPES_H
#define TIERMESH_COHERENCE_MESSAGE_TYPES_H

/* May the type carry a page? The payload is then 0 or PAGE_BYTES, and 0 with MESSAGE_POISONED or MESSAGE_ZERO. */
enum message_payload {
    PAYLOAD_NONE,
    PAYLOAD_PAGE,
};

/* clang-format off */
/*
 * Pages
 *   get-shared, get-exclusive  R to H. Low bits of c: GET_HAS_COPY.
 *   put                        R to H: take this exclusive page back.
 *   invalidate                 H to S: forget your copy.
 *   recall-shared, -exclusive  H to O: give the bytes to `requester`, keep a copy / nothing. request, c: that one's.
 *   invalidated                S to H.
 *   recalled                   O to H: the bytes went to the requester. POISONED: there are none.
 *   write-back                 O to H: the bytes. a: 1 when a copy is kept.
 *   data                       O to R: the bytes. a: enum access granted.
 *   grant                      H to R. a: enum access granted; without payload, ZERO and POISONED: the copy is current.
 *   confirm                    R to H. a: CONFIRM_*.
 *   again                      S to H: the recall that could not be kept can be sent again.
 *   nack                       H to R. a: a positive errno.
 *   put-done                   H to R.
 * Atomics and reads
 *   atomic                     R to H. a: argument, b: expected; low bits of c: atomic_operation_of().
 *   atomic-done                H to R. a: old value, b: a positive errno or 0.
 *   read                       R to H. page: first, a: pages.
 *   read-ready                 H to R. a: a positive errno or 0.
 *   read-end                   R to H: request, c of the read.
 * Locks. page: decides the home. a: first unit, b: units, low bits of c: LOCK_WIRE_*
 *   lock                       R to H.
 *   lock-wanted                H to holder. requester: the next waiter, or NODE_NONE; credit, a, b, sequence: that
 *                              one's request, c, first unit and units. Low bits of c: LOCK_WIRE_TRY.
 *   lock-busy                  holder to H: a thread holds it, a try fails.
 *   lock-grant                 H or the last holder to R. credit: EOWNERDEAD or 0.
 *   lock-refused               H to R. credit: a positive errno.
 *   lock-release               holder to H. credit: EOWNERDEAD when nobody there took note of it, or 0.
 *   lock-passed                holder to H: granted to `requester`, whose request is `credit`.
 *   lock-cancel                R to H: not wanted any more.
 * Conditions. page: decides the home. a: the word.
 *   cond-wait, cond-cancel     R to H.
 *   cond-waiting               H to R: registered.
 *   cond-woken                 H to R. credit: 0, ECANCELED or ENOSPC.
 *   cond-wake                  R to H. b: 1 for all.
 *   cond-wake-done             H to R.
 */
/* clang-format on */
#define MESSAGE_TYPES(X)                                                                                               \
    X(MESSAGE_GET_SHARED, "get-shared", CLASS_REQUEST, PAYLOAD_NONE)                                                   \
    X(MESSAGE_GET_EXCLUSIVE, "get-exclusive", CLASS_REQUEST, PAYLOAD_NONE)                                             \
    X(MESSAGE_PUT, "put", CLASS_REQUEST, PAYLOAD_NONE)                                                                 \
    X(MESSAGE_INVALIDATE, "invalidate", CLASS_FORWARD, PAYLOAD_NONE)                                                   \
    X(MESSAGE_RECALL_SHARED, "recall-shared", CLASS_FORWARD, PAYLOAD_NONE)                                             \
    X(MESSAGE_RECALL_EXCLUSIVE, "recall-exclusive", CLASS_FORWARD, PAYLOAD_NONE)                                       \
    X(MESSAGE_INVALIDATED, "invalidated", CLASS_REPLY, PAYLOAD_NONE)                                                   \
    X(MESSAGE_RECALLED, "recalled", CLASS_REPLY, PAYLOAD_NONE)                                                         \
    X(MESSAGE_WRITE_BACK, "write-back", CLASS_REPLY, PAYLOAD_PAGE)                                                     \
    X(MESSAGE_DATA, "data", CLASS_REPLY, PAYLOAD_PAGE)                                                                 \
    X(MESSAGE_GRANT, "grant", CLASS_REPLY, PAYLOAD_PAGE)                                                               \
    X(MESSAGE_CONFIRM, "confirm", CLASS_REPLY, PAYLOAD_NONE)                                                           \
    X(MESSAGE_AGAIN, "again", CLASS_REPLY, PAYLOAD_NONE)                                                               \
    X(MESSAGE_NACK, "nack", CLASS_REPLY, PAYLOAD_NONE)                                                                 \
    X(MESSAGE_PUT_DONE, "put-done", CLASS_REPLY, PAYLOAD_NONE)                                                         \
    X(MESSAGE_ATOMIC, "atomic", CLASS_REQUEST, PAYLOAD_NONE)                                                           \
    X(MESSAGE_ATOMIC_DONE, "atomic-done", CLASS_REPLY, PAYLOAD_NONE)                                                   \
    X(MESSAGE_READ, "read", CLASS_REQUEST, PAYLOAD_NONE)                                                               \
    X(MESSAGE_READ_READY, "read-ready", CLASS_REPLY, PAYLOAD_NONE)                                                     \
    X(MESSAGE_READ_END, "read-end", CLASS_REPLY, PAYLOAD_NONE)                                                         \
    X(MESSAGE_LOCK, "lock", CLASS_REQUEST, PAYLOAD_NONE)                                                               \
    X(MESSAGE_LOCK_WANTED, "lock-wanted", CLASS_FORWARD, PAYLOAD_NONE)                                                 \
    X(MESSAGE_LOCK_BUSY, "lock-busy", CLASS_REPLY, PAYLOAD_NONE)                                                       \
    X(MESSAGE_LOCK_GRANT, "lock-grant", CLASS_REPLY, PAYLOAD_NONE)                                                     \
    X(MESSAGE_LOCK_REFUSED, "lock-refused", CLASS_REPLY, PAYLOAD_NONE)                                                 \
    X(MESSAGE_LOCK_RELEASE, "lock-release", CLASS_REPLY, PAYLOAD_NONE)                                                 \
    X(MESSAGE_LOCK_PASSED, "lock-passed", CLASS_REPLY, PAYLOAD_NONE)                                                   \
    X(MESSAGE_LOCK_CANCEL, "lock-cancel", CLASS_REPLY, PAYLOAD_NONE)                                                   \
    X(MESSAGE_COND_WAIT, "cond-wait", CLASS_REQUEST, PAYLOAD_NONE)                                                     \
    X(MESSAGE_COND_WAITING, "cond-waiting", CLASS_REPLY, PAYLOAD_NONE)                                                 \
    X(MESSAGE_COND_CANCEL, "cond-cancel", CLASS_REPLY, PAYLOAD_NONE)                                                   \
    X(MESSAGE_COND_WOKEN, "cond-woken", CLASS_REPLY, PAYLOAD_NONE)                                                     \
    X(MESSAGE_COND_WAKE, "cond-wake", CLASS_REQUEST, PAYLOAD_NONE)                                                     \
    X(MESSAGE_COND_WAKE_DONE, "cond-wake-done", CLASS_REPLY, PAYLOAD_NONE)

#define MESSAGE_TYPE_ENUM(name, text, class_, payload) name,
enum message_type {
    MESSAGE_NONE = 0,
    MESSAGE_TYPES(MESSAGE_TYPE_ENUM) MESSAGE_TYPES_COUNT,
};
#undef MESSAGE_TYPE_ENUM

/* `c` of a request: a serial that its sender never uses twice, above 16 bits that depend on the type. */
#define MESSAGE_SERIAL_SHIFT 16
#define GET_HAS_COPY         1u
#define LOCK_WIRE_SPACE      3u /* enum lock_space */
#define LOCK_WIRE_EXCLUSIVE  4u
#define LOCK_WIRE_TRY        8u

/* `a` of a confirm. */
#define CONFIRM_DONE   0u
#define CONFIRM_NOCOPY 1u /* granted without bytes, but the copy is gone: nothing was taken */

/* Operations of coherence_atomic(): the word becomes ... */
enum atomic_operation {
    ATOMIC_LOAD = 0,         /* itself */
    ATOMIC_STORE = 1,        /* a */
    ATOMIC_ADD = 2,          /* old + a */
    ATOMIC_EXCHANGE = 3,     /* a */
    ATOMIC_COMPARE_SWAP = 4, /* a when it was b */
    ATOMIC_OPERATIONS = 5,
};

/* The low 16 bits of an atomic's c: operation << 12 | offset in the page / 8. */
static inline unsigned atomic_operation_of(const struct message *message)
{
    return (unsigned)(message->c >> 12 & 15);
}

static inline unsigned atomic_offset_of(const struct message *message)
{
    return (unsigned)(message->c & 4095) * 8;
}

#endif
