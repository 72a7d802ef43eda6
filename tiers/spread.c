/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spread.c - heats of pages, their histograms, and who should change places. PURE.
 *
 * Always holds: counts[part][heat] is the number of frames in that part with that heat; heat 0 is "not known".
 */
#include "tiers/spread.h"
#include "base/assert.h"

#include <string.h>

#define LOOKED_MAX   4096u /* frames that one call looks at */
#define TIME_UNIT_NS 1024u /* heat 1 */
#define WATCH_FACTOR 4u

struct place {
    uint8_t part, heat;
};

struct spread {
    uint32_t frames_table;
    uint32_t used; /* frames from here on never held a page */
    uint32_t next_near, next_far, cold_hand, hot_hand;
    uint32_t counts[SPREAD_FAR + 1][SPREAD_HEATS];
    uint32_t totals[SPREAD_FAR + 1];
    struct place places[];
};

/* ---- the scale ------------------------------------------------------------------------------------------------- */

/* Eight steps an octave, straight lines between powers of two. */
uint8_t spread_heat_of(uint64_t time_ns)
{
    uint64_t units = time_ns / TIME_UNIT_NS + 1;
    unsigned octave = 63u - (unsigned)__builtin_clzll(units);
    uint64_t part = octave >= 3 ? units >> (octave - 3) : units << (3 - octave);
    uint64_t heat = (uint64_t)octave * SPREAD_OCTAVE + (part & 7) + 1;

    return heat < SPREAD_HEATS ? (uint8_t)heat : SPREAD_HEATS - 1;
}

uint64_t spread_time_of(uint8_t heat)
{
    unsigned step = heat > 0 ? heat - 1u : 0;
    uint64_t part = 8 + step % SPREAD_OCTAVE;

    return (TIME_UNIT_NS * part << step / SPREAD_OCTAVE) / 8;
}

/* ---- what is known --------------------------------------------------------------------------------------------- */

size_t spread_bytes(uint32_t frames_table)
{
    return sizeof(struct spread) + (size_t)frames_table * sizeof(struct place);
}

void spread_init(struct spread *spread, uint32_t frames_table)
{
    spread->frames_table = frames_table;
}

static void place_set(struct spread *spread, uint32_t index, enum spread_part part, uint8_t heat)
{
    struct place *place = &spread->places[index];

    spread->counts[place->part][place->heat]--;
    spread->totals[place->part]--;
    *place = (struct place){(uint8_t)part, heat};
    spread->counts[part][heat]++;
    spread->totals[part]++;
}

void spread_inserted(struct spread *spread, struct frame_id frame, enum spread_part part)
{
    ASSERT(frame.index < spread->frames_table);
    if (frame.index >= spread->used)
        spread->used = frame.index + 1;
    place_set(spread, frame.index, part, 0);
}

void spread_forgotten(struct spread *spread, struct frame_id frame)
{
    if (spread->places[frame.index].part != SPREAD_NONE)
        place_set(spread, frame.index, SPREAD_NONE, 0);
}

void spread_found(struct spread *spread, struct frame_id frame, enum spread_part part)
{
    const struct place *place = &spread->places[frame.index];

    if (place->part != SPREAD_NONE && place->part != (uint8_t)part)
        place_set(spread, frame.index, part, place->heat);
}

/* The heat in the middle of all known ones; 0: none is known. */
static uint8_t middle(const struct spread *spread)
{
    uint32_t known = spread->totals[SPREAD_NEAR] - spread->counts[SPREAD_NEAR][0] + spread->totals[SPREAD_FAR] -
                     spread->counts[SPREAD_FAR][0];
    uint32_t below = 0;

    for (unsigned heat = 1; known > 0 && heat < SPREAD_HEATS; heat++) {
        below += spread->counts[SPREAD_NEAR][heat] + spread->counts[SPREAD_FAR][heat];
        if (below > known / 2)
            return (uint8_t)heat;
    }
    return 0;
}

/*
 * Times between touches vary much even of one page (if they come at random, one in eight is under an eighth of the
 * mean). So one sample counts a quarter, and what was known before the rest; a first one counts half, the middle of all
 * pages the other half.
 */
void spread_sampled(struct spread *spread, struct frame_id frame, uint64_t time_ns, bool is_touched)
{
    const struct place *place = &spread->places[frame.index];
    unsigned sample = is_touched ? spread_heat_of(time_ns) : SPREAD_COLD;
    unsigned before = place->heat;

    if (place->part == SPREAD_NONE)
        return;
    if (before == 0)
        before = middle(spread) != 0 ? (middle(spread) + sample) / 2 : sample;
    else /* rounded towards the sample */
        before = (3 * before + sample + (sample > before ? 3 : 0)) / 4;
    place_set(spread, frame.index, (enum spread_part)place->part, (uint8_t)before);
}

enum spread_part spread_part(const struct spread *spread, struct frame_id frame)
{
    return (enum spread_part)spread->places[frame.index].part;
}

uint8_t spread_heat(const struct spread *spread, struct frame_id frame)
{
    return spread->places[frame.index].heat;
}

uint32_t spread_count(const struct spread *spread, enum spread_part part)
{
    return spread->totals[part];
}

/* ---- hands ----------------------------------------------------------------------------------------------------- */

/* Frames in `part` with lowest <= heat <= highest. */
static unsigned gather(struct spread *spread, uint32_t *hand, enum spread_part part, unsigned lowest, unsigned highest,
                       struct frame_id *frames_out, unsigned wanted)
{
    uint32_t looked_max = spread->used < LOOKED_MAX ? spread->used : LOOKED_MAX;
    unsigned count = 0;

    for (uint32_t looked = 0; looked < looked_max && count < wanted; looked++) {
        const struct place *place;

        if (*hand >= spread->used)
            *hand = 0;
        place = &spread->places[*hand];
        if (place->part == (uint8_t)part && place->heat >= lowest && place->heat <= highest)
            frames_out[count++] = (struct frame_id){*hand};
        ++*hand;
    }
    return count;
}

/* Half from each part: near pages must be known before one of them can make room for a far one. */
unsigned spread_next(struct spread *spread, struct frame_id *frames_out, unsigned wanted)
{
    unsigned count = gather(spread, &spread->next_near, SPREAD_NEAR, 0, SPREAD_HEATS - 1, frames_out, wanted / 2);

    return count +
           gather(spread, &spread->next_far, SPREAD_FAR, 0, SPREAD_HEATS - 1, frames_out + count, wanted - count);
}

/* The largest heat so that `wanted` near frames have it or more; 1 when so many are not known. */
static unsigned coldest_from(const struct spread *spread, uint32_t wanted)
{
    uint32_t above = 0;

    for (unsigned heat = SPREAD_HEATS - 1; heat > 1; heat--) {
        above += spread->counts[SPREAD_NEAR][heat];
        if (above >= wanted)
            return heat;
    }
    return 1;
}

unsigned spread_coldest(struct spread *spread, struct frame_id *frames_out, unsigned wanted)
{
    unsigned heat = coldest_from(spread, wanted);
    unsigned count = 0;

    if (heat > 1 && heat >= middle(spread))
        count = gather(spread, &spread->cold_hand, SPREAD_NEAR, heat, SPREAD_HEATS - 1, frames_out, wanted);
    if (count == 0)
        count = gather(spread, &spread->cold_hand, SPREAD_NEAR, 0, 0, frames_out, wanted);
    if (count == 0) /* all are hot, or the first look did not reach the cold ones */
        count = gather(spread, &spread->cold_hand, SPREAD_NEAR, 0, SPREAD_HEATS - 1, frames_out, wanted);
    return count;
}

/*
 * How many far pages are worth it: the k hottest go in, as long as the k-th is hotter by the margin than the near page
 * whose place it takes. Returns the heat of the last of them; 0: none. Near pages of which nothing is known yet stay.
 */
static unsigned hottest_up_to(const struct spread *spread, uint32_t near_room)
{
    unsigned near_heat = SPREAD_HEATS - 1;
    uint32_t near_left = spread->counts[SPREAD_NEAR][near_heat];
    uint32_t room = near_room;
    unsigned result = 0;

    for (unsigned heat = 1; heat < SPREAD_HEATS; heat++) {
        uint32_t far_left = spread->counts[SPREAD_FAR][heat];

        while (far_left > 0) {
            uint32_t taken;

            while (room == 0 && near_left == 0 && near_heat > heat + SPREAD_MARGIN)
                near_left = spread->counts[SPREAD_NEAR][--near_heat];
            if (room == 0 && (near_left == 0 || near_heat < heat + SPREAD_MARGIN))
                return result;
            taken = room > 0 ? room : near_left;
            taken = taken < far_left ? taken : far_left;
            far_left -= taken;
            *(room > 0 ? &room : &near_left) -= taken;
            result = heat;
        }
    }
    return result;
}

unsigned spread_hottest(struct spread *spread, uint32_t near_room, struct frame_id *frames_out, unsigned wanted)
{
    unsigned highest = hottest_up_to(spread, near_room);

    return highest == 0 ? 0 : gather(spread, &spread->hot_hand, SPREAD_FAR, 1, highest, frames_out, wanted);
}

uint64_t spread_watch_ns(const struct spread *spread)
{
    const uint32_t *near = spread->counts[SPREAD_NEAR];
    const uint32_t *far = spread->counts[SPREAD_FAR];
    uint64_t all = (uint64_t)spread->totals[SPREAD_NEAR] + spread->totals[SPREAD_FAR];
    uint64_t known = all - near[0] - far[0];
    uint64_t touched = 0;
    uint64_t wanted;
    uint64_t sum = 0;

    for (unsigned heat = 1; heat + SPREAD_OCTAVE < SPREAD_COLD; heat++)
        touched += near[heat] + far[heat];
    if (touched == 0)
        return 0;
    wanted = known * spread->totals[SPREAD_NEAR] / all; /* so many of the known ones belong near */
    if (wanted > touched - touched / 8)
        wanted = touched - touched / 8;
    for (unsigned heat = 1; heat < SPREAD_COLD; heat++) {
        sum += near[heat] + far[heat];
        if (sum >= wanted && sum > 0)
            return WATCH_FACTOR * spread_time_of((uint8_t)heat);
    }
    return 0;
}
