/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.h - budgets that follow the machine: what the memory cgroup leaves, what pressure takes, what is asked for.
 *
 * Looks from time to time, decides by one pure function (limits_decide), and tells the pager's owner what changed.
 * Runs on the shard's thread, except limits_at_start().
 */
#ifndef TIERMESH_RUNTIME_LIMITS_H
#define TIERMESH_RUNTIME_LIMITS_H

#include "runtime/cgroup.h"
#include "runtime/pressure.h"
#include "tiers/tier.h"

#define LIMITS_MIN_BYTES ((uint64_t)2 << 20) /* no budget of DDR or zmem goes below it, whatever the limit */

/* ---- the decision, pure ---------------------------------------------------------------------------------------- */

/* By tier. A tier that is no memory of this machine (nvme; cxl that is a device) is left at 0 and never changed. */
struct limits_input {
    uint64_t now_ns;
    uint64_t wanted_bytes[TIERS]; /* what was asked for */
    uint64_t used_bytes[TIERS];   /* of which in memory now */
    struct cgroup_room room;
    bool is_pressed; /* somebody waited for memory since the last decision */
};

struct limits_state {
    uint64_t budget_bytes[TIERS];  /* the answer */
    uint64_t wanted_bytes[TIERS];  /* of the last decision */
    uint32_t share;                /* of what is wanted, that pressure leaves to DDR; in 1024ths; 0: not decided yet */
    uint64_t pressed_ns, grown_ns; /* last time of each; 0: never */
};

/*
 * Budgets go down at once: in proportion to what is wanted when all together does not fit, and DDR by an eighth every
 * second under pressure, to a quarter of what is wanted at the lowest. They go up in steps of a sixteenth a second,
 * after five quiet seconds; at once when more is wanted than before. Returns whether a budget changed.
 */
bool limits_decide(struct limits_state *state, const struct limits_input *input);

/* ---- the watch ------------------------------------------------------------------------------------------------- */

struct limits_user {
    void *context;
    void (*used)(void *context, uint64_t bytes[TIERS]);
    void (*changed)(void *context, enum tier_kind tier, uint64_t budget_bytes);
};

struct limits_config {
    const char *root; /* in front of every path: "", or a test's directory */
    struct loop *loop;
    uint64_t wanted_bytes[TIERS]; /* 0: no such tier, or it is no memory of this machine */
    struct limits_user user;
};

struct limits;

/* 0, -ENOMEM. Decides once before it returns, so that `changed` may be called inside. */
int limits_open(const struct limits_config *config, struct limits **ret_limits) MUST_USE;
void limits_close(struct limits *limits); /* NULL is allowed */
/* The child of a fork: closes the descriptor that it inherited and frees the memory; the loop is not touched. */
void limits_forget(struct limits *limits);

/* Something else is asked for now. Decides at once. */
void limits_want(struct limits *limits, enum tier_kind tier, uint64_t bytes);

uint64_t limits_deadline_ns(const struct limits *limits);
void limits_tick(struct limits *limits, uint64_t now_ns);

/* What limits_decide() would answer now, for a process that has no shard yet. Any thread; no allocation. */
void limits_at_start(const char *root, const uint64_t wanted_bytes[TIERS], uint64_t budget_bytes[TIERS]);

#endif
