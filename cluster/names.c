/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c - the replicated table of names: 64-bit values that any node may publish. PURE.
 */
#include "cluster/state.h"

#include <string.h>

static struct cluster_name *name_slot(struct cluster *cluster, const char name[CLUSTER_NAME_MAX + 1])
{
    struct cluster_name *names = cluster_names(cluster);

    for (uint32_t i = 0; i < cluster->names_used; i++) {
        if (names[i].value != 0 && memcmp(names[i].name, name, sizeof(names[i].name)) == 0)
            return &names[i];
    }
    return NULL;
}

static struct cluster_name *free_slot(struct cluster *cluster)
{
    struct cluster_name *names = cluster_names(cluster);

    for (uint32_t i = 0; i < cluster->names_used; i++) {
        if (names[i].value == 0)
            return &names[i];
    }
    return cluster->names_used < cluster->limits.names_max ? &names[cluster->names_used] : NULL;
}

uint64_t names_find(struct cluster *cluster, const char name[CLUSTER_NAME_MAX + 1])
{
    const struct cluster_name *slot = name_slot(cluster, name);

    return slot == NULL ? 0 : slot->value;
}

int names_check(struct cluster *cluster, const struct cluster_change *change)
{
    if (change->value != 0 && name_slot(cluster, change->name) == NULL && free_slot(cluster) == NULL)
        return -ENOSPC;
    return 0;
}

void names_apply(struct cluster *cluster, const struct cluster_change *change)
{
    struct cluster_name *slot = name_slot(cluster, change->name);

    if (slot == NULL && change->value == 0)
        return;
    if (slot == NULL) {
        slot = free_slot(cluster);
        ASSERT(slot != NULL);
        if (slot == &cluster_names(cluster)[cluster->names_used])
            cluster->names_used++;
    }
    slot->value = change->value;
    memcpy(slot->name, change->name, sizeof(slot->name));
}
