/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space.c - slabs: an extent holds blocks of one size, with a bitmap of the free ones beside it.
 *
 * Block sizes: four steps an octave from 16 bytes up to 1 MiB (waste at most a fifth); blocks of a page and more begin
 * on a page. Anything larger is a run of extents. Always holds, under the mutex: a slab is on its class's list exactly
 * while it has a free block; a slab whose blocks are all free is given back, except the last of its class.
 */
#include "runtime/space.h"
#include "base/assert.h"
#include "base/os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_MIN   16u
#define BLOCK_MAX   (1024u * 1024u)
#define CLASSES_MAX 72
#define NO_CLASS    UINT32_MAX

/* The extents of one slab or of one large block. */
struct slab {
    struct slab *next, *previous; /* on its class's list */
    uint64_t first_extent, extents_count;
    uint64_t size_bytes;          /* of a block */
    uint32_t class;               /* NO_CLASS: one large block */
    uint32_t blocks_count, free_count;
    uint32_t fresh;               /* blocks from here on were never handed out */
    uint32_t full_words;          /* no block is free in the words of `used` before this one */
    uint64_t used[];              /* bit i: block i is handed out */
};

struct space {
    struct space_config config;
    pthread_mutex_t mutex;
    struct slab **by_extent; /* by extent number; a page of it only where touched */
    struct slab *partial[CLASSES_MAX];
    uint32_t class_size[CLASSES_MAX];
    unsigned classes_count;
    uint64_t metadata_bytes;
};

/* ---- classes --------------------------------------------------------------------------------------------------- */

static void classes_fill(struct space *space)
{
    uint32_t octave = BLOCK_MIN;

    space->class_size[space->classes_count++] = BLOCK_MIN;
    for (; octave < BLOCK_MAX; octave *= 2) {
        for (uint32_t step = 1; step <= 4; step++) {
            uint32_t size = octave + octave / 4 * step;
            uint32_t grain = size >= PAGE_BYTES ? (uint32_t)PAGE_BYTES : BLOCK_MIN;

            size = (size + grain - 1) / grain * grain;
            if (size > space->class_size[space->classes_count - 1])
                space->class_size[space->classes_count++] = size;
        }
    }
    ASSERT(space->classes_count <= CLASSES_MAX);
}

/* The smallest class whose blocks are large enough and all lie on the alignment; NO_CLASS: none. */
static uint32_t class_of(const struct space *space, size_t size_bytes, size_t alignment_bytes)
{
    for (uint32_t i = 0; i < space->classes_count; i++)
        if (space->class_size[i] >= size_bytes && space->class_size[i] % alignment_bytes == 0)
            return i;
    return NO_CLASS;
}

/* ---- slabs ----------------------------------------------------------------------------------------------------- */

static size_t slab_bytes(uint32_t blocks_count)
{
    return sizeof(struct slab) + (blocks_count + 63) / 64 * sizeof(uint64_t);
}

static void list_add(struct space *space, struct slab *slab)
{
    slab->previous = NULL;
    slab->next = space->partial[slab->class];
    if (slab->next != NULL)
        slab->next->previous = slab;
    space->partial[slab->class] = slab;
}

static void list_remove(struct space *space, struct slab *slab)
{
    if (slab->previous != NULL)
        slab->previous->next = slab->next;
    else
        space->partial[slab->class] = slab->next;
    if (slab->next != NULL)
        slab->next->previous = slab->previous;
}

static int slab_create(struct space *space, uint32_t class, uint64_t extents_count, uint64_t size_bytes,
                       struct slab **ret_slab)
{
    uint32_t blocks_count = class == NO_CLASS ? 1 : (uint32_t)(EXTENT_BYTES / size_bytes);
    struct slab *slab = calloc(1, slab_bytes(blocks_count));
    uint64_t first;
    int error = slab == NULL ? -ENOMEM : space->config.extents_take(space->config.context, extents_count, &first);

    if (error != 0) {
        free(slab);
        return error;
    }
    slab->first_extent = first;
    slab->extents_count = extents_count;
    slab->size_bytes = size_bytes;
    slab->class = class;
    slab->blocks_count = slab->free_count = blocks_count;
    for (uint64_t i = 0; i < extents_count; i++)
        space->by_extent[first + i] = slab;
    space->metadata_bytes += slab_bytes(blocks_count) + extents_count * sizeof(struct slab *);
    *ret_slab = slab;
    return 0;
}

static void slab_destroy(struct space *space, struct slab *slab)
{
    for (uint64_t i = 0; i < slab->extents_count; i++)
        space->by_extent[slab->first_extent + i] = NULL;
    space->metadata_bytes -= slab_bytes(slab->blocks_count) + slab->extents_count * sizeof(struct slab *);
    space->config.extents_give(space->config.context, slab->first_extent, slab->extents_count);
    free(slab);
}

/* A slab on the list has a free block, so the walk ends. It goes on where the last one stopped. */
static uint32_t block_find_free(struct slab *slab)
{
    uint32_t word = slab->full_words;

    while (~slab->used[word] == 0)
        word++;
    slab->full_words = word;
    return word * 64 + (uint32_t)__builtin_ctzll(~slab->used[word]);
}

static uint64_t block_take(struct space *space, struct slab *slab, bool *ret_was_used)
{
    uint32_t block;

    ASSERT(slab->free_count > 0);
    block = block_find_free(slab);
    ASSERT(block < slab->blocks_count);
    slab->used[block / 64] |= (uint64_t)1 << block % 64;
    *ret_was_used = block < slab->fresh;
    if (block >= slab->fresh)
        slab->fresh = block + 1;
    if (--slab->free_count == 0 && slab->class != NO_CLASS)
        list_remove(space, slab);
    return space->config.base + slab->first_extent * EXTENT_BYTES + block * slab->size_bytes;
}

/* ---- taking and putting ---------------------------------------------------------------------------------------- */

static int small_take(struct space *space, uint32_t class, uint64_t *ret_address, bool *ret_was_used)
{
    struct slab *slab = space->partial[class];
    int error;

    if (slab == NULL) {
        error = slab_create(space, class, 1, space->class_size[class], &slab);
        if (error != 0)
            return error;
        list_add(space, slab);
    }
    *ret_address = block_take(space, slab, ret_was_used);
    return 0;
}

static int large_take(struct space *space, size_t size_bytes, uint64_t *ret_address, bool *ret_was_used)
{
    uint64_t extents = (size_bytes + EXTENT_BYTES - 1) / EXTENT_BYTES;
    struct slab *slab;
    int error = slab_create(space, NO_CLASS, extents, extents * EXTENT_BYTES, &slab);

    if (error == 0)
        *ret_address = block_take(space, slab, ret_was_used);
    return error;
}

int space_take(struct space *space, size_t size_bytes, size_t alignment_bytes, uint64_t *ret_address,
               bool *ret_was_used)
{
    uint32_t class;
    int error;

    if (alignment_bytes < BLOCK_MIN)
        alignment_bytes = BLOCK_MIN;
    if (size_bytes >= PAGE_BYTES && alignment_bytes < PAGE_BYTES)
        alignment_bytes = PAGE_BYTES;
    pthread_mutex_lock(&space->mutex);
    class = class_of(space, size_bytes, alignment_bytes);
    error = class != NO_CLASS ? small_take(space, class, ret_address, ret_was_used)
                              : large_take(space, size_bytes, ret_address, ret_was_used);
    pthread_mutex_unlock(&space->mutex);
    return error;
}

/* Under the mutex: the slab and block of an address. */
static int block_at(struct space *space, uint64_t address, struct slab **ret_slab, uint32_t *ret_block)
{
    uint64_t extent = (address - space->config.base) / EXTENT_BYTES;
    struct slab *slab = address < space->config.base || extent >= space->config.extents_count
                            ? NULL
                            : space->by_extent[extent];
    uint64_t offset;

    if (slab == NULL)
        return -EFAULT;
    offset = address - space->config.base - slab->first_extent * EXTENT_BYTES;
    if (offset % slab->size_bytes != 0 || offset / slab->size_bytes >= slab->blocks_count)
        return -EINVAL;
    *ret_block = (uint32_t)(offset / slab->size_bytes);
    if ((slab->used[*ret_block / 64] >> *ret_block % 64 & 1) == 0)
        return -EINVAL;
    *ret_slab = slab;
    return 0;
}

static void block_put(struct space *space, struct slab *slab, uint32_t block)
{
    slab->used[block / 64] &= ~((uint64_t)1 << block % 64);
    if (block / 64 < slab->full_words)
        slab->full_words = block / 64;
    slab->free_count++;
    if (slab->class == NO_CLASS) {
        slab_destroy(space, slab);
        return;
    }
    if (slab->free_count == 1)
        list_add(space, slab);
    if (slab->free_count == slab->blocks_count && (slab->next != NULL || slab->previous != NULL)) {
        list_remove(space, slab);
        slab_destroy(space, slab);
    }
}

int space_put(struct space *space, uint64_t address)
{
    struct slab *slab;
    uint32_t block;
    int error;

    pthread_mutex_lock(&space->mutex);
    error = block_at(space, address, &slab, &block);
    if (error == 0)
        block_put(space, slab, block);
    pthread_mutex_unlock(&space->mutex);
    return error;
}

int space_usable_size(struct space *space, uint64_t address, size_t *ret_size_bytes)
{
    struct slab *slab;
    uint32_t block;
    int error;

    pthread_mutex_lock(&space->mutex);
    error = block_at(space, address, &slab, &block);
    if (error == 0)
        *ret_size_bytes = slab->size_bytes;
    pthread_mutex_unlock(&space->mutex);
    return error;
}

bool space_owns(struct space *space, uint64_t address)
{
    uint64_t extent = (address - space->config.base) / EXTENT_BYTES;
    bool owns;

    if (address < space->config.base || extent >= space->config.extents_count)
        return false;
    pthread_mutex_lock(&space->mutex);
    owns = space->by_extent[extent] != NULL;
    pthread_mutex_unlock(&space->mutex);
    return owns;
}

uint64_t space_metadata_bytes(struct space *space)
{
    uint64_t bytes;

    pthread_mutex_lock(&space->mutex);
    bytes = sizeof(*space) + space->metadata_bytes;
    pthread_mutex_unlock(&space->mutex);
    return bytes;
}

/* ---- set-up ---------------------------------------------------------------------------------------------------- */

int space_create(const struct space_config *config, struct space **ret_space)
{
    struct space *space = calloc(1, sizeof(*space));
    void *memory;

    if (space == NULL)
        return -ENOMEM;
    if (os_pages_map(config->extents_count * sizeof(struct slab *), &memory) != 0) {
        free(space);
        return -ENOMEM;
    }
    space->config = *config;
    space->by_extent = memory;
    pthread_mutex_init(&space->mutex, NULL);
    classes_fill(space);
    *ret_space = space;
    return 0;
}

/* The extents stay as they are: the whole window ends with the node. */
void space_destroy(struct space *space)
{
    for (uint64_t i = 0; space->metadata_bytes > 0 && i < space->config.extents_count; i++) {
        struct slab *slab = space->by_extent[i];

        if (slab == NULL || slab->first_extent != i)
            continue;
        space->metadata_bytes -= slab_bytes(slab->blocks_count) + slab->extents_count * sizeof(struct slab *);
        i += slab->extents_count - 1;
        free(slab);
    }
    os_pages_unmap(space->by_extent, space->config.extents_count * sizeof(struct slab *));
    free(space);
}
