/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_broker.c - processes and their job's broker: slots, accounts and figures, however a process ends.
 *
 * The test is dsmrun; its children are managed processes that talk to it over the real socket. What a child finds wrong
 * is its exit status.
 */
#include "base/os.h"
#include "base/random.h"
#include "runtime/broker.h"
#include "runtime/broker_wire.h"
#include "runtime/loop.h"
#include "tiers/shared_slots.h"
#include "tiers/tier.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define STORE_SLOTS 2048u
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            _exit(99);                                                                                                 \
        }                                                                                                              \
    } while (0)

struct world {
    struct broker_server *server;
    char directory[64], path[BROKER_PATH_MAX];
    struct broker_place place;
    unsigned ended_count;
    struct broker_process ended;
    int visits;
    struct broker_process visited;
};

static void process_ended(void *context, const struct broker_process *process)
{
    struct world *world = context;

    world->ended_count++;
    world->ended = *process;
}

static void open_world(struct world *world, uint64_t store_bytes)
{
    const struct broker_store store = {.size_bytes = store_bytes, .path = "."};

    memset(world, 0, sizeof(*world));
    snprintf(world->directory, sizeof(world->directory), "/tmp/broker-test-XXXXXX");
    assert_non_null(mkdtemp(world->directory));
    snprintf(world->path, sizeof(world->path), "%s/broker", world->directory);
    assert_int_equal(broker_server_create(world->path, &store, process_ended, world, &world->server), 0);
    setenv(BROKER_PATH_VARIABLE, world->path, 1);
    setenv(BROKER_KEY_VARIABLE, broker_server_key(world->server), 1);
    snprintf(world->place.path, sizeof(world->place.path), "%s", world->path);
    snprintf(world->place.key, sizeof(world->place.key), "%s", broker_server_key(world->server));
}

static void close_world(struct world *world)
{
    broker_server_destroy(world->server);
    assert_int_equal(access(world->path, F_OK), -1);
    rmdir(world->directory);
}

static int setup(void **state)
{
    static struct world world;

    open_world(&world, STORE_SLOTS * PAGE_BYTES);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    close_world(*state);
    return 0;
}

/* The kernel ends rings, and closes what they hold, by a worker: next to thousands of forks that took more than 5 s. */
#define RING_END_MS 40000

/* Serve until the process has ended (its status), or, with pid 0, for the given time. */
static int serve(struct world *world, pid_t pid, unsigned time_ms)
{
    uint64_t end_ns = os_now_ns() + time_ms * UINT64_C(1000000);

    while (os_now_ns() < end_ns) {
        struct pollfd one = {.fd = broker_server_descriptor(world->server), .events = POLLIN};
        int status;

        (void)poll(&one, 1, 1);
        broker_server_serve(world->server);
        if (pid != 0 && waitpid(pid, &status, WNOHANG) == pid)
            return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    return pid == 0 ? 0 : -1;
}

static void serve_until_ended(struct world *world, unsigned count)
{
    uint64_t until_ns = os_now_ns() + RING_END_MS * UINT64_C(1000000);

    while (world->ended_count < count && os_now_ns() < until_ns)
        serve(world, 0, 10);
    assert_int_equal(world->ended_count, count);
}

/* ---- in a child: a managed process ------------------------------------------------------------------------------ */

static struct broker *join(void)
{
    struct broker *broker;

    CHECK(broker_connect(UINT64_C(5000000000), &broker) == 0);
    return broker;
}

struct transfer_wait {
    struct tier_transfer transfer;
    bool is_done;
    int result;
};

static void transfer_done(struct tier_transfer *transfer, int result)
{
    struct transfer_wait *wait = transfer->context;

    wait->is_done = true;
    wait->result = result;
}

static int transfer(struct loop *loop, struct tier *tier, uint32_t slot, void *memory, bool is_write)
{
    struct transfer_wait wait = {.is_done = false};

    wait.transfer = (struct tier_transfer){.first = {slot},
                                           .pages_count = 1,
                                           .memory = memory,
                                           .is_write = is_write,
                                           .done = transfer_done,
                                           .context = &wait};
    tier_transfer_start(tier, &wait.transfer);
    while (!wait.is_done)
        loop_run_once(loop, UINT64_MAX);
    return wait.result;
}

struct managed {
    struct broker *broker;
    struct loop *loop;
    struct tier *tier;
    void *page;
};

static struct managed manage(const char *loop)
{
    struct managed managed = {.broker = join(), .page = aligned_alloc(PAGE_BYTES, PAGE_BYTES)};

    CHECK(managed.page != NULL && broker_has_store(managed.broker));
    CHECK(loop_create(loop, &managed.loop) == 0);
    CHECK(broker_tier_open(managed.broker, managed.loop, &managed.tier) == 0);
    return managed;
}

static void page_write(struct managed *managed, uint32_t slot, uint64_t number)
{
    for (size_t i = 0; i < PAGE_BYTES / 8; i++)
        ((uint64_t *)managed->page)[i] = number + i;
    CHECK(transfer(managed->loop, managed->tier, slot, managed->page, true) == 0);
}

static void page_read(struct managed *managed, uint32_t slot, uint64_t number)
{
    memset(managed->page, 0, PAGE_BYTES);
    CHECK(transfer(managed->loop, managed->tier, slot, managed->page, false) == 0);
    for (size_t i = 0; i < PAGE_BYTES / 8; i++)
        CHECK(((uint64_t *)managed->page)[i] == number + i);
}

static uint64_t slots_free(void)
{
    struct managed managed = manage("epoll");
    struct tier_counters counters;

    tier_counters_get(managed.tier, &counters);
    CHECK(counters.slots_max == STORE_SLOTS && counters.slots_used == 0);
    return tier_slots_free(managed.tier);
}

static pid_t start(void (*run)(void))
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};

        setrlimit(RLIMIT_CORE, &no_core);
        run();
        _exit(0);
    }
    return pid;
}

static void everything_is_free(void)
{
    CHECK(slots_free() == STORE_SLOTS);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void write_read_back(void)
{
    struct managed managed = manage("auto");
    struct tier_slot first;

    CHECK(tier_take(managed.tier, 16, &first) == 16);
    for (uint32_t i = 0; i < 16; i++)
        page_write(&managed, first.index + i, i * 1000);
    for (uint32_t i = 0; i < 16; i++)
        page_read(&managed, first.index + i, i * 1000);
    tier_put(managed.tier, first);
    CHECK(tier_slots_free(managed.tier) == STORE_SLOTS - 15);
    tier_close(managed.tier);
    loop_destroy(managed.loop);
    broker_close(managed.broker);
}

static void store_is_used_and_given_back(void **state)
{
    struct world *world = *state;

    assert_int_equal(serve(world, start(write_read_back), 10000), 0);
    serve_until_ended(world, 1);
    assert_string_equal(world->ended.name, "test_runtime_br");
    assert_int_equal(serve(world, start(everything_is_free), 10000), 0);
}

static void take_all_and_publish(void)
{
    struct managed managed = manage("auto");
    struct account_stats stats = {.start_ns = 5, .managed_bytes = 77, .tier_budget_pages = {1, 0, 0, 1}};
    struct tier_slot first;

    while (tier_take(managed.tier, 256, &first) > 0)
        ;
    broker_publish(managed.broker, ACCOUNT_MANAGING, &stats);
    stats.managed_bytes = 78;
    broker_publish(managed.broker, ACCOUNT_MANAGING, &stats);
}

static void take_all_and_die(void)
{
    take_all_and_publish();
    raise(SIGKILL);
}

static void take_all_and_execute(void)
{
    take_all_and_publish();
    execl("/no/such/program", "none", (char *)NULL);
    execl("/bin/sleep", "sleep", "1", (char *)NULL);
    _exit(98);
}

static void killed_process_leaks_nothing_and_leaves_its_figures(void **state)
{
    struct world *world = *state;

    assert_int_equal(serve(world, start(take_all_and_die), 10000), 128 + SIGKILL);
    serve_until_ended(world, 1);
    assert_int_equal(world->ended.stats.managed_bytes, 78);
    assert_int_equal(world->ended.state, ACCOUNT_MANAGING);
    assert_int_equal(world->ended.slots_held, STORE_SLOTS);
    assert_int_equal(world->ended.is_ended, 1);
    assert_int_equal(serve(world, start(everything_is_free), 10000), 0);
}

static void executed_program_releases(void **state)
{
    struct world *world = *state;
    pid_t pid = start(take_all_and_execute);

    serve_until_ended(world, 1);
    assert_int_equal(serve(world, start(everything_is_free), 10000), 0);
    assert_int_equal(kill(pid, 0), 0); /* it still runs, as another program */
    assert_int_equal(serve(world, pid, 10000), 0);
}

/* A daemon closes all descriptors: what it holds stays its own until it ends. */
static void close_everything_and_live_on(void)
{
    struct managed managed = manage("epoll");
    struct tier_slot first;

    CHECK(tier_take(managed.tier, 256, &first) == 256);
    for (int fd = 3; fd < 300; fd++)
        close(fd);
    usleep(300000);
}

static void ask_in_vain(void)
{
    usleep(100000);
    CHECK(slots_free() == STORE_SLOTS - 256);
}

static void process_that_closed_its_socket_keeps_its_slots(void **state)
{
    struct world *world = *state;
    pid_t pid = start(close_everything_and_live_on);

    assert_int_equal(serve(world, start(ask_in_vain), 10000), 0);
    assert_int_equal(serve(world, pid, 10000), 0);
    serve_until_ended(world, 2);
    assert_int_equal(serve(world, start(everything_is_free), 10000), 0);
}

/* Parent and child name the same slots; each may end first. */
static struct managed fork_managed(struct managed managed, bool *ret_is_child, pid_t *ret_pid)
{
    struct broker *child;
    pid_t pid;

    CHECK(broker_child_prepare(managed.broker, &child) == 0);
    pid = fork();
    CHECK(pid >= 0);
    *ret_is_child = pid == 0;
    *ret_pid = pid;
    if (pid > 0) {
        broker_child_forget(child);
        return managed;
    }
    broker_child_enter(managed.broker, child, managed.tier);
    managed.broker = child;
    CHECK(loop_create("epoll", &managed.loop) == 0);
    CHECK(broker_tier_loop(child, managed.tier, managed.loop) == 0);
    return managed;
}

static void parent_and_child(void)
{
    struct managed managed = manage("epoll");
    struct tier_slot first, more;
    bool is_child;
    pid_t pid;
    int status = 0;

    CHECK(tier_take(managed.tier, 200, &first) == 200);
    for (uint32_t i = 0; i < 200; i++)
        page_write(&managed, first.index + i, i * 1000);
    managed = fork_managed(managed, &is_child, &pid);
    if (!is_child) /* gone while the child goes on */
        _exit(0);
    usleep(100000);
    CHECK(tier_slots_free(managed.tier) == STORE_SLOTS - 200);
    while (tier_take(managed.tier, 64, &more) > 0)
        page_write(&managed, more.index, 7);
    for (uint32_t i = 0; i < 200; i++)
        page_read(&managed, first.index + i, i * 1000);
    managed = fork_managed(managed, &is_child, &pid);
    for (uint32_t i = 0; i < 200; i++) {
        page_read(&managed, first.index + i, i * 1000);
        tier_put(managed.tier, (struct tier_slot){first.index + i});
    }
    if (is_child)
        raise(SIGKILL);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    usleep(100000);
    CHECK(tier_slots_free(managed.tier) == 200);
}

static void forked_processes_share_slots(void **state)
{
    struct world *world = *state;

    assert_int_equal(serve(world, start(parent_and_child), 10000), 0);
    serve_until_ended(world, 3);
    assert_int_equal(serve(world, start(everything_is_free), 10000), 0);
}

static void fork_that_fails(void)
{
    struct managed managed = manage("epoll");
    struct tier_slot first;

    CHECK(tier_take(managed.tier, 100, &first) == 100);
    for (int i = 0; i < 50; i++) {
        struct broker *child;

        CHECK(broker_child_prepare(managed.broker, &child) == 0);
        broker_child_forget(child); /* fork() said EAGAIN */
    }
    usleep(50000);
    for (uint32_t i = 0; i < 100; i++)
        tier_put(managed.tier, (struct tier_slot){first.index + i});
    CHECK(tier_slots_free(managed.tier) == STORE_SLOTS);
}

static void failed_forks_are_undone(void **state)
{
    struct world *world = *state;

    assert_int_equal(serve(world, start(fork_that_fails), 10000), 0);
    serve_until_ended(world, 1); /* children that never ran are not told of */
    assert_int_equal(serve(world, start(everything_is_free), 10000), 0);
}

static void watch_for_wishes(void)
{
    struct managed managed = manage("epoll");
    struct account_stats stats = {.written_ns = 1, .tier_budget_pages = {1, 1, 0, 1}};
    struct account_limits limits;
    struct pollfd one = {.fd = broker_descriptor(managed.broker), .events = POLLIN};
    struct broker *child;
    bool is_child;
    pid_t pid;

    CHECK(one.fd >= 100 && (fcntl(one.fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(broker_wishes(managed.broker, &limits) == 0);
    broker_publish(managed.broker, ACCOUNT_MANAGING, &stats);
    CHECK(poll(&one, 1, 5000) == 1);
    CHECK(broker_wishes(managed.broker, &limits) == 1);
    CHECK(limits.is_set == 1 && limits.bytes[DSM_TIER_DDR] == 128 << 20 && limits.serial == 1);
    CHECK(broker_wishes(managed.broker, &limits) == 0);
    /* A wish that meets a fork is not lost. */
    usleep(300000);
    CHECK(broker_child_prepare(managed.broker, &child) == 0);
    broker_child_forget(child);
    CHECK(poll(&one, 1, 5000) == 1);
    CHECK(broker_wishes(managed.broker, &limits) == 1);
    CHECK(limits.is_set == 3 && limits.bytes[DSM_TIER_CXL] == 64 << 20 && limits.serial == 2);
    (void)fork_managed(managed, &is_child, &pid);
    usleep(500000);
}

static void visit(void *context, const struct broker_process *process)
{
    struct world *world = context;

    world->visits++;
    world->visited = *process;
}

/* dsmctl blocks: a process of its own, whose answer is its exit status. */
static int ask_limit(struct world *world, int pid, enum dsm_tier tier, uint64_t size_bytes)
{
    pid_t asker = fork();

    assert_true(asker >= 0);
    if (asker == 0)
        _exit(-broker_ask_limit(&world->place, pid, tier, size_bytes));
    return -serve(world, asker, 10000);
}

static int ask_stat(struct world *world, int pid, int visits)
{
    pid_t asker = fork();

    assert_true(asker >= 0);
    if (asker == 0) {
        int error = broker_ask_stat(&world->place, pid, visit, world);

        CHECK(world->visits == visits);
        CHECK(visits == 0 || pid == 0 || (world->visited.pid == pid && world->visited.state == ACCOUNT_MANAGING));
        _exit(-error);
    }
    return -serve(world, asker, 10000);
}

static void limits_and_figures_go_both_ways(void **state)
{
    struct world *world = *state;
    pid_t pid = start(watch_for_wishes);

    serve(world, 0, 200);
    assert_int_equal(ask_stat(world, pid, 1), 0);
    assert_int_equal(ask_stat(world, getpid(), 0), -ESRCH);
    assert_int_equal(ask_limit(world, getpid(), DSM_TIER_DDR, 64 << 20), -ESRCH);
    assert_int_equal(ask_limit(world, pid, DSM_TIER_ZMEM, 64 << 20), -EOPNOTSUPP);
    assert_int_equal(ask_limit(world, pid, DSM_TIER_DDR, 4096), -EINVAL);
    assert_int_equal(ask_limit(world, pid, DSM_TIER_DDR, 128 << 20), 0);
    serve(world, 0, 50);
    assert_int_equal(ask_limit(world, pid, DSM_TIER_CXL, 64 << 20), 0);
    serve(world, 0, 500);
    assert_int_equal(ask_stat(world, 0, 2), 0); /* the child too */
    assert_int_equal(serve(world, pid, 10000), 0);
    world->place.key[0] = world->place.key[0] == '0' ? '1' : '0';
    assert_int_equal(ask_stat(world, pid, 0), -EACCES);
}

static void fill(void)
{
    struct managed managed = manage("epoll");
    struct tier_slot first;
    struct tier_counters counters;
    unsigned count;

    while ((count = tier_take(managed.tier, 256, &first)) > 0)
        ;
    tier_counters_get(managed.tier, &counters);
    CHECK(counters.slots_used == counters.slots_max);
    CHECK(counters.slots_max == (counters.slots_max > STORE_SLOTS ? 2 * STORE_SLOTS : STORE_SLOTS / 2));
    page_write(&managed, (uint32_t)counters.slots_max - 1, 4711);
    page_read(&managed, (uint32_t)counters.slots_max - 1, 4711);
    usleep(200000);
}

static void store_grows_and_shrinks(void **state)
{
    struct world *world = *state;
    pid_t pid = start(watch_for_wishes);

    serve(world, 0, 100);
    assert_int_equal(ask_limit(world, pid, DSM_TIER_NVME, 5 * STORE_SLOTS * PAGE_BYTES), -EINVAL);
    assert_int_equal(ask_limit(world, pid, DSM_TIER_NVME, 2 * STORE_SLOTS * PAGE_BYTES), 0);
    assert_int_equal(serve(world, start(fill), 10000), 0);
    assert_int_equal(ask_limit(world, pid, DSM_TIER_NVME, STORE_SLOTS / 2 * PAGE_BYTES), 0);
    serve(world, 0, 100);
    assert_int_equal(serve(world, start(fill), 10000), 0);
    kill(pid, SIGKILL);
    assert_int_equal(serve(world, pid, 10000), 128 + SIGKILL);
}

/* ---- many processes that fork and are killed --------------------------------------------------------------------- */

static _Noreturn void tree(struct managed managed, uint64_t seed, unsigned depth)
{
    enum { HELD_MAX = 96 };
    struct random random = {seed};
    static uint32_t held[HELD_MAX];
    static uint64_t numbers[HELD_MAX];
    static unsigned count;
    bool is_child = false;
    pid_t pid;

    for (int i = 0; i < 300; i++) {
        uint32_t dice = random_below(&random, 100);

        if (dice < 45 && count < HELD_MAX) {
            struct tier_slot slot;

            if (tier_take(managed.tier, 1, &slot) == 1) {
                held[count] = slot.index;
                numbers[count] = random_next(&random);
                page_write(&managed, slot.index, numbers[count++]);
            }
        } else if (dice < 95 && count > 0) {
            uint32_t pick = random_below(&random, count);

            page_read(&managed, held[pick], numbers[pick]);
            if (dice < 80) {
                tier_put(managed.tier, (struct tier_slot){held[pick]});
                held[pick] = held[--count];
                numbers[pick] = numbers[count];
            }
        } else if (depth > 0) {
            managed = fork_managed(managed, &is_child, &pid);
            if (is_child) { /* on its own way, with what it inherited */
                random.state ^= (uint64_t)i * 31;
                depth--;
                i = 0;
            }
        }
    }
    if (random_below(&random, 2) == 0)
        raise(SIGKILL);
    _exit(0);
}

static uint64_t tree_seed;

static void tree_root(void)
{
    struct managed managed = manage(tree_seed % 2 == 0 ? "epoll" : "auto");

    setpgid(0, 0);
    tree(managed, tree_seed, 3);
}

static void trees_of_processes_lose_nothing(void **state)
{
    struct world *world = *state;
    pid_t pids[3];

    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 3; i++) {
            tree_seed = (uint64_t)(round * 6 + 2 * i);
            pids[i] = start(tree_root);
        }
        serve(world, 0, 400);
        for (int i = 0; i < 3; i++)
            kill(-pids[i], SIGKILL);
        for (int i = 0; i < 3; i++) {
            int status = serve(world, pids[i], 20000);

            assert_true(status == 0 || status == 128 + SIGKILL);
        }
        /* Nobody of the groups is left. */
        for (int i = 0; i < 3; i++)
            while (kill(-pids[i], 0) == 0)
                serve(world, 0, 5);
        serve(world, 0, 100);
        assert_int_equal(serve(world, start(everything_is_free), 20000), 0);
    }
}

/* ---- the world outside --------------------------------------------------------------------------------------------
 */

static void wrong_key(void)
{
    struct broker *broker;

    setenv(BROKER_KEY_VARIABLE, "00112233445566778899aabbccddeeff", 1);
    CHECK(broker_connect(1000000000, &broker) == -EACCES);
    setenv(BROKER_KEY_VARIABLE, "short", 1);
    CHECK(broker_connect(1000000000, &broker) == -EACCES);
    unsetenv(BROKER_KEY_VARIABLE);
    CHECK(broker_connect(1000000000, &broker) == -EACCES);
    setenv(BROKER_PATH_VARIABLE, "/no/such/socket", 1);
    setenv(BROKER_KEY_VARIABLE, "00112233445566778899aabbccddeeff", 1);
    CHECK(broker_connect(1000000000, &broker) == -ECONNREFUSED);
    unsetenv(BROKER_PATH_VARIABLE);
    CHECK(broker_connect(1000000000, &broker) == -ENOENT);
}

static void strangers_are_refused(void **state)
{
    struct world *world = *state;

    assert_int_equal(serve(world, start(wrong_key), 10000), 0);
    assert_int_equal(world->ended_count, 0);
}

/* Changed user and cannot see the path: the abstract name is there. */
static void unprivileged(void)
{
    CHECK(chmod(getenv("BROKER_TEST_DIRECTORY"), 0700) == 0);
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    CHECK(access(getenv(BROKER_PATH_VARIABLE), F_OK) < 0);
    CHECK(slots_free() == STORE_SLOTS);
}

static void process_with_another_user_is_served(void **state)
{
    struct world *world = *state;

    if (getuid() != 0)
        skip();
    setenv("BROKER_TEST_DIRECTORY", world->directory, 1);
    assert_int_equal(serve(world, start(unprivileged), 10000), 0);
}

static void small_file_limit(void)
{
    const struct rlimit limit = {PAGE_BYTES, PAGE_BYTES};
    struct broker *broker = join();
    struct loop *loop;
    struct tier *tier;

    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0 && loop_create("epoll", &loop) == 0);
    CHECK(broker_tier_open(broker, loop, &tier) == -EFBIG);
}

static void file_limit_is_told_of(void **state)
{
    assert_int_equal(serve(*state, start(small_file_limit), 10000), 0);
}

static void hang_up(void)
{
    struct broker *broker = join(), *child;
    struct account_limits limits;
    struct pollfd one = {.fd = broker_descriptor(broker), .events = POLLIN};

    CHECK(!broker_has_store(broker));
    CHECK(poll(&one, 1, 5000) == 1 && broker_wishes(broker, &limits) == -EPIPE);
    CHECK(broker_child_prepare(broker, &child) == -EPIPE);
    broker_close(broker);
}

static void job_without_a_store_and_end_of_dsmrun(void **state)
{
    static struct world world;
    pid_t pid;
    int status;

    (void)state;
    open_world(&world, 0);
    pid = start(hang_up);
    serve(&world, 0, 100);
    close_world(&world);
    assert_int_equal(world.ended_count, 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void wrong_stores_are_refused(void **state)
{
    struct broker_store store = {.size_bytes = 1 << 20, .path = "/no/such/directory"};
    struct broker_server *server;

    (void)state;
    assert_int_equal(broker_server_create("/tmp/broker-test-socket", &store, NULL, NULL, &server), -ENOENT);
    assert_int_equal(access("/tmp/broker-test-socket", F_OK), -1);
    store = (struct broker_store){.size_bytes = UINT64_C(1) << 43, .path = "."};
    assert_int_equal(broker_server_create("/tmp/broker-test-socket", &store, NULL, NULL, &server), -ENOSPC);
    store.size_bytes = 0;
    assert_int_equal(broker_server_create("/no/such/directory/socket", &store, NULL, NULL, &server), -ENOENT);
}

/* The ring keeps the socket until it is gone itself. */
static void ring_holds_the_socket(void **state)
{
    struct loop *loop;
    int ends[2];
    struct pollfd one;

    (void)state;
    if (loop_create("io_uring", &loop) != 0)
        skip();
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    assert_int_equal(loop_hold(loop, ends[0]), 0);
    close(ends[0]);
    one = (struct pollfd){.fd = ends[1], .events = POLLIN};
    assert_int_equal(poll(&one, 1, 200), 0);
    loop_destroy(loop);
    assert_int_equal(poll(&one, 1, RING_END_MS), 1);
    close(ends[1]);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(store_is_used_and_given_back),
        CASE(killed_process_leaks_nothing_and_leaves_its_figures),
        CASE(executed_program_releases),
        CASE(process_that_closed_its_socket_keeps_its_slots),
        CASE(forked_processes_share_slots),
        CASE(failed_forks_are_undone),
        CASE(limits_and_figures_go_both_ways),
        CASE(store_grows_and_shrinks),
        CASE(trees_of_processes_lose_nothing),
        CASE(strangers_are_refused),
        CASE(process_with_another_user_is_served),
        CASE(file_limit_is_told_of),
        cmocka_unit_test(job_without_a_store_and_end_of_dsmrun),
        cmocka_unit_test(wrong_stores_are_refused),
        cmocka_unit_test(ring_holds_the_socket),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
