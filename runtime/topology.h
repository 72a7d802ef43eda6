/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.h - by which way each node reaches the others, and why so: told to `dsmctl topology` in a file.
 *
 * Each process of a job of several keeps a small text in a directory of its user (0700), named by its number. It is
 * written anew when something changes, which is rare, and removed at the end. A process that was killed leaves its
 * file; whoever reads sees that the process is gone, and removes it.
 */
#ifndef TIERMESH_RUNTIME_TOPOLOGY_H
#define TIERMESH_RUNTIME_TOPOLOGY_H

#include "base/types.h"

#include <sys/types.h>

#define TOPOLOGY_BYTES_MAX ((size_t)64 * 1024)

struct node;

/* topology.c: the shard's thread. Nothing for a job of one; a failure is only logged. */
void topology_tell(struct node *node);
void topology_forget(void);

/* topology_file.c */
int topology_file_write(const char *text, size_t size_bytes) MUST_USE; /* this process's; with error_set() */
void topology_file_remove(pid_t pid);

/* Bytes read, ended by a zero; or -ENOENT, or -errno with a sentence. */
int topology_file_read(uid_t user, pid_t pid, char text[TOPOLOGY_BYTES_MAX]) MUST_USE;

/* The directory of a user's files, whether or not it is there. */
void topology_directory(uid_t user, char *path, size_t size);

#endif
