/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.h - what the ranks print, line by line, to dsmrun's own standard output and error.
 */
#ifndef TIERMESH_TOOLS_OUTPUT_H
#define TIERMESH_TOOLS_OUTPUT_H

#include "base/types.h"

#define STREAM_BYTES 65536

/* One rank's pipe. fd is -1 when it is over. */
struct stream {
    int fd;     /* non-blocking, ours */
    int target; /* where the lines go */
    unsigned rank;
    bool is_tagged;
    bool is_in_line;    /* a beginning of the current line was written already */
    size_t first, used; /* what was read and not written is buffer[first .. used) */
    char buffer[STREAM_BYTES];
};

/*
 * stream_move - read what is there and write whole lines, as far as neither side blocks. A line that does not fit the
 * buffer is written in pieces; the last line needs no end. When nobody reads the target any more, the pipe is closed:
 * the rank then gets SIGPIPE, as it would without dsmrun.
 */
void stream_move(struct stream *stream);

/* The descriptor to wait for, and for what (POLLIN, POLLOUT); false: this stream is over. */
struct pollfd;
bool stream_poll(const struct stream *stream, struct pollfd *ret_poll);

#endif
