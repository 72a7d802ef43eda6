/* SPDX-License-Identifier: Apache-2.0 */
/*
 * managed.c - plays a process whose shard has started: `managed END` connects to its broker, holds slots of the store,
 * publishes figures, says "ready" and ends in that way. For tests of dsmrun and dsmctl without a pager.
 */
#include "base/error.h"
#include "base/os.h"
#include "runtime/broker.h"
#include "runtime/loop.h"
#include "tiers/tier.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void figures(struct account_stats *stats)
{
    stats->start_ns = os_now_ns() - 2000000000;
    stats->written_ns = os_now_ns();
    stats->managed_bytes = 512 << 20;
    for (int i = 0; i < DSM_TIERS; i++)
        stats->tier_budget_pages[i] = i == DSM_TIER_CXL ? 0 : 32768;
    stats->tier_pages[DSM_TIER_DDR] = 30000;
    stats->tier_pages[DSM_TIER_NVME] = 100;
    stats->metadata_bytes = 3 << 20;
    stats->pager.stalled_ns = 500000000;
    stats->pager.moves[DSM_TIER_DDR][DSM_TIER_NVME] = 4096;
    for (int i = 0; i < 1000; i++)
        histogram_add(&stats->pager.faults[DSM_FROM_NVME], 100000 + (uint64_t)i * 1000);
    stats->pager.prefetched_pages = 1000;
    stats->pager.prefetch_hits = 900;
    stats->pager.prefetch_unused = 100;
    stats->prefetch.late = 45;
    stats->prefetch.issued_by[PREFETCH_STREAMS] = 1000;
    stats->prefetch.used_by[PREFETCH_STREAMS] = 90;
    stats->prefetch.wasted_by[PREFETCH_STREAMS] = 10;
    stats->pager.soft_faults = 77;
    memcpy(stats->policy, "arms", sizeof("arms"));
    memcpy(stats->policy_choice, "lirs-10", sizeof("lirs-10"));
}

static void end(const char *how)
{
    if (strcmp(how, "exit") == 0)
        exit(0);
    if (strcmp(how, "_exit") == 0)
        _exit(0);
    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(how, "exec") == 0)
        execl("/bin/true", "true", (char *)NULL);
}

int main(int argc, char **argv)
{
    struct account_stats stats = {.start_ns = 0};
    struct account_limits limits;
    struct broker *broker;
    struct loop *loop;
    struct tier *tier;
    struct tier_slot first;
    struct pollfd one;

    if (argc != 2 || broker_connect(UINT64_C(5000000000), &broker) != 0 || loop_create("auto", &loop) != 0) {
        fprintf(stderr, "managed: %s\n", error_text());
        return 2;
    }
    if (broker_has_store(broker) &&
        (broker_tier_open(broker, loop, &tier) != 0 || tier_take(tier, 100, &first) != 100)) {
        fprintf(stderr, "managed: %s\n", error_text());
        return 3;
    }
    figures(&stats);
    broker_publish(broker, ACCOUNT_MANAGING, &stats);
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    end(argv[1]);
    one = (struct pollfd){.fd = broker_descriptor(broker), .events = POLLIN};
    while (poll(&one, 1, 20000) == 1 && broker_wishes(broker, &limits) == 1) {
        printf("limit %d %llu\n", (int)limits.is_set, (unsigned long long)limits.bytes[DSM_TIER_DDR]);
        fflush(stdout);
        if (limits.bytes[DSM_TIER_DDR] == 64 << 20)
            return 0;
    }
    return 4;
}
