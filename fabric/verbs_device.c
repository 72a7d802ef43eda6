/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_device.c - the device that serves the bind address: its memory, registered once, and its queues.
 *
 * The device is opened by us and not by rdma_cm, so that a forked child shares nothing of it with its parent.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "fabric/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define CONTROL_CHUNK_BYTES   1024U
#define CONTROL_CREDITS_TOTAL 1024U
#define CONTROL_CREDITS_MAX   32U
#define DATA_CHUNK_BYTES      8192U
#define DATA_CREDITS_TOTAL    256U
#define DATA_CREDITS_MAX      48U
#define CREDITS_MIN           4U

/* ---- which device ---------------------------------------------------------------------------------------------- */

static void port_describe(struct ibv_context *context, uint8_t number, struct verbs_candidate *device)
{
    struct verbs_port *port = &device->ports[device->ports_count];
    struct ibv_port_attr attributes;
    struct ibv_gid_entry entry;

    if (ibv_query_port(context, number, &attributes) != 0)
        return;
    *port = (struct verbs_port){
        .number = number,
        .is_active = attributes.state == IBV_PORT_ACTIVE,
        .is_ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET,
        .mtu_bytes = (uint32_t)128 << attributes.active_mtu,
    };
    for (int i = 0; i < attributes.gid_tbl_len && port->gids_count < VERBS_GIDS_MAX; i++) {
        struct verbs_gid *gid = &port->gids[port->gids_count];

        if (ibv_query_gid_ex(context, number, (uint32_t)i, &entry, 0) != 0)
            continue;
        memcpy(gid->raw, entry.gid.raw, sizeof(gid->raw));
        gid->index = (uint16_t)i;
        gid->version = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 2 : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? 1 : 0;
        port->gids_count++;
    }
    device->ports_count++;
}

/* A device that cannot be opened is skipped, with one warning. */
static void device_describe(struct ibv_device *device, struct verbs_candidate *candidate)
{
    struct ibv_context *context;
    struct ibv_device_attr attributes;

    *candidate = (struct verbs_candidate){.ports_count = 0};
    snprintf(candidate->name, sizeof(candidate->name), "%s", ibv_get_device_name(device));
    errno = 0;
    context = ibv_open_device(device);
    if (context == NULL) {
        candidate->open_error = errno != 0 ? errno : EIO;
        log_warn("RDMA device %s cannot be opened (%s); going on without it", candidate->name,
                 strerror(candidate->open_error));
        return;
    }
    if (ibv_query_device(context, &attributes) == 0)
        for (uint8_t i = 1; i <= attributes.phys_port_cnt && candidate->ports_count < VERBS_PORTS_MAX; i++)
            port_describe(context, i, candidate);
    ibv_close_device(context);
}

static void bind_describe(const struct verbs *verbs, char *text, size_t size, uint8_t gid[16])
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&verbs->bind;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&verbs->bind;

    snprintf(text, size, "%s", verbs->config.bind_address);
    memset(gid, 0, 16);
    if (verbs->bind.ss_family == AF_INET6) {
        memcpy(gid, &v6->sin6_addr, 16);
    } else {
        gid[10] = gid[11] = 0xff;
        memcpy(gid + 12, &v4->sin_addr, 4);
    }
}

/* The device on which rdma_cm finds the address; "": none. */
static void bound_device(const struct verbs *verbs, char *name, size_t size)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id = NULL;

    name[0] = '\0';
    if (channel == NULL)
        return;
    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0) {
        struct sockaddr_storage address = verbs->bind;

        if (rdma_bind_addr(id, (struct sockaddr *)&address) == 0 && id->verbs != NULL)
            snprintf(name, size, "%s", ibv_get_device_name(id->verbs->device));
        rdma_destroy_id(id);
    }
    rdma_destroy_event_channel(channel);
}

static int device_choose(struct verbs *verbs, struct ibv_device **list, int count)
{
    char bound[VERBS_NAME_BYTES];
    char address[INET6_ADDRSTRLEN];
    uint8_t gid[16];
    struct verbs_candidate *candidates;
    void *memory;
    int result;

    count = count > VERBS_CANDIDATES_MAX ? VERBS_CANDIDATES_MAX : count;
    if (os_pages_map(sizeof(*candidates) * VERBS_CANDIDATES_MAX, &memory) != 0)
        return error_set(-ENOMEM, "RDMA: no memory to look at %d devices", count);
    candidates = memory;
    for (int i = 0; i < count; i++)
        device_describe(list[i], &candidates[i]);
    bound[0] = '\0';
    if (count > 0)
        bound_device(verbs, bound, sizeof(bound));
    bind_describe(verbs, address, sizeof(address), gid);
    result = verbs_choose(candidates, (unsigned)count, address, gid, bound, &verbs->choice);
    if (result == 0)
        verbs->device = candidates[verbs->choice.candidate];
    os_pages_unmap(memory, sizeof(*candidates) * VERBS_CANDIDATES_MAX);
    return result;
}

static int context_open(struct verbs *verbs)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    int result = device_choose(verbs, list, list == NULL ? 0 : count);

    if (result == 0) {
        errno = 0;
        verbs->context = ibv_open_device(list[verbs->choice.candidate]);
        if (verbs->context == NULL || ibv_query_device(verbs->context, &verbs->attributes) != 0)
            result = error_set(-ENODEV, "RDMA: open %s: %m", verbs->device.name);
    }
    if (list != NULL)
        ibv_free_device_list(list);
    return result;
}

/* ---- memory and queues ----------------------------------------------------------------------------------------- */

static uint32_t clamp(uint32_t value, uint32_t least, uint32_t most)
{
    return value < least ? least : value > most ? most : value;
}

static void plane_plan(struct verbs *verbs, enum fabric_plane plane)
{
    struct verbs_plane *of = &verbs->planes[plane];
    uint32_t peers = verbs->config.nodes_count > 1 ? verbs->config.nodes_count - 1 : 1;
    bool is_control = plane == PLANE_CONTROL;

    of->chunk_bytes = is_control ? CONTROL_CHUNK_BYTES : DATA_CHUNK_BYTES;
    of->credits = clamp((is_control ? CONTROL_CREDITS_TOTAL : DATA_CREDITS_TOTAL) / peers, CREDITS_MIN,
                        is_control ? CONTROL_CREDITS_MAX : DATA_CREDITS_MAX);
    of->depth = of->credits + VERBS_SPARE + (is_control ? 0 : VERBS_READS_MAX / 2);
    of->receives_count = (peers + 1) * (of->credits + VERBS_SPARE); /* one peer may have a lingering queue pair */
    of->blocks_count = peers + 4;
}

static size_t plane_bytes(const struct verbs_plane *plane)
{
    return (size_t)plane->chunk_bytes * (plane->receives_count + plane->blocks_count * plane->depth);
}

/* Registered memory stays with this process: a child that wrote to it first would take the pages. */
static int memory_register(struct verbs *verbs)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    uint8_t *next;
    void *memory;

    verbs->memory_bytes = VERBS_READS_MAX * FABRIC_READ_MAX;
    for (unsigned plane = 0; plane < PLANES; plane++) {
        plane_plan(verbs, (enum fabric_plane)plane);
        verbs->memory_bytes += plane_bytes(&verbs->planes[plane]);
        verbs->arrivals_bytes += sizeof(struct verbs_arrival) * verbs->planes[plane].receives_count;
    }
    if (os_pages_map(verbs->memory_bytes, &memory) != 0)
        return error_set(-ENOMEM, "RDMA: no memory for buffers of %zu bytes", verbs->memory_bytes);
    verbs->memory = memory;
    if (os_pages_map(verbs->arrivals_bytes, &memory) != 0)
        return error_set(-ENOMEM, "RDMA: no memory for queues of %zu bytes", verbs->arrivals_bytes);
    verbs->arrivals = memory;
    madvise(verbs->memory, verbs->memory_bytes, MADV_DONTFORK);
    verbs->mr = ibv_reg_mr(verbs->pd, verbs->memory, verbs->memory_bytes, IBV_ACCESS_LOCAL_WRITE);
    if (verbs->mr == NULL) {
        int error = errno;

        getrlimit(RLIMIT_MEMLOCK, &limit);
        if (error == ENOMEM && limit.rlim_cur != RLIM_INFINITY)
            return error_set(-ENOMEM,
                             "RDMA: buffers of %zu KiB cannot be locked, the limit is %llu KiB; raise "
                             "'ulimit -l' (LimitMEMLOCK=infinity for a service)",
                             verbs->memory_bytes >> 10, (unsigned long long)limit.rlim_cur >> 10);
        return error_set(-error, "RDMA: register %zu bytes with %s: %s", verbs->memory_bytes, verbs->device.name,
                         strerror(error));
    }
    verbs->read_slots = verbs->memory;
    next = verbs->memory + VERBS_READS_MAX * FABRIC_READ_MAX;
    for (unsigned i = 0, arrivals = 0; i < PLANES; i++) {
        struct verbs_plane *plane = &verbs->planes[i];

        plane->receive_slots = next;
        plane->send_slots = next + (size_t)plane->chunk_bytes * plane->receives_count;
        next += plane_bytes(plane);
        plane->arrivals = verbs->arrivals + arrivals;
        arrivals += plane->receives_count;
    }
    return 0;
}

int verbs_receive_post(struct verbs *verbs, enum fabric_plane plane, uint32_t slot)
{
    struct verbs_plane *of = &verbs->planes[plane];
    struct ibv_sge sge = {
        .addr = (uintptr_t)(of->receive_slots + (size_t)slot * of->chunk_bytes),
        .length = of->chunk_bytes,
        .lkey = verbs->mr->lkey,
    };
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr *bad;

    return ibv_post_srq_recv(of->srq, &wr, &bad);
}

/* The completion queue holds all that can ever be in it, so it cannot overrun. */
static int plane_open(struct verbs *verbs, enum fabric_plane plane)
{
    struct verbs_plane *of = &verbs->planes[plane];
    uint32_t completions = of->receives_count + of->blocks_count * of->depth + 16;
    struct ibv_srq_init_attr attributes = {.attr = {.max_wr = of->receives_count, .max_sge = 1}};

    if (completions > (uint32_t)verbs->attributes.max_cqe ||
        of->receives_count > (uint32_t)verbs->attributes.max_srq_wr)
        return error_set(-ENOSPC, "RDMA: %s has queues of %d entries, and %u nodes need %u", verbs->device.name,
                         verbs->attributes.max_cqe, verbs->config.nodes_count, completions);
    of->cq = ibv_create_cq(verbs->context, (int)completions, verbs, verbs->channel, 0);
    if (of->cq == NULL)
        return error_set(-errno, "RDMA: make a completion queue of %u on %s: %m", completions, verbs->device.name);
    of->srq = ibv_create_srq(verbs->pd, &attributes);
    if (of->srq == NULL)
        return error_set(-errno, "RDMA: make a receive queue of %u on %s: %m", of->receives_count, verbs->device.name);
    for (uint32_t slot = 0; slot < of->receives_count; slot++) {
        int error = verbs_receive_post(verbs, plane, slot);

        if (error != 0)
            return error_set(-error, "RDMA: post receive %u on %s: %s", slot, verbs->device.name, strerror(error));
    }
    return 0;
}

static int nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ? -errno : 0;
}

static int device_open(struct verbs *verbs)
{
    int result = context_open(verbs);

    if (result != 0)
        return result;
    verbs->pd = ibv_alloc_pd(verbs->context);
    verbs->channel = ibv_create_comp_channel(verbs->context);
    if (verbs->pd == NULL || verbs->channel == NULL)
        return error_set(-ENOMEM, "RDMA: %s has no room for another user: %m", verbs->device.name);
    if (nonblocking(verbs->channel->fd) != 0 || nonblocking(verbs->context->async_fd) != 0)
        return error_set(-EIO, "RDMA: descriptors of %s: %m", verbs->device.name);
    result = memory_register(verbs);
    if (result == 0)
        verbs_lend(verbs);
    for (unsigned plane = 0; plane < PLANES && result == 0; plane++)
        result = plane_open(verbs, (enum fabric_plane)plane);
    return result;
}

int verbs_device_open(struct verbs *verbs)
{
    int result = device_open(verbs);

    if (result != 0)
        verbs_device_close(verbs);
    return result;
}

/* What was opened so far. */
void verbs_device_close(struct verbs *verbs)
{
    for (unsigned i = 0; i < PLANES; i++) {
        if (verbs->planes[i].srq != NULL)
            ibv_destroy_srq(verbs->planes[i].srq);
        if (verbs->planes[i].cq != NULL)
            ibv_destroy_cq(verbs->planes[i].cq);
    }
    verbs_lend_end(verbs);
    if (verbs->mr != NULL)
        ibv_dereg_mr(verbs->mr);
    if (verbs->channel != NULL)
        ibv_destroy_comp_channel(verbs->channel);
    if (verbs->pd != NULL)
        ibv_dealloc_pd(verbs->pd);
    if (verbs->context != NULL)
        ibv_close_device(verbs->context);
    os_pages_unmap(verbs->arrivals, verbs->arrivals_bytes);
    os_pages_unmap(verbs->memory, verbs->memory_bytes);
}
