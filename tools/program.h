/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.h - the file behind a program's name, and whether a node may run it.
 */
#ifndef TIERMESH_TOOLS_PROGRAM_H
#define TIERMESH_TOOLS_PROGRAM_H

#include "base/types.h"

#define EXIT_NOT_FOUND      127
#define EXIT_NOT_EXECUTABLE 126

/*
 * program_find - the path of `name`, by PATH when it has no slash. 0, or the exit status that dsmrun ends with, with a
 * sentence: EXIT_NOT_FOUND, EXIT_NOT_EXECUTABLE, or EX_NOPERM for a file that gains privileges when it starts (its path
 * is there all the same).
 */
int program_find(const char *name, char *ret_path, size_t size) MUST_USE;

/* The file gains privileges when it starts: the system ignores what the environment tells its dynamic linker. */
bool program_is_privileged(const char *path);

#endif
