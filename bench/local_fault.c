/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_fault.c - what does a fault cost whose page lies in this node's memory, against a bare userfaultfd handler?
 *
 * The pages lie in the (emulated) CXL tier: four times the DDR budget is touched over and over in a random order, so
 * each touch faults and the shard evicts another page meanwhile. The faulting thread, the shard and the bare handler
 * share one processor. First touches (zeroes) are told beside it.
 */
#include "bench/bare.h"
#include "bench/report.h"
#include "bench/setup.h"
#include "bench/touch.h"

struct plan {
    uint32_t pages_count;
    uint32_t faults_count; /* a round */
    unsigned rounds_count;
};

static uint64_t faults_from_cxl(void)
{
    struct dsm_stats stats;

    DSM(dsm_stats(&stats, sizeof(stats)));
    return stats.faults[DSM_FROM_CXL].count;
}

static double bare_round(struct bare *bare, struct touch *touch, uint32_t count)
{
    bare_empty(bare);
    return touch_some(touch, count, false);
}

static void from_memory(const struct plan *plan, enum dsm_kind wanted, struct bare *bare, struct figure *loads,
                        struct figure *stores)
{
    struct dsm_attributes attributes = {.kind = wanted};
    struct touch bare_touch;
    struct touch touch;
    uint64_t faults;
    void *memory;

    DSM(dsm_malloc_with((size_t)plan->pages_count * DSM_PAGE_BYTES, &attributes, &memory));
    touch_init(&touch, memory, plan->pages_count);
    touch_init(&bare_touch, bare_memory(bare), plan->pages_count);
    touch_fill(&touch);
    touch_some(&touch, plan->pages_count, false);
    faults = faults_from_cxl();
    for (unsigned round = 0; round < plan->rounds_count; round++) {
        double bare_us = bare_round(bare, &bare_touch, plan->faults_count);
        double load_us = touch_some(&touch, plan->faults_count, false);
        double store_us = touch_some(&touch, plan->faults_count, true);

        figure_add(loads, load_us, bare_us, load_us / bare_us);
        figure_add(stores, store_us, bare_us, store_us / bare_us);
    }
    faults = faults_from_cxl() - faults;
    figure_judge(loads, BAR_AT_MOST, 1.3);
    figure_tell(stores);
    if (faults < (uint64_t)plan->faults_count * plan->rounds_count * 2 * 9 / 10)
        report_note("only %lu of %u touches faulted: the figure is too good", faults,
                    plan->faults_count * plan->rounds_count * 2);
    touch_fini(&touch);
    touch_fini(&bare_touch);
    DSM(dsm_free(memory));
}

/* The first touch of a page, which no bytes have to come for; against the bare handler's copy all the same. */
static void from_nothing(const struct plan *plan, enum dsm_kind wanted, struct bare *bare, struct figure *figure)
{
    struct dsm_attributes attributes = {.kind = wanted};
    uint32_t pages_count = plan->faults_count * plan->rounds_count;
    struct touch bare_touch;
    struct touch touch;
    void *memory;

    DSM(dsm_malloc_with((size_t)pages_count * DSM_PAGE_BYTES, &attributes, &memory));
    touch_init(&touch, memory, pages_count);
    touch_init(&bare_touch, bare_memory(bare), plan->pages_count);
    for (unsigned round = 0; round < plan->rounds_count; round++) {
        double bare_us = bare_round(bare, &bare_touch, plan->faults_count);
        double us = touch_some(&touch, plan->faults_count, true);

        figure_add(figure, us, bare_us, us / bare_us);
    }
    figure_tell(figure);
    touch_fini(&touch);
    touch_fini(&bare_touch);
    DSM(dsm_free(memory));
}

int main(int argc, char **argv)
{
    static struct figure figures[] = {
        {.name = "local-fault-private", .unit = "us"},      {.name = "local-fault-private-store", .unit = "us"},
        {.name = "first-touch-private", .unit = "us"},      {.name = "local-fault-shared", .unit = "us"},
        {.name = "local-fault-shared-store", .unit = "us"}, {.name = "first-touch-shared", .unit = "us"},
    };
    struct options options = options_parse(argc, argv);
    struct plan plan = {.pages_count = options.is_quick ? 4096 : 16384,
                        .faults_count = options.is_quick ? 200 : 800,
                        .rounds_count = options.is_quick ? 2 : 25};

    report_open(options.json_path);
    cpu_pin(0);
    node_start(0, options.is_quick ? "ddr=4M" : "ddr=16M", "cxl=256M", NULL);
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        enum dsm_kind wanted = is_shared ? DSM_SHARED : DSM_PRIVATE;
        struct bare *bare = bare_open(is_shared, plan.pages_count);
        struct figure *own = figures + 3 * is_shared;

        from_memory(&plan, wanted, bare, &own[0], &own[1]);
        from_nothing(&plan, wanted, bare, &own[2]);
        bare_close(bare);
    }
    DSM(dsm_finalize());
    return 0;
}
