/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.cpp - the header and the library from C++. Prints the names of the tiers.
 */
#include <cstdio>
#include <tiermesh/dsm.h>

int main()
{
    struct dsm_attributes attributes = {};

    attributes.kind = DSM_SHARED;
    for (int tier = 0; tier < DSM_TIERS; tier++)
        std::printf("%s\n", dsm_tier_name(static_cast<enum dsm_tier>(tier)));
    return dsm_node_id() < 0 && attributes.kind == DSM_SHARED ? 0 : 1;
}
