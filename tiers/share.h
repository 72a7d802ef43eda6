/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h - how one memory budget is divided between pages as they are (DDR) and compressed ones (zmem). PURE.
 *
 * Both parts give up their coldest pages; what these would still have been good for tells what one more frame is worth
 * on either side (marginal utility, as Mattson's stacks have it: Mattson, Gecsei, Slutz, Traiger: Evaluation techniques
 * for storage hierarchies, IBM Systems Journal 9(2), 1970). docs/TIERS.md has the reasons.
 */
#ifndef TIERMESH_TIERS_SHARE_H
#define TIERMESH_TIERS_SHARE_H

#include <stdint.h>

/* What was seen since the last decision. */
struct share_view {
    uint64_t late_pages; /* pages that zmem had no room for any more, the latest ones, */
    uint64_t late_hits;  /* and reads of such pages from below: a larger zmem would have had them */
    uint64_t cold_pages; /* pages in DDR that will leave next, */
    uint64_t cold_hits;  /* and touches of them: a smaller DDR would not have had them */
    uint64_t stored_pages, stored_frames; /* zmem's pages, and the frames that they take */
    uint64_t near_ns, far_ns; /* what a touch of a page costs in zmem, and below it */
};

/*
 * By how many steps zmem should grow: -2 to 2. Not before the parts are worth clearly different amounts, and by two
 * steps where one is worth twice the other.
 */
int share_steps(const struct share_view *view);

#endif
