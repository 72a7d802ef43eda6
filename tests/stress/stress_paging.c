/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stress_paging.c - real threads and userfaultfd on one node with tiny tiers: everything that moves a page or holds it,
 * at the same time. Each thread knows what its pages must contain; the pages of all threads lie between each other.
 */
#include "tests/support/node_test.h"

#include <unistd.h>

#define THREADS 4
#define PAGES   ((size_t)3072) /* 12 MiB over at most 2 + 2 + 24 MiB */
#define OWN     (PAGES / THREADS)

static char *area;
static unsigned rounds;
static bool is_shared;

static void area_open(enum dsm_kind kind)
{
    struct dsm_attributes attributes = {.kind = kind};

    is_shared = kind == DSM_SHARED;
    rounds = 4000;
    CHECK_OK(dsm_malloc_with(PAGES * DSM_PAGE_BYTES, &attributes, (void **)&area));
}

static char *own_page(unsigned thread, size_t own)
{
    return area + (own * THREADS + thread) * DSM_PAGE_BYTES;
}

/* ---- what a thread does to one of its pages ------------------------------------------------------------------------
 */

struct worker {
    unsigned thread;
    struct random random;
    uint32_t round_of[OWN];
};

static void by_loads_and_stores(struct worker *worker, size_t own)
{
    char *page = own_page(worker->thread, own);

    if (worker->round_of[own] != 0)
        CHECK(page_is_filled(page, own, worker->round_of[own]));
    page_fill(page, own, ++worker->round_of[own]);
}

static void by_copies(struct worker *worker, size_t own)
{
    char *page = own_page(worker->thread, own);
    uint64_t bytes[DSM_PAGE_BYTES / 8];

    CHECK_OK(dsm_read(bytes, page, DSM_PAGE_BYTES, 0, NULL));
    if (worker->round_of[own] != 0)
        CHECK(page_is_filled(bytes, own, worker->round_of[own]));
    page_fill(bytes, own, ++worker->round_of[own]);
    CHECK_OK(dsm_write(page, bytes, DSM_PAGE_BYTES, 0, NULL));
}

static void in_flight(struct worker *worker, size_t own)
{
    char *page = own_page(worker->thread, own);
    struct dsm_transfer transfer = {{0}};
    uint64_t bytes[DSM_PAGE_BYTES / 8];
    int result;

    CHECK_OK(dsm_read(bytes, page, DSM_PAGE_BYTES, DSM_NOWAIT, &transfer));
    while ((result = dsm_test(&transfer)) == -EAGAIN)
        ;
    CHECK_OK(result);
    if (worker->round_of[own] != 0)
        CHECK(page_is_filled(bytes, own, worker->round_of[own]));
}

static void read_only(struct worker *worker, size_t own)
{
    if (worker->round_of[own] != 0)
        CHECK(page_is_filled(own_page(worker->thread, own), own, worker->round_of[own]));
}

static void under_pin(struct worker *worker, size_t own)
{
    char *page = own_page(worker->thread, own);

    CHECK_OK(dsm_pin(page, DSM_PAGE_BYTES, 1, SECOND_NS));
    if (worker->round_of[own] != 0)
        CHECK(page_is_filled(page, own, worker->round_of[own]));
    page_fill(page, own, ++worker->round_of[own]);
    CHECK_OK(dsm_unpin(page, DSM_PAGE_BYTES));
}

/* An atomic changes a word and changes it back: the contents are as before, and the page is dirty. */
static void by_atomics(struct worker *worker, size_t own)
{
    uint64_t *word = (uint64_t *)(void *)own_page(worker->thread, own) + own % 512;
    uint64_t old;

    if (!is_shared) {
        by_loads_and_stores(worker, own);
        return;
    }
    CHECK_OK(dsm_atomic_fetch_add(word, 5, &old));
    CHECK_OK(dsm_atomic_exchange(word, old, NULL));
}

static void after_hint(struct worker *worker, size_t own)
{
    CHECK_OK(dsm_prefetch(area + own * DSM_PAGE_BYTES, 16 * DSM_PAGE_BYTES));
    read_only(worker, own);
}

/* A run in order, for read-ahead. */
static void in_order(struct worker *worker, size_t own)
{
    for (size_t i = own; i < OWN && i < own + 32; i++)
        read_only(worker, i);
}

static void mixed_work(unsigned thread)
{
    static void (*const ways[])(struct worker *, size_t) = {by_loads_and_stores, by_copies,  in_flight,  read_only,
                                                            under_pin,           by_atomics, after_hint, in_order};
    struct worker *worker = calloc(1, sizeof(*worker));

    CHECK(worker != NULL);
    worker->thread = thread;
    worker->random.state = thread + 1;
    for (unsigned i = 0; i < rounds; i++) {
        size_t own = random_below(&worker->random, OWN - 16);

        ways[random_below(&worker->random, sizeof(ways) / sizeof(ways[0]))](worker, own);
    }
    for (size_t own = 0; own < OWN; own++)
        read_only(worker, own);
    free(worker);
}

static void run_mixed_shared(void)
{
    area_open(DSM_SHARED);
    threads_run(THREADS, mixed_work);
    CHECK_IS(node_stats().poisoned_pages, 0);
    CHECK_IS(node_stats().pinned_pages, 0);
}

static void run_mixed_private(void)
{
    area_open(DSM_PRIVATE);
    threads_run(THREADS, mixed_work);
    CHECK_IS(node_stats().poisoned_pages, 0);
    CHECK_IS(node_stats().pinned_pages, 0);
}

static void run_mixed_long(void)
{
    area_open(DSM_SHARED);
    rounds = 100000;
    threads_run(THREADS, mixed_work);
    CHECK_IS(node_stats().poisoned_pages, 0);
}

/* ---- all threads on the same pages: explicit writes of words beside loads and stores
 * ---------------------------------- */

static void count_in_words(unsigned thread)
{
    struct random random = {.state = thread + 100};
    uint64_t mine[64] = {0};

    for (unsigned i = 0; i < rounds; i++) {
        size_t page = random_below(&random, 64);
        uint64_t *word = (uint64_t *)(void *)(area + page * 48 * DSM_PAGE_BYTES) + thread;
        uint64_t value = 0;

        if (thread % 2 == 0) { /* even threads load and store, odd ones copy: no word is lost to a neighbour's copy */
            value = *(volatile uint64_t *)word;
        } else {
            CHECK_OK(dsm_read(&value, word, sizeof(value), 0, NULL));
        }
        CHECK_IS(value, mine[page]);
        value = ++mine[page];
        if (thread % 2 == 0)
            *(volatile uint64_t *)word = value;
        else
            CHECK_OK(dsm_write(word, &value, sizeof(value), 0, NULL));
        /* Another page, so that this one leaves memory between two visits. */
        __atomic_store_n((uint64_t *)(void *)(area + random_below(&random, PAGES) / 48 * 48 * DSM_PAGE_BYTES +
                                              (1 + random_below(&random, 46)) * DSM_PAGE_BYTES),
                         i, __ATOMIC_RELAXED);
    }
}

static void run_words(void)
{
    area_open(DSM_SHARED);
    threads_run(THREADS, count_in_words);
    for (size_t page = 0; page < 64; page++)
        for (unsigned thread = 0; thread < THREADS; thread++)
            CHECK(((uint64_t *)(void *)(area + page * 48 * DSM_PAGE_BYTES))[thread] <= rounds);
    CHECK_IS(node_stats().poisoned_pages, 0);
}

/* All fault on the same absent pages at the same time. */
static void touch_together(unsigned thread)
{
    uint64_t sum = 0;

    for (int pass = 0; pass < 2; pass++)
        for (size_t page = 0; page < PAGES; page++) {
            volatile uint64_t *words = (volatile uint64_t *)(void *)(area + page * DSM_PAGE_BYTES);

            sum += words[500];
            words[thread] = page;
        }
    CHECK_IS(sum, 0);
}

static void run_together(void)
{
    for (int k = 0; k < 2; k++) {
        area_open(k == 0 ? DSM_SHARED : DSM_PRIVATE);
        threads_run(THREADS, touch_together);
        for (size_t page = 0; page < PAGES; page++)
            for (unsigned thread = 0; thread < THREADS; thread++)
                CHECK_IS(((uint64_t *)(void *)(area + page * DSM_PAGE_BYTES))[thread], page);
        CHECK_OK(dsm_free(area));
    }
}

/* ---- allocating and freeing while pages move
 * ---------------------------------------------------------------------------- */

static void allocate_and_free(unsigned thread)
{
    struct random random = {.state = thread + 9};
    unsigned char *blocks[24] = {NULL};
    size_t sizes[24];

    for (unsigned i = 0; i < 400; i++) {
        struct dsm_attributes attributes = {.kind = random_below(&random, 2) == 0 ? DSM_SHARED : DSM_PRIVATE};
        unsigned at = random_below(&random, 24);

        if (blocks[at] != NULL) {
            for (size_t b = 0; b < sizes[at]; b += 1021)
                CHECK_IS(blocks[at][b], (at * 4 + thread) & 0xff);
            CHECK_OK(dsm_free(blocks[at]));
            blocks[at] = NULL;
            continue;
        }
        sizes[at] = 1 + random_below(&random, random_below(&random, 20) == 0 ? 3 << 20 : 60000);
        CHECK_OK(dsm_malloc_with(sizes[at], &attributes, (void **)&blocks[at]));
        for (size_t b = 0; b < sizes[at]; b += 509)
            CHECK_IS(blocks[at][b], 0);
        memset(blocks[at], (int)((at * 4 + thread) & 0xff), sizes[at]);
    }
    for (unsigned at = 0; at < 24; at++)
        CHECK_OK(dsm_free(blocks[at]));
}

static void run_allocate_and_free(void)
{
    threads_run(THREADS, allocate_and_free);
    CHECK_IS(node_stats().poisoned_pages, 0);
}

/* Threads come and go: the runtime keeps nothing of them. */
static void touch_one(unsigned index)
{
    area[index * DSM_PAGE_BYTES] = 1;
    CHECK_OK(dsm_lock(area + index * DSM_PAGE_BYTES, 1, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
    CHECK_OK(dsm_unlock(area + index * DSM_PAGE_BYTES, 1));
}

static void run_threads_come_and_go(void)
{
    area_open(DSM_SHARED);
    for (int i = 0; i < 60; i++)
        threads_run(8, touch_one);
}

#define TIERS_TINY "ddr=2M", "cxl=2M", "nvme=24M:%D"
#define TIERS_ZMEM "ddr=2M", "zmem=1M", "nvme=24M:%D"
#define TIERS_FOUR "ddr=2M", "cxl=1M", "zmem=1M", "nvme=24M:%D"
#define ONE        .nodes_count = 1, .timeout_s = 30

static const struct node_case cases[] = {
    {"mixed_shared", run_mixed_shared, ONE, .options = {TIERS_TINY}},
    {"mixed_private", run_mixed_private, ONE, .options = {TIERS_TINY}},
    {"mixed_private_no_move", run_mixed_private, ONE, .options = {TIERS_TINY, "uffd.move=off", "uffd.poison=off"}},
    {"mixed_epoll", run_mixed_shared, ONE, .options = {TIERS_TINY, "loop=epoll"}},
    {"mixed_no_cxl", run_mixed_shared, ONE, .options = {"ddr=2M", "nvme=24M:%D", "prefetch=8"}},
    {"mixed_shared_zmem", run_mixed_shared, ONE, .options = {TIERS_ZMEM}},
    {"mixed_private_zmem", run_mixed_private, ONE, .options = {TIERS_ZMEM}},
    {"mixed_private_zmem_no_move", run_mixed_private, ONE, .options = {TIERS_ZMEM, "uffd.move=off"}},
    {"mixed_shared_four", run_mixed_shared, ONE, .options = {TIERS_FOUR}},
    {"mixed_private_four", run_mixed_private, ONE, .options = {TIERS_FOUR, "zmem.codec=zstd"}},
    {"words_zmem", run_words, ONE, .options = {TIERS_ZMEM}},
    {"together_four", run_together, ONE, .options = {TIERS_FOUR}},
    {"words", run_words, ONE, .options = {TIERS_TINY}},
    {"words_no_cxl", run_words, ONE, .options = {"ddr=2M", "nvme=24M:%D"}},
    {"together", run_together, ONE, .options = {TIERS_TINY}},
    {"allocate_and_free", run_allocate_and_free, ONE, .options = {"ddr=4M", "cxl=4M", "nvme=256M:%D"}},
    {"threads_come_and_go", run_threads_come_and_go, ONE, .options = {TIERS_TINY}},
    {"mixed_long", run_mixed_long, .nodes_count = 1, .timeout_s = 300, .options = {TIERS_TINY}, .is_asked_only = true},
};

int main(int argc, char **argv)
{
    return node_test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
