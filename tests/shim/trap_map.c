/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_map.c - mappings: parts that go, parts that are replaced, reservations, errors (T17 to T20).
 */
#include "tests/shim/trap.h"

#include <fcntl.h>
#include <sys/syscall.h>

#define SIZE (64 * PAGE)

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static int file_of(size_t size, uint64_t seed)
{
    int fd = memfd_create("trap", MFD_CLOEXEC);
    char *memory;

    CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    memory = mmap(NULL, size, RW, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED);
    fill(memory, size, seed);
    munmap(memory, size);
    return fd;
}

static void fresh_is_zero(void)
{
    for (int round = 0; round < 8; round++) {
        char *memory = map(2 * MIB, RW);

        CHECK(zeroed(memory, 2 * MIB));
        fill(memory, 2 * MIB, 1);
        push_out(memory, 2 * MIB);
        CHECK(filled(memory, 2 * MIB, 1));
        CHECK(munmap(memory, 2 * MIB) == 0);
        CHECK(fault_of(memory, false) == SIGSEGV);
    }
}

static void unmapped_parts(void)
{
    char *memory = map_filled(SIZE, 2);

    push_out(memory, SIZE);
    for (size_t at = 0; at < SIZE; at += 3 * PAGE)
        CHECK(munmap(memory + at, PAGE) == 0);
    push_out(memory + PAGE, PAGE);
    for (size_t at = 0; at < SIZE; at += PAGE) {
        if (at % (3 * PAGE) == 0)
            CHECK(fault_of(memory + at, false) == SIGSEGV);
        else
            CHECK(filled_at(memory + at, PAGE, 2, at));
    }
    /* Holes may be unmapped again. */
    CHECK(munmap(memory, SIZE) == 0 && munmap(memory, SIZE) == 0);
}

static void fixed_over_parts(void)
{
    char *memory = map_filled(SIZE, 3);
    char *part = memory + 8 * PAGE;

    push_out(memory, SIZE);
    CHECK(mmap(part, 4 * PAGE, RW, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
    CHECK(filled_at(part, PAGE, 3, 8 * PAGE));
    CHECK(mmap(part, 4 * PAGE, RW, ANONYMOUS | MAP_FIXED, -1, 0) == part);
    CHECK(zeroed(part, 4 * PAGE));
    fill(part, 4 * PAGE, 4);
    push_out(memory, SIZE);
    CHECK(filled(part, 4 * PAGE, 4));
    CHECK(filled(memory, 8 * PAGE, 3));
    CHECK(filled_at(memory + 12 * PAGE, SIZE - 12 * PAGE, 3, 12 * PAGE));
    CHECK(munmap(part, PAGE) == 0);
    CHECK(mmap(part, PAGE, PROT_READ, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == part);
    CHECK(zeroed(part, PAGE) && fault_of_store(part) == SIGSEGV);
    CHECK(munmap(memory, SIZE) == 0);
}

/* A file, and memory that is shared with a child, inside what was anonymous. */
static void fixed_of_others(void)
{
    char *memory = map_filled(SIZE, 5);
    int fd = file_of(4 * PAGE, 6);
    char *shared = memory + 32 * PAGE;
    pid_t child;

    push_out(memory, SIZE);
    CHECK(mmap(memory + 16 * PAGE, 3 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, PAGE) == memory + 16 * PAGE);
    CHECK(mmap(shared, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == shared);
    push_out(memory, SIZE);
    CHECK(filled_at(memory + 16 * PAGE, 3 * PAGE, 6, PAGE));
    child = fork();
    if (child == 0) {
        fill(shared, PAGE, 7);
        _exit(filled(memory, 16 * PAGE, 5) ? 0 : 1);
    }
    CHECK(child_end(child) == 0);
    CHECK(filled(shared, PAGE, 7));
    CHECK(mmap(shared, PAGE, RW, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
    /* Anonymous again. */
    CHECK(mmap(memory + 16 * PAGE, 3 * PAGE, RW, ANONYMOUS | MAP_FIXED, -1, 0) == memory + 16 * PAGE);
    CHECK(zeroed(memory + 16 * PAGE, 3 * PAGE));
    CHECK(munmap(shared, PAGE) == 0 && fault_of(shared, false) == SIGSEGV);
    CHECK(filled_at(memory + 33 * PAGE, SIZE - 33 * PAGE, 5, 33 * PAGE));
    CHECK(munmap(memory, SIZE) == 0);
    close(fd);
}

static void errors(void)
{
    char *memory = map_filled(SIZE, 8);
    char *hole = memory + 4 * PAGE;

    CHECK(munmap(hole, PAGE) == 0);
    CHECK_ERROR(mmap(NULL, 0, RW, ANONYMOUS, -1, 0), EINVAL);
    CHECK_ERROR(mmap(memory + 1, PAGE, RW, ANONYMOUS | MAP_FIXED, -1, 0), EINVAL);
    CHECK_ERROR(mmap(NULL, SIZE_MAX - 100, RW, ANONYMOUS, -1, 0), ENOMEM);
    CHECK_ERROR(mmap(NULL, SIZE, RW, MAP_PRIVATE, -1, 0), EBADF);
    /* A refusal leaves what is there. */
    CHECK_ERROR(mmap(memory, PAGE, RW, MAP_PRIVATE | MAP_FIXED, -1, 0), EBADF);
    CHECK_ERROR(munmap(memory + 1, PAGE), EINVAL);
    CHECK_ERROR(munmap(memory, 0), EINVAL);
    CHECK_ERROR(mprotect(memory + 1, PAGE, PROT_READ), EINVAL);
    CHECK_ERROR(mprotect(memory, PAGE, PROT_READ | PROT_GROWSDOWN), EINVAL);
    CHECK(mprotect(memory, 0, PROT_NONE) == 0);
    CHECK_ERROR(mprotect(hole - PAGE, 3 * PAGE, RW), ENOMEM);
    CHECK_ERROR(mprotect(memory, SIZE_MAX - 2 * PAGE, RW), ENOMEM);
    CHECK_ERROR(mlock(hole - PAGE, 3 * PAGE), ENOMEM);
    CHECK(filled(memory, 4 * PAGE, 8));
    CHECK(munmap(memory, SIZE) == 0);
}

static size_t resident_pages(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    size_t total, resident;

    CHECK(file != NULL && fscanf(file, "%zu %zu", &total, &resident) == 2);
    fclose(file);
    return resident;
}

/* What engines for JavaScript and Java do: reserve, commit and give back pieces in several ways. */
static void reservations(void)
{
    const size_t size = (size_t)512 << 30;
    double begin = seconds();
    size_t before = resident_pages();
    char *memory = mmap(NULL, size, PROT_NONE, ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *far = memory + size - 16 * MIB;

    CHECK(memory != MAP_FAILED && fault_of(far, false) == SIGSEGV);
    CHECK(mprotect(memory + 4 * MIB, 2 * MIB, RW) == 0);
    CHECK(mmap(far, 2 * MIB, RW, ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == far);
    fill(memory + 4 * MIB, 2 * MIB, 9);
    fill(far, 2 * MIB, 10);
    push_out(far, 2 * MIB);
    CHECK(filled(memory + 4 * MIB, 2 * MIB, 9) && filled(far, 2 * MIB, 10));
    CHECK(fault_of(memory + 6 * MIB, false) == SIGSEGV && fault_of(memory + 4 * MIB - 1, false) == SIGSEGV);
    CHECK(madvise(far, 2 * MIB, MADV_DONTNEED) == 0 && zeroed(far, 2 * MIB));
    CHECK(mmap(memory + 4 * MIB, MIB, PROT_NONE, ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == memory + 4 * MIB);
    CHECK(mprotect(memory + 4 * MIB, MIB, RW) == 0 && zeroed(memory + 4 * MIB, MIB));
    CHECK(filled_at(memory + 5 * MIB, MIB, 9, MIB));
    /* Trimmed at both ends. */
    CHECK(munmap(memory, 4 * MIB) == 0 && munmap(far, 16 * MIB) == 0);
    CHECK(filled_at(memory + 5 * MIB, MIB, 9, MIB));
    CHECK(munmap(memory + 4 * MIB, size - 20 * MIB) == 0);
    CHECK(seconds() - begin < 20);
    CHECK(resident_pages() < before + 64 * MIB / PAGE);
}

static void hints(void)
{
    char *low = (char *)((uintptr_t)3 << 28);
    char *memory = map(4 * MIB, RW);

    CHECK(munmap(memory + MIB, MIB) == 0);
    CHECK(mmap(memory + MIB, MIB, RW, ANONYMOUS, -1, 0) == memory + MIB);
    CHECK(mmap(memory + MIB, MIB, RW, ANONYMOUS, -1, 0) != memory + MIB);
    CHECK(munmap(memory, 4 * MIB) == 0);
    CHECK(mmap(low, MIB, RW, ANONYMOUS, -1, 0) == low);
    fill(low, MIB, 11);
    CHECK(filled(low, MIB, 11) && munmap(low, MIB) == 0);
}

static void by_number(void)
{
    int fd = file_of(4 * PAGE, 12);
    char *memory = (char *)syscall(SYS_mmap, NULL, MIB, RW, ANONYMOUS, -1, 0L);
    char *file = (char *)syscall(SYS_mmap, NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 3 * PAGE);

    CHECK(memory != MAP_FAILED && file != MAP_FAILED);
    CHECK(filled_at(file, PAGE, 12, 3 * PAGE)); /* the sixth argument arrived */
    fill(memory, MIB, 13);
    push_out(memory, MIB);
    CHECK(syscall(SYS_mprotect, memory, PAGE, PROT_NONE) == 0 && fault_of(memory, false) == SIGSEGV);
    CHECK(syscall(SYS_mprotect, memory, PAGE, RW) == 0 && filled(memory, MIB, 13));
    memory = (char *)syscall(SYS_mremap, memory, MIB, 2 * MIB, MREMAP_MAYMOVE, NULL);
    CHECK(memory != MAP_FAILED && filled(memory, MIB, 13) && zeroed(memory + MIB, MIB));
    CHECK(syscall(SYS_madvise, memory, MIB, MADV_DONTNEED) == 0 && zeroed(memory, 2 * MIB));
    CHECK(syscall(SYS_munmap, memory, 2 * MIB) == 0 && fault_of(memory, false) == SIGSEGV);
    CHECK(syscall(SYS_munmap, file, PAGE) == 0);
    CHECK_ERROR(syscall(SYS_munmap, 1L, PAGE), EINVAL);
    CHECK_ERROR(syscall(100000L), ENOSYS);
    CHECK(syscall(SYS_gettid) == gettid());
    close(fd);
}

static void populated(void)
{
    char *memory = mmap(NULL, MIB, RW, ANONYMOUS | MAP_POPULATE, -1, 0);

    CHECK(memory != MAP_FAILED && absent_pages(memory, MIB) == 0 && zeroed(memory, MIB));
    CHECK(munmap(memory, MIB) == 0);
}

/* Much is asked for, little is touched: what was never touched must not be taken for memory in use. */
static void much_asked_for(void)
{
    size_t size = (size_t)12 << 30;
    char *memory = mmap(NULL, size, RW, ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(memory != MAP_FAILED);
    fill(memory, 8 * MIB, 40);
    fill(memory + size - 8 * MIB, 8 * MIB, 41);
    CHECK(filled(memory, 8 * MIB, 40) && filled(memory + size - 8 * MIB, 8 * MIB, 41));
    CHECK(zeroed(memory + size / 2, PAGE) && munmap(memory, size) == 0);
}

/* VmHWM: the most memory that the process ever had, in bytes. */
static size_t memory_peak(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    size_t peak_kib = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "VmHWM: %zu kB", &peak_kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return peak_kib << 10;
}

/* A mapping far beyond the budget, filled as fast as can be: the kernel must not fill it before it is managed. */
static void filled_at_once(void)
{
    size_t size = 192 * MIB;
    size_t before = memory_peak();
    char *memory = mmap(NULL, size, RW, ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED && before > 0);
    for (size_t at = 0; at < size; at += PAGE)
        memory[at] = (char)(at / PAGE % 251 + 1);
    for (size_t at = 0; at < size; at += PAGE)
        CHECK(memory[at] == (char)(at / PAGE % 251 + 1));
    CHECK(munmap(memory, size) == 0);
    CHECK(memory_peak() - before < trap_number("TRAP_PEAK", SIZE_MAX / MIB) * MIB);
}

TRAP_MAIN({"filled_at_once", filled_at_once}, {"much_asked_for", much_asked_for}, {"fresh_is_zero", fresh_is_zero},
          {"unmapped_parts", unmapped_parts}, {"fixed_over_parts", fixed_over_parts},
          {"fixed_of_others", fixed_of_others}, {"errors", errors}, {"reservations", reservations}, {"hints", hints},
          {"by_number", by_number}, {"populated", populated})
