/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_stall.c - faults that found no frame and wait for pages to leave.
 *
 * Runs on the shard's thread. They are answered in the order in which they came. Always holds: a fault that waits is
 * served or ends in SIGBUS, in bounded time after the last page left: where every tier is full and nothing moves any
 * more, a hang would hide it.
 */
#include "runtime/pager_internal.h"

#define RETRY_NS       1000000U
#define NEW_LIMIT_NS   UINT64_C(2000000000) /* without any page leaving: for a page that was never written, */
#define BYTES_LIMIT_NS UINT64_C(10000000000) /* and for one whose bytes are lost by it */

void pager_stall(struct pager *pager, const struct stalled_fault *fault)
{
    unsigned at = (pager->stalls_first + pager->stalls_count) % PAGER_STALLS_MAX;

    /* A thread whose fault is not kept here raises it anew when woken. Thread 0: rights came, perhaps nobody waits. */
    if (fault->thread == 0 || pager->stalls_count == PAGER_STALLS_MAX) {
        mmu_wake(pager->mmu, fault->page, 1);
        return;
    }
    pager->stalls[at] = *fault;
    pager->stalls[at].stalled_ns = os_now_ns();
    pager->stalls_count++;
    pager->stats.stalled_faults++;
}

/*
 * A slow disk is no full one: time counts from the last page that left, and not while any is on its way. What is on its
 * way to a disk whose last write failed does not count: it comes back, and is written again without end.
 */
static bool has_waited_for(struct pager *pager, const struct stalled_fault *fault, uint64_t now_ns, uint64_t limit_ns)
{
    if (pager->left_seen != pager->left_count || (pager_is_moving(pager) && !pager->is_write_failing)) {
        pager->left_seen = pager->left_count;
        pager->left_ns = now_ns;
    }
    return now_ns > fault->stalled_ns + limit_ns && now_ns > pager->left_ns + limit_ns;
}

/* false: it waits on. */
static bool stall_answer(struct pager *pager, const struct stalled_fault *fault, uint64_t now_ns)
{
    bool is_new = page_where(pager_entry(pager, fault->page)) == WHERE_NOWHERE;
    bool has_room = is_new ? pager_frames_used(pager) < pager->budget_frames : !pager_is_crowded(pager);
    bool gives_up = !has_room && (!is_new || pager->fresh_count == 0) &&
                    has_waited_for(pager, fault, now_ns, is_new ? NEW_LIMIT_NS : BYTES_LIMIT_NS);

    if (!has_room && !gives_up)
        return false;
    pager->stalls_first = (pager->stalls_first + 1) % PAGER_STALLS_MAX;
    pager->stalls_count--;
    pager->stats.stalled_ns += now_ns > fault->stalled_ns ? now_ns - fault->stalled_ns : 0;
    if (has_room)
        pager_fault(pager, fault->page, fault->is_write, fault->thread, fault->start_ns);
    else
        pager_poison(pager, fault->page, "every tier of this node is full; raise option cxl or nvme");
    return true;
}

void pager_stalls_answer(struct pager *pager)
{
    uint64_t now_ns = os_now_ns();
    bool is_answered = true;

    for (unsigned left = pager->stalls_count; left > 0 && is_answered; left--) {
        struct stalled_fault fault = pager->stalls[pager->stalls_first];

        is_answered = stall_answer(pager, &fault, now_ns);
    }
}

uint64_t pager_stall_deadline_ns(const struct pager *pager)
{
    return pager->stalls_count > 0 ? os_now_ns() + RETRY_NS : UINT64_MAX;
}
