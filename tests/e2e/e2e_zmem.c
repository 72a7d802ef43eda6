/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e2e_zmem.c - compressed memory below DDR: pages of every kind come back as they were, alone, with tiers around it,
 * and shared by several nodes; what does not compress goes past it; what was damaged is SIGBUS with a log line.
 */
#include "tests/support/node_test.h"

#define THREADS    3
#define PAGE_WORDS (DSM_PAGE_BYTES / sizeof(uint64_t))

static char *area;
static size_t pages_count;

static char *page_of_area(size_t page)
{
    return area + page * DSM_PAGE_BYTES;
}

static void area_open(enum dsm_kind wanted, size_t pages)
{
    struct dsm_attributes attributes = {.kind = wanted};

    pages_count = pages;
    CHECK_OK(dsm_malloc_with(pages * DSM_PAGE_BYTES, &attributes, (void **)&area));
}

/* ---- pages of several kinds ------------------------------------------------------------------------------------ */

enum kind {
    KIND_SAME,   /* one word over and over */
    KIND_TEXT,   /* compresses to a third, or so */
    KIND_RANDOM, /* does not */
};

static uint64_t word_of(enum kind kind, size_t page, uint64_t round, size_t i)
{
    struct random random = {.state = page << 20 ^ round << 44 ^ i};

    if (kind == KIND_SAME)
        return page * 1000003 + round;
    if (kind == KIND_TEXT && i % 4 != page % 4)
        return page + round;
    return random_next(&random);
}

static void fill(size_t page, enum kind kind, uint64_t round)
{
    uint64_t *words = (uint64_t *)(void *)page_of_area(page);

    for (size_t i = 0; i < PAGE_WORDS; i++)
        words[i] = word_of(kind, page, round, i);
}

static bool is_right(size_t page, enum kind kind, uint64_t round)
{
    const uint64_t *words = (const uint64_t *)(const void *)page_of_area(page);

    for (size_t i = 0; i < PAGE_WORDS; i++) {
        if (words[i] == word_of(kind, page, round, i))
            continue;
        fprintf(stderr, "node %d: page %zu kind %d round %lu: word %zu is 0x%lx, not 0x%lx\n", dsm_node_id(), page,
                (int)kind, round, i, words[i], word_of(kind, page, round, i));
        return false;
    }
    return true;
}

static void stats_print(const struct dsm_stats *stats)
{
    printf("pages ddr %lu cxl %lu zmem %lu (%lu KiB, %lu filled, %lu refused) nvme %lu; from zmem %lu, p99 %lu ns\n",
           stats->tier_pages[DSM_TIER_DDR], stats->tier_pages[DSM_TIER_CXL], stats->tier_pages[DSM_TIER_ZMEM],
           stats->zmem_bytes >> 10, stats->zmem_filled_pages, stats->zmem_refused_pages,
           stats->tier_pages[DSM_TIER_NVME], stats->faults[DSM_FROM_ZMEM].count, stats->faults[DSM_FROM_ZMEM].p99_ns);
}

/* ---- one kind of page ------------------------------------------------------------------------------------------ */

static void kind_work(enum kind kind, enum dsm_kind wanted, size_t pages)
{
    area_open(wanted, pages);
    for (size_t page = 0; page < pages; page++)
        fill(page, kind, 1);
    for (size_t page = 0; page < pages; page++)
        CHECK(is_right(page, kind, 1));
    for (size_t page = pages; page-- > 0;) {
        CHECK(is_right(page, kind, 1));
        if (page % 3 == 0)
            fill(page, kind, 2);
    }
    for (size_t page = 0; page < pages; page++)
        CHECK(is_right(page, kind, page % 3 == 0 ? 2 : 1));
}

/* Twice as much as DDR and the bytes of zmem together: it is there only if it was compressed. */
static void run_only_zmem(void)
{
    for (int i = 0; i < 2; i++) {
        struct dsm_stats stats;

        kind_work(KIND_TEXT, i == 0 ? DSM_PRIVATE : DSM_SHARED, 6144);
        stats = node_stats();
        stats_print(&stats);
        CHECK(stats.tier_pages[DSM_TIER_ZMEM] > 4096);
        CHECK(stats.zmem_bytes > 0 && stats.zmem_bytes <= stats.tier_budget_pages[DSM_TIER_ZMEM] * DSM_PAGE_BYTES);
        CHECK(stats.tier_pages[DSM_TIER_ZMEM] * DSM_PAGE_BYTES > stats.zmem_bytes * 2);
        CHECK(stats.faults[DSM_FROM_ZMEM].count > 0);
        CHECK(stats.moves[DSM_TIER_DDR][DSM_TIER_ZMEM] > 0 && stats.moves[DSM_TIER_ZMEM][DSM_TIER_DDR] > 0);
        CHECK_IS(stats.poisoned_pages, 0);
        CHECK_OK(dsm_free(area));
        CHECK_IS(node_stats().tier_pages[DSM_TIER_ZMEM], 0);
        CHECK(node_stats().zmem_bytes < 1 << 20);
    }
}

/* 48 MiB in 1 MiB that stays empty. */
static void run_filled(void)
{
    for (int i = 0; i < 2; i++) {
        struct dsm_stats stats;

        kind_work(KIND_SAME, i == 0 ? DSM_PRIVATE : DSM_SHARED, 12288);
        stats = node_stats();
        stats_print(&stats);
        CHECK(stats.tier_pages[DSM_TIER_ZMEM] > 11000);
        CHECK_IS(stats.zmem_filled_pages, stats.tier_pages[DSM_TIER_ZMEM]);
        CHECK(stats.zmem_bytes < 512 << 10); /* some were evicted half filled */
        CHECK_IS(stats.poisoned_pages, 0);
        CHECK_OK(dsm_free(area));
    }
}

/* What does not compress goes to NVMe, past zmem. */
static void run_random(void)
{
    for (int i = 0; i < 2; i++) {
        struct dsm_stats stats;

        kind_work(KIND_RANDOM, i == 0 ? DSM_PRIVATE : DSM_SHARED, 4096);
        stats = node_stats();
        stats_print(&stats);
        CHECK_IS(stats.tier_pages[DSM_TIER_ZMEM], 0);
        CHECK(stats.zmem_refused_pages > 2048);
        CHECK(stats.tier_pages[DSM_TIER_NVME] > 0);
        CHECK_IS(stats.poisoned_pages, 0);
        CHECK_OK(dsm_free(area));
    }
}

/* ... and stays in memory when there is nothing else: others leave in its place. */
static void run_random_stays(void)
{
    const size_t random_pages = 512; /* half of DDR */

    for (int i = 0; i < 2; i++) {
        area_open(i == 0 ? DSM_PRIVATE : DSM_SHARED, 4096);
        for (int pass = 0; pass < 3; pass++) {
            for (size_t page = 0; page < pages_count; page++) {
                enum kind kind = page < random_pages ? KIND_RANDOM : KIND_TEXT;

                CHECK(pass == 0 || is_right(page, kind, (uint64_t)pass - 1));
                fill(page, kind, (uint64_t)pass);
            }
        }
        for (size_t page = 0; page < pages_count; page++)
            CHECK(is_right(page, page < random_pages ? KIND_RANDOM : KIND_TEXT, 2));
        CHECK(node_stats().zmem_refused_pages > 0);
        CHECK_IS(node_stats().poisoned_pages, 0);
        CHECK_OK(dsm_free(area));
    }
}

/* Nothing has room for them: SIGBUS at the touch that wants more, and what was stored before is as it was. */
static void run_random_full(void)
{
    size_t stored = 0;

    area_open(DSM_PRIVATE, 2048);
    while (stored < pages_count && touch_writes(page_of_area(stored))) {
        fill(stored, KIND_RANDOM, 1);
        stored++;
    }
    printf("%zu pages were stored\n", stored);
    CHECK(stored > 900 && stored < 1100);
    for (size_t page = 0; page < stored; page++)
        CHECK(is_right(page, KIND_RANDOM, 1));
}

static bool judge_full(const struct node_outcome *outcome)
{
    return outcome->status == 0 && outcome_says(outcome, "page at 0x") && outcome_says(outcome, "full");
}

/* ---- all kinds, all tiers, several threads --------------------------------------------------------------------- */

static enum kind kind_of(size_t page)
{
    return page % 5 == 0 ? KIND_RANDOM : page % 5 == 1 ? KIND_SAME : KIND_TEXT;
}

#define MIXED_PAGES ((size_t)40 << 8) /* 40 MiB */

/* Each thread owns every third page. */
static void mixed_work(unsigned thread)
{
    static _Thread_local uint8_t round_of[MIXED_PAGES / THREADS + 1];
    struct random random = {.state = 5 + thread};

    for (size_t page = thread; page < MIXED_PAGES; page += THREADS)
        fill(page, kind_of(page), 0);
    for (int i = 0; i < 4000; i++) {
        size_t own = random_below(&random, (uint32_t)((MIXED_PAGES - thread + THREADS - 1) / THREADS));
        size_t page = own * THREADS + thread;

        CHECK(is_right(page, kind_of(page + round_of[own]), round_of[own]));
        if (random_below(&random, 2) == 0) {
            round_of[own]++;
            fill(page, kind_of(page + round_of[own]), round_of[own]);
        }
    }
    for (size_t page = thread; page < MIXED_PAGES; page += THREADS)
        CHECK(is_right(page, kind_of(page + round_of[page / THREADS]), round_of[page / THREADS]));
}

static struct dsm_stats mixed(enum dsm_kind wanted)
{
    struct dsm_stats stats;

    area_open(wanted, MIXED_PAGES);
    threads_run(THREADS, mixed_work);
    stats = node_stats();
    stats_print(&stats);
    CHECK(stats.tier_pages[DSM_TIER_ZMEM] > 0 && stats.tier_pages[DSM_TIER_NVME] > 0);
    CHECK(stats.zmem_bytes <= stats.tier_budget_pages[DSM_TIER_ZMEM] * DSM_PAGE_BYTES);
    CHECK(stats.faults[DSM_FROM_ZMEM].count > 0 && stats.faults[DSM_FROM_NVME].count > 0);
    CHECK(stats.moves[DSM_TIER_ZMEM][DSM_TIER_NVME] > 0);
    CHECK(stats.zmem_refused_pages > 0 && stats.zmem_filled_pages > 0);
    CHECK_IS(stats.poisoned_pages, 0);
    CHECK_OK(dsm_free(area));
    CHECK_IS(node_stats().tier_pages[DSM_TIER_ZMEM], 0);
    return stats;
}

static void run_mixed_private(void)
{
    mixed(DSM_PRIVATE);
}

static void run_mixed_shared(void)
{
    mixed(DSM_SHARED);
}

/* CXL memory's oldest pages move on to zmem, and zmem's to NVMe. */
static void run_three_below(void)
{
    for (int i = 0; i < 2; i++) {
        struct dsm_stats stats = mixed(i == 0 ? DSM_PRIVATE : DSM_SHARED);

        CHECK(stats.tier_pages[DSM_TIER_CXL] > 0);
        CHECK(stats.moves[DSM_TIER_CXL][DSM_TIER_ZMEM] > 0);
    }
}

/* ---- several nodes --------------------------------------------------------------------------------------------- */

/* Each node writes its pages, everybody reads all of them, and they change owners: sent from zmem, taken into it. */
static void run_nodes(void)
{
    const size_t pages = 6144;
    size_t nodes = (size_t)dsm_node_count();
    struct dsm_stats stats;

    area = node_share("area", pages * DSM_PAGE_BYTES);
    for (uint64_t round = 0; round < 3; round++) {
        for (size_t page = 0; page < pages; page++)
            if ((page / 16 + round) % nodes == (size_t)dsm_node_id())
                fill(page, kind_of(page), round);
        CHECK_OK(dsm_barrier());
        for (size_t page = 0; page < pages; page++)
            CHECK(is_right(page, kind_of(page), round));
        CHECK_OK(dsm_barrier());
    }
    stats = node_stats();
    stats_print(&stats);
    CHECK(stats.moves[DSM_TIER_DDR][DSM_TIER_ZMEM] + stats.moves[DSM_TIER_CXL][DSM_TIER_ZMEM] > 0);
    CHECK_IS(stats.poisoned_pages, 0);
}

/* Explicit copies and atomics of pages that lie compressed at their home. */
static void run_copies_and_atomics(void)
{
    const size_t pages = 4096;
    static uint64_t words[PAGE_WORDS];
    int nodes = dsm_node_count();

    area = node_share("area", pages * DSM_PAGE_BYTES);
    if (dsm_node_id() == 0)
        for (size_t page = 0; page < pages; page++)
            fill(page, KIND_TEXT, 1);
    CHECK_OK(dsm_barrier());
    for (size_t page = 0; page < pages; page += 37) {
        uint64_t *counter = (uint64_t *)(void *)page_of_area(page) + 7;

        CHECK_OK(dsm_read(words, page_of_area(page), DSM_PAGE_BYTES, 0, NULL));
        for (size_t i = 0; i < PAGE_WORDS; i++)
            CHECK(i == 7 || words[i] == word_of(KIND_TEXT, page, 1, i));
        CHECK_OK(dsm_atomic_fetch_add(counter, 1, NULL));
    }
    CHECK_OK(dsm_barrier());
    for (size_t page = 0; page < pages; page += 37)
        CHECK_IS(((uint64_t *)(void *)page_of_area(page))[7], word_of(KIND_TEXT, page, 1, 7) + (uint64_t)nodes);
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 0)
        CHECK(node_stats().moves[DSM_TIER_DDR][DSM_TIER_ZMEM] > 0);
    CHECK_OK(dsm_barrier());
}

/* ---- order ----------------------------------------------------------------------------------------------------- */

/* A scan is read ahead out of zmem too. */
static void run_scan(void)
{
    struct dsm_stats before;
    struct dsm_stats after;

    area_open(DSM_PRIVATE, 6144);
    for (size_t page = 0; page < pages_count; page++)
        fill(page, KIND_TEXT, 1);
    before = node_stats();
    for (size_t page = 0; page < pages_count; page++)
        CHECK(is_right(page, KIND_TEXT, 1));
    after = node_stats();
    stats_print(&after);
    printf("read ahead %lu, faults %lu\n", after.prefetched_pages - before.prefetched_pages,
           after.faults[DSM_FROM_ZMEM].count - before.faults[DSM_FROM_ZMEM].count);
    CHECK(after.prefetched_pages - before.prefetched_pages > 2048);
    CHECK(after.faults[DSM_FROM_ZMEM].count - before.faults[DSM_FROM_ZMEM].count < 2048);
}

/* ---- damage ---------------------------------------------------------------------------------------------------- */

/* The first pages that come out of zmem are damaged: SIGBUS or -EIO for these, and only these. */
static void damage(enum dsm_kind wanted)
{
    static uint64_t words[PAGE_WORDS];
    size_t lost = 0;
    size_t refused = 0;

    area_open(wanted, 4096);
    for (size_t page = 0; page < pages_count; page++)
        fill(page, KIND_TEXT, 1);
    for (size_t page = 0; page < pages_count; page++) {
        if (page % 2 == 0) {
            int result = dsm_read(words, page_of_area(page), DSM_PAGE_BYTES, 0, NULL);

            refused += result == -EIO;
            CHECK(result == 0 || result == -EIO);
        } else if (!touch_reads(page_of_area(page))) {
            lost++;
        } else {
            CHECK(is_right(page, KIND_TEXT, 1));
        }
    }
    printf("lost %zu, refused %zu\n", lost, refused);
    CHECK(lost > 0 && lost + refused == 40);
    CHECK_IS(node_stats().poisoned_pages, 40);
}

static void run_damage_private(void)
{
    damage(DSM_PRIVATE);
}

static void run_damage_shared(void)
{
    damage(DSM_SHARED);
}

/* The home finds it damaged: the node that asks is told. */
static void run_damage_remote(void)
{
    size_t lost = 0;

    area = node_share("area", 4096 * DSM_PAGE_BYTES);
    if (dsm_node_id() == 0)
        for (size_t page = 0; page < 4096; page++)
            fill(page, KIND_TEXT, 1);
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 1) {
        for (size_t page = 0; page < 4096; page++) {
            if (touch_reads(page_of_area(page)))
                CHECK(is_right(page, KIND_TEXT, 1));
            else
                lost++;
        }
        CHECK(lost >= 20); /* some may have come with a page that was asked for, and were not touched */
    }
    CHECK_OK(dsm_barrier());
}

static bool judge_damage(const struct node_outcome *outcome)
{
    return outcome->status == 0 && outcome_says(outcome, "page at 0x") && outcome_says(outcome, "the zmem tier") &&
           outcome_says(outcome, "of tier zmem");
}

/* zmem inside the DDR budget: pages and what is compressed share it. */
static void share_work(uint64_t pages_at_least)
{
    struct dsm_stats stats;

    kind_work(KIND_TEXT, DSM_PRIVATE, 6144);
    stats = node_stats();
    stats_print(&stats);
    CHECK(stats.tier_pages[DSM_TIER_ZMEM] >= pages_at_least);
    CHECK(stats.tier_pages[DSM_TIER_DDR] + stats.zmem_bytes / DSM_PAGE_BYTES <= stats.tier_budget_pages[DSM_TIER_DDR]);
    CHECK_IS(stats.poisoned_pages, 0);
    CHECK_OK(dsm_free(area));
    CHECK(node_stats().zmem_bytes < 1 << 20);
}

/* There is no other place: zmem takes all that it may. */
static void run_share(void)
{
    share_work(4096);
}

/* With a disk below it takes what pays, and that differs. */
static void run_share_nvme(void)
{
    share_work(256);
}

#define ONE         .nodes_count = 1, .timeout_s = 40
#define ZMEM_MIXED  "ddr=8M", "zmem=6M", "nvme=64M:%D"
#define ZMEM_ALONE  "ddr=4M", "zmem=12M"
#define ZMEM_DAMAGE ZMEM_ALONE, "test.zmem_errors=40"

static const struct node_case cases[] = {
    {"only_zmem", run_only_zmem, ONE, .options = {ZMEM_ALONE}},
    {"only_zmem_zstd", run_only_zmem, ONE, .options = {ZMEM_ALONE, "zmem.codec=zstd"}},
    {"only_zmem_fallbacks", run_only_zmem, ONE, .options = {ZMEM_ALONE, "uffd.move=off", "uffd.wp_async=off"}},
    {"share", run_share, ONE, .options = {"ddr=14M", "zmem=80%"}},
    {"share_nvme", run_share_nvme, ONE, .options = {"ddr=14M", "zmem=80%", "nvme=64M:%D"}},
    {"share_random", run_random, ONE, .options = {"ddr=8M", "zmem=50%", "nvme=32M:%D"}},
    {"filled", run_filled, ONE, .options = {"ddr=4M", "zmem=1M"}},
    {"random", run_random, ONE, .options = {"ddr=4M", "zmem=4M", "nvme=32M:%D"}},
    {"random_stays", run_random_stays, ONE, .options = {"ddr=4M", "zmem=16M"}},
    {"random_stays_no_move", run_random_stays, ONE, .options = {"ddr=4M", "zmem=16M", "uffd.move=off"}},
    {"random_full", run_random_full, ONE, .options = {"ddr=4M", "zmem=4M"}, .judge = judge_full},
    {"mixed_private", run_mixed_private, ONE, .options = {ZMEM_MIXED}},
    {"mixed_shared", run_mixed_shared, ONE, .options = {ZMEM_MIXED}},
    {"mixed_private_zstd", run_mixed_private, ONE, .options = {ZMEM_MIXED, "zmem.codec=zstd"}},
    {"mixed_private_no_move", run_mixed_private, ONE, .options = {ZMEM_MIXED, "uffd.move=off", "uffd.poison=off"}},
    {"mixed_shared_epoll", run_mixed_shared, ONE, .options = {ZMEM_MIXED, "loop=epoll", "prefetch=0"}},
    {"three_below", run_three_below, ONE, .options = {"ddr=8M", "cxl=3M", "zmem=6M", "nvme=64M:%D"}},
    {"nodes", run_nodes, .nodes_count = 3, .timeout_s = 60, .options = {"ddr=2M", "zmem=4M", "nvme=32M:%D"}},
    {"nodes_cxl", run_nodes, .nodes_count = 3, .timeout_s = 60,
     .options = {"ddr=2M", "cxl=1M", "zmem=4M", "nvme=32M:%D"}},
    {"copies_and_atomics", run_copies_and_atomics, .nodes_count = 2, .options = {"ddr=4M", "zmem=12M"}},
    {"scan", run_scan, ONE, .options = {ZMEM_ALONE}},
    {"damage_private", run_damage_private, ONE, .options = {ZMEM_DAMAGE, "prefetch=0"}, .judge = judge_damage},
    {"damage_shared", run_damage_shared, ONE, .options = {ZMEM_DAMAGE, "prefetch=0"}, .judge = judge_damage},
    {"damage_remote", run_damage_remote, .nodes_count = 2, .options = {ZMEM_DAMAGE, "prefetch=0"},
     .judge = judge_damage},
};

int main(int argc, char **argv)
{
    return node_test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
