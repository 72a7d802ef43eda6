/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.c - what the memory of a guest can do, with plain system calls; the scripts of guest/ run it.
 *
 *   probe node N                 pages are placed on node N, moved from there and back, and filled there by userfaultfd
 *   probe dax FILE               a devdax file keeps what is stored, and refuses what its alignment forbids
 *   probe pool FILE add COUNT    adds 1 to a word of shared memory COUNT times, atomically
 *   probe pool FILE total        prints that word
 *   probe pool FILE write|check NODE   fills the part of a node, or checks what another guest has put there
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <linux/userfaultfd.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE_BYTES  4096UL
#define PAGES_COUNT 512UL
#define DAX_BYTES   (4UL << 20)
#define DAX_ALIGN   (2UL << 20)
#define PART_BYTES  (1UL << 20)

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "probe: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void check(int is_right, const char *what)
{
    if (!is_right) {
        fprintf(stderr, "probe: wrong: %s\n", what);
        exit(1);
    }
}

static char *pages_map(int node)
{
    unsigned long mask = 1UL << node;
    char *pages = mmap(NULL, PAGES_COUNT * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (pages == MAP_FAILED)
        fail("map memory");
    if (syscall(SYS_mbind, pages, PAGES_COUNT * PAGE_BYTES, MPOL_BIND, &mask, 64UL, 0) != 0)
        fail("bind memory to the node");
    return pages;
}

/* Moves every page to the node, or only asks where they are when it is negative; how many are on `wanted`. */
static unsigned pages_on_once(char *pages, int to, int wanted)
{
    static void *at[PAGES_COUNT];
    static int target[PAGES_COUNT], status[PAGES_COUNT];
    unsigned found = 0;

    for (size_t i = 0; i < PAGES_COUNT; i++) {
        at[i] = pages + i * PAGE_BYTES;
        target[i] = to;
    }
    if (syscall(SYS_move_pages, 0, PAGES_COUNT, at, to < 0 ? NULL : target, status, MPOL_MF_MOVE) < 0)
        fail("move_pages");
    for (size_t i = 0; i < PAGES_COUNT; i++)
        found += status[i] == wanted;
    return found;
}

/* A page that the kernel just looks at itself stays where it is, so a move is asked for again. */
static unsigned pages_on(char *pages, int to, int wanted)
{
    unsigned found = pages_on_once(pages, to, wanted);

    for (unsigned tries = 0; to >= 0 && found < PAGES_COUNT && tries < 10; tries++) {
        usleep(10000);
        found = pages_on_once(pages, to, wanted);
    }
    return found;
}

static void pages_fill(char *pages)
{
    for (size_t i = 0; i < PAGES_COUNT; i++)
        memset(pages + i * PAGE_BYTES, (int)(i % 251 + 1), PAGE_BYTES);
}

static int pages_are_filled(const char *pages)
{
    for (size_t i = 0; i < PAGES_COUNT; i++)
        if (pages[i * PAGE_BYTES] != (char)(i % 251 + 1) || pages[(i + 1) * PAGE_BYTES - 1] != (char)(i % 251 + 1))
            return 0;
    return 1;
}

static void fill_by_userfaultfd(int node)
{
    char *pages = pages_map(node);
    char *source = pages_map(0);
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.range = {(uintptr_t)pages, PAGES_COUNT * PAGE_BYTES},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    struct uffdio_copy copy = {.dst = (uintptr_t)pages, .src = (uintptr_t)source, .len = PAGES_COUNT * PAGE_BYTES};

    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0 || ioctl(fd, UFFDIO_REGISTER, &range) != 0)
        fail("userfaultfd");
    pages_fill(source);
    if (ioctl(fd, UFFDIO_COPY, &copy) != 0)
        fail("UFFDIO_COPY");
    check(pages_are_filled(pages), "bytes that userfaultfd filled");
    check(pages_on(pages, -1, node) == PAGES_COUNT, "pages that userfaultfd filled lie on the node");
    close(fd);
}

static int probe_node(int node)
{
    char *pages = pages_map(node);
    unsigned bound, left, back;

    pages_fill(pages);
    bound = pages_on(pages, -1, node);
    /* The binding is for new pages only: existing ones go where move_pages sends them. */
    left = pages_on(pages, 0, 0);
    check(pages_are_filled(pages), "bytes of pages that left the node");
    back = pages_on(pages, node, node);
    check(pages_are_filled(pages), "bytes of pages that came back");
    fill_by_userfaultfd(node);
    printf("node %d: of %lu pages %u bound, %u moved to node 0, %u moved back, filled by userfaultfd\n", node,
           PAGES_COUNT, bound, left, back);
    check(bound == PAGES_COUNT && left == PAGES_COUNT && back == PAGES_COUNT, "pages are where they were sent");
    return 0;
}

static char *dax_map(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char *memory;

    if (fd < 0)
        fail(path);
    memory = mmap(NULL, DAX_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        fail("map the devdax file");
    close(fd);
    return memory;
}

static int probe_dax(const char *path)
{
    char *memory = dax_map(path);
    char *again;
    int fd;

    for (size_t at = 0; at < DAX_BYTES; at += PAGE_BYTES)
        memset(memory + at, (int)(at / PAGE_BYTES % 251 + 1), 64);
    munmap(memory, DAX_BYTES);
    again = dax_map(path);
    for (size_t at = 0; at < DAX_BYTES; at += PAGE_BYTES)
        check(again[at] == (char)(at / PAGE_BYTES % 251 + 1), "bytes after the file was mapped again");
    fd = open(path, O_RDWR | O_CLOEXEC);
    check(mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, fd, PAGE_BYTES) == MAP_FAILED && errno == EINVAL,
          "an offset that is not aligned is refused");
    check(mmap(NULL, DAX_ALIGN, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == EINVAL,
          "a private mapping is refused");
    close(fd);
    printf("%s: %lu bytes kept, wrong mappings refused\n", path, DAX_BYTES);
    return 0;
}

static int probe_pool(const char *path, const char *what, long number)
{
    char *memory = dax_map(path);
    _Atomic uint64_t *total = (_Atomic uint64_t *)memory;
    uint64_t *part = (uint64_t *)(memory + PART_BYTES * (unsigned long)number);

    if (strcmp(what, "add") == 0) {
        for (long i = 0; i < number; i++)
            atomic_fetch_add(total, 1);
        return 0;
    }
    if (strcmp(what, "total") == 0) {
        printf("%" PRIu64 "\n", atomic_load(total));
        return 0;
    }
    check(number > 0 && (unsigned long)number < DAX_BYTES / PART_BYTES, "the number of a node");
    for (size_t i = 0; i < PART_BYTES / sizeof(*part); i++) {
        uint64_t value = (uint64_t)number << 32 | i;

        if (strcmp(what, "write") == 0)
            part[i] = value;
        else
            check(part[i] == value, "bytes that another guest stored");
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "node") == 0)
        return probe_node(atoi(argv[2]));
    if (argc == 3 && strcmp(argv[1], "dax") == 0)
        return probe_dax(argv[2]);
    if (argc >= 4 && strcmp(argv[1], "pool") == 0)
        return probe_pool(argv[2], argv[3], argc > 4 ? atol(argv[4]) : 0);
    fprintf(stderr, "usage: probe node N | dax FILE | pool FILE add COUNT|total|write NODE|check NODE\n");
    return 2;
}
