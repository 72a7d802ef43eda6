/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e2e_faults.c - nodes that die or stop, disks that fail: the others are told within 2 s, nothing reads as zeroes, and
 * everybody can leave.
 */
#include "tests/support/node_test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES   64
#define TOLD_NS (2 * SECOND_NS)

static char *area;
static uint64_t *gate;

static char *page(int number)
{
    return area + number * DSM_PAGE_BYTES;
}

/* Homes of `area` on node `home`; the gate's on node 0. */
static void area_open(int home)
{
    struct dsm_attributes attributes = {.placement = DSM_PLACE_NODE, .node = home};

    gate = node_share("gate", DSM_PAGE_BYTES);
    area = node_share_with("area", (PAGES + 1) * DSM_PAGE_BYTES, &attributes);
}

static void gate_wait(uint64_t value)
{
    uint64_t now = 0;

    while (now < value) {
        CHECK_OK(dsm_atomic_load(gate, &now));
        sleep_ms(5);
    }
}

static _Noreturn void die(void)
{
    raise(SIGKILL);
    abort();
}

static void wait_until_gone(int node)
{
    uint64_t start_ns = now_ns();

    while ((node_stats().members >> node & 1) != 0) {
        CHECK(now_ns() - start_ns < patience(2) * SECOND_NS);
        sleep_ms(5);
    }
}

static void leave_after_death(void)
{
    int error = dsm_finalize();

    CHECK(error == 0 || error == -EHOSTDOWN);
    printf("survivor left\n");
}

/* The job's status is that of the node that was killed; both others came to their end. */
static bool judge_one_killed(const struct node_outcome *outcome)
{
    const char *first = strstr(outcome->text, "survivor left");

    if (outcome->status != 128 + SIGKILL || strstr(outcome->text, "FAILED") != NULL)
        return false;
    if (first != NULL && strstr(first + 1, "survivor left") != NULL)
        return true;
    fprintf(stderr, "two survivors did not leave\n");
    return false;
}

/* ---- SIGKILL of one node
 * --------------------------------------------------------------------------------------------------- */

/* Node 2 owns the odd pages (homes on node 0) when it dies: they are lost. The even ones, which node 1 has, live. */
static void run_owner_killed(void)
{
    area_open(0);
    for (int i = 0; i < PAGES; i++)
        if (dsm_node_id() == (i % 2 == 0 ? 1 : 2))
            page_fill(page(i), (uint64_t)i, 1);
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 2)
        die();
    wait_until_gone(2);
    for (int i = 0; i < PAGES; i++) {
        uint64_t start_ns = now_ns();
        char bytes[8];

        if (i % 2 == 0) {
            CHECK(page_is_filled(page(i), (uint64_t)i, 1));
            continue;
        }
        if (i % 4 == 1)
            CHECK(!touch_reads(page(i)));
        else
            CHECK_ERROR(dsm_read(bytes, page(i), 8, 0, NULL), -EIO);
        CHECK(now_ns() - start_ns < TOLD_NS);
    }
    page(PAGES)[dsm_node_id()] = 1; /* the rest of the job works on */
    leave_after_death();
}

/* Threads that wait for a page of the dead at the very moment are told as well. */
static void touch_while_dying(unsigned thread)
{
    uint64_t start_ns = now_ns();

    for (int i = (int)thread; i < PAGES; i += 2)
        (void)touch_reads(page(i));
    CHECK(now_ns() - start_ns < patience(4) * SECOND_NS);
}

static void run_killed_while_serving(void)
{
    area_open(2);
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 2) {
        sleep_ms(30);
        die();
    }
    for (int round = 0; round < 50 && touch_writes(page(round % PAGES)); round++)
        sleep_ms(1);
    threads_run(2, touch_while_dying);
    wait_until_gone(2);
    CHECK(!touch_writes(page(PAGES))); /* never asked for, and its home is gone */
    leave_after_death();
}

/* Explicit calls that need the dead home return -EHOSTDOWN or -EIO, none waits for ever. */
static void run_home_killed(void)
{
    struct dsm_transfer transfer = {{0}};
    uint64_t *word;
    char bytes[DSM_PAGE_BYTES];
    uint64_t start_ns;
    int error;

    area_open(2);
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 2)
        die();
    wait_until_gone(2);
    start_ns = now_ns();
    word = (uint64_t *)(void *)page(3);
    CHECK_ERROR(dsm_atomic_fetch_add(word, 1, NULL), -EHOSTDOWN);
    CHECK_ERROR(dsm_lock(page(4), 1, DSM_LOCK_EXCLUSIVE, DSM_FOREVER), -EHOSTDOWN);
    CHECK_ERROR(dsm_mutex_lock((dsm_mutex *)(void *)page(5)), -EHOSTDOWN);
    error = dsm_read(bytes, page(6), sizeof(bytes), 0, NULL);
    CHECK(error == -EIO || error == -EHOSTDOWN);
    error = dsm_read(bytes, page(6) + 100, 8, 0, NULL);
    CHECK(error == -EIO || error == -EHOSTDOWN);
    error = dsm_write(page(7), bytes, sizeof(bytes), 0, NULL);
    CHECK(error == -EIO || error == -EHOSTDOWN);
    error = dsm_read(bytes, page(8), sizeof(bytes), DSM_NOWAIT, &transfer);
    error = error == 0 ? dsm_wait(&transfer, 2 * SECOND_NS) : error;
    CHECK(error == -EIO || error == -EHOSTDOWN);
    error = dsm_pin(page(9), 1, 1, 0);
    CHECK(error == -EIO || error == -EHOSTDOWN);
    CHECK(now_ns() - start_ns < TOLD_NS);
    leave_after_death();
}

static void run_lock_holder_killed(void)
{
    uint64_t start_ns;

    area_open(0);
    if (dsm_node_id() == 2) {
        CHECK_OK(dsm_lock(page(1), 1, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
        CHECK_OK(dsm_mutex_lock((dsm_mutex *)(void *)page(2)));
        CHECK_OK(dsm_lock(page(3), 1, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
        CHECK_OK(dsm_unlock(page(3), 1)); /* cached only: nobody was inside */
        CHECK_OK(dsm_atomic_store(gate, 1));
        sleep_ms(100);
        die();
    }
    gate_wait(1);
    start_ns = now_ns();
    if (dsm_node_id() == 1) {
        CHECK_ERROR(dsm_lock(page(1), 1, DSM_LOCK_EXCLUSIVE, DSM_FOREVER), -EOWNERDEAD); /* waits already */
        CHECK(now_ns() - start_ns < TOLD_NS);
        CHECK_OK(dsm_unlock(page(1), 1));
        CHECK_OK(dsm_lock(page(1), 1, DSM_LOCK_EXCLUSIVE, DSM_FOREVER)); /* told once */
        CHECK_OK(dsm_unlock(page(1), 1));
    } else {
        wait_until_gone(2);
        CHECK_ERROR(dsm_mutex_lock((dsm_mutex *)(void *)page(2)), -EOWNERDEAD);
        CHECK_OK(dsm_mutex_unlock((dsm_mutex *)(void *)page(2)));
    }
    leave_after_death();
}

static void run_killed_at_barrier(void)
{
    uint64_t start_ns;

    area_open(0);
    if (dsm_node_id() == 2) {
        sleep_ms(100);
        die();
    }
    start_ns = now_ns();
    CHECK_ERROR(dsm_barrier(), -EHOSTDOWN);
    CHECK(now_ns() - start_ns < TOLD_NS);
    CHECK_OK(dsm_barrier()); /* of those that are left */
    leave_after_death();
}

/* Node 0 keeps the tables of extents, names and barriers: the next one goes on with them. */
static void run_keeper_killed(void)
{
    char *memory;
    void *found;

    area_open(1);
    if (dsm_node_id() == 1)
        CHECK_OK(dsm_root_set("kept", area));
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 0)
        die();
    wait_until_gone(0);
    CHECK_OK(dsm_root_get("kept", 0, &found));
    CHECK(found == area);
    CHECK_OK(dsm_malloc(5 << 20, (void **)&memory));
    memory[0] = memory[(5 << 20) - 1] = 1;
    page(0)[dsm_node_id()] = 1;
    CHECK_OK(dsm_barrier());
    CHECK_IS(page(0)[3 - dsm_node_id()], 1);
    CHECK_OK(dsm_free(memory));
    leave_after_death();
}

/* All but one die, one after the other. */
static void run_last_one(void)
{
    area_open(0);
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() != 0) {
        sleep_ms((unsigned)dsm_node_id() * 200);
        die();
    }
    wait_until_gone(1);
    wait_until_gone(2);
    page(5)[0] = 1;
    leave_after_death();
    printf("survivor left\n"); /* the judge wants two */
}

/* Silent, but alive: the job goes on without it, and it learns that it is out when it wakes up. */
static void run_stopped(void)
{
    area_open(0);
    if (dsm_node_id() == 2) {
        pid_t waker;

        page(1)[0] = 1;
        CHECK_OK(dsm_atomic_fetch_add(gate, 1, NULL));
        waker = fork();
        if (waker == 0) {
            sleep_ms(4000);
            kill(getppid(), SIGCONT);
            _exit(0);
        }
        raise(SIGSTOP);
        sleep_ms(300);
        CHECK_ERROR(dsm_barrier(), -EHOSTDOWN);
        CHECK_ERROR(dsm_malloc(8, (void *[]){NULL}), -EHOSTDOWN);
        CHECK(!touch_reads(page(2)));
        CHECK(!touch_writes(page(1)));
        (void)dsm_finalize();
        printf("the stopped one knows\n");
        _exit(3);
    }
    gate_wait(1);
    {
        uint64_t start_ns = now_ns();

        while ((node_stats().members >> 2 & 1) != 0) {
            CHECK(now_ns() - start_ns < patience(3) * SECOND_NS);
            sleep_ms(10);
        }
    }
    CHECK(!touch_reads(page(1))); /* it had the only copy */
    page(2)[dsm_node_id()] = 1;
    CHECK_OK(dsm_barrier());
    leave_after_death();
}

static bool judge_stopped(const struct node_outcome *outcome)
{
    return outcome->status == 3 && strstr(outcome->text, "FAILED") == NULL && outcome_says(outcome, "survivor left") &&
           outcome_says(outcome, "the stopped one knows");
}

static void read_or_stop(unsigned index)
{
    char copy[4 * DSM_PAGE_BYTES];
    pid_t waker;
    int error;

    if (index > 0) {
        while ((error = dsm_read(copy, page((int)index * 4), sizeof(copy), 0, NULL)) == 0)
            CHECK(copy[0] == 7 && copy[3 * DSM_PAGE_BYTES] == 7);
        CHECK(error == -EHOSTDOWN || error == -EIO);
        return;
    }
    sleep_ms(100);
    waker = fork();
    if (waker == 0) {
        sleep_ms(4000);
        kill(getppid(), SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
}

/* Whose reads are under way when it is removed, by members that it can still see: they end, with an error. */
static void run_stopped_while_reading(void)
{
    area_open(0);
    for (int i = 0; i < PAGES && dsm_node_id() == 0; i++)
        page(i)[0] = 7;
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 2) {
        threads_run(5, read_or_stop);
        (void)dsm_finalize();
        printf("the stopped one knows\n");
        _exit(3);
    }
    sleep_ms(1500);
    wait_until_gone(2);
    leave_after_death();
}

/* ---- disk errors
 * ------------------------------------------------------------------------------------------------------------- */

#define DISK_PAGES 4096 /* 16 MiB over 4 MiB of DDR */

static char *disk_area_open(enum dsm_kind kind)
{
    struct dsm_attributes attributes = {.kind = kind};
    char *memory;

    CHECK_OK(dsm_malloc_with(DISK_PAGES * DSM_PAGE_BYTES, &attributes, (void **)&memory));
    return memory;
}

/* No write succeeds: what is in DDR stays, the first page too many is refused, in seconds. */
static void disk_write_errors(enum dsm_kind kind)
{
    char *memory = disk_area_open(kind);
    uint64_t start_ns = now_ns();
    char bytes[8];
    size_t stored = 0;

    while (stored < DISK_PAGES && touch_writes(memory + stored * DSM_PAGE_BYTES)) {
        page_fill(memory + stored * DSM_PAGE_BYTES, stored, 1);
        stored++;
    }
    CHECK(stored > 512 && stored < DISK_PAGES);
    CHECK_ERROR(dsm_read(bytes, memory + stored * DSM_PAGE_BYTES, sizeof(bytes), 0, NULL), -EIO);
    CHECK(now_ns() - start_ns < patience(8) * SECOND_NS);
    for (size_t i = 0; i < stored; i++)
        CHECK(page_is_filled(memory + i * DSM_PAGE_BYTES, i, 1));
    CHECK(node_stats().poisoned_pages > 0);
}

static void run_disk_write_errors_private(void)
{
    disk_write_errors(DSM_PRIVATE);
}

static void run_disk_write_errors_shared(void)
{
    disk_write_errors(DSM_SHARED);
}

/* The runtime's own file, found among this process's descriptors: it has no name. */
static int disk_file_open(void)
{
    for (int fd = 3; fd < 1024; fd++) {
        char link[64];
        char target[4200] = "";

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        if (readlink(link, target, sizeof(target) - 1) > 0 && strstr(target, node_directory()) != NULL)
            return open(link, O_RDWR | O_DIRECT | O_CLOEXEC);
    }
    return -1;
}

/* Everything on the disk is damaged behind the runtime's back: wrong bytes, or none at all. */
static void disk_damage(bool cut)
{
    static _Alignas(DSM_PAGE_BYTES) char garbage[1 << 20];
    int file = disk_file_open();
    struct stat status;

    CHECK(file >= 0 && fstat(file, &status) == 0);
    memset(garbage, 0x5c, sizeof(garbage));
    if (cut)
        CHECK_IS(ftruncate(file, 0), 0);
    for (off_t at = 0; !cut && at < status.st_size; at += (off_t)sizeof(garbage))
        CHECK(pwrite(file, garbage, sizeof(garbage), at) > 0);
    if (fsync(file) != 0)
        check_failed(__FILE__, __LINE__, "fsync: %s", strerror(errno));
    close(file);
}

static void damaged(enum dsm_kind kind, bool cut)
{
    char *memory = disk_area_open(kind);
    char bytes[DSM_PAGE_BYTES];
    size_t lost = 0;
    size_t refused = 0;

    for (size_t i = 0; i < DISK_PAGES; i++)
        page_fill(memory + i * DSM_PAGE_BYTES, i, 1);
    disk_damage(cut);
    for (size_t i = 0; i < DISK_PAGES; i += 3) {
        char *at = memory + i * DSM_PAGE_BYTES;

        if (i % 2 == 0) {
            int error = dsm_read(bytes, at, DSM_PAGE_BYTES, 0, NULL);

            refused += error == -EIO;
            CHECK(error == -EIO || (error == 0 && page_is_filled(bytes, i, 1)));
        } else if (!touch_reads(at)) {
            lost++;
        } else {
            CHECK(page_is_filled(at, i, 1));
        }
    }
    printf("lost %zu, refused %zu\n", lost, refused);
    CHECK(lost > 100 && refused > 100);
    CHECK(node_stats().poisoned_pages >= lost);
}

static void run_disk_garbage_private(void)
{
    damaged(DSM_PRIVATE, false);
}

static void run_disk_garbage_shared(void)
{
    damaged(DSM_SHARED, false);
}

static void run_disk_cut(void)
{
    damaged(DSM_PRIVATE, true);
}

/* The home's disk loses a page: the node that asks for it is told the same. */
static void run_disk_garbage_remote(void)
{
    char *memory = node_share("memory", DISK_PAGES * DSM_PAGE_BYTES);
    size_t lost = 0;

    if (dsm_node_id() == 0) {
        for (size_t i = 0; i < DISK_PAGES; i++)
            page_fill(memory + i * DSM_PAGE_BYTES, i, 1);
        disk_damage(false);
    }
    CHECK_OK(dsm_barrier());
    for (size_t i = (size_t)dsm_node_id(); i < DISK_PAGES; i += 10) {
        if (touch_reads(memory + i * DSM_PAGE_BYTES))
            CHECK(page_is_filled(memory + i * DSM_PAGE_BYTES, i, 1));
        else
            lost++;
    }
    CHECK(lost > 50);
    CHECK_OK(dsm_barrier());
}

static bool judge_page_named(const struct node_outcome *outcome)
{
    return outcome->status == 0 && outcome_says(outcome, "page at 0x") && outcome_says(outcome, "raises SIGBUS");
}

static bool judge_disk_named(const struct node_outcome *outcome)
{
    return judge_page_named(outcome) && outcome_says(outcome, "NVMe");
}

#define DISK_FAILS                                                                                                     \
    .nodes_count = 1, .judge = judge_page_named, .options = {"ddr=4M", "nvme=32M:%D", "test.disk_errors=1000000"}
#define DISK_DAMAGED .judge = judge_disk_named, .options = {"ddr=4M", "nvme=32M:%D"}
#define THREE_NODES  .nodes_count = 3, .judge = judge_one_killed

static const struct node_case cases[] = {
    {"owner_killed", run_owner_killed, THREE_NODES},
    {"killed_while_serving", run_killed_while_serving, THREE_NODES},
    {"home_killed", run_home_killed, THREE_NODES},
    {"lock_holder_killed", run_lock_holder_killed, THREE_NODES},
    {"killed_at_barrier", run_killed_at_barrier, THREE_NODES},
    {"keeper_killed", run_keeper_killed, THREE_NODES},
    {"last_one", run_last_one, THREE_NODES},
    {"stopped", run_stopped, .nodes_count = 3, .judge = judge_stopped},
    {"stopped_while_reading", run_stopped_while_reading, .nodes_count = 3, .judge = judge_stopped, .timeout_s = 60},
    {"disk_write_errors_private", run_disk_write_errors_private, DISK_FAILS},
    {"disk_write_errors_shared", run_disk_write_errors_shared, DISK_FAILS},
    {"disk_garbage_private", run_disk_garbage_private, DISK_DAMAGED, .nodes_count = 1},
    {"disk_garbage_shared", run_disk_garbage_shared, DISK_DAMAGED, .nodes_count = 1},
    {"disk_cut", run_disk_cut, DISK_DAMAGED, .nodes_count = 1},
    {"disk_garbage_remote", run_disk_garbage_remote, DISK_DAMAGED, .nodes_count = 2},
};

int main(int argc, char **argv)
{
    return node_test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
