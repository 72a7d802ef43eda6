/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_memory.h - memory that several hosts map and whose caches do not know of each other: the rules, in one place.
 *
 * Nothing is atomic between hosts, so each byte has one writer. What is told from one host to another goes in this
 * order: the writer stores the bytes, pool_write_back(), and only then stores the line that says so, written back too;
 * the reader drops what its caches hold of that line (pool_drop()), loads it, drops the bytes, loads them, and checks
 * them: a speculative load may have brought stale lines back between the two.
 *
 * A line is 64 bytes that are told together. Its last word is a checksum, since two hosts' halves may mix.
 */
#ifndef TIERMESH_FABRIC_POOL_MEMORY_H
#define TIERMESH_FABRIC_POOL_MEMORY_H

#include "base/types.h"

#define POOL_LINE_BYTES 64
#define POOL_LINE_WORDS 7

struct pool_line {
    _Alignas(POOL_LINE_BYTES) uint64_t words[POOL_LINE_WORDS];
    uint64_t check;
};

bool pool_memory_is_supported(void); /* whether this processor's caches can be told so */

void pool_write_back(const void *memory, size_t size_bytes); /* returns when other hosts can see the bytes */
void pool_drop(const void *memory, size_t size_bytes);       /* the next loads come from the memory itself */

/* Of whole words. */
uint64_t pool_hash(uint64_t seed, const void *memory, size_t size_bytes);

void pool_line_write(struct pool_line *line, const uint64_t words[POOL_LINE_WORDS]);
bool pool_line_read(const struct pool_line *line,
                    uint64_t ret_words[POOL_LINE_WORDS]); /* false: not whole, look again */

#endif
