/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guard.h - the process above each node's program: nothing of a node outlives dsmrun.
 *
 * dsmrun starts one guard for each rank (itself with GUARD_WORD, on this machine or through the launcher), and the
 * guard starts the program. They talk over one descriptor, the control: first the job's key, then a byte for each
 * signal that the program shall get (SIGKILL: the program and all it started end now). The end of the control means
 * that dsmrun is gone, however it ended: the guard then ends everything too.
 */
#ifndef TIERMESH_TOOLS_GUARD_H
#define TIERMESH_TOOLS_GUARD_H

#include "base/types.h"

#define GUARD_WORD "--guard"

/*
 * guard_main - `dsmrun --guard CONTROL DIRECTORY program arguments...`: CONTROL is a descriptor; DIRECTORY is the job's
 * private directory, removed when dsmrun died without doing so, or "-". Returns the exit status: the program's, or
 * 128 + the signal that ended it.
 */
int guard_main(int argc, char **argv);

/* End every descendant of this process, a child subreaper, and wait for all. Calls ended() for each child. */
void guard_end_descendants(void (*ended)(void *context, int pid, int status), void *context);

/* Remove a directory and the files and sockets in it. */
void guard_remove_directory(const char *path);

#endif
