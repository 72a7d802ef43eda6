/* SPDX-License-Identifier: Apache-2.0 */
/*
 * summary.h - the figures of a managed process, for people: about eight lines.
 */
#ifndef TIERMESH_TOOLS_SUMMARY_H
#define TIERMESH_TOOLS_SUMMARY_H

#include "runtime/broker.h"

struct summary {
    bool is_wanted;     /* of processes that ended: at all */
    bool is_for_all;    /* not only of those that had evictions */
    int fd;             /* where to */
    const char *prefix; /* in front of each line */
};

/* "auto", "on", "off" or the name of a file to append to. 0, or an exit status with a sentence. */
int summary_open(struct summary *summary, const char *mode) MUST_USE;
void summary_close(struct summary *summary);

/* A process has ended: printed if the mode says so. */
void summary_ended(const struct summary *summary, const struct broker_process *process);
/* In any case. */
void summary_print(const struct summary *summary, const struct broker_process *process);

#define SUMMARY_BYTES 4096
/* The text itself; returns its length. */
size_t summary_format(const struct broker_process *process, const char *prefix, char text[SUMMARY_BYTES]);

#endif
