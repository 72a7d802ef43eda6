/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.c - looks at the cgroup, the machine and the pressure, and hands the budgets on.
 *
 * Runs on the shard's thread: by a deadline, and when the kernel says that memory is short.
 */
#include "runtime/limits.h"
#include "base/log.h"
#include "base/os.h"

#include <string.h>
#include <sys/epoll.h>

#define LOOK_NS      UINT64_C(1000000000)
#define LOOK_NEAR_NS UINT64_C(100000000) /* while more than half of the margin is used up */
#define FIND_LOOKS   16                  /* this process may have been moved to another group */
/* Pressure of the whole machine counts when less than this part is available: else a stranger's limit is at work. */
#define SHORT_SHARE 8

struct limits {
    struct limits_config config;
    struct limits_state state;
    struct cgroup group;
    struct pressure pressure;
    struct loop_watch watch;
    bool is_watched, has_event;
    bool was_clamped; /* the sentence is said once */
    unsigned looks;
    uint64_t deadline_ns;
};

/* ---- looking --------------------------------------------------------------------------------------------------- */

static struct cgroup_room tighter(struct cgroup_room a, struct cgroup_room b)
{
    return a.room_bytes <= b.room_bytes ? a : b;
}

static bool pressure_counts(const struct limits *limits, struct cgroup_room machine)
{
    return limits->pressure.is_own || machine.room_bytes < (int64_t)(machine.limit_bytes / SHORT_SHARE);
}

static void look(struct limits *limits, struct limits_input *input)
{
    struct cgroup_room machine;
    struct cgroup_room group;
    bool is_pressed = limits->has_event;

    if (limits->looks++ % FIND_LOOKS == 0)
        cgroup_find_memory(limits->config.root, &limits->group);
    cgroup_room(&limits->group, &group);
    machine_room(limits->config.root, &machine);
    is_pressed |= pressure_look(&limits->pressure, input->now_ns);
    limits->has_event = false;
    input->is_pressed = is_pressed && pressure_counts(limits, machine);
    input->room = tighter(group, machine);
}

static void clamp_say(struct limits *limits, const struct limits_input *input)
{
    uint64_t budget_bytes = limits->state.budget_bytes[TIER_DDR];

    if (limits->was_clamped || input->is_pressed || budget_bytes + PAGE_BYTES > limits->config.wanted_bytes[TIER_DDR])
        return;
    limits->was_clamped = true;
    log_warn("DDR budget of %lu MiB does not fit beside the rest under the memory limit of %lu MiB; it is %lu MiB now",
             limits->config.wanted_bytes[TIER_DDR] >> 20, input->room.limit_bytes >> 20, budget_bytes >> 20);
}

static void decide(struct limits *limits, uint64_t now_ns)
{
    struct limits_input input = {.now_ns = now_ns};
    struct limits_state before = limits->state;
    bool is_near;

    memcpy(input.wanted_bytes, limits->config.wanted_bytes, sizeof(input.wanted_bytes));
    limits->config.user.used(limits->config.user.context, input.used_bytes);
    look(limits, &input);
    if (limits_decide(&limits->state, &input)) {
        clamp_say(limits, &input);
        for (enum tier_kind i = TIER_DDR; i < TIERS; i++) {
            uint64_t budget_bytes = limits->state.budget_bytes[i];

            if (budget_bytes == before.budget_bytes[i])
                continue;
            log_debug("budget of tier %d is %lu KiB now, was %lu", (int)i, budget_bytes >> 10,
                      before.budget_bytes[i] >> 10);
            limits->config.user.changed(limits->config.user.context, i, budget_bytes);
        }
    }
    is_near = input.room.room_bytes < -(int64_t)(cgroup_margin_bytes(input.room.limit_bytes) / 2);
    limits->deadline_ns = now_ns + (is_near ? LOOK_NEAR_NS : LOOK_NS);
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

static void pressure_ready(struct loop_watch *watch, uint32_t events)
{
    struct limits *limits = watch->context;

    if ((events & EPOLLERR) != 0) { /* the group is gone: from now on by looking */
        loop_unwatch(limits->config.loop, watch);
        limits->is_watched = false;
        return;
    }
    limits->has_event = true;
    limits->deadline_ns = 0;
}

int limits_open(const struct limits_config *config, struct limits **ret_limits)
{
    struct limits *limits;
    void *memory;
    int error = os_pages_map(sizeof(*limits), &memory);

    if (error != 0)
        return error;
    limits = memory;
    limits->config = *config;
    pressure_open(config->root, &limits->pressure);
    limits->watch = (struct loop_watch){.fd = limits->pressure.fd, .ready = pressure_ready, .context = limits};
    if (limits->pressure.fd >= 0)
        limits->is_watched = loop_watch(config->loop, &limits->watch, EPOLLPRI | EPOLLET) == 0;
    decide(limits, os_now_ns());
    *ret_limits = limits;
    return 0;
}

void limits_forget(struct limits *limits)
{
    pressure_close(&limits->pressure);
    os_pages_unmap(limits, sizeof(*limits));
}

void limits_close(struct limits *limits)
{
    if (limits == NULL)
        return;
    if (limits->is_watched)
        loop_unwatch(limits->config.loop, &limits->watch);
    limits_forget(limits);
}

void limits_want(struct limits *limits, enum tier_kind tier, uint64_t bytes)
{
    limits->config.wanted_bytes[tier] = bytes;
    limits->was_clamped = false;
    decide(limits, os_now_ns());
}

uint64_t limits_deadline_ns(const struct limits *limits)
{
    return limits->deadline_ns;
}

void limits_tick(struct limits *limits, uint64_t now_ns)
{
    if (now_ns >= limits->deadline_ns)
        decide(limits, now_ns);
}

void limits_at_start(const char *root, const uint64_t wanted_bytes[TIERS], uint64_t budget_bytes[TIERS])
{
    struct limits_input input = {.now_ns = 1};
    struct limits_state state = {.share = 0};
    struct cgroup_room machine;
    struct cgroup group;

    memcpy(input.wanted_bytes, wanted_bytes, sizeof(input.wanted_bytes));
    cgroup_find_memory(root, &group);
    cgroup_room(&group, &input.room);
    machine_room(root, &machine);
    input.room = tighter(input.room, machine);
    limits_decide(&state, &input);
    memcpy(budget_bytes, state.budget_bytes, sizeof(state.budget_bytes));
}
