/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spread.h - which pages in memory lie in the near part of it (DDR) and which in the far one (CXL memory as a NUMA
 * node), when all are mapped and used where they are. PURE.
 *
 * The pager samples pages: it unmaps one for a while and tells how long it took until it was touched. A page's heat is
 * a mean of the logarithms of these times; a smaller one is hotter. docs/CXL.md has the reasons. One shard's thread.
 */
#ifndef TIERMESH_TIERS_SPREAD_H
#define TIERMESH_TIERS_SPREAD_H

#include "tiers/frames.h"

#define SPREAD_HEATS  256
#define SPREAD_OCTAVE 8   /* heats between a time and its double */
#define SPREAD_COLD   184 /* not touched while it was watched; about eight seconds, and no watch takes so long */
#define SPREAD_MARGIN SPREAD_OCTAVE /* a far page is exchanged when it is touched twice as often */

enum spread_part {
    SPREAD_NONE = 0, /* the frame is free, or not known to lie anywhere */
    SPREAD_NEAR = 1,
    SPREAD_FAR = 2,
};

struct spread; /* spread_bytes() of zeroed caller memory, no pointer inside */

size_t spread_bytes(uint32_t frames_table);
void spread_init(struct spread *spread, uint32_t frames_table);

/* A frame has a page, which lies there. Its heat is not known yet. */
void spread_inserted(struct spread *spread, struct frame_id frame, enum spread_part part);
void spread_forgotten(struct spread *spread, struct frame_id frame); /* any frame; free ones are passed over */
/* The page lies there now, or was found there. Keeps its heat. */
void spread_found(struct spread *spread, struct frame_id frame, enum spread_part part);
/* The page was touched after that time; or was watched so long and was not, which makes it cold, however long it was.
 */
void spread_sampled(struct spread *spread, struct frame_id frame, uint64_t time_ns, bool is_touched);

enum spread_part spread_part(const struct spread *spread, struct frame_id frame);
uint8_t spread_heat(const struct spread *spread, struct frame_id frame); /* 0: not known */
uint32_t spread_count(const struct spread *spread, enum spread_part part);

/* Frames to sample next, half of them near: two hands go round over the table. Returns how many. */
unsigned spread_next(struct spread *spread, struct frame_id *frames_out, unsigned wanted);

/*
 * Near pages that should go far, to make room: the coldest known ones, unless those are hotter than most: then those of
 * which nothing is known. Returns how many; the hand goes on at the next call.
 */
unsigned spread_coldest(struct spread *spread, struct frame_id *frames_out, unsigned wanted);

/*
 * Far pages that should come near, hottest first as far as the hand sees. near_room: how many can without another
 * leaving; beyond that only those that are hotter than the coldest near pages by the margin, each for one of them.
 */
unsigned spread_hottest(struct spread *spread, uint32_t near_room, struct frame_id *frames_out, unsigned wanted);

/*
 * How long to watch: four times the time between touches at which near and far part, as far as pages are touched at
 * all; 0: nothing is known yet.
 */
uint64_t spread_watch_ns(const struct spread *spread);

/* The scale: heat of a time, at least 1; and back. */
uint8_t spread_heat_of(uint64_t time_ns);
uint64_t spread_time_of(uint8_t heat);

#endif
