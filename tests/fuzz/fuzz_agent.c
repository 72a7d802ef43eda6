/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_agent.c - the records between nodes and agent: whatever decodes encodes again to the same bytes.
 *
 * Input: the body of a record; its first byte is the type.
 */
#include "base/assert.h"
#include "runtime/agent_wire.h"

#include <string.h>

#define NODES 3

static uint8_t again[AGENT_RECORD_MAX];
static struct agent_welcome welcome;

static void check_same(const uint8_t *data, size_t size, size_t record_bytes)
{
    size_t body_bytes;

    ASSERT(agent_length_decode(again, AGENT_RECORD_MAX, &body_bytes) == 0);
    ASSERT(body_bytes == size && record_bytes == size + AGENT_LENGTH_BYTES);
    ASSERT(memcmp(again + AGENT_LENGTH_BYTES, data, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct agent_hello hello;
    struct agent_peer peer;
    struct agent_refusal refusal;
    struct view view;
    struct node_id suspect;
    uint64_t base;
    uint8_t body[AGENT_SMALL_MAX] = {0};

    /* A wrong first byte says little: each input is tried as every type. */
    for (uint8_t type = AGENT_HELLO; type <= AGENT_REFUSE && size > 0 && size <= sizeof(body); type++) {
        memcpy(body, data, size);
        body[0] = type;
        if (agent_hello_decode(body, size, &hello) == 0)
            check_same(body, size, agent_hello_encode(&hello, again));
        if (agent_window_decode(body, size, &base) == 0)
            check_same(body, size, agent_window_encode(base, again));
        if (agent_meet_decode(body, size, &peer) == 0)
            check_same(body, size, agent_meet_encode(&peer, again));
        if (agent_welcome_decode(body, size, NODES, &welcome) == 0)
            check_same(body, size, agent_welcome_encode(&welcome, NODES, again));
        if (agent_view_decode(body, size, NODES, &view) == 0)
            check_same(body, size, agent_view_encode(&view, again));
        if (agent_suspect_decode(body, size, &suspect) == 0)
            check_same(body, size, agent_suspect_encode(suspect, again));
        if (agent_refuse_decode(body, size, &refusal) == 0) /* not the same: what it prints is made harmless */
            ASSERT(agent_refuse_encode(&refusal, again) == size + AGENT_LENGTH_BYTES);
    }
    return 0;
}
