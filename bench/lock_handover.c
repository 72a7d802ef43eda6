/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock_handover.c - how long does a lock take from one node to the other? Runs under dsmrun -n 2.
 *
 * Both ranks lock the same page over and over and hold it for a nap, so that the other one waits in the queue when the
 * lock is released. Measured is the time from the entry of unlock on one node to the return of the waiter's lock on the
 * other (one machine, one clock), in both directions; the slower one counts. The reference is a raw round trip after
 * the same nap: processors that slept take longer to wake; the round trip of busy ones is told beside it. And
 * re-acquiring a lock that this node held last.
 */
#include "bench/raw.h"
#include "bench/report.h"
#include "bench/setup.h"

#include <stdio.h>
#include <string.h>

#define HOLD_NS    100000 /* a lock is held */
#define QUEUED_NS  50000  /* who asked so long before the release was in the queue */
#define REACQUIRES 20000  /* a round */

struct plan {
    unsigned handovers_count; /* a round */
    unsigned rounds_count;
    bool by_tcp;
};

/* One rank's part of a round; its times are those of locks that came from the other rank. */
static void hand_over(const struct plan *plan, int rank, void *page, struct raw_shared *shared)
{
    shared->times_count[rank] = 0;
    for (unsigned i = 0; i < plan->handovers_count; i++) {
        uint64_t asked_ns = now_ns();
        uint64_t got_ns;

        DSM(dsm_lock(page, DSM_PAGE_BYTES, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
        got_ns = now_ns();
        if (atomic_load(&shared->unlocker) != rank && atomic_load(&shared->unlock_ns) > asked_ns + QUEUED_NS)
            shared->times_us[rank][shared->times_count[rank]++] =
                (double)(got_ns - atomic_load(&shared->unlock_ns)) / 1000;
        nap_ns(HOLD_NS);
        atomic_store(&shared->unlocker, rank);
        atomic_store(&shared->unlock_ns, now_ns());
        DSM(dsm_unlock(page, DSM_PAGE_BYTES));
    }
}

static void hand_overs(const struct plan *plan, int rank, void *page, struct raw *raw, struct figure *figure,
                       struct figure *busy)
{
    struct raw_shared *shared = raw_shared(raw);

    for (unsigned round = 0; round < plan->rounds_count; round++) {
        double trip_us = rank == 0 ? raw_round_trip(raw, plan->by_tcp, plan->handovers_count, HOLD_NS) : 0;
        double busy_us = rank == 0 ? raw_round_trip(raw, plan->by_tcp, plan->handovers_count, 0) : 0;
        double slower_us = 0;

        atomic_store(&shared->unlock_ns, 0);
        DSM(dsm_barrier());
        hand_over(plan, rank, page, shared);
        DSM(dsm_barrier());
        for (int i = 0; rank == 0 && i < 2; i++) {
            double us;

            if (shared->times_count[i] < plan->handovers_count / 4)
                die("only %u of %u locks came to rank %d while it waited", shared->times_count[i],
                    plan->handovers_count, i);
            us = quantile(shared->times_us[i], shared->times_count[i], 0.5);
            slower_us = us > slower_us ? us : slower_us;
        }
        if (rank == 0) {
            figure_add(figure, slower_us, trip_us, slower_us / trip_us);
            figure_add(busy, slower_us, busy_us, slower_us / busy_us);
        }
    }
    if (rank == 0) {
        figure_judge(figure, BAR_AT_MOST, 1.5);
        figure_tell(busy);
    }
}

static double clock_ns(void)
{
    uint64_t start_ns = now_ns();

    for (unsigned i = 0; i < REACQUIRES; i++)
        now_ns();
    return (double)(now_ns() - start_ns) / REACQUIRES;
}

/* Rank 0 alone; rank 1 is the lock's home. The bar is 200 ns, so the reference is 1 ns; without a message, or missed.
 */
static void reacquires(const struct plan *plan, void *page, struct figure *figure)
{
    struct dsm_stats before;
    struct dsm_stats after;
    uint64_t cached = 0;

    for (unsigned round = 0; round < plan->rounds_count; round++) {
        double overhead_ns = clock_ns();
        uint64_t locking_ns = 0;
        double ns;

        DSM(dsm_stats(&before, sizeof(before)));
        for (unsigned i = 0; i < REACQUIRES; i++) {
            uint64_t start_ns = now_ns();

            DSM(dsm_lock(page, DSM_PAGE_BYTES, DSM_LOCK_EXCLUSIVE, DSM_FOREVER));
            locking_ns += now_ns() - start_ns;
            DSM(dsm_unlock(page, DSM_PAGE_BYTES));
        }
        DSM(dsm_stats(&after, sizeof(after)));
        cached += after.locks_cached - before.locks_cached;
        ns = (double)locking_ns / REACQUIRES - overhead_ns;
        figure_add(figure, ns, 1, ns);
    }
    figure_judge(figure, BAR_AT_MOST, 200);
    if (cached < (uint64_t)REACQUIRES * plan->rounds_count * 99 / 100)
        die("only %lu of %u locks were taken without a message", cached, REACQUIRES * plan->rounds_count);
}

int main(int argc, char **argv)
{
    struct options options = options_parse(argc, argv);
    struct plan plan = {.handovers_count = options.is_quick ? 100 : 120,
                        .rounds_count = options.is_quick ? 2 : 33,
                        .by_tcp = strcmp(options.transport, "tcp") == 0};
    struct figure figure = {.name = plan.by_tcp ? "lock-handover-tcp" : "lock-handover-shm", .unit = "us"};
    struct figure busy = {.name = plan.by_tcp ? "lock-handover-tcp-to-busy" : "lock-handover-shm-to-busy",
                          .unit = "us"};
    struct figure again = {.name = plan.by_tcp ? "lock-again-tcp" : "lock-again-shm", .unit = "ns"};
    int rank = rank_of_two();
    struct raw *raw;
    void *area;

    node_start(rank, "ddr=64M", NULL);
    area = area_of_rank_1(rank, MIB);
    raw = raw_open(rank);
    if (rank == 0)
        report_open(options.json_path);
    hand_overs(&plan, rank, area, raw, &figure, &busy);
    DSM(dsm_barrier());
    if (rank == 0)
        reacquires(&plan, (char *)area + DSM_PAGE_BYTES, &again);
    DSM(dsm_barrier());
    raw_close(raw);
    DSM(dsm_finalize());
    return 0;
}
