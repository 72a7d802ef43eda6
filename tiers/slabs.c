/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slabs.c - size classes, and the moving together of what frees have torn apart. Run by the shard's thread.
 *
 * Like the kernel's zsmalloc, but with slabs of one size, so that a slab that is empty serves any class next. An object
 * begins with its owner (4 bytes); a free one has OWNER_NONE there and the next free one behind it. Always holds: a
 * slab in use has at least one object; a slab with a free object is on the list of its class and fullness.
 */
#include "tiers/slabs.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/os.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define OWNER_NONE    UINT32_MAX
#define SLAB_NONE     UINT32_MAX
#define OBJECT_NONE   UINT16_MAX
#define HEADER_BYTES  4u
#define OBJECTS_MIN   11u  /* of a slab: the largest class */
#define OBJECTS_MAX   512u /* the smallest */
#define FINE_UP_TO    32u  /* objects of a slab: so long each count is a class, then every eighth */
#define KEPT_MAX      8u   /* free slabs that keep their memory: they are taken again soon */
#define GAPS_SHARE    4u   /* slabs are emptied while gaps take more than this part of them */
#define GAPS_ALLOWED  16u  /* ... and more than so many slabs */
#define CLASS_FREE    UINT8_MAX
#define GROUP_LEAVING (SLAB_GROUPS + 1) /* being emptied: on no list, whatever is put there */

struct slab {
    uint32_t next, previous; /* of its list */
    uint16_t used_count;
    uint16_t carved_count; /* objects that were ever taken: what lies behind them was not touched */
    uint16_t free_first;
    uint8_t class_index;
    uint8_t group;
};
BUILD_ASSERT(sizeof(struct slab) == 16);
BUILD_ASSERT(SLAB_BYTES / OBJECTS_MIN / 16 * 16 == SLABS_OBJECT_MAX + HEADER_BYTES);

struct object {
    uint32_t owner;
    uint16_t next_free; /* only of a free one: the bytes are the owner's otherwise */
};

/* ---- where things are ------------------------------------------------------------------------------------------ */

static struct slab_class *class_of_slab(struct slabs *slabs, uint32_t slab)
{
    return &slabs->classes[slabs->table[slab].class_index];
}

static struct object *object_at(const struct slabs *slabs, uint64_t place)
{
    return (struct object *)(void *)(slabs->memory + place);
}

static uint64_t place_of(const struct slabs *slabs, uint32_t slab, unsigned index)
{
    return (uint64_t)slab * SLAB_BYTES + index * slabs->classes[slabs->table[slab].class_index].object_bytes;
}

static uint32_t slabs_for(const struct slab_class *kind)
{
    return (kind->live_count + kind->objects_count - 1) / kind->objects_count;
}

void *slabs_at(const struct slabs *slabs, uint64_t place)
{
    return slabs->memory + place + HEADER_BYTES;
}

/* ---- lists ----------------------------------------------------------------------------------------------------- */

static void list_push(struct slabs *slabs, uint32_t *head, uint32_t slab)
{
    slabs->table[slab].next = *head;
    slabs->table[slab].previous = SLAB_NONE;
    if (*head != SLAB_NONE)
        slabs->table[*head].previous = slab;
    *head = slab;
}

static void list_remove(struct slabs *slabs, uint32_t *head, uint32_t slab)
{
    struct slab *about = &slabs->table[slab];

    if (about->previous == SLAB_NONE)
        *head = about->next;
    else
        slabs->table[about->previous].next = about->next;
    if (about->next != SLAB_NONE)
        slabs->table[about->next].previous = about->previous;
}

static uint8_t group_of(const struct slab_class *kind, const struct slab *slab)
{
    return (uint8_t)(slab->used_count * SLAB_GROUPS / kind->objects_count); /* SLAB_GROUPS: full, on no list */
}

/* The slab has one object more or less than when it was last put on a list. */
static void slab_relist(struct slabs *slabs, uint32_t slab)
{
    struct slab_class *kind = class_of_slab(slabs, slab);
    struct slab *about = &slabs->table[slab];
    uint8_t group = group_of(kind, about);

    if (group == about->group || about->group == GROUP_LEAVING)
        return;
    if (about->group < SLAB_GROUPS)
        list_remove(slabs, &kind->partial[about->group], slab);
    about->group = group;
    if (group < SLAB_GROUPS)
        list_push(slabs, &kind->partial[group], slab);
}

static uint32_t fullest_partial(const struct slab_class *kind)
{
    for (unsigned group = SLAB_GROUPS; group-- > 0;)
        if (kind->partial[group] != SLAB_NONE)
            return kind->partial[group];
    return SLAB_NONE;
}

static uint32_t emptiest_partial(const struct slab_class *kind)
{
    for (unsigned group = 0; group < SLAB_GROUPS; group++)
        if (kind->partial[group] != SLAB_NONE)
            return kind->partial[group];
    return SLAB_NONE;
}

/* ---- slabs, free and in use ------------------------------------------------------------------------------------ */

static void memory_give_back(struct slabs *slabs, uint32_t slab)
{
    (void)madvise(slabs->memory + (uint64_t)slab * SLAB_BYTES, SLAB_BYTES, MADV_DONTNEED);
    list_push(slabs, &slabs->given, slab);
}

static void slab_free(struct slabs *slabs, uint32_t slab)
{
    struct slab_class *kind = class_of_slab(slabs, slab);
    struct slab *about = &slabs->table[slab];

    if (about->group < SLAB_GROUPS)
        list_remove(slabs, &kind->partial[about->group], slab);
    about->class_index = CLASS_FREE;
    kind->slabs_count--;
    slabs->used_count--;
    if (slabs->kept_count == KEPT_MAX || slabs->used_count + slabs->kept_count >= slabs->budget_count) {
        memory_give_back(slabs, slab);
        return;
    }
    list_push(slabs, &slabs->kept, slab);
    slabs->kept_count++;
}

static uint32_t free_slab_find(struct slabs *slabs)
{
    uint32_t slab = slabs->kept;

    if (slab != SLAB_NONE) {
        list_remove(slabs, &slabs->kept, slab);
        slabs->kept_count--;
        return slab;
    }
    slab = slabs->given;
    if (slab != SLAB_NONE) {
        list_remove(slabs, &slabs->given, slab);
        return slab;
    }
    ASSERT(slabs->touched_count < slabs->accessible_count); /* no more are in use than a budget ever allowed */
    return slabs->touched_count++;
}

static uint32_t slab_begin(struct slabs *slabs, unsigned class_index)
{
    struct slab_class *kind = &slabs->classes[class_index];
    uint32_t slab = free_slab_find(slabs);

    slabs->table[slab] = (struct slab){.free_first = OBJECT_NONE, .class_index = (uint8_t)class_index};
    list_push(slabs, &kind->partial[0], slab);
    kind->slabs_count++;
    slabs->used_count++;
    return slab;
}

/* ---- objects --------------------------------------------------------------------------------------------------- */

static void live_change(struct slabs *slabs, struct slab_class *kind, int by)
{
    slabs->needed_count -= slabs_for(kind);
    kind->live_count = (uint32_t)((int64_t)kind->live_count + by);
    slabs->needed_count += slabs_for(kind);
}

/* The slab has a free object. */
static uint64_t object_take(struct slabs *slabs, uint32_t slab, uint32_t owner)
{
    struct slab_class *kind = class_of_slab(slabs, slab);
    struct slab *about = &slabs->table[slab];
    unsigned index = about->free_first;
    struct object *object;

    if (index == OBJECT_NONE) {
        ASSERT(about->carved_count < kind->objects_count);
        index = about->carved_count++;
        object = object_at(slabs, place_of(slabs, slab, index));
    } else {
        object = object_at(slabs, place_of(slabs, slab, index));
        ASSERT(index < about->carved_count && object->owner == OWNER_NONE);
        about->free_first = object->next_free;
    }
    object->owner = owner;
    about->used_count++;
    live_change(slabs, kind, 1);
    slab_relist(slabs, slab);
    return place_of(slabs, slab, index);
}

static void object_put(struct slabs *slabs, uint64_t place)
{
    uint32_t slab = (uint32_t)(place / SLAB_BYTES);
    struct slab *about = &slabs->table[slab];
    struct slab_class *kind;
    unsigned index;

    ASSERT(slab < slabs->touched_count && about->class_index != CLASS_FREE);
    kind = class_of_slab(slabs, slab);
    index = (unsigned)(place % SLAB_BYTES) / kind->object_bytes;
    ASSERT(place == place_of(slabs, slab, index) && index < about->carved_count);
    ASSERT(object_at(slabs, place)->owner != OWNER_NONE); /* put twice */
    *object_at(slabs, place) = (struct object){.owner = OWNER_NONE, .next_free = about->free_first};
    about->free_first = (uint16_t)index;
    about->used_count--;
    live_change(slabs, kind, -1);
    if (about->used_count == 0)
        slab_free(slabs, slab);
    else
        slab_relist(slabs, slab);
}

/* ---- moving together ------------------------------------------------------------------------------------------- */

/* One object into another slab of its class. false: its header is not right. */
static bool object_move(struct slabs *slabs, struct slab_class *kind, uint64_t from)
{
    uint32_t owner = object_at(slabs, from)->owner;
    uint64_t to = object_take(slabs, fullest_partial(kind), owner);

    ASSERT(to / SLAB_BYTES != from / SLAB_BYTES);
    memcpy(slabs_at(slabs, to), slabs_at(slabs, from), kind->object_bytes - HEADER_BYTES);
    if (!slabs->moved(slabs->context, owner, from, to)) {
        object_put(slabs, to);
        return false;
    }
    object_put(slabs, from);
    return true;
}

/* Moves all objects out of the emptiest slab of a class that has more slabs than its objects need. */
static bool class_compact(struct slabs *slabs, struct slab_class *kind)
{
    uint32_t slab = emptiest_partial(kind);
    struct slab *about = &slabs->table[slab];
    uint32_t left = about->used_count;
    bool is_right = true;

    list_remove(slabs, &kind->partial[about->group], slab); /* so that nothing is moved into it */
    about->group = GROUP_LEAVING;
    for (unsigned index = 0; left > 0 && is_right && index < about->carved_count; index++) {
        uint64_t place = place_of(slabs, slab, index);

        if (object_at(slabs, place)->owner == OWNER_NONE)
            continue;
        is_right = object_move(slabs, kind, place);
        left -= is_right;
    }
    if (left == 0)
        return true;
    about->group = SLAB_GROUPS;
    slab_relist(slabs, slab);
    return false;
}

/* Frees one slab by closing gaps. false: there are none, or what is in the way cannot be moved. */
static bool compact(struct slabs *slabs)
{
    struct slab_class *worst = NULL;
    uint32_t worst_gaps = 0;

    for (unsigned i = 0; i < slabs->classes_count; i++) {
        struct slab_class *kind = &slabs->classes[i];
        uint32_t gaps = kind->slabs_count - slabs_for(kind);

        if (gaps > worst_gaps) {
            worst_gaps = gaps;
            worst = kind;
        }
    }
    return worst != NULL && class_compact(slabs, worst);
}

static bool gaps_are_many(const struct slabs *slabs)
{
    uint32_t gaps = slabs->used_count - slabs->needed_count;

    return gaps > 0 &&
           (slabs->used_count > slabs->budget_count || (gaps > GAPS_ALLOWED && gaps > slabs->used_count / GAPS_SHARE));
}

/* ---- taking and putting ---------------------------------------------------------------------------------------- */

static bool slab_is_allowed(struct slabs *slabs)
{
    if (slabs->used_count < slabs->budget_count)
        return true;
    return slabs->needed_count < slabs->budget_count && compact(slabs) && slabs->used_count < slabs->budget_count;
}

/* Full: better a larger object than none. */
static uint32_t larger_partial(const struct slabs *slabs, unsigned class_index)
{
    uint32_t slab = SLAB_NONE;

    while (slab == SLAB_NONE && class_index-- > 0) /* the largest comes first */
        slab = fullest_partial(&slabs->classes[class_index]);
    return slab;
}

uint64_t slabs_take(struct slabs *slabs, uint32_t owner, size_t size_bytes)
{
    unsigned class_index;
    uint32_t slab;

    ASSERT(size_bytes > 0 && size_bytes <= SLABS_OBJECT_MAX && owner != OWNER_NONE);
    if (slabs->used_count > slabs->budget_count) /* since it was lowered: first what is there must go */
        return SLABS_FULL;
    class_index = slabs->class_of[(size_bytes + HEADER_BYTES + 15) / 16];
    slab = fullest_partial(&slabs->classes[class_index]);
    if (slab == SLAB_NONE)
        slab = slab_is_allowed(slabs) ? slab_begin(slabs, class_index) : larger_partial(slabs, class_index);
    return slab == SLAB_NONE ? SLABS_FULL : object_take(slabs, slab, owner);
}

void slabs_put(struct slabs *slabs, uint64_t place)
{
    object_put(slabs, place);
    if (gaps_are_many(slabs))
        (void)compact(slabs);
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

/* Classes by how many objects fit a slab, so that nothing is left over at its end. */
static void classes_init(struct slabs *slabs)
{
    uint32_t before = UINT32_MAX;

    for (uint32_t fit = OBJECTS_MIN; fit <= OBJECTS_MAX; fit += fit < FINE_UP_TO ? 1 : fit / 8) {
        uint32_t object_bytes = SLAB_BYTES / fit / 16 * 16;
        struct slab_class *kind = &slabs->classes[slabs->classes_count];

        if (object_bytes == before)
            continue;
        ASSERT(slabs->classes_count < SLAB_CLASSES_MAX);
        *kind = (struct slab_class){.object_bytes = object_bytes, .objects_count = SLAB_BYTES / object_bytes};
        for (unsigned group = 0; group < SLAB_GROUPS; group++)
            kind->partial[group] = SLAB_NONE;
        for (uint32_t size = 0; size <= object_bytes / 16; size++)
            slabs->class_of[size] = (uint8_t)slabs->classes_count;
        slabs->classes_count++;
        before = object_bytes;
    }
}

static size_t table_bytes(const struct slabs *slabs)
{
    return (size_t)slabs->reserved_count * sizeof(struct slab);
}

static size_t reserved_bytes(const struct slabs *slabs)
{
    return (size_t)slabs->reserved_count * SLAB_BYTES;
}

/* PROT_NONE is not counted by a strict overcommit policy; small pages, so that an object more costs a page more. */
int slabs_init(struct slabs *slabs, uint32_t budget_count, uint32_t reserved_count, slabs_moved *moved, void *context)
{
    void *table;
    void *memory;

    ASSERT(budget_count > 0 && budget_count <= reserved_count && reserved_count <= SLABS_COUNT_MAX);
    *slabs = (struct slabs){
        .reserved_count = reserved_count, .kept = SLAB_NONE, .given = SLAB_NONE, .moved = moved, .context = context};
    if (os_pages_map(table_bytes(slabs), &table) < 0)
        return -ENOMEM;
    slabs->table = table;
    memory = mmap(NULL, reserved_bytes(slabs), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        os_pages_unmap(table, table_bytes(slabs));
        return -ENOMEM;
    }
    slabs->memory = memory;
    (void)madvise(memory, reserved_bytes(slabs), MADV_NOHUGEPAGE);
    (void)madvise(memory, reserved_bytes(slabs), MADV_DONTDUMP); /* may hold what its owner keeps out of dumps */
    classes_init(slabs);
    if (slabs_resize(slabs, budget_count) == 0)
        return 0;
    slabs_fini(slabs);
    return -ENOMEM;
}

void slabs_fini(struct slabs *slabs)
{
    os_pages_unmap(slabs->memory, reserved_bytes(slabs));
    os_pages_unmap(slabs->table, table_bytes(slabs));
}

int slabs_resize(struct slabs *slabs, uint32_t budget_count)
{
    if (budget_count > slabs->reserved_count)
        return -ENOMEM;
    if (budget_count > slabs->accessible_count) {
        if (mprotect(slabs->memory, (size_t)budget_count * SLAB_BYTES, PROT_READ | PROT_WRITE) < 0)
            return -ENOMEM;
        slabs->accessible_count = budget_count;
    }
    slabs->budget_count = budget_count;
    while (slabs->kept_count > 0 && slabs->used_count + slabs->kept_count > budget_count) {
        uint32_t slab = slabs->kept;

        list_remove(slabs, &slabs->kept, slab);
        slabs->kept_count--;
        memory_give_back(slabs, slab);
    }
    while (slabs->used_count > budget_count && compact(slabs))
        ;
    return 0;
}

uint64_t slabs_physical_bytes(const struct slabs *slabs)
{
    return ((uint64_t)slabs->used_count + slabs->kept_count) * SLAB_BYTES;
}

uint64_t slabs_needed_bytes(const struct slabs *slabs)
{
    return (uint64_t)slabs->needed_count * SLAB_BYTES;
}

uint64_t slabs_metadata_bytes(const struct slabs *slabs)
{
    return (uint64_t)slabs->touched_count * sizeof(struct slab);
}

/* ---- for tests ------------------------------------------------------------------------------------------------- */

static void slab_check(const struct slabs *slabs, uint32_t slab)
{
    const struct slab *about = &slabs->table[slab];
    const struct slab_class *kind = &slabs->classes[about->class_index];
    unsigned used = 0;
    unsigned free = 0;

    for (unsigned index = 0; index < about->carved_count; index++)
        used += object_at(slabs, place_of(slabs, slab, index))->owner != OWNER_NONE;
    for (unsigned at = about->free_first; at != OBJECT_NONE; free++)
        at = object_at(slabs, place_of(slabs, slab, at))->next_free;
    ASSERT(used > 0 && used == about->used_count);
    ASSERT(free == about->carved_count - used && about->carved_count <= kind->objects_count);
    ASSERT(about->group == group_of(kind, about));
}

static uint32_t list_count(const struct slabs *slabs, uint32_t slab)
{
    uint32_t count = 0;

    for (uint32_t previous = SLAB_NONE; slab != SLAB_NONE; previous = slab, slab = slabs->table[slab].next, count++)
        ASSERT(slabs->table[slab].previous == previous);
    return count;
}

void slabs_check(const struct slabs *slabs)
{
    uint32_t used = 0;
    uint32_t needed = 0;
    uint32_t partial = 0;
    uint32_t listed = 0;

    for (uint32_t slab = 0; slab < slabs->touched_count; slab++) {
        if (slabs->table[slab].class_index == CLASS_FREE)
            continue;
        slab_check(slabs, slab);
        partial += slabs->table[slab].group < SLAB_GROUPS;
        used++;
    }
    for (unsigned i = 0; i < slabs->classes_count; i++) {
        const struct slab_class *kind = &slabs->classes[i];

        needed += slabs_for(kind);
        for (unsigned group = 0; group < SLAB_GROUPS; group++)
            listed += list_count(slabs, kind->partial[group]);
    }
    ASSERT(used == slabs->used_count && needed == slabs->needed_count && listed == partial);
    ASSERT(list_count(slabs, slabs->kept) == slabs->kept_count && slabs->kept_count <= KEPT_MAX);
    ASSERT(used + slabs->kept_count + list_count(slabs, slabs->given) == slabs->touched_count);
}
