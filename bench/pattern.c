/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.c - an ordinary program that touches the pages of one large block in some order; it knows nothing of
 * Tiermesh. Its memory is managed by the kernel or by the preload library.
 *
 *   bench_pattern SET_MIB ORDER [THREADS [store [text]]]
 *
 * ORDER is sequential, strided (every 16th page, then those behind them), random, or list: each page says which comes
 * next, all of them once around in no order. Fills the block, reads all of it
 * once, so that what is not in memory has a copy where it went, and says "ready". Then, for each line of its input that
 * names a number of seconds: touches for so long, as `store` writes, and says how many pages a second.
 *
 * Each page starts with its number, which is checked at each touch; the rest of it does not compress, or, as `text`, to
 * a third.
 */
#include "base/random.h"
#include "bench/walkers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096
#define STRIDE     16

enum order {
    SEQUENTIAL,
    STRIDED,
    RANDOM,
    LIST,
};

static struct {
    char *memory;
    size_t pages_count;
    enum order order;
    unsigned threads_count;
    bool is_store, is_text;
} set;

struct walker {
    struct random random;
    size_t at;
};

static struct walker walkers[WALKERS_MAX];

static void page_fill(size_t page, struct random *random)
{
    char *bytes = set.memory + page * PAGE_BYTES;
    size_t random_bytes = set.is_text ? PAGE_BYTES / 3 / 16 * 16 : PAGE_BYTES;

    for (size_t i = 0; i < random_bytes; i += sizeof(uint64_t)) {
        uint64_t word = random_next(random);

        memcpy(bytes + i, &word, sizeof(word));
    }
    for (size_t i = random_bytes; i < PAGE_BYTES; i += 16)
        memcpy(bytes + i, "0123456789abcdef", 16);
    memcpy(bytes, &page, sizeof(page));
}

/* One ring of all pages (Sattolo's shuffle). */
static void pages_link(struct random *random)
{
    size_t *next = malloc(set.pages_count * sizeof(*next));

    if (next == NULL)
        exit(1);
    for (size_t page = 0; page < set.pages_count; page++)
        next[page] = page;
    for (size_t page = set.pages_count; page-- > 1;) {
        size_t other = random_below(random, (uint32_t)page);
        size_t kept = next[page];

        next[page] = next[other];
        next[other] = kept;
    }
    for (size_t page = 0; page < set.pages_count; page++)
        memcpy(set.memory + page * PAGE_BYTES + 2 * sizeof(*next), &next[page], sizeof(*next));
    free(next);
}

static void page_touch(size_t page)
{
    volatile size_t *number = (volatile size_t *)(void *)(set.memory + page * PAGE_BYTES);

    if (*number != page) {
        fprintf(stderr, "page %zu holds what belongs to page %zu\n", page, *number);
        exit(1);
    }
    if (set.is_store)
        number[1]++;
}

/* The next page of this thread's walk. */
static size_t walk(struct walker *walker)
{
    size_t at = walker->at;

    switch (set.order) {
    case SEQUENTIAL:
        walker->at = at + 1 < set.pages_count ? at + 1 : 0;
        return at;
    case STRIDED:
        walker->at = at + STRIDE < set.pages_count ? at + STRIDE : (at + 1) % STRIDE;
        return at;
    case LIST:
        memcpy(&walker->at, set.memory + at * PAGE_BYTES + 2 * sizeof(at), sizeof(at));
        return at;
    case RANDOM:
        break;
    }
    return random_below(&walker->random, (uint32_t)set.pages_count);
}

static uint64_t pattern_run(unsigned number, const _Atomic(bool) *stop)
{
    struct walker *walker = &walkers[number];
    uint64_t touched = 0;

    while (!atomic_load_explicit(stop, memory_order_relaxed)) {
        page_touch(walk(walker));
        touched++;
    }
    return touched;
}

static void set_parse(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bench_pattern SET_MIB sequential|strided|random|list [THREADS [store|load [text]]]\n");
        exit(2);
    }
    set.pages_count = strtoul(argv[1], NULL, 10) << (20 - 12);
    set.order = argv[2][0] == 'r' ? RANDOM : argv[2][0] == 'l' ? LIST : argv[2][1] == 'e' ? SEQUENTIAL : STRIDED;
    set.threads_count = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 1;
    set.is_store = argc > 4 && strcmp(argv[4], "store") == 0;
    set.is_text = argc > 5 && strcmp(argv[5], "text") == 0;
    if (set.pages_count == 0 || set.threads_count == 0 || set.threads_count > WALKERS_MAX)
        exit(2);
}

int main(int argc, char **argv)
{
    struct random random = {.state = 7};

    set_parse(argc, argv);
    set.memory = aligned_alloc(PAGE_BYTES, set.pages_count * PAGE_BYTES);
    if (set.memory == NULL)
        return 1;
    for (size_t page = 0; page < set.pages_count; page++)
        page_fill(page, &random);
    if (set.order == LIST)
        pages_link(&random);
    for (size_t page = 0; page < set.pages_count; page++)
        page_touch(page);
    for (unsigned i = 0; i < set.threads_count; i++)
        walkers[i] = (struct walker){.random = {.state = 1000 + i}, .at = set.pages_count / set.threads_count * i};
    walkers_answer(set.threads_count, pattern_run);
    return 0;
}
