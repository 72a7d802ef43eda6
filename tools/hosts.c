/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hosts.c - the machines of a job: from -H a,b:2 or a hostfile, and which rank runs where.
 */
#include "tools/hosts.h"
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int slots_parse(const char *text, unsigned *ret_slots)
{
    char *end;
    unsigned long slots = strtoul(text, &end, 10);

    if (text[0] < '0' || text[0] > '9' || *end != '\0' || slots == 0 || slots > NODES_MAX)
        return error_set(-EINVAL, "slots \"%s\": a number from 1 to %d is needed", text, NODES_MAX);
    *ret_slots = (unsigned)slots;
    return 0;
}

/* "name" or "name:slots"; `text` is cut at the colon. */
static int host_add(struct hosts *hosts, char *text, const char *slots)
{
    char *colon = strrchr(text, ':');
    struct host host = {.slots_count = 1};
    int result = 0;

    if (hosts->count == HOSTS_MAX)
        return error_set(-EINVAL, "more than %d hosts", HOSTS_MAX);
    if (colon != NULL && slots == NULL) {
        slots = colon + 1;
        *colon = '\0';
    }
    if (slots != NULL)
        result = slots_parse(slots, &host.slots_count);
    if (result < 0)
        return result;
    /* A name that starts with a dash would be an option of the launcher. */
    if (text[0] == '\0' || text[0] == '-' || strlen(text) >= sizeof(host.name) ||
        strpbrk(text, " \t'\"\\;&|`$<>") != NULL)
        return error_set(-EINVAL, "\"%s\" is not the name of a host", text);
    memcpy(host.name, text, strlen(text) + 1);
    hosts->list[hosts->count++] = host;
    return 0;
}

int hosts_parse(struct hosts *hosts, const char *text)
{
    char *copy = strdup(text);
    char *rest = copy;
    char *word;
    int result = 0;

    if (copy == NULL)
        return error_set(-ENOMEM, "no memory for the list of hosts");
    while (result == 0 && (word = strsep(&rest, ",")) != NULL)
        result = host_add(hosts, word, NULL);
    free(copy);
    return result;
}

/* One line of a hostfile; a comment or an empty line adds nothing. */
static int line_parse(struct hosts *hosts, char *line)
{
    static const char blanks[] = " \t\r\n";
    char *rest = line;
    char *name, *more;

    line[strcspn(line, "#")] = '\0';
    name = strtok_r(rest, blanks, &rest);
    if (name == NULL)
        return 0;
    more = strtok_r(NULL, blanks, &rest);
    if (more == NULL)
        return host_add(hosts, name, NULL);
    if (strncmp(more, "slots=", 6) != 0 || strtok_r(NULL, blanks, &rest) != NULL)
        return error_set(-EINVAL, "\"%s\" after %s: only slots=N may stand there", more, name);
    return host_add(hosts, name, more + 6);
}

int hosts_read(struct hosts *hosts, const char *path)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;
    unsigned number = 0;
    unsigned before = hosts->count;
    int result = 0;

    if (file == NULL)
        return error_set(-errno, "hostfile %s: %s", path, strerror(errno));
    while (result == 0 && getline(&line, &size, file) >= 0) {
        number++;
        result = line_parse(hosts, line);
    }
    if (result < 0) {
        char sentence[400];

        snprintf(sentence, sizeof(sentence), "%s", error_text());
        result = error_set(result, "hostfile %s, line %u: %s", path, number, sentence);
    } else if (ferror(file) != 0) {
        result = error_set(-EIO, "hostfile %s cannot be read", path);
    } else if (hosts->count == before) {
        result = error_set(-EINVAL, "hostfile %s names no host", path);
    }
    free(line);
    fclose(file);
    return result;
}

unsigned hosts_slots(const struct hosts *hosts)
{
    unsigned slots = 0;

    for (unsigned i = 0; i < hosts->count; i++)
        slots += hosts->list[i].slots_count;
    return slots;
}

const char *hosts_of_rank(const struct hosts *hosts, unsigned rank)
{
    unsigned slot;

    if (hosts->count == 0)
        return NULL;
    slot = rank % hosts_slots(hosts);
    for (unsigned i = 0;; i++) {
        if (slot < hosts->list[i].slots_count)
            return hosts->list[i].name;
        slot -= hosts->list[i].slots_count;
    }
}
