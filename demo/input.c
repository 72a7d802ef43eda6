/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input.c - finds dpkg's and apt's package lists and reads them one after the other.
 *
 * apt keeps its lists plain or compressed, as the machine is configured; its own helper reads every kind.
 */
#include "demo/input.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DPKG_STATUS "/var/lib/dpkg/status"
#define APT_LISTS   "/var/lib/apt/lists/*_Packages*"
#define APT_HELPER  "/usr/lib/apt/apt-helper"

extern char **environ;

int inputs_add(struct inputs *inputs, const char *path)
{
    char *copy;

    if (inputs->count == INPUTS_MAX)
        return -ENOSPC;
    copy = strdup(path);
    if (copy == NULL)
        return -ENOMEM;
    inputs->paths[inputs->count++] = copy;
    return 0;
}

int inputs_find(struct inputs *ret_inputs)
{
    struct inputs inputs = {.count = 0};
    glob_t lists = {.gl_pathc = 0};
    int result = 0;

    if (access(DPKG_STATUS, R_OK) == 0)
        result = inputs_add(&inputs, DPKG_STATUS);
    if (glob(APT_LISTS, 0, NULL, &lists) == 0) /* sorted by name */
        for (size_t i = 0; i < lists.gl_pathc && result == 0; i++)
            result = inputs_add(&inputs, lists.gl_pathv[i]);
    inputs.lists_count = lists.gl_pathc;
    globfree(&lists);
    if (result == 0 && inputs.count == 0)
        result = -ENOENT;
    if (result != 0) {
        inputs_fini(&inputs);
        return result;
    }
    *ret_inputs = inputs;
    return 0;
}

void inputs_fini(struct inputs *inputs)
{
    for (size_t i = 0; i < inputs->count; i++)
        free(inputs->paths[i]);
    inputs->count = 0;
}

void input_open(struct input_stream *stream, const struct inputs *inputs)
{
    *stream = (struct input_stream){.inputs = inputs, .descriptor = -1};
}

static bool is_compressed(const char *path)
{
    static const char *const endings[] = {".lz4", ".gz", ".xz", ".bz2", ".zst", ".lzma"};
    size_t length = strlen(path);

    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        if (length > strlen(endings[i]) && strcmp(path + length - strlen(endings[i]), endings[i]) == 0)
            return true;
    return false;
}

static int unpacker_start(struct input_stream *stream, char *path)
{
    char *const arguments[] = {(char[]){"apt-helper"}, (char[]){"cat-file"}, path, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2];
    int result;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return -errno;
    result = posix_spawn_file_actions_init(&actions);
    if (result != 0)
        goto close_ends;
    result = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    if (result == 0)
        result = posix_spawn(&stream->unpacker, APT_HELPER, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
close_ends:
    close(ends[1]);
    if (result != 0) {
        close(ends[0]);
        stream->unpacker = 0;
        return -result;
    }
    stream->descriptor = ends[0];
    return 0;
}

static int file_open(struct input_stream *stream)
{
    char *path = stream->inputs->paths[stream->next++];
    int result = 0;

    if (is_compressed(path)) {
        result = unpacker_start(stream, path);
    } else {
        stream->descriptor = open(path, O_RDONLY | O_CLOEXEC);
        result = stream->descriptor < 0 ? -errno : 0;
    }
    if (result != 0)
        fprintf(stderr, "pkgrank: open %s: %s\n", path, strerror(-result));
    return result;
}

/* The end of a file: an unpacker that failed has given only a part of it. */
static int file_close(struct input_stream *stream)
{
    int status = 0;

    close(stream->descriptor);
    stream->descriptor = -1;
    if (stream->unpacker != 0 && waitpid(stream->unpacker, &status, 0) != stream->unpacker)
        status = -1;
    stream->unpacker = 0;
    if (status != 0) {
        fprintf(stderr, "pkgrank: unpack %s: status %d\n", stream->inputs->paths[stream->next - 1], status);
        return -EIO;
    }
    return 0;
}

ssize_t input_read(struct input_stream *stream, char *buffer, size_t size_bytes)
{
    size_t done = 0;

    while (done < size_bytes) {
        ssize_t count;
        int result = 0;

        if (stream->newlines > 0) {
            buffer[done++] = '\n';
            stream->newlines--;
            continue;
        }
        if (stream->descriptor < 0) {
            if (stream->next == stream->inputs->count)
                break;
            result = file_open(stream);
            if (result != 0)
                return result;
        }
        count = read(stream->descriptor, buffer + done, size_bytes - done);
        if (count < 0 && errno != EINTR) {
            result = -errno;
            fprintf(stderr, "pkgrank: read %s: %m\n", stream->inputs->paths[stream->next - 1]);
            return result;
        }
        if (count > 0)
            done += (size_t)count;
        if (count == 0) {
            result = file_close(stream);
            stream->newlines = 2;
        }
        if (result != 0)
            return result;
    }
    return (ssize_t)done;
}

void input_close(struct input_stream *stream)
{
    if (stream->descriptor < 0)
        return;
    close(stream->descriptor);
    if (stream->unpacker != 0)
        waitpid(stream->unpacker, NULL, 0);
    stream->descriptor = -1;
    stream->unpacker = 0;
}
