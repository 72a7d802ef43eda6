/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology_file.c - where the files of `dsmctl topology` are: for the nodes that write them and for dsmctl.
 *
 * The place depends on the user alone, since reader and writer may have other environments.
 */
#include "base/error.h"
#include "runtime/topology.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 128

void topology_directory(uid_t user, char *path, size_t size)
{
    char base[64];
    struct stat about;

    snprintf(base, sizeof(base), "/run/user/%u", user);
    if (stat(base, &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != user)
        snprintf(base, sizeof(base), "/tmp");
    snprintf(path, size, "%s/tiermesh-topology-%u", base, user);
}

static void file_path(uid_t user, pid_t pid, char *path, size_t size)
{
    char directory[PATH_BYTES / 2];

    topology_directory(user, directory, sizeof(directory));
    snprintf(path, size, "%s/%d", directory, pid);
}

/* In /tmp anybody could have made a directory of that name. */
static int directory_check(uid_t user, const char *directory)
{
    struct stat about;

    if (lstat(directory, &about) != 0)
        return error_set(-errno, "%s: %m", directory);
    if (!S_ISDIR(about.st_mode) || about.st_uid != user || (about.st_mode & 077) != 0)
        return error_set(-EACCES, "%s is not a directory of user %u with mode 0700; remove it", directory, user);
    return 0;
}

int topology_file_write(const char *text, size_t size_bytes)
{
    char directory[PATH_BYTES / 2], path[PATH_BYTES], fresh[PATH_BYTES + 8];
    int result;
    int fd;

    topology_directory(geteuid(), directory, sizeof(directory));
    file_path(geteuid(), getpid(), path, sizeof(path));
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    if (mkdir(directory, 0700) != 0 && errno != EEXIST)
        return error_set(-errno, "make %s: %m", directory);
    result = directory_check(geteuid(), directory);
    if (result != 0)
        return result;
    fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set(-errno, "write %s: %m", fresh);
    if (write(fd, text, size_bytes) != (ssize_t)size_bytes || rename(fresh, path) != 0)
        result = error_set(-EIO, "write %s: %m", path);
    close(fd);
    return result;
}

void topology_file_remove(pid_t pid)
{
    char path[PATH_BYTES];

    file_path(geteuid(), pid, path, sizeof(path));
    unlink(path);
}

int topology_file_read(uid_t user, pid_t pid, char text[TOPOLOGY_BYTES_MAX])
{
    char directory[PATH_BYTES / 2], path[PATH_BYTES];
    ssize_t count;
    int result;
    int fd;

    topology_directory(user, directory, sizeof(directory));
    file_path(user, pid, path, sizeof(path));
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return -ENOENT;
    result = directory_check(user, directory);
    if (result != 0)
        return result;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? -ENOENT : error_set(-errno, "read %s: %m", path);
    count = read(fd, text, TOPOLOGY_BYTES_MAX - 1);
    if (count < 0)
        result = error_set(-errno, "read %s: %m", path);
    else
        text[count] = '\0';
    close(fd);
    return result != 0 ? result : (int)count;
}
