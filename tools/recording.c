/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recording.c - looks at the file of --record before anything is started: a program may run for hours.
 */
#include "tools/recording.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int recording_path(const char *file, char ret_path[CONFIG_PATH_MAX])
{
    const char *slash = strrchr(file, '/');
    const char *name = slash != NULL ? slash + 1 : file;
    char folder[PATH_MAX], real[PATH_MAX];

    if (name[0] == '\0')
        return error_set(-EINVAL, "--record %s: that is no name of a file", file);
    snprintf(folder, sizeof(folder), "%.*s", slash != NULL ? (int)(slash - file + 1) : 1, slash != NULL ? file : ".");
    if (realpath(folder, real) == NULL)
        return error_set(-EINVAL, "--record %s: the folder %s: %m; it must be there", file, folder);
    if (snprintf(ret_path, CONFIG_PATH_MAX, "%s/%s", strcmp(real, "/") == 0 ? "" : real, name) >= CONFIG_PATH_MAX)
        return error_set(-EINVAL, "--record %s: the path is longer than %d bytes", file, CONFIG_PATH_MAX - 1);
    return 0;
}

/* The first process that records makes the file. */
int recording_prepare(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666);
    struct stat stat;
    bool is_file;

    if (fd < 0)
        return error_set(-EINVAL, "--record %s: %m; give a file that can be written", path);
    is_file = fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode);
    close(fd);
    if (!is_file)
        return error_set(-EINVAL, "--record %s: that is not an ordinary file", path);
    return unlink(path) == 0 ? 0 : error_set(-EINVAL, "--record %s: what is there cannot be replaced: %m", path);
}

bool recording_is_there(const char *path)
{
    return access(path, F_OK) == 0;
}
