/* SPDX-License-Identifier: Apache-2.0 */
/*
 * family.c - the malloc family in its corners. Run without the library too: what is checked is what libc does.
 */
#include "tests/shim/check.h"

#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <wchar.h>

/* Hidden from the compiler, which knows what malloc does and warns of what is done here on purpose. */
static void *(*volatile call_malloc)(size_t) = malloc;
static void *(*volatile call_calloc)(size_t, size_t) = calloc;
static void *(*volatile call_realloc)(void *, size_t) = realloc;
static void *(*volatile call_reallocarray)(void *, size_t, size_t) = reallocarray;
static void (*volatile call_free)(void *) = free;
static void *(*volatile call_aligned_alloc)(size_t, size_t) = aligned_alloc;
static void *(*volatile call_memalign)(size_t, size_t) = memalign;
static int (*volatile call_posix_memalign)(void **, size_t, size_t) = posix_memalign;

#define MIB ((size_t)1 << 20)

static void zero_sizes(void)
{
    char *a = call_malloc(0);
    char *b = call_malloc(0);
    char *c = call_calloc(0, 8);
    char *d = call_realloc(NULL, 0);

    CHECK(a != NULL && b != NULL && c != NULL && d != NULL);
    CHECK(a != b && b != c && c != d);
    call_free(a);
    call_free(b);
    call_free(c);
    call_free(d);
    CHECK(call_realloc(call_malloc(100), 0) == NULL);
    CHECK(call_realloc(call_malloc(100 * MIB), 0) == NULL);
    call_free(NULL);
}

static void errors(void)
{
    void *memory = (void *)1;

    errno = 0;
    CHECK(call_malloc(SIZE_MAX) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(call_malloc((size_t)PTRDIFF_MAX + 1) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(call_calloc(SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(call_reallocarray(NULL, SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(call_posix_memalign(&memory, 0, 8) == EINVAL);
    CHECK(call_posix_memalign(&memory, 4, 8) == EINVAL);
    CHECK(call_posix_memalign(&memory, 24, 8) == EINVAL);
    CHECK(call_posix_memalign(&memory, 64, SIZE_MAX - 4096) == ENOMEM);
    CHECK(memory == (void *)1);
    errno = 0;
    CHECK(pvalloc(SIZE_MAX - 10) == NULL && errno == ENOMEM);
    memory = call_malloc(100);
    errno = 0;
    CHECK(call_realloc(memory, SIZE_MAX) == NULL && errno == ENOMEM);
    memset(memory, 1, 100); /* still there */
    call_free(memory);
}

static void errno_is_kept(void)
{
    void *memory;

    for (size_t size = 1; size < 200 * MIB; size = size * 3 + 1) {
        errno = 4711;
        memory = call_malloc(size);
        memory = call_realloc(memory, size + 100);
        call_free(memory);
        memory = call_calloc(1, size);
        call_free(memory);
        CHECK(errno == 4711);
    }
}

static void alignments(void)
{
    for (size_t size = 0; size < 5000; size += size < 100 ? 1 : 37) {
        char *memory = call_malloc(size);

        CHECK((uintptr_t)memory % 16 == 0);
        memory = call_realloc(memory, size / 2 + 1);
        CHECK((uintptr_t)memory % 16 == 0);
        call_free(memory);
        memory = call_calloc(size, 1);
        CHECK((uintptr_t)memory % 16 == 0);
        call_free(memory);
    }
    for (size_t alignment = 8; alignment <= 64 * MIB; alignment *= 2) {
        for (size_t size = 0; size < 80 * MIB; size = size * 13 + 1) {
            void *memory = NULL;

            CHECK(call_posix_memalign(&memory, alignment, size) == 0 && (uintptr_t)memory % alignment == 0);
            CHECK(malloc_usable_size(memory) >= size);
            if (size > 0)
                ((char *)memory)[size - 1] = 1;
            call_free(memory);
            memory = call_aligned_alloc(alignment, size);
            CHECK(memory != NULL && (uintptr_t)memory % alignment == 0);
            memory = call_realloc(memory, size + 1);
            call_free(memory);
        }
    }
    for (int i = 0; i < 10; i++) {
        char *memory = valloc(100);
        char *more = pvalloc(100);

        CHECK((uintptr_t)memory % 4096 == 0 && (uintptr_t)more % 4096 == 0);
        CHECK(malloc_usable_size(more) >= 4096);
        call_free(memory);
        call_free(more);
        memory = call_memalign(48, 10); /* the next power of two */
        CHECK((uintptr_t)memory % 64 == 0);
        call_free(memory);
    }
}

static bool all(const char *memory, char value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (memory[i] != value)
            return false;
    return true;
}

/* What was used before reads as zeroes from calloc. */
static void zeroes_again(void)
{
    for (int round = 0; round < 20; round++) {
        for (size_t size = 1; size < 100 * MIB; size = size * 7 + 3) {
            char *memory = call_malloc(size);

            memset(memory, 0x5a, size);
            call_free(memory);
            memory = call_calloc(1, size);
            CHECK(all(memory, 0, size));
            memset(memory, 0x77, malloc_usable_size(memory));
            call_free(memory);
        }
        if (round > 2)
            break;
    }
}

static void resizing(void)
{
    static const size_t sizes[] = {1,        100,      5000,     100000,  3 * MIB,  31 * MIB, 33 * MIB, 100 * MIB,
                                   64 * MIB, 35 * MIB, 20 * MIB, 3 * MIB, 32 * MIB, 1 * MIB,  32 * MIB, 10};
    char *memory = call_malloc(1);
    size_t filled = 1;

    memory[0] = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t kept = filled < sizes[i] ? filled : sizes[i];

        memory = call_realloc(memory, sizes[i]);
        CHECK(memory != NULL && malloc_usable_size(memory) >= sizes[i]);
        for (size_t at = 0; at < kept; at += 61)
            CHECK(memory[at] == (char)(at * 7));
        for (size_t at = 0; at < sizes[i]; at += 61)
            memory[at] = (char)(at * 7);
        filled = sizes[i];
    }
    call_free(memory);
}

/* Two large blocks that grow in turns cannot both be extended in place. */
static void growing_in_turns(void)
{
    char *blocks[2] = {NULL, NULL};
    size_t size = 32 * MIB;

    for (int step = 0; step < 8; step++, size += 16 * MIB) {
        for (int i = 0; i < 2; i++) {
            blocks[i] = call_realloc(blocks[i], size);
            CHECK(blocks[i] != NULL);
            for (size_t at = 0; step > 0 && at < size - 16 * MIB; at += 128 * 1024)
                CHECK(blocks[i][at] == (char)(at / 4096 + (size_t)i));
            for (size_t at = 0; at < size; at += 128 * 1024)
                blocks[i][at] = (char)(at / 4096 + (size_t)i);
        }
    }
    call_free(blocks[0]);
    call_free(blocks[1]);
}

static void usable(void)
{
    for (size_t size = 0; size < 70 * MIB; size = size * 3 + 1) {
        char *memory = call_malloc(size);
        size_t whole = malloc_usable_size(memory);

        CHECK(whole >= size);
        memset(memory, 3, whole);
        call_free(memory);
    }
    CHECK(malloc_usable_size(NULL) == 0);
}

static void copies(void)
{
    char *text = strdup("warm");
    char *some = strndup("warmth", 4);
    wchar_t *wide = wcsdup(L"wide");

    CHECK(strcmp(text, "warm") == 0 && strcmp(some, "warm") == 0 && wcscmp(wide, L"wide") == 0);
    CHECK_MANAGED(text);
    CHECK_MANAGED(some);
    CHECK_MANAGED(wide);
    call_free(text);
    call_free(some);
    call_free(wide);
    text = strdup("");
    CHECK(text[0] == '\0');
    call_free(text);
}

/* libc's own stays libc's, the program's is managed, and each may free and resize the other's. */
static void whose(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    size_t size = 8;
    char *line = call_malloc(size);
    char *made = NULL;

    CHECK_NOT_MANAGED(file);
    CHECK_MANAGED(line);
    CHECK(getline(&line, &size, file) > 0); /* libc resizes ours */
    line = call_realloc(line, 2000);
    call_free(line);
    line = NULL;
    size = 0;
    CHECK(getline(&line, &size, file) > 0);
    CHECK_NOT_MANAGED(line);
    line = call_realloc(line, 3000); /* and this one becomes ours */
    CHECK_MANAGED(line);
    call_free(line);
    fclose(file);
    CHECK(asprintf(&made, "%0300d", 7) == 300);
    CHECK(malloc_usable_size(made) >= 301);
    CHECK_NOT_MANAGED(made);
    made = call_realloc(made, 400);
    CHECK_MANAGED(made);
    CHECK(strlen(made) == 300);
    call_free(made);
}

/*
 * A program that is linked for a fixed address and names a function as a constant has an entry of its own for it, which
 * is then that function's address for everybody.
 */
static void named_as_constant(void)
{
#ifndef __PIC__
    void *address;

    __asm__("movq $free, %0" : "=r"(address));
    CHECK(address == (void *)call_free);
#endif
}

extern void *__libc_malloc(size_t size);

static void foreign(void)
{
    char *memory = __libc_malloc(100);

    CHECK(malloc_usable_size(memory) >= 100);
    memory = call_realloc(memory, 100000);
    call_free(memory);
    call_free(__libc_malloc(1000000));
}

/* What an allocator knows of its blocks lies elsewhere: a free does not touch the block. */
static void free_does_not_touch(size_t size, size_t count)
{
    size_t page = 4096;
    char **blocks = malloc(count * sizeof(*blocks));

    for (size_t i = 0; i < count; i++) {
        blocks[i] = call_malloc(size);
        memset(blocks[i], 1, size);
    }
    for (size_t i = 0; i < count; i++) {
        uintptr_t begin = ((uintptr_t)blocks[i] + page - 1) & ~(page - 1);
        uintptr_t end = ((uintptr_t)blocks[i] + size) & ~(page - 1);

        if (begin < end)
            CHECK(mprotect((void *)begin, end - begin, PROT_NONE) == 0);
    }
    for (size_t i = 0; i < count; i++) {
        uintptr_t begin = ((uintptr_t)blocks[i] + page - 1) & ~(page - 1);
        uintptr_t end = ((uintptr_t)blocks[i] + size) & ~(page - 1);

        call_free(blocks[i]);
        if (begin < end)
            (void)mprotect((void *)begin, end - begin, PROT_READ | PROT_WRITE);
    }
    free(blocks);
}

/* The kernel's answer to a read of that byte by write(2). */
static bool is_mapped(const void *address)
{
    int pipes[2];
    bool mapped;

    CHECK(pipe(pipes) == 0);
    mapped = write(pipes[1], address, 1) == 1;
    CHECK(mapped || errno == EFAULT);
    close(pipes[0]);
    close(pipes[1]);
    return mapped;
}

/* Large blocks come and go as mappings: gone is gone, and addresses that come again are new memory. */
static void large_again(void)
{
    for (int round = 0; round < 5; round++) {
        char *memory = call_malloc(100 * MIB);
        char *other = call_malloc(40 * MIB);

        for (size_t at = 0; at < 100 * MIB; at += 4096)
            CHECK(memory[at] == 0);
        for (size_t at = 0; at < 100 * MIB; at += 4096)
            memory[at] = (char)(round + 1);
        other[0] = 1;
        memory = call_realloc(memory, 60 * MIB);
        CHECK(memory[60 * MIB - 4096] == round + 1 && is_mapped(memory + 60 * MIB - 1));
        CHECK(malloc_usable_size(memory) < 61 * MIB);
        call_free(memory);
        CHECK(!is_mapped(memory) && !is_mapped(memory + 59 * MIB));
        CHECK(is_mapped(other));
        call_free(other);
    }
}

static void trimming(void)
{
    struct mallinfo2 info;

    (void)malloc_trim(0);
    CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
    info = mallinfo2();
    CHECK(info.arena + info.hblkhd < (size_t)1 << 50);
}

int main(void)
{
    CHECK_MANAGED(call_malloc(1));
    CHECK_MANAGED(call_malloc(50 * MIB));
    zero_sizes();
    errors();
    errno_is_kept();
    alignments();
    zeroes_again();
    resizing();
    growing_in_turns();
    large_again();
    usable();
    copies();
    whose();
    foreign();
    named_as_constant();
    if (expect_managed()) {
        free_does_not_touch(8192, 1000);
        free_does_not_touch(100000, 100);
        free_does_not_touch(3 * MIB, 10);
    }
    trimming();
    return 0;
}
