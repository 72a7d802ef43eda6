/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pins.c - the table of pinned ranges. The shard's, but for the waiting in pins_take().
 */
#include "runtime/pins.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "runtime/transfer.h"

#include <errno.h>

struct pin {
    struct page_id first;
    uint64_t pages_count; /* 0: free */
    uint64_t deadline_ns;
    bool is_over; /* ended by its deadline; kept so that dsm_unpin() can say so */
};

struct pins {
    struct pin ranges[PINS_MAX];
    uint64_t next_deadline_ns;
};

static void page_release(struct node *node, struct page_id page)
{
    struct page_entry *entry = table_find(node->pages, page);

    pager_stats(node->pager)->pinned_pages--;
    if (page_unpin(entry))
        pager_unpinned(node->pager);
}

static void pages_release(struct node *node, struct page_id first, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        page_release(node, page_of(first.index + i));
}

/* ---- one page -------------------------------------------------------------------------------------------------- */

static void run_pin_page(struct request *request)
{
    struct node *node = request->node;
    struct page_entry *entry = table_touch(node->pages, request->page);
    enum access access = (enum access)request->a;
    bool is_shared = mmu_page_is_shared(&node->window, request->page);
    int error;

    if (entry == NULL || page_has(entry, WORD_POISONED)) {
        request_finish(request, -EIO, 0);
        return;
    }
    if (!is_shared) {
        error = pager_private_manage(node->pager, request->page);
        if (error != 0) {
            request_finish(request, error, 0);
            return;
        }
        page_set_rights(entry, ACCESS_WRITE);
    } else if (page_rights(entry) < access) {
        error = coherence_fault(node->coherence, request->page, access, request->b, request_token(request), false,
                                os_now_ns());
        if (error != 0)
            request_finish(request, error, 0);
        return;
    }
    if (pager_pin(node->pager, request->page, access)) {
        pager_stats(node->pager)->pinned_pages++;
        request_finish(request, 0, 1);
        return;
    }
    request_finish(request, -EAGAIN, 0);
}

static void run_release_pages(struct request *request)
{
    pages_release(request->node, request->page, request->a);
    request_finish(request, 0, 0);
}

static int page_take(struct node *node, struct page_id page, enum access access)
{
    for (;;) {
        struct request request =
            REQUEST(node, run_pin_page, .page = page, .a = (uint64_t)access, .b = (uint64_t)pthread_self());
        int error = request_call(&request);

        if (error == 0 && request.value == 1)
            return 0;
        if (error != 0 && error != -EAGAIN)
            return error_set(error, "page at %p cannot be pinned: it is lost", mmu_page_address(&node->window, page));
        /* The bytes come from a lower tier: let the kernel wait for them. */
        error = transfer_touch(mmu_page_address(&node->window, page));
        if (error != 0)
            return error;
    }
}

/* ---- ranges ---------------------------------------------------------------------------------------------------- */

static void run_register(struct request *request)
{
    struct pins *pins = request->node->pins;
    struct pin *pin = pins->ranges;

    while (pin < pins->ranges + PINS_MAX && pin->pages_count != 0)
        pin++;
    if (pin == pins->ranges + PINS_MAX) {
        request_finish(request, -ENOMEM, 0);
        return;
    }
    *pin = (struct pin){request->page, request->a, os_now_ns() + request->b, false};
    if (pin->deadline_ns < pins->next_deadline_ns)
        pins->next_deadline_ns = pin->deadline_ns;
    request_finish(request, 0, 0);
}

static void run_put(struct request *request)
{
    struct node *node = request->node;

    for (struct pin *pin = node->pins->ranges; pin < node->pins->ranges + PINS_MAX; pin++) {
        if (pin->pages_count != request->a || !page_is(pin->first, request->page))
            continue;
        if (!pin->is_over)
            pages_release(node, pin->first, pin->pages_count);
        pin->pages_count = 0;
        request_finish(request, pin->is_over ? -ETIMEDOUT : 0, 0);
        return;
    }
    request_finish(request, -EINVAL, 0);
}

static void run_room(struct request *request)
{
    struct node *node = request->node;
    uint64_t budget = node->config.ddr_bytes / PAGE_BYTES;

    request_finish(request, pager_stats(node->pager)->pinned_pages + request->a > budget / 2 ? -ENOMEM : 0, 0);
}

static uint64_t pages_of(const void *address, size_t size_bytes)
{
    return (((uintptr_t)address % PAGE_BYTES) + size_bytes + PAGE_BYTES - 1) / PAGE_BYTES;
}

int pins_take(struct node *node, void *address, size_t size_bytes, bool writable, uint64_t timeout_ns)
{
    struct page_id first = mmu_page_at(&node->window, address);
    uint64_t count = pages_of(address, size_bytes);
    struct request room = REQUEST(node, run_room, .a = count);
    struct request enter = REQUEST(node, run_register, .page = first, .a = count, .b = timeout_ns);
    uint64_t taken = 0;
    int error = request_call(&room);

    if (error != 0)
        return error_set(error, "%lu pages would pin more than half of the DDR budget; raise option ddr", count);
    while (taken < count && error == 0) {
        error = page_take(node, page_of(first.index + taken), writable ? ACCESS_WRITE : ACCESS_READ);
        taken += error == 0;
    }
    if (error == 0) {
        error = request_call(&enter);
        if (error != 0)
            error_set(error, "%d ranges are pinned already; unpin some", PINS_MAX);
    }
    if (error != 0) {
        struct request release = REQUEST(node, run_release_pages, .page = first, .a = taken);

        request_call(&release);
    }
    return error;
}

int pins_put(struct node *node, void *address, size_t size_bytes)
{
    struct request put = REQUEST(node, run_put, .page = mmu_page_at(&node->window, address),
                                 .a = pages_of(address, size_bytes));
    int error = request_call(&put);

    if (error == -EINVAL)
        error_set(error, "%zu bytes at %p are not pinned", size_bytes, address);
    else if (error == -ETIMEDOUT)
        error_set(error, "the pin of %zu bytes at %p had ended by its timeout", size_bytes, address);
    return error;
}

uint64_t pins_expire(struct node *node, uint64_t now_ns)
{
    struct pins *pins = node->pins;
    uint64_t next_ns = UINT64_MAX;

    if (now_ns < pins->next_deadline_ns)
        return pins->next_deadline_ns;
    for (struct pin *pin = pins->ranges; pin < pins->ranges + PINS_MAX; pin++) {
        if (pin->pages_count == 0 || pin->is_over)
            continue;
        if (pin->deadline_ns <= now_ns) {
            log_warn("pin of %lu pages at %p ended by its timeout", pin->pages_count,
                     mmu_page_address(&node->window, pin->first));
            pages_release(node, pin->first, pin->pages_count);
            pin->is_over = true;
        } else if (pin->deadline_ns < next_ns) {
            next_ns = pin->deadline_ns;
        }
    }
    pins->next_deadline_ns = next_ns;
    return next_ns;
}

int pins_create(struct pins **ret_pins)
{
    void *memory;
    int error = os_pages_map(sizeof(struct pins), &memory);

    if (error != 0)
        return error;
    *ret_pins = memory;
    (*ret_pins)->next_deadline_ns = UINT64_MAX;
    return 0;
}

void pins_destroy(struct pins *pins)
{
    os_pages_unmap(pins, sizeof(*pins));
}
