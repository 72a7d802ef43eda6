/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_measure.c - times loads from memory of one NUMA node. Any thread, at start; blocks.
 *
 * Latency is a walk along a random cycle through lines that were flushed from the caches, so each step waits for memory
 * and none can be guessed; bandwidth is a read of all of them in order. The best of a few rounds counts: whatever else
 * runs only makes memory look slower. Memory is asked for on the node but not bound to it, since a bound process is
 * killed when the node is full; what came from elsewhere is seen by asking the kernel, and the node stays unmeasured.
 */
#include "tiers/node_measure.h"
#include "base/numa.h"
#include "base/os.h"
#include "base/random.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#define MEASURE_PAGES 1024u
#define PAGES_MIN     32u /* are touched however long it takes */
#define TOUCH_NS      5000000u
#define ROUNDS        3u
#define STEPS_MAX     8192u
#define LINE_BYTES    64u
#define PAGE_LINES    (PAGE_BYTES / LINE_BYTES)
#define BITS_PER_BYTE 8

struct line {
    uint32_t next;
    char rest[LINE_BYTES - sizeof(uint32_t)];
};

struct field {
    struct line *lines;
    uint32_t lines_count;
};

/* ---- caches ---------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
static bool line_flush(const void *line)
{
    __builtin_ia32_clflush(line);
    return true;
}

static void flush_wait(void)
{
    __builtin_ia32_mfence();
}
#elif defined(__aarch64__)
static bool line_flush(const void *line)
{
    __asm__ volatile("dc civac, %0" : : "r"(line) : "memory");
    return true;
}

static void flush_wait(void)
{
    __asm__ volatile("dsb sy" : : : "memory");
}
#else
static bool line_flush(const void *line)
{
    (void)line;
    return false;
}

static void flush_wait(void)
{
}
#endif

static bool field_flush(const struct field *field)
{
    for (uint32_t i = 0; i < field->lines_count; i++)
        if (!line_flush(&field->lines[i]))
            return false;
    flush_wait();
    return true;
}

/* ---- a field of lines on the node ------------------------------------------------------------------------------ */

/* As many pages as come in the time; few when the memory is very slow. */
static unsigned pages_touch(char *memory)
{
    uint64_t start_ns = os_now_ns();
    unsigned count = 0;

    while (count < MEASURE_PAGES && (count < PAGES_MIN || os_now_ns() - start_ns < TOUCH_NS))
        *(volatile char *)(memory + count++ * PAGE_BYTES) = 1;
    return count;
}

static bool pages_are_there(char *memory, unsigned count, unsigned number)
{
    void *addresses[PAGES_MIN];
    int places[PAGES_MIN];

    for (unsigned i = 0; i < PAGES_MIN; i++)
        addresses[i] = memory + (size_t)i * count / PAGES_MIN * PAGE_BYTES;
    if (numa_where(addresses, PAGES_MIN, places) != 0)
        return false;
    for (unsigned i = 0; i < PAGES_MIN; i++)
        if (places[i] != (int)number)
            return false;
    return true;
}

/* One cycle through all lines, in random order (Sattolo: Information Processing Letters 22, 1986). */
static void lines_link(struct field *field)
{
    struct random random = {field->lines_count};

    for (uint32_t i = 0; i < field->lines_count; i++)
        field->lines[i].next = i;
    for (uint32_t i = field->lines_count - 1; i > 0; i--) {
        uint32_t other = (uint32_t)(random_next(&random) % i);
        uint32_t kept = field->lines[i].next;

        field->lines[i].next = field->lines[other].next;
        field->lines[other].next = kept;
    }
}

static int field_make(unsigned number, struct field *ret_field)
{
    char *memory = mmap(NULL, MEASURE_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned count;
    int error;

    if (memory == MAP_FAILED)
        return -ENOMEM;
    (void)madvise(memory, MEASURE_PAGES * PAGE_BYTES, MADV_NOHUGEPAGE); /* the time for a page is bounded */
    error = numa_prefer(memory, MEASURE_PAGES * PAGE_BYTES, number);
    if (error == 0) {
        count = pages_touch(memory);
        error = pages_are_there(memory, count, number) ? 0 : -ENOMEM;
    }
    if (error != 0) {
        munmap(memory, MEASURE_PAGES * PAGE_BYTES);
        return error;
    }
    *ret_field = (struct field){(struct line *)(void *)memory, count * (uint32_t)PAGE_LINES};
    lines_link(ret_field);
    return 0;
}

/* ---- timing ---------------------------------------------------------------------------------------------------- */

static uint64_t walk_ns(const struct field *field)
{
    uint32_t steps = field->lines_count < STEPS_MAX ? field->lines_count : STEPS_MAX;
    uint64_t start_ns = os_now_ns();
    uint32_t at = 0;

    for (uint32_t i = 0; i < steps; i++)
        at = *(const volatile uint32_t *)&field->lines[at].next;
    return (os_now_ns() - start_ns) / steps + 1;
}

static uint64_t read_mbs(const struct field *field)
{
    const volatile uint64_t *words = (const volatile uint64_t *)(const void *)field->lines;
    size_t bytes = (size_t)field->lines_count * LINE_BYTES;
    uint64_t start_ns = os_now_ns();
    uint64_t sum = 0;

    for (size_t i = 0; i < bytes / sizeof(*words); i += 4)
        sum += words[i] + words[i + 1] + words[i + 2] + words[i + 3];
    (void)sum;
    return bytes * 1000 / (os_now_ns() - start_ns + 1);
}

int node_measure_one(unsigned number, struct memory_speed *ret_speed)
{
    struct memory_speed speed = {.latency_ns = UINT64_MAX};
    struct field field;
    int error = field_make(number, &field);

    if (error != 0)
        return error;
    for (unsigned i = 0; error == 0 && i < ROUNDS; i++) {
        uint64_t latency_ns, bandwidth_mbs;

        if (!field_flush(&field)) {
            error = -ENOSYS;
            break;
        }
        latency_ns = walk_ns(&field);
        (void)field_flush(&field);
        bandwidth_mbs = read_mbs(&field);
        if (latency_ns < speed.latency_ns)
            speed.latency_ns = latency_ns;
        if (bandwidth_mbs > speed.bandwidth_mbs)
            speed.bandwidth_mbs = bandwidth_mbs;
    }
    munmap(field.lines, MEASURE_PAGES * PAGE_BYTES);
    if (error == 0)
        *ret_speed = speed;
    return error;
}

/* ---- which, and from where ------------------------------------------------------------------------------------- */

/* Whoever may not run there measures from where it is. */
static void move_near(const struct topology_node *node)
{
    cpu_set_t set;

    if (node->near_processor < 0 || node->near_processor >= CPU_SETSIZE)
        return;
    CPU_ZERO(&set);
    CPU_SET((size_t)node->near_processor, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

static bool is_wanted(const struct topology *topology, const struct topology_node *node)
{
    if (node->memory_bytes == 0)
        return false;
    for (unsigned i = 0; i < topology->nodes_count; i++) {
        const struct topology_node *other = &topology->nodes[i];

        if (!other->has_processors && other->memory_bytes > 0 &&
            (other == node || other->near_node == (int)node->number))
            return true;
    }
    return false;
}

void node_measure(struct topology *topology)
{
    unsigned measured = 0;
    cpu_set_t before;
    bool has_before = sched_getaffinity(0, sizeof(before), &before) == 0;

    for (unsigned i = 0; i < topology->nodes_count && measured < NODE_MEASURE_MAX; i++) {
        struct topology_node *node = &topology->nodes[i];

        if (!is_wanted(topology, node))
            continue;
        if (has_before)
            move_near(node);
        measured += node_measure_one(node->number, &node->measured) == 0;
    }
    if (has_before)
        (void)sched_setaffinity(0, sizeof(before), &before);
}
