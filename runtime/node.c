/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.c - makes and ends the node of this process.
 *
 * Holds the one context of the library: the current node. Set by dsm_init() before any other call may be made, cleared
 * by dsm_finalize() when none may be made any more.
 */
#include "runtime/node.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/random.h"
#include "runtime/bulk_stream.h"
#include "runtime/locks.h"
#include "runtime/memory.h"
#include "runtime/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    _Atomic(struct node *) node;
    pthread_mutex_t starting;
} current = {.starting = PTHREAD_MUTEX_INITIALIZER};

struct node *node_current(void)
{
    return atomic_load_explicit(&current.node, memory_order_acquire);
}

static void log_start(const struct node *node)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    enum log_level level = LOG_WARN;
    char name[32];

    for (unsigned i = 0; i < ARRAY_COUNT(names); i++)
        if (strcmp(node->config.log, names[i]) == 0)
            level = (enum log_level)i;
    snprintf(name, sizeof(name), "node %u", node->self.index);
    log_configure(level, name);
}

static uint64_t bases_free(const struct node *node)
{
    uint64_t size = node->config.window_shared_bytes + node->config.window_private_bytes;
    uint64_t bits = 0;

    for (unsigned i = 0; i < 64 && agent_window_base(i) != 0; i++)
        if (mmu_window_is_free(agent_window_base(i), size))
            bits |= (uint64_t)1 << i;
    return bits;
}

/* All nodes derive the same number from the key that only they have. */
static uint64_t job_of(const uint8_t key[32])
{
    struct random random = {.state = 0};

    for (int i = 0; i < 32; i++)
        random.state = random_next(&random) ^ key[i];
    return random_next(&random);
}

static int window_agree(struct node *node, const struct agent_place *place, struct agent_link **ret_link,
                        uint64_t *ret_base)
{
    uint64_t bits = bases_free(node);
    int error;

    *ret_link = NULL;
    *ret_base = 0;
    if (!place->is_alone) {
        node->job = job_of(place->key);
        error = agent_connect(place, bits, node->config.join_timeout_ns, ret_link, ret_base);
        if (error != 0)
            return error;
    } else {
        node->job = os_random();
        *ret_base = bits != 0 ? agent_window_base((unsigned)__builtin_ctzll(bits)) : 0;
    }
    if (node->config.window_base != 0)
        *ret_base = node->config.window_base;
    if (*ret_base == 0 && bits == 0)
        *ret_base = agent_window_base(0); /* reserving it says what stands in the way */
    if (*ret_base == 0)
        return error_set(-EADDRINUSE, "no range of %lu GiB of addresses is free on all nodes; lower options "
                         "window.shared and window.private, or set window.base",
                         (node->config.window_shared_bytes + node->config.window_private_bytes) >> 30);
    return 0;
}

static int tables_create(struct node *node)
{
    uint64_t shared_pages = node->window.shared_bytes >> PAGE_SHIFT;
    uint64_t pages = shared_pages + (node->window.private_bytes >> PAGE_SHIFT);
    int error = table_create(pages, sizeof(struct page_entry), &node->pages);

    if (error == 0)
        error = table_create(shared_pages, sizeof(struct coherence_home), &node->homes);
    if (error == 0)
        error = locks_create(node, &node->locks);
    if (error == 0)
        error = memory_create(node, &node->memory);
    return error;
}

static void tables_destroy(struct node *node)
{
    if (node->memory != NULL)
        memory_destroy(node->memory);
    if (node->locks != NULL)
        locks_destroy(node->locks);
    if (node->homes != NULL)
        table_destroy(node->homes);
    if (node->pages != NULL)
        table_destroy(node->pages);
}

static int place_apply(struct node *node, struct agent_place *place)
{
    int error = agent_place_find(place);

    if (error != 0)
        return error;
    node->self = node_of(place->is_alone ? 0 : place->rank);
    node->nodes_count = place->is_alone ? 1 : place->nodes_count;
    snprintf(node->directory, sizeof(node->directory), "%s", place->directory);
    log_start(node);
    return 0;
}

static int node_open(struct node *node)
{
    struct mmu_switches switches = {
        .no_move = !node->config.move, .no_poison = !node->config.poison, .no_wp_async = !node->config.wp_async};
    struct agent_place place;
    struct agent_link *link = NULL;
    uint64_t base;
    int error = place_apply(node, &place);

    if (error == 0)
        error = mmu_features_probe(&switches, &node->features);
    if (error != 0)
        return error;
    error = window_agree(node, &place, &link, &base);
    if (error != 0)
        goto close_link;
    error = mmu_window_reserve(base, node->config.window_shared_bytes, node->config.window_private_bytes,
                               &node->window);
    if (error != 0)
        goto close_link;
    error = tables_create(node);
    if (error == 0)
        error = shard_start(node, link);
    if (error == 0)
        return 0;
    tables_destroy(node);
    mmu_window_release(&node->window);
close_link:
    if (link != NULL)
        agent_link_close(link);
    return error;
}

int node_start(const struct dsm_config *config)
{
    struct node *node = NULL;
    void *memory;
    int error;

    pthread_mutex_lock(&current.starting);
    error = node_current() != NULL ? error_set(-EALREADY, "this process is a node already") : config_check(config);
    if (error == 0)
        error = os_pages_map(sizeof(*node), &memory);
    if (error != 0)
        goto unlock;
    node = memory;
    node->config = *config;
    error = node_open(node);
    if (error == 0)
        atomic_store_explicit(&current.node, node, memory_order_release);
    else
        os_pages_unmap(node, sizeof(*node));
unlock:
    pthread_mutex_unlock(&current.starting);
    return error;
}

static void run_barrier(struct request *request)
{
    int error;

    request->node->is_leaving = true;
    error = cluster_barrier(request->node->cluster, request_token(request), os_now_ns());

    if (error != 0)
        request_finish(request, error, 0);
}

/*
 * Everybody who is still a member comes here too; who died meanwhile is not waited for. Nobody leaves before all have
 * passed the first barrier, so a change of the view during it is a death; during the second it is only somebody who
 * was faster.
 */
static int leave_together(struct node *node)
{
    struct request second = REQUEST(node, run_barrier);
    int result = 0;
    int error;

    do {
        struct request first = REQUEST(node, run_barrier);

        error = request_call(&first);
        if (error == -EHOSTDOWN)
            result = error;
    } while (error == -EHOSTDOWN && atomic_load(&node->is_out) == 0);
    if (error != 0)
        return error;
    request_call(&second);
    return result;
}

int node_stop(void)
{
    struct node *node = node_current();
    int result = leave_together(node);

    if (result == -EHOSTDOWN)
        error_set(result, "a node left the job before this one was done; this node has left too");
    memory_stop(node->memory);
    if (node->stream != NULL)
        bulk_stream_close(node->stream);
    node->stream = NULL;
    shard_stop(node);
    atomic_store_explicit(&current.node, NULL, memory_order_release);
    if (node->link != NULL)
        agent_link_close(node->link);
    /* The window stays reserved and raises SIGBUS (mmu_close): stray pointers must not find other memory. */
    tables_destroy(node);
    os_pages_unmap(node, sizeof(*node));
    return result;
}
