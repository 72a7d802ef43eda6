/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hosts.h - the machines of a job: from -H a,b:2 or a hostfile, and which rank runs where.
 */
#ifndef TIERMESH_TOOLS_HOSTS_H
#define TIERMESH_TOOLS_HOSTS_H

#include "base/types.h"

#define HOSTS_MAX       256
#define HOST_NAME_BYTES 256

struct host {
    char name[HOST_NAME_BYTES]; /* as the launcher takes it: "node3", "user@10.0.0.3" */
    unsigned slots_count;
};

struct hosts {
    unsigned count; /* 0: this machine only, without a launcher */
    struct host list[HOSTS_MAX];
};

/* Append from "a,b:2" or from a file of lines "a", "b:2", "c slots=4", "# comment". 0, or -EINVAL, -errno with a
 * sentence. */
int hosts_parse(struct hosts *hosts, const char *text) MUST_USE;
int hosts_read(struct hosts *hosts, const char *path) MUST_USE;

unsigned hosts_slots(const struct hosts *hosts);

/* Hosts are filled by their slots, and again from the first when there are more ranks. NULL: this machine. */
const char *hosts_of_rank(const struct hosts *hosts, unsigned rank);

#endif
