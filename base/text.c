/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.c - a text that grows in memory of the caller's, and stays within it.
 */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>

void text_add(struct text *text, const char *format, ...)
{
    size_t room = text->size_bytes - text->used;
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(text->bytes + text->used, room, format, arguments);
    va_end(arguments);
    if (length > 0)
        text->used += (size_t)length < room ? (size_t)length : room - 1;
}
