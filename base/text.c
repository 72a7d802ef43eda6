/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.c - a text that grows in memory of the caller's, and stays within it.
 */
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FORMAT_BYTES 512 /* more of a format is cut off */

/* `format` with the words for `error` in place of %m. */
static void error_insert(char to[FORMAT_BYTES], const char *format, int error)
{
    const char *words = strerrordesc_np(error);
    size_t used = 0;

    if (words == NULL)
        words = "unknown error";
    while (*format != '\0' && used < FORMAT_BYTES - 2) {
        if (format[0] == '%' && format[1] == 'm') {
            size_t length = strlen(words) < FORMAT_BYTES - 1 - used ? strlen(words) : FORMAT_BYTES - 1 - used;

            memcpy(to + used, words, length);
            used += length;
            format += 2;
            continue;
        }
        to[used++] = *format;
        if (*format++ == '%' && *format != '\0')
            to[used++] = *format++; /* of %% both: the second begins nothing */
    }
    to[used] = '\0';
}

int text_format(char *to, size_t size_bytes, const char *format, va_list arguments)
{
    char whole[FORMAT_BYTES];

    error_insert(whole, format, errno);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    return vsnprintf(to, size_bytes, whole, arguments);
#pragma GCC diagnostic pop
}

void text_add(struct text *text, const char *format, ...)
{
    size_t room = text->size_bytes - text->used;
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = text_format(text->bytes + text->used, room, format, arguments);
    va_end(arguments);
    if (length > 0)
        text->used += (size_t)length < room ? (size_t)length : room - 1;
}
