/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_main.c - runs a fuzz program without libFuzzer.
 *
 * Every file of the folders given as arguments goes through LLVMFuzzerTestOneInput(), then variations of them, drawn
 * from one fixed seed: bytes changed, tails cut, two inputs joined. The same inputs on every run. Without a corpus
 * the variations start from an empty input.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUTS_MAX  256
#define INPUT_BYTES 4096
#define VARIATIONS  20000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    uint8_t bytes[INPUT_BYTES];
    size_t size;
};

static struct input inputs[INPUTS_MAX];
static size_t inputs_count;
static uint64_t seed = 0x9e3779b97f4a7c15u;

static uint64_t draw(uint64_t bound)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % bound;
}

/* The copy has exactly `size` bytes, so that a sanitizer sees a read past the end. */
static void run(const uint8_t *bytes, size_t size)
{
    uint8_t *exact = malloc(size > 0 ? size : 1);

    if (exact == NULL)
        abort();
    if (size > 0)
        memcpy(exact, bytes, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static int read_folder(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    char name[4096];

    if (folder == NULL) {
        perror(path);
        return -1;
    }
    while ((entry = readdir(folder)) != NULL && inputs_count < INPUTS_MAX) {
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(name, "rb");
        if (file == NULL)
            continue;
        struct input *input = &inputs[inputs_count++];
        input->size = fread(input->bytes, 1, sizeof(input->bytes), file);
        fclose(file);
    }
    closedir(folder);
    return 0;
}

static void vary(struct input *input)
{
    const struct input *other = &inputs[draw(inputs_count)];
    uint64_t changes = 1 + draw(8);

    if (draw(4) == 0) {
        size_t keep = draw(input->size + 1);
        size_t room = sizeof(input->bytes) - keep;
        size_t added = other->size < room ? other->size : room;
        memcpy(input->bytes + keep, other->bytes, added);
        input->size = keep + added;
    }
    if (draw(4) == 0)
        input->size = draw(input->size + 1);
    if (input->size < sizeof(input->bytes) && draw(4) == 0)
        input->bytes[input->size++] = (uint8_t)draw(256);
    for (; changes > 0 && input->size > 0; changes--) {
        static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff};
        uint8_t byte = draw(2) ? (uint8_t)draw(256) : edges[draw(sizeof(edges))];
        input->bytes[draw(input->size)] = byte;
    }
}

int main(int argc, char **argv)
{
    struct input changed;

    for (int i = 1; i < argc; i++)
        if (read_folder(argv[i]) != 0)
            return 1;
    if (inputs_count == 0)
        inputs_count = 1;
    for (size_t i = 0; i < inputs_count; i++)
        run(inputs[i].bytes, inputs[i].size);
    for (int i = 0; i < VARIATIONS; i++) {
        changed = inputs[draw(inputs_count)];
        vary(&changed);
        run(changed.bytes, changed.size);
    }
    printf("%zu inputs and %d variations\n", inputs_count, VARIATIONS);
    return 0;
}
