/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_place.c - which node of which job this process is: asked of one launcher after another.
 *
 * A finder returns 1 (found), 0 (not started by this launcher) or a negative errno with a sentence. Another launcher is
 * another line of the table.
 */
#include "base/error.h"
#include "runtime/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int number_parse(const char *name, unsigned below, unsigned *ret_number)
{
    const char *text = getenv(name);
    char *end = NULL;
    unsigned long number;

    if (text == NULL || text[0] < '0' || text[0] > '9')
        return error_set(-EINVAL, "%s is \"%s\": a number is needed (dsmrun sets it)", name, text == NULL ? "" : text);
    number = strtoul(text, &end, 10);
    if (*end != '\0' || number >= below)
        return error_set(-EINVAL, "%s is \"%s\": a number below %u is needed (dsmrun sets it)", name, text, below);
    *ret_number = (unsigned)number;
    return 0;
}

static int key_read(uint8_t key[AGENT_KEY_BYTES])
{
    unsigned fd;
    struct stat file;
    int result = number_parse("DSM_KEY_FD", 1u << 20, &fd);

    if (result < 0)
        return result;
    if (fstat((int)fd, &file) < 0 || !S_ISREG(file.st_mode) ||
        pread((int)fd, key, AGENT_KEY_BYTES, 0) != AGENT_KEY_BYTES)
        return error_set(-EINVAL,
                         "the job's key cannot be read from descriptor %u (DSM_KEY_FD): a program between "
                         "dsmrun and this one closed it",
                         fd);
    /* Programs that this one starts are not nodes of the job. */
    (void)fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    return 0;
}

/* A unix socket of dsmrun lies in the job's private directory. */
static void directory_find(struct agent_place *place)
{
    const char *slash = strrchr(place->address, '/');
    size_t prefix = strlen("unix:");

    if (strncmp(place->address, "unix:/", prefix + 1) == 0 && slash > place->address + prefix)
        memcpy(place->directory, place->address + prefix, (size_t)(slash - place->address) - prefix);
}

static int find_dsmrun(struct agent_place *place)
{
    const char *address = getenv("DSM_AGENT");
    int result;

    if (address == NULL) {
        if (getenv("DSM_RANK") != NULL)
            return error_set(-EINVAL,
                             "DSM_RANK is set but DSM_AGENT is not: start the program with dsmrun, or unset it");
        return 0;
    }
    if (strlen(address) >= sizeof(place->address))
        return error_set(-EINVAL, "DSM_AGENT is longer than %zu bytes", sizeof(place->address) - 1);
    memcpy(place->address, address, strlen(address) + 1);
    directory_find(place);
    result = number_parse("DSM_SIZE", NODES_MAX + 1, &place->nodes_count);
    if (result < 0)
        return result;
    result = number_parse("DSM_RANK", place->nodes_count, &place->rank);
    if (result < 0)
        return result;
    result = key_read(place->key);
    return result < 0 ? result : 1;
}

static int find_nobody(struct agent_place *place)
{
    place->is_alone = true;
    place->nodes_count = 1;
    return 1;
}

int agent_place_find(struct agent_place *ret_place)
{
    static int (*const finders[])(struct agent_place * place) = {find_dsmrun, find_nobody};
    int result = 0;

    for (size_t i = 0; i < ARRAY_COUNT(finders) && result == 0; i++) {
        struct agent_place place = {.is_alone = false};

        result = finders[i](&place);
        if (result > 0)
            *ret_place = place;
    }
    return result < 0 ? result : 0;
}
