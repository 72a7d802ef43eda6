/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.c - open addressing, at most half full.
 */
#include "bench/replay/pages.h"

#include <stdlib.h>
#include <string.h>

#define CAPACITY_FIRST 65536u
#define NUMBERS_MAX    ((uint32_t)1 << 31)

struct pages {
    uint32_t count, capacity; /* of places; a power of two */
    uint32_t *places;         /* number + 1; 0: free */
    struct page_id *pages;    /* by number; half the places */
};

static uint32_t place_of(const struct pages *pages, struct page_id page)
{
    uint32_t place = (uint32_t)(page.index * 0x9e3779b97f4a7c15u >> 32) & (pages->capacity - 1);

    while (pages->places[place] != 0 && !page_is(pages->pages[pages->places[place] - 1], page))
        place = (place + 1) & (pages->capacity - 1);
    return place;
}

/* To twice the capacity. */
static bool pages_grow(struct pages *pages)
{
    uint32_t capacity = pages->capacity * 2;
    uint32_t *places = calloc(capacity, sizeof(*places));
    struct page_id *grown = realloc(pages->pages, capacity / 2 * sizeof(*grown));

    if (grown != NULL)
        pages->pages = grown;
    if (places == NULL || grown == NULL) {
        free(places);
        return false;
    }
    free(pages->places);
    pages->places = places;
    pages->capacity = capacity;
    for (uint32_t number = 0; number < pages->count; number++)
        places[place_of(pages, pages->pages[number])] = number + 1;
    return true;
}

struct pages *pages_create(void)
{
    struct pages *pages = calloc(1, sizeof(*pages));

    if (pages == NULL)
        return NULL;
    pages->capacity = CAPACITY_FIRST;
    pages->places = calloc(CAPACITY_FIRST, sizeof(*pages->places));
    pages->pages = calloc(CAPACITY_FIRST / 2, sizeof(*pages->pages));
    if (pages->places != NULL && pages->pages != NULL)
        return pages;
    pages_destroy(pages);
    return NULL;
}

void pages_destroy(struct pages *pages)
{
    if (pages == NULL)
        return;
    free(pages->places);
    free(pages->pages);
    free(pages);
}

uint32_t pages_number(struct pages *pages, struct page_id page)
{
    uint32_t place = place_of(pages, page);

    if (pages->places[place] != 0)
        return pages->places[place] - 1;
    if (pages->count == pages->capacity / 2) {
        if (pages->capacity == NUMBERS_MAX || !pages_grow(pages))
            return UINT32_MAX;
        place = place_of(pages, page);
    }
    pages->pages[pages->count] = page;
    pages->places[place] = ++pages->count;
    return pages->count - 1;
}

uint32_t pages_count(const struct pages *pages)
{
    return pages->count;
}

struct page_id pages_page(const struct pages *pages, uint32_t number)
{
    return pages->pages[number];
}
