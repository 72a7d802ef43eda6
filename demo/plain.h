/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain.h - the same result by one process in malloc memory, to check against and to compare the time with.
 */
#ifndef TIERMESH_DEMO_PLAIN_H
#define TIERMESH_DEMO_PLAIN_H

#include "demo/input.h"
#include "demo/parse.h"

struct plain {
    char *text;
    size_t text_bytes;
    struct package *packages; /* by id */
    size_t ids_count, edges_count, provided_count;
    double *rank;
    uint64_t steps;
};

/* 0 or -errno. plain_fini() may be called in any case after it. */
int plain_run(const struct inputs *inputs, struct plain *ret_plain);
void plain_fini(struct plain *plain);

#endif
