/* SPDX-License-Identifier: Apache-2.0 */
/*
 * features.c - opening a userfaultfd, and what this kernel's can do.
 *
 * The handshake (UFFDIO_API) happens once a descriptor, so a probe opens its own and closes it again. What the
 * handshake does not tell (CONTINUE with write protection) is tried on one page. Runs before the shard's thread.
 */
#include "base/error.h"
#include "base/os.h"
#include "mmu/uapi.h"
#include "mmu/uffd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEVICE "/dev/userfaultfd"
#define SYSCTL "/proc/sys/vm/unprivileged_userfaultfd"

int descriptor_raise(int fd)
{
    return os_descriptor_own(fd);
}

/* Never USER_MODE_ONLY: system calls on absent pages would return EFAULT. */
static int open_by_device(void)
{
    int device = open(DEVICE, O_RDWR | O_CLOEXEC);
    int fd;

    if (device < 0)
        return -errno;
    fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        fd = -errno;
    close(device);
    return fd;
}

/* The descriptor that is made belongs to this process's memory, whoever opened the device. */
static int open_by_gift(int device)
{
    int fd = device > 0 ? ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK) : -1;

    return fd < 0 ? -EPERM : fd;
}

static int open_by_call(void)
{
    long fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

    return fd < 0 ? -errno : (int)fd;
}

static void describe_device(char *text, size_t size)
{
    struct stat status;

    if (stat(DEVICE, &status) == 0)
        snprintf(text, size, "mode %04o, owner %u:%u", (unsigned)status.st_mode & 07777U, status.st_uid, status.st_gid);
    else
        snprintf(text, size, "%s", strerror(errno));
}

static char sysctl_value(void)
{
    char value = '?';
    int fd = open(SYSCTL, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return value;
    if (read(fd, &value, 1) != 1)
        value = '?';
    close(fd);
    return value;
}

static int refuse(int device_error, int call_error)
{
    char device[80];

    if (device_error == -EMFILE || device_error == -ENFILE || call_error == -EMFILE || call_error == -ENFILE)
        return error_set(-EMFILE, "open a userfaultfd: too many open files; raise ulimit -n");
    describe_device(device, sizeof(device));
    if (call_error == -ENOSYS)
        return error_set(-ENOSYS,
                         "userfaultfd is missing: " DEVICE " (%s), system call: %s; the kernel needs "
                         "CONFIG_USERFAULTFD, and in a container the seccomp profile must allow userfaultfd",
                         device, strerror(-call_error));
    return error_set(-EPERM,
                     "userfaultfd is refused: " DEVICE " (%s): %s, system call: %s; one of these helps: read and "
                     "write permission on " DEVICE ", sysctl -w vm.unprivileged_userfaultfd=1 (now %c), the capability "
                     "CAP_SYS_PTRACE, or in a container a seccomp profile that allows userfaultfd",
                     device, strerror(-device_error), strerror(-call_error), sysctl_value());
}

int uffd_descriptor_open(int device, const char **ret_source)
{
    int by_device = open_by_gift(device);
    int by_call;

    if (by_device < 0)
        by_device = open_by_device();
    if (by_device >= 0) {
        *ret_source = DEVICE;
        return by_device;
    }
    by_call = open_by_call();
    if (by_call >= 0) {
        *ret_source = "userfaultfd system call";
        return by_call;
    }
    return refuse(by_device, by_call);
}

/* True when a page of a memfd can be mapped write-protected in one step (6.4; there is no feature bit). */
static bool try_continue_wp(int fd)
{
    struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP};
    struct uffdio_continue map = {.mode = UFFDIO_CONTINUE_MODE_WP};
    bool works = false;
    void *page;
    int memfd;

    if (memfd_open("tiermesh-probe", PAGE_BYTES, &memfd) != 0)
        return false;
    page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    if (page == MAP_FAILED)
        goto close_memfd;
    range.range.start = (uint64_t)(uintptr_t)page;
    range.range.len = PAGE_BYTES;
    map.range = range.range;
    works = pwrite(memfd, "x", 1, 0) == 1 && ioctl(fd, UFFDIO_REGISTER, &range) == 0 &&
            ioctl(fd, UFFDIO_CONTINUE, &map) == 0;
    munmap(page, PAGE_BYTES);
close_memfd:
    close(memfd);
    return works;
}

static bool has(const struct uffdio_api *api, uint64_t feature)
{
    return (api->features & feature) != 0;
}

/* With no feature asked for, the kernel answers with all it has; WP on memfd must be asked for to be used. */
static int handshake(int fd, uint64_t features, struct uffdio_api *ret_api)
{
    struct uffdio_api api = {.api = UFFD_API, .features = features};

    if (ioctl(fd, UFFDIO_API, &api) != 0)
        return error_set(-errno, "userfaultfd handshake with features 0x%llx: %s", (unsigned long long)features,
                         strerror(errno));
    *ret_api = api;
    return 0;
}

static int probe_continue_wp(int device, bool *ret_works)
{
    const char *source;
    struct uffdio_api api;
    int fd = uffd_descriptor_open(device, &source);
    int error;

    if (fd < 0)
        return fd;
    error = handshake(fd, UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_WP_HUGETLBFS_SHMEM, &api);
    if (error == 0)
        *ret_works = try_continue_wp(fd);
    close(fd);
    return error;
}

int mmu_features_probe(const struct mmu_switches *switches, struct mmu_features *ret_features)
{
    struct mmu_features features = {.device = switches->device};
    struct uffdio_api api;
    int fd = uffd_descriptor_open(switches->device, &features.source);
    int error;

    if (fd < 0)
        return fd;
    error = handshake(fd, 0, &api);
    close(fd);
    if (error != 0)
        return error;
    features.has_wp_shmem = has(&api, UFFD_FEATURE_PAGEFAULT_FLAG_WP) && has(&api, UFFD_FEATURE_WP_HUGETLBFS_SHMEM);
    features.has_minor = has(&api, UFFD_FEATURE_MISSING_SHMEM) && has(&api, UFFD_FEATURE_MINOR_SHMEM);
    features.has_move = has(&api, UFFD_FEATURE_MOVE) && !switches->no_move;
    features.has_poison = has(&api, UFFD_FEATURE_POISON) && !switches->no_poison;
    features.has_wp_async = has(&api, UFFD_FEATURE_WP_ASYNC) && !switches->no_wp_async;
    features.has_thread_id = has(&api, UFFD_FEATURE_THREAD_ID);
    features.has_exact_address = has(&api, UFFD_FEATURE_EXACT_ADDRESS);
    if (features.has_wp_shmem && features.has_minor && !switches->no_continue_wp) {
        error = probe_continue_wp(switches->device, &features.has_continue_wp);
        if (error != 0)
            return error;
    }
    *ret_features = features;
    return 0;
}
