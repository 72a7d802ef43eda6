/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libc.h - what start.c asks about the process: which libraries are there, and where.
 */
#ifndef TIERMESH_SHIM_LIBC_H
#define TIERMESH_SHIM_LIBC_H

#include "shim/shim.h"

/* The code of libc.so and of the dynamic linker. False: this is not a libc that we know. */
bool libc_find(struct shim_text *ret_libc, struct shim_text *ret_linker);

/*
 * The function that calls by that name reach: of the first in the order of loading that defines it. Its address as C
 * has it may be another: of an entry in the program that only jumps there.
 */
void *libc_first_symbol(const char *name);

/* Is a library loaded whose file name begins like that? */
bool libc_is_loaded(const char *file);

#endif
