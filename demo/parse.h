/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.h - Debian control text: stanzas into packages, relation fields into names.
 *
 * Nothing is copied: a package points into the text it was parsed from. The text comes from files that others wrote,
 * so nothing is assumed about it; reads never pass `end`.
 */
#ifndef TIERMESH_DEMO_PARSE_H
#define TIERMESH_DEMO_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct span {
    const char *start;
    size_t bytes;
};

enum relation {
    RELATION_DEPENDS,
    RELATION_PRE_DEPENDS,
    RELATION_RECOMMENDS,
    RELATIONS,
};

struct package {
    struct span name;
    struct span version;
    struct span section;
    struct span description; /* the first line */
    struct span provides;
    struct span relations[RELATIONS];
    uint64_t hash; /* of the name */
};

bool span_is_equal(struct span a, struct span b);
uint64_t span_hash(struct span name);

/*
 * package_parse - the next stanza with a package name in [*at, end). False when there is none; *at moves behind it.
 * A caller that takes only the stanzas that begin before some point asks stanza_find() first.
 */
bool package_parse(const char **at, const char *end, struct package *ret_package);

/* Where the first stanza that begins at or behind `at` begins; `end` when none does. `text` is the whole's start. */
const char *stanza_find(const char *text, const char *at, const char *end);

/* Takes the next item of a comma-separated field off *field; false at its end. Blank items are left out. */
bool item_next(struct span *field, struct span *ret_item);

/*
 * Takes the next alternative off *item, as in "a (>= 1) | b:any", and gives its bare name. False when none is left.
 */
bool alternative_next(struct span *item, struct span *ret_name);

#endif
