/* SPDX-License-Identifier: Apache-2.0 */
#include "base/numa.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NUMA_NODES_MAX 1024
#define WORD_BITS      (8 * sizeof(unsigned long))

/* The call's result, -errno; errno as before. */
static int result_of(long result, int before)
{
    int error = result < 0 ? -errno : (int)result;

    errno = before;
    return error;
}

int numa_prefer(void *memory, size_t size_bytes, unsigned number)
{
    unsigned long mask[NUMA_NODES_MAX / WORD_BITS] = {0};
    int before = errno;

    if (number >= NUMA_NODES_MAX)
        return -EINVAL;
    mask[number / WORD_BITS] = 1UL << number % WORD_BITS;
    return result_of(syscall(SYS_mbind, memory, size_bytes, MPOL_PREFERRED, mask, NUMA_NODES_MAX + 1UL, 0), before);
}

int numa_where(void *const *pages, unsigned count, int *nodes_out)
{
    int before = errno;

    return result_of(syscall(SYS_move_pages, 0, (unsigned long)count, pages, NULL, nodes_out, 0), before);
}

int numa_move(void *const *pages, const int *nodes_in, unsigned count, int *results_out)
{
    int before = errno;
    int result;

    for (unsigned i = 0; i < count; i++)
        results_out[i] = -EBUSY; /* what the kernel leaves alone is not written */
    result =
        result_of(syscall(SYS_move_pages, 0, (unsigned long)count, pages, nodes_in, results_out, MPOL_MF_MOVE), before);
    return result > 0 ? 0 : result; /* positive: so many did not move, and their results say why */
}

const struct numa_ops numa_kernel = {.where = numa_where, .move = numa_move};
