/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - a library to be loaded and unloaded: allocates in its constructor, has thread storage of some size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *module_touch(int number);

static _Thread_local char storage[20000];
static char *block;

__attribute__((constructor)) static void begin(void)
{
    block = strdup("made by the constructor");
}

__attribute__((destructor)) static void end(void)
{
    free(block);
}

char *module_touch(int number)
{
    snprintf(storage, sizeof(storage), "%d", number);
    return block != NULL ? strdup(storage) : NULL;
}
