/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk.c - what the disk allows: random touches of a set of pages of which a part is in memory and costs nothing, and
 * each other page is one read of the disk and nothing more. No pager that must read such pages can do better.
 *
 *   bench_disk FILE SET_MIB PERCENT_IN_MEMORY THREADS
 *
 * FILE is made, unlinked, and read past the page cache. Says "ready", then answers like bench_pattern.
 */
#include "base/random.h"
#include "bench/walkers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE_BYTES  4096
#define BLOCK_BYTES (1 << 20)

static struct {
    int file;
    size_t pages_count;
    unsigned percent_in_memory, threads_count;
} set;

static struct random randoms[WALKERS_MAX];

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void file_make(const char *path, size_t size_bytes)
{
    struct random random = {.state = 7};
    uint64_t *block = aligned_alloc(PAGE_BYTES, BLOCK_BYTES);

    set.file = open(path, O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);
    if (set.file < 0 || unlink(path) != 0 || block == NULL)
        fail(path);
    for (size_t i = 0; i < BLOCK_BYTES / sizeof(*block); i++)
        block[i] = random_next(&random);
    for (size_t at = 0; at < size_bytes; at += BLOCK_BYTES)
        if (pwrite(set.file, block, BLOCK_BYTES, (off_t)at) != BLOCK_BYTES)
            fail("write");
    free(block);
}

static uint64_t reader_run(unsigned number, const _Atomic(bool) *stop)
{
    char *page = aligned_alloc(PAGE_BYTES, PAGE_BYTES);
    uint64_t touched = 0;

    if (page == NULL)
        fail("memory");
    while (!atomic_load_explicit(stop, memory_order_relaxed)) {
        size_t at = random_below(&randoms[number], (uint32_t)set.pages_count);

        if (random_below(&randoms[number], 100) >= set.percent_in_memory &&
            pread(set.file, page, PAGE_BYTES, (off_t)(at * PAGE_BYTES)) != PAGE_BYTES)
            fail("read");
        touched++;
    }
    free(page);
    return touched;
}

int main(int argc, char **argv)
{
    if (argc == 5) {
        set.pages_count = strtoul(argv[2], NULL, 10) << (20 - 12);
        set.percent_in_memory = (unsigned)strtoul(argv[3], NULL, 10);
        set.threads_count = (unsigned)strtoul(argv[4], NULL, 10);
    }
    if (set.pages_count == 0 || set.threads_count == 0 || set.threads_count > WALKERS_MAX) {
        fprintf(stderr, "usage: bench_disk FILE SET_MIB PERCENT_IN_MEMORY THREADS\n");
        return 2;
    }
    file_make(argv[1], set.pages_count * PAGE_BYTES);
    for (unsigned i = 0; i < set.threads_count; i++)
        randoms[i].state = 1000 + i;
    walkers_answer(set.threads_count, reader_run);
    return 0;
}
