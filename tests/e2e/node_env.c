/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_env.c - linked to libtiermesh.so, so a node by itself: says what it finds in its environment.
 */
#include <stdio.h>
#include <stdlib.h>
#include <tiermesh/dsm.h>

int main(void)
{
    const char *const names[] = {"LD_PRELOAD", "DSM_PRELOAD", "DSM_BROKER", "DSM_BROKER_KEY"};

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);

        if (value != NULL)
            printf("%s=%s\n", names[i], value);
    }
    printf("node of %s, tier %s\n", getenv("DSM_SIZE"), dsm_tier_name(DSM_TIER_DDR));
    return 0;
}
