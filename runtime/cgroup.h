/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup.h - the memory cgroup of this process, v1 or v2, and how much more memory fits into it.
 *
 * Reads files by system calls alone and keeps errno. `root` stands in front of every path: "" is the machine, a
 * directory is a test's picture of one. Any thread.
 */
#ifndef TIERMESH_RUNTIME_CGROUP_H
#define TIERMESH_RUNTIME_CGROUP_H

#include "base/types.h"

#define CGROUP_PATH_MAX 1024

enum cgroup_kind {
    CGROUP_NONE = 0, /* no memory cgroup is mounted, or this process is in none */
    CGROUP_V1 = 1,   /* the memory controller has a hierarchy of its own */
    CGROUP_V2 = 2,
};

struct cgroup {
    enum cgroup_kind kind;
    size_t mount_length; /* of the mount point's path; the rest of `path` is the group */
    char path[CGROUP_PATH_MAX];
};

/* The group of this process in the hierarchy that has the memory controller. */
void cgroup_find_memory(const char *root, struct cgroup *ret_group);
/* Its group in the unified hierarchy, whether the memory controller is there or not (pressure is). */
void cgroup_find_unified(const char *root, struct cgroup *ret_group);
/* Above the mount point, or on it: the group of the whole machine, as far as this process sees. */
bool cgroup_is_top(const struct cgroup *group);

struct cgroup_room {
    uint64_t limit_bytes; /* of the level with the least room; UINT64_MAX: there is no limit */
    int64_t room_bytes;   /* that may come in addition, a margin kept back; negative: too much is there */
};

/*
 * The least over the group and its ancestors. File cache does not count as used: the kernel takes it back when memory
 * is asked for, and when that hurts the pressure shows it.
 */
void cgroup_room(const struct cgroup *group, struct cgroup_room *ret_room);

/* The same of the whole machine, by what the kernel says is available. */
void machine_room(const char *root, struct cgroup_room *ret_room);

/* Kept free below a limit: what may come between two looks. */
uint64_t cgroup_margin_bytes(uint64_t limit_bytes);

#endif
