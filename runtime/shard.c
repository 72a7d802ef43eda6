/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.c - the shard's thread: one loop in which faults, messages, disk transfers, timers and requests meet.
 *
 * Opens everything it owns, in the order of shard_open(), and closes it in the reverse order. Never touches managed
 * memory that could fault on itself, and never waits outside the loop once it runs.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "runtime/bulk.h"
#include "runtime/bulk_pull.h"
#include "runtime/bulk_stream.h"
#include "runtime/cxl.h"
#include "runtime/limits.h"
#include "runtime/locks.h"
#include "runtime/pins.h"
#include "runtime/record.h"
#include "runtime/request.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define HOLD_NS_MAX 1000000 /* longest time a page is kept for a thread that keeps losing it */
#define NAMES_MAX 1024
#define REMOTE_READ_NS 60000 /* before the fabric has measured: between CXL memory and NVMe */

/* ---- set-up ---------------------------------------------------------------------------------------------------- */

static int tiers_open(struct node *node, struct placement_cost *cost, struct pager_far *far)
{
    const struct dsm_config *config = &node->config;
    uint64_t zmem_bytes = config_zmem_bytes(config, config->ddr_bytes);
    int error = tier_ddr_open(config->ddr_bytes, &node->tiers[TIER_DDR]);

    if (error == 0 && config->cxl_bytes > 0)
        error = cxl_open(config, config->cxl_bytes, tier_dax_open, &node->tiers[TIER_CXL], far);
    if (error == 0 && zmem_bytes > 0)
        error = tier_zmem_open(zmem_bytes, config->zmem_codec, &node->tiers[TIER_ZMEM]);
    if (error == 0 && config->nvme_bytes > 0)
        error = tier_nvme_open(node->loop, config->nvme_path, config->nvme_bytes, &node->tiers[TIER_NVME]);
    for (int i = TIER_CXL; error == 0 && i < TIERS; i++) {
        struct tier_cost measured;

        if (node->tiers[i] == NULL)
            continue;
        error = tier_measure(node->tiers[i], &measured);
        cost->read_ns[i] = measured.read_ns;
        cost->write_ns[i] = measured.write_ns;
    }
    cost->remote_read_ns = REMOTE_READ_NS;
    if (error == 0 && config->test_disk_errors > 0 && node->tiers[TIER_NVME] != NULL)
        tier_inject_errors(node->tiers[TIER_NVME], (unsigned)config->test_disk_errors);
    if (error == 0 && config->test_zmem_errors > 0 && node->tiers[TIER_ZMEM] != NULL)
        tier_inject_errors(node->tiers[TIER_ZMEM], (unsigned)config->test_zmem_errors);
    return error;
}

static int memory_open(struct node *node)
{
    struct pager_config config = {
        .ddr_bytes = node->config.ddr_bytes,
        .zmem_percent = (uint32_t)node->config.zmem_percent,
        .policy = pager_policy_of(node->config.policy),
        .prefetch_pages = node->config.prefetch_pages,
        .prefetch_predictors = node->config.prefetch_predictors,
        .fault_around_pages = node->config.fault_around_pages,
        .loop = node->loop,
        .window = &node->window,
        .pages = node->pages,
        .user = env_pager_user(node),
    };
    int error = tiers_open(node, &config.cost, &config.far);

    if (error == 0)
        error = mmu_open(&node->window, &node->features, &node->mmu);
    if (error != 0)
        return error;
    mmu_guard(node->mmu);
    config.mmu = node->mmu;
    memcpy(config.tiers, node->tiers, sizeof(config.tiers));
    error = pager_create(&config, &node->pager);
    if (error != 0)
        return error;
    node->faults_watch = (struct loop_watch){
        .fd = mmu_descriptor(node->mmu), .ready = fault_ready, .context = node};
    return loop_watch(node->loop, &node->faults_watch, EPOLLIN | EPOLLET);
}

/* A node of several writes a file of its own. */
static int recorder_open(struct node *node)
{
    char path[CONFIG_PATH_MAX + 8];
    int error;

    if (node->config.record[0] == '\0')
        return 0;
    snprintf(path, sizeof(path), "%s", node->config.record);
    if (node->nodes_count > 1)
        snprintf(path, sizeof(path), "%s.%u", node->config.record, node->self.index);
    error = record_create(path, false, &node->record);
    if (error == 0)
        error = record_open(node->record);
    pager_record(node->pager, node->record);
    return error;
}

static void limits_used(void *context, uint64_t bytes[TIERS])
{
    pager_memory_bytes(((struct node *)context)->pager, bytes);
}

static void limits_changed(void *context, enum tier_kind tier, uint64_t budget_bytes)
{
    if (pager_limit(((struct node *)context)->pager, tier, budget_bytes) != 0)
        log_warn("%s", error_text());
}

static int budgets_watch(struct node *node)
{
    struct limits_config config = {
        .root = "",
        .loop = node->loop,
        .wanted_bytes = {[TIER_DDR] = node->config.ddr_bytes,
                         [TIER_CXL] = config_cxl_memory_bytes(&node->config),
                         [TIER_ZMEM] = node->config.zmem_bytes},
        .user = {node, limits_used, limits_changed},
    };

    return node->config.follow ? limits_open(&config, &node->limits) : 0;
}

static int protocols_open(struct node *node)
{
    struct coherence_limits limits = {
        .nodes_count = (uint16_t)node->nodes_count,
        .requests_max = (uint16_t)node->config.requests_max,
        .locks_max = LOCKS_MAX,
        .home_locks_max = LOCKS_MAX * 4,
        .hold_ns = (uint32_t)node->config.hold_ns,
        .hold_ns_max = HOLD_NS_MAX,
    };
    struct cluster_limits cluster_limits = {
        .nodes_count = (uint16_t)node->nodes_count,
        .extents_count = node->window.shared_bytes / EXTENT_BYTES,
        .requests_max = 256,
        .names_max = NAMES_MAX,
        .heartbeat_ns = node->config.heartbeat_ns,
        .suspect_ns = node->config.suspect_ns,
    };
    void *memory;
    int error = os_pages_map(coherence_size(&limits), &memory);

    if (error != 0)
        return error;
    node->coherence = memory;
    error = os_pages_map(cluster_bytes(&cluster_limits), &memory);
    if (error != 0)
        return error;
    node->cluster = memory;
    error = os_pages_map(SELF_QUEUE_MAX * sizeof(struct message), &memory);
    if (error != 0)
        return error;
    node->self_queue = memory;
    env_init(node);
    coherence_init(node->coherence, &limits, &node->coherence_env, node->self, os_random());
    cluster_init(node->cluster, &cluster_limits, &node->cluster_env, node->self);
    return 0;
}

static void link_ready(struct loop_watch *watch, uint32_t events)
{
    struct node *node = watch->context;
    struct view view;
    int result;

    (void)events;
    while ((result = agent_link_read(node->link, &view)) == 1)
        peers_view(node, &view);
    if (result == 0)
        return;
    /* Without its agent this node learns of no view: it must not go on as if it were a member. */
    loop_unwatch(node->loop, watch);
    view = (struct view){.epoch = {node->view.epoch.number + 1}, .members = 0};
    if (!node->is_stopping)
        peers_view(node, &view);
}

static int shard_open(struct node *node)
{
    int error = loop_create(node->config.loop, &node->loop);

    if (error != 0)
        return error;
    loop_spin_set(node->loop, node->config.spin_ns);
    fault_waits_init(node);
    error = protocols_open(node);
    if (error == 0)
        error = memory_open(node);
    if (error == 0)
        error = recorder_open(node);
    if (error == 0)
        error = budgets_watch(node);
    if (error == 0)
        error = bulk_create(node, &node->bulk);
    if (error == 0)
        error = pins_create(&node->pins);
    if (error == 0)
        error = peers_open(node);
    if (error == 0)
        error = peers_meet(node);
    if (error != 0)
        return error;
    cluster_set_view(node->cluster, &node->view, os_now_ns());
    coherence_set_view(node->coherence, &node->view, os_now_ns());
    if (node->link == NULL)
        return 0;
    node->link_watch = (struct loop_watch){
        .fd = agent_link_descriptor(node->link), .ready = link_ready, .context = node};
    return loop_watch(node->loop, &node->link_watch, EPOLLIN);
}

/* All but the loop: a thread that posted the last call may still be inside loop_post(). */
static void shard_close(struct node *node)
{
    if (node->stream != NULL) /* the start failed: nobody was served */
        bulk_stream_close(node->stream);
    limits_close(node->limits);
    /* While everything is still open: until the disk is done, the loop may bring views and messages as well. */
    while (node->pager != NULL && pager_is_transferring(node->pager))
        loop_run_once(node->loop, UINT64_MAX);
    peers_close(node);
    if (node->mmu != NULL)
        mmu_close(node->mmu);
    if (node->pager != NULL)
        pager_destroy(node->pager);
    record_close(node->record);
    for (int i = 0; i < TIERS; i++)
        if (node->tiers[i] != NULL)
            tier_close(node->tiers[i]);
    if (node->pins != NULL)
        pins_destroy(node->pins);
    if (node->pulls != NULL)
        bulk_pull_destroy(node->pulls);
    if (node->bulk != NULL)
        bulk_destroy(node->bulk);
}

/* ---- the loop -------------------------------------------------------------------------------------------------- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What follows from what the loop's callbacks did; ends when there is nothing left to do at once. */
static uint64_t shard_settle(struct node *node)
{
    uint64_t deadline_ns;
    uint64_t now_ns;

    do {
        env_self_queue_drain(node);
        if (bulk_is_waiting(node))
            bulk_retry(node);
        pager_balance(node->pager);
    } while (node->self_count > 0);
    deadline_ns = earlier(coherence_deadline_ns(node->coherence), cluster_deadline_ns(node->cluster));
    deadline_ns = earlier(deadline_ns, pager_deadline_ns(node->pager));
    if (node->limits != NULL)
        deadline_ns = earlier(deadline_ns, limits_deadline_ns(node->limits));
    now_ns = deadline_ns == UINT64_MAX ? 0 : os_now_ns();
    deadline_ns = earlier(deadline_ns, pins_expire(node, now_ns));
    return bulk_is_copying(node) ? 0 : deadline_ns;
}

static void shard_tick(struct node *node, uint64_t now_ns)
{
    if (coherence_deadline_ns(node->coherence) <= now_ns)
        coherence_tick(node->coherence, now_ns);
    if (cluster_deadline_ns(node->cluster) <= now_ns)
        cluster_tick(node->cluster, now_ns);
    if (node->limits != NULL)
        limits_tick(node->limits, now_ns);
    if (node->record != NULL)
        record_tick(node->record, now_ns);
}

static void unpin_arrived(struct loop_call *call)
{
    struct node *node = CONTAINER_OF(call, struct node, unpin_call);

    /* Cleared first: an unpin that comes after the scan posts again. */
    atomic_store(&node->unpin_posted, 0);
    pager_unpinned(node->pager);
}

static void shard_run(struct node *node)
{
    while (!node->is_stopping) {
        uint64_t deadline_ns = shard_settle(node);
        unsigned late = node->late_count;
        uint64_t now_ns;

        loop_run_once(node->loop, deadline_ns);
        if (late > 0 && node->late_count >= late)
            env_late_flush(node); /* a shard that never blocks must not keep a home waiting */
        now_ns = deadline_ns == UINT64_MAX ? 0 : os_now_ns();
        if (now_ns >= deadline_ns)
            shard_tick(node, now_ns);
    }
    shard_settle(node);
    env_late_flush(node);
}

static void pin_to_cpu(const struct node *node)
{
    cpu_set_t cpus;

    if (node->config.cpu == 0)
        return;
    CPU_ZERO(&cpus);
    CPU_SET(node->config.cpu - 1, &cpus);
    if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0)
        log_warn("keep the shard on processor %lu: %m", node->config.cpu);
}

static void *shard_main(void *argument)
{
    struct node *node = argument;
    int error;

    pin_to_cpu(node);
    node->unpin_call.run = unpin_arrived;
    error = shard_open(node);
    node->start_error = error;
    if (error != 0)
        snprintf(node->start_text, sizeof(node->start_text), "%s", error_text());
    /* Pairs with the acquire in shard_start(): the starter sees everything that was opened. */
    atomic_store_explicit(&node->started, error == 0 ? 1 : 2, memory_order_release);
    os_futex_wake(&node->started, 1, false);
    if (error == 0)
        shard_run(node);
    shard_close(node);
    return NULL;
}

int shard_start(struct node *node, struct agent_link *link)
{
    uint32_t started;
    int error;

    node->link = link;
    error = os_thread_start(&node->thread, "tiermesh-shard", shard_main, node);
    if (error != 0)
        return error_set(error, "start the shard's thread: %s", strerror(-error));
    while ((started = atomic_load_explicit(&node->started, memory_order_acquire)) == 0)
        os_futex_wait(&node->started, 0, UINT64_MAX, false);
    if (started == 1)
        return 0;
    pthread_join(node->thread, NULL);
    loop_destroy(node->loop);
    if (node->start_text[0] != '\0')
        return error_set(node->start_error, "%s", node->start_text);
    return error_set(node->start_error, "start the node: %s", strerror(-node->start_error));
}

static void run_stop(struct request *request)
{
    struct node *node = request->node;

    node->is_stopping = true;
    if (node->link != NULL)
        agent_link_leave(node->link);
    request_finish(request, 0, 0);
}

void shard_stop(struct node *node)
{
    struct request request = REQUEST(node, run_stop);

    request_call(&request);
    pthread_join(node->thread, NULL);
    loop_destroy(node->loop);
}
