/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup.c - finding and reading the memory cgroup. Any thread; no allocation, no stdio.
 *
 * Where the group lies is told by two files: /proc/self/cgroup names it inside its hierarchy, /proc/self/mountinfo says
 * which part of the hierarchy is mounted where. In a container the mounted part may begin below the root ("/docker/x"),
 * and names may reach above it ("/../y"): what cannot be seen is left to the groups that can.
 */
#include "runtime/cgroup.h"
#include "base/textfile.h"

#include <errno.h>
#include <string.h>

#define MARGIN_MIN_BYTES ((uint64_t)4 << 20)
#define MARGIN_OWN_BYTES ((uint64_t)12 << 20) /* the pager's buffers fill when many pages move: 8 MiB */
#define MARGIN_MAX_BYTES ((uint64_t)256 << 20)
#define MARGIN_SHARE     16 /* of the limit */
#define STAT_BYTES       8192
#define V1_NO_LIMIT      ((uint64_t)1 << 62) /* v1 says a little less than 2^63 for "none" */

/* ---- where it is ----------------------------------------------------------------------------------------------- */

/* Is `word` one of the words that commas part, up to the end or the first byte of `ends`? */
static bool has_word(const char *list, const char *word, const char *ends)
{
    size_t length = strlen(word);

    while (true) {
        size_t size = strcspn(list, ends);
        const char *comma = memchr(list, ',', size);
        size_t item = comma != NULL ? (size_t)(comma - list) : size;

        if (item == length && memcmp(list, word, length) == 0)
            return true;
        if (comma == NULL)
            return false;
        list = comma + 1;
    }
}

/* "4:memory:/a/b" or "0::/a/b" of /proc/self/cgroup: the part behind the second colon. false: there is none. */
static bool name_read(const char *root, enum cgroup_kind kind, char *name, size_t size_bytes)
{
    struct text_lines lines;
    char path[CGROUP_PATH_MAX];
    bool found = false;
    char *line;

    if (!text_join(path, sizeof(path), root, "/proc/self/cgroup") || text_lines_open(&lines, path) != 0)
        return false;
    while (!found && (line = text_lines_next(&lines)) != NULL) {
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;

        if (group == NULL)
            continue;
        found = kind == CGROUP_V2 ? strncmp(line, "0::", 3) == 0 : has_word(controllers + 1, "memory", ":");
        if (found)
            found = text_join(name, size_bytes, group + 1, "");
    }
    text_lines_close(&lines);
    return found;
}

/* The kernel writes blanks and backslashes of paths as \040 and \134. */
static void unescape(char *text)
{
    char *to = text;

    for (; *text != '\0'; text++) {
        if (text[0] == '\\' && text[1] >= '0' && text[1] <= '3' && text[2] >= '0' && text[2] <= '7' && text[3] >= '0' &&
            text[3] <= '7') {
            *to++ = (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0'));
            text += 3;
        } else {
            *to++ = *text;
        }
    }
    *to = '\0';
}

/* Cuts the text at the next blank. Returns what is behind it, NULL at the end. */
static char *field_end(char *text)
{
    char *blank = strchr(text, ' ');

    if (blank == NULL)
        return NULL;
    *blank = '\0';
    return blank + 1;
}

/*
 * "31 23 0:28 /part /mounted/at rw,relatime shared:1 - cgroup cgroup rw,memory". false: the line is of another file
 * system. The part and the mount point are left in place in the line.
 */
static bool mount_line_read(char *line, enum cgroup_kind kind, char **ret_part, char **ret_point)
{
    char *type = strstr(line, " - ");
    char *options;

    if (type == NULL)
        return false;
    *type = '\0';
    type += 3;
    options = strrchr(type, ' ');
    if (options == NULL || strncmp(type, kind == CGROUP_V2 ? "cgroup2 " : "cgroup ", kind == CGROUP_V2 ? 8 : 7) != 0)
        return false;
    if (kind == CGROUP_V1 && !has_word(options + 1, "memory", " "))
        return false;
    for (int skipped = 0; skipped < 3 && line != NULL; skipped++)
        line = field_end(line);
    *ret_part = line;
    *ret_point = line != NULL ? field_end(line) : NULL;
    if (*ret_point == NULL)
        return false;
    (void)field_end(*ret_point);
    unescape(*ret_part);
    unescape(*ret_point);
    return true;
}

/*
 * The group's name below the mounted part; NULL: it lies elsewhere. A part above our namespace ("/..") has all of the
 * namespace below it, but not where: the mount point is then all that can be seen.
 */
static const char *name_below(const char *name, const char *part)
{
    bool is_above = strncmp(part, "/..", 3) == 0;
    size_t length = strlen(part);

    if (strncmp(name, part, length) == 0 && length > 1 && (name[length] == '/' || name[length] == '\0'))
        return name + length;
    if (strncmp(name, "/..", 3) == 0 || (length > 1 && !is_above))
        return NULL;
    return is_above || name[1] == '\0' ? "" : name;
}

static bool group_path(const char *root, const char *point, const char *below, struct cgroup *group)
{
    char mount[CGROUP_PATH_MAX];

    if (!text_join(mount, sizeof(mount), root, point) || !text_join(group->path, sizeof(group->path), mount, below))
        return false;
    group->mount_length = strlen(mount);
    return true;
}

static void find(const char *root, enum cgroup_kind kind, struct cgroup *ret_group)
{
    struct text_lines lines;
    char name[CGROUP_PATH_MAX];
    char path[CGROUP_PATH_MAX];
    char *line;

    ret_group->kind = CGROUP_NONE;
    if (!name_read(root, kind, name, sizeof(name)))
        return;
    if (!text_join(path, sizeof(path), root, "/proc/self/mountinfo") || text_lines_open(&lines, path) != 0)
        return;
    while (ret_group->kind == CGROUP_NONE && (line = text_lines_next(&lines)) != NULL) {
        const char *below;
        char *part;
        char *point;

        if (!mount_line_read(line, kind, &part, &point))
            continue;
        below = name_below(name, part);
        if (below != NULL && group_path(root, point, below, ret_group))
            ret_group->kind = kind;
    }
    text_lines_close(&lines);
}

void cgroup_find_memory(const char *root, struct cgroup *ret_group)
{
    find(root, CGROUP_V1, ret_group);
    if (ret_group->kind == CGROUP_NONE)
        find(root, CGROUP_V2, ret_group);
}

void cgroup_find_unified(const char *root, struct cgroup *ret_group)
{
    find(root, CGROUP_V2, ret_group);
}

bool cgroup_is_top(const struct cgroup *group)
{
    return group->kind == CGROUP_NONE || group->path[group->mount_length] == '\0';
}

/* ---- what fits ------------------------------------------------------------------------------------------------- */

uint64_t cgroup_margin_bytes(uint64_t limit_bytes)
{
    uint64_t own_bytes = limit_bytes / 4 < MARGIN_OWN_BYTES ? limit_bytes / 4 : MARGIN_OWN_BYTES;
    uint64_t margin_bytes = limit_bytes / MARGIN_SHARE;

    if (margin_bytes > MARGIN_MAX_BYTES)
        margin_bytes = MARGIN_MAX_BYTES;
    if (margin_bytes < own_bytes)
        margin_bytes = own_bytes;
    if (margin_bytes < MARGIN_MIN_BYTES)
        margin_bytes = MARGIN_MIN_BYTES;
    return margin_bytes;
}

static int file_number(const char *directory, const char *name, uint64_t *ret_value)
{
    char path[CGROUP_PATH_MAX];
    char text[64];
    int error;

    if (!text_join(path, sizeof(path), directory, name))
        return -ENAMETOOLONG;
    error = text_read(path, text, sizeof(text));
    return error != 0 ? error : text_number(text, ret_value);
}

static void lower(uint64_t *value, uint64_t other)
{
    if (other < *value)
        *value = other;
}

static void level_limit(enum cgroup_kind kind, const char *directory, const char *stat, uint64_t *ret_bytes)
{
    uint64_t bytes;

    *ret_bytes = UINT64_MAX;
    if (file_number(directory, kind == CGROUP_V1 ? "/memory.limit_in_bytes" : "/memory.max", &bytes) == 0)
        lower(ret_bytes, bytes);
    /* Above memory.high the kernel holds the process up: as good as a limit. */
    if (kind == CGROUP_V2 && file_number(directory, "/memory.high", &bytes) == 0)
        lower(ret_bytes, bytes);
    /* Counts ancestors that are not mounted here, too. */
    if (kind == CGROUP_V1 && text_number_of(stat, "hierarchical_memory_limit", &bytes) == 0)
        lower(ret_bytes, bytes);
    if (*ret_bytes >= V1_NO_LIMIT)
        *ret_bytes = UINT64_MAX;
}

static uint64_t level_used_bytes(enum cgroup_kind kind, const char *directory, const char *stat)
{
    static const char *const cache[2][2] = {{"total_inactive_file", "total_active_file"},
                                            {"inactive_file", "active_file"}};
    const char *name = kind == CGROUP_V1 ? "/memory.usage_in_bytes" : "/memory.current";
    uint64_t used_bytes;

    if (file_number(directory, name, &used_bytes) != 0)
        return 0;
    for (int i = 0; i < 2; i++) {
        uint64_t cache_bytes;

        if (text_number_of(stat, cache[kind == CGROUP_V2][i], &cache_bytes) == 0)
            used_bytes -= cache_bytes < used_bytes ? cache_bytes : used_bytes;
    }
    return used_bytes;
}

static void level_read(enum cgroup_kind kind, const char *directory, struct cgroup_room *room)
{
    char path[CGROUP_PATH_MAX];
    char stat[STAT_BYTES];
    uint64_t limit_bytes;
    int64_t room_bytes;

    if (!text_join(path, sizeof(path), directory, "/memory.stat") || text_read(path, stat, sizeof(stat)) != 0)
        stat[0] = '\0';
    level_limit(kind, directory, stat, &limit_bytes);
    if (limit_bytes == UINT64_MAX)
        return;
    room_bytes = (int64_t)limit_bytes - (int64_t)level_used_bytes(kind, directory, stat) -
                 (int64_t)cgroup_margin_bytes(limit_bytes);
    if (room_bytes < room->room_bytes)
        *room = (struct cgroup_room){.limit_bytes = limit_bytes, .room_bytes = room_bytes};
}

void cgroup_room(const struct cgroup *group, struct cgroup_room *ret_room)
{
    char directory[CGROUP_PATH_MAX];

    *ret_room = (struct cgroup_room){.limit_bytes = UINT64_MAX, .room_bytes = INT64_MAX};
    if (group->kind == CGROUP_NONE || !text_join(directory, sizeof(directory), group->path, ""))
        return;
    while (true) {
        char *slash;

        level_read(group->kind, directory, ret_room);
        slash = strrchr(directory + group->mount_length, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

void machine_room(const char *root, struct cgroup_room *ret_room)
{
    char path[CGROUP_PATH_MAX];
    char text[STAT_BYTES];
    uint64_t total_kib;
    uint64_t available_kib;

    *ret_room = (struct cgroup_room){.limit_bytes = UINT64_MAX, .room_bytes = INT64_MAX};
    if (!text_join(path, sizeof(path), root, "/proc/meminfo") || text_read(path, text, sizeof(text)) != 0)
        return;
    if (text_number_of(text, "MemTotal:", &total_kib) != 0 ||
        text_number_of(text, "MemAvailable:", &available_kib) != 0)
        return;
    ret_room->limit_bytes = total_kib << 10;
    ret_room->room_bytes = (int64_t)(available_kib << 10) - (int64_t)cgroup_margin_bytes(total_kib << 10);
}
