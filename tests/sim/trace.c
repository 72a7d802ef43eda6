/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.c - the last events of a world, kept as numbers and put into words only when somebody looks.
 */
#include "world.h"

#include <stdio.h>

static void trace_line(const struct world *world, const struct trace *trace)
{
    static const char *const access_names[] = {"none", "read", "write"};
    const char *access = trace->a >= 0 && trace->a < 3 ? access_names[trace->a] : "?";

    printf("%7u %12.3f us  node %u ", trace->step, (double)trace->time_ns / NS_PER_US, trace->node);
    if (trace->page != UINT16_MAX && trace->kind != TRACE_SEND && trace->kind != TRACE_RECEIVE)
        printf("page %u (home %u): ", trace->page, world_page_home(world, trace->page));
    switch ((enum trace_kind)trace->kind) {
    case TRACE_EVENT:
        printf("%s %lld\n", trace->text, (long long)trace->a);
        break;
    case TRACE_SEND:
    case TRACE_RECEIVE:
        printf("%s node %u: %s page %d seq %u flags %u requester %d request %u epoch %u credit %u a %llx b %llx\n",
               trace->kind == TRACE_SEND ? "sends to" : "hears from", trace->peer, message_name(trace->type),
               trace->page == UINT16_MAX ? -1 : trace->page, trace->sequence, trace->flags, trace->requester,
               trace->request, trace->epoch, trace->credit, (unsigned long long)trace->a, (unsigned long long)trace->b);
        break;
    case TRACE_INSTALL:
        printf("install %s%s\n", access, trace->b ? " with bytes" : "");
        break;
    case TRACE_PROTECT:
        printf("protect %s, pins %llu\n", access, (unsigned long long)trace->b);
        break;
    case TRACE_STORE:
        printf("store %s\n", trace->a ? "bytes" : "zeroes");
        break;
    case TRACE_DROP:
        printf("drop, sends in flight %llu\n", (unsigned long long)trace->b);
        break;
    case TRACE_POISON:
        printf("poison: %s\n", trace->text == NULL ? "" : trace->text);
        break;
    case TRACE_ATOMIC:
        printf("atomic on word %llu, was %lld\n", (unsigned long long)trace->b, (long long)trace->a);
        break;
    case TRACE_DONE:
        printf("done(%lld) for token %llx\n", (long long)trace->a, (unsigned long long)trace->b);
        break;
    case TRACE_WANTED:
        printf("lock %lld is wanted\n", (long long)trace->a);
        break;
    case TRACE_CALL:
        printf("thread %lld %s, %llx\n", (long long)trace->a, trace->text, (unsigned long long)trace->b);
        break;
    case TRACE_FAULT:
        printf("%s %lld\n", trace->text, (long long)trace->a);
        break;
    }
}

void trace_add(struct world *world, const struct trace *trace)
{
    struct trace *slot;

    if (world->is_exploring && !world->is_verbose)
        return;
    slot = &world->traces[world->traces_count++ % TRACE_MAX];
    *slot = *trace;
    slot->time_ns = world->now_ns;
    slot->step = world->step;
    if (world->is_verbose)
        trace_line(world, slot);
}

void trace_note(struct world *world, enum trace_kind kind, unsigned node, unsigned page, int64_t a, uint64_t b,
                const char *text)
{
    struct trace trace = {
        .kind = (uint8_t)kind,
        .node = (uint8_t)node,
        .page = (uint16_t)page,
        .a = a,
        .b = b,
        .text = text,
    };

    trace_add(world, &trace);
}

void trace_message(struct world *world, enum trace_kind kind, unsigned node, unsigned peer,
                   const struct message *message)
{
    unsigned page = UINT16_MAX;
    struct trace trace = {
        .kind = (uint8_t)kind,
        .node = (uint8_t)node,
        .peer = (uint8_t)peer,
        .type = message->type,
        .flags = message->flags,
        .requester = (int16_t)message->requester.index,
        .request = message->request,
        .epoch = message->epoch.number,
        .credit = message->credit,
        .sequence = message->sequence,
        .a = (int64_t)message->a,
        .b = message->b,
    };

    if (!world_page_find(world, message->page, &page))
        page = UINT16_MAX;
    trace.page = (uint16_t)page;
    trace_add(world, &trace);
}

void trace_print(const struct world *world, unsigned last)
{
    uint32_t first = world->traces_count > last ? world->traces_count - last : 0;

    if (world->traces_count > TRACE_MAX && first < world->traces_count - TRACE_MAX)
        first = world->traces_count - TRACE_MAX;
    for (uint32_t i = first; i < world->traces_count; i++)
        trace_line(world, &world->traces[i % TRACE_MAX]);
}
