/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.c - the next step between DDR and zmem.
 */
#include "tiers/share.h"

#define CLEARLY 1.25
#define DOUBLE  2.0
#define UNKNOWN 2.0 /* pages in a frame of zmem before there were any */

static double per(uint64_t what, uint64_t of)
{
    return of > 0 ? (double)what / (double)of : 0;
}

/* ns that one more frame of zmem would have saved. */
static double zmem_worth(const struct share_view *view)
{
    uint64_t saved_ns = view->far_ns > view->near_ns ? view->far_ns - view->near_ns : 0;
    double pages_per_frame = view->stored_frames > 0 ? per(view->stored_pages, view->stored_frames) : UNKNOWN;

    return per(view->late_hits, view->late_pages) * (double)saved_ns * pages_per_frame;
}

/* ns that one frame less of DDR would have cost. */
static double ddr_worth(const struct share_view *view)
{
    return per(view->cold_hits, view->cold_pages) * (double)view->near_ns;
}

int share_steps(const struct share_view *view)
{
    double zmem = zmem_worth(view);
    double ddr = ddr_worth(view);

    if (zmem > ddr * CLEARLY)
        return zmem > ddr * DOUBLE ? 2 : 1;
    if (ddr > zmem * CLEARLY)
        return ddr > zmem * DOUBLE ? -2 : -1;
    return 0;
}
