/* SPDX-License-Identifier: Apache-2.0 */
/*
 * textfile.h - reading the kernel's small text files by system calls alone: no stdio, no allocation, errno kept.
 */
#ifndef TIERMESH_BASE_TEXTFILE_H
#define TIERMESH_BASE_TEXTFILE_H

#include "base/types.h"

#define TEXT_LINE_MAX 8192 /* a mount of many layers has the longest lines */

/* The file's text, as much of it as there is room for, ends with a zero. 0 or -errno. */
int text_read(const char *path, char *text, size_t size_bytes) MUST_USE;

/* The number that the text starts with, UINT64_MAX for "max"; -EINVAL for anything else. */
int text_number(const char *text, uint64_t *ret_value) MUST_USE;

/* The number behind the word that starts a line ("active_file 123", "MemTotal:   123 kB"). -ENOENT: no such line. */
int text_number_of(const char *text, const char *word, uint64_t *ret_value) MUST_USE;

/* Line by line, for files of any length. */
struct text_lines {
    int fd;
    size_t start, end; /* what is read and not yet given out */
    char bytes[TEXT_LINE_MAX];
};
int text_lines_open(struct text_lines *lines, const char *path) MUST_USE;
/* The next line without its end, valid until the next call; NULL: there is none. Longer lines are left out. */
char *text_lines_next(struct text_lines *lines);
void text_lines_close(struct text_lines *lines);

/* Writes first and second, one behind the other. false: there is no room, and nothing but "" is there. */
bool text_join(char *text, size_t size_bytes, const char *first, const char *second);

#endif
