/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.c - Debian control text: stanzas into packages, relation fields into names.
 *
 * A stanza is a run of lines "Field: value" that a blank line ends; a line that begins with a blank continues the
 * field above. Runs in any thread; keeps nothing.
 */
#include "demo/parse.h"

#include <string.h>
#include <strings.h>

bool span_is_equal(struct span a, struct span b)
{
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.start, b.start, a.bytes) == 0);
}

uint64_t span_hash(struct span name)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < name.bytes; i++)
        hash = (hash ^ (unsigned char)name.start[i]) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static struct span span_trim(struct span span)
{
    while (span.bytes > 0 && is_blank(span.start[0])) {
        span.start++;
        span.bytes--;
    }
    while (span.bytes > 0 && is_blank(span.start[span.bytes - 1]))
        span.bytes--;
    return span;
}

/* Cuts *rest at the first `mark`: what stands before it is returned, what stands behind it stays. */
static struct span span_cut(struct span *rest, char mark)
{
    const char *found = rest->bytes > 0 ? memchr(rest->start, mark, rest->bytes) : NULL;
    struct span head = *rest;

    if (found == NULL) {
        *rest = (struct span){rest->start + rest->bytes, 0};
        return head;
    }
    head.bytes = (size_t)(found - rest->start);
    *rest = (struct span){found + 1, rest->bytes - head.bytes - 1};
    return head;
}

static const char *line_end(const char *at, const char *end)
{
    const char *found = memchr(at, '\n', (size_t)(end - at));

    return found != NULL ? found : end;
}

static bool field_is(struct span field, const char *name)
{
    return field.bytes == strlen(name) && strncasecmp(field.start, name, field.bytes) == 0;
}

static void package_set(struct package *package, struct span field, struct span value)
{
    if (field_is(field, "Package"))
        package->name = value;
    else if (field_is(field, "Version"))
        package->version = value;
    else if (field_is(field, "Section"))
        package->section = value;
    else if (field_is(field, "Description"))
        package->description = span_trim(span_cut(&value, '\n'));
    else if (field_is(field, "Provides"))
        package->provides = value;
    else if (field_is(field, "Depends"))
        package->relations[RELATION_DEPENDS] = value;
    else if (field_is(field, "Pre-Depends"))
        package->relations[RELATION_PRE_DEPENDS] = value;
    else if (field_is(field, "Recommends"))
        package->relations[RELATION_RECOMMENDS] = value;
}

/* Takes one field with its continuation lines off *at. */
static void field_parse(const char **at, const char *end, struct package *package)
{
    const char *stop = line_end(*at, end);
    struct span value;
    struct span field;

    while (stop < end && stop + 1 < end && (stop[1] == ' ' || stop[1] == '\t'))
        stop = line_end(stop + 1, end);
    value = (struct span){*at, (size_t)(stop - *at)};
    field = span_cut(&value, ':');
    package_set(package, field, span_trim(value));
    *at = stop < end ? stop + 1 : end;
}

bool package_parse(const char **at, const char *end, struct package *ret_package)
{
    while (*at < end) {
        struct package package = {.hash = 0};

        while (*at < end && **at == '\n')
            (*at)++;
        while (*at < end && **at != '\n')
            field_parse(at, end, &package);
        while (*at < end && **at == '\n')
            (*at)++;
        if (package.name.bytes > 0) {
            package.hash = span_hash(package.name);
            *ret_package = package;
            return true;
        }
    }
    return false;
}

const char *stanza_find(const char *text, const char *at, const char *end)
{
    if (at - text >= 2) {
        at = memmem(at - 2, (size_t)(end - at) + 2, "\n\n", 2);
        if (at == NULL)
            return end;
    } else {
        at = text;
    }
    while (at < end && *at == '\n')
        at++;
    return at;
}

bool item_next(struct span *field, struct span *ret_item)
{
    while (field->bytes > 0) {
        struct span item = span_trim(span_cut(field, ','));

        if (item.bytes > 0) {
            *ret_item = item;
            return true;
        }
    }
    return false;
}

bool alternative_next(struct span *item, struct span *ret_name)
{
    while (item->bytes > 0) {
        struct span name = span_trim(span_cut(item, '|'));
        size_t bytes = 0;

        while (bytes < name.bytes && !is_blank(name.start[bytes]) && strchr("([<:", name.start[bytes]) == NULL)
            bytes++;
        if (bytes > 0) {
            *ret_name = (struct span){name.start, bytes};
            return true;
        }
    }
    return false;
}
