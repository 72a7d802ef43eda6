/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.c - the file behind a program's name, and whether a node may run it.
 */
#include "tools/program.h"
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <sysexits.h>
#include <unistd.h>

bool program_is_privileged(const char *path)
{
    struct stat file;

    return stat(path, &file) == 0 && ((file.st_mode & (S_ISUID | S_ISGID)) != 0 ||
                                      getxattr(path, "security.capability", NULL, 0) > 0);
}

/* 0, or an exit status with a sentence. */
static int file_check(const char *path)
{
    struct stat file;

    if (stat(path, &file) < 0) {
        int status = errno == ENOENT || errno == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;

        return error_set(status, "cannot run %s: %s", path, strerror(errno));
    }
    if (S_ISDIR(file.st_mode))
        return error_set(EXIT_NOT_EXECUTABLE, "cannot run %s: it is a directory", path);
    if (!S_ISREG(file.st_mode) || access(path, X_OK) < 0)
        return error_set(EXIT_NOT_EXECUTABLE, "cannot run %s: it is not executable (chmod +x)", path);
    if (program_is_privileged(path))
        return error_set(EX_NOPERM,
                         "%s gains privileges when it starts (set-user-id, set-group-id or file capabilities): the "
                         "system then ignores what dsmrun tells it; start dsmrun with these privileges instead",
                         path);
    return 0;
}

static int path_search(const char *name, char *ret_path, size_t size)
{
    const char *path = getenv("PATH");
    int refused = 0;

    if (path == NULL)
        path = "/usr/local/bin:/usr/bin:/bin";
    for (;;) {
        size_t length = strcspn(path, ":");
        int used = snprintf(ret_path, size, "%.*s/%s", length == 0 ? 1 : (int)length, length == 0 ? "." : path, name);

        if (used > 0 && (size_t)used < size && access(ret_path, F_OK) == 0) {
            int status = file_check(ret_path);

            if (status == 0 || status == EX_NOPERM)
                return status;
            refused = status;
        }
        if (path[length] == '\0')
            break;
        path += length + 1;
    }
    /* A file that cannot be run says more than a name that is nowhere. */
    return refused != 0 ? refused
                        : error_set(EXIT_NOT_FOUND, "cannot run %s: no such program in any directory of PATH", name);
}

int program_find(const char *name, char *ret_path, size_t size)
{
    if (name[0] == '\0')
        return error_set(EXIT_NOT_FOUND, "cannot run a program without a name");
    if (strchr(name, '/') == NULL)
        return path_search(name, ret_path, size);
    if (strlen(name) >= size)
        return error_set(EXIT_NOT_FOUND, "cannot run %.64s...: the path is too long", name);
    memcpy(ret_path, name, strlen(name) + 1);
    return file_check(name);
}
