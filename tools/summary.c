/* SPDX-License-Identifier: Apache-2.0 */
/*
 * summary.c - the figures of a managed process, for people.
 *
 * The figures come from memory that the process writes: whatever they are, the text stays within its bounds.
 */
#include "tools/summary.h"
#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

static const char *const sources[DSM_SOURCES] = {
    [DSM_FROM_ZERO] = "new pages", [DSM_FROM_DDR] = "ddr",   [DSM_FROM_CXL] = "cxl",
    [DSM_FROM_ZMEM] = "zmem",      [DSM_FROM_NVME] = "nvme", [DSM_FROM_REMOTE] = "other nodes",
    [DSM_FROM_UPGRADE] = "rights",
};

static const char *const predictors[PREFETCH_PREDICTORS] = {"streams", "temporal", "signature", "hints", "around"};

static void add_size(struct text *text, uint64_t size_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double size = (double)size_bytes;
    unsigned unit = 0;

    while (size >= 1024 && unit + 1 < ARRAY_COUNT(units)) {
        size /= 1024;
        unit++;
    }
    text_add(text, unit == 0 || size >= 100 ? "%.0f %s" : "%.1f %s", size, units[unit]);
}

static void add_pages(struct text *text, uint64_t pages)
{
    add_size(text, pages * PAGE_BYTES);
}

static void add_time(struct text *text, uint64_t time_ns)
{
    if (time_ns < 10000)
        text_add(text, "%.1f us", (double)time_ns / 1e3);
    else if (time_ns < 1000000)
        text_add(text, "%.0f us", (double)time_ns / 1e3);
    else if (time_ns < 1000000000)
        text_add(text, "%.1f ms", (double)time_ns / 1e6);
    else
        text_add(text, "%.1f s", (double)time_ns / 1e9);
}

/* ---- the lines --------------------------------------------------------------------------------------------------- */

static void add_head(struct text *text, const struct broker_process *process, const char *prefix)
{
    const struct account_stats *stats = &process->stats;

    text_add(text, "%s%s (process %d): ", prefix, process->name, process->pid);
    if (stats->written_ns == 0) {
        text_add(text, "%s\n", process->is_ended != 0 ? "ended before anything was managed" : "nothing is managed yet");
        return;
    }
    add_size(text, stats->managed_bytes);
    text_add(text, " managed");
    if (stats->kept_bytes > 0) {
        text_add(text, " (");
        add_size(text, stats->kept_bytes);
        text_add(text, " of it kept in memory)");
    }
    text_add(text, ", for ");
    add_time(text, stats->written_ns - stats->start_ns);
    text_add(text, process->is_ended != 0 ? ", ended\n" : "\n");
}

static void add_tiers(struct text *text, const struct account_stats *stats, const char *prefix)
{
    const char *comma = "";

    text_add(text, "%s  lies in     ", prefix);
    for (int i = 0; i < DSM_TIERS; i++) {
        if (stats->tier_budget_pages[i] == 0 && stats->tier_pages[i] == 0)
            continue;
        text_add(text, "%s%s ", comma, broker_tier_name((enum dsm_tier)i));
        add_pages(text, stats->tier_pages[i]);
        text_add(text, " of ");
        add_pages(text, stats->tier_budget_pages[i]);
        comma = ", ";
    }
    text_add(text, "\n");
}

static uint64_t evicted_pages(const struct account_stats *stats)
{
    uint64_t pages = 0;

    for (int to = DSM_TIER_DDR + 1; to < DSM_TIERS; to++)
        pages += stats->pager.moves[DSM_TIER_DDR][to];
    return pages + stats->pager.dropped_pages;
}

static void add_evictions(struct text *text, const struct account_stats *stats, const char *prefix)
{
    text_add(text, "%s  evicted     ", prefix);
    add_pages(text, evicted_pages(stats));
    for (int from = 0; from < DSM_TIERS; from++) {
        for (int to = from + 1; to < DSM_TIERS; to++) {
            if (stats->pager.moves[from][to] == 0)
                continue;
            text_add(text, ", %s to %s ", broker_tier_name((enum dsm_tier)from), broker_tier_name((enum dsm_tier)to));
            add_pages(text, stats->pager.moves[from][to]);
        }
    }
    if (stats->pager.dropped_pages > 0) {
        text_add(text, ", unchanged ones ");
        add_pages(text, stats->pager.dropped_pages);
    }
    text_add(text, "\n");
}

static void add_faults(struct text *text, const struct account_stats *stats, const char *prefix)
{
    for (int i = 0; i < DSM_SOURCES; i++) {
        const struct histogram *faults = &stats->pager.faults[i];

        if (faults->count == 0)
            continue;
        text_add(text, "%s  faults      %-11s %10llu   p50 ", prefix, sources[i], (unsigned long long)faults->count);
        add_time(text, histogram_permille(faults, 500));
        text_add(text, ", p99 ");
        add_time(text, histogram_permille(faults, 990));
        text_add(text, ", longest ");
        add_time(text, faults->max_ns);
        text_add(text, "\n");
    }
}

static void add_share(struct text *text, const char *what, uint64_t part_ns, uint64_t whole_ns)
{
    double percent = 100.0 * (double)part_ns / (double)whole_ns;

    if (percent >= 0.5)
        text_add(text, ", %.0f %% %s", percent, what);
}

/* What the slowdown came from. */
static void add_waits(struct text *text, const struct account_stats *stats, const char *prefix)
{
    uint64_t whole_ns = 0;

    for (int i = 0; i < DSM_SOURCES; i++)
        whole_ns += stats->pager.faults[i].sum_ns;
    if (whole_ns == 0)
        return;
    text_add(text, "%s  waited      ", prefix);
    add_time(text, whole_ns);
    text_add(text, " in all threads");
    for (int i = 0; i < DSM_SOURCES; i++)
        add_share(text, sources[i], stats->pager.faults[i].sum_ns, whole_ns);
    if (stats->pager.stalled_ns > whole_ns / 200) {
        text_add(text, "; of it for room in DDR ");
        add_time(text, stats->pager.stalled_ns);
    }
    text_add(text, "\n");
}

static double percent_of(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : 100.0 * (double)part / (double)whole;
}

/* Of pages that came ahead and were seen to be used or not; of the faults there would be without them. */
static void add_ahead(struct text *text, const struct account_stats *stats, const char *prefix)
{
    const struct stats *pager = &stats->pager;
    const char *comma = "";

    text_add(text, "%s  read ahead  ", prefix);
    add_pages(text, pager->prefetched_pages);
    text_add(text, ", %.0f %% of it used, %.0f %% too late; spared %.0f %% of the faults\n",
             percent_of(pager->prefetch_hits, pager->prefetch_hits + pager->prefetch_unused),
             percent_of(stats->prefetch.late, pager->prefetch_hits),
             percent_of(pager->prefetch_hits, pager->prefetch_hits + stats_hard_faults(pager)));
    text_add(text, "%s  predicted   ", prefix);
    for (int i = 0; i < PREFETCH_PREDICTORS; i++) {
        uint64_t used = stats->prefetch.used_by[i];

        if (stats->prefetch.issued_by[i] == 0)
            continue;
        text_add(text, "%s%s ", comma, predictors[i]);
        add_pages(text, stats->prefetch.issued_by[i]);
        text_add(text, " (%.0f %% used)", percent_of(used, used + stats->prefetch.wasted_by[i]));
        comma = ", ";
    }
    text_add(text, "\n");
}

/* The names come from another process: they may not even end. */
static void add_policy(struct text *text, const struct account_stats *stats, const char *prefix)
{
    const int most = DSM_POLICY_BYTES;

    text_add(text, "%s  policy      %.*s", prefix, most, stats->policy);
    if (stats->policy_choice[0] != '\0')
        text_add(text, " (%.*s now)", most, stats->policy_choice);
    text_add(text, "; %llu pages back from limbo, %llu from below\n", (unsigned long long)stats->pager.soft_faults,
             (unsigned long long)stats_hard_faults(&stats->pager));
}

static void add_rest(struct text *text, const struct account_stats *stats, const char *prefix)
{
    if (stats->pager.prefetched_pages > 0)
        add_ahead(text, stats, prefix);
    if (stats->policy[0] != '\0')
        add_policy(text, stats, prefix);
    text_add(text, "%s  tables      ", prefix);
    add_size(text, stats->metadata_bytes);
    if (stats->limit_changes > 0)
        text_add(text, "; budgets changed %llu times", (unsigned long long)stats->limit_changes);
    text_add(text, "\n");
    if (stats->pager.poisoned_pages > 0)
        text_add(text, "%s  LOST        %llu pages could not be brought back; the log says why\n", prefix,
                 (unsigned long long)stats->pager.poisoned_pages);
}

size_t summary_format(const struct broker_process *process, const char *prefix, char bytes[SUMMARY_BYTES])
{
    struct text text = {.bytes = bytes, .size_bytes = SUMMARY_BYTES};

    bytes[0] = '\0';
    add_head(&text, process, prefix);
    if (process->stats.written_ns != 0) {
        add_tiers(&text, &process->stats, prefix);
        add_evictions(&text, &process->stats, prefix);
        add_faults(&text, &process->stats, prefix);
        add_waits(&text, &process->stats, prefix);
        add_rest(&text, &process->stats, prefix);
    }
    return text.used;
}

/* ---- where it goes ----------------------------------------------------------------------------------------------- */

int summary_open(struct summary *summary, const char *mode)
{
    *summary = (struct summary){.fd = STDERR_FILENO, .prefix = "dsmrun: ", .is_wanted = true};
    if (strcmp(mode, "auto") == 0)
        return 0;
    if (strcmp(mode, "off") == 0) {
        summary->is_wanted = false;
        return 0;
    }
    summary->is_for_all = true;
    if (strcmp(mode, "on") == 0)
        return 0;
    summary->fd = open(mode, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    summary->prefix = "";
    return summary->fd >= 0 ? 0 : error_set(EX_CANTCREAT, "--summary %s: %m", mode);
}

void summary_close(struct summary *summary)
{
    if (summary->fd > STDERR_FILENO)
        close(summary->fd);
    summary->fd = -1;
}

void summary_print(const struct summary *summary, const struct broker_process *process)
{
    char text[SUMMARY_BYTES];
    size_t length = summary_format(process, summary->prefix, text);

    for (size_t done = 0; done < length;) {
        ssize_t written = write(summary->fd, text + done, length - done);

        if (written <= 0 && errno != EINTR)
            return;
        done += written > 0 ? (size_t)written : 0;
    }
}

void summary_ended(const struct summary *summary, const struct broker_process *process)
{
    if (summary->is_wanted && (summary->is_for_all || evicted_pages(&process->stats) > 0))
        summary_print(summary, process);
}
