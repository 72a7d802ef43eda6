/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refused.c - a program whose memory stays unmanaged because the start failed late: it must be as if it had never been
 * tried. Run with a large `cxl`, and an `nvme` that no job has opened.
 */
#include "tests/shim/trap.h"

#include <dirent.h>
#include <fcntl.h>

#define LEFT_MIB 400U /* what libc keeps of a thread that has ended: its heap's addresses and its stack */

static unsigned entries(const char *path, int lowest)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    unsigned count = 0;

    CHECK(directory != NULL);
    while ((entry = readdir(directory)) != NULL)
        count += entry->d_name[0] != '.' && atoi(entry->d_name) >= lowest;
    closedir(directory);
    return count;
}

static unsigned long address_space_mib(void)
{
    char text[64];
    int fd = open("/proc/self/statm", O_RDONLY);
    ssize_t size = read(fd, text, sizeof(text) - 1);

    CHECK(fd >= 0 && size > 0);
    close(fd);
    text[size] = 0;
    return strtoul(text, NULL, 10) / 256;
}

int main(void)
{
    unsigned descriptors = entries("/proc/self/fd", 100);
    unsigned long before_mib = address_space_mib(), after_mib;
    char *memory = map_filled(64 * MIB, 1);

    CHECK(filled(memory, 64 * MIB, 1) && munmap(memory, 64 * MIB) == 0);
    after_mib = address_space_mib();
    printf("%u descriptors, then %u; %lu MiB, then %lu; %u thread(s)\n", descriptors, entries("/proc/self/fd", 100),
           before_mib, after_mib, entries("/proc/self/task", 0));
    CHECK(entries("/proc/self/fd", 100) == descriptors && entries("/proc/self/task", 0) == 1);
    CHECK(after_mib < before_mib + LEFT_MIB);
    return 0;
}
