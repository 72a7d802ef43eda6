/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devdax.c - a slot store over a dax device, or a file on a DAX file system, mapped by libpmem2. Run by the shard's
 * thread.
 *
 * The device is this process's alone (flock), and its contents are lost: which slot holds what is known to this process
 * only. So nothing needs flushing: this host's caches are coherent over it, and nobody else reads. The mapping is not
 * inherited by forked children, which would write into the same slots.
 */
#include "base/error.h"
#include "base/os.h"
#include "tiers/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef TIERMESH_HAS_PMEM2
#include <libpmem2.h>

struct device {
    struct mapped_source source;
    uint64_t mapped_bytes;
    int fd;
    struct pmem2_source *pmem;
    struct pmem2_map *map;
};

static struct device *device_of(struct mapped_source *source)
{
    return CONTAINER_OF(source, struct device, source);
}

static int device_resize(struct mapped_source *source, uint64_t size_bytes)
{
    struct device *device = device_of(source);

    if (size_bytes > device->mapped_bytes)
        return error_set(-ENOSPC, "tier cxl (dax) to %lu MiB: it was opened with %lu MiB and cannot grow",
                         size_bytes >> 20, device->mapped_bytes >> 20);
    source->size_bytes = size_bytes;
    return 0;
}

static void device_close(struct mapped_source *source)
{
    struct device *device = device_of(source);

    if (device->map != NULL)
        (void)pmem2_map_delete(&device->map);
    if (device->pmem != NULL)
        (void)pmem2_source_delete(&device->pmem);
    if (device->fd >= 0)
        close(device->fd);
    os_pages_unmap(device, sizeof(*device));
}

/* libpmem2 has codes of its own beside -errno. */
static int error_of(int result)
{
    return result <= PMEM2_E_UNKNOWN ? -EINVAL : result;
}

static int file_open(const char *path, struct device *device)
{
    device->fd = open(path, O_RDWR | O_CLOEXEC);
    if (device->fd < 0 && (errno == EACCES || errno == EPERM))
        return error_set(-EACCES,
                         "CXL device %s: this user may not read and write it; a udev rule for subsystem dax, or "
                         "root, can change that",
                         path);
    if (device->fd < 0)
        return error_set(-errno, "CXL device %s: %m%s", path,
                         errno == ENOENT ? " (bound to kmem it is a NUMA node and has no file: dsmctl topology)" : "");
    if (flock(device->fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    return error_set(errno == EWOULDBLOCK ? -EBUSY : -errno, "CXL device %s: %s", path,
                     errno == EWOULDBLOCK ? "another process uses it" : strerror(errno));
}

/* What is asked for must fit, in whole steps of the device. */
static int size_check(const char *path, const struct device *device, uint64_t size_bytes)
{
    size_t there_bytes, step_bytes;
    int result = pmem2_source_size(device->pmem, &there_bytes);

    if (result == 0)
        result = pmem2_source_alignment(device->pmem, &step_bytes);
    if (result != 0)
        return error_set(error_of(result), "CXL device %s: %s", path, pmem2_errormsg());
    if (there_bytes == 0 || there_bytes % step_bytes != 0)
        return error_set(-EINVAL, "CXL device %s has %zu bytes, which is no multiple of its step of %zu KiB", path,
                         there_bytes, step_bytes >> 10);
    if (size_bytes > there_bytes)
        return error_set(-ENOSPC, "CXL device %s has %zu MiB, and option cxl asks for %lu MiB", path, there_bytes >> 20,
                         size_bytes >> 20);
    if (size_bytes % step_bytes != 0)
        return error_set(-EINVAL, "CXL device %s is mapped in steps of %zu KiB; option cxl takes a multiple of that",
                         path, step_bytes >> 10);
    return 0;
}

static int map_make(const char *path, struct device *device, uint64_t size_bytes)
{
    struct pmem2_config *config;
    int result = pmem2_config_new(&config);

    if (result != 0)
        return error_set(-ENOMEM, "CXL device %s: %s", path, pmem2_errormsg());
    result = pmem2_config_set_length(config, size_bytes);
    if (result == 0)
        result = pmem2_config_set_required_store_granularity(config, PMEM2_GRANULARITY_PAGE);
    if (result == 0)
        result = pmem2_map_new(&device->map, config, device->pmem);
    (void)pmem2_config_delete(&config);
    if (result != 0)
        return error_set(error_of(result), "CXL device %s: %s", path, pmem2_errormsg());
    if (pmem2_map_get_store_granularity(device->map) == PMEM2_GRANULARITY_PAGE)
        return error_set(-EOPNOTSUPP,
                         "CXL device %s is a file without DAX: its pages would be memory of this machine; "
                         "use option nvme for it",
                         path);
    return 0;
}

static int device_open(const char *path, uint64_t size_bytes, struct device *device)
{
    int result = file_open(path, device);

    if (result < 0)
        return result;
    result = pmem2_source_from_fd(&device->pmem, device->fd);
    if (result != 0)
        return error_set(error_of(result), "CXL device %s: %s", path, pmem2_errormsg());
    result = size_check(path, device, size_bytes);
    if (result == 0)
        result = map_make(path, device, size_bytes);
    if (result < 0)
        return result;
    device->mapped_bytes = size_bytes;
    device->source.memory = pmem2_map_get_address(device->map);
    device->source.size_bytes = size_bytes;
    (void)madvise(device->source.memory, size_bytes, MADV_DONTFORK);
    return 0;
}

static const struct tier_ops dax_ops = {
    .name = "cxl (dax)",
    .capabilities = TIER_CAP_ADDRESSABLE,
    .transfer = mapped_transfer,
    .address = mapped_address,
    .move_now = mapped_move_now,
    .freed = mapped_freed,
    .resize = mapped_resize,
    .close = mapped_close,
};

int tier_dax_open(const char *path, uint64_t size_bytes, struct tier **ret_tier)
{
    struct device *device;
    uint32_t slots_count;
    void *object;
    int result = tier_slots_of(dax_ops.name, size_bytes, &slots_count);

    if (result < 0)
        return result;
    if (os_pages_map(sizeof(*device), &object) < 0)
        return error_set(-ENOMEM, "CXL device %s: out of memory", path);
    device = object;
    device->fd = -1;
    device->source.resize = device_resize;
    device->source.close = device_close;
    result = device_open(path, size_bytes, device);
    if (result == 0)
        result = mapped_open(path, &dax_ops, &device->source, ret_tier);
    if (result < 0)
        device_close(&device->source);
    return result;
}

#else

int tier_dax_open(const char *path, uint64_t size_bytes, struct tier **ret_tier)
{
    (void)size_bytes;
    (void)ret_tier;
    return error_set(-EOPNOTSUPP, "CXL device %s: this build of Tiermesh is without libpmem2, which maps it", path);
}

#endif
