/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heap_large.c - blocks of HEAP_LARGE_BYTES and more: a mapping each, of exactly its pages.
 *
 * What is freed is given back at once; a block that grows is extended in place where the addresses behind it are free,
 * and else moved piece by piece, without what was never written and giving back the old pieces on the way. Blocks begin
 * at multiples of HEAP_BLOCK_BYTES, which tells most other blocks apart without a look at the table; the table is in
 * ordinary memory. Any thread; the lock is taken around a fork.
 */
#include "shim/heap.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES ((size_t)4096)
#define ROWS_FIRST 256

struct row {
    uintptr_t address; /* 0: free */
    size_t size_bytes;
};

/* Open addressing, at most half full. */
static struct {
    pthread_mutex_t lock;
    struct row *rows;
    size_t row_count; /* a power of two */
    size_t used;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t pages(size_t size)
{
    return (size + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

/* ---- table, under its lock -------------------------------------------------------------------------------------- */

static size_t row_home(uintptr_t address)
{
    return (size_t)((address / HEAP_BLOCK_BYTES) * 0x9e3779b97f4a7c15U >> 32) & (table.row_count - 1);
}

/* The row of the address, or the free one where it would go. */
static struct row *row_of(uintptr_t address)
{
    size_t i = row_home(address);

    while (table.rows[i].address != 0 && table.rows[i].address != address)
        i = (i + 1) & (table.row_count - 1);
    return &table.rows[i];
}

static bool table_grow(void)
{
    struct row *old = table.rows;
    size_t old_count = table.row_count;
    size_t count = old_count == 0 ? ROWS_FIRST : 2 * old_count;
    void *memory = mmap(NULL, count * sizeof(*old), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return false;
    table.rows = memory;
    table.row_count = count;
    for (size_t i = 0; i < old_count; i++)
        if (old[i].address != 0)
            *row_of(old[i].address) = old[i];
    if (old != NULL)
        munmap(old, old_count * sizeof(*old));
    return true;
}

static bool row_add(uintptr_t address, size_t size)
{
    if (2 * (table.used + 1) > table.row_count && !table_grow())
        return false;
    *row_of(address) = (struct row){address, size};
    table.used++;
    return true;
}

/* Rows behind it move up, so that no search ends early at the hole. */
static void row_remove(struct row *row)
{
    size_t hole = (size_t)(row - table.rows);
    size_t mask = table.row_count - 1;

    for (size_t i = (hole + 1) & mask; table.rows[i].address != 0; i = (i + 1) & mask) {
        if (((i - row_home(table.rows[i].address)) & mask) >= ((i - hole) & mask)) {
            table.rows[hole] = table.rows[i];
            hole = i;
        }
    }
    table.rows[hole].address = 0;
    table.used--;
}

/* 0: not a block of ours. `change_to`: the size from now on, 0 to forget the block, SIZE_MAX to leave it. */
static size_t table_size(const void *memory, size_t change_to)
{
    struct row *row;
    size_t size = 0;

    pthread_mutex_lock(&table.lock);
    row = table.row_count != 0 ? row_of((uintptr_t)memory) : NULL;
    if (row != NULL && row->address != 0) {
        size = row->size_bytes;
        if (change_to == 0)
            row_remove(row);
        else if (change_to != SIZE_MAX)
            row->size_bytes = change_to;
    }
    pthread_mutex_unlock(&table.lock);
    return size;
}

/* ---- blocks ----------------------------------------------------------------------------------------------------- */

void *heap_large_allocate(size_t alignment, size_t size)
{
    size_t step = alignment < HEAP_BLOCK_BYTES ? HEAP_BLOCK_BYTES : alignment;
    void *memory;
    bool known;
    int error;

    if (size > PTRDIFF_MAX)
        return NULL;
    error = hooks_map(pages(size), step, PROT_READ | PROT_WRITE, &memory);
    if (error == -ENOSPC) /* no addresses are left: better not managed than not at all */
        return alignment <= 16 ? __libc_calloc(1, size) : __libc_memalign(alignment, size);
    if (error != 0)
        return NULL;
    pthread_mutex_lock(&table.lock);
    known = row_add((uintptr_t)memory, pages(size));
    pthread_mutex_unlock(&table.lock);
    if (!known) {
        (void)hooks_unmap(memory, pages(size));
        return NULL;
    }
    return memory;
}

bool heap_large_free(void *memory)
{
    size_t size = table_size(memory, 0);

    /* Forgotten first: the addresses may be given out again at once. */
    if (size != 0)
        (void)hooks_unmap(memory, size);
    return size != 0;
}

size_t heap_large_size(const void *memory)
{
    return table_size(memory, SIZE_MAX);
}

static bool extend(char *memory, size_t old_size, size_t new_size)
{
    char *end = memory + old_size;

    if (!hooks_owns(memory + new_size - 1) ||
        hooks_map_at(end, new_size - old_size, PROT_READ | PROT_WRITE, false) != 0)
        return false;
    table_size(memory, new_size);
    return true;
}

/* Whole pages; those that were never written are left out. */
static void copy_written(char *to, const char *from, size_t size)
{
    size_t run = 0; /* bytes before `at` that are to be copied */
    size_t at = 0;

    for (; at < size; at += PAGE_BYTES) {
        if (hooks_may_have_bytes(from + at)) {
            run += PAGE_BYTES;
            continue;
        }
        memcpy(to + at - run, from + at - run, run);
        run = 0;
    }
    memcpy(to + at - run, from + at - run, run);
}

/* Piece by piece, so that the charge does not double. */
static void move(char *to, char *from, size_t size)
{
    for (size_t at = 0; at < size; at += HEAP_BLOCK_BYTES) {
        size_t piece = size - at < HEAP_BLOCK_BYTES ? size - at : HEAP_BLOCK_BYTES;

        copy_written(to + at, from + at, piece);
        (void)hooks_unmap(from + at, piece);
    }
}

void *heap_large_resize(void *memory, size_t size)
{
    size_t old_size = heap_large_size(memory);
    void *block;

    if (size > PTRDIFF_MAX)
        return NULL;
    size = pages(size);
    if (size < old_size && hooks_unmap((char *)memory + size, old_size - size) == 0)
        table_size(memory, size);
    if (size <= old_size || extend(memory, old_size, size))
        return memory;
    block = heap_large_allocate(0, size);
    if (block == NULL)
        return NULL;
    table_size(memory, 0);
    move(block, memory, old_size);
    return block;
}

void heap_large_lock(void)
{
    pthread_mutex_lock(&table.lock);
}

void heap_large_unlock(void)
{
    pthread_mutex_unlock(&table.lock);
}
