/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.c MIB - a program whose memory is managed while limits.sh changes the limits: of a node (built with NODE), or
 * of an ordinary program. Fills MIB of memory and says "filled". Then, for each line of its input: checks all of it and
 * says "right", or ends with 1.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef NODE
#include "tiermesh/dsm.h"
#endif

#define PAGE_WORDS (4096 / sizeof(uint64_t))

static uint64_t *memory_get(size_t size_bytes)
{
#ifdef NODE
    struct dsm_attributes attributes = {.kind = DSM_PRIVATE};
    void *memory;
    int error = dsm_init(NULL);

    if (error == 0)
        error = dsm_malloc_with(size_bytes, &attributes, &memory);
    if (error != 0) {
        fprintf(stderr, "%s\n", dsm_errmsg());
        exit(77);
    }
    return memory;
#else
    uint64_t *memory = malloc(size_bytes);

    if (memory == NULL)
        exit(2);
    return memory;
#endif
}

static uint64_t word_of(size_t i)
{
    return i * UINT64_C(0x9e3779b97f4a7c15) ^ i >> 7;
}

static void say(const char *word)
{
    printf("%s\n", word);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    size_t words_count = (argc > 1 ? strtoul(argv[1], NULL, 10) : 1) * ((size_t)1 << 20) / sizeof(uint64_t);
    uint64_t *words = memory_get(words_count * sizeof(uint64_t));
    char line[16];

    for (size_t i = 0; i < words_count; i++)
        words[i] = word_of(i);
    say("filled");
    while (fgets(line, sizeof(line), stdin) != NULL) {
        for (size_t i = 0; i < words_count; i++) {
            if (words[i] == word_of(i))
                continue;
            fprintf(stderr, "word %zu of %zu is %lx\n", i, words_count, words[i]);
            return 1;
        }
        say("right");
    }
#ifdef NODE
    dsm_finalize();
#endif
    return 0;
}
