/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.c - an ordinary program that touches pages with Zipf's weights and asks the kernel on which NUMA node they
 * lie; it knows nothing of Tiermesh. bench/rig_placement.sh runs it in a guest with a slower node.
 *
 *   bench_placement TOTAL_MIB NEAR_MIB SECONDS NEAR_NODE
 *
 * Which page has which weight is shuffled. All pages are first written in the order of their addresses, so what stays
 * where it came ("first come") is the first NEAR_MIB; an oracle has the heaviest NEAR_MIB there. What is told is the
 * sum of the weights of the pages that are near, as a part of the oracle's: on the way at ten times, of those pages
 * that are mapped at that time, and at the end of all, each page touched first if it is not mapped.
 */
#include "base/random.h"

#include <linux/mempolicy.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES    4096u
#define PAGES_MIB     256u
#define ZIPF_EXPONENT 0.99
#define ASKED_MAX     512u /* pages in one question */
#define TOUCHES       1024 /* between two looks at the clock */
#define REPORTS       10

static struct {
    char *memory;
    uint32_t pages_count, near_count;
    uint32_t *page_of_rank;
    double *sums;    /* of the weights up to each rank; the last is 1 */
    double *weights; /* of each page */
    uint64_t touches;
} set;

struct shares {
    double near, far, unmapped;
    uint32_t near_count, far_count;
};

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static char *page_at(uint32_t page)
{
    return set.memory + (size_t)page * PAGE_BYTES;
}

static void page_touch(uint32_t page)
{
    volatile uint64_t *word = (volatile uint64_t *)(void *)page_at(page);

    if (*word != page + UINT64_C(1)) {
        fprintf(stderr, "page %u holds %lu\n", page, (unsigned long)*word);
        exit(1);
    }
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static void weights_make(struct random *random)
{
    double sum = 0;

    set.page_of_rank = calloc(set.pages_count, sizeof(*set.page_of_rank));
    set.sums = calloc(set.pages_count, sizeof(*set.sums));
    set.weights = calloc(set.pages_count, sizeof(*set.weights));
    if (set.page_of_rank == NULL || set.sums == NULL || set.weights == NULL)
        exit(2);
    for (uint32_t rank = 0; rank < set.pages_count; rank++) {
        uint32_t other = random_below(random, rank + 1);

        set.page_of_rank[rank] = set.page_of_rank[other];
        set.page_of_rank[other] = rank;
        sum += pow(rank + 1, -ZIPF_EXPONENT);
        set.sums[rank] = sum;
    }
    for (uint32_t rank = 0; rank < set.pages_count; rank++) {
        set.weights[set.page_of_rank[rank]] = pow(rank + 1, -ZIPF_EXPONENT) / sum;
        set.sums[rank] /= sum;
    }
}

static uint32_t page_drawn(struct random *random)
{
    double drawn = (double)(random_next(random) >> 11) / 9007199254740992.0;
    uint32_t low = 0, high = set.pages_count - 1;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (set.sums[middle] <= drawn)
            low = middle + 1;
        else
            high = middle;
    }
    return set.page_of_rank[low];
}

static double first_come(void)
{
    double sum = 0;

    for (uint32_t page = 0; page < set.near_count; page++)
        sum += set.weights[page];
    return sum;
}

/* ---- where pages lie --------------------------------------------------------------------------------------------- */

static void share_add(struct shares *shares, uint32_t page, int status, int near_node)
{
    if (status == near_node) {
        shares->near += set.weights[page];
        shares->near_count++;
    } else if (status >= 0) {
        shares->far += set.weights[page];
        shares->far_count++;
    } else {
        shares->unmapped += set.weights[page];
    }
}

static void ask(uint32_t first, uint32_t count, int *status_out)
{
    void *pages[ASKED_MAX];

    for (uint32_t i = 0; i < count; i++)
        pages[i] = page_at(first + i);
    if (syscall(SYS_move_pages, 0, (unsigned long)count, pages, NULL, status_out, 0) != 0) {
        perror("move_pages");
        exit(2);
    }
}

/* Pages that are sampled are not mapped; to touch them for this would tell the sampler what is not so. */
static struct shares shares_now(int near_node)
{
    struct shares shares = {0};
    int status[ASKED_MAX];

    for (uint32_t first = 0; first < set.pages_count; first += ASKED_MAX) {
        uint32_t left = set.pages_count - first;
        uint32_t count = left < ASKED_MAX ? left : ASKED_MAX;

        ask(first, count, status);
        for (uint32_t i = 0; i < count; i++)
            share_add(&shares, first + i, status[i], near_node);
    }
    return shares;
}

static struct shares shares_at_end(int near_node)
{
    struct shares shares = {0};

    for (uint32_t page = 0; page < set.pages_count; page++) {
        int status = -1;

        ask(page, 1, &status);
        for (int tries = 0; status < 0 && tries < 100; tries++) {
            page_touch(page);
            ask(page, 1, &status);
        }
        share_add(&shares, page, status, near_node);
    }
    return shares;
}

static void report(const char *when, const struct shares *shares, double oracle)
{
    double mapped = shares->near + shares->far;

    printf("%-8s %.3f of the oracle's share; %u pages near, %u far, %u watched; %lu touches\n", when,
           mapped > 0 ? shares->near / mapped / oracle : 0, shares->near_count, shares->far_count,
           set.pages_count - shares->near_count - shares->far_count, (unsigned long)set.touches);
    fflush(stdout);
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static void touch(struct random *random, double until_s)
{
    while (now_s() < until_s) {
        for (int i = 0; i < TOUCHES; i++)
            page_touch(page_drawn(random));
        set.touches += TOUCHES;
    }
}

static void set_parse(int argc, char **argv)
{
    unsigned long total_mib = argc == 5 ? strtoul(argv[1], NULL, 10) : 0;
    unsigned long near_mib = argc == 5 ? strtoul(argv[2], NULL, 10) : 0;

    if (near_mib == 0 || near_mib > total_mib || total_mib > 65536) {
        fprintf(stderr, "usage: bench_placement TOTAL_MIB NEAR_MIB SECONDS NEAR_NODE\n");
        exit(2);
    }
    set.pages_count = (uint32_t)total_mib * PAGES_MIB;
    set.near_count = (uint32_t)near_mib * PAGES_MIB;
}

int main(int argc, char **argv)
{
    struct random random = {.state = 99};
    struct shares end;
    double time_s, start_s, oracle;
    int near_node;

    set_parse(argc, argv);
    time_s = atof(argv[3]);
    near_node = atoi(argv[4]);
    set.memory =
        mmap(NULL, (size_t)set.pages_count * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (set.memory == MAP_FAILED)
        return perror("mmap"), 2;
    weights_make(&random);
    oracle = set.sums[set.near_count - 1];
    for (uint32_t page = 0; page < set.pages_count; page++)
        *(volatile uint64_t *)(void *)page_at(page) = page + UINT64_C(1);
    start_s = now_s();
    for (int i = 1; i <= REPORTS; i++) {
        struct shares shares;
        char when[32];

        touch(&random, start_s + time_s * i / REPORTS);
        shares = shares_now(near_node);
        snprintf(when, sizeof(when), "%.0f s", now_s() - start_s);
        report(when, &shares, oracle);
    }
    end = shares_at_end(near_node);
    report("end", &end, oracle);
    printf("round placement-oracle %.3f\nround placement-first-come %.3f\nround placement %.3f\n", oracle,
           first_come() / oracle, end.near / oracle);
    return end.near_count + end.far_count == set.pages_count ? 0 : 1;
}
