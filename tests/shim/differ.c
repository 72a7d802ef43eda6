/* SPDX-License-Identifier: Apache-2.0 */
/*
 * differ.c - does at random, from a seed, what programs do to mappings, and prints what each call said and what the
 * memory holds. `differ SEED STEPS`. differ.sh compares what it prints natively with what it prints managed.
 *
 * Memory is read and written by process_vm_readv and process_vm_writev, which say where nothing may be touched. A plant
 * (DIFFER_PLANT) changes one byte on the way: that must be told.
 */
#include "tests/shim/trap.h"

#include <fcntl.h>
#include <sys/uio.h>

#define PAGES      192
#define FILE_PAGES 128
#define DEPTH_MAX  2

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#define MADV_DONTNEED_EVEN_LOCKED 24

static struct {
    char *arena;
    int file;
    int depth; /* of forks */
    uint64_t random;
} differ;

/* What a step works on, drawn whether it needs it or not. */
struct step {
    size_t first, count;  /* pages */
    size_t target, other; /* a second place, and its pages */
    int protection;
    unsigned bits;
};

static uint64_t draw(void)
{
    differ.random ^= differ.random << 13;
    differ.random ^= differ.random >> 7;
    differ.random ^= differ.random << 17;
    return differ.random * 0x2545f4914f6cdd1dU >> 11;
}

static void draw_place(size_t *ret_first, size_t *ret_count)
{
    size_t first = draw() % PAGES, most = draw() % 4 != 0 ? 8 : 64;
    size_t count = 1 + draw() % most;

    *ret_first = first;
    *ret_count = count < PAGES - first ? count : PAGES - first;
}

static char *address(size_t page)
{
    return differ.arena + page * PAGE;
}

static void tell(const char *what, const struct step *step, long extra, long result)
{
    printf("%d %s %zu+%zu %lx: %s\n", differ.depth, what, step->first, step->count, extra,
           result == -1 ? strerrorname_np(errno) : "ok");
}

/* ---- contents --------------------------------------------------------------------------------------------------- */

static uint64_t page_hash(size_t page)
{
    static uint64_t words[PAGE / sizeof(uint64_t)];
    struct iovec here = {words, PAGE}, there = {address(page), PAGE};
    uint64_t hash = 1469598103934665603U;

    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != (ssize_t)PAGE)
        return 0;
    for (size_t i = 0; i < PAGE / sizeof(words[0]); i++) {
        hash = (hash ^ words[i]) * 1099511628211U;
        hash ^= hash >> 29;
    }
    return hash;
}

static void tell_contents(const char *when)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < PAGES; i++)
        hash = hash * 31 + page_hash(i);
    printf("%d %s %lx\n", differ.depth, when, hash);
}

static void write_pages(size_t first, size_t count)
{
    static char bytes[PAGE];

    for (size_t i = first; i < first + count; i++) {
        uint64_t seed = draw() % 5;
        size_t size = draw() % 3 != 0 ? PAGE : draw() % PAGE;
        struct iovec here = {bytes, size}, there = {address(i), size};

        if (seed != 0)
            fill(bytes, PAGE, seed * 1000 + draw() % 100000);
        else
            memset(bytes, 0, PAGE);
        if (process_vm_writev(getpid(), &here, 1, &there, 1, 0) != (ssize_t)size)
            printf("%d write %zu: %s\n", differ.depth, i, strerrorname_np(errno));
    }
}

static void step_write(struct step *step)
{
    if (getenv("DIFFER_PLANT") != NULL && page_hash(step->first) != 0) {
        struct iovec here = {(char *)(uintptr_t) "!", 1}, there = {address(step->first), 1};

        (void)process_vm_writev(getpid(), &here, 1, &there, 1, 0);
    } else {
        write_pages(step->first, step->count < 8 ? step->count : 8);
    }
}

/* A few bytes through a pipe: the kernel reads and writes them for us. */
static void step_pipe(struct step *step)
{
    int ends[2];
    long done;

    CHECK(pipe(ends) == 0);
    done = write(ends[1], address(step->first) + step->bits * 8, 100);
    tell("pipe out of", step, step->bits, done);
    if (done == 100) {
        done = read(ends[0], address(step->target) + 40, 100);
        tell("pipe into", step, (long)step->target, done);
    }
    close(ends[0]);
    close(ends[1]);
}

/* ---- mappings --------------------------------------------------------------------------------------------------- */

static void map_at(const char *what, struct step *step, int protection, int flags, int file)
{
    off_t offset = file >= 0 ? (off_t)(draw() % (FILE_PAGES / 2) * PAGE) : 0;
    long result = (long)mmap(address(step->first), step->count * PAGE, protection, flags, file, offset);

    tell(what, step, protection, result);
}

static void step_map(struct step *step)
{
    const int more = (step->bits & 1 ? MAP_NORESERVE : 0) | (step->bits & 2 ? MAP_POPULATE : 0);

    map_at("map", step, step->protection, ANONYMOUS | MAP_FIXED | more, -1);
}

static void step_map_file(struct step *step)
{
    map_at("map file", step, step->protection & ~PROT_EXEC, (step->bits & 1 ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED,
           differ.file);
}

static void step_map_shared(struct step *step)
{
    map_at("map shared", step, step->protection, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1);
}

static void step_map_free(struct step *step)
{
    map_at("map free", step, step->protection, ANONYMOUS | MAP_FIXED_NOREPLACE, -1);
}

static void step_unmap(struct step *step)
{
    tell("unmap", step, 0, munmap(address(step->first), step->count * PAGE - (step->bits & 1 ? 100 : 0)));
}

static void step_protect(struct step *step)
{
    tell("protect", step, step->protection, mprotect(address(step->first), step->count * PAGE, step->protection));
}

static void step_advise(struct step *step)
{
    static const int advices[] = {MADV_DONTNEED,   MADV_DONTNEED,   MADV_DONTNEED,   MADV_WIPEONFORK,
                                  MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_DONTFORK,   MADV_DONTFORK,
                                  MADV_DOFORK,     MADV_WILLNEED,   MADV_COLD,       MADV_PAGEOUT,
                                  MADV_RANDOM,     MADV_NORMAL,     MADV_SEQUENTIAL, MADV_REMOVE,
                                  MADV_DONTDUMP,   MADV_DODUMP,     MADV_NOHUGEPAGE, MADV_DONTNEED_EVEN_LOCKED};
    int advice = advices[draw() % (sizeof(advices) / sizeof(advices[0]))];

    tell("advise", step, advice, madvise(address(step->first), step->count * PAGE, advice));
}

static void step_lock(struct step *step)
{
    size_t size = (step->count < 4 ? step->count : 4) * PAGE;

    tell("lock", step, 0, mlock(address(step->first), size));
    munlock(address(step->first), size);
}

static void step_sync(struct step *step)
{
    int flags = step->bits & 1 ? MS_SYNC : MS_ASYNC;

    tell("sync", step, flags, msync(address(step->first), step->count * PAGE, flags));
}

/* ---- mremap ----------------------------------------------------------------------------------------------------- */

static void step_shrink(struct step *step)
{
    size_t to = 1 + draw() % step->count;
    long result =
        (long)mremap(address(step->first), step->count * PAGE, to * PAGE, step->bits & 1 ? MREMAP_MAYMOVE : 0);

    tell("shrink", step, (long)to, result);
}

/* Which neighbours are one mapping is the kernel's to say, and with it whether there is room: EFAULT or ENOMEM. */
static void step_grow(struct step *step)
{
    size_t to = 1 + draw() % 8;
    long result;

    to = to < PAGES - step->first ? to : PAGES - step->first;
    step->count = 1;
    result = (long)mremap(address(step->first), PAGE, to * PAGE, 0);
    if (result == -1 && errno == ENOMEM)
        errno = EFAULT;
    tell("grow", step, (long)to, result);
}

/* Of one page whatever it is, or of several that are one mapping. */
static void step_move(struct step *step)
{
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (step->bits & 2 ? MREMAP_DONTUNMAP : 0);
    char *from = address(step->first);
    size_t to;
    long result;

    if (step->bits & 8) {
        step->count = 1;
    } else {
        CHECK(mmap(from, step->count * PAGE, RW, ANONYMOUS | MAP_FIXED, -1, 0) == from);
        write_pages(step->first, step->count);
        if (step->bits & 32)
            madvise(from, step->count * PAGE, step->bits & 4 ? MADV_WIPEONFORK : MADV_DONTFORK);
        mprotect(from, step->count * PAGE, step->protection);
        if (step->bits & 16)
            pressure();
    }
    to = step->bits & 1 ? step->count : step->other;
    to = to < PAGES - step->target ? to : PAGES - step->target;
    result = (long)mremap(from, step->count * PAGE, to * PAGE, flags, address(step->target));
    tell("move", step, (long)(step->target << 16 | to << 4) | (flags & MREMAP_DONTUNMAP), result);
    CHECK(result == -1 || result == (long)address(step->target));
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */

static void steps(int count);

static void step_fork(struct step *step)
{
    uint64_t random = draw();
    pid_t child;

    if (differ.depth == DEPTH_MAX)
        return;
    fflush(stdout);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        differ.depth++;
        tell_contents("child");
        differ.random = random | 1;
        steps(20);
        tell_contents("child's end");
        fflush(stdout);
        _exit(0);
    }
    tell("fork", step, 0, child_end(child) == 0 ? 0 : -1);
}

static void step_pressure(struct step *step)
{
    (void)step;
    pressure();
    tell_contents("contents");
}

static const struct {
    unsigned share; /* of a hundred */
    void (*run)(struct step *step);
} kinds[] = {{14, step_map},  {3, step_map_file}, {2, step_map_shared}, {2, step_map_free},
             {6, step_unmap}, {9, step_protect},  {9, step_advise},     {3, step_shrink},
             {3, step_grow},  {8, step_move},     {21, step_write},     {3, step_sync},
             {2, step_lock},  {6, step_pipe},     {4, step_fork},       {5, step_pressure}};

static void steps(int count)
{
    static const int protections[] = {RW, RW, RW, PROT_READ, PROT_NONE, RW | PROT_EXEC, PROT_WRITE};

    for (int i = 0; i < count; i++) {
        unsigned share = (unsigned)(draw() % 100);
        struct step step = {.bits = (unsigned)(draw() % 64)};
        size_t kind = 0;

        draw_place(&step.first, &step.count);
        draw_place(&step.target, &step.other);
        step.protection = protections[draw() % (sizeof(protections) / sizeof(protections[0]))];
        for (unsigned below = kinds[0].share; share >= below; below += kinds[++kind].share)
            ;
        errno = 0;
        kinds[kind].run(&step);
    }
}

/* Inside a larger reservation, so that nothing else comes near and the edges of extents lie in it. */
static void arena_make(void)
{
    const size_t extent = 2 * MIB;
    uintptr_t around = (uintptr_t)map((PAGES + 1024) * PAGE, PROT_NONE);

    differ.arena = (char *)((around + extent - 1) / extent * extent + extent - PAGES / 2 * PAGE);
    CHECK(mmap(differ.arena, PAGES * PAGE, RW, ANONYMOUS | MAP_FIXED, -1, 0) == differ.arena);
    write_pages(0, PAGES);
    push_out(differ.arena, PAGES * PAGE);
}

static void file_make(void)
{
    static char bytes[PAGE];

    differ.file = memfd_create("differ", 0);
    for (size_t i = 0; i < FILE_PAGES; i++) {
        fill(bytes, PAGE, 77 + i);
        CHECK(pwrite(differ.file, bytes, PAGE, (off_t)(i * PAGE)) == (ssize_t)PAGE);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    differ.random = strtoul(argv[1], NULL, 0) * 0x9e3779b97f4a7c15U | 1;
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    file_make();
    arena_make();
    steps(atoi(argv[2]));
    tell_contents("end");
    return 0;
}
