/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_choose.c - which RDMA device, port and GID serve an address of this host. Pure.
 */
#include "fabric/verbs_choose.h"

#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void names_list(const struct verbs_candidate *candidates, unsigned count, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (unsigned i = 0; i < count && used < size; i++) {
        int error = candidates[i].open_error;

        used += (size_t)snprintf(text + used, size - used, "%s%s", i == 0 ? "" : ", ", candidates[i].name);
        if (error != 0 && used < size)
            used += (size_t)snprintf(text + used, size - used, " (cannot be opened: %s)", strerror(error));
    }
}

/* The newest RoCE version of the address; NULL: the port does not have it. */
static const struct verbs_gid *port_gid(const struct verbs_port *port, const uint8_t gid[16])
{
    const struct verbs_gid *best = NULL;

    for (unsigned i = 0; i < port->gids_count; i++)
        if (memcmp(port->gids[i].raw, gid, 16) == 0 && (best == NULL || port->gids[i].version > best->version))
            best = &port->gids[i];
    return best;
}

static int port_choose(const struct verbs_candidate *device, const char *address, const uint8_t gid[16],
                       struct verbs_choice *choice)
{
    const struct verbs_port *down = NULL;

    for (unsigned i = 0; i < device->ports_count; i++) {
        const struct verbs_port *port = &device->ports[i];
        const struct verbs_gid *found = port_gid(port, gid);

        if (found == NULL && port->is_ethernet)
            continue;
        if (!port->is_active) {
            down = port;
            continue;
        }
        choice->port = port->number;
        choice->gid_index = found == NULL ? 0 : found->index;
        choice->roce_version = found == NULL ? 0 : found->version;
        choice->mtu_bytes = port->mtu_bytes;
        return 0;
    }
    if (down != NULL)
        return error_set(-ENETDOWN, "RDMA: port %u of %s, which has the address %s, is not active", down->number,
                         device->name, address);
    return error_set(-ENODEV, "RDMA: no port of %s has a GID for the address %s", device->name, address);
}

int verbs_choose(const struct verbs_candidate *candidates, unsigned count, const char *address, const uint8_t gid[16],
                 const char *bound, struct verbs_choice *ret_choice)
{
    char names[512];

    if (count == 0)
        return error_set(-ENODEV, "RDMA: this host has no RDMA device");
    names_list(candidates, count, names, sizeof(names));
    if (bound[0] == '\0')
        return error_set(-ENODEV, "RDMA: no device has the address %s (there are: %s); bind to an address of one",
                         address, names);
    for (unsigned i = 0; i < count; i++) {
        struct verbs_choice choice = {.candidate = i};
        int result;

        if (strcmp(candidates[i].name, bound) != 0)
            continue;
        if (candidates[i].open_error != 0)
            return error_set(-candidates[i].open_error,
                             "RDMA: device %s, which has the address %s, cannot be opened: %s", bound, address,
                             strerror(candidates[i].open_error));
        result = port_choose(&candidates[i], address, gid, &choice);
        if (result == 0)
            *ret_choice = choice;
        return result;
    }
    return error_set(-ENODEV, "RDMA: device %s has the address %s but is not among those of this host (%s)", bound,
                     address, names);
}
