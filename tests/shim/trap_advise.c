/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_advise.c - what madvise promises about contents, of bytes that are elsewhere too (T21, T22, B10).
 */
#include "tests/shim/trap.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define SIZE (64 * PAGE)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

static void dont_need(void)
{
    char *memory = map_filled(SIZE, 1);

    push_out(memory, SIZE);
    CHECK(madvise(memory + 8 * PAGE, 8 * PAGE, MADV_DONTNEED) == 0);
    CHECK(zeroed(memory + 8 * PAGE, 8 * PAGE));
    CHECK(filled(memory, 8 * PAGE, 1) && filled_at(memory + 16 * PAGE, SIZE - 16 * PAGE, 1, 16 * PAGE));
    fill(memory, SIZE, 2);
    CHECK(madvise(memory, SIZE, MADV_DONTNEED) == 0 && zeroed(memory, SIZE));
    fill(memory, SIZE, 3);
    push_out(memory, SIZE);
    CHECK(filled(memory, SIZE, 3));
    CHECK(munmap(memory, SIZE) == 0);
}

/* Each page is as it was, or zero; what is written afterwards stays. */
static void free_pages(void)
{
    char *memory = map_filled(SIZE, 4);

    push_out(memory, SIZE);
    CHECK(madvise(memory, SIZE, MADV_FREE) == 0);
    fill(memory, SIZE / 2, 5);
    pressure();
    CHECK(filled(memory, SIZE / 2, 5));
    for (size_t at = SIZE / 2; at < SIZE; at += PAGE)
        CHECK(*(uint64_t *)(memory + at) == 0 ? zeroed(memory + at, PAGE) : filled_at(memory + at, PAGE, 4, at));
    CHECK(munmap(memory, SIZE) == 0);
}

static void harmless(void)
{
    const int advice[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED,      MADV_DONTDUMP,
                          MADV_DODUMP, MADV_COLD,   MADV_PAGEOUT,    MADV_POPULATE_READ, MADV_POPULATE_WRITE};
    char *memory = map_filled(SIZE, 6);

    for (size_t i = 0; i < sizeof(advice) / sizeof(advice[0]); i++) {
        push_out(memory, SIZE);
        CHECK(madvise(memory, SIZE, advice[i]) == 0);
        CHECK(filled(memory, SIZE, 6));
    }
    /* A kernel may lack these. */
    madvise(memory, SIZE, MADV_HUGEPAGE);
    madvise(memory, SIZE, MADV_NOHUGEPAGE);
    madvise(memory, SIZE, MADV_MERGEABLE);
    madvise(memory, SIZE, MADV_UNMERGEABLE);
    push_out(memory, SIZE);
    CHECK(posix_madvise(memory, SIZE, POSIX_MADV_DONTNEED) == 0);
    CHECK(posix_madvise(memory, SIZE, POSIX_MADV_WILLNEED) == 0 && posix_madvise(memory + 1, SIZE, 0) == EINVAL);
    CHECK(filled(memory, SIZE, 6));
    CHECK(munmap(memory, SIZE) == 0);
}

static void errors(void)
{
    char *memory = map_filled(SIZE, 7);
    char *hole = memory + 8 * PAGE;

    CHECK_ERROR(madvise(memory + 1, PAGE, MADV_DONTNEED), EINVAL);
    CHECK_ERROR(madvise(memory, SIZE, 12345), EINVAL);
    CHECK_ERROR(madvise(memory, SIZE, MADV_REMOVE), EINVAL);
    CHECK(madvise(memory, 0, MADV_DONTNEED) == 0 && filled(memory, SIZE, 7));
    CHECK(munmap(hole, PAGE) == 0);
    push_out(memory, 8 * PAGE);
    /* A hole is told after the rest was done. */
    CHECK_ERROR(madvise(hole - PAGE, 3 * PAGE, MADV_DONTNEED), ENOMEM);
    CHECK(zeroed(hole - PAGE, PAGE) && zeroed(hole + PAGE, PAGE));
    CHECK_ERROR(madvise(hole - PAGE, 3 * PAGE, MADV_WILLNEED), ENOMEM);
    CHECK(mlock(memory, PAGE) == 0);
    CHECK_ERROR(madvise(memory, PAGE, MADV_DONTNEED), EINVAL);
    CHECK(filled(memory, 7 * PAGE, 7));
    CHECK(munmap(memory, SIZE) == 0);
}

static void over_fork(void)
{
    char *memory = map_filled(SIZE, 8);
    pid_t child;

    if (madvise(memory, 16 * PAGE, MADV_WIPEONFORK) != 0)
        return;
    CHECK(madvise(memory + 8 * PAGE, 8 * PAGE, MADV_KEEPONFORK) == 0);
    CHECK(madvise(memory + 32 * PAGE, 8 * PAGE, MADV_DONTFORK) == 0);
    push_out(memory, SIZE);
    child = fork();
    if (child == 0) {
        CHECK(zeroed(memory, 8 * PAGE) && filled_at(memory + 8 * PAGE, 24 * PAGE, 8, 8 * PAGE));
        CHECK(fault_of(memory + 32 * PAGE, false) == SIGSEGV);
        CHECK(filled_at(memory + 40 * PAGE, SIZE - 40 * PAGE, 8, 40 * PAGE));
        /* Nothing is there, as far as anybody can tell, and something new may be. */
        CHECK_ERROR(madvise(memory + 33 * PAGE, PAGE, MADV_DONTNEED), ENOMEM);
        CHECK(mmap(memory + 34 * PAGE, 2 * PAGE, RW, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == memory + 34 * PAGE);
        CHECK(zeroed(memory + 34 * PAGE, 2 * PAGE));
        fill(memory, 32 * PAGE, 9);
        fill(memory + 34 * PAGE, 2 * PAGE, 11);
        pressure();
        CHECK(filled(memory + 34 * PAGE, 2 * PAGE, 11));
        CHECK(filled(memory, 32 * PAGE, 9));
        CHECK(filled_at(memory + 40 * PAGE, SIZE - 40 * PAGE, 8, 40 * PAGE));
        _exit(0);
    }
    CHECK(child_end(child) == 0);
    CHECK(filled(memory, SIZE, 8));
    CHECK(madvise(memory + 32 * PAGE, 8 * PAGE, MADV_DOFORK) == 0);
    CHECK(munmap(memory, SIZE) == 0);
}

/* Unwinders ask so whether an address may be read. */
static void asked_for(void)
{
    char *memory = map_filled(SIZE, 12);
    unsigned char pages[4];

    push_out(memory, SIZE);
    CHECK(munmap(memory + 8 * PAGE, 2 * PAGE) == 0);
    CHECK(msync(memory + 4 * PAGE, 4 * PAGE, MS_ASYNC) == 0 && mincore(memory + 4 * PAGE, 4 * PAGE, pages) == 0);
    CHECK_ERROR(msync(memory + 8 * PAGE, PAGE, MS_ASYNC), ENOMEM);
    CHECK_ERROR(mincore(memory + 7 * PAGE, 4 * PAGE, pages), ENOMEM);
    CHECK_ERROR(syscall(SYS_msync, memory + 7 * PAGE, 4 * PAGE, MS_ASYNC), ENOMEM);
    CHECK_ERROR(syscall(SYS_mincore, memory + 9 * PAGE, PAGE, pages), ENOMEM);
    CHECK_ERROR(msync(memory + 1, PAGE, MS_ASYNC), EINVAL);
    CHECK(munmap(memory, SIZE) == 0);
}

static void by_descriptor(void)
{
    char *memory = map_filled(SIZE, 10);
    struct iovec parts[] = {{memory, 8 * PAGE}, {memory + 16 * PAGE, 8 * PAGE}};
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    long done;

    CHECK(self >= 0);
    push_out(memory, SIZE);
    CHECK(process_madvise(self, parts, 2, MADV_COLD, 0) == 16 * (long)PAGE);
    CHECK(filled(memory, SIZE, 10));
    done = process_madvise(self, parts, 2, MADV_DONTNEED, 0);
    if (done == 16 * (long)PAGE)
        CHECK(zeroed(memory, 8 * PAGE) && zeroed(memory + 16 * PAGE, 8 * PAGE));
    else
        CHECK(done == -1 && errno == EINVAL && filled(memory, SIZE, 10)); /* Linux before 6.13 */
    CHECK(filled_at(memory + 24 * PAGE, SIZE - 24 * PAGE, 10, 24 * PAGE));
    CHECK(munmap(memory, SIZE) == 0);
    close(self);
}

/* ---- B10: pages go while others fault on them -------------------------------------------------------------------- */

static char *volatile arena;
static volatile int over;

static void *reader(void *unused)
{
    const uint64_t *words;

    (void)unused;
    while (!over) {
        words = (const uint64_t *)(void *)arena;
        for (size_t i = 0; i < SIZE / 8; i += PAGE / 8)
            CHECK(words[i] == 0 || words[i] == word_of(11, i));
    }
    return NULL;
}

static void while_touched(void)
{
    pthread_t threads[3];

    arena = map_filled(SIZE, 11);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, reader, NULL) == 0);
    for (int i = 0; i < 2000; i++) {
        size_t at = (size_t)(i % 8) * 8 * PAGE;
        uint64_t *words = (uint64_t *)(void *)arena;

        CHECK(madvise(arena + at, 8 * PAGE, i % 3 == 0 ? MADV_FREE : MADV_DONTNEED) == 0);
        for (size_t word = at / 8; word < (at + 8 * PAGE) / 8; word += PAGE / 8)
            words[word] = word_of(11, word);
        if (i % 500 == 0)
            pressure();
    }
    over = 1;
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (size_t i = 0; i < SIZE / 8; i += PAGE / 8)
        CHECK(((uint64_t *)(void *)arena)[i] == word_of(11, i));
    CHECK(munmap(arena, SIZE) == 0);
}

static void *mapper(void *unused)
{
    (void)unused;
    for (int i = 0; i < 1500; i++) {
        char *memory = map(32 * PAGE, RW);

        for (size_t at = 0; at < 32 * PAGE; at += PAGE)
            memory[at] = (char)i;
        CHECK(memory[(size_t)(i % 32) * PAGE] == (char)i);
        CHECK(munmap(memory + 16 * PAGE, 16 * PAGE) == 0 && memory[PAGE] == (char)i);
        CHECK(munmap(memory, 16 * PAGE) == 0);
    }
    return NULL;
}

static void unmapped_while_evicted(void)
{
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, mapper, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pressure();
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

TRAP_MAIN({"dont_need", dont_need}, {"free_pages", free_pages}, {"harmless", harmless}, {"errors", errors},
          {"asked_for", asked_for}, {"over_fork", over_fork}, {"by_descriptor", by_descriptor},
          {"while_touched", while_touched}, {"unmapped_while_evicted", unmapped_while_evicted})
