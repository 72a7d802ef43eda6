/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.c - the way of one fault, top to bottom. Read this first.
 *
 * A thread touches a page that is not there (or not writable). The kernel puts the thread to sleep and a message on the
 * userfaultfd; the shard's loop calls fault_ready(). If the node has the right already, the bytes are somewhere on this
 * node and the pager brings them. If not, the coherence protocol asks the page's home; when the answer comes,
 * env.c's install maps the page, which wakes the thread. Nothing here waits: one thread's fault never stands behind
 * another page's disk read or network round trip.
 */
#include "base/log.h"
#include "base/os.h"
#include "runtime/node.h"

#include <errno.h>

#define FAULTS_AT_A_TIME 16
#define PREFETCHES_MAX 32

/* ---- who waits for which page ---------------------------------------------------------------------------------- */

static unsigned hash_of(struct page_id page)
{
    return (unsigned)(page.index * 0x9e3779b97f4a7c15U >> 54) % FAULT_WAITS_MAX;
}

void fault_waits_init(struct node *node)
{
    for (unsigned i = 0; i < FAULT_WAITS_MAX; i++)
        node->waits[i].next = i + 1 < FAULT_WAITS_MAX ? (uint16_t)(i + 2) : 0;
    node->waits_free = 1;
}

static struct fault_wait *wait_find(struct node *node, struct page_id page)
{
    for (uint16_t i = node->waits_hash[hash_of(page)]; i != 0; i = node->waits[i - 1].next)
        if (page_is(node->waits[i - 1].page, page))
            return &node->waits[i - 1];
    return NULL;
}

static struct fault_wait *wait_add(struct node *node, struct page_id page)
{
    uint16_t number = node->waits_free;
    uint16_t *head = &node->waits_hash[hash_of(page)];
    struct fault_wait *wait;

    if (number == 0)
        return NULL;
    wait = &node->waits[number - 1];
    node->waits_free = wait->next;
    *wait = (struct fault_wait){.page = page, .next = *head, .is_used = true};
    *head = number;
    return wait;
}

static void wait_remove(struct node *node, struct fault_wait *wait)
{
    uint16_t number = (uint16_t)(wait - node->waits + 1);
    uint16_t *at = &node->waits_hash[hash_of(wait->page)];

    while (*at != number)
        at = &node->waits[*at - 1].next;
    *at = wait->next;
    wait->is_used = false;
    wait->next = node->waits_free;
    node->waits_free = number;
}

static uint64_t wait_token(const struct node *node, const struct fault_wait *wait)
{
    return (uint64_t)(wait - node->waits) << 3 | TOKEN_FAULT;
}

/* ---- one fault ------------------------------------------------------------------------------------------------- */

/* The node lacks the right: ask the home. Threads that fault on the page meanwhile are woken by the same answer. */
static void fault_ask(struct node *node, const struct mmu_fault *fault, bool is_write, bool has_bytes, uint64_t now_ns)
{
    struct fault_wait *wait = wait_find(node, fault->page);
    enum access access = is_write ? ACCESS_WRITE : ACCESS_READ;
    int error;

    if (wait != NULL)
        return;
    wait = wait_add(node, fault->page);
    if (wait == NULL) {
        mmu_wake(node->mmu, fault->page, 1); /* the thread faults again; by then there is room */
        return;
    }
    wait->start_ns = now_ns;
    wait->thread = fault->thread;
    wait->is_write = is_write;
    wait->is_upgrade = has_bytes;
    error = coherence_fault(node->coherence, fault->page, access, fault->thread, wait_token(node, wait), false, now_ns);
    if (error == 0)
        return;
    wait_remove(node, wait);
    if (error == -EFAULT)
        pager_poison(node->pager, fault->page, "it belongs to no allocation");
    else
        mmu_wake(node->mmu, fault->page, 1);
}

/* What the predictor expects next on other nodes: asked for now, nobody waits. */
static void fault_prefetch(struct node *node, struct page_id page, uint64_t now_ns)
{
    struct page_entry *entry = table_touch(node->pages, page);

    if (entry == NULL || page_rights(entry) != ACCESS_NONE || node->prefetches >= PREFETCHES_MAX ||
        wait_find(node, page) != NULL)
        return;
    if (coherence_fault(node->coherence, page, ACCESS_READ, 0, TOKEN_NOBODY, true, now_ns) == 0) {
        node->prefetches++;
        pager_stats(node->pager)->prefetched_pages++;
    }
}

static void fault_prefetch_run(struct node *node, const struct prefetch_run *run, uint64_t now_ns)
{
    for (uint32_t i = 0; i < run->count; i++)
        fault_prefetch(node, page_of(run->first.index + (uint64_t)((int64_t)i * run->stride)), now_ns);
}

static void fault_one(struct node *node, const struct mmu_fault *fault, uint64_t now_ns)
{
    bool is_write = fault->is_write || fault->kind == MMU_FAULT_WP;
    struct page_entry *entry = table_touch(node->pages, fault->page);
    struct prefetch_plan plan;

    if (entry == NULL) {
        log_error("page %lu: no memory for its table entry; touching it raises SIGBUS", fault->page.index);
        if (mmu_poison(node->mmu, fault->page) != 0)
            NEVER("a page can be poisoned");
        return;
    }
    if (!mmu_page_is_shared(&node->window, fault->page)) {
        page_set_rights(entry, ACCESS_WRITE);
    } else if (!page_has(entry, WORD_POISONED) &&
               page_rights(entry) < (is_write ? ACCESS_WRITE : ACCESS_READ)) {
        fault_ask(node, fault, is_write, page_rights(entry) == ACCESS_READ, now_ns);
        pager_predict(node->pager, fault->page, fault->thread, &plan);
        for (uint32_t i = 0; i < plan.runs_count; i++)
            fault_prefetch_run(node, &plan.runs[i], now_ns);
        return;
    }
    pager_fault(node->pager, fault->page, is_write, fault->thread != 0 ? fault->thread : 1, now_ns);
}

void fault_ready(struct loop_watch *watch, uint32_t events)
{
    struct node *node = watch->context;
    struct mmu_fault faults[FAULTS_AT_A_TIME];
    int count;

    (void)events;
    do {
        uint64_t now_ns;

        count = mmu_faults_read(node->mmu, faults, FAULTS_AT_A_TIME);
        now_ns = os_now_ns();
        for (int i = 0; i < count; i++)
            fault_one(node, &faults[i], now_ns);
    } while (count == FAULTS_AT_A_TIME);
}

/* ---- the protocol's answer ------------------------------------------------------------------------------------- */

void fault_bytes_came(struct node *node, struct page_id page)
{
    struct fault_wait *wait = wait_find(node, page);

    if (wait != NULL)
        wait->has_bytes = true;
}

static enum dsm_source source_of(const struct fault_wait *wait)
{
    if (wait->has_bytes)
        return DSM_FROM_REMOTE;
    return wait->is_upgrade ? DSM_FROM_UPGRADE : DSM_FROM_ZERO;
}

/*
 * env->install came before: the page is mapped and the thread runs, or its bytes are being read from a lower tier and
 * the pager wakes it.
 */
void fault_done(struct node *node, uint64_t token, int result)
{
    struct fault_wait *wait = &node->waits[token >> 3];
    enum dsm_source source = source_of(wait);

    ASSERT(wait->is_used);
    if (result == 0)
        pager_touched(node->pager, source, wait->page, wait->is_write, wait->start_ns);
    else
        mmu_wake(node->mmu, wait->page, 1);
    wait_remove(node, wait);
}
