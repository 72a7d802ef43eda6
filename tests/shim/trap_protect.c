/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_protect.c - protections hold while the bytes are elsewhere, and the bytes survive every change (T20, B11).
 */
#include "tests/shim/trap.h"

#include <pthread.h>

#define SIZE (64 * PAGE)

static void guard_pages(void)
{
    char *memory = map_filled(SIZE, 1);

    CHECK(mprotect(memory, PAGE, PROT_NONE) == 0 && mprotect(memory + SIZE - PAGE, PAGE, PROT_NONE) == 0);
    for (int round = 0; round < 3; round++) {
        push_out(memory + PAGE, SIZE - 2 * PAGE);
        CHECK(fault_of(memory, false) == SIGSEGV && fault_of(memory + SIZE - 1, true) == SIGSEGV);
        CHECK(filled_at(memory + PAGE, SIZE - 2 * PAGE, 1, PAGE));
    }
    CHECK(munmap(memory, SIZE) == 0);
}

static void read_only(void)
{
    char *memory = map_filled(SIZE, 2);

    CHECK(mprotect(memory, SIZE, PROT_READ) == 0);
    push_out(memory, SIZE);
    CHECK(fault_of_store(memory + PAGE) == SIGSEGV); /* absent and not writable */
    CHECK(filled(memory, SIZE, 2));
    CHECK(fault_of_store(memory + 2 * PAGE) == SIGSEGV); /* present and not writable */
    push_out(memory, SIZE);
    CHECK(mprotect(memory, SIZE / 2, RW) == 0); /* while it is away */
    fill(memory, SIZE / 2, 3);
    push_out(memory, SIZE);
    CHECK(filled(memory, SIZE / 2, 3) && filled_at(memory + SIZE / 2, SIZE / 2, 2, SIZE / 2));
    CHECK(fault_of_store(memory + SIZE / 2) == SIGSEGV && fault_of(memory, true) == 0);
    CHECK(munmap(memory, SIZE) == 0);
}

static void none_and_back(void)
{
    char *memory = map_filled(SIZE, 4);

    push_out(memory, SIZE);
    CHECK(mprotect(memory, SIZE, PROT_NONE) == 0);
    CHECK(fault_of(memory + 5 * PAGE, false) == SIGSEGV);
    pressure();
    CHECK(mprotect(memory, SIZE, PROT_READ) == 0 && filled(memory, SIZE, 4));
    CHECK(mprotect(memory, SIZE, PROT_NONE) == 0);
    pressure();
    CHECK(mprotect(memory, SIZE, RW) == 0 && filled(memory, SIZE, 4));
    fill(memory, SIZE, 5);
    push_out(memory, SIZE);
    CHECK(filled(memory, SIZE, 5));
    CHECK(munmap(memory, SIZE) == 0);
}

#if defined(__x86_64__)
static void code(void)
{
    static const unsigned char text[] = {0xb8, 42, 0, 0, 0, 0xc3}; /* mov $42, %eax; ret */
    char *memory = map(SIZE, RW);

    for (size_t at = 0; at < SIZE; at += PAGE)
        memcpy(memory + at, text, sizeof(text));
    CHECK(mprotect(memory, SIZE, PROT_READ | PROT_EXEC) == 0);
    push_out(memory, SIZE);
    for (size_t at = 0; at < SIZE; at += PAGE)
        CHECK(((int (*)(void))(uintptr_t)(memory + at))() == 42);
    CHECK(fault_of_store(memory) == SIGSEGV);
    CHECK(munmap(memory, SIZE) == 0);
}
#else
static void code(void)
{
}
#endif

/* A page that was brought back for reading must become writable at once when written. */
static void write_after_read(void)
{
    char *memory = map_filled(4 * MIB, 6);
    volatile char sum = 0;

    for (int round = 0; round < 4; round++) {
        push_out(memory, 4 * MIB);
        for (size_t at = 0; at < 4 * MIB; at += PAGE) {
            sum = (char)(sum + memory[at]);
            CHECK(fault_of(memory + at + 8, true) == 0);
        }
        CHECK(filled(memory, 4 * MIB, 6));
    }
    CHECK(munmap(memory, 4 * MIB) == 0);
}

/* Up to the first hole, and no further. */
static void over_a_hole(void)
{
    char *memory = map_filled(32 * PAGE, 20);

    push_out(memory, 32 * PAGE);
    CHECK(munmap(memory + 4 * PAGE, PAGE) == 0);
    CHECK_ERROR(mprotect(memory, 32 * PAGE, PROT_NONE), ENOMEM);
    CHECK(fault_of(memory + 3 * PAGE, false) == SIGSEGV);
    CHECK(filled_at(memory + 5 * PAGE, 27 * PAGE, 20, 5 * PAGE));
    CHECK_ERROR(mprotect(memory + 4 * PAGE, 2 * PAGE, PROT_NONE), ENOMEM);
    CHECK(fault_of(memory + 5 * PAGE, true) == 0);
    CHECK(munmap(memory, 32 * PAGE) == 0);
}

static void *toggle(void *argument)
{
    char *memory = argument;

    for (int i = 0; i < 2000; i++) {
        char *page = memory + (size_t)(i % 16) * PAGE;

        CHECK(mprotect(page, PAGE, PROT_READ) == 0 && mprotect(page, PAGE, RW) == 0);
    }
    return NULL;
}

static void by_threads(void)
{
    char *memory = map_filled(SIZE, 7);
    pthread_t threads[4];

    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, toggle, memory + i * 16 * PAGE) == 0);
    for (int i = 0; i < 3; i++)
        pressure();
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(filled(memory, SIZE, 7));
    CHECK(munmap(memory, SIZE) == 0);
}

TRAP_MAIN({"guard_pages", guard_pages}, {"read_only", read_only}, {"none_and_back", none_and_back}, {"code", code},
          {"write_after_read", write_after_read}, {"over_a_hole", over_a_hole}, {"by_threads", by_threads})
