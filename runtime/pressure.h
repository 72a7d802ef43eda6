/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pressure.h - does anybody wait for memory? The kernel's pressure figures (PSI), as an event or by looking.
 *
 * Runs on one thread, the owner of the loop. Absent (CONFIG_PSI_DEFAULT_DISABLED, older kernels): never under pressure.
 */
#ifndef TIERMESH_RUNTIME_PRESSURE_H
#define TIERMESH_RUNTIME_PRESSURE_H

#include "base/loop.h"
#include "runtime/cgroup.h"

struct pressure {
    int fd;                     /* readable with EPOLLPRI when the threshold was passed; -1: only by looking */
    bool is_own;                /* of this process's group; false: of the whole machine */
    char path[CGROUP_PATH_MAX]; /* "": none */
    uint64_t total_us;
    uint64_t looked_ns; /* 0: never */
};

void pressure_open(const char *root, struct pressure *ret_pressure);
void pressure_close(struct pressure *pressure);

/* Tasks waited for memory during a tenth of the time since the last look, or more. */
bool pressure_look(struct pressure *pressure, uint64_t now_ns);

#endif
