/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input.h - the distribution's package lists as one stream of text.
 */
#ifndef TIERMESH_DEMO_INPUT_H
#define TIERMESH_DEMO_INPUT_H

#include <stddef.h>
#include <sys/types.h>

#define INPUTS_MAX 256

struct inputs {
    char *paths[INPUTS_MAX];
    size_t count;
    size_t lists_count; /* those of apt; the rest is what dpkg has installed */
};

/* The files of this machine, in an order that every process finds the same. 0 or -ENOENT when there are none. */
int inputs_find(struct inputs *ret_inputs);
/* Adds a file by name instead. 0, -ENOSPC, -ENOMEM. */
int inputs_add(struct inputs *inputs, const char *path);
void inputs_fini(struct inputs *inputs);

struct input_stream {
    const struct inputs *inputs;
    size_t next;       /* file to open when the present one ends */
    int descriptor;    /* -1 between files */
    pid_t unpacker;    /* 0 for a plain file */
    unsigned newlines; /* still to be given between two files, so that stanzas never join */
};

void input_open(struct input_stream *stream, const struct inputs *inputs);
/*
 * Reads until `size_bytes` are there or the last file ended. Reads go straight into `buffer`, which may be shared
 * memory that is not present. Returns the bytes read, 0 at the end, or -errno with a line on stderr.
 */
ssize_t input_read(struct input_stream *stream, char *buffer, size_t size_bytes);
void input_close(struct input_stream *stream);

#endif
