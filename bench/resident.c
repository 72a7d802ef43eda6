/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resident.c - are loads and stores to resident managed memory as fast as to ordinary memory?
 *
 * Three passes over 64 MiB that is all in DDR: 8-byte loads in order, 8-byte stores in order, and loads of one word a
 * page in a random order, which is where the TLB would show a difference. The reference is anonymous memory in 4 KiB
 * pages; huge pages are told beside it. Each round takes fresh memory on all sides: which physical pages a side got is
 * worth some per cent, and chance.
 */
#include "bench/report.h"
#include "bench/setup.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define AREA_BYTES (64 * MIB)
#define PAGES      (AREA_BYTES / DSM_PAGE_BYTES)
#define WORDS      (AREA_BYTES / sizeof(uint64_t))

static uint32_t *order;
static volatile uint64_t sink;

static void pass_loads(void *memory)
{
    const uint64_t *words = memory;
    uint64_t sum = 0;

    for (size_t i = 0; i < WORDS; i++)
        sum += words[i];
    sink = sum;
}

static void pass_stores(void *memory)
{
    uint64_t *words = memory;

    for (size_t i = 0; i < WORDS; i++)
        words[i] = i;
    __asm__ volatile("" ::"r"(words) : "memory");
}

static void pass_random(void *memory)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < PAGES; i++)
        sum += *(const uint64_t *)(const void *)((const char *)memory + (size_t)order[i] * DSM_PAGE_BYTES +
                                                 (i * 64) % DSM_PAGE_BYTES);
    sink = sum;
}

/* Whose memory. */
enum side {
    SIDE_PLAIN,
    SIDE_PRIVATE,
    SIDE_SHARED,
    SIDE_HUGE,
    SIDES,
};

struct pass {
    void (*run)(void *memory);
    unsigned times;  /* a time is the best of so many */
    double units_ns; /* nanoseconds of a pass times this are the figure */
    struct figure figures[SIDES];
};

/* The sides take turns, so that a burst of other work hits all of them. */
static void measure(struct pass *pass, void *const *areas)
{
    double best[SIDES];

    for (unsigned i = 0; i < pass->times; i++) {
        for (unsigned side = 0; side < SIDES; side++) {
            uint64_t start_ns = now_ns();
            double time;

            pass->run(areas[side]);
            time = (double)(now_ns() - start_ns) * pass->units_ns;
            best[side] = i == 0 || time < best[side] ? time : best[side];
        }
    }
    for (unsigned side = SIDE_PRIVATE; side < SIDES; side++)
        figure_add(&pass->figures[side], best[side], best[SIDE_PLAIN], best[SIDE_PLAIN] / best[side]);
}

static void *managed_map(enum dsm_kind wanted)
{
    struct dsm_attributes attributes = {.kind = wanted};
    void *memory;

    DSM(dsm_malloc_with(AREA_BYTES, &attributes, &memory));
    memset(memory, 1, AREA_BYTES);
    return memory;
}

/* The sides take turns at being first to get memory. */
static void areas_open(void **areas, unsigned round)
{
    for (unsigned i = 0; i < SIDES; i++) {
        unsigned side = (i + round) % SIDES;

        if (side == SIDE_PLAIN || side == SIDE_HUGE)
            areas[side] = memory_map(AREA_BYTES, side == SIDE_HUGE);
        else
            areas[side] = managed_map(side == SIDE_PRIVATE ? DSM_PRIVATE : DSM_SHARED);
    }
}

static void areas_close(void **areas)
{
    DSM(dsm_free(areas[SIDE_PRIVATE]));
    DSM(dsm_free(areas[SIDE_SHARED]));
    munmap(areas[SIDE_PLAIN], AREA_BYTES);
    munmap(areas[SIDE_HUGE], AREA_BYTES);
}

#define PASSES 3

#define FIGURES(what, unit_text)                                                                                       \
    {                                                                                                                  \
        [SIDE_PRIVATE] = {.name = what "-private", .unit = unit_text},                                                 \
        [SIDE_SHARED] = {.name = what "-shared", .unit = unit_text},                                                   \
        [SIDE_HUGE] = {.name = what "-huge", .unit = unit_text},                                                       \
    }

int main(int argc, char **argv)
{
    static struct pass passes[PASSES] = {
        {pass_loads, 10, 1e-3 / 64, FIGURES("resident-load", "us/MiB")},
        {pass_stores, 10, 1e-3 / 64, FIGURES("resident-store", "us/MiB")},
        {pass_random, 40, 1.0 / PAGES, FIGURES("resident-random", "ns")},
    };
    struct options options = options_parse(argc, argv);
    unsigned rounds_count = options.is_quick ? 1 : 16;

    report_open(options.json_path);
    cpu_pin(0);
    node_start(-1, "ddr=256M", NULL);
    order = order_make(PAGES);
    for (unsigned round = 0; round < rounds_count; round++) {
        void *areas[SIDES];

        areas_open(areas, round);
        for (size_t i = 0; i < PASSES; i++)
            measure(&passes[i], areas);
        areas_close(areas);
    }
    for (size_t i = 0; i < PASSES; i++) {
        figure_judge(&passes[i].figures[SIDE_PRIVATE], BAR_AT_LEAST, 0.97);
        figure_judge(&passes[i].figures[SIDE_SHARED], BAR_AT_LEAST, 0.97);
        figure_tell(&passes[i].figures[SIDE_HUGE]);
    }
    DSM(dsm_finalize());
    free(order);
    return 0;
}
