/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e2e_coherence.c - loads and stores of three nodes on the same pages: nothing lost, nothing torn, nothing out of
 * order, and everybody gets on, while the pages also go through small tiers.
 */
#include "tests/support/node_test.h"

#define THREADS 2
#define PAGES   1536 /* 6 MiB: six times the DDR of each node */

/* A page's contents under its lock: who wrote last, how often, and a checksum of the rest. */
struct record {
    uint64_t writer, counter, seed, filler[500], sum, tail[8];
};
_Static_assert(sizeof(struct record) == DSM_PAGE_BYTES, "a record is a page");

static char *area;
static uint64_t *words;
static _Atomic(uint64_t) done_here;

static uint64_t record_sum(const struct record *record)
{
    uint64_t sum = record->writer * 31 + record->counter * 17 + record->seed;

    for (size_t i = 0; i < 500; i++)
        sum = sum * 1099511628211U ^ record->filler[i];
    return sum;
}

static void record_check(const struct record *record, size_t page)
{
    if (record->counter == 0 && record->sum == 0)
        return;
    if (record->sum != record_sum(record))
        check_failed(__FILE__, __LINE__, "page %zu, written %lu times, last by node %lu, is torn", page,
                     record->counter, record->writer);
}

static void record_write(struct record *record, uint64_t seed)
{
    struct random random = {.state = seed};

    record->writer = (uint64_t)dsm_node_id();
    record->counter++;
    record->seed = seed;
    for (size_t i = 0; i < 500; i++)
        record->filler[i] = random_next(&random);
    record->sum = record_sum(record);
}

/* ---- random pages under locks
 * ----------------------------------------------------------------------------------------- */

static unsigned rounds;
static unsigned pages_used;

static void write_records(unsigned thread)
{
    struct random random = {.state = (uint64_t)dsm_node_id() * 100 + thread + 1};

    for (unsigned i = 0; i < rounds; i++) {
        size_t page = random_below(&random, pages_used);
        struct record *record = (struct record *)(void *)(area + page * DSM_PAGE_BYTES);
        bool is_write = random_below(&random, 3) != 0;

        CHECK_OK(dsm_lock(record, 1, is_write ? DSM_LOCK_EXCLUSIVE : DSM_LOCK_SHARED, DSM_FOREVER));
        record_check(record, page);
        if (is_write) {
            record_write(record, random_next(&random));
            atomic_fetch_add(&done_here, 1);
        }
        CHECK_OK(dsm_unlock(record, 1));
    }
}

/* The same through explicit copies. */
static void copy_records(unsigned thread)
{
    struct random random = {.state = (uint64_t)dsm_node_id() * 1000 + thread + 1};

    for (unsigned i = 0; i < rounds; i++) {
        size_t page = random_below(&random, pages_used);
        char *address = area + page * DSM_PAGE_BYTES;
        struct record record;

        CHECK_OK(dsm_lock(address, 1, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
        CHECK_OK(dsm_read(&record, address, sizeof(record), 0, NULL));
        record_check(&record, page);
        record_write(&record, random_next(&random));
        CHECK_OK(dsm_write(address, &record, sizeof(record), 0, NULL));
        atomic_fetch_add(&done_here, 1);
        CHECK_OK(dsm_unlock(address, 1));
    }
}

static void both(unsigned thread)
{
    if (thread % 2 == 0)
        write_records(thread);
    else
        copy_records(thread);
}

/* Every write is counted by its page: none was lost. */
static void records_run(void (*run)(unsigned))
{
    struct dsm_attributes attributes = {.placement = DSM_PLACE_INTERLEAVE};
    uint64_t counted = 0;
    uint64_t all;

    words = node_share("words", DSM_PAGE_BYTES);
    area = node_share_with("records", (size_t)pages_used * DSM_PAGE_BYTES, &attributes);
    threads_run(THREADS, run);
    CHECK_OK(dsm_atomic_fetch_add(&words[0], atomic_load(&done_here), NULL));
    CHECK_OK(dsm_barrier());
    CHECK_OK(dsm_atomic_load(&words[0], &all));
    for (size_t page = 0; page < pages_used; page++) {
        struct record *record = (struct record *)(void *)(area + page * DSM_PAGE_BYTES);

        record_check(record, page);
        counted += record->counter;
    }
    CHECK_IS(counted, all);
    CHECK_OK(dsm_barrier());
}

static void run_records(void)
{
    rounds = 800;
    pages_used = PAGES;
    records_run(write_records);
    if (dsm_node_count() > 1)
        CHECK(node_stats().invalidations > 0);
}

static void run_copied_records(void)
{
    rounds = 400;
    pages_used = PAGES;
    records_run(copy_records);
}

static void run_mixed_records(void)
{
    rounds = 400;
    pages_used = 300; /* loads, stores and copies meet on the same pages */
    records_run(both);
}

static void run_records_long(void)
{
    rounds = 12000;
    pages_used = PAGES;
    records_run(both);
}

/* ---- one page, two pages
 * ------------------------------------------------------------------------------------------------ */

#define HAMMERED 30000

/* Each thread of all nodes has its own word of one page and counts in it. */
static void hammer(unsigned thread)
{
    volatile uint64_t *word = &words[(unsigned)dsm_node_id() * THREADS + thread];

    for (uint64_t i = 0; i < HAMMERED; i++) {
        *word = *word + 1;
        if (i % 256 == 0)
            sleep_ms(0); /* so that the others get in between */
    }
}

static void run_hammer(void)
{
    words = node_share("words", DSM_PAGE_BYTES);
    CHECK_IS(words[0], 0); /* every node has the page */
    CHECK_OK(dsm_barrier());
    threads_run(THREADS, hammer);
    CHECK_OK(dsm_barrier());
    for (int i = 0; i < dsm_node_count() * THREADS; i++)
        CHECK_IS(words[i], HAMMERED);
    CHECK_OK(dsm_barrier());
}

/* One load or store of 8 bytes across a page border. Threads race on it on purpose, which no checker needs to see. */
static void border_store(char *border, uint64_t value)
{
#if defined(__x86_64__)
    __asm__ volatile("movq %1, %0" : "=m"(*(uint64_t(*)[1])(void *)border) : "r"(value));
#else
    memcpy(border, &value, sizeof(value));
#endif
}

static uint64_t border_load(const char *border)
{
    uint64_t value;

#if defined(__x86_64__)
    __asm__ volatile("movq %1, %0" : "=r"(value) : "m"(*(const uint64_t(*)[1])(const void *)border));
#else
    memcpy(&value, border, sizeof(value));
#endif
    return value;
}

/* Accesses across a border whose two pages other nodes want as well. */
static void straddle(unsigned thread)
{
    char *border = area + DSM_PAGE_BYTES - 4;
    size_t own = 1 + (size_t)dsm_node_id() * THREADS + thread;

    for (uint64_t i = 0; i < 400; i++) {
        if (thread == 0)
            border_store(border, i << 32 | i);
        else
            (void)border_load(border);
        ((volatile uint64_t *)(void *)area)[own] = i;
        ((volatile uint64_t *)(void *)(area + DSM_PAGE_BYTES))[own] = i;
    }
}

static void run_straddle(void)
{
    area = node_share("area", 4 * DSM_PAGE_BYTES);
    threads_run(THREADS, straddle);
    CHECK_OK(dsm_barrier());
    for (int i = 1; i <= dsm_node_count() * THREADS; i++) {
        CHECK_IS(((uint64_t *)(void *)area)[i], 399);
        CHECK_IS(((uint64_t *)(void *)(area + DSM_PAGE_BYTES))[i], 399);
    }
    CHECK_IS(border_load(area + DSM_PAGE_BYTES - 4), (uint64_t)399 << 32 | 399);
    CHECK_OK(dsm_barrier());
}

/* Instructions with two pages: rep movsb from one contended page to another one, both ways round. */
static void copy_between(unsigned thread)
{
    char *from = area + (dsm_node_id() + (int)thread) % 2 * DSM_PAGE_BYTES;
    char *to = area + (dsm_node_id() + (int)thread + 1) % 2 * DSM_PAGE_BYTES;

    for (int i = 0; i < 100; i++)
        for (size_t at = (size_t)(dsm_node_id() * 2 + (int)thread) * 512; at < DSM_PAGE_BYTES; at += 2048) {
            void *target = to + at;
            const void *source = from + at;
            size_t left = 512;

#if defined(__x86_64__)
            __asm__ volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(left) : : "memory");
#else
            memcpy(target, source, left);
#endif
        }
}

static void run_two_pages_copied(void)
{
    area = node_share("area", 2 * DSM_PAGE_BYTES);
    memset(area, 0x33, 2 * DSM_PAGE_BYTES);
    CHECK_OK(dsm_barrier());
    threads_run(THREADS, copy_between);
    CHECK_OK(dsm_barrier());
    for (size_t i = 0; i < 2 * DSM_PAGE_BYTES; i++)
        CHECK_IS(area[i], 0x33);
    CHECK_OK(dsm_barrier());
}

/* ---- litmus: what sequential consistency forbids is never seen
 * ------------------------------------------------------------- */

#define ROUNDS       150
#define WORDS_A_PAGE (DSM_PAGE_BYTES / 8)

/* Variables of a round lie on pages of their own, so that each is coherent by itself. */
static volatile uint64_t *variable(int which, int round)
{
    return words + (size_t)which * 2 * WORDS_A_PAGE + (size_t)round;
}

static uint64_t *result(int which, int round)
{
    return words + (size_t)(8 + which) * WORDS_A_PAGE + (size_t)round;
}

static void litmus_open(void)
{
    words = node_share("litmus", 20 * DSM_PAGE_BYTES);
}

/* Meets the other nodes by spinning on atomics, closer than a barrier of messages. */
static void litmus_start(int round)
{
    uint64_t *gate = result(11, round);
    uint64_t here = 0;

    CHECK_OK(dsm_atomic_fetch_add(gate, 1, NULL));
    while (here < (uint64_t)dsm_node_count())
        CHECK_OK(dsm_atomic_load(gate, &here));
}

/* Message passing, and coherence of reads of one word. */
static void run_message_passing(void)
{
    litmus_open();
    for (int round = 0; round < ROUNDS; round++) {
        litmus_start(round);
        if (dsm_node_id() == 0) {
            *variable(0, round) = 1;
            *variable(1, round) = 1;
        } else {
            uint64_t flag = *variable(1, round);
            uint64_t data = *variable(0, round);

            if (flag == 1)
                CHECK_IS(data, 1);
            flag = *variable(1, round);
            data = *variable(1, round);
            CHECK(data >= flag);
        }
        CHECK_OK(dsm_barrier());
        CHECK(*variable(0, round) == 1 && *variable(1, round) == 1); /* and in the end everybody sees it */
    }
    CHECK_OK(dsm_barrier());
}

/*
 * Store buffering. The processor's own store buffer would show the forbidden outcome with plain accesses; with these it
 * does not, and the pages must do the rest.
 */
static void run_store_buffering(void)
{
    int node = dsm_node_id();

    litmus_open();
    for (int round = 0; round < ROUNDS; round++) {
        litmus_start(round);
        if (node < 2) {
            __atomic_store_n(variable(node, round), 1, __ATOMIC_SEQ_CST);
            *result(node, round) = __atomic_load_n(variable(1 - node, round), __ATOMIC_SEQ_CST) + 1;
        }
        CHECK_OK(dsm_barrier());
        CHECK(*result(0, round) != 1 || *result(1, round) != 1);
    }
    CHECK_OK(dsm_barrier());
}

/* Independent reads of independent writes: two readers agree about the order. */
static void run_independent_reads(void)
{
    int node = dsm_node_id();

    litmus_open();
    for (int round = 0; round < ROUNDS; round++) {
        litmus_start(round);
        if (node < 2) {
            *variable(node, round) = 1;
        } else {
            uint64_t first = *variable(node % 2, round);
            uint64_t second = *variable(1 - node % 2, round);

            *result(node - 2, round) = first * 2 + second + 4;
        }
        CHECK_OK(dsm_barrier());
        /* Reader 2 saw x and not y, reader 3 saw y and not x. */
        CHECK(*result(0, round) != 6 || *result(1, round) != 6);
    }
    CHECK_OK(dsm_barrier());
}

#define TIERS_TINY                                                                                                     \
    {                                                                                                                  \
        "ddr=2M", "cxl=1M", "nvme=24M:%D"                                                                              \
    }

static const struct node_case cases[] = {
    {"records_1", run_records, .nodes_count = 1, .options = TIERS_TINY},
    {"records_3", run_records, .nodes_count = 3, .options = TIERS_TINY, .timeout_s = 60},
    {"copied_records_1", run_copied_records, .nodes_count = 1, .options = TIERS_TINY},
    {"copied_records_3", run_copied_records, .nodes_count = 3, .options = TIERS_TINY, .timeout_s = 60},
    {"mixed_records_3", run_mixed_records, .nodes_count = 3, .options = TIERS_TINY, .timeout_s = 60},
    {"hammer", run_hammer, .nodes_count = 2},
    {"straddle", run_straddle, .nodes_count = 3, .timeout_s = 40},
    {"two_pages_copied", run_two_pages_copied, .nodes_count = 2, .timeout_s = 40},
    {"message_passing", run_message_passing, .nodes_count = 3},
    {"store_buffering", run_store_buffering, .nodes_count = 2},
    {"independent_reads", run_independent_reads, .nodes_count = 4, .timeout_s = 40},
    {"records_long", run_records_long, .nodes_count = 3, .options = TIERS_TINY, .timeout_s = 400,
     .is_asked_only = true},
};

int main(int argc, char **argv)
{
    return node_test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
