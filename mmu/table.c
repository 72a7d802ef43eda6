/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - one entry a page, in one reservation of addresses of which only touched extents have memory.
 *
 * An entry's address follows from its page, so nothing is allocated, moved or freed: forgetting an extent gives its
 * memory back to the kernel and leaves zeroes. A pointer from table_find() therefore stays readable until
 * table_destroy(), whatever the shard forgets meanwhile. table_touch(), table_forget() and table_visit() are the
 * shard's; table_find() may run beside them.
 */
#include "mmu/table.h"
#include "base/assert.h"
#include "base/os.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

struct table {
    uint64_t pages_count;
    size_t entry_bytes;
    size_t extent_stride; /* bytes of one extent's entries, whole pages so that they can be given back alone */
    uint64_t extents_count;
    uint64_t extents_used;
    size_t marks_size, entries_size;
    _Atomic(uint8_t)
        *marks; /* 1: touched. table_touch() releases, table_find() acquires: entries are zeroes or newer */
    uint8_t *entries;
};

int table_create(uint64_t pages_count, size_t entry_bytes, struct table **ret_table)
{
    struct table *table = calloc(1, sizeof(*table));
    void *memory;

    if (table == NULL)
        return -ENOMEM;
    ASSERT(pages_count > 0 && entry_bytes > 0);
    table->pages_count = pages_count;
    table->entry_bytes = entry_bytes;
    table->extent_stride = (EXTENT_PAGES * entry_bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    table->extents_count = (pages_count + EXTENT_PAGES - 1) / EXTENT_PAGES;
    table->marks_size = (table->extents_count + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    table->entries_size = table->extents_count * table->extent_stride;
    if (os_pages_map(table->marks_size, &memory) != 0)
        goto free_table;
    table->marks = memory;
    if (os_pages_map(table->entries_size, &memory) != 0)
        goto unmap_marks;
    table->entries = memory;
    /* A huge page would charge 2 MiB for the first entry. */
    madvise(table->marks, table->marks_size, MADV_NOHUGEPAGE);
    madvise(table->entries, table->entries_size, MADV_NOHUGEPAGE);
    /* A core dump would be as large as the reservation, if not on a disk then in the pipe to who takes it. */
    madvise(table->marks, table->marks_size, MADV_DONTDUMP);
    madvise(table->entries, table->entries_size, MADV_DONTDUMP);
    *ret_table = table;
    return 0;
unmap_marks:
    os_pages_unmap(table->marks, table->marks_size);
free_table:
    free(table);
    return -ENOMEM;
}

void table_destroy(struct table *table)
{
    if (table == NULL)
        return;
    os_pages_unmap(table->marks, table->marks_size);
    os_pages_unmap(table->entries, table->entries_size);
    free(table);
}

static void *entry_at(const struct table *table, struct page_id page)
{
    return table->entries + page.index / EXTENT_PAGES * table->extent_stride +
           page.index % EXTENT_PAGES * table->entry_bytes;
}

void *table_find(const struct table *table, struct page_id page)
{
    if (page.index >= table->pages_count)
        return NULL;
    /* Pairs with the release in table_touch(). */
    if (atomic_load_explicit(&table->marks[page.index / EXTENT_PAGES], memory_order_acquire) == 0)
        return NULL;
    return entry_at(table, page);
}

void *table_touch(struct table *table, struct page_id page)
{
    _Atomic(uint8_t) *mark;

    if (page.index >= table->pages_count)
        return NULL;
    mark = &table->marks[page.index / EXTENT_PAGES];
    if (atomic_load_explicit(mark, memory_order_relaxed) == 0) {
        table->extents_used++;
        atomic_store_explicit(mark, 1, memory_order_release);
    }
    return entry_at(table, page);
}

void table_forget(struct table *table, struct page_id any_page_of_extent)
{
    uint64_t extent = any_page_of_extent.index / EXTENT_PAGES;
    int result;

    if (table_find(table, any_page_of_extent) == NULL)
        return;
    atomic_store_explicit(&table->marks[extent], 0, memory_order_release);
    table->extents_used--;
    result = madvise(table->entries + extent * table->extent_stride, table->extent_stride, MADV_DONTNEED);
    ASSERT(result == 0); /* else the next touch would find old entries */
}

void table_limit(struct table *table, uint64_t pages_count)
{
    uint64_t extents = (pages_count + EXTENT_PAGES - 1) / EXTENT_PAGES;
    size_t entries_size = extents * table->extent_stride;

    ASSERT(pages_count <= table->pages_count && pages_count % EXTENT_PAGES == 0);
    for (uint64_t i = extents; i < table->extents_count; i++)
        table->extents_used -= atomic_exchange_explicit(&table->marks[i], 0, memory_order_release);
    /* The marks stay readable: table_find() may be on its way to one. */
    os_pages_unmap(table->entries + entries_size, table->entries_size - entries_size);
    table->pages_count = pages_count;
    table->extents_count = extents;
    table->entries_size = entries_size;
}

uint64_t table_bytes(const struct table *table)
{
    return sizeof(*table) + table->extents_used * (table->extent_stride + sizeof(*table->marks));
}

uint64_t table_extents(const struct table *table)
{
    return table->extents_used;
}

void table_visit(const struct table *table, void (*visit)(void *context, struct page_id first, void *entries),
                 void *context)
{
    uint64_t left = table->extents_used;

    for (uint64_t extent = 0; extent < table->extents_count && left > 0; extent++) {
        struct page_id first = page_of(extent * EXTENT_PAGES);

        if (table_find(table, first) == NULL)
            continue;
        left--;
        visit(context, first, entry_at(table, first));
    }
}
