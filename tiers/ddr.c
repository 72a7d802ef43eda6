/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ddr.c - the DDR tier: pages are mapped where they lie, so there is only a budget to count. Run by the shard's thread.
 */
#include "base/error.h"
#include "base/os.h"
#include "tiers/backend.h"

#include <errno.h>

static void ddr_close(struct tier *tier)
{
    tier_fini(tier);
    os_pages_unmap(tier, sizeof(*tier));
}

static const struct tier_ops ddr_ops = {
    .name = "ddr",
    .capabilities = TIER_CAP_IN_PLACE,
    .close = ddr_close,
};

int tier_ddr_open(uint64_t budget_bytes, struct tier **ret_tier)
{
    uint32_t slots_count;
    void *memory;
    int result = tier_slots_of(ddr_ops.name, budget_bytes, &slots_count);

    if (result < 0)
        return result;
    if (os_pages_map(sizeof(struct tier), &memory) < 0)
        return error_set(-ENOMEM, "tier ddr: out of memory");
    result = tier_init(memory, &ddr_ops, slots_count, "this node's memory");
    if (result < 0) {
        os_pages_unmap(memory, sizeof(struct tier));
        return result;
    }
    *ret_tier = memory;
    return 0;
}
