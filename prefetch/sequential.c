/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sequential.c - streams of pages, forward and backward and with small strides, for each thread. PURE. Run by the
 * shard's thread.
 *
 * A fault beside the last one of the same thread makes a stream; a larger step makes one when it comes twice. A stream
 * wants `window` pages ahead and asks again when fewer than half are left; each time the window doubles. So the next
 * run is on its way while this one is used. Streams that are not confirmed yet cannot push out those that are, once
 * there are CANDIDATES_MAX of them: random faults beside a scan do not stop its read-ahead.
 */
#include "prefetch/predictor.h"

#define WINDOW_FIRST 4u
#define SKIP_MAX     3 /* steps that a stream may leave out */

void sequential_init(struct sequential *sequential)
{
    *sequential = (struct sequential){0};
}

static int64_t step_from(uint64_t from, uint64_t to)
{
    return (int64_t)(to - from);
}

/* ---- a confirmed stream --------------------------------------------------------------------------------------- */

/* Pages asked for and not touched yet, as steps of the stream; negative when the page lies beyond the frontier. */
static int64_t steps_left(const struct stream *stream)
{
    return step_from(stream->last, stream->frontier) / stream->stride - 1;
}

/* No division for the many streams that are elsewhere. */
static bool stream_expects(const struct stream *stream, const struct prefetch_event *event)
{
    int64_t step = step_from(stream->last, event->page.index);
    int64_t most = step_from(stream->last, stream->frontier) + (int64_t)SKIP_MAX * stream->stride;

    if (stream->stride > 0 ? step <= 0 || step > most : step >= 0 || step < most)
        return false;
    return step % stream->stride == 0;
}

/* Backward streams end at page 0, which they may not pass. */
static uint32_t steps_possible(const struct stream *stream, uint32_t wanted)
{
    uint64_t size = (uint64_t) - (int64_t)stream->stride;

    if (stream->stride > 0)
        return wanted;
    if (stream->frontier > stream->last) /* went below 0 the last time */
        return 0;
    return stream->frontier / size + 1 < wanted ? (uint32_t)(stream->frontier / size + 1) : wanted;
}

/* With so many pages left or fewer, the stream asks again. */
static int64_t half_of(uint32_t window)
{
    return window == 0 ? 0 : (int64_t)(window - 1) / 2;
}

static void stream_ask(struct stream *stream, uint32_t depth, struct prefetch_run *run)
{
    int64_t left = steps_left(stream);
    uint32_t count;

    if (left < 0) { /* nothing is on the way: go on from here */
        stream->frontier = stream->last + (uint64_t)(int64_t)stream->stride;
        left = 0;
    }
    if (left > half_of(stream->window))
        return;
    stream->window = stream->window == 0 ? WINDOW_FIRST : stream->window * 2;
    if (stream->window > depth)
        stream->window = depth;
    if (left >= (int64_t)stream->window)
        return;
    count = steps_possible(stream, stream->window - (uint32_t)left);
    if (count > PREFETCH_RUN_MAX)
        count = PREFETCH_RUN_MAX;
    if (count == 0)
        return;
    run->first = page_of(stream->frontier);
    run->count = count;
    run->stride = stream->stride;
    stream->frontier += (uint64_t)((int64_t)stream->stride * count);
    /* The page after which fewer than half the window are left, or the first of the run if that comes before it. */
    left = half_of(stream->window) + 1;
    if (left > (int64_t)count)
        left = (int64_t)count;
    run->trigger = page_of(stream->frontier - (uint64_t)((int64_t)stream->stride * left));
}

/* ---- candidates ----------------------------------------------------------------------------------------------- */

/* The event beside the block of a candidate, or its step again: the step of the stream, 0 for none. */
static int32_t candidate_stride(const struct stream *stream, const struct prefetch_event *event)
{
    int64_t step = step_from(stream->last, event->page.index);

    if (event->page.index == stream->high + 1)
        return 1;
    if (event->page.index + 1 == stream->low)
        return -1;
    return step != 0 && step == stream->stride ? stream->stride : 0;
}

static bool candidate_is_near(const struct stream *stream, const struct prefetch_event *event)
{
    int64_t step = step_from(stream->last, event->page.index);

    return step >= -STRIDE_MAX && step <= STRIDE_MAX;
}

static void candidate_set(struct stream *stream, const struct prefetch_event *event, int32_t stride)
{
    *stream = (struct stream){
        .last = event->page.index,
        .low = event->page.index,
        .high = event->page.index,
        .thread = event->thread,
        .stride = stride,
        .is_used = true,
    };
}

/* The place for a new candidate: a free one, the oldest candidate once there are enough, else the oldest stream. */
static struct stream *victim_find(struct sequential *sequential)
{
    uint32_t candidate = 0, candidate_age = 0, candidates = 0;
    uint32_t confirmed = 0, confirmed_age = 0;

    for (uint32_t i = 0; i < STREAMS_MAX; i++) {
        const struct stream *stream = &sequential->streams[i];
        uint32_t age = stream->is_used ? sequential->events - stream->used_at : UINT32_MAX;
        bool is_oldest = age >= (stream->is_confirmed ? confirmed_age : candidate_age);

        candidates += !stream->is_confirmed;
        candidate = is_oldest && !stream->is_confirmed ? i : candidate;
        candidate_age = is_oldest && !stream->is_confirmed ? age : candidate_age;
        confirmed = is_oldest && stream->is_confirmed ? i : confirmed;
        confirmed_age = is_oldest && stream->is_confirmed ? age : confirmed_age;
    }
    return &sequential->streams[candidates >= CANDIDATES_MAX || candidate_age == UINT32_MAX ? candidate : confirmed];
}

/* ---- events --------------------------------------------------------------------------------------------------- */

/* The stream of the event: one that expects it, else a candidate that it confirms, else one that is near. NULL: none.
 */
static struct stream *stream_find(struct sequential *sequential, const struct prefetch_event *event)
{
    struct stream *confirmed_now = NULL;
    struct stream *near = NULL;

    for (unsigned i = 0; i < STREAMS_MAX; i++) {
        struct stream *stream = &sequential->streams[i];

        if (!stream->is_used || stream->thread != event->thread)
            continue;
        if (stream->is_confirmed && stream_expects(stream, event))
            return stream;
        if (!stream->is_confirmed && candidate_stride(stream, event) != 0)
            confirmed_now = stream;
        else if (!stream->is_confirmed && candidate_is_near(stream, event))
            near = stream;
    }
    return confirmed_now != NULL ? confirmed_now : near;
}

static void stream_confirm(struct stream *stream, const struct prefetch_event *event, int32_t stride)
{
    stream->stride = stride;
    stream->is_confirmed = true;
    stream->last = event->page.index;
    stream->frontier = event->page.index + (uint64_t)(int64_t)stride;
}

static void candidate_advance(struct stream *stream, const struct prefetch_event *event)
{
    int32_t stride = candidate_stride(stream, event);

    if (page_is(event->page, page_of(stream->last))) /* the same page again, e.g. to write */
        return;
    if (stride == 0) {
        uint64_t low = stream->low;
        uint64_t high = stream->high;

        candidate_set(stream, event, (int32_t)step_from(stream->last, event->page.index));
        if (event->page.index >= low && event->page.index <= high) { /* inside the block: that stays around it */
            stream->low = low;
            stream->high = high;
        }
        return;
    }
    stream_confirm(stream, event, stride);
}

uint32_t sequential_fault(struct sequential *sequential, const struct prefetch_event *event, uint32_t depth,
                          bool is_told, struct prefetch_run *run)
{
    struct stream *stream = stream_find(sequential, event);

    sequential->events++;
    if (stream == NULL) {
        stream = victim_find(sequential);
        candidate_set(stream, event, 0);
    } else if (stream->is_confirmed) {
        stream->last = event->page.index;
    } else {
        candidate_advance(stream, event);
    }
    if (is_told && !stream->is_confirmed)
        stream_confirm(stream, event, 1);
    stream->used_at = sequential->events;
    if (!stream->is_confirmed)
        return 0;
    stream->steps++;
    if (is_told)
        stream->window = depth;
    if (depth > 0)
        stream_ask(stream, depth, run);
    return stream->steps;
}

void sequential_covered(struct sequential *sequential, const struct prefetch_event *event,
                        const struct prefetch_run *run)
{
    for (unsigned i = 0; i < STREAMS_MAX; i++) {
        struct stream *stream = &sequential->streams[i];

        if (!stream->is_used || stream->is_confirmed || stream->thread != event->thread ||
            stream->last != event->page.index)
            continue;
        stream->low = run->first.index;
        stream->high = run->first.index + run->count - 1;
    }
}

/* A stream is known by where its run ends: nothing was asked for beyond that yet. */
void sequential_cut(struct sequential *sequential, const struct prefetch_run *run, uint32_t count)
{
    uint64_t end = run->first.index + (uint64_t)((int64_t)run->stride * run->count);

    for (unsigned i = 0; i < STREAMS_MAX; i++) {
        struct stream *stream = &sequential->streams[i];

        if (stream->is_used && stream->is_confirmed && stream->stride == run->stride && stream->frontier == end)
            stream->frontier = run->first.index + (uint64_t)((int64_t)run->stride * count);
    }
}
