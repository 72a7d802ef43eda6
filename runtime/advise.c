/* SPDX-License-Identifier: Apache-2.0 */
/*
 * advise.c - what the application says of its memory: posted by its threads, followed by the shard.
 *
 * A free costs a request more only in a process that has given advice.
 */
#include "runtime/advise.h"
#include "base/os.h"
#include "runtime/memory.h"

/* Pages whose bytes are on other nodes come by the protocol, as hints: who is busy with a page keeps it. */
static void remote_ask(struct node *node, struct page_id first, uint64_t pages_count)
{
    uint64_t now_ns = os_now_ns();

    for (uint64_t i = 0; i < pages_count; i++) {
        struct page_id page = page_of(first.index + i);
        struct page_entry *entry = table_touch(node->pages, page);

        if (!mmu_page_is_shared(&node->window, page))
            return;
        if (entry == NULL || page_has(entry, WORD_POISONED) || page_rights(entry) != ACCESS_NONE)
            continue;
        if (coherence_fault(node->coherence, page, ACCESS_READ, 0, TOKEN_NOBODY | 8, true, now_ns) != 0)
            return; /* as many are under way as may be */
    }
}

static void run_advise(struct request *request)
{
    struct node *node = request->node;
    enum dsm_advice advice = (enum dsm_advice)request->b;
    int result = pager_advise(node->pager, request->page, request->a, advice);

    if (advice == DSM_ADVISE_WILL_NEED)
        remote_ask(node, request->page, pager_need_limit(node->pager, request->a));
    request_finish(request, result, 0);
}

int advise_range(struct node *node, const void *address, size_t size_bytes, enum dsm_advice advice)
{
    uint64_t first = mmu_page_at(&node->window, address).index;
    uint64_t last = mmu_page_at(&node->window, (const char *)address + size_bytes - 1).index;
    struct request request =
        REQUEST(node, run_advise, .page = page_of(first), .a = last - first + 1, .b = (uint64_t)advice);

    if (advice == DSM_ADVISE_SEQUENTIAL || advice == DSM_ADVISE_RANDOM || advice == DSM_ADVISE_WALK)
        atomic_store_explicit(&node->has_advice, true, memory_order_relaxed);
    return request_call(&request);
}

void advise_freed(struct node *node, const void *memory)
{
    size_t size_bytes = 0;

    if (!atomic_load_explicit(&node->has_advice, memory_order_relaxed) ||
        memory_usable_size(node, memory, &size_bytes) != 0 || size_bytes < PAGE_BYTES)
        return;
    advise_range(node, memory, size_bytes, DSM_ADVISE_NORMAL); /* forgetting finds room */
}
