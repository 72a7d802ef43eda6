/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_remap.c - mremap in all its ways, with the bytes elsewhere (T17, T18).
 */
#include "tests/shim/trap.h"

#define SIZE (32 * PAGE)

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static void in_place(void)
{
    char *memory = map_filled(2 * SIZE, 1);

    push_out(memory, 2 * SIZE);
    CHECK(mremap(memory, 2 * SIZE, SIZE, 0) == memory);
    CHECK(fault_of(memory + SIZE, false) == SIGSEGV && filled(memory, SIZE, 1));
    /* What was cut off is free, so there is room. */
    CHECK(mremap(memory, SIZE, 2 * SIZE, 0) == memory);
    CHECK(filled(memory, SIZE, 1) && zeroed(memory + SIZE, SIZE));
    CHECK(mremap(memory, 2 * SIZE, 2 * SIZE, 0) == memory);
    CHECK(munmap(memory, 2 * SIZE) == 0);
}

/* Grows from 128 KiB to 16 MiB; in the way stands something each time. */
static void growing(void)
{
    size_t size = SIZE;
    char *memory = map_filled(size, 2);

    while (size < 16 * MIB) {
        char *blocker = mmap(memory + size, PAGE, PROT_NONE, ANONYMOUS | 0x100000 /* FIXED_NOREPLACE */, -1, 0);
        char *moved = mremap(memory, size, 2 * size, MREMAP_MAYMOVE);

        CHECK(moved != MAP_FAILED && moved != memory);
        CHECK(fault_of(memory, false) == SIGSEGV);
        CHECK(filled(moved, size, 2) && zeroed(moved + size, size));
        if (blocker != MAP_FAILED)
            CHECK(munmap(blocker, PAGE) == 0);
        size *= 2;
        memory = moved;
        fill(memory, size, 2);
        push_out(memory, size);
    }
    CHECK(filled(memory, size, 2));
    CHECK(munmap(memory, size) == 0);
}

static void blocked(void)
{
    char *memory = map_filled(2 * SIZE, 3);

    CHECK_ERROR(mremap(memory, SIZE, 2 * SIZE, 0), ENOMEM);
    CHECK(filled(memory, 2 * SIZE, 3));
    CHECK(munmap(memory, 2 * SIZE) == 0);
}

/* Of every pair of sizes, into a place that has something of its own. */
static void fixed(void)
{
    const size_t sizes[] = {SIZE, SIZE / 2, 2 * SIZE};

    for (size_t i = 0; i < 3; i++) {
        char *memory = map_filled(SIZE, 4);
        char *target = map_filled(4 * SIZE, 5);
        size_t kept = sizes[i] < SIZE ? sizes[i] : SIZE;

        push_out(memory, SIZE);
        CHECK(mremap(memory, SIZE, sizes[i], MREMAP_MAYMOVE | MREMAP_FIXED, target + SIZE) == target + SIZE);
        CHECK(fault_of(memory, false) == SIGSEGV && fault_of(memory + SIZE - 1, false) == SIGSEGV);
        push_out(target, 4 * SIZE);
        CHECK(filled(target + SIZE, kept, 4) && zeroed(target + SIZE + kept, sizes[i] - kept));
        CHECK(filled(target, SIZE, 5));
        CHECK(filled_at(target + SIZE + sizes[i], 3 * SIZE - sizes[i], 5, SIZE + sizes[i]));
        CHECK(munmap(target, 4 * SIZE) == 0);
    }
}

/* Small mappings are the kernel's, large ones may be managed: between the two in both directions. */
static void between_kinds(void)
{
    char *large = map_filled(SIZE, 6);
    char *small = map_filled(PAGE, 7);

    push_out(large, SIZE);
    CHECK(mremap(small, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, large + 4 * PAGE) == large + 4 * PAGE);
    CHECK(filled(large + 4 * PAGE, PAGE, 7) && fault_of(small, false) == SIGSEGV);
    small = map(4 * PAGE, RW);
    CHECK(mremap(large, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, small) == small);
    CHECK(filled(small, 4 * PAGE, 6) && fault_of(large, false) == SIGSEGV);
    fill(small, 4 * PAGE, 8);
    pressure();
    CHECK(filled(small, 4 * PAGE, 8) && filled_at(large + 5 * PAGE, SIZE - 5 * PAGE, 6, 5 * PAGE));
    /* What came in grows and goes out again. */
    small = mremap(large + 4 * PAGE, PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    CHECK(small != MAP_FAILED && filled(small, PAGE, 7) && zeroed(small + PAGE, 63 * PAGE));
    CHECK(fault_of(large + 4 * PAGE, false) == SIGSEGV);
    CHECK(munmap(small, 64 * PAGE) == 0 && munmap(large, SIZE) == 0);
}

static void left_mapped(void)
{
    char *memory = map_filled(SIZE, 9);
    char *target = map_filled(SIZE, 10);
    char *moved;

    push_out(memory, SIZE);
    moved = mremap(memory, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    CHECK(moved != MAP_FAILED && filled(moved, SIZE, 9) && zeroed(memory, SIZE));
    fill(memory, SIZE, 11);
    push_out(memory, SIZE);
    CHECK(mremap(memory, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, target) == target);
    CHECK(filled(target, SIZE, 11) && zeroed(memory, SIZE) && filled(moved, SIZE, 9));
    CHECK_ERROR(mremap(memory, SIZE, 2 * SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL), EINVAL);
    CHECK(munmap(memory, SIZE) == 0 && munmap(moved, SIZE) == 0 && munmap(target, SIZE) == 0);
}

/* What is cut off may be of any kind, or have holes. */
static void cut_off(void)
{
    char *memory = map_filled(16 * PAGE, 30);

    push_out(memory, 16 * PAGE);
    CHECK(mprotect(memory + 2 * PAGE, 2 * PAGE, PROT_READ) == 0 && munmap(memory + 6 * PAGE, 2 * PAGE) == 0);
    CHECK(mmap(memory + 10 * PAGE, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory + 10 * PAGE);
    CHECK(mremap(memory, 12 * PAGE, 3 * PAGE, 0) == memory);
    CHECK(filled(memory, 3 * PAGE, 30) && filled_at(memory + 12 * PAGE, 4 * PAGE, 30, 12 * PAGE));
    CHECK(fault_of(memory + 3 * PAGE, false) == SIGSEGV && fault_of(memory + 10 * PAGE, false) == SIGSEGV);
    CHECK_ERROR(mremap(memory + 3 * PAGE, 2 * PAGE, PAGE, 0), EFAULT);
    CHECK(munmap(memory, 16 * PAGE) == 0);
}

/* Bytes that may not be read move too, and are as protected as before. */
static void protections(void)
{
    char *memory = map_filled(SIZE, 12);
    char *target = map(2 * SIZE, RW);

    push_out(memory, SIZE);
    CHECK(mprotect(memory, SIZE, PROT_NONE) == 0);
    CHECK(mremap(memory, SIZE, 2 * SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
    CHECK(fault_of(target, false) == SIGSEGV && fault_of(target + SIZE, false) == SIGSEGV);
    CHECK(mprotect(target, 2 * SIZE, PROT_READ) == 0);
    CHECK(filled(target, SIZE, 12) && zeroed(target + SIZE, SIZE) && fault_of_store(target) == SIGSEGV);
    push_out(target, 2 * SIZE);
    CHECK(mremap(target, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, memory) == memory);
    CHECK(filled(memory, SIZE, 12) && fault_of_store(memory + PAGE) == SIGSEGV);
    CHECK(munmap(memory, SIZE) == 0 && munmap(target, 2 * SIZE) == 0);
}

static void errors(void)
{
    char *memory = map_filled(SIZE, 13);
    char *target = map(SIZE, RW);
    char *hole = memory + 8 * PAGE;

    CHECK_ERROR(mremap(memory + 1, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EINVAL);
    CHECK_ERROR(mremap(memory, SIZE, 0, MREMAP_MAYMOVE), EINVAL);
    CHECK_ERROR(mremap(memory, 0, SIZE, MREMAP_MAYMOVE), EINVAL);
    CHECK_ERROR(mremap(memory, SIZE, SIZE, 64), EINVAL);
    CHECK_ERROR(mremap(memory, SIZE, SIZE, MREMAP_FIXED, target), EINVAL);
    CHECK_ERROR(mremap(memory, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, target + 1), EINVAL);
    CHECK_ERROR(mremap(memory, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, memory + PAGE), EINVAL);
    CHECK(munmap(hole, PAGE) == 0);
    CHECK_ERROR(mremap(hole, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
    CHECK_ERROR(mremap(hole - PAGE, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE), EFAULT);
    CHECK(mprotect(memory, PAGE, PROT_READ) == 0);
    CHECK_ERROR(mremap(memory, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE), EFAULT);
    CHECK(filled(memory, 8 * PAGE, 13) && filled_at(hole + PAGE, SIZE - 9 * PAGE, 13, 9 * PAGE));
    CHECK(munmap(memory, SIZE) == 0 && munmap(target, SIZE) == 0);
}

static void locked(void)
{
    char *memory = map_filled(16 * PAGE, 14);

    push_out(memory, 16 * PAGE);
    CHECK(mlock(memory, 16 * PAGE) == 0);
    memory = mremap(memory, 16 * PAGE, 32 * PAGE, MREMAP_MAYMOVE);
    CHECK(memory != MAP_FAILED);
    pressure();
    CHECK(absent_pages(memory, 32 * PAGE) == 0 && filled(memory, 16 * PAGE, 14));
    CHECK(munmap(memory, 32 * PAGE) == 0);
}

/* A file in the middle of other memory grows where it is when there is room, and not into what is there. */
static void file_grows(void)
{
    char *memory = map_filled(SIZE, 15);
    char *at = memory + 4 * PAGE;
    FILE *file = tmpfile();

    CHECK(file != NULL && ftruncate(fileno(file), 8 * (off_t)PAGE) == 0);
    CHECK(mmap(at, 2 * PAGE, RW, MAP_SHARED | MAP_FIXED, fileno(file), 0) == at);
    fill(at, 2 * PAGE, 16);
    CHECK_ERROR(mremap(at, 2 * PAGE, 3 * PAGE, 0), ENOMEM);
    CHECK(munmap(at + 2 * PAGE, 4 * PAGE) == 0);
    CHECK(mremap(at + PAGE, PAGE, 5 * PAGE, 0) == at + PAGE);
    fill(at + 2 * PAGE, 4 * PAGE, 17);
    pressure();
    CHECK(filled(at, 2 * PAGE, 16) && filled(at + 2 * PAGE, 4 * PAGE, 17));
    CHECK(filled(memory, 4 * PAGE, 15) && filled_at(memory + 10 * PAGE, SIZE - 10 * PAGE, 15, 10 * PAGE));
    CHECK(munmap(at + 2 * PAGE, 4 * PAGE) == 0 && fault_of(at + 2 * PAGE, false) == SIGSEGV);
    CHECK(munmap(memory, SIZE) == 0 && fclose(file) == 0);
}

/* ---- what madvise said of the memory --------------------------------------------------------- */

struct mark {
    int advice;
    const char *flag; /* in smaps */
};

static const struct mark marks[] = {
    {MADV_WIPEONFORK, " wf "}, {MADV_DONTFORK, " dc "}, {MADV_DONTDUMP, " dd "}, {MADV_NOHUGEPAGE, " nh "}};

/* Has the mapping of an address this flag, as far as the kernel tells? */
static bool is_flagged(const void *address, const char *flag)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    bool is_there = false;
    unsigned long begin, end;
    char line[512];

    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            is_there = begin <= (uintptr_t)address && (uintptr_t)address < end;
        if (is_there && strncmp(line, "VmFlags:", 8) == 0)
            break;
    }
    fclose(file);
    return is_there && strstr(line, flag) != NULL;
}

/* A child sees of it what the mark says. */
static void is_marked(char *memory, size_t size, const struct mark *mark)
{
    pid_t child;

    fill(memory, size, 21);
    push_out(memory, size);
    CHECK(is_flagged(memory, mark->flag) && is_flagged(memory + size - PAGE, mark->flag));
    child = fork();
    if (child == 0) {
        if (mark->advice == MADV_WIPEONFORK)
            CHECK(zeroed(memory, size));
        else if (mark->advice == MADV_DONTFORK)
            CHECK(fault_of(memory, false) == SIGSEGV && fault_of(memory + size - PAGE, false) == SIGSEGV);
        else
            CHECK(filled(memory, size, 21));
        _exit(0);
    }
    CHECK(child_end(child) == 0 && filled(memory, size, 21));
}

/* The middle goes and grows; what stays is marked as before. */
static void middle_moves(const struct mark *mark)
{
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    char *memory = map_filled(SIZE, 20);
    char *target = map(SIZE, RW);

    CHECK(madvise(memory + 4 * PAGE, 12 * PAGE, mark->advice) == 0);
    push_out(memory, SIZE);
    CHECK(mremap(memory + 8 * PAGE, 4 * PAGE, 6 * PAGE, flags, target + 4 * PAGE) == target + 4 * PAGE);
    CHECK(filled_at(target + 4 * PAGE, 4 * PAGE, 20, 8 * PAGE) && zeroed(target + 8 * PAGE, 2 * PAGE));
    is_marked(target + 4 * PAGE, 6 * PAGE, mark);
    is_marked(memory + 4 * PAGE, 4 * PAGE, mark);
    is_marked(memory + 12 * PAGE, 4 * PAGE, mark);
    /* Without being asked the kernel may leave huge pages out anywhere. */
    CHECK(mark->advice == MADV_NOHUGEPAGE || (!is_flagged(target, mark->flag) && !is_flagged(memory, mark->flag) &&
                                              !is_flagged(target + 10 * PAGE, mark->flag)));
    CHECK(filled(memory, 4 * PAGE, 20));
    CHECK(munmap(memory, SIZE) == 0 && munmap(target, SIZE) == 0);
}

/* Growing where it is, then moving away, then leaving the old place mapped. */
static void whole_moves(const struct mark *mark)
{
    char *memory = map(SIZE, RW);
    char *moved;

    CHECK(munmap(memory + SIZE / 2, SIZE / 2) == 0 && madvise(memory, SIZE / 2, mark->advice) == 0);
    CHECK(mremap(memory, SIZE / 2, SIZE, 0) == memory);
    is_marked(memory, SIZE, mark);
    CHECK(mmap(memory + SIZE, PAGE, PROT_NONE, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == memory + SIZE ||
          errno == EEXIST);
    moved = mremap(memory, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && filled(moved, SIZE, 21));
    is_marked(moved, 2 * SIZE, mark);
    memory = mremap(moved, 2 * SIZE, 2 * SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    CHECK(memory != MAP_FAILED && filled(memory, 2 * SIZE, 21) && zeroed(moved, 2 * SIZE));
    is_marked(memory, 2 * SIZE, mark);
    is_marked(moved, 2 * SIZE, mark);
    CHECK(munmap(memory, 2 * SIZE) == 0 && munmap(moved, 2 * SIZE) == 0);
}

static void marked(void)
{
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        middle_moves(&marks[i]);
        whole_moves(&marks[i]);
    }
}

/* Shared memory that a child shall not have is not there in it, after a move too, and its addresses are free. */
static void shared_kept(void)
{
    char *memory = map_filled(SIZE, 22);
    char *shared = memory + 4 * PAGE;
    char *moved = memory + 16 * PAGE;
    pid_t child;

    CHECK(mmap(shared, 4 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == shared);
    CHECK(madvise(shared, 4 * PAGE, MADV_DONTFORK) == 0);
    fill(shared, 4 * PAGE, 23);
    CHECK(mremap(shared, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, moved) == moved);
    CHECK(filled(moved, 4 * PAGE, 23) && is_flagged(moved, " dc "));
    child = fork();
    if (child == 0) {
        CHECK(fault_of(moved, false) == SIGSEGV);
        CHECK_ERROR(madvise(moved, PAGE, MADV_DONTNEED), ENOMEM);
        CHECK(mmap(moved, 4 * PAGE, RW, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == moved && zeroed(moved, 4 * PAGE));
        _exit(0);
    }
    CHECK(child_end(child) == 0 && filled(moved, 4 * PAGE, 23));
    CHECK(munmap(memory, SIZE) == 0);
}

TRAP_MAIN({"in_place", in_place}, {"growing", growing}, {"blocked", blocked}, {"fixed", fixed},
          {"between_kinds", between_kinds}, {"left_mapped", left_mapped}, {"cut_off", cut_off},
          {"protections", protections}, {"errors", errors}, {"locked", locked}, {"file_grows", file_grows},
          {"marked", marked}, {"shared_kept", shared_kept})
