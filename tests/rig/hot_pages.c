/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hot_pages.c - a program that knows nothing of Tiermesh: touches much memory once and a part of it over and over, then
 * asks the kernel on which NUMA node its pages lie.
 *
 *   hot_pages TOTAL_MIB HOT_MIB SECONDS NEAR_NODE
 *
 * The hot part comes first, so that "first come stays" would be wrong only if the pages were sent away for those that
 * came later: the first half of SECONDS is spent on another hot part, at the end. Prints counts; 1: contents are wrong,
 * or less than 80 % of the hot pages are near, or some of the others are not far.
 */
#include <linux/mempolicy.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE      4096u
#define PAGES_MIB 256u

static uint64_t now_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static volatile uint64_t *page_at(char *memory, unsigned page)
{
    return (volatile uint64_t *)(void *)(memory + (size_t)page * PAGE);
}

/* False: a page had other contents. */
static int touch(char *memory, unsigned first, unsigned count, unsigned seconds)
{
    uint64_t until_ns = now_ns() + seconds * UINT64_C(1000000000);
    uint64_t state = first + 1;
    int good = 1;

    while (now_ns() < until_ns) {
        for (int i = 0; i < 256; i++) {
            unsigned page;

            state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
            page = first + (unsigned)((state >> 33) % count);
            good &= *page_at(memory, page) == page + UINT64_C(1);
        }
        usleep(200);
    }
    return good;
}

/* How many of these pages lie on the node; *ret_elsewhere: mapped, but on another. */
static unsigned count_on(char *memory, unsigned first, unsigned count, int node, unsigned *ret_elsewhere)
{
    unsigned found = 0;

    *ret_elsewhere = 0;
    for (unsigned i = 0; i < count; i++) {
        void *page = memory + (size_t)(first + i) * PAGE;
        int status = -1;

        (void)*page_at(memory, first + i); /* it may be unmapped to see whether it is touched */
        if (syscall(SYS_move_pages, 0, 1UL, &page, NULL, &status, 0) != 0)
            continue;
        found += status == node;
        *ret_elsewhere += status >= 0 && status != node;
    }
    return found;
}

int main(int argc, char **argv)
{
    unsigned total = argc == 5 ? (unsigned)atoi(argv[1]) * PAGES_MIB : 0;
    unsigned hot = argc == 5 ? (unsigned)atoi(argv[2]) * PAGES_MIB : 0;
    unsigned seconds = argc == 5 ? (unsigned)atoi(argv[3]) : 0;
    unsigned near, far, near_rest, far_rest;
    char *memory;
    int good;

    if (total == 0 || hot == 0 || 2 * hot > total)
        return fputs("usage: hot_pages TOTAL_MIB HOT_MIB SECONDS NEAR_NODE\n", stderr), 2;
    memory = mmap(NULL, (size_t)total * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return perror("mmap"), 2;
    for (unsigned i = 0; i < total; i++)
        *page_at(memory, i) = i + UINT64_C(1);
    good = touch(memory, total - hot, hot, seconds / 2);
    good &= touch(memory, 0, hot, seconds - seconds / 2);
    near = count_on(memory, 0, hot, atoi(argv[4]), &far);
    near_rest = count_on(memory, hot, total - hot, atoi(argv[4]), &far_rest);
    printf("hot pages: %u near, %u far, of %u; the others: %u near, %u far, of %u; contents %s\n", near, far, hot,
           near_rest, far_rest, total - hot, good ? "right" : "WRONG");
    return good && near * 10 >= hot * 8 && far_rest > 0 ? 0 : 1;
}
