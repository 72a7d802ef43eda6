/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls_edges.c - calls on intervals that cross an edge of the range: half managed, half the kernel's. Run with
 * HOOKS_PLAIN_BASE; natively it passes too, there is no edge then.
 */
#include "tests/shim/trap.h"

#include <fcntl.h>

#define HALF (16 * PAGE)

/* The lower and the upper edge of a range of 4 TiB. */
static char *edges[2];

static char *across(char *edge, uint64_t seed)
{
    char *begin = edge - HALF;

    CHECK(mmap(begin, 2 * HALF, RW, ANONYMOUS | MAP_FIXED, -1, 0) == begin);
    CHECK(zeroed(begin, 2 * HALF));
    fill(begin, 2 * HALF, seed);
    return begin;
}

static void crossing(char *edge)
{
    char *begin = across(edge, 1);
    char *other = map(2 * HALF, RW);
    char path[] = "calls_edges.XXXXXX";
    int fd = mkstemp(path);

    CHECK(fd >= 0 && unlink(path) == 0 && write(fd, begin, 2 * HALF) == 2 * (ssize_t)HALF);
    CHECK(mprotect(edge - PAGE, 2 * PAGE, PROT_READ) == 0);
    CHECK(fault_of_store(edge - 1) == SIGSEGV && fault_of_store(edge) == SIGSEGV);
    CHECK(fault_of(edge - PAGE - 1, true) == 0 && fault_of(edge + PAGE, true) == 0);
    CHECK(mprotect(begin, 2 * HALF, RW) == 0 && filled(begin, 2 * HALF, 1));
    CHECK(madvise(edge - PAGE, 2 * PAGE, MADV_DONTNEED) == 0 && zeroed(edge - PAGE, 2 * PAGE));
    CHECK(filled(begin, HALF - PAGE, 1) && filled_at(edge + PAGE, HALF - PAGE, 1, HALF + PAGE));
    CHECK(mlock(edge - PAGE, 2 * PAGE) == 0 && munlock(edge - PAGE, 2 * PAGE) == 0);
    CHECK(mmap(edge - PAGE, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, PAGE) == edge - PAGE);
    CHECK(filled_at(edge - PAGE, 2 * PAGE, 1, PAGE)); /* offsets go on across the edge */
    CHECK(munmap(edge - 2 * PAGE, 4 * PAGE) == 0);
    CHECK(fault_of(edge - 1, false) == SIGSEGV && fault_of(edge, false) == SIGSEGV);
    CHECK_ERROR(mprotect(begin, 2 * HALF, RW), ENOMEM);
    CHECK_ERROR(madvise(begin, 2 * HALF, MADV_WILLNEED), ENOMEM);
    CHECK(filled(begin, HALF - 2 * PAGE, 1));
    /* Onto the edge. */
    fill(other, 2 * HALF, 2);
    CHECK(mremap(other, 2 * HALF, 2 * HALF, MREMAP_MAYMOVE | MREMAP_FIXED, begin) == begin);
    CHECK(filled(begin, 2 * HALF, 2) && fault_of(other, false) == SIGSEGV);
    CHECK(munmap(begin, 2 * HALF) == 0 && munmap(begin, 2 * HALF) == 0);
    CHECK(fault_of(begin, false) == SIGSEGV && fault_of(edge, false) == SIGSEGV);
    close(fd);
}

/* Room on the other side of an edge does not count as free. */
static void growing(char *edge)
{
    char *begin = across(edge, 3);

    CHECK(munmap(edge, HALF) == 0);
    begin = mremap(begin, HALF, 2 * HALF, MREMAP_MAYMOVE);
    CHECK(begin != MAP_FAILED && filled(begin, HALF, 3) && zeroed(begin + HALF, HALF));
    CHECK(munmap(begin, 2 * HALF) == 0);
}

static void lower(void)
{
    crossing(edges[0]);
    growing(edges[0]);
}

static void upper(void)
{
    crossing(edges[1]);
    growing(edges[1]);
}

int main(int argc, char **argv)
{
    const struct trap_case cases[] = {{"lower", lower}, {"upper", upper}};
    char *base = (char *)trap_number("HOOKS_PLAIN_BASE", 1UL << 44);

    edges[0] = base;
    edges[1] = base + (4UL << 40);
    return trap_main(argc, argv, cases, 2);
}
