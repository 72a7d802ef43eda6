/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stress_locks.c - many threads of one node on few locks: tries, timeouts, ranges, readers and writers, conditions.
 */
#include "tests/support/node_test.h"

#define THREADS 8
#define LOCKS   4

static char *area;
static _Atomic(int) readers[LOCKS * 2];
static _Atomic(int) writers[LOCKS * 2];
static _Atomic(unsigned) granted, refused;

/* Pages [first, first + count) are held: writers are alone on each of them. */
static void inside(size_t first, size_t count, bool is_write)
{
    for (size_t i = first; i < first + count; i++) {
        atomic_fetch_add(is_write ? &writers[i] : &readers[i], 1);
        CHECK(is_write ? atomic_load(&writers[i]) == 1 && atomic_load(&readers[i]) == 0
                       : atomic_load(&writers[i]) == 0);
    }
    if (first % 2 == 0)
        sleep_ms(0);
    for (size_t i = first; i < first + count; i++)
        atomic_fetch_sub(is_write ? &writers[i] : &readers[i], 1);
    atomic_fetch_add(&granted, 1);
}

static void lock_at_random(unsigned thread)
{
    struct random random = {.state = thread + 1};

    for (int i = 0; i < 3000; i++) {
        size_t first = random_below(&random, LOCKS);
        size_t count = 1 + random_below(&random, LOCKS);
        bool is_write = random_below(&random, 3) == 0;
        uint64_t timeouts[] = {0, 1000, 200000, DSM_FOREVER, DSM_FOREVER};
        uint64_t timeout_ns = timeouts[random_below(&random, 5)];
        char *address = area + first * DSM_PAGE_BYTES;
        int error =
            dsm_lock(address, count * DSM_PAGE_BYTES, is_write ? DSM_LOCK_EXCLUSIVE : DSM_LOCK_SHARED, timeout_ns);

        if (error == 0) {
            inside(first, count, is_write);
            CHECK_OK(dsm_unlock(address, count * DSM_PAGE_BYTES));
            continue;
        }
        CHECK_IS(error, timeout_ns == 0 ? -EBUSY : -ETIMEDOUT);
        CHECK(timeout_ns != DSM_FOREVER);
        atomic_fetch_add(&refused, 1);
    }
}

static void run_at_random(void)
{
    CHECK_OK(dsm_malloc(64 * DSM_PAGE_BYTES, (void **)&area));
    threads_run(THREADS, lock_at_random);
    printf("granted %u, refused %u\n", atomic_load(&granted), atomic_load(&refused));
    CHECK(atomic_load(&granted) > 10000);
    /* Nothing is held any more. */
    CHECK_OK(dsm_lock(area, 2 * LOCKS * DSM_PAGE_BYTES, DSM_LOCK_EXCLUSIVE, SECOND_NS));
    CHECK_OK(dsm_unlock(area, 2 * LOCKS * DSM_PAGE_BYTES));
}

/* ---- a bounded queue under a mutex and two conditions, waits with and without timeout
 * ----------------------------------- */

struct queue {
    dsm_mutex mutex;
    dsm_cond filled, emptied;
    uint64_t count, places[4], put, taken, sum;
};

static struct queue *queue;
#define ITEMS 400

static void put_or_take(unsigned thread)
{
    bool is_putting = thread % 2 == 0;

    for (uint64_t item = 1; item <= ITEMS; item++) {
        CHECK_OK(dsm_mutex_lock(&queue->mutex));
        while (is_putting ? queue->count == 4 : queue->count == 0) {
            int error = dsm_cond_wait(is_putting ? &queue->emptied : &queue->filled, &queue->mutex,
                                      item % 5 == 0 ? MILLISECOND_NS : DSM_FOREVER);

            CHECK(error == 0 || (error == -ETIMEDOUT && item % 5 == 0));
        }
        if (is_putting) {
            queue->places[queue->count++] = item;
            queue->put++;
        } else {
            queue->sum += queue->places[--queue->count];
            queue->taken++;
        }
        CHECK_OK(dsm_cond_signal(is_putting ? &queue->filled : &queue->emptied));
        CHECK_OK(dsm_mutex_unlock(&queue->mutex));
    }
}

static void run_queue(void)
{
    CHECK_OK(dsm_malloc(sizeof(*queue), (void **)&queue));
    threads_run(THREADS, put_or_take);
    CHECK_IS(queue->put, ITEMS * THREADS / 2);
    CHECK_IS(queue->taken, ITEMS * THREADS / 2);
    CHECK_IS(queue->sum, (uint64_t)ITEMS * (ITEMS + 1) / 2 * THREADS / 2);
}

/* ---- atomics of all threads, by the library and by the processor
 * ------------------------------------------------------------ */

static uint64_t *words;

static void add(unsigned thread)
{
    for (int i = 0; i < 3000; i++) {
        if ((i + (int)thread) % 2 == 0)
            CHECK_OK(dsm_atomic_fetch_add(&words[0], 1, NULL));
        else
            __atomic_fetch_add(&words[0], 1, __ATOMIC_SEQ_CST);
        if (i % 64 == 0) /* pushes the page out of memory now and then */
            area[(size_t)(i * 7 + (int)thread * 13) % 1024 * DSM_PAGE_BYTES] = 1;
    }
}

static void run_atomics(void)
{
    CHECK_OK(dsm_malloc(DSM_PAGE_BYTES, (void **)&words));
    CHECK_OK(dsm_malloc((size_t)1024 * DSM_PAGE_BYTES, (void **)&area));
    threads_run(THREADS, add);
    CHECK_IS(words[0], 3000 * THREADS);
}

#define ONE .nodes_count = 1, .timeout_s = 30

static const struct node_case cases[] = {
    {"at_random", run_at_random, ONE},
    {"at_random_epoll", run_at_random, ONE, .options = {"loop=epoll"}},
    {"queue", run_queue, ONE},
    {"atomics", run_atomics, ONE, .options = {"ddr=2M", "nvme=16M:%D"}},
};

int main(int argc, char **argv)
{
    return node_test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
