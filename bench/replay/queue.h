/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.h - lists of pages for the policies that are compared with: each page is on one list of a set at most.
 */
#ifndef TIERMESH_BENCH_REPLAY_QUEUE_H
#define TIERMESH_BENCH_REPLAY_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define QUEUE_END UINT32_MAX

/* Links of one set; lists of it share them. */
struct links {
    uint32_t *next, *previous;
};

struct queue {
    uint32_t head, tail, count; /* the head is the oldest */
};

static inline bool links_create(struct links *links, uint32_t pages)
{
    links->next = malloc(((size_t)pages + 1) * sizeof(uint32_t));
    links->previous = malloc(((size_t)pages + 1) * sizeof(uint32_t));
    return links->next != NULL && links->previous != NULL;
}

static inline void links_destroy(struct links *links)
{
    free(links->next);
    free(links->previous);
}

static inline struct queue queue_new(void)
{
    return (struct queue){QUEUE_END, QUEUE_END, 0};
}

static inline void queue_push(struct queue *queue, struct links *links, uint32_t page)
{
    links->next[page] = QUEUE_END;
    links->previous[page] = queue->tail;
    if (queue->tail == QUEUE_END)
        queue->head = page;
    else
        links->next[queue->tail] = page;
    queue->tail = page;
    queue->count++;
}

static inline void queue_remove(struct queue *queue, struct links *links, uint32_t page)
{
    if (links->previous[page] == QUEUE_END)
        queue->head = links->next[page];
    else
        links->next[links->previous[page]] = links->next[page];
    if (links->next[page] == QUEUE_END)
        queue->tail = links->previous[page];
    else
        links->previous[links->next[page]] = links->previous[page];
    queue->count--;
}

static inline uint32_t queue_pop(struct queue *queue, struct links *links)
{
    uint32_t page = queue->head;

    queue_remove(queue, links, page);
    return page;
}

#endif
