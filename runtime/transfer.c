/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.c - explicit copies, page run by page run: pinned pages by memcpy, remote runs in bulk, the rest by
 * process_vm_readv on this process, where the kernel takes the fault and returns EFAULT for a lost page.
 *
 * Runs on application threads. A pin is never held across a fault of the managed page it pins.
 */
#include "runtime/transfer.h"
#include "base/error.h"
#include "base/os.h"
#include "runtime/bulk.h"
#include "runtime/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define ASK_PAGES_MAX 128 /* asked for ahead of the copy */
#define BULK_PAGES_MIN 2

struct span {
    struct page_id page;
    size_t offset_bytes; /* in the page */
    size_t size_bytes;   /* up to the end of the page at most */
};

static struct span span_of(const struct node *node, const char *address, size_t size_bytes)
{
    size_t offset = (uintptr_t)address % PAGE_BYTES;
    size_t room = PAGE_BYTES - offset;

    return (struct span){mmu_page_at(&node->window, address), offset, size_bytes < room ? size_bytes : room};
}

/* ---- one page that is here ------------------------------------------------------------------------------------- */

static bool shared_pin(const struct node *node, struct page_id page, enum access access, struct page_entry **ret_entry)
{
    struct page_entry *entry = table_find(node->pages, page);

    *ret_entry = entry;
    return mmu_page_is_shared(&node->window, page) && entry != NULL && page_pin(entry, access);
}

static void shared_unpin(struct node *node, struct page_entry *entry)
{
    if (page_unpin(entry) && atomic_exchange(&node->unpin_posted, 1) == 0)
        loop_post(node->loop, &node->unpin_call);
}

static bool read_here(struct node *node, const struct span *span, const char *address, char *buffer, int *ret_error)
{
    struct page_entry *entry;

    if (!shared_pin(node, span->page, ACCESS_READ, &entry))
        return false;
    *ret_error = 0;
    if (page_where(entry) == WHERE_MAPPED)
        memcpy(buffer, address, span->size_bytes);
    else
        *ret_error = mmu_shared_read(&node->window, span->page, span->offset_bytes, buffer, span->size_bytes);
    shared_unpin(node, entry);
    return true;
}

static bool write_here(struct node *node, const struct span *span, const char *buffer, int *ret_error)
{
    struct page_entry *entry;

    if (!shared_pin(node, span->page, ACCESS_WRITE, &entry))
        return false;
    *ret_error = mmu_shared_write(&node->window, span->page, span->offset_bytes, buffer, span->size_bytes);
    shared_unpin(node, entry);
    return true;
}

/* ---- by the kernel --------------------------------------------------------------------------------------------- */

/*
 * The source is read through a pin of the kernel, the destination is written as by read(2). Never the other way round:
 * bytes stored through a kernel's pin into a shared page could come after the page was taken away.
 */
static int kernel_copy(void *destination, const void *source, size_t size_bytes)
{
    struct iovec to = {destination, size_bytes};
    struct iovec from = {(void *)(uintptr_t)source, size_bytes};

    while (to.iov_len > 0) {
        ssize_t done = process_vm_readv(getpid(), &to, 1, &from, 1, 0);

        if (done <= 0 && (done == 0 || errno == EFAULT))
            return error_set(-EIO, "copy from %p to %p: a page is lost, or is not memory of this process",
                             from.iov_base, to.iov_base);
        if (done < 0)
            return error_set(-errno, "copy by process_vm_readv: %m; a seccomp filter may refuse it");
        to.iov_base = (char *)to.iov_base + done;
        to.iov_len -= (size_t)done;
        from.iov_base = (char *)from.iov_base + done;
        from.iov_len -= (size_t)done;
    }
    return 0;
}

int transfer_touch(const void *address)
{
    char byte;

    return kernel_copy(&byte, address, 1);
}

/* ---- asking ahead ---------------------------------------------------------------------------------------------- */

static void run_ask(struct request *request)
{
    struct node *node = request->node;
    uint64_t now_ns = os_now_ns();
    enum access access = (enum access)request->b;

    for (uint64_t i = 0; i < request->a; i++) {
        struct page_id page = page_of(request->page.index + i);
        struct page_entry *entry = table_touch(node->pages, page);

        if (entry == NULL || page_has(entry, WORD_POISONED) || !mmu_page_is_shared(&node->window, page))
            continue;
        if (page_rights(entry) >= access) {
            pager_fault(node->pager, page, access == ACCESS_WRITE, 0, now_ns);
            continue;
        }
        if (coherence_fault(node->coherence, page, access, 0, TOKEN_NOBODY | 8, request->c != 0, now_ns) != 0)
            break;
    }
    request_finish(request, 0, 0);
}

void transfer_ask(struct node *node, const void *address, size_t size_bytes, enum access access, bool is_hint)
{
    uint64_t first = mmu_page_at(&node->window, address).index;
    uint64_t last = mmu_page_at(&node->window, (const char *)address + size_bytes - 1).index;
    uint64_t count = last - first + 1;
    /* More would push each other out of DDR before anybody comes to copy. */
    uint64_t most = node->config.ddr_bytes / PAGE_BYTES / 4;
    struct request request = REQUEST(node, run_ask, .page = page_of(first), .a = count < most ? count : most,
                                     .b = (uint64_t)access, .c = is_hint);

    request_call(&request);
}

bool transfer_is_near(struct node *node, const void *address, size_t size_bytes, enum access access)
{
    uint64_t first = mmu_page_at(&node->window, address).index;
    uint64_t last = mmu_page_at(&node->window, (const char *)address + size_bytes - 1).index;

    for (uint64_t i = first; i <= last; i++) {
        struct page_entry *entry = table_find(node->pages, page_of(i));

        if (!mmu_page_is_shared(&node->window, page_of(i)))
            continue;
        if (entry == NULL || page_rights(entry) < access || !page_is_in_memory(entry))
            return entry != NULL && page_has(entry, WORD_POISONED);
    }
    return true;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

/* How many consecutive pages from `page` on, in one extent, are not readable here; `limit` at most. */
static unsigned remote_run(const struct node *node, struct page_id page, uint64_t limit)
{
    unsigned count = 0;
    uint64_t extent_left = EXTENT_PAGES - page.index % EXTENT_PAGES;

    if (limit > extent_left)
        limit = extent_left;
    while (count < limit) {
        struct page_entry *entry = table_find(node->pages, page_of(page.index + count));

        if (entry != NULL && page_rights(entry) != ACCESS_NONE)
            break;
        count++;
    }
    return count;
}

/* A remote run by one round trip. Returns bytes read, 0 when bulk is not the way, or an error. */
static ssize_t read_bulk(struct node *node, const char *address, size_t size_bytes, char *buffer)
{
    struct page_id page = mmu_page_at(&node->window, address);
    size_t offset = (uintptr_t)address % PAGE_BYTES;
    uint64_t pages = (offset + size_bytes + PAGE_BYTES - 1) / PAGE_BYTES;
    struct node_id home = memory_home_of(node, page);
    size_t size;
    unsigned run;
    int error;

    if (!mmu_page_is_shared(&node->window, page) || node_is(home, node->self) || node_is_none(home))
        return 0;
    run = remote_run(node, page, pages);
    if (run < BULK_PAGES_MIN)
        return 0;
    size = run * PAGE_BYTES - offset;
    if (size > size_bytes)
        size = size_bytes;
    error = bulk_read(node, home, page, offset, size, buffer);
    if (error == -EAGAIN || error == -EFAULT)
        return 0; /* the home is busy with others' runs: page by page */
    return error != 0 ? error : (ssize_t)size;
}

int transfer_read(struct node *node, const void *address, size_t size_bytes, void *buffer)
{
    const char *from = address;
    char *to = buffer;
    /* A fault on a managed buffer while the source is pinned here or at its home could wait for ever. */
    bool plain = !mmu_address_is_inside(&node->window, buffer);

    while (size_bytes > 0) {
        struct span span = span_of(node, from, size_bytes);
        ssize_t done = (ssize_t)span.size_bytes;
        int error = 0;

        if (!plain || !read_here(node, &span, from, to, &error)) {
            done = plain ? read_bulk(node, from, size_bytes, to) : 0;
            if (done == 0) {
                error = kernel_copy(to, from, span.size_bytes);
                done = (ssize_t)span.size_bytes;
            }
        }
        if (error != 0 || done < 0)
            return error != 0 ? error : (int)done;
        from += done;
        to += done;
        size_bytes -= (size_t)done;
    }
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

int transfer_write(struct node *node, void *address, size_t size_bytes, const void *buffer)
{
    char *to = address;
    const char *from = buffer;
    const char *asked = to; /* up to here rights were asked for */
    bool plain = !mmu_address_is_inside(&node->window, buffer);

    while (size_bytes > 0) {
        struct span span = span_of(node, to, size_bytes);
        int error = 0;

        if (!plain || !write_here(node, &span, from, &error)) {
            if (to >= asked && size_bytes > PAGE_BYTES) {
                size_t ahead = size_bytes < ASK_PAGES_MAX * PAGE_BYTES ? size_bytes : ASK_PAGES_MAX * PAGE_BYTES;

                transfer_ask(node, to, ahead, ACCESS_WRITE, true);
                asked = to + ahead;
            }
            error = kernel_copy(to, from, span.size_bytes);
        }
        if (error != 0)
            return error;
        to += span.size_bytes;
        from += span.size_bytes;
        size_bytes -= span.size_bytes;
    }
    return 0;
}
