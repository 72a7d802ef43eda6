/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_none.c - in place of verbs.c in a build without rdma-core.
 */
#include "base/error.h"
#include "fabric/fabric.h"

#include <errno.h>

int fabric_verbs_open(const struct fabric_config *config, struct fabric **ret_fabric)
{
    (void)config;
    (void)ret_fabric;
    return error_set(-ENODEV, "RDMA: this build is without rdma-core; install libibverbs-dev and librdmacm-dev and "
                              "build again");
}
