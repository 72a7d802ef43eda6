/* SPDX-License-Identifier: Apache-2.0 */
/*
 * synthetic_traces.c - writes small page traces (PT1) whose makeup is known: bench_synthetic_traces DIRECTORY.
 *
 *   loop     1200 pages in order, over and over: larger than memory, LRU's worst case
 *   zipf     skewed use of 8000 pages, with a scan of 2000 others every 20,000 touches
 *   phases   a working set of 500 pages that moves to other pages every 30,000 touches, loops in between
 *   drift    a working set that moves by one page every eight touches
 *   tiny     900 touches of 200 pages: over before anything is learned
 */
#include "base/pt1.h"
#include "base/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOUCHES_MAX 300000u

struct list {
    uint32_t count;
    uint64_t pages[TOUCHES_MAX];
};

static void add(struct list *list, uint64_t page)
{
    if (list->count < TOUCHES_MAX)
        list->pages[list->count++] = 0x10000 + page;
}

static void loop_fill(struct list *list, struct random *random)
{
    (void)random;
    for (uint32_t i = 0; i < 100000; i++)
        add(list, i % 1200);
}

/* About zipf: the rank is exponential in a uniform number. */
static void zipf_fill(struct list *list, struct random *random)
{
    for (uint32_t i = 0; list->count < TOUCHES_MAX; i++) {
        double uniform = (double)random_below(random, 1u << 30) / (double)(1u << 30);

        add(list, (uint64_t)exp(uniform * log(8000)) * 7919 % 8009);
        for (uint32_t k = 0; i % 20000 == 19999 && k < 2000; k++)
            add(list, 10000 + i / 20000 * 2000 % 10000 + k);
    }
}

static void phases_fill(struct list *list, struct random *random)
{
    for (uint32_t phase = 0; phase < 8; phase++)
        for (uint32_t i = 0; i < 30000; i++)
            add(list, phase % 2 == 0 ? phase * 500 + random_below(random, 500) : 20000 + i % 900);
}

static void drift_fill(struct list *list, struct random *random)
{
    for (uint32_t i = 0; i < 200000; i++)
        add(list, i / 8 + random_below(random, 1500));
}

static void tiny_fill(struct list *list, struct random *random)
{
    for (uint32_t i = 0; i < 900; i++)
        add(list, i % 3 == 0 ? i / 3 % 150 : 150 + random_below(random, 50));
}

static int list_write(const struct list *list, const char *path)
{
    static uint8_t bytes[PT1_HEAD_BYTES + TOUCHES_MAX * (PT1_VARINT_MAX + 3)];
    FILE *file = fopen(path, "wbe");
    size_t used = PT1_HEAD_BYTES;

    if (file == NULL)
        return -1;
    pt1_head_put(bytes, list->count, (uint64_t)list->count * 10, 1, 0);
    used += pt1_pages_put(bytes + used, list->pages, list->count);
    memset(bytes + used, 10, list->count);
    used += list->count;
    memset(bytes + used, 0, (list->count + 7) / 8 + list->count);
    used += (list->count + 7) / 8 + list->count;
    fwrite(bytes, 1, used, file);
    return fclose(file);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*fill)(struct list *list, struct random *random);
    } traces[] = {
        {"loop", loop_fill}, {"zipf", zipf_fill}, {"phases", phases_fill}, {"drift", drift_fill}, {"tiny", tiny_fill},
    };
    struct list *list = malloc(sizeof(*list));
    struct random random = {4};
    char path[4096];

    if (argc != 2 || list == NULL) {
        fprintf(stderr, "usage: bench_synthetic_traces DIRECTORY\n");
        return 64;
    }
    for (size_t i = 0; i < sizeof(traces) / sizeof(traces[0]); i++) {
        list->count = 0;
        traces[i].fill(list, &random);
        snprintf(path, sizeof(path), "%s/%s.pt", argv[1], traces[i].name);
        if (list_write(list, path) != 0) {
            perror(path);
            return 1;
        }
    }
    free(list);
    return 0;
}
