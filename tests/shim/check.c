/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/shim/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void check_failed(const char *condition, const char *file, int line)
{
    char text[512];
    int used = snprintf(text, sizeof(text), "%s:%d: %s does not hold\n", file, line, condition);

    (void)!write(STDERR_FILENO, text, (size_t)used);
    abort();
}

bool expect_managed(void)
{
    return getenv("EXPECT_MANAGED") != NULL;
}

/*
 * The range is what lies in one piece around the largest reservation (---p) of the process: what was given out of it
 * touches it or another such part. Read once.
 */
static void find_range(uintptr_t *ret_begin, uintptr_t *ret_end)
{
    static char line[8192];
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long begin, end, run_begin = 0, run_end = 0;
    uintptr_t largest = 0;
    bool largest_here = false;
    char access[8];

    CHECK(maps != NULL);
    *ret_begin = *ret_end = 0;
    while (fgets(line, sizeof(line), maps) != NULL) {
        CHECK(sscanf(line, "%lx-%lx %7s", &begin, &end, access) == 3);
        if (begin != run_end || strchr(line, '/') != NULL || strchr(line, '[') != NULL) {
            run_begin = begin;
            largest_here = false;
        }
        run_end = end;
        if (strcmp(access, "---p") == 0 && end - begin > largest) {
            largest = end - begin;
            largest_here = true;
        }
        if (largest_here) {
            *ret_begin = run_begin;
            *ret_end = run_end;
        }
    }
    fclose(maps);
    if (largest < (uintptr_t)64 << 30)
        *ret_begin = *ret_end = 0;
}

static uintptr_t range_begin, range_end;

static void find_once(void)
{
    find_range(&range_begin, &range_end);
}

bool is_managed(const void *address)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find_once);
    return (uintptr_t)address >= range_begin && (uintptr_t)address < range_end;
}

bool expect_evictions(void)
{
    return getenv("EXPECT_EVICTIONS") != NULL;
}

size_t absent_pages(const void *memory, size_t size)
{
    uintptr_t begin = ((uintptr_t)memory + 4095) & ~(uintptr_t)4095;
    uintptr_t end = ((uintptr_t)memory + size) & ~(uintptr_t)4095;
    size_t count = 0;

    for (; begin < end; begin += 4096) {
        unsigned char resident = 0;

        CHECK(mincore((void *)begin, 4096, &resident) == 0);
        count += (resident & 1) == 0;
    }
    return count;
}
