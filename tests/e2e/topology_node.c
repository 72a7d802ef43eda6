/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology_node.c - a node that shares a page with the others; node 0 then asks `dsmctl topology`, for topology.sh.
 *
 * usage: topology_node DSMCTL
 */
#include <tiermesh/dsm.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int complain(const char *what, int error)
{
    fprintf(stderr, "topology_node: %s: %d: %s\n", what, error, dsm_errmsg());
    return 1;
}

/* Every node adds its part to one word, so that messages went both ways. */
static int share(void)
{
    void *memory = NULL;
    uint64_t old, sum = 0;
    int error = 0;

    if (dsm_node_id() == 0) {
        error = dsm_calloc(1, DSM_PAGE_BYTES, &memory);
        if (error == 0)
            error = dsm_root_set("word", memory);
    } else {
        error = dsm_root_get("word", 10000000000U, &memory);
    }
    if (error == 0)
        error = dsm_atomic_fetch_add(memory, (uint64_t)dsm_node_id() + 1, &old);
    if (error == 0)
        error = dsm_barrier();
    if (error == 0)
        error = dsm_atomic_load(memory, &sum);
    if (error != 0)
        return error;
    return sum == (uint64_t)dsm_node_count() * ((uint64_t)dsm_node_count() + 1) / 2 ? 0 : -1;
}

int main(int argc, char **argv)
{
    char command[4096];
    int error = argc == 2 ? dsm_init(NULL) : -1;

    if (error != 0)
        return complain("start", error);
    error = share();
    if (error != 0)
        return complain("share a word", error);
    snprintf(command, sizeof(command), "'%s' topology", argv[1]);
    if (dsm_node_id() == 0 && system(command) != 0)
        return complain(command, -1);
    error = dsm_barrier();
    if (error == 0)
        error = dsm_finalize();
    return error == 0 ? 0 : complain("end", error);
}
