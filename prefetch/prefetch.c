/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch.c - asks the predictors, lets the filter judge, and remembers what was proposed. PURE. Run by the shard's
 * thread.
 *
 * A proposal below the bar is not brought but remembered all the same: whether its page would have been used teaches
 * the filter too, so a predictor that became good again is seen without a single wasted fetch.
 */
#include "prefetch/prefetch.h"
#include "base/assert.h"
#include "prefetch/predictor.h"

#define STEPS_MAX      24u /* along a replay, at one event */
#define HISTORY_MIN    4096u
#define NEAR_LEAST     (LIKELY_ONE / 3)
#define NEAR_SHIFT     4
#define NEAR_WASTED    5u
#define NEAR_USED      4u
#define NEAR_FIRST     (LIKELY_ONE / 2)
#define NEAR_MOST      (LIKELY_ONE * 9 / 10)
#define FAR_LIKELY     (LIKELY_ONE * 19 / 20)
#define AHEAD_MIN      8u
#define LEAD_STEP      2u
#define LEAD_SLOWER    32u /* pages used that were not late */
#define QUEUE_MAX      128u
#define THOUGHT_AGE    1024u /* events after which a page that was only thought of counts as not used */
#define PATH_MAX_STEPS 16u   /* along a signature's path */
#define REPLAY_DEPTH   64u

struct prefetch {
    struct prefetch_config config;
    struct prefetch_counters counters;
    uint32_t events;
    uint32_t lead;  /* events that a fetch takes, about */
    uint32_t queue; /* at the last event */
    uint32_t near;  /* how likely a page must be that is wanted within `lead`, << NEAR_SHIFT */
    struct throttle around;
    struct hints hints;
    struct sequential sequential;
    struct signature signature;
    struct shadow shadow;
    struct tags tags;
    struct filter filter;
    struct temporal temporal; /* last: its tables follow */
};

/* One event on its way through the predictors. */
struct asking {
    struct prefetch *prefetch;
    const struct prefetch_event *event;
    const struct prefetch_view *view;
    struct prefetch_plan *plan;
    uint32_t queue; /* pages waiting, those of this plan included */
    bool is_off;    /* learn only */
};

static uint32_t entries_of(const struct prefetch_config *config)
{
    return config->history_entries == 0 ? HISTORY_MIN : config->history_entries;
}

size_t prefetch_bytes(const struct prefetch_config *config)
{
    return offsetof(struct prefetch, temporal) + temporal_bytes(entries_of(config));
}

void prefetch_init(struct prefetch *prefetch, const struct prefetch_config *config)
{
    uint32_t entries = entries_of(config);

    ASSERT((entries & (entries - 1)) == 0);
    prefetch->config = *config;
    prefetch->counters = (struct prefetch_counters){0};
    prefetch->events = 0;
    prefetch->queue = 0;
    prefetch->near = NEAR_FIRST << NEAR_SHIFT;
    if (prefetch->config.fault_around > PREFETCH_RUN_MAX)
        prefetch->config.fault_around = PREFETCH_RUN_MAX;
    if (prefetch->config.predictors == 0)
        prefetch->config.predictors = PREFETCH_ALL;
    if (prefetch->config.queue_max == 0)
        prefetch->config.queue_max = QUEUE_MAX;
    if (prefetch->config.ahead_min == 0)
        prefetch->config.ahead_min = AHEAD_MIN;
    prefetch->lead = prefetch->config.ahead_min;
    throttle_init(&prefetch->around);
    hints_init(&prefetch->hints);
    sequential_init(&prefetch->sequential);
    signature_init(&prefetch->signature);
    shadow_init(&prefetch->shadow);
    tags_init(&prefetch->tags);
    filter_init(&prefetch->filter);
    temporal_init(&prefetch->temporal, entries);
}

/* ---- proposals ------------------------------------------------------------------------------------------------- */

static bool has(const struct prefetch *prefetch, enum prefetch_predictor predictor)
{
    return (prefetch->config.predictors >> predictor & 1) != 0;
}

static bool is_absent(const struct asking *asking, struct page_id page)
{
    const struct prefetch_view *view = asking->view;

    return view == NULL || view->is_absent == NULL || view->is_absent(view->context, page);
}

/*
 * A page that would come too late if it were asked for at the next event is worth its fetch at one chance in NEAR; one
 * that can still be asked for later must be all but sure. The longer the queue, the surer all must be.
 */
static uint32_t likely_enough(const struct asking *asking, uint32_t distance)
{
    uint32_t queue_max = asking->prefetch->config.queue_max;
    uint32_t least = distance <= asking->prefetch->lead ? asking->prefetch->near >> NEAR_SHIFT : FAR_LIKELY;

    if (asking->queue >= queue_max || asking->is_off)
        return LIKELY_ONE + 1;
    return least + (LIKELY_ONE - least) * asking->queue / queue_max;
}

/* The bar for what is wanted soon rises with each page wasted, so that about five in nine are used at least. */
static void near_adapt(struct prefetch *prefetch, bool was_used)
{
    if (!was_used && prefetch->near < NEAR_MOST << NEAR_SHIFT)
        prefetch->near += NEAR_WASTED;
    else if (was_used && prefetch->near >= (NEAR_LEAST << NEAR_SHIFT) + NEAR_USED)
        prefetch->near -= NEAR_USED;
}

/*
 * How far ahead to ask, so that few pages come too late. What is late because the link is busy would not come earlier
 * if it were asked for earlier.
 */
static void lead_adapt(struct prefetch *prefetch, bool is_late)
{
    if (is_late && prefetch->queue < prefetch->lead) {
        prefetch->lead += LEAD_STEP;
        if (prefetch->lead > prefetch->config.depth_max)
            prefetch->lead = prefetch->config.depth_max;
    } else if (!is_late && prefetch->counters.used % LEAD_SLOWER == 0 && prefetch->lead > prefetch->config.ahead_min) {
        prefetch->lead--;
    }
}

static void tag_end(struct prefetch *prefetch, const struct tag *tag, bool was_used)
{
    filter_learn(&prefetch->filter, &tag->features, was_used);
}

/* Remembers it, and says whether the page is to be brought. */
static bool propose(struct asking *asking, const struct proposal *proposal, uint32_t position, uint8_t stream)
{
    struct prefetch *prefetch = asking->prefetch;
    struct features features = features_of(proposal);
    bool is_issued = filter_likely(&prefetch->filter, &features) >= likely_enough(asking, proposal->distance);
    struct tag out, *tag;

    if (!is_issued && tags_find(&prefetch->tags, proposal->page) != NULL) /* the first thought counts */
        return false;
    tag = tags_add(&prefetch->tags, proposal->page, &out);
    if (out.is_used && !out.is_issued && !page_is(out.page, proposal->page))
        tag_end(prefetch, &out, false);
    tag->position = position;
    tag->made_at = prefetch->events;
    tag->features = features;
    tag->predictor = (uint8_t)proposal->predictor;
    tag->stream = stream;
    tag->is_issued = is_issued;
    if (is_issued) {
        asking->queue++;
        prefetch->counters.issued++;
        prefetch->counters.issued_by[proposal->predictor]++;
    }
    return is_issued;
}

/* A single page, joined to the run before it where it goes on with that. */
static bool plan_page(struct prefetch_plan *plan, struct page_id page)
{
    struct prefetch_run *last = plan->runs_count > 0 ? &plan->runs[plan->runs_count - 1] : NULL;

    if (last != NULL && last->is_watched && last->count < PREFETCH_RUN_MAX && last->stride == 1 &&
        page.index == last->first.index + last->count) {
        last->count++;
        return true;
    }
    if (plan->runs_count == PREFETCH_RUNS_MAX)
        return false;
    plan->runs[plan->runs_count++] =
        (struct prefetch_run){.first = page, .trigger = PAGE_NONE, .count = 1, .stride = 1, .is_watched = true};
    return true;
}

/* The trigger speaks for a run that the application asked for. */
static void tags_told(struct asking *asking, const struct prefetch_run *run)
{
    struct prefetch *prefetch = asking->prefetch;
    struct tag out;
    struct tag *tag;

    prefetch->counters.issued += run->count;
    prefetch->counters.issued_by[PREFETCH_HINTS] += run->count;
    if (run->count == 0)
        return;
    tag = tags_add(&prefetch->tags, run->trigger, &out);
    tag->made_at = prefetch->events;
    tag->features = features_of(&(struct proposal){.page = run->trigger, .predictor = PREFETCH_HINTS});
    tag->predictor = PREFETCH_HINTS;
    tag->is_issued = true;
}

/* ---- the predictors in turn ------------------------------------------------------------------------------------ */

static void ask_temporal(struct asking *asking, const struct tag *tag)
{
    struct prefetch *prefetch = asking->prefetch;
    struct temporal *temporal = &prefetch->temporal;
    struct replay *replay = temporal_event(temporal, asking->event, tag);
    struct proposal proposal = {.trigger = asking->event->page, .predictor = PREFETCH_TEMPORAL};
    uint32_t depth_max = prefetch->config.depth_max;

    if (replay == NULL)
        return;
    if (depth_max > REPLAY_DEPTH)
        depth_max = REPLAY_DEPTH;
    if (replay->length > replay->depth)
        temporal_deepen(replay, depth_max);
    for (unsigned i = 0; i < STEPS_MAX && asking->plan->runs_count < PREFETCH_RUNS_MAX; i++) {
        uint32_t position = replay->frontier;

        if (!temporal_next(temporal, replay, &proposal))
            return;
        if (!is_absent(asking, proposal.page))
            continue;
        if (propose(asking, &proposal, position, (uint8_t)(replay - temporal->replays))) {
            plan_page(asking->plan, proposal.page);
        } else if (proposal.distance >= 2) { /* again when it is nearer */
            replay->frontier = position;
            return;
        }
    }
}

/* The pages of the stream's run, up to the first that is not likely enough. */
static bool ask_streams(struct asking *asking, bool is_told)
{
    struct prefetch *prefetch = asking->prefetch;
    struct prefetch_run run = {.first = asking->event->page, .trigger = PAGE_NONE, .stride = 1};
    struct proposal proposal = {.trigger = asking->event->page, .predictor = PREFETCH_STREAMS};
    uint32_t count = 0;

    proposal.length = sequential_fault(&prefetch->sequential, asking->event, prefetch->config.depth_max, is_told, &run);
    for (; count < run.count; count++) {
        proposal.page = page_of(run.first.index + (uint64_t)((int64_t)count * run.stride));
        proposal.distance = (uint32_t)(((int64_t)(proposal.page.index - proposal.trigger.index)) / run.stride);
        if (is_absent(asking, proposal.page) && !propose(asking, &proposal, 0, 0) && !is_told)
            break;
    }
    if (count < run.count) {
        sequential_cut(&prefetch->sequential, &run, count);
        run.trigger = run.first;
        run.count = count;
    }
    if (run.count > 0 && asking->plan->runs_count < PREFETCH_RUNS_MAX)
        asking->plan->runs[asking->plan->runs_count++] = run;
    return proposal.length > 0;
}

static void ask_signature(struct asking *asking, bool is_explained)
{
    struct prefetch *prefetch = asking->prefetch;
    struct proposal proposal = {.trigger = asking->event->page, .predictor = PREFETCH_SIGNATURE};
    struct signature_walk walk;

    if (!signature_event(&prefetch->signature, asking->event, &walk) || is_explained)
        return;
    for (unsigned i = 0; i < PATH_MAX_STEPS && signature_next(&prefetch->signature, &walk, &proposal); i++) {
        if (!is_absent(asking, proposal.page))
            continue;
        if (!propose(asking, &proposal, 0, 0) || !plan_page(asking->plan, proposal.page))
            return;
    }
}

/* What is said is taken to be so; only pages that are here or on their way are left out at the front. */
static bool ask_hints(struct asking *asking)
{
    struct prefetch *prefetch = asking->prefetch;
    struct prefetch_plan *plan = asking->plan;
    uint32_t depth = prefetch->config.depth_max < PREFETCH_RUN_MAX ? prefetch->config.depth_max : PREFETCH_RUN_MAX;

    if (!hints_walk(&prefetch->hints, asking->event->page, depth, plan))
        return false;
    for (uint32_t i = 0; i < plan->runs_count; i++) {
        struct prefetch_run *run = &plan->runs[i];

        while (run->count > 0 && !is_absent(asking, run->first)) {
            run->first.index += (uint64_t)(int64_t)run->stride;
            run->count--;
        }
        tags_told(asking, run);
    }
    return true;
}

static void ask_around(struct asking *asking)
{
    struct prefetch *prefetch = asking->prefetch;
    uint32_t wanted = prefetch->config.fault_around;
    uint32_t depth = asking->is_off ? 0 : throttle_depth(&prefetch->around, wanted);
    struct prefetch_run run = {.trigger = PAGE_NONE, .count = depth, .stride = 1};

    if (asking->event->was_prefetched || wanted <= 1)
        return;
    prefetch->counters.throttled += depth < wanted;
    throttle_issued(&prefetch->around, depth > 1 ? depth : 0);
    if (depth <= 1)
        return;
    run.first = page_of(asking->event->page.index - asking->event->page.index % depth);
    prefetch->counters.issued += depth;
    prefetch->counters.issued_by[PREFETCH_AROUND] += depth;
    asking->plan->runs[asking->plan->runs_count++] = run;
    sequential_covered(&prefetch->sequential, asking->event, &run);
}

static void ask_all(struct asking *asking, const struct tag *tag)
{
    struct prefetch *prefetch = asking->prefetch;
    enum prefetch_advice advice = hints_advice(&prefetch->hints, asking->event->page);
    bool is_explained = false;

    if (advice == PREFETCH_RANDOM)
        return;
    if (has(prefetch, PREFETCH_HINTS) && ask_hints(asking))
        return;
    if (has(prefetch, PREFETCH_STREAMS))
        is_explained = ask_streams(asking, advice == PREFETCH_SEQUENTIAL);
    if (has(prefetch, PREFETCH_TEMPORAL))
        ask_temporal(asking, tag);
    if (has(prefetch, PREFETCH_SIGNATURE))
        ask_signature(asking, is_explained);
    if (has(prefetch, PREFETCH_AROUND) && !is_explained && asking->plan->runs_count == 0)
        ask_around(asking);
}

/* What was proposed for this page is known now. Returns whether there was anything. */
static bool tag_take(struct prefetch *prefetch, const struct prefetch_event *event, struct tag *ret_tag)
{
    struct tag *tag = tags_find(&prefetch->tags, event->page);
    struct tag expired;

    if (tags_expire(&prefetch->tags, prefetch->events, THOUGHT_AGE, &expired))
        tag_end(prefetch, &expired, false);
    if (tag == NULL)
        return false;
    *ret_tag = *tag;
    tag->is_used = false;
    if (!tag->is_issued)
        tag_end(prefetch, ret_tag, true);
    return true;
}

void prefetch_fault(struct prefetch *prefetch, struct page_id page, uint32_t thread, bool was_prefetched,
                    const struct prefetch_view *view, struct prefetch_plan *ret_plan)
{
    const struct prefetch_event event = {page, thread, was_prefetched};
    struct asking asking = {.prefetch = prefetch, .event = &event, .view = view, .plan = ret_plan};
    struct tag tag;
    bool has_tag;

    ret_plan->runs_count = 0;
    if (prefetch->config.depth_max == 0)
        return;
    prefetch->events++;
    temporal_touch(&prefetch->temporal, page);
    tags_touch(&prefetch->tags, page);
    prefetch->counters.polluted += shadow_event(&prefetch->shadow, &event);
    asking.is_off = shadow_is_off(&prefetch->shadow);
    asking.queue = prefetch->queue = view != NULL ? view->queue : 0;
    prefetch->counters.off += asking.is_off;
    has_tag = tag_take(prefetch, &event, &tag);
    temporal_touch_event(&prefetch->temporal, page);
    ask_all(&asking, has_tag ? &tag : NULL);
}

/* ---- the fate of pages ----------------------------------------------------------------------------------------- */

void prefetch_cut(struct prefetch *prefetch, const struct prefetch_run *run, uint32_t count)
{
    ASSERT(count <= run->count);
    if (count == run->count)
        return;
    for (uint32_t i = count; i < run->count; i++) {
        struct page_id page = page_of(run->first.index + (uint64_t)((int64_t)i * run->stride));
        struct tag *tag = tags_find(&prefetch->tags, page);

        if (tag == NULL || !tag->is_issued)
            continue;
        if (tag->predictor == PREFETCH_TEMPORAL)
            temporal_cut(&prefetch->temporal, tag);
        tag->is_used = false;
    }
    if (!run->is_watched)
        sequential_cut(&prefetch->sequential, run, count);
}

void prefetch_used(struct prefetch *prefetch, struct page_id page, bool is_late)
{
    struct tag *tag = tags_find(&prefetch->tags, page);

    prefetch->counters.used++;
    prefetch->counters.late += is_late;
    lead_adapt(prefetch, is_late);
    near_adapt(prefetch, true);
    if (tag == NULL || !tag->is_issued) {
        throttle_judge(&prefetch->around, true);
        return;
    }
    prefetch->counters.used_by[tag->predictor]++;
    tag_end(prefetch, tag, true);
    if (tag->predictor == PREFETCH_TEMPORAL && is_late)
        temporal_deepen(&prefetch->temporal.replays[tag->stream], REPLAY_DEPTH);
}

void prefetch_wasted(struct prefetch *prefetch, struct page_id page)
{
    struct tag *tag = tags_find(&prefetch->tags, page);

    prefetch->counters.wasted++;
    near_adapt(prefetch, false);
    if (tag == NULL || !tag->is_issued) {
        throttle_judge(&prefetch->around, false);
        return;
    }
    prefetch->counters.wasted_by[tag->predictor]++;
    tag_end(prefetch, tag, false);
    tag->is_used = false;
}

void prefetch_evicted(struct prefetch *prefetch, struct page_id page, uint32_t unused)
{
    shadow_evicted(&prefetch->shadow, page, unused);
}

int prefetch_advise(struct prefetch *prefetch, struct page_id first, uint64_t pages_count, enum prefetch_advice advice)
{
    return hints_advise(&prefetch->hints, first, pages_count, advice);
}

int prefetch_order(struct prefetch *prefetch, struct page_id first, uint64_t pages_count, int32_t stride)
{
    ASSERT(stride != 0 && pages_count > 0);
    return hints_order(&prefetch->hints, first, pages_count, stride);
}

void prefetch_forget(struct prefetch *prefetch, struct page_id first, uint64_t pages_count)
{
    hints_forget(&prefetch->hints, first, pages_count);
}

void prefetch_counters_get(const struct prefetch *prefetch, struct prefetch_counters *ret_counters)
{
    *ret_counters = prefetch->counters;
}
