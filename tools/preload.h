/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preload.h - programs that know nothing of Tiermesh: whether they can be managed, and what they get from dsmrun.
 */
#ifndef TIERMESH_TOOLS_PRELOAD_H
#define TIERMESH_TOOLS_PRELOAD_H

#include "tools/launch.h"
#include "tools/summary.h"

#include <limits.h>

struct broker_server;

struct preload {
    bool is_active;
    char library[PATH_MAX];
    char *variables[LAUNCH_VARIABLES_MAX]; /* "NAME=VALUE" for the environment of each rank; the rest is NULL */
    unsigned variables_count;
    char directory[64]; /* ours; "": the job has one already */
    struct broker_server *broker;
    const struct options *options;
    struct summary summary;
};

/*
 * preload_decide - by the options and the program's file. `found` is what program_find() said of it.
 * 0, or the exit status with a sentence.
 */
int preload_decide(struct preload *preload, const struct options *options, const char *path, int found) MUST_USE;
/* Starts the broker, in the job's private directory or one of its own. 0, or the exit status with a sentence. */
int preload_open(struct preload *preload, const char *directory) MUST_USE;
/* Figures of all processes that are managed now, on standard error. */
void preload_report(struct preload *preload);
/* The last figures of those that are left. */
void preload_close(struct preload *preload);

#endif
