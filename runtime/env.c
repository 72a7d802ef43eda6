/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env.c - the outside world of the protocols: coherence_env and cluster_env over fabric, mmu and tiers.
 *
 * Runs on the shard's thread. Messages to this node itself go through a ring and are handled before the loop blocks,
 * so that no protocol call is ever entered from inside another.
 */
#include "base/log.h"
#include "base/os.h"
#include "coherence/message.h"
#include "runtime/bulk.h"
#include "runtime/locks.h"
#include "runtime/memory.h"
#include "runtime/request.h"

#include <errno.h>
#include <string.h>

/* ---- state ----------------------------------------------------------------------------------------------------- */

static const struct cluster_extent *extent_of(const struct node *node, struct page_id page)
{
    if (!mmu_page_is_shared(&node->window, page))
        return NULL;
    return cluster_extent_at(node->cluster, page.index / EXTENT_PAGES);
}

static struct node_id env_home_of(void *context, struct page_id page)
{
    const struct cluster_extent *extent = extent_of(context, page);

    return extent == NULL || extent->home == 0 ? NODE_NONE : node_of(extent->home - 1U);
}

static struct coherence_page *env_page(void *context, struct page_id page)
{
    struct node *node = context;
    struct page_entry *entry;

    if (node_is_none(env_home_of(node, page)))
        return NULL;
    entry = table_touch(node->pages, page);
    return entry == NULL ? NULL : &entry->coherence;
}

static struct coherence_home *env_home(void *context, struct page_id page)
{
    struct node *node = context;

    if (!node_is(env_home_of(node, page), node->self))
        return NULL;
    return table_touch(node->homes, page);
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

static void self_queue_push(struct node *node, const struct message *message)
{
    unsigned at = (node->self_first + node->self_count) % SELF_QUEUE_MAX;

    /* Bounded by the protocol: requests in flight times the few messages that one request sends to its own node. */
    ASSERT(node->self_count < SELF_QUEUE_MAX);
    node->self_queue[at] = *message;
    node->self_queue[at].payload = NULL;
    node->self_queue[at].payload_bytes = 0;
    node->self_count++;
}

void env_self_queue_drain(struct node *node)
{
    while (node->self_count > 0) {
        struct message message = node->self_queue[node->self_first];

        node->self_first = (node->self_first + 1) % SELF_QUEUE_MAX;
        node->self_count--;
        coherence_receive(node->coherence, node->self, &message, os_now_ns());
    }
}

static void message_post(struct node *node, struct node_id to, const struct message *message, const void *bytes)
{
    uint8_t header[MESSAGE_HEADER_BYTES];
    struct message whole = *message;
    struct iovec parts[2] = {{header, sizeof(header)}, {(void *)(uintptr_t)bytes, PAGE_BYTES}};

    whole.payload = bytes;
    whole.payload_bytes = bytes != NULL ? PAGE_BYTES : 0;
    message_encode(&whole, header);
    peers_send(node, to, bytes != NULL ? PLANE_DATA : PLANE_CONTROL, parts, bytes != NULL ? 2 : 1);
}

void env_late_flush(struct node *node)
{
    for (unsigned i = 0; i < node->late_count; i++)
        message_post(node, node->late[i].to, &node->late[i].message, NULL);
    node->late_count = 0;
}

void env_send_message(struct node *node, struct node_id to, const struct message *message, const void *bytes)
{
    if (node_is(to, node->self)) {
        ASSERT(bytes == NULL);
        self_queue_push(node, message);
        return;
    }
    env_late_flush(node); /* order on the plane is kept */
    message_post(node, to, message, bytes);
}

/*
 * A confirm is sent when a page was just mapped and its thread woken, often on this very processor: it may run first,
 * and the confirm goes out with its next request, or before the shard blocks, or after one more turn of the loop.
 */
static void env_send(void *context, struct node_id to, const struct message *message)
{
    struct node *node = context;

    if (message->type != MESSAGE_CONFIRM || node_is(to, node->self) || node->late_count == LATE_MAX)
        env_send_message(node, to, message, NULL);
    else
        node->late[node->late_count++] = (struct late_message){to, *message};
}

static int late_poll(struct loop_poller *poller)
{
    (void)poller;
    return 0;
}

static bool late_arm(struct loop_poller *poller)
{
    env_late_flush(poller->context);
    return false;
}

static void env_send_page(void *context, struct node_id to, const struct message *message)
{
    struct node *node = context;

    pager_send(node->pager, to, message);
}

/* ---- pages ----------------------------------------------------------------------------------------------------- */

static int env_protect(void *context, struct page_id page, enum access access)
{
    struct node *node = context;

    return pager_protect(node->pager, page, access);
}

static void env_install(void *context, struct page_id page, enum access access, const void *bytes)
{
    struct node *node = context;

    if (bytes != NULL)
        fault_bytes_came(node, page);
    pager_install(node->pager, page, access, bytes);
}

static void env_store(void *context, struct page_id page, const void *bytes)
{
    struct node *node = context;

    if (bytes != NULL)
        fault_bytes_came(node, page);
    pager_store(node->pager, page, bytes);
}

static void env_drop(void *context, struct page_id page)
{
    struct node *node = context;

    pager_drop(node->pager, page);
}

static void env_poison(void *context, struct page_id page, const char *why)
{
    struct node *node = context;

    pager_poison(node->pager, page, why);
}

static int env_atomic(void *context, struct page_id page, const struct message *operation, uint64_t *ret_old)
{
    struct node *node = context;

    return pager_atomic(node->pager, page, operation, ret_old);
}

/* ---- completions ----------------------------------------------------------------------------------------------- */

static void env_done(void *context, uint64_t token, int result, uint64_t value)
{
    struct node *node = context;

    switch (token & TOKEN_TAG) {
    case TOKEN_REQUEST:
        request_finish(token_pointer(token), result, value);
        return;
    case TOKEN_FAULT:
        fault_done(node, token, result);
        return;
    case TOKEN_NOBODY:
        if (token == TOKEN_NOBODY && node->prefetches > 0)
            node->prefetches--;
        return;
    case TOKEN_LOCK:
        locks_granted(node, (struct lock_entry *)(uintptr_t)(token & ~(uint64_t)TOKEN_TAG), result, (uint32_t)value);
        return;
    case TOKEN_COND:
        locks_cond_event(token_pointer(token), result, value);
        return;
    case TOKEN_BULK:
        bulk_current(node, token_pointer(token), result);
        return;
    default:
        NEVER("a token is one of ours");
    }
}

static bool env_lock_wanted(void *context, uint32_t lock)
{
    return locks_wanted(context, lock);
}

/* ---- what the pager asks --------------------------------------------------------------------------------------- */

static void user_send_bytes(void *context, struct node_id to, const struct message *message, const void *bytes)
{
    env_send_message(context, to, message, bytes);
}

static const struct coherence_page *shared_state(struct node *node, struct page_id page)
{
    const struct page_entry *entry = table_find(node->pages, page);

    return entry == NULL ? NULL : &entry->coherence;
}

static bool user_has_other_copy(void *context, struct page_id page)
{
    struct node *node = context;
    const struct coherence_page *state = shared_state(node, page);

    return state != NULL && state->state == PAGE_SHARED && !node_is(env_home_of(node, page), node->self);
}

static bool user_forget_copy(void *context, struct page_id page)
{
    struct node *node = context;

    return user_has_other_copy(node, page) &&
           coherence_evict(node->coherence, page, TOKEN_NOBODY | 8, os_now_ns()) == 0;
}

static bool user_give_back(void *context, struct page_id page)
{
    struct node *node = context;
    const struct coherence_page *state = shared_state(node, page);

    return state != NULL && state->state == PAGE_EXCLUSIVE && !node_is(env_home_of(node, page), node->self) &&
           coherence_evict(node->coherence, page, TOKEN_NOBODY | 8, os_now_ns()) == 0;
}

static void user_protected(void *context, struct page_id page)
{
    struct node *node = context;

    coherence_protected(node->coherence, page, os_now_ns());
}

static void user_atomic_ready(void *context, struct page_id page)
{
    struct node *node = context;

    coherence_atomic_ready(node->coherence, page, os_now_ns());
}

static void user_lost(void *context, struct page_id page, const char *why)
{
    struct node *node = context;

    coherence_lost(node->coherence, page, why, os_now_ns());
}

struct pager_user env_pager_user(struct node *node)
{
    return (struct pager_user){
        .context = node,
        .send_bytes = user_send_bytes,
        .forget_copy = user_forget_copy,
        .give_back = user_give_back,
        .has_other_copy = user_has_other_copy,
        .protected = user_protected,
        .atomic_ready = user_atomic_ready,
        .lost = user_lost,
    };
}

/* ---- cluster --------------------------------------------------------------------------------------------------- */

static void env_cluster_send(void *context, struct node_id to, const void *bytes, size_t size_bytes)
{
    struct node *node = context;
    struct iovec part = {(void *)(uintptr_t)bytes, size_bytes};

    peers_send(node, to, PLANE_CONTROL, &part, 1);
}

/* What was poisoned because it belonged to no allocation does now. */
static void env_extents_taken(void *context, uint64_t first_extent, uint64_t extents_count)
{
    struct node *node = context;

    for (uint64_t i = 0; i < extents_count; i++)
        pager_forget(node->pager, page_of((first_extent + i) * EXTENT_PAGES));
}

static void env_extents_freed(void *context, uint64_t first_extent, uint64_t extents_count)
{
    struct node *node = context;

    memory_extents_freed(node, first_extent, extents_count);
    for (uint64_t i = 0; i < extents_count; i++) {
        struct page_id first = page_of((first_extent + i) * EXTENT_PAGES);

        coherence_forget(node->coherence, first, EXTENT_PAGES);
        pager_forget(node->pager, first);
        table_forget(node->homes, first);
    }
}

static void env_suspect(void *context, struct node_id peer)
{
    struct node *node = context;

    log_warn("node %u has been silent for %lu ms, or does not keep to the protocol; asking the agent to remove it",
             peer.index, node->config.suspect_ns / 1000000);
    if (node->link != NULL)
        agent_link_suspect(node->link, peer);
}

void env_init(struct node *node)
{
    node->late_poller = (struct loop_poller){.poll = late_poll, .arm = late_arm, .context = node};
    loop_poller_add(node->loop, &node->late_poller);
    node->coherence_env = (struct coherence_env){
        .context = node,
        .page = env_page,
        .home = env_home,
        .home_of = env_home_of,
        .send = env_send,
        .send_page = env_send_page,
        .protect = env_protect,
        .install = env_install,
        .store = env_store,
        .drop = env_drop,
        .poison = env_poison,
        .atomic = env_atomic,
        .done = env_done,
        .lock_wanted = env_lock_wanted,
    };
    node->cluster_env = (struct cluster_env){
        .context = node,
        .send = env_cluster_send,
        .done = env_done,
        .extents_taken = env_extents_taken,
        .extents_freed = env_extents_freed,
        .suspect = env_suspect,
    };
}
