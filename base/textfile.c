/* SPDX-License-Identifier: Apache-2.0 */
#include "base/textfile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static ssize_t read_whole(int fd, char *bytes, size_t size_bytes)
{
    ssize_t got;

    do
        got = read(fd, bytes, size_bytes);
    while (got < 0 && errno == EINTR);
    return got;
}

static int open_to_read(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

int text_read(const char *path, char *text, size_t size_bytes)
{
    int before = errno;
    int fd = open_to_read(path);
    size_t length = 0;
    ssize_t got = 0;
    int error = 0;

    if (fd < 0) {
        errno = before;
        return fd;
    }
    while (length < size_bytes - 1 && (got = read_whole(fd, text + length, size_bytes - 1 - length)) > 0)
        length += (size_t)got;
    if (got < 0)
        error = -errno;
    close(fd);
    text[length] = '\0';
    errno = before;
    return error;
}

int text_number(const char *text, uint64_t *ret_value)
{
    uint64_t value = 0;

    if (strncmp(text, "max", 3) == 0) {
        *ret_value = UINT64_MAX;
        return 0;
    }
    if (*text < '0' || *text > '9')
        return -EINVAL;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *text - '0', &value)) {
            *ret_value = UINT64_MAX;
            return 0;
        }
    }
    *ret_value = value;
    return 0;
}

int text_number_of(const char *text, const char *word, uint64_t *ret_value)
{
    size_t length = strlen(word);

    while (text != NULL && *text != '\0') {
        if (strncmp(text, word, length) == 0 && text[length] == ' ') {
            text += length;
            while (*text == ' ')
                text++;
            return text_number(text, ret_value);
        }
        text = strchr(text, '\n');
        text = text == NULL ? NULL : text + 1;
    }
    return -ENOENT;
}

/* ---- lines ----------------------------------------------------------------------------------------------------- */

int text_lines_open(struct text_lines *lines, const char *path)
{
    int before = errno;

    lines->fd = open_to_read(path);
    lines->start = 0;
    lines->end = 0;
    errno = before;
    return lines->fd < 0 ? lines->fd : 0;
}

/* More bytes behind what is there. false: the end of the file. */
static bool lines_fill(struct text_lines *lines)
{
    int before = errno;
    ssize_t got;

    memmove(lines->bytes, lines->bytes + lines->start, lines->end - lines->start);
    lines->end -= lines->start;
    lines->start = 0;
    got = read_whole(lines->fd, lines->bytes + lines->end, sizeof(lines->bytes) - 1 - lines->end);
    errno = before;
    if (got > 0)
        lines->end += (size_t)got;
    return got > 0;
}

char *text_lines_next(struct text_lines *lines)
{
    bool is_too_long = false;

    while (true) {
        char *line = lines->bytes + lines->start;
        char *end = memchr(line, '\n', lines->end - lines->start);

        if (end != NULL) {
            *end = '\0';
            lines->start = (size_t)(end + 1 - lines->bytes);
            if (!is_too_long)
                return line;
            is_too_long = false;
            continue;
        }
        if (lines->end - lines->start == sizeof(lines->bytes) - 1) {
            is_too_long = true;
            lines->start = lines->end;
        }
        if (lines_fill(lines))
            continue;
        if (lines->end == lines->start || is_too_long)
            return NULL;
        lines->bytes[lines->end] = '\0'; /* the last line has no end */
        line = lines->bytes + lines->start;
        lines->start = lines->end;
        return line;
    }
}

void text_lines_close(struct text_lines *lines)
{
    int before = errno;

    close(lines->fd);
    errno = before;
}

bool text_join(char *text, size_t size_bytes, const char *first, const char *second)
{
    size_t first_length = strlen(first);
    size_t second_length = strlen(second);

    text[0] = '\0';
    if (first_length + second_length >= size_bytes)
        return false;
    memcpy(text, first, first_length);
    memcpy(text + first_length, second, second_length + 1);
    return true;
}
