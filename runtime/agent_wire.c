/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_wire.c - the records between a node and its job's agent, encode beside decode.
 *
 * No system calls. A decoder writes its result only when every byte of the record was right.
 */
#include "runtime/agent_wire.h"
#include "base/assert.h"
#include "base/bytes.h"

#include <errno.h>

#define HELLO_MAGIC 0x474d4c54u /* "TLMG" */

BUILD_ASSERT(AGENT_SMALL_MAX >= AGENT_LENGTH_BYTES + 1 + AGENT_PEER_BYTES_MAX);
BUILD_ASSERT(AGENT_SMALL_MAX >= AGENT_LENGTH_BYTES + 1 + 4 + 2 + AGENT_SENTENCE_MAX);

int agent_length_decode(const uint8_t bytes[AGENT_LENGTH_BYTES], size_t body_max, size_t *ret_body_bytes)
{
    struct bytes_reader reader = {.next = bytes, .left = AGENT_LENGTH_BYTES};
    uint32_t length = bytes_take_u32(&reader);

    if (length == 0 || length > body_max)
        return -EBADMSG;
    *ret_body_bytes = length;
    return 0;
}

static struct bytes_writer record_begin(uint8_t *record, size_t size, enum agent_record type)
{
    struct bytes_writer writer = {.next = record + AGENT_LENGTH_BYTES, .left = size - AGENT_LENGTH_BYTES};

    bytes_put_u8(&writer, (uint8_t)type);
    return writer;
}

static size_t record_end(uint8_t *record, const struct bytes_writer *writer)
{
    size_t size = (size_t)(writer->next - record);
    struct bytes_writer length = {.next = record, .left = AGENT_LENGTH_BYTES};

    ASSERT(!writer->failed);
    bytes_put_u32(&length, (uint32_t)(size - AGENT_LENGTH_BYTES));
    return size;
}

static struct bytes_reader body_begin(const uint8_t *body, size_t body_bytes, enum agent_record type)
{
    struct bytes_reader reader = {.next = body, .left = body_bytes};

    if (bytes_take_u8(&reader) != (uint8_t)type)
        reader.failed = true;
    return reader;
}

static bool body_is_done(const struct bytes_reader *reader)
{
    return !reader->failed && reader->left == 0;
}

size_t agent_hello_encode(const struct agent_hello *hello, uint8_t *record)
{
    struct bytes_writer writer = record_begin(record, AGENT_SMALL_MAX, AGENT_HELLO);

    bytes_put_u32(&writer, HELLO_MAGIC);
    bytes_put_u16(&writer, hello->version);
    bytes_put(&writer, hello->key, AGENT_KEY_BYTES);
    bytes_put_u16(&writer, hello->rank);
    bytes_put_u16(&writer, hello->nodes_count);
    bytes_put_u64(&writer, hello->bases_free);
    return record_end(record, &writer);
}

int agent_hello_decode(const uint8_t *body, size_t body_bytes, struct agent_hello *ret_hello)
{
    struct bytes_reader reader = body_begin(body, body_bytes, AGENT_HELLO);
    struct agent_hello hello;

    if (bytes_take_u32(&reader) != HELLO_MAGIC)
        return -EBADMSG;
    hello.version = bytes_take_u16(&reader);
    bytes_take(&reader, hello.key, AGENT_KEY_BYTES);
    hello.rank = bytes_take_u16(&reader);
    hello.nodes_count = bytes_take_u16(&reader);
    hello.bases_free = bytes_take_u64(&reader);
    if (!body_is_done(&reader))
        return -EBADMSG;
    *ret_hello = hello;
    return 0;
}

size_t agent_window_encode(uint64_t base, uint8_t *record)
{
    struct bytes_writer writer = record_begin(record, AGENT_SMALL_MAX, AGENT_WINDOW);

    bytes_put_u64(&writer, base);
    return record_end(record, &writer);
}

int agent_window_decode(const uint8_t *body, size_t body_bytes, uint64_t *ret_base)
{
    struct bytes_reader reader = body_begin(body, body_bytes, AGENT_WINDOW);
    uint64_t base = bytes_take_u64(&reader);

    if (!body_is_done(&reader))
        return -EBADMSG;
    *ret_base = base;
    return 0;
}

static void peer_put(struct bytes_writer *writer, const struct agent_peer *peer)
{
    size_t host_bytes = strnlen(peer->host, AGENT_HOST_MAX - 1);

    ASSERT(peer->blob_bytes <= AGENT_BLOB_MAX);
    bytes_put_u8(writer, (uint8_t)host_bytes);
    bytes_put(writer, peer->host, host_bytes);
    bytes_put_u16(writer, (uint16_t)peer->blob_bytes);
    bytes_put(writer, peer->blob, peer->blob_bytes);
}

static void peer_take(struct bytes_reader *reader, struct agent_peer *peer)
{
    size_t host_bytes = bytes_take_u8(reader);

    memset(peer, 0, sizeof(*peer));
    if (host_bytes >= AGENT_HOST_MAX) {
        reader->failed = true;
        return;
    }
    bytes_take(reader, peer->host, host_bytes);
    if (memchr(peer->host, 0, host_bytes) != NULL)
        reader->failed = true;
    peer->blob_bytes = bytes_take_u16(reader);
    if (peer->blob_bytes > AGENT_BLOB_MAX) {
        reader->failed = true;
        return;
    }
    bytes_take(reader, peer->blob, peer->blob_bytes);
}

size_t agent_meet_encode(const struct agent_peer *peer, uint8_t *record)
{
    struct bytes_writer writer = record_begin(record, AGENT_SMALL_MAX, AGENT_MEET);

    peer_put(&writer, peer);
    return record_end(record, &writer);
}

int agent_meet_decode(const uint8_t *body, size_t body_bytes, struct agent_peer *ret_peer)
{
    struct bytes_reader reader = body_begin(body, body_bytes, AGENT_MEET);
    struct agent_peer peer;

    peer_take(&reader, &peer);
    if (!body_is_done(&reader))
        return -EBADMSG;
    *ret_peer = peer;
    return 0;
}

static void view_put(struct bytes_writer *writer, const struct view *view)
{
    bytes_put_u32(writer, view->epoch.number);
    bytes_put_u64(writer, view->members);
}

/* A view names only nodes of the job, and its number is not 0. */
static void view_take(struct bytes_reader *reader, unsigned nodes_count, struct view *view)
{
    view->epoch.number = bytes_take_u32(reader);
    view->members = bytes_take_u64(reader);
    if (view->epoch.number == 0 || (nodes_count < NODES_MAX && view->members >> nodes_count != 0))
        reader->failed = true;
}

size_t agent_welcome_encode(const struct agent_welcome *welcome, unsigned nodes_count, uint8_t *record)
{
    struct bytes_writer writer = record_begin(record, AGENT_RECORD_MAX, AGENT_WELCOME);

    bytes_put_u64(&writer, welcome->job);
    bytes_put_u64(&writer, welcome->window_base);
    view_put(&writer, &welcome->view);
    bytes_put_u16(&writer, (uint16_t)nodes_count);
    for (unsigned i = 0; i < nodes_count; i++)
        peer_put(&writer, &welcome->peers[i]);
    return record_end(record, &writer);
}

int agent_welcome_decode(const uint8_t *body, size_t body_bytes, unsigned nodes_count,
                         struct agent_welcome *ret_welcome)
{
    struct bytes_reader reader = body_begin(body, body_bytes, AGENT_WELCOME);
    struct bytes_reader peers;
    uint64_t job = bytes_take_u64(&reader);
    uint64_t window_base = bytes_take_u64(&reader);
    struct view view;
    struct agent_peer peer;

    view_take(&reader, nodes_count, &view);
    if (bytes_take_u16(&reader) != nodes_count)
        return -EBADMSG;
    /* Two passes, so that a broken record leaves the result untouched. */
    peers = reader;
    for (unsigned i = 0; i < nodes_count; i++)
        peer_take(&reader, &peer);
    if (!body_is_done(&reader))
        return -EBADMSG;
    ret_welcome->job = job;
    ret_welcome->window_base = window_base;
    ret_welcome->view = view;
    for (unsigned i = 0; i < nodes_count; i++)
        peer_take(&peers, &ret_welcome->peers[i]);
    return 0;
}

size_t agent_view_encode(const struct view *view, uint8_t *record)
{
    struct bytes_writer writer = record_begin(record, AGENT_SMALL_MAX, AGENT_VIEW);

    view_put(&writer, view);
    return record_end(record, &writer);
}

int agent_view_decode(const uint8_t *body, size_t body_bytes, unsigned nodes_count, struct view *ret_view)
{
    struct bytes_reader reader = body_begin(body, body_bytes, AGENT_VIEW);
    struct view view;

    view_take(&reader, nodes_count, &view);
    if (!body_is_done(&reader))
        return -EBADMSG;
    *ret_view = view;
    return 0;
}

size_t agent_suspect_encode(struct node_id suspect, uint8_t *record)
{
    struct bytes_writer writer = record_begin(record, AGENT_SMALL_MAX, AGENT_SUSPECT);

    bytes_put_u16(&writer, suspect.index);
    return record_end(record, &writer);
}

int agent_suspect_decode(const uint8_t *body, size_t body_bytes, struct node_id *ret_suspect)
{
    struct bytes_reader reader = body_begin(body, body_bytes, AGENT_SUSPECT);
    struct node_id suspect = {bytes_take_u16(&reader)};

    if (!body_is_done(&reader))
        return -EBADMSG;
    *ret_suspect = suspect;
    return 0;
}

size_t agent_leave_encode(uint8_t *record)
{
    struct bytes_writer writer = record_begin(record, AGENT_SMALL_MAX, AGENT_LEAVE);

    return record_end(record, &writer);
}

size_t agent_refuse_encode(const struct agent_refusal *refusal, uint8_t *record)
{
    struct bytes_writer writer = record_begin(record, AGENT_SMALL_MAX, AGENT_REFUSE);
    size_t sentence_bytes = strnlen(refusal->sentence, AGENT_SENTENCE_MAX - 1);

    bytes_put_u32(&writer, (uint32_t)-refusal->code);
    bytes_put_u16(&writer, (uint16_t)sentence_bytes);
    bytes_put(&writer, refusal->sentence, sentence_bytes);
    return record_end(record, &writer);
}

int agent_refuse_decode(const uint8_t *body, size_t body_bytes, struct agent_refusal *ret_refusal)
{
    struct bytes_reader reader = body_begin(body, body_bytes, AGENT_REFUSE);
    uint32_t code = bytes_take_u32(&reader);
    size_t sentence_bytes = bytes_take_u16(&reader);
    struct agent_refusal refusal = {.code = 0};

    if (code == 0 || code > 4095 || sentence_bytes >= AGENT_SENTENCE_MAX)
        return -EBADMSG;
    refusal.code = -(int)code;
    bytes_take(&reader, refusal.sentence, sentence_bytes);
    if (!body_is_done(&reader))
        return -EBADMSG;
    /* The sentence is printed: nothing in it may steer a terminal. */
    for (size_t i = 0; i < sentence_bytes; i++) {
        if (refusal.sentence[i] < ' ' || refusal.sentence[i] > '~')
            refusal.sentence[i] = '?';
    }
    *ret_refusal = refusal;
    return 0;
}
