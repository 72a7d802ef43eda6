/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_wire.h - the records between a node and its job's agent, encode beside decode. Private to runtime/agent_*.c.
 *
 * A record is a 32-bit length and that many bytes of body, the first of which is its type; little-endian.
 *
 *   node                          agent
 *   HELLO key, rank, bases  -->
 *                           <--   WINDOW base            (when every node said hello)
 *   MEET host, blob         -->
 *                           <--   WELCOME view, peers    (when every node met)
 *   SUSPECT node, LEAVE     -->
 *                           <--   VIEW
 *                           <--   REFUSE errno, sentence (at any time; then the agent hangs up)
 *
 * Encoders return the size of the whole record; the buffer must have AGENT_SMALL_MAX bytes (AGENT_RECORD_MAX for
 * WELCOME). Decoders take the body and return 0 or -EBADMSG.
 */
#ifndef TIERMESH_RUNTIME_AGENT_WIRE_H
#define TIERMESH_RUNTIME_AGENT_WIRE_H

#include "runtime/agent.h"

#define AGENT_WIRE_VERSION   1
#define AGENT_LENGTH_BYTES   4
#define AGENT_HELLO_BYTES    (1 + 4 + 2 + AGENT_KEY_BYTES + 2 + 2 + 8)
#define AGENT_SENTENCE_MAX   256
#define AGENT_SMALL_MAX      (AGENT_BLOB_MAX + 256) /* largest record but WELCOME */
#define AGENT_PEER_BYTES_MAX (1 + AGENT_HOST_MAX + 2 + AGENT_BLOB_MAX)
#define AGENT_RECORD_MAX     (AGENT_LENGTH_BYTES + 64 + NODES_MAX * AGENT_PEER_BYTES_MAX)

enum agent_record {
    AGENT_HELLO = 1,
    AGENT_WINDOW = 2,
    AGENT_MEET = 3,
    AGENT_WELCOME = 4,
    AGENT_VIEW = 5,
    AGENT_SUSPECT = 6,
    AGENT_LEAVE = 7,
    AGENT_REFUSE = 8,
};

struct agent_hello {
    uint16_t version;
    uint8_t key[AGENT_KEY_BYTES];
    uint16_t rank, nodes_count;
    uint64_t bases_free;
};

struct agent_refusal {
    int code; /* negative errno */
    char sentence[AGENT_SENTENCE_MAX];
};

/* The length in front of a record: 1 .. body_max, or -EBADMSG. */
int agent_length_decode(const uint8_t bytes[AGENT_LENGTH_BYTES], size_t body_max, size_t *ret_body_bytes) MUST_USE;

size_t agent_hello_encode(const struct agent_hello *hello, uint8_t *record);
int agent_hello_decode(const uint8_t *body, size_t body_bytes, struct agent_hello *ret_hello) MUST_USE;

size_t agent_window_encode(uint64_t base, uint8_t *record);
int agent_window_decode(const uint8_t *body, size_t body_bytes, uint64_t *ret_base) MUST_USE;

size_t agent_meet_encode(const struct agent_peer *peer, uint8_t *record);
int agent_meet_decode(const uint8_t *body, size_t body_bytes, struct agent_peer *ret_peer) MUST_USE;

size_t agent_welcome_encode(const struct agent_welcome *welcome, unsigned nodes_count, uint8_t *record);
int agent_welcome_decode(const uint8_t *body, size_t body_bytes, unsigned nodes_count,
                         struct agent_welcome *ret_welcome) MUST_USE;

size_t agent_view_encode(const struct view *view, uint8_t *record);
int agent_view_decode(const uint8_t *body, size_t body_bytes, unsigned nodes_count, struct view *ret_view) MUST_USE;

size_t agent_suspect_encode(struct node_id suspect, uint8_t *record);
int agent_suspect_decode(const uint8_t *body, size_t body_bytes, struct node_id *ret_suspect) MUST_USE;

size_t agent_leave_encode(uint8_t *record);

size_t agent_refuse_encode(const struct agent_refusal *refusal, uint8_t *record);
int agent_refuse_decode(const uint8_t *body, size_t body_bytes, struct agent_refusal *ret_refusal) MUST_USE;

#endif
