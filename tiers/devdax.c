/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devdax.c - a slot store over a dax device, or a file on a DAX file system. Run by the shard's thread.
 *
 * Persistent memory and files are mapped by libpmem2. It knows dax devices of NVDIMMs only: on one of CXL memory 1.12
 * reads through a null pointer when it asks for the alignment. So those are mapped here, by what sysfs says of them,
 * and work without the library too.
 *
 * The device is this process's alone (flock), and its contents are lost: which slot holds what is known to this process
 * only. So nothing needs flushing: this host's caches are coherent over it, and nobody else reads. The mapping is not
 * inherited by forked children, which would write into the same slots.
 */
#include "base/error.h"
#include "base/os.h"
#include "base/textfile.h"
#include "tiers/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifdef TIERMESH_HAS_PMEM2
#include <libpmem2.h>
#endif

struct pmem2_source;
struct pmem2_map;

struct device {
    struct mapped_source source;
    uint64_t mapped_bytes;
    int fd;
    struct pmem2_source *pmem; /* NULL, both: mapped without libpmem2 */
    struct pmem2_map *map;
};

static struct device *device_of(struct mapped_source *source)
{
    return CONTAINER_OF(source, struct device, source);
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
static int size_check(const char *path, uint64_t there_bytes, uint64_t step_bytes, uint64_t size_bytes)
{
    if (there_bytes == 0 || step_bytes == 0 || there_bytes % step_bytes != 0)
        return error_set(-EINVAL, "CXL device %s has %lu bytes, which is no multiple of its step of %lu KiB", path,
                         there_bytes, step_bytes >> 10);
    if (size_bytes > there_bytes)
        return error_set(-ENOSPC, "CXL device %s has %lu MiB, and option cxl asks for %lu MiB", path, there_bytes >> 20,
                         size_bytes >> 20);
    if (size_bytes % step_bytes != 0)
        return error_set(-EINVAL, "CXL device %s is mapped in steps of %lu KiB; option cxl takes a multiple of that",
                         path, step_bytes >> 10);
    return 0;
}

/* ---- by libpmem2 ------------------------------------------------------------------------------------------------ */

#ifdef TIERMESH_HAS_PMEM2
/* It has codes of its own beside -errno. */
static int error_of(int result)
{
    return result <= PMEM2_E_UNKNOWN ? -EINVAL : result;
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
    device->source.memory = pmem2_map_get_address(device->map);
    return 0;
}

static int pmem_open(const char *path, uint64_t size_bytes, struct device *device)
{
    size_t there_bytes, step_bytes;
    int result = pmem2_source_from_fd(&device->pmem, device->fd);

    if (result == 0)
        result = pmem2_source_size(device->pmem, &there_bytes);
    if (result == 0)
        result = pmem2_source_alignment(device->pmem, &step_bytes);
    if (result != 0)
        return error_set(error_of(result), "CXL device %s: %s", path, pmem2_errormsg());
    result = size_check(path, there_bytes, step_bytes, size_bytes);
    return result == 0 ? map_make(path, device, size_bytes) : result;
}

static void pmem_close(struct device *device)
{
    if (device->map != NULL)
        (void)pmem2_map_delete(&device->map);
    if (device->pmem != NULL)
        (void)pmem2_source_delete(&device->pmem);
}

#else

static int pmem_open(const char *path, uint64_t size_bytes, struct device *device)
{
    (void)size_bytes;
    (void)device;
    return error_set(-EOPNOTSUPP,
                     "CXL device %s: files and persistent memory are mapped by libpmem2, and this build of "
                     "Tiermesh is without it",
                     path);
}

static void pmem_close(struct device *device)
{
    (void)device;
}
#endif

/* ---- by what sysfs says ------------------------------------------------------------------------------------------ */

/* A number of the device's folder; 0: it has none. */
static uint64_t attribute(dev_t number, const char *name)
{
    char path[96], text[32];
    uint64_t value = 0;

    snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/%s", major(number), minor(number), name);
    if (text_read(path, text, sizeof(text)) != 0 || text_number(text, &value) != 0)
        return 0;
    return value;
}

/* Of an NVDIMM: libpmem2's. */
static bool is_nvdimm(dev_t number)
{
    char path[64], target[512];
    ssize_t length;

    snprintf(path, sizeof(path), "/sys/dev/char/%u:%u", major(number), minor(number));
    length = readlink(path, target, sizeof(target) - 1);
    target[length > 0 ? length : 0] = '\0';
    return strstr(target, "/ndbus") != NULL;
}

static int dax_open(const char *path, dev_t number, uint64_t size_bytes, struct device *device)
{
    uint64_t there_bytes = attribute(number, "size");
    void *memory;
    int result;

    if (there_bytes == 0 || attribute(number, "align") == 0)
        return error_set(-EINVAL, "CXL device %s is no dax device", path);
    result = size_check(path, there_bytes, attribute(number, "align"), size_bytes);
    if (result != 0)
        return result;
    memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, device->fd, 0);
    if (memory == MAP_FAILED)
        return error_set(-errno, "CXL device %s: map %lu MiB: %m", path, size_bytes >> 20);
    device->source.memory = memory;
    return 0;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

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

    if (device->map == NULL && device->source.memory != NULL)
        munmap(device->source.memory, device->mapped_bytes);
    pmem_close(device);
    if (device->fd >= 0)
        close(device->fd);
    os_pages_unmap(device, sizeof(*device));
}

static int device_open(const char *path, uint64_t size_bytes, struct device *device)
{
    struct stat file;
    int result = file_open(path, device);

    if (result < 0)
        return result;
    if (fstat(device->fd, &file) != 0)
        return error_set(-errno, "CXL device %s: %m", path);
    if (S_ISCHR(file.st_mode) && !is_nvdimm(file.st_rdev))
        result = dax_open(path, file.st_rdev, size_bytes, device);
    else
        result = pmem_open(path, size_bytes, device);
    if (result < 0)
        return result;
    device->mapped_bytes = size_bytes;
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
