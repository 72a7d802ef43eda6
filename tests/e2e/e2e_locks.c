/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e2e_locks.c - page locks, mutexes, conditions, barriers and atomics between threads of all nodes.
 */
#include "tests/support/node_test.h"

#define THREADS 2

/* What all nodes see. */
struct board {
    uint64_t counter;    /* under the lock that the case uses */
    uint64_t checksum;   /* always counter * 3 */
    uint64_t order_next; /* places taken in `order` */
    uint64_t order[64];
    uint64_t flags[8];
};

static char *area;
static struct board *board;
static dsm_mutex *mutex;
static dsm_cond *filled, *emptied;

/* Pages: 0 board, 1 mutex and conditions, 2.. to be locked. */
static void board_open(void)
{
    area = node_share("area", 64 * DSM_PAGE_BYTES);
    board = (struct board *)(void *)area;
    mutex = (dsm_mutex *)(void *)(area + DSM_PAGE_BYTES);
    filled = (dsm_cond *)(void *)(area + DSM_PAGE_BYTES + 64);
    emptied = (dsm_cond *)(void *)(area + DSM_PAGE_BYTES + 128);
}

static char *page(int number)
{
    return area + number * DSM_PAGE_BYTES;
}

/* Nobody else is between lock and unlock: a torn pair would be seen. */
static void guarded_add(void)
{
    CHECK_IS(board->checksum, board->counter * 3);
    board->counter++;
    if (board->counter % 16 == 0)
        sleep_ms(0);
    board->checksum += 3;
}

/* ---- page locks
 * -------------------------------------------------------------------------------------------------------- */

static void add_under_lock(unsigned thread)
{
    (void)thread;
    for (int i = 0; i < 60; i++) {
        CHECK_OK(dsm_lock(page(2), 1, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
        guarded_add();
        CHECK_OK(dsm_unlock(page(2), 1));
    }
}

static void run_exclusive(void)
{
    board_open();
    threads_run(THREADS, add_under_lock);
    CHECK_OK(dsm_barrier());
    CHECK_IS(board->counter, 60 * THREADS * dsm_node_count());
    CHECK_OK(dsm_barrier());
}

/* Ranges that overlap in one page only exclude each other. */
static void add_under_ranges(unsigned thread)
{
    int first = 2 + (dsm_node_id() * THREADS + (int)thread) % 4;

    for (int i = 0; i < 40; i++) {
        CHECK_OK(dsm_lock(page(first) + 17, (size_t)(6 - first) * DSM_PAGE_BYTES, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
        guarded_add();
        CHECK_OK(dsm_unlock(page(first) + 17, (size_t)(6 - first) * DSM_PAGE_BYTES));
    }
}

static void run_ranges(void)
{
    board_open();
    threads_run(THREADS, add_under_ranges);
    CHECK_OK(dsm_barrier());
    CHECK_IS(board->counter, 40 * THREADS * dsm_node_count());
    CHECK_OK(dsm_barrier());
}

/* Readers of all nodes hold the lock at the same time; a writer is alone. */
static void run_shared(void)
{
    uint64_t readers;

    board_open();
    for (int round = 0; round < 5; round++) {
        CHECK_OK(dsm_lock(page(2), DSM_PAGE_BYTES, DSM_LOCK_SHARED, DSM_FOREVER));
        CHECK_OK(dsm_atomic_fetch_add(&board->flags[round], 1, NULL));
        do { /* comes to an end only when all are inside together */
            CHECK_OK(dsm_atomic_load(&board->flags[round], &readers));
        } while (readers < (uint64_t)dsm_node_count());
        CHECK_OK(dsm_unlock(page(2), DSM_PAGE_BYTES));
        CHECK_OK(dsm_lock(page(2), DSM_PAGE_BYTES, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
        guarded_add();
        CHECK_OK(dsm_unlock(page(2), DSM_PAGE_BYTES));
        CHECK_OK(dsm_barrier()); /* else a reader of the next round keeps a writer of this one out */
    }
    CHECK_OK(dsm_barrier());
    CHECK_IS(board->counter, 5 * dsm_node_count());
    CHECK_OK(dsm_barrier());
}

/* A range over three extents with different homes, against ranges that share one extent or one page with it. */
static void run_across_extents(void)
{
    const size_t extent = (size_t)2 << 20;
    struct dsm_attributes attributes = {.placement = DSM_PLACE_INTERLEAVE, .alignment_bytes = extent};
    void *wide = NULL;
    char *from;

    board_open();
    if (dsm_node_id() == 0) {
        CHECK_OK(dsm_malloc_with(3 * extent, &attributes, &wide));
        CHECK_OK(dsm_root_set("wide", wide));
    }
    CHECK_OK(dsm_root_get("wide", DSM_FOREVER, &wide));
    from = (char *)wide + (dsm_node_id() == 0 ? 0 : 2 * extent - DSM_PAGE_BYTES);
    for (int i = 0; i < 30; i++) {
        size_t size = dsm_node_id() == 0 ? 3 * extent : (size_t)dsm_node_id() * DSM_PAGE_BYTES;

        CHECK_OK(dsm_lock(from, size, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
        guarded_add();
        CHECK_ERROR(dsm_lock((char *)wide + 2 * extent - 1, 1, DSM_LOCK_SHARED, 0), -EDEADLK);
        CHECK_OK(dsm_unlock(from, size));
    }
    CHECK_ERROR(dsm_unlock(from, DSM_PAGE_BYTES), -EPERM);
    CHECK_OK(dsm_barrier());
    CHECK_IS(board->counter, 30 * dsm_node_count());
    CHECK_OK(dsm_barrier());
}

static void run_timeouts(void)
{
    uint64_t start_ns;

    board_open();
    if (dsm_node_id() == 0)
        CHECK_OK(dsm_lock(page(2), 4 * DSM_PAGE_BYTES, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() != 0) {
        CHECK_ERROR(dsm_lock(page(3), 1, DSM_LOCK_EXCLUSIVE, 0), -EBUSY);
        CHECK_ERROR(dsm_lock(page(5), 1, DSM_LOCK_SHARED, 0), -EBUSY);
        start_ns = now_ns();
        CHECK_ERROR(dsm_lock(page(4), 1, DSM_LOCK_SHARED, 100 * MILLISECOND_NS), -ETIMEDOUT);
        CHECK(now_ns() - start_ns >= 100 * MILLISECOND_NS && now_ns() - start_ns < 5 * SECOND_NS);
        CHECK_ERROR(dsm_unlock(page(4), 1), -EPERM);
        CHECK_OK(dsm_lock(page(6 + dsm_node_id()), 1, DSM_LOCK_EXCLUSIVE, 0)); /* nobody holds that */
        CHECK_OK(dsm_unlock(page(6 + dsm_node_id()), 1));
    }
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 0)
        CHECK_OK(dsm_unlock(page(2), 4 * DSM_PAGE_BYTES));
    /* Who gave up is not granted afterwards: the lock is free for everybody. */
    for (int i = 0; i < 3; i++) {
        CHECK_OK(dsm_lock(page(2), 4 * DSM_PAGE_BYTES, DSM_LOCK_EXCLUSIVE, UINT64_MAX - 1));
        guarded_add();
        CHECK_OK(dsm_unlock(page(2), 4 * DSM_PAGE_BYTES));
    }
    CHECK_OK(dsm_barrier());
}

static void run_deadlock(void)
{
    board_open();
    if (dsm_node_id() == 0) {
        CHECK_OK(dsm_lock(page(2), 3 * DSM_PAGE_BYTES, DSM_LOCK_EXCLUSIVE, 0));
        CHECK_ERROR(dsm_lock(page(2), 3 * DSM_PAGE_BYTES, DSM_LOCK_EXCLUSIVE, 0), -EDEADLK);
        CHECK_ERROR(dsm_lock(page(4), 1, DSM_LOCK_SHARED, DSM_FOREVER), -EDEADLK);
        CHECK_OK(dsm_lock(page(5), 1, DSM_LOCK_SHARED, DSM_FOREVER));
        CHECK_ERROR(dsm_unlock(page(2), 2 * DSM_PAGE_BYTES), -EPERM);
        CHECK_OK(dsm_unlock(page(5), 1));
        CHECK_OK(dsm_unlock(page(2), 3 * DSM_PAGE_BYTES));
        CHECK_ERROR(dsm_unlock(page(2), 3 * DSM_PAGE_BYTES), -EPERM);
        CHECK_OK(dsm_mutex_lock(mutex));
        CHECK_ERROR(dsm_mutex_lock(mutex), -EDEADLK);
        CHECK_OK(dsm_mutex_unlock(mutex));
        CHECK_ERROR(dsm_mutex_unlock(mutex), -EPERM);
    }
    CHECK_OK(dsm_barrier());
}

static void flag_await(const uint64_t *flag)
{
    uint64_t value = 0;

    while (value == 0) {
        CHECK_OK(dsm_atomic_load(flag, &value));
        sleep_ms(1);
    }
}

/* A thread that does not hold the lock cannot give it away. */
static void unlock_of_another(unsigned thread)
{
    if (thread == 0) {
        CHECK_OK(dsm_lock(page(2), 1, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
        CHECK_OK(dsm_atomic_store(&board->flags[0], 1));
        flag_await(&board->flags[1]);
        CHECK_OK(dsm_unlock(page(2), 1));
    } else {
        flag_await(&board->flags[0]);
        CHECK_ERROR(dsm_unlock(page(2), 1), -EPERM);
        CHECK_ERROR(dsm_lock(page(2), 1, DSM_LOCK_EXCLUSIVE, 0), -EBUSY);
        CHECK_OK(dsm_atomic_store(&board->flags[1], 1));
    }
}

static void run_not_holder(void)
{
    board_open();
    if (dsm_node_id() == 0)
        threads_run(2, unlock_of_another);
    CHECK_OK(dsm_barrier());
}

/* Nodes queue in a known order (each says so and waits a while); they are served in that order. */
static void run_first_come_first_served(void)
{
    uint64_t place;

    board_open();
    for (int round = 0; round < 3; round++) {
        if (dsm_node_id() == 0)
            CHECK_OK(dsm_lock(page(2), 1, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
        CHECK_OK(dsm_barrier());
        if (dsm_node_id() != 0) {
            sleep_ms((unsigned)dsm_node_id() * 150);
            CHECK_OK(dsm_lock(page(2), 1, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
            CHECK_OK(dsm_atomic_fetch_add(&board->order_next, 1, &place));
            board->order[place] = (uint64_t)dsm_node_id();
        } else {
            sleep_ms((unsigned)dsm_node_count() * 150 + 150);
        }
        CHECK_OK(dsm_unlock(page(2), 1));
        CHECK_OK(dsm_barrier());
        for (int i = 1; i < dsm_node_count(); i++)
            CHECK_IS(board->order[round * (dsm_node_count() - 1) + i - 1], i);
    }
    CHECK_OK(dsm_barrier());
}

/* A lock that nobody else wants is taken again without a message. */
static void run_cached(void)
{
    struct dsm_stats before;
    struct dsm_stats after;

    board_open();
    if (dsm_node_id() == dsm_node_count() - 1) {
        CHECK_OK(dsm_lock(page(2), 1, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
        CHECK_OK(dsm_unlock(page(2), 1));
        before = node_stats();
        for (int i = 0; i < 1000; i++) {
            CHECK_OK(dsm_lock(page(2), 1, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
            CHECK_OK(dsm_unlock(page(2), 1));
        }
        after = node_stats();
        CHECK_IS(after.locks_taken - before.locks_taken, 1000);
        CHECK_IS(after.locks_cached - before.locks_cached, 1000);
        CHECK(after.messages_sent - before.messages_sent < 100); /* heartbeats */
    }
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 0) {
        CHECK_OK(dsm_lock(page(2), 1, DSM_LOCK_EXCLUSIVE, DSM_FOREVER)); /* the idle holder gives it up */
        CHECK_OK(dsm_unlock(page(2), 1));
    }
    CHECK_OK(dsm_barrier());
}

/* More locks than a node keeps at a time, over more pages than that. */
static void run_many_locks(void)
{
    char *memory = node_share("many", (size_t)6000 * DSM_PAGE_BYTES);

    for (size_t i = 0; i < 6000; i++) {
        CHECK_OK(dsm_lock(memory + i * DSM_PAGE_BYTES, 1, DSM_LOCK_SHARED, DSM_FOREVER));
        CHECK_OK(dsm_unlock(memory + i * DSM_PAGE_BYTES, 1));
    }
    CHECK_OK(dsm_barrier());
}

/* ---- mutex and condition
 * -------------------------------------------------------------------------------------------------- */

static void add_under_mutex(unsigned thread)
{
    for (int i = 0; i < 60; i++) {
        if (thread == 0) {
            CHECK_OK(dsm_mutex_lock(mutex));
        } else {
            int error;

            while ((error = dsm_mutex_trylock(mutex)) == -EBUSY)
                sleep_ms(1);
            CHECK_OK(error);
        }
        guarded_add();
        CHECK_OK(dsm_mutex_unlock(mutex));
    }
}

static void run_mutex(void)
{
    board_open();
    threads_run(THREADS, add_under_mutex);
    CHECK_OK(dsm_barrier());
    CHECK_IS(board->counter, 60 * THREADS * dsm_node_count());
    CHECK_OK(dsm_barrier());
}

/* A queue of 4 places: node 0 produces, the others consume. Every item arrives once. */
#define ITEMS 150

static void produce(void)
{
    for (uint64_t item = 1; item <= ITEMS; item++) {
        CHECK_OK(dsm_mutex_lock(mutex));
        while (board->counter == 4)
            CHECK_OK(dsm_cond_wait(emptied, mutex, DSM_FOREVER));
        board->order[board->counter++] = item;
        CHECK_OK(dsm_cond_signal(filled));
        CHECK_OK(dsm_mutex_unlock(mutex));
    }
    CHECK_OK(dsm_mutex_lock(mutex));
    board->flags[0] = 1;
    CHECK_OK(dsm_cond_broadcast(filled));
    CHECK_OK(dsm_mutex_unlock(mutex));
}

static void consume(unsigned thread)
{
    bool is_over = false;

    (void)thread;
    while (!is_over) {
        CHECK_OK(dsm_mutex_lock(mutex));
        while (board->counter == 0 && board->flags[0] == 0)
            CHECK_OK(dsm_cond_wait(filled, mutex, DSM_FOREVER));
        is_over = board->counter == 0;
        if (!is_over) {
            board->flags[1] += board->order[--board->counter];
            board->flags[2]++;
            CHECK_OK(dsm_cond_signal(emptied));
        }
        CHECK_OK(dsm_mutex_unlock(mutex));
    }
}

static void run_producer_consumer(void)
{
    board_open();
    if (dsm_node_id() == 0)
        produce();
    else
        threads_run(THREADS, consume);
    CHECK_OK(dsm_barrier());
    CHECK_IS(board->flags[2], ITEMS);
    CHECK_IS(board->flags[1], ITEMS * (ITEMS + 1) / 2);
    CHECK_OK(dsm_barrier());
}

static void run_cond_timeout(void)
{
    uint64_t start_ns = now_ns();

    board_open();
    CHECK_OK(dsm_mutex_lock(mutex));
    CHECK_ERROR(dsm_cond_wait(filled, mutex, 50 * MILLISECOND_NS), -ETIMEDOUT);
    CHECK(now_ns() - start_ns >= 50 * MILLISECOND_NS);
    CHECK_OK(dsm_mutex_unlock(mutex)); /* it was taken again */
    CHECK_OK(dsm_barrier());
    CHECK_OK(dsm_cond_signal(filled)); /* nobody waits: no effect */
    CHECK_OK(dsm_barrier());
}

/* ---- barrier
 * --------------------------------------------------------------------------------------------------------------- */

static void run_barriers(void)
{
    board_open();
    for (uint64_t round = 1; round <= 60; round++) {
        board->flags[dsm_node_id()] = round;
        CHECK_OK(dsm_barrier());
        for (int i = 0; i < dsm_node_count(); i++)
            CHECK_IS(board->flags[i], round); /* nobody was left behind, nobody ran ahead */
        CHECK_OK(dsm_barrier());
    }
}

static void wait_at_barrier(unsigned thread)
{
    if (thread == 0) {
        CHECK_OK(dsm_barrier());
    } else {
        sleep_ms(200);
        CHECK_ERROR(dsm_barrier(), -EBUSY);
        board->flags[0] = 1;
    }
}

static void run_barrier_busy(void)
{
    board_open();
    if (dsm_node_id() == 0) {
        threads_run(2, wait_at_barrier);
    } else {
        while (board->flags[0] == 0)
            sleep_ms(5);
        CHECK_OK(dsm_barrier());
    }
    CHECK_OK(dsm_barrier());
}

/* ---- atomics
 * ------------------------------------------------------------------------------------------------------------------ */

static void add_atomically(unsigned thread)
{
    uint64_t last = 0;
    uint64_t old;

    for (int i = 0; i < 300; i++) {
        CHECK_OK(dsm_atomic_fetch_add(&board->flags[0], 1, &old));
        CHECK(old >= last);
        last = old;
        __atomic_fetch_add(&board->flags[1], 1, __ATOMIC_SEQ_CST); /* the processor's own, on the same page */
        if (thread == 0)
            CHECK_OK(dsm_atomic_fetch_add(&board->flags[1], 1, NULL));
        do
            CHECK_OK(dsm_atomic_load(&board->flags[2], &last));
        while (dsm_atomic_compare_swap(&board->flags[2], last, last + 2, &old) != 0 || old != last);
        last = 0;
        CHECK_OK(dsm_atomic_load(&board->flags[0], &last));
    }
}

static void run_atomics(void)
{
    uint64_t all;
    uint64_t old = 0;

    board_open();
    threads_run(THREADS, add_atomically);
    CHECK_OK(dsm_barrier());
    all = 300 * THREADS * (uint64_t)dsm_node_count();
    CHECK_IS(board->flags[0], all);
    CHECK_IS(board->flags[1], all + all / THREADS);
    CHECK_IS(board->flags[2], 2 * all);
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == dsm_node_count() - 1) {
        CHECK_OK(dsm_atomic_store(&board->flags[0], 41));
        CHECK_OK(dsm_atomic_exchange(&board->flags[0], 42, &old));
        CHECK_IS(old, 41);
        CHECK_OK(dsm_atomic_compare_swap(&board->flags[0], 7, 43, &old));
        CHECK_IS(old, 42);
    }
    CHECK_OK(dsm_barrier());
    CHECK_OK(dsm_atomic_load(&board->flags[0], &old));
    CHECK_IS(old, 42);
    CHECK_IS(board->flags[0], 42);
    CHECK_OK(dsm_barrier());
}

#define ON_ONE_AND_THREE(name, run)                                                                                    \
    {#name "_1", run, .nodes_count = 1},                                                                               \
    {                                                                                                                  \
#name "_3", run, .nodes_count = 3, .timeout_s = 40                                                             \
    }

static const struct node_case cases[] = {
    ON_ONE_AND_THREE(exclusive, run_exclusive),
    ON_ONE_AND_THREE(ranges, run_ranges),
    {"shared", run_shared, .nodes_count = 3},
    {"across_extents", run_across_extents, .nodes_count = 3},
    {"timeouts", run_timeouts, .nodes_count = 3},
    {"deadlock", run_deadlock, .nodes_count = 2},
    {"not_holder", run_not_holder, .nodes_count = 2},
    {"first_come_first_served", run_first_come_first_served, .nodes_count = 3},
    ON_ONE_AND_THREE(cached, run_cached),
    {"many_locks", run_many_locks, .nodes_count = 2},
    ON_ONE_AND_THREE(mutex, run_mutex),
    {"producer_consumer", run_producer_consumer, .nodes_count = 3, .timeout_s = 40},
    ON_ONE_AND_THREE(cond_timeout, run_cond_timeout),
    ON_ONE_AND_THREE(barriers, run_barriers),
    {"barrier_busy", run_barrier_busy, .nodes_count = 2},
    ON_ONE_AND_THREE(atomics, run_atomics),
};

int main(int argc, char **argv)
{
    return node_test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
