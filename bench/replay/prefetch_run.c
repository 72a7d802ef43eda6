/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch_run.c - predictors on a trace.
 */
#include "bench/replay/prefetch_run.h"
#include "base/error.h"

#include <errno.h>

int prefetch_run(const struct options *options)
{
    return error_set(-ESRCH, "there is no predictor %s; there is none yet", options->prefetch);
}
