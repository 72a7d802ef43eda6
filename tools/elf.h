/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf.h - what kind of program a file is: whether the preload library can be put into it.
 */
#ifndef TIERMESH_TOOLS_ELF_H
#define TIERMESH_TOOLS_ELF_H

#include "base/types.h"

enum elf_kind {
    ELF_DYNAMIC, /* for this machine and the GNU C library */
    ELF_DSM,     /* the same, and linked to libtiermesh.so: a node by itself */
    ELF_STATIC,  /* no dynamic linker runs */
    ELF_OTHER_CPU,
    ELF_OTHER_LIBC, /* a dynamic linker that is not the GNU C library's */
    ELF_UNKNOWN,    /* neither a program nor a script that names one */
};

struct elf_file {
    enum elf_kind kind;
    char path[4096];  /* the program itself: of a script, its interpreter */
    char detail[256]; /* for sentences: the dynamic linker, the name of the processor */
};

/* Looks at a program, or through a script at its interpreter. 0, or -errno with a sentence when it cannot be read. */
int elf_look(const char *path, struct elf_file *ret_file) MUST_USE;

#endif
