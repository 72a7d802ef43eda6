/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_map.c - the memory of a pool: mapping it, and what lies where. Run by the loop's thread.
 *
 * Partition i is written by node i alone: a header, what it tells each other node, and the rings to them. No partition
 * says anything of another's layout, so nothing that a peer writes is used as an offset.
 */
#include "base/error.h"
#include "base/os.h"
#include "base/textfile.h"
#include "fabric/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define SHAPE_MAGIC UINT64_C(0x544d504f4f4c0000) /* "TMPOOL" */
#define VERSION     1u

/* How long a header that others may write is watched. A living process writes it several times in that. */
#define WATCH_NS  (3 * POOL_BEAT_NS_MAX)
#define LOOK_USEC 5000

_Static_assert(sizeof(struct pool_partition) <= POOL_STEP_BYTES, "the lines of a partition fit their step");

static size_t partition_bytes(const struct pool *pool)
{
    return (1 + (size_t)pool->config.nodes_count) * POOL_STEP_BYTES;
}

static struct pool_partition *partition_of(const struct pool *pool, struct node_id node)
{
    return (struct pool_partition *)(void *)(pool->memory + node.index * partition_bytes(pool));
}

static struct pool_side *side_of(const struct pool *pool, struct node_id from, struct node_id to)
{
    return &partition_of(pool, from)->sides[to.index];
}

static uint8_t *ring_bytes(const struct pool *pool, struct node_id from, struct node_id to, unsigned plane)
{
    uint8_t *pair = (uint8_t *)partition_of(pool, from) + (1 + to.index) * POOL_STEP_BYTES;

    return plane == PLANE_CONTROL ? pair : pair + POOL_CONTROL_BYTES;
}

/* ---- mapping ---------------------------------------------------------------------------------------------------- */

/* A number that sysfs tells of a device; 0: it does not. */
static uint64_t attribute(dev_t number, const char *name)
{
    char path[96], text[32];
    uint64_t value = 0;

    snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/%s", major(number), minor(number), name);
    return text_read(path, text, sizeof(text)) == 0 && text_number(text, &value) == 0 ? value : 0;
}

static int file_open(const char *path)
{
    int fd;

    if (path == NULL || path[0] != '/')
        return error_set(-EINVAL, "pool: option pool must name the memory that the hosts share, by an absolute path");
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 && (errno == EACCES || errno == EPERM))
        return error_set(-EACCES,
                         "pool %s: this user may not read and write it; a udev rule for subsystem dax, or root, can "
                         "change that",
                         path);
    return fd < 0 ? error_set(-errno, "pool %s: %m", path) : fd;
}

/* How much is there, and by which step it is mapped. */
static int size_find(struct pool *pool)
{
    const char *path = pool->config.pool_path;
    uint64_t there, step = POOL_STEP_BYTES;
    struct stat file;

    if (fstat(pool->fd, &file) != 0)
        return error_set(-errno, "pool %s: %m", path);
    there = S_ISREG(file.st_mode) ? (uint64_t)file.st_size : 0;
    if (S_ISCHR(file.st_mode)) {
        there = attribute(file.st_rdev, "size");
        step = attribute(file.st_rdev, "align");
    }
    if (!S_ISREG(file.st_mode) && (there == 0 || step == 0))
        return error_set(-EINVAL, "pool %s is neither a dax device nor a file", path);
    pool->size_bytes = pool->config.nodes_count * partition_bytes(pool);
    pool->mapped_bytes = (pool->size_bytes + step - 1) / step * step;
    if (there < pool->mapped_bytes)
        return error_set(-ENOSPC, "pool %s has %lu MiB, and %u nodes need %lu MiB; give it more, or start fewer", path,
                         there >> 20, pool->config.nodes_count, pool->mapped_bytes >> 20);
    return 0;
}

/* The lock is shared by a host's nodes, and keeps a slot store (tiers/devdax.c) from the same device. */
static int memory_map(struct pool *pool)
{
    const char *path = pool->config.pool_path;
    void *memory;

    if (flock(pool->fd, LOCK_SH | LOCK_NB) != 0)
        return error_set(errno == EWOULDBLOCK ? -EBUSY : -errno, "pool %s: %s", path,
                         errno == EWOULDBLOCK ? "a process of this host uses it as a store of its own; name another"
                                              : strerror(errno));
    memory = mmap(NULL, pool->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pool->fd, 0);
    if (memory == MAP_FAILED)
        return error_set(-errno, "pool %s: map %lu MiB: %m", path, pool->mapped_bytes >> 20);
    (void)madvise(memory, pool->mapped_bytes, MADV_DONTFORK); /* a forked child has nothing to say here */
    pool->memory = memory;
    return 0;
}

int pool_map(struct pool *pool)
{
    int result;

    if (!pool_memory_is_supported())
        return error_set(-EOPNOTSUPP, "pool: how this processor writes its caches back is not known to this build");
    pool->fd = file_open(pool->config.pool_path);
    if (pool->fd < 0)
        return pool->fd;
    result = size_find(pool);
    if (result == 0)
        result = memory_map(pool);
    if (result != 0)
        close(pool->fd);
    return result;
}

void pool_unmap(struct pool *pool)
{
    munmap(pool->memory, pool->mapped_bytes);
    close(pool->fd);
}

/* ---- what is told ----------------------------------------------------------------------------------------------- */

uint64_t pool_shape(const struct pool *pool, struct node_id node)
{
    return SHAPE_MAGIC ^ (uint64_t)VERSION << 32 ^ (uint64_t)pool->config.nodes_count << 8 ^ node.index;
}

void pool_header_write(struct pool *pool, uint64_t incarnation)
{
    const uint64_t words[POOL_LINE_WORDS] = {pool_shape(pool, pool->config.self), pool->size_bytes, pool->config.job,
                                             incarnation, ++pool->beat};

    pool_line_write(&partition_of(pool, pool->config.self)->header, words);
}

bool pool_header_read(const struct pool *pool, struct node_id node, struct pool_header *ret_header)
{
    uint64_t words[POOL_LINE_WORDS];

    if (!pool_line_read(&partition_of(pool, node)->header, words))
        return false;
    *ret_header = (struct pool_header){words[0], words[1], words[2], words[3], words[4]};
    return ret_header->shape == pool_shape(pool, node) && ret_header->size_bytes == pool->size_bytes;
}

bool pool_is_taken(const struct pool *pool)
{
    uint64_t words[POOL_LINE_WORDS];

    return pool_line_read(&partition_of(pool, pool->config.self)->header, words) &&
           (words[0] != pool_shape(pool, pool->config.self) || words[3] != pool->config.incarnation);
}

/* ---- whether others live here ----------------------------------------------------------------------------------- */

/* A header at the start of a partition, of a pool for any number of nodes. */
static bool any_header_read(const struct pool *pool, struct node_id node, struct pool_header *ret_header)
{
    uint64_t words[POOL_LINE_WORDS];

    if (!pool_line_read(&partition_of(pool, node)->header, words))
        return false;
    *ret_header = (struct pool_header){words[0], words[1], words[2], words[3], words[4]};
    return words[0] >> 48 == SHAPE_MAGIC >> 48 && ret_header->incarnation != 0;
}

/* Whether a header that is there is written anew meanwhile, and not by a node of this job that has just come. */
static bool header_lives(const struct pool *pool, struct node_id node, const struct pool_header *before)
{
    uint64_t end_ns = os_now_ns() + WATCH_NS;
    struct pool_header now;

    while (os_now_ns() < end_ns) {
        usleep(LOOK_USEC);
        if (any_header_read(pool, node, &now) && (now.beat != before->beat || now.incarnation != before->incarnation))
            return node_is(node, pool->config.self) || now.job != pool->config.job;
    }
    return false;
}

/* The first node's header lies at the start of each pool, so it is looked at by all. */
int pool_others_check(const struct pool *pool)
{
    const char *path = pool->config.pool_path;
    struct node_id self = pool->config.self;
    struct pool_header header;

    if (any_header_read(pool, self, &header) && header_lives(pool, self, &header))
        return error_set(-EBUSY, "pool %s: another process writes the part of node %u; give each job a pool of its own",
                         path, self.index);
    if (self.index > 0 && any_header_read(pool, node_of(0), &header) && header.job != pool->config.job &&
        header_lives(pool, node_of(0), &header))
        return error_set(-EBUSY, "pool %s: another job uses it; give each job a pool of its own", path);
    return 0;
}

/* ---- greetings and rings ---------------------------------------------------------------------------------------- */

void pool_greeting_write(struct pool_peer *peer, const struct pool_greeting *greeting)
{
    struct pool *pool = peer->pool;
    const uint64_t words[POOL_LINE_WORDS] = {(uint64_t)greeting->word | (uint64_t)greeting->status << 32,
                                             greeting->session, greeting->job, greeting->from_incarnation,
                                             greeting->to_incarnation};

    if (!pool->is_taken)
        pool_line_write(&side_of(pool, pool->config.self, peer->id)->greeting, words);
}

bool pool_greeting_read(const struct pool_peer *peer, struct pool_greeting *ret_greeting)
{
    const struct pool *pool = peer->pool;
    uint64_t words[POOL_LINE_WORDS];

    if (!pool_line_read(&side_of(pool, peer->id, pool->config.self)->greeting, words))
        return false;
    *ret_greeting = (struct pool_greeting){
        .word = (enum pool_word)(words[0] & 0xffffffffu),
        .status = (uint16_t)(words[0] >> 32),
        .session = words[1],
        .job = words[2],
        .from_incarnation = words[3],
        .to_incarnation = words[4],
    };
    return true;
}

void pool_rings_init(struct pool_peer *peer)
{
    const struct pool *pool = peer->pool;
    struct node_id self = pool->config.self;
    struct pool_side *own = side_of(pool, self, peer->id);
    struct pool_side *other = side_of(pool, peer->id, self);

    for (unsigned i = 0; i < PLANES; i++) {
        uint64_t capacity = i == PLANE_CONTROL ? POOL_CONTROL_BYTES : POOL_DATA_BYTES;

        peer->out[i] = (struct pool_ring){
            ring_bytes(pool, self, peer->id, i), capacity, peer->session, &own->tail[i], &other->head[i], 0, 0};
        peer->in[i] = (struct pool_ring){
            ring_bytes(pool, peer->id, self, i), capacity, peer->session, &own->head[i], &other->tail[i], 0, 0};
        pool_ring_init(&peer->out[i]);
        pool_ring_init(&peer->in[i]);
    }
}

void pool_partition_clear(struct pool *pool)
{
    const uint64_t nothing[POOL_LINE_WORDS] = {POOL_NOTHING};

    for (unsigned i = 0; i < pool->config.nodes_count; i++)
        pool_line_write(&side_of(pool, pool->config.self, node_of(i))->greeting, nothing);
}
