/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/pressure.h"
#include "base/os.h"
#include "base/textfile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/*
 * 200 ms of 2 s. Without privilege the kernel takes only multiples of 2 s (since 6.5, and nothing before). It cuts the
 * last byte off what is written, whatever it is.
 */
#define TRIGGER       "some 200000 2000000"
#define PRESSED_SHARE 10 /* of the time */

static bool total_read(const struct pressure *pressure, uint64_t *ret_us)
{
    char text[256];
    const char *total;

    if (pressure->path[0] == '\0' || text_read(pressure->path, text, sizeof(text)) != 0)
        return false;
    if (strncmp(text, "some ", 5) != 0)
        return false;
    total = strstr(text, "total=");
    return total != NULL && text_number(total + 6, ret_us) == 0;
}

static bool path_try(struct pressure *pressure, const char *directory, const char *name, bool is_own)
{
    pressure->is_own = is_own;
    return text_join(pressure->path, sizeof(pressure->path), directory, name) &&
           total_read(pressure, &pressure->total_us);
}

void pressure_open(const char *root, struct pressure *ret_pressure)
{
    int before = errno;
    struct cgroup group;

    *ret_pressure = (struct pressure){.fd = -1};
    cgroup_find_unified(root, &group);
    if (cgroup_is_top(&group) || !path_try(ret_pressure, group.path, "/memory.pressure", true)) {
        if (!path_try(ret_pressure, root, "/proc/pressure/memory", false))
            ret_pressure->path[0] = '\0';
    }
    if (ret_pressure->path[0] != '\0')
        ret_pressure->fd = open(ret_pressure->path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (ret_pressure->fd >= 0 && write(ret_pressure->fd, TRIGGER, sizeof(TRIGGER)) < 0) {
        close(ret_pressure->fd);
        ret_pressure->fd = -1;
    }
    if (ret_pressure->fd >= 0)
        ret_pressure->fd = os_descriptor_own(ret_pressure->fd);
    errno = before;
}

void pressure_close(struct pressure *pressure)
{
    if (pressure->fd >= 0)
        os_descriptor_close(pressure->fd);
    pressure->fd = -1;
}

bool pressure_look(struct pressure *pressure, uint64_t now_ns)
{
    uint64_t before_us = pressure->total_us;
    uint64_t before_ns = pressure->looked_ns;

    if (!total_read(pressure, &pressure->total_us))
        return false;
    pressure->looked_ns = now_ns;
    return before_ns != 0 && now_ns > before_ns && pressure->total_us > before_us &&
           (pressure->total_us - before_us) * 1000 >= (now_ns - before_ns) / PRESSED_SHARE;
}
