/* SPDX-License-Identifier: Apache-2.0 */
/*
 * private_shard.c - the thread that manages an unchanged program's memory: faults, eviction, orders.
 *
 * One loop, as shard.c has it, without nodes and protocols: every page is this process's own, so a fault goes straight
 * to the pager. Started when what was handed out nears the DDR budget, and again in each forked child. Never touches
 * managed memory, and never waits outside its loop, except while a fork goes on.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "runtime/cxl.h"
#include "runtime/loop.h"
#include "runtime/managed.h"
#include "runtime/record.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define FAULTS_AT_A_TIME  16
#define PUBLISH_NS        100000000U
#define BROKER_TIMEOUT_NS 5000000000U
#define THREAD_WAIT_NS    2000000000U
#define THREAD_RETRY_NS   2000000

/* ---- faults ----------------------------------------------------------------------------------------------------- */

/* A fault may be older than the unmapping of its page, or than its giving to the kernel: then nothing is to be done. */
static int page_is_managed(struct managed *managed, struct page_id page, bool *ret_is_managed)
{
    if (!managed_try_lock(managed))
        return -EAGAIN;
    *ret_is_managed = ranges_at(managed->ranges, page.index).state.kind == HOOKS_MANAGED &&
                      managed->extents[page.index / EXTENT_PAGES] == EXTENT_REGISTERED;
    managed_unlock(managed);
    return 0;
}

static void fault_defer(struct private_shard *shard, const struct mmu_fault *fault)
{
    if (shard->deferred_count < DEFERRED_MAX)
        shard->deferred[shard->deferred_count++] = *fault;
    else
        mmu_wake(shard->mmu, fault->page, 1); /* the thread faults again */
}

static void fault_one(struct managed *managed, const struct mmu_fault *fault, uint64_t now_ns)
{
    struct private_shard *shard = &managed->shard;
    bool is_write = fault->is_write || fault->kind == MMU_FAULT_WP;
    struct page_entry *entry = table_touch(shard->pages, fault->page);
    bool is_managed = true;

    if (entry == NULL) {
        log_error("page %lu: no memory for its table entry; touching it raises SIGBUS", fault->page.index);
        if (mmu_poison(shard->mmu, fault->page) != 0)
            NEVER("a page can be poisoned");
        return;
    }
    if (page_rights(entry) != ACCESS_WRITE && page_is_managed(managed, fault->page, &is_managed) != 0) {
        fault_defer(shard, fault);
        return;
    }
    if (!is_managed) {
        mmu_wake(shard->mmu, fault->page, 1);
        return;
    }
    page_set_rights(entry, ACCESS_WRITE);
    affine_fault(&shard->affine, fault->thread, now_ns);
    pager_fault(shard->pager, fault->page, is_write, fault->thread != 0 ? fault->thread : 1, now_ns);
}

static void faults_read(struct managed *managed)
{
    struct mmu_fault faults[FAULTS_AT_A_TIME];
    int count;

    do {
        uint64_t now_ns;

        count = mmu_faults_read(managed->shard.mmu, faults, FAULTS_AT_A_TIME);
        now_ns = os_now_ns();
        for (int i = 0; i < count; i++)
            fault_one(managed, &faults[i], now_ns);
    } while (count == FAULTS_AT_A_TIME);
}

static void faults_ready(struct loop_watch *watch, uint32_t events)
{
    struct managed *managed = watch->context;

    (void)events;
    if (managed->shard.parking == NULL) /* else they are read when the fork is over */
        faults_read(managed);
}

static void deferred_retry(struct managed *managed)
{
    struct private_shard *shard = &managed->shard;
    struct mmu_fault faults[DEFERRED_MAX];
    unsigned count = shard->deferred_count;

    memcpy(faults, shard->deferred, count * sizeof(faults[0]));
    shard->deferred_count = 0;
    for (unsigned i = 0; i < count; i++)
        fault_one(managed, &faults[i], os_now_ns());
}

/* ---- orders ----------------------------------------------------------------------------------------------------- */

static void order_arrived(struct loop_call *call)
{
    struct order *order = CONTAINER_OF(call, struct order, call);
    int result;

    /* A fork may have the mutex: its order to stop is the one that does not need it. */
    if (order->run != run_park && (managed_context.shard.parking != NULL || !managed_try_lock(&managed_context))) {
        private_shard_post(&managed_context, order); /* comes again in the next round */
        return;
    }
    result = order->run(&managed_context, order);
    if (order->run != run_park)
        managed_unlock(&managed_context);
    if (result != -EINPROGRESS)
        order_finish(order, result);
}

void private_shard_post(struct managed *managed, struct order *order)
{
    order->call.run = order_arrived;
    loop_post(managed->shard.loop, &order->call);
}

/* ---- a fork ----------------------------------------------------------------------------------------------------- */

int run_park(struct managed *managed, struct order *order)
{
    managed->shard.parking = order;
    return -EINPROGRESS;
}

/* Nothing is under way: stand still until the fork is over. */
static void park(struct private_shard *shard)
{
    struct order *order = shard->parking;

    atomic_store_explicit(&shard->parked, 1, memory_order_relaxed);
    order_finish(order, 0);
    /* Pairs with the release in private_shard_release(). */
    while (atomic_load_explicit(&shard->parked, memory_order_acquire) != 0)
        os_futex_wait(&shard->parked, 1, UINT64_MAX, false);
    shard->parking = NULL;
    faults_read(&managed_context);
}

void private_shard_release(struct managed *managed)
{
    atomic_store_explicit(&managed->shard.parked, 0, memory_order_release);
    os_futex_wake(&managed->shard.parked, 1, false);
}

/* ---- figures and limits ----------------------------------------------------------------------------------------- */

static void publish(struct private_shard *shard, uint64_t now_ns, enum account_state state)
{
    struct account_stats stats = {
        .start_ns = shard->start_ns,
        .written_ns = now_ns,
        .managed_bytes = (managed_context.managed_pages + managed_context.kept_pages) << PAGE_SHIFT,
        .kept_bytes = managed_context.kept_pages << PAGE_SHIFT,
        .fresh_bytes = pager_private_fresh_pages(shard->pager) << PAGE_SHIFT,
        .metadata_bytes = pager_metadata_bytes(shard->pager),
        .limit_changes = shard->limit_changes,
        .pager = *pager_stats(shard->pager),
    };

    pager_prefetch_counters(shard->pager, &stats.prefetch);
    pager_policy(shard->pager, stats.policy, stats.policy_choice);
    pager_tier_pages(shard->pager, stats.tier_pages);
    pager_budget_pages(shard->pager, stats.tier_budget_pages);
    broker_publish(shard->broker, state, &stats);
    shard->publish_ns = now_ns + PUBLISH_NS;
}

static void limits_used(void *context, uint64_t bytes[TIERS])
{
    pager_memory_bytes(((struct private_shard *)context)->pager, bytes);
}

static void limits_changed(void *context, enum tier_kind tier, uint64_t budget_bytes)
{
    struct private_shard *shard = context;

    shard->limit_changes++;
    if (pager_limit(shard->pager, tier, budget_bytes) != 0)
        log_warn("%s", error_text());
}

static int limits_make(struct private_shard *shard)
{
    struct limits_config config = {
        .root = "",
        .loop = shard->loop,
        .wanted_bytes = {[TIER_DDR] = managed_context.config.ddr_bytes,
                         [TIER_CXL] = config_cxl_memory_bytes(&managed_context.config),
                         [TIER_ZMEM] = managed_context.config.zmem_bytes},
        .user = {.context = shard, .used = limits_used, .changed = limits_changed},
    };

    return limits_open(&config, &shard->limits);
}

/* zmem inside DDR is no budget of its own: the machine has DDR's to watch. */
static void wish_follow(struct private_shard *shard, enum tier_kind tier, uint64_t bytes)
{
    if (tier == TIER_ZMEM && managed_context.config.zmem_percent > 0)
        limits_changed(shard, tier, bytes);
    else
        limits_want(shard->limits, tier, bytes);
}

static void broker_ready(struct loop_watch *watch, uint32_t events)
{
    struct private_shard *shard = watch->context;
    struct account_limits limits;
    int result;

    (void)events;
    while ((result = broker_wishes(shard->broker, &limits)) == 1) {
        for (enum tier_kind tier = TIER_DDR; tier < TIERS; tier++)
            if ((limits.is_set >> tier & 1) != 0 && tier != TIER_NVME)
                wish_follow(shard, tier, limits.bytes[tier]);
    }
    if (result == -EPIPE && !shard->broker_is_gone) {
        shard->broker_is_gone = true; /* dsmrun is gone; what it opened for us stays open */
        loop_unwatch(shard->loop, &shard->broker_watch);
    }
}

/* ---- set-up ----------------------------------------------------------------------------------------------------- */

static int tiers_open(struct private_shard *shard, struct placement_cost *cost, struct pager_far *far)
{
    const struct dsm_config *config = &managed_context.config;
    uint64_t zmem_bytes = managed_context.budget_bytes[TIER_ZMEM];
    int error = tier_ddr_open(managed_context.budget_bytes[TIER_DDR], &shard->tiers[TIER_DDR]);

    if (error == 0 && config->cxl_bytes > 0)
        error = cxl_open(config, managed_context.budget_bytes[TIER_CXL], NULL, &shard->tiers[TIER_CXL], far);
    if (error == 0 && zmem_bytes > 0)
        error = tier_zmem_open(zmem_bytes, config->zmem_codec, &shard->tiers[TIER_ZMEM]);
    if (error == 0 && shard->broker != NULL && broker_has_store(shard->broker))
        error = broker_tier_open(shard->broker, shard->loop, &shard->tiers[TIER_NVME]);
    else if (error == 0 && config->nvme_bytes > 0)
        error = error_set(-EOPNOTSUPP, "the NVMe tier of an unmodified program is the job's; start it by dsmrun");
    for (int i = TIER_CXL; error == 0 && i < TIERS; i++) {
        struct tier_cost measured;

        if (shard->tiers[i] == NULL)
            continue;
        error = tier_measure(shard->tiers[i], &measured);
        cost->read_ns[i] = measured.read_ns;
        cost->write_ns[i] = measured.write_ns;
    }
    return error;
}

static uint64_t machine_bytes(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * PAGE_BYTES;
}

/* Tables have room for DDR budgets to come: not under a limit on address space, which counts them. */
static uint64_t ddr_max_bytes(void)
{
    return managed_context.is_bare ? managed_context.budget_bytes[TIER_DDR] : machine_bytes();
}

static int pager_make(struct private_shard *shard)
{
    struct pager_config config = {
        .ddr_bytes = managed_context.budget_bytes[TIER_DDR],
        .ddr_max_bytes = ddr_max_bytes(),
        .zmem_percent = (uint32_t)managed_context.config.zmem_percent,
        .policy = pager_policy_of(managed_context.config.policy),
        .prefetch_pages = managed_context.config.prefetch_pages,
        .prefetch_predictors = managed_context.config.prefetch_predictors,
        .fault_around_pages = managed_context.config.fault_around_pages,
        .loop = shard->loop,
        .mmu = shard->mmu,
        .window = &managed_context.window,
        .pages = shard->pages,
        .user = {.context = &managed_context, .managed_runs = managed_runs},
    };
    int error = tiers_open(shard, &config.cost, &config.far);

    if (error != 0)
        return error;
    memcpy(config.tiers, shard->tiers, sizeof(config.tiers));
    return pager_create(&config, &shard->pager);
}

static int recorder_make(struct private_shard *shard)
{
    int error = 0;

    if (managed_context.config.record[0] != '\0')
        error = record_create(managed_context.config.record, true, &shard->record);
    pager_record(shard->pager, shard->record);
    return error;
}

static int watches_open(struct private_shard *shard)
{
    int error;

    shard->faults_watch =
        (struct loop_watch){.fd = mmu_descriptor(shard->mmu), .ready = faults_ready, .context = &managed_context};
    error = loop_watch(shard->loop, &shard->faults_watch, EPOLLIN | EPOLLET);
    if (error != 0 || shard->broker == NULL)
        return error;
    shard->broker_watch =
        (struct loop_watch){.fd = broker_descriptor(shard->broker), .ready = broker_ready, .context = shard};
    error = loop_watch(shard->loop, &shard->broker_watch, EPOLLIN);
    if (error != 0)
        loop_unwatch(shard->loop, &shard->faults_watch);
    return error;
}

/* What the kernel fills until now is charged to the pager, the extents with the lowest addresses first. */
static void extents_hand_over(struct private_shard *shard)
{
    uint64_t count = managed_context.window.private_bytes >> EXTENT_SHIFT;

    for (uint64_t i = 0, left = managed_context.charged_extents; left > 0 && i < count; i++) {
        if (managed_context.extents[i] != EXTENT_FRESH)
            continue;
        pager_private_charge(shard->pager, page_of(i * EXTENT_PAGES));
        left--;
    }
    pager_private_kept_set(shard->pager, managed_context.kept_pages);
    managed_advice_hand_over(&managed_context);
}

static int shard_open(struct private_shard *shard)
{
    struct mmu_switches switches = {.no_move = !managed_context.config.move,
                                    .no_poison = !managed_context.config.poison,
                                    .no_wp_async = !managed_context.config.wp_async};
    uint64_t pages = managed_context.window.private_bytes >> PAGE_SHIFT;
    int error = broker_connect(BROKER_TIMEOUT_NS, &shard->broker);

    if (error != 0 && error != -ENOENT)
        return error;
    if (shard->broker != NULL && broker_device(shard->broker) >= 0)
        switches.device = broker_device(shard->broker);
    error = mmu_features_probe(&switches, &shard->features);
    if (error == 0)
        error = loop_create(managed_context.config.loop, &shard->loop);
    if (error != 0)
        return error;
    loop_spin_set(shard->loop, managed_context.config.preload_spin_ns);
    if (table_create(pages, sizeof(struct page_entry), &shard->pages) != 0)
        return error_set(-ENOMEM, "no memory for the table of %llu GiB; a limit may be too small (ulimit -v, -d)",
                         (unsigned long long)(pages >> 18));
    if (error == 0)
        error = mmu_open(&managed_context.window, &shard->features, &shard->mmu);
    if (error == 0)
        error = pager_make(shard);
    if (error == 0)
        error = recorder_make(shard);
    if (error == 0)
        error = limits_make(shard);
    if (error == 0)
        error = watches_open(shard);
    if (error == 0)
        extents_hand_over(shard);
    return error;
}

/* What a start that failed has opened so far. Nothing was put into it, and nothing of the program's is registered. */
static void shard_give_back(struct private_shard *shard)
{
    limits_close(shard->limits);
    if (shard->pager != NULL)
        pager_destroy(shard->pager);
    record_close(shard->record);
    for (int i = 0; i < TIERS; i++)
        tier_close(shard->tiers[i]);
    if (shard->mmu != NULL)
        mmu_cancel(shard->mmu);
    if (shard->pages != NULL)
        table_destroy(shard->pages);
    if (shard->loop != NULL)
        loop_destroy(shard->loop);
    broker_close(shard->broker);
    memset(shard->tiers, 0, sizeof(shard->tiers));
    shard->limits = NULL;
    shard->pager = NULL;
    shard->record = NULL;
    shard->mmu = NULL;
    shard->pages = NULL;
    shard->loop = NULL;
    shard->broker = NULL;
}

/* A forked child has all tables already; what hangs on descriptors and threads is made anew. */
static int shard_reopen(struct private_shard *shard)
{
    int error;

    limits_forget(shard->limits);
    shard->limits = NULL;
    loop_forget(shard->loop);
    error = loop_create(managed_context.config.loop, &shard->loop);
    if (error == 0 && shard->broker != NULL && shard->tiers[TIER_NVME] != NULL)
        error = broker_tier_loop(shard->broker, shard->tiers[TIER_NVME], shard->loop);
    if (error != 0)
        return error;
    loop_spin_set(shard->loop, managed_context.config.preload_spin_ns);
    pager_loop(shard->pager, shard->loop);
    if (shard->record != NULL)
        record_forked(shard->record);
    error = limits_make(shard);
    return error == 0 ? watches_open(shard) : error;
}

/* ---- the loop --------------------------------------------------------------------------------------------------- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t shard_settle(struct private_shard *shard)
{
    uint64_t deadline_ns = shard->publish_ns; /* also finds orders of tasks that could not ring (loop_post) */

    if (shard->parking != NULL) {
        if (pager_is_transferring(shard->pager))
            return deadline_ns;
        park(shard);
    }
    if (shard->deferred_count > 0)
        deferred_retry(&managed_context);
    loop_submit(shard->loop); /* the disk works while pages leave */
    pager_balance(shard->pager);
    if (shard->deferred_count > 0)
        return 0;
    deadline_ns = earlier(deadline_ns, pager_deadline_ns(shard->pager));
    deadline_ns = earlier(deadline_ns, affine_deadline_ns(&shard->affine));
    return earlier(deadline_ns, limits_deadline_ns(shard->limits));
}

static void shard_run(struct private_shard *shard)
{
    for (;;) {
        uint64_t deadline_ns = shard_settle(shard);
        uint64_t now_ns;

        loop_run_once(shard->loop, deadline_ns);
        now_ns = os_now_ns();
        affine_tick(&shard->affine, now_ns);
        if (limits_deadline_ns(shard->limits) <= now_ns)
            limits_tick(shard->limits, now_ns);
        if (shard->publish_ns > now_ns)
            continue;
        shard->publish_ns = now_ns + PUBLISH_NS;
        if (shard->record != NULL)
            record_tick(shard->record, now_ns);
        if (shard->broker != NULL)
            publish(shard, now_ns, ACCOUNT_MANAGING);
    }
}

static void *shard_main(void *argument)
{
    struct private_shard *shard = argument;
    bool is_first = shard->pager == NULL;
    int error = is_first ? shard_open(shard) : shard_reopen(shard);

    affine_init(&shard->affine, managed_context.config.preload_affine);
    shard->start_error = error;
    if (error != 0)
        snprintf(shard->start_text, sizeof(shard->start_text), "%s",
                 error_text()[0] != '\0' ? error_text() : strerrordesc_np(-error));
    if (error != 0 && is_first)
        shard_give_back(shard);
    shard->start_ns = os_now_ns();
    /* Pairs with the acquire in thread_start(): the starter sees everything that was opened. */
    atomic_store_explicit(&shard->started, error == 0 ? 1 : 2, memory_order_release);
    os_futex_wake(&shard->started, 1, false);
    if (error == 0)
        shard_run(shard);
    return NULL;
}

static int thread_start(struct private_shard *shard)
{
    uint32_t started;
    int error;

    atomic_store(&shard->started, 0);
    error = os_thread_start(&shard->thread, "tiermesh-shard", shard_main, shard);
    if (error != 0) {
        snprintf(shard->start_text, sizeof(shard->start_text),
                 "start the shard's thread: %s; a limit on processes or addresses may be too small (ulimit -u, -v)",
                 strerrordesc_np(-error));
        return error;
    }
    while ((started = atomic_load_explicit(&shard->started, memory_order_acquire)) == 0)
        os_futex_wait(&shard->started, 0, UINT64_MAX, false);
    if (started == 1) {
        mmu_guard(shard->mmu);
        return 0;
    }
    pthread_join(shard->thread, NULL);
    return error_set(shard->start_error, "%s", shard->start_text);
}

int private_shard_start(struct managed *managed)
{
    int error = thread_start(&managed->shard);

    if (error == 0)
        atomic_store_explicit(&managed->state, MANAGED_RUNNING, memory_order_release);
    return error;
}

int private_shard_resume(struct managed *managed)
{
    struct private_shard *shard = &managed->shard;
    struct timespec pause = {0, THREAD_RETRY_NS};
    uint64_t deadline_ns = os_now_ns() + THREAD_WAIT_NS;
    int error;

    atomic_store(&shard->parked, 0);
    shard->parking = NULL;
    shard->deferred_count = 0;
    shard->limit_changes = 0;
    shard->publish_ns = 0;
    /* The parent saw that there is room for a thread; somebody else's may have taken it for a moment. */
    while ((error = thread_start(shard)) == -EAGAIN && atomic_load(&shard->started) == 0 && os_now_ns() < deadline_ns)
        nanosleep(&pause, NULL);
    return error;
}

/* The last figures, and the last that is recorded. */
static int run_finish(struct managed *context, struct order *order)
{
    (void)order;
    pager_record(context->shard.pager, NULL);
    context->shard.record = NULL; /* the caller's to close */
    if (context->shard.broker != NULL)
        publish(&context->shard, os_now_ns(), ACCOUNT_FINISHED);
    return 0;
}

void hooks_finish(void)
{
    struct private_shard *shard = &managed_context.shard;
    struct order order = {.run = run_finish};
    struct record *record = shard->record;

    if (!managed_is_running() || (shard->broker == NULL && record == NULL) || managed_call(&order) != 0)
        return;
    record_close(record);
}
