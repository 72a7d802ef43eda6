/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sequential.c - reading 1 GiB in order with a quarter of it in memory: the NVMe tier against the kernel's swap. And
 * what the runtime's tables cost while that memory is in use.
 *
 * Both sides write the area, read it once unmeasured, so that what is not in memory is clean, and then take turns at
 * reading all of it. The kernel's side is a child in the memory cgroup that swap.sh made; without one (BENCH_NO_SWAP
 * says why) only the product is measured. Threads are not placed: each side has all processors.
 */
#include "base/random.h"
#include "bench/report.h"
#include "bench/setup.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The allocator may remember that an extent is taken; per page there is nothing. */
#define UNTOUCHED_RATIO 1e-5

#define WORDS_A_PAGE    (DSM_PAGE_BYTES / sizeof(uint64_t))

/* Every page differs and none compresses. */
static uint64_t fill(uint64_t *words, size_t pages_count)
{
    struct random random = {.state = 7};
    uint64_t sum = 0;

    for (size_t i = 0; i < pages_count * WORDS_A_PAGE; i++) {
        words[i] = random_next(&random);
        sum += words[i];
    }
    return sum;
}

/* Reads all of it in order; pages a second. */
static double read_all(const uint64_t *words, size_t pages_count, uint64_t wanted)
{
    uint64_t start_ns = now_ns();
    uint64_t sum = 0;

    for (size_t i = 0; i < pages_count * WORDS_A_PAGE; i++)
        sum += words[i];
    if (sum != wanted)
        die("the area does not hold what was written");
    return (double)pages_count * 1e9 / (double)(now_ns() - start_ns);
}

/* ---- the kernel's side ----------------------------------------------------------------------------------------- */

struct swapper {
    pid_t pid; /* 0: none */
    int channel;
};

static void cgroup_join(const char *cgroup)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
    file = fopen(path, "we");
    if (file == NULL || fprintf(file, "%d\n", getpid()) < 0 || fclose(file) != 0)
        die("join the memory cgroup %s: %s", cgroup, strerror(errno));
}

static void tell(int channel, double value)
{
    if (write(channel, &value, sizeof(value)) != (ssize_t)sizeof(value))
        die("the other process is gone: %s", strerror(errno));
}

static double hear(int channel)
{
    double value;

    if (read(channel, &value, sizeof(value)) != (ssize_t)sizeof(value))
        die("the other process is gone");
    return value;
}

/* Reads once for each word of the parent, until the parent is gone. */
static _Noreturn void swapper_main(int channel, const char *cgroup, size_t pages_count)
{
    uint64_t *words;
    uint64_t sum;
    char go;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a long read is not worth waiting for */
    cgroup_join(cgroup);
    words = mmap(NULL, pages_count * DSM_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED)
        die("map %zu pages: %s", pages_count, strerror(errno));
    madvise(words, pages_count * DSM_PAGE_BYTES, MADV_NOHUGEPAGE);
    sum = fill(words, pages_count);
    tell(channel, read_all(words, pages_count, sum));
    while (read(channel, &go, 1) == 1)
        tell(channel, read_all(words, pages_count, sum));
    _exit(0);
}

static struct swapper swapper_start(const char *cgroup, size_t pages_count)
{
    struct swapper swapper = {.pid = 0};
    int channels[2];

    if (cgroup == NULL)
        return swapper;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channels) != 0)
        die("make a socket pair: %s", strerror(errno));
    swapper.pid = fork();
    if (swapper.pid < 0)
        die("fork: %s", strerror(errno));
    if (swapper.pid == 0) {
        close(channels[0]);
        swapper_main(channels[1], cgroup, pages_count);
    }
    close(channels[1]);
    swapper.channel = channels[0];
    hear(swapper.channel);
    return swapper;
}

static double swapper_read(const struct swapper *swapper)
{
    if (write(swapper->channel, "g", 1) != 1)
        die("the swapping process is gone: %s", strerror(errno));
    return hear(swapper->channel);
}

static void swapper_stop(struct swapper *swapper)
{
    if (swapper->pid == 0)
        return;
    close(swapper->channel);
    waitpid(swapper->pid, NULL, 0);
}

/* ---- the product's ----------------------------------------------------------------------------------------------- */

static struct dsm_stats stats_now(void)
{
    struct dsm_stats stats;

    DSM(dsm_stats(&stats, sizeof(stats)));
    return stats;
}

/* The area is all that is in use; what the tables cost at start counts too. */
static void metadata(size_t pages_count)
{
    struct figure in_use = {.name = "metadata", .unit = "MiB"};
    struct figure untouched = {.name = "metadata-untouched", .unit = "KiB"};
    const size_t untouched_bytes = 1024 * MIB;
    struct dsm_attributes attributes = {.kind = DSM_PRIVATE};
    double metadata_mib = (double)stats_now().metadata_bytes / (double)MIB;
    double used_mib = (double)pages_count * DSM_PAGE_BYTES / (double)MIB;
    double more_mib;
    void *memory;

    figure_add(&in_use, metadata_mib, used_mib, metadata_mib / used_mib);
    figure_judge(&in_use, BAR_AT_MOST, 0.015);
    DSM(dsm_malloc_with(untouched_bytes, &attributes, &memory));
    more_mib = (double)stats_now().metadata_bytes / (double)MIB - metadata_mib;
    figure_add(&untouched, more_mib * 1024, 1024 * 1024, more_mib / 1024);
    figure_judge(&untouched, BAR_AT_MOST, UNTOUCHED_RATIO);
    DSM(dsm_free(memory));
}

int main(int argc, char **argv)
{
    struct options options = options_parse(argc, argv);
    struct dsm_attributes attributes = {.kind = DSM_PRIVATE};
    struct figure figure = {.name = "sequential-nvme", .unit = "pages/s"};
    const char *cgroup = getenv("BENCH_CGROUP");
    size_t size_bytes = (options.is_quick ? 64 : 1024) * MIB;
    size_t pages_count = size_bytes / DSM_PAGE_BYTES;
    struct swapper swapper;
    char nvme[512];
    uint64_t *words;
    uint64_t sum;

    report_open(options.json_path);
    swapper = swapper_start(cgroup, pages_count);
    snprintf(nvme, sizeof(nvme), "nvme=%zuM:%s", size_bytes / MIB * 5 / 4, options.directory);
    node_start(-1, options.is_quick ? "ddr=16M" : "ddr=256M", "cxl=0", nvme, NULL);
    DSM(dsm_malloc_with(size_bytes, &attributes, (void **)&words));
    sum = fill(words, pages_count);
    read_all(words, pages_count, sum);
    for (unsigned round = 0; round < (options.is_quick ? 1 : 5); round++) {
        double swap_rate = swapper.pid != 0 ? swapper_read(&swapper) : 0;
        double rate = read_all(words, pages_count, sum);

        figure_add(&figure, rate, swap_rate, swapper.pid != 0 ? rate / swap_rate : 0);
    }
    if (swapper.pid != 0) {
        figure_judge(&figure, BAR_AT_LEAST, 2);
    } else {
        figure_tell(&figure);
        figure_skip(figure.name, getenv("BENCH_NO_SWAP") != NULL ? getenv("BENCH_NO_SWAP") : "swap.sh did not run");
    }
    swapper_stop(&swapper);
    metadata(pages_count);
    DSM(dsm_free(words));
    DSM(dsm_finalize());
    return 0;
}
