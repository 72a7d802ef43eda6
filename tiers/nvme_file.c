/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvme_file.c - opens the file or device of an NVMe tier. Run at start, before the loop; blocks.
 *
 * A file has no name, so it is gone with the process, however that ends. Its room is reserved by fallocate(): the first
 * write of a block is then a little slower (its extent must be marked as written), but never finds the disk full.
 */
#include "tiers/nvme_file.h"
#include "base/error.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define RESERVE_STEP_BYTES ((uint64_t)1 << 30) /* of one fallocate(): a signal can end the wait between two */

static unsigned long long mib(uint64_t size_bytes)
{
    return (unsigned long long)(size_bytes >> 20);
}

static int no_room(const char *path, uint64_t size_bytes, uint64_t free_bytes, const char *remedy)
{
    return error_set(-ENOSPC, "nvme tier in %s: %llu MiB wanted, %llu MiB free; %s", path, mib(size_bytes),
                     mib(free_bytes), remedy);
}

/* ---- the file system ------------------------------------------------------------------------------------------ */

static int filesystem_check(const char *directory)
{
    struct statfs about;

    if (statfs(directory, &about) < 0)
        return error_set(-errno, "nvme tier in %s: %m", directory);
    if (about.f_type == TMPFS_MAGIC || about.f_type == RAMFS_MAGIC || about.f_type == HUGETLBFS_MAGIC)
        return error_set(-EOPNOTSUPP,
                         "nvme tier in %s: that directory is in memory (tmpfs), not on a disk; name one on a disk",
                         directory);
    return 0;
}

static int room_check(const char *directory, uint64_t more_bytes)
{
    struct statvfs room;
    uint64_t free_bytes;

    if (statvfs(directory, &room) < 0)
        return error_set(-errno, "nvme tier in %s: %m", directory);
    free_bytes = (uint64_t)room.f_bavail * room.f_frsize;
    if (free_bytes < more_bytes)
        return no_room(directory, more_bytes, free_bytes, "ask for less or free some");
    return 0;
}

/* Asked before the kernel does, which would send SIGXFSZ as well. */
static int limit_check(const char *where, uint64_t size_bytes)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < size_bytes)
        return no_room(where, size_bytes, limit.rlim_cur, "that is the file size limit (ulimit -f), raise it");
    return 0;
}

static int range_reserve(const char *where, int fd, uint64_t from_bytes, uint64_t to_bytes)
{
    while (from_bytes < to_bytes) {
        uint64_t left = to_bytes - from_bytes;
        uint64_t step = left < RESERVE_STEP_BYTES ? left : RESERVE_STEP_BYTES;

        if (fallocate(fd, 0, (off_t)from_bytes, (off_t)step) == 0) {
            from_bytes += step;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
            return no_room(where, to_bytes, from_bytes,
                           errno == EDQUOT ? "the disk quota ends there" : "the file system has no more");
        if (errno == EOPNOTSUPP)
            return error_set(-EOPNOTSUPP, "nvme tier in %s: the file system cannot reserve room (fallocate)", where);
        return error_set(-errno, "reserve %llu MiB of nvme tier in %s: %m", mib(to_bytes), where);
    }
    return 0;
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

/* For file systems without O_TMPFILE: a file with a name, for a moment. */
static int named_open(const char *directory)
{
    char path[4096];
    int fd;

    if (snprintf(path, sizeof(path), "%s/.tiermesh-XXXXXX", directory) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    fd = mkostemp(path, O_CLOEXEC | O_DIRECT);
    if (fd < 0)
        return -errno;
    unlink(path);
    return fd;
}

static int unlinked_open(const char *directory, int *ret_fd)
{
    int fd = open(directory, O_TMPFILE | O_RDWR | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);

    if (fd < 0)
        fd = errno == EOPNOTSUPP || errno == EISDIR ? named_open(directory) : -errno;
    if (fd == -EINVAL)
        return error_set(-EOPNOTSUPP, "nvme tier in %s: the file system refuses O_DIRECT", directory);
    if (fd < 0) {
        errno = -fd;
        return error_set(fd, "nvme tier in %s: create a file there: %m", directory);
    }
    *ret_fd = fd;
    return 0;
}

static int file_open(const char *directory, uint64_t size_bytes, int *ret_fd)
{
    int fd = -1;
    int result = filesystem_check(directory);

    if (result == 0)
        result = limit_check(directory, size_bytes);
    if (result == 0)
        result = unlinked_open(directory, &fd); /* first: a read-only file system is not a full one */
    if (result < 0)
        return result;
    result = room_check(directory, size_bytes);
    if (result == 0)
        result = range_reserve(directory, fd, 0, size_bytes);
    if (result < 0) {
        close(fd);
        return result;
    }
    *ret_fd = fd;
    return 0;
}

static int device_room_check(const char *path, int fd, uint64_t size_bytes)
{
    uint64_t device_bytes;

    if (ioctl(fd, BLKGETSIZE64, &device_bytes) < 0)
        return error_set(-errno, "nvme tier on %s: ask for its size: %m", path);
    if (device_bytes < size_bytes)
        return no_room(path, size_bytes, device_bytes, "the device is smaller");
    return 0;
}

/* O_EXCL: refused while a file system on it is mounted, or while anybody else holds it. */
static int device_open(const char *path, uint64_t size_bytes, int *ret_fd)
{
    int fd = open(path, O_RDWR | O_EXCL | O_DIRECT | O_CLOEXEC);
    int result;

    if (fd < 0)
        return error_set(-errno, "nvme tier on %s: %m%s", path,
                         errno == EBUSY ? "; is it mounted or used by another node?" : "");
    result = device_room_check(path, fd, size_bytes);
    if (result < 0) {
        close(fd);
        return result;
    }
    *ret_fd = fd;
    return 0;
}

/* One page there and back, so that what O_DIRECT refuses is found now. */
static int transfer_probe(const char *path, int fd)
{
    void *page;
    int result = 0;

    if (os_pages_map(PAGE_BYTES, &page) < 0)
        return error_set(-ENOMEM, "nvme tier in %s: out of memory", path);
    errno = EIO; /* for a short transfer */
    if (pwrite(fd, page, PAGE_BYTES, 0) != (ssize_t)PAGE_BYTES || pread(fd, page, PAGE_BYTES, 0) != (ssize_t)PAGE_BYTES)
        result = error_set(errno == EINVAL ? -EOPNOTSUPP : -errno,
                           "nvme tier in %s: a first O_DIRECT write and read of 4096 bytes: %m", path);
    os_pages_unmap(page, PAGE_BYTES);
    return result;
}

int nvme_file_open(const char *path, uint64_t size_bytes, int *ret_fd, bool *ret_is_device)
{
    struct stat about;
    bool is_device;
    int fd = -1;
    int result;

    if (stat(path, &about) < 0)
        return error_set(-errno, "nvme tier in %s: %m", path);
    is_device = S_ISBLK(about.st_mode);
    if (!is_device && !S_ISDIR(about.st_mode))
        return error_set(-ENOTDIR, "nvme tier in %s: neither a directory nor a block device", path);
    result = is_device ? device_open(path, size_bytes, &fd) : file_open(path, size_bytes, &fd);
    if (result < 0)
        return result;
    result = transfer_probe(path, fd);
    if (result < 0) {
        close(fd);
        return result;
    }
    *ret_fd = fd;
    *ret_is_device = is_device;
    return 0;
}

int nvme_file_resize(const char *where, int fd, bool is_device, uint64_t before_bytes, uint64_t size_bytes)
{
    int result;

    if (is_device)
        return device_room_check(where, fd, size_bytes);
    if (size_bytes <= before_bytes)
        return ftruncate(fd, (off_t)size_bytes) < 0 ? error_set(-errno, "shrink nvme tier in %s: %m", where) : 0;
    result = limit_check(where, size_bytes);
    if (result == 0)
        result = range_reserve(where, fd, before_bytes, size_bytes);
    if (result < 0)
        (void)!ftruncate(fd, (off_t)before_bytes);
    return result;
}
