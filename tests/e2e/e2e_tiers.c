/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e2e_tiers.c - a working set larger than DDR, and larger than DDR and CXL: contents are right, every tier is used, and
 * what fits nowhere is SIGBUS with a log line.
 */
#include "tests/support/node_test.h"

#include <signal.h>

#define PAGES   ((size_t)60 << 8) /* 60 MiB */
#define THREADS 3

static char *area;

static char *page_of_area(size_t page)
{
    return area + page * DSM_PAGE_BYTES;
}

static void area_open(enum dsm_kind wanted, size_t pages)
{
    struct dsm_attributes attributes = {.kind = wanted};

    CHECK_OK(dsm_malloc_with(pages * DSM_PAGE_BYTES, &attributes, (void **)&area));
}

/* Each thread owns every third page: fills them in order, checks in order, then changes and checks at random. */
static void work(unsigned thread)
{
    static _Thread_local uint8_t round_of[PAGES / THREADS + 1];
    struct random random = {.state = 5 + thread};

    for (size_t page = thread; page < PAGES; page += THREADS)
        page_fill(page_of_area(page), page, 0);
    for (size_t page = thread; page < PAGES; page += THREADS)
        CHECK(page_is_filled(page_of_area(page), page, 0));
    for (int i = 0; i < 1500; i++) {
        size_t own = random_below(&random, (uint32_t)((PAGES - thread + THREADS - 1) / THREADS));
        size_t page = own * THREADS + thread;

        CHECK(page_is_filled(page_of_area(page), page, round_of[own]));
        if (random_below(&random, 2) == 0)
            page_fill(page_of_area(page), page, ++round_of[own]);
    }
    for (size_t page = thread; page < PAGES; page += THREADS)
        CHECK(page_is_filled(page_of_area(page), page, round_of[page / THREADS]));
}

static void tiers_work(enum dsm_kind wanted)
{
    struct dsm_stats stats;

    area_open(wanted, PAGES);
    threads_run(THREADS, work);
    stats = node_stats();
    printf("pages ddr %lu cxl %lu nvme %lu, moves down %lu %lu %lu, up %lu %lu, dropped %lu, prefetched %lu\n",
           stats.tier_pages[DSM_TIER_DDR], stats.tier_pages[DSM_TIER_CXL], stats.tier_pages[DSM_TIER_NVME],
           stats.moves[DSM_TIER_DDR][DSM_TIER_CXL], stats.moves[DSM_TIER_DDR][DSM_TIER_NVME],
           stats.moves[DSM_TIER_CXL][DSM_TIER_NVME], stats.moves[DSM_TIER_CXL][DSM_TIER_DDR],
           stats.moves[DSM_TIER_NVME][DSM_TIER_DDR], stats.dropped_pages, stats.prefetched_pages);
    CHECK(stats.tier_pages[DSM_TIER_DDR] > 0 &&
          stats.tier_pages[DSM_TIER_DDR] <= stats.tier_budget_pages[DSM_TIER_DDR]);
    CHECK(stats.tier_pages[DSM_TIER_CXL] > 0 &&
          stats.tier_pages[DSM_TIER_CXL] <= stats.tier_budget_pages[DSM_TIER_CXL]);
    CHECK(stats.tier_pages[DSM_TIER_NVME] > 0);
    CHECK(stats.tier_pages[DSM_TIER_DDR] + stats.tier_pages[DSM_TIER_CXL] + stats.tier_pages[DSM_TIER_NVME] >= PAGES);
    CHECK(stats.moves[DSM_TIER_DDR][DSM_TIER_CXL] > 0 && stats.moves[DSM_TIER_CXL][DSM_TIER_NVME] > 0);
    CHECK(stats.faults[DSM_FROM_NVME].count > 0 && stats.faults[DSM_FROM_CXL].count > 0);
    CHECK_IS(stats.poisoned_pages, 0);
    CHECK_OK(dsm_free(area));
    stats = node_stats();
    CHECK(stats.tier_pages[DSM_TIER_CXL] + stats.tier_pages[DSM_TIER_NVME] <= 64); /* room again */
}

static void run_private(void)
{
    tiers_work(DSM_PRIVATE);
}

static void run_shared(void)
{
    tiers_work(DSM_SHARED);
}

/* Read in order with plain stores seldom: pages read back keep their slot and leave without being written again. */
static void run_clean_pages_are_dropped(void)
{
    struct dsm_stats before;
    struct dsm_stats after;

    area_open(DSM_PRIVATE, 8192);
    for (size_t page = 0; page < 8192; page++)
        page_fill(page_of_area(page), page, 0);
    for (int pass = 0; pass < 2; pass++)
        for (size_t page = 0; page < 8192; page++)
            CHECK(page_is_filled(page_of_area(page), page, 0));
    before = node_stats();
    for (size_t page = 0; page < 8192; page++)
        CHECK(page_is_filled(page_of_area(page), page, 0));
    after = node_stats();
    CHECK(after.dropped_pages - before.dropped_pages > 4096);
    CHECK(after.moves[DSM_TIER_DDR][DSM_TIER_NVME] - before.moves[DSM_TIER_DDR][DSM_TIER_NVME] < 2048);
    CHECK(after.prefetched_pages > before.prefetched_pages);
    /* A page that is stored to after it came back is not dropped. */
    for (size_t page = 0; page < 8192; page += 5)
        page_fill(page_of_area(page), page, 1);
    for (size_t page = 0; page < 8192; page++)
        CHECK(page_is_filled(page_of_area(page), page, page % 5 == 0));
}

/* Only DDR and NVMe, only DDR and CXL. */
static void run_two_tiers(void)
{
    for (int i = 0; i < 2; i++) {
        area_open(i == 0 ? DSM_PRIVATE : DSM_SHARED, 4096);
        for (size_t page = 0; page < 4096; page++)
            page_fill(page_of_area(page), page, 7);
        for (size_t page = 4096; page-- > 0;)
            CHECK(page_is_filled(page_of_area(page), page, 7));
        CHECK_OK(dsm_free(area));
    }
}

/* ---- full
 * ------------------------------------------------------------------------------------------------------------------ */

/* Larger than all tiers together: stores succeed until nothing is left, then SIGBUS within seconds, never zeroes. */
static void fill_until_bus(enum dsm_kind wanted)
{
    const size_t pages = 8192; /* 32 MiB over 4 + 4 + 8 */
    size_t stored = 0;
    size_t lost = 0;
    void *other;

    area_open(wanted, pages);
    while (stored < pages && touch_writes(page_of_area(stored))) {
        page_fill(page_of_area(stored), stored, 1);
        stored++;
    }
    printf("%zu pages were stored\n", stored);
    CHECK(stored < pages);
    CHECK(stored > 3000);
    CHECK(!touch_reads(page_of_area(stored)));
    for (size_t page = 0; page < stored && lost < 3; page += stored / 16) {
        if (!touch_reads(page_of_area(page))) /* no room to bring it back: lost, and said so */
            lost++;
        else
            CHECK(page_is_filled(page_of_area(page), page, 1));
    }
    CHECK(node_stats().poisoned_pages > 0);
    CHECK_OK(dsm_free(area)); /* and there is room again */
    CHECK_OK(dsm_malloc(8 << 20, &other));
    memset(other, 1, 8 << 20);
}

static void run_private_full(void)
{
    fill_until_bus(DSM_PRIVATE);
}

static void run_shared_full(void)
{
    fill_until_bus(DSM_SHARED);
}

static bool judge_full(const struct node_outcome *outcome)
{
    return outcome->status == 0 && outcome_says(outcome, "page at 0x") && outcome_says(outcome, "full");
}

/* Without a handler the process dies of it. */
static void run_full_kills(void)
{
    signal(SIGBUS, SIG_DFL); /* a sanitizer would catch it */
    area_open(DSM_PRIVATE, 8192);
    for (size_t page = 0; page < 8192; page++)
        page_fill(page_of_area(page), page, 1);
    check_failed(__FILE__, __LINE__, "more was stored than there is room for");
}

static bool judge_full_kills(const struct node_outcome *outcome)
{
    return outcome->status == 128 + 7 && outcome_says(outcome, "touching it raises SIGBUS");
}

/* Other memory works on while one thread waits for room that does not come; what is freed is room. */
static void run_room_after_free(void)
{
    char *first;

    area_open(DSM_PRIVATE, 3000);
    for (size_t page = 0; page < 3000; page++)
        page_fill(page_of_area(page), page, 1);
    first = area;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(dsm_free(first));
        area_open(DSM_PRIVATE, 3000);
        first = area;
        for (size_t page = 0; page < 3000; page++)
            page_fill(page_of_area(page), page, 2);
        for (size_t page = 0; page < 3000; page++)
            CHECK(page_is_filled(page_of_area(page), page, 2));
    }
    CHECK_IS(node_stats().poisoned_pages, 0);
}

/* Three nodes, each with little: pages that find no room here are given back to their homes. */
static void run_remote_pressure(void)
{
    const size_t pages = 3072; /* 12 MiB, homes on node 0, which has room for them below DDR */

    area = node_share("area", pages * DSM_PAGE_BYTES);
    for (size_t page = (size_t)dsm_node_id(); page < pages; page += (size_t)dsm_node_count())
        page_fill(page_of_area(page), page, 1);
    CHECK_OK(dsm_barrier());
    for (size_t page = 0; page < pages; page++)
        CHECK(page_is_filled(page_of_area(page), page, 1));
    CHECK_OK(dsm_barrier());
    CHECK_IS(node_stats().poisoned_pages, 0);
}

#define TIERS_SMALL "ddr=8M", "cxl=16M", "nvme=64M:%D"
#define TIERS_FULL  "ddr=4M", "cxl=4M", "nvme=8M:%D"

/* All but a few pages of all tiers hold bytes: reading them in any order must go on, by changing places. */
static void run_nearly_full(void)
{
    const unsigned pages = 3040; /* of 3 * 1024 */
    uint64_t *memory = NULL;
    uint64_t seed = 1;

    CHECK_OK(dsm_malloc(pages * (size_t)DSM_PAGE_BYTES, (void **)&memory));
    for (unsigned i = 0; i < pages; i++)
        memory[i * (size_t)512] = i + 1;
    for (unsigned i = 0; i < 2 * pages; i++) {
        unsigned page = i;

        if (i >= pages) {
            seed = seed * 6364136223846793005U + 1442695040888963407U;
            page = (unsigned)(seed >> 33) % pages;
        }
        CHECK_IS(memory[page * (size_t)512], page + 1);
    }
    CHECK_IS(node_stats().poisoned_pages, 0);
}

/* Tiers nearly full of own pages, and pages of the other node are read: those copies go, nothing of ours is lost. */
static void run_copies_make_room(void)
{
    const unsigned pages = 2800;
    char names[2][2] = {"0", "1"};
    uint64_t *own = NULL, *others = NULL;
    uint64_t seed = 7;

    CHECK_OK(dsm_malloc(pages * (size_t)DSM_PAGE_BYTES, (void **)&own));
    for (unsigned i = 0; i < pages; i++)
        own[i * (size_t)512] = i + 1;
    CHECK_OK(dsm_root_set(names[dsm_node_id()], own));
    CHECK_OK(dsm_root_get(names[1 - dsm_node_id()], DSM_FOREVER, (void **)&others));
    CHECK_OK(dsm_barrier());
    for (unsigned i = 0; i < 2000; i++) {
        unsigned page;

        seed = seed * 6364136223846793005U + 1442695040888963407U;
        page = (unsigned)(seed >> 33) % pages;
        CHECK_IS((i % 2 == 0 ? own : others)[page * (size_t)512], page + 1);
    }
    CHECK_IS(node_stats().poisoned_pages, 0);
    CHECK_OK(dsm_barrier());
}

static uint64_t reads_of(size_t first, size_t pages)
{
    uint64_t before = node_stats().prefetched_pages;

    for (size_t page = first; page < first + pages; page++)
        CHECK(page_is_filled(page_of_area(page), page, 0));
    return node_stats().prefetched_pages - before;
}

static void figures_check(void)
{
    struct dsm_stats stats = node_stats();

    CHECK(strcmp(stats.policy, "segmented-fifo") == 0 && stats.policy_choice[0] == '\0');
    CHECK(stats.hard_faults == stats.faults[DSM_FROM_NVME].count && stats.hard_faults > 0);
    CHECK(stats.prefetch_late <= stats.prefetch_hits);
    CHECK(stats.predictions[DSM_PREDICTOR_STREAMS].used > 0);
    CHECK(stats.predictions[DSM_PREDICTOR_STREAMS].proposed >= stats.predictions[DSM_PREDICTOR_STREAMS].used);
    CHECK_IS(stats.predictions[DSM_PREDICTOR_HINTS].proposed, 0);
    CHECK(strcmp(dsm_predictor_name(DSM_PREDICTOR_TEMPORAL), "temporal") == 0);
}

/* What is said is followed, bytes stay right, and a new block in the same place knows nothing of it. */
static void advised_work(enum dsm_kind wanted)
{
    const size_t pages = 8192, part = 2048;
    uint64_t ahead;

    area_open(wanted, pages);
    for (size_t page = 0; page < pages; page++)
        page_fill(page_of_area(page), page, 0);
    ahead = reads_of(0, part);
    CHECK(ahead > part / 2);
    figures_check();
    CHECK_OK(dsm_advise(area, pages * DSM_PAGE_BYTES, DSM_ADVISE_RANDOM));
    CHECK(reads_of(part, part) == 0);
    CHECK_OK(dsm_advise(page_of_area(0), 64 * DSM_PAGE_BYTES, DSM_ADVISE_NORMAL));
    CHECK_OK(dsm_advise(page_of_area(0), 64 * DSM_PAGE_BYTES, DSM_ADVISE_COLD));
    CHECK_OK(dsm_advise(page_of_area(2 * part), 200 * DSM_PAGE_BYTES, DSM_ADVISE_WILL_NEED));
    CHECK(reads_of(2 * part, 200) == 0); /* on its way already */
    CHECK_OK(dsm_advise(area, pages * DSM_PAGE_BYTES, DSM_ADVISE_NORMAL));
    for (size_t i = 0; i < 64; i++)
        CHECK_OK(dsm_advise(page_of_area(64 * i), 8, DSM_ADVISE_WALK));
    CHECK_ERROR(dsm_advise(area, 8, DSM_ADVISE_WALK), -ENOSPC);
    CHECK_OK(dsm_free(area));
    area_open(wanted, pages);
    for (size_t i = 0; i < 64; i++)
        CHECK_OK(dsm_advise(page_of_area(2 * i), 8, DSM_ADVISE_SEQUENTIAL));
    CHECK_OK(dsm_free(area));
}

static void run_advised_private(void)
{
    advised_work(DSM_PRIVATE);
}

static void run_advised_shared(void)
{
    advised_work(DSM_SHARED);
}

static const struct node_case cases[] = {
    {"private", run_private, .nodes_count = 1, .options = {TIERS_SMALL}, .timeout_s = 40},
    {"shared", run_shared, .nodes_count = 1, .options = {TIERS_SMALL}, .timeout_s = 40},
    {"private_no_move", run_private, .nodes_count = 1, .options = {TIERS_SMALL, "uffd.move=off"}, .timeout_s = 40},
    {"private_fallbacks", run_private, .nodes_count = 1,
     .options = {TIERS_SMALL, "uffd.move=off", "uffd.poison=off", "uffd.wp_async=off"}, .timeout_s = 40},
    {"shared_fallbacks", run_shared, .nodes_count = 1, .options = {TIERS_SMALL, "uffd.poison=off", "uffd.wp_async=off"},
     .timeout_s = 40},
    {"private_no_prefetch", run_private, .nodes_count = 1, .options = {TIERS_SMALL, "prefetch=0"}, .timeout_s = 40},
    {"shared_epoll", run_shared, .nodes_count = 1, .options = {TIERS_SMALL, "loop=epoll"}, .timeout_s = 40},
    {"advised_private", run_advised_private, .nodes_count = 1, .options = {"ddr=8M", "nvme=64M:%D"}},
    {"advised_shared", run_advised_shared, .nodes_count = 1, .options = {"ddr=8M", "nvme=64M:%D"}},
    {"clean_pages_are_dropped", run_clean_pages_are_dropped, .nodes_count = 1, .options = {"ddr=8M", "nvme=64M:%D"}},
    {"ddr_nvme", run_two_tiers, .nodes_count = 1, .options = {"ddr=4M", "nvme=32M:%D"}},
    {"ddr_cxl", run_two_tiers, .nodes_count = 1, .options = {"ddr=4M", "cxl=16M"}},
    {"private_full", run_private_full, .nodes_count = 1, .options = {TIERS_FULL}, .judge = judge_full},
    {"shared_full", run_shared_full, .nodes_count = 1, .options = {TIERS_FULL}, .judge = judge_full},
    {"private_full_no_poison", run_private_full, .nodes_count = 1, .options = {TIERS_FULL, "uffd.poison=off"},
     .judge = judge_full},
    {"full_kills", run_full_kills, .nodes_count = 1, .options = {TIERS_FULL}, .judge = judge_full_kills},
    {"room_after_free", run_room_after_free, .nodes_count = 1, .options = {TIERS_FULL}},
    {"nearly_full", run_nearly_full, .nodes_count = 1, .options = {"ddr=4M", "cxl=4M", "nvme=4M:%D"}},
    {"copies_make_room", run_copies_make_room, .nodes_count = 2, .options = {"ddr=4M", "cxl=4M", "nvme=4M:%D"}},
    {"remote_pressure", run_remote_pressure, .nodes_count = 3, .options = {"ddr=2M", "nvme=16M:%D"}, .timeout_s = 40},
};

int main(int argc, char **argv)
{
    return node_test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
