/* SPDX-License-Identifier: Apache-2.0 */
/*
 * classify.c - the rules of docs/CXL.md, first match wins. PURE: no file, no clock, no printing.
 */
#include "tiers/classify.h"

#include <string.h>

/* Hundredths of the DDR's. */
#define SLOWER_PERCENT 130
#define WIDER_PERCENT  150
#define ALIKE_PERCENT  110

/* ---- sentences ------------------------------------------------------------------------------------------------- */

static void say(char text[TOPOLOGY_REASON_MAX], const char *words)
{
    size_t used = strnlen(text, TOPOLOGY_REASON_MAX);
    size_t length = strlen(words);

    if (length > TOPOLOGY_REASON_MAX - 1 - used)
        length = TOPOLOGY_REASON_MAX - 1 - used;
    memcpy(text + used, words, length);
    text[used + length] = '\0';
}

static void say_number(char text[TOPOLOGY_REASON_MAX], uint64_t number)
{
    char digits[24];
    char *at = digits + sizeof(digits) - 1;

    *at = '\0';
    do
        *--at = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    say(text, at);
}

static void decide(struct topology_node *node, enum memory_kind kind, const char *words)
{
    node->kind = kind;
    node->reason[0] = '\0';
    say(node->reason, words);
}

/* ---- speeds ---------------------------------------------------------------------------------------------------- */

/* What the DDR next to processors has: the best of its nodes. */
struct yardstick {
    struct memory_speed firmware, measured;
    int kernel_tier;
};

static void speed_best(struct memory_speed *best, struct memory_speed speed)
{
    if (speed.latency_ns != 0 && (best->latency_ns == 0 || speed.latency_ns < best->latency_ns))
        best->latency_ns = speed.latency_ns;
    if (speed.bandwidth_mbs > best->bandwidth_mbs)
        best->bandwidth_mbs = speed.bandwidth_mbs;
}

static struct yardstick yardstick_of(const struct topology *topology)
{
    struct yardstick near = {.kernel_tier = TOPOLOGY_TIER_UNKNOWN};

    for (unsigned i = 0; i < topology->nodes_count; i++) {
        const struct topology_node *node = &topology->nodes[i];

        if (!node->has_processors || node->memory_bytes == 0)
            continue;
        speed_best(&near.firmware, node->firmware);
        speed_best(&near.measured, node->measured);
        if (near.kernel_tier == TOPOLOGY_TIER_UNKNOWN ||
            (node->kernel_tier != TOPOLOGY_TIER_UNKNOWN && node->kernel_tier < near.kernel_tier))
            near.kernel_tier = node->kernel_tier;
    }
    return near;
}

static bool is_over(uint64_t value, uint64_t base, uint64_t percent)
{
    return value != 0 && base != 0 && (unsigned __int128)value * 100 > (unsigned __int128)base * percent;
}

/* MEMORY_DDR: these figures do not tell it from DDR. */
static enum memory_kind kind_by_speed(struct memory_speed speed, struct memory_speed near)
{
    if (is_over(speed.latency_ns, near.latency_ns, SLOWER_PERCENT))
        return MEMORY_CXL;
    if (is_over(speed.bandwidth_mbs, near.bandwidth_mbs, WIDER_PERCENT))
        return MEMORY_HBM;
    /* No latency known on one side: a narrow node is slower memory all the same. */
    if ((speed.latency_ns == 0 || near.latency_ns == 0) &&
        is_over(near.bandwidth_mbs, speed.bandwidth_mbs, WIDER_PERCENT))
        return MEMORY_CXL;
    return MEMORY_DDR;
}

static void reason_by_speed(struct topology_node *node, const char *who, struct memory_speed speed,
                            struct memory_speed near)
{
    bool is_latency = is_over(speed.latency_ns, near.latency_ns, SLOWER_PERCENT);

    say(node->reason, who);
    say(node->reason, is_latency ? ": latency " : ": bandwidth ");
    say_number(node->reason, is_latency ? speed.latency_ns : speed.bandwidth_mbs);
    say(node->reason, is_latency ? " ns, DDR has " : " MB/s, DDR has ");
    say_number(node->reason, is_latency ? near.latency_ns : near.bandwidth_mbs);
    say(node->reason, is_latency ? " ns" : " MB/s");
}

/* ---- the rules ------------------------------------------------------------------------------------------------- */

static bool by_wish(struct topology_node *node, const struct classify_wish *wish)
{
    for (unsigned i = 0; i < wish->count; i++) {
        if (wish->overrides[i].number != node->number)
            continue;
        decide(node, wish->overrides[i].kind, "option nodes says so");
        return true;
    }
    return false;
}

static void offline(const struct topology *topology, struct topology_node *node)
{
    decide(node, MEMORY_OFFLINE, "no memory of it is online");
    if (node->dax < 0)
        return;
    say(node->reason, "; ");
    say(node->reason, topology->dax[node->dax].name);
    say(node->reason, " would bring it: daxctl online-memory ");
    say(node->reason, topology->dax[node->dax].name);
    if (strcmp(topology->auto_online, "offline") == 0)
        say(node->reason, " (auto_online_blocks is offline)");
}

static bool by_origin(const struct topology *topology, struct topology_node *node)
{
    enum dax_origin origin = node->dax >= 0 ? topology->dax[node->dax].origin : DAX_UNKNOWN;

    if (origin != DAX_CXL && origin != DAX_PMEM)
        return false;
    decide(node, origin == DAX_CXL ? MEMORY_CXL : MEMORY_PMEM, "its memory comes from ");
    say(node->reason, topology->dax[node->dax].name);
    say(node->reason, origin == DAX_CXL ? ", which is a CXL device's" : ", which is persistent memory");
    return true;
}

static bool by_speed(struct topology_node *node, const char *who, struct memory_speed speed, struct memory_speed near)
{
    enum memory_kind kind = kind_by_speed(speed, near);

    if (kind == MEMORY_DDR)
        return false;
    decide(node, kind, "");
    reason_by_speed(node, who, speed, near);
    return true;
}

static bool by_kernel_tier(struct topology_node *node, int near_tier)
{
    if (node->kernel_tier == TOPOLOGY_TIER_UNKNOWN || near_tier == TOPOLOGY_TIER_UNKNOWN ||
        node->kernel_tier == near_tier)
        return false;
    decide(node, node->kernel_tier > near_tier ? MEMORY_CXL : MEMORY_HBM, "the kernel has it in memory tier ");
    say_number(node->reason, (uint64_t)node->kernel_tier);
    say(node->reason, ", DDR in ");
    say_number(node->reason, (uint64_t)near_tier);
    return true;
}

static void node_classify(const struct topology *topology, struct topology_node *node, const struct yardstick *near,
                          const struct classify_wish *wish)
{
    if (by_wish(node, wish))
        return;
    if (node->memory_bytes == 0) {
        offline(topology, node);
        return;
    }
    if (node->has_processors) {
        decide(node, MEMORY_DDR, "it has processors");
        return;
    }
    if (by_origin(topology, node) || by_speed(node, "firmware", node->firmware, near->firmware) ||
        by_kernel_tier(node, near->kernel_tier) || by_speed(node, "measured", node->measured, near->measured))
        return;
    decide(node, MEMORY_DDR,
           node->measured.latency_ns != 0 ? "nothing tells it from DDR, nor does measuring"
                                          : "nothing tells it from DDR; it was not measured");
}

/* The name stays; who looks at it should know. */
static void doubt(struct topology_node *node, const struct yardstick *near)
{
    bool is_slower = node->kind == MEMORY_CXL || node->kind == MEMORY_PMEM;
    uint64_t latency_ns = node->measured.latency_ns;

    node->doubt[0] = '\0';
    if (latency_ns == 0 || near->measured.latency_ns == 0)
        return;
    if (is_slower && !is_over(latency_ns, near->measured.latency_ns, ALIKE_PERCENT))
        say(node->doubt, "it measures as fast as DDR");
    else if (!is_slower && !node->has_processors && is_over(latency_ns, near->measured.latency_ns, SLOWER_PERCENT))
        say(node->doubt, "it measures slower than DDR");
}

void classify(struct topology *topology, const struct classify_wish *wish)
{
    struct yardstick near = yardstick_of(topology);

    for (unsigned i = 0; i < topology->nodes_count; i++) {
        node_classify(topology, &topology->nodes[i], &near, wish);
        doubt(&topology->nodes[i], &near);
    }
}

/* ---- what the user says ---------------------------------------------------------------------------------------- */

static bool kind_parse(const char *text, size_t length, enum memory_kind *ret_kind)
{
    static const struct {
        const char *name;
        enum memory_kind kind;
    } kinds[] = {{"ddr", MEMORY_DDR}, {"hbm", MEMORY_HBM}, {"cxl", MEMORY_CXL}, {"none", MEMORY_NONE}};

    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        if (strlen(kinds[i].name) != length || memcmp(kinds[i].name, text, length) != 0)
            continue;
        *ret_kind = kinds[i].kind;
        return true;
    }
    return false;
}

/* One "2=cxl" up to the comma. */
static bool override_parse(const char **text, struct classify_override *ret_override)
{
    const char *at = *text;
    unsigned number = 0;
    size_t length;

    if (*at < '0' || *at > '9')
        return false;
    for (; *at >= '0' && *at <= '9' && number < 65536; at++)
        number = number * 10 + (unsigned)(*at - '0');
    if (*at != '=' || number >= 65536)
        return false;
    at++;
    length = strcspn(at, ",");
    if (!kind_parse(at, length, &ret_override->kind))
        return false;
    ret_override->number = number;
    *text = at + length;
    return true;
}

bool classify_parse(const char *text, struct classify_wish *ret_wish)
{
    struct classify_wish wish = {.count = 0};

    if (*text == '\0') {
        *ret_wish = wish;
        return true;
    }
    while (true) {
        if (wish.count == TOPOLOGY_NODES_MAX || !override_parse(&text, &wish.overrides[wish.count]))
            return false;
        wish.count++;
        if (*text == '\0')
            break;
        text++;
    }
    *ret_wish = wish;
    return true;
}
