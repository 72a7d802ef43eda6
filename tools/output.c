/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.c - what the ranks print, line by line, to dsmrun's own standard output and error.
 *
 * Lines are written only when their target has room, so a reader that stopped stops the ranks' output, not dsmrun.
 */
#include "tools/output.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES 4096 /* a pipe that has room has this much */

static bool target_has_room(int target)
{
    struct pollfd one = {.fd = target, .events = POLLOUT};

    return poll(&one, 1, 0) > 0;
}

/* 0 or a negative errno. */
static int write_all(int target, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t done = write(target, bytes, size);

        if (done >= 0) {
            bytes += done;
            size -= (size_t)done;
        } else if (errno == EAGAIN) {
            struct pollfd one = {.fd = target, .events = POLLOUT};

            (void)poll(&one, 1, -1);
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

static void stream_end(struct stream *stream)
{
    close(stream->fd);
    stream->fd = -1;
    stream->first = stream->used = 0;
}

/* The next `size` bytes go out, together with the tag in one write where they fit. */
static void write_piece(struct stream *stream, size_t size)
{
    const char *bytes = stream->buffer + stream->first;
    char tagged[PIECE_BYTES];
    size_t tag_bytes = 0;
    size_t together = 0;
    int result = 0;

    if (stream->is_tagged && !stream->is_in_line) {
        tag_bytes = (size_t)snprintf(tagged, sizeof(tagged), "[%u] ", stream->rank);
        together = size < sizeof(tagged) - tag_bytes ? size : sizeof(tagged) - tag_bytes;
        memcpy(tagged + tag_bytes, bytes, together);
        result = write_all(stream->target, tagged, tag_bytes + together);
    }
    if (result == 0)
        result = write_all(stream->target, bytes + together, size - together);
    stream->is_in_line = bytes[size - 1] != '\n';
    stream->first += size;
    if (result < 0)
        stream_end(stream);
}

/* Bytes that can be written now: whole lines (one, when each gets a tag), or a full buffer. 0: more must come. */
static size_t piece_bytes(const struct stream *stream)
{
    const char *bytes = stream->buffer + stream->first;
    size_t have = stream->used - stream->first;
    const char *end = NULL;

    if (!stream->is_tagged)
        end = memrchr(bytes, '\n', have < PIECE_BYTES ? have : PIECE_BYTES);
    if (end == NULL)
        end = memchr(bytes, '\n', have);
    if (end != NULL)
        return (size_t)(end - bytes) + 1;
    return have == sizeof(stream->buffer) ? have : 0;
}

/* False: the target is full, or the stream is over. */
static bool write_pieces(struct stream *stream)
{
    size_t size;

    while (stream->fd >= 0 && (size = piece_bytes(stream)) > 0) {
        if (!target_has_room(stream->target))
            return false;
        write_piece(stream, size);
    }
    return stream->fd >= 0;
}

static void make_room(struct stream *stream)
{
    stream->used -= stream->first;
    memmove(stream->buffer, stream->buffer + stream->first, stream->used);
    stream->first = 0;
}

/* The rank closed its end: what is left is a line without an end. */
static void write_rest(struct stream *stream)
{
    if (stream->used > 0 && stream->is_tagged)
        stream->buffer[stream->used++] = '\n';
    if (stream->used > 0)
        write_piece(stream, stream->used);
    if (stream->fd >= 0)
        stream_end(stream);
}

void stream_move(struct stream *stream)
{
    while (write_pieces(stream)) {
        ssize_t got;

        make_room(stream); /* less than the buffer is left, or it had been written */
        got = read(stream->fd, stream->buffer + stream->used, sizeof(stream->buffer) - stream->used);
        if (got > 0) {
            stream->used += (size_t)got;
        } else if (got == 0) {
            write_rest(stream);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            stream_end(stream);
        }
    }
}

bool stream_poll(const struct stream *stream, struct pollfd *ret_poll)
{
    if (stream->fd < 0)
        return false;
    if (piece_bytes(stream) > 0)
        *ret_poll = (struct pollfd){.fd = stream->target, .events = POLLOUT};
    else
        *ret_poll = (struct pollfd){.fd = stream->fd, .events = POLLIN};
    return true;
}
