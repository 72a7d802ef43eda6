/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.c - a program of somebody else, built against the installed library. Prints "consumer: 42 on 1 node".
 */
#include <errno.h>
#include <stdio.h>
#include <tiermesh/dsm.h>

int main(void)
{
    int *memory;
    int result = dsm_init(NULL);

    if (result != 0) {
        printf("dsm_init: %s\n", dsm_errmsg());
        return result == -EPERM ? 77 : 1; /* userfaultfd is refused here */
    }
    if (dsm_malloc(sizeof(*memory), (void **)&memory) != 0)
        return 1;
    *memory = 42;
    printf("consumer: %d on %d node\n", *memory, dsm_node_count());
    return dsm_free(memory) == 0 && dsm_finalize() == 0 ? 0 : 1;
}
