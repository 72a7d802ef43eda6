/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_cluster.c - two peers say anything to a node that is asking for things itself.
 *
 * Input: records of a control byte (bit 0: from which peer; bits 1-5: type; bit 6: the node asks for something first),
 * a length byte and that many bytes behind the epoch. Nothing may crash, and no request may end twice.
 */
#include "base/assert.h"
#include "cluster/message.h"

#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX 64
#define RECORD_MAX 192

static struct {
    bool is_asked[TOKENS_MAX];
    unsigned tokens_count;
} asked;

static void send_nowhere(void *context, struct node_id to, const void *bytes, size_t size_bytes)
{
    struct cluster_message message;

    (void)context;
    ASSERT(to.index < 3);
    ASSERT(cluster_message_decode(bytes, size_bytes, &message) == 0); /* a node sends only what decodes */
}

static void done(void *context, uint64_t token, int result, uint64_t value)
{
    (void)context;
    (void)result;
    (void)value;
    ASSERT(token < asked.tokens_count && asked.is_asked[token]);
    asked.is_asked[token] = false;
}

static void freed(void *context, uint64_t first_extent, uint64_t extents_count)
{
    (void)context;
    ASSERT(first_extent + extents_count <= 32);
}

static void suspect(void *context, struct node_id peer)
{
    (void)context;
    ASSERT(peer.index < 3);
}

static void ask(struct cluster *cluster)
{
    unsigned token = asked.tokens_count;
    int result = 0;

    if (token == TOKENS_MAX)
        return;
    asked.is_asked[token] = true;
    asked.tokens_count++;
    if (token % 4 == 0)
        result = cluster_extents_take(cluster, 1 + token % 5, CLUSTER_PLACE_INTERLEAVE, NODE_NONE, token, 0);
    else if (token % 4 == 1)
        result = cluster_name_set(cluster, "a", 1 + token, token, 0);
    else if (token % 4 == 2)
        result = cluster_barrier(cluster, token, 0);
    else
        result = cluster_name_get(cluster, "b", true, token, 0);
    if (result < 0)
        asked.is_asked[token] = false;
}

static void play(struct cluster *cluster, unsigned self, const uint8_t *data, size_t size)
{
    while (size >= 2) {
        unsigned from = (self + 1 + (data[0] & 1)) % 3;
        size_t body = data[1] < size - 2 ? data[1] : size - 2;
        uint8_t record[RECORD_MAX] = {MESSAGE_FAMILY_CLUSTER, CLUSTER_MESSAGE_VERSION, data[0] >> 1 & 31, 0, 1};

        if (body > sizeof(record) - 8)
            body = sizeof(record) - 8;
        if ((data[0] & 64) != 0)
            ask(cluster);
        memcpy(record + 8, data + 2, body);
        cluster_receive(cluster, node_of(from), record, 8 + body, 0);
        data += 2 + body;
        size -= 2 + body;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct cluster_limits limits = {.nodes_count = 3,
                                          .extents_count = 32,
                                          .requests_max = 8,
                                          .names_max = 4,
                                          .heartbeat_ns = 100,
                                          .suspect_ns = 1000};
    const struct cluster_env env = {NULL, send_nowhere, done, freed, freed, suspect};
    const struct view all = {{1}, 7}, alone = {{2}, 2};

    /* Once as the keeper, once as a member. */
    for (unsigned self = 0; self < 2; self++) {
        struct cluster *cluster = calloc(1, cluster_bytes(&limits));

        if (cluster == NULL)
            return 0;
        memset(&asked, 0, sizeof(asked));
        cluster_init(cluster, &limits, &env, node_of(self));
        cluster_set_view(cluster, &all, 0);
        play(cluster, self, data, size);
        cluster_set_view(cluster, &alone, 0); /* node 0 is out then: all that it asked ends */
        for (unsigned i = 0; i < asked.tokens_count && self == 0; i++)
            ASSERT(!asked.is_asked[i]);
        free(cluster);
    }
    return 0;
}
