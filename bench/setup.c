/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/setup.h"
#include "base/random.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define AREA_WAIT_NS UINT64_C(20000000000)

void die(const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

struct options options_parse(int argc, char **argv)
{
    static const struct option names[] = {
        {"quick", no_argument, NULL, 'q'},           {"json", required_argument, NULL, 'j'},
        {"directory", required_argument, NULL, 'd'}, {"transport", required_argument, NULL, 't'},
        {"spin", required_argument, NULL, 's'},      {NULL, 0, NULL, 0},
    };
    struct options options = {.directory = ".", .transport = "shm", .spin_us = "0"};
    int letter;

    while ((letter = getopt_long(argc, argv, "+", names, NULL)) != -1) {
        switch (letter) {
        case 'q':
            options.is_quick = true;
            break;
        case 'j':
            options.json_path = optarg;
            break;
        case 'd':
            options.directory = optarg;
            break;
        case 't':
            options.transport = optarg;
            break;
        case 's':
            options.spin_us = optarg;
            break;
        default:
            exit(2);
        }
    }
    return options;
}

void dsm_check(const char *what, int result)
{
    if (result != 0)
        die("%s: %s (%s)", what, dsm_errmsg(), strerror(-result));
}

void node_start(int cpu, ...)
{
    struct dsm_config *config;
    const char *option;
    va_list options;
    char name[64];
    int error;

    DSM(dsm_config_create(&config));
    snprintf(name, sizeof(name), "%d", cpu + 1);
    DSM(dsm_config_set(config, "cpu", name));
    va_start(options, cpu);
    while ((option = va_arg(options, const char *)) != NULL) {
        const char *value = strchr(option, '=') + 1;

        snprintf(name, sizeof(name), "%.*s", (int)(value - option - 1), option);
        dsm_check(option, dsm_config_set(config, name, value));
    }
    va_end(options);
    error = dsm_init(config);
    if (error == -EPERM) {
        fprintf(stderr, "skipped: %s\n", dsm_errmsg());
        exit(EXIT_SKIPPED);
    }
    DSM(error);
    dsm_config_destroy(config);
}

int rank_of_two(void)
{
    const char *rank = getenv("DSM_RANK");
    const char *size = getenv("DSM_SIZE");

    if (rank == NULL || size == NULL || strcmp(size, "2") != 0)
        die("run it with: dsmrun -n 2 %s", program_invocation_name);
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
        fprintf(stderr, "skipped: two processors are needed\n");
        exit(EXIT_SKIPPED);
    }
    cpu_pin(atoi(rank));
    return atoi(rank);
}

void *area_of_rank_1(int rank, size_t size_bytes)
{
    void *memory;

    if (rank == 0) {
        DSM(dsm_root_get("bench.area", AREA_WAIT_NS, &memory));
        return memory;
    }
    DSM(dsm_malloc(size_bytes, &memory));
    for (uint64_t page = 0; page < size_bytes / DSM_PAGE_BYTES; page++)
        memcpy((char *)memory + page * DSM_PAGE_BYTES, &page, sizeof(page));
    DSM(dsm_root_set("bench.area", memory));
    return memory;
}

void cpu_pin(int cpu)
{
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    CPU_SET((unsigned)cpu, &cpus);
    if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0)
        die("this benchmark needs processor %d: %s", cpu, strerror(errno));
}

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

void nap_ns(uint64_t time_ns)
{
    struct timespec time = {(time_t)(time_ns / 1000000000U), (long)(time_ns % 1000000000U)};

    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

void *memory_map(size_t size_bytes, bool is_huge)
{
    const size_t huge_bytes = 2 * MIB;
    char *memory = mmap(NULL, size_bytes + huge_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        die("map %zu bytes: %s", size_bytes, strerror(errno));
    memory += huge_bytes - (uintptr_t)memory % huge_bytes;
    madvise(memory, size_bytes, is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(memory, 1, size_bytes);
    return memory;
}

uint32_t *order_make(uint32_t count)
{
    struct random random = {.state = 1};
    uint32_t *order = malloc(count * sizeof(*order));

    if (order == NULL)
        die("no memory for an order of %u pages", count);
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    for (uint32_t i = count; i-- > 1;) {
        uint32_t other = random_below(&random, i + 1);
        uint32_t page = order[i];

        order[i] = order[other];
        order[other] = page;
    }
    return order;
}
